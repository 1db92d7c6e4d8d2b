//! Attention on the CPU. A thread takes a block of queries and goes through the keys tile by tile.
//! Scores are kept transposed, a row for each key: then the softmax runs down columns, which are
//! vector lanes, and keys and values are multiplied as they lie in memory.

mod backward;
mod coded;
mod few;
mod forward;

use std::ops::Range;

pub(super) use backward::{backward, backward_mask, backward_scratch};
use bytemuck::Pod;
use coded::Coded;
pub(super) use forward::{forward, forward_quantized};
use half::{bf16, f16};

use super::spec::{AttentionSpec, Lengths, MaskKind, Sequence, Sizes};
use crate::array::DType;
use crate::cpu::CpuCall;
use crate::cpu::gemm::GemmElement;
use crate::cpu::simd::rows::{self, Float};
use crate::cpu::simd::{Real, Vectorised, dispatch};
use crate::cpu::threads;
use crate::cpu::tile::Storage;
use crate::error::{Error, Result};

/// Queries of the largest block. Those of blocks and keys of tiles are multiples of the rows and of the
/// columns of the products' tiles.
const MOST_QUERIES: usize = 96;
/// Rows of matrices are padded to multiples of this: what vectors read in one go.
const PAD: usize = 8;

/// What is computed in.
trait Wide: GemmElement<Sum = Self> + Float + Real + Vectorised + Pod {}
impl Wide for f32 {}
impl Wide for f64 {}

/// Calls a generic function for the dtype of `q`.
macro_rules! with_dtype {
    ($call:expr, $dtype:expr, $function:ident ( $($argument:expr),* )) => {
        match $dtype {
            DType::F32 => $function::<f32>($call, $($argument),*),
            DType::F64 => $function::<f64>($call, $($argument),*),
            DType::F16 => $function::<f16>($call, $($argument),*),
            DType::BF16 => $function::<bf16>($call, $($argument),*),
            other => Err(Error::dtype($call.op.name(), "q", "a floating-point type", other)),
        }
    };
}
use with_dtype;

pub(super) fn backward_d(call: &mut CpuCall<'_>) -> Result<()> {
    let dtype = call.meta(0).dtype;
    with_dtype!(call, dtype, backward_d_as())
}

fn backward_d_as<T>(call: &mut CpuCall<'_>) -> Result<()>
where
    T: Storage + Send + Sync,
    T::Wide: Wide,
{
    let dims = call.meta(0).shape().last().copied().unwrap_or(1);
    let (out, dout) = (call.input::<T>(0)?, call.input::<T>(1)?);
    let sums = call.output::<T::Wide>(0)?;
    if dims == 0 {
        sums.fill(Float::ZERO);
        return Ok(());
    }
    let per_task = rows::per_task(sums.len(), dims);
    threads::chunks_mut(sums, per_task, |task, sums| {
        let mut spare = [const { Vec::new() }; 2];
        for (row, sum) in sums.iter_mut().enumerate() {
            let row = task * per_task + row;
            let [a, b] = &mut spare;
            let a = Matrix::new(out, dims).wide(row..row + 1, a);
            let b = Matrix::new(dout, dims).wide(row..row + 1, b);
            *sum = dispatch(|| rows::dot(a, b));
        }
    });
    Ok(())
}

/// A row-major matrix, maybe of narrow elements.
#[derive(Clone, Copy)]
struct Matrix<'a, T> {
    data: &'a [T],
    width: usize,
}

impl<'a, T: Storage> Matrix<'a, T> {
    fn new(data: &'a [T], width: usize) -> Self {
        Matrix { data, width }
    }

    /// The distance of rows that [`Matrix::wide`] gives.
    fn pitch(&self) -> usize {
        self.width.next_multiple_of(PAD)
    }

    /// Some rows as the products read them: as they lie, or widened and with zeros up to the pitch.
    fn wide<'b>(&self, rows: Range<usize>, spare: &'b mut Vec<T::Wide>) -> &'b [T::Wide]
    where
        'a: 'b,
    {
        let (width, pitch) = (self.width, self.pitch());
        let data = &self.data[rows.start * width..rows.end * width];
        if is_wide::<T>() && width == pitch {
            return bytemuck::cast_slice(data);
        }
        spare.resize(rows.len() * pitch, bytemuck::Zeroable::zeroed());
        let spare = &mut spare[..rows.len() * pitch];
        if width == pitch {
            dispatch(|| T::widen_slice(data, spare));
        } else if width > 0 {
            for (row, wide) in data.chunks_exact(width).zip(spare.chunks_exact_mut(pitch)) {
                T::widen_slice(row, wide);
            }
        }
        spare
    }
}

/// Keys or values of one head, or of all: as elements, or as codes that are decoded when they are read.
#[derive(Clone, Copy)]
enum Lines<'a, T> {
    Plain(Matrix<'a, T>),
    Coded(Coded<'a>),
}

impl<'a, T: Storage> Lines<'a, T>
where
    T::Wide: Wide,
{
    fn width(&self) -> usize {
        match self {
            Lines::Plain(matrix) => matrix.width,
            Lines::Coded(coded) => coded.width(),
        }
    }

    fn pitch(&self) -> usize {
        self.width().next_multiple_of(PAD)
    }

    /// Some of the rows.
    fn part(&self, rows: Range<usize>) -> Lines<'a, T> {
        match self {
            Lines::Plain(Matrix { data, width }) => {
                Lines::Plain(Matrix::new(&data[rows.start * width..rows.end * width], *width))
            }
            Lines::Coded(coded) => Lines::Coded(coded.part(rows)),
        }
    }

    /// Some rows as the products read them.
    fn wide<'b>(&self, rows: Range<usize>, spare: &'b mut Vec<T::Wide>) -> &'b [T::Wide]
    where
        'a: 'b,
    {
        match self {
            Lines::Plain(matrix) => matrix.wide(rows, spare),
            Lines::Coded(coded) => coded.part(rows).decode(spare),
        }
    }
}

/// Whether elements are stored in what they are computed in.
fn is_wide<T: Storage>() -> bool {
    size_of::<T>() == size_of::<T::Wide>()
}

/// Rows that are `pitch` apart as columns of `width` rows: `to` gets rows of `to_pitch` numbers.
fn transpose<W: Copy>(from: &[W], pitch: usize, width: usize, to: &mut [W], to_pitch: usize) {
    for (row, line) in from.chunks_exact(pitch.max(1)).enumerate() {
        for (column, &value) in line[..width].iter().enumerate() {
            to[column * to_pitch + row] = value;
        }
    }
}

/// The arrays that say which keys are seen.
struct Sight<'a, T> {
    spec: AttentionSpec,
    sizes: Sizes,
    bools: &'a [u8],
    added: &'a [T],
    lengths: Ends<'a>,
}

/// How long keys are.
#[derive(Clone, Copy)]
enum Ends<'a> {
    All,
    Valid(&'a [i32]),
    Sequences(&'a [i32], &'a [i32]),
}

impl<'a, T: Storage> Sight<'a, T>
where
    T::Wide: Wide,
{
    /// The mask is at `optional`, and the lengths are the last input.
    fn new(
        call: &CpuCall<'a>,
        spec: &AttentionSpec,
        sizes: &Sizes,
        optional: usize,
    ) -> Result<Self> {
        let last = call.inputs.len() - 1;
        let lengths = match spec.lengths {
            Lengths::All => Ends::All,
            Lengths::Valid => Ends::Valid(call.input(last)?),
            Lengths::Sequences => Ends::Sequences(call.input(last - 1)?, call.input(last)?),
        };
        check_ends(call.op.name(), lengths, sizes)?;
        Ok(Sight {
            spec: *spec,
            sizes: *sizes,
            bools: if spec.mask == MaskKind::Bool { call.input::<u8>(optional)? } else { &[] },
            added: if spec.mask == MaskKind::Additive { call.input::<T>(optional)? } else { &[] },
            lengths,
        })
    }

    /// The keys that rows of a batch see by their position. A row is a head and a query of it.
    fn of_rows(&self, batch: usize, rows: Range<usize>) -> Seen {
        let Sizes { queries, keys, .. } = self.sizes;
        let sequence = |query: usize| match self.lengths {
            Ends::All => Sequence { queries: 0..queries, keys: 0..keys },
            Ends::Valid(valid) => Sequence { queries: 0..queries, keys: 0..valid[batch] as usize },
            Ends::Sequences(ends, key_ends) => {
                let next = ends.partition_point(|&end| end as usize <= query);
                let between = |ends: &[i32]| ends[next - 1] as usize..ends[next] as usize;
                Sequence { queries: between(ends), keys: between(key_ends) }
            }
        };
        let mut seen = Seen { each: [(0, 0); MOST_QUERIES], some: keys..0, all: 0..keys };
        for (row, own) in rows.zip(&mut seen.each) {
            let query = row % queries;
            let Range { start, end } = self.spec.sees(query, &sequence(query));
            *own = (start as u32, end as u32);
            seen.all = seen.all.start.max(start)..seen.all.end.min(end);
            if start < end {
                seen.some = seen.some.start.min(start)..seen.some.end.max(end);
            }
        }
        seen
    }

    /// Whether every row sees all these keys, as they are.
    fn is_open(&self, seen: &Seen, keys: &Range<usize>) -> bool {
        self.spec.mask == MaskKind::None && seen.all.start <= keys.start && keys.end <= seen.all.end
    }

    /// Whether the mask leaves no row anything of these keys, so that they need not be gone through.
    fn hides(&self, batch: usize, rows: Range<usize>, seen: &Seen, keys: &Range<usize>) -> bool {
        let [.., by_key] = self.sizes.mask_strides();
        let hidden = |at: usize| match self.spec.mask {
            MaskKind::None => false,
            MaskKind::Bool => self.bools[at] == 0,
            MaskKind::Additive => self.added[at].widen() == <T::Wide as Float>::NEG_INFINITY,
        };
        self.spec.mask != MaskKind::None
            && rows.zip(&seen.each).all(|(row, &(start, end))| {
                let at = self.mask_row(batch, row);
                let mut keys = keys.start.max(start as usize)..keys.end.min(end as usize);
                keys.all(|key| hidden(at + key * by_key))
            })
    }

    /// Where the mask of a row begins.
    fn mask_row(&self, batch: usize, row: usize) -> usize {
        let [by_batch, by_head, by_query, _] = self.sizes.mask_strides();
        let queries = self.sizes.queries;
        batch * by_batch + row / queries * by_head + row % queries * by_query
    }

    /// Adds the mask to a tile of scores, and makes −∞ what is not seen.
    fn apply(
        &self,
        batch: usize,
        rows: Range<usize>,
        seen: &Seen,
        keys: Range<usize>,
        scores: &mut [T::Wide],
        layout: Layout,
    ) {
        let hidden = <T::Wide as Float>::NEG_INFINITY;
        let [.., by_key] = self.sizes.mask_strides();
        if self.spec.mask == MaskKind::None && layout.by_row == 1 {
            // Along the lines, as they lie.
            for (line, key) in keys.enumerate() {
                let scores = &mut scores[line * layout.by_key..][..rows.len()];
                for (score, &(start, end)) in scores.iter_mut().zip(&seen.each) {
                    let seen = (start..end).contains(&(key as u32));
                    *score = if seen { *score } else { hidden };
                }
            }
            return;
        }
        for (column, row) in rows.enumerate() {
            let (start, end) = seen.each[column];
            let (start, end) = (start as usize, end as usize);
            let at = self.mask_row(batch, row);
            for (line, key) in keys.clone().enumerate() {
                let score = &mut scores[layout.at(column, line)];
                if key < start || key >= end {
                    *score = hidden;
                } else if !self.bools.is_empty() {
                    if self.bools[at + key * by_key] == 0 {
                        *score = hidden;
                    }
                } else if !self.added.is_empty() {
                    let added = self.added[at + key * by_key].widen();
                    *score = if added == hidden { hidden } else { *score + added };
                }
            }
        }
    }
}

/// Lengths must lie inside the axis, and ends must be in order and cover it.
fn check_ends(op: &'static str, lengths: Ends<'_>, sizes: &Sizes) -> Result<()> {
    match lengths {
        Ends::All => Ok(()),
        Ends::Valid(valid) => {
            let bad = |length: &&i32| !(0..=sizes.keys as i64).contains(&(**length as i64));
            match valid.iter().find(bad) {
                Some(&length) => Err(Error::Index {
                    op,
                    argument: "key_length".into(),
                    got: length as i64,
                    length: sizes.keys + 1,
                }),
                None => Ok(()),
            }
        }
        Ends::Sequences(queries, keys) => {
            for (argument, ends, length) in
                [("query_ends", queries, sizes.queries), ("key_ends", keys, sizes.keys)]
            {
                let ordered = ends.windows(2).all(|pair| pair[0] <= pair[1]);
                let whole = ends.first() == Some(&0) && ends.last() == Some(&(length as i32));
                if !ordered || !whole {
                    let expected = format!("ends in order from 0 to {length}");
                    return Err(Error::argument(op, argument, expected, format!("{ends:?}")));
                }
            }
            Ok(())
        }
    }
}

/// The keys that the rows of a block see by their positions.
struct Seen {
    each: [(u32, u32); MOST_QUERIES],
    /// Those that any row sees are among these.
    some: Range<usize>,
    /// Those that all rows see.
    all: Range<usize>,
}

impl Seen {
    /// The tiles of keys to go through, of those in `within`.
    fn tiles(
        &self,
        within: Range<usize>,
        keys: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let (start, end) = (self.some.start.max(within.start), self.some.end.min(within.end));
        (start..end).step_by(keys).map(move |key| key..(key + keys).min(end))
    }
}

/// Where the scores of a tile lie.
#[derive(Clone, Copy)]
struct Layout {
    by_row: usize,
    by_key: usize,
}

impl Layout {
    /// A row for each query, of this many keys.
    fn few(keys: usize) -> Layout {
        Layout { by_row: keys, by_key: 1 }
    }

    /// A row for each key.
    fn many(pitch: usize) -> Layout {
        Layout { by_row: 1, by_key: pitch }
    }

    fn at(self, row: usize, key: usize) -> usize {
        row * self.by_row + key * self.by_key
    }
}

/// Products become scores: scaled, and softened if asked for. `slope` gets what the scores change
/// with the products, where they are softened.
#[inline(always)]
fn soften<W: Wide>(scores: &mut [W], scale: W, softcap: Option<W>, slope: Option<&mut [W]>) {
    let Some(softcap) = softcap else {
        for score in scores {
            *score = *score * scale;
        }
        return;
    };
    let factor = scale / softcap;
    match slope {
        None => {
            for score in scores {
                *score = Real::tanh(*score * factor) * softcap;
            }
        }
        Some(slope) => {
            for (score, slope) in scores.iter_mut().zip(slope) {
                let soft = Real::tanh(*score * factor);
                *slope = W::ONE - soft * soft;
                *score = soft * softcap;
            }
        }
    }
}
