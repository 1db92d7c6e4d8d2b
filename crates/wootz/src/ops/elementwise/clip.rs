//! Keeping elements between bounds.

use super::{Vjp, apply_row, resolve, table};
use crate::array::{Arg, Array};
use crate::error::{Error, Result};
use crate::op::{Case, EVERY, Gradient, Tolerance};
use crate::ops::{greater, greater_equal, less, less_equal, maximum, minimum, where_};

/// Elementwise `x`, but at least `min` and at most `max`. One of them may be missing.
///
/// ```
/// use wootz::{Array, clip};
/// let x = Array::new([-2.0f32, 0.5, 2.0])?;
/// assert_eq!(clip(&x, Some(-1), Some(1))?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
/// assert_eq!(clip(&x, None::<f32>, Some(1))?.to_vec::<f32>()?, [-2.0, 0.5, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn clip(
    x: impl Into<Arg>,
    min: Option<impl Into<Arg>>,
    max: Option<impl Into<Arg>>,
) -> Result<Array> {
    let [x] = resolve("clip", [x.into()])?;
    match (min, max) {
        (None, None) => Err(Error::argument("clip", "min, max", "at least one", "none")),
        (Some(min), None) => maximum(&x, min),
        (None, Some(max)) => minimum(&x, max),
        (Some(min), Some(max)) => apply_row(&ROWS[0], [(&x).into(), min.into(), max.into()]),
    }
}

impl Array {
    /// The function [`clip`].
    pub fn clip(&self, min: Option<impl Into<Arg>>, max: Option<impl Into<Arg>>) -> Result<Array> {
        clip(self, min, max)
    }
}

fn cases() -> Vec<Case> {
    let one = |label: &str, call: fn(&Array) -> Result<Array>| {
        Case::new(label, &[&[3, 5]], move |x| Ok(vec![call(&x[0])?]))
    };
    let three = |shapes: &[&[usize]]| {
        Case::new(format!("{shapes:?}"), shapes, |x| {
            Ok(vec![clip(&x[0], Some(&x[1]), Some(&x[2]))?])
        })
        .dtypes(EVERY)
        .tolerance(Tolerance::Exact)
        .gradient(Gradient::Checked)
    };
    vec![
        one("", |x| clip(x, Some(-1), Some(1))),
        one("lower bound", |x| clip(x, Some(-0.5), None::<f32>)),
        one("upper bound", |x| clip(x, None::<f32>, Some(0.5))),
        three(&[&[3, 5], &[3, 5], &[3, 5]]),
        three(&[&[2, 1], &[3, 1, 4], &[4]]),
        three(&[&[1025], &[], &[1]]),
    ]
}

// As the minimum of a maximum, whose gradients go to the bound where values are equal.
table! { ["x", "min", "max", "output"];
    clip { Any, Same, -3.0..3.0,
        [x, low, high => Real::minimum(Real::maximum(x, low), high)],
        [x, low, high => x.max(low).min(high)],
        complex [x, low, high => Complex::minimum(Complex::maximum(x, low), high)],
        { complex: "wz_z_minimum(wz_z_maximum(a, b), c)", float: "wz_minimum(wz_maximum(a, b), c)", int: "min(max(a, b), c)" },
        Vjp::Rule(|x, _, g| {
            let [x, low, high] = [&x[0], &x[1], &x[2]];
            let raised = maximum(x, low)?;
            let inner = where_(less(&raised, high)?, g, 0)?;
            Ok(vec![
                where_(greater(x, low)?, &inner, 0)?,
                where_(less_equal(x, low)?, &inner, 0)?,
                where_(greater_equal(&raised, high)?, g, 0)?,
            ])
        }),
        cases }
}
