//! Gradients of quantized operations, of every format, and where narrow numbers would not hold what is summed.

use super::*;
use crate::jvp;

#[test]
fn gradients_pass_a_fake_quantization_in_every_scheme() -> Result<()> {
    on_devices(|| {
        for scheme in schemes().into_iter().filter(encodes) {
            for dtype in [DType::F32, DType::F16, DType::BF16] {
                // Columns, so that what is encoded does not lie in memory as it is.
                let w = numbers(&[256, 3])?.transpose()?.astype(dtype)?;
                let rounded = fake_quantize(&w, scheme)?;
                let want = rounded_on_cpu(&w, scheme)?;
                assert_eq!((rounded.shape(), rounded.dtype()), (w.shape(), dtype));
                assert_eq!(rounded.to_bytes()?, want.to_bytes()?, "{scheme} {dtype}");
                let loss = grad(|w: &[Array]| fake_quantize(&w[0], scheme)?.square()?.sum(()));
                let slope = loss(std::slice::from_ref(&w))?.remove(0);
                // Twice a number is exact.
                assert_eq!(slope.to_bytes()?, (want * 2.0).to_bytes()?, "{scheme} {dtype}");
            }
        }
        Ok(())
    })
}

#[test]
fn blocks_have_a_gradient_to_what_they_multiply_only() -> Result<()> {
    let (w, x) = (weights(Format::Q4_K.into(), &[3, 256])?, numbers(&[2, 256])?);
    let product = |x: &[Array]| Ok(vec![quantized_matmul(&x[0], &w, true)?]);
    let (_, gradients) = vjp(product, &[x], &[Array::ones(&[2, 3], DType::F32)?])?;
    let dense = dequantize(&w, None)?;
    close(&gradients[0], &Array::ones(&[2, 3], DType::F32)?.matmul(&dense)?)?;
    let scheme = Scheme::new("affine", None, None)?;
    let loss = grad(move |w: &[Array]| dequantize(&quantize(&w[0], scheme)?, None)?.sum(()));
    let error = loss(&[numbers(&[2, 64])?]).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::NotDifferentiable { .. }), "{error}");
    Ok(())
}

#[test]
fn gradients_of_narrow_scales_are_summed_in_single_precision() -> Result<()> {
    on_devices(|| {
        let scheme = Scheme::Affine { group_size: 32, bits: 8 };
        let words = Array::from_slice(&[u32::MAX; 8], &[1, 8])?;
        // Each product is beyond the largest float16, and their sum is not.
        let mut slopes = [300.0f32; 32];
        slopes[16..].fill(-300.0);
        slopes[31] = -299.0;
        for (dtype, want) in [(DType::F16, 255.0), (DType::BF16, 255.0)] {
            let one = Array::ones(&[1, 1], dtype)?;
            let g = Array::from_slice(&slopes, &[1, 32])?.astype(dtype)?;
            let bottom = g.astype(DType::F32)?.to_vec::<f32>()?.iter().sum::<f32>();
            let decode = |a: &[Array]| {
                let q = Quantized::new(scheme, &words, Some(&a[0]), Some(&a[1]))?;
                Ok(vec![dequantize(&q, None)?])
            };
            let (_, found) = vjp(decode, &[one.clone(), one], &[g])?;
            let found = found.iter().map(|g| g.astype(DType::F32)?.item::<f32>());
            let found = found.collect::<Result<Vec<_>>>()?;
            assert_eq!(found, [want * bottom, bottom], "{dtype}");
        }
        Ok(())
    })
}

#[test]
fn gradients_of_narrow_scales_of_products_are_summed_in_single_precision() -> Result<()> {
    on_devices(|| {
        let scheme = Scheme::Affine { group_size: 32, bits: 8 };
        let words = Array::from_slice(&[u32::MAX; 8], &[1, 1, 8])?;
        // Each product is beyond the largest float16, and their sum is nothing.
        let turned: Vec<f32> = (0..32).map(|i| if i % 2 == 0 { 300.0 } else { -300.0 }).collect();
        let turned = Array::from_slice(&turned, &[1, 1, 32])?.astype(DType::F16)?;
        let large = crate::full(&[1, 1, 1], 300.0, DType::F16)?;
        let one = Array::ones(&[1, 1, 1], DType::F16)?;
        let index = Array::new([0])?;
        for (x, g, transpose) in [(&turned, &large, true), (&large, &turned, false)] {
            for gathered in [false, true] {
                let product = |a: &[Array]| {
                    let q = Quantized::new(scheme, &words, Some(&a[0]), Some(&a[1]))?;
                    Ok(vec![match gathered {
                        true => gather_qmm(x, &q, Some(&index), Some(&index), transpose, false)?,
                        false => quantized_matmul(x, &q, transpose)?,
                    }])
                };
                let (_, found) = vjp(product, &[one.clone(), one.clone()], &[g.clone()])?;
                for found in found {
                    let found = found.astype(DType::F32)?.to_vec::<f32>()?;
                    assert_eq!(found, [0.0], "transpose {transpose}, gathered {gathered}");
                }
            }
        }
        Ok(())
    })
}

#[test]
fn every_format_has_gradients_to_what_it_multiplies() -> Result<()> {
    on_devices(|| {
        let (lhs, rhs) = (Array::new([1, 0, 1, 1])?, Array::new([2, 0, 0, 2])?);
        for scheme in schemes() {
            let w = weights(scheme, &[3, 8, 256])?;
            let dense = dequantize(&w, Some(DType::F32))?;
            for transpose in [true, false] {
                let [inner, outer] = if transpose { [256, 8] } else { [8, 256] };
                let dense = if transpose { dense.swapaxes(1, 2)? } else { dense.clone() };
                let slope = |f: &dyn Fn(&Array) -> Result<Array>, x: &Array, g: &Array| {
                    let f = |x: &[Array]| Ok(vec![f(&x[0])?]);
                    Ok::<_, Error>(vjp(f, &[x.clone()], &[g.clone()])?.1.remove(0))
                };
                let (x, g) = (numbers(&[3, 2, inner])?, numbers(&[3, 2, outer])?);
                let got = slope(&|x| quantized_matmul(x, &w, transpose), &x, &g)?;
                close(&got, &slope(&|x| x.matmul(&dense), &x, &g)?)?;
                let (x, g) = (numbers(&[2, 2, inner])?, numbers(&[4, 2, outer])?);
                let chosen =
                    |x: &Array| gather_qmm(x, &w, Some(&lhs), Some(&rhs), transpose, false);
                let plain = |x: &Array| x.take(&lhs, Some(0))?.matmul(&dense.take(&rhs, Some(0))?);
                close(&slope(&chosen, &x, &g)?, &slope(&plain, &x, &g)?)?;
            }
        }
        Ok(())
    })
}

#[test]
fn tangents_pass_a_fake_quantization() -> Result<()> {
    on_devices(|| {
        for scheme in
            [Scheme::Affine { group_size: 32, bits: 2 }, Scheme::Mxfp4, Format::Q4_0.into()]
        {
            let (w, t) = (numbers(&[3, 64])?, numbers(&[6, 32])?.reshape(&[3, 64])?);
            let rounded = |w: &[Array]| Ok(vec![fake_quantize(&w[0], scheme)?.square()?]);
            let (values, tangents) = jvp(rounded, &[w.clone()], &[t.clone()])?;
            let want = rounded_on_cpu(&w, scheme)?;
            assert_eq!(values[0].to_bytes()?, want.square()?.to_bytes()?, "{scheme}");
            close(&tangents[0], &(fake_quantize(&w, scheme)? * 2.0 * t))?;
        }
        Ok(())
    })
}
