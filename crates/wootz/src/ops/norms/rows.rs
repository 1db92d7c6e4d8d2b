//! Rows on the CPU, taken in pieces that fit the stack and widened if they are narrow, so that nothing
//! is allocated.

use std::ops::Range;

use crate::cpu::CpuCall;
use crate::cpu::simd::rows::Float;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Elements of a piece; a multiple of the lanes, as their order wants it.
pub(super) const PIECE: usize = 512;

/// Pieces of rows in the type they are computed in. Filled once per task: clearing them for every
/// row would cost as much as a short row.
pub(super) struct Tiles<T: Storage> {
    pub(super) x: [T::Wide; PIECE],
    pub(super) dy: [T::Wide; PIECE],
    pub(super) weight: [T::Wide; PIECE],
    pub(super) bias: [T::Wide; PIECE],
    pub(super) out: [T::Wide; PIECE],
    /// A narrow result on its way past the caches.
    pub(super) narrow: [T; PIECE],
}

impl<T: Element> Tiles<T> {
    pub(super) fn new() -> Tiles<T> {
        let zero = [T::Wide::ZERO; PIECE];
        let narrow = [T::zeroed(); PIECE];
        Tiles { x: zero, dy: zero, weight: [T::Wide::ONE; PIECE], bias: zero, out: zero, narrow }
    }
}

/// Elements that are computed in one of the float types.
pub(super) trait Element: Storage<Wide: Float + bytemuck::Pod> + Send + Sync {}
impl<T: Storage<Wide: Float + bytemuck::Pod> + Send + Sync> Element for T {}

/// The pieces of a row.
#[inline(always)]
pub(super) fn pieces(columns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..columns).step_by(PIECE).map(move |start| start..(start + PIECE).min(columns))
}

/// A piece in the type it is computed in: where it lies, or widened into the tile.
#[inline(always)]
pub(super) fn widened<'a, T: Element>(piece: &'a [T], tile: &'a mut [T::Wide]) -> &'a [T::Wide] {
    if size_of::<T>() == size_of::<T::Wide>() {
        return bytemuck::cast_slice(piece);
    }
    let tile = &mut tile[..piece.len()];
    T::widen_slice(piece, tile);
    tile
}

/// As [`widened`], but a piece of the output is copied, because it is about to be written.
#[inline(always)]
pub(super) fn taken<'a, T: Element>(
    own: Option<&'a [T]>,
    output: &[T],
    piece: Range<usize>,
    tile: &'a mut [T::Wide],
) -> &'a [T::Wide] {
    match own {
        Some(row) => widened(&row[piece], tile),
        None => {
            let tile = &mut tile[..piece.len()];
            T::widen_slice(&output[piece], tile);
            tile
        }
    }
}

/// Output in the type it is computed in, if it is stored so.
#[inline(always)]
pub(super) fn as_wide<T: Element>(piece: &mut [T]) -> Option<&mut [T::Wide]> {
    (size_of::<T>() == size_of::<T::Wide>()).then(|| bytemuck::cast_slice_mut(piece))
}

/// An input's elements, or `None` if they are in an output.
pub(super) fn own_input<'a, T: Element>(
    call: &CpuCall<'a>,
    input: usize,
) -> Result<Option<&'a [T]>> {
    if call.aliased(input) { Ok(None) } else { call.input::<T>(input).map(Some) }
}

pub(super) fn rows_of<'a, T>(
    x: Option<&'a [T]>,
    rows: &Range<usize>,
    columns: usize,
) -> Option<&'a [T]> {
    x.map(|x| &x[rows.start * columns..rows.end * columns])
}

/// Where a piece of row `row` lies among some rows.
#[inline(always)]
pub(super) fn piece_of_row(piece: &Range<usize>, row: usize, columns: usize) -> Range<usize> {
    row * columns + piece.start..row * columns + piece.end
}

/// The length of the rows; kernels do not run on arrays without columns.
pub(super) fn columns_of(call: &CpuCall<'_>) -> usize {
    call.meta(0).shape().last().copied().unwrap_or(1).max(1)
}

/// The first `wanted` elements of scratch memory.
pub(super) fn part_of<W>(scratch: &mut [W], wanted: usize) -> Result<&mut [W]> {
    let length = scratch.len();
    scratch
        .get_mut(..wanted)
        .ok_or_else(|| Error::argument("norms", "workspace", format!("{wanted} elements"), length))
}
