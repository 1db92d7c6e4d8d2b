//! What MLX tells of dtypes: limits of numbers, kinds of types, and what becomes of several.

use super::DType;
use crate::error::{Error, Result};

/// Limits of a float dtype; see [`finfo`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatInfo {
    /// The dtype; of a complex one that of its parts.
    pub dtype: DType,
    /// Bits of a number.
    pub bits: usize,
    /// The smallest finite number.
    pub min: f64,
    /// The largest finite number.
    pub max: f64,
    /// The distance from 1 to the next larger number.
    pub eps: f64,
    /// The smallest positive number with all of its bits.
    pub smallest_normal: f64,
}

/// Limits of an integer dtype; see [`iinfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegerInfo {
    /// The dtype.
    pub dtype: DType,
    /// Bits of a number.
    pub bits: usize,
    /// The smallest number.
    pub min: i128,
    /// The largest number.
    pub max: i128,
}

/// Limits of a float dtype. Another dtype is an error.
///
/// ```
/// use wootz::{DType, finfo};
/// // mx.finfo(mx.float16).max
/// assert_eq!(finfo(DType::F16)?.max, 65504.0);
/// assert!(finfo(DType::I32).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn finfo(dtype: DType) -> Result<FloatInfo> {
    let (fraction, exponent) = match dtype {
        DType::F16 => (10, 15),
        DType::BF16 => (7, 127),
        DType::F64 => (52, 1023),
        _ if is_inexact(dtype) => (23, 127),
        _ => return Err(Error::dtype("finfo", "dtype", "an inexact type", dtype)),
    };
    let eps = 0.5f64.powi(fraction);
    let max = (2.0 - eps) * 2f64.powi(exponent);
    let real = if dtype.is_float() { dtype } else { DType::F32 };
    Ok(FloatInfo {
        dtype: real,
        bits: 8 * real.size(),
        min: -max,
        max,
        eps,
        smallest_normal: 0.5f64.powi(exponent - 1),
    })
}

/// Limits of an integer dtype. Another dtype is an error.
///
/// ```
/// use wootz::{DType, iinfo};
/// // mx.iinfo(mx.int8).min
/// assert_eq!(iinfo(DType::I8)?.min, -128);
/// assert!(iinfo(DType::Bool).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn iinfo(dtype: DType) -> Result<IntegerInfo> {
    let bits = 8 * dtype.size();
    let (min, max) = match (dtype.is_unsigned_integer(), dtype.is_signed_integer()) {
        (true, _) => (0, (1 << bits) - 1),
        (_, true) => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => return Err(Error::dtype("iinfo", "dtype", "an integer type", dtype)),
    };
    Ok(IntegerInfo { dtype, bits, min, max })
}

/// Kinds of dtypes, MLX's `DtypeCategory`, which contain each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeCategory {
    /// Every type.
    Generic,
    /// Every type but bool.
    Number,
    /// Integers.
    Integer,
    /// Integers with a sign.
    SignedInteger,
    /// Integers without.
    UnsignedInteger,
    /// Floats and complex numbers.
    Inexact,
    /// Floats.
    Floating,
    /// Complex numbers.
    ComplexFloating,
}

impl DTypeCategory {
    /// The kind that this is a part of.
    fn parent(self) -> Option<DTypeCategory> {
        match self {
            DTypeCategory::Generic => None,
            DTypeCategory::Number => Some(DTypeCategory::Generic),
            DTypeCategory::Integer | DTypeCategory::Inexact => Some(DTypeCategory::Number),
            DTypeCategory::SignedInteger | DTypeCategory::UnsignedInteger => {
                Some(DTypeCategory::Integer)
            }
            DTypeCategory::Floating | DTypeCategory::ComplexFloating => {
                Some(DTypeCategory::Inexact)
            }
        }
    }

    /// The narrowest kind of a dtype.
    fn of(dtype: DType) -> DTypeCategory {
        match dtype {
            DType::Bool => DTypeCategory::Generic,
            _ if dtype.is_signed_integer() => DTypeCategory::SignedInteger,
            _ if dtype.is_unsigned_integer() => DTypeCategory::UnsignedInteger,
            _ if dtype.is_float() => DTypeCategory::Floating,
            _ => DTypeCategory::ComplexFloating,
        }
    }
}

/// A dtype or a kind of them, for [`issubdtype`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeOrCategory {
    /// One dtype.
    One(DType),
    /// All of a kind.
    All(DTypeCategory),
}

impl From<DType> for DTypeOrCategory {
    fn from(dtype: DType) -> DTypeOrCategory {
        DTypeOrCategory::One(dtype)
    }
}

impl From<DTypeCategory> for DTypeOrCategory {
    fn from(category: DTypeCategory) -> DTypeOrCategory {
        DTypeOrCategory::All(category)
    }
}

/// Whether a dtype or kind is part of another. A dtype is part of itself only, and of its kinds.
///
/// ```
/// use wootz::{DTypeCategory, DType, issubdtype};
/// // mx.issubdtype(mx.float32, mx.floating)
/// assert!(issubdtype(DType::F32, DTypeCategory::Floating));
/// assert!(issubdtype(DTypeCategory::SignedInteger, DTypeCategory::Number));
/// assert!(!issubdtype(DType::F32, DType::F64));
/// ```
pub fn issubdtype(part: impl Into<DTypeOrCategory>, of: impl Into<DTypeOrCategory>) -> bool {
    let (mut at, of) = match (part.into(), of.into()) {
        (DTypeOrCategory::One(part), DTypeOrCategory::One(of)) => return part == of,
        (DTypeOrCategory::All(_), DTypeOrCategory::One(_)) => return false,
        (DTypeOrCategory::One(part), DTypeOrCategory::All(of)) => (DTypeCategory::of(part), of),
        (DTypeOrCategory::All(part), DTypeOrCategory::All(of)) => (part, of),
    };
    loop {
        match at.parent() {
            _ if at == of => return true,
            Some(parent) => at = parent,
            None => return false,
        }
    }
}

/// Whether a dtype is of a kind by the words of the array API standard: `"bool"`, `"signed integer"`,
/// `"unsigned integer"`, `"integral"`, `"real floating"`, `"complex floating"` or `"numeric"`.
///
/// ```
/// use wootz::{DType, isdtype};
/// // mx.isdtype(mx.int8, "integral")
/// assert!(isdtype(DType::I8, "integral")?);
/// assert!(!isdtype(DType::Bool, "numeric")?);
/// assert!(isdtype(DType::F32, "float").is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn isdtype(dtype: DType, kind: &str) -> Result<bool> {
    let category = match kind {
        "bool" => return Ok(dtype == DType::Bool),
        "signed integer" => DTypeCategory::SignedInteger,
        "unsigned integer" => DTypeCategory::UnsignedInteger,
        "integral" => DTypeCategory::Integer,
        "real floating" => DTypeCategory::Floating,
        "complex floating" => DTypeCategory::ComplexFloating,
        "numeric" => DTypeCategory::Number,
        _ => {
            let expected = "bool, signed integer, unsigned integer, integral, real floating, \
                            complex floating or numeric";
            return Err(Error::argument("isdtype", "kind", expected, format!("{kind:?}")));
        }
    };
    Ok(issubdtype(dtype, category))
}

/// Whether values of one dtype beside those of another become the other, as [`DType::promote`] says.
///
/// ```
/// use wootz::{DType, can_cast};
/// // mx.can_cast(mx.int32, mx.float16)
/// assert!(can_cast(DType::I32, DType::F16));
/// assert!(!can_cast(DType::F32, DType::F16));
/// ```
pub fn can_cast(from: DType, to: DType) -> bool {
    DType::promote(from, to) == to
}

/// The dtype that values of all of these become together. None is an error.
///
/// ```
/// use wootz::{DType, result_type};
/// // mx.result_type(mx.int8, mx.uint8, mx.float16)
/// assert_eq!(result_type(&[DType::I8, DType::U8, DType::F16])?, DType::F16);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn result_type(dtypes: &[DType]) -> Result<DType> {
    let joined = dtypes.iter().copied().reduce(DType::promote);
    joined.ok_or_else(|| Error::argument("result_type", "dtypes", "at least one", "none"))
}

fn is_inexact(dtype: DType) -> bool {
    issubdtype(dtype, DTypeCategory::Inexact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_types() {
        let f32 = finfo(DType::F32).unwrap();
        assert_eq!((f32.min, f32.max), (f64::from(f32::MIN), f64::from(f32::MAX)));
        assert_eq!((f32.eps, f32.bits), (f64::from(f32::EPSILON), 32));
        assert_eq!(f32.smallest_normal, f64::from(f32::MIN_POSITIVE));
        let f64 = finfo(DType::F64).unwrap();
        assert_eq!((f64.max, f64.eps), (f64::MAX, f64::EPSILON));
        assert_eq!(f64.smallest_normal, f64::MIN_POSITIVE);
        let f16 = finfo(DType::F16).unwrap();
        assert_eq!((f16.max, f16.eps), (65504.0, 0.0009765625));
        assert_eq!(f16.smallest_normal, half::f16::MIN_POSITIVE.to_f64());
        let bf16 = finfo(DType::BF16).unwrap();
        assert_eq!((bf16.max, bf16.eps), (3.3895313892515355e38, 0.0078125));
        let limits = |dtype| iinfo(dtype).map(|info| (info.min, info.max)).unwrap();
        assert_eq!(limits(DType::U64), (0, u64::MAX.into()));
        assert_eq!(limits(DType::I64), (i64::MIN.into(), i64::MAX.into()));
        assert_eq!(limits(DType::I16), (-32768, 32767));
        assert!(iinfo(DType::F32).is_err() && finfo(DType::Bool).is_err());
    }

    #[test]
    fn kinds_contain_each_other_as_in_mlx() {
        use DTypeCategory::*;
        let kinds = [
            Generic,
            Number,
            Integer,
            SignedInteger,
            UnsignedInteger,
            Inexact,
            Floating,
            ComplexFloating,
        ];
        let of = |part: DTypeOrCategory| -> Vec<DTypeCategory> {
            kinds.into_iter().filter(|&kind| issubdtype(part, kind)).collect()
        };
        assert_eq!(of(DType::Bool.into()), [Generic]);
        assert_eq!(of(DType::U8.into()), [Generic, Number, Integer, UnsignedInteger]);
        assert_eq!(of(DType::I64.into()), [Generic, Number, Integer, SignedInteger]);
        assert_eq!(of(DType::BF16.into()), [Generic, Number, Inexact, Floating]);
        assert_eq!(of(ComplexFloating.into()), [Generic, Number, Inexact, ComplexFloating]);
        assert_eq!(of(Generic.into()), [Generic]);
        assert!(!issubdtype(Generic, DType::F32));
        assert!(isdtype(DType::Bool, "bool").unwrap() && !isdtype(DType::U8, "bool").unwrap());
    }
}
