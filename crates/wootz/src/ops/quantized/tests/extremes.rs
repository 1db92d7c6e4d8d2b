//! Numbers and sizes at the limits: weights and activations that are very large or very small, indices in few bits, rows
//! of odd numbers.

use super::*;

/// Weights that are too large or too far apart for the scales of some format.
fn extreme_weights() -> Result<Vec<(&'static str, Vec<f32>)>> {
    let numbers = numbers(&[2, 256])?.to_vec::<f32>()?;
    let with = |planted: &[(usize, f32)], factor: f32| {
        let mut values: Vec<f32> = numbers.iter().map(|x| x * factor).collect();
        planted.iter().for_each(|&(at, value)| values[at] = value);
        values
    };
    let turned = |size: f32| -> Vec<f32> {
        (0..512).map(|i| if i % 2 == 0 { size } else { -size }).collect()
    };
    Ok(vec![
        ("the largest", vec![f32::MAX; 512]),
        ("the lowest", vec![f32::MIN; 512]),
        ("both ends", turned(f32::MAX)),
        ("one of the largest", with(&[(3, f32::MAX)], 1.0)),
        ("everything", with(&[(3, f32::MAX), (7, f32::MIN)], 3.4e38)),
        ("3e38", with(&[(3, 3e38), (7, -3e38)], 1e38)),
        ("far from zero", (0..512).map(|i| [26_352.0, 65_504.0][i % 2]).collect()),
        ("a million", vec![1e6; 512]),
        ("millions", turned(1e6)),
        ("both infinities", with(&[(3, f32::INFINITY), (7, f32::NEG_INFINITY)], 80_000.0)),
        ("infinities of all sizes", with(&[(3, f32::INFINITY), (7, f32::NEG_INFINITY)], 3.4e38)),
    ])
}

#[test]
fn whatever_is_quantized_decodes_to_finite_numbers_alike_on_all_devices() -> Result<()> {
    let schemes: Vec<Scheme> = schemes().into_iter().filter(encodes).collect();
    for (name, values) in extreme_weights()? {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for &scheme in &schemes {
                let made = |device: &Device| {
                    with_device(device, || {
                        let w = Array::from_slice(&values, &[2, 256])?.astype(dtype)?;
                        let q = quantize(&w, scheme)?;
                        let affine = matches!(scheme, Scheme::Affine { .. });
                        let back = dequantize(&q, (!affine).then_some(DType::F32))?;
                        let back = back.astype(DType::F32)?.to_vec::<f32>()?;
                        let arrays = q.arrays().iter().map(Array::to_bytes);
                        Ok::<_, Error>((arrays.collect::<Result<Vec<_>>>()?, back))
                    })
                };
                let (arrays, back) = made(&Device::cpu())?;
                let what = format!("{name} in {dtype}, {scheme}");
                assert!(back.iter().all(|w| w.is_finite()), "{what}: {back:?}");
                // The largest keep their sign.
                let w = with_device(&Device::cpu(), || Array::from_slice(&values, &[512]))?;
                let w = w.astype(dtype)?.astype(DType::F32)?.to_vec::<f32>()?;
                let counted: Vec<f32> = w.into_iter().map(crate::quant::finite).collect();
                let half = counted.iter().fold(0f32, |most, w| most.max(0.5 * w.abs()));
                let large = back.iter().zip(&counted).filter(|(_, w)| w.abs() > half);
                for (back, w) in large {
                    assert!(back * w.signum() >= 0.0, "{what}: {w} became {back}");
                }
                for device in devices() {
                    let (others, decoded) = made(&device)?;
                    assert!(decoded.iter().all(|w| w.is_finite()), "{what} on {device}");
                    assert!(others == arrays, "{what} on {device}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn weights_that_a_format_holds_are_not_brought_nearer() -> Result<()> {
    // Within an eighth, as the format with the fewest levels here has them, or half of where there are three.
    let held = [
        (Format::Q4_0, 5e5),
        (Format::Q5_0, 1e6),
        (Format::Q8_0, 8e6),
        (Format::Q4_1, 6e4),
        (Format::Q4_K, 1e6),
        (Format::Q6_K, 1e8),
        (Format::IQ4_NL, 4e6),
        (Format::IQ4_XS, 1e8),
        (Format::Q8_K, 1e38),
        (Format::TQ2_0, 6e4),
    ];
    for (format, size) in held {
        let w = crate::multiply(&numbers(&[1, 256])?, size / 0.79)?;
        let back = dequantize(&quantize(&w, format)?, None)?.to_vec::<f32>()?;
        let bound = if format == Format::TQ2_0 { 0.55 } else { 0.13 };
        for (a, b) in back.iter().zip(w.to_vec::<f32>()?) {
            assert!((a - b).abs() <= bound * size as f32, "{format}: {b} became {a}");
        }
    }
    // Far apart, but not too far: as MLX has it, the outer end is kept exactly.
    let w = crate::multiply(&numbers(&[1, 64])?, 38_000.0)?.astype(DType::F16)?;
    let scheme = Scheme::Affine { group_size: 64, bits: 8 };
    let back = dequantize(&quantize(&w, scheme)?, None)?.to_vec::<half::f16>()?;
    // The thirtieth is the largest.
    let most = w.max(())?.astype(DType::F32)?.item::<f32>()?;
    assert_eq!((back[30].to_f32(), most > 29_000.0), (most, true));
    Ok(())
}

#[test]
fn groups_of_the_smallest_activations_are_not_lost_in_a_row_of_small_ones() -> Result<()> {
    use crate::quant::{Activations, with_activations};
    with_device(&Device::cpu(), || {
        let w = quantize(&Array::ones(&[24, 4096], DType::F32)?, Format::Q8_0)?;
        for [first, others] in [[2e-30f32, 0.9e-30], [1e-25, 0.9e-30], [3e-19, 1e-20]] {
            let mut x = vec![others; 4096];
            x[0] = first;
            let want = f64::from(first) + 4095.0 * f64::from(others);
            for level in [Activations::Exact, Activations::Fast] {
                let x = Array::from_slice(&x, &[1, 4096])?;
                let y = with_activations(level, || quantized_matmul(&x, &w, true))?;
                let y = f64::from(y.to_vec::<f32>()?[23]);
                assert!((y / want - 1.0).abs() < 0.02, "{y:e}, not {want:e} at {level}");
            }
        }
        Ok(())
    })
}

#[test]
fn narrow_indices_choose_among_more_matrices_than_they_count() -> Result<()> {
    on_devices(|| {
        // Numbers in order are up to 199, which eight bits with a sign do not hold.
        let bytes: Vec<i8> = (0..200u8).map(|i| (i % 3) as i8).collect();
        let chosen = Array::from_slice(&bytes, &[200])?;
        let wide = chosen.astype(DType::I32)?;
        let (x, w) = (numbers(&[200, 1, 32])?, quantize(&numbers(&[3, 4, 32])?, Format::Q8_0)?);
        let experts = |i: &Array| gather_qmm(&x, &w, None, Some(i), true, false)?.to_vec::<f32>();
        let dense = dequantize(&w, None)?.take(&wide, Some(0))?;
        let want = x.matmul(&dense.swapaxes(1, 2)?)?;
        close(&gather_qmm(&x, &w, None, Some(&chosen), true, false)?, &want)?;
        assert_eq!(experts(&chosen.astype(DType::I16)?)?, experts(&wide)?);

        let (few, many) =
            (numbers(&[3, 2, 32])?, quantize(&numbers(&[200, 4, 32])?, Format::Q8_0)?);
        let left = |i: &Array| gather_qmm(&few, &many, Some(i), None, true, false);
        assert_eq!(left(&chosen)?.to_vec::<f32>()?, left(&wide)?.to_vec::<f32>()?);
        let slope = |i: &Array| {
            let loss = grad(|x: &[Array]| {
                gather_qmm(&x[0], &w, Some(i), Some(i), true, false)?.square()?.sum(())
            });
            loss(std::slice::from_ref(&few))?[0].to_vec::<f32>()
        };
        assert_eq!(slope(&chosen)?, slope(&wide)?);
        Ok(())
    })
}

#[test]
fn rows_are_taken_of_matrices_only() -> Result<()> {
    let vector = Array::from_slice(&[1u8; 34], &[34])?;
    let q = Quantized::new(Format::Q8_0, &vector, None, None)?;
    let error = q.take(&Array::new([0])?, DType::F32).unwrap_err().to_string();
    assert!(error.contains("codes") && error.contains("two axes"), "{error}");
    Ok(())
}

#[test]
fn every_format_multiplies_rows_of_odd_numbers() -> Result<()> {
    on_devices(|| {
        for scheme in schemes() {
            for [n, width] in [[7, 512], [5, 768]] {
                let w = weights(scheme, &[n, width])?;
                let dense = dequantize(&w, Some(DType::F32))?;
                for rows in [1, 9] {
                    let x = numbers(&[rows, width])?;
                    let y = quantized_matmul(&x, &w, true)?;
                    close(&y, &x.matmul(&dense.transpose()?)?)?;
                    close(&quantized_matmul(&y, &w, false)?, &y.matmul(&dense)?)?;
                }
            }
        }
        Ok(())
    })
}

#[cfg(feature = "gpu")]
#[test]
fn what_decoding_looks_up_is_uploaded_once() -> Result<()> {
    for device in devices() {
        // A device of its own, whose counters no other test moves.
        let Some(index) = device.as_gpu().map(|gpu| gpu.summary().index) else { continue };
        let device = Device::gpu_with(index, &Default::default())?;
        let Some(gpu) = device.as_gpu() else { continue };
        with_device(&device, || {
            let w = weights(Format::IQ1_S.into(), &[3, 256])?;
            dequantize(&w, None)?.eval()?;
            // The table alone is 4 KiB.
            let before = gpu.counters().uploaded_bytes;
            for rows in [1, 9] {
                quantized_matmul(&numbers(&[rows, 256])?, &w, true)?.eval()?;
                let numbers = rows as u64 * 1024;
                let sent = gpu.counters().uploaded_bytes - before;
                assert!(sent < numbers + 2048 + 1024, "{sent} bytes after {rows} rows");
            }
            Ok(())
        })?;
    }
    Ok(())
}
