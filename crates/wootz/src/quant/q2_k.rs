//! Q2_K: 256 codes of 2 bits in 16 groups, with a scale and a minimum of 4 bits each.
//!
//! A block is 16 bytes (the scale low, the minimum high), 64 bytes of codes, and the two `float16` that
//! scales and minima are multiples of. Of the codes, 32 bytes hold four times 32 weights.

use super::block::{Block, LARGEST_HALF, half_at};
use super::k_search::{WithMinima, two_bits, two_bits_at};

pub(super) struct Q2K;

impl Block for Q2K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 84;
    const LARGEST: f32 = 7.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let (d, minimum) = (half_at(block, 80), half_at(block, 82));
        for (group, weights) in weights.chunks_exact_mut(16).enumerate() {
            let scale = d * (block[group] & 15) as f32;
            let minimum = minimum * (block[group] >> 4) as f32;
            for (i, weight) in weights.iter_mut().enumerate() {
                let code = two_bits_at(&block[16..80], 16 * group + i);
                *weight = scale * code as f32 - minimum;
            }
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let found = WithMinima::<16>::search(weights, 3, 15);
        block[80..82].copy_from_slice(&found.d.to_le_bytes());
        block[82..].copy_from_slice(&found.minimum.to_le_bytes());
        for (byte, (scale, minimum)) in block.iter_mut().zip(found.groups()) {
            *byte = scale | minimum << 4;
        }
        two_bits(&found.codes(weights), &mut block[16..80]);
    }

    fn wgsl() -> String {
        include_str!("q2_k.wgsl").into()
    }
}
