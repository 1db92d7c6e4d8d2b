//! First values of parameters. Functions give an array of a shape; without a key they take the
//! next one of the thread's sequence, as [`random`] does.

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::{ops, random};

/// Which side of a weight's connections its scale is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// The inputs.
    #[default]
    In,
    /// The outputs.
    Out,
}

/// One value everywhere.
///
/// ```
/// use wootz::{DType, nn::init};
/// assert_eq!(init::constant(&[2], 0.5, DType::F32)?.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn constant(shape: &[usize], value: f64, dtype: DType) -> Result<Array> {
    ops::full(shape, value, dtype)
}

/// Normally distributed values; MLX's defaults are mean 0 and deviation 1.
///
/// ```
/// use wootz::{DType, nn::init};
/// assert_eq!(init::normal(&[2, 3], 0.0, 1.0, DType::F32, None)?.shape(), [2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn normal(
    shape: &[usize],
    mean: f64,
    std: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    random::normal(shape, dtype, mean, std, key)
}

/// Values spread evenly over `low..high`; MLX's defaults are 0 and 1.
///
/// ```
/// use wootz::{DType, nn::init};
/// let x = init::uniform(&[4], -1.0, 1.0, DType::F32, None)?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| x.abs() <= 1.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn uniform(
    shape: &[usize],
    low: f64,
    high: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    random::uniform(low, high, shape, dtype, key)
}

/// Ones on the diagonal of a square matrix.
///
/// ```
/// use wootz::{DType, nn::init};
/// assert_eq!(init::identity(&[2, 2], DType::F32)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn identity(shape: &[usize], dtype: DType) -> Result<Array> {
    match shape {
        &[rows, columns] if rows == columns => ops::eye(rows, columns, 0, dtype),
        _ => Err(Error::shape("identity", "shape", "that of a square matrix", shape)),
    }
}

/// Glorot's normal distribution, of deviation `gain · √(2 / (fan_in + fan_out))`.
///
/// ```
/// use wootz::{DType, nn::init};
/// assert_eq!(init::glorot_normal(&[2, 3], 1.0, DType::F32, None)?.shape(), [2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn glorot_normal(
    shape: &[usize],
    gain: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    let (fan_in, fan_out) = fans("glorot_normal", shape)?;
    normal(shape, 0.0, gain * (2.0 / (fan_in + fan_out)).sqrt(), dtype, key)
}

/// Glorot's uniform distribution, up to `gain · √(6 / (fan_in + fan_out))`.
///
/// ```
/// use wootz::{DType, nn::init};
/// assert!(init::glorot_uniform(&[3], 1.0, DType::F32, None).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn glorot_uniform(
    shape: &[usize],
    gain: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    let (fan_in, fan_out) = fans("glorot_uniform", shape)?;
    let limit = gain * (6.0 / (fan_in + fan_out)).sqrt();
    uniform(shape, -limit, limit, dtype, key)
}

/// He's normal distribution, of deviation `gain / √fan`.
///
/// ```
/// use wootz::{DType, nn::init};
/// let x = init::he_normal(&[2, 3], init::Fan::In, 1.0, DType::F32, None)?;
/// assert_eq!(x.shape(), [2, 3]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn he_normal(
    shape: &[usize],
    mode: Fan,
    gain: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    normal(shape, 0.0, gain / fan("he_normal", shape, mode)?.sqrt(), dtype, key)
}

/// He's uniform distribution, up to `gain · √(3 / fan)`.
///
/// ```
/// use wootz::{DType, nn::init};
/// let x = init::he_uniform(&[4, 3], init::Fan::In, 1.0, DType::F32, None)?;
/// assert!(x.to_vec::<f32>()?.iter().all(|x| x.abs() <= 1.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn he_uniform(
    shape: &[usize],
    mode: Fan,
    gain: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    let limit = gain * (3.0 / fan("he_uniform", shape, mode)?).sqrt();
    uniform(shape, -limit, limit, dtype, key)
}

/// A normally distributed matrix in each row of which the fraction `sparsity` of the elements,
/// chosen at random, is zero.
///
/// ```
/// use wootz::{DType, nn::init};
/// let x = init::sparse(&[3, 4], 0.5, 0.0, 1.0, DType::F32, None)?;
/// let zeros = x.to_vec::<f32>()?.iter().filter(|x| **x == 0.0).count();
/// assert_eq!(zeros, 6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn sparse(
    shape: &[usize],
    sparsity: f64,
    mean: f64,
    std: f64,
    dtype: DType,
    key: Option<&Array>,
) -> Result<Array> {
    let &[_, columns] = shape else {
        return Err(Error::shape("sparse", "shape", "that of a matrix", shape));
    };
    if !(0.0..=1.0).contains(&sparsity) {
        return Err(Error::argument("sparse", "sparsity", "a number of [0, 1]", sparsity));
    }
    let keys = key.map(|key| random::split(key, 2)).transpose()?;
    let key = |index: i64| keys.as_ref().map(|keys| keys.index(index)).transpose();
    let draws = random::uniform(0.0, 1.0, shape, DType::F32, key(0)?.as_ref())?;
    let values = normal(shape, mean, std, dtype, key(1)?.as_ref())?;
    let zeros = (sparsity * columns as f64).ceil() as usize;
    // The rank of each element's draw in its row.
    let ranks = ops::argsort(&ops::argsort(&draws, 1)?, 1)?;
    ops::where_(ops::less(&ranks, zeros)?, 0, values)
}

/// A matrix with orthonormal rows or columns, whichever are fewer, times `gain`.
///
/// ```
/// use wootz::{DType, nn::init};
/// let x = init::orthogonal(&[2, 3], 1.0, DType::F32, None)?;
/// let product = x.matmul(&x.transpose()?)?.to_vec::<f32>()?;
/// assert!(product.iter().zip([1.0, 0.0, 0.0, 1.0]).all(|(x, e): (&f32, f32)| (x - e).abs() < 1e-5));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn orthogonal(shape: &[usize], gain: f64, dtype: DType, key: Option<&Array>) -> Result<Array> {
    let &[rows, columns] = shape else {
        return Err(Error::shape("orthogonal", "shape", "that of a matrix", shape));
    };
    let n = rows.max(columns);
    let draws = normal(&[n, n], 0.0, 1.0, DType::F32, key)?;
    let draws = draws.transpose()?.to_vec::<f32>()?;
    // Gram-Schmidt on the host, in double precision: the Q of the decomposition QR whose R has a
    // positive diagonal.
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(columns);
    for column in draws.chunks(n.max(1)).take(columns) {
        let mut column: Vec<f64> = column.iter().map(|&x| x as f64).collect();
        for other in &basis {
            let along: f64 = column.iter().zip(other).map(|(a, b)| a * b).sum();
            column.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
        }
        let length = column.iter().map(|x| x * x).sum::<f64>().sqrt();
        column.iter_mut().for_each(|x| *x /= length);
        basis.push(column);
    }
    let element = |i: usize| (gain * basis[i % columns][i / columns]) as f32;
    let values: Vec<f32> = (0..rows * columns).map(element).collect();
    Array::from_slice(&values, shape)?.astype(dtype)
}

/// The number of inputs and of outputs that a weight of this shape connects.
fn fans(op: &'static str, shape: &[usize]) -> Result<(f64, f64)> {
    let &[first, .., last] = shape else {
        return Err(Error::shape(op, "shape", "at least two axes", shape));
    };
    let window: usize = shape[1..shape.len() - 1].iter().product();
    Ok(((last * window) as f64, (first * window) as f64))
}

fn fan(op: &'static str, shape: &[usize], mode: Fan) -> Result<f64> {
    let (fan_in, fan_out) = fans(op, shape)?;
    Ok(if mode == Fan::In { fan_in } else { fan_out })
}
