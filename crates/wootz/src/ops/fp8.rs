//! Floats of 8 bits (e4m3) as bytes: `to_fp8` and `from_fp8`, made of operations on bits.

use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::op::{Case, Entry, FLOATS, Gradient, Tolerance};
use crate::ops::{
    add, astype, bitwise_and, bitwise_or, equal, left_shift, less, minimum, multiply, right_shift,
    round, subtract, view, where_,
};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    let to = |label: &str, range: std::ops::Range<f64>| {
        Case::new(label, &[&[5, 33]], |x| Ok(vec![to_fp8(&x[0])?]))
            .range(range)
            .tolerance(Tolerance::Exact)
            .gradient(Gradient::Zero)
    };
    let from = FLOATS.iter().map(|&dtype| {
        Case::new(dtype.name(), &[&[5, 33]], move |x| Ok(vec![from_fp8(&x[0], dtype)?]))
            .dtypes(&[DType::U8])
            // Without NaN, which comparisons of results treat apart.
            .range(0.0..127.0)
            .tolerance(Tolerance::Exact)
            .gradient(Gradient::Zero)
    });
    vec![
        Entry { name: "to_fp8", cases: vec![to("all", -500.0..500.0), to("small", -0.03..0.03)] },
        Entry { name: "from_fp8", cases: from.collect() },
    ]
}

/// The largest e4m3 number, 448, and the smallest that has all of its bits, as the bits of a float.
const LARGEST: i64 = 0x43e0_0000;
const SMALLEST_NORMAL: i64 = 0x3c80_0000;
/// What the exponent's bias falls by, above the three bits of a fraction.
const BIAS: i64 = 120 << 3;

/// The nearest floats of 8 bits (e4m3), as bytes; halves go to the even one. What is larger than 448
/// becomes 448, and so does NaN, as in MLX.
///
/// ```
/// use wootz::{Array, to_fp8};
/// let x = Array::new([0.0f32, 1.0, -1.0, 1e9])?;
/// // mx.to_fp8(x)
/// assert_eq!(to_fp8(&x)?.to_vec::<u8>()?, [0, 56, 184, 126]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn to_fp8(x: &Array) -> Result<Array> {
    if !x.dtype().is_float() {
        return Err(Error::dtype("to_fp8", "x", "a floating-point type", x.dtype()));
    }
    let bits = view(&astype(x, DType::F32)?, DType::U32)?;
    // As integers, magnitudes compare as the floats do, and NaN is the largest.
    let magnitude = minimum(bitwise_and(&bits, 0x7fff_ffff)?, LARGEST)?;
    let odd = bitwise_and(right_shift(&magnitude, 20)?, 1)?;
    let rounded = right_shift(add(add(&magnitude, 0x7_ffff)?, odd)?, 20)?;
    let small = multiply(view(&magnitude, DType::F32)?, 512.0)?;
    let codes = where_(
        less(&magnitude, SMALLEST_NORMAL)?,
        astype(&round(small, 0)?, DType::U32)?,
        subtract(rounded, BIAS)?,
    )?;
    let sign = bitwise_and(right_shift(&bits, 24)?, 0x80)?;
    astype(&bitwise_or(codes, sign)?, DType::U8)
}

/// The values of bytes that are floats of 8 bits (e4m3), in a float dtype. Bytes 127 and 255 are NaN.
///
/// ```
/// use wootz::{Array, DType, from_fp8};
/// let x = Array::new([0u8, 56, 184, 126])?;
/// // mx.from_fp8(x, mx.float32)
/// assert_eq!(from_fp8(&x, DType::F32)?.to_vec::<f32>()?, [0.0, 1.0, -1.0, 448.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn from_fp8(x: &Array, dtype: DType) -> Result<Array> {
    if x.dtype() != DType::U8 {
        return Err(Error::dtype("from_fp8", "x", DType::U8, x.dtype()));
    }
    if !dtype.is_float() {
        return Err(Error::dtype("from_fp8", "dtype", "a floating-point type", dtype));
    }
    let bytes = astype(x, DType::U32)?;
    let magnitude = bitwise_and(&bytes, 0x7f)?;
    // Below the smallest normal number codes are multiples of 2⁻⁹.
    let small = multiply(astype(&magnitude, DType::F32)?, 0.5f64.powi(9))?;
    let normal = left_shift(add(&magnitude, BIAS)?, 20)?;
    let bits = where_(less(&magnitude, 8)?, view(&small, DType::U32)?, normal)?;
    let bits = where_(equal(&magnitude, 0x7f)?, 0x7fc0_0000i64, bits)?;
    let sign = left_shift(bitwise_and(&bytes, 0x80)?, 24)?;
    astype(&view(&bitwise_or(bits, sign)?, DType::F32)?, dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_its_number_and_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        let x = Array::from_slice(&bytes, &[256]).unwrap();
        let values = from_fp8(&x, DType::F32).unwrap();
        for (byte, value) in bytes.iter().zip(values.to_vec::<f32>().unwrap()) {
            let (exponent, fraction) = (byte >> 3 & 15, f32::from(byte & 7));
            let magnitude = match (exponent, byte & 7) {
                (15, 7) => f32::NAN,
                (0, _) => fraction / 512.0,
                _ => (1.0 + fraction / 8.0) * (f32::from(exponent) - 7.0).exp2(),
            };
            let expected = if *byte < 128 { magnitude } else { -magnitude };
            let same = expected.to_bits() == value.to_bits();
            assert!(same || expected.is_nan() && value.is_nan(), "{byte}: {value}");
        }
        let back = to_fp8(&values).unwrap().to_vec::<u8>().unwrap();
        for (byte, back) in bytes.into_iter().zip(back) {
            // A NaN becomes the largest number.
            assert_eq!(back & 0x7f, (byte & 0x7f).min(0x7e), "{byte}");
        }
        let odd = [1e9f32, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, 1.0625, 1.1875];
        let more = [0.000_976_562_5f32, 0.002_929_687_5, 0.015_136_719];
        let x = Array::from_slice(&[&odd[..], &more].concat(), &[10]).unwrap();
        let codes = to_fp8(&x).unwrap().to_vec::<u8>().unwrap();
        assert_eq!(codes, [126, 126, 254, 126, 128, 56, 58, 0, 2, 8]);
    }

    #[test]
    fn other_dtypes_are_refused() {
        assert!(to_fp8(&Array::new([1]).unwrap()).is_err());
        assert!(from_fp8(&Array::new([1]).unwrap(), DType::F32).is_err());
        assert!(from_fp8(&Array::new([1u8]).unwrap(), DType::I32).is_err());
    }
}
