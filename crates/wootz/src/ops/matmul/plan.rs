//! The geometry of a product: matrices at any strides, and the axes of the batch that are left when
//! everything that one product can cover is merged.

use smallvec::SmallVec;

use crate::array::{Layout, Meta, Shape, broadcast_shapes, collapse};
use crate::error::{Error, Result};

/// Axes of a batch that a GPU kernel's parameters can tell.
pub(super) const MOST_BATCH_AXES: usize = 6;

/// A batch of products of one shape.
pub(super) struct Plan {
    /// The output's shape.
    pub(super) output: Shape,
    /// The number of products.
    pub(super) count: usize,
    /// Lengths and strides of the batch's axes.
    pub(super) batch: SmallVec<[BatchAxis; 2]>,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Matrix,
    pub(super) b: Matrix,
}

/// One axis of a batch; stride 0 where a side is broadcast.
#[derive(Clone, Copy)]
pub(super) struct BatchAxis {
    pub(super) length: usize,
    pub(super) a: isize,
    pub(super) b: isize,
}

/// Where a side's first matrix lies.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) offset: usize,
    pub(super) rows: isize,
    pub(super) columns: isize,
}

impl Plan {
    /// The plan for inputs of at least two axes.
    pub(super) fn new(op: &'static str, a: &Meta, b: &Meta) -> Result<Plan> {
        let (a, b) = (&a.layout, &b.layout);
        let (a_batch, a_matrix, [m, k]) = split(a);
        let (b_batch, b_matrix, [inner, n]) = split(b);
        if k != inner {
            let expected = format!("{k} rows, as {:?} has columns", &a.shape[..]);
            return Err(Error::shape(op, "b", expected, &b.shape));
        }
        let shape = broadcast_shapes(op, &a_batch.shape, &b_batch.shape)?;
        let mut output = shape.clone();
        output.extend([m, n]);
        let (a_batch, b_batch) = (a_batch.broadcast_to(&shape), b_batch.broadcast_to(&shape));
        let (lengths, strides) = collapse(&[&a_batch, &b_batch]);
        let mut batch: SmallVec<[BatchAxis; 2]> = (0..lengths.len())
            .map(|i| BatchAxis { length: lengths[i], a: strides[0][i], b: strides[1][i] })
            .collect();
        let count = shape.iter().product();
        let mut plan =
            Plan { output, count, batch: SmallVec::new(), m, n, k, a: a_matrix, b: b_matrix };
        // A right side that the batch shares makes the batch part of the rows.
        while let Some(axis) = batch.last()
            && axis.b == 0
            && (plan.m <= 1 || axis.a == plan.a.rows * plan.m as isize)
            && plan.m > 0
            && axis.length > 0
        {
            if plan.m == 1 {
                plan.a.rows = axis.a;
            }
            plan.m *= axis.length;
            plan.count /= axis.length;
            batch.pop();
        }
        plan.batch = batch;
        Ok(plan)
    }

    /// Where the matrices of product `index` begin.
    pub(super) fn offsets(&self, index: usize) -> (usize, usize) {
        let (mut a, mut b) = (self.a.offset as isize, self.b.offset as isize);
        let mut rest = index;
        for axis in self.batch.iter().rev() {
            let i = (rest % axis.length) as isize;
            rest /= axis.length;
            a += i * axis.a;
            b += i * axis.b;
        }
        (a as usize, b as usize)
    }
}

/// The layout of the batch, and the matrix with its sizes.
fn split(layout: &Layout) -> (Layout, Matrix, [usize; 2]) {
    let lead = layout.rank() - 2;
    let batch = Layout {
        shape: Shape::from_slice(&layout.shape[..lead]),
        strides: layout.strides[..lead].iter().copied().collect(),
        offset: layout.offset,
    };
    let (rows, columns) = (layout.strides[lead], layout.strides[lead + 1]);
    let matrix = Matrix { offset: layout.offset, rows, columns };
    (batch, matrix, [layout.shape[lead], layout.shape[lead + 1]])
}
