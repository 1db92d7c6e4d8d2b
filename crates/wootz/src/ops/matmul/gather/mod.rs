//! Products of matrices that indices choose: what the experts of a sparse model are made of.
//!
//! Products with one right matrix are done together, so that each right matrix is read once however
//! many products it takes part in. They stay in their order, and so do the sums of a gradient.

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(test)]
mod tests;

#[cfg(all(test, feature = "gpu"))]
pub(super) use self::gpu::cooperative_texts;
use super::{laid_out_as_transposed, promoted, swapped};
use crate::array::{Array, DType, Meta, Shape, broadcast_shapes};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Case, Entry, Metas, Op, Tolerance, argument_name, expect_contiguous, expect_dtype,
    expect_float, expect_inputs, expect_shape,
};
use crate::ops::elementwise::sum_to_shape;
use crate::ops::indexing::add_taken;
use crate::ops::indexing::offsets::{check_index_dtype, common_index_dtype};
use crate::ops::movement::arange_on;
use crate::ops::{
    Reduce, astype, broadcast_to, expand_dims, full, matmul, reshape, scatter, squeeze, take,
};

/// Cases.
pub(super) fn entries() -> Vec<Entry> {
    type Shapes<'a> = (&'a [usize], &'a [usize], &'a [usize], &'a [usize]);
    let case = |label: &str, (a, b, lhs, rhs): Shapes<'_>, swap: bool| {
        let batch = |shape: &[usize]| shape[..shape.len() - 2].iter().product::<usize>();
        let (left, right) = (batch(a) as f64, batch(b) as f64);
        Case::new(label, &[a, b, lhs, rhs], move |x| {
            let b = if swap { x[1].swapaxes(-1, -2)? } else { x[1].clone() };
            Ok(vec![gather_mm(&x[0], &b, Some(&x[2]), Some(&x[3]), false)?])
        })
        .fixed(2, DType::U32, 0.0..left)
        .fixed(3, DType::I32, 0.0..right)
        .tolerance(Tolerance::Contraction)
    };
    let experts = |label: &str, a: &[usize], b: &[usize], rhs: &[usize]| {
        Case::new(label, &[a, b, rhs], |x| {
            Ok(vec![gather_mm(&x[0], &x[1].swapaxes(-1, -2)?, None, Some(&x[2]), true)?])
        })
        .fixed(2, DType::U32, 0.0..b[0] as f64)
        .tolerance(Tolerance::Contraction)
    };
    let backward = |label: &str, shapes: [&[usize]; 2], items: usize, transposed: bool| {
        Case::new(label, &[shapes[0], shapes[1], &[items], &[items]], move |x| {
            let op = GatherMmBackward { experts: 3, transposed, each: None };
            let indices = [x[2].contiguous()?, x[3].contiguous()?];
            Ok(vec![Array::apply(op, &[&x[0], &x[1], &indices[0], &indices[1]])?])
        })
        .fixed(2, DType::U32, 0.0..shapes[0][0] as f64)
        .fixed(3, DType::U32, 0.0..3.0)
        .tolerance(Tolerance::Contraction)
    };
    vec![
        Entry {
            name: "gather_mm",
            cases: vec![
                experts("experts", &[5, 1, 1, 7], &[4, 6, 7], &[5, 2]),
                experts("experts, more than a tile", &[21, 1, 1, 33], &[3, 35, 33], &[21, 2]),
                experts("1025 tokens", &[1025, 1, 1, 8], &[3, 40, 8], &[1025, 1])
                    .dtypes(&[DType::F32]),
                // Weights once, and rows of tokens for each of two tiles of 32 columns.
                experts("weights that are read once", &[24, 1, 1, 64], &[4, 64, 64], &[24, 1])
                    .moves(4 * 64 * 64 + 2 * 24 * 64 + 24 * 64, 1.5),
                experts("packed weights", &[24, 1, 1, 64], &[4, 64, 64], &[24, 1])
                    .dtypes(&[DType::BF16])
                    .moves(4 * 64 * 64 + 2 * 24 * 64 + 24 * 64, 1.5),
                case("matrices", (&[2, 3, 5], &[4, 5, 6], &[7], &[7]), false),
                case("batches", (&[2, 1, 3, 5], &[2, 2, 7, 5], &[3, 1], &[1, 2]), true),
                case("large tiles", (&[2, 35, 17], &[1, 17, 66], &[2], &[2]), false),
                case("one column", (&[3, 2, 5], &[2, 5, 1], &[4], &[4]), false),
                case("nothing to sum", (&[2, 3, 0], &[4, 0, 6], &[3], &[3]), false),
                case("no products", (&[2, 3, 5], &[4, 5, 6], &[0], &[0]), false),
            ],
        },
        Entry {
            name: "gather_mm_backward",
            cases: vec![
                backward("rows", [&[5, 1, 7], &[9, 1, 6]], 9, false),
                backward("transposed", [&[5, 2, 7], &[9, 2, 6]], 9, true),
                backward("large tiles", [&[2, 9, 35], &[5, 9, 66]], 5, false),
                backward("1025 tokens", [&[1025, 1, 6], &[1025, 1, 7]], 1025, false),
                backward("no rows", [&[2, 0, 3], &[4, 0, 2]], 4, false),
                backward("no products", [&[2, 4, 3], &[0, 4, 2]], 0, false),
            ],
        },
    ]
}

/// The matrix products of matrices that indices choose: `a[lhs_indices] @ b[rhs_indices]`, where
/// indices count the matrices of all axes before the last two. The index arrays broadcast together;
/// one that is not given chooses the matrices in their order. Nothing that is chosen is copied,
/// and each matrix of `b` is read once, whether the indices are sorted or not: `sorted_indices` is
/// there because MLX has it.
///
/// ```
/// use wootz::{Array, gather_mm};
/// let tokens = Array::new([[[1.0f32, 2.0]], [[3.0, 4.0]]])?;
/// let experts = Array::new([[[1.0f32], [0.0]], [[0.0], [10.0]]])?;
/// let y = gather_mm(&tokens, &experts, None, Some(&Array::new([1, 0])?), false)?;
/// assert_eq!(y.to_vec::<f32>()?, [20.0, 3.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gather_mm(
    a: &Array,
    b: &Array,
    lhs_indices: Option<&Array>,
    rhs_indices: Option<&Array>,
    _sorted_indices: bool,
) -> Result<Array> {
    const OP: &str = "gather_mm";
    let dtype = promoted(OP, &[("a", a), ("b", b)])?;
    if lhs_indices.is_none() && rhs_indices.is_none() {
        return matmul(a, b);
    }
    for (name, array) in [("a", a), ("b", b)] {
        if array.rank() == 0 {
            return Err(Error::shape(OP, name, "one of at least one axis", array.shape()));
        }
    }
    // A vector counts as a row or a column, as in a product.
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let a = if row { expand_dims(a, 0)? } else { astype(a, dtype)? };
    let b = if column { expand_dims(b, 1)? } else { astype(b, dtype)? };
    let [lhs, rhs] = indices(&a, &b, lhs_indices, rhs_indices)?;
    let shape = broadcast_shapes(OP, lhs.shape(), rhs.shape())?;
    let each = lhs_indices.is_none().then(|| (batch(&a).into(), shape.clone()));
    let flat = |x: &Array| reshape(&broadcast_to(x, &shape)?, &[shape.iter().product()]);
    let inputs = [
        matrices(&astype(&a, dtype)?)?,
        matrices(&astype(&b, dtype)?)?,
        flat(&lhs)?.contiguous()?,
        flat(&rhs)?.contiguous()?,
    ];
    let products = apply(GatherMm { each }, &inputs)?;
    let matrix = &products.shape()[1..];
    let products = reshape(&products, &[&shape, matrix].concat())?;
    match (row, column) {
        (false, false) => Ok(products),
        (true, true) => squeeze(&products, [-2, -1]),
        (true, false) => squeeze(&products, -2),
        (false, true) => squeeze(&products, -1),
    }
}

fn apply(op: impl Op, inputs: &[Array; 4]) -> Result<Array> {
    Array::apply(op, &inputs.each_ref())
}

/// The axes before the last two.
fn batch(x: &Array) -> &[usize] {
    &x.shape()[..x.rank() - 2]
}

/// With the axes before the last two made one.
fn matrices(x: &Array) -> Result<Array> {
    let count = batch(x).iter().product();
    reshape(x, &[&[count], &x.shape()[x.rank() - 2..]].concat())
}

/// Both index arrays, of one dtype that holds the values of both.
fn indices(a: &Array, b: &Array, lhs: Option<&Array>, rhs: Option<&Array>) -> Result<[Array; 2]> {
    for (name, indices, array) in [("lhs_indices", lhs, a), ("rhs_indices", rhs, b)] {
        let Some(indices) = indices else { continue };
        check_index_dtype("gather_mm", name, indices.dtype())?;
        if indices.size() > 0 && batch(array).contains(&0) {
            let expected = "no indices into axes without matrices";
            return Err(Error::argument("gather_mm", name, expected, indices.size()));
        }
    }
    let count = |array: &Array| batch(array).iter().product::<usize>();
    let implied = count(if lhs.is_none() { a } else { b });
    let dtype = common_index_dtype([lhs, rhs].map(|x| x.map(Array::dtype)), implied);
    let of = |indices: Option<&Array>, array: &Array| match indices {
        Some(indices) => astype(indices, dtype),
        None => {
            let all = arange_on(0.0, count(array) as f64, 1.0, dtype, array.device())?;
            reshape(&all, batch(array))
        }
    };
    Ok([of(lhs, a)?, of(rhs, b)?])
}

/// Which matrices of `a` the left indices choose if they are not an argument: every matrix of a
/// batch of the first shape, broadcast to the second. Their gradient is then a plain sum.
type Each = Option<(Shape, Shape)>;

/// `out[i] = a[lhs_indices[i]] @ b[rhs_indices[i]]` for `a` of `[A, m, k]` and `b` of `[B, k, n]`
/// in any layout, and row-major index vectors of one dtype, whose elements count from the front.
/// The lazy function is [`gather_mm`].
#[derive(Clone, Debug, Default)]
pub struct GatherMm {
    each: Each,
}

impl GatherMm {
    /// With indices that may be anything.
    pub fn new() -> GatherMm {
        GatherMm::default()
    }
}

/// The gradient of [`GatherMm`]'s right matrices, `[experts, k, n]` or with the last two axes
/// exchanged: `out[e]` is the sum of `a[lhs_indices[i]]ᵀ @ dy[i]` over the `i` with `rhs_indices[i]
/// == e`, in their order. The inputs are `a`, `dy`, `lhs_indices` and `rhs_indices`.
#[derive(Clone, Debug)]
pub struct GatherMmBackward {
    experts: usize,
    transposed: bool,
    each: Each,
}

impl GatherMmBackward {
    /// For a number of right matrices, whose gradients come `transposed` or not.
    pub fn new(experts: usize, transposed: bool) -> GatherMmBackward {
        GatherMmBackward { experts, transposed, each: None }
    }
}

/// Checks the inputs of both operations: matrices `[X, m, k]` and `[Y, …]`, then two vectors of
/// indices. Tells the number of products.
fn expect_gathered(op: &dyn Op, inputs: &[&Meta]) -> Result<usize> {
    expect_inputs(op, inputs, 4)?;
    expect_float(op, inputs, 0)?;
    expect_dtype(op, inputs, 1, inputs[0].dtype)?;
    for index in 0..2 {
        if inputs[index].shape().len() != 3 {
            let (name, shape) = (argument_name(op, index), inputs[index].shape());
            return Err(Error::shape(op.name(), name, "one of three axes", shape));
        }
    }
    let count = inputs[2].size();
    for index in 2..4 {
        check_index_dtype(op.name(), &argument_name(op, index), inputs[index].dtype)?;
        expect_dtype(op, inputs, index, inputs[2].dtype)?;
        expect_shape(op, inputs, index, &[count])?;
        expect_contiguous(op, inputs, index)?;
    }
    Ok(count)
}

/// The gradient of the left matrices, given that of each product's left matrix.
fn sum_left(each: &Each, a: &Array, lhs: &Array, products: &Array) -> Result<Array> {
    let matrix = &a.shape()[1..];
    if let Some((from, to)) = each {
        let products = reshape(products, &[to, matrix].concat())?;
        return reshape(&sum_to_shape(&products, &[from, matrix].concat())?, a.shape());
    }
    add_taken("gather_mm", a, lhs, products)
}

/// `0, 1, …` for each product, as `like` is.
fn numbers(like: &Array) -> Result<Array> {
    arange_on(0.0, like.size() as f64, 1.0, like.dtype(), like.device())
}

impl Op for GatherMm {
    fn name(&self) -> &'static str {
        "gather_mm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "b", "lhs_indices", "rhs_indices", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let count = expect_gathered(self, inputs)?;
        let (a, b) = (inputs[0].shape(), inputs[1].shape());
        if a[2] != b[1] {
            let expected = format!("{} rows, as {a:?} has columns", a[2]);
            return Err(Error::shape(self.name(), "b", expected, b));
        }
        Ok(Metas::from_elem(Meta::new(self.name(), &[count, a[1], b[2]], inputs[0].dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        groups_bytes(inputs, inputs[1].shape()[0], gpu)
    }

    fn reads_bytes(&self, input: usize) -> bool {
        // The experts' weights; rows of the left matrices are laid together.
        input == 1
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let [a, b, lhs, rhs] = inputs else { return Ok(vec![None; inputs.len()]) };
        let Some(dy) = &cotangents[0] else { return Ok(vec![None; 4]) };
        let left = [dy.clone(), swapped(b)?, numbers(lhs)?, rhs.clone()];
        let da = sum_left(&self.each, a, lhs, &apply(GatherMm::new(), &left)?)?;
        let transposed = laid_out_as_transposed(b);
        let op = GatherMmBackward { experts: b.shape()[0], transposed, each: self.each.clone() };
        let db = apply(op, &[a.clone(), dy.clone(), lhs.clone(), rhs.clone()])?;
        let db = if transposed { swapped(&db)? } else { db };
        Ok(vec![Some(da), Some(db), None, None])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let [a, b, lhs, rhs] = inputs else { return Ok(Vec::new()) };
            Ok(vec![matmul(&take(a, lhs, Some(0))?, &take(b, rhs, Some(0))?)?])
        };
        Some(composed())
    }
}

impl Op for GatherMmBackward {
    fn name(&self) -> &'static str {
        "gather_mm_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["a", "dy", "lhs_indices", "rhs_indices", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let count = expect_gathered(self, inputs)?;
        let (a, dy) = (inputs[0].shape(), inputs[1].shape());
        expect_shape(self, inputs, 1, &[count, a[1], dy[2]])?;
        let (rows, columns) = if self.transposed { (dy[2], a[2]) } else { (a[2], dy[2]) };
        let shape = [self.experts, rows, columns];
        Ok(Metas::from_elem(Meta::new(self.name(), &shape, inputs[0].dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        groups_bytes(inputs, self.experts, gpu)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let [a, dy, lhs, rhs] = inputs else { return Ok(vec![None; inputs.len()]) };
        let Some(weights) = &cotangents[0] else { return Ok(vec![None; 4]) };
        let weights = if self.transposed { swapped(weights)? } else { weights.clone() };
        let left = [dy.clone(), swapped(&weights)?, numbers(lhs)?, rhs.clone()];
        let da = sum_left(&self.each, a, lhs, &apply(GatherMm::new(), &left)?)?;
        let op = GatherMm { each: self.each.clone() };
        let ddy = apply(op, &[a.clone(), weights, lhs.clone(), rhs.clone()])?;
        Ok(vec![Some(da), Some(ddy), None, None])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let [a, dy, lhs, rhs] = inputs else { return Ok(Vec::new()) };
            let (a, dy) = (take(a, lhs, Some(0))?, dy.clone());
            let (left, right) = if self.transposed { (dy, a) } else { (a, dy) };
            let products = matmul(&swapped(&left)?, &right)?;
            let shape = [&[self.experts], &products.shape()[1..]].concat();
            let zeros = astype(&full(&shape, 0, DType::F32)?, products.dtype())?;
            let sums = scatter(&zeros, &[rhs], &expand_dims(&products, 1)?, &[0], Reduce::Add);
            Ok(vec![sums?])
        };
        Some(composed())
    }
}

/// Words that say which products belong together on a GPU: where those of each right matrix begin,
/// and for each, in the order of right matrices, its number, its left matrix and its right one.
fn groups_bytes(inputs: &[&Meta], experts: usize, gpu: bool) -> usize {
    if gpu { (experts + 1 + 3 * inputs[2].size()) * size_of::<u32>() } else { 0 }
}
