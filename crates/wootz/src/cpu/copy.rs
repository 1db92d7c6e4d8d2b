//! Row-major copies of arrays whose fast axis is not their last: in blocks, so that whole cache
//! lines are read and written.

use bytemuck::Pod;

use super::{CpuCall, threads};
use crate::array::{Layout, collapse};
use crate::error::Result;

/// Rows and columns of a block; a row of it is at least a cache line.
const BLOCK: usize = 32;

/// Copies the call's input to its output if it is a stack of transposed matrices; tells whether it
/// was.
pub(crate) fn transposed(call: &mut CpuCall<'_>) -> Result<bool> {
    let (input, output) = (call.meta(0), call.output_meta(0));
    if call.aliased(0) || input.dtype != output.dtype || input.shape() != output.shape() {
        return Ok(false);
    }
    let (shape, strides) = collapse(&[&output.layout, &input.layout]);
    let (lead, rows, columns) = match (&shape[..], &strides[1][..]) {
        ([lead @ .., rows, columns], [.., 1, stride]) if *stride > 1 => (lead, *rows, *columns),
        _ => return Ok(false),
    };
    if rows < BLOCK || columns < BLOCK || lead.len() > 1 {
        return Ok(false);
    }
    let pitch = strides[1][shape.len() - 1] as usize;
    let matrices = Layout {
        shape: lead.into(),
        strides: strides[1][..lead.len()].into(),
        offset: input.layout.offset,
    };
    match input.dtype.size() {
        1 => copy::<u8>(call, &matrices, rows, columns, pitch)?,
        2 => copy::<u16>(call, &matrices, rows, columns, pitch)?,
        4 => copy::<u32>(call, &matrices, rows, columns, pitch)?,
        _ => copy::<u64>(call, &matrices, rows, columns, pitch)?,
    }
    Ok(true)
}

/// `matrices` tells where each matrix starts; its columns are contiguous and `pitch` apart.
fn copy<T: Pod + Send + Sync>(
    call: &mut CpuCall<'_>,
    matrices: &Layout,
    rows: usize,
    columns: usize,
    pitch: usize,
) -> Result<()> {
    let data = call.strided::<T>(0)?.data;
    let stride = matrices.strides.first().copied().unwrap_or(0);
    for (matrix, out) in call.output::<T>(0)?.chunks_mut(rows * columns).enumerate() {
        let start = (matrices.offset as isize + matrix as isize * stride) as usize;
        threads::chunks_mut(out, BLOCK * columns, |band, out| {
            let start = start + band * BLOCK;
            let height = out.len() / columns;
            for left in (0..columns).step_by(BLOCK) {
                for column in left..(left + BLOCK).min(columns) {
                    let source = &data[start + column * pitch..][..height];
                    for (row, value) in source.iter().enumerate() {
                        out[row * columns + column] = *value;
                    }
                }
            }
        });
    }
    Ok(())
}
