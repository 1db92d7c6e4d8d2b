//! The gated delta rule on the GPU: by chunks of steps where there are many with one gate each, else step by
//! step. Gradients are left in the scratch memory by the kernels, and from there go to the outputs.

mod chunked;
mod stepped;

use super::Sizes;
use crate::array::{DType, Meta};
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Numbers of the state or of its gradient that a workgroup holds, where there are no cooperative matrices.
const HELD: usize = 2048;

fn sizes(call: &GpuCall<'_>) -> Sizes {
    Sizes::new(&call.input_metas().collect::<Vec<_>>())
}

/// The inputs of both operations, then those of the gradient.
const NAMES: [&str; 8] = ["q", "k", "v", "g", "beta", "state", "dy", "dnext"];

/// Functions that read some of the inputs, which are the first bindings, and these.
fn readers(call: &GpuCall<'_>, inputs: &[usize]) -> (String, Vec<Bind<'static>>) {
    let mut text = packed::PACKING.to_string();
    for (binding, &input) in inputs.iter().enumerate() {
        text.push_str(&packed::reader(NAMES[input], binding, call.meta(input).dtype));
    }
    (text, inputs.iter().map(|&input| Bind::Input(input)).collect())
}

/// The scratch memory as a binding of a kernel.
fn memory(binding: usize) -> String {
    format!("@group(0) @binding({binding}) var<storage, read_write> memory: array<f32>;\n")
}

/// Where inputs begin in their memory; zero for those that an operation does not have.
fn offsets(call: &GpuCall<'_>) -> [usize; 8] {
    let mut offsets = [0; 8];
    for (offset, meta) in offsets.iter_mut().zip(call.input_metas()) {
        *offset = meta.layout.offset;
    }
    offsets
}

pub(super) fn forward(call: &mut GpuCall<'_>, corrects: bool) -> Result<()> {
    let sizes = sizes(call);
    if sizes.none() {
        return Ok(());
    }
    match chunked::fits(sizes) {
        true => chunked::forward(call, sizes, corrects),
        false => stepped::forward(call, sizes, corrects),
    }
}

/// Bytes of scratch memory that the kernels of the forward use.
pub(super) fn forward_scratch(inputs: &[&Meta], corrects: bool) -> usize {
    let sizes = Sizes::new(inputs);
    let used = !sizes.none() && chunked::fits(sizes);
    if used { chunked::pairs(sizes, corrects) * size_of::<f32>() } else { 0 }
}

/// Where the kernels of the gradient find and leave numbers, all as `f32` in the scratch memory.
struct Regions {
    /// The gradients in the inputs' order, where those of keys and queries are each value head's.
    gradients: [usize; 6],
    /// What other regions begin behind.
    end: usize,
}

impl Regions {
    fn new(sizes: Sizes) -> Regions {
        let Sizes { batch, heads, steps, keys, values, gates, .. } = sizes;
        let rows = batch * heads * steps;
        let mut regions = Regions { gradients: [0; 6], end: 0 };
        let each = [keys, keys, values, gates, 1].map(|width| rows * width);
        for (output, length) in each.into_iter().chain([batch * heads * values * keys]).enumerate()
        {
            regions.gradients[output] = regions.take(length);
        }
        regions
    }

    /// Where a region begins behind the others.
    fn take(&mut self, length: usize) -> usize {
        let start = self.end;
        self.end += length;
        start
    }
}

/// Bytes of scratch memory that the kernels of the gradient use.
pub(super) fn backward_scratch(inputs: &[&Meta], corrects: bool) -> usize {
    let sizes = Sizes::new(inputs);
    let mut regions = Regions::new(sizes);
    if chunked::fits(sizes) {
        chunked::Kept::new(sizes, corrects, &mut regions);
    } else {
        stepped::Kept::new(sizes, &mut regions);
    }
    regions.end.max(1) * size_of::<f32>()
}

pub(super) fn backward(call: &mut GpuCall<'_>, corrects: bool) -> Result<()> {
    let sizes = sizes(call);
    let Sizes { steps, keys, .. } = sizes;
    let mut regions = Regions::new(sizes);
    if sizes.none() {
        // Nothing to compute, and gradients of queries, keys and gates are sums of nothing.
    } else if steps == 0 {
        unchanged(call, &regions)?;
    } else if chunked::fits(sizes) {
        chunked::backward(call, sizes, corrects, &mut regions)?;
    } else {
        stepped::backward(call, sizes, corrects, &mut regions)?;
    }
    for output in 0..6 {
        // Heads that share keys add up.
        let (shared, run) = if output < 2 { (sizes.shared(), steps * keys) } else { (1, 1) };
        // Without rows there is nothing to sum.
        let shared = if sizes.none() { 0 } else { shared };
        let meta = call.output_meta(output);
        let (dtype, size) = (meta.dtype, meta.size());
        if size == 0 {
            continue;
        }
        let source = || {
            format!(
                "{}{}{}{}",
                packed::PACKING,
                include_str!("../spread.wgsl"),
                packed::word_writer("out", 1, dtype),
                packed::word_main(dtype, "p.n", "summed")
            )
        };
        let words = size.div_ceil(packed::per_word(dtype));
        call.launch(&Kernel {
            variant: format!("spread/{dtype}"),
            source: &source,
            bindings: &[Bind::Scratch, Bind::Output(output)],
            params: &[size, regions.gradients[output], shared, run].map(|n| n as u32),
            groups: grid(words.div_ceil(packed::WORD_MAIN_GROUP)),
        })?;
    }
    Ok(())
}

/// Without steps the gradient of the state is that of the next one.
fn unchanged(call: &mut GpuCall<'_>, regions: &Regions) -> Result<()> {
    let meta = call.meta(7);
    let source = || {
        let reader = packed::reader("dnext", 0, DType::F32);
        [packed::PACKING, &reader, &memory(1), include_str!("../unchanged.wgsl")].concat()
    };
    call.launch(&Kernel {
        variant: "unchanged".into(),
        source: &source,
        bindings: &[Bind::Input(7), Bind::Scratch],
        params: &[meta.size(), meta.layout.offset, regions.gradients[5]].map(|n| n as u32),
        groups: grid(meta.size().div_ceil(THREADS)),
    })
}
