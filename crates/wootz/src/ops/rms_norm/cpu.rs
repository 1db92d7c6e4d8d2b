//! Root-mean-square normalisation on the CPU. A thread takes whole rows; between its passes a row
//! stays in the cache. Rows are worked on in pieces that fit the stack, widened if they are narrow,
//! so nothing is allocated.

use std::ops::Range;

use half::{bf16, f16};

use super::blocks_of;
use crate::array::DType;
use crate::cpu::simd::rows::{self, Float, LANES, Lanes};
use crate::cpu::simd::{Ahead, stream};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};

/// Elements of a piece; a multiple of the lanes, as their order wants it.
const PIECE: usize = 512;

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident, $($argument:expr),*) => {
        match $call.meta(0).dtype {
            DType::F32 => $kernel::<f32>($call, $($argument),*),
            DType::F64 => $kernel::<f64>($call, $($argument),*),
            DType::F16 => $kernel::<f16>($call, $($argument),*),
            DType::BF16 => $kernel::<bf16>($call, $($argument),*),
            other => Err(Error::dtype("rms_norm", "x", "a floating-point type", other)),
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>, eps: f32, weighted: bool) -> Result<()> {
    for_dtype!(call, forward_as, eps, weighted)
}

pub(super) fn inverse(call: &mut CpuCall<'_>, eps: f32) -> Result<()> {
    for_dtype!(call, inverse_as, eps)
}

pub(super) fn backward_dx(call: &mut CpuCall<'_>, weighted: bool) -> Result<()> {
    for_dtype!(call, backward_dx_as, weighted)
}

pub(super) fn backward_dw(call: &mut CpuCall<'_>) -> Result<()> {
    for_dtype!(call, backward_dw_as,)
}

pub(super) fn backward(call: &mut CpuCall<'_>, eps: f32) -> Result<()> {
    for_dtype!(call, backward_as, eps)
}

/// Pieces of rows in the type they are computed in. Filled once per task: clearing them for every
/// row would cost as much as a short row.
struct Tiles<T: Storage> {
    x: [T::Wide; PIECE],
    dy: [T::Wide; PIECE],
    weight: [T::Wide; PIECE],
    out: [T::Wide; PIECE],
    /// A narrow result on its way past the caches.
    narrow: [T; PIECE],
}

impl<T: Element> Tiles<T> {
    fn new() -> Tiles<T> {
        let zero = [T::Wide::ZERO; PIECE];
        let narrow = [T::zeroed(); PIECE];
        Tiles { x: zero, dy: zero, weight: [T::Wide::ONE; PIECE], out: zero, narrow }
    }
}

/// Elements that are computed in one of the float types.
trait Element: Storage<Wide: Float + bytemuck::Pod> + Send + Sync {}
impl<T: Storage<Wide: Float + bytemuck::Pod> + Send + Sync> Element for T {}

fn forward_as<T: Element>(call: &mut CpuCall<'_>, eps: f32, weighted: bool) -> Result<()> {
    let columns = columns_of(call);
    let x = own_input::<T>(call, 0)?;
    let weight = if weighted { Some(call.input::<T>(1)?) } else { None };
    let rows_per_chunk = rows::per_task(call.meta(0).size() / columns, columns);
    // Not where the output holds an input.
    let streamed = x.is_some() && stream::pays(call.output_meta(0).bytes());
    threads::chunks_mut(call.output::<T>(0)?, rows_per_chunk * columns, |chunk, y| {
        let mut tiles = Tiles::new();
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            let row = chunk * rows_per_chunk + row;
            let x = rows_of(x, &(row..row + 1), columns);
            let tiles = &mut tiles;
            crate::cpu::simd::run(Forward { x, weight, y, eps, streamed, tiles });
        }
        stream::finish_if(streamed);
    });
    Ok(())
}

/// One row of the result. Without `x` the row is in `y`.
struct Forward<'a, T: Storage> {
    x: Option<&'a [T]>,
    weight: Option<&'a [T]>,
    y: &'a mut [T],
    eps: f32,
    streamed: bool,
    tiles: &'a mut Tiles<T>,
}

impl<T: Element> pulp::WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Forward { x, weight, y, eps, streamed, tiles } = self;
        let Tiles { x: x_tile, weight: w_tile, out: tile, narrow, .. } = tiles;
        let columns = y.len();
        let mut squares = Lanes::zero();
        let (result, next_x) = (Ahead::of(y), Ahead::behind(x.unwrap_or(y)));
        for piece in pieces(columns) {
            if !streamed {
                result.fetch_all(piece.clone());
            }
            let x = widened(&x.unwrap_or(y)[piece], x_tile);
            squares.add_products(x, x);
        }
        let r = inverse_root(squares, columns, eps);
        for piece in pieces(columns) {
            next_x.fetch_all(piece.clone());
            let x = taken(x, y, piece.clone(), x_tile);
            let y = &mut y[piece.clone()];
            let w = match weight {
                Some(weight) => widened(&weight[piece], w_tile),
                None => &w_tile[..y.len()],
            };
            match as_wide::<T>(y) {
                Some(y) => scaled(x, r, w, y, streamed),
                None => {
                    // The normalised value is rounded before the weight comes in, as in MLX.
                    let (tile, narrow) = (&mut tile[..y.len()], &mut narrow[..y.len()]);
                    for (value, &x) in tile.iter_mut().zip(x) {
                        *value = x * r;
                    }
                    T::narrow_slice(tile, narrow);
                    if weight.is_some() {
                        T::widen_slice(narrow, tile);
                        for (value, &w) in tile.iter_mut().zip(w) {
                            *value = *value * w;
                        }
                        T::narrow_slice(tile, narrow);
                    }
                    stream::copy_if(streamed, narrow, y);
                }
            }
        }
    }
}

/// `x·r·w`.
#[inline(always)]
fn scaled<W: Float + bytemuck::Pod>(x: &[W], r: W, w: &[W], y: &mut [W], streamed: bool) {
    let ((xs, x_rest), (ws, w_rest)) = (x.as_chunks::<LANES>(), w.as_chunks::<LANES>());
    let (ys, y_rest) = y.as_chunks_mut::<LANES>();
    for ((y, x), w) in ys.iter_mut().zip(xs).zip(ws) {
        let mut values = [W::ZERO; LANES];
        for lane in 0..LANES {
            values[lane] = x[lane] * r * w[lane];
        }
        stream::store_if(streamed, values, y);
    }
    for ((y, &x), &w) in y_rest.iter_mut().zip(x_rest).zip(w_rest) {
        *y = x * r * w;
    }
}

fn inverse_as<T: Element>(call: &mut CpuCall<'_>, eps: f32) -> Result<()> {
    let columns = columns_of(call);
    let x = call.input::<T>(0)?;
    let rows_per_chunk = rows::per_task(call.meta(0).size() / columns, columns);
    threads::chunks_mut(call.output::<T::Wide>(0)?, rows_per_chunk, |chunk, r| {
        for (row, r) in r.iter_mut().enumerate() {
            let start = (chunk * rows_per_chunk + row) * columns;
            *r = crate::cpu::simd::run(Inverse { x: &x[start..start + columns], eps });
        }
    });
    Ok(())
}

struct Inverse<'a, T> {
    x: &'a [T],
    eps: f32,
}

impl<T: Element> pulp::WithSimd for Inverse<'_, T> {
    type Output = T::Wide;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> T::Wide {
        let mut tile = [T::Wide::ZERO; PIECE];
        let mut squares = Lanes::zero();
        for piece in pieces(self.x.len()) {
            let x = widened(&self.x[piece], &mut tile);
            squares.add_products(x, x);
        }
        inverse_root(squares, self.x.len(), self.eps)
    }
}

fn backward_dx_as<T: Element>(call: &mut CpuCall<'_>, weighted: bool) -> Result<()> {
    let columns = columns_of(call);
    let x = own_input::<T>(call, 0)?;
    let weight = if weighted { Some(call.input::<T>(1)?) } else { None };
    let dy = own_input::<T>(call, 1 + weighted as usize)?;
    let r = call.input::<T::Wide>(2 + weighted as usize)?;
    let rows_per_chunk = rows::per_task(call.meta(0).size() / columns, columns);
    let own = x.is_some() && dy.is_some();
    let streamed = own && stream::pays(call.output_meta(0).bytes());
    threads::chunks_mut(call.output::<T>(0)?, rows_per_chunk * columns, |chunk, dx| {
        let first = chunk * rows_per_chunk;
        let rows = first..first + dx.len() / columns;
        let (x, dy) = (rows_of(x, &rows, columns), rows_of(dy, &rows, columns));
        let (scale, dw, tiles) = (Scale::Given(&r[rows]), None, &mut Tiles::new());
        let rows = Backward { columns, x, weight, dy, scale, dx, dw, streamed, tiles };
        crate::cpu::simd::run(rows);
        stream::finish_if(streamed);
    });
    Ok(())
}

fn backward_as<T: Element>(call: &mut CpuCall<'_>, eps: f32) -> Result<()> {
    let columns = columns_of(call);
    let (x, weight, dy) = (own_input::<T>(call, 0)?, call.input::<T>(1)?, own_input::<T>(call, 2)?);
    let rows = call.meta(0).size() / columns;
    let (blocks, rows_per_block) = blocks_of(rows, false);
    let own = x.is_some() && dy.is_some();
    let streamed = own && stream::pays(call.output_meta(0).bytes());
    let (dx, dw, partials) = outputs_and_scratch::<T>(call, blocks * columns)?;
    threads::chunks2_mut(dx, rows_per_block * columns, partials, columns, |block, dx, partial| {
        partial.fill(T::Wide::ZERO);
        let first = block * rows_per_block;
        let rows = first..first + dx.len() / columns;
        let (x, dy) = (rows_of(x, &rows, columns), rows_of(dy, &rows, columns));
        let (weight, scale, dw) = (Some(weight), Scale::From(eps), Some(partial));
        let tiles = &mut Tiles::new();
        let rows = Backward { columns, x, weight, dy, scale, dx, dw, streamed, tiles };
        crate::cpu::simd::run(rows);
        stream::finish_if(streamed);
    });
    add_partials(partials, dw);
    Ok(())
}

/// Where `r` comes from.
enum Scale<'a, W> {
    /// One for each row.
    Given(&'a [W]),
    From(f32),
}

/// Some rows of the gradient. An input without memory of its own is in `dx`.
struct Backward<'a, T: Storage> {
    columns: usize,
    x: Option<&'a [T]>,
    weight: Option<&'a [T]>,
    dy: Option<&'a [T]>,
    scale: Scale<'a, T::Wide>,
    dx: &'a mut [T],
    /// The weight's gradient so far.
    dw: Option<&'a mut [T::Wide]>,
    streamed: bool,
    tiles: &'a mut Tiles<T>,
}

impl<T: Element> pulp::WithSimd for Backward<'_, T> {
    type Output = ();

    /// A row needs its sums before its gradient. While one row's gradient is computed from the
    /// cache, the sums of the next are made of what comes from memory, which so never idles.
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Backward { columns, x, weight, dy, scale, dx, mut dw, streamed, tiles } = self;
        let Tiles { x: x_tile, dy: dy_tile, weight: w_tile, out: tile, narrow } = tiles;
        let rows = dx.len() / columns;
        let mut sums = Sums::zero();
        // One turn more than rows: the first has no gradient to compute, the last nothing to sum.
        for turn in 0..=rows {
            let mut next = Sums::zero();
            let factors = turn.checked_sub(1).map(|row| {
                let r = match scale {
                    Scale::Given(r) => r[row],
                    Scale::From(eps) => inverse_root(sums.squares, columns, eps),
                };
                (r, sums.products.sum() * r * r / T::Wide::from_f64(columns as f64))
            });
            for piece in pieces(columns) {
                let w = match weight {
                    Some(weight) => widened(&weight[piece.clone()], w_tile),
                    None => &w_tile[..piece.len()],
                };
                if turn < rows {
                    let piece = piece_of_row(&piece, turn, columns);
                    if !streamed {
                        Ahead::of(&dx[piece.clone()]).fetch_all(0..piece.len());
                    }
                    let x = widened(&x.unwrap_or(dx)[piece.clone()], x_tile);
                    let dy = widened(&dy.unwrap_or(dx)[piece], dy_tile);
                    next.add(x, w, dy);
                }
                if let Some((r, slope)) = factors {
                    let dw = dw.as_mut().map(|dw| &mut dw[piece.clone()]);
                    let piece = piece_of_row(&piece, turn - 1, columns);
                    let x = taken(x, dx, piece.clone(), x_tile);
                    let dy = taken(dy, dx, piece.clone(), dy_tile);
                    if let Some(dw) = dw {
                        add_row(x, dy, r, dw);
                    }
                    let dx = &mut dx[piece];
                    match as_wide::<T>(dx) {
                        Some(dx) => gradient(x, w, dy, r, slope, dx, streamed),
                        None => {
                            let (tile, narrow) = (&mut tile[..dx.len()], &mut narrow[..dx.len()]);
                            gradient(x, w, dy, r, slope, tile, false);
                            T::narrow_slice(tile, narrow);
                            stream::copy_if(streamed, narrow, dx);
                        }
                    }
                }
            }
            sums = next;
        }
    }
}

/// What the gradient of a row is made of: the sums of `(dy·w)·x` and of the squares of `x`.
struct Sums<W> {
    products: Lanes<W>,
    squares: Lanes<W>,
}

impl<W: Float> Sums<W> {
    #[inline(always)]
    fn zero() -> Sums<W> {
        Sums { products: Lanes::zero(), squares: Lanes::zero() }
    }

    #[inline(always)]
    fn add(&mut self, x: &[W], w: &[W], dy: &[W]) {
        let (mut products, mut squares) = (self.products.0, self.squares.0);
        let (xs, x_rest) = x.as_chunks::<LANES>();
        let (ws, w_rest) = w.as_chunks::<LANES>();
        let (dys, dy_rest) = dy.as_chunks::<LANES>();
        for ((x, w), dy) in xs.iter().zip(ws).zip(dys) {
            for lane in 0..LANES {
                products[lane] = products[lane] + dy[lane] * w[lane] * x[lane];
                squares[lane] = squares[lane] + x[lane] * x[lane];
            }
        }
        for (lane, ((&x, &w), &dy)) in x_rest.iter().zip(w_rest).zip(dy_rest).enumerate() {
            products[lane] = products[lane] + dy * w * x;
            squares[lane] = squares[lane] + x * x;
        }
        (self.products.0, self.squares.0) = (products, squares);
    }
}

/// `r·(dy·w − x·slope)`.
#[inline(always)]
fn gradient<W: Float + bytemuck::Pod>(
    x: &[W],
    w: &[W],
    dy: &[W],
    r: W,
    slope: W,
    dx: &mut [W],
    streamed: bool,
) {
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (ws, w_rest) = w.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    let (dxs, dx_rest) = dx.as_chunks_mut::<LANES>();
    for (((dx, x), w), dy) in dxs.iter_mut().zip(xs).zip(ws).zip(dys) {
        let mut values = [W::ZERO; LANES];
        for lane in 0..LANES {
            values[lane] = r * (dy[lane] * w[lane] - x[lane] * slope);
        }
        stream::store_if(streamed, values, dx);
    }
    for (((dx, &x), &w), &dy) in dx_rest.iter_mut().zip(x_rest).zip(w_rest).zip(dy_rest) {
        *dx = r * (dy * w - x * slope);
    }
}

/// Adds a piece of a row to the weight's gradient.
#[inline(always)]
fn add_row<W: Float>(x: &[W], dy: &[W], r: W, dw: &mut [W]) {
    for ((dw, &x), &dy) in dw.iter_mut().zip(x).zip(dy) {
        *dw = *dw + dy * x * r;
    }
}

fn backward_dw_as<T: Element>(call: &mut CpuCall<'_>) -> Result<()> {
    let columns = columns_of(call);
    let (x, dy, r) = (call.input::<T>(0)?, call.input::<T>(1)?, call.input::<T::Wide>(2)?);
    let (blocks, rows_per_block) = blocks_of(r.len(), false);
    let (dw, scratch) = call.output_and_scratch::<T, T::Wide>(0)?;
    let partials = part_of(scratch, blocks * columns)?;
    threads::chunks_mut(partials, columns, |block, partial| {
        partial.fill(T::Wide::ZERO);
        let first = block * rows_per_block;
        for row in first..(first + rows_per_block).min(r.len()) {
            let range = row * columns..(row + 1) * columns;
            let (x, dy, r) = (&x[range.clone()], &dy[range], r[row]);
            crate::cpu::simd::run(AddRow { x, dy, r, dw: partial });
        }
    });
    add_partials(partials, dw);
    Ok(())
}

/// Adds one row to the weight's gradient.
struct AddRow<'a, T: Storage> {
    x: &'a [T],
    dy: &'a [T],
    r: T::Wide,
    dw: &'a mut [T::Wide],
}

impl<T: Element> pulp::WithSimd for AddRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let AddRow { x, dy, r, dw } = self;
        let mut x_tile = [T::Wide::ZERO; PIECE];
        let mut dy_tile = [T::Wide::ZERO; PIECE];
        for piece in pieces(dw.len()) {
            let x = widened(&x[piece.clone()], &mut x_tile);
            let dy = widened(&dy[piece.clone()], &mut dy_tile);
            add_row(x, dy, r, &mut dw[piece]);
        }
    }
}

/// Sums the blocks' gradients of the weight, in the order of the blocks.
fn add_partials<T: Element>(partials: &[T::Wide], dw: &mut [T]) {
    let columns = dw.len();
    threads::chunks_mut(dw, PIECE, |piece, dw| {
        let start = piece * PIECE;
        crate::cpu::simd::run(AddPartials { partials, start, columns, dw });
    });
}

struct AddPartials<'a, T: Storage> {
    partials: &'a [T::Wide],
    start: usize,
    columns: usize,
    dw: &'a mut [T],
}

impl<T: Element> pulp::WithSimd for AddPartials<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let AddPartials { partials, start, columns, dw } = self;
        let mut tile = [T::Wide::ZERO; PIECE];
        let sums = &mut tile[..dw.len()];
        for partial in partials.chunks_exact(columns) {
            for (sum, &value) in sums.iter_mut().zip(&partial[start..]) {
                *sum = *sum + value;
            }
        }
        T::narrow_slice(sums, dw);
    }
}

/// `1 / √(mean + eps)`.
#[inline(always)]
fn inverse_root<W: Float>(squares: Lanes<W>, columns: usize, eps: f32) -> W {
    let mean = squares.sum() / W::from_f64(columns as f64);
    W::ONE / (mean + W::from_f64(eps as f64)).sqrt()
}

/// The pieces of a row.
#[inline(always)]
fn pieces(columns: usize) -> impl Iterator<Item = Range<usize>> {
    (0..columns).step_by(PIECE).map(move |start| start..(start + PIECE).min(columns))
}

/// A piece in the type it is computed in: where it lies, or widened into the tile.
#[inline(always)]
fn widened<'a, T: Element>(piece: &'a [T], tile: &'a mut [T::Wide]) -> &'a [T::Wide] {
    if size_of::<T>() == size_of::<T::Wide>() {
        return bytemuck::cast_slice(piece);
    }
    let tile = &mut tile[..piece.len()];
    T::widen_slice(piece, tile);
    tile
}

/// As [`widened`], but a piece of the output is copied, because it is about to be written.
#[inline(always)]
fn taken<'a, T: Element>(
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
fn as_wide<T: Element>(piece: &mut [T]) -> Option<&mut [T::Wide]> {
    (size_of::<T>() == size_of::<T::Wide>()).then(|| bytemuck::cast_slice_mut(piece))
}

/// An input's elements, or `None` if they are in an output.
fn own_input<'a, T: Element>(call: &CpuCall<'a>, input: usize) -> Result<Option<&'a [T]>> {
    if call.aliased(input) { Ok(None) } else { call.input::<T>(input).map(Some) }
}

fn rows_of<'a, T>(x: Option<&'a [T]>, rows: &Range<usize>, columns: usize) -> Option<&'a [T]> {
    x.map(|x| &x[rows.start * columns..rows.end * columns])
}

/// Where a piece of row `row` lies among some rows.
#[inline(always)]
fn piece_of_row(piece: &Range<usize>, row: usize, columns: usize) -> Range<usize> {
    row * columns + piece.start..row * columns + piece.end
}

/// The length of the rows; kernels do not run on arrays without columns.
fn columns_of(call: &CpuCall<'_>) -> usize {
    call.meta(0).shape().last().copied().unwrap_or(1).max(1)
}

/// Both outputs of the call, and `wanted` elements of its scratch memory.
fn outputs_and_scratch<'c, T: Element>(
    call: &'c mut CpuCall<'_>,
    wanted: usize,
) -> Result<(&'c mut [T], &'c mut [T], &'c mut [T::Wide])> {
    let op = call.op.name();
    let misaligned = |error| Error::argument(op, "outputs", "aligned memory", error);
    let [dx, dw] = &mut call.outputs[..] else {
        return Err(Error::argument(op, "outputs", "two arrays", "others"));
    };
    let whole = call.scratch.len() - call.scratch.len() % size_of::<T::Wide>();
    let scratch = bytemuck::try_cast_slice_mut(&mut call.scratch[..whole]).map_err(misaligned)?;
    Ok((
        bytemuck::try_cast_slice_mut(dx.bytes).map_err(misaligned)?,
        bytemuck::try_cast_slice_mut(dw.bytes).map_err(misaligned)?,
        part_of(scratch, wanted)?,
    ))
}

/// The first `wanted` elements of scratch memory.
fn part_of<W>(scratch: &mut [W], wanted: usize) -> Result<&mut [W]> {
    let length = scratch.len();
    scratch.get_mut(..wanted).ok_or_else(|| {
        Error::argument("rms_norm", "workspace", format!("{wanted} elements"), length)
    })
}
