//! Q8_0, Q8_1 and Q8_K: bytes with one scale, of 32, 32 and 256 weights. Q8_1 also holds the sum of the weights, and
//! Q8_K the sums of each 16 codes, which decoding does not need.

use super::block::{Block, LARGEST_HALF, half_at, inverse, largest, nearest, set_half, u32_at};

pub(super) struct Q8_0;

impl Block for Q8_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 34;
    const LARGEST: f32 = 127.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        scaled(half_at(block, 0), &block[2..], weights);
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let d = largest(weights).abs() / 127.0;
        set_half(block, 0, d);
        let inverse = inverse(d);
        for (byte, w) in block[2..].iter_mut().zip(weights) {
            *byte = nearest(w * inverse, -128, 127) as u8;
        }
    }

    fn wgsl() -> String {
        ["const LONG = false;\nconst BEFORE = 2u;\n", include_str!("q8.wgsl")].concat()
    }
}

/// What ggml rounds activations to; no tool writes weights so.
pub(super) struct Q8_1;

impl Block for Q8_1 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 36;
    const ENCODES: bool = false;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        scaled(half_at(block, 0), &block[4..], weights);
    }

    fn wgsl() -> String {
        ["const LONG = false;\nconst BEFORE = 4u;\n", include_str!("q8.wgsl")].concat()
    }
}

pub(super) struct Q8K;

impl Block for Q8K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 4 + 256 + 32;
    const LARGEST: f32 = 0.5 * f32::MAX;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        scaled(f32::from_bits(u32_at(block, 0)), &block[4..260], weights);
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let largest = largest(weights);
        if largest == 0.0 {
            return;
        }
        let inverse = -127.0 / largest;
        block[..4].copy_from_slice(&(1.0 / inverse).to_le_bytes());
        for (group, weights) in weights.chunks_exact(16).enumerate() {
            let mut sum = 0i16;
            for (i, w) in weights.iter().enumerate() {
                let code = nearest(w * inverse, -127, 127);
                block[4 + 16 * group + i] = code as u8;
                sum += code as i16;
            }
            block[260 + 2 * group..262 + 2 * group].copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn wgsl() -> String {
        ["const LONG = true;\nconst BEFORE = 4u;\n", include_str!("q8.wgsl")].concat()
    }
}

#[inline(always)]
fn scaled(d: f32, codes: &[u8], weights: &mut [f32]) {
    for (weight, &code) in weights.iter_mut().zip(codes) {
        *weight = d * (code as i8) as f32;
    }
}
