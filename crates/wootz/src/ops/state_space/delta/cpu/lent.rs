//! Memory that heads are computed in: a thread lends it and takes it back, so that most heads allocate
//! nothing.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;

use super::super::super::Element;

/// Bytes that a thread keeps at most.
const MOST: usize = 8 << 20;

thread_local! {
    static FREE: Cell<Vec<Vec<u64>>> = const { Cell::new(Vec::new()) };
}

/// Numbers in lent memory, zeros at first.
pub(super) struct Lent<W> {
    words: Vec<u64>,
    length: usize,
    numbers: PhantomData<W>,
}

impl<W: Pod> Lent<W> {
    pub(super) fn zeros(length: usize) -> Lent<W> {
        let mut free = FREE.take();
        let mut words = free.pop().unwrap_or_default();
        FREE.set(free);
        words.clear();
        words.resize((length * size_of::<W>()).div_ceil(size_of::<u64>()), 0);
        Lent { words, length, numbers: PhantomData }
    }
}

impl<W> Drop for Lent<W> {
    fn drop(&mut self) {
        let mut free = FREE.take();
        free.push(std::mem::take(&mut self.words));
        let kept: usize = free.iter().map(Vec::capacity).sum();
        if kept * size_of::<u64>() > MOST {
            free.pop();
        }
        FREE.set(free);
    }
}

impl<W: Pod> Deref for Lent<W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }
}

impl<W: Pod> DerefMut for Lent<W> {
    fn deref_mut(&mut self) -> &mut [W] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }
}

/// Numbers where they lie, or made anew.
pub(super) enum Numbers<'a, W> {
    Given(&'a [W]),
    Made(Lent<W>),
}

impl<W: Pod> Deref for Numbers<'_, W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        match self {
            Numbers::Given(given) => given,
            Numbers::Made(made) => made,
        }
    }
}

/// Elements in the type they are computed in.
pub(super) fn widened<T: Element>(x: &[T]) -> Numbers<'_, T::Wide> {
    if size_of::<T>() == size_of::<T::Wide>() {
        return Numbers::Given(bytemuck::cast_slice(x));
    }
    let mut wide = Lent::zeros(x.len());
    T::widen_slice(x, &mut wide);
    Numbers::Made(wide)
}
