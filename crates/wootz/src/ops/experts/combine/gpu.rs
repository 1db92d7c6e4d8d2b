//! Results of experts on the GPU: a thread sums a span of a token, and a workgroup has the gradients of
//! a token.

use super::sizes;
use crate::error::Result;
use crate::gpu::rows::Rows;
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};

/// Threads of a workgroup.
const WIDTH: usize = 256;
/// Elements of a token's gradient that a thread keeps in registers.
const KEPT: usize = 32;

pub(super) fn forward(call: &mut GpuCall<'_>) -> Result<()> {
    let (y, weights) = (call.meta(0), call.meta(1));
    let (dtype, weights_dtype) = (y.dtype, weights.dtype);
    let (experts, columns) = sizes(y);
    let rows = Rows::new(dtype, columns, [y.layout.offset], WIDTH, 0);
    let size = call.output_meta(0).size();
    let params = [size, columns, experts, y.layout.offset, weights.layout.offset];
    call.launch(&Kernel {
        variant: format!("{dtype}.{weights_dtype}.{}", rows.key()),
        source: &|| {
            let parts = [
                packed::PACKING,
                &rows.types(),
                &rows.reader("y", 0),
                &packed::reader("weights", 1, weights_dtype),
                &rows.writer("out", 2),
                include_str!("forward.wgsl"),
            ];
            rows.typed(&parts.concat())
        },
        bindings: &[Bind::Input(0), Bind::Input(1), Bind::Output(0)],
        params: &params.map(|number| number as u32),
        groups: grid(size.div_ceil(WIDTH * rows.span())),
    })
}

pub(super) fn backward(call: &mut GpuCall<'_>) -> Result<()> {
    let [y, weights, dy] = [0, 1, 2].map(|input| call.meta(input));
    let (dtype, weights_dtype) = (y.dtype, weights.dtype);
    let (experts, columns) = sizes(y);
    let offsets = [y, weights, dy].map(|meta| meta.layout.offset);
    let rows = Rows::new(dtype, columns, [offsets[0], offsets[2]], WIDTH, KEPT);
    let tokens = dy.size() / columns;
    let params = [tokens, columns, experts, offsets[0], offsets[1], offsets[2]];
    call.launch(&Kernel {
        variant: format!("{dtype}.{weights_dtype}.{}", rows.key()),
        source: &|| {
            let parts = [
                packed::PACKING,
                &rows.types(),
                &rows.reader("y", 0),
                &packed::reader("weights", 1, weights_dtype),
                &rows.reader("dy", 2),
                &rows.keeper("dy"),
                &rows.writer("of_y", 3),
                &packed::writer("of_weights", 4, weights_dtype),
                include_str!("../../norms/group.wgsl"),
                include_str!("backward.wgsl"),
            ];
            rows.typed(&parts.concat())
        },
        bindings: &[
            Bind::Input(0),
            Bind::Input(1),
            Bind::Input(2),
            Bind::Output(0),
            Bind::Output(1),
        ],
        params: &params.map(|number| number as u32),
        groups: grid(tokens),
    })
}
