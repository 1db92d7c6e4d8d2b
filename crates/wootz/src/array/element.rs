//! Rust types that can be elements of an array, and weakly typed scalars.

use half::{bf16, f16};
use num_complex::Complex32;

use super::DType;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that is the element type of some [`DType`].
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The dtype of arrays of this type.
    const DTYPE: DType;
    /// Appends the little-endian bytes of `values`.
    #[doc(hidden)]
    fn bytes(values: &[Self]) -> Vec<u8>;
    /// Reads values back from bytes; the length is a multiple of the element size.
    #[doc(hidden)]
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            fn bytes(values: &[Self]) -> Vec<u8> {
                bytemuck::cast_slice(values).to_vec()
            }
            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                bytemuck::pod_collect_to_vec(bytes)
            }
        }
    )*};
}

elements!(u8 => U8, u16 => U16, u32 => U32, u64 => U64, i8 => I8, i16 => I16, i32 => I32,
    i64 => I64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64, Complex32 => C64);

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn bytes(values: &[Self]) -> Vec<u8> {
        values.iter().map(|&value| value as u8).collect()
    }
    fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&byte| byte != 0).collect()
    }
}

/// A scalar of the language, typed weakly: it takes the dtype of the array it meets as far as its
/// kind allows. An integer keeps any numeric dtype, a float keeps floats and turns integers into
/// `float32`, a complex number turns everything into `complex64`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value; behaves like a `bool` array.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A complex number.
    Complex(Complex32),
}

impl Scalar {
    /// The dtype this scalar has when nothing else decides.
    pub fn default_dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(value) if i32::try_from(value).is_err() => DType::I64,
            Scalar::Int(_) => DType::I32,
            Scalar::Float(_) => DType::F32,
            Scalar::Complex(_) => DType::C64,
        }
    }

    /// The dtype this scalar takes beside an array of type `other`.
    pub fn dtype_beside(self, other: DType) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) if other == DType::Bool => DType::I32,
            Scalar::Int(_) => other,
            Scalar::Float(_) => other.to_float(),
            Scalar::Complex(_) => DType::C64,
        }
    }

    /// The value as a double; the real part of a complex number.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(value) => value as u8 as f64,
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
            Scalar::Complex(value) => value.re as f64,
        }
    }

    /// The value as an integer, truncated toward zero.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Bool(value) => value as i64,
            Scalar::Int(value) => value,
            Scalar::Float(value) => value as i64,
            Scalar::Complex(value) => value.re as i64,
        }
    }
}

macro_rules! scalars {
    ($($type:ty => $kind:ident as $wide:ty),*) => {$(
        impl From<$type> for Scalar {
            fn from(value: $type) -> Self {
                Scalar::$kind(value as $wide)
            }
        }
    )*};
}

scalars!(bool => Bool as bool, i8 => Int as i64, i16 => Int as i64, i32 => Int as i64,
    i64 => Int as i64, u8 => Int as i64, u16 => Int as i64, u32 => Int as i64,
    usize => Int as i64, f32 => Float as f64, f64 => Float as f64, Complex32 => Complex as Complex32);
