//! What is made of sorting: `median` and `unique`.

use super::{Side, argsort, searchsorted, sort};
use crate::array::{Arg, Array, DType, Scalar, Shape};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, Gradient, Tolerance};
use crate::ops::movement::{arange_on, slice_axis};
use crate::ops::{
    Axes, PadMode, add, astype, concatenate, constant, flatten, isnan, less, minimum, multiply,
    not_equal, pad, reshape, squeeze, subtract, take, take_along_axis_backward, transpose_axes,
    where_, zeros_like,
};

/// Cases.
pub(super) fn entries() -> Vec<Entry> {
    let case = |label: &str, shape: &[usize], call: fn(&Array) -> Result<Array>| {
        Case::new(label, &[shape], move |x| Ok(vec![call(&x[0])?]))
    };
    let repeated = |label: &str, size: usize| {
        Case::new(label, &[&[5, 7]], move |x| {
            let Unique { values, index, inverse, counts } = unique(&x[0], size, None)?;
            Ok(vec![values, index, inverse, counts])
        })
        .dtypes(&[DType::I32, DType::U8, DType::I64])
        .range(0.0..20.0)
        .tolerance(Tolerance::Exact)
        .gradient(Gradient::Zero)
    };
    vec![
        Entry {
            name: "median",
            cases: vec![
                case("odd", &[3, 7], |x| median(x, 1, false)),
                case("even", &[4, 3], |x| median(x, 0, true)),
                case("all", &[3, 5], |x| median(x, (), false)),
            ],
        },
        Entry { name: "unique", cases: vec![repeated("padded", 40), repeated("cut off", 3)] },
    ]
}

/// The middle element along the axes, or the mean of the middle two; NaN where there is a NaN.
/// Integers become floats.
///
/// ```
/// use wootz::{Array, median};
/// assert_eq!(median(&Array::new([4, 1, 3, 2])?, (), false)?.item::<f32>()?, 2.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn median(x: &Array, axes: impl Into<Axes>, keepdims: bool) -> Result<Array> {
    let axes = axes.into().normalize("median", x.rank())?;
    let kept: Vec<usize> = (0..x.rank()).filter(|axis| !axes.contains(axis)).collect();
    let order: Vec<i64> = kept.iter().chain(&axes).map(|&axis| axis as i64).collect();
    let length: usize = axes.iter().map(|&axis| x.shape()[axis]).product();
    if length == 0 {
        return Err(Error::NoIdentity { op: "median", shape: format!("{:?}", x.shape()) });
    }
    let mut shape: Shape = kept.iter().map(|&axis| x.shape()[axis]).collect();
    shape.push(length);
    let rows = reshape(&transpose_axes(&astype(x, x.dtype().to_float())?, &order)?, &shape)?;
    let sorted = sort(&rows, -1)?;
    let last = shape.len() - 1;
    let at = |index: usize| squeeze(&slice_axis(&sorted, last, index, index + 1, 1)?, -1);
    let middle = match length % 2 {
        1 => at(length / 2)?,
        _ => multiply(add(at(length / 2 - 1)?, at(length / 2)?)?, 0.5)?,
    };
    // A NaN sorts last.
    let largest = at(length - 1)?;
    let median = where_(isnan(&largest)?, &largest, middle)?;
    if !keepdims {
        return Ok(median);
    }
    let shape: Shape = (x.shape().iter().enumerate())
        .map(|(axis, &length)| if axes.contains(&axis) { 1 } else { length })
        .collect();
    reshape(&median, &shape)
}

/// What [`unique`] finds. Arrays that are not asked for are not computed.
#[derive(Clone)]
pub struct Unique {
    /// The distinct elements in rising order, then the fill value.
    pub values: Array,
    /// Where each first occurs in the flattened array, as `uint32`.
    pub index: Array,
    /// For each element of the array its place among the values, as `uint32`.
    pub inverse: Array,
    /// How often each value occurs, as `int32`; 0 for the fill value.
    pub counts: Array,
}

/// The distinct elements of the flattened array in rising order: the first `size` of them, or all
/// of them and then `fill_value`, which is the first if it is not given. Every NaN is distinct.
///
/// ```
/// use wootz::{Array, unique};
/// let found = unique(&Array::new([2, 1, 2, 3, 1])?, 4, None)?;
/// assert_eq!(found.values.to_vec::<i32>()?, [1, 2, 3, 1]);
/// assert_eq!(found.counts.to_vec::<i32>()?, [2, 2, 1, 0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn unique(x: &Array, size: usize, fill_value: Option<Arg>) -> Result<Unique> {
    let fill = match fill_value {
        Some(Arg::Array(value)) => Some(astype(&value, x.dtype())?),
        Some(Arg::Scalar(value)) => Some(constant(value, x.dtype(), x.device())?),
        None => None,
    };
    let length = x.size();
    let number = |value: usize| constant(Scalar::Int(value as i64), DType::I32, x.device());
    if length == 0 {
        let fill = match fill {
            Some(fill) => fill,
            None if size == 0 => constant(Scalar::Int(0), x.dtype(), x.device())?,
            None => {
                let expected = "a value to fill the result of an empty array with";
                return Err(Error::argument("unique", "fill_value", expected, "none"));
            }
        };
        let counts = crate::ops::full(&[size], &number(0)?, DType::I32)?;
        return Ok(Unique {
            values: crate::ops::full(&[size], &fill, x.dtype())?,
            index: astype(&counts, DType::U32)?,
            inverse: zeros_like(&astype(x, DType::U32)?)?,
            counts,
        });
    }
    let flat = flatten(x, 0, -1)?;
    let order = argsort(&flat, 0)?;
    let sorted = take(&flat, &order, Some(0))?;
    let numbers = arange_on(0.0, length as f64, 1.0, DType::I32, x.device())?;
    let first = reshape(&constant(Scalar::Bool(true), DType::Bool, x.device())?, &[1])?;
    let (tail, head) =
        (slice_axis(&sorted, 0, 1, length, 1)?, slice_axis(&sorted, 0, 0, length - 1, 1)?);
    let is_new = concatenate(&[first, not_equal(tail, head)?], 0)?;
    // Where in the sorted array each distinct element starts, then the array's length.
    let starts = sort(&where_(is_new, &numbers, number(length)?)?, 0)?;
    let extra = (size + 1).saturating_sub(length);
    let starts = pad(&starts, (0, extra), PadMode::Constant, &number(length)?)?;
    let start = slice_axis(&starts, 0, 0, size, 1)?;
    let counts = subtract(slice_axis(&starts, 0, 1, size + 1, 1)?, &start)?;
    let present = less(&start, number(length)?)?;
    let place = where_(&present, &start, number(0)?)?;
    let fill = fill.map_or_else(|| squeeze(&slice_axis(&sorted, 0, 0, 1, 1)?, 0), Ok)?;
    let group = subtract(searchsorted(&starts, &numbers, Side::Right)?, 1)?;
    let group = minimum(group, size.saturating_sub(1))?;
    Ok(Unique {
        values: where_(&present, take(&sorted, &place, Some(0))?, fill)?,
        index: take(&order, &place, Some(0))?,
        inverse: reshape(&take_along_axis_backward(&order, &group, 0, length)?, x.shape())?,
        counts,
    })
}
