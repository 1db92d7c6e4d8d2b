//! IQ4_NL and IQ4_XS: codes of 4 bits for levels that lie closer near zero, 32 with a scale, or 256 with
//! scales of 6 bits for each 32.

use super::block::{Block, LARGEST_HALF, half_at, inverse, set_half, u16_at};
use super::k_search::{Levels, Symmetric, symmetric};

const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(super) struct Iq4Nl;

impl Levels for Iq4Nl {
    const LOWEST: f32 = -127.0;
    const STEP: f32 = 1.0;
    const STEPS: i32 = 7;

    #[inline(always)]
    fn level(x: f32) -> f32 {
        LEVELS[code(x)] as f32
    }
}

/// The code of the level nearest to a number.
#[inline(always)]
fn code(x: f32) -> usize {
    let above = |pair: &[i8]| 2.0 * x >= (pair[0] as i32 + pair[1] as i32) as f32;
    LEVELS.windows(2).map(|pair| above(pair) as usize).sum()
}

impl Block for Iq4Nl {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;
    const LARGEST: f32 = 64.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        decode(half_at(block, 0), &block[2..], weights);
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let d = set_half(block, 0, symmetric(weights, &Iq4Nl));
        encode(inverse(d), weights, &mut block[2..]);
    }

    fn wgsl() -> String {
        wgsl(include_str!("iq4_nl.wgsl"))
    }
}

pub(super) struct Iq4Xs;

impl Block for Iq4Xs {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 136;
    const LARGEST: f32 = 2048.0 * LARGEST_HALF;

    #[inline(always)]
    fn decode(block: &[u8], weights: &mut [f32]) {
        let (d, high) = (half_at(block, 0), u16_at(block, 2));
        for (group, weights) in weights.chunks_exact_mut(32).enumerate() {
            let low = block[4 + group / 2] as u32 >> (4 * (group % 2)) & 15;
            let scale = (low | (high >> (2 * group) & 3) << 4) as i32 - 32;
            decode(d * scale as f32, &block[8 + 16 * group..][..16], weights);
        }
    }

    fn encode(weights: &[f32], block: &mut [u8]) {
        let found = Symmetric::<32>::search(weights, &Iq4Nl, 32);
        let inverses = found.inverses(set_half(block, 0, found.d));
        for (group, scale) in found.scales().enumerate() {
            let scale = (scale + 32) as u8;
            block[4 + group / 2] |= (scale & 15) << (4 * (group % 2));
            block[2 + group / 4] |= (scale >> 4) << (2 * (group % 4));
            let codes = &mut block[8 + 16 * group..][..16];
            encode(inverses[group], &weights[32 * group..][..32], codes);
        }
    }

    fn wgsl() -> String {
        wgsl(include_str!("iq4_xs.wgsl"))
    }
}

#[inline(always)]
fn decode(scale: f32, codes: &[u8], weights: &mut [f32]) {
    let (low, high) = weights.split_at_mut(16);
    for ((byte, low), high) in codes.iter().zip(low).zip(high) {
        *low = scale * LEVELS[(byte & 15) as usize] as f32;
        *high = scale * LEVELS[(byte >> 4) as usize] as f32;
    }
}

fn encode(inverse: f32, weights: &[f32], codes: &mut [u8]) {
    let (low, high) = weights.split_at(16);
    for ((byte, low), high) in codes.iter_mut().zip(low).zip(high) {
        *byte = (code(low * inverse) | code(high * inverse) << 4) as u8;
    }
}

/// The levels as signed bytes, four to a word.
fn wgsl(text: &str) -> String {
    let word = |bytes: &[i8]| bytes.iter().rev().fold(0u32, |word, &b| word << 8 | b as u8 as u32);
    let words = LEVELS.chunks(4).map(|bytes| format!("{:#x}u", word(bytes))).collect::<Vec<_>>();
    let levels = format!("const LEVELS = vec4u({});\n", words.join(", "));
    [&levels, include_str!("levels.wgsl"), text].concat()
}
