//! Conversions and constants: `astype`, `copy`, scalars and filled arrays, moves between devices.

use super::{single_program, sum_to_shape};
use crate::array::{Arg, Array, DType, Meta, Scalar};
use crate::cpu::CpuCall;
use crate::cpu::cast::Convert;
use crate::device::Device;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, Elementwise, Entry, Gradient, Metas, Op, OpRef, Tolerance, expect_inputs,
};

/// Cases of the conversions.
pub(crate) fn entries() -> Vec<Entry> {
    let casts = DType::ALL.iter().filter(|dtype| **dtype != DType::F64).map(|&to| {
        Case::new(format!("to {to}"), &[&[3, 5]], move |x| Ok(vec![astype(&x[0], to)?]))
            .range(0.0..100.0)
            .dtypes(crate::op::EVERY)
            .tolerance(Tolerance::Exact)
            .gradient(if to.is_float() { Gradient::Checked } else { Gradient::Zero })
    });
    let copy = Case::new("", &[&[3, 5]], |x| Ok(vec![copy(&x[0])?]))
        .dtypes(crate::op::EVERY)
        .tolerance(Tolerance::Exact);
    let stopped = Case::new("", &[&[3, 5]], |x| Ok(vec![stop_gradient(&x[0])?]))
        .dtypes(crate::op::EVERY)
        .tolerance(Tolerance::Exact)
        .gradient(Gradient::Zero);
    vec![
        Entry { name: "astype", cases: casts.collect() },
        Entry { name: "copy", cases: vec![copy] },
        Entry { name: "stop_gradient", cases: vec![stopped] },
    ]
}

/// The same values in another dtype: floats become integers by truncation, integers wrap, and of complex
/// numbers the real part is kept.
///
/// ```
/// use wootz::{Array, DType, astype};
/// let x = astype(&Array::new([1.7f32, -1.7])?, DType::I32)?;
/// assert_eq!(x.to_vec::<i32>()?, [1, -1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn astype(x: &Array, dtype: DType) -> Result<Array> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    Array::apply(AsType::to(dtype), &[x])
}

impl Array {
    /// The function [`astype`].
    pub fn astype(&self, dtype: DType) -> Result<Array> {
        astype(self, dtype)
    }
}

/// A row-major copy with memory of its own.
///
/// ```
/// let x = wootz::Array::new([[1, 2], [3, 4]])?.transpose()?;
/// assert!(wootz::copy(&x)?.is_contiguous());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn copy(x: &Array) -> Result<Array> {
    Array::apply(AsType::to(x.dtype()), &[x])
}

/// The same array on another device, lazily.
///
/// ```
/// use wootz::{Array, Device, to_device};
/// let x = to_device(&Array::new([1, 2])?, &Device::cpu())?;
/// assert_eq!(x.device(), &Device::cpu());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn to_device(x: &Array, device: &Device) -> Result<Array> {
    to_device_for("to_device", x, device)
}

/// The same for an operation that moves its arrays: errors name it.
pub(in crate::ops) fn to_device_for(op: &'static str, x: &Array, device: &Device) -> Result<Array> {
    if x.device() == device {
        return Ok(x.clone());
    }
    let dense = x.contiguous()?;
    let op = ToDevice { op, from: x.device().clone(), to: device.clone() };
    Ok(Array::apply_on(op.into(), &[&dense], device)?.remove(0))
}

/// An array filled with one value.
///
/// ```
/// use wootz::{DType, full};
/// assert_eq!(full(&[2], 7, DType::F32)?.to_vec::<f32>()?, [7.0, 7.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn full(shape: &[usize], value: impl Into<Arg>, dtype: DType) -> Result<Array> {
    match value.into() {
        Arg::Scalar(value) => fill(shape, value, dtype, &Device::default_device()),
        Arg::Array(values) => copy(&crate::ops::broadcast_to(&astype(&values, dtype)?, shape)?),
    }
}

/// Zeros of the shape, dtype and device of `x`.
///
/// ```
/// let x = wootz::Array::new([1, 2])?;
/// assert_eq!(wootz::zeros_like(&x)?.to_vec::<i32>()?, [0, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn zeros_like(x: &Array) -> Result<Array> {
    fill(x.shape(), Scalar::Int(0), x.dtype(), x.device())
}

/// Ones of the shape, dtype and device of `x`.
///
/// ```
/// let x = wootz::Array::new([1, 2])?;
/// assert_eq!(wootz::ones_like(&x)?.to_vec::<i32>()?, [1, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn ones_like(x: &Array) -> Result<Array> {
    fill(x.shape(), Scalar::Int(1), x.dtype(), x.device())
}

/// An array of the shape, dtype and device of `x`, filled with one value.
///
/// ```
/// let x = wootz::Array::new([1, 2])?;
/// assert_eq!(wootz::full_like(&x, 7)?.to_vec::<i32>()?, [7, 7]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn full_like(x: &Array, value: impl Into<Arg>) -> Result<Array> {
    match value.into() {
        Arg::Scalar(value) => fill(x.shape(), value, x.dtype(), x.device()),
        Arg::Array(values) => {
            let values = to_device(&astype(&values, x.dtype())?, x.device())?;
            copy(&crate::ops::broadcast_to(&values, x.shape())?)
        }
    }
}

/// The same values, through which no gradient flows.
///
/// ```
/// use wootz::{Array, grad, stop_gradient};
/// let x = Array::scalar(3.0, wootz::DType::F32)?;
/// // mx.grad(lambda x: x * mx.stop_gradient(x))(x)
/// let dx = grad(|x| x[0].multiply(&stop_gradient(&x[0])?))(&[x])?;
/// assert_eq!(dx[0].item::<f32>()?, 3.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn stop_gradient(x: impl Into<Arg>) -> Result<Array> {
    let [x] = super::resolve("stop_gradient", [x.into()])?;
    Array::apply(StopGradient, &[&x])
}

/// A scalar on `device`.
pub(crate) fn constant(value: Scalar, dtype: DType, device: &Device) -> Result<Array> {
    fill(&[], value, dtype, device)
}

/// A scalar beside arrays of `device`, whose dtypes are known to exist there.
pub(crate) fn scalar(value: Scalar, dtype: DType, device: &Device) -> Array {
    let op = Full { shape: crate::array::Shape::new(), bits: bits_of(value, dtype), dtype };
    Array::scalar_node(op.into(), dtype, device)
}

fn fill(shape: &[usize], value: Scalar, dtype: DType, device: &Device) -> Result<Array> {
    let op = Full { shape: shape.into(), bits: bits_of(value, dtype), dtype };
    Ok(Array::apply_on(op.into(), &[], device)?.remove(0))
}

/// The value as the bits of the dtype's class, rounded to the dtype.
fn bits_of(value: Scalar, dtype: DType) -> u64 {
    let value = match value {
        Scalar::Float(float) if dtype.is_integer() => Scalar::Int(integer_of(float, dtype)),
        Scalar::Complex(number) if dtype.is_integer() => {
            Scalar::Int(integer_of(number.re as f64, dtype))
        }
        Scalar::Complex(number) if dtype == DType::Bool => {
            Scalar::Bool(number != Default::default())
        }
        other => other,
    };
    match dtype {
        DType::Bool => (value.as_f64() != 0.0) as u64,
        DType::F64 => value.as_f64().to_bits(),
        DType::F32 => (value.as_f64() as f32).to_bits() as u64,
        DType::F16 => half::f16::from_f64(value.as_f64()).to_f32().to_bits() as u64,
        DType::BF16 => half::bf16::from_f64(value.as_f64()).to_f32().to_bits() as u64,
        DType::U8 => value.as_i64() as u8 as u64,
        DType::U16 => value.as_i64() as u16 as u64,
        DType::U32 => value.as_i64() as u32 as u64,
        DType::I8 => value.as_i64() as i8 as i32 as u32 as u64,
        DType::I16 => value.as_i64() as i16 as i32 as u32 as u64,
        DType::I32 => value.as_i64() as i32 as u32 as u64,
        DType::U64 | DType::I64 => value.as_i64() as u64,
        DType::C64 => {
            let imaginary = if let Scalar::Complex(value) = value { value.im } else { 0.0 };
            (imaginary.to_bits() as u64) << 32 | (value.as_f64() as f32).to_bits() as u64
        }
    }
}

/// A float as an integer, as [`astype`] has it.
fn integer_of(value: f64, dtype: DType) -> i64 {
    match dtype {
        DType::U64 => Convert::<u64>::convert(value) as i64,
        DType::I64 => value.convert(),
        DType::U32 => Convert::<u32>::convert(value) as i64,
        _ => Convert::<i32>::convert(value) as i64,
    }
}

/// An operation that does nothing but name a value.
pub(crate) fn identity_op() -> OpRef {
    OpRef::Static(&Identity)
}

/// Conversion to a dtype; to the same dtype it is a copy.
#[derive(Debug)]
struct AsType {
    dtype: DType,
}

impl AsType {
    /// Conversions are many and few are different: each exists once.
    fn to(dtype: DType) -> OpRef {
        macro_rules! casts {
            ($($name:ident),*) => {
                match dtype {
                    $(DType::$name => OpRef::Static(&AsType { dtype: DType::$name }),)*
                }
            };
        }
        casts!(Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64, C64)
    }
}

impl Op for AsType {
    fn name(&self) -> &'static str {
        "astype"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), self.dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        crate::eval::ELEMENTWISE_ALIASES
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let program = single_program(self, std::iter::once(call.meta(0)), call.output_meta(0));
        crate::cpu::fused::run(&program, call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let program = single_program(self, call.input_metas(), call.output_meta(0));
        crate::gpu::fused::run(&program, call)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let gradient = cotangents[0].as_ref().map(|g| astype(g, inputs[0].dtype()));
        Ok(vec![gradient.transpose()?])
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::Cast)
    }
}

/// A constant array.
#[derive(Debug)]
struct Full {
    shape: crate::array::Shape,
    bits: u64,
    dtype: DType,
}

impl Op for Full {
    fn name(&self) -> &'static str {
        "full"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 0)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &self.shape, self.dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let program = single_program(self, std::iter::empty(), call.output_meta(0));
        crate::cpu::fused::run(&program, call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let program = single_program(self, std::iter::empty(), call.output_meta(0));
        crate::gpu::fused::run(&program, call)
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(Vec::new())
    }

    fn elementwise(&self) -> Option<Elementwise> {
        Some(Elementwise::Constant(self.bits))
    }
}

/// The same value under another name: arguments of transforms.
#[derive(Debug)]
struct Identity;

impl Op for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        Ok(Metas::from_elem(inputs[0].clone(), 1))
    }

    fn is_view(&self) -> bool {
        true
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let gradient = cotangents[0].as_ref().map(|g| sum_to_shape(g, inputs[0].shape()));
        Ok(vec![gradient.transpose()?])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(batch.inputs)
    }
}

/// The same value, a constant for gradients.
#[derive(Debug)]
struct StopGradient;

impl Op for StopGradient {
    fn name(&self) -> &'static str {
        "stop_gradient"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        Ok(Metas::from_elem(inputs[0].clone(), 1))
    }

    fn is_view(&self) -> bool {
        true
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(batch.inputs)
    }
}

/// A move to the node's device.
#[derive(Debug)]
struct ToDevice {
    /// Who moves.
    op: &'static str,
    from: Device,
    to: Device,
}

impl Op for ToDevice {
    fn name(&self) -> &'static str {
        self.op
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn is_transfer(&self) -> bool {
        true
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Ok(())
    }

    fn vjp(
        &self,
        _: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let gradient = cotangents[0].as_ref().map(|g| to_device(g, &self.from));
        Ok(vec![gradient.transpose()?])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        Ok(vec![to_device(&batch.inputs[0], &self.to)?])
    }
}
