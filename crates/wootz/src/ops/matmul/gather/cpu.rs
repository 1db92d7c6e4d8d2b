//! Chosen products on the CPU: one product for all that share a right matrix. Their left rows are
//! laid one behind the other first, unless there is only one.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use half::{bf16, f16};

use super::GatherMmBackward;
use crate::array::{DType, Layout};
use crate::cpu::gemm::{Elements, FEW, GemmElement, MatrixRef, Product};
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
use crate::ops::indexing::offsets::{by_index, check, place};

macro_rules! with_floats {
    ($call:expr, $function:ident($($argument:expr),*)) => {
        match $call.output_meta(0).dtype {
            DType::F32 => $function::<f32>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
            other => Err(Error::dtype("gather_mm", "a", "a floating-point type", other)),
        }
    };
}

pub(super) fn forward(call: &mut CpuCall<'_>) -> Result<()> {
    with_floats!(call, products(call))
}

pub(super) fn backward(call: &mut CpuCall<'_>, op: &GatherMmBackward) -> Result<()> {
    with_floats!(call, sums(call, op))
}

/// Products (multiplications) from which the team shares one out; smaller ones are done side by
/// side.
const LARGE: usize = 1 << 24;

/// Which products belong together.
struct Groups {
    /// The left matrix of each product.
    left: Vec<usize>,
    /// The products in the order of their right matrices; those of one stay in their order.
    order: Vec<usize>,
    /// Where in the order the products of each right matrix begin, and the end.
    starts: Vec<usize>,
}

impl Groups {
    /// Checks all indices and sorts the products by counting.
    fn new(call: &CpuCall<'_>, left: usize, right: usize) -> Result<Groups> {
        let (mut lefts, mut rights) = (Vec::new(), Vec::new());
        macro_rules! body {
            ($index:ty) => {
                for (input, length, places) in [(2, left, &mut lefts), (3, right, &mut rights)] {
                    let indices = call.input::<$index>(input)?;
                    check(call.op, input, indices, length, false)?;
                    places.extend(indices.iter().map(|&index| place(index, length)));
                }
            };
        }
        by_index!(call.meta(2).dtype, body);
        let mut starts = vec![0; right + 1];
        rights.iter().for_each(|&right| starts[right + 1] += 1);
        for right in 0..right {
            starts[right + 1] += starts[right];
        }
        let (mut next, mut order) = (starts.clone(), vec![0; rights.len()]);
        for (product, &right) in rights.iter().enumerate() {
            order[next[right]] = product;
            next[right] += 1;
        }
        Ok(Groups { left: lefts, order, starts })
    }

    /// The products of a right matrix.
    fn of(&self, right: usize) -> &[usize] {
        &self.order[self.starts[right]..self.starts[right + 1]]
    }
}

/// Rows of several matrices, one behind the other.
struct Rows<'a, T: Clone> {
    data: Cow<'a, [T]>,
    offset: usize,
    row: isize,
    column: isize,
}

impl<'a, T: GemmElement> Rows<'a, T> {
    /// The rows of the matrices with these numbers; those of one are not copied.
    fn new(
        data: &'a [T],
        layout: &Layout,
        mut matrices: impl ExactSizeIterator<Item = usize>,
    ) -> Self {
        let [rows, columns] = [layout.shape[1], layout.shape[2]];
        let [each, row, column] = [layout.strides[0], layout.strides[1], layout.strides[2]];
        if rows * columns == 0 {
            // A view of nothing may begin behind its memory.
            return Rows { data: Cow::Borrowed(&[]), offset: 0, row: columns as isize, column: 1 };
        }
        let start = |matrix: usize| layout.offset.wrapping_add_signed(matrix as isize * each);
        if matrices.len() == 1
            && let Some(matrix) = matrices.next()
        {
            return Rows { data: Cow::Borrowed(data), offset: start(matrix), row, column };
        }
        let mut gathered = Vec::with_capacity(matrices.len() * rows * columns);
        for matrix in matrices {
            for i in 0..rows {
                let first = start(matrix).wrapping_add_signed(i as isize * row);
                match column {
                    1 => gathered.extend_from_slice(&data[first..first + columns]),
                    _ => gathered.extend(
                        (0..columns as isize).map(|j| data[first.wrapping_add_signed(j * column)]),
                    ),
                }
            }
        }
        Rows { data: Cow::Owned(gathered), offset: 0, row: columns as isize, column: 1 }
    }

    fn matrix(&self) -> MatrixRef<'_, T> {
        self.matrix_from(0)
    }

    /// The rows from `first` on.
    fn matrix_from(&self, first: usize) -> MatrixRef<'_, T> {
        let Rows { data, offset, row, column } = self;
        let offset = offset.wrapping_add_signed(first as isize * row);
        let data = Elements::from(&data[..]);
        MatrixRef { data, offset, row_stride: *row, column_stride: *column }
    }

    fn transposed(&self) -> MatrixRef<'_, T> {
        MatrixRef { row_stride: self.column, column_stride: self.row, ..self.matrix() }
    }
}

/// Runs tasks with their sizes: large ones one after the other, each by the whole team, and then
/// the others side by side.
fn run<W: Send>(tasks: Vec<(usize, W)>, work: impl Fn(W) -> Result<()> + Sync) -> Result<()> {
    let (large, small): (Vec<_>, Vec<_>) = tasks.into_iter().partition(|task| task.0 >= LARGE);
    large.into_iter().try_for_each(|(_, task)| work(task))?;
    let small: Vec<Mutex<Option<W>>> =
        small.into_iter().map(|(_, task)| Mutex::new(Some(task))).collect();
    let failure = Mutex::new(None);
    threads::for_each(small.len(), |i| {
        let task = small[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = task.map(&work) {
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn products<T: GemmElement>(call: &mut CpuCall<'_>) -> Result<()> {
    let (a, b) = (&call.meta(0).layout, &call.meta(1).layout);
    let (m, k, n) = (a.shape[1], a.shape[2], b.shape[2]);
    let groups = Groups::new(call, a.shape[0], b.shape[0])?;
    let (a_data, b_data) = (call.strided::<T>(0)?.data, call.elements::<T>(1)?);
    let out = call.output::<T>(0)?;
    if out.is_empty() {
        return Ok(());
    }
    // The shape alone says whether products are taken as ones with a few vectors, so that the order
    // of a product's sums does not depend on what others there are.
    let all = groups.order.len() * m;
    let rows = if all <= FEW * b.shape[0] { FEW } else { all };
    let mut places: Vec<Option<&mut [T]>> = out.chunks_exact_mut(m * n).map(Some).collect();
    let mut tasks = Vec::new();
    for right in 0..b.shape[0] {
        let products = groups.of(right);
        let outputs: Vec<&mut [T]> =
            products.iter().filter_map(|&product| places[product].take()).collect();
        if !outputs.is_empty() {
            tasks.push((outputs.len() * m * n * k, (right, products, outputs)));
        }
    }
    run(tasks, |(right, products, mut outputs): (usize, &[usize], Vec<&mut [T]>)| {
        let left = Rows::new(a_data, a, products.iter().map(|&product| groups.left[product]));
        let right = MatrixRef {
            data: b_data,
            offset: b.offset.wrapping_add_signed(right as isize * b.strides[0]),
            row_stride: b.strides[1],
            column_stride: b.strides[2],
        };
        let write = |output: &mut [T]| {
            output.chunks_mut(rows * n).enumerate().try_for_each(|(i, output)| {
                let left = left.matrix_from(i * rows);
                Product {
                    batch: 1,
                    m: output.len() / n,
                    n,
                    k,
                    rows,
                    a: &|_| left,
                    b: &|_| right,
                    plus: None,
                }
                .write(output)
            })
        };
        if let [output] = &mut outputs[..] {
            return write(output);
        }
        let mut results = vec![T::zeroed(); products.len() * m * n];
        write(&mut results)?;
        for (output, result) in outputs.iter_mut().zip(results.chunks_exact(m * n)) {
            output.copy_from_slice(result);
        }
        Ok(())
    })
}

fn sums<T: GemmElement>(call: &mut CpuCall<'_>, op: &GatherMmBackward) -> Result<()> {
    let (a, dy) = (&call.meta(0).layout, &call.meta(1).layout);
    let (inner, k, n) = (a.shape[1], a.shape[2], dy.shape[2]);
    let groups = Groups::new(call, a.shape[0], op.experts)?;
    let (a_data, dy_data) = (call.strided::<T>(0)?.data, call.strided::<T>(1)?.data);
    let out = call.output::<T>(0)?;
    if out.is_empty() {
        return Ok(());
    }
    let tasks = out.chunks_exact_mut(k * n).enumerate();
    let size = |right: usize| groups.of(right).len() * inner * k * n;
    let tasks = tasks.map(|(right, output)| (size(right), (right, output))).collect();
    run(tasks, |(right, output): (usize, &mut [T])| {
        let products = groups.of(right);
        let left = Rows::new(a_data, a, products.iter().map(|&product| groups.left[product]));
        let right = Rows::new(dy_data, dy, products.iter().copied());
        let (left, right, m, n) =
            if op.transposed { (&right, &left, n, k) } else { (&left, &right, k, n) };
        Product {
            batch: 1,
            m,
            n,
            k: products.len() * inner,
            rows: m,
            a: &|_| left.transposed(),
            b: &|_| right.matrix(),
            plus: None,
        }
        .write(output)
    })
}
