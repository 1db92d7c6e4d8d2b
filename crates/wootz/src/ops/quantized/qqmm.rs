//! `qqmm` and `gather_qqmm`: products of which both sides are quantized.

use super::global_scale::LARGEST;
use super::{Quantized, fake_quantize, gather_qmm, quantized_matmul};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::{astype, divide, multiply};

/// `x @ w.T` where `x`, too, is quantized, in the way that `w` is: with `mxfp4`, `mxfp8` or `nvfp4`. The result
/// has the dtype of `x`. MLX's global scales of `nvfp4`, of `x` and of `w`, come as a pair. Gradients go
/// straight through the rounding of `x`; for those of `w` see [`fake_quantize`].
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, DType, qqmm, quantize};
/// let (x, w) = (Array::ones(&[2, 32], DType::F32)?, Array::ones(&[3, 32], DType::F32)?);
/// // mx.qqmm(x, w, mode="mxfp8")
/// let y = qqmm(&x, &quantize(&w, Scheme::Mxfp8)?, None)?;
/// assert_eq!(y.to_vec::<f32>()?, [32.0; 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn qqmm(x: &Array, w: &Quantized, global_scales: Option<[&Array; 2]>) -> Result<Array> {
    scaled("qqmm", x, w, global_scales, |x| quantized_matmul(x, w, true))
}

/// `x[lhs_indices] @ w[rhs_indices].T` where `x`, too, is quantized: as [`gather_qmm`] with the rounding
/// and the global scales of [`qqmm`].
///
/// ```
/// use wootz::quant::Scheme;
/// use wootz::{Array, DType, gather_qqmm, quantize};
/// let (x, w) = (Array::ones(&[2, 1, 32], DType::F32)?, Array::ones(&[4, 3, 32], DType::F32)?);
/// // mx.gather_qqmm(x, w, rhs_indices=mx.array([3, 0]), mode="mxfp8")
/// let w = quantize(&w, Scheme::Mxfp8)?;
/// let y = gather_qqmm(&x, &w, None, Some(&Array::new([3, 0])?), None, false)?;
/// assert_eq!((y.shape(), y.to_vec::<f32>()?), (&[2, 1, 3][..], vec![32.0; 6]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn gather_qqmm(
    x: &Array,
    w: &Quantized,
    lhs_indices: Option<&Array>,
    rhs_indices: Option<&Array>,
    global_scales: Option<[&Array; 2]>,
    sorted_indices: bool,
) -> Result<Array> {
    scaled("gather_qqmm", x, w, global_scales, |x| {
        gather_qmm(x, w, lhs_indices, rhs_indices, true, sorted_indices)
    })
}

/// The product of the rounded `x`, scaled if there are global scales.
fn scaled(
    op: &'static str,
    x: &Array,
    w: &Quantized,
    global_scales: Option<[&Array; 2]>,
    product: impl FnOnce(&Array) -> Result<Array>,
) -> Result<Array> {
    if w.scheme.floats().is_none() {
        return Err(Error::argument(op, "w", "weights of mxfp4, mxfp8 or nvfp4", w.scheme));
    }
    if !matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16) {
        return Err(Error::dtype(op, "x", "float32, float16 or bfloat16", x.dtype()));
    }
    let Some([of_x, of_w]) = global_scales else {
        return product(&fake_quantize(x, w.scheme)?);
    };
    if w.scheme != crate::quant::Scheme::Nvfp4 {
        return Err(Error::argument(op, "global_scales", "none but for nvfp4", w.scheme));
    }
    // In single precision: what is quantized is large.
    let wide = multiply(astype(x, DType::F32)?, divide(LARGEST, astype(of_x, DType::F32)?)?)?;
    let product = product(&fake_quantize(&wide, w.scheme)?)?;
    let scale = multiply(astype(of_x, DType::F32)?, astype(of_w, DType::F32)?)?;
    astype(&multiply(product, multiply(scale, 1.0 / (LARGEST * LARGEST))?)?, x.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{arange, dequantize, quantize, sin};
    use crate::quant::Scheme;

    fn numbers(rows: usize) -> Array {
        let numbers = arange(0, 64 * rows as i64, 1, DType::F32).unwrap();
        sin(&numbers).unwrap().reshape(&[rows, 64]).unwrap()
    }

    /// What is decoded of codes, multiplied.
    fn decoded(x: &Array, scheme: Scheme) -> Array {
        dequantize(&quantize(x, scheme).unwrap(), Some(DType::F32)).unwrap()
    }

    #[track_caller]
    fn near(a: &Array, b: &Array) {
        let [a, b] = [a, b].map(|x| x.to_vec::<f32>().unwrap());
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
        assert!(a.len() == b.len() && a.iter().zip(&b).all(close), "{a:?}\n{b:?}");
    }

    #[test]
    fn both_sides_are_rounded() {
        let (x, w) = (numbers(3), numbers(5));
        for scheme in [Scheme::Mxfp4, Scheme::Mxfp8, Scheme::Nvfp4] {
            let expected = decoded(&x, scheme).matmul(&decoded(&w, scheme).transpose().unwrap());
            let codes = quantize(&w, scheme).unwrap();
            near(&qqmm(&x, &codes, None).unwrap(), &expected.unwrap());
        }
    }

    #[test]
    fn global_scales_stretch_what_is_rounded() {
        let (x, w) = (numbers(3), numbers(5));
        let [of_x, of_w] = [3.0, 2.0].map(|scale| Array::scalar(scale, DType::F32).unwrap());
        let stretched = |x: &Array, scale: f64| multiply(x, LARGEST / scale).unwrap();
        let codes = quantize(&stretched(&w, 2.0), Scheme::Nvfp4).unwrap();
        let back = |x: &Array, scale: f64| {
            multiply(decoded(&stretched(x, scale), Scheme::Nvfp4), scale / LARGEST).unwrap()
        };
        let expected = back(&x, 3.0).matmul(&back(&w, 2.0).transpose().unwrap()).unwrap();
        near(&qqmm(&x, &codes, Some([&of_x, &of_w])).unwrap(), &expected);
    }

    #[test]
    fn what_has_no_small_floats_is_refused() {
        let (x, w) = (numbers(1), numbers(2));
        let affine = quantize(&w, Scheme::new("affine", None, None).unwrap()).unwrap();
        let words = "[qqmm] w: expected weights of mxfp4, mxfp8 or nvfp4";
        assert!(qqmm(&x, &affine, None).unwrap_err().to_string().starts_with(words));
        let codes = quantize(&w, Scheme::Mxfp8).unwrap();
        let one = Array::scalar(1, DType::F32).unwrap();
        assert!(qqmm(&x, &codes, Some([&one, &one])).is_err());
        assert!(qqmm(&x.astype(DType::I32).unwrap(), &codes, None).is_err());
    }
}
