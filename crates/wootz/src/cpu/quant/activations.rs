//! Activations as integers, made once for a row and used by every row of weights: groups of
//! thirty-two share a scale, and their sums are kept for formats with offsets.

use bytemuck::{Pod, Zeroable};

use super::Level;
use super::formats::AT_ONCE;
use super::vector::{GROUP, exact_place};
use crate::cpu::{simd, threads};

/// Rows of activations in fixed point.
pub(crate) struct Activations {
    level: Level,
    rows: usize,
    columns: usize,
    /// Rows begin in lines of their own.
    codes: Vec<Line>,
    /// For eight groups at a time, see [`Side`].
    sides: Vec<Side>,
}

/// What belongs to the codes of eight groups. A sum is of the rounded activations, so that an offset
/// is not out of step with the codes it belongs to.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Side {
    /// The scale of each group.
    pub(super) scales: [f32; AT_ONCE],
    /// The sum of each group.
    pub(super) sums: [f32; AT_ONCE],
    /// The same for halves of groups.
    pub(super) half_scales: [f32; 2 * AT_ONCE],
    pub(super) half_sums: [f32; 2 * AT_ONCE],
}

/// A cache line: vectors that lie across two are read at half the speed.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// One row, as kernels read it.
#[derive(Clone, Copy)]
pub(super) struct X {
    pub(super) codes: *const u8,
    pub(super) sides: *const Side,
}

/// Columns from which rows are prepared by the team.
const PARALLEL: usize = 1 << 15;

impl Activations {
    /// Rows of `columns` activations, one after the other; `columns` is a multiple of thirty-two. A
    /// group with an infinity or a NaN makes every product NaN.
    pub(crate) fn new(level: Level, x: &[f32], columns: usize) -> Activations {
        let rows = x.len().checked_div(columns).unwrap_or(0);
        let (lines, blocks) = sizes(level, columns);
        let mut codes = vec![Line([0; 64]); rows * lines];
        let mut sides = vec![Side::default(); rows * blocks];
        let per_task = (PARALLEL / columns.max(1)).max(1);
        let cut = (per_task * lines, per_task * blocks);
        threads::chunks2_mut(&mut codes, cut.0, &mut sides, cut.1, |task, codes, sides| {
            let x = &x[task * per_task * columns..];
            for (row, codes) in codes.chunks_exact_mut(lines).enumerate() {
                let codes = bytemuck::cast_slice_mut(codes);
                let x = &x[row * columns..(row + 1) * columns];
                let sides = &mut sides[row * blocks..(row + 1) * blocks];
                match level {
                    Level::Exact => simd::run(Round::<true> { x, codes, sides }),
                    Level::Fast => simd::run(Round::<false> { x, codes, sides }),
                }
            }
        });
        Activations { level, rows, columns, codes, sides }
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Row `i`, which is there.
    pub(super) fn row(&self, i: usize) -> X {
        let (lines, blocks) = sizes(self.level, self.columns);
        X {
            codes: self.codes.as_ptr().wrapping_add(i * lines).cast(),
            sides: self.sides.as_ptr().wrapping_add(i * blocks),
        }
    }
}

/// Lines of codes and blocks of eight groups in a row.
fn sizes(level: Level, columns: usize) -> (usize, usize) {
    let bytes = match level {
        Level::Exact => 2,
        Level::Fast => 1,
    };
    ((bytes * columns).div_ceil(size_of::<Line>()), columns.div_ceil(GROUP * AT_ONCE))
}

/// One row.
struct Round<'a, const EXACT: bool> {
    x: &'a [f32],
    codes: &'a mut [u8],
    sides: &'a mut [Side],
}

impl<const EXACT: bool> pulp::WithSimd for Round<'_, EXACT> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let bytes = if EXACT { 2 * GROUP } else { GROUP };
        let blocks = self.x.chunks(GROUP * AT_ONCE).zip(self.codes.chunks_mut(bytes * AT_ONCE));
        for ((x, codes), side) in blocks.zip(self.sides) {
            let groups = x.as_chunks::<GROUP>().0.iter().zip(codes.chunks_exact_mut(bytes));
            for (group, (x, codes)) in groups.enumerate() {
                let (scale, halves) = round::<EXACT>(x, codes);
                side.scales[group] = scale;
                side.sums[group] = scale * (halves[0] + halves[1]) as f32;
                for (half, sum) in halves.into_iter().enumerate() {
                    side.half_scales[2 * group + half] = scale;
                    side.half_sums[2 * group + half] = scale * sum as f32;
                }
            }
        }
    }
}

/// Writes the codes of a group, and gives its scale and the sums of its halves.
#[inline(always)]
fn round<const EXACT: bool>(x: &[f32; GROUP], codes: &mut [u8]) -> (f32, [i32; 2]) {
    let most = if EXACT { 32767.0 } else { 127.0 };
    // As integers, so that NaN counts as the largest.
    let mut largest = [0u32; 8];
    for eight in x.as_chunks::<8>().0 {
        for (largest, x) in largest.iter_mut().zip(eight) {
            *largest = (*largest).max(x.to_bits() & 0x7fff_ffff);
        }
    }
    let largest = f32::from_bits(largest.into_iter().fold(0, u32::max));
    // What is too small to divide by counts as zero; NaN and infinities come through the scale.
    let inverse = if largest > 1e-30 { most / largest } else { 0.0 };
    let scale = if largest <= 1e-30 { 0.0 } else { largest / most };
    let mut rounded = [0i32; GROUP];
    for (rounded, x) in rounded.iter_mut().zip(x) {
        // Adding this leaves the nearest integer in the low bits, ties to even.
        const MAGIC: f32 = 12_582_912.0;
        *rounded = (x * inverse + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i32;
    }
    let mut halves = [0i32; 2];
    for (i, rounded) in rounded.into_iter().enumerate() {
        halves[i / 16] = halves[i / 16].wrapping_add(rounded);
    }
    if EXACT {
        for (i, rounded) in rounded.into_iter().enumerate() {
            let place = 2 * exact_place(i);
            codes[place..place + 2].copy_from_slice(&(rounded as i16).to_le_bytes());
        }
    } else {
        for (code, rounded) in codes.iter_mut().zip(rounded) {
            *code = rounded as i8 as u8;
        }
    }
    (scale, halves)
}
