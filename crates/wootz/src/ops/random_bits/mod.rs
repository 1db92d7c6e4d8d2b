//! Random bits by threefry2x32, the counter-based generator of MLX: the bits are a function of the
//! key and of their place only.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;

use crate::array::{Array, DType, Meta, Shape};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, Entry, Gradient, Metas, Op, Tolerance, expect_contiguous, expect_dtype,
    expect_inputs,
};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |label: &str, keys: &[usize], shape: &[usize], dtype: DType| {
        let shape = Shape::from_slice(shape);
        Case::new(label, &[keys], move |x| Ok(vec![random_bits(&shape, dtype, &x[0])?]))
            .fixed(0, DType::U32, 0.0..4e9)
            .dtypes(&[DType::U32])
            .tolerance(Tolerance::Exact)
            .gradient(Gradient::Zero)
    };
    let cases = vec![
        case("one word", &[2], &[], DType::U32),
        case("odd", &[2], &[7, 3], DType::U32),
        case("even, more than one chunk", &[2], &[5000], DType::U32),
        case("bytes", &[2], &[13], DType::U8),
        case("halves", &[2], &[5], DType::U16),
        case("several keys", &[3, 2], &[5], DType::U32),
        case("bytes of several keys", &[2, 3, 2], &[7], DType::U8),
        case("nothing", &[2], &[0], DType::U32),
    ];
    vec![Entry { name: "random_bits", cases }]
}

/// Uniform bits of the given shape for each key. `key` is of type `uint32`; its last axis, of
/// length 2, holds the keys, and its other axes come first in the result. `dtype` is `uint8`,
/// `uint16` or `uint32`.
pub(crate) fn random_bits(shape: &[usize], dtype: DType, key: &Array) -> Result<Array> {
    Array::apply(RandomBits { shape: Shape::from_slice(shape), dtype }, &[&key.contiguous()?])
}

/// Bits for each key.
#[derive(Clone, Debug)]
struct RandomBits {
    shape: Shape,
    dtype: DType,
}

impl Op for RandomBits {
    fn name(&self) -> &'static str {
        "random_bits"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["key", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_dtype(self, inputs, 0, DType::U32)?;
        expect_contiguous(self, inputs, 0)?;
        if !matches!(self.dtype, DType::U8 | DType::U16 | DType::U32) {
            let expected = "uint8, uint16 or uint32";
            return Err(Error::dtype(self.name(), "output", expected, self.dtype));
        }
        let [lead @ .., 2] = inputs[0].shape() else {
            let expected = "one whose last axis is 2";
            return Err(Error::shape(self.name(), "key", expected, inputs[0].shape()));
        };
        let shape: Shape = lead.iter().chain(&self.shape).copied().collect();
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, self.dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::run(call, self.shape.iter().product())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::run(call, self.shape.iter().product())
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(vec![None])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}
