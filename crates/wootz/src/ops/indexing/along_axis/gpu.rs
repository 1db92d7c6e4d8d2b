//! Picking and putting elements along an axis on the GPU. Where a thread goes along the axis, so that
//! updates take effect in their order, a launch takes a run of the indices.

use super::super::offsets::place_function;
use super::super::raw;
use super::Sides;
use crate::array::{Class, DType, Meta};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, packed};

/// Indices along the axis that a thread goes through in one launch: lavapipe ends the loops of a thread after 65,535
/// turns of all of them together.
const RUN: usize = 1 << 15;

/// Indices along the axis above which a GPU thread reads them for a block of elements instead of
/// every element looking for its own.
const LONGEST_SEARCH: usize = 64;

/// Elements of a block.
const BLOCK: usize = 32;

impl Sides {
    /// The parameters that the kernels share.
    fn words(&self, n: usize, indices: &Meta, other: &Meta) -> raw::Words {
        let mut words = raw::Words::default();
        words.push("n", n);
        words.push("indices_offset", indices.layout.offset);
        words.push("other_offset", other.layout.offset);
        words.push("length", self.length);
        words.push("count", self.count);
        words.push("inner", self.inner);
        words
    }

    /// The parameters of each launch of a kernel whose threads go along the axis, of which a launch takes the indices
    /// from `p.first` to `p.end`. There is at least one.
    fn runs(&self, n: usize, indices: &Meta, other: &Meta) -> impl Iterator<Item = raw::Words> {
        (0..self.count.max(1)).step_by(RUN).map(move |first| {
            let mut words = self.words(n, indices, other);
            words.push("first", first);
            words.push("end", (first + RUN).min(self.count));
            words
        })
    }
}

/// Records a kernel that only looks for indices out of range, so that those after it can see it
/// before they write.
pub(in crate::ops) fn check_on_gpu(
    call: &mut GpuCall<'_>,
    input: usize,
    length: usize,
    wrap: bool,
) -> Result<()> {
    let indices = call.meta(input);
    let mut words = raw::Words::default();
    words.push("n", indices.size());
    words.push("offset", indices.layout.offset);
    words.push("length", length);
    words.push("site", call.status_site(input, length) as usize);
    let source = || {
        format!(
            "{}{}{}{}{}{}{}",
            packed::PACKING,
            words.text(),
            packed::reader("indices", 0, indices.dtype),
            raw::status(1),
            place_function(indices.dtype, wrap),
            raw::MAIN,
            include_str!("../check_indices.wgsl"),
        )
    };
    call.launch_with_status(&Kernel {
        variant: format!("check {} {wrap}", indices.dtype),
        source: &source,
        bindings: &[Bind::Input(input)],
        params: &words.words,
        groups: raw::threads_grid(indices.size()),
    })
}

/// For each index its element.
pub(super) fn take(call: &mut GpuCall<'_>, sides: Sides) -> Result<()> {
    let (x, indices) = (call.meta(0), call.meta(1));
    check_on_gpu(call, 1, sides.length, true)?;
    let size = x.dtype.size();
    let words = sides.words(indices.size(), indices, x);
    let source = || {
        format!(
            "{}{}{}{}{}{}{}{}{}",
            packed::PACKING,
            words.text(),
            raw::reader("x", 0, size),
            packed::reader("indices", 1, indices.dtype),
            raw::word_output("out", 2, size),
            raw::status(3),
            place_function(indices.dtype, true),
            include_str!("../take_along_axis.wgsl"),
            raw::each_word(size, true, "x(source(i))"),
        )
    };
    call.launch_with_status(&Kernel {
        variant: format!("take {size} {}", indices.dtype),
        source: &source,
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &words.words,
        groups: raw::threads_grid(indices.size().div_ceil((4 / size).max(1))),
    })
}

/// Adds up gradients at their indices.
pub(super) fn add(call: &mut GpuCall<'_>, sides: Sides) -> Result<()> {
    if call.meta(0).size() > 0 {
        check_on_gpu(call, 0, sides.length, true)?;
    }
    if sides.count > LONGEST_SEARCH { in_blocks(call, sides) } else { by_search(call, sides) }
}

/// Bytes that wait from launch to launch.
pub(super) fn scratch(sides: Sides, dtype: DType) -> usize {
    if sides.count <= RUN {
        return 0;
    }
    sides.outer * sides.length * sides.inner * sums_dtype(dtype).size()
}

/// What a kernel that adds up gradients reads: they, their indices and the parameters.
fn gradients_text(words: &raw::Words, index: DType, dtype: DType) -> String {
    format!(
        "{}{}{}{}{}alias Wide = {};\n",
        packed::PACKING,
        words.text(),
        packed::reader("indices", 0, index),
        packed::reader("dy", 1, dtype),
        place_function(index, true),
        packed::wgsl_type(dtype.class()),
    )
}

/// Every element of the output looks for its gradients.
fn by_search(call: &mut GpuCall<'_>, sides: Sides) -> Result<()> {
    let (indices, dy, size) = (call.meta(0), call.meta(1), call.output_meta(0).size());
    let dtype = dy.dtype;
    let words = sides.words(size, indices, dy);
    let source = || {
        let value = match packed::per_word(dtype) {
            1 => "sum_at(i)".to_string(),
            _ => packed::narrow(dtype, "sum_at(i)"),
        };
        [
            &gradients_text(&words, indices.dtype, dtype),
            &packed::word_writer("out", 2, dtype),
            &raw::status(3),
            include_str!("../take_along_axis_backward.wgsl"),
            &raw::each_word(dtype.size(), true, &value),
        ]
        .concat()
    };
    call.launch_with_status(&Kernel {
        variant: format!("search {dtype} {}", indices.dtype),
        source: &source,
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &words.words,
        groups: raw::threads_grid(size.div_ceil(packed::per_word(dtype))),
    })
}

/// Threads read the indices for blocks of elements; what several launches add up waits in scratch memory.
fn in_blocks(call: &mut GpuCall<'_>, sides: Sides) -> Result<()> {
    let (indices, dy) = (call.meta(0), call.meta(1));
    let (dtype, wide) = (dy.dtype, sums_dtype(dy.dtype));
    let threads = sides.outer * sides.inner * sides.length.div_ceil(BLOCK);
    let several = sides.count > RUN;
    let mut bindings = vec![Bind::Input(0), Bind::Input(1), Bind::Output(0)];
    bindings.extend(several.then_some(Bind::Scratch));
    for words in sides.runs(threads, indices, dy) {
        let source = || {
            let waiting = match several {
                true => {
                    packed::writer("waiting", 3, wide)
                        + &packed::load_function("waiting", "waiting_data", wide)
                }
                false => "fn waiting(i: u32) -> Wide { return Wide(0); }\n\
                          fn waiting_set(i: u32, value: Wide) {}\n"
                    .to_string(),
            };
            [
                &gradients_text(&words, indices.dtype, dtype),
                &packed::writer("out", 2, dtype),
                &waiting,
                &raw::status(bindings.len()),
                &format!("const BLOCK = {BLOCK}u;\n"),
                raw::MAIN,
                include_str!("../take_along_axis_backward_blocks.wgsl"),
            ]
            .concat()
        };
        let runs = if several { "runs of blocks" } else { "blocks" };
        call.launch_with_status(&Kernel {
            variant: format!("{runs} {dtype} {}", indices.dtype),
            source: &source,
            bindings: &bindings,
            params: &words.words,
            groups: raw::threads_grid(threads),
        })?;
    }
    Ok(())
}

/// The dtype that gradients are added up in on a GPU.
fn sums_dtype(dtype: DType) -> DType {
    match dtype.class() {
        Class::U32 => DType::U32,
        Class::I32 => DType::I32,
        Class::U64 => DType::U64,
        Class::I64 => DType::I64,
        Class::F32 | Class::F64 => DType::F32,
        Class::C64 => DType::C64,
    }
}

/// Stores values at their indices.
pub(super) fn put(call: &mut GpuCall<'_>, sides: Sides) -> Result<()> {
    check_on_gpu(call, 1, sides.length, true)?;
    raw::copy_on_gpu(call, 0, 0, true)?;
    let (indices, size) = (call.meta(1), call.meta(2).dtype.size());
    // One thread for each line along the axis: it stores the values one after the other.
    let lines = sides.outer * sides.inner;
    for words in sides.runs(lines, indices, call.meta(2)) {
        let source = || {
            format!(
                "{}{}{}{}{}{}{}{}{}",
                packed::PACKING,
                words.text(),
                packed::reader("indices", 0, indices.dtype),
                raw::reader("values", 1, size),
                raw::writer("out", 2, size),
                raw::status(3),
                place_function(indices.dtype, true),
                raw::MAIN,
                include_str!("../put_along_axis.wgsl"),
            )
        };
        call.launch_with_status(&Kernel {
            variant: format!("put {size} {}", indices.dtype),
            source: &source,
            bindings: &[Bind::Input(1), Bind::Input(2), Bind::Output(0)],
            params: &words.words,
            groups: raw::threads_grid(lines),
        })?;
    }
    Ok(())
}
