//! Activations as integers, made once for a row and used by every row of weights: groups of
//! thirty-two share a scale, and their sums are kept for formats with offsets. At the exact level an activation that is far
//! larger than the others of its group is taken out of it, so that they keep their digits, and is multiplied by itself.

use std::ops::Range;
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
    sizes: Sizes,
    /// Whether anything stands out.
    stands_out: bool,
    /// Rows begin in lines of their own.
    codes: &'a [Line],
    /// For eight groups at a time, see [`Side`]; after those of a row, its outliers and how many they are.
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

/// An activation that was taken out of its group, by number in its row.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Outlier {
    index: u32,
    value: f32,
}

impl Outlier {
    /// The block of eight groups in which it is.
    fn block(&self) -> usize {
        self.index as usize / BLOCK
    }
}

/// Activations in eight groups.
const BLOCK: usize = GROUP * AT_ONCE;
/// What is above so many times the mean magnitude of its group stands out. Normal activations do not, nor do products
/// of two of them; and what does not leaves the others of its group as many digits as `exact` promises.
const STANDS_OUT: f32 = 10.0;
/// The most that stand out in a group: the mean is not below what they bring.
const MOST: usize = 3;

/// Lines of eight groups, exact.
const LINES: usize = 2 * BLOCK / size_of::<Line>();

/// The outliers of eight groups as activations, all others of which are zero.
#[repr(C, align(64))]
pub(super) struct Extra {
    codes: [Line; LINES],
    side: Side,
}

impl Extra {
    /// As kernels read it.
    pub(super) fn x(&self) -> X {
        X { codes: self.codes.as_ptr().cast(), sides: &self.side }
    }

    /// Which groups have outliers.
    pub(super) fn groups(&self) -> impl Iterator<Item = usize> {
        (0..AT_ONCE).filter(|&group| self.side.scales[group] > 0.0)
    }
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
        let Sizes { lines, sides, .. } = Sizes::new(level, columns);
        rows.saturating_mul(lines * size_of::<Line>() + sides * size_of::<Side>())
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
        let sizes = Sizes::new(level, columns);
        let Sizes { lines, blocks, sides: all_sides } = sizes;
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
        // Rows that are out of the ordinary.
        let notes = AtomicU32::new(0);
        const UNFIT: u32 = 1;
        const STANDS_OUT: u32 = 2;
        let per_task = (PARALLEL / columns.max(1)).max(1);
        let cut = (per_task * lines, per_task * all_sides);
        threads::chunks2_mut(codes, cut.0, sides, cut.1, |task, codes, sides| {
            let x = &x[task * per_task * columns..];
            for (row, codes) in codes.chunks_exact_mut(lines).enumerate() {
                let codes = bytemuck::cast_slice_mut(codes);
                let x = &x[row * columns..(row + 1) * columns];
                let sides = &mut sides[row * all_sides..(row + 1) * all_sides];
                let (sides, outliers) = sides.split_at_mut(blocks);
                let outliers = bytemuck::must_cast_slice_mut(outliers);
                let row = Row { x, codes, sides, outliers };
                let (largest, found) = match (level, order) {
                    (Level::Exact, Order::Plain) => simd::run(Round::<T, true, false>(row)),
                    (Level::Exact, Order::EvenFirst) => simd::run(Round::<T, true, true>(row)),
                    (Level::Fast, Order::Plain) => simd::run(Round::<T, false, false>(row)),
                    (Level::Fast, Order::EvenFirst) => simd::run(Round::<T, false, true>(row)),
                };
                let fits = largest == 0.0 || (largest > LEAST && largest <= LARGEST);
                if !fits {
                    notes.fetch_or(UNFIT, Ordering::Relaxed);
                }
                if found > 0 {
                    notes.fetch_or(STANDS_OUT, Ordering::Relaxed);
                }
            }
        });
        let notes = notes.into_inner();
        let (fit, stands_out) = (notes & UNFIT == 0, notes & STANDS_OUT != 0);
        Ok(fit.then_some(Activations {
            level,
            order,
            rows,
            columns,
            sizes,
            stands_out,
            codes,
            sides,
        }))
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
        let Sizes { lines, sides, .. } = self.sizes;
        X {
            codes: self.codes.as_ptr().wrapping_add(i * lines).cast(),
            sides: self.sides.as_ptr().wrapping_add(i * sides),
        }
    }

    /// What was taken out of row `i`, in order; it is to be multiplied beside the row.
    pub(super) fn outliers(&self, i: usize) -> &'a [Outlier] {
        if !self.stands_out {
            return &[];
        }
        let Sizes { blocks, sides, .. } = self.sizes;
        let list: &[Outlier] =
            bytemuck::must_cast_slice(&self.sides[i * sides + blocks..(i + 1) * sides]);
        match list.split_first() {
            Some((count, list)) => &list[..list.len().min(count.index as usize)],
            None => &[],
        }
    }

    /// Outliers, those of eight groups at a time, with the number of those groups.
    pub(super) fn extras(&self, outliers: &[Outlier]) -> impl Iterator<Item = (usize, Extra)> {
        let blocks = outliers.chunk_by(|a, b| a.block() == b.block());
        blocks.map(|outliers| (outliers[0].block(), self.extra(outliers)))
    }

    /// Those of `blocks` of eight groups.
    pub(super) fn within(outliers: &'a [Outlier], blocks: Range<usize>) -> &'a [Outlier] {
        let first = outliers.partition_point(|outlier| outlier.block() < blocks.start);
        let end = outliers.partition_point(|outlier| outlier.block() < blocks.end);
        &outliers[first..end]
    }

    fn extra(&self, outliers: &[Outlier]) -> Extra {
        let mut extra = Extra { codes: [Line::zeroed(); LINES], side: Side::zeroed() };
        let codes: &mut [u8] = bytemuck::must_cast_slice_mut(&mut extra.codes);
        for outliers in
            outliers.chunk_by(|a, b| a.index as usize / GROUP == b.index as usize / GROUP)
        {
            let group = outliers[0].index as usize % BLOCK / GROUP;
            let mut x = [0f32; GROUP];
            outliers.iter().for_each(|outlier| x[outlier.index as usize % GROUP] = outlier.value);
            let (largest, codes) = (magnitude(&x), &mut codes[2 * GROUP * group..]);
            let rounded = match self.order {
                Order::Plain => round::<true, false>(&x, largest, codes),
                Order::EvenFirst => round::<true, true>(&x, largest, codes),
            };
            extra.side.set(group, rounded);
        }
        extra
    }
}

impl Side {
    /// The scale of a group and the sums of its halves.
    #[inline(always)]
    fn set(&mut self, group: usize, (scale, halves): (f32, [i32; 2])) {
        self.scales[group] = scale;
        self.sums[group] = scale * halves[0].wrapping_add(halves[1]) as f32;
        for (half, sum) in halves.into_iter().enumerate() {
            self.half_scales[2 * group + half] = scale;
            self.half_sums[2 * group + half] = scale * sum as f32;
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

/// What a row takes.
#[derive(Clone, Copy)]
struct Sizes {
    /// Lines of codes.
    lines: usize,
    /// Blocks of eight groups.
    blocks: usize,
    /// What belongs to those, and memory for outliers.
    sides: usize,
}

impl Sizes {
    fn new(level: Level, columns: usize) -> Sizes {
        let blocks = columns.div_ceil(BLOCK);
        let outliers = (1 + MOST * AT_ONCE * blocks) * size_of::<Outlier>();
        let (bytes, more) = match level {
            Level::Exact => (2, outliers.div_ceil(size_of::<Side>())),
            Level::Fast => (1, 0),
        };
        // An odd number: at the same place of several rows, lines would else share a place in a cache.
        let lines = (bytes * columns).div_ceil(size_of::<Line>()) | 1;
        Sizes { lines, blocks, sides: blocks + more }
    }
}

/// One row and its places.
struct Row<'a, T> {
    x: &'a [T],
    codes: &'a mut [u8],
    sides: &'a mut [Side],
    /// Their number, as an index, and then outliers.
    outliers: &'a mut [Outlier],
}

/// Rounds a row; gives the largest magnitude, or NaN, and the number of outliers.
struct Round<'a, T, const EXACT: bool, const EVEN_FIRST: bool>(Row<'a, T>);

impl<T: Storage<Wide = f32>, const EXACT: bool, const EVEN_FIRST: bool> pulp::WithSimd
    for Round<'_, T, EXACT, EVEN_FIRST>
{
    type Output = (f32, usize);

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> (f32, usize) {
        let Row { x, codes, sides, outliers } = self.0;
        let bytes = if EXACT { 2 * GROUP } else { GROUP };
        let mut most = 0;
        let mut found = 0;
        let mut wide = [0f32; BLOCK];
        let blocks = x.chunks(BLOCK).zip(codes.chunks_mut(bytes * AT_ONCE));
        for (block, ((x, codes), side)) in blocks.zip(sides).enumerate() {
            if x.len() < BLOCK {
                // What groups that a row lacks are multiplied with must be a number, whatever memory held.
                *side = Side::zeroed();
            }
            T::widen_slice(x, &mut wide[..x.len()]);
            let x = wide[..x.len()].as_chunks_mut::<GROUP>().0;
            for (group, (x, codes)) in x.iter_mut().zip(codes.chunks_exact_mut(bytes)).enumerate() {
                let mut largest = magnitude(x);
                most = most.max(largest.to_bits());
                if EXACT {
                    let limit = total(x) * (STANDS_OUT / GROUP as f32);
                    if largest > limit && largest > SMALLEST {
                        let first = block * BLOCK + group * GROUP;
                        let list = outliers.get_mut(1 + found..).unwrap_or_default();
                        found += take_out(x, limit, first, list);
                        largest = magnitude(x);
                    }
                }
                side.set(group, round::<EXACT, EVEN_FIRST>(x, largest, codes));
            }
        }
        if let Some(count) = outliers.first_mut() {
            *count = Outlier { index: found as u32, value: 0.0 };
        }
        (f32::from_bits(most), found)
    }
}

/// Moves what is above a limit from a group to a list, unless nothing is left; gives its number.
#[cold]
fn take_out(x: &mut [f32; GROUP], limit: f32, first: usize, list: &mut [Outlier]) -> usize {
    if x.iter().all(|x| *x == 0.0 || x.abs() > limit) {
        return 0;
    }
    let above = x.iter_mut().enumerate().filter(|(_, x)| x.abs() > limit);
    let moved = above.zip(list).map(|((i, x), place)| {
        *place = Outlier { index: (first + i) as u32, value: std::mem::take(x) };
    });
    moved.count()
}

/// The sum of the magnitudes of a group, in one order.
#[inline(always)]
fn total(x: &[f32; GROUP]) -> f32 {
    let mut sums = [0f32; 8];
    for eight in x.as_chunks::<8>().0 {
        sums.iter_mut().zip(eight).for_each(|(sum, x)| *sum += x.abs());
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
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
