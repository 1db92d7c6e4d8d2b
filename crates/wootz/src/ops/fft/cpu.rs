//! Transforms of rows, shared out to threads. Each row is one call of the library, so that results do
//! not depend on the number of threads.

use num_complex::Complex32;
use realfft::RealFftPlanner;
use rustfft::{FftDirection, FftPlanner};

use super::{Kind, Transform};
use crate::cpu::{CpuCall, threads};
use crate::error::Result;

/// Elements that a thread transforms at least.
const CHUNK: usize = 4096;

/// Rows of `length` elements that a thread takes at a time.
fn rows_of(length: usize) -> usize {
    (CHUNK / length).max(1)
}

/// Transforms rows of complex numbers.
pub(super) fn complex(call: &mut CpuCall<'_>, op: &Transform) -> Result<()> {
    let x = call.input::<Complex32>(0)?;
    let direction = match op.kind {
        Kind::Inverse => FftDirection::Inverse,
        _ => FftDirection::Forward,
    };
    let plan = FftPlanner::<f32>::new().plan_fft(op.length, direction);
    let chunk = rows_of(op.length) * op.length;
    threads::chunks_mut(call.output::<Complex32>(0)?, chunk, |index, out| {
        out.copy_from_slice(&x[index * chunk..][..out.len()]);
        let mut scratch = vec![Complex32::default(); plan.get_inplace_scratch_len()];
        plan.process_with_scratch(out, &mut scratch);
        scale(out, op.scale);
    });
    Ok(())
}

/// Transforms rows of real numbers to the halves that are not redundant.
pub(super) fn real(call: &mut CpuCall<'_>, op: &Transform) -> Result<()> {
    let x = call.input::<f32>(0)?;
    let plan = RealFftPlanner::<f32>::new().plan_fft_forward(op.length);
    let (before, after) = op.lengths();
    let rows = rows_of(op.length);
    threads::chunks_mut(call.output::<Complex32>(0)?, rows * after, |index, out| {
        let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
        let x = x[index * rows * before..].chunks(before);
        for (x, out) in x.zip(out.chunks_mut(after)) {
            row.copy_from_slice(x);
            // Its only failures are lengths, which are the plan's.
            let _ = plan.process_with_scratch(&mut row, out, &mut scratch);
            scale(out, op.scale);
        }
    });
    Ok(())
}

/// Transforms halves of rows to real numbers.
pub(super) fn inverse_real(call: &mut CpuCall<'_>, op: &Transform) -> Result<()> {
    let x = call.input::<Complex32>(0)?;
    let plan = RealFftPlanner::<f32>::new().plan_fft_inverse(op.length);
    let (before, after) = op.lengths();
    let rows = rows_of(op.length);
    threads::chunks_mut(call.output::<f32>(0)?, rows * after, |index, out| {
        let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
        let x = x[index * rows * before..].chunks(before);
        for (x, out) in x.zip(out.chunks_mut(after)) {
            row.copy_from_slice(x);
            // These parts cancel in what is real; the library would refuse them.
            row[0].im = 0.0;
            if after.is_multiple_of(2) {
                row[before - 1].im = 0.0;
            }
            let _ = plan.process_with_scratch(&mut row, out, &mut scratch);
            out.iter_mut().for_each(|value| *value *= op.scale);
        }
    });
    Ok(())
}

fn scale(values: &mut [Complex32], factor: f32) {
    if factor != 1.0 {
        values.iter_mut().for_each(|value| *value *= factor);
    }
}
