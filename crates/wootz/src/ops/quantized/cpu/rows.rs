//! Rows of quantized weights in memory, and decoding them to floats. Codes, scales and biases may lie at
//! any byte, as they do in mapped files.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::gemm::GemmElement;
use crate::error::Result;
use crate::quant::{Affine, Scheme};

/// A type that weights are decoded to.
pub(super) trait Wide: GemmElement + Pod + Send + Sync {
    fn from_f32(x: f32) -> Self;
    fn from_f64(x: f64) -> Self;
    fn to_f32(self) -> f32;
    /// The same memory, if this is `f32`.
    fn singles(values: &mut [Self]) -> Option<&mut [f32]>;
    /// The other way round.
    fn of_singles(values: &mut [f32]) -> Option<&mut [Self]>;
}

impl Wide for f32 {
    #[inline(always)]
    fn from_f32(x: f32) -> f32 {
        x
    }
    fn from_f64(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    fn singles(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }
    fn of_singles(values: &mut [f32]) -> Option<&mut [f32]> {
        Some(values)
    }
}

impl Wide for f64 {
    #[inline(always)]
    fn from_f32(x: f32) -> f64 {
        x as f64
    }
    fn from_f64(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    fn singles(_: &mut [f64]) -> Option<&mut [f32]> {
        None
    }
    fn of_singles(_: &mut [f32]) -> Option<&mut [f64]> {
        None
    }
}

/// Quantized weights.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) scheme: Scheme,
    /// Weights of a row.
    width: usize,
    codes: &'a [u8],
    /// The dtype of scales and biases.
    dtype: DType,
    scales: &'a [u8],
    biases: &'a [u8],
    /// Whether scales that are powers of two become numbers of half precision, which lacks some of them.
    pub(super) halves: bool,
}

/// What decoding needs for a while.
#[derive(Default)]
pub(super) struct Buffers {
    scales: Vec<f32>,
    biases: Vec<f32>,
    weights: Vec<f32>,
}

impl Buffers {
    /// Adds the biases of an affine scheme that were read last.
    pub(super) fn add_biases<S: Wide>(&self, scheme: Scheme, weights: &mut [S]) {
        let Some(group) = scheme.group_size() else { return };
        for (weights, &bias) in weights.chunks_exact_mut(group).zip(&self.biases) {
            for weight in weights {
                *weight = S::from_f32(weight.to_f32() + bias);
            }
        }
    }
}

/// Bytes that codes of so many weights take.
pub(super) fn code_bytes(scheme: Scheme, weights: usize) -> usize {
    scheme.codes(weights) * if scheme.bits().is_some() { 4 } else { 1 }
}

impl<'a> Rows<'a> {
    /// The weights that a call has from input `first` on.
    pub(super) fn new(call: &CpuCall<'a>, scheme: Scheme, first: usize) -> Result<Rows<'a>> {
        let array = |index: usize| match index < scheme.arrays() {
            true => call.bytes(first + index),
            false => Ok(&[][..]),
        };
        let width = super::super::weights_shape(scheme, call.meta(first)).last().copied();
        Ok(Rows {
            scheme,
            width: width.unwrap_or(0),
            codes: array(0)?,
            dtype: call.meta(first + scheme.arrays() - 1).dtype,
            scales: array(1)?,
            biases: array(2)?,
            halves: false,
        })
    }

    /// One of several matrices of so many rows.
    pub(super) fn matrix(&self, index: usize, rows: usize) -> Rows<'a> {
        let weights = rows * self.width;
        let groups = self.scheme.group_size().map_or(0, |group| weights / group);
        let part = |all: &'a [u8], bytes: usize| match all.is_empty() {
            true => all,
            false => &all[index * bytes..(index + 1) * bytes],
        };
        let groups = groups * self.dtype.size();
        Rows {
            codes: part(self.codes, code_bytes(self.scheme, weights)),
            scales: part(self.scales, groups),
            biases: part(self.biases, groups),
            ..*self
        }
    }

    /// Decodes weights from number `start` on, where a block or a group begins; one ends where they end.
    pub(super) fn decode<S: Wide>(&self, start: usize, buffers: &mut Buffers, weights: &mut [S]) {
        self.decode_as(start, buffers, weights, true);
    }

    /// The same without biases, which are only read.
    pub(super) fn products<S: Wide>(&self, start: usize, buffers: &mut Buffers, weights: &mut [S]) {
        self.decode_as(start, buffers, weights, false);
    }

    fn decode_as<S: Wide>(
        &self,
        start: usize,
        buffers: &mut Buffers,
        weights: &mut [S],
        biased: bool,
    ) {
        if let Some(weights) = S::singles(weights) {
            return self.singles(start, buffers, weights, biased);
        }
        let mut decoded = std::mem::take(&mut buffers.weights);
        decoded.resize(weights.len(), 0.0);
        self.singles(start, buffers, &mut decoded, biased);
        match self.dtype {
            DType::F64 => {
                // These are codes so far.
                let group = self.scheme.group_size().unwrap_or(1);
                let at = |all: &[u8], index: usize| {
                    let bytes = all[8 * index..].first_chunk::<8>();
                    bytes.map_or(0.0, |bytes| f64::from_le_bytes(*bytes))
                };
                for (i, (weight, &code)) in weights.iter_mut().zip(&decoded).enumerate() {
                    let index = (start + i) / group;
                    let (scale, bias) = (at(self.scales, index), at(self.biases, index));
                    *weight = S::from_f64(scale * code as f64 + bias);
                }
            }
            _ => {
                for (weight, &decoded) in weights.iter_mut().zip(&decoded) {
                    *weight = S::from_f32(decoded);
                }
            }
        }
        buffers.weights = decoded;
    }

    /// Decodes to single precision; with scales in doubles, codes.
    fn singles(&self, start: usize, buffers: &mut Buffers, weights: &mut [f32], biased: bool) {
        let codes = &self.codes[code_bytes(self.scheme, start)..];
        let codes = &codes[..code_bytes(self.scheme, weights.len())];
        match self.scheme {
            Scheme::Blocks(format) => (format.codec().decode)(codes, weights),
            Scheme::Affine { group_size: group, bits } => {
                let (first, count) = (start / group, weights.len() / group);
                let Buffers { scales, biases, .. } = buffers;
                widen(self.dtype, self.scales, first, count, 1.0, scales);
                widen(self.dtype, self.biases, first, count, 0.0, biases);
                let affine = Affine { bits, group };
                if biased {
                    affine.decode(codes, scales, biases, weights);
                } else {
                    affine.decode(codes, scales, &vec![0.0; count], weights);
                }
            }
            _ => {
                if let Some(floats) = self.scheme.floats() {
                    let scales = &self.scales[start / floats.group()..];
                    match self.halves {
                        true => {
                            floats.decode(codes, scales, |x| f16::from_f32(x).to_f32(), weights)
                        }
                        false => floats.decode(codes, scales, |x| x, weights),
                    }
                }
            }
        }
    }
}

/// Elements of scales or biases from number `first` on; what is in doubles counts as `otherwise`.
fn widen(
    dtype: DType,
    bytes: &[u8],
    first: usize,
    count: usize,
    otherwise: f32,
    to: &mut Vec<f32>,
) {
    let bytes = &bytes[first * dtype.size()..(first + count) * dtype.size()];
    to.clear();
    match dtype {
        DType::F32 => to.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        DType::F16 => {
            to.extend(bytes.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()));
        }
        DType::BF16 => {
            to.extend(bytes.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()));
        }
        _ => to.resize(count, otherwise),
    }
}
