//! MLX's global scale of `nvfp4`: a number that all weights of an array share, beside the scales of groups.

use super::{Quantized, dequantize, quantize};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{astype, divide, multiply, reshape};
use crate::quant::Scheme;

/// The largest number of e4m3 times the largest of e2m1: global scales count from it.
pub(super) const LARGEST: f64 = 2688.0;

/// [`quantize`] in `nvfp4` with a global scale, usually the largest magnitude of `w`: it becomes the largest number that
/// codes and scales hold, so that neither very large nor very small weights are lost. One number of `float32`.
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, DType, dequantize_global, quantize_global};
/// let w = wootz::multiply(Array::ones(&[1, 32], DType::F32)?, 1e6)?;
/// let largest = Array::scalar(1e6, DType::F32)?;
/// // mx.quantize(w, mode="nvfp4", global_scale=largest)
/// let q = quantize_global(&w, Scheme::Nvfp4, &largest)?;
/// let back = dequantize_global(&q, None, &largest)?;
/// assert_eq!((back.dtype(), back.to_vec::<f32>()?[31]), (DType::F32, 1e6));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn quantize_global(
    w: &Array,
    scheme: impl Into<Scheme>,
    global_scale: &Array,
) -> Result<Quantized> {
    let scheme = scheme.into();
    let scale = checked("quantize", scheme, global_scale)?;
    if !w.dtype().is_float() {
        return Err(Error::dtype("quantize", "w", "a floating-point type", w.dtype()));
    }
    // In single precision: what is quantized may be large.
    quantize(&multiply(astype(w, DType::F32)?, divide(LARGEST, scale)?)?, scheme)
}

/// [`dequantize`] of what [`quantize_global`] made, with the same global scale. It is of `float32`, and so is the result;
/// `dtype`, without one `bfloat16`, is what weights are rounded to before they are multiplied by it.
pub fn dequantize_global(
    q: &Quantized,
    dtype: Option<DType>,
    global_scale: &Array,
) -> Result<Array> {
    let scale = checked("dequantize", q.scheme(), global_scale)?;
    multiply(dequantize(q, dtype)?, multiply(scale, 1.0 / LARGEST)?)
}

/// One number for all weights.
fn checked(op: &'static str, scheme: Scheme, scale: &Array) -> Result<Array> {
    if scheme != Scheme::Nvfp4 {
        return Err(Error::argument(op, "global_scale", "none but for nvfp4", scheme));
    }
    if scale.dtype() != DType::F32 {
        return Err(Error::dtype(op, "global_scale", DType::F32, scale.dtype()));
    }
    if scale.size() != 1 {
        return Err(Error::shape(op, "global_scale", "one number", scale.shape()));
    }
    reshape(scale, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{arange, sin};

    #[test]
    fn a_global_scale_brings_weights_of_any_size_into_the_range_of_codes() {
        let w = sin(&arange(0, 64, 1, DType::F32).unwrap()).unwrap().reshape(&[2, 32]).unwrap();
        // Alone, the first are beyond the largest scale, and the others below the smallest.
        for size in [1e6, 1e-6] {
            let w = multiply(&w, size).unwrap();
            let scale = Array::scalar(size, DType::F32).unwrap().reshape(&[1]).unwrap();
            let q = quantize_global(&w, Scheme::Nvfp4, &scale).unwrap();
            let back = dequantize_global(&q, Some(DType::F32), &scale).unwrap();
            let plain = quantize(&w, Scheme::Nvfp4).unwrap();
            let plain = dequantize(&plain, Some(DType::F32)).unwrap();
            let worst = |x: &Array| {
                let [x, w] = [x, &w].map(|x| x.to_vec::<f32>().unwrap());
                x.iter().zip(w).fold(0.0f32, |most, (x, w)| most.max((x - w).abs())) / size as f32
            };
            assert!(
                worst(&back) < 0.17 && worst(&plain) > 0.9,
                "{} {}",
                worst(&back),
                worst(&plain)
            );
        }
    }

    #[test]
    fn a_global_scale_is_one_float_for_nvfp4_only() {
        let w = Array::ones(&[1, 32], DType::F32).unwrap();
        let one = Array::scalar(1, DType::F32).unwrap();
        let said = |result: Result<Quantized>| result.unwrap_err().to_string();
        let error = said(quantize_global(&w, Scheme::Mxfp8, &one));
        assert!(
            error.starts_with("[quantize] global_scale: expected none but for nvfp4"),
            "{error}"
        );
        let two = Array::ones(&[2], DType::F32).unwrap();
        assert!(said(quantize_global(&w, Scheme::Nvfp4, &two)).contains("one number"));
        let half = one.astype(DType::F16).unwrap();
        assert!(said(quantize_global(&w, Scheme::Nvfp4, &half)).contains("float32"));
        let whole = w.astype(DType::I32).unwrap();
        assert!(said(quantize_global(&whole, Scheme::Nvfp4, &one)).contains("floating-point"));
        let affine = quantize(&w, Scheme::new("affine", Some(32), Some(4)).unwrap()).unwrap();
        assert!(dequantize_global(&affine, None, &one).is_err());
    }
}
