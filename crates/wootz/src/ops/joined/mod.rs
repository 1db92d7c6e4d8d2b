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
use crate::device::Device;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::nn;
use crate::op::{
    Metas, Op, expect_contiguous, expect_dtype, expect_float, expect_inputs, expect_shape,
};
use crate::ops::quantized::{expect_weights, weights_shape};
use crate::ops::{
    Quantized, add, addmm, matmul, quantized_matmul, quantized_matmul_with, reshape, swapaxes,
};
use crate::quant::{Activations, Scheme, activations};

/// Rows of `x` up to which matrices are multiplied at once.
const FEW: usize = 8;

/// A matrix of `[outputs, inputs]` that something is multiplied with, and maybe a bias that is added.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    weights: Weights<'a>,
    bias: Option<&'a Array>,
}

#[derive(Clone, Copy, Debug)]
enum Weights<'a> {
    Dense(&'a Array),
    Quantized(&'a Quantized),
}

impl<'a> Factor<'a> {
    /// A matrix of numbers.
    pub fn dense(w: &'a Array) -> Factor<'a> {
        Factor { weights: Weights::Dense(w), bias: None }
    }

    /// A matrix that is quantized in any way.
    pub fn quantized(w: &'a Quantized) -> Factor<'a> {
        Factor { weights: Weights::Quantized(w), bias: None }
    }

    /// The same with a bias of `[outputs]`, which every row of the product gets.
    pub fn plus(self, bias: &'a Array) -> Factor<'a> {
        Factor { bias: Some(bias), ..self }
    }

    fn shape(&self) -> Vec<usize> {
        match self.weights {
            Weights::Dense(w) => w.shape().to_vec(),
            Weights::Quantized(w) => w.shape(),
        }
    }

    fn scheme(&self) -> Option<Scheme> {
        match self.weights {
            Weights::Dense(_) => None,
            Weights::Quantized(w) => Some(w.scheme()),
        }
    }

    /// The arrays as kernels read them: those of the weights, with an axis for the only matrix, and the bias.
    fn arrays(&self) -> Result<Vec<Array>> {
        let arrays = match self.weights {
            Weights::Dense(w) => std::slice::from_ref(w),
            Weights::Quantized(w) => w.arrays(),
        };
        let one = |array: &Array| reshape(array, &[&[1], array.shape()].concat())?.contiguous();
        arrays.iter().map(one).chain(self.bias.map(Array::contiguous)).collect()
    }

    /// The product by itself, with the bias.
    fn product(&self, x: &Array) -> Result<Array> {
        match (self.weights, self.bias) {
            (Weights::Dense(w), None) => matmul(x, &swapaxes(w, -1, -2)?),
            (Weights::Dense(w), Some(bias)) => addmm(bias, x, &swapaxes(w, -1, -2)?, 1.0, 1.0),
            (Weights::Quantized(w), None) => quantized_matmul(x, w, true),
            (Weights::Quantized(w), Some(bias)) => add(quantized_matmul(x, w, true)?, bias),
        }
    }

    /// Whether product and bias are of the dtype of `x`, and what is read as numbers is, too.
    fn is_like(&self, op: &'static str, x: &Array) -> Result<bool> {
        let weights = match self.weights {
            Weights::Dense(w) => w.dtype() == x.dtype(),
            Weights::Quantized(w) => w.product_dtype(op, x)? == x.dtype(),
        };
        Ok(weights && self.bias.is_none_or(|bias| bias.dtype() == x.dtype()))
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
/// `[…, inputs]`: as [`matmul`] and [`quantized_matmul`] give them. With a bias a product is what [`addmm`] gives; a
/// quantized one is rounded before the bias is added, and once more after.
///
/// ```
/// use wootz::quant::Format;
/// use wootz::{Array, DType, Factor, matmul_each, quantize};
/// let w = Array::ones(&[3, 32], DType::F32)?;
/// let x = Array::ones(&[1, 32], DType::F32)?;
/// let bias = Array::new([1.0f32, 2.0, 3.0])?;
/// let quantized = quantize(&w, Format::Q8_0)?;
/// let products = matmul_each(&x, &[Factor::quantized(&quantized), Factor::dense(&w).plus(&bias)])?;
/// assert_eq!(products[1].to_vec::<f32>()?, [33.0, 34.0, 35.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn matmul_each(x: &Array, weights: &[Factor<'_>]) -> Result<Vec<Array>> {
    match apply("matmul_each", x, weights, None)? {
        Some(products) => Ok(products),
        None => weights.iter().map(|w| w.product(x)).collect(),
    }
}

/// The gated half of a transformer's network: `activation(x @ gate.T) · (x @ up.T)`, for two matrices of one shape,
/// each with the bias that it may have.
///
/// ```
/// use wootz::{Array, DType, Factor, Gate, matmul_glu};
/// let w = Array::ones(&[2, 3], DType::F32)?;
/// let x = Array::new([[1.0f32, 0.0, 0.0]])?;
/// let y = matmul_glu(&x, Factor::dense(&w), Factor::dense(&w), Gate::Silu)?;
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
        if let Some(bias) = w.bias.filter(|bias| bias.shape() != &shape[..1]) {
            return Err(Error::shape(op, "bias", format!("[{}]", shape[0]), bias.shape()));
        }
        same &= w.is_like(op, x)? && shape[0] > 0;
    }
    let known = matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16);
    let rows = x.size().checked_div(columns).unwrap_or(0);
    if !same || !known || weights.is_empty() || !(1..=FEW).contains(&rows) {
        return Ok(None);
    }
    let schemes = weights.iter().map(Factor::scheme).collect();
    let biased = weights.iter().map(|w| w.bias.is_some()).collect();
    let joined = Joined { schemes, biased, gate, activations: activations() };
    if !joined.fits(x.device()) {
        return Ok(None);
    }
    let matrix = reshape(x, &[1, rows, columns])?.contiguous()?;
    let arrays = weights.iter().map(Factor::arrays).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<&Array> = [&matrix].into_iter().chain(arrays.iter().flatten()).collect();
    let lead = &x.shape()[..x.rank() - 1];
    let outputs = Array::apply_all(joined, &inputs)?;
    let shaped = |y: &Array| reshape(y, &[lead, &y.shape()[2..]].concat());
    outputs.iter().map(shaped).collect::<Result<Vec<_>>>().map(Some)
}

/// `x` of `[1, m, k]`, of at most eight rows, times the rows of several matrices: arrays of `[1, n, k]`, or of as many
/// weights, quantized; and biases of `[n]`. Arrays are row-major: `x`, and then those of each matrix, its bias last. The
/// lazy functions are [`matmul_each`] and [`matmul_glu`].
#[derive(Clone, Debug)]
pub struct Joined {
    /// How each matrix is quantized, if it is.
    pub schemes: SmallVec<[Option<Scheme>; 4]>,
    /// Whether each matrix has a bias.
    pub biased: SmallVec<[bool; 4]>,
    /// What makes one result of those of two matrices.
    pub gate: Option<Gate>,
    /// How the CPU rounds `x` for quantized weights.
    pub activations: Activations,
}

/// The inputs of a matrix.
#[derive(Clone, Copy)]
struct Place {
    /// That it begins with.
    first: usize,
    scheme: Option<Scheme>,
    bias: Option<usize>,
}

impl Place {
    /// The shape of the matrix.
    fn shape(self, inputs: &[&Meta]) -> Vec<usize> {
        match self.scheme {
            Some(scheme) => weights_shape(scheme, inputs[self.first]),
            None => inputs[self.first].shape().to_vec(),
        }
    }
}

impl Joined {
    /// Where each matrix is.
    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.schemes.iter().zip(&self.biased).scan(1, |next, (&scheme, &biased)| {
            let first = *next;
            let bias = first + scheme.map_or(1, |scheme| scheme.arrays());
            *next = bias + biased as usize;
            Some(Place { first, scheme, bias: biased.then_some(bias) })
        })
    }

    /// Whether a device can bind what a gate puts together; products that stay apart may take several launches.
    fn fits(&self, device: &Device) -> bool {
        #[cfg(feature = "gpu")]
        if let (Some(_), Some(gpu)) = (self.gate, device.as_gpu()) {
            return gpu::gated_bindings(self) <= gpu.max_storage_bindings();
        }
        let _ = device;
        true
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
        if self.biased.len() != self.schemes.len() {
            let expected = format!("one for each of {} matrices", self.schemes.len());
            return Err(Error::argument(op, "biased", expected, self.biased.len()));
        }
        let arrays: usize = self.schemes.iter().map(|s| s.map_or(1, |s| s.arrays())).sum();
        let biases = self.biased.iter().filter(|&&biased| biased).count();
        expect_inputs(self, inputs, 1 + arrays + biases)?;
        let &[1, m @ 1..=FEW, k] = inputs[0].shape() else {
            return Err(Error::shape(op, "x", format!("[1, up to {FEW}, k]"), inputs[0].shape()));
        };
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        let mut outputs = Metas::new();
        for place @ Place { first, scheme, bias } in self.places() {
            match scheme {
                Some(scheme) => expect_weights(self, scheme, inputs, first)?,
                None => {
                    expect_dtype(self, inputs, first, inputs[0].dtype)?;
                    expect_contiguous(self, inputs, first)?;
                }
            }
            let shape = place.shape(inputs);
            let &[1, n, columns] = &shape[..] else {
                return Err(Error::shape(op, "weights", format!("[1, n, {k}]"), &shape));
            };
            if columns != k || n == 0 {
                return Err(Error::shape(op, "weights", format!("[1, n, {k}]"), &shape));
            }
            if let Some(bias) = bias {
                expect_dtype(self, inputs, bias, inputs[0].dtype)?;
                expect_shape(self, inputs, bias, &[n])?;
                expect_contiguous(self, inputs, bias)?;
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
        input > 0 && self.places().all(|place| place.bias != Some(input))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::run(call, self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::run(call, self)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let product = |Place { first, scheme, bias }: Place| {
            let bias = bias.map(|bias| &inputs[bias]);
            let Some(scheme) = scheme else {
                return Factor { weights: Weights::Dense(&inputs[first]), bias }
                    .product(&inputs[0]);
            };
            let array = |index: usize| inputs.get(first + index);
            let arrays = scheme.arrays();
            let scales = array(1).filter(|_| arrays > 1);
            let biases = array(2).filter(|_| arrays > 2);
            let w = Quantized::new(scheme, &inputs[first], scales, biases)?;
            let product = quantized_matmul_with(&inputs[0], &w, true, self.activations)?;
            bias.map_or(Ok(product.clone()), |bias| add(&product, bias))
        };
        let composed = || {
            let products = self.places().map(product).collect::<Result<Vec<_>>>()?;
            match (self.gate, &products[..]) {
                (Some(by), [gate, up]) => Ok(vec![by.apply(gate, up)?]),
                _ => Ok(products),
            }
        };
        Some(composed())
    }
}
