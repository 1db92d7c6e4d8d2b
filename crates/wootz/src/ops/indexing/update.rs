//! Updating by index: `set`, and `at` with its reductions.

use super::gather::{self, Window, broadcast_argument};
use super::index::{Index, IntoIndices, Plan, value_like};
use super::mask::masked;
use super::scatter::{self, Reduce};
use super::slice_update::{slice_ranges, stripped, update_ranges};
use crate::array::{Arg, Array, DType, Shape};
use crate::error::{Error, Result};
use crate::op::{Case, EVERY, Entry, Tolerance};
use crate::ops::{add, divide, multiply, negative, ones_like, reshape};

/// Cases of updating by index.
pub(super) fn entries() -> Vec<Entry> {
    type Call = fn(&[Array]) -> Result<Array>;
    let basic = |label: &str, call: Call| {
        Case::new(label, &[&[4, 5], &[3, 1]], move |x| Ok(vec![call(x)?])).dtypes(EVERY)
    };
    let arrays = |label: &str, call: Call| {
        Case::new(label, &[&[3, 4, 5], &[2], &[2, 1], &[3]], move |x| Ok(vec![call(x)?]))
            .fixed(1, DType::U32, 0.0..3.0)
            .fixed(2, DType::I32, -3.0..3.0)
            .dtypes(EVERY)
            .tolerance(Tolerance::Rounded(1.5, "every update of an element is rounded, as in MLX"))
    };
    let mut minimum = arrays("minimum at arrays", |x| x[0].at((.., &x[2], 1..4)).minimum(&x[3]));
    // A value of its own for each index: of equal ones every one has the whole gradient.
    minimum.inputs[3].shape = vec![2, 1, 3];
    vec![Entry {
        name: "at",
        cases: vec![
            basic("set", |x| x[0].at((1.., 1..4)).set(&x[1])),
            basic("add", |x| x[0].at((1.., 1..4)).add(&x[1])),
            basic("maximum", |x| x[0].at((1.., 1..4)).maximum(&x[1])),
            arrays("set at arrays", |x| x[0].at((&x[1], 1..4, &x[2])).set(&x[3])),
            arrays("add at arrays", |x| x[0].at((&x[1], &x[2], 1..4)).add(&x[3])),
            minimum,
        ],
    }]
}

/// A place in an array to be updated; see [`Array::at`].
#[derive(Clone)]
pub struct At {
    x: Array,
    indices: Vec<Index>,
}

impl Array {
    /// A place to update: the methods of the result give a new array, in which every update took
    /// effect, also where indices repeat. Values are broadcast and converted to this array's dtype.
    ///
    /// ```
    /// use wootz::Array;
    /// let x = Array::new([1, 2, 3])?;
    /// let y = x.at(&Array::new([0, 0, 2])?).add(10)?;
    /// assert_eq!(y.to_vec::<i32>()?, [21, 2, 13]);
    /// assert_eq!(x.at(1..).multiply(2)?.to_vec::<i32>()?, [1, 4, 6]);
    /// assert_eq!(x.to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn at(&self, index: impl IntoIndices) -> At {
        At { x: self.clone(), indices: index.into_indices() }
    }

    /// Stores values at an index: this handle then stands for the changed array, while clones and
    /// views taken earlier keep the old elements. Where indices repeat the last value stays.
    ///
    /// ```
    /// use wootz::Array;
    /// let mut x = Array::new([[1, 2], [3, 4]])?;
    /// let row = x.index(0)?;
    /// x.set((.., 0), 9)?;
    /// assert_eq!(x.to_vec::<i32>()?, [9, 2, 9, 4]);
    /// assert_eq!(row.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn set(&mut self, index: impl IntoIndices, value: impl Into<Arg>) -> Result<()> {
        *self = self.at(index).set(value)?;
        Ok(())
    }
}

impl At {
    /// The array with these values instead; where indices repeat the last one stays.
    ///
    /// A mask of truth values, alone, has the first axes of the array. The value is then the same for all
    /// places that are true, or has one more axis, with a row for each of them in their order.
    ///
    /// ```
    /// use wootz::{Array, less};
    /// let x = Array::new([[1, -2], [-3, 4]])?;
    /// // x[x < 0] = 0
    /// assert_eq!(x.at(&less(&x, 0)?).set(0)?.to_vec::<i32>()?, [1, 0, 0, 4]);
    /// // x[x < 0] = mx.array([7, 8])
    /// let negative = x.at(&less(&x, 0)?).set(&Array::new([7, 8])?)?;
    /// assert_eq!(negative.to_vec::<i32>()?, [1, 7, 8, 4]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn set(self, value: impl Into<Arg>) -> Result<Array> {
        let value = value_like(value.into(), &self.x)?;
        if let [Index::Array(mask)] = &self.indices[..]
            && mask.dtype() == DType::Bool
        {
            return masked(&self.x, mask, &value);
        }
        self.update(value, Reduce::Set)
    }

    /// The array with values added.
    #[allow(clippy::should_implement_trait)]
    pub fn add(self, value: impl Into<Arg>) -> Result<Array> {
        let value = value_like(value.into(), &self.x)?;
        self.update(value, Reduce::Add)
    }

    /// The array with values subtracted.
    pub fn subtract(self, value: impl Into<Arg>) -> Result<Array> {
        let value = negative(&value_like(value.into(), &self.x)?)?;
        self.update(value, Reduce::Add)
    }

    /// The array multiplied by values.
    pub fn multiply(self, value: impl Into<Arg>) -> Result<Array> {
        let value = value_like(value.into(), &self.x)?;
        self.update(value, Reduce::Multiply)
    }

    /// The array divided by values; only for floating-point arrays.
    pub fn divide(self, value: impl Into<Arg>) -> Result<Array> {
        if !self.x.dtype().is_inexact() {
            let expected = "a floating-point type";
            return Err(Error::dtype("at.divide", "x", expected, self.x.dtype()));
        }
        let value = value_like(value.into(), &self.x)?;
        self.update(divide(&ones_like(&value)?, &value)?, Reduce::Multiply)
    }

    /// The larger of what is there and the values.
    pub fn maximum(self, value: impl Into<Arg>) -> Result<Array> {
        let value = value_like(value.into(), &self.x)?;
        self.update(value, Reduce::Maximum)
    }

    /// The smaller of what is there and the values.
    pub fn minimum(self, value: impl Into<Arg>) -> Result<Array> {
        let value = value_like(value.into(), &self.x)?;
        self.update(value, Reduce::Minimum)
    }

    fn update(self, value: Array, reduce: Reduce) -> Result<Array> {
        let At { x, indices } = self;
        let plan = Plan::new(&x, indices)?;
        let value = stripped(&value, plan.shape.len())?;
        let value = broadcast_argument("at", "value", &value, &plan.shape)?;
        if value.size() == 0 {
            return Ok(x);
        }
        let region: Shape = plan.ranges.iter().map(|range| range.count).collect();
        if !plan.arrays.is_empty() {
            let base = plan.base_of(&x)?;
            let (picks, window) = gather::picks_of("at", &base, &plan.items(), plan.before)?;
            let value = reshape(&value, &window.gathered(picks.shape()))?;
            let whole = base.shape() == x.shape() && base.size() == x.size();
            // The part that arrays index into is updated first, and then put back.
            let updated = scatter::apply("at", &base, &picks, &value, window, reduce)?;
            let steps = plan.ranges.iter().all(|range| range.step == 1);
            return match whole && steps {
                true => Ok(updated),
                false => update_ranges(&x, &reshape(&updated, &region)?, plan.ranges),
            };
        }
        let value = reshape(&value, &region)?;
        if reduce == Reduce::Set {
            return update_ranges(&x, &value, plan.ranges);
        }
        let old = slice_ranges(&x, &plan.ranges)?;
        let new = match reduce {
            Reduce::Add => add(&old, &value)?,
            Reduce::Multiply => multiply(&old, &value)?,
            _ => {
                // The whole region is one window.
                let window = Window::new(region, (0..x.rank()).collect(), 0);
                scatter::apply("at", &old, &Default::default(), &value, window, reduce)?
            }
        };
        update_ranges(&x, &new, plan.ranges)
    }
}
