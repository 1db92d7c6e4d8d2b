//! Rotary encoding on the CPU. A task takes a block of positions in some heads: it makes the rows of
//! cosines and sines once, which stay in the first-level cache, and rotates the heads with them.

use half::{bf16, f16};

use super::{Positions, Rope, Sizes};
use crate::array::{DType, Meta};
use crate::cpu::cast::Convert;
use crate::cpu::simd::rows::{Float, LANES};
use crate::cpu::simd::{Real, stream};
use crate::cpu::tile::{Storage, with_types};
use crate::cpu::{CpuCall, Strided, threads};
use crate::error::{Error, Result};

/// Angles of a task at most.
const ANGLES: usize = 2048;
/// Elements of a task, about.
const ELEMENTS: usize = 64 * 1024;

pub(super) fn rotate(call: &mut CpuCall<'_>, rope: &Rope) -> Result<()> {
    match call.output_meta(0).dtype {
        DType::F32 => rotate_as::<f32>(call, rope),
        DType::F64 => rotate_as::<f64>(call, rope),
        DType::F16 => rotate_as::<f16>(call, rope),
        DType::BF16 => rotate_as::<bf16>(call, rope),
        other => Err(Error::dtype(super::NAME, "x", "a floating-point type", other)),
    }
}

/// Elements that are computed in one of the float types.
pub(super) trait Element: Storage<Wide: Float + Real + bytemuck::Pod> + Send + Sync {}
impl<T: Storage<Wide: Float + Real + bytemuck::Pod> + Send + Sync> Element for T {}

fn rotate_as<T: Element>(call: &mut CpuCall<'_>, rope: &Rope) -> Result<()> {
    let metas: Vec<&Meta> = call.inputs.iter().map(|input| input.meta).collect();
    let sizes = Sizes::of(rope, &metas);
    let given = match rope.positions.inputs() {
        0 => Vec::new(),
        _ => given_positions(call, 2)?,
    };
    let rotation = Rotation::<T> {
        x: if call.aliased(0) { None } else { Some(call.strided::<T>(0)?) },
        frequencies: call.input::<T::Wide>(1)?,
        given,
        rope,
        streamed: !call.aliased(0) && stream::pays(call.output_meta(0).bytes()),
        sizes,
    };
    rotation.write(call.output::<T>(0)?.chunks_mut(sizes.length * sizes.features));
    Ok(())
}

impl<T: Element> Rotation<'_, T> {
    /// Writes the rows of each head, of every batch, to its place.
    pub(super) fn write<'o>(&self, heads: impl Iterator<Item = &'o mut [T]>)
    where
        T: 'o,
    {
        let Sizes { length, features, .. } = self.sizes;
        let (groups, group_heads) = self.sizes.groups();
        let rows_per_task = (ANGLES / self.sizes.half).clamp(1, length);
        let heads_per_task = (ELEMENTS / (rows_per_task * features)).clamp(1, group_heads);
        let (row_blocks, head_blocks) =
            (length.div_ceil(rows_per_task), group_heads.div_ceil(heads_per_task));
        // What each task writes: a run of rows in each of its heads.
        let mut tasks: Vec<Vec<&mut [T]>> = Vec::new();
        tasks.resize_with(groups * row_blocks * head_blocks, Vec::new);
        for (head, out) in heads.enumerate() {
            let (group, head) = (head / group_heads, head % group_heads);
            for (block, rows) in out.chunks_mut(rows_per_task * features).enumerate() {
                let task = (group * row_blocks + block) * head_blocks + head / heads_per_task;
                tasks[task].push(rows);
            }
        }
        threads::chunks_mut(&mut tasks, 1, |task, outs| {
            let group = task / (row_blocks * head_blocks);
            let block = task / head_blocks % row_blocks;
            for outs in outs {
                let first_head = group * group_heads + task % head_blocks * heads_per_task;
                let first_row = block * rows_per_task;
                crate::cpu::simd::run(Task { rotation: self, group, first_head, first_row, outs });
            }
            stream::finish_if(self.streamed);
        });
    }
}

/// The elements of the array of positions or offsets, of whatever dtype.
pub(super) fn given_positions<W: Float>(call: &CpuCall<'_>, input: usize) -> Result<Vec<W>> {
    macro_rules! body {
        ($narrow:ty, $wide:ty) => {{
            let place = |place: &$narrow| Convert::<f64>::convert(place.widen());
            let wide = call.input::<$narrow>(input)?.iter().map(place);
            Ok(wide.map(W::from_f64).collect())
        }};
    }
    with_types!(call.meta(input).dtype, body)
}

/// What all tasks know. Without `x` it is in the output.
pub(super) struct Rotation<'a, T: Storage> {
    pub(super) x: Option<Strided<'a, T>>,
    pub(super) frequencies: &'a [T::Wide],
    pub(super) given: Vec<T::Wide>,
    pub(super) rope: &'a Rope,
    pub(super) sizes: Sizes,
    pub(super) streamed: bool,
}

impl<'a, T: Element> Rotation<'a, T> {
    /// The position of a row along an axis, times the scale.
    #[inline(always)]
    fn position(&self, axis: usize, group: usize, row: usize) -> T::Wide {
        let sizes = &self.sizes;
        let batch = if sizes.position_batches == 1 { 0 } else { group };
        let step = T::Wide::from_f64(row as f64);
        let position = match self.rope.positions {
            Positions::From(start) => step + T::Wide::from_f64(start),
            Positions::Offset => step + self.given[batch],
            Positions::Given => {
                self.given[(axis * sizes.position_batches + batch) * sizes.length + row]
            }
        };
        position * T::Wide::from_f64(self.rope.scale)
    }

    /// The features of a head at a position, unless they are in the output.
    #[inline(always)]
    fn row(&self, head: usize, row: usize) -> Option<&'a [T]> {
        let Strided { data, meta } = self.x?;
        let strides = &meta.layout.strides;
        let (batch, head) = (head / self.sizes.heads, head % self.sizes.heads);
        let place = batch as isize * strides[0] + head as isize * strides[1];
        let start = meta.layout.offset as isize + place + row as isize * strides[2];
        Some(&data[start as usize..start as usize + self.sizes.features])
    }

    /// Whether the next head is nearer in memory than the next position.
    fn heads_are_near(&self) -> bool {
        let stride = |axis: usize| {
            self.x.map_or(0, |x| x.meta.layout.strides.get(axis).map_or(0, |s| s.unsigned_abs()))
        };
        stride(1) < stride(2)
    }
}

/// Rows of some heads: `outs` has those of one head each.
struct Task<'a, 'b, T: Storage> {
    rotation: &'a Rotation<'a, T>,
    group: usize,
    first_head: usize,
    first_row: usize,
    outs: &'a mut [&'b mut [T]],
}

impl<T: Element> pulp::WithSimd for Task<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Task { rotation, group, first_head, first_row, outs } = self;
        let (Sizes { half, features, .. }, dims) = (rotation.sizes, rotation.rope.dims);
        let (heads, rows) = (outs.len(), outs.first().map_or(0, |out| out.len() / features));
        let (cosines, sines) = angles(rotation, group, first_row..first_row + rows);
        let zero = <T::Wide as Float>::ZERO;
        let narrow = size_of::<T>() < size_of::<T::Wide>();
        let (mut wide, mut turned) = (vec![zero; dims], vec![zero; if narrow { dims } else { 0 }]);
        let heads_are_near = rotation.heads_are_near();
        for step in 0..rows * heads {
            let (row, head) = match heads_are_near {
                true => (step / heads, step % heads),
                false => (step % rows, step / rows),
            };
            let out = &mut outs[head][row * features..(row + 1) * features];
            let x = rotation.row(first_head + head, first_row + row);
            let turns = row * half..(row + 1) * half;
            let (c, s) = (&cosines[turns.clone()], &sines[turns]);
            let (out, rest) = out.split_at_mut(dims);
            if let Some(x) = x {
                rest.copy_from_slice(&x[dims..]);
            }
            let from = x.map_or(&*out, |x| &x[..dims]);
            if narrow {
                T::widen_slice(from, &mut wide);
                turn(rotation, &wide, c, s, &mut turned, false);
                T::narrow_slice(&turned, out);
                continue;
            }
            let from: &[T::Wide] = match x {
                Some(x) => bytemuck::cast_slice(&x[..dims]),
                None => {
                    T::widen_slice(from, &mut wide);
                    &wide
                }
            };
            turn(rotation, from, c, s, bytemuck::cast_slice_mut(out), rotation.streamed);
        }
    }
}

/// Cosines and sines of rows of positions, times the amplitude; the sines with the sign of the
/// direction.
#[inline(always)]
fn angles<T: Element>(
    rotation: &Rotation<'_, T>,
    group: usize,
    rows: std::ops::Range<usize>,
) -> (Vec<T::Wide>, Vec<T::Wide>) {
    let half = rotation.sizes.half;
    let amplitude = T::Wide::from_f64(rotation.rope.amplitude);
    let sign = T::Wide::from_f64(if rotation.rope.inverse { -1.0 } else { 1.0 });
    // The angles first, in the place of the cosines.
    let zero = <T::Wide as Float>::ZERO;
    let mut cosines = vec![zero; rows.len() * half];
    let mut sines = cosines.clone();
    for (angles, row) in cosines.chunks_exact_mut(half).zip(rows) {
        for (axis, frequencies) in rotation.frequencies.chunks_exact(half).enumerate() {
            let position = rotation.position(axis, group, row);
            for (angle, &frequency) in angles.iter_mut().zip(frequencies) {
                *angle = match axis {
                    0 => position * frequency,
                    _ => *angle + position * frequency,
                };
            }
        }
    }
    for (cosine, sine) in cosines.iter_mut().zip(&mut sines) {
        let angle = *cosine;
        *cosine = Real::cos(angle) * amplitude;
        *sine = Real::sin(angle) * sign * amplitude;
    }
    (cosines, sines)
}

/// Rotates the pairs of a row.
#[inline(always)]
fn turn<T: Element>(
    rotation: &Rotation<'_, T>,
    x: &[T::Wide],
    c: &[T::Wide],
    s: &[T::Wide],
    out: &mut [T::Wide],
    streamed: bool,
) {
    if rotation.rope.traditional {
        let pairs = x.as_chunks::<2>().0.iter().zip(out.as_chunks_mut::<2>().0);
        for (([a, b], out), (&c, &s)) in pairs.zip(c.iter().zip(s)) {
            *out = [*a * c - *b * s, *a * s + *b * c];
        }
        return;
    }
    let half = c.len();
    let (a, b) = x.split_at(half);
    let (out_a, out_b) = out.split_at_mut(half);
    let ((xa, a_rest), (xb, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let ((cs, c_rest), (ss, s_rest)) = (c.as_chunks::<LANES>(), s.as_chunks::<LANES>());
    let (ya, ya_rest) = out_a.as_chunks_mut::<LANES>();
    let (yb, yb_rest) = out_b.as_chunks_mut::<LANES>();
    let inputs = xa.iter().zip(xb).zip(cs.iter().zip(ss));
    for ((ya, yb), ((a, b), (c, s))) in ya.iter_mut().zip(yb).zip(inputs) {
        // Results wait in registers, so that no load can depend on a store.
        let mut first = [<T::Wide as Float>::ZERO; LANES];
        let mut second = first;
        for lane in 0..LANES {
            first[lane] = a[lane] * c[lane] - b[lane] * s[lane];
            second[lane] = a[lane] * s[lane] + b[lane] * c[lane];
        }
        stream::store_if(streamed, first, ya);
        stream::store_if(streamed, second, yb);
    }
    let inputs = a_rest.iter().zip(b_rest).zip(c_rest.iter().zip(s_rest));
    for ((ya, yb), ((&a, &b), (&c, &s))) in ya_rest.iter_mut().zip(yb_rest).zip(inputs) {
        *ya = a * c - b * s;
        *yb = a * s + b * c;
    }
}
