//! Products beside others have the bits that they have alone, and one launch makes them.

use super::{Factor, Gate, matmul_each, matmul_glu};
use crate::array::{Array, DType};
use crate::error::Result;
use crate::ops::{Quantized, matmul, quantize, quantized_matmul, swapaxes};
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
                let each = matmul_each(&x, &quantized.each_ref().map(Factor::Quantized))?;
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
fn activations_that_are_not_finite_are_multiplied_as_floats() -> Result<()> {
    let w = weights([320, 300, 300])?;
    let mut x = numbers(3, &[256])?.to_vec::<f32>()?;
    x[5] = f32::INFINITY;
    let x = Array::from_slice(&x, &[1, 256])?;
    let each = matmul_each(&x, &w.each_ref().map(Factor::Quantized))?;
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
                let y = matmul_glu(&x, Factor::Dense(&gate), Factor::Dense(&up), by)?;
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
            [Factor::Quantized(&w[0]), Factor::Quantized(&w[1]), Factor::Quantized(&w[2])];
        let before = gpu.counters().dispatches;
        crate::eval(&matmul_each(&x, &factors)?)?;
        assert_eq!(gpu.counters().dispatches - before, 1);
        let before = gpu.counters().dispatches;
        matmul_glu(&x, factors[0], Factor::Dense(&dense), Gate::Silu)?.eval()?;
        assert_eq!(gpu.counters().dispatches - before, 1);
        Ok(())
    })
}
