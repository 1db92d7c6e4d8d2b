//! MXFP4 and NVFP4 as GGUF lays them out, and the small floats themselves: e2m1 (4 bits), e4m3 and e8m0.
//!
//! An MXFP4 block is a power of two and 32 codes. An NVFP4 block is four scales and four times 16 codes.
//! The low nibbles of bytes are the first half of what shares a scale.

use super::block::{Block, largest};

/// Twice the values of e2m1, as GGUF's blocks mean them: without a negative zero.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(super) struct Mxfp4;

impl Block for Mxfp4 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 17;
    const LARGEST: f32 = f32::MAX;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        decode(half_power(block[0]), &block[1..], weights);
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let largest = largest(weights).abs();
        let exponent = if largest > 0.0 { largest.log2().floor() - 2.0 + 127.0 } else { 0.0 };
        block[0] = exponent as u8;
        encode(half_power(block[0]), weights, &mut block[1..]);
    }

    fn wgsl() -> String {
        wgsl(include_str!("mxfp4.wgsl"))
    }
}

pub(super) struct Nvfp4;

impl Block for Nvfp4 {
    const ELEMENTS: usize = 64;
    const BYTES: usize = 36;
    const LARGEST: f32 = f32::MAX;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let (scales, codes) = block.split_at(4);
        let groups = scales.iter().zip(codes.chunks_exact(8)).zip(weights.chunks_exact_mut(16));
        for ((&scale, codes), weights) in groups {
            decode(half_scale(scale), codes, weights);
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let (scales, codes) = block.split_at_mut(4);
        let groups = scales.iter_mut().zip(codes.chunks_exact_mut(8)).zip(weights.chunks_exact(16));
        for ((scale, codes), weights) in groups {
            *scale = unsigned_e4m3(largest(weights).abs() / 6.0);
            encode(half_scale(*scale), weights, codes);
        }
    }

    fn wgsl() -> String {
        wgsl(include_str!("nvfp4.wgsl"))
    }
}

#[inline(always)]
fn decode(scale: f32, codes: &[u8], weights: &mut [f32]) {
    let (low, high) = weights.split_at_mut(codes.len());
    for ((byte, low), high) in codes.iter().zip(low).zip(high) {
        *low = scale * DOUBLED[(byte & 15) as usize] as f32;
        *high = scale * DOUBLED[(byte >> 4) as usize] as f32;
    }
}

fn encode(scale: f32, weights: &[f32], codes: &mut [u8]) {
    let code = |w: f32| {
        let error = |code: u8| (scale * DOUBLED[code as usize] as f32 - w).abs();
        (1..16).fold(0, |best, code| if error(code) < error(best) { code } else { best })
    };
    let (low, high) = weights.split_at(codes.len());
    for ((byte, &low), &high) in codes.iter_mut().zip(low).zip(high) {
        *byte = code(low) | code(high) << 4;
    }
}

/// Half of e8m0's power of two, for doubled levels. The smallest two are subnormal.
#[inline(always)]
fn half_power(exponent: u8) -> f32 {
    let exponent = exponent as u32;
    f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 })
}

/// Half of e4m3 without its sign. The code for NaN counts as zero.
#[inline(always)]
fn half_scale(byte: u8) -> f32 {
    if byte == 0x7f { 0.0 } else { magnitude(byte) * 0.5 }
}

/// The nearest e4m3 of a number that is not negative, at most 448; halves round up.
fn unsigned_e4m3(x: f32) -> u8 {
    if x < f32::exp2(-6.0) {
        return (x * 512.0 + 0.5).min(7.0) as u8;
    }
    // The exponent's bias falls from 127 to 7; half of what the last bit is worth rounds.
    let bits = (x.min(448.0).to_bits() + (1 << 19)) >> 20;
    (bits - (120 << 3)).min(0x7e) as u8
}

/// e4m3 to float.
#[inline(always)]
pub(super) fn e4m3(byte: u8) -> f32 {
    let magnitude = if byte & 0x7f == 0x7f { f32::NAN } else { magnitude(byte) };
    if byte < 0x80 { magnitude } else { -magnitude }
}

#[inline(always)]
fn magnitude(byte: u8) -> f32 {
    let (exponent, fraction) = ((byte >> 3 & 15) as u32, (byte & 7) as u32);
    match exponent {
        0 => fraction as f32 * f32::from_bits(118 << 23),
        _ => f32::from_bits((exponent + 120) << 23 | fraction << 20),
    }
}

fn wgsl(text: &str) -> String {
    [include_str!("small_float.wgsl"), text].concat()
}
