//! Values, dtypes, errors, aliasing and second derivatives. Expected values are MLX's.

use super::*;
use crate::device::Device;
use crate::encoder::{Encoder, Workspace};
use crate::ops::{add, astype, multiply, to_device, zeros_like};
use crate::testing::devices;
use crate::{grad, vjp};

fn close(array: &Array, expected: &[f32], tolerance: f32) {
    let values = astype(array, DType::F32).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        let near = (value - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(near, "{values:?} is not {expected}");
    }
}

/// `x`, `weight` and `dy`.
fn example(device: &Device) -> [Array; 3] {
    let on = |values: &[f32], shape: &[usize]| Array::from_slice_on(values, shape, device).unwrap();
    [
        on(&[1.0, 2.0, 3.0, -1.0, 0.5, 2.0], &[2, 3]),
        on(&[1.1, 2.3, -1.7], &[3]),
        on(&[1.0, -2.0, 3.0, 0.5, 1.0, -1.0], &[2, 3]),
    ]
}

const Y: [f32; 6] = [0.50920051, 2.1293838, -2.3608387, -0.83151948, 0.8693158, -2.5701511];
const DX: [f32; 6] = [1.2829192, -0.58194661, -0.039683104, 0.99170071, 1.4506612, 0.13319361];
const DW: [f32; 3] = [0.084946156, -1.4736748, 2.6543322];

#[test]
fn values_and_gradients_are_those_of_mlx() -> Result<()> {
    for device in devices() {
        let [x, w, dy] = example(&device);
        let norm = |x: &[Array]| Ok(vec![rms_norm(&x[0], x.get(1), 1e-5)?]);
        let (y, d) = vjp(norm, &[x.clone(), w.clone()], &[dy.clone()])?;
        close(&y[0], &Y, 1e-6);
        close(&d[0], &DX, 1e-6);
        close(&d[1], &DW, 1e-6);
        let r = rms_inv(&x, 1e-5)?;
        close(&r, &[0.46290955, 0.75592679], 1e-6);
        close(&rms_norm_backward_dx(&x, Some(&w), &dy, &r)?, &DX, 1e-6);
        close(&rms_norm_backward_dw(&x, &dy, &r)?, &DW, 1e-6);
        let (y, d) = vjp(norm, &[x], &[dy])?;
        // One operation, which reads what it is given once.
        let made_by = d[0].producer().map(|(op, inputs)| (op.name(), inputs.len()));
        assert_eq!(made_by, Some(("rms_norm_backward", 2)));
        close(&y[0], &[0.46290955, 0.9258191, 1.3887286, -0.75592679, 0.37796339, 1.5118536], 1e-6);
        let dx = [0.26452017, -1.3225979, 0.7935605, 0.089992911, 0.899912, -0.17998582];
        close(&d[0], &dx, 1e-6);
    }
    Ok(())
}

#[test]
fn narrow_values_are_rounded_before_the_weight() -> Result<()> {
    for device in devices() {
        let [x, w, _] = example(&device);
        let half = DType::BF16;
        let y = rms_norm(&astype(&x, half)?, Some(&astype(&w, half)?), 1e-5)?;
        assert_eq!(y.dtype(), half);
        let expected = [0.51171875, 2.125, -2.375, -0.8359375, 0.87109375, -2.578125];
        close(&y, &expected, 0.0);
        assert_eq!(rms_norm(&astype(&x, DType::F16)?, Some(&w), 1e-5)?.dtype(), DType::F32);
        assert_eq!(rms_inv(&astype(&x, half)?, 1e-5)?.dtype(), DType::F32);
    }
    let x = astype(&example(&Device::cpu())[0], DType::F64)?;
    assert_eq!(rms_inv(&x, 1e-5)?.dtype(), DType::F64);
    Ok(())
}

#[test]
fn rows_of_any_length_agree_with_plain_operations() -> Result<()> {
    for device in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for shape in [[5, 1], [3, 15], [2, 513], [70, 33], [2, 1100]] {
                let number = |i: usize, k: usize| ((i * k + 3) % 17) as f32 / 8.0 - 1.0;
                let array = |k: usize, shape: &[usize]| {
                    let size = shape.iter().product();
                    let values: Vec<f32> = (0..size).map(|i| number(i, k)).collect();
                    astype(&Array::from_slice_on(&values, shape, &device)?, dtype)
                };
                let inputs = [array(5, &shape)?, array(7, &shape[1..])?, array(11, &shape)?];
                let [x, w, dy] = &inputs;
                let r = rms_inv(x, 1e-5)?;
                let (dx, dw) = rms_norm_backward(x, w, dy, 1e-5)?;
                let unit = match dtype {
                    DType::F32 => 1e-5,
                    DType::F16 => 4e-3,
                    _ => 3e-2,
                };
                let check = |array: &Array, plain: &Array| -> Result<()> {
                    let expected = astype(plain, DType::F32)?.to_vec::<f32>()?;
                    close(array, &expected, unit);
                    Ok(())
                };
                // Plain operations on the CPU are the oracle for both devices.
                let inputs = [x, w, dy].map(|array| to_device(array, &Device::cpu()).unwrap());
                let plain = RmsNorm::new(1e-5).composed(&inputs[..2]).unwrap()?;
                check(&rms_norm(x, Some(w), 1e-5)?, &plain[0])?;
                let plain = RmsNormBackward::new(1e-5).composed(&inputs).unwrap()?;
                check(&dx, &plain[0])?;
                check(&dw, &plain[1])?;
                check(&rms_norm_backward_dx(x, Some(w), dy, &r)?, &plain[0])?;
                check(&rms_norm_backward_dw(x, dy, &r)?, &plain[1])?;
            }
        }
    }
    Ok(())
}

#[test]
fn second_derivatives_go_through_plain_operations() -> Result<()> {
    let [x, w, dy] = example(&Device::cpu());
    let first = grad(|x: &[Array]| multiply(&rms_norm(&x[0], Some(&x[1]), 1e-5)?, &dy)?.sum(()));
    let norm = |x: &[Array]| -> Result<Array> {
        let slopes = first(x)?;
        Ok(slopes[0].square()?.sum(())? + slopes[1].square()?.sum(())?)
    };
    let second = grad(norm)(&[x, w])?;
    let expected = [-0.19504881, -2.6896849, 0.53408289, -1.6481864, -3.6139443, -3.0262442];
    close(&second[0], &expected, 1e-5);
    close(&second[1], &[1.9374082, 3.2707329, -0.31156364], 1e-5);
    Ok(())
}

#[test]
fn outputs_may_take_the_memory_of_rows() -> Result<()> {
    for device in devices() {
        for dtype in [DType::F32, DType::BF16] {
            let [x, w, dy] = example(&device).map(|array| {
                let bytes = astype(&array, dtype).unwrap().to_bytes().unwrap();
                Array::from_bytes_on(&bytes, array.shape(), dtype, &device).unwrap()
            });
            let tolerance = if dtype == DType::F32 { 1e-6 } else { 2e-2 };
            let mut encoder = Encoder::new(&device)?;
            let mut workspace = Workspace::new(&device, 4096)?;
            let dw = Array::empty_on(&[3], dtype, &device)?;
            let backward = RmsNormBackward::new(1e-5);
            encoder.run(&backward, &[&x, &w, &dy], &[&dy, &dw], &mut workspace)?;
            encoder.run(&RmsNorm::new(1e-5), &[&x, &w], &[&x], &mut workspace)?;
            encoder.submit()?.wait()?;
            close(&x, &Y, tolerance);
            close(&dy, &DX, tolerance);
            close(&dw, &DW, tolerance);
            // The weight and the scratch memory are not theirs to give.
            let mut encoder = Encoder::new(&device)?;
            let none = &mut Workspace::none(&device);
            assert!(encoder.run(&backward, &[&x, &w, &dy], &[&dy, &w], &mut workspace).is_err());
            assert!(encoder.run(&backward, &[&x, &w, &dy], &[&dy, &dw], none).is_err());
        }
    }
    Ok(())
}

#[test]
fn the_gradient_of_a_norm_of_a_sum_is_one_operation() -> Result<()> {
    type Call = fn(&[Array]) -> Result<Vec<Array>>;
    let norms: [(&str, usize, Call); 3] = [
        ("rms_norm_backward", 0, |x| {
            let (y, sum) = add_rms_norm(&x[0], &x[1], &x[2], 1e-5)?;
            Ok(vec![y, sum])
        }),
        ("layer_norm_backward", 0, |x| {
            let (y, sum) = add_layer_norm(&x[0], &x[1], &x[2], &x[2], 1e-5)?;
            Ok(vec![y, sum])
        }),
        ("rms_norm_backward", 1, |x| {
            let (y, sum) = rms_norm_add_rms_norm(&x[0], &x[2], &x[1], &x[2], [1e-5; 2])?;
            Ok(vec![y, sum])
        }),
    ];
    for device in devices() {
        let [x, w, dy] = example(&device);
        let (residual, direct) = (multiply(&dy, &x)?, multiply(&x, &x)?);
        for (name, input, call) in norms {
            let inputs = [x.clone(), residual.clone(), w.clone()];
            let (_, both) = vjp(call, &inputs, &[dy.clone(), direct.clone()])?;
            let made_by = both[input].producer().map(|(op, inputs)| (op.name(), inputs.len()));
            assert_eq!(made_by, Some((name, 4)));
            // Gradients are linear in what the outputs get.
            let none = zeros_like(&dy)?;
            let (_, of_norm) = vjp(call, &inputs, &[dy.clone(), none.clone()])?;
            let (_, of_sum) = vjp(call, &inputs, &[none, direct.clone()])?;
            for ((both, a), b) in both.iter().zip(&of_norm).zip(&of_sum) {
                close(both, &add(a, b)?.to_vec::<f32>()?, 1e-5);
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_added_to_a_gradient_may_give_its_memory() -> Result<()> {
    for device in devices() {
        // Short rows are kept in registers, long ones are not.
        for columns in [3, 8204] {
            let of = |scale: f32, shape: &[usize]| {
                let numbers = (0..shape.iter().product()).map(|i: usize| (i as f32 * scale).sin());
                Array::from_slice_on(&numbers.collect::<Vec<_>>(), shape, &device)
            };
            let (rows, row) = ([2, columns], [columns]);
            let (x, w, dy) = (of(0.3, &rows)?, of(0.7, &row)?, of(1.1, &rows)?);
            let direct = of(0.2, &rows)?;
            let (dx, dw) = rms_norm_backward(&x, &w, &dy, 1e-5)?;
            let (expected, dw) = (add(&dx, &direct)?.to_vec::<f32>()?, dw.to_vec::<f32>()?);
            let mut encoder = Encoder::new(&device)?;
            let mut workspace = Workspace::new(&device, 1 << 20)?;
            let sums = Array::empty_on(&row, DType::F32, &device)?;
            let op = RmsNormBackward::new(1e-5).direct();
            encoder.run(&op, &[&x, &w, &dy, &direct], &[&direct, &sums], &mut workspace)?;
            encoder.submit()?.wait()?;
            close(&direct, &expected, 1e-5);
            close(&sums, &dw, 1e-5);
        }
    }
    Ok(())
}

#[test]
fn wrong_arguments_are_errors_that_name_them() -> Result<()> {
    let [x, w, dy] = example(&Device::cpu());
    let text = |result: Result<Array>| result.map(|_| ()).unwrap_err().to_string();
    let ints = Array::ones(&[2, 2], DType::I32)?;
    assert!(text(rms_norm(&ints, None, 1e-5)).contains("x"));
    assert!(text(rms_norm(&x, Some(&x), 1e-5)).contains("weight"));
    assert!(text(rms_norm(&x, None, -1.0)).contains("eps"));
    assert!(text(rms_norm(&x, None, f32::NAN)).contains("eps"));
    assert!(rms_norm(&Array::scalar(1.0, DType::F32)?, None, 1e-5).is_err());
    let r = rms_inv(&x, 1e-5)?;
    assert!(text(rms_norm_backward_dx(&x, Some(&w), &w, &r)).contains("dy"));
    assert!(text(rms_norm_backward_dx(&x, Some(&w), &dy, &w)).contains("r:"));
    assert!(text(rms_norm_backward_dw(&x, &dy, &x)).contains("r:"));
    let half = astype(&dy, DType::F16)?;
    assert!(text(rms_norm_backward_dw(&x, &half, &r)).contains("dy"));
    assert!(rms_norm_backward(&x, &w, &half, 1e-5).is_err());
    Ok(())
}

#[test]
fn arrays_without_rows_or_columns_give_empty_results_and_zero_gradients() -> Result<()> {
    for device in devices() {
        let empty = Array::from_slice_on::<f32>(&[], &[0, 3], &device)?;
        let weight = Array::from_slice_on(&[1.0f32; 3], &[3], &device)?;
        let norm = |x: &[Array]| Ok(vec![rms_norm(&x[0], Some(&x[1]), 1e-5)?]);
        let (y, d) = vjp(norm, &[empty.clone(), weight], &[empty.clone()])?;
        assert_eq!((y[0].shape(), d[0].shape()), (&[0, 3][..], &[0, 3][..]));
        assert_eq!(d[1].to_vec::<f32>()?, [0.0; 3], "{device}");
        let dw = rms_norm_backward_dw(&empty, &empty, &rms_inv(&empty, 1e-5)?)?;
        assert_eq!(dw.to_vec::<f32>()?, [0.0; 3]);
        let narrow = Array::from_slice_on::<f32>(&[], &[2, 0], &device)?;
        assert_eq!(rms_norm(&narrow, None, 1e-5)?.shape(), [2, 0]);
        assert!(rms_inv(&narrow, 1e-5).is_err());
    }
    Ok(())
}

#[test]
fn threads_do_not_change_bits() -> Result<()> {
    let values: Vec<f32> = (0..200 * 77).map(|i| ((i * 37) % 101) as f32 / 51.0 - 1.0).collect();
    let x = Array::from_slice_on(&values, &[200, 77], &Device::cpu())?;
    let w = Array::from_slice_on(&values[..77], &[77], &Device::cpu())?;
    let run = |threads| -> Result<[Vec<f32>; 2]> {
        crate::set_threads(threads);
        let (dx, dw) = rms_norm_backward(&x, &w, &x, 1e-5)?;
        Ok([dx.to_vec()?, dw.to_vec()?])
    };
    assert_eq!(run(1)?, run(2)?);
    Ok(())
}

#[test]
fn layer_norm_is_that_of_mlx_however_far_from_zero() -> Result<()> {
    // Taken from MLX, which gives the same for rows 1000 further up.
    let y = [-1.2472092, -0.2, -1.7820506, -1.2472148, -0.2, -1.7820594];
    let dx = [1.0614944, -2.122875, 1.0613806, -0.31979644, 0.63958693, -0.31979024];
    for device in devices() {
        let [x, w, dy] = example(&device);
        let b = Array::from_slice_on(&[0.1f32, -0.2, 0.3], &[3], &device)?;
        let norm = |x: &[Array]| Ok(vec![layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)?]);
        for x in [x.clone(), &x + 1000.0] {
            let (value, d) = vjp(norm, &[x, w.clone(), b.clone()], &[dy.clone()])?;
            close(&value[0], &y, 1e-6);
            close(&d[0], &dx, 2e-6);
            close(&d[1], &[-1.837106, 0.0, 2.449466], 1e-6);
            close(&d[2], &[1.5, -1.0, 2.0], 0.0);
        }
        let value =
            layer_norm(&astype(&x, DType::BF16)?, Some(&astype(&w, DType::F16)?), None, 1e-5)?;
        assert_eq!(value.dtype(), DType::F32);
        let empty = Array::from_slice_on::<f32>(&[], &[2, 0], &device)?;
        assert_eq!(layer_norm(&empty, None, None, 1e-5)?.shape(), [2, 0]);
    }
    Ok(())
}

#[test]
fn rows_of_layer_norm_of_any_length_agree_with_doubles() -> Result<()> {
    for device in devices() {
        for columns in [1, 15, 513, 1100] {
            let shape = [3, columns];
            let array = |k: usize, shape: &[usize], up: f64| -> Result<Array> {
                let value = |i: usize| ((i * k + 3) % 17) as f64 / 8.0 - 1.0 + up;
                let values: Vec<f64> = (0..shape.iter().product()).map(value).collect();
                Array::from_slice_on(&values, shape, &Device::cpu())
            };
            let inputs =
                [array(5, &shape, 30.0)?, array(7, &shape[1..], 0.0)?, array(11, &shape, 0.0)?];
            let op = LayerNormBackward::new(1e-5, true, true);
            let expected = op.composed(&inputs).unwrap()?;
            let [x, w, dy] = inputs
                .map(|input| to_device(&astype(&input, DType::F32).unwrap(), &device).unwrap());
            let (dx, dw, db) = layer_norm_backward(&x, &w, &dy, 1e-5)?;
            for (gradient, expected) in [dx, dw, db].iter().zip(expected) {
                let expected = astype(&expected, DType::F32)?.to_vec::<f32>()?;
                close(gradient, &expected, 1e-5);
            }
        }
    }
    Ok(())
}

#[test]
fn wrong_arguments_of_layer_norm_are_errors_that_name_them() -> Result<()> {
    let [x, w, dy] = example(&Device::cpu());
    let text = |result: Result<Array>| result.map(|_| ()).unwrap_err().to_string();
    let ints = Array::ones(&[2, 2], DType::I32)?;
    assert!(text(layer_norm(&ints, None, None, 1e-5)).contains("x"));
    assert!(text(layer_norm(&x, Some(&x), None, 1e-5)).contains("weight"));
    assert!(text(layer_norm(&x, Some(&w), Some(&dy), 1e-5)).contains("bias"));
    assert!(text(layer_norm(&x, None, None, f32::NAN)).contains("eps"));
    assert!(layer_norm_backward(&x, &w, &w, 1e-5).is_err());
    Ok(())
}
