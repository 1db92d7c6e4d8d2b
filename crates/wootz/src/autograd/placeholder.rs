//! Arrays without values: what a transform shows a function while it records what the function
//! does.

use super::Trace;
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::device::Device;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Metas, Op};

/// A row-major array of a shape and dtype that has no value; asking for one is an error that names
/// the transform.
pub(crate) fn placeholder(
    trace: &Trace,
    transform: &'static str,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Array> {
    let meta = Meta::new(transform, shape, dtype)?;
    Array::traced_source(Placeholder { transform, meta }.into(), device, trace)
}

#[derive(Debug)]
struct Placeholder {
    transform: &'static str,
    meta: Meta,
}

impl Placeholder {
    fn without_value(&self) -> Error {
        let reason = "the values of arguments are not known while the function is recorded; \
                      it must not evaluate what it computes from them";
        Error::Transform { transform: self.transform, reason: reason.into() }
    }
}

impl Op for Placeholder {
    fn name(&self) -> &'static str {
        "placeholder"
    }

    fn infer(&self, _: &[&Meta]) -> Result<Metas> {
        Ok(Metas::from_elem(self.meta.clone(), 1))
    }

    fn cpu(&self, _: &mut CpuCall<'_>) -> Result<()> {
        Err(self.without_value())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, _: &mut GpuCall<'_>) -> Result<()> {
        Err(self.without_value())
    }

    fn vjp(&self, _: &[Array], _: &[Array], _: &[Option<Array>]) -> Result<Vec<Option<Array>>> {
        Ok(Vec::new())
    }
}
