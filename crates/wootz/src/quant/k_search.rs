//! The search for scales that encoders of more than one level of scales share. Groups of weights have
//! scales of few bits, and these are multiples of a number that the block has.
//!
//! A group's scale is the best of some near the one that its largest weight asks for; given the codes
//! that such a scale leads to, the scale with the least squared error follows.

use std::array;

use half::f16;

use super::block::{inverse, largest};

/// Scales smaller than this count as none.
const SMALLEST: f32 = 1e-15;

/// `w ≈ d · scale · code − minimum · least`, for groups of `N` of 256 weights.
pub(super) struct WithMinima<const N: usize> {
    /// What scales are multiples of.
    pub(super) d: f16,
    /// What minima are multiples of.
    pub(super) minimum: f16,
    highest: f32,
    scales: [u8; 16],
    minima: [u8; 16],
}

impl<const N: usize> WithMinima<N> {
    const GROUPS: usize = 256 / N;

    /// For codes from 0 to `highest`, and scales and minima from 0 to `highest_scale`.
    pub(super) fn search(weights: &[f32], highest: u8, highest_scale: u8) -> WithMinima<N> {
        let highest = highest as f32;
        let (mut scales, mut minima) = ([0.0; 16], [0.0; 16]);
        for (group, weights) in weights.chunks_exact(N).enumerate() {
            (scales[group], minima[group]) = with_minimum(weights, highest);
        }
        let multiples = |values: &[f32; 16]| {
            let largest = values.iter().copied().fold(0.0, f32::max);
            let d = f16::from_f32(largest / highest_scale as f32);
            let inverse = inverse(d.to_f32());
            let code = |value: f32| nearest(value * inverse, 0.0, highest_scale as f32) as u8;
            (d, values.map(code))
        };
        let ((d, scales), (minimum, minima)) = (multiples(&scales), multiples(&minima));
        let mut found = WithMinima { d, minimum, highest, scales, minima };
        for (group, weights) in weights.chunks_exact(N).enumerate() {
            found.refine(group, weights, highest_scale);
        }
        found
    }

    /// Scale and minimum of each group.
    pub(super) fn groups(&self) -> impl Iterator<Item = (u8, u8)> {
        self.scales.into_iter().zip(self.minima).take(Self::GROUPS)
    }

    /// The nearest codes.
    pub(super) fn codes(&self, weights: &[f32]) -> [u8; 256] {
        let mut codes = [0; 256];
        let groups = weights.chunks_exact(N).zip(codes.chunks_exact_mut(N)).zip(self.groups());
        for ((weights, codes), (scale, least)) in groups {
            let (_, code, least) = self.group(scale, least);
            for (to, w) in codes.iter_mut().zip(weights) {
                *to = code(w + least) as u8;
            }
        }
        codes
    }

    /// What a scale and a minimum mean: the scale, the code of a weight to which the minimum was
    /// added, and the minimum.
    fn group(&self, scale: u8, least: u8) -> (f32, impl Fn(f32) -> f32, f32) {
        let scale = self.d.to_f32() * scale as f32;
        let (inverse, highest) = (inverse(scale), self.highest);
        let code = move |w: f32| nearest(w * inverse, 0.0, highest);
        (scale, code, self.minimum.to_f32() * least as f32)
    }

    /// Rounding moved the scale and the minimum: neighbours may have become better.
    fn refine(&mut self, group: usize, weights: &[f32], highest_scale: u8) {
        let error = |scale: u8, least: u8| -> f32 {
            let (scale, code, least) = self.group(scale, least);
            weights.iter().map(|w| w + least).map(|w| scale * code(w) - w).map(|e| e * e).sum()
        };
        let near = |code: u8| code.saturating_sub(1)..=(code + 1).min(highest_scale);
        let mut best = (self.scales[group], self.minima[group]);
        let mut least_error = error(best.0, best.1);
        for scale in near(self.scales[group]) {
            for least in near(self.minima[group]) {
                let error = error(scale, least);
                if error < least_error {
                    (best, least_error) = ((scale, least), error);
                }
            }
        }
        (self.scales[group], self.minima[group]) = best;
    }
}

/// The scale and the minimum (of a sign such that it is taken away) of a group.
fn with_minimum(weights: &[f32], highest: f32) -> (f32, f32) {
    // A minimum cannot be above zero.
    let lowest = weights.iter().copied().fold(0.0, f32::min);
    let range = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max) - lowest;
    if range < SMALLEST {
        return (0.0, -lowest);
    }
    let count = weights.len() as f32;
    let sum: f32 = weights.iter().sum();
    let error = |scale: f32, least: f32, inverse: f32| -> f32 {
        let code = |w: f32| nearest((w - lowest) * inverse, 0.0, highest);
        weights.iter().map(|&w| scale * code(w) + least - w).map(|e| e * e).sum()
    };
    let mut best = (range / highest, lowest);
    let mut least_error = error(best.0, best.1, highest / range);
    for step in -20..=20 {
        let inverse = (highest + 0.1 * step as f32) / range;
        let (mut codes, mut squares, mut products) = (0.0, 0.0, 0.0);
        for &w in weights {
            let code = nearest((w - lowest) * inverse, 0.0, highest);
            codes += code;
            squares += code * code;
            products += code * w;
        }
        let determinant = count * squares - codes * codes;
        if determinant <= 0.0 {
            continue;
        }
        let mut scale = (count * products - sum * codes) / determinant;
        let mut least = (squares * sum - codes * products) / determinant;
        if least > 0.0 {
            (scale, least) = (products / squares, 0.0);
        }
        let error = error(scale, least, inverse);
        if error < least_error {
            (best, least_error) = ((scale, least), error);
        }
    }
    (best.0, -best.1)
}

/// `w ≈ d · scale · level`, for groups of `N` of 256 weights, with levels on both sides of zero.
pub(super) struct Symmetric<const N: usize> {
    /// What scales are multiples of, not yet rounded.
    pub(super) d: f32,
    scales: [i16; 16],
}

impl<const N: usize> Symmetric<N> {
    /// For scales from `-half` to `half - 1`.
    pub(super) fn search(weights: &[f32], levels: &impl Levels, half: i16) -> Symmetric<N> {
        let mut scales = [0.0; 16];
        for (scale, weights) in scales.iter_mut().zip(weights.chunks_exact(N)) {
            *scale = symmetric(weights, levels);
        }
        let d = largest(&scales) / -(half as f32);
        let inverse = inverse(d);
        let (lowest, highest) = (-(half as f32), half as f32 - 1.0);
        let code = |scale: f32| nearest(scale * inverse, lowest, highest) as i16;
        Symmetric { d, scales: scales.map(code) }
    }

    /// The scale of each group.
    pub(super) fn scales(&self) -> impl Iterator<Item = i16> {
        self.scales.into_iter().take(256 / N)
    }

    /// Each group's scale, given what became of the block's number when it was rounded.
    pub(super) fn inverses(&self, d: f32) -> [f32; 16] {
        self.scales.map(|scale| d * scale as f32).map(inverse)
    }
}

/// What codes stand for.
pub(super) trait Levels {
    /// The lowest one. It is below zero, and further from it than the highest.
    const LOWEST: f32;
    /// How far from the scale that maps the largest weight to it others are tried, on either side.
    const STEP: f32;
    const STEPS: i32;

    /// The level nearest to a number.
    fn level(x: f32) -> f32;
}

/// The scale of a group.
pub(super) fn symmetric<L: Levels>(weights: &[f32], _: &L) -> f32 {
    let most = largest(weights);
    if most.abs() < SMALLEST {
        return 0.0;
    }
    let (mut scale, mut best) = (0.0, 0.0);
    let tried = (-L::STEPS..=L::STEPS).map(|step| L::LOWEST + L::STEP * step as f32);
    // The largest weight on the other side, too: what lies opposite to it may count for more.
    for at in tried.chain([-L::LOWEST]) {
        let inverse = at / most;
        let (mut products, mut squares) = (0.0, 0.0);
        for &w in weights {
            let level = L::level(w * inverse);
            products += w * level;
            squares += level * level;
        }
        // The error is the sum of squares less this.
        if squares > 0.0 && products * products > best * squares {
            (scale, best) = (products / squares, products * products / squares);
        }
    }
    scale
}

/// To the nearest whole number, halves to even, within bounds.
#[inline(always)]
pub(super) fn nearest(x: f32, lowest: f32, highest: f32) -> f32 {
    // Sums of this size have no digits behind the point. Rounding so needs no instructions of its own.
    const WHOLE: f32 = 12_582_912.0;
    let x = x.clamp(lowest, highest);
    (x + WHOLE) - WHOLE
}

/// Codes of 2 bits: of each 128, the first 32 are the lowest bits of 32 bytes, and so on.
pub(super) fn two_bits(codes: &[u8; 256], bytes: &mut [u8]) {
    let at = |byte: usize, part: usize| codes[128 * (byte / 32) + 32 * part + byte % 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        let parts: [u8; 4] = array::from_fn(|part| (at(i, part) & 3) << (2 * part));
        *byte = parts.into_iter().fold(0, |all, part| all | part);
    }
}

/// The code of element `i` as [`two_bits`] lays them out.
#[inline(always)]
pub(super) fn two_bits_at(bytes: &[u8], i: usize) -> u8 {
    bytes[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3
}
