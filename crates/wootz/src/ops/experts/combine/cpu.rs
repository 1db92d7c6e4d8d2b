//! Results of experts on the CPU: a thread takes whole tokens, in pieces that stay in its cache.

use half::{bf16, f16};

use super::sizes;
use crate::array::DType;
use crate::cpu::simd::rows::{self, Float, Lanes};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, simd, threads};
use crate::error::{Error, Result};

/// Elements of a piece; a multiple of the lanes, as the order of sums wants it.
const PIECE: usize = 512;

/// Elements that are computed in one of the float types.
trait Element: Storage<Wide: Float + bytemuck::Pod> + Send + Sync {}
impl<T: Storage<Wide: Float + bytemuck::Pod> + Send + Sync> Element for T {}

/// Calls a function for the types of results and of weights.
macro_rules! by_types {
    ($call:ident, $function:ident) => {
        match ($call.meta(0).dtype, $call.meta(1).dtype) {
            (DType::F32, DType::F32) => $function::<f32, f32>($call),
            (DType::F64, DType::F64) => $function::<f64, f64>($call),
            (DType::F16, DType::F16) => $function::<f16, f16>($call),
            (DType::F16, DType::F32) => $function::<f16, f32>($call),
            (DType::BF16, DType::BF16) => $function::<bf16, bf16>($call),
            (DType::BF16, DType::F32) => $function::<bf16, f32>($call),
            (_, other) => {
                let expected = "a floating-point type";
                Err(Error::dtype("combine_experts", "weights", expected, other))
            }
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>) -> Result<()> {
    by_types!(call, forward_as)
}

pub(super) fn backward(call: &mut CpuCall<'_>) -> Result<()> {
    by_types!(call, backward_as)
}

fn forward_as<T: Element, V>(call: &mut CpuCall<'_>) -> Result<()>
where
    V: Storage<Wide = T::Wide> + Send + Sync,
{
    let (experts, columns) = sizes(call.meta(0));
    let (y, weights) = (call.input::<T>(0)?, call.input::<V>(1)?);
    let tokens = rows::per_task(y.len() / (experts * columns), experts * columns);
    threads::chunks_mut(call.output::<T>(0)?, tokens * columns, |task, sums| {
        let first = task * tokens * experts;
        let (y, weights) = (&y[first * columns..], &weights[first..]);
        simd::run(Forward { y, weights, experts, columns, sums });
    });
    Ok(())
}

fn backward_as<T: Element, V>(call: &mut CpuCall<'_>) -> Result<()>
where
    V: Storage<Wide = T::Wide> + Send + Sync,
{
    let (experts, columns) = sizes(call.meta(0));
    let (y, weights, dy) = (call.input::<T>(0)?, call.input::<V>(1)?, call.input::<T>(2)?);
    let tokens = rows::per_task(dy.len() / columns, experts * columns);
    let (of_y, of_weights) = call.outputs2::<T, V>()?;
    let each = tokens * experts;
    threads::chunks2_mut(of_y, each * columns, of_weights, each, |task, of_y, of_weights| {
        let first = task * each;
        let (y, weights) = (&y[first * columns..], &weights[first..]);
        let dy = &dy[task * tokens * columns..];
        simd::run(Backward { y, weights, dy, experts, columns, of_y, of_weights });
    });
    Ok(())
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

/// The sums of some tokens; the inputs begin with those of the first.
struct Forward<'a, T, V> {
    y: &'a [T],
    weights: &'a [V],
    experts: usize,
    columns: usize,
    sums: &'a mut [T],
}

impl<T: Element, V: Storage<Wide = T::Wide>> pulp::WithSimd for Forward<'_, T, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Forward { y, weights, experts, columns, sums } = self;
        let mut tile = [T::Wide::ZERO; PIECE];
        let mut added = tile;
        for (token, sums) in sums.chunks_exact_mut(columns).enumerate() {
            for (number, sums) in sums.chunks_mut(PIECE).enumerate() {
                let added = &mut added[..sums.len()];
                added.fill(T::Wide::ZERO);
                for expert in token * experts..(token + 1) * experts {
                    let weight = weights[expert].widen();
                    let start = expert * columns + number * PIECE;
                    let y = widened(&y[start..start + sums.len()], &mut tile);
                    for (sum, &y) in added.iter_mut().zip(y) {
                        *sum = *sum + weight * y;
                    }
                }
                T::narrow_slice(added, sums);
            }
        }
    }
}

/// The gradients of some tokens; the inputs begin with those of the first.
struct Backward<'a, T, V> {
    y: &'a [T],
    weights: &'a [V],
    dy: &'a [T],
    experts: usize,
    columns: usize,
    of_y: &'a mut [T],
    of_weights: &'a mut [V],
}

impl<T: Element, V: Storage<Wide = T::Wide>> pulp::WithSimd for Backward<'_, T, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Backward { y, weights, dy, experts, columns, of_y, of_weights } = self;
        let (mut y_tile, mut dy_tile) = ([T::Wide::ZERO; PIECE], [T::Wide::ZERO; PIECE]);
        let mut product = y_tile;
        let mut dots = vec![Lanes::zero(); experts];
        for (token, of_weights) in of_weights.chunks_exact_mut(experts).enumerate() {
            dots.fill(Lanes::zero());
            for (number, dy) in dy[token * columns..][..columns].chunks(PIECE).enumerate() {
                let dy = widened(dy, &mut dy_tile);
                for (expert, dot) in dots.iter_mut().enumerate() {
                    let expert = token * experts + expert;
                    let start = expert * columns + number * PIECE;
                    let place = start..start + dy.len();
                    dot.add_products(widened(&y[place.clone()], &mut y_tile), dy);
                    let weight = weights[expert].widen();
                    let product = &mut product[..dy.len()];
                    for (product, &dy) in product.iter_mut().zip(dy) {
                        *product = weight * dy;
                    }
                    T::narrow_slice(product, &mut of_y[place]);
                }
            }
            for (of_weight, dot) in of_weights.iter_mut().zip(&dots) {
                *of_weight = V::narrow(dot.sum());
            }
        }
    }
}
