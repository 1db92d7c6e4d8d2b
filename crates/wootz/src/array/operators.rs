//! Arguments that are arrays or plain numbers, and operator sugar.

use num_complex::Complex32;

use super::{Array, Scalar};
use crate::ops;

/// An argument of an operation: an array, or a weakly typed number that takes the dtype of the
/// array it meets.
#[derive(Clone)]
pub enum Arg {
    /// An array.
    Array(Array),
    /// A number.
    Scalar(Scalar),
}

impl From<Array> for Arg {
    fn from(array: Array) -> Arg {
        Arg::Array(array)
    }
}

impl From<&Array> for Arg {
    fn from(array: &Array) -> Arg {
        Arg::Array(array.clone())
    }
}

macro_rules! scalar_arguments {
    ($($type:ty),*) => {$(
        impl From<$type> for Arg {
            fn from(value: $type) -> Arg {
                Arg::Scalar(value.into())
            }
        }
    )*};
}

scalar_arguments!(bool, u8, u16, u32, i8, i16, i32, i64, usize, f32, f64, Complex32, Scalar);

/// Implements one operator for arrays, references and numbers.
macro_rules! operator {
    ($trait:ident, $method:ident, $function:ident; $($scalar:ty),*) => {
        operator!(@pair $trait, $method, $function, &Array, &Array);
        operator!(@pair $trait, $method, $function, &Array, Array);
        operator!(@pair $trait, $method, $function, Array, &Array);
        operator!(@pair $trait, $method, $function, Array, Array);
        $(
            operator!(@pair $trait, $method, $function, &Array, $scalar);
            operator!(@pair $trait, $method, $function, Array, $scalar);
            operator!(@pair $trait, $method, $function, $scalar, &Array);
            operator!(@pair $trait, $method, $function, $scalar, Array);
        )*
    };
    (@pair $trait:ident, $method:ident, $function:ident, $left:ty, $right:ty) => {
        impl std::ops::$trait<$right> for $left {
            type Output = Array;
            /// # Panics
            /// With the text of the function's error, at the caller's line, if shapes, dtypes or
            /// devices do not fit. The function of the same meaning returns it instead.
            #[track_caller]
            fn $method(self, right: $right) -> Array {
                or_panic(ops::$function(self, right))
            }
        }
    };
}

operator!(Add, add, add; f64, i32, Complex32);
operator!(Sub, sub, subtract; f64, i32, Complex32);
operator!(Mul, mul, multiply; f64, i32, Complex32);
operator!(Div, div, divide; f64, i32, Complex32);
operator!(Rem, rem, remainder; f64, i32);

impl std::ops::Neg for &Array {
    type Output = Array;
    /// # Panics
    /// With the text of the function's error, for dtypes that cannot be negated.
    #[track_caller]
    fn neg(self) -> Array {
        or_panic(ops::negative(self))
    }
}

impl std::ops::Neg for Array {
    type Output = Array;
    /// # Panics
    /// With the text of the function's error, for dtypes that cannot be negated.
    #[track_caller]
    fn neg(self) -> Array {
        -&self
    }
}

/// Operators cannot return an error: they panic with its text, as their documentation says.
#[track_caller]
#[allow(clippy::panic)]
fn or_panic(result: crate::Result<Array>) -> Array {
    match result {
        Ok(array) => array,
        Err(error) => panic!("{error}"),
    }
}
