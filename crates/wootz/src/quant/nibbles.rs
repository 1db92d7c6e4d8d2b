//! Q4_0, Q4_1, Q5_0, Q5_1: 32 codes of 4 or 5 bits with a scale, or with a scale and a minimum.
//!
//! A block is the scale, the minimum, the fifth bits, and 16 bytes: the low nibbles are the first
//! half, the high ones the second.

use super::block::{Block, LARGEST_HALF, half_at, inverse, largest, set_half, u32_at};

pub(super) struct Nibbles<const FIFTH: bool, const MINIMUM: bool>;

impl<const FIFTH: bool, const MINIMUM: bool> Nibbles<FIFTH, MINIMUM> {
    const FIFTHS: usize = if MINIMUM { 4 } else { 2 };
    const CODES: usize = Self::FIFTHS + if FIFTH { 4 } else { 0 };
    const LEVELS: f32 = if FIFTH { 32.0 } else { 16.0 };
}

impl<const FIFTH: bool, const MINIMUM: bool> Block for Nibbles<FIFTH, MINIMUM> {
    const ELEMENTS: usize = 32;
    const BYTES: usize = Self::CODES + 16;
    const LARGEST: f32 = if MINIMUM { LARGEST_HALF } else { Self::LEVELS / 2.0 * LARGEST_HALF };

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let d = half_at(block, 0);
        let fifths = if FIFTH { u32_at(block, Self::FIFTHS) } else { 0 };
        let minimum = if MINIMUM { half_at(block, 2) } else { 0.0 };
        let (low, high) = weights.split_at_mut(16);
        for i in 0..16 {
            let byte = block[Self::CODES + i] as u32;
            let codes = [
                (byte & 15) | ((fifths >> i) & 1) << 4,
                (byte >> 4) | ((fifths >> (i + 16)) & 1) << 4,
            ];
            let [first, second] = codes.map(|code| match MINIMUM {
                true => d * code as f32 + minimum,
                false => d * (code as f32 - Self::LEVELS / 2.0),
            });
            (low[i], high[i]) = (first, second);
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let highest = Self::LEVELS - 1.0;
        let (d, from, half) = if MINIMUM {
            let lowest = weights.iter().copied().fold(f32::INFINITY, f32::min);
            let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            set_half(block, 2, lowest);
            ((most - lowest) / highest, lowest, 0.5)
        } else {
            (largest(weights) / -(Self::LEVELS / 2.0), 0.0, Self::LEVELS / 2.0 + 0.5)
        };
        set_half(block, 0, d);
        let inverse = inverse(d);
        let code = |w: f32| ((w - from) * inverse + half).clamp(0.0, highest) as u8;
        let mut fifths = 0;
        for i in 0..16 {
            let (low, high) = (code(weights[i]), code(weights[i + 16]));
            block[Self::CODES + i] = low & 15 | high << 4;
            fifths |= (low as u32 >> 4) << i | (high as u32 >> 4) << (i + 16);
        }
        if FIFTH {
            block[Self::FIFTHS..Self::FIFTHS + 4].copy_from_slice(&u32::to_le_bytes(fifths));
        }
    }

    fn wgsl() -> String {
        let constants = format!(
            "const FIFTH = {FIFTH};\nconst MINIMUM = {MINIMUM};\nconst FIFTHS = {}u;\nconst CODES = {}u;\n\
             const HALF = {:.1};\n",
            Self::FIFTHS,
            Self::CODES,
            Self::LEVELS / 2.0,
        );
        constants + include_str!("nibbles.wgsl")
    }
}
