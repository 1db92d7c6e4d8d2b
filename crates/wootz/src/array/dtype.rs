//! Element types and MLX's rules for combining them.

use std::fmt;

/// The type of an array's elements.
///
/// ```
/// use wootz::DType;
/// assert_eq!(DType::F16.size(), 2);
/// assert_eq!(DType::promote(DType::F16, DType::BF16), DType::F32);
/// assert_eq!(DType::BF16.to_string(), "bfloat16");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// Truth values, one byte each.
    Bool,
    /// Unsigned 8-bit integers.
    U8,
    /// Unsigned 16-bit integers.
    U16,
    /// Unsigned 32-bit integers.
    U32,
    /// Unsigned 64-bit integers.
    U64,
    /// Signed 8-bit integers.
    I8,
    /// Signed 16-bit integers.
    I16,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
    /// IEEE half precision.
    F16,
    /// The upper half of a single-precision number.
    BF16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision, on the CPU only.
    F64,
    /// Complex numbers of two single-precision parts.
    C64,
}

/// The arithmetic an element type is computed in: narrow types are widened to one of these,
/// and rounded or wrapped back after every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 32-bit unsigned; also `bool` (0 or 1), `uint8` and `uint16`.
    U32,
    /// 64-bit unsigned.
    U64,
    /// 32-bit signed; also `int8` and `int16`.
    I32,
    /// 64-bit signed.
    I64,
    /// Single precision; also `float16` and `bfloat16`.
    F32,
    /// Double precision.
    F64,
    /// Complex numbers of two single-precision parts.
    C64,
}

impl Class {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Class::U32 | Class::I32 | Class::F32 => 4,
            Class::U64 | Class::I64 | Class::F64 | Class::C64 => 8,
        }
    }
}

impl DType {
    /// Every dtype, in the order of the enum.
    pub const ALL: [DType; 14] = [
        DType::Bool,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
    ];

    /// Bytes per element.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 | DType::C64 => 8,
        }
    }

    /// MLX's name: `float32`, `bool`, ….
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "uint8",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::C64 => "complex64",
        }
    }

    /// The dtype that MLX calls `name`.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether this is a floating-point type; `complex64` is not.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether numbers of this type have imaginary parts.
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64)
    }

    /// Whether this is a floating-point or complex type: those that gradients flow through.
    pub const fn is_inexact(self) -> bool {
        self.is_float() || self.is_complex()
    }

    /// The type of the parts of a complex number; other types are their own.
    pub const fn real(self) -> DType {
        if self.is_complex() { DType::F32 } else { self }
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Whether this is an unsigned integer type; `bool` is not.
    pub const fn is_unsigned_integer(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// Whether this is an integer type; `bool` is not.
    pub const fn is_integer(self) -> bool {
        self.is_signed_integer() || self.is_unsigned_integer()
    }

    /// The arithmetic this type is computed in.
    pub const fn class(self) -> Class {
        match self {
            DType::Bool | DType::U8 | DType::U16 | DType::U32 => Class::U32,
            DType::U64 => Class::U64,
            DType::I8 | DType::I16 | DType::I32 => Class::I32,
            DType::I64 => Class::I64,
            DType::F16 | DType::BF16 | DType::F32 => Class::F32,
            DType::F64 => Class::F64,
            DType::C64 => Class::C64,
        }
    }

    /// The type that holds values of both, by MLX's rules.
    pub fn promote(a: DType, b: DType) -> DType {
        use DType::*;
        if a == b {
            return a;
        }
        let (a, b) = if a < b { (a, b) } else { (b, a) };
        match (a, b) {
            (Bool, other) => other,
            (F16, BF16) => F32,
            (_, float) if float.is_inexact() => float,
            // The order of the enum puts unsigned types first, so mixed pairs are (unsigned, signed).
            (U64, _) if b.is_signed_integer() => F32,
            (u, i) if u.is_unsigned_integer() && i.is_signed_integer() => {
                if i.size() > u.size() {
                    i
                } else {
                    match u.size() {
                        1 => I16,
                        2 => I32,
                        _ => I64,
                    }
                }
            }
            (_, wider) => wider,
        }
    }

    /// This type if it is a float or complex, else `float32`: what `exp`, `mean` or `divide` return.
    pub fn to_float(self) -> DType {
        if self.is_inexact() { self } else { DType::F32 }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DType::{self, *};

    #[test]
    fn promotion_follows_mlx() {
        let table = [
            (U8, I8, I16),
            (U16, I8, I32),
            (U16, I16, I32),
            (U32, I8, I64),
            (U32, I64, I64),
            (U64, I8, F32),
            (U8, I64, I64),
            (I64, F16, F16),
            (Bool, BF16, BF16),
            (F16, BF16, F32),
            (F32, F64, F64),
            (F64, C64, C64),
            (I64, C64, C64),
            (U8, U32, U32),
            (I8, I32, I32),
            (Bool, U8, U8),
        ];
        for (a, b, expected) in table {
            assert_eq!(DType::promote(a, b), expected, "{a} with {b}");
            assert_eq!(DType::promote(b, a), expected, "{b} with {a}");
        }
    }
}
