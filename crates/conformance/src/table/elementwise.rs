//! Functions of each element, conversions and choices.

use super::{many, one, rows};

/// Rows whose arguments are `a`, or `a` and `b`, and whose function has MLX's name.
macro_rules! plain_rows {
    (unary: $($unary:ident)*; binary: $($binary:ident)*;) => {
        fn plain(op: &str) -> Option<super::Row> {
            match op {
                $(stringify!($unary) => Some(|c| one(wootz::$unary(c.arg("a")?))),)*
                $(stringify!($binary) => Some(|c| one(wootz::$binary(c.arg("a")?, c.arg("b")?))),)*
                _ => None,
            }
        }
    };
}

plain_rows! {
    unary: abs arccos arccosh arcsin arcsinh arctan arctanh bitwise_invert ceil cos cosh degrees erf
        erfinv exp expm1 floor isfinite isinf isnan isneginf isposinf log log10 log1p log2
        conjugate imag logical_not negative positive radians real reciprocal rsqrt sigmoid sign sin sinh sqrt square
        stop_gradient tan tanh trunc;
    binary: add arctan2 bitwise_and bitwise_or bitwise_xor divide equal floor_divide greater
        greater_equal left_shift less less_equal logaddexp logical_and logical_or logical_xor maximum
        minimum multiply not_equal power remainder right_shift subtract;
}

rows! {
    "astype" => |c| one(wootz::astype(&c.array("a")?, c.dtype("dtype")?)),
    "clip" => |c| one(wootz::clip(c.arg("a")?, c.arg_opt("a_min")?, c.arg_opt("a_max")?)),
    "divmod" => |c| many(wootz::divmod(c.arg("a")?, c.arg("b")?).map(<[_; 2]>::from)),
    "from_fp8" => |c| one(wootz::from_fp8(&c.array("x")?, c.dtype("dtype")?)),
    "isclose" => |c| one(wootz::isclose(
        c.arg("a")?,
        c.arg("b")?,
        c.float("rtol")?,
        c.float("atol")?,
        c.flag("equal_nan")?,
    )),
    "nan_to_num" => |c| one(wootz::nan_to_num(
        c.arg("a")?,
        c.scalar("nan")?.as_f64(),
        c.scalar_opt("posinf")?.map(|value| value.as_f64()),
        c.scalar_opt("neginf")?.map(|value| value.as_f64()),
    )),
    "round" => |c| one(wootz::round(c.arg("a")?, c.int("decimals")? as i32)),
    "to_fp8" => |c| one(wootz::to_fp8(&c.array("x")?)),
    "where" => |c| one(wootz::where_(c.arg("condition")?, c.arg("x")?, c.arg("y")?)),
    otherwise plain
}
