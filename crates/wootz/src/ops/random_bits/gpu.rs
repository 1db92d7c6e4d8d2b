//! threefry2x32 on the GPU: one thread per word of the output.

use crate::array::DType;
use crate::error::Result;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Fills the output with bits, `count` elements for each key.
pub(super) fn run(call: &mut GpuCall<'_>, count: usize) -> Result<()> {
    let output = call.output_meta(0);
    let (dtype, total) = (output.dtype, output.size());
    let words = (count * dtype.size()).div_ceil(4);
    call.launch(&Kernel {
        variant: format!("{dtype}"),
        source: &|| {
            [
                packed::PACKING,
                &packed::reader("key", 0, DType::U32),
                &packed::word_writer("out", 1, dtype),
                &include_str!("threefry.wgsl").replace("SIZE", &format!("{}u", dtype.size())),
                &packed::word_main(dtype, "p.total", "element"),
            ]
            .concat()
        },
        bindings: &[Bind::Input(0), Bind::Output(0)],
        params: &[total as u32, count as u32, words as u32, call.meta(0).layout.offset as u32],
        groups: grid(total.div_ceil(packed::per_word(dtype)).div_ceil(packed::WORD_MAIN_GROUP)),
    })
}
