//! TQ1_0 and TQ2_0: 256 weights of −d, 0 or d.
//!
//! TQ2_0 has 2 bits for each, as Q2_K lays them out. TQ1_0 has five to a byte, as the digits of a
//! fraction in base 3: multiplying by 3 brings the next one above the byte.

use super::block::{Block, half_at, inverse, largest, set_half};
use super::k_search::{two_bits, two_bits_at};

pub(super) struct Tq1;

/// The digits before 256 weights: which of the 52 bytes, and which digit of it. Of 32 bytes all first
/// digits come first, then all second ones; so of the next 16 bytes, and of the last 4, which have four.
#[inline(always)]
fn digit(i: usize) -> (usize, usize) {
    match i {
        0..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    }
}

impl Block for Tq1 {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 54;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
        let d = half_at(block, 52);
        for (i, weight) in weights.iter_mut().enumerate() {
            let (byte, digit) = digit(i);
            let fraction = block[byte].wrapping_mul(POWERS[digit]);
            let digit = (fraction as u32 * 3) >> 8;
            *weight = d * (digit as i32 - 1) as f32;
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let codes = codes(weights, &mut block[52..]);
        let mut numbers = [0u32; 52];
        for (i, &code) in codes.iter().enumerate() {
            numbers[digit(i).0] = numbers[digit(i).0] * 3 + code as u32;
        }
        // The last bytes lack their fifth digit.
        numbers[48..].iter_mut().for_each(|number| *number *= 3);
        for (byte, number) in block.iter_mut().zip(numbers) {
            *byte = (number * 256).div_ceil(243) as u8;
        }
    }

    fn wgsl() -> String {
        include_str!("tq1.wgsl").into()
    }
}

pub(super) struct Tq2;

impl Block for Tq2 {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 66;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let d = half_at(block, 64);
        for (i, weight) in weights.iter_mut().enumerate() {
            *weight = d * (two_bits_at(&block[..64], i) as i32 - 1) as f32;
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let codes = codes(weights, &mut block[64..]);
        two_bits(&codes, &mut block[..64]);
    }

    fn wgsl() -> String {
        include_str!("tq2.wgsl").into()
    }
}

/// The scale, stored, and the codes 0, 1 and 2.
fn codes(weights: &[f32], scale: &mut [u8]) -> [u8; 256] {
    let d = largest(weights).abs();
    set_half(scale, 0, d);
    let inverse = inverse(d);
    let mut codes = [0; 256];
    for (code, w) in codes.iter_mut().zip(weights) {
        *code = ((w * inverse).round() + 1.0) as u8;
    }
    codes
}
