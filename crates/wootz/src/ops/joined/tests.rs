//! Products beside others have the bits that they have alone, and one launch makes them.

use super::{Factor, Gate, matmul_each, matmul_glu};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::{Quantized, add, addmm, matmul, quantize, quantized_matmul, swapaxes};
use crate::quant::{Format, Scheme};
use crate::testing::{devices, worst};
use crate::{Device, with_device};

fn numbers(seed: u64, shape: &[usize]) -> Result<Array> {
    let key = crate::random::key(seed)?;
    crate::random::normal(shape, DType::F32, 0.0, 1.0, Some(&key))
}

/// Matrices of so many rows of 256 weights in several formats, large enough for products of integers.
fn weights(rows: [usize; 3]) -> Result<[Quantized; 3]> {
    let made = |n: usize, scheme: Scheme| {
        // Blocks are encoded on the CPU.
        let array = with_device(&Device::cpu(), || numbers(n as u64, &[rows[n], 256]))?;
        quantize(&array, scheme)
    };
    Ok([
        made(0, Scheme::Blocks(Format::Q4_K))?,
        made(1, Scheme::Affine { group_size: 64, bits: 4 })?,
        made(2, Scheme::Blocks(Format::Q6_K))?,
    ])
}

fn on(w: &Quantized, device: &Device) -> Result<Quantized> {
    let arrays = w
        .arrays()
        .iter()
        .map(|array| crate::ops::to_device(array, device))
        .collect::<Result<Vec<_>>>()?;
    Quantized::new(w.scheme(), &arrays[0], arrays.get(1), arrays.get(2))
}

#[test]
fn products_beside_others_have_the_bits_of_products_alone() -> Result<()> {
    for device in devices() {
        for rows in [1, 2, 8] {
            with_device(&device, || {
                let quantized = weights([320, 11, 300])?;
                let quantized = [
                    on(&quantized[0], &device)?,
                    on(&quantized[1], &device)?,
                    on(&quantized[2], &device)?,
                ];
                let x = numbers(7, &[rows, 256])?;
                let each = matmul_each(&x, &quantized.each_ref().map(Factor::quantized))?;
                for (product, w) in each.iter().zip(&quantized) {
                    let alone = quantized_matmul(&x, w, true)?;
                    assert_eq!(
                        product.to_vec::<f32>()?,
                        alone.to_vec::<f32>()?,
                        "{rows} rows on {device}"
                    );
                }
                Ok::<(), crate::Error>(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn biases_are_added_as_the_sum_with_the_product_does() -> Result<()> {
    for device in devices() {
        for (dtype, rows) in [(DType::F32, 1), (DType::F16, 3), (DType::BF16, 8)] {
            with_device(&device, || {
                let [blocks, words, _] = weights([320, 70, 1])?;
                let quantized = [on(&blocks, &device)?, on(&words, &device)?];
                let narrow = |array: &Quantized| {
                    let arrays = array.arrays();
                    let part =
                        |index: usize| arrays.get(index).map(|a| a.astype(dtype)).transpose();
                    Quantized::new(array.scheme(), &arrays[0], part(1)?.as_ref(), part(2)?.as_ref())
                };
                let quantized = [narrow(&quantized[0])?, narrow(&quantized[1])?];
                let x = numbers(7, &[rows, 256])?.astype(dtype)?;
                let dense = numbers(8, &[33, 256])?.astype(dtype)?;
                let biases = [
                    numbers(9, &[320])?.astype(dtype)?,
                    numbers(10, &[70])?.astype(dtype)?,
                    numbers(11, &[33])?.astype(dtype)?,
                ];
                let factors = [
                    Factor::quantized(&quantized[0]).plus(&biases[0]),
                    Factor::quantized(&quantized[1]).plus(&biases[1]),
                    Factor::dense(&dense).plus(&biases[2]),
                ];
                let plain = [
                    Factor::quantized(&quantized[0]),
                    Factor::quantized(&quantized[1]),
                    Factor::dense(&dense),
                ];
                let (each, plain) = (matmul_each(&x, &factors)?, matmul_each(&x, &plain)?);
                for number in 0..2 {
                    let sum = add(&plain[number], &biases[number])?;
                    assert_eq!(each[number].dtype(), dtype);
                    let of = |y: &Array| y.astype(DType::F32)?.to_vec::<f32>();
                    assert_eq!(of(&each[number])?, of(&sum)?, "{dtype}, {rows} rows on {device}");
                }
                if !device.is_gpu() {
                    let sum = addmm(&biases[2], &x, &swapaxes(&dense, 0, 1)?, 1.0, 1.0)?;
                    let of = |y: &Array| y.astype(DType::F32)?.to_vec::<f32>();
                    assert_eq!(of(&each[2])?, of(&sum)?, "{dtype}, {rows} rows");
                }
                Ok::<(), crate::Error>(())
            })?;
        }
    }
    Ok(())
}

#[test]
fn biases_of_other_shapes_are_refused_and_wider_ones_promote() -> Result<()> {
    let (x, w) = (numbers(1, &[2, 16])?.astype(DType::F16)?, numbers(2, &[5, 16])?);
    let w = w.astype(DType::F16)?;
    let short = numbers(3, &[4])?;
    let error = matmul_each(&x, &[Factor::dense(&w).plus(&short)]).unwrap_err().to_string();
    assert!(error.contains("bias") && error.contains("[5]") && error.contains("[4]"), "{error}");
    let wide = numbers(3, &[5])?;
    assert_eq!(matmul_each(&x, &[Factor::dense(&w).plus(&wide)])?[0].dtype(), DType::F32);
    Ok(())
}

#[test]
fn activations_that_are_not_finite_are_multiplied_as_floats() -> Result<()> {
    let w = weights([320, 300, 300])?;
    let mut x = numbers(3, &[256])?.to_vec::<f32>()?;
    x[5] = f32::INFINITY;
    let x = Array::from_slice(&x, &[1, 256])?;
    let each = matmul_each(&x, &w.each_ref().map(Factor::quantized))?;
    for (product, w) in each.iter().zip(&w) {
        let alone = quantized_matmul(&x, w, true)?.to_vec::<f32>()?;
        let same = product
            .to_vec::<f32>()?
            .iter()
            .map(|x| x.to_bits())
            .eq(alone.iter().map(|x| x.to_bits()));
        assert!(same && alone.iter().any(|x| !x.is_finite()));
    }
    Ok(())
}

#[test]
fn a_gate_lets_through_what_the_composition_does() -> Result<()> {
    for device in devices() {
        with_device(&device, || {
            let (gate, up, x) =
                (numbers(1, &[70, 96])?, numbers(2, &[70, 96])?, numbers(3, &[3, 96])?);
            for by in [Gate::Silu, Gate::GeluTanh] {
                let y = matmul_glu(&x, Factor::dense(&gate), Factor::dense(&up), by)?;
                let product = |w: &Array| matmul(&x, &swapaxes(w, 0, 1)?);
                let expected = by.apply(&product(&gate)?, &product(&up)?)?;
                let off = y.to_vec::<f32>()?.into_iter().zip(expected.to_vec::<f32>()?);
                let off = worst(off.map(|(a, b)| ((a - b).abs() / (1.0 + b.abs())) as f64));
                assert!(off < 1e-5, "{by:?} on {device}: {off}");
            }
            Ok::<(), crate::Error>(())
        })?;
    }
    Ok(())
}

#[cfg(feature = "gpu")]
#[test]
fn one_launch_multiplies_with_all_matrices() -> Result<()> {
    let best = devices().iter().find_map(|device| Some(device.as_gpu()?.summary().index));
    let Some(index) = best else { return Ok(()) };
    // A device of its own, whose launches are this test's.
    let device = Device::gpu_with(index, &Default::default())?;
    let Some(gpu) = device.as_gpu() else { return Ok(()) };
    with_device(&device, || {
        let w = weights([20, 11, 30])?;
        let w = [on(&w[0], &device)?, on(&w[1], &device)?, on(&w[2], &device)?];
        let (x, dense) = (numbers(7, &[1, 256])?, numbers(8, &[20, 256])?);
        crate::eval(&[x.clone(), dense.clone()])?;
        for array in w.iter().flat_map(Quantized::arrays) {
            array.eval()?;
        }
        let factors =
            [Factor::quantized(&w[0]), Factor::quantized(&w[1]), Factor::quantized(&w[2])];
        let before = gpu.counters().dispatches;
        crate::eval(&matmul_each(&x, &factors)?)?;
        assert_eq!(gpu.counters().dispatches - before, 1);
        let before = gpu.counters().dispatches;
        matmul_glu(&x, factors[0], Factor::dense(&dense), Gate::Silu)?.eval()?;
        assert_eq!(gpu.counters().dispatches - before, 1);
        let bias = |number: usize| numbers(number as u64, &[[20, 11, 30][number]]);
        let biases = [bias(0)?, bias(1)?, bias(2)?];
        crate::eval(&biases)?;
        let biased = [0, 1, 2].map(|number| factors[number].plus(&biases[number]));
        let before = gpu.counters().dispatches;
        crate::eval(&matmul_each(&x, &biased)?)?;
        matmul_glu(&x, biased[0], Factor::dense(&dense).plus(&biases[0]), Gate::Silu)?.eval()?;
        assert_eq!(gpu.counters().dispatches - before, 2);
        Ok(())
    })
}
