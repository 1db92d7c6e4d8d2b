//! What MLX gives for sorting and searching.

use super::*;
use crate::device::Device;

/// The CPU, and a GPU where there is one.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    #[cfg(feature = "gpu")]
    match Device::gpu_with(0, &Default::default()) {
        Ok(gpu) => devices.push(gpu),
        Err(error) if std::env::var_os("CI").is_none() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}

#[test]
fn nan_sorts_last_and_zeros_are_equal() -> Result<()> {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for device in devices() {
        let values = [3.0, nan, -1.0, inf, 0.0, -0.0, -nan, -inf, 1e-40, -1e-40];
        let x = Array::from_slice_on(&values, &[10], &device)?;
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = astype(&x, dtype)?;
            let order = argsort(&x, -1)?.to_vec::<u32>()?;
            // The tiny numbers are zeros in half precision, and so keep their place among them.
            let expected: &[u32] = match dtype {
                DType::F16 => &[7, 2, 4, 5, 8, 9, 0, 3, 1, 6],
                _ => &[7, 2, 9, 4, 5, 8, 0, 3, 1, 6],
            };
            assert_eq!(order, expected, "{device} {dtype}");
        }
        let sorted = sort(&x, -1)?.to_vec::<f32>()?;
        assert_eq!(sorted[..2], [-inf, -1.0], "{device}");
        assert!(sorted[3].is_sign_positive() && sorted[4].is_sign_negative(), "{device}");
        assert!(sorted[8].is_nan() && sorted[9].is_nan(), "{device}");
    }
    Ok(())
}

#[test]
fn long_rows_sort_stably() -> Result<()> {
    let (rows, length) = (3usize, 2311usize);
    let values: Vec<i64> = (0..rows * length).map(|i| ((i * 7919) % 101) as i64 - 50).collect();
    let mut expected = Vec::new();
    for row in values.chunks(length) {
        let mut order: Vec<u32> = (0..length as u32).collect();
        order.sort_by_key(|&i| row[i as usize]);
        expected.extend(order);
    }
    for device in devices() {
        let x = Array::from_slice_on(&values, &[rows, length], &device)?;
        for dtype in [DType::I64, DType::I8, DType::I16, DType::F16, DType::F32] {
            let order = argsort(&astype(&x, dtype)?, 1)?;
            assert_eq!(order.to_vec::<u32>()?, expected, "{device} {dtype}");
        }
    }
    Ok(())
}

#[test]
fn shapes_and_arguments_are_checked_as_mlx_does() -> Result<()> {
    let scalar = Array::scalar(3, DType::I32)?;
    assert!(sort(&scalar, -1).is_err());
    assert_eq!(sort(&scalar, ())?.to_vec::<i32>()?, [3]);
    let empty = Array::zeros(&[2, 0], DType::F32)?;
    assert_eq!(argsort(&empty, -1)?.shape(), [2, 0]);
    let x = Array::new([3, 1, 2])?;
    assert!(topk(&x, 5, -1).is_err());
    assert_eq!(topk(&x, 0, -1)?.shape(), [0]);
    assert!(partition(&x, 3, -1).is_err() && partition(&x, -4, -1).is_err());
    assert_eq!(argpartition(&x, -1, -1)?.to_vec::<u32>()?, [1, 2, 0]);
    let truth = Array::new([true, false, true])?;
    assert_eq!(argsort(&truth, -1)?.to_vec::<u32>()?, [1, 0, 2]);
    Ok(())
}

#[test]
fn searchsorted_as_mlx() -> Result<()> {
    for device in devices() {
        let sorted = Array::from_slice_on(&[1, 2, 2, 3], &[4], &device)?;
        let values = Array::from_slice_on(&[2, 0, 9], &[3], &device)?;
        let run = |side| searchsorted(&sorted, &values, side)?.to_vec::<u32>();
        assert_eq!(run(Side::Left)?, [1, 0, 4], "{device}");
        assert_eq!(run(Side::Right)?, [3, 0, 4], "{device}");
        let half = Array::from_slice_on(&[2.5f32], &[], &device)?;
        assert_eq!(searchsorted(&sorted, &half, Side::Left)?.item::<u32>()?, 3);
        let sorted = Array::from_slice_on(&[1.0, f32::NAN], &[2], &device)?;
        let values = Array::from_slice_on(&[f32::NAN, 2.0], &[2], &device)?;
        assert_eq!(searchsorted(&sorted, &values, Side::Left)?.to_vec::<u32>()?, [1, 1]);
        let nothing = Array::from_slice_on::<f32>(&[], &[0], &device)?;
        assert_eq!(searchsorted(&nothing, &values, Side::Left)?.to_vec::<u32>()?, [0, 0]);
        assert!(searchsorted(&half, &values, Side::Left).is_err());
    }
    Ok(())
}
