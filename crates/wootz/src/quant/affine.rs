//! MLX's affine format: codes of 1 to 8 bits, and a scale and a bias for each group of a row.
//!
//! The codes of a row follow each other bit by bit, in little-endian words: eight take `bits` bytes.

use std::array;

use pulp::{Simd, WithSimd};

use crate::cpu::simd;

/// Codes of `bits` bits in groups of `group` weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Affine {
    pub(crate) bits: usize,
    pub(crate) group: usize,
}

impl Affine {
    pub(crate) const BITS: [usize; 7] = [1, 2, 3, 4, 5, 6, 8];
    pub(crate) const GROUPS: [usize; 3] = [32, 64, 128];

    /// Decodes whole groups: `scale · code + bias`.
    pub(crate) fn decode(self, codes: &[u8], scales: &[f32], biases: &[f32], weights: &mut [f32]) {
        match self.bits {
            1 => run::<1>(self.group, codes, scales, biases, weights),
            2 => run::<2>(self.group, codes, scales, biases, weights),
            3 => run::<3>(self.group, codes, scales, biases, weights),
            4 => run::<4>(self.group, codes, scales, biases, weights),
            5 => run::<5>(self.group, codes, scales, biases, weights),
            6 => run::<6>(self.group, codes, scales, biases, weights),
            _ => run::<8>(self.group, codes, scales, biases, weights),
        }
    }

    /// Encodes a group, and tells its scale and bias, not rounded: codes are found from these.
    pub(crate) fn encode(self, weights: &[f32], codes: &mut [u8]) -> (f32, f32) {
        let highest = ((1 << self.bits) - 1) as f32;
        let lowest = weights.iter().copied().fold(f32::INFINITY, f32::min);
        let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (scale, bias) = parameters(lowest, most, highest);
        let code = |w: f32| ((w - bias) / scale).round_ties_even().clamp(0.0, highest) as u64;
        for (weights, codes) in weights.chunks_exact(8).zip(codes.chunks_exact_mut(self.bits)) {
            let eight = weights.iter().rev().fold(0, |all, &w| all << self.bits | code(w));
            codes.copy_from_slice(&eight.to_le_bytes()[..self.bits]);
        }
        (scale, bias)
    }
}

/// The end that is farther from zero is kept exactly, and zero is a code.
fn parameters(lowest: f32, most: f32, highest: f32) -> (f32, f32) {
    const SMALLEST: f32 = 1e-7;
    if highest == 1.0 {
        return ((most - lowest).max(SMALLEST), lowest);
    }
    let scale = ((most - lowest) / highest).max(SMALLEST);
    let (scale, edge) = if lowest.abs() > most.abs() { (scale, lowest) } else { (-scale, most) };
    let zero = (edge / scale).round_ties_even();
    if zero == 0.0 { (scale, 0.0) } else { (edge / zero, edge) }
}

fn run<const BITS: usize>(
    group: usize,
    codes: &[u8],
    scales: &[f32],
    biases: &[f32],
    weights: &mut [f32],
) {
    simd::run(Decode::<BITS> { group, codes, scales, biases, weights });
}

struct Decode<'a, const BITS: usize> {
    group: usize,
    codes: &'a [u8],
    scales: &'a [f32],
    biases: &'a [f32],
    weights: &'a mut [f32],
}

impl<const BITS: usize> WithSimd for Decode<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let groups = self.weights.chunks_exact_mut(self.group);
        let codes = self.codes.chunks_exact(self.group / 8 * BITS);
        let parameters = self.scales.iter().zip(self.biases);
        for ((weights, codes), (&scale, &bias)) in groups.zip(codes).zip(parameters) {
            for (weights, codes) in weights.chunks_exact_mut(8).zip(codes.chunks_exact(BITS)) {
                let bytes: [u8; 8] = array::from_fn(|i| if i < BITS { codes[i] } else { 0 });
                let codes = u64::from_le_bytes(bytes);
                // Four codes fit a lane of 32 bits, in which vectors shift each by its own number.
                let halves = [codes as u32, (codes >> (4 * BITS)) as u32];
                for (i, weight) in weights.iter_mut().enumerate() {
                    let code = match BITS {
                        8 => u32::from(bytes[i]),
                        _ => halves[i / 4] >> (BITS * (i % 4)) & ((1 << BITS) - 1),
                    };
                    *weight = scale * code as i32 as f32 + bias;
                }
            }
        }
    }
}
