//! The forward: online softmax over tiles of keys.

use std::ops::Range;

use super::{
    Coded, Layout, Lines, Matrix, PAD, Seen, Sight, Wide, few, soften, transpose, with_dtype,
};
use crate::array::DType;
use crate::cpu::gemm::Block;
use crate::cpu::simd::rows::Float;
use crate::cpu::simd::{Real, Vectorised, dispatch};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads, typed};
use crate::error::{Error, Result};
use crate::ops::attention::spec::{AttentionSpec, MaskKind, QUANTIZED, Sizes};
use crate::quant::Scheme;

use half::{bf16, f16};

/// Queries of a block.
const QUERIES: usize = super::MOST_QUERIES;
/// Keys of a tile, few enough that it stays in the nearest cache.
const KEYS: usize = 48;
/// Queries up to which the heads of a group are one block: a token or few.
const FEW: usize = 32;

pub(in super::super) fn forward(
    call: &mut CpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
) -> Result<()> {
    with_dtype!(call, sizes.dtype, forward_as(spec, sizes, None))
}

pub(in super::super) fn forward_quantized(
    call: &mut CpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
    schemes: [Scheme; 2],
) -> Result<()> {
    with_dtype!(call, sizes.dtype, forward_as(spec, sizes, Some(schemes)))
}

fn forward_as<T>(
    call: &mut CpuCall<'_>,
    spec: &AttentionSpec,
    sizes: &Sizes,
    schemes: Option<[Scheme; 2]>,
) -> Result<()>
where
    T: Storage + Send + Sync,
    T::Wide: Wide,
{
    let Sizes { batch, heads, key_heads, queries, keys, dims, value_dims, .. } = *sizes;
    let q = call.input::<T>(0)?;
    let (k, v, optional) = match schemes {
        None => {
            let lines = |input: usize, width: usize| {
                Ok::<_, Error>(Lines::Plain(Matrix::new(call.input::<T>(input)?, width)))
            };
            (lines(1, dims)?, lines(2, value_dims)?, 3)
        }
        Some([k, v]) => (
            Lines::Coded(Coded::new(call, k, 1)?),
            Lines::Coded(Coded::new(call, v, 4)?),
            QUANTIZED,
        ),
    };
    let sight = Sight::<T>::new(call, spec, sizes, optional)?;
    let sinks = match spec.sinks {
        true => Some(call.input::<T>(optional + (spec.mask != MaskKind::None) as usize)?),
        false => None,
    };
    // Rows of heads that share keys follow one another.
    let rows = if queries <= FEW { sizes.group() * queries } else { queries };
    let (all_rows, kinds) = (rows, heads * queries / rows.max(1));
    let op = call.op;
    let mut outputs = call.outputs.iter_mut();
    let mut out: &mut [T] = match outputs.next() {
        Some(out) => typed(op, out.bytes)?,
        None => &mut [],
    };
    let mut lse: &mut [T::Wide] = match outputs.next() {
        Some(lse) => typed(op, lse.bytes)?,
        None => &mut [],
    };
    let mut blocks = Vec::new();
    for batch in 0..batch {
        for kind in 0..kinds {
            for first in (0..rows).step_by(QUERIES) {
                let count = QUERIES.min(rows - first);
                let own = split(&mut out, count * value_dims);
                let own_lse = split(&mut lse, count);
                let start = kind * rows + first;
                blocks.push(Rows { batch, rows: start..start + count, out: own, lse: own_lse });
            }
        }
    }
    let task = |batch: usize, rows: &Range<usize>| {
        let key_head = batch * key_heads + rows.start / queries / sizes.group();
        let first = batch * heads * queries;
        Task {
            sight: &sight,
            batch,
            rows: rows.clone(),
            q: Matrix::new(&q[(first + rows.start) * dims..(first + rows.end) * dims], dims),
            k: k.part(key_head * keys..(key_head + 1) * keys),
            v: v.part(key_head * keys..(key_head + 1) * keys),
            sinks,
            few: all_rows <= few::MOST,
        }
    };
    let parts = parts(blocks.len(), keys);
    if parts == 1 {
        // The longest first, so that none is left for the end.
        blocks.reverse();
        threads::chunks_mut(&mut blocks, 1, |_, blocks| {
            for Rows { batch, rows, out, lse } in blocks {
                let task = task(*batch, rows);
                task.finish(task.attend(0..keys), out, lse);
            }
        });
        return Ok(());
    }
    let part_keys = keys.div_ceil(parts);
    let cut = |part: usize| part * part_keys..((part + 1) * part_keys).min(keys);
    let mut pieces: Vec<Option<Softened<T::Wide>>> = Vec::new();
    pieces.resize_with(blocks.len() * parts, || None);
    threads::chunks_mut(&mut pieces, 1, |number, pieces| {
        let Rows { batch, rows, .. } = &blocks[number / parts];
        for piece in pieces {
            *piece = Some(task(*batch, rows).attend(cut(number % parts)));
        }
    });
    for (Rows { batch, rows, out, lse }, pieces) in blocks.iter_mut().zip(pieces.chunks_mut(parts))
    {
        let task = task(*batch, rows);
        let joined = pieces.iter_mut().filter_map(Option::take).reduce(|a, b| task.joined(a, b));
        if let Some(joined) = joined {
            task.finish(joined, out, lse);
        }
    }
    Ok(())
}

/// How many parts the keys are cut into: more than one where there are few blocks for the team.
fn parts(blocks: usize, keys: usize) -> usize {
    const ENOUGH: usize = 4;
    const LEAST_KEYS: usize = 512;
    if blocks == 0 || blocks >= ENOUGH {
        return 1;
    }
    (2 * ENOUGH / blocks).min(keys / LEAST_KEYS).max(1)
}

/// A block of rows, which are heads and their queries, and where their results go.
struct Rows<'a, T: Storage> {
    batch: usize,
    rows: Range<usize>,
    out: &'a mut [T],
    lse: &'a mut [T::Wide],
}

/// What a block of rows needs to know.
struct Task<'a, T: Storage> {
    sight: &'a Sight<'a, T>,
    batch: usize,
    rows: Range<usize>,
    q: Matrix<'a, T>,
    k: Lines<'a, T>,
    v: Lines<'a, T>,
    sinks: Option<&'a [T]>,
    /// Whether there are only so many rows that vectors would be mostly empty.
    few: bool,
}

/// Numbers for each row of a block.
type Lanes<W> = [W; QUERIES];

impl<T: Storage> Task<'_, T>
where
    T::Wide: Wide,
{
    /// Attends to some of the keys. The sinks belong to the first of them.
    fn attend(&self, within: Range<usize>) -> Softened<T::Wide> {
        let zero = <T::Wide as Float>::ZERO;
        let (scale, softcap) = numbers(&self.sight.spec);
        let few = self.few;
        let count = self.rows.len();
        let pitch = if few { count } else { count.next_multiple_of(PAD) };
        let (dims, value_pitch) = (self.q.width, self.v.pitch());
        let mut spare = [const { Vec::new() }; 3];
        let [spare_q, spare_k, spare_v] = &mut spare;
        let q = self.q.wide(0..count, spare_q);
        let mut turned = vec![zero; if few { 0 } else { dims * pitch }];
        if !few {
            transpose(q, self.q.pitch(), dims, &mut turned, pitch);
        }
        let tile_keys = match self.k {
            _ if !few => KEYS,
            Lines::Plain(_) => few::KEYS,
            Lines::Coded(_) => few::CODED_KEYS,
        };
        let mut scores = vec![zero; tile_keys * pitch];
        let mut sums = vec![zero; count * value_pitch];
        let mut state = self.start(within.start == 0);
        let seen = self.sight.of_rows(self.batch, self.rows.clone());
        for (number, keys) in seen.tiles(within, tile_keys).enumerate() {
            if self.sight.hides(self.batch, self.rows.clone(), &seen, &keys) {
                continue;
            }
            let scores = &mut scores[..keys.len() * pitch];
            let layout = if few { Layout::few(keys.len()) } else { Layout::many(pitch) };
            let k = self.k.wide(keys.clone(), spare_k);
            if few {
                few::scores(q, k, [count, keys.len(), dims, self.k.pitch()], scores);
            } else {
                Block {
                    m: keys.len(),
                    n: count,
                    k: dims,
                    a: k,
                    a_rows: self.k.pitch(),
                    a_columns: 1,
                    b: &turned,
                    b_rows: pitch,
                }
                .write(scores, pitch, false);
            }
            let open = self.sight.is_open(&seen, &keys);
            let mut step = (scale, softcap);
            if !open {
                dispatch(|| soften(scores, scale, softcap, None));
                let rows = self.rows.clone();
                self.sight.apply(self.batch, rows, &seen, keys.clone(), scores, layout);
                step = (<T::Wide as Float>::ONE, None);
            }
            let (scale, softcap) = step;
            let state = &mut state;
            if few {
                let keys = keys.len();
                <T::Wide as Vectorised>::run(few::Softmax { scores, keys, scale, softcap, state });
            } else {
                <T::Wide as Vectorised>::run(Softmax { scores, pitch, scale, softcap, state });
            }
            if number > 0 {
                shrink(&mut sums, value_pitch, &state.shrink);
            }
            let values = self.v.wide(keys.clone(), spare_v);
            if !open && !dispatch(|| all_finite(values)) {
                self.add_seen(scores, layout, values, &mut sums, &seen, keys);
            } else if few {
                let sizes = [count, keys.len(), self.v.width(), value_pitch];
                few::add_values(scores, values, sizes, &mut sums);
            } else {
                Block {
                    m: count,
                    n: self.v.width(),
                    k: keys.len(),
                    a: scores,
                    a_rows: 1,
                    a_columns: pitch,
                    b: values,
                    b_rows: value_pitch,
                }
                .write(&mut sums, value_pitch, true);
            }
        }
        Softened { state, sums }
    }

    /// The softmax before any key: of the sinks, if there are any.
    fn start(&self, sinks: bool) -> State<T::Wide> {
        let zero = <T::Wide as Float>::ZERO;
        let mut state = State {
            most: [<T::Wide as Float>::NEG_INFINITY; QUERIES],
            total: [zero; QUERIES],
            shrink: [zero; QUERIES],
        };
        if let Some(sinks) = self.sinks.filter(|_| sinks) {
            for (row, lane) in self.rows.clone().zip(0..) {
                let sink = sinks[row / self.sight.sizes.queries].widen();
                let none = sink == <T::Wide as Float>::NEG_INFINITY;
                state.most[lane] = sink;
                // Its power is 1, or NaN if it is no number.
                let power = <T::Wide as Float>::ONE + sink * zero;
                state.total[lane] = if none { zero } else { power };
            }
        }
        state
    }

    /// Adds values that may be NaN or infinite: a key that is not seen takes no part.
    fn add_seen(
        &self,
        powers: &[T::Wide],
        layout: Layout,
        values: &[T::Wide],
        sums: &mut [T::Wide],
        seen: &Seen,
        keys: Range<usize>,
    ) {
        let hidden = <T::Wide as Float>::NEG_INFINITY;
        // The mask again, on zeros.
        let mut marks = vec![<T::Wide as Float>::ZERO; powers.len()];
        self.sight.apply(self.batch, self.rows.clone(), seen, keys, &mut marks, layout);
        let value_pitch = self.v.pitch();
        for (row, sums) in sums.chunks_exact_mut(value_pitch.max(1)).enumerate() {
            for (key, values) in values.chunks_exact(value_pitch).enumerate() {
                let at = layout.at(row, key);
                if marks[at] != hidden {
                    for (sum, &value) in sums.iter_mut().zip(values) {
                        *sum = *sum + powers[at] * value;
                    }
                }
            }
        }
    }

    /// Attention to two parts of the keys.
    fn joined(&self, mut a: Softened<T::Wide>, b: Softened<T::Wide>) -> Softened<T::Wide> {
        let pitch = self.v.pitch();
        for row in 0..self.rows.len() {
            let (most, other) = (a.state.most[row], b.state.most[row]);
            let most = if other > most { other } else { most };
            let low = most == <T::Wide as Float>::NEG_INFINITY;
            let base = if low { <T::Wide as Float>::ZERO } else { most };
            let own = Real::exp_nonpositive(a.state.most[row] - base);
            let theirs = Real::exp_nonpositive(other - base);
            a.state.most[row] = most;
            a.state.total[row] = a.state.total[row] * own + b.state.total[row] * theirs;
            let sums = a.sums[row * pitch..(row + 1) * pitch].iter_mut();
            for (sum, &more) in sums.zip(&b.sums[row * pitch..]) {
                *sum = *sum * own + more * theirs;
            }
        }
        a
    }

    /// Divides by the total, and stores.
    fn finish(&self, softened: Softened<T::Wide>, out: &mut [T], lse: &mut [T::Wide]) {
        let Softened { state, mut sums } = softened;
        let (width, pitch) = (self.v.width(), self.v.pitch());
        let (zero, one) = (<T::Wide as Float>::ZERO, <T::Wide as Float>::ONE);
        for (row, lse) in lse.iter_mut().enumerate() {
            let (most, total) = (state.most[row], state.total[row]);
            let empty = total == zero;
            *lse = if empty { <T::Wide as Float>::NEG_INFINITY } else { most + Real::log(total) };
        }
        if width == 0 {
            return;
        }
        let rows = out.chunks_exact_mut(width).zip(sums.chunks_exact_mut(pitch));
        for ((out, sums), &total) in rows.zip(&state.total) {
            let factor = if total == zero { zero } else { one / total };
            dispatch(|| {
                for sum in sums.iter_mut() {
                    *sum = *sum * factor;
                }
                T::narrow_slice(&sums[..width], out);
            });
        }
    }
}

/// Scale and softcap as they are computed with.
pub(super) fn numbers<W: Wide>(spec: &AttentionSpec) -> (W, Option<W>) {
    (Float::from_f64(spec.scale), spec.softcap.map(Float::from_f64))
}

/// The softmax of a block's rows and the sums of values that belong to it.
struct Softened<W> {
    state: State<W>,
    sums: Vec<W>,
}

/// What the softmax of each row has come to.
pub(super) struct State<W> {
    pub(super) most: Lanes<W>,
    pub(super) total: Lanes<W>,
    /// What sums so far are to be multiplied with.
    pub(super) shrink: Lanes<W>,
}

/// One tile's step of the softmax: scores become powers.
struct Softmax<'a, W> {
    scores: &'a mut [W],
    pitch: usize,
    scale: W,
    softcap: Option<W>,
    state: &'a mut State<W>,
}

impl<W: Wide> pulp::WithSimd for Softmax<'_, W> {
    type Output = ();
    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Softmax { scores, pitch, scale, softcap, state } = self;
        let mut base = state.most;
        let (most, base) = (&mut state.most[..pitch], &mut base[..pitch]);
        let (total, factors) = (&mut state.total[..pitch], &mut state.shrink[..pitch]);
        for line in scores.chunks_exact_mut(pitch) {
            soften(line, scale, softcap, None);
            for (most, &score) in most.iter_mut().zip(&*line) {
                *most = if score > *most { score } else { *most };
            }
        }
        for (((base, most), total), factor) in
            base.iter_mut().zip(most).zip(&mut *total).zip(factors)
        {
            let before = *base;
            // Powers of what is below everything are taken from zero.
            *base = if *most == W::NEG_INFINITY { W::ZERO } else { *most };
            *factor = Real::exp_nonpositive(before - *base);
            *total = *total * *factor;
        }
        for line in scores.chunks_exact_mut(pitch) {
            for ((score, base), total) in line.iter_mut().zip(&*base).zip(&mut *total) {
                let power = Real::exp_nonpositive(*score - *base);
                *total = *total + power;
                *score = power;
            }
        }
    }
}

/// Multiplies each row with its factor.
fn shrink<W: Wide>(sums: &mut [W], pitch: usize, factors: &[W]) {
    dispatch(|| {
        for (sums, &factor) in sums.chunks_exact_mut(pitch.max(1)).zip(factors) {
            if factor != W::ONE {
                for sum in sums {
                    *sum = *sum * factor;
                }
            }
        }
    });
}

#[inline(always)]
pub(super) fn all_finite<W: Wide>(values: &[W]) -> bool {
    // Finite numbers times zero are zero, others are NaN.
    let zeros = values.iter().fold(W::ZERO, |sum, &value| sum + value * W::ZERO);
    zeros == W::ZERO
}

/// Takes the first elements off a slice; all if there are fewer.
pub(super) fn split<'a, T>(rest: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let all = std::mem::take(rest);
    let (first, others) = all.split_at_mut(count.min(all.len()));
    *rest = others;
    first
}
