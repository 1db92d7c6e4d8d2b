//! Printing arrays as MLX does: `array([[1, 2], [3, 4]], dtype=int32)` over several lines, long
//! axes shortened to three elements at either end.

use std::fmt::{self, Write};

use super::{Array, DType};
use crate::ops;

/// Axes longer than this are shortened.
const LONGEST: usize = 6;
/// Elements shown at either end of a shortened axis.
const EDGE: usize = 3;

/// Evaluates the array and prints its elements.
///
/// ```
/// let x = wootz::Array::new([[1, 2], [3, 4]])?;
/// assert_eq!(x.to_string(), "array([[1, 2],\n       [3, 4]], dtype=int32)");
/// assert_eq!(wootz::Array::new([0.1f32, 1e10])?.to_string(), "array([0.1, 1e+10], dtype=float32)");
/// # Ok::<(), wootz::Error>(())
/// ```
impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from("array(");
        match elements(self) {
            Ok(elements) => write_axis(&mut text, self.shape(), &elements, 0, 0)?,
            Err(error) => write!(text, "<{error}>")?,
        }
        write!(f, "{text}, dtype={})", self.dtype())
    }
}

/// What is known without computing anything.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_evaluated() { "" } else { ", lazy" };
        let (shape, dtype, device) = (self.shape(), self.dtype(), self.device());
        write!(f, "array(shape={shape:?}, dtype={dtype}, device={device}{state})")
    }
}

/// Every element as text, in row-major order.
fn elements(array: &Array) -> crate::Result<Vec<String>> {
    Ok(match array.dtype() {
        DType::Bool => {
            let text = |value: &bool| if *value { "True".into() } else { "False".into() };
            array.to_vec::<bool>()?.iter().map(text).collect()
        }
        DType::U64 => array.to_vec::<u64>()?.iter().map(u64::to_string).collect(),
        DType::C64 => {
            let text = |value: &num_complex::Complex32| {
                // MLX's plus stands before everything that is not less than zero, be it -0.
                let plus = if value.im < 0.0 { "" } else { "+" };
                format!("{}{plus}{}j", six_digits(value.re as f64), six_digits(value.im as f64))
            };
            array.to_vec::<num_complex::Complex32>()?.iter().map(text).collect()
        }
        dtype if dtype.is_float() => {
            let values = match dtype {
                DType::F64 => array.to_vec::<f64>()?,
                _ => {
                    let wide = ops::astype(array, DType::F32)?.to_vec::<f32>()?;
                    wide.into_iter().map(f64::from).collect()
                }
            };
            values.into_iter().map(six_digits).collect()
        }
        _ => ops::astype(array, DType::I64)?.to_vec::<i64>()?.iter().map(i64::to_string).collect(),
    })
}

fn write_axis(
    text: &mut String,
    shape: &[usize],
    elements: &[String],
    first: usize,
    depth: usize,
) -> fmt::Result {
    let Some((&length, inner)) = shape.split_first() else {
        return text.write_str(elements.get(first).map_or("", String::as_str));
    };
    let stride: usize = inner.iter().product();
    text.push('[');
    for index in 0..length {
        let hidden = length > LONGEST && (EDGE..length - EDGE).contains(&index);
        if hidden && index > EDGE {
            continue;
        }
        if index > 0 {
            text.push(',');
            if inner.is_empty() {
                text.push(' ');
            } else {
                // Below the first bracket of this axis.
                write!(text, "\n{:width$}", "", width = "array(".len() + depth + 1)?;
            }
        }
        if hidden {
            text.push_str("...");
        } else {
            write_axis(text, inner, elements, first + index * stride, depth + 1)?;
        }
    }
    text.push(']');
    Ok(())
}

/// Six significant digits, without trailing zeros, as C's `%g`.
fn six_digits(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    // Rust's exponent form rounds to the digits asked for; the exponent decides the form.
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => digits.to_string(),
    };
    if (-4..6).contains(&exponent) {
        trim(&format!("{value:.*}", (5 - exponent).max(0) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_in_mlx() {
        let table = [
            (1.0 / 3.0, "0.333333"),
            (1e-5, "1e-05"),
            (1e10, "1e+10"),
            (123456789.0, "1.23457e+08"),
            (100000.0, "100000"),
            (1e6, "1e+06"),
            (0.0001, "0.0001"),
            (-0.0, "-0"),
            (2.5, "2.5"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, expected) in table {
            assert_eq!(six_digits(value), expected);
        }
    }

    #[test]
    fn shapes_print_as_in_mlx() {
        let zeros = |shape: &[usize]| Array::zeros(shape, DType::F32).unwrap().to_string();
        assert_eq!(zeros(&[7]), "array([0, 0, 0, ..., 0, 0, 0], dtype=float32)");
        assert_eq!(zeros(&[6]), "array([0, 0, 0, 0, 0, 0], dtype=float32)");
        assert_eq!(zeros(&[]), "array(0, dtype=float32)");
        assert_eq!(zeros(&[0]), "array([], dtype=float32)");
        let cube = "array([[[0],\n        [0]],\n       [[0],\n        [0]]], dtype=float32)";
        assert_eq!(zeros(&[2, 2, 1]), cube);
        let column = zeros(&[8, 1]);
        assert!(column.contains("[0],\n       ...,\n       [0]"), "{column}");
    }
}
