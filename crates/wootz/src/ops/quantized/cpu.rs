//! Quantized weights on the CPU. Products with columns of weights, and those in double precision, decode rows in
//! panels, and multiply panels as matrices; for all others see [`products`].

pub(in crate::ops) mod products;
mod rows;

use std::sync::OnceLock;

use bytemuck::Pod;
use half::{bf16, f16};

pub(super) use self::products::scratch;
use self::rows::{Buffers, Rows, Wide};
use crate::array::DType;
use crate::cpu::gemm::{MatrixRef, Product};
use crate::cpu::simd::dispatch;
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads};
use crate::device::{Device, Memory};
use crate::error::{Error, Result};
use crate::ops::indexing::offsets::{by_index, check, place};
use crate::quant::{Activations, Affine, Scheme, finite};

/// Weights that a task decodes or encodes at least.
const TASK: usize = 1 << 14;
/// Rows of a panel that is multiplied at once.
const PANEL: usize = 64;

/// Calls a generic function with the type of a float dtype.
macro_rules! with_floats {
    ($dtype:expr, $op:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::F32 => $function::<f32>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
            other => Err(Error::dtype($op, "x", "a floating-point type", other)),
        }
    };
}

pub(super) fn dequantize(call: &mut CpuCall<'_>, scheme: Scheme) -> Result<()> {
    with_floats!(call.output_meta(0).dtype, "dequantize", dequantize_as(call, scheme))
}

/// Decodes rows of some length at a time.
fn dequantize_as<T>(call: &mut CpuCall<'_>, scheme: Scheme) -> Result<()>
where
    T: Storage + Send,
    T::Wide: Wide,
{
    let mut rows = Rows::new(call, scheme, 0)?;
    // As in MLX, scales of floats have the dtype of the result.
    rows.halves = call.output_meta(0).dtype == DType::F16;
    // What is computed in a narrow dtype is rounded after the product, too.
    let narrow = matches!(scheme, Scheme::Affine { .. }) && size_of::<T>() < size_of::<T::Wide>();
    let task = TASK.next_multiple_of(scheme.granule());
    threads::chunks_mut(call.output::<T>(0)?, task, |index, output| {
        let mut buffers = Buffers::default();
        let mut weights = vec![T::Wide::from_f32(0.0); output.len()];
        if narrow {
            rows.products(index * task, &mut buffers, &mut weights);
            T::narrow_slice(&weights, output);
            T::widen_slice(output, &mut weights);
            buffers.add_biases(scheme, &mut weights);
        } else {
            rows.decode(index * task, &mut buffers, &mut weights);
        }
        T::narrow_slice(&weights, output);
    });
    Ok(())
}

pub(super) fn quantize(call: &mut CpuCall<'_>, scheme: Scheme) -> Result<()> {
    with_floats!(call.meta(0).dtype, "quantize", quantize_as(call, scheme))
}

/// Encodes groups or blocks, some at a time.
fn quantize_as<T>(call: &mut CpuCall<'_>, scheme: Scheme) -> Result<()>
where
    T: Storage + Send + Sync,
    T::Wide: Wide,
{
    let w = call.input::<T>(0)?;
    let task = TASK.next_multiple_of(scheme.granule());
    let reach = Affine::reach(call.meta(0).dtype);
    // Outputs are cut side by side, as bytes.
    let scale = if matches!(scheme, Scheme::Affine { .. }) { size_of::<T>() } else { 1 };
    let groups = scheme.group_size().map_or(0, |group| task / group * scale);
    let chunks = [rows::code_bytes(scheme, task), groups, groups];
    let outputs = call.outputs.iter_mut().map(|output| &mut *output.bytes).zip(chunks);
    threads::chunks_all_mut(outputs, |index, outputs| {
        let part = &w[index * task..w.len().min((index + 1) * task)];
        let weights = &finite_singles(part)[..];
        match (scheme, outputs) {
            (Scheme::Blocks(format), [blocks]) => {
                if let Some(encode) = format.codec().encode {
                    encode(weights, blocks);
                }
            }
            (Scheme::Affine { group_size: group, bits }, [codes, scales, biases]) => {
                let mut found = vec![0f32; 2 * (weights.len() / group)];
                let (found_scales, found_biases) = found.split_at_mut(weights.len() / group);
                let affine = Affine { bits, group };
                affine.encode(reach, weights, codes, found_scales, found_biases);
                for (found, to) in [(found_scales, scales), (found_biases, biases)] {
                    for (&value, to) in found.iter().zip(to.chunks_exact_mut(scale)) {
                        to.copy_from_slice(bytemuck::bytes_of(&T::narrow(Wide::from_f32(value))));
                    }
                }
            }
            (scheme, [codes, scales]) => {
                let Some(floats) = scheme.floats() else { return };
                let group = floats.group();
                let codes = codes.chunks_exact_mut(group / 8 * floats.bits());
                let all = weights.chunks_exact(group).zip(codes).zip(scales.iter_mut());
                for ((weights, codes), scale) in all {
                    *scale = floats.encode(weights, codes);
                }
            }
            _ => {}
        }
    });
    Ok(())
}

/// Weights in single precision, as they are encoded: see [`finite`].
fn finite_singles<T>(part: &[T]) -> Vec<f32>
where
    T: Storage,
    T::Wide: Wide,
{
    let mut singles = vec![0f32; part.len()];
    match T::Wide::of_singles(&mut singles) {
        Some(wide) => dispatch(|| T::widen_slice(part, wide)),
        None => singles.iter_mut().zip(part).for_each(|(to, w)| *to = w.widen().to_f32()),
    }
    dispatch(|| singles.iter_mut().for_each(|w| *w = finite(*w)));
    singles
}

/// Multiplies with rows of weights in single precision, and says whether that is what the product is.
fn single(
    call: &mut CpuCall<'_>,
    scheme: Scheme,
    transpose: bool,
    level: Activations,
) -> Result<bool> {
    match call.output_meta(0).dtype {
        DType::F32 if transpose => products::multiply::<f32>(call, scheme, level)?,
        DType::F16 if transpose => products::multiply::<f16>(call, scheme, level)?,
        DType::BF16 if transpose => products::multiply::<bf16>(call, scheme, level)?,
        _ => return Ok(false),
    }
    Ok(true)
}

pub(super) fn matmul(
    call: &mut CpuCall<'_>,
    scheme: Scheme,
    transpose: bool,
    level: Activations,
) -> Result<()> {
    if single(call, scheme, transpose, level)? {
        return Ok(());
    }
    let dtype = call.output_meta(0).dtype;
    with_floats!(dtype, "quantized_matmul", matmul_as(call, scheme, transpose))
}

fn matmul_as<T>(call: &mut CpuCall<'_>, scheme: Scheme, transpose: bool) -> Result<()>
where
    T: Storage + Send,
    T::Wide: Wide,
{
    let matrices = Matrices::<T>::new(call, scheme, transpose)?;
    let (batch, shared) = (call.meta(0).shape()[0], matrices.count == 1);
    let output = call.output::<T>(0)?;
    let [m, n] = [matrices.m, matrices.n];
    for index in 0..batch {
        let x = widened(&matrices.x[index * m * matrices.k..][..m * matrices.k])?;
        let product = matrices.product(if shared { 0 } else { index }, &x, m)?;
        T::narrow_slice(&product, &mut output[index * m * n..][..m * n]);
    }
    Ok(())
}

pub(super) fn gather(
    call: &mut CpuCall<'_>,
    scheme: Scheme,
    transpose: bool,
    level: Activations,
) -> Result<()> {
    if single(call, scheme, transpose, level)? {
        return Ok(());
    }
    let dtype = call.output_meta(0).dtype;
    with_floats!(dtype, "gather_qmm", gather_as(call, scheme, transpose))
}

/// One product for all that share a matrix, whose rows of `x` are laid one behind the other.
fn gather_as<T>(call: &mut CpuCall<'_>, scheme: Scheme, transpose: bool) -> Result<()>
where
    T: Storage + Send,
    T::Wide: Wide,
{
    let matrices = Matrices::<T>::new(call, scheme, transpose)?;
    let [m, n, k] = [matrices.m, matrices.n, matrices.k];
    let first = 1 + scheme.arrays();
    let (mut lefts, mut rights) = (Vec::new(), Vec::new());
    macro_rules! body {
        ($index:ty) => {
            for (input, length, places) in [
                (first, call.meta(0).shape()[0], &mut lefts),
                (first + 1, matrices.count, &mut rights),
            ] {
                let indices = call.input::<$index>(input)?;
                check(call.op, input, indices, length, false)?;
                places.extend(indices.iter().map(|&index| place(index, length)));
            }
        };
    }
    by_index!(call.meta(first).dtype, body);
    let mut order: Vec<usize> = (0..rights.len()).collect();
    order.sort_by_key(|&product| rights[product]);
    let output = call.output::<T>(0)?;
    for products in order.chunk_by(|&a, &b| rights[a] == rights[b]) {
        let mut x = zeros(products.len() * m * k)?;
        for (&product, x) in products.iter().zip(x.chunks_exact_mut((m * k).max(1))) {
            T::widen_slice(&matrices.x[lefts[product] * m * k..][..m * k], x);
        }
        let results = matrices.product(rights[products[0]], &x, products.len() * m)?;
        for (i, &product) in products.iter().enumerate() {
            let rows = &results[i * m * n..(i + 1) * m * n];
            T::narrow_slice(rows, &mut output[product * m * n..][..m * n]);
        }
    }
    Ok(())
}

fn widened<T: Storage>(x: &[T]) -> Result<Vec<T::Wide>> {
    let mut wide = zeros(x.len())?;
    T::widen_slice(x, &mut wide);
    Ok(wide)
}

/// So many zeros, if there is memory for them.
pub(super) fn zeros<S: bytemuck::Zeroable + Clone>(count: usize) -> Result<Vec<S>> {
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(|_| {
        let Memory { active, limit, .. } = Device::cpu().memory();
        let requested = count.saturating_mul(size_of::<S>()) as u64;
        Error::OutOfMemory { device: "cpu".into(), requested, active, limit }
    })?;
    numbers.resize(count, S::zeroed());
    Ok(numbers)
}

/// What products are made of: `x` in its first input, and weights in those that follow.
struct Matrices<'a, T> {
    x: &'a [T],
    rows: Rows<'a>,
    transpose: bool,
    /// Matrices of weights.
    count: usize,
    m: usize,
    n: usize,
    k: usize,
}

impl<'a, T> Matrices<'a, T>
where
    T: Storage + Pod,
    T::Wide: Wide,
{
    fn new(call: &CpuCall<'a>, scheme: Scheme, transpose: bool) -> Result<Matrices<'a, T>> {
        let (x, rows) = (call.input::<T>(0)?, Rows::new(call, scheme, 1)?);
        let shapes = [call.meta(0), call.meta(1), call.output_meta(0)].map(|meta| meta.shape());
        let [&[_, m, k], &[count, ..], &[_, _, n]] = shapes else {
            return Err(Error::shape(call.op.name(), "x", "three axes", shapes[0]));
        };
        Ok(Matrices { x, rows, transpose, count, m, n, k })
    }

    /// `x` of `m` rows times one of the matrices.
    fn product(&self, matrix: usize, x: &[T::Wide], m: usize) -> Result<Vec<T::Wide>> {
        let [n, k] = [self.n, self.k];
        let mut output = zeros(m * n)?;
        if output.is_empty() || k == 0 {
            return Ok(output);
        }
        let rows = self.rows.matrix(matrix, if self.transpose { n } else { k });
        let mut panels = zeros(m * n)?;
        // What went wrong in a task; the first is enough.
        let failed = OnceLock::new();
        if self.transpose {
            threads::chunks_mut(&mut panels, PANEL * m, |index, panel| {
                _ = row_dots(&rows, index * PANEL, x, k, m, panel).map_err(|e| failed.set(e));
            });
            failed.into_inner().map_or(Ok(()), Err)?;
            // Panels are columns of the result.
            for (j, column) in panels.chunks_exact(m).enumerate() {
                for (i, &value) in column.iter().enumerate() {
                    output[i * n + j] = value;
                }
            }
            return Ok(output);
        }
        // Columns of all rows, as many as whole groups or blocks have.
        let width = PANEL.next_multiple_of(rows.scheme.granule()).min(n);
        threads::chunks_mut(&mut panels, width * m, |index, panel| {
            let (columns, mut buffers) = (panel.len() / m, Buffers::default());
            let mut weights = match zeros::<T::Wide>(k * columns) {
                Ok(weights) => weights,
                Err(error) => {
                    _ = failed.set(error);
                    return;
                }
            };
            for (row, weights) in weights.chunks_exact_mut(columns).enumerate() {
                rows.decode(row * n + index * width, &mut buffers, weights);
            }
            multiply([m, columns, k], dense(x, k), dense(&weights, columns), panel);
        });
        failed.into_inner().map_or(Ok(()), Err)?;
        for (index, panel) in panels.chunks(width * m).enumerate() {
            let columns = panel.len() / m;
            for (i, row) in panel.chunks_exact(columns).enumerate() {
                output[i * n + index * width..][..columns].copy_from_slice(row);
            }
        }
        Ok(output)
    }
}

/// The products of rows of weights, from number `first` on, with `m` rows of `x`: `m` of each weights' row
/// follow each other.
fn row_dots<S: Wide>(
    rows: &Rows<'_>,
    first: usize,
    x: &[S],
    k: usize,
    m: usize,
    out: &mut [S],
) -> Result<()> {
    let count = out.len() / m;
    let mut weights = zeros(count * k)?;
    rows.decode(first * k, &mut Buffers::default(), &mut weights);
    let turned = MatrixRef { data: x.into(), offset: 0, row_stride: 1, column_stride: k as isize };
    multiply([count, m, k], dense(&weights, k), turned, out);
    Ok(())
}

fn dense<S: Wide>(data: &[S], columns: usize) -> MatrixRef<'_, S> {
    MatrixRef { data: data.into(), offset: 0, row_stride: columns as isize, column_stride: 1 }
}

/// One product, on the calling thread if it is one of a team's tasks.
fn multiply<S: Wide>(
    [m, n, k]: [usize; 3],
    a: MatrixRef<'_, S>,
    b: MatrixRef<'_, S>,
    output: &mut [S],
) {
    let product = Product { batch: 1, m, n, k, rows: m, a: &|_| a, b: &|_| b, plus: None };
    let done = product.write(output);
    debug_assert!(done.is_ok(), "slices are made for the sizes");
}
