//! The IQ formats of less than 4 bits: eight weights are a point of a lattice with signs of their own, or
//! four are; or a point of a lattice around zero, moved by a constant. They can only be decoded.
//!
//! All have 256 weights in eight units of 32. Eight weights in a row share a point, or two points.

use super::block::{Block, half_at, u16_at, u32_at};
use super::grids;
use half::f16;

/// What coordinates of 2 bits stand for, and of 4 bits.
const IQ2: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
const IQ3_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];

/// Decodes eight weights: `scale` times a point of eight coordinates, with signs.
#[inline(always)]
fn eight(scale: f32, point: u16, signs: u32, weights: &mut [f32]) {
    for (i, weight) in weights.iter_mut().enumerate() {
        *weight = signed(scale * IQ2[(point >> (2 * i) & 3) as usize], signs >> i);
    }
}

/// The same of two points of four coordinates.
#[inline(always)]
fn twice_four(
    scale: f32,
    points: [u16; 2],
    level: impl Fn(u16) -> f32,
    signs: u32,
    weights: &mut [f32],
) {
    for (i, weight) in weights.iter_mut().enumerate() {
        let coordinate = points[i / 4] >> (4 * (i % 4)) & 7;
        *weight = signed(scale * level(coordinate), signs >> i);
    }
}

/// Eight weights around zero, moved.
#[inline(always)]
fn moved(scale: f32, point: u16, by: f32, weights: &mut [f32]) {
    for (i, weight) in weights.iter_mut().enumerate() {
        let coordinate = (point >> (2 * i) & 3) as i32 - 1;
        *weight = scale * (coordinate as f32 + by);
    }
}

#[inline(always)]
fn signed(x: f32, sign: u32) -> f32 {
    if sign & 1 == 1 { -x } else { x }
}

/// Eight signs from seven: their number is even.
#[inline(always)]
fn signs(seven: u32) -> u32 {
    let seven = seven & 127;
    seven | (seven.count_ones() & 1) << 7
}

/// The scale that a code of 4 bits means.
#[inline(always)]
fn odd_scale(d: f32, code: u32, part: f32) -> f32 {
    d * (0.5 + code as f32) * part
}

/// A format: its size, how each eight weights of a unit are decoded, its lattice and its WGSL.
macro_rules! lattice {
    (
        $name:ident, $bytes:literal, $grid:ident, $wgsl:literal,
        |$block:ident, $unit:ident, $part:ident, $weights:ident| $decode:expr
    ) => {
        pub(super) struct $name;

        impl Block for $name {
            const ELEMENTS: usize = 256;
            const BYTES: usize = $bytes;
            const ENCODES: bool = false;
            const TABLE: &[u16] = &grids::$grid;

            #[inline(always)]
            fn decode($block: &[u8], weights: &mut [f32]) {
                for (i, $weights) in weights.chunks_exact_mut(8).enumerate() {
                    let ($unit, $part) = (i / 4, i % 4);
                    $decode
                }
            }

            fn wgsl() -> String {
                [include_str!("grid.wgsl"), include_str!($wgsl)].concat()
            }
        }
    };
}

lattice!(Iq2Xxs, 66, IQ2_XXS, "iq2_xxs.wgsl", |block, unit, part, weights| {
    let word = u32_at(block, 6 + 8 * unit);
    let scale = odd_scale(half_at(block, 0), word >> 28, 0.25);
    let point = grids::IQ2_XXS[block[2 + 8 * unit + part] as usize];
    eight(scale, point, signs(word >> (7 * part)), weights);
});

lattice!(Iq2Xs, 74, IQ2_XS, "iq2_xs.wgsl", |block, unit, part, weights| {
    let word = u16_at(block, 2 + 8 * unit + 2 * part);
    let code = block[66 + unit] as u32 >> (4 * (part / 2)) & 15;
    let scale = odd_scale(half_at(block, 0), code, 0.25);
    eight(scale, grids::IQ2_XS[(word & 511) as usize], signs(word >> 9), weights);
});

lattice!(Iq2S, 82, IQ2_S, "iq2_s.wgsl", |block, unit, part, weights| {
    let code = block[74 + unit] as u32 >> (4 * (part / 2)) & 15;
    let scale = odd_scale(half_at(block, 0), code, 0.25);
    let high = block[66 + unit] as usize >> (2 * part) & 3;
    let point = grids::IQ2_S[block[2 + 4 * unit + part] as usize | high << 8];
    eight(scale, point, block[34 + 4 * unit + part] as u32, weights);
});

lattice!(Iq3Xxs, 98, IQ3_XXS, "iq3_xxs.wgsl", |block, unit, part, weights| {
    let word = u32_at(block, 66 + 4 * unit);
    let scale = odd_scale(half_at(block, 0), word >> 28, 0.5);
    let point = |i: usize| grids::IQ3_XXS[block[2 + 8 * unit + 2 * part + i] as usize];
    let level = |coordinate: u16| IQ3_XXS[coordinate as usize];
    twice_four(scale, [point(0), point(1)], level, signs(word >> (7 * part)), weights);
});

lattice!(Iq3S, 110, IQ3_S, "iq3_s.wgsl", |block, unit, part, weights| {
    let code = block[106 + unit / 2] >> (4 * (unit % 2)) & 15;
    let scale = half_at(block, 0) * (1 + 2 * code) as f32;
    let point = |i: usize| {
        let high = block[66 + unit] as usize >> (2 * part + i) & 1;
        grids::IQ3_S[block[2 + 8 * unit + 2 * part + i] as usize | high << 8]
    };
    let level = |coordinate: u16| (1 + 2 * coordinate) as f32;
    let signs = block[74 + 4 * unit + part] as u32;
    twice_four(scale, [point(0), point(1)], level, signs, weights);
});

/// How far points around zero are moved, to either side.
const MOVED: f32 = 0.125;

lattice!(Iq1S, 50, IQ1, "iq1_s.wgsl", |block, unit, part, weights| {
    let word = u16_at(block, 34 + 2 * unit);
    let scale = half_at(block, 0) * (2 * (word >> 12 & 7) + 1) as f32;
    let point = block[2 + 4 * unit + part] as u32 | (word >> (3 * part) & 7) << 8;
    moved(scale, grids::IQ1[point as usize], signed(MOVED, word >> 15), weights);
});

lattice!(Iq1M, 56, IQ1, "iq1_m.wgsl", |block, unit, part, weights| {
    // The block's scale is in the high nibbles of four words, below which are three scales each.
    let word = |i: usize| u16_at(block, 48 + 2 * i);
    let d = (0..4).fold(0, |bits, i| bits | (word(i) >> 12) << (4 * i));
    let group = 2 * unit + part / 2;
    let code = word(group / 4) >> (3 * (group % 4)) & 7;
    let scale = f16::from_bits(d as u16).to_f32() * (2 * code + 1) as f32;
    let high = block[32 + 2 * unit + part / 2] as usize >> (4 * (part % 2));
    let point = grids::IQ1[block[4 * unit + part] as usize | (high & 7) << 8];
    moved(scale, point, signed(MOVED, high as u32 >> 3), weights);
});
