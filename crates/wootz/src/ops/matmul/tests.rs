//! Shapes, dtypes, layouts and gradients of matrix products. Expected values are MLX's.

use super::*;
use crate::device::Device;
use crate::testing::devices;
use crate::{grad, ops, vjp};

/// Small integers, whose products are exact in every dtype.
fn numbers(shape: &[usize], seed: usize, device: &Device) -> Array {
    let size = shape.iter().product();
    let values: Vec<f32> = (0..size).map(|i| ((i * 7 + seed * 5) % 11) as f32 - 5.0).collect();
    Array::from_slice_on(&values, shape, device).unwrap()
}

/// The product by its definition.
fn naive(a: &Array, b: &Array) -> Vec<f32> {
    let plan = Plan::new("matmul", a.meta(), b.meta(), None).unwrap();
    let batch = &plan.output[..plan.output.len() - 2];
    let spread = |x: &Array| {
        let shape: Vec<usize> = batch.iter().chain(&x.shape()[x.rank() - 2..]).copied().collect();
        broadcast_to(x, &shape).unwrap().to_vec::<f32>().unwrap()
    };
    let (m, k, n) = (a.shape()[a.rank() - 2], a.shape()[a.rank() - 1], b.shape()[b.rank() - 1]);
    let (a, b) = (spread(a), spread(b));
    let count: usize = batch.iter().product();
    let mut out = Vec::new();
    for i in 0..count {
        for row in 0..m {
            for column in 0..n {
                let term = |j| a[(i * m + row) * k + j] * b[(i * k + j) * n + column];
                out.push((0..k).map(term).sum());
            }
        }
    }
    out
}

#[test]
fn products_of_every_layout_and_dtype_are_exact_for_small_integers() -> Result<()> {
    let shapes: &[(&[usize], &[usize])] = &[
        (&[1, 1], &[1, 1]),
        (&[3, 5], &[5, 7]),
        (&[33, 17], &[17, 31]),
        (&[70, 40], &[40, 66]),
        (&[1, 300], &[300, 9]),
        (&[1, 20], &[20, 130]),
        (&[9, 300], &[300, 1]),
        (&[130, 20], &[20, 1]),
        (&[2, 3, 4, 5], &[2, 3, 5, 2]),
        (&[2, 3, 5], &[5, 4]),
        (&[3, 5], &[4, 5, 2]),
        (&[2, 1, 3, 4], &[3, 4, 5]),
        (&[3, 1, 5], &[3, 5, 3]),
        (&[3, 0], &[0, 2]),
        (&[0, 3], &[3, 2]),
    ];
    for device in devices() {
        for &(a_shape, b_shape) in shapes {
            for layout in ["plain", "left transposed", "right transposed", "reversed", "sliced"] {
                let view = |shape: &[usize], seed: usize, transposed: bool| -> Result<Array> {
                    let mut stored = shape.to_vec();
                    let last = shape.len() - 1;
                    if transposed {
                        stored.swap(last - 1, last);
                        return swapped(&numbers(&stored, seed, &device));
                    }
                    let stop = shape.to_vec();
                    let zeros = vec![0; shape.len()];
                    let (mut start, mut step) = (zeros.clone(), vec![1; shape.len()]);
                    match layout {
                        "reversed" if !shape.contains(&0) => {
                            start[last] = shape[last] - 1;
                            step[last] = -1;
                            let mut stop = stop;
                            stop[last] = 0;
                            ops::slice(&numbers(shape, seed, &device), &start, &stop, &step)
                        }
                        "sliced" => {
                            let wide: Vec<usize> = shape.iter().map(|length| length + 2).collect();
                            let stop: Vec<usize> = shape.iter().map(|length| length + 1).collect();
                            start.fill(1);
                            ops::slice(&numbers(&wide, seed, &device), &start, &stop, &step)
                        }
                        _ => Ok(numbers(shape, seed, &device)),
                    }
                };
                let a = view(a_shape, 1, layout == "left transposed")?;
                let b = view(b_shape, 2, layout == "right transposed")?;
                let expected = naive(&a, &b);
                // A conversion makes row-major memory, so other dtypes say nothing of layouts.
                let dtypes = [DType::F32, DType::BF16, DType::F16];
                for dtype in dtypes.into_iter().take(if layout == "plain" { 3 } else { 1 }) {
                    let exact = match dtype {
                        DType::BF16 => 256.0,
                        DType::F16 => 2048.0,
                        _ => f32::MAX,
                    };
                    if expected.iter().any(|x| x.abs() > exact) {
                        continue;
                    }
                    let product = matmul(&astype(&a, dtype)?, &astype(&b, dtype)?)?;
                    assert_eq!(product.dtype(), dtype);
                    let got = astype(&product, DType::F32)?.to_vec::<f32>()?;
                    assert_eq!(got, expected, "{device} {dtype} {layout} {a_shape:?} {b_shape:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn shapes_follow_the_rules_for_vectors_and_batches() -> Result<()> {
    let cpu = Device::cpu();
    let shape = |a: &[usize], b: &[usize]| -> Result<Vec<usize>> {
        Ok(matmul(&numbers(a, 0, &cpu), &numbers(b, 1, &cpu))?.shape().to_vec())
    };
    assert_eq!(shape(&[2, 3], &[3])?, [2]);
    assert_eq!(shape(&[2], &[2, 3])?, [3]);
    assert_eq!(shape(&[3], &[3])?, [0usize; 0]);
    assert_eq!(shape(&[2, 2, 3], &[3])?, [2, 2]);
    assert_eq!(shape(&[2, 1, 2, 3], &[3, 3, 1])?, [2, 3, 2, 1]);
    assert_eq!(shape(&[3], &[4, 3, 2])?, [4, 2]);
    assert!(shape(&[], &[2, 3]).is_err());
    assert!(shape(&[2, 3], &[2, 3]).is_err());
    assert!(shape(&[2, 2, 3], &[3, 3, 1]).is_err());
    assert_eq!(matmul(&numbers(&[0], 0, &cpu), &numbers(&[0], 0, &cpu))?.item::<f32>()?, 0.0);
    Ok(())
}

#[test]
fn dtypes_are_promoted_and_integers_refused() -> Result<()> {
    let of = |dtype| Array::ones(&[2, 2], dtype);
    let both = |a, b| matmul(&of(a)?, &of(b)?);
    assert_eq!(both(DType::F16, DType::BF16)?.dtype(), DType::F32);
    assert_eq!(both(DType::F16, DType::I32)?.dtype(), DType::F16);
    assert_eq!(both(DType::I32, DType::F32)?.to_vec::<f32>()?, [2.0; 4]);
    assert!(matches!(both(DType::I32, DType::I32), Err(Error::Dtype { .. })));
    assert!(matches!(both(DType::Bool, DType::Bool), Err(Error::Dtype { .. })));
    Ok(())
}

#[test]
fn addmm_scales_and_broadcasts() -> Result<()> {
    let (a, b) = (Array::ones(&[2, 3], DType::F32)?, Array::ones(&[3, 2], DType::F32)?);
    let c = |shape: &[usize]| Array::ones(shape, DType::F32);
    for shape in [&[2, 2][..], &[2], &[]] {
        assert_eq!(addmm(&c(shape)?, &a, &b, 2.0, 3.0)?.to_vec::<f32>()?, [9.0; 4]);
    }
    assert!(addmm(&c(&[4, 2, 2])?, &a, &b, 1.0, 1.0).is_err());
    assert!(addmm(&c(&[3, 2])?, &a, &b, 1.0, 1.0).is_err());
    let vector = Array::ones(&[3], DType::F32)?;
    assert_eq!(addmm(&c(&[2])?, &a, &vector, 1.0, 1.0)?.to_vec::<f32>()?, [4.0; 2]);
    assert!(addmm(&c(&[2, 2])?, &a, &vector, 1.0, 1.0).is_err());
    let half = astype(&a, DType::F16)?;
    assert_eq!(addmm(&c(&[])?, &half, &astype(&b, DType::F16)?, 1.0, 1.0)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn gradients_of_vectors_and_shared_matrices_have_their_shapes() -> Result<()> {
    for device in devices() {
        let a = numbers(&[2, 3, 4], 1, &device);
        let b = numbers(&[4, 2], 2, &device);
        let dy = numbers(&[2, 3, 2], 3, &device);
        let (_, d) =
            vjp(|x| Ok(vec![matmul(&x[0], &x[1])?]), &[a.clone(), b.clone()], &[dy.clone()])?;
        let (a, b, dy) = (a.reshape(&[6, 4])?, b, dy.reshape(&[6, 2])?);
        assert_eq!(d[0].reshape(&[6, 4])?.to_vec::<f32>()?, naive(&dy, &swapped(&b)?));
        assert_eq!(d[1].to_vec::<f32>()?, naive(&swapped(&a)?, &dy));

        let x = Array::from_slice_on(&[1.0f32, 2.0, 3.0], &[3], &device)?;
        let d = grad(|x: &[Array]| matmul(&x[0], &x[0]))(&[x])?;
        assert_eq!(d[0].to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    }
    Ok(())
}

#[test]
fn second_derivatives_of_products_exist() -> Result<()> {
    // xᵀAx has the second derivative A + Aᵀ.
    let a = Array::new([[1.0f32, 2.0], [5.0, 3.0]])?;
    let first = |x: &[Array]| -> Result<Array> {
        let form = |x: &[Array]| matmul(&matmul(&x[0], &a)?, &x[0]);
        let slope = grad(form)(x)?;
        matmul(&slope[0], &Array::new([1.0f32, 10.0])?)
    };
    let second = grad(first)(&[Array::new([0.3f32, 0.7])?])?;
    assert_eq!(second[0].to_vec::<f32>()?, [72.0, 67.0]);
    Ok(())
}

#[test]
fn inner_outer_and_tensordot_agree_with_their_definitions() -> Result<()> {
    let cpu = Device::cpu();
    let (a, b) = (numbers(&[2, 3], 1, &cpu), numbers(&[4, 3], 2, &cpu));
    assert_eq!(inner(&a, &b)?.to_vec::<f32>()?, naive(&a, &b.transpose()?));
    assert_eq!(outer(&a, &b)?.shape(), [6, 12]);
    assert!(inner(&a, &numbers(&[4, 2], 1, &cpu)).is_err());
    let x = numbers(&[2, 3, 4], 1, &cpu);
    assert_eq!(tensordot(&x, &x.transpose()?, 1)?.shape(), [2, 3, 3, 2]);
    assert_eq!(tensordot(&x, &b, 0)?.shape(), [2, 3, 4, 4, 3]);
    let all = tensordot(&x, &x, 3)?;
    let squares: f32 = x.to_vec::<f32>()?.iter().map(|v| v * v).sum();
    assert_eq!(all.item::<f32>()?, squares);
    assert!(tensordot(&x, &b, 2).is_err());
    assert!(tensordot_axes(&x, &b, &[0, 0], &[0, 0]).is_err());
    Ok(())
}

#[test]
fn batches_of_many_axes_run_everywhere() -> Result<()> {
    for device in devices() {
        let axes: Vec<i64> = (0..8).rev().chain([8, 9]).collect();
        let mut shape = vec![2; 10];
        shape[3] = 1;
        let a = transpose_axes(&numbers(&shape, 1, &device), &axes)?;
        let b = numbers(&[2, 1, 2, 1, 2, 1, 2, 1, 2, 2], 2, &device);
        assert_eq!(matmul(&a, &b)?.to_vec::<f32>()?, naive(&a, &b), "{device}");
    }
    Ok(())
}

#[test]
fn addmm_rounds_once_and_does_not_look_at_what_is_multiplied_with_zero() -> Result<()> {
    for device in devices() {
        let (a, b) = (numbers(&[5, 3], 1, &device), numbers(&[3, 4], 2, &device));
        let product = naive(&a, &b);
        let nan = Array::from_slice_on(&[f32::NAN; 4], &[4], &device)?;
        assert_eq!(addmm(&nan, &a, &b, 1.0, 0.0)?.to_vec::<f32>()?, product, "{device}");
        let empty = (numbers(&[5, 0], 1, &device), numbers(&[0, 4], 1, &device));
        let c = numbers(&[5, 4], 3, &device);
        let twice: Vec<f32> = c.to_vec::<f32>()?.iter().map(|x| 2.0 * x).collect();
        assert_eq!(addmm(&c, &empty.0, &empty.1, 1.0, 2.0)?.to_vec::<f32>()?, twice, "{device}");

        // 1 + 2⁻⁸ is a tie that goes down to 1 in bf16; with 2⁻⁸ more it is a number.
        for columns in [1, 3] {
            let of = |values: &[f32], shape: &[usize]| {
                astype(&Array::from_slice_on(values, shape, &device)?, DType::BF16)
            };
            let a = of(&[1.0, 0.00390625, 1.0, 0.00390625], &[2, 2])?;
            let b = of(&vec![1.0; 2 * columns], &[2, columns])?;
            let sum = addmm(&of(&[0.00390625], &[1])?, &a, &b, 1.0, 1.0)?;
            let got = astype(&sum, DType::F32)?.to_vec::<f32>()?;
            assert_eq!(got, vec![1.0078125; 2 * columns], "{device}");
        }
    }
    Ok(())
}

#[test]
fn second_derivatives_of_addmm_exist() -> Result<()> {
    // 3·xᵀAx + 2·b·x has the second derivative 3·(A + Aᵀ).
    let a = Array::new([[1.0f32, 2.0], [5.0, 3.0]])?;
    let first = |x: &[Array]| -> Result<Array> {
        let form = |x: &[Array]| {
            let linear = matmul(&Array::new([4.0f32, 5.0])?, &x[0])?;
            addmm(&linear, &matmul(&x[0], &a)?, &x[0], 3.0, 2.0)
        };
        matmul(&grad(form)(x)?[0], &Array::new([1.0f32, 10.0])?)
    };
    let second = grad(first)(&[Array::new([0.3f32, 0.7])?])?;
    assert_eq!(second[0].to_vec::<f32>()?, [216.0, 201.0]);
    Ok(())
}

#[test]
fn layouts_of_a_batch_do_not_change_bits() -> Result<()> {
    for device in devices() {
        // Numbers whose products round, so that another order of sums shows.
        let values = |shape: &[usize], seed: f32| {
            let size: usize = shape.iter().product();
            let values: Vec<f32> = (0..size).map(|i| (i as f32 * 0.37 + seed).sin()).collect();
            Array::from_slice_on(&values, shape, &device)
        };
        for (m, n) in [(1, 7), (2, 7), (5, 1), (5, 19)] {
            let (a, b) = (values(&[3, 2, m, 530], 0.1)?, values(&[530, n], 0.2)?);
            let want = matmul(&a, &b)?.to_vec::<f32>()?;
            let turned = |x: &Array, axes: &[i64]| {
                transpose_axes(&transpose_axes(x, axes)?.contiguous()?, axes)
            };
            for axes in [[1, 0, 2, 3], [0, 2, 1, 3], [3, 1, 2, 0], [0, 1, 3, 2]] {
                let product = matmul(&turned(&a, &axes)?, &turned(&b, &[1, 0])?)?;
                assert_eq!(product.to_vec::<f32>()?, want, "{device} {m} {n} {axes:?}");
            }
            // A right side that is repeated in memory, and one that only seems to be.
            let spread = broadcast_to(&b, &[3, 2, 530, n])?;
            let want = matmul(&a, &spread.contiguous()?)?.to_vec::<f32>()?;
            assert_eq!(matmul(&a, &spread)?.to_vec::<f32>()?, want, "{device} {m} {n}");
        }
    }
    Ok(())
}

#[cfg(feature = "gpu")]
#[test]
fn kernels_with_cooperative_matrices_translate() {
    let texts = gpu::cooperative_texts();
    // Products, those with chosen matrices, and convolutions.
    assert_eq!(texts.len(), 18);
    for text in texts {
        crate::gpu::validate_wgsl(&text).unwrap();
        let msl = crate::gpu::to_msl(&text, false).unwrap().text;
        let factor = if text.contains("alias Factor = f16") { "half" } else { "float" };
        // Factors as they are, sums in float.
        assert!(msl.contains(&format!("simdgroup_{factor}8x8 a0_ = ")), "{msl}");
        assert!(msl.contains("simdgroup_float8x8 s00_ = "), "{msl}");
        assert!(msl.contains("simdgroup_multiply_accumulate"), "{msl}");
    }
}
