//! Selective scans on the CPU. A task has a vector of channels and walks through the steps with their states, so
//! that sums over a state need no sum over a vector. Results leave by chunks of steps: what tasks write lies
//! side by side in memory.

use std::borrow::Cow;

use super::op::{CHUNK, SelectiveScan, Sizes};
use crate::cpu::simd::rows::{Float, LANES, Lanes};
use crate::cpu::simd::{Real, Vectorised};
use crate::cpu::{CpuCall, CpuOutput, threads, typed};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::ops::state_space::{Element, Wide, for_dtype, widened};

pub(super) fn forward(call: &mut CpuCall<'_>, op: SelectiveScan) -> Result<()> {
    for_dtype!(call, forward_as(op))
}

pub(super) fn backward(call: &mut CpuCall<'_>, stated: bool) -> Result<()> {
    for_dtype!(call, backward_as(stated))
}

/// A number for each channel of a task.
type Tile<W> = [W; LANES];

/// What tasks read.
struct Inputs<'a, T: Element> {
    sizes: Sizes,
    x: &'a [T],
    dt: &'a [T],
    b: &'a [T],
    c: &'a [T],
    /// For each block of channels a tile for each number of a state.
    a: Vec<Tile<T::Wide>>,
}

impl<'a, T: Element> Inputs<'a, T> {
    fn new(call: &CpuCall<'a>) -> Result<Inputs<'a, T>> {
        let sizes = Sizes::new(call.meta(0), call.meta(2));
        Ok(Inputs {
            sizes,
            x: call.input(0)?,
            dt: call.input(1)?,
            b: call.input(3)?,
            c: call.input(4)?,
            a: tiled(&numbers::<T>(call, 2)?, sizes, sizes.size),
        })
    }

    fn blocks(&self) -> usize {
        self.sizes.channels.div_ceil(LANES)
    }

    fn tasks(&self) -> usize {
        self.sizes.batch * self.blocks()
    }

    /// The rates of a task's channels.
    fn rates(&self, task: usize) -> &[Tile<T::Wide>] {
        let (block, size) = (task % self.blocks(), self.sizes.size);
        &self.a[block * size..(block + 1) * size]
    }

    /// The row of a task's step.
    fn row(&self, task: usize, step: usize) -> usize {
        task / self.blocks() * self.sizes.steps + step
    }

    /// A task's channels of a row; zeros where there are fewer.
    #[inline(always)]
    fn tile(&self, from: &[T], task: usize, row: usize) -> Tile<T::Wide> {
        let (channels, first) = (self.sizes.channels, task % self.blocks() * LANES);
        let mut tile = [T::Wide::ZERO; LANES];
        let row = &from[row * channels..(row + 1) * channels];
        T::widen_slice(&row[first..channels.min(first + LANES)], &mut tile);
        tile
    }

    /// What belongs to a step: a number for each of a state.
    #[inline(always)]
    fn of_states(&self, from: &'a [T], row: usize) -> &'a [T] {
        &from[row * self.sizes.size..(row + 1) * self.sizes.size]
    }
}

/// An input of either dtype in the dtype of sums.
fn numbers<'a, T: Element>(call: &CpuCall<'a>, input: usize) -> Result<Cow<'a, [T::Wide]>> {
    match call.meta(input).dtype == call.meta(0).dtype {
        true => Ok(Cow::Owned(widened(call.input::<T>(input)?))),
        false => Ok(Cow::Borrowed(call.input::<T::Wide>(input)?)),
    }
}

/// Rows of `size` numbers for each channel, once or for each of a batch, as tiles of each block of channels.
fn tiled<W: Wide>(rows: &[W], sizes: Sizes, size: usize) -> Vec<Tile<W>> {
    let channels = sizes.channels;
    let batch = rows.len() / (channels * size);
    let blocks = channels.div_ceil(LANES);
    let mut tiles = vec![[W::ZERO; LANES]; batch * blocks * size];
    for (row, numbers) in rows.chunks_exact(size).enumerate() {
        let (batch, channel) = (row / channels, row % channels);
        let first = (batch * blocks + channel / LANES) * size;
        for (tile, &number) in tiles[first..first + size].iter_mut().zip(numbers) {
            tile[channel % LANES] = number;
        }
    }
    tiles
}

/// The other way round.
fn untiled<W: Wide>(tiles: &[Tile<W>], sizes: Sizes, rows: &mut [W]) {
    let Sizes { channels, size, .. } = sizes;
    let blocks = channels.div_ceil(LANES);
    for (row, numbers) in rows.chunks_exact_mut(size).enumerate() {
        let (batch, channel) = (row / channels, row % channels);
        let first = (batch * blocks + channel / LANES) * size;
        for (number, tile) in numbers.iter_mut().zip(&tiles[first..]) {
            *number = tile[channel % LANES];
        }
    }
}

/// Writes rows of all channels, of some steps of one of a batch. Tasks' tiles of it are `pitch` apart.
fn write_rows<T: Element>(tiles: &[Tile<T::Wide>], pitch: usize, channels: usize, to: &mut [T]) {
    threads::chunks_mut(to, channels, |step, row| {
        for (block, row) in row.chunks_mut(LANES).enumerate() {
            T::narrow_slice(&tiles[block * pitch + step][..row.len()], row);
        }
    });
}

fn forward_as<T: Element>(call: &mut CpuCall<'_>, op: SelectiveScan) -> Result<()> {
    let inputs = Inputs::<T>::new(call)?;
    let Sizes { batch, steps, channels, size } = inputs.sizes;
    let skips = match op.d() {
        Some(input) => Some(tiled(&numbers::<T>(call, input)?, inputs.sizes, 1)),
        None => None,
    };
    let mut states = starting::<T>(call, op.state(), &inputs)?;
    let mut results = vec![[T::Wide::ZERO; LANES]; inputs.tasks() * CHUNK];
    let (y, next) = call.outputs2::<T, T::Wide>()?;
    for first in (0..steps).step_by(CHUNK) {
        let count = CHUNK.min(steps - first);
        threads::chunks2_mut(&mut states, size, &mut results, CHUNK, |task, states, results| {
            let skip = skips.as_ref().map(|skips| skips[task % inputs.blocks()]);
            let results = &mut results[..count];
            T::Wide::run(Walk { inputs: &inputs, task, first, skip, states, results });
        });
        let of_batch = inputs.blocks() * CHUNK;
        for batch in 0..batch {
            let to = &mut y[(batch * steps + first) * channels..][..count * channels];
            write_rows(&results[batch * of_batch..][..of_batch], CHUNK, channels, to);
        }
    }
    untiled(&states, inputs.sizes, next);
    Ok(())
}

/// The states before the first step.
fn starting<T: Element>(
    call: &CpuCall<'_>,
    state: Option<usize>,
    inputs: &Inputs<'_, T>,
) -> Result<Vec<Tile<T::Wide>>> {
    let size = inputs.sizes.size;
    match state {
        Some(input) => Ok(tiled(&numbers::<T>(call, input)?, inputs.sizes, size)),
        None => Ok(vec![[T::Wide::ZERO; LANES]; inputs.tasks() * size]),
    }
}

/// Some steps of a task: their results, and the states behind them.
struct Walk<'a, T: Element> {
    inputs: &'a Inputs<'a, T>,
    task: usize,
    first: usize,
    skip: Option<Tile<T::Wide>>,
    states: &'a mut [Tile<T::Wide>],
    results: &'a mut [Tile<T::Wide>],
}

impl<T: Element> pulp::WithSimd for Walk<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Walk { inputs, task, first, skip, states, results } = self;
        let rates = inputs.rates(task);
        for (step, result) in results.iter_mut().enumerate() {
            let row = inputs.row(task, first + step);
            let (x, dt) = (inputs.tile(inputs.x, task, row), inputs.tile(inputs.dt, task, row));
            let (b, c) = (inputs.of_states(inputs.b, row), inputs.of_states(inputs.c, row));
            let mut sums = [T::Wide::ZERO; LANES];
            let mut learnt = [T::Wide::ZERO; LANES];
            for lane in 0..LANES {
                learnt[lane] = dt[lane] * x[lane];
            }
            for (((state, rate), b), c) in states.iter_mut().zip(rates).zip(b).zip(c) {
                let (b, c) = (b.widen(), c.widen());
                for lane in 0..LANES {
                    let decay = Real::exp(dt[lane] * rate[lane]);
                    state[lane] = decay * state[lane] + learnt[lane] * b;
                    sums[lane] = sums[lane] + state[lane] * c;
                }
            }
            if let Some(skip) = &skip {
                for lane in 0..LANES {
                    sums[lane] = sums[lane] + skip[lane] * x[lane];
                }
            }
            *result = sums;
        }
    }
}

fn backward_as<T: Element>(call: &mut CpuCall<'_>, stated: bool) -> Result<()> {
    let inputs = Inputs::<T>::new(call)?;
    let Sizes { batch, steps, channels, size } = inputs.sizes;
    let given = 5 + stated as usize;
    let dy = call.input::<T>(given)?;
    let (chunks, blocks) = (steps.div_ceil(CHUNK), inputs.blocks());
    // The states before each chunk.
    let states = starting::<T>(call, stated.then_some(5), &inputs)?;
    let mut starts = vec![[T::Wide::ZERO; LANES]; inputs.tasks() * chunks * size];
    threads::chunks_mut(&mut starts, chunks * size, |task, starts| {
        let mut states = states[task * size..(task + 1) * size].to_vec();
        let mut results = [[T::Wide::ZERO; LANES]; CHUNK];
        for (chunk, start) in starts.chunks_exact_mut(size).enumerate() {
            start.copy_from_slice(&states);
            let (states, results) = (&mut states[..], &mut results[..]);
            let first = chunk * CHUNK;
            if first + CHUNK < steps {
                T::Wide::run(Walk { inputs: &inputs, task, first, skip: None, states, results });
            }
        }
    });
    let slopes = tiled(&numbers::<T>(call, given + 1)?, inputs.sizes, size);
    let mut parts: Vec<Part<T::Wide>> = slopes.chunks_exact(size).map(Part::new).collect();
    let op = call.op;
    let [dx, ddt, da, db, dc, rest @ ..] = &mut call.outputs[..] else {
        return Err(Error::argument(op.name(), "outputs", "five arrays", "fewer"));
    };
    let (dx, ddt) = (typed::<T>(op, dx.bytes)?, typed::<T>(op, ddt.bytes)?);
    let (db, dc) = (typed::<T>(op, db.bytes)?, typed::<T>(op, dc.bytes)?);
    let mut sums = vec![T::Wide::ZERO; CHUNK * size];
    for chunk in (0..chunks).rev() {
        let first = chunk * CHUNK;
        let count = CHUNK.min(steps - first);
        threads::chunks_mut(&mut parts, 1, |task, parts| {
            let start = &starts[(task * chunks + chunk) * size..][..size];
            for part in parts {
                T::Wide::run(Gradients { inputs: &inputs, dy, task, first, count, start, part });
            }
        });
        for (batch, parts) in parts.chunks_exact(blocks).enumerate() {
            let rows = batch * steps + first;
            let to = rows * channels..(rows + count) * channels;
            threads::chunks2_mut(
                &mut dx[to.clone()],
                channels,
                &mut ddt[to],
                channels,
                |step, dx, ddt| {
                    let tiles = dx.chunks_mut(LANES).zip(ddt.chunks_mut(LANES));
                    for ((dx, ddt), part) in tiles.zip(parts) {
                        T::narrow_slice(&part.dx[step][..dx.len()], dx);
                        T::narrow_slice(&part.ddt[step][..ddt.len()], ddt);
                    }
                },
            );
            let to = rows * size..(rows + count) * size;
            let mut add = |of: fn(&Part<T::Wide>) -> &[T::Wide], to: &mut [T]| {
                let sums = &mut sums[..count * size];
                sums.fill(T::Wide::ZERO);
                for part in parts {
                    sums.iter_mut().zip(of(part)).for_each(|(sum, &value)| *sum = *sum + value);
                }
                T::narrow_slice(sums, to);
            };
            add(|part| &part.db, &mut db[to.clone()]);
            add(|part| &part.dc, &mut dc[to]);
        }
    }
    // The gradients of rates are sums over the batch.
    let mut rates = vec![[T::Wide::ZERO; LANES]; blocks * size];
    for parts in parts.chunks_exact(blocks) {
        let from = parts.iter().flat_map(|part| &part.da);
        for (sums, values) in rates.iter_mut().zip(from) {
            sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum = *sum + value);
        }
    }
    let mut numbers = vec![T::Wide::ZERO; channels * size];
    untiled(&rates, inputs.sizes, &mut numbers);
    store::<T>(op, &numbers, da)?;
    if let [dstate, ..] = rest {
        let slopes: Vec<Tile<T::Wide>> =
            parts.iter().flat_map(|part| part.slopes.iter().copied()).collect();
        let mut numbers = vec![T::Wide::ZERO; batch * channels * size];
        untiled(&slopes, inputs.sizes, &mut numbers);
        store::<T>(op, &numbers, dstate)?;
    }
    Ok(())
}

/// Writes numbers in either dtype.
fn store<T: Element>(op: &dyn Op, numbers: &[T::Wide], output: &mut CpuOutput<'_>) -> Result<()> {
    if output.bytes.len() == size_of_val(numbers) {
        typed::<T::Wide>(op, output.bytes)?.copy_from_slice(numbers);
    } else {
        T::narrow_slice(numbers, typed::<T>(op, output.bytes)?);
    }
    Ok(())
}

/// A task's gradients: of its states and rates so far, and of the inputs of a chunk.
struct Part<W> {
    slopes: Vec<Tile<W>>,
    da: Vec<Tile<W>>,
    dx: Vec<Tile<W>>,
    ddt: Vec<Tile<W>>,
    /// Sums over the task's channels.
    db: Vec<W>,
    dc: Vec<W>,
}

impl<W: Wide> Part<W> {
    fn new(slopes: &[Tile<W>]) -> Part<W> {
        let (tile, size) = ([W::ZERO; LANES], slopes.len());
        Part {
            slopes: slopes.to_vec(),
            da: vec![tile; size],
            dx: vec![tile; CHUNK],
            ddt: vec![tile; CHUNK],
            db: vec![W::ZERO; CHUNK * size],
            dc: vec![W::ZERO; CHUNK * size],
        }
    }
}

/// A chunk's gradients of a task, given the states before it.
struct Gradients<'a, T: Element> {
    inputs: &'a Inputs<'a, T>,
    dy: &'a [T],
    task: usize,
    first: usize,
    count: usize,
    start: &'a [Tile<T::Wide>],
    part: &'a mut Part<T::Wide>,
}

impl<T: Element> pulp::WithSimd for Gradients<'_, T> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Gradients { inputs, dy, task, first, count, start, part } = self;
        let Part { slopes, da, dx, ddt, db, dc } = part;
        let (rates, size) = (inputs.rates(task), inputs.sizes.size);
        let channels = (inputs.sizes.channels - task % inputs.blocks() * LANES).min(LANES);
        // The states before and behind every step, and what they decay by.
        let zero = [T::Wide::ZERO; LANES];
        let mut states = vec![zero; (count + 1) * size];
        let mut decays = vec![zero; count * size];
        states[..size].copy_from_slice(start);
        for step in 0..count {
            let row = inputs.row(task, first + step);
            let (x, dt) = (inputs.tile(inputs.x, task, row), inputs.tile(inputs.dt, task, row));
            let b = inputs.of_states(inputs.b, row);
            let (before, behind) = states[step * size..].split_at_mut(size);
            let decays = &mut decays[step * size..(step + 1) * size];
            for n in 0..size {
                let b = b[n].widen();
                for lane in 0..LANES {
                    let decay = Real::exp(dt[lane] * rates[n][lane]);
                    decays[n][lane] = decay;
                    behind[n][lane] = decay * before[n][lane] + dt[lane] * x[lane] * b;
                }
            }
        }
        for step in (0..count).rev() {
            let row = inputs.row(task, first + step);
            let (x, dt) = (inputs.tile(inputs.x, task, row), inputs.tile(inputs.dt, task, row));
            let (b, c) = (inputs.of_states(inputs.b, row), inputs.of_states(inputs.c, row));
            let dy = inputs.tile(dy, task, row);
            let (before, behind) = states[step * size..].split_at(size);
            let decays = &decays[step * size..(step + 1) * size];
            let (mut of_learnt, mut of_length) = (zero, zero);
            for n in 0..size {
                let (b, c) = (b[n].widen(), c[n].widen());
                let (mut of_b, mut of_c) = (zero, zero);
                let (slope, da) = (&mut slopes[n], &mut da[n]);
                for lane in 0..LANES {
                    let own = slope[lane] + dy[lane] * c;
                    of_c[lane] = dy[lane] * behind[n][lane];
                    of_b[lane] = own * (dt[lane] * x[lane]);
                    of_learnt[lane] = of_learnt[lane] + own * b;
                    slope[lane] = own * decays[n][lane];
                    let of_exponent = slope[lane] * before[n][lane];
                    of_length[lane] = of_length[lane] + of_exponent * rates[n][lane];
                    da[lane] = da[lane] + of_exponent * dt[lane];
                }
                // Where there is no channel, zero may have met an infinity.
                of_b[channels..].fill(T::Wide::ZERO);
                of_c[channels..].fill(T::Wide::ZERO);
                db[step * size + n] = Lanes(of_b).sum();
                dc[step * size + n] = Lanes(of_c).sum();
            }
            for lane in 0..LANES {
                dx[step][lane] = of_learnt[lane] * dt[lane];
                ddt[step][lane] = of_length[lane] + of_learnt[lane] * x[lane];
            }
        }
    }
}
