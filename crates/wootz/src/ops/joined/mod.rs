//! Products of a few vectors with several matrices at once: the projections of a transformer's layer, which all read
//! the same activations. One launch, or one hand-off to the team, instead of one for each matrix.

mod cases;
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(test)]
mod tests;

use smallvec::SmallVec;

pub(crate) use self::cases::entries;
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::nn;
use crate::op::{Metas, Op, expect_contiguous, expect_dtype, expect_float, expect_shape};
use crate::ops::quantized::{expect_weights, weights_shape};
use crate::ops::{Quantized, matmul, quantized_matmul, quantized_matmul_with, reshape, swapaxes};
use crate::quant::{Activations, Scheme, activations};

/// Rows of `x` up to which matrices are multiplied at once.
const FEW: usize = 8;

/// A matrix of `[outputs, inputs]` that something is multiplied with.
#[derive(Clone, Copy, Debug)]
pub enum Factor<'a> {
    /// Numbers.
    Dense(&'a Array),
    /// Quantized in any way.
    Quantized(&'a Quantized),
}

impl Factor<'_> {
    fn shape(&self) -> Vec<usize> {
        match self {
            Factor::Dense(w) => w.shape().to_vec(),
            Factor::Quantized(w) => w.shape(),
        }
    }

    fn scheme(&self) -> Option<Scheme> {
        match self {
            Factor::Dense(_) => None,
            Factor::Quantized(w) => Some(w.scheme()),
        }
    }

    /// The arrays as kernels read them, with an axis for the only matrix.
    fn arrays(&self) -> Result<Vec<Array>> {
        let arrays = match self {
            Factor::Dense(w) => std::slice::from_ref(*w),
            Factor::Quantized(w) => w.arrays(),
        };
        let one = |array: &Array| reshape(array, &[&[1], array.shape()].concat())?.contiguous();
        arrays.iter().map(one).collect()
    }

    /// The product by itself.
    fn product(&self, x: &Array) -> Result<Array> {
        match self {
            Factor::Dense(w) => matmul(x, &swapaxes(w, -1, -2)?),
            Factor::Quantized(w) => quantized_matmul(x, w, true),
        }
    }

    /// The dtype of the product.
    fn dtype(&self, op: &'static str, x: &Array) -> Result<DType> {
        match self {
            Factor::Dense(w) => Ok(DType::promote(x.dtype(), w.dtype())),
            Factor::Quantized(w) => w.product_dtype(op, x),
        }
    }
}

/// How the result of one product lets that of another through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `silu(gate) · up`.
    Silu,
    /// `gelu_approx(gate) · up`.
    GeluTanh,
}

impl Gate {
    /// The results put together.
    pub fn apply(self, gate: &Array, up: &Array) -> Result<Array> {
        match self {
            Gate::Silu => nn::swiglu(gate, up),
            Gate::GeluTanh => nn::geglu_approx(gate, up),
        }
    }
}

/// `x @ w.T` for each of several matrices, dense ones of the dtype of `x` or quantized ones, for `x` of
/// `[…, inputs]`: as [`matmul`] and [`quantized_matmul`] give them.
///
/// ```
/// use wootz::quant::Format;
/// use wootz::{Array, DType, Factor, matmul_each, quantize};
/// let w = Array::ones(&[3, 32], DType::F32)?;
/// let x = Array::ones(&[1, 32], DType::F32)?;
/// let factors = [Factor::Quantized(&quantize(&w, Format::Q8_0)?), Factor::Dense(&w)];
/// let products = matmul_each(&x, &factors)?;
/// assert_eq!(products[1].to_vec::<f32>()?, [32.0, 32.0, 32.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn matmul_each(x: &Array, weights: &[Factor<'_>]) -> Result<Vec<Array>> {
    match apply("matmul_each", x, weights, None)? {
        Some(products) => Ok(products),
        None => weights.iter().map(|w| w.product(x)).collect(),
    }
}

/// The gated half of a transformer's network: `activation(x @ gate.T) · (x @ up.T)`, for two matrices of one shape.
///
/// ```
/// use wootz::{Array, DType, Factor, Gate, matmul_glu};
/// let w = Array::ones(&[2, 3], DType::F32)?;
/// let x = Array::new([[1.0f32, 0.0, 0.0]])?;
/// let y = matmul_glu(&x, Factor::Dense(&w), Factor::Dense(&w), Gate::Silu)?;
/// assert!((y.to_vec::<f32>()?[1] - 0.7310586).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn matmul_glu(x: &Array, gate: Factor<'_>, up: Factor<'_>, by: Gate) -> Result<Array> {
    const OP: &str = "matmul_glu";
    if gate.shape() != up.shape() {
        return Err(Error::shape(OP, "up", format!("{:?}", gate.shape()), &up.shape()));
    }
    match apply(OP, x, &[gate, up], Some(by))?.and_then(|results| results.into_iter().next()) {
        Some(y) => Ok(y),
        None => by.apply(&gate.product(x)?, &up.product(x)?),
    }
}

/// The operation, if there are few rows, of a dtype that it knows.
fn apply(
    op: &'static str,
    x: &Array,
    weights: &[Factor<'_>],
    gate: Option<Gate>,
) -> Result<Option<Vec<Array>>> {
    let columns = x.shape().last().copied().unwrap_or(0);
    let mut same = true;
    for w in weights {
        let shape = w.shape();
        if shape.len() != 2 || shape[1] != columns || x.rank() == 0 {
            let expected = format!("a last axis as that of weights of {shape:?}");
            return Err(Error::shape(op, "x", expected, x.shape()));
        }
        same &= w.dtype(op, x)? == x.dtype() && shape[0] > 0;
        same &= !matches!(w, Factor::Dense(w) if w.dtype() != x.dtype());
    }
    let known = matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16);
    let rows = x.size().checked_div(columns).unwrap_or(0);
    if !same || !known || weights.is_empty() || !(1..=FEW).contains(&rows) {
        return Ok(None);
    }
    let matrix = reshape(x, &[1, rows, columns])?.contiguous()?;
    let arrays = weights.iter().map(Factor::arrays).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<&Array> = [&matrix].into_iter().chain(arrays.iter().flatten()).collect();
    let schemes = weights.iter().map(Factor::scheme).collect();
    let joined = Joined { schemes, gate, activations: activations() };
    let lead = &x.shape()[..x.rank() - 1];
    let outputs = Array::apply_all(joined, &inputs)?;
    let shaped = |y: &Array| reshape(y, &[lead, &y.shape()[2..]].concat());
    outputs.iter().map(shaped).collect::<Result<Vec<_>>>().map(Some)
}

/// `x` of `[1, m, k]`, of at most eight rows, times the rows of several matrices: arrays of `[1, n, k]`, or of as many
/// weights, quantized. Arrays are row-major: `x`, and then those of each matrix. The lazy functions are
/// [`matmul_each`] and [`matmul_glu`].
#[derive(Clone, Debug)]
pub struct Joined {
    /// How each matrix is quantized, if it is.
    pub schemes: SmallVec<[Option<Scheme>; 4]>,
    /// What makes one result of those of two matrices.
    pub gate: Option<Gate>,
    /// How the CPU rounds `x` for quantized weights.
    pub activations: Activations,
}

impl Joined {
    /// The input that each matrix begins with.
    fn firsts(&self) -> impl Iterator<Item = (usize, Option<Scheme>)> + '_ {
        self.schemes.iter().scan(1, |next, &scheme| {
            let first = *next;
            *next += scheme.map_or(1, |scheme| scheme.arrays());
            Some((first, scheme))
        })
    }

    /// Rows and columns of the matrix that begins with an input.
    fn shape(&self, inputs: &[&Meta], first: usize, scheme: Option<Scheme>) -> Vec<usize> {
        match scheme {
            Some(scheme) => weights_shape(scheme, inputs[first]),
            None => inputs[first].shape().to_vec(),
        }
    }
}

impl Op for Joined {
    fn name(&self) -> &'static str {
        if self.gate.is_some() { "matmul_glu" } else { "matmul_each" }
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let op = self.name();
        let count: usize = self.schemes.iter().map(|s| s.map_or(1, |s| s.arrays())).sum();
        crate::op::expect_inputs(self, inputs, 1 + count)?;
        let &[1, m @ 1..=FEW, k] = inputs[0].shape() else {
            return Err(Error::shape(op, "x", format!("[1, up to {FEW}, k]"), inputs[0].shape()));
        };
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        let mut outputs = Metas::new();
        for (first, scheme) in self.firsts() {
            match scheme {
                Some(scheme) => expect_weights(self, scheme, inputs, first)?,
                None => {
                    expect_dtype(self, inputs, first, inputs[0].dtype)?;
                    expect_contiguous(self, inputs, first)?;
                }
            }
            let shape = self.shape(inputs, first, scheme);
            let &[1, n, columns] = &shape[..] else {
                return Err(Error::shape(op, "weights", format!("[1, n, {k}]"), &shape));
            };
            if columns != k || n == 0 {
                return Err(Error::shape(op, "weights", format!("[1, n, {k}]"), &shape));
            }
            outputs.push(Meta::new(op, &[1, m, n], inputs[0].dtype)?);
        }
        if self.gate.is_some() {
            let [gate, up] = &outputs[..] else {
                return Err(Error::argument(op, "weights", "two matrices", outputs.len()));
            };
            if gate.shape() != up.shape() {
                return Err(Error::shape(op, "up", format!("{:?}", gate.shape()), up.shape()));
            }
            outputs.pop();
        } else {
            expect_shape(self, inputs, 0, &[1, m, k])?;
        }
        Ok(outputs)
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        if gpu { 0 } else { cpu::scratch(self, inputs) }
    }

    fn reads_bytes(&self, input: usize) -> bool {
        // Weights, dense and quantized; activations come first.
        input > 0
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::run(call, self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::run(call, self)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let product = |(first, scheme): (usize, Option<Scheme>)| match scheme {
            None => matmul(&inputs[0], &swapaxes(&inputs[first], -1, -2)?),
            Some(scheme) => {
                let array = |index: usize| inputs.get(first + index);
                let arrays = scheme.arrays();
                let scales = array(1).filter(|_| arrays > 1);
                let biases = array(2).filter(|_| arrays > 2);
                let w = Quantized::new(scheme, &inputs[first], scales, biases)?;
                quantized_matmul_with(&inputs[0], &w, true, self.activations)
            }
        };
        let composed = || {
            let products = self.firsts().map(product).collect::<Result<Vec<_>>>()?;
            match (self.gate, &products[..]) {
                (Some(by), [gate, up]) => Ok(vec![by.apply(gate, up)?]),
                _ => Ok(products),
            }
        };
        Some(composed())
    }
}
