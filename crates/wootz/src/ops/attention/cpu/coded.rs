//! Keys and values as affine codes: rows are decoded a tile at a time, into memory that stays in the
//! cache until the products have read it.

use std::ops::Range;

use half::{bf16, f16};

use super::Wide;
use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::simd::dispatch;
use crate::cpu::simd::rows::Float;
use crate::error::{Error, Result};
use crate::quant::{Affine, Scheme};

/// Rows of codes, and a scale and a bias for each group of a row. They may lie at any byte.
#[derive(Clone, Copy)]
pub(super) struct Coded<'a> {
    affine: Affine,
    width: usize,
    codes: &'a [u8],
    /// Of scales and biases.
    dtype: DType,
    scales: &'a [u8],
    biases: &'a [u8],
}

impl<'a> Coded<'a> {
    /// The rows whose codes, scales and biases a call has from input `first` on.
    pub(super) fn new(call: &CpuCall<'a>, scheme: Scheme, first: usize) -> Result<Coded<'a>> {
        let Scheme::Affine { group_size: group, bits } = scheme else {
            return Err(Error::argument(call.op.name(), "k", "an affine scheme", scheme));
        };
        let words = call.meta(first).shape().last().copied().unwrap_or(0);
        Ok(Coded {
            affine: Affine { bits, group },
            width: scheme.weights(words).unwrap_or(0),
            codes: call.bytes(first)?,
            dtype: call.meta(first + 1).dtype,
            scales: call.bytes(first + 1)?,
            biases: call.bytes(first + 2)?,
        })
    }

    /// Elements of a row.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Some of the rows.
    pub(super) fn part(&self, rows: Range<usize>) -> Coded<'a> {
        let codes = self.width / 8 * self.affine.bits;
        let groups = self.width / self.affine.group * self.dtype.size();
        let cut = |all: &'a [u8], each: usize| &all[rows.start * each..rows.end * each];
        Coded {
            codes: cut(self.codes, codes),
            scales: cut(self.scales, groups),
            biases: cut(self.biases, groups),
            ..*self
        }
    }

    /// All rows as floats, one behind the other. Groups are whole vectors, so there is no padding.
    pub(super) fn decode<'b, W: Wide>(&self, spare: &'b mut Vec<W>) -> &'b [W] {
        let group = self.affine.group;
        let groups = self.scales.len() / self.dtype.size().max(1);
        spare.resize(groups * group, W::ZERO);
        let spare = &mut spare[..groups * group];
        if size_of::<W>() == size_of::<f32>() {
            let (scales, biases) = (self.singles(self.scales), self.singles(self.biases));
            self.affine.decode(self.codes, &scales, &biases, bytemuck::cast_slice_mut(spare));
            return spare;
        }
        // The codes themselves first.
        let mut codes = vec![0.0; spare.len()];
        self.affine.decode(self.codes, &vec![1.0; groups], &vec![0.0; groups], &mut codes);
        for (index, (out, codes)) in
            spare.chunks_exact_mut(group).zip(codes.chunks_exact(group)).enumerate()
        {
            let (scale, bias) = (self.double(self.scales, index), self.double(self.biases, index));
            for (out, &code) in out.iter_mut().zip(codes) {
                *out = Float::from_f64(scale * f64::from(code) + bias);
            }
        }
        spare
    }

    fn singles(&self, bytes: &[u8]) -> Vec<f32> {
        let mut singles = vec![0.0; bytes.len() / self.dtype.size().max(1)];
        let doubles = |index: usize| self.double(bytes, index) as f32;
        dispatch(|| match self.dtype {
            DType::F32 => each(&mut singles, bytes, f32::from_le_bytes),
            DType::F16 => each(&mut singles, bytes, |b| f16::from_le_bytes(b).to_f32()),
            DType::BF16 => each(&mut singles, bytes, |b| bf16::from_le_bytes(b).to_f32()),
            _ => singles.iter_mut().enumerate().for_each(|(i, to)| *to = doubles(i)),
        });
        singles
    }

    fn double(&self, bytes: &[u8], index: usize) -> f64 {
        fn at<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
            bytes.as_chunks().0.get(index).copied().unwrap_or([0; N])
        }
        match self.dtype {
            DType::F64 => f64::from_le_bytes(at(bytes, index)),
            DType::F16 => f16::from_le_bytes(at(bytes, index)).to_f64(),
            DType::BF16 => bf16::from_le_bytes(at(bytes, index)).to_f64(),
            _ => f64::from(f32::from_le_bytes(at(bytes, index))),
        }
    }
}

#[inline(always)]
fn each<const N: usize>(to: &mut [f32], bytes: &[u8], decode: impl Fn([u8; N]) -> f32) {
    for (to, &bytes) in to.iter_mut().zip(bytes.as_chunks().0) {
        *to = decode(bytes);
    }
}
