//! Convolutions with windows of 3 × 3, by Winograd's F(2 × 2, 3 × 3): what four outputs need of a channel are 16
//! products of transformed inputs and weights instead of 36. Transforms only add and halve, so little
//! is lost; but an infinity spoils its neighbours, so that whoever gets a result that is not finite computes all of it
//! in the plain way.
//!
//! An output depends on the tile it lies in, and tiles lie where shapes say: how work is cut changes no bit.

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::geometry::Geometry;
use super::area::lend;
use super::{Element, NARROW};
use crate::cpu::gemm::Strip;
use crate::cpu::simd::Vectorised;
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Products of a tile and channel.
const POINTS: usize = 16;
/// Outputs along each side of a tile, and inputs.
const SIDE: usize = 2;
const REACH: usize = 4;
/// The fewest channels, outputs and tiles of an image for which transforms pay.
const FEWEST_CHANNELS: usize = 16;
const FEWEST_TILES: usize = 25;
/// Columns of transformed weights that are multiplied at once: a whole number of the widest tiles.
const PANEL: usize = 32;
/// Elements of a row of weights that are transformed at once.
const PIECE: usize = 16;
/// Numbers of transformed inputs and products that are kept at once: they stay in a near cache.
const KEPT: usize = 1 << 17;
/// Tiles that are multiplied at once: a multiple of what register tiles of any processor take.
const TILES: [usize; 2] = [56, 252];
/// Numbers between transformed tiles beside their own: neighbours fall into different places of a cache.
const APART: usize = 16;
/// Tasks to aim at for each thread.
const TASKS: usize = 8;

/// Whether a convolution is one of these, and large enough.
pub(super) fn fits(geometry: &Geometry) -> bool {
    let window = &geometry.window;
    let (lines, columns) = tiles(geometry);
    geometry.kernel == [1, 3, 3]
        && (geometry.input[0], geometry.output[0], window.low[0]) == (1, 1, 0)
        && window.stride == [1; 3]
        && window.kernel_dilation == [1; 3]
        && window.input_dilation == [1; 3]
        && window.groups == 1
        && geometry.channels.min(geometry.outputs) >= FEWEST_CHANNELS
        && lines * columns >= FEWEST_TILES
}

/// Lines of tiles in an image, and tiles in a line.
fn tiles(geometry: &Geometry) -> (usize, usize) {
    (geometry.output[1].div_ceil(SIDE), geometry.output[2].div_ceil(SIDE))
}

/// Computes the convolution; whether every result is finite. If not, some may be wrong.
pub(super) fn winograd<T: Element<Wide = f32>>(
    call: &mut CpuCall<'_>,
    geometry: &Geometry,
) -> Result<bool> {
    let x = call.input::<T>(0)?;
    let weights = Weights::new(call.input::<T>(1)?, geometry);
    let (lines, columns) = tiles(geometry);
    let [_, rows, width] = geometry.output;
    let outputs = geometry.outputs;
    let out = call.output::<T>(0)?;
    // Some lines of tiles of an image each: as many as share the work out, and enough to be multiplied together.
    let wanted = (geometry.batch * lines).div_ceil(TASKS * threads::threads());
    let wanted = wanted.max(TILES[0].div_ceil(columns)).min(lines);
    let mut parts = Vec::with_capacity(geometry.batch * lines.div_ceil(wanted));
    for (image, mut out) in out.chunks_exact_mut(rows * width * outputs).enumerate() {
        for first in (0..lines).step_by(wanted) {
            let count = (wanted * SIDE).min(rows - first * SIDE) * width * outputs;
            let (own, rest) = out.split_at_mut(count);
            parts.push(Part { image, first, lines: wanted.min(lines - first), out: own });
            out = rest;
        }
    }
    let finite = AtomicBool::new(true);
    threads::chunks_mut(&mut parts, 1, |_, parts| {
        for part in parts {
            if !part.compute(geometry, x, &weights) {
                finite.store(false, Ordering::Relaxed);
            }
        }
    });
    Ok(finite.into_inner())
}

/// Transformed weights: panels of columns, one behind the other, each with a matrix of channels × columns for every point.
struct Weights {
    data: Vec<f32>,
    /// Columns of all panels.
    pitch: usize,
    channels: usize,
}

impl Weights {
    fn new<T: Element<Wide = f32>>(weight: &[T], geometry: &Geometry) -> Weights {
        let (channels, outputs) = (geometry.channels, geometry.outputs);
        let pitch = outputs.next_multiple_of(NARROW);
        let taps = geometry.taps();
        let mut data = vec![0.0; POINTS * channels * pitch];
        threads::chunks_mut(&mut data, POINTS * channels * PANEL, |number, to| {
            let (first, width) = (number * PANEL, to.len() / (POINTS * channels));
            let mut piece = [[0.0; PIECE]; 9];
            for channel in (0..channels).step_by(PIECE) {
                let count = PIECE.min(channels - channel);
                for column in 0..width.min(outputs - first) {
                    for tap in 0..taps {
                        let place = if geometry.window.flip { taps - 1 - tap } else { tap };
                        let from = ((first + column) * taps + tap) * channels + channel;
                        T::widen_slice(&weight[from..from + count], &mut piece[place]);
                    }
                    for i in 0..count {
                        let points = transformed_weights(piece.map(|tap| tap[i]));
                        for (point, value) in points.into_iter().enumerate() {
                            to[(point * channels + channel + i) * width + column] = value;
                        }
                    }
                }
            }
        });
        Weights { data, pitch, channels }
    }

    /// The matrix of a point for the panel that begins at a column, and its width.
    fn panel(&self, point: usize, column: usize) -> (&[f32], usize) {
        let width = PANEL.min(self.pitch - column);
        let first = (column * POINTS + point * width) * self.channels;
        (&self.data[first..][..self.channels * width], width)
    }
}

/// `G g Gᵀ` with `G` = 1 0 0, ½ ½ ½, ½ -½ ½, 0 0 1.
fn transformed_weights(g: [f32; 9]) -> [f32; POINTS] {
    let three = |a: f32, b: f32, c: f32| {
        let (ends, middle) = (0.5 * (a + c), 0.5 * b);
        [a, ends + middle, ends - middle, c]
    };
    let columns: [[f32; 4]; 3] = std::array::from_fn(|j| three(g[j], g[3 + j], g[6 + j]));
    let mut points = [0.0; POINTS];
    for i in 0..REACH {
        let line = three(columns[0][i], columns[1][i], columns[2][i]);
        points[i * REACH..][..REACH].copy_from_slice(&line);
    }
    points
}

/// Some lines of tiles of an image, and where their outputs go.
struct Part<'a, T> {
    image: usize,
    first: usize,
    lines: usize,
    out: &'a mut [T],
}

impl<T: Element<Wide = f32>> Part<'_, T> {
    /// Whether all results are finite.
    fn compute(&mut self, geometry: &Geometry, x: &[T], weights: &Weights) -> bool {
        let (channels, pitch) = (geometry.channels, weights.pitch);
        let (inputs_apart, products_apart) = (POINTS * channels + APART, POINTS * pitch + APART);
        let columns = tiles(geometry).1;
        let most = (KEPT / (inputs_apart + products_apart)).clamp(TILES[0], TILES[1]);
        let most = most.min(self.lines * columns);
        // Inputs of a tile, of which those beyond the image stay zeros.
        let scratch = REACH * REACH * channels + SIDE * SIDE * pitch;
        let rows: Vec<usize> = (0..most).map(|tile| tile * inputs_apart).collect();
        lend(most * (inputs_apart + products_apart) + scratch, |lent: &mut [f32]| {
            let (inputs, rest) = lent.split_at_mut(most * inputs_apart);
            let (products, rest) = rest.split_at_mut(most * products_apart);
            let (window, results) = rest.split_at_mut(REACH * REACH * channels);
            let mut largest = 0;
            for start in (0..self.lines * columns).step_by(most) {
                let count = most.min(self.lines * columns - start);
                for (tile, to) in (start..start + count).zip(inputs.chunks_exact_mut(inputs_apart))
                {
                    let place = [self.first + tile / columns, tile % columns];
                    copy_window(geometry, x, self.image, place, window);
                    f32::run(Inputs { window, channels, to });
                }
                for point in 0..POINTS {
                    for column in (0..pitch).step_by(PANEL) {
                        let (b, n) = weights.panel(point, column);
                        let strip = Strip {
                            a: &inputs[point * channels..],
                            rows: &rows[..count],
                            pieces: &[0],
                            along: channels,
                            b,
                            n,
                        };
                        let to = &mut products[point * pitch + column..];
                        strip.write(to, products_apart, false);
                    }
                }
                for (tile, from) in
                    (start..start + count).zip(products.chunks_exact(products_apart))
                {
                    largest = largest.max(f32::run(Outputs { from, pitch, to: results }));
                    self.store(geometry, [tile / columns, tile % columns], results, pitch);
                }
            }
            // Bits of floats without their sign are in the order of their sizes, and NaN is the largest.
            largest < f32::INFINITY.to_bits()
        })
    }

    /// Stores those of a tile's results that there are.
    fn store(
        &mut self,
        geometry: &Geometry,
        [line, column]: [usize; 2],
        from: &[f32],
        pitch: usize,
    ) {
        let ([_, _, width], outputs) = (geometry.output, geometry.outputs);
        let lines = self.out.len() / (width * outputs);
        for (i, from) in from.chunks_exact(pitch).enumerate() {
            let (line, column) = (line * SIDE + i / SIDE, column * SIDE + i % SIDE);
            if line < lines && column < width {
                let to = &mut self.out[(line * width + column) * outputs..][..outputs];
                T::narrow_slice(&from[..outputs], to);
            }
        }
    }
}

/// Copies what the tile at a line and column looks at, with zeros for what lies beyond the image.
fn copy_window<T: Element<Wide = f32>>(
    geometry: &Geometry,
    x: &[T],
    image: usize,
    [line, column]: [usize; 2],
    to: &mut [f32],
) {
    let ([_, lines, width], low, channels) =
        (geometry.input, geometry.window.low, geometry.channels);
    let top = (line * SIDE) as isize - low[1];
    let left = (column * SIDE) as isize - low[2];
    // Places before the image, and up to its end.
    let before = (-left).clamp(0, REACH as isize) as usize;
    let inside = (width as isize - left).clamp(before as isize, REACH as isize) as usize;
    for (i, to) in to.chunks_exact_mut(REACH * channels).enumerate() {
        let line = usize::try_from(top + i as isize).ok().filter(|&line| line < lines);
        let Some(line) = line.filter(|_| inside > before) else {
            to.fill(0.0);
            continue;
        };
        let (head, rest) = to.split_at_mut(before * channels);
        let (middle, tail) = rest.split_at_mut((inside - before) * channels);
        head.fill(0.0);
        tail.fill(0.0);
        let column = (left + before as isize) as usize;
        let from = ((image * lines + line) * width + column) * channels;
        T::widen_slice(&x[from..from + middle.len()], middle);
    }
}

/// Transforms the inputs of a tile: `Bᵀ d B` with `Bᵀ` = 1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1.
struct Inputs<'a> {
    window: &'a [f32],
    channels: usize,
    to: &'a mut [f32],
}

/// Sums a tile's products to its results: `Aᵀ m A` with `Aᵀ` = 1 1 1 0, 0 1 -1 -1; gives the largest bits of any
/// result without its sign.
struct Outputs<'a> {
    from: &'a [f32],
    pitch: usize,
    to: &'a mut [f32],
}

/// What [`Inputs`] does to four values.
macro_rules! four {
    ($simd:expr, $d:expr) => {{
        let [a, b, c, d] = $d;
        [$simd.sub_f32s(a, c), $simd.add_f32s(b, c), $simd.sub_f32s(c, b), $simd.sub_f32s(b, d)]
    }};
}

/// What [`Outputs`] does to four values.
macro_rules! two {
    ($simd:expr, $m:expr) => {{
        let [a, b, c, d] = $m;
        let first = $simd.add_f32s($simd.add_f32s(a, b), c);
        [first, $simd.sub_f32s($simd.sub_f32s(b, c), d)]
    }};
}

// Loops are written out, because closures would be compiled without the instruction set.
impl pulp::WithSimd for Inputs<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) {
        let Inputs { window, channels, to } = self;
        for channel in (0..channels).step_by(S::F32_LANES) {
            let lanes = S::F32_LANES.min(channels - channel);
            let mut lines = [[simd.splat_f32s(0.0); REACH]; REACH];
            for j in 0..REACH {
                let mut column = [simd.splat_f32s(0.0); REACH];
                for (i, value) in column.iter_mut().enumerate() {
                    let at = (i * REACH + j) * channels + channel;
                    *value = simd.partial_load_f32s(&window[at..at + lanes]);
                }
                let column = four!(simd, column);
                for i in 0..REACH {
                    lines[i][j] = column[i];
                }
            }
            for (i, line) in lines.into_iter().enumerate() {
                for (j, value) in four!(simd, line).into_iter().enumerate() {
                    let at = (i * REACH + j) * channels + channel;
                    simd.partial_store_f32s(&mut to[at..at + lanes], value);
                }
            }
        }
    }
}

impl pulp::WithSimd for Outputs<'_> {
    type Output = u32;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) -> u32 {
        let Outputs { from, pitch, to } = self;
        let mut largest = 0;
        for first in (0..pitch).step_by(S::F32_LANES) {
            let lanes = S::F32_LANES.min(pitch - first);
            let mut lines = [[simd.splat_f32s(0.0); REACH]; SIDE];
            for j in 0..REACH {
                let mut column = [simd.splat_f32s(0.0); REACH];
                for (i, value) in column.iter_mut().enumerate() {
                    let at = (i * REACH + j) * pitch + first;
                    *value = simd.partial_load_f32s(&from[at..at + lanes]);
                }
                let column = two!(simd, column);
                for i in 0..SIDE {
                    lines[i][j] = column[i];
                }
            }
            for (i, line) in lines.into_iter().enumerate() {
                for (j, value) in two!(simd, line).into_iter().enumerate() {
                    let at = (i * SIDE + j) * pitch + first;
                    simd.partial_store_f32s(&mut to[at..at + lanes], value);
                }
            }
        }
        for value in &*to {
            largest = largest.max(value.to_bits() & !(1 << 31));
        }
        largest
    }
}
