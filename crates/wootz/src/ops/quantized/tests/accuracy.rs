//! How far products of rounded activations are from those in double precision.

use super::*;
use crate::quant::{Activations, with_activations};

#[test]
fn exact_products_are_within_a_ten_thousandth_of_the_largest() -> Result<()> {
    with_device(&Device::cpu(), || {
        // The longest rows of a usual model, of so many weights that products are those of integers, and short ones,
        // which are not.
        for (scheme, columns) in schemes().into_iter().flat_map(|s| [(s, 11008), (s, 512)]) {
            let w = even_weights(scheme, &[24, columns])?;
            for rows in [1, 3, 40] {
                let x = activations_of(&[rows, columns])?;
                let error = difference(&quantized_matmul(&x, &w, true)?, &x, &w)?;
                assert!(error <= 1e-4, "{scheme}, {rows} of {columns}: {error}");
            }
        }
        Ok(())
    })
}

/// Rounding activations to 16 bits shows as up to 8e-5 of the largest, which is too much for a model of many products.
#[test]
fn exact_products_of_single_precision_keep_its_digits() -> Result<()> {
    with_device(&Device::cpu(), || {
        let schemes = [
            Scheme::Mxfp4,
            Scheme::Mxfp8,
            Scheme::Nvfp4,
            Scheme::Affine { group_size: 64, bits: 4 },
        ];
        for scheme in schemes {
            let w = Array::from_slice(&noise(11, 24 * 11008), &[24, 11008])?;
            let w = quantize(&w, scheme)?;
            for rows in [1, 40] {
                let x = activations_of(&[rows, 11008])?;
                let error = difference(&quantized_matmul(&x, &w, true)?, &x, &w)?;
                assert!(error <= 3e-6, "{scheme}, {rows} rows: {error}");
            }
        }
        Ok(())
    })
}

/// `x[lhs] @ w[rhs].T` and its reference, in this order.
fn experts(x: &Array, w: &Quantized, products: usize) -> Result<(Array, Array)> {
    let indices = |count: usize| {
        let indices: Vec<i32> = (0..products).map(|i| (i * 7 / 2 % count) as i32).collect();
        Array::from_slice(&indices, &[products])
    };
    let (lhs, rhs) = (indices(x.shape()[0])?, indices(w.shape()[0])?);
    let y = gather_qmm(x, w, Some(&lhs), Some(&rhs), true, false)?;
    let (x, w) = (x.astype(DType::F64)?, decoded(w)?.astype(DType::F64)?);
    let w = w.take(&rhs, Some(0))?.swapaxes(-1, -2)?;
    Ok((y, x.take(&lhs, Some(0))?.matmul(&w)?))
}

/// The largest difference from the reference as a part of its largest number.
fn apart(y: &Array, want: &Array) -> Result<f64> {
    let (y, want) = (y.astype(DType::F64)?.to_vec::<f64>()?, want.to_vec::<f64>()?);
    let largest = want.iter().fold(0.0f64, |most, y| most.max(y.abs()));
    Ok(worst(y.iter().zip(&want).map(|(a, b)| (a - b).abs())) / largest)
}

#[test]
fn an_activation_that_stands_out_takes_no_digits_from_others_of_short_rows() -> Result<()> {
    let affine = |bits| Scheme::Affine { group_size: 32, bits };
    let blocks =
        [Format::Q4_0, Format::Q5_1, Format::Q8_0, Format::IQ4_NL, Format::Q4_K, Format::Q6_K];
    let schemes = blocks.map(Scheme::Blocks).into_iter().chain([affine(4), affine(8)]);
    with_device(&Device::cpu(), || {
        for (scheme, k) in schemes.flat_map(|s| [32, 64, 256, 512, 1024, 4096].map(|k| (s, k))) {
            if k % scheme.granule() != 0 {
                continue;
            }
            // So many weights that products are those of integers.
            let n = (1 << 16) / k + 8;
            // What the large activation is multiplied with, beside the others.
            for (seed, factor) in [(1, 1.0), (2, 1.0), (3, 0.1), (4, 0.1)] {
                let mut w = noise(seed, n * k);
                w.chunks_exact_mut(k).for_each(|row| row[k / 3] *= factor);
                let w = Array::from_slice(&w, &[n, k])?.astype(DType::BF16)?;
                let w = quantize(&w, scheme)?;
                for rows in [1, 3, 40] {
                    let mut x = noise(10 + seed, rows * k);
                    x.chunks_exact_mut(k).for_each(|row| row[k / 3] = 100.0);
                    let x = Array::from_slice(&x, &[rows, k])?;
                    let error = difference(&quantized_matmul(&x, &w, true)?, &x, &w)?;
                    let what = format!("{scheme}, {rows} of {k}, column times {factor}");
                    assert!(error <= 1e-4, "{what}: {error}");
                }
            }
        }
        Ok(())
    })
}

#[test]
fn experts_and_batches_are_as_near_as_single_matrices() -> Result<()> {
    let affine = |bits| Scheme::Affine { group_size: 64, bits };
    let blocks =
        [Format::Q4_0, Format::Q8_0, Format::IQ4_NL, Format::Q2_K, Format::Q4_K, Format::Q6_K];
    let schemes = blocks.map(Scheme::Blocks).into_iter().chain([affine(3), affine(4), affine(8)]);
    with_device(&Device::cpu(), || {
        for scheme in schemes {
            // So many weights that products are those of integers.
            let w = even_weights(scheme, &[3, 320, 256])?;
            for (level, most) in [(Activations::Exact, 1e-4), (Activations::Fast, 2e-2)] {
                let what = |kind: &str| format!("{kind} of {scheme} at {level}");
                let x = Array::from_slice(&noise(5, 5 * 2 * 256), &[5, 2, 256])?;
                for products in [4, 40] {
                    let (y, want) = with_activations(level, || experts(&x, &w, products))?;
                    let error = apart(&y, &want)?;
                    assert!(error <= most, "{}: {error}", what(&format!("{products} experts")));
                }
                for m in [1, 3, 40] {
                    let x = Array::from_slice(&noise(6, 3 * m * 256), &[3, m, 256])?;
                    let y = with_activations(level, || quantized_matmul(&x, &w, true))?;
                    let error = difference(&y, &x, &w)?;
                    assert!(error <= most, "{}: {error}", what(&format!("{m} rows")));
                }
            }
        }
        Ok(())
    })
}

#[test]
fn what_stands_out_in_one_row_changes_no_bit_of_another() -> Result<()> {
    with_device(&Device::cpu(), || {
        let w = even_weights(Scheme::Affine { group_size: 32, bits: 4 }, &[3, 320, 256])?;
        let calm = noise(5, 6 * 256);
        let mut wild = calm.clone();
        for (row, at) in [(0, 3), (0, 40), (2, 255), (5, 0), (5, 1)] {
            wild[row * 256 + at] = 100.0;
        }
        let rows = |values: &[f32]| Array::from_slice(values, &[6, 1, 256]);
        let (calm, wild) = (rows(&calm)?, rows(&wild)?);
        for products in [6, 60] {
            let bits = |x: &Array| experts(x, &w, products)?.0.to_vec::<f32>();
            let (calm, wild) = (bits(&calm)?, bits(&wild)?);
            for i in 0..products {
                let same = calm[i * 320..(i + 1) * 320] == wild[i * 320..(i + 1) * 320];
                assert_eq!(same, matches!(i * 7 / 2 % 6, 1 | 3 | 4), "{i} of {products}");
            }
        }
        Ok(())
    })
}
