//! Normalisation of groups of features over all positions of a sample, and its gradients as an
//! operation of its own. Features stay where they are: sums go down the columns of a sample and then
//! over the columns of a group.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;

use super::{expect_eps, expect_like_x, expect_row, expect_rows, like, wide};
use crate::array::{Array, DType, Meta};
use crate::autograd::composed_vjp;
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Case, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::{add, astype, divide, multiply, reshape, rsqrt, square, subtract, sum_keepdims};

/// Cases of both operations.
pub(super) fn entries() -> Vec<Entry> {
    // Large enough that finite differences of small groups stay smooth.
    const EPS: f32 = 0.1;
    let forward = |shape: &[usize], groups: usize, neighbours: bool| {
        let last = &shape[shape.len() - 1..];
        let label = format!("{shape:?}, {groups} groups, neighbours: {neighbours}");
        Case::new(label, &[shape, last, last], move |x| {
            Ok(vec![group_norm(&x[0], groups, Some(&x[1]), Some(&x[2]), EPS, neighbours)?])
        })
        .tolerance(Tolerance::Reduction)
    };
    let backward = |shape: &[usize], groups: usize, neighbours: bool, weighted: bool| {
        let last = &shape[shape.len() - 1..];
        let label = format!("{shape:?}, {groups} groups, neighbours: {neighbours}");
        let inputs: &[&[usize]] = if weighted { &[shape, last, shape] } else { &[shape, shape] };
        Case::new(label, inputs, move |x| {
            let norm = Groups { groups, neighbours, weighted, biased: weighted, eps: EPS };
            let inputs = x.iter().map(Array::contiguous).collect::<Result<Vec<_>>>()?;
            let inputs: Vec<&Array> = inputs.iter().collect();
            Ok(Array::apply_all(GroupNormBackward(norm), &inputs)?.into_vec())
        })
        .tolerance(Tolerance::Reduction)
    };
    let plain = Case::new("without weight and bias", &[&[2, 5, 6]], |x| {
        Ok(vec![group_norm(&x[0], 2, None, None, EPS, true)?])
    });
    vec![
        Entry {
            name: "group_norm",
            cases: vec![
                forward(&[2, 3, 5, 6], 3, true),
                forward(&[2, 7, 6], 3, false),
                forward(&[3, 8], 2, true),
                forward(&[1, 130, 34], 2, false),
                forward(&[0, 3, 4], 2, true),
                plain.tolerance(Tolerance::Reduction),
                // Groups that are kept are read once, and pairs of neighbours at once.
                forward(&[2, 64, 32], 4, true).moves(2 * 2 * 64 * 32, 1.1),
                forward(&[2, 64, 32], 4, false).moves(2 * 2 * 64 * 32, 1.1).dtypes(&[DType::F32]),
                forward(&[1, 1025, 2], 1, true).dtypes(&[DType::F32]),
                // The largest that are kept, and larger ones.
                forward(&[2, 1024, 32], 1, true)
                    .moves(2 * 2 * 1024 * 32, 1.1)
                    .dtypes(&[DType::F32, DType::BF16]),
                forward(&[1, 1025, 64], 2, true).dtypes(&[DType::F32, DType::BF16]),
            ],
        },
        Entry {
            name: "group_norm_backward",
            cases: vec![
                backward(&[2, 5, 6], 3, true, true),
                backward(&[3, 7, 6], 2, false, true),
                backward(&[1, 130, 34], 2, true, true),
                backward(&[2, 3, 4], 4, true, false),
                backward(&[2, 0, 4], 2, true, true),
                backward(&[0, 3, 4], 2, false, true),
                // What is kept is read once: x and dy, and dx is written.
                backward(&[2, 64, 24], 2, true, true)
                    .moves(3 * 2 * 64 * 24, 1.1)
                    .dtypes(&[DType::F32]),
                backward(&[2, 1023, 16], 1, true, true)
                    .moves(3 * 2 * 1023 * 16, 1.1)
                    .dtypes(&[DType::F32]),
                // Too large to be kept, and more features in a group than threads.
                backward(&[1, 1025, 32], 2, false, true).dtypes(&[DType::F32]),
                backward(&[1, 3, 600], 2, true, true).dtypes(&[DType::F32]),
            ],
        },
    ]
}

/// Normalisation of groups of features to mean 0 and variance 1 over all axes but the first, then
/// scale and shift. Neighbouring features form a group, as in PyTorch, or, as in MLX unless it is asked
/// for PyTorch's way, every `num_groups`-th. Computed in single precision at least, and rounded once.
///
/// On a GPU groups of up to 32,768 elements (of which a gradient keeps 16,384) are read once, if it has 512 threads in a
/// workgroup; larger ones are read again for each sum over them.
///
/// ```
/// use wootz::{Array, group_norm};
/// let x = Array::new([[[1.0f32, 10.0], [3.0, 30.0]]])?;
/// let y = group_norm(&x, 2, None, None, 1e-5, true)?.to_vec::<f32>()?;
/// assert!((y[0] + 1.0).abs() < 1e-4 && (y[3] - 1.0).abs() < 1e-4);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn group_norm(
    x: &Array,
    num_groups: usize,
    weight: Option<&Array>,
    bias: Option<&Array>,
    eps: f32,
    neighbours: bool,
) -> Result<Array> {
    if !x.dtype().is_float() {
        return Err(Error::dtype("group_norm", "x", "a floating-point type", x.dtype()));
    }
    let rows = [weight, bias].into_iter().flatten();
    let dtype = rows.fold(x.dtype(), |dtype, row| DType::promote(dtype, row.dtype()));
    let inputs = [Some(x), weight, bias]
        .into_iter()
        .flatten()
        .map(|input| astype(input, dtype)?.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let (weighted, biased) = (weight.is_some(), bias.is_some());
    let norm = Groups { groups: num_groups, neighbours, weighted, biased, eps };
    Array::apply(GroupNorm(norm), &inputs.iter().collect::<Vec<_>>())
}

/// Which groups, and which inputs there are: `x`, the weight and the bias; in a gradient `x`, the
/// weight and `dy`.
#[derive(Clone, Copy, Debug)]
struct Groups {
    groups: usize,
    neighbours: bool,
    weighted: bool,
    biased: bool,
    eps: f32,
}

impl Groups {
    fn weight(self) -> Option<usize> {
        self.weighted.then_some(1)
    }

    fn bias(self) -> Option<usize> {
        self.biased.then_some(1 + self.weighted as usize)
    }

    fn cotangent(self) -> usize {
        1 + self.weighted as usize
    }

    /// How many gradients are sums over the samples.
    fn sums(self) -> usize {
        self.weighted as usize + self.biased as usize
    }

    /// Checks `x` and tells its features.
    fn expect(self, op: &dyn Op, inputs: &[&Meta]) -> Result<usize> {
        let features = expect_rows(op, inputs)?;
        expect_eps(op, self.eps)?;
        if inputs[0].shape().len() < 2 {
            return Err(Error::shape(op.name(), "x", "at least two axes", inputs[0].shape()));
        }
        if features == 0 || self.groups == 0 || !features.is_multiple_of(self.groups) {
            let expected = format!("a divisor of the {features} features");
            return Err(Error::argument(op.name(), "num_groups", expected, self.groups));
        }
        Ok(features)
    }
}

/// What the shape of `x` says.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    positions: usize,
    features: usize,
}

impl Sizes {
    fn new(x: &Meta) -> Sizes {
        let shape = x.shape();
        let last = shape.len() - 1;
        let positions = shape[1..last].iter().product();
        Sizes { batch: shape[0], positions, features: shape[last] }
    }
}

/// [`group_norm`] as an operation on row-major arrays of one dtype.
#[derive(Clone, Copy, Debug)]
struct GroupNorm(Groups);

impl Op for GroupNorm {
    fn name(&self) -> &'static str {
        "group_norm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.0.weighted, self.0.biased) {
            (true, true) => &["x", "weight", "bias", "y"],
            (true, false) => &["x", "weight", "y"],
            (false, true) => &["x", "bias", "y"],
            (false, false) => &["x", "y"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1 + self.0.sums())?;
        let features = self.0.expect(self, inputs)?;
        for input in 1..inputs.len() {
            expect_row(self, inputs, input, features)?;
        }
        like(self, inputs[0])
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, self.0)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dy) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        let weight = self.0.weight().and_then(|input| inputs.get(input));
        let dy = dy.contiguous()?;
        let given: Vec<&Array> =
            [Some(&inputs[0]), weight, Some(&dy)].into_iter().flatten().collect();
        let gradients = Array::apply_all(GroupNormBackward(self.0), &given)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed(self.0, inputs).map(|y| vec![y]))
    }
}

fn composed(norm: Groups, inputs: &[Array]) -> Result<Array> {
    let x = &inputs[0];
    let Sizes { batch, positions, features } = Sizes::new(x.meta());
    let size = features / norm.groups;
    let dtype = wide(x.dtype());
    let wide = astype(x, dtype)?;
    let (grouped, axes) = match norm.neighbours {
        true => (reshape(&wide, &[batch, positions, norm.groups, size])?, [1, 3]),
        false => (reshape(&wide, &[batch, positions, size, norm.groups])?, [1, 2]),
    };
    let mean = |x: &Array| divide(sum_keepdims(x, &axes)?, (positions * size) as f64);
    let centred = subtract(&grouped, mean(&grouped)?)?;
    let r = rsqrt(add(mean(&square(&centred)?)?, norm.eps as f64)?)?;
    let mut y = reshape(&multiply(centred, r)?, x.shape())?;
    if let Some(input) = norm.weight() {
        y = multiply(y, astype(&inputs[input], dtype)?)?;
    }
    if let Some(input) = norm.bias() {
        y = add(y, astype(&inputs[input], dtype)?)?;
    }
    astype(&y, x.dtype())
}

/// The gradients of [`group_norm`] as an operation on row-major arrays: of `x`, then of the weight
/// and of the bias if it has them.
#[derive(Clone, Copy, Debug)]
struct GroupNormBackward(Groups);

impl Op for GroupNormBackward {
    fn name(&self) -> &'static str {
        "group_norm_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.0.weighted, self.0.biased) {
            (true, true) => &["x", "weight", "dy", "dx", "dw", "db"],
            (true, false) => &["x", "weight", "dy", "dx", "dw"],
            (false, true) => &["x", "dy", "dx", "db"],
            (false, false) => &["x", "dy", "dx"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let dy = self.0.cotangent();
        expect_inputs(self, inputs, dy + 1)?;
        let features = self.0.expect(self, inputs)?;
        if let Some(weight) = self.0.weight() {
            expect_row(self, inputs, weight, features)?;
        }
        expect_like_x(self, inputs, dy)?;
        let mut outputs = like(self, inputs[0])?;
        for _ in 0..self.0.sums() {
            outputs.push(Meta::new(self.name(), &[features], inputs[0].dtype)?);
        }
        Ok(outputs)
    }

    /// Two sums for each feature of each sample.
    fn scratch(&self, inputs: &[&Meta], _: bool) -> usize {
        let Sizes { batch, features, .. } = Sizes::new(inputs[0]);
        2 * batch.max(1) * features * wide(inputs[0].dtype).size()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, self.0)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let (norm, dy) = (self.0, inputs.get(self.0.cotangent())?);
        let mut given = inputs[..self.0.cotangent()].to_vec();
        if norm.biased {
            // Of any value, because the gradients do not depend on it.
            let last = [Sizes::new(inputs[0].meta()).features];
            let like =
                crate::device::with_device(dy.device(), || crate::ops::full(&last, 0, dy.dtype()));
            match like {
                Ok(bias) => given.push(bias),
                Err(error) => return Some(Err(error)),
            }
        }
        let forward = move |x: &[Array]| Some(composed(norm, x).map(|y| vec![y]));
        let (outputs, cotangents) = ([dy.clone()], [Some(dy.clone())]);
        let gradients = composed_vjp(self.name(), forward, &given, &outputs, &cotangents);
        Some(gradients.map(|gradients| gradients.into_iter().flatten().collect()))
    }
}
