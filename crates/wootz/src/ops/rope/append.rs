//! New tokens' keys and values on their way into a cache: queries and keys are rotated, keys and values are written to
//! their rows of the cache, all in one pass over them.

#[cfg(feature = "gpu")]
mod gpu;

use half::{bf16, f16};
use smallvec::SmallVec;

use super::cpu::{Element, Rotation, given_positions};
use super::{Positions, Rope, Sizes, rows_are_whole, wide, with_rows};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Case, Entry, Metas, Op, Tolerance, evaluate_argument, expect_contiguous, expect_dtype,
    expect_float, expect_inputs, expect_shape,
};
use crate::ops::indexing::offsets::{by_index, check, check_index_dtype, place};
use crate::ops::indexing::raw;
use crate::ops::movement::slice_axis;
use crate::ops::{cache_append, concatenate};

const NAME: &str = "rope_append";

/// The inputs by number.
const KEYS: usize = 0;
const VALUES: usize = 1;
const KEY_CACHE: usize = 2;
const VALUE_CACHE: usize = 3;
const SLOTS: usize = 4;
const QUERIES: usize = 5;
const FREQUENCIES: usize = 6;
const OFFSETS: usize = 7;

/// Queries, keys and values of new tokens, each of `[batch, heads, length, features]`: queries and keys are rotated
/// by `rope`, with frequencies of `[1, dims / 2]` and positions that count from `offsets`; and keys and values are
/// written to the rows of the caches, of `[batch, heads, capacity, features]`, from `slots` on. Offsets and slots are
/// integers, one for all of the batch or one for each. Gives the caches and the rotated queries.
///
/// Without `rope` queries and keys are as they are.
///
/// ```
/// use wootz::{Array, DType, Rope, rope_append};
/// let cache = Array::zeros(&[1, 1, 4, 2], DType::F32)?;
/// let (x, slot) = (Array::new([[[[1.0f32, 0.0]]]])?, Array::new([2])?);
/// let frequencies = Array::new([[1.0f32]])?;
/// let rope = Some((Rope::new(2), &frequencies, &slot));
/// let ([keys, _], q) = rope_append([&x, &x, &x], rope, [&cache, &cache], &slot)?;
/// assert_eq!(keys.index((0, 0, 2))?.to_vec::<f32>()?, q.index((0, 0, 0))?.to_vec::<f32>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rope_append(
    [q, k, v]: [&Array; 3],
    rope: Option<(Rope, &Array, &Array)>,
    caches: [&Array; 2],
    slots: &Array,
) -> Result<([Array; 2], Array)> {
    let x = [with_rows(k)?, with_rows(v)?, with_rows(q)?];
    let caches = [caches[0].contiguous()?, caches[1].contiguous()?];
    let slots = slots.reshape(&[slots.size()])?.contiguous()?;
    let mut inputs = vec![&x[0], &x[1], &caches[0], &caches[1], &slots];
    let rest = match rope {
        Some((_, frequencies, offsets)) => {
            vec![frequencies.contiguous()?, offsets.reshape(&[offsets.size()])?.contiguous()?]
        }
        None => Vec::new(),
    };
    let op =
        RopeAppend { rope: rope.map(|(rope, ..)| Rope { positions: Positions::Offset, ..rope }) };
    if op.rope.is_some() {
        inputs.push(&x[2]);
        inputs.extend(&rest);
    }
    let metas: Vec<&Meta> = inputs.iter().map(|input| input.meta()).collect();
    op.infer(&metas)?;
    // What has no kernel is made of plainer operations.
    let plain = k.dtype() == DType::F64 || k.size() == 0 || v.size() == 0 || q.size() == 0;
    let results = match plain {
        true => op.plainly(&inputs.iter().map(|&input| input.clone()).collect::<Vec<_>>())?,
        false => Array::apply_all(op, &inputs)?.into_vec(),
    };
    let mut results = results.into_iter();
    match (results.next(), results.next(), results.next()) {
        (Some(k), Some(v), rotated) => Ok(([k, v], rotated.unwrap_or_else(|| q.clone()))),
        _ => Err(Error::argument(NAME, "outputs", "two arrays or more", "fewer")),
    }
}

/// [`rope_append`] as an operation: inputs are keys, values, their caches and the slots, and with a rope queries,
/// frequencies and offsets; outputs the caches, and with a rope queries. Rows of keys, values and queries lie in one
/// piece; all others are row-major.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeAppend {
    /// How queries and keys are rotated; positions are an [`Offset`](Positions::Offset).
    pub rope: Option<Rope>,
}

impl RopeAppend {
    fn plainly(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let [k, v, key_cache, value_cache, slots, rest @ ..] = inputs else {
            return Err(Error::argument(NAME, "inputs", "five arrays or more", inputs.len()));
        };
        let rotated = |x: &Array| match (self.rope, rest) {
            (Some(rope), [_, frequencies, offsets]) => rope.apply(x, frequencies, Some(offsets)),
            _ => Ok(x.clone()),
        };
        let appended = |cache: &Array, rows: &Array| {
            if slots.size() == 1 || rows.size() == 0 {
                return cache_append(cache, rows, slots);
            }
            let of = |array: &Array, text: usize| slice_axis(array, 0, text, text + 1, 1);
            let each = (0..slots.size())
                .map(|text| cache_append(&of(cache, text)?, &of(rows, text)?, &of(slots, text)?))
                .collect::<Result<Vec<_>>>()?;
            concatenate(&each, 0)
        };
        let mut outputs = vec![appended(key_cache, &rotated(k)?)?, appended(value_cache, v)?];
        if self.rope.is_some() {
            outputs.push(rotated(&rest[0])?);
        }
        Ok(outputs)
    }
}

impl Op for RopeAppend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.rope {
            None => &["keys", "values", "key_cache", "value_cache", "slots", "k", "v"],
            Some(_) => &[
                "keys",
                "values",
                "key_cache",
                "value_cache",
                "slots",
                "queries",
                "frequencies",
                "offsets",
                "k",
                "v",
                "q",
            ],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, if self.rope.is_some() { 8 } else { 5 })?;
        let &[batch, heads, length, _] = inputs[KEYS].shape() else {
            let expected = "[batch, heads, length, features]";
            return Err(Error::shape(NAME, "keys", expected, inputs[KEYS].shape()));
        };
        let dtype = inputs[KEYS].dtype;
        expect_float(self, inputs, KEYS)?;
        let &[_, _, capacity, _] = inputs[KEY_CACHE].shape() else {
            let expected = "[batch, heads, capacity, features]";
            return Err(Error::shape(NAME, "key_cache", expected, inputs[KEY_CACHE].shape()));
        };
        for (rows, cache) in [(KEYS, KEY_CACHE), (VALUES, VALUE_CACHE)] {
            expect_dtype(self, inputs, rows, dtype)?;
            expect_dtype(self, inputs, cache, dtype)?;
            expect_contiguous(self, inputs, cache)?;
            let features = inputs[rows].shape().last().copied().unwrap_or(0);
            expect_shape(self, inputs, rows, &[batch, heads, length, features])?;
            expect_shape(self, inputs, cache, &[batch, heads, capacity, features])?;
            expect_rows(inputs[rows], self.arguments()[rows])?;
        }
        if length > capacity {
            let expected = format!("up to {capacity} rows, as the cache has");
            return Err(Error::shape(NAME, "keys", expected, inputs[KEYS].shape()));
        }
        let each = |input: usize| {
            check_index_dtype(NAME, self.arguments()[input], inputs[input].dtype)?;
            expect_contiguous(self, inputs, input)?;
            match *inputs[input].shape() {
                [count] if count == 1 || count == batch => Ok(()),
                _ => {
                    let expected = format!("[1] or [{batch}]");
                    Err(Error::shape(
                        NAME,
                        self.arguments()[input],
                        expected,
                        inputs[input].shape(),
                    ))
                }
            }
        };
        each(SLOTS)?;
        let mut outputs: Metas = SmallVec::new();
        for cache in [KEY_CACHE, VALUE_CACHE] {
            outputs.push(Meta::new(NAME, inputs[cache].shape(), dtype)?);
        }
        if let Some(rope) = self.rope {
            let q = inputs[QUERIES];
            let features = inputs[KEYS].shape()[3];
            let heads = q.shape().get(1).copied().unwrap_or(0);
            expect_dtype(self, inputs, QUERIES, dtype)?;
            expect_shape(self, inputs, QUERIES, &[batch, heads, length, features])?;
            expect_rows(q, "queries")?;
            rope.check(q)?;
            expect_dtype(self, inputs, FREQUENCIES, wide(dtype))?;
            expect_contiguous(self, inputs, FREQUENCIES)?;
            expect_shape(self, inputs, FREQUENCIES, &[1, rope.dims / 2])?;
            each(OFFSETS)?;
            outputs.push(Meta::new(NAME, q.shape(), dtype)?);
        }
        Ok(outputs)
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(KEY_CACHE, 0), (VALUE_CACHE, 1)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        match call.output_meta(0).dtype {
            DType::F32 => append_as::<f32>(call, self.rope.as_ref()),
            DType::F64 => append_as::<f64>(call, self.rope.as_ref()),
            DType::F16 => append_as::<f16>(call, self.rope.as_ref()),
            DType::BF16 => append_as::<bf16>(call, self.rope.as_ref()),
            other => Err(Error::dtype(NAME, "keys", "a floating-point type", other)),
        }
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::append(call, self)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(self.plainly(inputs))
    }
}

fn expect_rows(x: &Meta, argument: &str) -> Result<()> {
    if rows_are_whole(x) {
        return Ok(());
    }
    let got = format!("strides {:?}", &x.layout.strides[..]);
    Err(Error::argument(NAME, argument, "rows in one piece", got))
}

/// The first row of the cache that each text's rows go to, or the one of all.
fn first_rows(call: &CpuCall<'_>, most: usize) -> Result<Vec<usize>> {
    macro_rules! body {
        ($index:ty) => {{
            let slots = call.input::<$index>(SLOTS)?;
            check(call.op, SLOTS, slots, most, false)?;
            slots.iter().map(|&slot| place(slot, most)).collect()
        }};
    }
    Ok(by_index!(call.meta(SLOTS).dtype, body))
}

fn append_as<T: Element>(call: &mut CpuCall<'_>, rope: Option<&Rope>) -> Result<()> {
    let &[_, heads, length, _] = call.meta(KEYS).shape() else { return Ok(()) };
    let capacity = call.meta(KEY_CACHE).shape()[2];
    let slots = first_rows(call, capacity + 1 - length)?;
    raw::copy_on_cpu(call, KEY_CACHE, 0)?;
    raw::copy_on_cpu(call, VALUE_CACHE, 1)?;
    for (input, output) in [(KEYS, 0), (VALUES, 1)] {
        let x = call.strided::<T>(input)?;
        let (strides, features) = (&x.meta.layout.strides, x.meta.shape()[3]);
        let rotation = match rope.filter(|_| input == KEYS) {
            Some(rope) => Some(rotation::<T>(call, rope, input)?),
            None => None,
        };
        // Heads are counted over all texts.
        let places = call.output::<T>(output)?.chunks_mut(capacity * features).enumerate();
        let places = places.map(|(head, place)| {
            let slot = slots[if slots.len() == 1 { 0 } else { head / heads }];
            &mut place[slot * features..(slot + length) * features]
        });
        if let Some(rotation) = rotation {
            rotation.write(places);
            continue;
        }
        for (head, place) in places.enumerate() {
            let (text, head) = ((head / heads) as isize, (head % heads) as isize);
            for (row, place) in place.chunks_exact_mut(features).enumerate() {
                let from = text * strides[0] + head * strides[1] + row as isize * strides[2];
                let from = (x.meta.layout.offset as isize + from) as usize;
                place.copy_from_slice(&x.data[from..from + features]);
            }
        }
    }
    let Some(rope) = rope else { return Ok(()) };
    let rotation = rotation::<T>(call, rope, QUERIES)?;
    let features = call.meta(QUERIES).shape()[3];
    rotation.write(call.output::<T>(2)?.chunks_mut(length * features));
    Ok(())
}

/// How an input of [`RopeAppend`] is rotated.
fn rotation<'r, 'a: 'r, T: Element>(
    call: &CpuCall<'a>,
    rope: &'r Rope,
    input: usize,
) -> Result<Rotation<'r, T>> {
    let given = given_positions(call, OFFSETS)?;
    Ok(Rotation {
        x: Some(call.strided::<T>(input)?),
        frequencies: call.input::<T::Wide>(FREQUENCIES)?,
        sizes: sizes(call.meta(input), rope, given.len()),
        given,
        rope,
        streamed: false,
    })
}

fn sizes(x: &Meta, rope: &Rope, position_batches: usize) -> Sizes {
    let [batch, heads, length, features] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
    Sizes { batch, heads, length, features, half: rope.dims / 2, position_batches }
}

/// Cases: heads of queries and of keys, rotated in part or not at all, one slot for all texts or one for each.
pub(super) fn entry() -> Entry {
    let because =
        "angles are rounded to float32 before their sine is taken, and terms of two cancel";
    let case = |label: &str, rope: Rope, sizes: [usize; 5], slots: usize, capacity: usize| {
        let [batch, heads, key_heads, length, features] = sizes;
        let q = [batch, heads, length, features];
        let k = [batch, key_heads, length, features];
        let v = [batch, key_heads, length, features + 2];
        let keys = [batch, key_heads, capacity, features];
        let values = [batch, key_heads, capacity, features + 2];
        // Room for three tokens more, which random programs may add to several.
        let most = (capacity - length - if length > 1 { 3 } else { 0 }) as f64 + 0.99;
        let shapes: [&[usize]; 8] =
            [&q, &k, &v, &keys, &values, &[slots], &[1, rope.dims / 2], &[slots]];
        Case::new(label, &shapes, move |x| {
            let frequencies = x[6].astype(wide(x[0].dtype()))?;
            evaluate_argument(&frequencies)?;
            let rope = Some((rope, &frequencies, &x[7]));
            let ([k, v], q) = rope_append([&x[0], &x[1], &x[2]], rope, [&x[3], &x[4]], &x[5])?;
            Ok(vec![q, k, v])
        })
        .fixed(5, DType::I32, 0.0..most)
        .fixed(7, DType::I32, 0.0..20.0)
        .tolerance(Tolerance::Because(8.0, because))
    };
    let split = Rope::new(8);
    let unrotated = Case::new(
        "not rotated",
        &[&[2, 3, 1, 6], &[2, 3, 1, 4], &[2, 3, 5, 6], &[2, 3, 5, 4], &[2]],
        |x| {
            let ([k, v], _) = rope_append([&x[0], &x[0], &x[1]], None, [&x[2], &x[3]], &x[4])?;
            Ok(vec![k, v])
        },
    );
    // Angles of the last positions are no larger than others'.
    let mut long = case("1025 tokens", split, [1, 1, 1, 1025, 8], 1, 1030);
    long.inputs[6].range = -0.01..0.01;
    Entry {
        name: NAME,
        cases: vec![
            long.dtypes(&[DType::F32, DType::BF16]),
            case("a token", split, [1, 6, 2, 1, 8], 1, 5),
            case("a token of each", Rope { amplitude: 1.5, ..split }, [3, 2, 2, 1, 8], 3, 4),
            case("some tokens", Rope { dims: 4, ..split }, [2, 3, 1, 3, 10], 1, 7),
            case("neighbours", Rope { traditional: true, ..split }, [2, 4, 2, 2, 8], 2, 6),
            // Pairs and rows that share words of 16-bit types.
            case("odd pairs", Rope { dims: 6, ..split }, [1, 3, 1, 2, 9], 1, 7),
            unrotated.fixed(4, DType::U32, 0.0..4.99).tolerance(Tolerance::Exact),
        ],
    }
}
