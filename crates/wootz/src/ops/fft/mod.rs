//! Discrete Fourier transforms along the last axis, on the CPU. Arrays of a GPU go there and back by
//! themselves; the functions are those of [`crate::fft`].

mod cases;
mod cpu;

pub(crate) use cases::entries;

use num_complex::Complex32;

use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::device::Device;
use crate::error::Result;
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_dtype, expect_inputs, expect_shape};
use crate::ops::multiply;

/// Which transform.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Of complex numbers, with a negative exponent.
    Forward,
    /// Of complex numbers, with a positive exponent.
    Inverse,
    /// Of real numbers, with a negative exponent: the half of the results that is not redundant.
    Real,
    /// From such a half back to real numbers.
    InverseReal,
}

/// The transform of the last axis, which has `length` elements (on the real side, where there is
/// one), every result multiplied by `scale`. The axis must have the length that the kind asks for.
pub(crate) fn transform(x: &Array, kind: Kind, length: usize, scale: f32) -> Result<Array> {
    Array::apply(Transform { kind, length, scale }, &[&x.contiguous()?])
}

#[derive(Clone, Copy, Debug)]
struct Transform {
    kind: Kind,
    length: usize,
    scale: f32,
}

impl Transform {
    /// Elements of the last axis before and after.
    fn lengths(&self) -> (usize, usize) {
        let half = self.length / 2 + 1;
        match self.kind {
            Kind::Forward | Kind::Inverse => (self.length, self.length),
            Kind::Real => (self.length, half),
            Kind::InverseReal => (half, self.length),
        }
    }
}

impl Op for Transform {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Forward => "fft",
            Kind::Inverse => "ifft",
            Kind::Real => "rfft",
            Kind::InverseReal => "irfft",
        }
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "output"]
    }

    fn host(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let (from, to) = match self.kind {
            Kind::Forward | Kind::Inverse => (DType::C64, DType::C64),
            Kind::Real => (DType::F32, DType::C64),
            Kind::InverseReal => (DType::C64, DType::F32),
        };
        expect_inputs(self, inputs, 1)?;
        expect_dtype(self, inputs, 0, from)?;
        expect_contiguous(self, inputs, 0)?;
        let (before, after) = self.lengths();
        let mut shape = inputs[0].shape().to_vec();
        match shape.last_mut() {
            Some(last) => *last = before,
            None => shape.push(before),
        }
        expect_shape(self, inputs, 0, &shape)?;
        let last = shape.len() - 1;
        shape[last] = after;
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, to)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        match self.kind {
            Kind::Forward | Kind::Inverse => cpu::complex(call, self),
            Kind::Real => cpu::real(call, self),
            Kind::InverseReal => cpu::inverse_real(call, self),
        }
    }

    fn vjp(
        &self,
        _: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None]) };
        let again = |x: &Array, kind| transform(x, kind, self.length, self.scale);
        // The transposed matrix of exponentials is that of the other direction. Of the half of real
        // numbers' transforms, all but the first and the middle one stand for two.
        Ok(vec![Some(match self.kind {
            Kind::Forward => again(g, Kind::Inverse)?,
            Kind::Inverse => again(g, Kind::Forward)?,
            Kind::Real => again(&multiply(g, self.weights(0.5, g.device())?)?, Kind::InverseReal)?,
            Kind::InverseReal => multiply(again(g, Kind::Real)?, self.weights(2.0, g.device())?)?,
        })])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

impl Transform {
    /// 1 for what occurs once in the whole transform, `twice` for what occurs twice.
    fn weights(&self, twice: f32, device: &Device) -> Result<Array> {
        let once = |k: usize| k == 0 || 2 * k == self.length;
        let weight = |k: usize| Complex32::new(if once(k) { 1.0 } else { twice }, 0.0);
        let weights: Vec<Complex32> = (0..self.length / 2 + 1).map(weight).collect();
        Array::from_slice_on(&weights, &[weights.len()], device)
    }
}
