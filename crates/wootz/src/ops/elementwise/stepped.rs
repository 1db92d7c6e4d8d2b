//! Functions that MLX makes of several operations: in `float16` and `bfloat16` the step in between
//! is rounded as well, and so it is here.

use super::{
    Accepts, Output, Row, Vjp, apply_row, astype, class, complex, divide, imag, index_of, real,
    resolve, rint, tile_fn, tile_loop,
};
use crate::array::{Arg, Array, Class, DType};
use crate::error::Result;
use crate::op::{Case, EVERY, ElementKernel, FLOATS, Gradient};

/// Elementwise quotient rounded down. An integer divided by 0 gives 0. Complex quotients are, as in MLX,
/// not rounded.
///
/// ```
/// use wootz::{Array, floor_divide};
/// assert_eq!(floor_divide(&Array::new([7, -7])?, 2)?.to_vec::<i32>()?, [3, -4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn floor_divide(a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Array> {
    let [a, b] = resolve("floor_divide", [a.into(), b.into()])?;
    if DType::promote(a.dtype(), b.dtype()).is_complex() {
        return divide(a, b);
    }
    apply_row(&ROWS[Index::floor_divide as usize], [a.into(), b.into()])
}

/// Elementwise `x` rounded to a number of decimals, ties to even; negative `decimals` round before
/// the point.
///
/// ```
/// use wootz::{Array, round};
/// assert_eq!(round(&Array::new([0.5f32, 1.5])?, 0)?.to_vec::<f32>()?, [0.0, 2.0]);
/// assert_eq!(round(&Array::new([125, 135])?, -1)?.to_vec::<i32>()?, [120, 140]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn round(x: impl Into<Arg>, decimals: i32) -> Result<Array> {
    let [x] = resolve("round", [x.into()])?;
    if decimals == 0 {
        return rint(&x);
    }
    if x.dtype().is_complex() {
        return complex(round(real(&x)?, decimals)?, round(imag(&x)?, decimals)?);
    }
    // Both factors in single precision, and two products, because that is what MLX's bits are.
    let scale = 10f64.powi(decimals) as f32;
    let row = &ROWS[Index::round as usize];
    let rounded = apply_row(row, [scale.into(), (1.0 / scale).into(), (&x).into()])?;
    astype(&rounded, x.dtype())
}

impl Array {
    /// The function [`floor_divide`].
    pub fn floor_divide(&self, b: impl Into<Arg>) -> Result<Array> {
        floor_divide(self, b)
    }

    /// The function [`round`].
    pub fn round(&self, decimals: i32) -> Result<Array> {
        round(self, decimals)
    }
}

/// The kernel for a narrow float: `$step` rounds what lies in between.
macro_rules! narrow_kernel {
    ($name:expr, $step:ident = $rounding:ident, [$($argument:ident),+ => $float:expr], $wgsl:expr) => {
        ElementKernel {
            name: $name,
            cpu: |class| {
                use crate::cpu::simd::{Real, $rounding as $step};
                match class {
                    Class::F32 => Some(tile_loop!(f32, Same, $($argument),+ => $float)),
                    _ => None,
                }
            },
            wgsl: |class| matches!(class, Class::F32).then_some($wgsl),
            boolean: false,
            joined: |_, _| None,
        }
    };
}

/// Rows with a kernel for each precision.
macro_rules! stepped_rows {
    ($(
        $name:ident { $accepts:ident, $range:expr, $arguments:expr, $cases:expr,
            |$step:ident| $float:tt, $int:tt,
            wgsl: [$before:literal, $inner:literal, $after:literal], [$($int_wgsl:literal)?] }
    )*) => {
        index_of!($($name),*);
        /// The rows of this table.
        pub(crate) static ROWS: &[Row] = &[$({
            const fn row(
                kernel: &'static ElementKernel,
                narrow: Option<&'static [Row; 2]>,
            ) -> Row {
                Row {
                    name: stringify!($name),
                    kernel,
                    narrow,
                    accepts: Accepts::$accepts,
                    output: Output::Same,
                    vjp: Vjp::Zero,
                    range: $range,
                    arguments: &$arguments,
                    cases: Some($cases),
                }
            }
            static SINGLE: ElementKernel = ElementKernel {
                name: stringify!($name),
                cpu: |class| {
                    use std::convert::identity as $step;
                    tile_fn!(class, Same, $float, $int)
                },
                wgsl: |class| match class {
                    class!(float) => Some(concat!($before, $inner, $after)),
                    $(class!(int) => Some($int_wgsl),)?
                    #[allow(unreachable_patterns)]
                    _ => None,
                },
                boolean: false,
                joined: |_, _| None,
            };
            static HALF: ElementKernel = narrow_kernel!(
                concat!(stringify!($name), "_float16"), $step = as_float16, $float,
                concat!($before, "wz_round_float16", $inner, $after));
            static BRAIN: ElementKernel = narrow_kernel!(
                concat!(stringify!($name), "_bfloat16"), $step = as_bfloat16, $float,
                concat!($before, "wz_round_bfloat16", $inner, $after));
            static NARROW: [Row; 2] = [row(&HALF, None), row(&BRAIN, None)];
            row(&SINGLE, Some(&NARROW))
        }),*];
    };
}

stepped_rows! {
    floor_divide { Any, -9.0..9.0, ["a", "b", "output"], quotients,
        |step| [a, b => Real::floor(step(a / b))],
        [a, b => Integer::floor_divide(a, b)],
        wgsl: ["floor(", "(a / b)", ")"], ["wz_quotient_$T(a, b)"] }
    round { AsFloat, -30.0..30.0, ["scale", "inverse", "x", "output"], roundings,
        |step| [scale, inverse, x => Real::round(step(x * scale)) * inverse],
        [],
        wgsl: ["(wz_rint(", "(c * a)", ") * b)"], [] }
}

fn quotients() -> Vec<Case> {
    let case = |label: &str, shapes: &[&[usize]]| {
        Case::new(label, shapes, |x| Ok(vec![floor_divide(&x[0], &x[1])?])).gradient(Gradient::Zero)
    };
    let integers = |shapes: &[&[usize]]| {
        case(&format!("{shapes:?}"), shapes).range(-9.0..9.0).dtypes(&EVERY[..9])
    };
    vec![
        case("", &[&[3, 5], &[5]]).range(0.5..3.0).dtypes(FLOATS),
        case("more than one tile", &[&[1025], &[]]).range(0.5..3.0).dtypes(FLOATS),
        case("both signs", &[&[1025], &[1025]]).range(-9.0..9.0).dtypes(FLOATS),
        integers(&[&[3, 5], &[3, 5]]),
        integers(&[&[2, 1, 4], &[3, 1]]),
        integers(&[&[1025], &[]]),
    ]
}

fn roundings() -> Vec<Case> {
    let case = |decimals: i32| {
        Case::new(format!("{decimals} decimals"), &[&[3, 5]], move |x| {
            Ok(vec![round(&x[0], decimals)?])
        })
        .range(-30.0..30.0)
        .gradient(Gradient::Zero)
    };
    [0, 1, -1].map(case).into()
}
