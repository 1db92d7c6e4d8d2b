//! The geometry of a product: matrices at any strides, and the axes of the batch that are left when
//! everything that one product can cover is merged.

use std::ops::Range;

use smallvec::SmallVec;

use crate::array::{Layout, Meta, Shape, broadcast_shapes, collapse};
use crate::error::{Error, Result};

/// Axes of a batch that a GPU kernel's parameters can tell.
pub(super) const fn most_batch_axes(addend: bool) -> usize {
    // Of 32 words, 12 and 5 for what is added say the rest; an axis is a length and strides.
    if addend { (32 - 12 - 5) / 4 } else { (32 - 12) / 3 }
}

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
    /// The rows of a product if shapes alone said how far it reaches. Layouts may keep it from
    /// being done at once, which must not change the order of its sums.
    pub(super) rows: usize,
    pub(super) a: Matrix,
    pub(super) b: Matrix,
    /// What is added to the product; strides are 0 if nothing is.
    pub(super) c: Matrix,
}

/// One axis of a batch; stride 0 where a side is broadcast.
#[derive(Clone, Copy)]
pub(super) struct BatchAxis {
    pub(super) length: usize,
    pub(super) a: isize,
    pub(super) b: isize,
    pub(super) c: isize,
}

/// Where a side's first matrix lies.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) offset: usize,
    pub(super) rows: isize,
    pub(super) columns: isize,
}

impl Plan {
    /// The plan for inputs of at least two axes, and maybe something to add to their product.
    pub(super) fn new(op: &'static str, a: &Meta, b: &Meta, c: Option<&Meta>) -> Result<Plan> {
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
        let nothing = Layout { shape: Shape::new(), strides: SmallVec::new(), offset: 0 };
        let c = c.map_or(&nothing, |c| &c.layout);
        let fits = broadcast_shapes(op, &c.shape, &output);
        if !fits.is_ok_and(|shape| shape == output) {
            let expected = format!("one that broadcasts to {:?}", &output[..]);
            return Err(Error::shape(op, "c", expected, &c.shape));
        }
        let (c_batch, c_matrix, _) = split(&c.broadcast_to(&output));

        // A right side that the batch shares makes the batch part of the rows.
        let lead = shape.len() - b_batch.shape.len();
        let own = b_batch.shape.iter().rposition(|&length| length != 1);
        let own = own.map_or(0, |axis| lead + axis + 1);
        let rows = shape[own..].iter().fold(m, |rows, &length| rows.saturating_mul(length));
        let sides = [a_batch.broadcast_to(&shape), b_batch.broadcast_to(&shape), c_batch];
        let mut batch = axes(&sides, 0..own);
        let mut shared = axes(&sides, own..shape.len());
        let count = shape.iter().product();
        let (a, b, c) = (a_matrix, b_matrix, c_matrix);
        let mut plan = Plan { output, count, batch: SmallVec::new(), m, n, k, rows, a, b, c };
        while let Some(axis) = shared.last()
            && plan.follows(axis)
        {
            if plan.m == 1 {
                (plan.a.rows, plan.c.rows) = (axis.a, axis.c);
            }
            plan.m *= axis.length;
            plan.count /= axis.length;
            shared.pop();
        }
        batch.extend(shared);
        plan.batch = batch;
        Ok(plan)
    }

    /// Whether the matrices along the axis are one of more rows.
    fn follows(&self, axis: &BatchAxis) -> bool {
        let m = self.m as isize;
        let dense = axis.a == self.a.rows * m && axis.c == self.c.rows * m;
        m > 0 && axis.length > 0 && (m == 1 || dense)
    }

    /// Where the matrices of product `index` begin: `a`, `b` and `c`.
    pub(super) fn offsets(&self, index: usize) -> [usize; 3] {
        let mut at = [self.a.offset, self.b.offset, self.c.offset];
        let mut rest = index;
        for axis in self.batch.iter().rev() {
            let i = (rest % axis.length) as isize;
            rest /= axis.length;
            for (at, stride) in at.iter_mut().zip([axis.a, axis.b, axis.c]) {
                *at = at.wrapping_add_signed(i * stride);
            }
        }
        at
    }
}

/// The axes of the batch in a range, with those merged that every side walks in one stride.
fn axes(sides: &[Layout; 3], range: Range<usize>) -> SmallVec<[BatchAxis; 2]> {
    let part = |side: &Layout| Layout {
        shape: Shape::from_slice(&side.shape[range.clone()]),
        strides: side.strides[range.clone()].iter().copied().collect(),
        offset: side.offset,
    };
    let [a, b, c] = sides.each_ref().map(part);
    let (lengths, strides) = collapse(&[&a, &b, &c]);
    (lengths.iter().enumerate())
        .map(|(i, &length)| BatchAxis {
            length,
            a: strides[0][i],
            b: strides[1][i],
            c: strides[2][i],
        })
        .collect()
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
