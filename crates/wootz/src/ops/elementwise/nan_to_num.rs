//! Numbers in place of NaN and infinities.

use super::{Vjp, apply_row, resolve, table};
use crate::array::{Arg, Array, DType};
use crate::error::{Error, Result};
use crate::op::Case;
use crate::ops::{isfinite, where_};

/// Elementwise `x` with NaN replaced by `nan`, and infinities by `posinf` and `neginf`, or if those
/// are missing by the largest and smallest finite numbers.
///
/// ```
/// use wootz::{Array, nan_to_num};
/// let x = Array::new([f32::NAN, f32::INFINITY, 1.0])?;
/// assert_eq!(nan_to_num(&x, 0.0, Some(9.0), None)?.to_vec::<f32>()?, [0.0, 9.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn nan_to_num(
    x: impl Into<Arg>,
    nan: f64,
    posinf: Option<f64>,
    neginf: Option<f64>,
) -> Result<Array> {
    let [x] = resolve("nan_to_num", [x.into()])?;
    let largest = match x.dtype() {
        DType::F16 => half::f16::MAX.to_f64(),
        DType::BF16 => half::bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        DType::F64 => f64::MAX,
        DType::C64 => return Err(Error::dtype("nan_to_num", "x", "a real type", x.dtype())),
        _ => return Ok(x),
    };
    let (posinf, neginf) = (posinf.unwrap_or(largest), neginf.unwrap_or(-largest));
    apply_row(&ROWS[0], [nan.into(), posinf.into(), neginf.into(), x.into()])
}

fn cases() -> Vec<Case> {
    let case = |label: &str, shape: &[usize], call: fn(&Array) -> Result<Array>| {
        Case::new(label, &[shape], move |x| Ok(vec![call(&x[0])?]))
    };
    vec![
        case("", &[3, 5], |x| nan_to_num(x, 0.0, None, None)),
        case("chosen", &[1025], |x| nan_to_num(x, 1.0, Some(2.0), Some(-3.0))),
    ]
}

table! { ["nan", "posinf", "neginf", "x", "output"];
    nan_to_num { AsFloat, Same, -3.0..3.0,
        [nan, posinf, neginf, x => {
            let infinite = if x > 0.0 { posinf } else { neginf };
            let number = if x.is_infinite() { infinite } else { x };
            if x.is_nan() { nan } else { number }
        }],
        [],
        // On the bits, because fast math may assume that there is neither.
        { float: "select(select(d, select(b, c, wz_signbit(d)), wz_isinf(d)), a, wz_isnan(d))" },
        Vjp::Rule(|x, _, g| Ok(vec![where_(isfinite(&x[3])?, g, 0)?])),
        cases }
}
