//! Normalisation on the CPU. A thread takes whole rows; between its passes a row stays in the cache.
//!
//! One kernel serves both norms: `CENTRED` rows have their mean taken away first.

use half::{bf16, f16};

use super::rows::{
    Element, PIECE, Tiles, as_wide, columns_of, own_input, part_of, piece_of_row, pieces, rows_of,
    taken, widened,
};
use super::{Norm, blocks_of};
use crate::array::DType;
use crate::cpu::simd::rows::{self, Float, LANES, Lanes};
use crate::cpu::simd::{Ahead, stream};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, CpuOutput, threads, typed};
use crate::error::{Error, Result};

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident $(, $centred:literal)?; $($argument:expr),*) => {
        match $call.meta(0).dtype {
            DType::F32 => $kernel::<f32 $(, $centred)?>($call, $($argument),*),
            DType::F64 => $kernel::<f64 $(, $centred)?>($call, $($argument),*),
            DType::F16 => $kernel::<f16 $(, $centred)?>($call, $($argument),*),
            DType::BF16 => $kernel::<bf16 $(, $centred)?>($call, $($argument),*),
            other => Err(Error::dtype($call.op.name(), "x", "a floating-point type", other)),
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>, norm: Norm) -> Result<()> {
    if norm.centred {
        return for_dtype!(call, forward_as, true; norm);
    }
    for_dtype!(call, forward_as, false; norm)
}

/// The norm of `x`, maybe normalised before, plus the second input, and that sum as a second output, or the only one.
pub(super) fn forward_of_sum(call: &mut CpuCall<'_>, norm: Norm) -> Result<()> {
    if norm.centred {
        return for_dtype!(call, forward_of_sum_as, true; norm);
    }
    for_dtype!(call, forward_of_sum_as, false; norm)
}

pub(super) fn inverse(call: &mut CpuCall<'_>, eps: f32) -> Result<()> {
    for_dtype!(call, inverse_as; eps)
}

pub(super) fn backward_dx(call: &mut CpuCall<'_>, weighted: bool) -> Result<()> {
    for_dtype!(call, backward_dx_as; weighted)
}

pub(super) fn backward_dw(call: &mut CpuCall<'_>) -> Result<()> {
    for_dtype!(call, backward_dw_as;)
}

pub(super) fn backward(call: &mut CpuCall<'_>, norm: Norm) -> Result<()> {
    if norm.centred {
        return for_dtype!(call, backward_as, true; norm);
    }
    for_dtype!(call, backward_as, false; norm)
}

fn forward_as<T: Element, const CENTRED: bool>(call: &mut CpuCall<'_>, norm: Norm) -> Result<()> {
    let columns = columns_of(call);
    let x = own_input::<T>(call, 0)?;
    let weight = norm.weight().map(|input| call.input::<T>(input)).transpose()?;
    let bias = norm.bias().map(|input| call.input::<T>(input)).transpose()?;
    let rows_per_chunk = rows::per_task(call.meta(0).size() / columns, columns);
    // Not where the output holds an input.
    let streamed = x.is_some() && stream::pays(call.output_meta(0).bytes());
    threads::chunks_mut(call.output::<T>(0)?, rows_per_chunk * columns, |chunk, y| {
        let mut tiles = Tiles::new();
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            let row = chunk * rows_per_chunk + row;
            let x = rows_of(x, &(row..row + 1), columns);
            let tiles = &mut tiles;
            let row = Forward::<T, CENTRED> { norm, x, weight, bias, y, streamed, tiles };
            crate::cpu::simd::run(row);
        }
        stream::finish_if(streamed);
    });
    Ok(())
}

fn forward_of_sum_as<T: Element, const CENTRED: bool>(
    call: &mut CpuCall<'_>,
    norm: Norm,
) -> Result<()> {
    let (columns, op) = (columns_of(call), call.op);
    let (x, added) = (call.input::<T>(0)?, call.input::<T>(1)?);
    let first_weight = norm.first_weight().map(|input| call.input::<T>(input)).transpose()?;
    let weight = norm.weight().map(|input| call.input::<T>(input)).transpose()?;
    let bias = norm.bias().map(|input| call.input::<T>(input)).transpose()?;
    let rows_per_chunk = rows::per_task(call.meta(0).size() / columns, columns);
    let chunk_size = rows_per_chunk * columns;
    let add = |row: usize, sum: &mut [T], tiles: &mut Tiles<T>| {
        let row = row * columns..(row + 1) * columns;
        let (x, added) = (&x[row.clone()], &added[row]);
        let Some(eps) = norm.first else {
            return crate::cpu::simd::run(AddRows { x: Some(x), added, sum, tiles });
        };
        crate::cpu::simd::run(Forward::<T, false> {
            norm: Norm { eps, ..Norm::default() },
            x: Some(x),
            weight: first_weight,
            bias: None,
            y: &mut *sum,
            streamed: false,
            tiles: &mut *tiles,
        });
        crate::cpu::simd::run(AddRows { x: None, added, sum, tiles });
    };
    let (y, others, _) = outputs_and_scratch::<T>(call, 0)?;
    if norm.only_sum {
        threads::chunks_mut(y, chunk_size, |chunk, sum| {
            let mut tiles = Tiles::new();
            for (row, sum) in sum.chunks_exact_mut(columns).enumerate() {
                add(chunk * rows_per_chunk + row, sum, &mut tiles);
            }
        });
        return Ok(());
    }
    let sum = match others {
        [sum, ..] => typed::<T>(op, sum.bytes)?,
        [] => return Err(Error::argument(op.name(), "outputs", "two arrays", 1)),
    };
    threads::chunks2_mut(y, chunk_size, sum, chunk_size, |chunk, y, sum| {
        let mut tiles = Tiles::new();
        for (row, (y, sum)) in
            y.chunks_exact_mut(columns).zip(sum.chunks_exact_mut(columns)).enumerate()
        {
            add(chunk * rows_per_chunk + row, &mut *sum, &mut tiles);
            let (x, streamed, tiles) = (Some(&*sum), false, &mut tiles);
            let row = Forward::<T, CENTRED> { norm, x, weight, bias, y, streamed, tiles };
            crate::cpu::simd::run(row);
        }
    });
    Ok(())
}

/// The sum of two rows. Without `x` the row is in `sum`.
struct AddRows<'a, T: Storage> {
    x: Option<&'a [T]>,
    added: &'a [T],
    sum: &'a mut [T],
    tiles: &'a mut Tiles<T>,
}

impl<T: Element> pulp::WithSimd for AddRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let AddRows { x, added, sum, tiles } = self;
        let Tiles { x: x_tile, dy: added_tile, out: tile, .. } = tiles;
        for piece in pieces(sum.len()) {
            let x = widened(&x.unwrap_or(sum)[piece.clone()], x_tile);
            let added = widened(&added[piece.clone()], added_tile);
            let tile = &mut tile[..piece.len()];
            for ((sum, &x), &added) in tile.iter_mut().zip(x).zip(added) {
                *sum = x + added;
            }
            T::narrow_slice(tile, &mut sum[piece]);
        }
    }
}

/// One row of the result. Without `x` the row is in `y`.
struct Forward<'a, T: Storage, const CENTRED: bool> {
    norm: Norm,
    x: Option<&'a [T]>,
    weight: Option<&'a [T]>,
    bias: Option<&'a [T]>,
    y: &'a mut [T],
    streamed: bool,
    tiles: &'a mut Tiles<T>,
}

impl<T: Element, const CENTRED: bool> pulp::WithSimd for Forward<'_, T, CENTRED> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Forward { norm, x, weight, bias, y, streamed, tiles } = self;
        let Tiles { x: x_tile, weight: w_tile, bias: b_tile, out: tile, narrow, .. } = tiles;
        let columns = y.len();
        let first = widened(&x.unwrap_or(y)[..columns.min(PIECE)], x_tile);
        let mut moments = Moments::<T::Wide, CENTRED>::about(first);
        let (result, next_x) = (Ahead::of(y), Ahead::behind(x.unwrap_or(y)));
        for piece in pieces(columns) {
            if !streamed {
                result.fetch_all(piece.clone());
            }
            moments.add(widened(&x.unwrap_or(y)[piece], x_tile));
        }
        let (mean, r) = moments.mean_and_scale(norm.count(columns), norm.eps);
        for piece in pieces(columns) {
            next_x.fetch_all(piece.clone());
            let x = taken(x, y, piece.clone(), x_tile);
            let y = &mut y[piece.clone()];
            let w = given_or(weight.map(|weight| &weight[piece.clone()]), y.len(), w_tile);
            let b = given_or(bias.map(|bias| &bias[piece]), y.len(), b_tile);
            match as_wide::<T>(y) {
                Some(y) => scaled::<_, CENTRED>(x, mean, r, w, b, y, streamed),
                None => {
                    let (tile, narrow) = (&mut tile[..y.len()], &mut narrow[..y.len()]);
                    if CENTRED {
                        scaled::<_, CENTRED>(x, mean, r, w, b, tile, false);
                    } else {
                        // The normalised value is rounded before the weight comes in, as in MLX.
                        for (value, &x) in tile.iter_mut().zip(x) {
                            *value = x * r;
                        }
                        if weight.is_some() {
                            T::narrow_slice(tile, narrow);
                            T::widen_slice(narrow, tile);
                            for (value, &w) in tile.iter_mut().zip(w) {
                                *value = *value * w;
                            }
                        }
                    }
                    T::narrow_slice(tile, narrow);
                    stream::copy_if(streamed, narrow, y);
                }
            }
        }
    }
}

/// A piece of a weight or bias, or what the tile has been filled with.
#[inline(always)]
fn given_or<'a, T: Element>(
    piece: Option<&'a [T]>,
    length: usize,
    tile: &'a mut [T::Wide],
) -> &'a [T::Wide] {
    match piece {
        Some(piece) => widened(piece, tile),
        None => &tile[..length],
    }
}

#[inline(always)]
fn centred<W: Float, const CENTRED: bool>(x: W, mean: W) -> W {
    if CENTRED { x - mean } else { x }
}

/// `(x − mean)·r·w + b`, or `x·r·w`.
#[inline(always)]
fn scaled<W: Float + bytemuck::Pod, const CENTRED: bool>(
    x: &[W],
    mean: W,
    r: W,
    w: &[W],
    b: &[W],
    y: &mut [W],
    streamed: bool,
) {
    let ((xs, x_rest), (ws, w_rest)) = (x.as_chunks::<LANES>(), w.as_chunks::<LANES>());
    let (bs, b_rest) = b.as_chunks::<LANES>();
    let (ys, y_rest) = y.as_chunks_mut::<LANES>();
    for (((y, x), w), b) in ys.iter_mut().zip(xs).zip(ws).zip(bs) {
        let mut values = [W::ZERO; LANES];
        for lane in 0..LANES {
            values[lane] = centred::<_, CENTRED>(x[lane], mean) * r * w[lane];
            if CENTRED {
                values[lane] = values[lane] + b[lane];
            }
        }
        stream::store_if(streamed, values, y);
    }
    for (((y, &x), &w), &b) in y_rest.iter_mut().zip(x_rest).zip(w_rest).zip(b_rest) {
        *y = centred::<_, CENTRED>(x, mean) * r * w;
        if CENTRED {
            *y = *y + b;
        }
    }
}

/// The sums that tell a row's mean and variance; without a mean to be taken away, its mean square.
struct Moments<W, const CENTRED: bool> {
    /// Taken away from every element: the squares of a large mean would drown the variance.
    shift: W,
    sum: Lanes<W>,
    squares: Lanes<W>,
}

impl<W: Float, const CENTRED: bool> Moments<W, CENTRED> {
    /// Of a row that begins with `first`, whose mean is near the row's.
    #[inline(always)]
    fn about(first: &[W]) -> Self {
        let mut shift = W::ZERO;
        if CENTRED && !first.is_empty() {
            let mut sum = Lanes::zero();
            sum.add(first);
            shift = sum.sum() / W::from_f64(first.len() as f64);
        }
        Moments { shift, sum: Lanes::zero(), squares: Lanes::zero() }
    }

    #[inline(always)]
    fn add(&mut self, x: &[W]) {
        if !CENTRED {
            return self.squares.add_products(x, x);
        }
        let (mut sum, mut squares) = (self.sum.0, self.squares.0);
        let (xs, x_rest) = x.as_chunks::<LANES>();
        for x in xs {
            for lane in 0..LANES {
                let value = x[lane] - self.shift;
                sum[lane] = sum[lane] + value;
                squares[lane] = squares[lane] + value * value;
            }
        }
        for (lane, &x) in x_rest.iter().enumerate() {
            let value = x - self.shift;
            sum[lane] = sum[lane] + value;
            squares[lane] = squares[lane] + value * value;
        }
        (self.sum.0, self.squares.0) = (sum, squares);
    }

    /// The mean, and `1 / √(variance + eps)`, of sums of so many elements.
    #[inline(always)]
    fn mean_and_scale(&self, count: usize, eps: f32) -> (W, W) {
        let count = W::from_f64(count as f64);
        let mut variance = self.squares.sum() / count;
        let mut mean = W::ZERO;
        if CENTRED {
            let rest = self.sum.sum() / count;
            mean = self.shift + rest;
            variance = variance - rest * rest;
            // Rounding may lead below zero.
            if variance < W::ZERO {
                variance = W::ZERO;
            }
        }
        (mean, W::ONE / (variance + W::from_f64(eps as f64)).sqrt())
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
        let mut moments = Moments::<T::Wide, false>::about(&[]);
        for piece in pieces(self.x.len()) {
            moments.add(widened(&self.x[piece], &mut tile));
        }
        moments.mean_and_scale(self.x.len(), self.eps).1
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
        let (scale, tiles) = (Scale::Given(&r[rows]), &mut Tiles::new());
        let (direct, dw, db) = (None, None, None);
        crate::cpu::simd::run(Backward::<T, false> {
            columns,
            x,
            weight,
            dy,
            direct,
            scale,
            dx,
            dw,
            db,
            streamed,
            tiles,
        });
        stream::finish_if(streamed);
    });
    Ok(())
}

fn backward_as<T: Element, const CENTRED: bool>(call: &mut CpuCall<'_>, norm: Norm) -> Result<()> {
    let columns = columns_of(call);
    let weight = norm.weight().map(|input| call.input::<T>(input)).transpose()?;
    let (x, dy) = (own_input::<T>(call, 0)?, own_input::<T>(call, norm.cotangent())?);
    let direct = norm.direct().map(|input| own_input::<T>(call, input)).transpose()?;
    let (blocks, rows_per_block) = blocks_of(call.meta(0).size() / columns, false);
    let own = x.is_some() && dy.is_some() && direct.is_none_or(|direct| direct.is_some());
    let streamed = own && stream::pays(call.output_meta(0).bytes());
    // A block's gradients of the weight and of the bias, one behind the other.
    let sums = norm.sums() * columns;
    let op = call.op;
    let (dx, others, partials) = outputs_and_scratch::<T>(call, blocks * sums)?;
    let run = |block: usize, dx: &mut [T], partial: &mut [T::Wide]| {
        partial.fill(T::Wide::ZERO);
        let (dw, db) = partial.split_at_mut(if norm.weighted { columns } else { 0 });
        let first = block * rows_per_block;
        let rows = first..first + dx.len() / columns;
        let (x, dy) = (rows_of(x, &rows, columns), rows_of(dy, &rows, columns));
        crate::cpu::simd::run(Backward::<T, CENTRED> {
            columns,
            x,
            weight,
            dy,
            direct: direct.map(|direct| rows_of(direct, &rows, columns)),
            scale: Scale::From(norm.eps, norm.count(columns)),
            dx,
            dw: norm.weighted.then_some(dw),
            db: norm.biased.then_some(db),
            streamed,
            tiles: &mut Tiles::new(),
        });
        stream::finish_if(streamed);
    };
    if sums == 0 {
        threads::chunks_mut(dx, rows_per_block * columns, |block, dx| run(block, dx, &mut []));
        return Ok(());
    }
    threads::chunks2_mut(dx, rows_per_block * columns, partials, sums, run);
    for (index, output) in others.iter_mut().enumerate() {
        add_partials::<T>(partials, sums, index * columns, typed(op, output.bytes)?);
    }
    Ok(())
}

/// Where `r` comes from.
enum Scale<'a, W> {
    /// One for each row.
    Given(&'a [W]),
    /// Of the row, with an eps and what its sums are divided by.
    From(f32, usize),
}

/// Some rows of the gradient. An input without memory of its own is in `dx`.
struct Backward<'a, T: Storage, const CENTRED: bool> {
    columns: usize,
    x: Option<&'a [T]>,
    weight: Option<&'a [T]>,
    dy: Option<&'a [T]>,
    /// What is added to the gradient, if anything is.
    direct: Option<Option<&'a [T]>>,
    scale: Scale<'a, T::Wide>,
    dx: &'a mut [T],
    /// The gradients of weight and bias so far.
    dw: Option<&'a mut [T::Wide]>,
    db: Option<&'a mut [T::Wide]>,
    streamed: bool,
    tiles: &'a mut Tiles<T>,
}

impl<T: Element, const CENTRED: bool> pulp::WithSimd for Backward<'_, T, CENTRED> {
    type Output = ();

    /// A row needs its sums before its gradient. While one row's gradient is computed from the
    /// cache, the sums of the next are made of what comes from memory, which so never idles.
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Backward { columns, x, weight, dy, direct, scale, dx, mut dw, mut db, streamed, tiles } =
            self;
        let Tiles { x: x_tile, dy: dy_tile, weight: w_tile, bias, out: tile, narrow } = tiles;
        let rows = dx.len() / columns;
        let mut sums = Sums::<T::Wide, CENTRED>::about(&[]);
        // One turn more than rows: the first has no gradient to compute, the last nothing to sum.
        for turn in 0..=rows {
            let slopes = turn.checked_sub(1).map(|row| match scale {
                Scale::Given(r) => sums.slopes(columns, T::Wide::ZERO, r[row]),
                Scale::From(eps, count) => {
                    let (mean, r) = sums.moments.mean_and_scale(count, eps);
                    sums.slopes(count, mean, r)
                }
            });
            let first = piece_of_row(&(0..columns.min(PIECE)), turn, columns);
            let first = x.unwrap_or(dx).get(first).unwrap_or_default();
            sums = Sums::about(widened(first, x_tile));
            for piece in pieces(columns) {
                let w = given_or(weight.map(|w| &w[piece.clone()]), piece.len(), w_tile);
                if turn < rows {
                    let piece = piece_of_row(&piece, turn, columns);
                    if !streamed {
                        Ahead::of(&dx[piece.clone()]).fetch_all(0..piece.len());
                    }
                    let x = widened(&x.unwrap_or(dx)[piece.clone()], x_tile);
                    let dy = widened(&dy.unwrap_or(dx)[piece], dy_tile);
                    sums.add(x, w, dy);
                }
                if let Some(slopes) = &slopes {
                    let dw = dw.as_mut().map(|dw| &mut dw[piece.clone()]);
                    let db = db.as_mut().map(|db| &mut db[piece.clone()]);
                    let piece = piece_of_row(&piece, turn - 1, columns);
                    let x = taken(x, dx, piece.clone(), x_tile);
                    let dy = taken(dy, dx, piece.clone(), dy_tile);
                    if let Some(dw) = dw {
                        add_row::<_, CENTRED>(x, dy, slopes.mean, slopes.r, dw);
                    }
                    if let Some(db) = db {
                        db.iter_mut().zip(dy).for_each(|(db, &dy)| *db = *db + dy);
                    }
                    let direct = direct.map(|direct| taken(direct, dx, piece.clone(), &mut *bias));
                    let dx = &mut dx[piece];
                    match as_wide::<T>(dx) {
                        Some(dx) => gradient::<_, CENTRED>(x, w, dy, direct, slopes, dx, streamed),
                        None => {
                            let (tile, narrow) = (&mut tile[..dx.len()], &mut narrow[..dx.len()]);
                            gradient::<_, CENTRED>(x, w, dy, direct, slopes, tile, false);
                            T::narrow_slice(tile, narrow);
                            stream::copy_if(streamed, narrow, dx);
                        }
                    }
                }
            }
        }
    }
}

/// What the gradient of a row is made of: its moments, the sum of `dy·w`, and that of its products
/// with what the moments are made of.
struct Sums<W, const CENTRED: bool> {
    moments: Moments<W, CENTRED>,
    gradients: Lanes<W>,
    products: Lanes<W>,
}

/// A row's gradient is `r·(dy·w − (x − mean)·slope − level)`.
struct Slopes<W> {
    mean: W,
    r: W,
    slope: W,
    level: W,
}

impl<W: Float, const CENTRED: bool> Sums<W, CENTRED> {
    #[inline(always)]
    fn about(first: &[W]) -> Self {
        let (gradients, products) = (Lanes::zero(), Lanes::zero());
        Sums { moments: Moments::about(first), gradients, products }
    }

    #[inline(always)]
    fn add(&mut self, x: &[W], w: &[W], dy: &[W]) {
        self.moments.add(x);
        let (mut gradients, mut products) = (self.gradients.0, self.products.0);
        let shift = self.moments.shift;
        let (xs, x_rest) = x.as_chunks::<LANES>();
        let (ws, w_rest) = w.as_chunks::<LANES>();
        let (dys, dy_rest) = dy.as_chunks::<LANES>();
        for ((x, w), dy) in xs.iter().zip(ws).zip(dys) {
            for lane in 0..LANES {
                let term = dy[lane] * w[lane];
                products[lane] = products[lane] + term * centred::<_, CENTRED>(x[lane], shift);
                if CENTRED {
                    gradients[lane] = gradients[lane] + term;
                }
            }
        }
        for (lane, ((&x, &w), &dy)) in x_rest.iter().zip(w_rest).zip(dy_rest).enumerate() {
            let term = dy * w;
            products[lane] = products[lane] + term * centred::<_, CENTRED>(x, shift);
            gradients[lane] = gradients[lane] + term;
        }
        (self.gradients.0, self.products.0) = (gradients, products);
    }

    #[inline(always)]
    fn slopes(&self, count: usize, mean: W, r: W) -> Slopes<W> {
        let count = W::from_f64(count as f64);
        let (mut products, mut level) = (self.products.sum(), W::ZERO);
        if CENTRED {
            let gradients = self.gradients.sum();
            level = gradients / count;
            // An infinite gradient is in the products already, with its sign.
            if gradients.is_finite() {
                products = products - (mean - self.moments.shift) * gradients;
            }
        }
        Slopes { mean, r, slope: products * r * r / count, level }
    }
}

#[inline(always)]
fn gradient<W: Float + bytemuck::Pod, const CENTRED: bool>(
    x: &[W],
    w: &[W],
    dy: &[W],
    direct: Option<&[W]>,
    slopes: &Slopes<W>,
    dx: &mut [W],
    streamed: bool,
) {
    let &Slopes { mean, r, slope, level } = slopes;
    // Where nothing is added, the row stands in and is not looked at.
    let (added, direct) = (direct.is_some(), direct.unwrap_or(x));
    let (directs, direct_rest) = direct.as_chunks::<LANES>();
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (ws, w_rest) = w.as_chunks::<LANES>();
    let (dys, dy_rest) = dy.as_chunks::<LANES>();
    let (dxs, dx_rest) = dx.as_chunks_mut::<LANES>();
    // Not a closure, which would be compiled without the instruction set.
    macro_rules! value {
        ($x:expr, $w:expr, $dy:expr) => {{
            let value = $dy * $w - centred::<_, CENTRED>($x, mean) * slope;
            r * centred::<_, CENTRED>(value, level)
        }};
    }
    for ((((dx, x), w), dy), direct) in dxs.iter_mut().zip(xs).zip(ws).zip(dys).zip(directs) {
        let mut values = [W::ZERO; LANES];
        for lane in 0..LANES {
            values[lane] = value!(x[lane], w[lane], dy[lane]);
        }
        if added {
            for lane in 0..LANES {
                values[lane] = values[lane] + direct[lane];
            }
        }
        stream::store_if(streamed, values, dx);
    }
    let rest = dx_rest.iter_mut().zip(x_rest).zip(w_rest).zip(dy_rest).zip(direct_rest);
    for ((((dx, &x), &w), &dy), &direct) in rest {
        *dx = value!(x, w, dy);
        if added {
            *dx = *dx + direct;
        }
    }
}

/// Adds a piece of a row to the weight's gradient.
#[inline(always)]
fn add_row<W: Float, const CENTRED: bool>(x: &[W], dy: &[W], mean: W, r: W, dw: &mut [W]) {
    for ((dw, &x), &dy) in dw.iter_mut().zip(x).zip(dy) {
        *dw = *dw + dy * centred::<_, CENTRED>(x, mean) * r;
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
    add_partials(partials, columns, 0, dw);
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
            add_row::<_, false>(x, dy, T::Wide::ZERO, r, &mut dw[piece]);
        }
    }
}

/// Sums what the blocks, `stride` apart, have from `first` on, in the order of the blocks.
fn add_partials<T: Element>(partials: &[T::Wide], stride: usize, first: usize, sums: &mut [T]) {
    threads::chunks_mut(sums, PIECE, |piece, sums| {
        let first = first + piece * PIECE;
        crate::cpu::simd::run(AddPartials { partials, stride, first, sums });
    });
}

struct AddPartials<'a, T: Storage> {
    partials: &'a [T::Wide],
    stride: usize,
    first: usize,
    sums: &'a mut [T],
}

impl<T: Element> pulp::WithSimd for AddPartials<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let AddPartials { partials, stride, first, sums } = self;
        let mut tile = [T::Wide::ZERO; PIECE];
        let tile = &mut tile[..sums.len()];
        for partial in partials.chunks_exact(stride) {
            for (sum, &value) in tile.iter_mut().zip(&partial[first..]) {
                *sum = *sum + value;
            }
        }
        T::narrow_slice(tile, sums);
    }
}

/// What a kernel writes: `dx`, the other outputs, and scratch memory.
type Written<'c, 'a, T, W> = (&'c mut [T], &'c mut [CpuOutput<'a>], &'c mut [W]);

/// The first output, the others, and `wanted` elements of scratch memory.
fn outputs_and_scratch<'c, 'a, T: Element>(
    call: &'c mut CpuCall<'a>,
    wanted: usize,
) -> Result<Written<'c, 'a, T, T::Wide>> {
    let whole = call.scratch.len() - call.scratch.len() % size_of::<T::Wide>();
    let partials = part_of(typed(call.op, &mut call.scratch[..whole])?, wanted)?;
    match &mut call.outputs[..] {
        [dx, others @ ..] => Ok((typed(call.op, dx.bytes)?, others, partials)),
        [] => Err(Error::argument(call.op.name(), "outputs", "at least one array", "none")),
    }
}
