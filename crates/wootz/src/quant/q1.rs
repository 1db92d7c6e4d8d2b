//! Q1_0: a bit each says the sign of 128 weights, which have one magnitude.

use super::block::{Block, half_at};

pub(super) struct Q1;

impl Block for Q1 {
    const ELEMENTS: usize = 128;
    const BYTES: usize = 18;
    const ENCODES: bool = false;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let d = half_at(block, 0);
        for (&byte, weights) in block[2..].iter().zip(weights.chunks_exact_mut(8)) {
            for (bit, weight) in weights.iter_mut().enumerate() {
                *weight = if byte >> bit & 1 == 1 { d } else { -d };
            }
        }
    }

    fn wgsl() -> String {
        include_str!("q1.wgsl").into()
    }
}
