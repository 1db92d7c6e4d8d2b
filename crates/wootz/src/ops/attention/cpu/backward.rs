//! The backward: a thread takes a head of keys, or a part of one, with all queries that see it, and
//! computes each tile of scores once for all three gradients.

use std::ops::Range;

use half::{bf16, f16};

use super::forward::{all_finite, numbers, split};
use super::{Layout, Matrix, PAD, Seen, Sight, Wide, is_wide, soften, transpose, with_dtype};
use crate::array::DType;
use crate::cpu::gemm::Block;
use crate::cpu::simd::rows::Float;
use crate::cpu::simd::{Real, Vectorised, dispatch};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads, typed};
use crate::error::{Error, Result};
use crate::ops::attention::spec::{AttentionSpec, Sizes};

/// Queries of a block and keys of a tile: their products and sums stay in the second cache together.
const QUERIES: usize = 48;
const KEYS: usize = 96;
/// Heads of keys from which on each is one task.
const ENOUGH_HEADS: usize = 8;
/// Keys that a task has at least, where heads are cut.
const LEAST_KEYS: usize = KEYS;

/// How many parts the keys of a head are cut into, and how many keys a part has.
fn parts(sizes: &Sizes) -> (usize, usize) {
    let heads = (sizes.batch * sizes.key_heads).max(1);
    let most = sizes.keys.div_ceil(LEAST_KEYS).max(1);
    let parts = ENOUGH_HEADS.div_ceil(heads).min(most);
    let keys = sizes.keys.div_ceil(parts).next_multiple_of(KEYS);
    (sizes.keys.div_ceil(keys.max(1)).max(1), keys)
}

/// Where keys are cut, every part has its own gradient of the queries.
pub(in super::super) fn backward_scratch(sizes: &Sizes) -> usize {
    match parts(sizes).0 {
        1 => 0,
        parts => parts * dq_elements(sizes) * sizes.wide().size(),
    }
}

fn dq_elements(sizes: &Sizes) -> usize {
    sizes.batch * sizes.heads * sizes.queries * sizes.dims
}

pub(in super::super) fn backward(
    call: &mut CpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
) -> Result<()> {
    with_dtype!(call, sizes.dtype, backward_as(spec, sizes))
}

fn backward_as<T>(call: &mut CpuCall<'_>, spec: &AttentionSpec, sizes: &Sizes) -> Result<()>
where
    T: Storage + Send + Sync,
    T::Wide: Wide,
{
    let Sizes { batch, key_heads, queries, keys, dims, value_dims, .. } = *sizes;
    let given = Given::<T>::new(call, spec, sizes)?;
    let (parts, part_keys) = parts(sizes);
    let op = call.op;
    let mut outputs = call.outputs.iter_mut();
    let mut next = || -> Result<&mut [T]> {
        outputs.next().map_or(Ok(&mut [][..]), |output| typed(op, output.bytes))
    };
    let (dq, mut dk, mut dv) = (next()?, next()?, next()?);
    let bytes = backward_scratch(sizes);
    let partials: &mut [T::Wide] = typed(op, &mut call.scratch[..bytes])?;
    let group_rows = sizes.group() * queries;
    let mut tasks = Vec::new();
    {
        let (mut dq, mut partials) = (&mut *dq, &mut *partials);
        for head in 0..batch * key_heads {
            for part in 0..parts {
                let first = part * part_keys;
                let range = first.min(keys)..(first + part_keys).min(keys);
                let dq = match parts {
                    1 => Dq::Whole(split(&mut dq, group_rows * dims)),
                    _ => Dq::Part(split(&mut partials, group_rows * dims)),
                };
                let dk = split(&mut dk, range.len() * dims);
                let dv = split(&mut dv, range.len() * value_dims);
                tasks.push(Task { head, keys: range, dq, dk, dv });
            }
        }
        threads::chunks_mut(&mut tasks, 1, |_, tasks| {
            tasks.iter_mut().for_each(|task| given.run(task));
        });
    }
    if parts > 1 {
        let chunk = (group_rows * dims).max(1);
        threads::chunks_mut(dq, chunk, |head, dq| {
            let partials = &partials[head * parts * chunk..(head + 1) * parts * chunk];
            let mut sums = partials[..chunk].to_vec();
            for part in partials.chunks_exact(chunk).skip(1) {
                for (sum, &value) in sums.iter_mut().zip(part) {
                    *sum = *sum + value;
                }
            }
            T::narrow_slice(&sums, dq);
        });
    }
    Ok(())
}

pub(in super::super) fn backward_mask(
    call: &mut CpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
) -> Result<()> {
    with_dtype!(call, sizes.dtype, backward_mask_as(spec, sizes))
}

fn backward_mask_as<T>(call: &mut CpuCall<'_>, spec: &AttentionSpec, sizes: &Sizes) -> Result<()>
where
    T: Storage + Send + Sync,
    T::Wide: Wide,
{
    let given = Given::<T>::new(call, spec, sizes)?;
    let [mask_batch, mask_heads, mask_queries, mask_keys] = sizes.mask;
    let mut dmask = call.output::<T>(0)?;
    let mut tasks = Vec::new();
    for batch in 0..mask_batch {
        for head in 0..mask_heads {
            for first in (0..mask_queries).step_by(QUERIES) {
                let rows = first..(first + QUERIES).min(mask_queries);
                let out = split(&mut dmask, rows.len() * mask_keys);
                tasks.push(MaskTask { batch, head, rows, out });
            }
        }
    }
    threads::chunks_mut(&mut tasks, 1, |_, tasks| {
        tasks.iter_mut().for_each(|task| given.mask(task));
    });
    Ok(())
}

/// The gradient of the queries, or one part's share of it.
enum Dq<'a, T: Storage> {
    Whole(&'a mut [T]),
    Part(&'a mut [T::Wide]),
}

/// A head of keys, or a part of it, and where its results go.
struct Task<'a, T: Storage> {
    head: usize,
    keys: Range<usize>,
    dq: Dq<'a, T>,
    dk: &'a mut [T],
    dv: &'a mut [T],
}

/// Some rows of the mask's gradient.
struct MaskTask<'a, T> {
    batch: usize,
    head: usize,
    rows: Range<usize>,
    out: &'a mut [T],
}

/// The inputs.
struct Given<'a, T: Storage> {
    spec: AttentionSpec,
    sizes: Sizes,
    sight: Sight<'a, T>,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    dout: &'a [T],
    lse: &'a [T::Wide],
    d: &'a [T::Wide],
}

/// Queries of one head, as the products read them.
struct Queries<'a, W> {
    batch: usize,
    /// Of the batch.
    rows: Range<usize>,
    seen: Seen,
    q: &'a [W],
    dout: &'a [W],
    turned_q: &'a [W],
    turned_dout: &'a [W],
    pitch: usize,
    lse: &'a [W],
    d: &'a [W],
    finite: bool,
    /// Those that see nothing.
    blind: [bool; QUERIES],
}

/// A head's keys and values.
struct Keys<'a, W> {
    k: &'a [W],
    v: &'a [W],
    finite: bool,
}

/// Where gradients are summed.
struct Sums<'a, W> {
    dq: &'a mut [W],
    dk: &'a mut [W],
    dv: &'a mut [W],
}

/// Memory for tiles.
struct Tiles<W> {
    /// The softmax of the scores.
    p: Vec<W>,
    /// Its gradient, then that of the scores.
    ds: Vec<W>,
    slope: Vec<W>,
}

impl<'a, T: Storage> Given<'a, T>
where
    T::Wide: Wide,
{
    fn new(call: &CpuCall<'a>, spec: &AttentionSpec, sizes: &Sizes) -> Result<Self> {
        Ok(Given {
            spec: *spec,
            sizes: *sizes,
            sight: Sight::new(call, spec, sizes, 6)?,
            q: call.input(0)?,
            k: call.input(1)?,
            v: call.input(2)?,
            dout: call.input(3)?,
            lse: call.input(4)?,
            d: call.input(5)?,
        })
    }

    fn run(&self, task: &mut Task<'_, T>) {
        let Sizes { key_heads, queries, dims, value_dims, .. } = self.sizes;
        let (zero, group) = (<T::Wide as Float>::ZERO, self.sizes.group());
        let (pitch, value_pitch) = (padded(dims), padded(value_dims));
        let (batch, key_head) = (task.head / key_heads, task.head % key_heads);
        let range = task.keys.clone();
        let mut spare = [const { Vec::new() }; 2];
        let [spare_k, spare_v] = &mut spare;
        let keys = self.keys(task.head, range.clone(), spare_k, spare_v);
        // Gradients of keys are summed where they go, if that is what they are summed in.
        let mut own = [Vec::new(), Vec::new()];
        let [own_dk, own_dv] = &mut own;
        let dk = sums(task.dk, pitch == dims, range.len() * pitch, own_dk);
        let dv = sums(task.dv, value_pitch == value_dims, range.len() * value_pitch, own_dv);
        let mut tiles = Tiles::new(&self.spec);
        let mut dq = vec![zero; QUERIES * pitch];
        let (scale, _) = numbers::<T::Wide>(&self.spec);
        for head in key_head * group..(key_head + 1) * group {
            for first in (0..queries).step_by(QUERIES) {
                let count = QUERIES.min(queries - first);
                let dq = &mut dq[..count * pitch];
                dq.fill(zero);
                self.with_queries(batch, head * queries + first, count, |rows| {
                    for tile in rows.seen.tiles(range.clone(), KEYS) {
                        if self.sight.hides(batch, rows.rows.clone(), &rows.seen, &tile) {
                            continue;
                        }
                        let local = tile.start - range.start..tile.end - range.start;
                        let open = self.tile(
                            rows,
                            &keys,
                            tile.clone(),
                            local.clone(),
                            &mut tiles,
                            Some(scale),
                        );
                        let Tiles { p, ds, .. } = &tiles;
                        let finite = rows.finite && keys.finite;
                        if !(open || finite) {
                            let sums = Sums { dq, dk, dv };
                            self.add_seen(rows, &keys, tile, local, &tiles, sums);
                            continue;
                        }
                        let by_keys = |a, n, b, b_rows| Block {
                            m: local.len(),
                            n,
                            k: count,
                            a,
                            a_rows: rows.pitch,
                            a_columns: 1,
                            b,
                            b_rows,
                        };
                        by_keys(&p[..], value_dims, rows.dout, value_pitch).write(
                            &mut dv[local.start * value_pitch..],
                            value_pitch,
                            true,
                        );
                        by_keys(&ds[..], dims, rows.q, pitch).write(
                            &mut dk[local.start * pitch..],
                            pitch,
                            true,
                        );
                        Block {
                            m: count,
                            n: dims,
                            k: local.len(),
                            a: ds,
                            a_rows: 1,
                            a_columns: rows.pitch,
                            b: &keys.k[local.start * pitch..],
                            b_rows: pitch,
                        }
                        .write(dq, pitch, true);
                    }
                });
                let at = ((head - key_head * group) * queries + first) * dims;
                match &mut task.dq {
                    Dq::Whole(out) => narrow_rows(dq, dims, &mut out[at..at + count * dims]),
                    Dq::Part(out) => copy_rows(dq, dims, &mut out[at..at + count * dims]),
                }
            }
        }
        narrow_rows(own_dk, dims, task.dk);
        narrow_rows(own_dv, value_dims, task.dv);
    }

    /// Sums the gradients of the scores that a part of the mask was added to.
    fn mask(&self, task: &mut MaskTask<'_, T>) {
        let Sizes { batch, heads, queries, keys, mask, key_heads, .. } = self.sizes;
        let [mask_batch, mask_heads, mask_queries, mask_keys] = mask;
        let mut sums = vec![<T::Wide as Float>::ZERO; task.out.len()];
        let mut tiles = Tiles::new(&self.spec);
        let mut spare = [const { Vec::new() }; 2];
        let whole = |own: usize, mine: usize, all: usize| match own {
            1 => 0..all,
            _ => mine..mine + 1,
        };
        let rows_of = |first: usize| match mask_queries {
            1 => first..(first + QUERIES).min(queries),
            _ => task.rows.clone(),
        };
        let starts = if mask_queries == 1 { queries } else { 1 };
        for batch in whole(mask_batch, task.batch, batch) {
            for head in whole(mask_heads, task.head, heads) {
                let [spare_k, spare_v] = &mut spare;
                let key_head = batch * key_heads + head / self.sizes.group();
                let all = self.keys(key_head, 0..keys, spare_k, spare_v);
                for first in (0..starts).step_by(QUERIES) {
                    let rows = rows_of(first);
                    self.with_queries(batch, head * queries + rows.start, rows.len(), |rows| {
                        for tile in rows.seen.tiles(0..keys, KEYS) {
                            if self.sight.hides(batch, rows.rows.clone(), &rows.seen, &tile) {
                                continue;
                            }
                            self.tile(rows, &all, tile.clone(), tile.clone(), &mut tiles, None);
                            for (key, line) in tile.zip(tiles.ds.chunks_exact(rows.pitch)) {
                                for (row, &ds) in line[..rows.rows.len()].iter().enumerate() {
                                    let row = if mask_queries == 1 { 0 } else { row };
                                    let key = if mask_keys == 1 { 0 } else { key };
                                    let sum = &mut sums[row * mask_keys + key];
                                    *sum = *sum + ds;
                                }
                            }
                        }
                    });
                }
            }
        }
        T::narrow_slice(&sums, task.out);
    }

    /// A head's keys and values as the products read them.
    fn keys<'b>(
        &self,
        head: usize,
        range: Range<usize>,
        spare_k: &'b mut Vec<T::Wide>,
        spare_v: &'b mut Vec<T::Wide>,
    ) -> Keys<'b, T::Wide>
    where
        'a: 'b,
    {
        let Sizes { keys, dims, value_dims, .. } = self.sizes;
        let rows = head * keys + range.start..head * keys + range.end;
        let k = Matrix::new(self.k, dims).wide(rows.clone(), spare_k);
        let v = Matrix::new(self.v, value_dims).wide(rows, spare_v);
        Keys { k, v, finite: dispatch(|| all_finite(k) && all_finite(v)) }
    }

    /// Calls `f` with `count` queries from row `first` of a batch on.
    fn with_queries(
        &self,
        batch: usize,
        first: usize,
        count: usize,
        f: impl FnOnce(&Queries<'_, T::Wide>),
    ) {
        let Sizes { heads, queries, dims, value_dims, .. } = self.sizes;
        let zero = <T::Wide as Float>::ZERO;
        let start = batch * heads * queries + first;
        let pitch = padded(count);
        let mut spare = [const { Vec::new() }; 2];
        let [spare_q, spare_dout] = &mut spare;
        let (q, dout) = (Matrix::new(self.q, dims), Matrix::new(self.dout, value_dims));
        let (q_rows, dout_rows) =
            (q.wide(start..start + count, spare_q), dout.wide(start..start + count, spare_dout));
        let mut turned_q = vec![zero; dims * pitch];
        let mut turned_dout = vec![zero; value_dims * pitch];
        transpose(q_rows, q.pitch(), dims, &mut turned_q, pitch);
        transpose(dout_rows, dout.pitch(), value_dims, &mut turned_dout, pitch);
        let mut lse = [zero; QUERIES];
        let mut d = [zero; QUERIES];
        let mut blind = [false; QUERIES];
        for lane in 0..count {
            // A row that sees nothing has no scores to subtract it from.
            let own = self.lse[start + lane];
            blind[lane] = own == <T::Wide as Float>::NEG_INFINITY;
            lse[lane] = if blind[lane] { zero } else { own };
            d[lane] = self.d[start + lane];
        }
        f(&Queries {
            batch,
            rows: first..first + count,
            seen: self.sight.of_rows(batch, first..first + count),
            q: q_rows,
            dout: dout_rows,
            turned_q: &turned_q,
            turned_dout: &turned_dout,
            pitch,
            lse: &lse[..pitch],
            d: &d[..pitch],
            finite: dispatch(|| all_finite(q_rows) && all_finite(dout_rows)),
            blind,
        });
    }

    /// Adds products of what may be NaN or infinite: a key that is not seen takes no part.
    fn add_seen(
        &self,
        rows: &Queries<'_, T::Wide>,
        keys: &Keys<'_, T::Wide>,
        tile: Range<usize>,
        local: Range<usize>,
        tiles: &Tiles<T::Wide>,
        sums: Sums<'_, T::Wide>,
    ) {
        let (pitch, value_pitch) = (padded(self.sizes.dims), padded(self.sizes.value_dims));
        let Sums { dq, dk, dv } = sums;
        // The mask again, on zeros.
        let mut marks = vec![<T::Wide as Float>::ZERO; local.len() * rows.pitch];
        let layout = Layout::many(rows.pitch);
        self.sight.apply(rows.batch, rows.rows.clone(), &rows.seen, tile, &mut marks, layout);
        for (line, key) in local.enumerate() {
            for row in 0..rows.rows.len() {
                let at = line * rows.pitch + row;
                if !rows.blind[row] && marks[at] != <T::Wide as Float>::NEG_INFINITY {
                    let (p, ds) = (tiles.p[at], tiles.ds[at]);
                    add_row(
                        &mut dv[key * value_pitch..],
                        p,
                        &rows.dout[row * value_pitch..],
                        value_pitch,
                    );
                    add_row(&mut dk[key * pitch..], ds, &rows.q[row * pitch..], pitch);
                    add_row(&mut dq[row * pitch..], ds, &keys.k[key * pitch..], pitch);
                }
            }
        }
    }

    /// The softmax of a tile of scores, and the gradients of the scores: those that the mask is
    /// added to, or, with the scale, those of the products. Tells whether all keys are seen.
    fn tile(
        &self,
        rows: &Queries<'_, T::Wide>,
        keys: &Keys<'_, T::Wide>,
        tile: Range<usize>,
        local: Range<usize>,
        tiles: &mut Tiles<T::Wide>,
        scale: Option<T::Wide>,
    ) -> bool {
        let Sizes { dims, value_dims, .. } = self.sizes;
        let zero = <T::Wide as Float>::ZERO;
        let Tiles { p, ds, slope } = tiles;
        let size = local.len() * rows.pitch;
        p.resize(size, zero);
        ds.resize(size, zero);
        let product = |a, width: usize, b| Block {
            m: local.len(),
            n: rows.rows.len(),
            k: width,
            a,
            a_rows: padded(width),
            a_columns: 1,
            b,
            b_rows: rows.pitch,
        };
        product(&keys.k[local.start * padded(dims)..], dims, rows.turned_q)
            .write(p, rows.pitch, false);
        product(&keys.v[local.start * padded(value_dims)..], value_dims, rows.turned_dout)
            .write(ds, rows.pitch, false);
        let (own_scale, softcap) = numbers::<T::Wide>(&self.spec);
        let slope = softcap.map(|_| {
            slope.resize(size, zero);
            &mut slope[..]
        });
        let factor = scale.unwrap_or(<T::Wide as Float>::ONE);
        let open = self.sight.is_open(&rows.seen, &tile);
        if slope.is_none() && open {
            let step = Step { p, ds, rows, before: own_scale, factor, slope: None };
            <T::Wide as Vectorised>::run(step);
            return true;
        }
        let slope = match slope {
            Some(slope) => {
                dispatch(|| soften(p, own_scale, softcap, Some(&mut slope[..])));
                // The mask is added behind.
                scale.map(|_| &slope[..])
            }
            None => {
                dispatch(|| soften(p, own_scale, None, None));
                None
            }
        };
        let layout = Layout::many(rows.pitch);
        self.sight.apply(rows.batch, rows.rows.clone(), &rows.seen, tile, p, layout);
        let before = <T::Wide as Float>::ONE;
        <T::Wide as Vectorised>::run(Step { p, ds, rows, before, factor, slope });
        open
    }
}

/// Adds `factor` times a row of `width` to another.
fn add_row<W: Wide>(to: &mut [W], factor: W, row: &[W], width: usize) {
    for (to, &value) in to[..width].iter_mut().zip(row) {
        *to = *to + factor * value;
    }
}

impl<W: Wide> Tiles<W> {
    fn new(spec: &AttentionSpec) -> Self {
        let slope = if spec.softcap.is_some() { KEYS * QUERIES } else { 0 };
        let tile = || Vec::with_capacity(KEYS * QUERIES);
        Tiles { p: tile(), ds: tile(), slope: vec![W::ZERO; slope] }
    }
}

/// Scores become their softmax, and its gradients theirs.
struct Step<'a, W> {
    p: &'a mut [W],
    ds: &'a mut [W],
    rows: &'a Queries<'a, W>,
    /// What scores are still to be multiplied with.
    before: W,
    /// What gradients are to be multiplied with.
    factor: W,
    slope: Option<&'a [W]>,
}

impl<W: Wide> pulp::WithSimd for Step<'_, W> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Step { p, ds, rows, before, factor, slope } = self;
        let lines = p.chunks_exact_mut(rows.pitch).zip(ds.chunks_exact_mut(rows.pitch));
        for (p, ds) in lines {
            let lanes = p.iter_mut().zip(ds).zip(rows.lse).zip(rows.d);
            for (((p, ds), &lse), &d) in lanes {
                let score = *p * before;
                let power = Real::exp_nonpositive(score - lse);
                *p = power;
                // What is not seen has no gradient, whatever the products are.
                let gradient = power * (*ds - d) * factor;
                *ds = if score == W::NEG_INFINITY { W::ZERO } else { gradient };
            }
        }
        if let Some(slope) = slope {
            for (ds, &slope) in ds.iter_mut().zip(slope) {
                *ds = *ds * slope;
            }
        }
    }
}

/// The rows' pitch for this width.
fn padded(width: usize) -> usize {
    width.next_multiple_of(PAD)
}

/// Zeros to sum in: the output itself where it can be, else memory of its own.
fn sums<'b, T: Storage>(
    out: &'b mut [T],
    dense: bool,
    size: usize,
    own: &'b mut Vec<T::Wide>,
) -> &'b mut [T::Wide]
where
    T::Wide: Wide,
{
    let zero = <T::Wide as Float>::ZERO;
    if is_wide::<T>() && dense {
        let out: &mut [T::Wide] = bytemuck::cast_slice_mut(out);
        out.fill(zero);
        return out;
    }
    own.resize(size, zero);
    own
}

/// Copies rows without their padding.
fn copy_rows<W: Wide>(wide: &[W], width: usize, out: &mut [W]) {
    if width > 0 {
        for (wide, out) in wide.chunks_exact(padded(width)).zip(out.chunks_exact_mut(width)) {
            out.copy_from_slice(&wide[..width]);
        }
    }
}

/// Stores rows without their padding; nothing if there are none.
fn narrow_rows<T: Storage>(wide: &[T::Wide], width: usize, out: &mut [T]) {
    if wide.is_empty() || width == 0 {
        return;
    }
    for (wide, out) in wide.chunks_exact(padded(width)).zip(out.chunks_exact_mut(width)) {
        dispatch(|| T::narrow_slice(&wide[..width], out));
    }
}
