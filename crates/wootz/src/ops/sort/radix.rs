//! Sorting stably by keys: digit by digit, or by comparing where keys are long or rows short; and
//! by the whole team, which sorts runs and merges them. A stable order is the only one, so no cut
//! changes a bit.

use super::keys::{Key, Sortable, VALUES};
use crate::cpu::threads;

/// What is sorted: an element, or its key and its index.
pub(super) trait Item: Copy + Send + Sync {
    type Key: Key;
    fn key(self) -> Self::Key;
}

impl<T: Sortable> Item for T {
    type Key = T::Key;
    #[inline(always)]
    fn key(self) -> T::Key {
        Sortable::key(self)
    }
}

/// Elements from which digits are quicker than comparisons.
const DIGITS_PAY: usize = 1 << 13;
/// Elements of a run that is worth a thread.
const RUN: usize = 1 << 16;
/// Elements that a task merges.
const MERGED: usize = 1 << 16;

/// Sorts one row on the calling thread. `spare` is as long, with any values.
pub(super) fn sort<I: Item>(row: &mut [I], spare: &mut [I]) {
    // Keys of eight bytes take so many passes that comparisons are quicker.
    if row.len() < DIGITS_PAY || size_of::<I::Key>() > 4 {
        return row.sort_by_key(|item| item.key());
    }
    let mut counts = vec![[0u32; VALUES]; I::Key::DIGITS];
    for item in row.iter() {
        let key = item.key();
        for (place, counts) in counts.iter_mut().enumerate() {
            counts[key.digit(place)] += 1;
        }
    }
    let mut swapped = false;
    for (place, counts) in counts.iter_mut().enumerate() {
        if counts.iter().any(|&count| count as usize == row.len()) {
            continue;
        }
        let mut start = 0;
        for count in counts.iter_mut() {
            start += std::mem::replace(count, start);
        }
        let (from, to) = if swapped { (&*spare, &mut *row) } else { (&*row, &mut *spare) };
        for &item in from {
            let next = &mut counts[item.key().digit(place)];
            // Counted before, so there is room.
            if let Some(to) = to.get_mut(*next as usize) {
                *to = item;
            }
            *next += 1;
        }
        swapped = !swapped;
    }
    if swapped {
        row.copy_from_slice(spare);
    }
}

/// Sorts one row with the whole team. `spare` is as long, with any values.
pub(super) fn sort_together<I: Item>(row: &mut [I], spare: &mut [I]) {
    let length = row.len();
    let wanted = threads::threads().min(length / RUN).max(1);
    let runs = 1 << wanted.ilog2();
    let mut run = length.div_ceil(runs).max(1);
    threads::chunks2_mut(row, run, spare, run, |_, row, spare| sort(row, spare));
    let mut swapped = false;
    while run < length {
        match swapped {
            false => merge_pairs(row, spare, run),
            true => merge_pairs(spare, row, run),
        }
        swapped = !swapped;
        run = run.saturating_mul(2);
    }
    if swapped {
        let from = &*spare;
        threads::chunks_mut(row, MERGED, |task, row| {
            row.copy_from_slice(&from[task * MERGED..][..row.len()]);
        });
    }
}

/// Merges each run of `from` with the one behind it.
fn merge_pairs<I: Item>(from: &[I], to: &mut [I], run: usize) {
    threads::chunks_mut(to, MERGED, |task, to| {
        let (mut start, end) = (task * MERGED, task * MERGED + to.len());
        let mut rest = to;
        // A task may reach into the next pair.
        while start < end {
            let pair = start / (2 * run) * (2 * run);
            let runs = &from[pair..(pair + 2 * run).min(from.len())];
            let (a, b) = runs.split_at(run.min(runs.len()));
            let count = (end - start).min(pair + runs.len() - start);
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(count);
            merge(a, b, start - pair, part);
            rest = behind;
            start += count;
        }
    });
}

/// The elements from `first` on of two sorted runs merged; of equal ones, those of `a` come first.
fn merge<I: Item>(a: &[I], b: &[I], first: usize, to: &mut [I]) {
    let mut i = taken_before(a, b, first);
    let mut j = first - i;
    let mut to = to.iter_mut();
    while let (Some(&left), Some(&right)) = (a.get(i), b.get(j)) {
        let Some(to) = to.next() else { return };
        let later = right.key() < left.key();
        *to = if later { right } else { left };
        j += later as usize;
        i += !later as usize;
    }
    let rest = if i < a.len() { &a[i..] } else { &b[j..] };
    to.zip(rest).for_each(|(to, &item)| *to = item);
}

/// How many of the first elements of two merged runs are of `a`.
fn taken_before<I: Item>(a: &[I], b: &[I], first: usize) -> usize {
    let (mut low, mut high) = (first.saturating_sub(b.len()), first.min(a.len()));
    while low < high {
        let i = (low + high) / 2;
        // One of `b` comes before one of `a` only if it is less.
        if b[first - i - 1].key() >= a[i].key() {
            low = i + 1;
        } else {
            high = i;
        }
    }
    low
}
