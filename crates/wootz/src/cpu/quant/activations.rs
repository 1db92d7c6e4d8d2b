//! Activations as integers, made once for a row and used by every row of weights: groups of
//! thirty-two share a scale, and their sums are kept for formats with offsets.

use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};

use super::Level;
use super::formats::AT_ONCE;
use super::vector::{GROUP, even_first};
use crate::cpu::tile::Storage;
use crate::cpu::{simd, threads};
use crate::error::{Error, Result};

/// Rows of activations in fixed point, in memory that the caller lends.
pub(crate) struct Activations<'a> {
    level: Level,
    order: Order,
    rows: usize,
    columns: usize,
    /// Rows begin in lines of their own.
    codes: &'a [Line],
    /// For eight groups at a time, see [`Side`].
    sides: &'a [Side],
}

/// How activations lie in a group: as codes do that were unpacked the shortest way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Plain,
    EvenFirst,
}

/// What belongs to the codes of eight groups. A sum is of the rounded activations, so that an offset
/// is not out of step with the codes it belongs to.
#[derive(Clone, Copy, Pod, Zeroable)]
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

/// Activations from which rows are rounded by the team.
const PARALLEL: usize = 1 << 15;
/// Groups with nothing above this are too small to divide by, and count as zero.
const SMALLEST: f32 = 1e-30;
/// In rows whose largest activation is above this, what counts as zero is nothing beside it; and what is above the other
/// is too large for sums.
const LEAST: f32 = 1e-20;
const LARGEST: f32 = 1e30;

impl<'a> Activations<'a> {
    /// Bytes of memory that rows take.
    pub(crate) fn bytes(level: Level, rows: usize, columns: usize) -> usize {
        let (lines, blocks) = sizes(level, columns);
        rows.saturating_mul(lines * size_of::<Line>() + blocks * size_of::<Side>())
    }

    /// Rounds rows of `columns` activations, one after the other; `columns` is a multiple of thirty-two, and
    /// the memory begins at a line. Nothing comes of rows that integers do not stand for: of those with an
    /// infinity or a NaN, or with nothing but small numbers. One such row is enough.
    pub(crate) fn round<T: Storage<Wide = f32> + Sync>(
        op: &'static str,
        (level, order): (Level, Order),
        x: &[T],
        columns: usize,
        memory: &'a mut [u8],
    ) -> Result<Option<Activations<'a>>> {
        let rows = x.len().checked_div(columns).unwrap_or(0);
        let (lines, blocks) = sizes(level, columns);
        let misfit = |got: String| {
            let wanted = Activations::bytes(level, rows, columns);
            Error::argument(op, "workspace", format!("{wanted} bytes from a line on"), got)
        };
        let length = memory.len();
        let memory = memory.get_mut(..Activations::bytes(level, rows, columns));
        let memory = memory.ok_or_else(|| misfit(format!("{length} bytes")))?;
        let (codes, sides) = memory.split_at_mut(rows * lines * size_of::<Line>());
        let unaligned = |error| misfit(format!("{error}"));
        let codes: &mut [Line] = cast(codes).map_err(unaligned)?;
        let sides: &mut [Side] = cast(sides).map_err(unaligned)?;
        // A row that is out of the ordinary is noted with a one.
        let unfit = AtomicU32::new(0);
        let per_task = (PARALLEL / columns.max(1)).max(1);
        let cut = (per_task * lines, per_task * blocks);
        threads::chunks2_mut(codes, cut.0, sides, cut.1, |task, codes, sides| {
            let x = &x[task * per_task * columns..];
            for (row, codes) in codes.chunks_exact_mut(lines).enumerate() {
                let codes = bytemuck::cast_slice_mut(codes);
                let x = &x[row * columns..(row + 1) * columns];
                let sides = &mut sides[row * blocks..(row + 1) * blocks];
                let largest = match (level, order) {
                    (Level::Exact, Order::Plain) => {
                        simd::run(Round::<T, true, false> { x, codes, sides })
                    }
                    (Level::Exact, Order::EvenFirst) => {
                        simd::run(Round::<T, true, true> { x, codes, sides })
                    }
                    (Level::Fast, Order::Plain) => {
                        simd::run(Round::<T, false, false> { x, codes, sides })
                    }
                    (Level::Fast, Order::EvenFirst) => {
                        simd::run(Round::<T, false, true> { x, codes, sides })
                    }
                };
                let fits = largest == 0.0 || (largest > LEAST && largest <= LARGEST);
                if !fits {
                    unfit.store(1, Ordering::Relaxed);
                }
            }
        });
        let fit = unfit.into_inner() == 0;
        Ok(fit.then_some(Activations { level, order, rows, columns, codes, sides }))
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn order(&self) -> Order {
        self.order
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

/// Memory as numbers; none is aligned for nothing in particular.
fn cast<T: Pod>(bytes: &mut [u8]) -> std::result::Result<&mut [T], bytemuck::PodCastError> {
    match bytes.is_empty() {
        true => Ok(&mut []),
        false => bytemuck::try_cast_slice_mut(bytes),
    }
}

/// Lines of codes and blocks of eight groups in a row.
fn sizes(level: Level, columns: usize) -> (usize, usize) {
    let bytes = match level {
        Level::Exact => 2,
        Level::Fast => 1,
    };
    // An odd number: at the same place of several rows, lines would else share a place in a cache.
    let lines = (bytes * columns).div_ceil(size_of::<Line>()) | 1;
    (lines, columns.div_ceil(GROUP * AT_ONCE))
}

/// One row; gives the largest magnitude, or NaN.
struct Round<'a, T, const EXACT: bool, const EVEN_FIRST: bool> {
    x: &'a [T],
    codes: &'a mut [u8],
    sides: &'a mut [Side],
}

impl<T: Storage<Wide = f32>, const EXACT: bool, const EVEN_FIRST: bool> pulp::WithSimd
    for Round<'_, T, EXACT, EVEN_FIRST>
{
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> f32 {
        let bytes = if EXACT { 2 * GROUP } else { GROUP };
        let mut most = 0;
        let mut wide = [0f32; GROUP * AT_ONCE];
        let blocks = self.x.chunks(GROUP * AT_ONCE).zip(self.codes.chunks_mut(bytes * AT_ONCE));
        for ((x, codes), side) in blocks.zip(self.sides) {
            if x.len() < GROUP * AT_ONCE {
                // What groups that a row lacks are multiplied with must be a number, whatever memory held.
                *side = Side::zeroed();
            }
            T::widen_slice(x, &mut wide[..x.len()]);
            let x = wide[..x.len()].as_chunks::<GROUP>().0;
            for (group, (x, codes)) in x.iter().zip(codes.chunks_exact_mut(bytes)).enumerate() {
                let largest = magnitude(x);
                most = most.max(largest.to_bits());
                let (scale, halves) = round::<EXACT, EVEN_FIRST>(x, largest, codes);
                side.scales[group] = scale;
                side.sums[group] = scale * halves[0].wrapping_add(halves[1]) as f32;
                for (half, sum) in halves.into_iter().enumerate() {
                    side.half_scales[2 * group + half] = scale;
                    side.half_sums[2 * group + half] = scale * sum as f32;
                }
            }
        }
        f32::from_bits(most)
    }
}

/// The largest magnitude of a group.
#[inline(always)]
fn magnitude(x: &[f32; GROUP]) -> f32 {
    // As integers, so that NaN counts as the largest.
    let mut largest = [0u32; 8];
    for eight in x.as_chunks::<8>().0 {
        for (largest, x) in largest.iter_mut().zip(eight) {
            *largest = (*largest).max(x.to_bits() & 0x7fff_ffff);
        }
    }
    f32::from_bits(largest.into_iter().fold(0, u32::max))
}

/// Writes the codes of a group, and gives its scale and the sums of its halves.
#[inline(always)]
fn round<const EXACT: bool, const EVEN_FIRST: bool>(
    x: &[f32; GROUP],
    largest: f32,
    codes: &mut [u8],
) -> (f32, [i32; 2]) {
    let most = if EXACT { 32767.0 } else { 127.0 };
    let inverse = if largest > SMALLEST { most / largest } else { 0.0 };
    let scale = if largest > SMALLEST { largest / most } else { 0.0 };
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
            let place = 2 * if EVEN_FIRST { even_first(i) } else { i };
            codes[place..place + 2].copy_from_slice(&(rounded as i16).to_le_bytes());
        }
    } else {
        let mut bytes = [0; GROUP];
        for (i, rounded) in rounded.into_iter().enumerate() {
            bytes[if EVEN_FIRST { even_first(i) } else { i }] = rounded as i8 as u8;
        }
        codes[..GROUP].copy_from_slice(&bytes);
    }
    (scale, halves)
}
