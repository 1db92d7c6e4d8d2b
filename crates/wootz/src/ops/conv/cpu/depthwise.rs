//! Convolutions where every channel is a group of its own: sums of rows of channels.

use super::super::geometry::{Geometry, each_axis};
use super::area::{Area, Cut, lend};
use super::{Element, Float, NARROW, Wide};
use crate::cpu::simd::Vectorised;
use crate::cpu::tile::is_wide;
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Windows whose sums are computed before they are rounded.
const ROUNDED: usize = 16;

pub(super) fn depthwise<T: Element>(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let x = call.input::<T>(0)?;
    let (channels, taps) = (geometry.all_channels(), geometry.taps());
    // Weights of a tap side by side, as channels are, in the order of memory.
    let mut weights = vec![T::Wide::ZERO; taps * channels];
    for (channel, from) in call.input::<T>(1)?.chunks_exact(taps).enumerate() {
        for (tap, &weight) in from.iter().enumerate() {
            let tap = if geometry.window.flip { taps - 1 - tap } else { tap };
            weights[tap * channels + channel] = weight.widen();
        }
    }
    let wide = is_wide(call.meta(0).dtype);
    let stored: Option<&[T::Wide]> = if wide { bytemuck::try_cast_slice(x).ok() } else { None };
    let cut = Cut::new(geometry, channels);
    let area = Area::new(geometry, &cut, channels, stored.is_some());
    let (taps, _) = area.pieces(geometry);
    threads::chunks_mut(call.output::<T>(0)?, cut.positions * channels, |task, out| {
        let mut rows = Vec::with_capacity(cut.positions);
        let (first, count) = (task * cut.positions, out.len() / channels);
        let copied = area.rows(geometry, first, count, &mut rows);
        let kept = if wide { 0 } else { ROUNDED * channels };
        lend(copied + kept, |lent: &mut [T::Wide]| {
            let (copied, sums) = lent.split_at_mut(copied);
            area.fill(geometry, (first, count), x, 0, copied);
            let x = stored.filter(|_| area.is_input()).unwrap_or(&*copied);
            let sum = |rows: &[usize], to: &mut [T::Wide]| {
                T::Wide::run(Sums { x, rows, taps: &taps, weights: &weights, channels, to });
            };
            if wide && let Ok(out) = bytemuck::try_cast_slice_mut(out) {
                return sum(&rows, out);
            }
            for (rows, out) in rows.chunks(ROUNDED).zip(out.chunks_mut(ROUNDED * channels)) {
                let sums = &mut sums[..out.len()];
                sum(rows, sums);
                T::narrow_slice(sums, out);
            }
        });
    });
    Ok(())
}

/// Sums of rows of channels, each times a row of weights.
struct Sums<'a, W> {
    x: &'a [W],
    /// Where windows begin, and how far from there their rows.
    rows: &'a [usize],
    taps: &'a [usize],
    weights: &'a [W],
    channels: usize,
    to: &'a mut [W],
}

impl<W: Wide> pulp::WithSimd for Sums<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Sums { x, rows, taps, weights, channels, to } = self;
        // Some windows at a time: they share the weights, and no sum waits for the one before.
        for (rows, to) in rows.chunks(6).zip(to.chunks_mut(6 * channels)) {
            if channels >= 16 {
                each::<W, 16>((x, rows, taps, weights), channels, to);
            } else {
                each::<W, NARROW>((x, rows, taps, weights), channels, to);
            }
        }
    }
}

/// All channels of up to six windows, `N` at a time.
#[inline(always)]
fn each<W: Wide, const N: usize>(
    (x, rows, taps, weights): (&[W], &[usize], &[usize], &[W]),
    channels: usize,
    to: &mut [W],
) {
    for channel in (0..channels).step_by(N) {
        // The last ones are computed with some of those before once more.
        let channel = channel.min(channels - N);
        let weights = weights.chunks_exact(channels).map(|tap| first::<W, N>(&tap[channel..]));
        let steps = taps.iter().map(|tap| tap + channel).zip(weights);
        if let [a, b, c, d, e, f] = *rows {
            let [mut sa, mut sb, mut sc, mut sd, mut se, mut sf] = [[W::ZERO; N]; 6];
            for (at, weights) in steps {
                add(&mut sa, first(&x[a + at..]), weights);
                add(&mut sb, first(&x[b + at..]), weights);
                add(&mut sc, first(&x[c + at..]), weights);
                add(&mut sd, first(&x[d + at..]), weights);
                add(&mut se, first(&x[e + at..]), weights);
                add(&mut sf, first(&x[f + at..]), weights);
            }
            for (to, sums) in to.chunks_exact_mut(channels).zip([sa, sb, sc, sd, se, sf]) {
                to[channel..channel + N].copy_from_slice(&sums);
            }
        } else {
            for (row, to) in rows.iter().zip(to.chunks_exact_mut(channels)) {
                let mut sums = [W::ZERO; N];
                for (at, weights) in steps.clone() {
                    add(&mut sums, first(&x[row + at..]), weights);
                }
                to[channel..channel + N].copy_from_slice(&sums);
            }
        }
    }
}

/// Adds products to sums.
#[inline(always)]
fn add<W: Wide, const N: usize>(sums: &mut [W; N], x: &[W; N], y: &[W; N]) {
    for i in 0..N {
        sums[i] = sums[i] + x[i] * y[i];
    }
}

/// The first elements of a slice that has as many.
#[inline(always)]
fn first<W, const N: usize>(slice: &[W]) -> &[W; N] {
    &slice.as_chunks::<N>().0[0]
}

/// The gradient of weights where every channel is convolved by itself.
pub(super) fn depthwise_weight<T: Element>(
    call: &mut CpuCall<'_>,
    geometry: &Geometry,
) -> Result<()> {
    match geometry.all_channels() {
        16.. => weight_by::<T, 16>(call, geometry),
        _ => weight_by::<T, NARROW>(call, geometry),
    }
}

/// Elements of a line of a window whose sums are kept in registers.
const TAPS: usize = 3;

/// A task for `N` channels and a line of the window. An element sums its products in the order of
/// the output.
fn weight_by<T: Element, const N: usize>(
    call: &mut CpuCall<'_>,
    geometry: &Geometry,
) -> Result<()> {
    let (x, dy) = (call.input::<T>(0)?, call.input::<T>(1)?);
    let stored: Option<&[T::Wide]> = match is_wide(call.meta(0).dtype) {
        true => bytemuck::try_cast_slice(dy).ok(),
        false => None,
    };
    let (channels, width) = (geometry.all_channels(), geometry.kernel[2]);
    let [planes, lines] = [geometry.kernel[0], geometry.kernel[1]];
    // The last channels may be some that were computed before.
    let channel = |task: usize| (task / (planes * lines) * N).min(channels - N);
    let mut sums = vec![T::Wide::ZERO; channels.div_ceil(N) * planes * lines * width * N];
    threads::chunks_mut(&mut sums, width * N, |task, sums| {
        // The windows of this line alone.
        let line = [task / lines % planes, task % lines, 0];
        let mut geometry = Geometry { kernel: [1, 1, width], ..*geometry };
        geometry.window.low = each_axis(|axis| {
            geometry.window.low[axis]
                - (line[axis] * geometry.window.kernel_dilation[axis]) as isize
        });
        let cut = Cut::new(&geometry, N);
        let area = Area::new(&geometry, &cut, N, false);
        let (taps, _) = area.pieces(&geometry);
        let mut rows = Vec::with_capacity(cut.positions);
        for done in (0..geometry.positions()).step_by(cut.positions) {
            let count = cut.positions.min(geometry.positions() - done);
            let copied = area.rows(&geometry, done, count, &mut rows);
            let kept = if stored.is_some() { 0 } else { count * N };
            let first = done * channels + channel(task);
            lend(copied + kept, |lent: &mut [T::Wide]| {
                let (x_part, right) = lent.split_at_mut(copied);
                area.fill(&geometry, (done, count), x, channel(task), x_part);
                let (dy, pitch) = match stored {
                    Some(dy) => (&dy[first..], channels),
                    None => {
                        let from = dy[first..].chunks(channels);
                        for (to, from) in right.chunks_exact_mut(N).zip(from) {
                            T::widen_slice(&from[..N], to);
                        }
                        (&*right, N)
                    }
                };
                let (x, rows) = (&*x_part, &rows[..]);
                for (taps, sums) in taps.chunks(TAPS).zip(sums.chunks_mut(TAPS * N)) {
                    T::Wide::run(Products::<_, N> { x, rows, taps, dy, pitch, sums });
                }
            });
        }
    });
    let out = call.output::<T>(0)?;
    for (task, sums) in sums.chunks_exact(width * N).enumerate() {
        for (tap, sums) in sums.chunks_exact(N).enumerate() {
            let tap = task % (planes * lines) * width + tap;
            let tap = if geometry.window.flip { geometry.taps() - 1 - tap } else { tap };
            T::narrow_slice(sums, &mut out[tap * channels + channel(task)..][..N]);
        }
    }
    Ok(())
}

/// Adds to sums the products of rows of `N` channels with gradients of the output.
struct Products<'a, W, const N: usize> {
    x: &'a [W],
    rows: &'a [usize],
    taps: &'a [usize],
    dy: &'a [W],
    /// From a row of `dy` to the next.
    pitch: usize,
    sums: &'a mut [W],
}

impl<W: Wide, const N: usize> pulp::WithSimd for Products<'_, W, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Products { x, rows, taps, dy, pitch, sums } = self;
        let steps = rows.iter().zip(dy.chunks(pitch)).map(|(&row, dy)| (row, first::<W, N>(dy)));
        match (taps, sums.as_chunks_mut::<N>().0) {
            (&[a], [sa]) => {
                let mut now = *sa;
                for (row, dy) in steps {
                    add(&mut now, first(&x[row + a..]), dy);
                }
                *sa = now;
            }
            (&[a, b], [sa, sb]) => {
                let mut now = (*sa, *sb);
                for (row, dy) in steps {
                    add(&mut now.0, first(&x[row + a..]), dy);
                    add(&mut now.1, first(&x[row + b..]), dy);
                }
                (*sa, *sb) = now;
            }
            (&[a, b, c], [sa, sb, sc]) => {
                let mut now = (*sa, *sb, *sc);
                for (row, dy) in steps {
                    add(&mut now.0, first(&x[row + a..]), dy);
                    add(&mut now.1, first(&x[row + b..]), dy);
                    add(&mut now.2, first(&x[row + c..]), dy);
                }
                (*sa, *sb, *sc) = now;
            }
            _ => {}
        }
    }
}
