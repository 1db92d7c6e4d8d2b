//! Gradients: doubles against finite differences, first and second order; every dtype and device
//! against doubles.

use wootz::op::{Case, Gradient};
use wootz::{Array, DType, Device, Error, Result};

use super::data::{Host, Random};
use super::layouts::Layout;
use super::tolerance::{Against, compare, rounding, within};
use super::transforms::{refuses, tangents};
use super::{Log, Subject, draw, guarded, place, run, widen};

/// The steps of central differences. The smaller one is for functions with kinks, which the larger
/// one may step over; the larger one is more precise.
const STEPS: [f64; 2] = [1e-5, 1e-7];
/// The same for functions that compute in single precision whatever they are given.
const SINGLE_STEPS: [f64; 2] = [4e-3, 1e-3];

/// The steps for a case, and the factor by which its differences are less precise.
fn steps(case: &Case) -> ([f64; 2], f64) {
    if case.gradient == Gradient::Single { (SINGLE_STEPS, 3e3) } else { (STEPS, 1.0) }
}

/// Whether an argument of the case is differentiated.
pub(crate) fn is_variable(host: &Host) -> bool {
    host.dtype.is_float() && host.size() > 0
}

/// Calls the case as a function of its float arguments, keeping its float outputs.
pub(crate) fn function<'a>(
    case: &'a Case,
    inputs: &'a [Array],
    variable: &'a [usize],
) -> impl Fn(&[Array]) -> Result<Vec<Array>> + 'a {
    move |values| {
        let mut all = inputs.to_vec();
        for (&index, value) in variable.iter().zip(values) {
            all[index] = value.clone();
        }
        let outputs = (case.call.0)(&all)?;
        Ok(outputs.into_iter().filter(|output| output.dtype().is_float()).collect())
    }
}

/// Gradients of the float arguments, given cotangents of the float outputs as doubles.
pub(crate) fn gradients(
    case: &Case,
    hosts: &[Host],
    cotangents: &[Vec<f64>],
    device: &Device,
) -> Result<Vec<Host>, String> {
    guarded(|| {
        let arrays = gradient_arrays(case, hosts, cotangents, device)?;
        wootz::eval(&arrays)?;
        arrays.iter().map(Host::read).collect()
    })
}

fn gradient_arrays(
    case: &Case,
    hosts: &[Host],
    cotangents: &[Vec<f64>],
    device: &Device,
) -> Result<Vec<Array>> {
    wootz::with_device(device, || {
        let inputs = place(hosts, Layout::Contiguous, device)?;
        let variable: Vec<usize> = (0..hosts.len()).filter(|&i| is_variable(&hosts[i])).collect();
        let values: Vec<Array> = variable.iter().map(|&i| inputs[i].clone()).collect();
        let function = function(case, &inputs, &variable);
        let outputs = function(&values)?;
        let cotangents = (outputs.iter().zip(cotangents))
            .map(|(output, values)| {
                Host::from_f64(output.shape(), output.dtype(), values).array(device)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(wootz::vjp(function, &values, &cotangents)?.1)
    })
}

/// Random cotangents that `dtype` can hold, one list for each float output. What is infinite, as
/// a scan that starts with nothing, takes no part: its cotangent is 0.
pub(crate) fn cotangents(outputs: &[Host], dtype: DType, random: &mut Random) -> Vec<Vec<f64>> {
    (outputs.iter().filter(|output| output.dtype.is_float()))
        .map(|output| {
            let size = output.size();
            let drawn = Host::from_f64(&[size], dtype, &random.signed(size)).to_f64();
            let infinite = output.to_f64().into_iter().map(f64::is_infinite);
            drawn.into_iter().zip(infinite).map(|(x, gone)| if gone { 0.0 } else { x }).collect()
        })
        .collect()
}

fn inner(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.filter(|(_, b)| **b != 0.0).map(|(a, b)| a * b).sum()
}

/// First and second order in doubles on the CPU.
pub(crate) fn check_doubles(subject: &Subject, log: &mut Log) {
    let (case, cpu) = (&subject.case, Device::cpu());
    let hosts = widen(case, &draw(subject, DType::F64));
    if !hosts.iter().any(is_variable) {
        log.note_gradients("—");
        return;
    }
    let mut random = Random::new(&format!("gradient/{}/{}", subject.op, case.label));
    let outputs = match run(case, &hosts, Layout::Contiguous, &cpu) {
        Ok(outputs) => outputs,
        Err(message) => {
            log.check("float64 on cpu", Err(message));
            return;
        }
    };
    let cotangents = cotangents(&outputs, DType::F64, &mut random);
    let direction: Vec<Vec<f64>> = (hosts.iter().filter(|host| is_variable(host)))
        .map(|host| random.signed(host.size()))
        .collect();
    if case.gradient == Gradient::None {
        let outcome = gradient_arrays(case, &hosts, &cotangents, &cpu);
        let outcome = match outcome {
            Err(Error::NotDifferentiable { .. }) => Ok(()),
            Err(error) => Err(format!("expected \"not differentiable\", got: {error}")),
            Ok(_) if cotangents.is_empty() => Ok(()),
            Ok(_) => Err("expected \"not differentiable\", got gradients".into()),
        };
        log.check("gradient", outcome);
        log.check("forward mode", refuses(tangents(case, &hosts, &direction)));
        log.note_gradients("none");
        return;
    }
    let first = match gradients(case, &hosts, &cotangents, &cpu) {
        Ok(first) => first,
        Err(message) => {
            log.check("gradient in float64", Err(message));
            return;
        }
    };
    let first: Vec<Vec<f64>> = first.iter().map(Host::to_f64).collect();
    let along = match guarded(|| tangents(case, &hosts, &direction)) {
        Ok(along) => along,
        Err(message) => {
            log.check("forward mode in float64", Err(message));
            return;
        }
    };
    if case.gradient == Gradient::Zero {
        for (what, values) in [("gradient", &first), ("forward mode", &along)] {
            let zero = values.iter().flatten().all(|&value| value == 0.0);
            let outcome = if zero { Ok(()) } else { Err("it is not zero".into()) };
            log.check(&format!("{what} in float64"), outcome);
        }
        log.check("second-order gradient", second_order(case, &hosts, &cotangents, &mut random));
        log.note_gradients("zero");
        return;
    }
    let (slope, forward) = (inner(&first, &direction), inner(&along, &cotangents));
    let value_at = |step: f64| -> Result<f64, String> {
        let outputs = run(case, &shifted(&hosts, &direction, step), Layout::Contiguous, &cpu)?;
        let floats = outputs.iter().filter(|output| output.dtype.is_float());
        Ok(inner(&floats.map(Host::to_f64).collect::<Vec<_>>(), &cotangents))
    };
    let scale = magnitude(&first, &direction);
    let floats = || outputs.iter().map(|output| output.dtype).filter(|dtype| dtype.is_float());
    let precision = floats().map(rounding).fold(0.0, f64::max);
    let outcome = match (slope - forward).abs() / scale {
        error if error <= 100.0 * precision => Ok(()),
        error => Err(format!("{forward:e}, the gradient says {slope:e}: error {error:.2e}")),
    };
    log.check("forward mode in float64 against the gradient", outcome);
    // A result that is rounded is a staircase: differences tell nothing.
    if case.gradient == Gradient::Single || floats().all(|dtype| dtype == DType::F64) {
        let outcome = agrees(case, slope, value_at, scale, 1e-6);
        let forward = agrees(case, forward, value_at, scale, 1e-6);
        log.check("forward mode in float64 against finite differences", forward);
        if !log.check("gradient in float64 against finite differences", outcome) {
            return;
        }
    }
    log.check("second-order gradient", second_order(case, &hosts, &cotangents, &mut random));
    log.note_gradients("yes");
}

/// The gradient of `gradient · direction`, in another direction.
fn second_order(
    case: &Case,
    hosts: &[Host],
    cotangents: &[Vec<f64>],
    random: &mut Random,
) -> Result<(), String> {
    let cpu = Device::cpu();
    let draw = |random: &mut Random| -> Vec<Vec<f64>> {
        let variables = hosts.iter().filter(|host| is_variable(host));
        variables.map(|host| random.signed(host.size())).collect()
    };
    let (inner_direction, outer_direction) = (draw(random), draw(random));
    let variable: Vec<usize> = (0..hosts.len()).filter(|&i| is_variable(&hosts[i])).collect();
    let analytic = guarded(|| {
        let inputs = place(hosts, Layout::Contiguous, &cpu)?;
        let values: Vec<Array> = variable.iter().map(|&i| inputs[i].clone()).collect();
        let weigh = |values: &[Array]| -> Result<Vec<Array>> {
            let function = function(case, &inputs, &variable);
            let outputs = function(values)?;
            let cotangents = (outputs.iter().zip(cotangents))
                .map(|(output, values)| {
                    Host::from_f64(output.shape(), output.dtype(), values).array(&cpu)
                })
                .collect::<Result<Vec<_>>>()?;
            Ok(wootz::vjp(function, values, &cotangents)?.1)
        };
        let directions = (variable.iter().zip(&inner_direction))
            .map(|(&i, values)| Host::from_f64(&hosts[i].shape, hosts[i].dtype, values).array(&cpu))
            .collect::<Result<Vec<_>>>()?;
        let second = wootz::vjp(weigh, &values, &directions)?.1;
        second.iter().map(|array| Ok(Host::read(array)?.to_f64())).collect::<Result<Vec<_>>>()
    })?;
    let value_at = |step: f64| -> Result<f64, String> {
        let first = gradients(case, &shifted(hosts, &outer_direction, step), cotangents, &cpu)?;
        Ok(inner(&first.iter().map(Host::to_f64).collect::<Vec<_>>(), &inner_direction))
    };
    let scale = magnitude(&analytic, &outer_direction);
    agrees(case, inner(&analytic, &outer_direction), value_at, scale, 1e-5)
}

/// The inputs moved along a direction.
fn shifted(hosts: &[Host], direction: &[Vec<f64>], step: f64) -> Vec<Host> {
    let mut direction = direction.iter();
    hosts
        .iter()
        .map(|host| match is_variable(host) {
            false => host.clone(),
            true => {
                let along = direction.next().into_iter().flatten();
                let moved: Vec<f64> =
                    host.to_f64().iter().zip(along).map(|(x, d)| x + step * d).collect();
                Host::from_f64(&host.shape, host.dtype, &moved)
            }
        })
        .collect()
}

/// The size of the terms of an inner product, which bounds its rounding error.
fn magnitude(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a * b).abs()).sum::<f64>() + 1.0
}

/// Compares a slope with differences of the function's values.
fn agrees(
    case: &Case,
    got: f64,
    value_at: impl Fn(f64) -> Result<f64, String>,
    scale: f64,
    tolerance: f64,
) -> Result<(), String> {
    let (steps, factor) = steps(case);
    let mut outcome = Ok(());
    for step in steps {
        let want = (value_at(step)? - value_at(-step)?) / (2.0 * step);
        let error = (got - want).abs() / scale;
        if error <= factor * tolerance {
            return Ok(());
        }
        outcome = outcome.and(Err(format!(
            "{got:e} along a direction, finite differences say {want:e}: error {error:.2e}"
        )));
    }
    outcome
}

/// Gradients in `dtype` on a device against those in doubles at the same point.
pub(crate) fn check_dtype(
    subject: &Subject,
    dtype: DType,
    hosts: &[Host],
    device: &Device,
    log: &mut Log,
) {
    let case = &subject.case;
    if !matches!(case.gradient, Gradient::Checked | Gradient::Single)
        || !hosts.iter().any(is_variable)
    {
        return;
    }
    let wide = widen(case, hosts);
    let Ok(outputs) = run(case, &wide, Layout::Contiguous, &Device::cpu()) else { return };
    let mut random = Random::new(&format!("gradient/{}/{}/{dtype}", subject.op, case.label));
    let cotangents = cotangents(&outputs, dtype, &mut random);
    let outcome = gradients(case, &wide, &cotangents, &Device::cpu()).and_then(|want| {
        let got = gradients(case, hosts, &cotangents, device)?;
        let most = outputs.iter().map(Host::size).max().unwrap_or(0);
        got.iter().zip(&want).enumerate().try_for_each(|(i, (got, want))| {
            let against = Against::Gradient { terms: most / want.size().max(1) };
            let limit = case.narrow_gradient.filter(|_| matches!(dtype, DType::F16 | DType::BF16));
            compare(got, want, None, case.tolerance, against, dtype)
                .and_then(|()| limit.map_or(Ok(()), |limit| within(limit, got, want)))
                .map_err(|text| format!("float argument {i}: {text}"))
        })
    });
    let device = if device.is_gpu() { "gpu" } else { "cpu" };
    log.check(&format!("gradient in {dtype} on {device} against float64"), outcome);
}
