//! Chosen products: dtypes, defaults and errors; values as MLX gives them.

use crate::array::{Array, DType};
use crate::device::{Device, with_device};
use crate::error::{Error, Result};
use crate::ops::gather_mm;

fn numbers(shape: &[usize], dtype: DType) -> Result<Array> {
    let size: usize = shape.iter().product();
    let values: Vec<f32> = (0..size).map(|i| (i * 7 % 11) as f32 - 4.0).collect();
    Array::from_slice(&values, shape)?.astype(dtype)
}

#[test]
fn indices_that_are_not_given_choose_in_order() -> Result<()> {
    let (a, b) = (numbers(&[3, 1, 2], DType::F32)?, numbers(&[3, 2, 2], DType::F32)?);
    let chosen = gather_mm(&a, &b, None, Some(&Array::new([2, 2, 0])?), false)?;
    let same =
        gather_mm(&a, &b, Some(&Array::new([0u8, 1, 2])?), Some(&Array::new([2, 2, 0])?), true)?;
    assert_eq!(chosen.shape(), [3, 1, 2]);
    assert_eq!(chosen.to_vec::<f32>()?, same.to_vec::<f32>()?);
    let left = gather_mm(&a, &b, Some(&Array::new([[1u32], [0]])?), None, false)?;
    assert_eq!(left.shape(), [2, 3, 1, 2]);
    let plain = gather_mm(&a, &b, None, None, false)?;
    assert_eq!(plain.to_vec::<f32>()?, a.matmul(&b)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn vectors_are_rows_and_columns() -> Result<()> {
    let (row, b) = (Array::new([1.0f32, 2.0])?, numbers(&[3, 2, 4], DType::F32)?);
    let y = gather_mm(&row, &b, None, Some(&Array::new([1, 1])?), false);
    // MLX has one left matrix then, with an index of no axes.
    assert_eq!(y?.shape(), [2, 4]);
    let column = gather_mm(&b, &numbers(&[4], DType::F32)?, Some(&Array::new([2])?), None, false)?;
    assert_eq!(column.shape(), [1, 2]);
    Ok(())
}

#[test]
fn the_result_has_the_common_dtype() -> Result<()> {
    for (left, right, both) in [
        (DType::F16, DType::F16, DType::F16),
        (DType::F16, DType::BF16, DType::F32),
        (DType::BF16, DType::I32, DType::BF16),
    ] {
        let (a, b) = (numbers(&[2, 1, 2], left)?, numbers(&[2, 2, 2], right)?);
        let y = gather_mm(&a, &b, None, Some(&Array::new([1, 0])?), false)?;
        assert_eq!(y.dtype(), both);
    }
    let a = numbers(&[2, 1, 2], DType::I32)?;
    assert!(matches!(gather_mm(&a, &a, None, None, false), Err(Error::Dtype { .. })));
    Ok(())
}

/// Added one by one in bfloat16, ones come to no more than 256.
#[test]
fn gradients_of_a_matrix_in_many_products_are_rounded_once() -> Result<()> {
    const PRODUCTS: usize = 1000;
    for device in crate::testing::devices() {
        for dtype in [DType::F16, DType::BF16] {
            let ones =
                |shape: &[usize]| with_device(&device, || crate::ops::full(shape, 1.0, dtype));
            let lefts: Vec<u32> = (0..PRODUCTS as u32).map(|i| i % 2).collect();
            let lefts = Array::from_slice_on(&lefts, &[PRODUCTS], &device)?;
            let rights = Array::from_slice_on(&[0u32; PRODUCTS], &[PRODUCTS], &device)?;
            let product = |x: &[Array]| {
                Ok(vec![gather_mm(&x[0], &x[1], Some(&lefts), Some(&rights), false)?])
            };
            let x = [ones(&[2, 1, 3])?, ones(&[1, 3, 1])?];
            let (_, gradients) = crate::vjp(product, &x, &[ones(&[PRODUCTS, 1, 1])?])?;
            let left = gradients[0].astype(DType::F32)?.to_vec::<f32>()?;
            assert_eq!(left, [500.0; 6], "{dtype} on {device}");
        }
    }
    Ok(())
}

#[test]
fn more_products_than_turns_that_some_drivers_grant_a_thread_are_all_computed() -> Result<()> {
    const TOKENS: usize = 8192;
    const EACH: usize = 8;
    const EXPERTS: usize = 61;
    let left = |item: usize| item / EACH;
    let right = |item: usize| item * 37 % EXPERTS;
    let (a_of, b_of) = (|token: usize| (token % 5) as f32, |expert: usize| expert as f32 - 30.0);
    for device in crate::testing::devices() {
        let list = |x: Vec<f32>| Array::from_slice_on(&x, &[x.len(), 1, 1], &device);
        let places = |of: &dyn Fn(usize) -> usize| {
            let places: Vec<u32> = (0..TOKENS * EACH).map(|item| of(item) as u32).collect();
            Array::from_slice_on(&places, &[TOKENS, EACH], &device)
        };
        let a = list((0..TOKENS).map(a_of).collect())?;
        let b = list((0..EXPERTS).map(b_of).collect())?;
        let (lefts, rights) = (places(&left)?, places(&right)?);
        let products =
            |x: &[Array]| Ok(vec![gather_mm(&x[0], &x[1], Some(&lefts), Some(&rights), false)?]);
        let ones = Array::from_slice_on(&[1.0f32; TOKENS * EACH], &[TOKENS, EACH, 1, 1], &device)?;
        let (y, gradients) = crate::vjp(products, &[a, b], &[ones])?;
        let (mut of_a, mut of_b) = (vec![0.0; TOKENS], vec![0.0; EXPERTS]);
        for (item, y) in y[0].to_vec::<f32>()?.into_iter().enumerate() {
            assert_eq!(y, a_of(left(item)) * b_of(right(item)), "product {item} on {device}");
            of_a[left(item)] += b_of(right(item));
            of_b[right(item)] += a_of(left(item));
        }
        for (name, gradient, want) in [("a", &gradients[0], of_a), ("b", &gradients[1], of_b)] {
            for (i, (got, want)) in gradient.to_vec::<f32>()?.into_iter().zip(want).enumerate() {
                assert_eq!(got, want, "the gradient of {name} at {i} on {device}");
            }
        }
    }
    Ok(())
}

#[test]
fn indices_out_of_range_are_errors_with_the_numbers() -> Result<()> {
    let mut devices = vec![Device::cpu()];
    devices.extend(Device::gpu().ok());
    for device in devices {
        with_device(&device, || {
            let (a, b) = (numbers(&[5, 1, 2], DType::F32)?, numbers(&[3, 2, 2], DType::F32)?);
            // Few products, and many.
            for count in [4, 40] {
                for (argument, bad, length) in
                    [("rhs_indices", 3, 3), ("rhs_indices", -1, 3), ("lhs_indices", 9, 5)]
                {
                    let good = Array::from_slice(&vec![0; count], &[count])?;
                    let mut wrong = vec![1; count];
                    wrong[count - 2] = bad;
                    let wrong = Array::from_slice(&wrong, &[count])?;
                    let (lhs, rhs) =
                        if argument == "lhs_indices" { (&wrong, &good) } else { (&good, &wrong) };
                    let y = gather_mm(&a, &b, Some(lhs), Some(rhs), false)?;
                    match y.to_vec::<f32>() {
                        Err(Error::Index { op, argument: name, got, length: n }) => {
                            assert_eq!((op, &name[..], got), ("gather_mm", argument, bad as i64));
                            assert_eq!(n, length);
                        }
                        other => panic!("{device}: {argument} {bad}: {other:?}"),
                    }
                }
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

#[test]
fn shapes_and_dtypes_that_do_not_fit_are_errors() -> Result<()> {
    let (a, b) = (numbers(&[2, 1, 3], DType::F32)?, numbers(&[2, 2, 2], DType::F32)?);
    let index = Array::new([0])?;
    let wrong = gather_mm(&a, &b, None, Some(&index), false).map(|y| y.shape().to_vec());
    assert!(wrong.unwrap_err().to_string().contains("3 rows, as [2, 1, 3] has columns"));
    let index = Array::new([0.0f32])?;
    let wrong = gather_mm(&b, &b, Some(&index), None, false).map(|y| y.shape().to_vec());
    assert!(wrong.unwrap_err().to_string().contains("lhs_indices"));
    let none = numbers(&[0, 2, 2], DType::F32)?;
    let index = Array::new([0])?;
    assert!(gather_mm(&b, &none, None, Some(&index), false).is_err());
    Ok(())
}

#[test]
fn many_rows_of_many_experts_are_as_one_by_one() -> Result<()> {
    // Enough work that some experts are shared out over the team.
    let (tokens, experts, inner, outer) = (90, 3, 256, 512);
    let (a, b) =
        (numbers(&[tokens, 1, inner], DType::F32)?, numbers(&[experts, inner, outer], DType::F32)?);
    let which: Vec<u32> = (0..tokens as u32).map(|i| if i % 10 == 0 { i % 3 } else { 1 }).collect();
    let which = Array::from_slice(&which, &[tokens])?;
    let together = gather_mm(&a, &b, None, Some(&which), false)?.to_vec::<f32>()?;
    let chosen = b.take(&which, Some(0))?;
    // Whole numbers: sums are exact in any order.
    assert_eq!(together, a.matmul(&chosen)?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn narrow_indices_count_more_matrices_than_they_hold() -> Result<()> {
    // Numbers in order, of matrices or of products, are up to 199, which eight bits with a sign do not hold.
    let bytes: Vec<i8> = (0..200u8).map(|i| (i % 3) as i8).collect();
    let chosen = Array::from_slice(&bytes, &[200])?;
    let wide = chosen.astype(DType::I64)?;
    let (many, few) = (numbers(&[200, 1, 2], DType::F32)?, numbers(&[3, 2, 4], DType::F32)?);
    let right = |i: &Array| gather_mm(&many, &few, None, Some(i), false)?.to_vec::<f32>();
    assert_eq!(right(&chosen)?, right(&wide)?);
    let left = |i: &Array| {
        gather_mm(&few.swapaxes(1, 2)?, &many.swapaxes(1, 2)?, Some(i), None, false)?
            .to_vec::<f32>()
    };
    assert_eq!(left(&chosen)?, left(&wide)?);
    let all = Array::from_slice(&[7u8, 199, 128], &[3])?;
    let some = Array::from_slice(&[1i8, 0, 2], &[3])?;
    let both = |lhs: &Array, rhs: &Array| gather_mm(&many, &few, Some(lhs), Some(rhs), false);
    let same = both(&all.astype(DType::I64)?, &some.astype(DType::I64)?)?;
    assert_eq!(both(&all, &some)?.to_vec::<f32>()?, same.to_vec::<f32>()?);
    let slope = |i: &Array| {
        let loss = crate::grad(|x: &[Array]| {
            gather_mm(&x[0], &x[1], Some(i), Some(i), false)?.square()?.sum(())
        });
        loss(&[many.clone(), few.clone()])?[0].to_vec::<f32>()
    };
    assert_eq!(slope(&chosen)?, slope(&wide)?);
    Ok(())
}
