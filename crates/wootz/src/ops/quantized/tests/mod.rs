//! Quantized weights: dtypes, shapes, errors and odd memory; every format through every operation.

mod accuracy;
mod extremes;
mod gradients;

use super::*;
use crate::device::{Device, with_device};
use crate::quant::Format;
use crate::testing::{devices, worst};
use crate::{grad, vjp};

fn on_devices(body: impl Fn() -> Result<()>) -> Result<()> {
    devices().iter().try_for_each(|device| with_device(device, &body))
}

fn numbers(shape: &[usize]) -> Result<Array> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
    Array::from_slice(&values, shape)
}

fn schemes() -> Vec<Scheme> {
    let formats = Format::ALL.iter().map(|&format| Scheme::Blocks(format));
    let mut schemes: Vec<Scheme> = formats.collect();
    for bits in [1, 2, 3, 4, 5, 6, 8] {
        schemes.push(Scheme::Affine { group_size: 64, bits });
    }
    schemes.extend([Scheme::Mxfp4, Scheme::Mxfp8, Scheme::Nvfp4]);
    schemes
}

/// Weights of any scheme; blocks that cannot be encoded are bytes of small scales.
fn weights(scheme: Scheme, shape: &[usize]) -> Result<Quantized> {
    let Scheme::Blocks(format) = scheme else { return quantize(&numbers(shape)?, scheme) };
    if format.encodes() {
        return quantize(&numbers(shape)?, scheme);
    }
    let count = shape.iter().product::<usize>() / format.block_elements() * format.block_bytes();
    let mut bytes: Vec<u8> = (0..count).map(|i| (i * 73 % 251) as u8).collect();
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        match format {
            // The scale is in the high nibbles of the last words.
            Format::IQ1_M => [49, 51, 53, 55].iter().for_each(|&i| block[i] &= 0x1f),
            _ => block[1] = 0x1c,
        }
    }
    let width = scheme.codes(shape[shape.len() - 1]);
    let shape = [&shape[..shape.len() - 1], &[width]].concat();
    Quantized::new(scheme, &Array::from_slice(&bytes, &shape)?, None, None)
}

fn close(a: &Array, b: &Array) -> Result<()> {
    let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
    let scale = b.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() <= 1e-4 * scale, "{a} is not {b}, of up to {scale}");
    }
    Ok(())
}

#[test]
fn every_format_multiplies_as_the_decoded_matrix_does() -> Result<()> {
    on_devices(|| {
        for scheme in schemes() {
            let w = weights(scheme, &[10, 256])?;
            let dense = dequantize(&w, Some(DType::F32))?;
            assert_eq!(dense.shape(), w.shape());
            for rows in [1, 11] {
                let x = numbers(&[rows, 256])?;
                let y = quantized_matmul(&x, &w, true)?;
                close(&y, &x.matmul(&dense.transpose()?)?)?;
                close(&quantized_matmul(&y, &w, false)?, &y.matmul(&dense)?)?;
            }
        }
        Ok(())
    })
}

#[test]
fn every_format_multiplies_chosen_matrices_as_decoded_ones_are() -> Result<()> {
    on_devices(|| {
        for scheme in schemes() {
            let w = weights(scheme, &[3, 10, 256])?;
            let dense = dequantize(&w, Some(DType::F32))?;
            // Few products, one by one, and so many that those of a matrix are put together.
            for products in [4, 20] {
                let x = numbers(&[5, 2, 256])?;
                let [lefts, rights] = [5, 3].map(|count| {
                    let indices: Vec<i32> = (0..products).map(|i| i * 7 / 2 % count).collect();
                    Array::from_slice(&indices, &[products as usize])
                });
                let (lefts, rights) = (lefts?, rights?);
                let y = gather_qmm(&x, &w, Some(&lefts), Some(&rights), true, false)?;
                let chosen = dense.take(&rights, Some(0))?;
                close(&y, &x.take(&lefts, Some(0))?.matmul(&chosen.swapaxes(1, 2)?)?)?;
                let back = gather_qmm(&y, &w, None, Some(&rights), false, false)?;
                close(&back, &y.matmul(&chosen)?)?;
            }
        }
        Ok(())
    })
}

#[test]
fn rows_of_half_units_are_decoded_and_multiplied_on_every_device() -> Result<()> {
    // Groups of nvfp4 are 16 weights, and kernels take 32.
    for (rows, width) in [(1, 16), (2, 48), (3, 80)] {
        let values = numbers(&[2, rows, width])?.to_vec::<f32>()?;
        let decode = |device: &Device, dtype: DType| {
            with_device(device, || {
                let w = Array::from_slice(&values, &[2, rows, width])?;
                dequantize(&quantize(&w, Scheme::Nvfp4)?, Some(dtype))
            })
        };
        for device in devices() {
            for dtype in [DType::F32, DType::BF16] {
                let want = decode(&Device::cpu(), dtype)?.to_bytes()?;
                assert!(decode(&device, dtype)?.to_bytes()? == want, "{dtype} on {device}");
            }
            with_device(&device, || half_units_multiply(rows, width))?;
        }
    }
    Ok(())
}

/// Products with nvfp4 weights of so many rows, by every kernel.
fn half_units_multiply(rows: usize, width: usize) -> Result<()> {
    let one = quantize(&numbers(&[rows, width])?, Scheme::Nvfp4)?;
    let dense = dequantize(&one, Some(DType::F32))?;
    // One row, some, and so many that they are tiles. A row that is not finite is nobody else's.
    for m in [1, 3, 40] {
        let mut values = numbers(&[m, width])?.to_vec::<f32>()?;
        if m > 1 {
            values[width..2 * width].fill(f32::NAN);
        }
        let x = Array::from_slice(&values, &[m, width])?;
        let y = quantized_matmul(&x, &one, true)?;
        let want = x.matmul(&dense.transpose()?)?;
        for row in (0..m as i64).filter(|&row| row != 1) {
            close(&y.index(row)?, &want.index(row)?)?;
        }
        let y = numbers(&[m, rows])?;
        close(&quantized_matmul(&y, &one, false)?, &y.matmul(&dense)?)?;
    }
    let several = quantize(&numbers(&[3, rows, width])?, Scheme::Nvfp4)?;
    let dense = dequantize(&several, Some(DType::F32))?;
    for products in [4i32, 20] {
        let indices: Vec<i32> = (0..products).map(|i| i % 3).collect();
        let indices = Array::from_slice(&indices, &[products as usize])?;
        let chosen = dense.take(&indices, Some(0))?;
        let x = numbers(&[products as usize, 2, width])?;
        let y = gather_qmm(&x, &several, None, Some(&indices), true, false)?;
        close(&y, &x.matmul(&chosen.swapaxes(1, 2)?)?)?;
        let back = gather_qmm(&y, &several, None, Some(&indices), false, false)?;
        close(&back, &y.matmul(&chosen)?)?;
    }
    Ok(())
}

#[test]
fn decoding_is_the_same_on_all_devices() -> Result<()> {
    for scheme in schemes() {
        for dtype in [DType::F32, DType::BF16] {
            let decode = |device: &Device| {
                with_device(device, || {
                    dequantize(&weights(scheme, &[70, 256])?, Some(dtype))?.to_bytes()
                })
            };
            let want = decode(&Device::cpu())?;
            for device in devices() {
                assert!(decode(&device)? == want, "{scheme} {dtype} on {device}");
            }
        }
    }
    Ok(())
}

#[test]
fn infinities_and_nan_are_encoded_alike_on_all_devices() -> Result<()> {
    // Not both infinities: what lies in the middle between them lies between two codes.
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = numbers(&[2, 128])?.to_vec::<f32>()?;
        values[70] = special;
        for scheme in schemes().into_iter().filter(|scheme| scheme.bits().is_some()) {
            let encode = |device: &Device| {
                with_device(device, || {
                    let q = quantize(&Array::from_slice(&values, &[2, 128])?, scheme)?;
                    q.arrays().iter().map(Array::to_bytes).collect::<Result<Vec<_>>>()
                })
            };
            let want = encode(&Device::cpu())?;
            for device in devices() {
                assert!(encode(&device)? == want, "{special} in {scheme} on {device}");
            }
        }
    }
    Ok(())
}

#[test]
fn blocks_may_begin_at_any_byte() -> Result<()> {
    on_devices(|| {
        let w = weights(Format::Q4_0.into(), &[4, 64])?;
        let bytes = w.codes().to_vec::<u8>()?;
        for offset in 1..4 {
            let longer = [vec![9; offset], bytes.clone()].concat();
            let longer = Array::from_slice(&longer, &[longer.len()])?;
            let part = crate::slice(&longer, &[offset], &[longer.size()], &[1])?;
            let moved = Quantized::new(Format::Q4_0, &part.reshape(&[4, 36])?, None, None)?;
            let same = dequantize(&moved, None)?.to_vec::<f32>()?;
            assert_eq!(same, dequantize(&w, None)?.to_vec::<f32>()?);
        }
        Ok(())
    })
}

#[test]
fn dtypes_follow_mlx() -> Result<()> {
    let w = numbers(&[2, 64])?;
    let affine = quantize(&w.astype(DType::BF16)?, Scheme::new("affine", None, None)?)?;
    assert_eq!(affine.scales().map(Array::dtype), Some(DType::BF16));
    assert_eq!(dequantize(&affine, None)?.dtype(), DType::BF16);
    let float = quantize(&w, Scheme::Mxfp8)?;
    assert_eq!(dequantize(&float, None)?.dtype(), DType::BF16);
    let half = numbers(&[1, 64])?.astype(DType::F16)?;
    assert_eq!(quantized_matmul(&half, &affine, true)?.dtype(), DType::F32);
    assert_eq!(quantized_matmul(&half, &float, true)?.dtype(), DType::F16);
    Ok(())
}

#[test]
fn rows_by_index_are_rows_of_the_decoded_matrix() -> Result<()> {
    on_devices(|| {
        let indices = Array::new([[3, 0], [1, 3]])?;
        for scheme in schemes() {
            let w = weights(scheme, &[4, 256])?;
            let dense = dequantize(&w, Some(DType::F32))?.take(&indices, Some(0))?;
            let want = dense.to_vec::<f32>()?;
            assert!(want[..256] != want[256..512], "{scheme}");
            let rows = w.take(&indices, DType::F32)?;
            assert_eq!((rows.shape(), rows.to_vec::<f32>()?), (&[2, 2, 256][..], want), "{scheme}");
        }
        Ok(())
    })
}

/// Whether there is an encoder.
fn encodes(scheme: &Scheme) -> bool {
    !matches!(scheme, Scheme::Blocks(format) if !format.encodes())
}

/// What encoding and decoding on the CPU makes of weights.
fn rounded_on_cpu(w: &Array, scheme: Scheme) -> Result<Array> {
    let w = crate::to_device(w, &Device::cpu())?;
    dequantize(&quantize(&w, scheme)?, Some(w.dtype()))
}

#[test]
fn what_does_not_fit_is_an_error() -> Result<()> {
    let says = |result: Result<()>, words: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    };
    for (mode, group, bits, words) in [
        ("affine", Some(16), None, "group_size: expected one of 32, 64, 128, got 16"),
        ("affine", None, Some(7), "bits: expected one of 1, 2, 3, 4, 5, 6, 8, got 7"),
        ("mxfp4", None, Some(3), "bits: expected 4 for mxfp4, got 3"),
        ("nvfp4", Some(32), None, "group_size: expected 16 for nvfp4, got 32"),
        ("xyz", None, None, "mode: expected affine, mxfp4, mxfp8 or nvfp4, got xyz"),
    ] {
        says(Scheme::new(mode, group, bits).map(|_| ()), words);
    }
    let affine = Scheme::new("affine", None, None)?;
    let quantized = |w: Array, scheme: Scheme| quantize(&w, scheme).map(|_| ());
    says(quantized(numbers(&[3, 96])?, affine), "the last a multiple of 64, got [3, 96]");
    says(quantized(numbers(&[64])?, affine), "two axes or more");
    says(quantized(Array::ones(&[2, 64], DType::I32)?, affine), "dtype");
    says(quantized(numbers(&[2, 256])?, Format::IQ2_S.into()), "IQ2_S");
    let q = quantize(&numbers(&[2, 64])?, affine)?;
    let (codes, scales, biases) = (q.codes(), q.scales(), q.biases());
    let new = |codes: &Array, scales: Option<&Array>, biases: Option<&Array>| {
        Quantized::new(affine, codes, scales, biases).map(|_| ())
    };
    says(new(codes, scales, None), "biases: expected an array for affine of 4 bits");
    says(new(codes, Some(&numbers(&[2, 2])?), biases), "scales: expected shape [2, 1]");
    says(new(codes, Some(&numbers(&[2, 1])?.astype(DType::F16)?), biases), "biases");
    says(new(&numbers(&[2, 8])?, scales, biases), "codes: expected dtype uint32");
    let truncated = Array::from_slice(&[0u8; 35], &[1, 35])?;
    let blocks = Quantized::new(Format::Q4_0, &truncated, None, None).map(|_| ());
    says(blocks, "a last axis that is a multiple of 18, as Q4_0 has, got [1, 35]");
    let product = |x: Array| quantized_matmul(&x, &q, true).map(|_| ());
    says(product(numbers(&[3, 32])?), "a last axis of 64, for weights of [2, 64], got [3, 32]");
    // Beside scales of floats integers become floats, as in MLX; blocks have none.
    let integers = Array::ones(&[3, 64], DType::I32)?;
    assert_eq!(quantized_matmul(&integers, &q, true)?.dtype(), DType::F32);
    let blocks = quantize(&numbers(&[2, 64])?, Format::Q4_0)?;
    says(quantized_matmul(&integers, &blocks, true).map(|_| ()), "a floating-point type");
    Ok(())
}

#[test]
fn indices_out_of_range_are_errors() -> Result<()> {
    on_devices(|| {
        let w = weights(Format::Q8_0.into(), &[3, 4, 32])?;
        let x = numbers(&[2, 1, 32])?;
        for (name, lhs, rhs) in [("lhs_indices", [0, 2], [1, 1]), ("rhs_indices", [0, 1], [1, -1])]
        {
            let (lhs, rhs) = (Array::new(lhs)?, Array::new(rhs)?);
            let y = gather_qmm(&x, &w, Some(&lhs), Some(&rhs), true, false)?;
            match y.to_vec::<f32>() {
                Err(Error::Index { op: "gather_qmm", argument, .. }) => assert_eq!(argument, name),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    })
}

/// Weights as their scales say, which narrow ones would have rounded.
fn decoded(w: &Quantized) -> Result<Array> {
    let single = |array: &Array| array.astype(DType::F32);
    match (w.scales(), w.biases()) {
        (Some(scales), Some(biases)) => {
            let (scales, biases) = (single(scales)?, single(biases)?);
            let wide = Quantized::new(w.scheme(), w.codes(), Some(&scales), Some(&biases))?;
            dequantize(&wide, None)
        }
        _ => dequantize(w, Some(DType::F32)),
    }
}

/// What a product should be, in doubles of the decoded weights, and its largest magnitude.
fn in_doubles(x: &Array, w: &Quantized) -> Result<(Vec<f64>, f64)> {
    let (x, w) = (x.astype(DType::F64)?, decoded(w)?.astype(DType::F64)?);
    let y = x.matmul(&w.swapaxes(-1, -2)?)?.to_vec::<f64>()?;
    let largest = y.iter().fold(0.0f64, |most, y| most.max(y.abs()));
    Ok((y, largest))
}

/// The largest difference as a part of the largest result.
fn difference(y: &Array, x: &Array, w: &Quantized) -> Result<f64> {
    let (want, largest) = in_doubles(x, w)?;
    let got = y.astype(DType::F64)?.to_vec::<f64>()?;
    Ok(worst(got.iter().zip(&want).map(|(a, b)| (a - b).abs())) / largest)
}

/// Numbers between -1 and 1 that look random.
fn noise(mut seed: u64, count: usize) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Numbers that look random, one of which stands out.
fn activations_of(shape: &[usize]) -> Result<Array> {
    let mut values = noise(7, shape.iter().product());
    values[shape[shape.len() - 1] / 3] = 100.0;
    Array::from_slice(&values, shape)
}

/// Weights that look random, none of which stands out, with scales as models have them. (Products of what is in
/// single precision are sums of floats.)
fn even_weights(scheme: Scheme, shape: &[usize]) -> Result<Quantized> {
    match scheme {
        Scheme::Blocks(format) if !format.encodes() => weights(scheme, shape),
        _ => {
            let w = Array::from_slice(&noise(11, shape.iter().product()), shape)?;
            quantize(&w.astype(DType::BF16)?, scheme)
        }
    }
}

#[test]
fn the_level_is_chosen_where_a_product_is_called() -> Result<()> {
    use crate::quant::{Activations, with_activations};
    with_device(&Device::cpu(), || {
        let w = weights(Format::Q8_0.into(), &[16, 512])?;
        let x = activations_of(&[1, 512])?;
        let product = || quantized_matmul(&x, &w, true);
        let (exact, fast) = (product()?, with_activations(Activations::Fast, product)?);
        let [exact, fast] = [difference(&exact, &x, &w)?, difference(&fast, &x, &w)?];
        assert!(exact < 1e-4 && fast > 2.0 * exact && fast < 2e-2, "{exact}, {fast}");
        // A plan keeps what it was recorded with.
        let plan = crate::compile(|x: &[Array]| Ok(vec![quantized_matmul(&x[0], &w, true)?]));
        let call = || plan.call(std::slice::from_ref(&x)).map(|mut y| y.remove(0));
        let recorded = with_activations(Activations::Fast, call)?;
        assert_eq!(difference(&recorded, &x, &w)?, fast);
        assert_eq!(difference(&call()?, &x, &w)?, fast);
        assert_eq!(plan.stats().traces, 1);
        Ok(())
    })
}

#[test]
fn narrow_activations_are_multiplied_as_the_wide_ones_they_are() -> Result<()> {
    with_device(&Device::cpu(), || {
        let w = weights(Format::Q4_K.into(), &[33, 512])?;
        for dtype in [DType::F16, DType::BF16] {
            for rows in [1, 5] {
                let x = activations_of(&[rows, 512])?.astype(dtype)?;
                let wide = quantized_matmul(&x.astype(DType::F32)?, &w, true)?;
                let narrow = quantized_matmul(&x, &w, true)?;
                assert_eq!(narrow.dtype(), dtype);
                assert_eq!(narrow.to_bytes()?, wide.astype(dtype)?.to_bytes()?);
            }
        }
        Ok(())
    })
}

#[test]
fn experts_multiply_as_single_matrices_do() -> Result<()> {
    with_device(&Device::cpu(), || {
        let w = weights(Scheme::Affine { group_size: 32, bits: 4 }, &[5, 40, 128])?;
        let x = activations_of(&[3, 2, 128])?;
        let (lhs, rhs) = ([2, 0, 1, 2, 0, 0, 1], [4, 1, 4, 0, 4, 1, 2]);
        let indices = |i: [i32; 7]| Array::new(i);
        let y = gather_qmm(&x, &w, Some(&indices(lhs)?), Some(&indices(rhs)?), true, false)?;
        for (i, (left, right)) in lhs.into_iter().zip(rhs).enumerate() {
            let one = |array: &Array, at: i32| take(array, &Array::new([at])?, Some(0));
            let want = quantized_matmul(&one(&x, left)?, &w.each(|a| one(a, right))?, true)?;
            assert_eq!(one(&y, i as i32)?.to_vec::<f32>()?, want.to_vec::<f32>()?, "{i}");
        }
        Ok(())
    })
}

/// The same weights, with a scale of row 2 that is infinite, or NaN if there is no infinite one.
fn damaged(w: &Quantized) -> Result<Quantized> {
    let scheme = w.scheme();
    let damaged_bytes = |array: &Array, byte: usize, damage: &[u8]| {
        let mut bytes = array.to_vec::<u8>()?;
        let at = 2 * array.shape()[1] + byte;
        bytes[at..at + damage.len()].copy_from_slice(damage);
        Array::from_slice(&bytes, array.shape())
    };
    match (scheme, w.scales(), w.biases()) {
        (Scheme::Affine { .. }, Some(scales), biases) => {
            let mut numbers = scales.astype(DType::F32)?.to_vec::<f32>()?;
            numbers[2 * scales.shape()[1] + 1] = f32::INFINITY;
            let numbers = Array::from_slice(&numbers, scales.shape())?.astype(scales.dtype())?;
            Quantized::new(scheme, w.codes(), Some(&numbers), biases)
        }
        (_, Some(scales), _) => {
            let byte = if scheme == Scheme::Nvfp4 { 0x7f } else { 0xff };
            Quantized::new(scheme, w.codes(), Some(&damaged_bytes(scales, 1, &[byte])?), None)
        }
        // These formats begin with a number of half precision.
        _ => Quantized::new(scheme, &damaged_bytes(w.codes(), 0, &[0x00, 0x7c])?, None, None),
    }
}

#[test]
fn what_is_not_finite_reaches_the_results_it_has_part_in_and_no_others() -> Result<()> {
    let affine = Scheme::Affine { group_size: 64, bits: 4 };
    let blocks = [Format::Q4_0, Format::Q8_0, Format::Q4_K, Format::IQ4_XS].map(Scheme::Blocks);
    let schemes = [&blocks[..], &[affine, Scheme::Mxfp4, Scheme::Mxfp8, Scheme::Nvfp4]].concat();
    on_devices(|| {
        // Below and above the size from which on products are those of integers, few rows and many.
        for (scheme, columns) in schemes.iter().flat_map(|&s| [(s, 256), (s, 4096)]) {
            let w = even_weights(scheme, &[24, columns])?;
            for (rows, special) in [(2, f32::NAN), (2, f32::INFINITY), (9, f32::NEG_INFINITY)] {
                let name = format!("{scheme}, {rows} of {columns}, {special}");
                let mut x = noise(3, rows * columns);
                let sound = Array::from_slice(&x, &[rows, columns])?;
                let y = quantized_matmul(&sound, &damaged(&w)?, true)?.to_vec::<f32>()?;
                for (i, y) in y.iter().enumerate() {
                    assert_eq!(y.is_finite(), i % 24 != 2, "{name}: {y} at {i} of weights");
                }
                x[columns + 77] = special;
                let x = Array::from_slice(&x, &[rows, columns])?;
                let y = quantized_matmul(&x, &w, true)?.to_vec::<f32>()?;
                for (i, y) in y.iter().enumerate() {
                    assert_eq!(y.is_finite(), i / 24 != 1, "{name}: {y} at {i}");
                }
            }
        }
        Ok(())
    })
}

#[test]
fn a_fake_quantization_is_finite_where_weights_are_not() -> Result<()> {
    let mut values = noise(5, 64);
    (values[3], values[40], values[41]) = (f32::NAN, f32::INFINITY, -0.0);
    on_devices(|| {
        let w = Array::from_slice(&values, &[1, 64])?;
        for scheme in [Scheme::Affine { group_size: 32, bits: 4 }, Scheme::Mxfp8] {
            let rounded = fake_quantize(&w, scheme)?;
            let want = rounded_on_cpu(&w, scheme)?;
            assert_eq!(rounded.to_bytes()?, want.to_bytes()?, "{scheme}");
            assert!(rounded.to_vec::<f32>()?.iter().all(|w| w.is_finite()), "{scheme}");
            let sum = grad(move |w: &[Array]| fake_quantize(&w[0], scheme)?.sum(()));
            assert_eq!(sum(std::slice::from_ref(&w))?[0].to_vec::<f32>()?, [1.0; 64]);
        }
        Ok(())
    })
}

#[test]
fn infinities_among_activations_come_through() -> Result<()> {
    with_device(&Device::cpu(), || {
        let w = quantize(&Array::ones(&[2, 64], DType::F32)?, Format::Q8_0)?;
        let mut x = [1.0f32; 64];
        x[5] = f32::INFINITY;
        let y = quantized_matmul(&Array::from_slice(&x, &[1, 64])?, &w, true)?;
        assert_eq!(y.to_vec::<f32>()?, [f32::INFINITY; 2]);
        // Numbers that are too small to be rounded are multiplied as floats.
        let y = quantized_matmul(&Array::from_slice(&[1e-36f32; 64], &[1, 64])?, &w, true)?;
        assert!((y.to_vec::<f32>()?[0] / 64e-36 - 1.0).abs() < 1e-2);
        Ok(())
    })
}

#[test]
fn indices_into_nothing_are_refused() -> Result<()> {
    on_devices(|| {
        let scheme = Scheme::Affine { group_size: 32, bits: 4 };
        let op =
            GatherQmm { scheme, transpose: true, activations: crate::quant::Activations::Exact };
        // As many indices as are sorted first, and as few as are not.
        for count in [1, 300] {
            let indices = Array::zeros(&[count], DType::U32)?;
            for (lefts, experts, name) in [(2, 0, "rhs_indices"), (0, 2, "lhs_indices")] {
                let x = Array::zeros(&[lefts, 1, 32], DType::F32)?;
                let codes = Array::zeros(&[experts, 4, 4], DType::U32)?;
                let scales = Array::zeros(&[experts, 4, 1], DType::F32)?;
                let inputs = [&x, &codes, &scales, &scales, &indices, &indices];
                let error = Array::apply(op, &inputs).unwrap_err().to_string();
                assert!(error.contains(name) && error.ends_with(&count.to_string()), "{error}");
            }
        }
        Ok(())
    })
}

#[test]
fn memory_that_cannot_be_had_is_an_error() {
    let error = cpu::zeros::<f32>(usize::MAX / 8).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

#[test]
fn what_a_compiled_function_cannot_encode_on_a_gpu_is_an_error_that_names_it() -> Result<()> {
    for device in devices().into_iter().filter(Device::is_gpu) {
        with_device(&device, || {
            let w = numbers(&[2, 256])?;
            let blocks = |w: &[Array]| Ok(quantize(&w[0], Format::Q4_K)?.arrays().to_vec());
            let rounded = |w: &[Array]| Ok(vec![fake_quantize(&w[0], Format::Q4_K)?]);
            let errors = [
                crate::compile(blocks).call(&[w.clone()]).unwrap_err(),
                crate::compile(rounded).call(&[w.clone()]).unwrap_err(),
            ];
            for error in errors.map(|error| error.to_string()) {
                assert!(error.contains("a result of quantize on cpu"), "{error}");
            }
            // Words are encoded where they are.
            let words = |w: &[Array]| Ok(vec![fake_quantize(&w[0], Scheme::Mxfp4)?]);
            let rounded = crate::compile(words).call(&[w.clone()])?;
            let want = rounded_on_cpu(&w, Scheme::Mxfp4)?;
            assert_eq!(rounded[0].to_bytes()?, want.to_bytes()?);
            Ok(())
        })?;
    }
    Ok(())
}
