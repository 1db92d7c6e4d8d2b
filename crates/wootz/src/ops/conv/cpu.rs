//! Convolutions on the CPU: windows are multiplied with weights that were packed once, where they lie
//! if they can be; else they are gathered, a few at a time, into the rows of a matrix that stays in
//! the caches. Where every channel is a group of its own, it is a sum of rows.
//!
//! Zeros around the input are multiplied as well, so that NaN and infinities come out alike
//! everywhere. An element sums its products in the order of the window, whatever the cut.

use super::geometry::{Geometry, each_axis};
use crate::cpu::gemm::{Block, GemmElement};
use crate::cpu::simd::Vectorised;
use crate::cpu::simd::rows::{self, Float};
use crate::cpu::tile::{Storage, is_wide};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};

/// Elements that are computed in one of the float types.
trait Element: Storage<Wide: Wide> + Send + Sync {}
impl<T: Storage<Wide: Wide> + Send + Sync> Element for T {}

/// What elements are computed in.
trait Wide: GemmElement<Sum = Self> + Float + Vectorised + bytemuck::Pod {}
impl<T: GemmElement<Sum = T> + Float + Vectorised + bytemuck::Pod> Wide for T {}

/// Runs a kernel for the dtype of the call's first input.
macro_rules! for_dtype {
    ($call:expr, $kernel:ident($($argument:expr),*)) => {
        match $call.meta(0).dtype {
            crate::array::DType::F32 => $kernel::<f32>($call, $($argument),*),
            crate::array::DType::F64 => $kernel::<f64>($call, $($argument),*),
            crate::array::DType::F16 => $kernel::<half::f16>($call, $($argument),*),
            crate::array::DType::BF16 => $kernel::<half::bf16>($call, $($argument),*),
            other => {
                Err(Error::dtype($call.op.name(), "input", "a floating-point type", other))
            }
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    if call.output_meta(0).size() == 0 {
        return Ok(());
    }
    if geometry.depth() == 0 || call.meta(0).size() == 0 {
        // Nothing to sum, or zeros of the padding alone: zeros of every dtype are zero bytes.
        call.output::<u8>(0)?.fill(0);
        return Ok(());
    }
    if geometry.channels == 1 && geometry.outputs == 1 && geometry.window.groups >= NARROW {
        return for_dtype!(call, depthwise(geometry));
    }
    for_dtype!(call, products(geometry))
}

pub(super) fn backward_weight(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    if call.output_meta(0).size() == 0 {
        return Ok(());
    }
    if geometry.channels == 1 && geometry.outputs == 1 && geometry.window.groups >= NARROW {
        return for_dtype!(call, depthwise_weight(geometry));
    }
    for_dtype!(call, products_weight(geometry))
}

/// Columns of packed weights that are multiplied at once: a whole number of the widest tiles.
const PANEL: usize = 32;
/// The fewest columns: a whole number of the narrowest tiles.
const NARROW: usize = 8;
/// Products of a sum that are taken at once: with a panel's columns they stay in the first cache.
const DEPTH: usize = 192;
/// Elements of gathered windows: with the weights they stay in the second cache.
const GATHERED: usize = 1 << 16;
/// The longest line of windows that is not cut.
const LINE: usize = 1024;
/// Elements of a row of weights that are packed at once.
const PIECE: usize = 16;
/// Rows of the tallest tiles.
const ROWS: usize = 6;
/// Tasks to aim at.
const TASKS: usize = 64;

/// Windows of an input, as rows of a matrix.
struct Windows<'a, T> {
    x: &'a [T],
    geometry: &'a Geometry,
    distances: Vec<[isize; 3]>,
    /// Whether the elements of a window along the last axis are neighbours in memory.
    lines: bool,
}

impl<'a, T: Element> Windows<'a, T> {
    fn new(x: &'a [T], geometry: &'a Geometry) -> Windows<'a, T> {
        let window = &geometry.window;
        let lines = !window.flip
            && window.groups == 1
            && window.kernel_dilation[2] == 1
            && window.input_dilation[2] == 1
            && geometry.kernel[2] > 1;
        Windows { x, geometry, distances: geometry.tap_distances(), lines }
    }

    /// Where the channels for an element of the kernel lie; nowhere if there is a zero.
    #[inline(always)]
    fn tap(&self, (batch, start): (usize, [isize; 3]), tap: usize) -> Option<usize> {
        let by = self.distances[tap];
        let place = each_axis(|axis| start[axis] + by[axis]);
        Some(self.geometry.element(batch, place)? * self.geometry.all_channels())
    }

    /// Part `from..` of the row of a window, of one group.
    fn gather(&self, position: usize, group: usize, from: usize, to: &mut [T::Wide]) {
        let channels = self.geometry.channels;
        let window = self.geometry.position(position);
        if self.lines && from == 0 && to.len() == self.geometry.depth() {
            return self.gather_lines(window, to);
        }
        let (mut at, mut done) = (from, 0);
        while done < to.len() {
            let (tap, channel) = (at / channels, at % channels);
            let count = (channels - channel).min(to.len() - done);
            let place = &mut to[done..done + count];
            match self.tap(window, tap) {
                Some(first) => {
                    let first = first + group * channels + channel;
                    T::widen_slice(&self.x[first..first + count], place);
                }
                None => place.fill(T::Wide::ZERO),
            }
            at += count;
            done += count;
        }
    }

    /// A whole row, copied by lines of a window.
    fn gather_lines(&self, (batch, start): (usize, [isize; 3]), to: &mut [T::Wide]) {
        let (channels, width) = (self.geometry.channels, self.geometry.kernel[2]);
        let length = self.geometry.input[2] as isize;
        // Places of a line that are before the input, and up to the input's end.
        let before = (-start[2]).clamp(0, width as isize) as usize;
        let inside = (length - start[2]).clamp(before as isize, width as isize) as usize;
        for (line, to) in to.chunks_exact_mut(width * channels).enumerate() {
            let by = self.distances[line * width];
            let place = [start[0] + by[0], start[1] + by[1], start[2] + before as isize];
            let first = match inside > before {
                true => self.geometry.element(batch, place),
                false => None,
            };
            let Some(first) = first else {
                to.fill(T::Wide::ZERO);
                continue;
            };
            let (head, rest) = to.split_at_mut(before * channels);
            let (middle, tail) = rest.split_at_mut((inside - before) * channels);
            head.fill(T::Wide::ZERO);
            T::widen_slice(&self.x[first * channels..][..middle.len()], middle);
            tail.fill(T::Wide::ZERO);
        }
    }
}

/// Weights in panels of columns, one group after the other: element `(k, column)` of a panel
/// lies at `k * width + column`.
struct Packed<W> {
    data: Vec<W>,
    /// Columns of a panel.
    width: usize,
    /// Panels of a group.
    panels: usize,
    depth: usize,
}

impl<W: Wide> Packed<W> {
    fn new<T: Element<Wide = W>>(weight: &[T], geometry: &Geometry) -> Packed<W> {
        let (depth, outputs) = (geometry.depth(), geometry.outputs);
        let width = outputs.next_multiple_of(NARROW).min(PANEL);
        let panels = outputs.div_ceil(width);
        let mut data = vec![W::ZERO; geometry.window.groups * panels * depth * width];
        threads::chunks_mut(&mut data, depth * width, |panel, to| {
            let (group, first) = (panel / panels, panel % panels * width);
            // A few elements of every column at a time, so that what is written stays in a cache.
            let mut piece = [W::ZERO; PIECE];
            for start in (0..depth).step_by(PIECE) {
                let count = PIECE.min(depth - start);
                for column in 0..width.min(outputs - first) {
                    let row = (group * outputs + first + column) * depth + start;
                    T::widen_slice(&weight[row..row + count], &mut piece);
                    let lines = to[start * width..].chunks_exact_mut(width);
                    for (to, &weight) in lines.zip(&piece[..count]) {
                        to[column] = weight;
                    }
                }
            }
        });
        Packed { data, width, panels, depth }
    }

    /// From a row of sums to the next.
    fn pitch(&self) -> usize {
        self.width * self.panels
    }

    fn panel(&self, group: usize, panel: usize) -> &[W] {
        let size = self.depth * self.width;
        &self.data[(group * self.panels + panel) * size..][..size]
    }
}

fn products<T: Element>(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let x = call.input::<T>(0)?;
    let (windows, packed) = (Windows::new(x, geometry), Packed::new(call.input::<T>(1)?, geometry));
    // Elements that are stored as they are computed need not be gathered to be multiplied.
    let wide = is_wide(call.meta(0).dtype);
    let stored = if wide { bytemuck::try_cast_slice(x).ok() } else { None };
    let rows = Rows { windows: &windows, packed: &packed, stored };
    let (depth, outputs, all) = (geometry.depth(), geometry.outputs, geometry.all_outputs());
    let mut at_once = (GATHERED / depth).clamp(4 * ROWS, 32 * ROWS) / ROWS * ROWS;
    if rows.lie_in_input() && geometry.output[2] <= LINE {
        // A cut inside a line leaves tiles of few rows on both of its sides.
        at_once = at_once.next_multiple_of(geometry.output[2]);
    }
    let blocks = geometry.positions().div_ceil(at_once).div_ceil(TASKS);
    let pitch = packed.pitch();
    // Sums can live in the output.
    let dense = wide && geometry.window.groups == 1 && pitch == all;
    threads::chunks_mut(call.output::<T>(0)?, blocks * at_once * all, |task, out| {
        let mut apart = Apart {
            gathered: vec![T::Wide::ZERO; at_once * depth],
            sums: vec![T::Wide::ZERO; at_once * pitch],
            rows: Vec::with_capacity(at_once),
        };
        let mut sums = vec![T::Wide::ZERO; if dense { 0 } else { at_once * pitch }];
        for (block, out) in out.chunks_mut(at_once * all).enumerate() {
            let first = (task * blocks + block) * at_once;
            let count = out.len() / all;
            if dense && let Ok(out) = bytemuck::try_cast_slice_mut(out) {
                rows.multiply(first, count, 0, &mut apart, out);
                continue;
            }
            for group in 0..geometry.window.groups {
                rows.multiply(first, count, group, &mut apart, &mut sums);
                for (out, sums) in out.chunks_exact_mut(all).zip(sums.chunks_exact(pitch)) {
                    T::narrow_slice(&sums[..outputs], &mut out[group * outputs..][..outputs]);
                }
            }
        }
    });
    Ok(())
}

/// Windows to be multiplied with weights.
struct Rows<'a, T: Element> {
    windows: &'a Windows<'a, T>,
    packed: &'a Packed<T::Wide>,
    /// The input, if it is stored in the type it is computed in.
    stored: Option<&'a [T::Wide]>,
}

/// Windows of a block that are gathered: their elements, their sums, and which they are.
struct Apart<W> {
    gathered: Vec<W>,
    sums: Vec<W>,
    rows: Vec<usize>,
}

impl<T: Element> Rows<'_, T> {
    /// The products of `count` windows with the weights of a group. Neighbours whose elements all
    /// lie in the input are multiplied where they are, others are gathered and multiplied together.
    fn multiply(
        &self,
        first: usize,
        count: usize,
        group: usize,
        apart: &mut Apart<T::Wide>,
        sums: &mut [T::Wide],
    ) {
        let (depth, pitch) = (self.packed.depth, self.packed.pitch());
        apart.rows.clear();
        let mut done = 0;
        while done < count {
            let inside = self.inside(first + done, count - done);
            if inside > 0 {
                self.in_place(first + done, inside, &mut sums[done * pitch..]);
                done += inside;
                continue;
            }
            let to = &mut apart.gathered[apart.rows.len() * depth..][..depth];
            self.windows.gather(first + done, group, 0, to);
            apart.rows.push(done);
            done += 1;
        }
        if apart.rows.len() == count {
            return multiply(&apart.gathered, count, self.packed, group, sums);
        }
        multiply(&apart.gathered, apart.rows.len(), self.packed, group, &mut apart.sums);
        for (row, from) in apart.rows.iter().zip(apart.sums.chunks_exact(pitch)) {
            sums[row * pitch..][..pitch].copy_from_slice(from);
        }
    }

    /// Whether windows that are wholly in the input can be multiplied where they lie.
    fn lie_in_input(&self) -> bool {
        let window = &self.windows.geometry.window;
        self.stored.is_some()
            && window.groups == 1
            && !window.flip
            && window.kernel_dilation[2] == 1
            && window.input_dilation[2] == 1
    }

    /// How many windows from a position on lie wholly in the input and so that each line of a
    /// window is in one piece.
    fn inside(&self, position: usize, most: usize) -> usize {
        let Geometry { window, kernel, input, output, .. } = self.windows.geometry;
        if !self.lie_in_input() {
            return 0;
        }
        let (batch, start) = self.windows.geometry.position(position);
        let lines =
            (0..kernel[0] * kernel[1]).all(|line| self.line((batch, start), line).is_some());
        let Ok(from) = usize::try_from(start[2]) else { return 0 };
        if !lines || from + kernel[2] > input[2] {
            return 0;
        }
        let in_line = (input[2] - kernel[2] - from) / window.stride[2] + 1;
        in_line.min(output[2] - position % output[2]).min(most)
    }

    /// Where a line of a window begins.
    fn line(&self, window: (usize, [isize; 3]), line: usize) -> Option<usize> {
        self.windows.tap(window, line * self.windows.geometry.kernel[2])
    }

    /// The products of windows that lie in the input.
    fn in_place(&self, position: usize, m: usize, sums: &mut [T::Wide]) {
        let geometry = self.windows.geometry;
        let Some(x) = self.stored else { return };
        let (width, panels) = (self.packed.width, self.packed.panels);
        let (window, along) = (geometry.position(position), geometry.kernel[2] * geometry.channels);
        for line in 0..geometry.kernel[0] * geometry.kernel[1] {
            let Some(first) = self.line(window, line) else { return };
            for start in (0..along).step_by(DEPTH) {
                for panel in 0..panels {
                    let product = Block {
                        m,
                        n: width,
                        k: DEPTH.min(along - start),
                        a: &x[first + start..],
                        a_rows: geometry.window.stride[2] * geometry.channels,
                        a_columns: 1,
                        b: &self.packed.panel(0, panel)[(line * along + start) * width..],
                        b_rows: width,
                    };
                    let to = &mut sums[panel * width..];
                    product.write(to, width * panels, line > 0 || start > 0);
                }
            }
        }
    }
}

/// The products of gathered windows with the weights of a group.
fn multiply<W: Wide>(gathered: &[W], m: usize, packed: &Packed<W>, group: usize, sums: &mut [W]) {
    let (width, panels, depth) = (packed.width, packed.panels, packed.depth);
    for start in (0..depth).step_by(DEPTH) {
        for panel in 0..panels {
            let product = Block {
                m,
                n: width,
                k: DEPTH.min(depth - start),
                a: &gathered[start..],
                a_rows: depth,
                a_columns: 1,
                b: &packed.panel(group, panel)[start * width..],
                b_rows: width,
            };
            product.write(&mut sums[panel * width..], width * panels, start > 0);
        }
    }
}

/// Rows of the gradient of weights in a task, and windows that are gathered for them at once.
const SLICE: usize = 16 * ROWS;
const GATHERED_ROWS: usize = 128;

fn products_weight<T: Element>(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let windows = Windows::new(call.input::<T>(0)?, geometry);
    let dy = call.input::<T>(1)?;
    let (outputs, all) = (geometry.outputs, geometry.all_outputs());
    let (depth, positions) = (geometry.depth(), geometry.positions());
    let width = outputs.next_multiple_of(NARROW);
    let slice = depth.div_ceil(depth.div_ceil(SLICE));
    let out = call.output::<T>(0)?;
    threads::chunks_mut(out, slice * all, |task, out| {
        let rows = out.len() / all;
        let mut gathered = vec![T::Wide::ZERO; GATHERED_ROWS * rows];
        let mut right = vec![T::Wide::ZERO; GATHERED_ROWS * width];
        let mut sums = vec![T::Wide::ZERO; rows * width];
        for group in 0..geometry.window.groups {
            sums.fill(T::Wide::ZERO);
            for first in (0..positions).step_by(GATHERED_ROWS) {
                let count = GATHERED_ROWS.min(positions - first);
                for i in 0..count {
                    let to = &mut gathered[i * rows..(i + 1) * rows];
                    windows.gather(first + i, group, task * slice, to);
                    let from = &dy[(first + i) * all + group * outputs..][..outputs];
                    T::widen_slice(from, &mut right[i * width..][..outputs]);
                }
                let product = Block {
                    m: rows,
                    n: width,
                    k: count,
                    a: &gathered,
                    a_rows: 1,
                    a_columns: rows,
                    b: &right,
                    b_rows: width,
                };
                product.write(&mut sums, width, true);
            }
            for (row, sums) in sums.chunks_exact(width).enumerate() {
                let to = &mut out[row * all + group * outputs..][..outputs];
                T::narrow_slice(&sums[..outputs], to);
            }
        }
    });
    Ok(())
}

/// Every channel convolved by itself.
fn depthwise<T: Element>(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let windows = Windows::new(call.input::<T>(0)?, geometry);
    let (channels, taps) = (geometry.all_channels(), geometry.taps());
    // Weights of a tap side by side, as channels are.
    let mut weights = vec![T::Wide::ZERO; taps * channels];
    for (i, &weight) in call.input::<T>(1)?.iter().enumerate() {
        weights[i % taps * channels + i / taps] = weight.widen();
    }
    let each = rows::per_task(geometry.positions(), channels * taps.max(1));
    threads::chunks_mut(call.output::<T>(0)?, each * channels, |task, out| {
        let mut sums = vec![T::Wide::ZERO; channels];
        let mut row = vec![T::Wide::ZERO; channels];
        for (i, out) in out.chunks_exact_mut(channels).enumerate() {
            let window = geometry.position(task * each + i);
            sums.fill(T::Wide::ZERO);
            for (tap, weights) in weights.chunks_exact(channels).enumerate() {
                match windows.tap(window, tap) {
                    Some(first) => T::widen_slice(&windows.x[first..first + channels], &mut row),
                    None => row.fill(T::Wide::ZERO),
                }
                T::Wide::run(AddProducts { sums: &mut sums, a: &row, b: weights });
            }
            T::narrow_slice(&sums, out);
        }
    });
    Ok(())
}

/// The gradient of weights where every channel is convolved by itself.
fn depthwise_weight<T: Element>(call: &mut CpuCall<'_>, geometry: &Geometry) -> Result<()> {
    let windows = Windows::new(call.input::<T>(0)?, geometry);
    let (dy, channels) = (call.input::<T>(1)?, geometry.all_channels());
    threads::chunks_mut(call.output::<T>(0)?, channels, |tap, out| {
        let mut sums = vec![T::Wide::ZERO; channels];
        let (mut row, mut right) = (sums.clone(), sums.clone());
        for (position, dy) in dy.chunks_exact(channels).enumerate() {
            match windows.tap(geometry.position(position), tap) {
                Some(first) => T::widen_slice(&windows.x[first..first + channels], &mut row),
                None => row.fill(T::Wide::ZERO),
            }
            T::widen_slice(dy, &mut right);
            T::Wide::run(AddProducts { sums: &mut sums, a: &row, b: &right });
        }
        T::narrow_slice(&sums, out);
    });
    Ok(())
}

/// Adds the products of two rows to a row of sums.
struct AddProducts<'a, W> {
    sums: &'a mut [W],
    a: &'a [W],
    b: &'a [W],
}

impl<W: Wide> pulp::WithSimd for AddProducts<'_, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        for ((sum, &a), &b) in self.sums.iter_mut().zip(self.a).zip(self.b) {
            *sum = *sum + a * b;
        }
    }
}
