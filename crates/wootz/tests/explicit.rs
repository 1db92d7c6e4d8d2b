//! The explicit level, as a table: operations into preallocated arrays on every device, and every
//! way to call them wrongly. An error says the operation, the argument, what was expected and what
//! was given, and leaves the outputs' memory as it was.
#![allow(missing_docs)]
#![cfg(feature = "gpu")]

use wootz::gpu::{Bind, GpuCall, Kernel};
use wootz::op::{Metas, Op};
use wootz::ops::{
    RmsInv, RmsNormBackwardDw, RmsNormBackwardDx, SoftmaxBackward, TakeAlongAxis,
    TakeAlongAxisBackward,
};
use wootz::{Array, CpuCall, DType, Device, Encoder, Error, Meta, Result, Workspace};

/// An argument: its name, shape and values.
#[derive(Clone)]
struct Argument {
    name: &'static str,
    shape: Vec<usize>,
    dtype: DType,
    values: Vec<f64>,
}

/// A call that is right, from which the wrong ones are made.
struct Row {
    op: Box<dyn Op>,
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
}

fn float(name: &'static str, shape: &[usize], value: impl Fn(usize) -> f64) -> Argument {
    let values = (0..shape.iter().product()).map(value).collect();
    Argument { name, shape: shape.to_vec(), dtype: DType::F32, values }
}

fn index(name: &'static str, shape: &[usize], values: &[i32]) -> Argument {
    let values = values.iter().map(|&value| value as f64).collect();
    Argument { name, shape: shape.to_vec(), dtype: DType::I32, values }
}

/// The table: each operation with inputs and the outputs worked out by hand-written loops.
fn rows() -> Vec<Row> {
    const ROWS: usize = 3;
    const COLUMNS: usize = 5;
    let shape = [ROWS, COLUMNS];
    let y = float("y", &shape, |i| 0.05 * (i % 7) as f64);
    let dy = float("dy", &shape, |i| 0.3 - 0.1 * (i % 4) as f64);
    let row = |i: usize| i / COLUMNS;
    let row_sum = |r: usize, f: &dyn Fn(usize) -> f64| -> f64 {
        (r * COLUMNS..(r + 1) * COLUMNS).map(f).sum()
    };
    let softmax_dx = {
        let (y, dy) = (y.values.clone(), dy.values.clone());
        float("dx", &shape, |i| y[i] * (dy[i] - row_sum(row(i), &|j| y[j] * dy[j])))
    };
    // More indices than columns, repeated ones, and some that count from the end.
    const K: usize = 7;
    let picks: Vec<i32> = (0..ROWS * K).map(|i| [0, 4, 2, 2, -1, -5, 1, 3][i % 8]).collect();
    let column = |i: usize| picks[i].rem_euclid(COLUMNS as i32) as usize;
    let x = float("x", &shape, |i| i as f64 - 3.5);
    let taken = {
        let x = x.values.clone();
        float("output", &[ROWS, K], |i| x[i / K * COLUMNS + column(i)])
    };
    let taken_dy = float("dy", &[ROWS, K], |i| 0.5 + i as f64);
    let taken_dx = {
        let dy = taken_dy.values.clone();
        float("dx", &shape, |i| {
            let row = i / COLUMNS * K..(i / COLUMNS + 1) * K;
            row.filter(|&j| column(j) == i % COLUMNS).map(|j| dy[j]).sum()
        })
    };
    let indices = index("indices", &[ROWS, K], &picks);
    const EPS: f32 = 1e-5;
    let weight = float("weight", &[COLUMNS], |i| 0.5 + 0.25 * i as f64);
    let (xs, ws, dys) = (x.values.clone(), weight.values.clone(), dy.values.clone());
    let inverse = |r: usize| {
        let mean = row_sum(r, &|j| xs[j] * xs[j]) / COLUMNS as f64;
        1.0 / (mean + EPS as f64).sqrt()
    };
    let r = float("r", &[ROWS], inverse);
    let rms_dx = float("dx", &shape, |i| {
        let (r, w) = (inverse(row(i)), |j: usize| ws[j % COLUMNS]);
        let s = row_sum(row(i), &|j| dys[j] * xs[j] * w(j));
        r * (dys[i] * w(i) - xs[i] * s * r * r / COLUMNS as f64)
    });
    let rms_dw = float("dw", &[COLUMNS], |c| {
        (0..ROWS).map(|r| dys[r * COLUMNS + c] * xs[r * COLUMNS + c] * inverse(r)).sum()
    });
    vec![
        Row { op: Box::new(RmsInv::new(EPS)), inputs: vec![x.clone()], outputs: vec![r.clone()] },
        Row {
            op: Box::new(RmsNormBackwardDx::new()),
            inputs: vec![x.clone(), weight, dy.clone(), r.clone()],
            outputs: vec![rms_dx],
        },
        Row {
            op: Box::new(RmsNormBackwardDw),
            inputs: vec![x.clone(), dy.clone(), r],
            outputs: vec![rms_dw],
        },
        Row { op: Box::new(SoftmaxBackward), inputs: vec![y, dy], outputs: vec![softmax_dx] },
        Row {
            op: Box::new(TakeAlongAxis { axis: 1 }),
            inputs: vec![x, indices.clone()],
            outputs: vec![taken],
        },
        Row {
            op: Box::new(TakeAlongAxisBackward { axis: 1, length: COLUMNS }),
            inputs: vec![indices, taken_dy],
            outputs: vec![taken_dx],
        },
    ]
}

/// The CPU, and a GPU if there is one; in CI there must be one.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if !wootz::testing::ci() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}

impl Argument {
    fn array(&self, device: &Device) -> Array {
        let bytes: Vec<u8> = match self.dtype {
            DType::F32 => self.values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect(),
            DType::I32 => self.values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
            // Wrong dtypes: only their size matters.
            other => vec![0; self.values.len() * other.size()],
        };
        Array::from_bytes_on(&bytes, &self.shape, self.dtype, device).unwrap()
    }

    /// Memory of this argument's shape that holds a pattern.
    fn pattern(&self, device: &Device) -> Array {
        let bytes = pattern(self.shape.iter().product::<usize>() * self.dtype.size());
        Array::from_bytes_on(&bytes, &self.shape, self.dtype, device).unwrap()
    }

    fn with_shape(&self, shape: &[usize]) -> Argument {
        let count = shape.iter().product();
        let values = self.values.iter().copied().cycle().take(count).collect();
        Argument { shape: shape.to_vec(), values, ..self.clone() }
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| 0xa5 ^ (i % 64) as u8).collect()
}

/// Runs one operation in an encoder of its own.
fn run(op: &dyn Op, inputs: &[Array], outputs: &[Array], device: &Device) -> Result<()> {
    let inputs: Vec<&Array> = inputs.iter().collect();
    let outputs: Vec<&Array> = outputs.iter().collect();
    let metas: Vec<&Meta> = inputs.iter().map(|input| input.meta()).collect();
    let mut workspace = Workspace::new(device, op.scratch(&metas, device.is_gpu()))?;
    let mut encoder = Encoder::new(device)?;
    let recorded = encoder.run(op, &inputs, &outputs, &mut workspace);
    // Also after an error: then there must be nothing to submit.
    let submitted = encoder.submit()?.wait();
    recorded.and(submitted)
}

#[track_caller]
fn assert_close(output: &Array, expected: &Argument, what: &str) {
    let got = output.to_vec::<f32>().unwrap();
    for (i, (got, want)) in got.iter().zip(&expected.values).enumerate() {
        let close = (*got as f64 - want).abs() <= 1e-5 * (1.0 + want.abs());
        assert!(close, "{what}: {}[{i}] is {got}, expected {want}", expected.name);
    }
}

/// Calls with these arguments, which must fail naming the operation and one of `to_blame`, and
/// must not touch the outputs.
#[track_caller]
fn must_fail(
    row: &Row,
    inputs: &[Argument],
    outputs: &[Argument],
    to_blame: &[&str],
    device: &Device,
    what: &str,
) -> Error {
    let input_arrays: Vec<Array> = inputs.iter().map(|input| input.array(device)).collect();
    let output_arrays: Vec<Array> = outputs.iter().map(|output| output.pattern(device)).collect();
    let what = format!("{} on {device}, {what}", row.op.name());
    let error = match run(&*row.op, &input_arrays, &output_arrays, device) {
        Ok(()) => panic!("{what}: this must fail"),
        Err(error) => error,
    };
    let (op, argument, expected, got) = parts(&error);
    assert_eq!(op, row.op.name(), "{what}: {error}");
    assert!(to_blame.contains(&argument.as_str()), "{what}: blames {argument}: {error}");
    assert!(!expected.is_empty() && !got.is_empty(), "{what}: {error}");
    for output in &output_arrays {
        let memory = output.memory_bytes().unwrap();
        assert_eq!(memory, pattern(memory.len()), "{what}: output memory was touched");
    }
    error
}

/// The fields that every error about an argument has.
fn parts(error: &Error) -> (&'static str, String, String, String) {
    match error.clone() {
        Error::Shape { op, argument, expected, got }
        | Error::Argument { op, argument, expected, got } => (op, argument, expected, got),
        Error::Dtype { op, argument, expected, got } => (op, argument, expected, got.to_string()),
        Error::Index { op, argument, got, length } => {
            (op, argument, length.to_string(), got.to_string())
        }
        other => panic!("an error without op, argument, expected and got: {other:?}"),
    }
}

fn names(arguments: &[Argument]) -> Vec<&str> {
    arguments.iter().map(|argument| argument.name).collect()
}

#[test]
fn right_calls_give_right_results() {
    for device in devices() {
        for row in rows() {
            let inputs: Vec<Array> = row.inputs.iter().map(|i| i.array(&device)).collect();
            let outputs: Vec<Array> = row.outputs.iter().map(|o| o.pattern(&device)).collect();
            run(&*row.op, &inputs, &outputs, &device).unwrap();
            for (output, expected) in outputs.iter().zip(&row.outputs) {
                assert_close(output, expected, &format!("{} on {device}", row.op.name()));
            }
        }
    }
}

#[test]
fn zero_rows_and_zero_columns_are_refused() {
    for device in devices() {
        for row in rows() {
            for axis in 0..2 {
                let empty = |argument: &Argument| {
                    let mut shape = argument.shape.clone();
                    let longest = row.inputs.iter().map(|i| i.shape.len()).max().unwrap_or(0);
                    // Vectors belong to the rows or to the columns, as their length says.
                    let place = match (argument.shape.len(), axis) {
                        (1, 0) if longest > 1 => (argument.shape[0] == 3).then_some(0),
                        (1, 1) if longest > 1 => (argument.shape[0] == 5).then_some(0),
                        _ => Some(axis),
                    };
                    if let Some(place) = place {
                        shape[place] = 0;
                    }
                    argument.with_shape(&shape)
                };
                let inputs: Vec<Argument> = row.inputs.iter().map(empty).collect();
                let outputs: Vec<Argument> = row.outputs.iter().map(empty).collect();
                let mut all = names(&inputs);
                all.extend(names(&outputs));
                let what = format!("axis {axis} of length 0");
                let error = must_fail(&row, &inputs, &outputs, &all, &device, &what);
                assert!(matches!(error, Error::Shape { .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn a_buffer_that_is_short_or_long_is_refused() {
    for device in devices() {
        for row in rows() {
            let count = row.inputs.len() + row.outputs.len();
            for place in 0..count {
                for longer in [false, true] {
                    let (mut inputs, mut outputs) = (row.inputs.clone(), row.outputs.clone());
                    let argument = match place.checked_sub(inputs.len()) {
                        None => &mut inputs[place],
                        Some(output) => &mut outputs[output],
                    };
                    let mut shape = argument.shape.clone();
                    shape[0] = if longer { shape[0] + 1 } else { shape[0] - 1 };
                    *argument = argument.with_shape(&shape);
                    let what = format!("{} of {shape:?}", argument.name);
                    // Of two arguments that do not fit, either may be named.
                    let mut all = names(&row.inputs);
                    all.extend(names(&row.outputs));
                    let error = must_fail(&row, &inputs, &outputs, &all, &device, &what);
                    assert!(matches!(error, Error::Shape { .. }), "{error:?}");
                }
            }
        }
    }
}

#[test]
fn a_buffer_of_a_wrong_dtype_is_refused() {
    for device in devices() {
        for row in rows() {
            for place in 0..row.inputs.len() + row.outputs.len() {
                for wrong in [DType::Bool, DType::F16, DType::I32, DType::F32] {
                    let (mut inputs, mut outputs) = (row.inputs.clone(), row.outputs.clone());
                    let argument = match place.checked_sub(inputs.len()) {
                        None => &mut inputs[place],
                        Some(output) => &mut outputs[output],
                    };
                    // The inverse of a half-precision row is a single-precision number.
                    let allowed = row.op.name() == "rms_inv" && argument.name == "x";
                    if argument.dtype == wrong || (allowed && wrong == DType::F16) {
                        continue;
                    }
                    argument.dtype = wrong;
                    let what = format!("{} of {wrong}", argument.name);
                    let mut all = names(&row.inputs);
                    all.extend(names(&row.outputs));
                    let error = must_fail(&row, &inputs, &outputs, &all, &device, &what);
                    assert!(matches!(error, Error::Dtype { .. }), "{what}: {error:?}");
                }
            }
        }
    }
}

#[test]
fn an_index_out_of_range_is_refused() {
    for device in devices() {
        for row in rows() {
            for bad in [5, -6, i32::MAX, i32::MIN] {
                let mut inputs = row.inputs.clone();
                let Some(indices) = inputs.iter_mut().find(|input| input.name == "indices") else {
                    continue;
                };
                // In the last place, so that good ones come before.
                *indices.values.last_mut().unwrap() = bad as f64;
                let what = format!("index {bad}");
                let error = must_fail(&row, &inputs, &row.outputs, &["indices"], &device, &what);
                let Error::Index { got, length: 5, .. } = error else { panic!("{error:?}") };
                assert_eq!(got, bad as i64);
            }
        }
    }
}

#[test]
fn a_wrong_number_of_buffers_is_refused() {
    for device in devices() {
        for row in rows() {
            let fewer = &row.inputs[1..];
            must_fail(&row, fewer, &row.outputs, &["inputs"], &device, "an input missing");
            must_fail(&row, &row.inputs, &[], &["outputs"], &device, "no outputs");
        }
    }
}

#[test]
fn an_output_aliases_an_input_only_where_the_operation_allows_it() {
    for device in devices() {
        for row in rows() {
            for (i, input) in row.inputs.iter().enumerate() {
                for (o, output) in row.outputs.iter().enumerate() {
                    if (&input.shape, input.dtype) != (&output.shape, output.dtype) {
                        continue;
                    }
                    let inputs: Vec<Array> =
                        row.inputs.iter().map(|input| input.array(&device)).collect();
                    let mut outputs: Vec<Array> =
                        row.outputs.iter().map(|output| output.pattern(&device)).collect();
                    outputs[o] = inputs[i].clone();
                    let what = format!(
                        "{} on {device}, {} in the memory of {}",
                        row.op.name(),
                        output.name,
                        input.name
                    );
                    let result = run(&*row.op, &inputs, &outputs, &device);
                    if row.op.may_alias().contains(&(i, o)) {
                        result.unwrap();
                        assert_close(&outputs[o], output, &what);
                    } else {
                        let (op, argument, ..) = parts(&result.expect_err(&what));
                        assert_eq!((op, argument.as_str()), (row.op.name(), output.name));
                        assert_close(&inputs[i], input, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn outputs_that_are_views_and_arrays_of_other_devices_are_refused() {
    for device in devices() {
        for row in rows() {
            let inputs: Vec<Array> = row.inputs.iter().map(|i| i.array(&device)).collect();
            let output = &row.outputs[0];
            let mut reversed = output.shape.clone();
            reversed.reverse();
            let transposed = output.with_shape(&reversed).pattern(&device).transpose().unwrap();
            transposed.eval().unwrap();
            let mut outputs: Vec<Array> = row.outputs.iter().map(|o| o.pattern(&device)).collect();
            if output.shape.len() > 1 {
                outputs[0] = transposed;
                let error = run(&*row.op, &inputs, &outputs, &device).unwrap_err();
                let (op, argument, ..) = parts(&error);
                assert_eq!((op, argument.as_str()), (row.op.name(), output.name), "{error}");
            }
            if device.is_gpu() {
                outputs[0] = output.pattern(&Device::cpu());
                let error = run(&*row.op, &inputs, &outputs, &device).unwrap_err();
                assert!(matches!(error, Error::DeviceMismatch { .. }), "{error:?}");
            }
        }
    }
}

#[test]
fn a_workspace_that_is_too_small_is_refused() {
    for device in devices() {
        for row in rows() {
            let inputs: Vec<Array> = row.inputs.iter().map(|i| i.array(&device)).collect();
            let outputs: Vec<Array> = row.outputs.iter().map(|o| o.pattern(&device)).collect();
            let inputs: Vec<&Array> = inputs.iter().collect();
            let outputs: Vec<&Array> = outputs.iter().collect();
            let metas: Vec<&Meta> = inputs.iter().map(|input| input.meta()).collect();
            let bytes = row.op.scratch(&metas, device.is_gpu());
            if bytes == 0 {
                continue;
            }
            let mut workspace = Workspace::new(&device, bytes - 1).unwrap();
            let mut encoder = Encoder::new(&device).unwrap();
            let error = encoder.run(&*row.op, &inputs, &outputs, &mut workspace).unwrap_err();
            let (op, argument, expected, _) = parts(&error);
            assert_eq!((op, argument.as_str()), (row.op.name(), "workspace"));
            assert!(expected.contains(&bytes.to_string()), "{error}");
        }
    }
}

/// An operation whose kernel is not WGSL.
#[derive(Debug)]
struct Broken;

impl Op for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        Ok(Metas::from_elem(inputs[0].clone(), 1))
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        call.launch(&Kernel {
            variant: "row".into(),
            source: &|| "fn main( { this is not WGSL".into(),
            bindings: &[Bind::Input(0), Bind::Output(0)],
            params: &[],
            groups: [1, 1, 1],
        })
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None])
    }
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_with_the_compilers_words() {
    let Some(device) = devices().get(1).cloned() else { return };
    let argument = float("x", &[2, 3], |i| i as f64);
    let (x, y) = (argument.array(&device), argument.pattern(&device));
    let error = run(&Broken, &[x.clone()], &[y.clone()], &device).unwrap_err();
    let Error::Kernel { op, kernel, message } = &error else { panic!("{error:?}") };
    assert_eq!((*op, kernel.as_str()), ("broken", "broken/row"));
    assert!(message.contains("expected"), "{message}");
    let memory = y.memory_bytes().unwrap();
    assert_eq!(memory, pattern(memory.len()), "output memory was touched");
    // The device goes on.
    assert_close(&x, &argument, "the input");
    let lazy = Array::apply(Broken, &[&x]).unwrap();
    assert!(matches!(lazy.to_vec::<f32>(), Err(Error::Kernel { .. })));
    assert_eq!((&x + 1.0).to_vec::<f32>().unwrap()[0], 1.0);
}
