//! What MLX gives for sorting and searching.

use super::*;
use crate::testing::devices;

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

#[test]
fn median_as_mlx() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&[3, 1, 2, 4, 9, 8], &[2, 3], &device)?;
        let rows = median(&x, 1, true)?;
        assert_eq!((rows.shape(), rows.to_vec::<f32>()?), (&[2, 1][..], vec![2.0, 8.0]));
        assert_eq!(median(&x, [0, 1], false)?.item::<f32>()?, 3.5);
        let x = Array::from_slice_on(&[3.0, f32::NAN, 2.0], &[3], &device)?;
        assert!(median(&x, (), false)?.item::<f32>()?.is_nan());
    }
    assert!(median(&Array::zeros(&[0], DType::F32)?, (), false).is_err());
    let x = Array::new([1.0f32, 3.0, 2.0, 5.0])?;
    let gradient = crate::grad(|x: &[Array]| median(&x[0], (), false))(&[x])?;
    assert_eq!(gradient[0].to_vec::<f32>()?, [0.0, 0.5, 0.5, 0.0]);
    Ok(())
}

#[test]
fn unique_as_mlx() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&[3, 1, 3, 2], &[4], &device)?;
        let found = unique(&x, 6, Some(9.into()))?;
        assert_eq!(found.values.to_vec::<i32>()?, [1, 2, 3, 9, 9, 9]);
        assert_eq!(found.index.to_vec::<u32>()?, [1, 3, 0, 1, 1, 1]);
        assert_eq!(found.inverse.to_vec::<u32>()?, [2, 0, 2, 1]);
        assert_eq!(found.counts.to_vec::<i32>()?, [1, 1, 2, 0, 0, 0]);
        let cut = unique(&x, 2, None)?;
        assert_eq!(cut.values.to_vec::<i32>()?, [1, 2]);
        assert_eq!(cut.inverse.to_vec::<u32>()?, [1, 0, 1, 1]);
        let nan = f32::NAN;
        let x = Array::from_slice_on(&[3.0, nan, nan, 0.0], &[2, 2], &device)?;
        let found = unique(&x, 4, None)?;
        assert_eq!(found.index.to_vec::<u32>()?, [3, 0, 1, 2]);
        assert_eq!(found.inverse.to_vec::<u32>()?, [1, 2, 3, 0]);
        assert_eq!(found.inverse.shape(), [2, 2]);
    }
    let empty = Array::zeros(&[0], DType::I32)?;
    assert!(unique(&empty, 4, None).is_err());
    assert_eq!(unique(&empty, 2, Some(7.into()))?.values.to_vec::<i32>()?, [7, 7]);
    Ok(())
}

#[test]
fn gradients_of_sorting_go_back_to_their_elements() -> Result<()> {
    let x = Array::new([[1.0f32, 3.0, 2.0], [6.0, 5.0, 4.0]])?;
    let dy = Array::new([[10.0f32, 20.0, 30.0], [40.0, 50.0, 60.0]])?;
    let (_, dx) = crate::vjp(|x| Ok(vec![sort(&x[0], 1)?]), &[x.clone()], &[dy.clone()])?;
    assert_eq!(dx[0].to_vec::<f32>()?, [10.0, 30.0, 20.0, 60.0, 50.0, 40.0]);
    let (_, dx) = crate::vjp(|x| Ok(vec![sort(&x[0], 0)?]), &[x.clone()], &[dy.clone()])?;
    assert_eq!(dx[0].to_vec::<f32>()?, dy.to_vec::<f32>()?);
    let ones = Array::ones(&[2, 1], DType::F32)?;
    let (_, dx) = crate::vjp(|x| Ok(vec![topk(&x[0], 1, -1)?]), &[x], &[ones])?;
    assert_eq!(dx[0].to_vec::<f32>()?, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn rows_for_the_whole_team_sort_stably() -> Result<()> {
    // Longer than one thread's share, not a multiple of anything, with equal elements and zeros of
    // both signs far apart.
    let length = 300_007usize;
    let value = |i: usize| match i % 1009 {
        0 => f32::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => f32::NEG_INFINITY,
        _ => ((i * 7919) % 65_521) as f32 / 16.0 - 2047.0,
    };
    let values: Vec<f32> = (0..length).map(value).collect();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::I8, DType::I32, DType::U64] {
        let x = Array::from_slice_on(&values, &[length], &crate::Device::cpu())?;
        let integer = !dtype.is_float();
        let x = if integer { where_finite(&x)? } else { x };
        let x = astype(&x, dtype)?;
        let numbers = astype(&x, DType::F64)?.to_vec::<f64>()?;
        let mut expected: Vec<u32> = (0..length as u32).collect();
        expected.sort_by(|&a, &b| {
            let (a, b) = (numbers[a as usize], numbers[b as usize]);
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        });
        for threads in [1, 2, 3] {
            crate::set_threads(threads);
            assert!(argsort(&x, -1)?.to_vec::<u32>()? == expected, "{dtype}, {threads} threads");
            let sorted = astype(&sort(&x, -1)?, DType::F64)?.to_vec::<f64>()?;
            let same = |(at, got): (&u32, &f64)| numbers[*at as usize].to_bits() == got.to_bits();
            assert!(expected.iter().zip(&sorted).all(same), "{dtype}, {threads} threads");
            let largest = astype(&topk(&x, 1000, -1)?, DType::F64)?.to_vec::<f64>()?;
            let equal = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(sorted[length - 1000..].iter().zip(&largest).all(equal), "{dtype}");
        }
        crate::set_threads(2);
    }
    Ok(())
}

/// With small numbers in place of those that integers do not have.
fn where_finite(x: &Array) -> Result<Array> {
    let finite = crate::ops::isfinite(x)?;
    crate::ops::abs(crate::ops::remainder(crate::ops::where_(&finite, x, 3.0f32)?, 100.0f32)?)
}

#[test]
fn the_largest_of_equal_elements_are_found() -> Result<()> {
    let same = crate::ops::full(&[200_000], 2.5f32, DType::F32)?;
    assert_eq!(topk(&same, 3, -1)?.to_vec::<f32>()?, [2.5; 3]);
    let rows = Array::new([[3.0f32, 1.0, 2.0], [9.0, 8.0, 7.0]])?;
    assert_eq!(topk(&rows, 2, -1)?.to_vec::<f32>()?, [2.0, 3.0, 8.0, 9.0]);
    assert_eq!(topk(&rows, 1, 0)?.to_vec::<f32>()?, [9.0, 8.0, 7.0]);
    Ok(())
}
