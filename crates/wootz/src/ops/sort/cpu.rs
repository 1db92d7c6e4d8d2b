//! Sorting on the CPU: short rows shared out to threads, long rows sorted by all of them.

use half::{bf16, f16};

use super::Side;
use super::keys::{Key, Sortable};
use super::radix::{self, Item};
use crate::array::{DType, Meta};
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Elements that a thread sorts or looks up at least.
const CHUNK: usize = 4096;
/// Elements of a row that the whole team sorts.
const TOGETHER: usize = 1 << 17;

/// Calls a function generic over the elements of a dtype.
macro_rules! with_elements {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::Bool | DType::U8 => $function::<u8>($($argument),*),
            DType::U16 => $function::<u16>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::U64 => $function::<u64>($($argument),*),
            DType::I8 => $function::<i8>($($argument),*),
            DType::I16 => $function::<i16>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::I64 => $function::<i64>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
        }
    };
}

/// Sorts the rows of the input.
pub(super) fn sort(call: &mut CpuCall<'_>) -> Result<()> {
    with_elements!(call.meta(0).dtype, sort_rows(call))
}

/// The indices that sort the rows of the input.
pub(super) fn argsort(call: &mut CpuCall<'_>) -> Result<()> {
    with_elements!(call.meta(0).dtype, argsort_rows(call))
}

/// The places of the second input's elements in the first.
pub(super) fn searchsorted(call: &mut CpuCall<'_>, side: Side) -> Result<()> {
    with_elements!(call.meta(0).dtype, search(call, side))
}

/// The largest elements of the rows of the input, in rising order.
pub(super) fn topk(call: &mut CpuCall<'_>) -> Result<()> {
    with_elements!(call.meta(0).dtype, largest_of_rows(call))
}

/// Bytes beside the output: a second place for the elements of a row, or both places for keys with
/// their indices.
pub(super) fn scratch(input: &Meta, indices: bool) -> usize {
    let length = input.shape().last().copied().unwrap_or(1);
    // Short rows have memory of their thread.
    let elements = if length >= TOGETHER { length } else { 0 };
    match indices {
        false => elements * input.dtype.size(),
        true => 2 * elements * if input.dtype.size() == 8 { 16 } else { 8 },
    }
}

fn row_length(call: &CpuCall<'_>) -> usize {
    call.meta(0).shape().last().copied().unwrap_or(1).max(1)
}

fn sort_rows<T: Sortable>(call: &mut CpuCall<'_>) -> Result<()> {
    let (x, length) = (call.input::<T>(0)?, row_length(call));
    if length >= TOGETHER {
        let (out, spare) = call.output_and_scratch::<T, T>(0)?;
        threads::chunks_mut(out, CHUNK, |task, out| {
            out.copy_from_slice(&x[task * CHUNK..][..out.len()]);
        });
        for row in out.chunks_mut(length) {
            radix::sort_together(row, &mut spare[..length]);
        }
        return Ok(());
    }
    let chunk = (CHUNK / length).max(1) * length;
    threads::chunks_mut(call.output::<T>(0)?, chunk, |index, out| {
        out.copy_from_slice(&x[index * chunk..][..out.len()]);
        let mut spare = vec![T::zeroed(); length];
        out.chunks_mut(length).for_each(|row| radix::sort(row, &mut spare));
    });
    Ok(())
}

/// A key above the index of its element.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Short(u64);

/// As [`Short`], for keys of eight bytes.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Long(u128);

/// A key with the index of its element.
trait Indexed: Item + bytemuck::Pod {
    fn new(key: u64, index: u32) -> Self;
    fn index(self) -> u32;
}

impl Item for Short {
    type Key = u32;
    #[inline(always)]
    fn key(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl Indexed for Short {
    #[inline(always)]
    fn new(key: u64, index: u32) -> Short {
        Short(key << 32 | index as u64)
    }
    #[inline(always)]
    fn index(self) -> u32 {
        self.0 as u32
    }
}

impl Item for Long {
    type Key = u64;
    #[inline(always)]
    fn key(self) -> u64 {
        (self.0 >> 32) as u64
    }
}

impl Indexed for Long {
    #[inline(always)]
    fn new(key: u64, index: u32) -> Long {
        Long((key as u128) << 32 | index as u128)
    }
    #[inline(always)]
    fn index(self) -> u32 {
        self.0 as u32
    }
}

fn argsort_rows<T: Sortable>(call: &mut CpuCall<'_>) -> Result<()> {
    match size_of::<T::Key>() {
        8 => argsort_as::<T, Long>(call),
        _ => argsort_as::<T, Short>(call),
    }
}

fn argsort_as<T: Sortable, I: Indexed>(call: &mut CpuCall<'_>) -> Result<()> {
    let (x, length) = (call.input::<T>(0)?, row_length(call));
    if length >= TOGETHER {
        let (out, scratch) = call.output_and_scratch::<u32, I>(0)?;
        let (items, spare) = scratch.split_at_mut(length);
        for (x, out) in x.chunks(length).zip(out.chunks_mut(length)) {
            threads::chunks_mut(items, CHUNK, |task, items| {
                let first = task * CHUNK;
                for (i, (item, value)) in items.iter_mut().zip(&x[first..]).enumerate() {
                    *item = I::new(value.key().to_u64(), (first + i) as u32);
                }
            });
            radix::sort_together(items, &mut spare[..length]);
            let items = &*items;
            threads::chunks_mut(out, CHUNK, |task, out| {
                for (out, item) in out.iter_mut().zip(&items[task * CHUNK..]) {
                    *out = item.index();
                }
            });
        }
        return Ok(());
    }
    let chunk = (CHUNK / length).max(1) * length;
    threads::chunks_mut(call.output::<u32>(0)?, chunk, |index, out| {
        let x = &x[index * chunk..][..out.len()];
        let (mut items, mut spare) = (vec![I::zeroed(); length], vec![I::zeroed(); length]);
        for (x, out) in x.chunks(length).zip(out.chunks_mut(length)) {
            for ((item, value), index) in items.iter_mut().zip(x).zip(0u32..) {
                *item = I::new(value.key().to_u64(), index);
            }
            radix::sort(&mut items, &mut spare);
            for (out, item) in out.iter_mut().zip(&items) {
                *out = item.index();
            }
        }
    });
    Ok(())
}

fn largest_of_rows<T: Sortable>(call: &mut CpuCall<'_>) -> Result<()> {
    let (x, length) = (call.input::<T>(0)?, row_length(call));
    let k = call.output_meta(0).shape().last().copied().unwrap_or(1).max(1);
    let out = call.output::<T>(0)?;
    if length >= TOGETHER {
        for (x, out) in x.chunks(length).zip(out.chunks_mut(k)) {
            out.copy_from_slice(&largest(candidates(x, k), k));
        }
        return Ok(());
    }
    let rows = (CHUNK / length).max(1);
    threads::chunks_mut(out, rows * k, |task, out| {
        let x = &x[task * rows * length..];
        for (x, out) in x.chunks(length).zip(out.chunks_mut(k)) {
            out.copy_from_slice(&largest(x.to_vec(), k));
        }
    });
    Ok(())
}

/// The `k` largest of some elements, in rising order.
fn largest<T: Sortable>(mut elements: Vec<T>, k: usize) -> Vec<T> {
    let others = elements.len().saturating_sub(k);
    if others > 0 {
        elements.select_nth_unstable_by_key(others, |value| value.key());
    }
    let mut largest = elements.split_off(others);
    largest.sort_by_key(|value| value.key());
    largest
}

/// The elements of a long row among which its `k` largest are: those whose keys' highest digits
/// are not below what `k` elements have.
fn candidates<T: Sortable>(x: &[T], k: usize) -> Vec<T> {
    const DIGITS: u32 = 12;
    const PART: usize = 1 << 20;
    let shift = (8 * size_of::<T::Key>() as u32).saturating_sub(DIGITS);
    let highest = |value: &T| (value.key().to_u64() >> shift) as usize;
    let parts = x.len().div_ceil(PART);
    let mut counts = vec![0u32; parts << DIGITS];
    threads::chunks_mut(&mut counts, 1 << DIGITS, |part, counts| {
        for value in x[part * PART..].iter().take(PART) {
            counts[highest(value)] += 1;
        }
    });
    let (mut lowest, mut reached) = (1 << DIGITS, 0);
    while reached < k && lowest > 0 {
        lowest -= 1;
        let of_part = |part: usize| counts[(part << DIGITS) + lowest] as usize;
        reached += (0..parts).map(of_part).sum::<usize>();
    }
    let mut found: Vec<Vec<T>> = vec![Vec::new(); parts];
    threads::chunks_mut(&mut found, 1, |part, found| {
        let values = x[part * PART..].iter().take(PART);
        found[0].extend(values.filter(|value| highest(value) >= lowest));
    });
    found.concat()
}

fn search<T: Sortable>(call: &mut CpuCall<'_>, side: Side) -> Result<()> {
    let (sorted, values) = (call.input::<T>(0)?, call.input::<T>(1)?);
    threads::chunks_mut(call.output::<u32>(0)?, CHUNK, |index, out| {
        for (out, value) in out.iter_mut().zip(&values[index * CHUNK..]) {
            let key = value.key();
            let place = match side {
                Side::Left => sorted.partition_point(|other| other.key() < key),
                Side::Right => sorted.partition_point(|other| other.key() <= key),
            };
            *out = place as u32;
        }
    });
    Ok(())
}
