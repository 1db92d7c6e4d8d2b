//! The gated delta rule: a state that forgets, and learns by what it got wrong.
//!
//! Rows of the state (one for each value) do not depend on each other, so kernels take rows side by
//! side and walk through the steps: one operation however many steps there are. Many steps with one
//! gate each go by chunks, whose steps are products of small matrices. The gradient is an operation of
//! its own. It keeps the states at the starts of chunks only.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;

use super::{expect, wide};
use crate::array::{Array, DType, Meta};
use crate::autograd::composed_vjp;
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Case, Entry, Metas, Op, Tolerance, argument_name, evaluate_argument, expect_contiguous,
    expect_float, expect_inputs,
};
use crate::ops::movement::slice_axis;
use crate::ops::{
    add, astype, expand_dims, full, moveaxis, multiply, repeat, reshape, squeeze, stack, subtract,
    sum, where_, zeros_like,
};

/// Cases.
pub(super) fn entries() -> Vec<Entry> {
    // Batch, steps, key heads, heads, keys, values.
    type Sizes = [usize; 6];
    const WIDER: Tolerance = Tolerance::Because(8.0, "errors of a state grow from step to step");
    let shapes = |[b, t, hk, hv, dk, dv]: Sizes, vector: bool| {
        let (q, v, beta) = (vec![b, t, hk, dk], vec![b, t, hv, dv], vec![b, t, hv]);
        let g = if vector { vec![b, t, hv, dk] } else { beta.clone() };
        [q.clone(), q, v, g, beta, vec![b, hv, dv, dk]]
    };
    let forward = |label: &str, sizes: Sizes, vector: bool| {
        let shapes = shapes(sizes, vector);
        Case::new(label, &shapes.each_ref().map(|shape| &shape[..]), |x| {
            let state = astype(&x[5], wide(x[0].dtype()))?;
            evaluate_argument(&state)?;
            let (y, state) = gated_delta(&x[0], &x[1], &x[2], &x[3], &x[4], Some(&state), None)?;
            Ok(vec![y, state])
        })
        .range(-0.9..0.9)
        .tolerance(WIDER)
    };
    let backward = |label: &str, sizes: Sizes, vector: bool, corrects: bool| {
        let [b, t, _, hv, dk, dv] = sizes;
        let mut shapes = shapes(sizes, vector).to_vec();
        shapes.extend([vec![b, t, hv, dv], vec![b, hv, dv, dk]]);
        let shapes: Vec<&[usize]> = shapes.iter().map(|shape| &shape[..]).collect();
        Case::new(label, &shapes, move |x| {
            let mut inputs = inputs([&x[0], &x[1], &x[2], &x[3], &x[4]], Some(&x[5]))?;
            inputs.push(head_first(&x[6])?);
            inputs.push(astype(&x[7], wide(x[0].dtype()))?.contiguous()?);
            inputs.iter().try_for_each(evaluate_argument)?;
            let op = GatedDeltaBackward { corrects };
            Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
        })
        .range(-0.9..0.9)
        .tolerance(WIDER)
    };
    vec![
        Entry {
            name: "gated_delta",
            cases: vec![
                forward("heads that share keys", [2, 3, 2, 4, 5, 3], false),
                forward("a gate for each key", [1, 4, 1, 2, 6, 5], true),
                forward("one step", [3, 1, 1, 1, 7, 4], false),
                forward("several chunks", [1, 37, 1, 1, 4, 3], false),
                forward("several chunks, a gate for each key", [1, 37, 1, 1, 3, 2], true),
                forward("17 steps", [2, 17, 1, 2, 4, 3], false).dtypes(&[DType::F32]),
                forward("255 steps", [2, 255, 1, 2, 2, 2], false)
                    .range(-0.6..0.6)
                    .dtypes(&[DType::F32]),
                forward("more than a block of rows", [1, 2, 1, 1, 18, 35], false),
                forward("no steps", [2, 0, 1, 1, 3, 2], false),
            ],
        },
        Entry {
            name: "gated_delta_backward",
            cases: vec![
                backward("heads that share keys", [2, 3, 2, 4, 5, 3], false, true),
                backward("a gate for each key", [1, 3, 1, 2, 4, 3], true, true),
                backward("more than a block of rows", [1, 2, 1, 1, 3, 35], false, true),
                backward("without correction", [1, 3, 1, 2, 4, 3], false, false),
                backward("several chunks", [1, 34, 1, 2, 3, 2], false, true),
                backward("several chunks without correction", [1, 33, 1, 1, 2, 3], false, false),
                backward("255 steps", [1, 255, 1, 1, 2, 2], false, true)
                    .range(-0.6..0.6)
                    .dtypes(&[DType::F32]),
                backward("no values", [1, 2, 1, 1, 3, 0], false, true),
            ],
        },
    ]
}

/// The gated delta rule. For each step, head and batch the state `S`, `[values, keys]`, becomes
/// `S·g + (v - (S·g)k)·beta kᵀ`, and the result is `S q`. `q` and `k` are `[batch, steps, key
/// heads, keys]`, `v` is `[batch, steps, heads, values]`, `beta` and the decay `g` are `[batch,
/// steps, heads]`; `g` may have a last axis for the keys. Value head `h` uses key head `h · key
/// heads / heads`. The state is `[batch, heads, values, keys]` in single precision (double for
/// `float64`), zeros if it is not given.
///
/// Gives the results in the shape and dtype of `v` and the state behind the last step. Steps where
/// `mask`, `[batch, steps]`, is false leave the state as it is and give zeros.
///
/// ```
/// use wootz::{Array, DType, gated_delta};
/// let key = Array::ones(&[1, 2, 1, 1], DType::F32)?;
/// let values = Array::from_slice(&[4.0f32, 6.0], &[1, 2, 1, 1])?;
/// let half = wootz::full(&[1, 2, 1], 0.5, DType::F32)?;
/// let (y, state) = gated_delta(&key, &key, &values, &half, &half, None, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 3.5]);
/// assert_eq!(state.item::<f32>()?, 3.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gated_delta(
    q: &Array,
    k: &Array,
    v: &Array,
    g: &Array,
    beta: &Array,
    state: Option<&Array>,
    mask: Option<&Array>,
) -> Result<(Array, Array)> {
    let (Some(mask), &[batch, steps, _, _]) = (mask, q.shape()) else {
        return walk([q, k, v, g, beta], state, true);
    };
    if mask.shape() != [batch, steps] {
        let expected = format!("{:?}", [batch, steps]);
        return Err(Error::shape("gated_delta", "mask", expected, mask.shape()));
    }
    let masked = |x: &Array, other: i32| {
        if !x.shape().starts_with(&[batch, steps]) {
            // The operation tells what it expected, which a broadcast would hide.
            return Ok(x.clone());
        }
        let ones = vec![1; x.rank() - 2];
        where_(reshape(mask, &[mask.shape(), &ones].concat())?, x, other)
    };
    // With nothing forgotten and nothing learnt the state stays; but nothing times a number that is not finite
    // would change it.
    let (g, beta) = (masked(g, 1)?, masked(beta, 0)?);
    let (q, k, v) = (masked(q, 0)?, masked(k, 0)?, masked(v, 0)?);
    let (y, state) = walk([&q, &k, &v, &g, &beta], state, true)?;
    Ok((masked(&y, 0)?, state))
}

/// Results and next state of the operation, given its arguments with steps before heads.
pub(super) fn walk(
    arguments: [&Array; 5],
    state: Option<&Array>,
    corrects: bool,
) -> Result<(Array, Array)> {
    let inputs = inputs(arguments, state)?;
    let op = GatedDelta { corrects };
    let mut outputs = Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(y), Some(state)) => Ok((moveaxis(&y, 1, 2)?, state)),
        _ => Err(Error::argument("gated_delta", "outputs", "two arrays", "fewer")),
    }
}

/// Row-major inputs of the operation, heads before steps.
fn inputs([q, k, v, g, beta]: [&Array; 5], state: Option<&Array>) -> Result<Vec<Array>> {
    const OP: &str = "gated_delta";
    let ranks = [("q", q, 4), ("k", k, 4), ("v", v, 4), ("beta", beta, 3)];
    for (name, array, rank) in ranks {
        if array.rank() != rank {
            let expected = format!("one of {rank} axes");
            return Err(Error::shape(OP, name, expected, array.shape()));
        }
    }
    let dtype = [k, v].into_iter().fold(q.dtype(), |dtype, x| DType::promote(dtype, x.dtype()));
    let sums = wide(dtype);
    let g = match g.rank() {
        3 => expand_dims(g, -1)?,
        4 => g.clone(),
        _ => return Err(Error::shape(OP, "g", "one of 3 or 4 axes", g.shape())),
    };
    let state = match state {
        Some(state) => astype(state, sums)?,
        None => {
            let shape = [v.shape()[0], v.shape()[2], v.shape()[3], q.shape()[3]];
            let device = v.device();
            crate::device::with_device(device, || full(&shape, 0, sums))?
        }
    };
    Ok(vec![
        head_first(&astype(q, dtype)?)?,
        head_first(&astype(k, dtype)?)?,
        head_first(&astype(v, dtype)?)?,
        head_first(&astype(&g, sums)?)?,
        head_first(&astype(beta, sums)?)?,
        state.contiguous()?,
    ])
}

/// `[batch, steps, heads, …]` with heads before steps.
fn head_first(x: &Array) -> Result<Array> {
    moveaxis(x, 2, 1)?.contiguous()
}

/// [`gated_delta`] as an operation on row-major arrays with heads before steps: `q`, `k`, `v` of
/// one dtype, then `g` (with a last axis of 1 or of the keys), `beta` and the state in the dtype of
/// sums.
#[derive(Clone, Copy, Debug)]
pub struct GatedDelta {
    /// Whether a step learns only what the state does not know; else it learns its value as it is.
    pub corrects: bool,
}

/// The gradients of all inputs of [`GatedDelta`], given those inputs and the gradients of its
/// outputs.
#[derive(Clone, Copy, Debug)]
pub struct GatedDeltaBackward {
    /// As [`GatedDelta::corrects`].
    pub corrects: bool,
}

/// Steps of a chunk: states are kept at their starts.
const CHUNK: usize = 32;

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    key_heads: usize,
    heads: usize,
    steps: usize,
    keys: usize,
    values: usize,
    /// Gates of a step: one, or one for each key.
    gates: usize,
}

impl Sizes {
    fn new(inputs: &[&Meta]) -> Sizes {
        let [k, v, g] = [1, 2, 3].map(|input| inputs[input].shape());
        Sizes {
            batch: k[0],
            key_heads: k[1],
            heads: v[1],
            steps: k[2],
            keys: k[3],
            values: v[3],
            gates: g[3],
        }
    }

    /// Value heads of a key head.
    fn shared(&self) -> usize {
        self.heads / self.key_heads.max(1)
    }

    /// Whether there is nothing to compute.
    fn none(&self) -> bool {
        self.batch * self.heads * self.values * self.keys == 0
    }
}

/// Checks the inputs of both operations.
fn expect_delta(op: &dyn Op, inputs: &[&Meta]) -> Result<Sizes> {
    expect_float(op, inputs, 0)?;
    expect_contiguous(op, inputs, 0)?;
    let four = |input: usize| match *inputs[input].shape() {
        [a, b, c, d] => Ok([a, b, c, d]),
        _ => {
            let (name, shape) = (argument_name(op, input), inputs[input].shape());
            Err(Error::shape(op.name(), name, "one of 4 axes", shape))
        }
    };
    let [batch, key_heads, steps, keys] = four(0)?;
    if keys == 0 {
        let expected = "at least one key along the last axis";
        return Err(Error::shape(op.name(), "q", expected, inputs[0].shape()));
    }
    let [_, heads, _, values] = four(2)?;
    let [.., gates] = four(3)?;
    let (dtype, sums) = (inputs[0].dtype, wide(inputs[0].dtype));
    expect(op, inputs, 1, dtype, &[batch, key_heads, steps, keys])?;
    expect(op, inputs, 2, dtype, &[batch, heads, steps, values])?;
    if heads > 0 && (key_heads == 0 || !heads.is_multiple_of(key_heads)) {
        let expected = format!("a number of heads that {key_heads} key heads divide");
        return Err(Error::argument(op.name(), argument_name(op, 2), expected, heads));
    }
    let gates = if gates == keys { keys } else { 1 };
    expect(op, inputs, 3, sums, &[batch, heads, steps, gates])?;
    expect(op, inputs, 4, sums, &[batch, heads, steps])?;
    expect(op, inputs, 5, sums, &[batch, heads, values, keys])?;
    Ok(Sizes { batch, key_heads, heads, steps, keys, values, gates })
}

impl Op for GatedDelta {
    fn name(&self) -> &'static str {
        "gated_delta"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["q", "k", "v", "g", "beta", "state", "y", "next_state"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 6)?;
        expect_delta(self, inputs)?;
        let y = Meta::new(self.name(), inputs[2].shape(), inputs[2].dtype)?;
        let state = Meta::new(self.name(), inputs[5].shape(), inputs[5].dtype)?;
        Ok(Metas::from_iter([y, state]))
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        if gpu { gpu::forward_scratch(inputs, self.corrects) } else { 0 }
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(5, 1)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, self.corrects)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, self.corrects)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut given: Vec<Array> = inputs.to_vec();
        for (output, cotangent) in outputs.iter().zip(cotangents) {
            given.push(match cotangent {
                Some(cotangent) => cotangent.contiguous()?,
                None => zeros_like(output)?.contiguous()?,
            });
        }
        let op = GatedDeltaBackward { corrects: self.corrects };
        let gradients = Array::apply_all(op, &given.iter().collect::<Vec<_>>())?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed(inputs, self.corrects))
    }
}

/// Step by step, in the dtype of sums.
fn composed(inputs: &[Array], corrects: bool) -> Result<Vec<Array>> {
    let sizes = Sizes::new(&inputs.iter().map(Array::meta).collect::<Vec<_>>());
    let [q, k, v, g, beta, state] = inputs else { return Ok(Vec::new()) };
    let sums = wide(q.dtype());
    let at =
        |x: &Array, step: usize| squeeze(&slice_axis(&astype(x, sums)?, 2, step, step + 1, 1)?, 2);
    let of_heads = |x: &Array| expand_dims(&repeat(x, sizes.shared(), 1)?, -2);
    let (mut state, mut results) = (state.clone(), Vec::new());
    for step in 0..sizes.steps {
        let (q, k) = (of_heads(&at(q, step)?)?, of_heads(&at(k, step)?)?);
        state = multiply(state, expand_dims(&at(g, step)?, -2)?)?;
        let mut learnt = at(v, step)?;
        if corrects {
            learnt = subtract(learnt, sum(&multiply(&state, &k)?, -1, false)?)?;
        }
        learnt = multiply(learnt, expand_dims(&at(beta, step)?, -1)?)?;
        state = add(state, multiply(k, expand_dims(&learnt, -1)?)?)?;
        results.push(astype(&sum(&multiply(&state, q)?, -1, false)?, v.dtype())?);
    }
    if results.is_empty() {
        return Ok(vec![zeros_like(v)?, state]);
    }
    Ok(vec![stack(&results, 2)?, state])
}

impl Op for GatedDeltaBackward {
    fn name(&self) -> &'static str {
        "gated_delta_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &[
            "q",
            "k",
            "v",
            "g",
            "beta",
            "state",
            "dy",
            "dnext_state",
            "dq",
            "dk",
            "dv",
            "dg",
            "dbeta",
            "dstate",
        ]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 8)?;
        expect_delta(self, inputs)?;
        expect(self, inputs, 6, inputs[2].dtype, inputs[2].shape())?;
        expect(self, inputs, 7, inputs[5].dtype, inputs[5].shape())?;
        inputs[..6].iter().map(|x| Meta::new(self.name(), x.shape(), x.dtype)).collect()
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        if gpu { gpu::backward_scratch(inputs, self.corrects) } else { 0 }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self.corrects)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, self.corrects)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let [inputs @ .., dy, dstate] = inputs else { return None };
        let outputs = [dy.clone(), dstate.clone()];
        let cotangents = outputs.clone().map(Some);
        let forward = |x: &[Array]| Some(composed(x, self.corrects));
        let gradients = composed_vjp(self.name(), forward, inputs, &outputs, &cotangents);
        Some(gradients.map(|gradients| gradients.into_iter().flatten().collect()))
    }
}
