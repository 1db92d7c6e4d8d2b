//! Matrix products: `matmul` with batches and broadcasting, and what is made of it.
//!
//! Any strides go into the kernels as they are: a transposed or broadcast argument is not copied.

mod cpu;
mod gather;
#[cfg(feature = "gpu")]
mod gpu;
mod plan;
#[cfg(test)]
mod tests;

pub use self::gather::{GatherMm, GatherMmBackward, gather_mm};
#[cfg(feature = "gpu")]
pub(crate) use self::gpu::{Form, Tiles, cooperative, write_zeros};
use self::plan::Plan;
use crate::array::{Array, DType, Meta, broadcast_shapes, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Case, Entry, Metas, Op, Tolerance, argument_name, expect_dtype, expect_float,
};
use crate::ops::elementwise::sum_to_shape;
use crate::ops::{
    add, astype, broadcast_to, complex, expand_dims, imag, multiply, real, reshape, subtract,
    transpose_axes,
};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let case = |label: &str, a: &[usize], b: &[usize]| {
        Case::new(label, &[a, b], |x| Ok(vec![matmul(&x[0], &x[1])?]))
            .tolerance(Tolerance::Contraction)
    };
    let matmul_cases = vec![
        case("small", &[3, 5], &[5, 7]),
        case("one", &[1, 1], &[1, 1]),
        case("more than one tile", &[35, 33], &[33, 67]),
        case("large tiles", &[65, 19], &[19, 130]),
        // Each element once for every tile of 64 beside it.
        case("whole tiles", &[128, 64], &[64, 128]).moves(128 * (64 * 2 + 64 * 2 + 128), 1.5),
        case("row times matrix", &[1, 70], &[70, 9]),
        case("matrix times column", &[9, 70], &[70, 1]),
        case("dot", &[300], &[300]),
        case("vector times matrix", &[5], &[5, 6]),
        case("matrix times vector", &[6, 5], &[5]),
        case("batch", &[2, 3, 4, 5], &[2, 3, 5, 2]),
        case("batch of large tiles", &[2, 1, 40, 9], &[3, 9, 35]),
        case("shared right", &[2, 3, 5], &[5, 4]),
        case("shared left", &[3, 5], &[4, 5, 2]),
        case("broadcast batch", &[2, 1, 3, 4], &[3, 4, 5]),
        case("batch of matrix times vector", &[3, 4, 5], &[5]),
        case("batch of rows", &[3, 1, 5], &[3, 5, 2]),
        case("nothing to sum", &[3, 0], &[0, 2]),
        case("no rows", &[0, 3], &[3, 2]),
        case("no batch", &[0, 2, 3], &[3, 2]),
    ];
    let addmm_case = |label: &str, shapes: [&[usize]; 3], alpha: f64, beta: f64| {
        Case::new(label, &shapes, move |x| Ok(vec![addmm(&x[0], &x[1], &x[2], alpha, beta)?]))
            .tolerance(Tolerance::Contraction)
    };
    let addmm_cases = vec![
        addmm_case("matrix", [&[3, 7], &[3, 5], &[5, 7]], 0.5, 2.0),
        addmm_case("bias", [&[7], &[2, 3, 5], &[5, 7]], 0.5, 2.0),
        addmm_case("scalar", [&[], &[3, 5], &[5, 2]], 0.5, 2.0),
        addmm_case("vector", [&[3], &[3, 5], &[5]], 0.5, 2.0),
        addmm_case("plain sum", [&[6, 9], &[6, 5], &[5, 9]], 1.0, 1.0),
        addmm_case("nothing added", [&[6, 9], &[6, 5], &[5, 9]], 1.5, 0.0),
        addmm_case("nothing multiplied", [&[6, 9], &[6, 5], &[5, 9]], 0.0, 1.5),
        addmm_case("row", [&[1, 34], &[40, 33], &[33, 34]], 0.5, 2.0),
        addmm_case("column", [&[35, 1], &[35, 33], &[33, 67]], 0.5, 2.0),
        addmm_case("row times matrix", [&[1, 9], &[1, 70], &[70, 9]], 0.5, 2.0),
        addmm_case("vector times matrix", [&[4, 9], &[70], &[4, 70, 9]], 0.5, 2.0),
        addmm_case("matrix times column", [&[1], &[9, 70], &[70, 1]], 0.5, 2.0),
        addmm_case("batch", [&[3, 1, 2], &[2, 3, 4, 5], &[2, 3, 5, 2]], 0.5, 2.0),
        addmm_case("batch of large tiles", [&[3, 1, 35], &[2, 1, 40, 9], &[3, 9, 35]], 0.5, 2.0),
        addmm_case("large tiles, nothing to sum", [&[34], &[33, 0], &[0, 34]], 0.5, 2.0),
        addmm_case("matrix for a batch", [&[4, 6], &[3, 4, 5], &[5, 6]], 0.5, 2.0),
        addmm_case("whole tiles", [&[128, 128], &[128, 64], &[64, 128]], 0.5, 2.0)
            .moves(128 * (64 * 2 + 64 * 2 + 128 * 2), 1.5),
        addmm_case("nothing to sum", [&[2], &[3, 0], &[0, 2]], 0.5, 2.0),
        addmm_case("no rows", [&[2], &[0, 3], &[3, 2]], 0.5, 2.0),
    ];
    let mut entries = vec![
        Entry { name: "matmul", cases: matmul_cases },
        Entry { name: "addmm", cases: addmm_cases },
        Entry {
            name: "inner",
            cases: vec![
                Case::new("", &[&[2, 3, 5], &[4, 5]], |x| Ok(vec![inner(&x[0], &x[1])?]))
                    .tolerance(Tolerance::Contraction),
            ],
        },
        Entry {
            name: "outer",
            cases: vec![
                Case::new("", &[&[2, 3], &[5]], |x| Ok(vec![outer(&x[0], &x[1])?]))
                    .tolerance(Tolerance::Contraction),
            ],
        },
        Entry {
            name: "tensordot",
            cases: vec![
                Case::new("named axes", &[&[2, 3, 4], &[4, 5, 2]], |x| {
                    Ok(vec![tensordot_axes(&x[0], &x[1], &[0, 2], &[2, 0])?])
                })
                .tolerance(Tolerance::Contraction),
                Case::new("last with first", &[&[2, 3, 4], &[3, 4, 5]], |x| {
                    Ok(vec![tensordot(&x[0], &x[1], 2)?])
                })
                .tolerance(Tolerance::Contraction),
            ],
        },
    ];
    entries.extend(gather::entries());
    entries
}

/// The matrix product over the last two axes, with the axes before them broadcast. A vector on the
/// left counts as a row and one on the right as a column, and that axis is dropped from the result.
///
/// ```
/// use wootz::{Array, matmul};
/// let a = Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// let x = Array::new([1.0f32, 10.0])?;
/// assert_eq!(matmul(&a, &x)?.to_vec::<f32>()?, [21.0, 43.0]);
/// assert_eq!(matmul(&a, &a.transpose()?)?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn matmul(a: &Array, b: &Array) -> Result<Array> {
    let dtype = promoted("matmul", &[("a", a), ("b", b)])?;
    if dtype.is_complex() {
        return of_parts(a, b, matmul);
    }
    product("matmul", &astype(a, dtype)?, &astype(b, dtype)?, None)
}

/// `alpha · (a @ b) + beta · c`, with `c` broadcast to the shape of the product. Narrow dtypes are
/// rounded once, after the sum; with a `beta` of zero `c` is not looked at.
///
/// ```
/// use wootz::{Array, addmm};
/// let (a, b) = (Array::new([[1.0f32, 2.0]])?, Array::new([[3.0f32], [4.0]])?);
/// let c = Array::new([1.0f32])?;
/// assert_eq!(addmm(&c, &a, &b, 2.0, 0.5)?.to_vec::<f32>()?, [22.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn addmm(c: &Array, a: &Array, b: &Array, alpha: f64, beta: f64) -> Result<Array> {
    let dtype = promoted("addmm", &[("c", c), ("a", a), ("b", b)])?;
    if dtype.is_complex() {
        let product = scaled(&matmul(&astype(a, dtype)?, b)?, alpha)?;
        let fits = broadcast_shapes("addmm", c.shape(), product.shape());
        if !fits.is_ok_and(|broadcast| broadcast[..] == *product.shape()) {
            let expected = format!("one that broadcasts to {:?}", product.shape());
            return Err(Error::shape("addmm", "c", expected, c.shape()));
        }
        return if beta == 0.0 { Ok(product) } else { add(product, scaled(c, beta)?) };
    }
    let c = (&astype(c, dtype)?, Addmm { alpha, beta });
    product("addmm", &astype(a, dtype)?, &astype(b, dtype)?, Some(c))
}

/// Sums of products along the last axes of `a` and `b`; scalars multiply.
///
/// ```
/// use wootz::{Array, inner};
/// let x = Array::new([1.0f32, 2.0])?;
/// assert_eq!(inner(&x, &x)?.item::<f32>()?, 5.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn inner(a: &Array, b: &Array) -> Result<Array> {
    if a.rank() == 0 || b.rank() == 0 {
        return multiply(a, b);
    }
    if a.shape().last() != b.shape().last() {
        let expected = format!("a last axis of {:?}", a.shape().last().unwrap_or(&1));
        return Err(Error::shape("inner", "b", expected, b.shape()));
    }
    tensordot_axes(a, b, &[-1], &[-1])
}

/// The products of every element of `a` with every element of `b`.
///
/// ```
/// use wootz::{Array, outer};
/// let (a, b) = (Array::new([1, 2])?, Array::new([3, 4])?);
/// assert_eq!(outer(&a, &b)?.to_vec::<i32>()?, [3, 4, 6, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn outer(a: &Array, b: &Array) -> Result<Array> {
    multiply(reshape(a, &[a.size(), 1])?, reshape(b, &[b.size()])?)
}

/// Sums of products over the last `axes` axes of `a` and the first `axes` axes of `b`.
///
/// ```
/// use wootz::{Array, tensordot};
/// let a = Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// assert_eq!(tensordot(&a, &a, 2)?.item::<f32>()?, 30.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tensordot(a: &Array, b: &Array, axes: usize) -> Result<Array> {
    if axes > a.rank().min(b.rank()) {
        let expected = format!("at most {}", a.rank().min(b.rank()));
        return Err(Error::argument("tensordot", "axes", expected, axes));
    }
    let last: Vec<i64> = (a.rank() - axes..a.rank()).map(|axis| axis as i64).collect();
    let first: Vec<i64> = (0..axes as i64).collect();
    tensordot_axes(a, b, &last, &first)
}

/// Sums of products over pairs of axes: `axes_a[i]` of `a` with `axes_b[i]` of `b`.
///
/// ```
/// use wootz::{Array, tensordot_axes};
/// let a = Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// assert_eq!(tensordot_axes(&a, &a, &[0, 1], &[1, 0])?.item::<f32>()?, 29.0);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tensordot_axes(a: &Array, b: &Array, axes_a: &[i64], axes_b: &[i64]) -> Result<Array> {
    if axes_a.len() != axes_b.len() {
        let expected = format!("{} axes, as for a", axes_a.len());
        return Err(Error::argument("tensordot", "axes_b", expected, axes_b.len()));
    }
    let dtype = promoted("tensordot", &[("a", a), ("b", b)])?;
    let split = |argument: &str, x: &Array, axes: &[i64]| {
        let mut taken = Vec::with_capacity(axes.len());
        for &axis in axes {
            let axis = normalize_axis("tensordot", axis, x.rank())?;
            if taken.contains(&axis) {
                let got = format!("{axes:?}");
                return Err(Error::argument("tensordot", argument, "distinct axes", got));
            }
            taken.push(axis);
        }
        let free: Vec<usize> = (0..x.rank()).filter(|axis| !taken.contains(axis)).collect();
        Ok((free, taken))
    };
    if dtype.is_complex() {
        return of_parts(a, b, |a, b| tensordot_axes(a, b, axes_a, axes_b));
    }
    let (free_a, taken_a) = split("axes_a", a, axes_a)?;
    let (free_b, taken_b) = split("axes_b", b, axes_b)?;
    let lengths = |x: &Array, axes: &[usize]| -> Vec<usize> {
        axes.iter().map(|&axis| x.shape()[axis]).collect()
    };
    let (summed, other) = (lengths(a, &taken_a), lengths(b, &taken_b));
    if summed != other {
        let expected = format!("{summed:?} along axes {axes_b:?}");
        return Err(Error::shape("tensordot", "b", expected, b.shape()));
    }
    let mut shape = lengths(a, &free_a);
    let (m, k) = (shape.iter().product(), summed.iter().product());
    let columns = lengths(b, &free_b);
    let n = columns.iter().product();
    shape.extend(columns);
    let order = |axes: [&[usize]; 2]| -> Vec<i64> {
        axes.concat().into_iter().map(|axis| axis as i64).collect()
    };
    let a = transpose_axes(&astype(a, dtype)?, &order([&free_a, &taken_a]))?;
    let b = transpose_axes(&astype(b, dtype)?, &order([&taken_b, &free_b]))?;
    let product = Array::apply(Matmul, &[&reshape(&a, &[m, k])?, &reshape(&b, &[k, n])?])?;
    reshape(&product, &shape)
}

impl Array {
    /// The matrix product; see [`matmul`].
    pub fn matmul(&self, b: &Array) -> Result<Array> {
        matmul(self, b)
    }
}

/// The dtype that all arguments are converted to. There are no products of integer matrices.
fn promoted(op: &'static str, arguments: &[(&str, &Array)]) -> Result<DType> {
    let (name, first) = arguments[0];
    let dtypes = arguments.iter().map(|(_, array)| array.dtype());
    let dtype = dtypes.reduce(DType::promote).unwrap_or(first.dtype());
    if !dtype.is_inexact() {
        return Err(Error::dtype(op, name, "a floating-point type for one of the inputs", dtype));
    }
    Ok(dtype)
}

/// A product of complex arrays, which is linear in both, of products of their parts. One of them may be
/// real.
fn of_parts(
    a: &Array,
    b: &Array,
    product: impl Fn(&Array, &Array) -> Result<Array>,
) -> Result<Array> {
    let parts = |x: &Array| -> Result<(Array, Option<Array>)> {
        let real = astype(&real(x)?, DType::F32)?;
        Ok((real, x.dtype().is_complex().then(|| imag(x)).transpose()?))
    };
    let ((a, a_imaginary), (b, b_imaginary)) = (parts(a)?, parts(b)?);
    let mut re = product(&a, &b)?;
    if let (Some(a), Some(b)) = (&a_imaginary, &b_imaginary) {
        re = subtract(re, product(a, b)?)?;
    }
    let across = a_imaginary.map(|imaginary| product(&imaginary, &b)).transpose()?;
    let along = b_imaginary.map(|imaginary| product(&a, &imaginary)).transpose()?;
    match (along, across) {
        (Some(along), Some(across)) => complex(re, add(along, across)?),
        (Some(im), None) | (None, Some(im)) => complex(re, im),
        (None, None) => Ok(re),
    }
}

/// The product of arrays of one dtype, in the name of `op`, maybe added to something.
fn product(op: &'static str, a: &Array, b: &Array, c: Option<(&Array, Addmm)>) -> Result<Array> {
    for (name, array) in [("a", a), ("b", b)] {
        if array.rank() == 0 {
            return Err(Error::shape(op, name, "one of at least one axis", array.shape()));
        }
    }
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let mut a = if row { reshape(a, &[1, a.size()])? } else { a.clone() };
    let mut b = if column { reshape(b, &[b.size(), 1])? } else { b.clone() };
    let output = Plan::new(op, a.meta(), b.meta(), None)?.output;
    let mut shape = output.clone();
    if column {
        shape.pop();
    }
    if row {
        shape.remove(output.len() - 2);
    }
    let mut c = match c {
        Some((c, scale)) => Some((addend(op, c, &shape, row, column)?, scale)),
        None => None,
    };
    let plan = Plan::new(op, a.meta(), b.meta(), c.as_ref().map(|(c, _)| c.meta()))?;
    if a.device().is_gpu() && plan.batch.len() > plan::most_batch_axes(c.is_some()) {
        // More axes than a kernel's parameters can tell are merged by copying.
        let spread = |x: &Array| {
            let matrix = &x.shape()[x.rank() - 2..];
            let batch = &output[..output.len() - 2];
            let shape: Vec<usize> = batch.iter().chain(matrix).copied().collect();
            broadcast_to(x, &shape)?.contiguous()
        };
        (a, b) = (spread(&a)?, spread(&b)?);
        if let Some((c, _)) = &mut c {
            *c = broadcast_to(c, &output)?.contiguous()?;
        }
    }
    let product = match &c {
        Some((c, scale)) => Array::apply(*scale, &[c, &a, &b])?,
        None => Array::apply(Matmul, &[&a, &b])?,
    };
    reshape(&product, &shape)
}

/// What is added to a product of `shape`, with the axes that a row or a column on its sides drops.
fn addend(op: &'static str, c: &Array, shape: &[usize], row: bool, column: bool) -> Result<Array> {
    let fits = broadcast_shapes(op, c.shape(), shape);
    if !fits.is_ok_and(|broadcast| broadcast[..] == *shape) {
        let expected = format!("one that broadcasts to {shape:?}");
        return Err(Error::shape(op, "c", expected, c.shape()));
    }
    match (row, column) {
        (true, false) if c.rank() > 1 => expand_dims(c, -2),
        (false, true) if c.rank() > 0 => expand_dims(c, -1),
        _ => Ok(c.clone()),
    }
}

/// The product of matrices: `a` of `[…, m, k]` and `b` of `[…, k, n]`, in any layout, give
/// `[…, m, n]`. The lazy function is [`matmul`].
#[derive(Clone, Copy, Debug)]
pub struct Matmul;

impl Op for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "b", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        infer(self, inputs, 0)
    }

    fn reads_bytes(&self, _: usize) -> bool {
        true
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::run(call, None)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::run(call, None)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None, None]) };
        let [da, db] = gradients(gradient, &inputs[0], &inputs[1])?;
        Ok(vec![Some(da), Some(db)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let inputs = batch.aligned()?;
        Ok(vec![matmul(&inputs[0], &inputs[1])?])
    }
}

/// `alpha · (a @ b) + beta · c` for matrices as [`Matmul`] takes them and `c`, which comes first,
/// of any shape that broadcasts to the product's. The lazy function is [`addmm`].
#[derive(Clone, Copy, Debug)]
pub struct Addmm {
    /// What the product is multiplied with.
    pub alpha: f64,
    /// What `c` is multiplied with; with zero, `c` is not looked at.
    pub beta: f64,
}

impl Op for Addmm {
    fn name(&self) -> &'static str {
        "addmm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["c", "a", "b", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        infer(self, inputs, 1)
    }

    fn reads_bytes(&self, _: usize) -> bool {
        true
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::run(call, Some(*self))
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::run(call, Some(*self))
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None, None, None]) };
        let dc = sum_to_shape(&scaled(gradient, self.beta)?, inputs[0].shape())?;
        let [da, db] = gradients(&scaled(gradient, self.alpha)?, &inputs[1], &inputs[2])?;
        Ok(vec![Some(dc), Some(da), Some(db)])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let sum = || {
            let product = scaled(&matmul(&inputs[1], &inputs[2])?, self.alpha)?;
            if self.beta == 0.0 {
                return Ok(vec![product]);
            }
            Ok(vec![add(product, scaled(&inputs[0], self.beta)?)?])
        };
        Some(sum())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        if batch.batched == [true, false, false] {
            // A product that all share is not broadcast to what is added.
            return batch.composed(self.name(), |inputs| self.composed(inputs));
        }
        let inputs = batch.aligned()?;
        Ok(vec![addmm(&inputs[0], &inputs[1], &inputs[2], self.alpha, self.beta)?])
    }
}

/// The rule of both operations; `first` is where the factors begin.
fn infer(op: &dyn Op, inputs: &[&Meta], first: usize) -> Result<Metas> {
    crate::op::expect_inputs(op, inputs, first + 2)?;
    let dtype = inputs[0].dtype;
    expect_float(op, inputs, 0)?;
    for index in 1..inputs.len() {
        expect_dtype(op, inputs, index, dtype)?;
    }
    for index in first..inputs.len() {
        let (name, expected) = (argument_name(op, index), "one of at least two axes");
        if inputs[index].shape().len() < 2 {
            return Err(Error::shape(op.name(), name, expected, inputs[index].shape()));
        }
    }
    let addend = (first > 0).then(|| inputs[0]);
    let plan = Plan::new(op.name(), inputs[first], inputs[first + 1], addend)?;
    Ok(Metas::from_elem(Meta::new(op.name(), &plan.output, dtype)?, 1))
}

/// The gradients of the factors of a product, given the product's.
fn gradients(gradient: &Array, a: &Array, b: &Array) -> Result<[Array; 2]> {
    let da = sum_to_shape(&laid_out_as(a, gradient, &swapped(b)?)?, a.shape())?;
    let db = if b.rank() == 2 && a.rank() > 2 {
        // A right matrix that all of the batch shares: the batch is part of the sum's axis.
        let rows: usize = a.shape()[..a.rank() - 1].iter().product();
        let (k, n) = (b.shape()[0], b.shape()[1]);
        laid_out_as(b, &swapped(&reshape(a, &[rows, k])?)?, &reshape(gradient, &[rows, n])?)?
    } else {
        sum_to_shape(&laid_out_as(b, &swapped(a)?, gradient)?, b.shape())?
    };
    Ok([da, db])
}

/// The product, in memory as `like` is: the gradient of a transposed weight is transposed as well, so
/// that whoever puts the two together walks both in the same order.
fn laid_out_as(like: &Array, a: &Array, b: &Array) -> Result<Array> {
    if laid_out_as_transposed(like) {
        return swapped(&matmul(&swapped(b)?, &swapped(a)?)?);
    }
    matmul(a, b)
}

/// Whether neighbours in memory lie along the last axis but one.
fn laid_out_as_transposed(x: &Array) -> bool {
    matches!(x.strides(), [.., 1, last] if *last > 1)
}

fn scaled(x: &Array, by: f64) -> Result<Array> {
    if by == 1.0 { Ok(x.clone()) } else { multiply(x, by) }
}

/// With the last two axes exchanged.
fn swapped(x: &Array) -> Result<Array> {
    let mut axes: Vec<i64> = (0..x.rank() as i64).collect();
    let last = axes.len() - 1;
    axes.swap(last - 1, last);
    transpose_axes(x, &axes)
}
