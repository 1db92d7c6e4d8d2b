//! Forward mode against gradients and finite differences; batches against loops.

use wootz::op::{Case, Gradient};
use wootz::testing::counters;
use wootz::{Array, DType, Device, Error, Result, jvp, stack, vjp, vmap};

use super::data::{Host, Random};
use super::gradients::{cotangents, function, gradients, is_variable};
use super::layouts::Layout;
use super::tolerance::{Against, compare};
use super::{Log, Subject, guarded, place, run};

/// What the table has a column for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transform {
    Vjp,
    Jvp,
    Vmap,
    SecondOrder,
}

impl Transform {
    pub(crate) const ALL: [Transform; 4] =
        [Transform::Vjp, Transform::Jvp, Transform::Vmap, Transform::SecondOrder];
}

/// How the float outputs change along a direction of the float arguments, on the CPU.
pub(crate) fn tangents(
    case: &Case,
    hosts: &[Host],
    direction: &[Vec<f64>],
) -> Result<Vec<Vec<f64>>> {
    let cpu = Device::cpu();
    let inputs = place(hosts, Layout::Contiguous, &cpu)?;
    let variable: Vec<usize> = (0..hosts.len()).filter(|&i| is_variable(&hosts[i])).collect();
    let values: Vec<Array> = variable.iter().map(|&i| inputs[i].clone()).collect();
    let along = (variable.iter().zip(direction))
        .map(|(&i, values)| Host::from_f64(&hosts[i].shape, hosts[i].dtype, values).array(&cpu))
        .collect::<Result<Vec<_>>>()?;
    let tangents = jvp(function(case, &inputs, &variable), &values, &along)?.1;
    tangents.iter().map(|tangent| Ok(Host::read(tangent)?.to_f64())).collect()
}

/// Elements of the batches that cases run with.
const SIZE: usize = 3;

/// A case for a batch against one element after the other: along the first and the last axis, and
/// with each argument alone a batch.
pub(crate) fn check_vmap(subject: &Subject, log: &mut Log) {
    let case = &subject.case;
    let arguments = case.inputs.len();
    if arguments == 0 {
        log.note(Transform::Vmap, "—");
        return;
    }
    let float = case.dtypes.iter().any(|dtype| dtype.is_float()) && super::follows_dtype(case);
    let dtype = if float { DType::F64 } else { case.dtypes[0] };
    let drawn = draw_batch(subject, dtype);
    let mut patterns = vec![vec![Some(0); arguments], vec![Some(-1); arguments]];
    if arguments > 1 {
        for alone in 0..arguments {
            patterns
                .push((0..arguments).map(|i| (i == alone).then_some(-(i as i64 % 2))).collect());
        }
    }
    for axes in patterns {
        let outcome = batch(case, &drawn, &axes, dtype, &Device::cpu());
        log.check(&format!("{dtype} for a batch along {axes:?}"), outcome);
        let outcome = nodes_of_batches(case, &drawn, &axes);
        log.check(&format!("nodes for batches along {axes:?}"), outcome);
    }
    let checked = matches!(case.gradient, Gradient::Checked | Gradient::Single);
    if float && checked && drawn[0].iter().any(is_variable) {
        let outcome = batch_of_gradients(subject, &drawn);
        log.check("gradients for a batch", outcome);
    }
    log.note(Transform::Vmap, "yes");
}

/// A case for a batch on a GPU, along the first axis, against its elements on the CPU.
#[cfg(feature = "gpu")]
pub(crate) fn check_vmap_on_gpu(subject: &Subject, device: &Device, log: &mut Log) {
    let case = &subject.case;
    let dtypes = || case.dtypes.iter().copied().filter(|&dtype| dtype != DType::F64);
    let Some(dtype) = dtypes().find(|&dtype| dtype == DType::F32).or_else(|| dtypes().next())
    else {
        return;
    };
    if !case.inputs.is_empty() {
        let axes = vec![Some(0); case.inputs.len()];
        let outcome = batch(case, &draw_batch(subject, dtype), &axes, dtype, device);
        log.check(&format!("{dtype} on gpu for a batch"), outcome);
    }
}

/// The arguments of a case for each element of a batch.
fn draw_batch(subject: &Subject, dtype: DType) -> Vec<Vec<Host>> {
    let (op, case) = (subject.op, &subject.case);
    let apart = case.tolerance == wootz::op::Tolerance::Exact;
    (0..SIZE)
        .map(|element| {
            let mut random = Random::new(&format!("vmap/{op}/{}/{element}", case.label));
            case.inputs.iter().map(|input| random.draw(input, dtype, apart)).collect()
        })
        .collect()
}

/// The arguments of a batch: those with an axis from all draws, the others from the first.
fn stacked(drawn: &[Vec<Host>], axes: &[Option<i64>], device: &Device) -> Result<Vec<Array>> {
    (axes.iter().enumerate())
        .map(|(i, axis)| match axis {
            None => drawn[0][i].array(device),
            Some(axis) => {
                let each = drawn.iter().map(|hosts| hosts[i].array(device));
                stack(&each.collect::<Result<Vec<_>>>()?, *axis)
            }
        })
        .collect()
}

fn batch(
    case: &Case,
    drawn: &[Vec<Host>],
    axes: &[Option<i64>],
    dtype: DType,
    device: &Device,
) -> Result<(), String> {
    let out_axis = if axes.contains(&Some(-1)) { -1 } else { 0 };
    let got: Vec<Host> = guarded(|| {
        let mapped = vmap(|x| (case.call.0)(x), axes, out_axis);
        let inputs = stacked(drawn, axes, device)?;
        let outputs = wootz::with_device(device, || mapped(&inputs))?;
        outputs.iter().map(|output| Host::read(&output.moveaxis(out_axis, 0)?)).collect()
    })?;
    let want = (drawn.iter())
        .map(|hosts| {
            let hosts: Vec<Host> = (axes.iter().enumerate())
                .map(|(i, axis)| axis.map_or(&drawn[0], |_| hosts)[i].clone())
                .collect();
            run(case, &hosts, Layout::Contiguous, &Device::cpu())
        })
        .collect::<Result<Vec<_>, String>>()?;
    compare_elements(case, &got, &want, dtype)
}

/// A batch of 11 is made of as many nodes as one of 2.
fn nodes_of_batches(case: &Case, drawn: &[Vec<Host>], axes: &[Option<i64>]) -> Result<(), String> {
    let count = |size: usize| {
        guarded(|| {
            let elements: Vec<_> = drawn.iter().cycle().take(size).cloned().collect();
            let inputs = stacked(&elements, axes, &Device::cpu())?;
            let before = counters();
            vmap(|x| (case.call.0)(x), axes, 0)(&inputs)?;
            Ok(counters().since(&before).inferences)
        })
    };
    match (count(2)?, count(11)?) {
        (few, many) if few == many => Ok(()),
        (few, many) => Err(format!("{few} nodes for 2 elements, {many} for 11")),
    }
}

/// The gradient as a function for a batch of arguments and cotangents.
fn batch_of_gradients(subject: &Subject, drawn: &[Vec<Host>]) -> Result<(), String> {
    let (case, cpu) = (&subject.case, Device::cpu());
    let variable: Vec<usize> =
        (0..case.inputs.len()).filter(|&i| is_variable(&drawn[0][i])).collect();
    let mut random = Random::new(&format!("vmap/{}/{}", subject.op, case.label));
    let mut all = Vec::new();
    let mut want = Vec::new();
    for hosts in drawn {
        let outputs = run(case, hosts, Layout::Contiguous, &cpu)?;
        let cotangents = cotangents(&outputs, DType::F64, &mut random);
        want.push(gradients(case, hosts, &cotangents, &cpu)?);
        let floats = outputs.iter().filter(|output| output.dtype.is_float());
        let cotangents = floats
            .zip(&cotangents)
            .map(|(output, values)| Host::from_f64(&output.shape, output.dtype, values));
        all.push(hosts.iter().cloned().chain(cotangents).collect::<Vec<Host>>());
    }
    let gradient = |x: &[Array]| {
        let (inputs, cotangents) = x.split_at(case.inputs.len());
        let values: Vec<Array> = variable.iter().map(|&i| inputs[i].clone()).collect();
        Ok(vjp(function(case, inputs, &variable), &values, cotangents)?.1)
    };
    let got: Vec<Host> = guarded(|| {
        let axes = vec![Some(0); all[0].len()];
        let outputs = vmap(gradient, 0, 0)(&stacked(&all, &axes, &cpu)?)?;
        outputs.iter().map(Host::read).collect()
    })?;
    compare_elements(case, &got, &want, DType::F64)
}

/// Compares results for a batch with those for its elements.
fn compare_elements(
    case: &Case,
    got: &[Host],
    want: &[Vec<Host>],
    dtype: DType,
) -> Result<(), String> {
    for (element, want) in want.iter().enumerate() {
        if got.len() != want.len() {
            return Err(format!("{} outputs, expected {}", got.len(), want.len()));
        }
        for (index, (got, want)) in got.iter().zip(want).enumerate() {
            let shape = [&[SIZE], &want.shape[..]].concat();
            if got.shape != shape {
                return Err(format!("output {index} of shape {:?}, not {shape:?}", got.shape));
            }
            let size = got.bytes.len() / SIZE;
            let got = Host {
                shape: want.shape.clone(),
                dtype: got.dtype,
                bytes: got.bytes[element * size..(element + 1) * size].to_vec(),
            };
            let against = Against::Gradient { terms: 1 };
            compare(&got, want, None, case.tolerance, against, dtype)
                .map_err(|text| format!("output {index} of element {element}: {text}"))?;
        }
    }
    Ok(())
}

/// An operation without a gradient says so in forward mode too.
pub(crate) fn refuses(outcome: Result<Vec<Vec<f64>>>) -> Result<(), String> {
    match outcome {
        Err(Error::NotDifferentiable { .. }) => Ok(()),
        Err(error) => Err(format!("expected \"not differentiable\", got: {error}")),
        Ok(outputs) if outputs.is_empty() => Ok(()),
        Ok(_) => Err("expected \"not differentiable\", got tangents".into()),
    }
}
