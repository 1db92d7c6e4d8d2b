//! Units of angles. The factor is an input, so that it is rounded to the array's dtype as MLX's is.

use super::{Vjp, apply_row, index_of, table};
use crate::array::{Arg, Array};
use crate::error::Result;
use crate::op::Case;
use crate::ops::multiply;

/// Elementwise conversion from radians to degrees.
///
/// ```
/// use wootz::{Array, degrees};
/// assert_eq!(degrees(&Array::new([0.0f32])?)?.to_vec::<f32>()?, [0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn degrees(x: impl Into<Arg>) -> Result<Array> {
    let factor = 180.0 / std::f64::consts::PI;
    apply_row(&ROWS[Index::degrees as usize], [factor.into(), x.into()])
}

/// Elementwise conversion from degrees to radians.
///
/// ```
/// use wootz::{Array, radians};
/// assert_eq!(radians(&Array::new([0.0f32])?)?.to_vec::<f32>()?, [0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn radians(x: impl Into<Arg>) -> Result<Array> {
    let factor = std::f64::consts::PI / 180.0;
    apply_row(&ROWS[Index::radians as usize], [factor.into(), x.into()])
}

fn cases(function: fn(&Array) -> Result<Array>) -> Vec<Case> {
    let case = |label: &str, shape: &[usize]| {
        Case::new(label, &[shape], move |x| Ok(vec![function(&x[0])?]))
    };
    vec![case("", &[3, 5]), case("more than one tile", &[1025])]
}

index_of!(degrees, radians);
table! { ["factor", "x", "output"];
    degrees { AsFloat, Same, -3.0..3.0, [factor, x => factor * x], [], complex [factor, x => x * factor.re], { complex: "(a.x * b)", float: "(a * b)" },
        Vjp::Rule(|x, _, g| Ok(vec![multiply(g, &x[0])?])), || cases(|x| degrees(x)) }
    radians { AsFloat, Same, -3.0..3.0, [factor, x => factor * x], [], complex [factor, x => x * factor.re], { complex: "(a.x * b)", float: "(a * b)" },
        Vjp::Rule(|x, _, g| Ok(vec![multiply(g, &x[0])?])), || cases(|x| radians(x)) }
}
