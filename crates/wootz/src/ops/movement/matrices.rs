//! Matrices with a structure: diagonals, triangles, the identity, coordinate grids.

use std::borrow::Borrow;

use super::strided::embed_diagonal;
use super::{as_strided, broadcast_arrays, concatenate, diagonal, moving_case};
use crate::array::{Array, DType, Scalar, checked_size};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::op::{Case, EVERY, Entry, Tolerance};
use crate::ops::{astype, broadcast_to, constant, reshape, where_};

/// Cases of structured matrices.
pub(crate) fn entries() -> Vec<Entry> {
    let grid = Case::new("two", &[&[3], &[4]], |x| meshgrid(x, false, GridIndexing::Xy));
    vec![
        Entry {
            name: "diag",
            cases: vec![
                moving_case("of a vector", &[4], |x| diag(x, 0)),
                moving_case("of a vector, above", &[4], |x| diag(x, 2)),
                moving_case("of a vector, below", &[3], |x| diag(x, -1)),
                moving_case("of a matrix", &[3, 5], |x| diag(x, 1)),
                moving_case("of nothing", &[0], |x| diag(x, 1)),
            ],
        },
        Entry {
            name: "tril",
            cases: vec![
                moving_case("square", &[4, 4], |x| tril(x, 0)),
                moving_case("above, wide", &[2, 3, 5], |x| tril(x, 1)),
            ],
        },
        Entry { name: "triu", cases: vec![moving_case("below, tall", &[5, 3], |x| triu(x, -1))] },
        Entry {
            name: "trace",
            cases: vec![
                Case::new("", &[&[2, 4, 5]], |x| Ok(vec![trace(&x[0], 1, 1, 2, None)?]))
                    .tolerance(Tolerance::Reduction),
            ],
        },
        Entry { name: "meshgrid", cases: vec![grid.dtypes(EVERY).tolerance(Tolerance::Exact)] },
    ]
}

/// The matrix with the vector `x` on its diagonal, `k` places above the main one; or that diagonal
/// of the matrix `x`.
///
/// ```
/// use wootz::{Array, diag};
/// let x = diag(&Array::new([1, 2])?, 0)?;
/// assert_eq!(x.to_vec::<i32>()?, [1, 0, 0, 2]);
/// assert_eq!(diag(&x, 0)?.to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn diag(x: &Array, k: i64) -> Result<Array> {
    match *x.shape() {
        [length] => {
            let distance = usize::try_from(k.unsigned_abs()).unwrap_or(usize::MAX);
            let size = length.saturating_add(distance);
            checked_size("diag", &[size, size], x.dtype())?;
            embed_diagonal(x, size, size, k)
        }
        [_, _] => diagonal(x, k, 0, 1),
        _ => Err(Error::shape("diag", "x", "one of 1 or 2 axes", x.shape())),
    }
}

impl Array {
    /// See [`diag`].
    pub fn diag(&self, k: i64) -> Result<Array> {
        diag(self, k)
    }
}

/// The `n` by `m` matrix with ones on a diagonal, `k` places above the main one.
///
/// ```
/// use wootz::{DType, eye};
/// assert_eq!(eye(2, 3, 1, DType::I32)?.to_vec::<i32>()?, [0, 1, 0, 0, 0, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn eye(n: usize, m: usize, k: i64, dtype: DType) -> Result<Array> {
    checked_size("eye", &[n, m], dtype)?;
    if n == 0 || m == 0 {
        return Array::zeros(&[n, m], dtype);
    }
    // An element depends on the distance from the diagonal only: all rows see one vector of
    // distances.
    let one = k.saturating_add(n as i64 - 1);
    let length = n + m - 1;
    let before = one.clamp(0, length as i64) as usize;
    let ones = usize::from(one >= 0 && one < length as i64);
    let device = Device::default_device();
    by_distance(&[(before, 0), (ones, 1), (length - before - ones, 0)], n, m, dtype, &device)
}

/// The `n` by `n` identity matrix.
///
/// ```
/// use wootz::{DType, identity};
/// assert_eq!(identity(2, DType::F32)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn identity(n: usize, dtype: DType) -> Result<Array> {
    eye(n, n, 0, dtype)
}

/// The `n` by `m` matrix with ones on and below a diagonal, `k` places above the main one.
///
/// ```
/// use wootz::{DType, tri};
/// assert_eq!(tri(2, 3, 0, DType::I32)?.to_vec::<i32>()?, [1, 0, 0, 1, 1, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tri(n: usize, m: usize, k: i64, dtype: DType) -> Result<Array> {
    tri_on(n, m, k, dtype, &Device::default_device())
}

fn tri_on(n: usize, m: usize, k: i64, dtype: DType, device: &Device) -> Result<Array> {
    checked_size("tri", &[n, m], dtype)?;
    if n == 0 || m == 0 {
        let zero = constant(Scalar::Int(0), dtype, device)?;
        return broadcast_to(&zero, &[n, m]);
    }
    let length = n + m - 1;
    let ones = k.saturating_add(n as i64).clamp(0, length as i64) as usize;
    by_distance(&[(ones, 1), (length - ones, 0)], n, m, dtype, device)
}

/// The lower triangle of the matrices in the last two axes, up to the diagonal `k` places above the
/// main one, and zeros above it.
///
/// ```
/// let x = wootz::tril(&wootz::Array::new([[1, 2], [3, 4]])?, 0)?;
/// assert_eq!(x.to_vec::<i32>()?, [1, 0, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn tril(x: &Array, k: i64) -> Result<Array> {
    let zero = constant(Scalar::Int(0), x.dtype(), x.device())?;
    where_(triangle("tril", x, k)?, x, zero)
}

/// The upper triangle of the matrices in the last two axes, from the diagonal `k` places above the
/// main one, and zeros below it.
///
/// ```
/// let x = wootz::triu(&wootz::Array::new([[1, 2], [3, 4]])?, 0)?;
/// assert_eq!(x.to_vec::<i32>()?, [1, 2, 0, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn triu(x: &Array, k: i64) -> Result<Array> {
    let zero = constant(Scalar::Int(0), x.dtype(), x.device())?;
    where_(triangle("triu", x, k.saturating_sub(1))?, zero, x)
}

/// Where the last two axes of `x` are on or below a diagonal.
fn triangle(op: &'static str, x: &Array, k: i64) -> Result<Array> {
    let [.., rows, columns] = *x.shape() else {
        return Err(Error::shape(op, "x", "one of at least 2 axes", x.shape()));
    };
    tri_on(rows, columns, k, DType::Bool, x.device())
}

/// The matrix whose element depends on column minus row only: runs of values from the lower left
/// corner's distance to the upper right's.
fn by_distance(
    runs: &[(usize, i64)],
    n: usize,
    m: usize,
    dtype: DType,
    device: &Device,
) -> Result<Array> {
    let runs = (runs.iter().filter(|(count, _)| *count > 0))
        .map(|&(count, value)| {
            broadcast_to(&constant(Scalar::Int(value), dtype, device)?, &[count])
        })
        .collect::<Result<Vec<Array>>>()?;
    as_strided(&concatenate(&runs, 0)?, &[n, m], &[-1, 1], n - 1)?.contiguous()
}

/// The sum of a diagonal; see [`diagonal`]. Small integers are added up in 32 bits; `dtype` is what
/// the diagonal is converted to first.
///
/// ```
/// use wootz::{Array, trace};
/// assert_eq!(trace(&Array::new([[1, 2], [3, 4]])?, 0, 0, 1, None)?.item::<i32>()?, 5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn trace(
    x: &Array,
    offset: i64,
    axis1: i64,
    axis2: i64,
    dtype: Option<DType>,
) -> Result<Array> {
    let diagonal = diagonal(x, offset, axis1, axis2)?;
    let sum = astype(&diagonal, dtype.unwrap_or(x.dtype()))?.sum(-1)?;
    astype(&sum, dtype.unwrap_or(sum.dtype()))
}

/// The order of the first two axes of [`meshgrid`]'s results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridIndexing {
    /// The first array runs along the columns, the second along the rows.
    Xy,
    /// Each array runs along the axis of its number.
    Ij,
}

/// Coordinates of a grid: every array, flattened, along an axis of its own, and repeated along the
/// others unless `sparse`.
///
/// ```
/// use wootz::{Array, GridIndexing, meshgrid};
/// let (x, y) = (Array::new([0, 1])?, Array::new([0, 1, 2])?);
/// let grid = meshgrid(&[x, y], false, GridIndexing::Xy)?;
/// assert_eq!(grid[0].to_vec::<i32>()?, [0, 1, 0, 1, 0, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn meshgrid(
    arrays: &[impl Borrow<Array>],
    sparse: bool,
    indexing: GridIndexing,
) -> Result<Vec<Array>> {
    let along = |(number, array): (usize, &_)| {
        let array: &Array = Borrow::borrow(array);
        let axis = match (indexing, number) {
            (GridIndexing::Xy, 0 | 1) if arrays.len() > 1 => 1 - number,
            _ => number,
        };
        let mut shape = vec![1; arrays.len()];
        shape[axis] = array.size();
        reshape(array, &shape)
    };
    let arrays = arrays.iter().enumerate().map(along).collect::<Result<Vec<Array>>>()?;
    if sparse { Ok(arrays) } else { broadcast_arrays(&arrays) }
}
