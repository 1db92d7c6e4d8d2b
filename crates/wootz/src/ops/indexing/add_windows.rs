//! What gathering leaves as a gradient: windows added up where they were, in an array of zeros. All that meets in an
//! element is summed in single precision and rounded once.
//!
//! The updates come with the order that puts those of one window side by side, so that a window's sum is one task's, or
//! one thread's for each element, and beside the result memory is needed for the indices only. On a GPU a thread adds up
//! no more than a part of fixed length, and sums of windows in several parts are put together in a second pass: an
//! index may be there 100,000 times, as padding is.

use half::{bf16, f16};
use smallvec::SmallVec;

use super::gather::{self, Window};
use super::offsets::{Picks, Rules};
use super::raw::Walk;
use super::scatter::{block_of, places_of};
use crate::array::{Array, DType, Meta, Shape};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, packed};
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_dtype, expect_shape};
use crate::ops::{argsort, astype, moveaxis};

/// Updates of windows added up in zeros like `x`, if there are several, of a dtype that this does. On the CPU single
/// precision has nothing to round, and is added where it lies.
pub(super) fn added_up(
    op: &'static str,
    x: &Array,
    picks: &Picks,
    updates: &Array,
    window: &Window,
) -> Result<Option<Array>> {
    let dtype = x.dtype();
    let known = match dtype {
        DType::F16 | DType::BF16 => true,
        DType::F32 => x.device().is_gpu(),
        _ => false,
    };
    if !known || picks.rules().count() < 2 || updates.size() == 0 {
        return Ok(None);
    }
    let (window, shape, rules) = (window.clone(), x.shape().into(), picks.rules().clone());
    let add = AddWindows { op, window, shape, rules };
    add.apply(picks, &astype(updates, dtype)?).map(Some)
}

/// Adds up windows in zeros of a shape. The inputs are the updates, their numbers in the order of their windows, and the
/// indices.
#[derive(Debug)]
struct AddWindows {
    op: &'static str,
    window: Window,
    shape: Shape,
    rules: Rules,
}

/// Updates that a thread of a GPU adds up.
#[cfg(feature = "gpu")]
const PART: usize = 256;

/// The input that indices begin with.
const FIRST_INDEX: usize = 2;

impl AddWindows {
    fn apply(self, picks: &Picks, updates: &Array) -> Result<Array> {
        let (updates, indices) = (updates.contiguous()?, picks.inputs()?);
        let order = argsort(&picks.offsets(self.op)?, -1)?.contiguous()?;
        let inputs: SmallVec<[&Array; 4]> =
            [&updates, &order].into_iter().chain(&indices).collect();
        Array::apply(self, &inputs)
    }
}

impl Op for AddWindows {
    fn name(&self) -> &'static str {
        self.op
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["updates", "order", "indices", "indices", "indices", "indices", "indices", "indices"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        self.rules.expect(self, inputs, FIRST_INDEX)?;
        (0..FIRST_INDEX).try_for_each(|input| expect_contiguous(self, inputs, input))?;
        expect_shape(self, inputs, 0, &self.window.gathered(self.rules.shape()))?;
        expect_dtype(self, inputs, 1, DType::U32)?;
        expect_shape(self, inputs, 1, &[self.rules.count()])?;
        Ok(Metas::from_elem(Meta::new(self.op, &self.shape, inputs[0].dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        // On a GPU, offsets and then sums: of each part of a window that begins there, and of one that others began.
        let sums = match gpu {
            #[cfg(feature = "gpu")]
            true if self.parts() > 1 => 2 * self.parts() * (inputs[0].size() / self.rules.count()),
            _ => 0,
        };
        self.rules.scratch(gpu) + sums * size_of::<f32>()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let offsets = self.rules.on_cpu(self, call, FIRST_INDEX)?;
        match call.output_meta(0).dtype {
            DType::F32 => self.run_as::<f32>(call, &offsets),
            DType::F16 => self.run_as::<f16>(call, &offsets),
            DType::BF16 => self.run_as::<bf16>(call, &offsets),
            other => Err(Error::dtype(self.op, "updates", "floats of at most 32 bits", other)),
        }
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        self.rules.on_gpu(call, FIRST_INDEX, Bind::Scratch)?;
        zeros_on_gpu(call)?;
        let (updates, order) = (call.meta(0), call.meta(1));
        let dtype = updates.dtype;
        let (before, after) = self.window.walks(&self.shape);
        let mut words = super::raw::Words::default();
        words.push("n", updates.size());
        words.push("updates_offset", updates.layout.offset);
        words.push("order_offset", order.layout.offset);
        words.push("count", self.rules.count());
        words.push("run", after.len());
        words.push("parts", self.parts());
        words.walk("before", &before);
        words.walk("after", &after);
        let functions = format!(
            "const PART = {PART}u;\n\
             fn window_of(rank: u32) -> u32 {{ return offsets(order(p.order_offset + rank)); }}\n\
             fn sum_at(outer: u32, part: u32, begins: bool) -> u32 {{\n\
             let number = (outer * p.parts + part) * 2u + select(0u, 1u, begins);\n\
             return p.count + number * p.run;\n}}\n"
        );
        let source = || {
            [
                packed::PACKING,
                &words.text(),
                &packed::reader("order", 0, DType::U32),
                &packed::writer("out", 1, dtype),
                &packed::reader("updates", 2, dtype),
                &self.rules.reader(3),
                &functions,
                super::raw::MAIN,
                include_str!("add_windows.wgsl"),
            ]
            .concat()
        };
        call.launch(&Kernel {
            variant: format!("add windows {dtype}{}", words.key()),
            source: &source,
            bindings: &self.rules.bind(&[Bind::Input(1), Bind::Output(0), Bind::Input(0)]),
            params: &words.words,
            groups: super::raw::threads_grid(updates.size()),
        })?;
        if self.parts() == 1 {
            return Ok(());
        }
        let threads = updates.size() / self.rules.count() * self.parts();
        let mut params = words.words.clone();
        // The first is how many threads have something to do.
        params[0] = threads as u32;
        let source = || {
            [
                packed::PACKING,
                &words.text(),
                &packed::reader("order", 0, DType::U32),
                &packed::writer("out", 1, dtype),
                &self.rules.reader(2),
                &functions,
                super::raw::MAIN,
                include_str!("add_parts.wgsl"),
            ]
            .concat()
        };
        call.launch(&Kernel {
            variant: format!("add parts {dtype}{}", words.key()),
            source: &source,
            bindings: &self.rules.bind(&[Bind::Input(1), Bind::Output(0)]),
            params: &params,
            groups: super::raw::threads_grid(threads),
        })
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut gradients = vec![None; inputs.len()];
        if let Some(gradient) = &cotangents[0] {
            let picks = Picks::again(&inputs[FIRST_INDEX..], &self.rules);
            gradients[0] = Some(gather::apply(self.op, gradient, &picks, self.window.clone())?);
        }
        Ok(gradients)
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let updates = batch.spread(0)?;
        // Other picks have another order.
        let (picks, updates, window) = match batch.batched[FIRST_INDEX..].contains(&true) {
            false => {
                let picks = Picks::again(&batch.inputs[FIRST_INDEX..], &self.rules);
                (picks, updates, self.window.with_batch(batch.size))
            }
            true => {
                let elements = self.shape.iter().product();
                let picks = Picks::of_batch(batch, FIRST_INDEX, &self.rules, Some(elements))?;
                let before = self.window.axes_before() as i64;
                (picks, moveaxis(&updates, 0, before)?, self.window.in_batch())
            }
        };
        let shape = [&[batch.size], &self.shape[..]].concat().into();
        let batched = AddWindows { op: self.op, window, shape, rules: picks.rules().clone() };
        Ok(vec![batched.apply(&picks, &updates)?])
    }
}

impl AddWindows {
    /// How many parts the updates are cut into.
    #[cfg(feature = "gpu")]
    fn parts(&self) -> usize {
        self.rules.count().div_ceil(PART)
    }

    fn run_as<T>(&self, call: &mut CpuCall<'_>, offsets: &[usize]) -> Result<()>
    where
        T: Storage<Wide = f32> + bytemuck::Pod + Send + Sync,
    {
        let (before, after) = self.window.walks(&self.shape);
        let (updates, order) = (call.input::<T>(0)?, call.input::<u32>(1)?);
        let output = call.output::<T>(0)?;
        let (run, block) = (after.len(), block_of(output.len(), offsets, &before, &after));
        let offset = |number: u32| offsets[number as usize];
        threads::chunks_mut(output, block, |chunk, output| {
            output.fill(T::zeroed());
            let start = chunk * block;
            let mut sums = vec![0f32; run];
            for place in places_of(chunk, block, &before) {
                let base = before.place(place) as usize;
                let first = order.partition_point(|&number| base + offset(number) < start);
                let end =
                    order.partition_point(|&number| base + offset(number) < start + output.len());
                for same in order[first..end].chunk_by(|&a, &b| offset(a) == offset(b)) {
                    sums.fill(0.0);
                    for &number in same {
                        let row = (place * offsets.len() + number as usize) * run;
                        for (sum, update) in sums.iter_mut().zip(&updates[row..row + run]) {
                            *sum += update.widen();
                        }
                    }
                    store(&sums, &mut output[base + offset(same[0]) - start..], &after);
                }
            }
        });
        Ok(())
    }
}

/// Rounds the sums of a window to their places.
fn store<T: Storage<Wide = f32>>(sums: &[f32], output: &mut [T], after: &Walk) {
    if after.is_run() {
        return T::narrow_slice(sums, &mut output[..sums.len()]);
    }
    for (element, &sum) in sums.iter().enumerate() {
        output[after.place(element) as usize] = T::narrow(sum);
    }
}

/// Fills the output with zeros, word by word.
#[cfg(feature = "gpu")]
fn zeros_on_gpu(call: &mut GpuCall<'_>) -> Result<()> {
    use super::raw::{Words, each_word, threads_grid, word_output};
    let meta = call.output_meta(0);
    let (size, elements) = (meta.dtype.size(), meta.size());
    let mut words = Words::default();
    words.push("n", elements);
    let text = || {
        [&words.text()[..], &word_output("out", 0, size), &each_word(size, false, "0u")].concat()
    };
    call.launch(&Kernel {
        variant: format!("zeros {size}"),
        source: &text,
        bindings: &[Bind::Output(0)],
        params: &words.words,
        groups: threads_grid(elements.div_ceil((4 / size).max(1))),
    })
}
