//! Q6_K: 256 codes of 6 bits in 16 groups, with a scale of 8 bits each.
//!
//! A block is 128 bytes of the codes' low nibbles, 64 bytes of their high pairs of bits, 16 bytes of
//! scales, and the `float16` that these are multiples of. Codes are less 32.

use super::block::{Block, LARGEST_HALF, half_at, set_half};
use super::k_search::{Levels, Symmetric, nearest};

pub(super) struct Q6K;

impl Levels for Q6K {
    const LOWEST: f32 = -32.0;
    const STEP: f32 = 0.1;
    const STEPS: i32 = 9;

    #[inline(always)]
    fn level(x: f32) -> f32 {
        nearest(x, -32.0, 31.0)
    }
}

/// Where 32 weights lie: the byte of the first's low nibble and its shift, and the same of the high
/// bits.
#[inline(always)]
fn places(unit: usize) -> (usize, usize, usize, usize) {
    let (half, part) = (unit / 4, unit % 4);
    (64 * half + 32 * (part % 2), 4 * (part / 2), 128 + 32 * half, 2 * part)
}

impl Block for Q6K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 210;
    const LARGEST: f32 = 2048.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let d = half_at(block, 208);
        for (unit, weights) in weights.chunks_exact_mut(32).enumerate() {
            let (low, low_shift, high, high_shift) = places(unit);
            let (low, high) = (&block[low..low + 32], &block[high..high + 32]);
            let scales = [0, 1].map(|part| d * (block[192 + 2 * unit + part] as i8) as f32);
            for (i, weight) in weights.iter_mut().enumerate() {
                let code = low[i] >> low_shift & 15 | (high[i] >> high_shift & 3) << 4;
                *weight = scales[i / 16] * (code as i32 - 32) as f32;
            }
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let found = Symmetric::<16>::search(weights, &Q6K, 128);
        let inverses = found.inverses(set_half(block, 208, found.d));
        for (byte, scale) in block[192..208].iter_mut().zip(found.scales()) {
            *byte = scale as u8;
        }
        for (i, w) in weights.iter().enumerate() {
            let (low, low_shift, high, high_shift) = places(i / 32);
            let code = (Q6K::level(w * inverses[i / 16]) + 32.0) as u8;
            block[low + i % 32] |= (code & 15) << low_shift;
            block[high + i % 32] |= (code >> 4) << high_shift;
        }
    }

    fn wgsl() -> String {
        include_str!("q6_k.wgsl").into()
    }
}
