//! MLX's affine format: codes of 1 to 8 bits, and a scale and a bias for each group of a row.
//!
//! The codes of a row follow each other bit by bit, in little-endian words: eight take `bits` bytes.

use std::array;

use pulp::{Simd, WithSimd};

use crate::array::DType;
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

    /// How far apart the weights of a group may be, that whatever is decoded is finite, computed in a dtype. Some
    /// room is left for what is rounded up.
    pub(crate) fn reach(dtype: DType) -> f32 {
        match dtype {
            DType::F16 => 65504.0 * (1.0 - 1.0 / 512.0),
            DType::BF16 => f32::MAX * (1.0 - 1.0 / 64.0),
            _ => f32::MAX * (1.0 - 1.0 / 1_048_576.0),
        }
    }

    /// Encodes whole groups of finite weights, and tells their scales and biases, not rounded: codes are found from
    /// these. Of weights that are farther apart than `reach` the ends count as nearer, in proportion.
    pub(crate) fn encode(
        self,
        reach: f32,
        weights: &[f32],
        codes: &mut [u8],
        scales: &mut [f32],
        biases: &mut [f32],
    ) {
        simd::run(Encode { affine: self, reach, weights, codes, scales, biases });
    }
}

struct Encode<'a> {
    affine: Affine,
    reach: f32,
    weights: &'a [f32],
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    biases: &'a mut [f32],
}

impl WithSimd for Encode<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Affine { bits, group } = self.affine;
        let highest = ((1 << bits) - 1) as f32;
        let groups = self.weights.chunks_exact(group);
        let groups = groups.zip(self.codes.chunks_exact_mut(group / 8 * bits));
        let parameters_of = self.scales.iter_mut().zip(self.biases);
        for ((weights, codes), (to_scale, to_bias)) in groups.zip(parameters_of) {
            let weights = weights.as_chunks::<LANES>().0;
            let (lowest, most) = ends(weights);
            let (scale, bias) = bounded(lowest, most, highest, self.reach);
            (*to_scale, *to_bias) = (scale, bias);
            for (weights, codes) in weights.iter().zip(codes.chunks_exact_mut(LANES / 8 * bits)) {
                let bytes = weights.map(|w| {
                    let code = (w - bias) / scale;
                    let code = if code > 0.0 { code } else { 0.0 };
                    let code = if code < highest { code } else { highest };
                    // Adding this leaves the nearest integer in the low bits, ties to even.
                    (code + 8_388_608.0).to_bits() as u8
                });
                for (eight, codes) in bytes.as_chunks().0.iter().zip(codes.chunks_exact_mut(bits)) {
                    codes.copy_from_slice(&joined(*eight, bits).to_le_bytes()[..bits]);
                }
            }
        }
    }
}

/// Weights that are looked at together.
const LANES: usize = 16;

/// The smallest and the largest of a group.
#[inline(always)]
fn ends(weights: &[[f32; LANES]]) -> (f32, f32) {
    let (mut lowest, mut most) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
    for weights in weights {
        for (i, &w) in weights.iter().enumerate() {
            lowest[i] = if w < lowest[i] { w } else { lowest[i] };
            most[i] = if w > most[i] { w } else { most[i] };
        }
    }
    (
        lowest.into_iter().fold(f32::INFINITY, f32::min),
        most.into_iter().fold(f32::NEG_INFINITY, f32::max),
    )
}

/// Eight codes of so many bits, one behind the other: two and two are joined, then four and four, then all.
#[inline(always)]
fn joined(codes: [u8; 8], bits: usize) -> u64 {
    let join =
        |x: u64, width: usize, low: u64| (x & low) | ((x >> (8 * width)) & low) << (bits * width);
    let pairs = join(u64::from_le_bytes(codes), 1, 0x00ff_00ff_00ff_00ff);
    let fours = join(pairs, 2, 0x0000_ffff_0000_ffff);
    join(fours, 4, 0xffff_ffff)
}

/// Scale and bias such that what is decoded is finite: if it would not be, of ends that are nearer to each other. Weights
/// beyond them have the first or the last code, which is at most a quarter further.
fn bounded(lowest: f32, most: f32, highest: f32, reach: f32) -> (f32, f32) {
    // With one bit the outer end may be the sum of two rounded numbers.
    let most = if highest == 1.0 { most.min(reach).max(lowest) } else { most };
    let (scale, bias) = parameters(lowest, most, highest);
    // Halves do not overflow.
    let half = 0.5 * most - 0.5 * lowest;
    let steps = ((most - lowest) / scale).round_ties_even();
    if half > 0.5 * reach || (steps * scale).abs() > reach {
        let factor = 0.375 * reach / half;
        return parameters(factor * lowest, factor * most, highest);
    }
    (scale, bias)
}

/// The end that is farther from zero is kept exactly, and zero is a code.
fn parameters(lowest: f32, most: f32, highest: f32) -> (f32, f32) {
    const SMALLEST: f32 = 1e-7;
    if highest == 1.0 {
        return ((most - lowest).max(SMALLEST), lowest);
    }
    let scale = ((most - lowest) / highest).max(SMALLEST);
    let (scale, edge) = if lowest.abs() > most.abs() { (scale, lowest) } else { (-scale, most) };
    // Within bounds, or the scale would be zero.
    let zero = (edge / scale).round_ties_even().clamp(-1e38, 1e38);
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
