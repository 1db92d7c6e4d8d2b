//! Q4_K and Q5_K: 256 codes of 4 or 5 bits in 8 groups, with a scale and a minimum of 6 bits each.
//!
//! A block is the two `float16` that scales and minima are multiples of, 12 bytes of these, for Q5_K 32
//! bytes of fifth bits, and 128 bytes: of each 32, the low nibbles are one group, the high ones the next.

use super::block::{Block, LARGEST_HALF, half_at};
use super::k_search::WithMinima;

pub(super) struct Q4K<const FIFTH: bool>;

impl<const FIFTH: bool> Q4K<FIFTH> {
    const CODES: usize = if FIFTH { 48 } else { 16 };
    const HIGHEST: u8 = if FIFTH { 31 } else { 15 };
}

impl<const FIFTH: bool> Block for Q4K<FIFTH> {
    const ELEMENTS: usize = 256;
    const BYTES: usize = Self::CODES + 128;
    const LARGEST: f32 = 32.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let (d, minimum) = (half_at(block, 0), half_at(block, 2));
        for (group, weights) in weights.chunks_exact_mut(32).enumerate() {
            let (scale, least) = scale_and_minimum(&block[4..16], group);
            let (scale, least) = (d * scale as f32, minimum * least as f32);
            let bytes = &block[Self::CODES + 32 * (group / 2)..][..32];
            for (i, weight) in weights.iter_mut().enumerate() {
                let mut code = bytes[i] >> (4 * (group % 2)) & 15;
                if FIFTH {
                    code |= (block[16 + i] >> group & 1) << 4;
                }
                *weight = scale * code as f32 - least;
            }
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let found = WithMinima::<32>::search(weights, Self::HIGHEST, 63);
        block[..2].copy_from_slice(&found.d.to_le_bytes());
        block[2..4].copy_from_slice(&found.minimum.to_le_bytes());
        for (group, (scale, minimum)) in found.groups().enumerate() {
            if group < 4 {
                block[4 + group] |= scale;
                block[8 + group] |= minimum;
            } else {
                block[8 + group] = scale & 15 | minimum << 4;
                block[group] |= scale >> 4 << 6;
                block[4 + group] |= minimum >> 4 << 6;
            }
        }
        for (i, code) in found.codes(weights).iter().enumerate() {
            let (group, i) = (i / 32, i % 32);
            block[Self::CODES + 32 * (group / 2) + i] |= (code & 15) << (4 * (group % 2));
            if FIFTH {
                block[16 + i] |= (code >> 4) << group;
            }
        }
    }

    fn wgsl() -> String {
        let constants = format!("const FIFTH = {FIFTH};\nconst CODES = {}u;\n", Self::CODES);
        constants + include_str!("q4_k.wgsl")
    }
}

/// The first four groups have 6 bits of a byte each; the others four, and two left over by the first.
#[inline(always)]
fn scale_and_minimum(bytes: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (bytes[group] & 63, bytes[group + 4] & 63);
    }
    let both = bytes[group + 4];
    (both & 15 | bytes[group - 4] >> 6 << 4, both >> 4 | bytes[group] >> 6 << 4)
}
