//! Norms of vectors and matrices, and the cross product: made of other operations.

use super::svdvals;
use crate::array::{Array, DType, broadcast_shapes, normalize_axis};
use crate::error::{Error, Result};
use crate::ops::{
    Axes, abs, astype, broadcast_to, concatenate, expand_dims, max, min, moveaxis, multiply,
    negative, not_equal, power, split, sqrt, square, subtract, sum, zeros_like,
};

/// The order of a norm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum NormOrder {
    /// Of a vector the length, of matrices Frobenius' norm: MLX's `None`.
    #[default]
    Default,
    /// `p`, infinities included.
    P(f64),
    /// The root of the sum of squares, of matrices only: `"fro"`.
    Frobenius,
    /// The sum of the singular values, of matrices only: `"nuc"`.
    Nuclear,
}

impl From<()> for NormOrder {
    fn from((): ()) -> NormOrder {
        NormOrder::Default
    }
}

impl From<f64> for NormOrder {
    fn from(p: f64) -> NormOrder {
        NormOrder::P(p)
    }
}

impl From<i32> for NormOrder {
    fn from(p: i32) -> NormOrder {
        NormOrder::P(p.into())
    }
}

const NORM: &str = "linalg.norm";

/// The norms of vectors along one axis, or of matrices along two: rows and columns, in this order. With
/// `()` for the axes the array is one vector or matrix; without an order, too, all of it counts as one
/// vector.
///
/// | order | vector | matrix |
/// |---|---|---|
/// | `()` | 2-norm | Frobenius |
/// | `Frobenius` | – | root of the sum of squares |
/// | `Nuclear` | – | sum of singular values |
/// | `∞`, `-∞` | largest, smallest absolute value | largest, smallest sum of a row |
/// | `1`, `-1` | as below | largest, smallest sum of a column |
/// | `2`, `-2` | as below | largest, smallest singular value |
/// | `0` | how many are not zero | – |
/// | `p` | `sum(abs(x)^p)^(1/p)` | – |
///
/// Of complex numbers, lengths and what comes of singular values are real; other norms are complex, as in MLX.
///
/// ```
/// use wootz::{Array, linalg};
/// let x = Array::new([[3.0f32, 4.0], [0.0, -5.0]])?;
/// // mx.linalg.norm(x, axis=1)
/// assert_eq!(linalg::norm(&x, (), 1, false)?.to_vec::<f32>()?, [5.0, 5.0]);
/// // mx.linalg.norm(x, 1)
/// assert_eq!(linalg::norm(&x, 1, (), false)?.item::<f32>()?, 9.0);
/// // mx.linalg.norm(x, float("inf"), axis=0, keepdims=True)
/// assert_eq!(linalg::norm(&x, f64::INFINITY, 0, true)?.to_vec::<f32>()?, [3.0, 5.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn norm(
    a: &Array,
    ord: impl Into<NormOrder>,
    axis: impl Into<Axes>,
    keepdims: bool,
) -> Result<Array> {
    let (order, axes) = (ord.into(), axis.into());
    if order == NormOrder::Default && axes == Axes::All {
        return length(a, &(0..a.rank() as i64).collect::<Vec<_>>(), keepdims);
    }
    // In the order given: the first of two is that of rows.
    let axes: Vec<i64> = match axes {
        Axes::All => (0..a.rank() as i64).collect(),
        Axes::These(axes) => axes,
    };
    Axes::These(axes.clone()).normalize(NORM, a.rank())?;
    let axes = (axes.iter())
        .map(|&axis| Ok(normalize_axis(NORM, axis, a.rank())? as i64))
        .collect::<Result<Vec<i64>>>()?;
    match (order, &axes[..]) {
        (NormOrder::Default, [] | [_] | [_, _]) => length(a, &axes, keepdims),
        (NormOrder::P(2.0), _) if axes.len() == 1 => length(a, &axes, keepdims),
        (NormOrder::P(p), &[axis]) => in_dtype_of(a, of_vectors(a, p, axis, keepdims)?),
        (NormOrder::Frobenius, [_, _]) => length(a, &axes, keepdims),
        (NormOrder::P(p), &[rows, columns]) => {
            let norms = of_matrices(a, p, rows, columns, keepdims)?;
            if p.abs() == 2.0 { Ok(norms) } else { in_dtype_of(a, norms) }
        }
        (NormOrder::Nuclear, &[rows, columns]) => {
            let singular = singular_values(a, rows, columns)?;
            restored(&sum(&singular, -1, false)?, rows, columns, keepdims)
        }
        (NormOrder::Frobenius | NormOrder::Nuclear, _) => {
            let got = format!("{} for {order:?}", axes.len());
            Err(Error::argument(NORM, "axis", "two axes", got))
        }
        _ => Err(Error::argument(NORM, "axis", "one axis or two", axes.len())),
    }
}

/// As in MLX, norms of complex numbers that are no lengths are complex.
fn in_dtype_of(a: &Array, norm: Array) -> Result<Array> {
    match a.dtype().is_complex() {
        true => astype(&norm, a.dtype()),
        false => Ok(norm),
    }
}

/// The root of the sum of squares.
fn length(a: &Array, axes: &[i64], keepdims: bool) -> Result<Array> {
    sqrt(sum(&square(modulus(a)?)?, axes, keepdims)?)
}

/// Floats whose squares count: those of complex numbers are of their moduli.
fn modulus(a: &Array) -> Result<Array> {
    match a.dtype().is_complex() {
        true => abs(a),
        false => astype(a, a.dtype().to_float()),
    }
}

fn of_vectors(a: &Array, p: f64, axis: i64, keepdims: bool) -> Result<Array> {
    let absolute = || abs(modulus(a)?);
    if p == 0.0 {
        let dtype = if a.dtype().is_complex() { DType::F32 } else { a.dtype().to_float() };
        return astype(&sum(&not_equal(a, 0)?, axis, keepdims)?, dtype);
    } else if p == 1.0 {
        return sum(&absolute()?, axis, keepdims);
    } else if p == f64::INFINITY {
        return max(&absolute()?, axis, keepdims);
    } else if p == f64::NEG_INFINITY {
        return min(&absolute()?, axis, keepdims);
    }
    let powers = sum(&power(absolute()?, p)?, axis, keepdims)?;
    power(powers, 1.0 / p)
}

fn of_matrices(a: &Array, p: f64, rows: i64, columns: i64, keepdims: bool) -> Result<Array> {
    let largest = p > 0.0;
    if p.abs() == 2.0 {
        let singular = singular_values(a, rows, columns)?;
        let extreme = if largest { max(&singular, -1, false) } else { min(&singular, -1, false) };
        return restored(&extreme?, rows, columns, keepdims);
    }
    let (added, compared) = if p.abs() == 1.0 {
        (rows, columns)
    } else if p.is_infinite() {
        (columns, rows)
    } else {
        let expected = "1, -1, 2, -2 or an infinity for matrices";
        return Err(Error::argument(NORM, "ord", expected, p));
    };
    let sums = sum(&abs(modulus(a)?)?, added, true)?;
    let norms = if largest { max(&sums, compared, true) } else { min(&sums, compared, true) }?;
    if keepdims { Ok(norms) } else { crate::ops::squeeze(&norms, [rows, columns]) }
}

/// The singular values of the matrices in two axes, along the last axis.
fn singular_values(a: &Array, rows: i64, columns: i64) -> Result<Array> {
    // Where the axis of rows is once that of columns is last.
    let rows = if rows > columns { rows - 1 } else { rows };
    svdvals(&moveaxis(&moveaxis(a, columns, -1)?, rows, -2)?)
}

/// The result with axes of length 1 for those that are gone, if they are to be kept.
fn restored(x: &Array, rows: i64, columns: i64, keepdims: bool) -> Result<Array> {
    if !keepdims {
        return Ok(x.clone());
    }
    expand_dims(x, [rows.min(columns), rows.max(columns)])
}

/// The cross product of the vectors along `axis`, which have two or three elements; a third that is
/// missing counts as zero, and the result always has three. Other axes are broadcast.
///
/// ```
/// use wootz::{Array, linalg};
/// // mx.linalg.cross(mx.array([1, 0, 0]), mx.array([0, 1, 0]))
/// let x = linalg::cross(&Array::new([1, 0, 0])?, &Array::new([0, 1, 0])?, -1)?;
/// assert_eq!(x.to_vec::<i32>()?, [0, 0, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn cross(a: &Array, b: &Array, axis: i64) -> Result<Array> {
    const CROSS: &str = "linalg.cross";
    let length = |name: &str, x: &Array| -> Result<(usize, Vec<usize>)> {
        let place = normalize_axis(CROSS, axis, x.rank())?;
        let mut shape = x.shape().to_vec();
        match std::mem::replace(&mut shape[place], 3) {
            length @ 2..=3 => Ok((length, shape)),
            _ => {
                let expected = format!("2 or 3 elements along axis {axis}");
                Err(Error::shape(CROSS, name, expected, x.shape()))
            }
        }
    };
    let ((length_a, shape_a), (length_b, shape_b)) = (length("a", a)?, length("b", b)?);
    let mut shape = broadcast_shapes(CROSS, &shape_a, &shape_b)?;
    let place = normalize_axis(CROSS, axis, shape.len())?;
    let (a, b) = super::parts::alike(a, b)?;
    let mut parts = |x: &Array, length: usize| {
        shape[place] = length;
        split(&broadcast_to(x, &shape)?, length, place as i64)
    };
    let (a, b) = (parts(&a, length_a)?, parts(&b, length_b)?);
    let minor = |i: usize, j: usize| match (a.get(i), b.get(j), a.get(j), b.get(i)) {
        (Some(x), Some(y), Some(z), Some(w)) => subtract(multiply(x, y)?, multiply(z, w)?),
        (Some(x), Some(y), _, _) => multiply(x, y),
        (_, _, Some(z), Some(w)) => negative(multiply(z, w)?),
        _ => zeros_like(&a[0]),
    };
    concatenate(&[minor(1, 2)?, minor(2, 0)?, minor(0, 1)?], place as i64)
}

#[cfg(test)]
mod tests {
    use super::{NormOrder, norm};
    use crate::array::Array;

    #[test]
    fn orders_that_vectors_or_matrices_do_not_have_are_errors() -> crate::Result<()> {
        let (vector, matrix) = (Array::new([1.0f32, 2.0])?, Array::new([[1.0f32, 2.0]])?);
        assert!(norm(&vector, NormOrder::Frobenius, (), false).is_err());
        assert!(norm(&vector, NormOrder::Nuclear, 0, false).is_err());
        assert!(norm(&matrix, 3, (), false).is_err());
        assert!(norm(&matrix, 0, (), false).is_err());
        assert!(norm(&matrix, (), [0, 0], false).is_err());
        assert!(norm(&matrix, (), 2, false).is_err());
        assert!(norm(&Array::new([[[1.0f32]]])?, 2, (), false).is_err());
        assert!(norm(&Array::new([[1, 2]])?, 2, (), false).is_err());
        Ok(())
    }
}
