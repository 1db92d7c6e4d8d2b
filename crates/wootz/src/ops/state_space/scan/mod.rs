//! Selective scans: states that forget at rates that depend on the input, as in Mamba and Mamba-2. Mamba's has
//! kernels of its own, and its gradient too, which keeps the states at the starts of chunks only. Mamba-2's walks with
//! the kernels of the gated delta rule.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
mod op;

pub use op::{SelectiveScan, SelectiveScanBackward};

use super::delta::walk;
use super::wide;
use crate::array::{Array, DType};
use crate::device::with_device;
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Tolerance, evaluate_argument};
use crate::ops::movement::slice_axis;
use crate::ops::scan::linear::recurrence;
use crate::ops::{
    add, astype, concatenate, exp, expand_dims, full, multiply, ones_like, squeeze, sum,
};

/// Cases.
pub(super) fn entries() -> Vec<Entry> {
    const WIDER: Tolerance = Tolerance::Because(8.0, "errors of a state grow from step to step");
    let one = |label: &str, [batch, steps, channels, size]: [usize; 4], stated: bool| {
        let x = [batch, steps, channels];
        let (b, state) = ([batch, steps, size], [batch, channels, size]);
        let a = [channels, size];
        let mut shapes: Vec<&[usize]> = vec![&x, &x, &a, &b, &b, &a[..1]];
        shapes.extend(stated.then_some(&state[..]));
        Case::new(label, &shapes, |x| {
            let (y, state) =
                selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4], Some(&x[5]), x.get(6))?;
            Ok(vec![y, state])
        })
        .range(-0.9..0.9)
        .tolerance(WIDER)
    };
    let backward = |label: &str, [batch, steps, channels, size]: [usize; 4], stated: bool| {
        let x = [batch, steps, channels];
        let (b, state) = ([batch, steps, size], [batch, channels, size]);
        let a = [channels, size];
        let mut shapes: Vec<&[usize]> = vec![&x, &x, &a, &b, &b];
        shapes.extend(stated.then_some(&state[..]));
        shapes.extend([&x[..], &state]);
        Case::new(label, &shapes, move |x| {
            let mut inputs = x.iter().map(Array::contiguous).collect::<Result<Vec<_>>>()?;
            // The state's gradient is in the dtype of sums.
            let last = inputs.len() - 1;
            inputs[last] = astype(&x[last], wide(x[0].dtype()))?.contiguous()?;
            evaluate_argument(&inputs[last])?;
            let op = SelectiveScanBackward { stated };
            Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
        })
        .range(-0.9..0.9)
        .tolerance(WIDER)
    };
    let two = |label: &str, [b, t, groups, heads, size, dims]: [usize; 6], stated: bool| {
        let (x, dt, group) = ([b, t, heads, dims], [b, t, heads], [b, t, groups, size]);
        let (a, state) = ([heads], [b, heads, dims, size]);
        let mut shapes: Vec<&[usize]> = vec![&x, &dt, &a, &group, &group, &a];
        shapes.extend(stated.then_some(&state[..]));
        Case::new(label, &shapes, |x| {
            let (y, state) =
                selective_scan2(&x[0], &x[1], &x[2], &x[3], &x[4], Some(&x[5]), x.get(6))?;
            Ok(vec![y, state])
        })
        .range(-0.9..0.9)
        .tolerance(Tolerance::Rounded(8.0, "a result is rounded before the skipped input is added"))
    };
    vec![
        Entry {
            name: "selective_scan",
            cases: vec![
                one("from zeros", [2, 5, 3, 4], false),
                one("from a state", [1, 3, 5, 2], true),
                one("one step", [2, 1, 3, 4], true),
                one("17 steps", [2, 17, 2, 3], true).dtypes(&[DType::F32]),
                one("255 steps", [2, 255, 2, 2], false).range(-0.5..0.5).dtypes(&[DType::F32]),
                one("more than a block of channels", [2, 3, 67, 17], true),
                one("nothing", [2, 0, 3, 2], true),
            ],
        },
        Entry {
            name: "selective_scan_backward",
            cases: vec![
                backward("from zeros", [2, 5, 3, 4], false),
                backward("from a state", [1, 3, 5, 2], true),
                backward("several chunks", [2, 37, 2, 3], true),
                backward("more than a block of channels", [1, 3, 67, 17], true),
            ],
        },
        Entry {
            name: "selective_scan2",
            cases: vec![
                two("from zeros", [2, 3, 1, 2, 4, 3], false),
                two("from a state, groups", [1, 3, 2, 4, 3, 5], true),
                two("several chunks", [1, 34, 1, 1, 2, 3], true),
                two("17 steps", [2, 17, 1, 2, 2, 3], true).dtypes(&[DType::F32]),
                two("255 steps", [2, 255, 1, 2, 2, 2], false)
                    .range(-0.5..0.5)
                    .dtypes(&[DType::F32]),
            ],
        },
    ]
}

/// Mamba's selective scan. For each step and batch the state `h`, `[channels, size]`, becomes
/// `exp(dt·a)·h + dt·x bᵀ`, and the result is `h c + d·x`. `x` and the steps' lengths `dt` are
/// `[batch, steps, channels]`, `a` is `[channels, size]`, `b` and `c` are `[batch, steps, size]`,
/// `d` is `[channels]`. The state is `[batch, channels, size]` in single precision at least, zeros
/// if it is not given. Gives the results in the dtype of `x`, and the state behind the last step.
///
/// ```
/// use wootz::{Array, selective_scan};
/// let (x, dt) = (Array::new([[[3.0f32], [5.0]]])?, Array::new([[[1.0f32], [1.0]]])?);
/// let (a, b) = (Array::new([[0.0f32]])?, Array::new([[[1.0f32], [2.0]]])?);
/// let (y, state) = selective_scan(&x, &dt, &a, &b, &b, None, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 26.0]);
/// assert_eq!(state.item::<f32>()?, 13.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn selective_scan(
    x: &Array,
    dt: &Array,
    a: &Array,
    b: &Array,
    c: &Array,
    d: Option<&Array>,
    state: Option<&Array>,
) -> Result<(Array, Array)> {
    const OP: &str = "selective_scan";
    let &[batch, steps, channels] = x.shape() else {
        return Err(Error::shape(OP, "x", "[batch, steps, channels]", x.shape()));
    };
    expect_float(OP, x)?;
    let size = a.shape().last().copied().unwrap_or(0);
    expect(OP, "dt", dt, x.shape())?;
    expect(OP, "a", a, &[channels, size])?;
    expect(OP, "b", b, &[batch, steps, size])?;
    expect(OP, "c", c, &[batch, steps, size])?;
    if let Some(state) = state {
        expect(OP, "state", state, &[batch, channels, size])?;
    }
    if let Some(d) = d {
        expect(OP, "d", d, &[channels])?;
    }
    let dtype = op::common([x, dt, b, c]);
    let near = |array: &Array| match array.dtype() == dtype {
        true => array.contiguous(),
        false => astype(array, wide(dtype))?.contiguous(),
    };
    let of_steps = |array: &Array| astype(array, dtype)?.contiguous();
    let mut inputs = vec![of_steps(x)?, of_steps(dt)?, near(a)?, of_steps(b)?, of_steps(c)?];
    inputs.extend(d.map(near).transpose()?);
    inputs.extend(state.map(near).transpose()?);
    let op = SelectiveScan { skips: d.is_some(), stated: state.is_some() };
    let outputs = match x.size() * size {
        0 => composed(&inputs, op)?,
        _ if x.device().is_gpu() && size > op::MOST => in_pieces(&inputs, op)?,
        _ => Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec(),
    };
    let mut outputs = outputs.into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(y), Some(state)) => Ok((astype(&y, x.dtype())?, state)),
        _ => Err(Error::argument(OP, "outputs", "two arrays", "fewer")),
    }
}

/// A scan of larger states than the kernels have room for: their numbers do not depend on each other, so it is the sum
/// of scans of some of them each.
fn in_pieces(inputs: &[Array], op: SelectiveScan) -> Result<Vec<Array>> {
    let [x, dt, a, b, c] = &inputs[..5] else { return Ok(Vec::new()) };
    let sums = wide(x.dtype());
    let (x, dt) = (astype(x, sums)?, astype(dt, sums)?);
    let skips = op.skips as usize;
    let (mut results, mut states) = (Vec::new(), Vec::new());
    for start in (0..a.shape()[1]).step_by(op::MOST) {
        let end = a.shape()[1].min(start + op::MOST);
        let piece = |array: &Array, axis: usize| {
            astype(&slice_axis(array, axis, start, end, 1)?, sums)?.contiguous()
        };
        let op = SelectiveScan { skips: op.skips && start == 0, ..op };
        let mut given = vec![x.clone(), dt.clone(), piece(a, 1)?, piece(b, 2)?, piece(c, 2)?];
        given.extend(op.d().map(|input| astype(&inputs[input], sums)).transpose()?);
        given.extend(inputs.get(5 + skips).map(|state| piece(state, 2)).transpose()?);
        let outputs = Array::apply_all(op, &given.iter().collect::<Vec<_>>())?;
        for (output, to) in outputs.into_iter().zip([&mut results, &mut states]) {
            to.push(output);
        }
    }
    let y = results.iter().skip(1).try_fold(results[0].clone(), add)?;
    Ok(vec![y, concatenate(&states, 2)?])
}

/// The operation made of others, which keep all states.
fn composed(inputs: &[Array], op: SelectiveScan) -> Result<Vec<Array>> {
    let [x, dt, a, b, c] = &inputs[..5] else { return Ok(Vec::new()) };
    let &[batch, steps, channels] = x.shape() else { return Ok(Vec::new()) };
    let sums = wide(x.dtype());
    let of_channels = |x: &Array| expand_dims(&astype(x, sums)?, -1);
    let of_states = |x: &Array| expand_dims(&astype(x, sums)?, -2);
    let lengths = of_channels(dt)?;
    let mut decays = exp(multiply(&lengths, astype(a, sums)?)?)?;
    let mut learnt = multiply(multiply(&lengths, of_channels(x)?)?, of_states(b)?)?;
    let state = match op.state() {
        Some(input) => astype(&inputs[input], sums)?,
        None => with_device(x.device(), || full(&[batch, channels, a.shape()[1]], 0, sums))?,
    };
    // The state is one more input before the first; nothing is before it to decay.
    let first = expand_dims(&state, 1)?;
    decays = concatenate(&[ones_like(&first)?, decays], 1)?;
    learnt = concatenate(&[first, learnt], 1)?;
    let states = recurrence(&decays, &learnt, 1, false, false)?;
    let last = squeeze(&slice_axis(&states, 1, steps, steps + 1, 1)?, 1)?;
    let states = slice_axis(&states, 1, 1, steps + 1, 1)?;
    let y = sum(&multiply(states, of_states(c)?)?, -1, false)?;
    let d = op.d().map(|input| &inputs[input]);
    Ok(vec![skipped("selective_scan", &y, x, d, &[channels])?, last])
}

/// Mamba-2's selective scan: heads of channels forget at one rate. For each step, head and batch
/// the state `h`, `[dims, size]`, becomes `exp(dt·a)·h + dt·x bᵀ`, and the result is `h c + d·x`.
/// `x` is `[batch, steps, heads, dims]`, `dt` is `[batch, steps, heads]`, `a` and `d` are
/// `[heads]`, `b` and `c` are `[batch, steps, groups, size]`, where neighbouring heads share a
/// group. The state is `[batch, heads, dims, size]` in single precision at least, zeros if it is
/// not given.
///
/// ```
/// use wootz::{Array, DType, selective_scan2};
/// let x = Array::ones(&[1, 2, 1, 1], DType::F32)?;
/// let (dt, a) = (Array::ones(&[1, 2, 1], DType::F32)?, Array::new([0.0f32])?);
/// let (y, state) = selective_scan2(&x, &dt, &a, &x, &x, None, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
/// assert_eq!(state.shape(), [1, 1, 1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn selective_scan2(
    x: &Array,
    dt: &Array,
    a: &Array,
    b: &Array,
    c: &Array,
    d: Option<&Array>,
    state: Option<&Array>,
) -> Result<(Array, Array)> {
    const OP: &str = "selective_scan2";
    let &[batch, steps, heads, dims] = x.shape() else {
        return Err(Error::shape(OP, "x", "[batch, steps, heads, dims]", x.shape()));
    };
    expect_float(OP, x)?;
    expect(OP, "dt", dt, &[batch, steps, heads])?;
    expect(OP, "a", a, &[heads])?;
    let &[.., groups, size] = b.shape() else {
        return Err(Error::shape(OP, "b", "[batch, steps, groups, size]", b.shape()));
    };
    if size == 0 || heads > 0 && (groups == 0 || !heads.is_multiple_of(groups)) {
        let expected = format!("[{batch}, {steps}, groups that divide {heads}, at least 1]");
        return Err(Error::shape(OP, "b", expected, b.shape()));
    }
    for (argument, x) in [("b", b), ("c", c)] {
        expect(OP, argument, x, &[batch, steps, groups, size])?;
    }
    if let Some(state) = state {
        expect(OP, "state", state, &[batch, heads, dims, size])?;
    }
    if let Some(d) = d {
        expect(OP, "d", d, &[heads])?;
    }
    let sums = wide(x.dtype());
    let lengths = astype(dt, sums)?;
    let decays = exp(multiply(&lengths, astype(a, sums)?)?)?;
    let (y, state) = walk([c, b, x, &decays, &lengths], state, false)?;
    let d = d.map(|d| expand_dims(d, -1)).transpose()?;
    Ok((skipped(OP, &y, x, d.as_ref(), &[heads, 1])?, state))
}

/// Results have the dtype of `x`, and integers would cut them off.
fn expect_float(op: &'static str, x: &Array) -> Result<()> {
    match x.dtype().is_float() {
        true => Ok(()),
        false => Err(Error::dtype(op, "x", "a floating-point type", x.dtype())),
    }
}

fn expect(op: &'static str, argument: &str, x: &Array, shape: &[usize]) -> Result<()> {
    match x.shape() == shape {
        true => Ok(()),
        false => Err(Error::shape(op, argument, format!("{shape:?}"), x.shape())),
    }
}

/// Results with the input beside the states added, in its dtype.
fn skipped(
    op: &'static str,
    y: &Array,
    x: &Array,
    d: Option<&Array>,
    shape: &[usize],
) -> Result<Array> {
    let Some(d) = d else { return astype(y, x.dtype()) };
    expect(op, "d", d, shape)?;
    let sums: DType = wide(x.dtype());
    let skip = multiply(astype(x, sums)?, astype(d, sums)?)?;
    astype(&add(astype(y, sums)?, skip)?, x.dtype())
}
