//! Q3_K: 256 codes of 3 bits in 16 groups, with a scale of 6 bits each.
//!
//! A block is 32 bytes of the codes' high bits, 64 bytes of low bits as in Q2_K, 12 bytes of scales,
//! and the `float16` that scales are multiples of. Codes are less 4, scales less 32.

use super::block::{Block, LARGEST_HALF, half_at, set_half};
use super::k_search::{Levels, Symmetric, nearest, two_bits, two_bits_at};

pub(super) struct Q3K;

impl Levels for Q3K {
    const LOWEST: f32 = -4.0;
    const STEP: f32 = 0.1;
    const STEPS: i32 = 9;

    #[inline(always)]
    fn level(x: f32) -> f32 {
        nearest(x, -4.0, 3.0)
    }
}

impl Block for Q3K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 110;
    const LARGEST: f32 = 64.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let d = half_at(block, 108);
        for (group, weights) in weights.chunks_exact_mut(16).enumerate() {
            let low = block[96 + group % 8] >> (4 * (group / 8)) & 15;
            let high = block[104 + group % 4] >> (2 * (group / 4)) & 3;
            let scale = d * ((low | high << 4) as i32 - 32) as f32;
            for (i, weight) in weights.iter_mut().enumerate() {
                let high = block[16 * (group % 2) + i] >> (group / 2) & 1;
                let code = two_bits_at(&block[32..96], 16 * group + i) | high << 2;
                *weight = scale * (code as i32 - 4) as f32;
            }
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let found = Symmetric::<16>::search(weights, &Q3K, 32);
        let inverses = found.inverses(set_half(block, 108, found.d));
        let code = |i: usize| (Q3K::level(weights[i] * inverses[i / 16]) + 4.0) as u8;
        let codes: [u8; 256] = std::array::from_fn(code);
        for (group, scale) in found.scales().enumerate() {
            let scale = (scale + 32) as u8;
            block[96 + group % 8] |= (scale & 15) << (4 * (group / 8));
            block[104 + group % 4] |= (scale >> 4) << (2 * (group / 4));
        }
        for (i, code) in codes.iter().enumerate() {
            block[i % 32] |= (code >> 2) << (i / 32);
        }
        two_bits(&codes, &mut block[32..96]);
    }

    fn wgsl() -> String {
        include_str!("q3_k.wgsl").into()
    }
}
