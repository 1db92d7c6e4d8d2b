//! Behaviour of indexing, with values from MLX.

use crate::op::Op;
use crate::ops::*;
use crate::testing::devices;
use crate::{Array, DType, Device, Encoder, Error, Result, Workspace, vjp};

fn ints(values: &[i32], shape: &[usize], device: &Device) -> Array {
    Array::from_slice_on(values, shape, device).unwrap()
}

fn floats(values: &[f32], shape: &[usize], device: &Device) -> Array {
    Array::from_slice_on(values, shape, device).unwrap()
}

fn iota(shape: &[usize], device: &Device) -> Array {
    let values: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
    ints(&values, shape, device)
}

/// Every dtype the device has, and the values of `x` read back through it.
fn in_every_dtype(device: &Device, check: impl Fn(DType) -> Result<Vec<i32>>, expected: &[i32]) {
    for dtype in DType::ALL {
        if dtype == DType::Bool || (dtype == DType::F64 && device.is_gpu()) {
            continue;
        }
        assert_eq!(check(dtype).unwrap(), expected, "{device} {dtype}");
    }
}

fn read(x: &Array) -> Result<Vec<i32>> {
    astype(x, DType::I32)?.to_vec::<i32>()
}

#[test]
fn slice_update_writes_regions_in_every_dtype() {
    for device in devices() {
        in_every_dtype(
            &device,
            |dtype| {
                let x = astype(&iota(&[3, 5], &device), dtype)?;
                let update = astype(&ints(&[90, 91, 92, 93], &[2, 2], &device), dtype)?;
                read(&slice_update(&x, &update.transpose()?, &[0, 4], &[3, 0], &[2, -3])?)
            },
            &[0, 92, 2, 3, 90, 5, 6, 7, 8, 9, 10, 93, 12, 13, 91],
        );
    }
}

#[test]
fn slice_update_leaves_its_argument_alone_and_converts() -> Result<()> {
    for device in devices() {
        let x = iota(&[4], &device);
        let view = slice(&x, &[1], &[3], &[1])?;
        let y = slice_update(&x, &floats(&[7.9], &[1, 1, 1], &device), &[1], &[3], &[1])?;
        assert_eq!(y.to_vec::<i32>()?, [0, 7, 7, 3], "{device}");
        assert_eq!(x.to_vec::<i32>()?, [0, 1, 2, 3]);
        assert_eq!(view.to_vec::<i32>()?, [1, 2]);
        assert!(slice_update(&x, &iota(&[3], &device), &[1], &[3], &[1]).is_err());
        // A temporary is written in place: its view, taken before, still must not change.
        let temporary = add(&x, 1)?;
        let before = slice(&temporary, &[0], &[2], &[1])?;
        let after = slice_update(&temporary, &ints(&[50], &[1], &device), &[0], &[4], &[2])?;
        drop(temporary);
        assert_eq!(after.to_vec::<i32>()?, [50, 2, 50, 4]);
        assert_eq!(before.to_vec::<i32>()?, [1, 2]);
    }
    Ok(())
}

#[test]
fn the_gradient_of_a_slice_goes_back_to_its_place() -> Result<()> {
    for device in devices() {
        let x = floats(&[1.0, 2.0, 3.0, 4.0, 5.0], &[5], &device);
        let dy = floats(&[10.0, 20.0], &[2], &device);
        let (_, dx) =
            vjp(|x| Ok(vec![slice(&x[0], &[4], &[1], &[-2])?]), &[x.clone()], &[dy.clone()])?;
        assert_eq!(dx[0].to_vec::<f32>()?, [0.0, 0.0, 20.0, 0.0, 10.0], "{device}");
        let update = |x: &[Array]| Ok(vec![slice_update(&x[0], &x[1], &[1], &[5], &[2])?]);
        let cotangent = floats(&[1.0, 2.0, 3.0, 4.0, 5.0], &[5], &device);
        let (_, gradients) = vjp(update, &[x, dy], &[cotangent])?;
        assert_eq!(gradients[0].to_vec::<f32>()?, [1.0, 0.0, 3.0, 0.0, 5.0]);
        assert_eq!(gradients[1].to_vec::<f32>()?, [2.0, 4.0]);
    }
    Ok(())
}

#[test]
fn take_moves_every_dtype_with_every_index_dtype() {
    for device in devices() {
        in_every_dtype(
            &device,
            |dtype| {
                let x = astype(&iota(&[2, 3, 2], &device), dtype)?;
                let indices = ints(&[2, -1, 0], &[3], &device);
                read(&take(&x, &indices, Some(1))?)
            },
            &[4, 5, 4, 5, 0, 1, 10, 11, 10, 11, 6, 7],
        );
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_integer()) {
            let indices = astype(&ints(&[1, 0, 1], &[3, 1], &device), dtype).unwrap();
            let y = take(&iota(&[2, 2], &device), &indices, Some(0)).unwrap();
            assert_eq!(y.shape(), [3, 1, 2]);
            assert_eq!(y.to_vec::<i32>().unwrap(), [2, 3, 0, 1, 2, 3], "{device} {dtype}");
        }
    }
}

#[test]
fn take_flattens_and_takes_nothing() -> Result<()> {
    for device in devices() {
        let x = iota(&[2, 3], &device);
        let flat = take(&x, ints(&[5, -6], &[2], &device), None)?;
        assert_eq!(flat.to_vec::<i32>()?, [5, 0]);
        assert_eq!(take(&x, ints(&[], &[0], &device), Some(0))?.shape(), [0, 3]);
        assert_eq!(take(&x, ints(&[], &[0], &device), Some(0))?.to_vec::<i32>()?, [0i32; 0]);
        assert_eq!(take(&x, -2, Some(-1))?.to_vec::<i32>()?, [1, 4]);
        let scalar = floats(&[3.0], &[], &device);
        assert_eq!(take(&scalar, ints(&[0, 0], &[2], &device), None)?.to_vec::<f32>()?, [3.0; 2]);
        assert!(take(&ints(&[], &[0], &device), ints(&[0], &[1], &device), None).is_err());
        assert!(take(&scalar, ints(&[0], &[1], &device), Some(0)).is_err());
    }
    Ok(())
}

#[test]
fn indices_out_of_range_are_errors_on_every_device() -> Result<()> {
    for device in devices() {
        let x = iota(&[2, 3], &device);
        for bad in [3, -4, i32::MAX, i32::MIN] {
            let y = take(&x, ints(&[0, bad], &[2], &device), Some(1))?;
            match y.to_vec::<i32>() {
                Err(Error::Index { op: "take", argument, got, length: 3 }) => {
                    assert_eq!((argument.as_str(), got), ("indices", bad as i64), "{device}");
                }
                other => panic!("{device}: {other:?}"),
            }
        }
        let wide = Array::from_slice_on(&[u64::MAX], &[1], &device)?;
        assert!(matches!(take(&x, &wide, None)?.to_vec::<i32>(), Err(Error::Index { .. })));
        assert!(matches!(take(&x, 2, Some(0)), Err(Error::Index { got: 2, length: 2, .. })));
        // What was there before goes on working.
        assert_eq!(add(&x, 1)?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6]);
    }
    Ok(())
}

#[test]
fn floats_and_masks_are_no_indices() {
    for device in devices() {
        let x = iota(&[2, 3], &device);
        let error = take(&x, floats(&[0.0], &[1], &device), None).err().unwrap();
        assert_eq!(
            error.to_string(),
            "[take] indices: expected dtype an integer type, got float32"
        );
        let mask = astype(&ints(&[1, 0], &[2], &device), DType::Bool).unwrap();
        let error = take(&x, &mask, None).err().unwrap().to_string();
        assert!(error.contains("a boolean mask is for `set`"), "{error}");
    }
}

#[test]
fn gradients_of_repeated_indices_add_up() -> Result<()> {
    for device in devices() {
        let x = floats(&[1.0, 2.0, 3.0, 4.0], &[2, 2], &device);
        let indices = ints(&[0, -1, 0], &[3], &device);
        for axis in [0, 1] {
            let dy = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [&[3, 2], &[2, 3]][axis], &device);
            let function = |x: &[Array]| Ok(vec![take(&x[0], &indices, Some(axis as i64))?]);
            let (_, dx) = vjp(function, &[x.clone()], &[dy])?;
            let expected = [[6.0, 8.0, 3.0, 4.0], [4.0, 2.0, 10.0, 5.0]][axis];
            assert_eq!(dx[0].to_vec::<f32>()?, expected, "{device}");
        }
    }
    Ok(())
}

#[test]
fn indices_read_like_python() -> Result<()> {
    for device in devices() {
        let x = iota(&[3, 4, 5], &device);
        let i = ints(&[0, 2], &[2, 1], &device);
        let j = ints(&[1, -1, 0], &[3], &device);
        let check = |y: Result<Array>, shape: &[usize], expected: &[i32]| {
            let y = y.unwrap();
            assert_eq!(y.shape(), shape, "{device}");
            assert_eq!(y.to_vec::<i32>().unwrap(), expected, "{device}");
        };
        check(x.index((1, 2, -1)), &[], &[34]);
        check(x.index((1, 2)), &[5], &[30, 31, 32, 33, 34]);
        check(x.index((Ellipsis, 7)).or_else(|_| x.index((2, .., 4))), &[4], &[44, 49, 54, 59]);
        check(x.index(((..).step(-2), Slice::new(3, 0, -2), -1)), &[2, 2], &[59, 49, 19, 9]);
        check(
            x.index((.., &i, &j)),
            &[3, 2, 3],
            &[1, 4, 0, 11, 14, 10, 21, 24, 20, 31, 34, 30, 41, 44, 40, 51, 54, 50],
        );
        check(x.index((&i, 1..3, &j)), &[2, 3, 2], &[6, 11, 9, 14, 5, 10, 46, 51, 49, 54, 45, 50]);
        check(x.index((0, .., &j)), &[3, 4], &[1, 6, 11, 16, 4, 9, 14, 19, 0, 5, 10, 15]);
        check(x.index((.., 1, &j)), &[3, 3], &[6, 9, 5, 26, 29, 25, 46, 49, 45]);
        let rows = [10, 11, 12, 13, 14, 50, 51, 52, 53, 54];
        check(x.index((&i, NewAxis, 2)), &[2, 1, 1, 5], &rows);
        check(x.index((NewAxis, &i, 2, Ellipsis, NewAxis)), &[1, 2, 1, 5, 1], &rows);
        let empty = ints(&[], &[0], &device);
        check(x.index((&empty, 1)), &[0, 5], &[]);
        check(x.index(crate::Slice::new(5, 2, 1)), &[0, 4, 5], &[]);
        check(x.index((-100..100, 0, 0)), &[3], &[0, 20, 40]);
        check(x.index((..=-2, 0, 0)), &[2], &[0, 20]);
        assert_eq!(x.index(())?.shape(), x.shape());
        let scalar = floats(&[3.0], &[], &device);
        assert_eq!(scalar.index(NewAxis)?.to_vec::<f32>()?, [3.0]);
        assert_eq!(scalar.index(Ellipsis)?.item::<f32>()?, 3.0);
        assert!(scalar.index(0).is_err());
        assert!(x.index((0, 0, 0, 0)).is_err());
        assert!(x.index((Ellipsis, Ellipsis)).is_err());
        assert!(x.index((..).step(0)).is_err());
        assert!(matches!(x.index(3), Err(Error::Index { got: 3, length: 3, .. })));
        assert!(matches!(x.index((0, -5)), Err(Error::Index { got: -5, length: 4, .. })));
        let late = x.index((&ints(&[9], &[1], &device), 0))?;
        assert!(matches!(late.to_vec::<i32>(), Err(Error::Index { got: 9, length: 3, .. })));
        assert!(x.index((0, &floats(&[1.0], &[1], &device))).is_err());
    }
    Ok(())
}

#[test]
fn set_rebinds_one_handle_only() -> Result<()> {
    for device in devices() {
        let mut x = iota(&[3, 4], &device);
        let (clone, view) = (x.clone(), x.index(1)?);
        x.set((1, ..2), 50.9)?;
        x.set((.., -1), &ints(&[7, 8, 9], &[1, 3], &device))?;
        let expected = [0, 1, 2, 7, 50, 50, 6, 8, 8, 9, 10, 9];
        assert_eq!(x.to_vec::<i32>()?, expected, "{device}");
        assert_eq!(clone.to_vec::<i32>()?, iota(&[12], &device).to_vec::<i32>()?);
        assert_eq!(view.to_vec::<i32>()?, [4, 5, 6, 7]);
        assert!(x.set((0, 9), 1).is_err());
        assert!(x.set(0, &iota(&[3], &device)).is_err());
        assert_eq!(x.to_vec::<i32>()?, expected);
        let zeros = || zeros_like(&x).unwrap();
        let pairs = ints(&[1, 2, 3, 4], &[2, 2], &device);
        let rows = ints(&[2, 0], &[2], &device);
        let y = zeros().at((&rows, (1..).step(2))).set(&pairs)?;
        assert_eq!(y.to_vec::<i32>()?, [0, 3, 0, 4, 0, 0, 0, 0, 0, 1, 0, 2]);
        let y = zeros().at(((..).step(-1), 0)).set(&ints(&[1, 2, 3], &[3], &device))?;
        assert_eq!(y.to_vec::<i32>()?, [3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        let (i, j) = (ints(&[0, 1], &[2, 1], &device), ints(&[0, 3], &[2], &device));
        let y = zeros().at((&i, &j)).set(&ints(&[7, 8], &[2], &device))?;
        assert_eq!(y.to_vec::<i32>()?, [7, 0, 0, 8, 7, 0, 0, 8, 0, 0, 0, 0]);
        let same = ints(&[0, 0], &[2], &device);
        let y = zeros().at((&same, 0)).set(&ints(&[7, 8], &[2], &device))?;
        assert_eq!(y.to_vec::<i32>()?[..2], [8, 0], "the last one stays");
        let nothing = zeros().at(&ints(&[], &[0], &device)).set(1)?;
        assert_eq!(nothing.to_vec::<i32>()?, [0; 12]);
    }
    Ok(())
}

#[test]
fn updates_of_repeated_indices_all_take_effect_in_every_dtype() {
    for device in devices() {
        let at = |dtype: DType, update: fn(At, &Array) -> Result<Array>| {
            let x = astype(&ints(&[3, 4, 5, 6, 7], &[5], &device), dtype)?;
            let value = astype(&ints(&[2, 9, 3, 1], &[4], &device), dtype)?;
            let indices = ints(&[0, -1, 0, 3], &[4], &device);
            read(&update(x.at(&indices), &value)?)
        };
        in_every_dtype(&device, |dtype| at(dtype, |at, v| at.add(v)), &[8, 4, 5, 7, 16]);
        in_every_dtype(&device, |dtype| at(dtype, |at, v| at.multiply(v)), &[18, 4, 5, 6, 63]);
        in_every_dtype(&device, |dtype| at(dtype, |at, v| at.maximum(v)), &[3, 4, 5, 6, 9]);
        in_every_dtype(&device, |dtype| at(dtype, |at, v| at.minimum(v)), &[2, 4, 5, 1, 7]);
        in_every_dtype(&device, |dtype| at(dtype, |at, v| at.set(v)), &[3, 4, 5, 1, 9]);
        let truth = |values: &[i32]| astype(&ints(values, &[3], &device), DType::Bool).unwrap();
        let indices = ints(&[0, 0, 1], &[3], &device);
        let sum = truth(&[1, 0, 1]).at(&indices).add(&truth(&[1, 1, 1])).unwrap();
        assert_eq!(sum.to_vec::<bool>().unwrap(), [true; 3]);
        let product = truth(&[1, 0, 1]).at(&indices).multiply(&truth(&[0, 1, 1])).unwrap();
        assert_eq!(product.to_vec::<bool>().unwrap(), [false, false, true]);
        assert!(truth(&[1, 0, 1]).at(0).subtract(true).is_err());
        assert!(ints(&[4], &[1], &device).at(0).divide(2).is_err());
        let halves = floats(&[1.0, 2.0, 3.0], &[3], &device).at(&indices).divide(2).unwrap();
        assert_eq!(halves.to_vec::<f32>().unwrap(), [0.25, 1.0, 3.0]);
    }
}

#[test]
fn nan_wins_in_maxima_and_minima() -> Result<()> {
    for device in devices() {
        let x = floats(&[1.0, f32::NAN, f32::NEG_INFINITY, 4.0], &[4], &device);
        let indices = ints(&[0, 0, 1, 2, 3], &[5], &device);
        let value = floats(&[f32::NAN, 5.0, 1.0, f32::INFINITY, 9.0], &[5], &device);
        let top = x.at(&indices).maximum(&value)?.to_vec::<f32>()?;
        assert!(top[0].is_nan() && top[1].is_nan(), "{device} {top:?}");
        assert_eq!(top[2..], [f32::INFINITY, 9.0]);
        let bottom = x.at(..).minimum(f64::NAN)?.to_vec::<f32>()?;
        assert!(bottom.iter().all(|value| value.is_nan()), "{device} {bottom:?}");
    }
    Ok(())
}

#[test]
fn along_an_axis_elements_are_taken_and_put() -> Result<()> {
    for device in devices() {
        in_every_dtype(
            &device,
            |dtype| {
                let x = astype(&iota(&[2, 3], &device), dtype)?;
                let indices = ints(&[0, -1, 1, 1, 2, 0, 0, -3], &[2, 4], &device);
                read(&take_along_axis(&x, &indices, Some(1))?)
            },
            &[0, 2, 1, 1, 5, 3, 3, 3],
        );
        in_every_dtype(
            &device,
            |dtype| {
                let x = astype(&iota(&[3, 3], &device), dtype)?;
                let indices = ints(&[0, -1, 0, 2], &[4, 1], &device);
                let values = astype(&ints(&[90, 91, 92, 93], &[4, 1], &device), dtype)?;
                read(&put_along_axis(&x, &indices, &values, Some(0))?)
            },
            &[92, 92, 92, 3, 4, 5, 93, 93, 93],
        );
        let x = iota(&[2, 3], &device);
        let flat = put_along_axis(&x, &ints(&[0, 5], &[2], &device), 9, None)?;
        assert_eq!(flat.to_vec::<i32>()?, [9, 1, 2, 3, 4, 9]);
        assert_eq!(flat.shape(), [2, 3]);
        let (places, values) =
            (ints(&[1, 2], &[2, 1], &device), ints(&[7, 8], &[1, 1, 2, 1], &device));
        let put = put_along_axis(&x, &places, &values, Some(1))?;
        assert_eq!(put.to_vec::<i32>()?, [0, 7, 2, 3, 4, 8]);
        assert!(put_along_axis(&x, &places, &ints(&[0; 4], &[2, 2, 1], &device), Some(1)).is_err());
        let flat = take_along_axis(&x, &ints(&[0, 5], &[2], &device), None)?;
        assert_eq!(flat.to_vec::<i32>()?, [0, 5]);
        assert!(take_along_axis(&x, &ints(&[0], &[1], &device), Some(1)).is_err());
        assert!(take_along_axis(&x, &ints(&[0; 3], &[3, 1], &device), Some(1)).is_err());
        assert!(take_along_axis(&x, &floats(&[0.0; 2], &[2, 1], &device), Some(1)).is_err());
        for bad in [3, -4] {
            let indices = ints(&[0, bad], &[2, 1], &device);
            let y = take_along_axis(&x, &indices, Some(1))?.to_vec::<i32>();
            assert!(matches!(y, Err(Error::Index { length: 3, .. })), "{device} {y:?}");
            let y = put_along_axis(&x, &indices, 0, Some(1))?.to_vec::<i32>();
            assert!(matches!(y, Err(Error::Index { length: 3, .. })), "{device} {y:?}");
        }
    }
    Ok(())
}

#[test]
fn gradients_along_an_axis_add_up_in_the_wide_type() -> Result<()> {
    for device in devices() {
        // 2.0 and 512 halves of the last place: rounded at every sum they would all be lost.
        let values: Vec<f32> =
            (0..600).map(|i| if i == 0 { 2.0 } else { 2.0f32.powi(-8) }).collect();
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let dy = astype(&floats(&values, &[1, 600], &device), dtype)?;
            let indices = ints(&[1; 600], &[1, 600], &device);
            let dx = take_along_axis_backward(&indices, &dy, -1, 3)?;
            let sum = astype(&dx, DType::F32)?.to_vec::<f32>()?;
            let expected = 2.0 + 599.0 / 256.0;
            assert_eq!((sum[0], sum[2]), (0.0, 0.0));
            assert!((sum[1] - expected).abs() < 0.02, "{device} {dtype} {sum:?}");
        }
        let x = floats(&[1.0, 2.0, 3.0, 4.0], &[2, 2], &device);
        let indices = ints(&[0, 0, 1, -1, 0, 0], &[2, 3], &device);
        let dy = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], &device);
        let function = |x: &[Array]| Ok(vec![take_along_axis(&x[0], &indices, Some(1))?]);
        let (_, dx) = vjp(function, &[x.clone()], &[dy.clone()])?;
        assert_eq!(dx[0].to_vec::<f32>()?, [3.0, 3.0, 11.0, 4.0], "{device}");
        // The gradient of the gradient: of squares, to have one.
        let twice = |x: &[Array]| {
            let square = |x: &[Array]| Ok(vec![function(x)?[0].square()?]);
            Ok(vec![vjp(square, x, &[dy.clone()])?.1[0].clone()])
        };
        let (_, second) = vjp(twice, &[x.clone()], &[x])?;
        assert_eq!(second[0].to_vec::<f32>()?, [6.0, 12.0, 66.0, 32.0], "{device}");
    }
    Ok(())
}

#[test]
fn a_mask_chooses_what_is_replaced() -> Result<()> {
    for device in devices() {
        let truth =
            |values: &[i32], shape: &[usize]| astype(&ints(values, shape, &device), DType::Bool);
        let (rows, all) = (truth(&[1, 0, 1, 0], &[4])?, truth(&[1, 0, 1, 0, 0, 1], &[2, 3])?);
        in_every_dtype(
            &device,
            |dtype| {
                let x = astype(&iota(&[2, 3], &device), dtype)?;
                read(&x.at(&all).set(&astype(&ints(&[90, 91, 92, 93], &[4], &device), dtype)?)?)
            },
            &[90, 1, 91, 3, 4, 92],
        );
        let x = iota(&[4, 3], &device);
        let set = |mask: &Array, shape: &[usize]| {
            let value = add(&iota(shape, &device), 20)?;
            x.at(mask).set(&value)?.to_vec::<i32>()
        };
        assert_eq!(set(&rows, &[])?, [20, 20, 20, 3, 4, 5, 20, 20, 20, 9, 10, 11], "{device}");
        assert_eq!(set(&rows, &[3])?, [20, 21, 22, 3, 4, 5, 20, 21, 22, 9, 10, 11], "{device}");
        assert_eq!(set(&rows, &[2, 3])?, [20, 21, 22, 3, 4, 5, 23, 24, 25, 9, 10, 11], "{device}");
        assert_eq!(set(&rows, &[4, 1])?, [20, 20, 20, 3, 4, 5, 21, 21, 21, 9, 10, 11], "{device}");
        assert_eq!(set(&truth(&[1], &[])?, &[4, 3])?, (20..32).collect::<Vec<_>>(), "{device}");
        for (mask, shape) in [(&rows, &[1, 3][..]), (&rows, &[1, 2, 3]), (&rows, &[6]), (&all, &[])]
        {
            assert!(set(mask, shape).is_err(), "{device} {shape:?}");
        }
        assert!(x.at((&rows, 0)).set(1).is_err() && x.at(&rows).add(1).is_err());
        // Gradients, which MLX has the same of.
        let dy = floats(&(1..=12).map(|n| n as f32).collect::<Vec<_>>(), &[4, 3], &device);
        let put = |x: &[Array]| Ok(vec![x[0].at(&rows).set(&x[1])?]);
        let x = floats(&[0.0; 12], &[4, 3], &device);
        let rows_of_values = floats(&[1.0; 9], &[3, 3], &device);
        let (_, gradients) = vjp(put, &[x.clone(), rows_of_values], &[dy.clone()])?;
        let expected = [0.0, 0.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0, 0.0, 10.0, 11.0, 12.0];
        assert_eq!(gradients[0].to_vec::<f32>()?, expected, "{device}");
        let expected = [1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 0.0, 0.0, 0.0];
        assert_eq!(gradients[1].to_vec::<f32>()?, expected, "{device}");
        let (_, gradients) = vjp(put, &[x, floats(&[1.0; 3], &[3], &device)], &[dy])?;
        assert_eq!(gradients[1].to_vec::<f32>()?, [8.0, 10.0, 12.0], "{device}");
    }
    Ok(())
}

#[test]
fn a_value_that_was_replaced_has_no_gradient() -> Result<()> {
    for device in devices() {
        let x = floats(&[1.0, 2.0, 3.0], &[3], &device);
        let value = floats(&[4.0, 5.0, 6.0], &[3], &device);
        let indices = ints(&[0, 2, 0], &[3], &device);
        let dy = floats(&[10.0, 20.0, 30.0], &[3], &device);
        let put = |x: &[Array]| Ok(vec![put_along_axis(&x[0], &indices, &x[1], Some(0))?]);
        let set = |x: &[Array]| Ok(vec![x[0].at(&indices).set(&x[1])?]);
        for function in [&put as &dyn Fn(&[Array]) -> Result<Vec<Array>>, &set] {
            let (y, gradients) = vjp(function, &[x.clone(), value.clone()], &[dy.clone()])?;
            assert_eq!(y[0].to_vec::<f32>()?, [6.0, 2.0, 5.0], "{device}");
            assert_eq!(gradients[0].to_vec::<f32>()?, [0.0, 20.0, 0.0], "{device}");
            assert_eq!(gradients[1].to_vec::<f32>()?, [0.0, 30.0, 10.0], "{device}");
        }
    }
    Ok(())
}

#[test]
fn windows_start_where_an_array_says() -> Result<()> {
    for device in devices() {
        let x = iota(&[2, 3], &device);
        let start = |values: &[i32]| ints(values, &[values.len()], &device);
        let y = slice_dynamic(&x, &start(&[1, 1]), &[0, 1], &[1, 2])?;
        assert_eq!(y.to_vec::<i32>()?, [4, 5], "{device}");
        let y = slice_update_dynamic(&x, &start(&[9, 8]), &start(&[1]), &[1])?;
        assert_eq!(y.to_vec::<i32>()?, [0, 9, 8, 3, 9, 8], "{device}");
        for bad in [-1, 2] {
            let y = slice_dynamic(&x, &start(&[bad]), &[1], &[2, 2])?.to_vec::<i32>();
            assert!(matches!(y, Err(Error::Index { .. })), "{device} {y:?}");
            let update = slice_update_dynamic(&x, &start(&[9, 8]), &start(&[bad]), &[1])?;
            assert!(matches!(update.to_vec::<i32>(), Err(Error::Index { .. })), "{device}");
        }
        assert!(slice_dynamic(&x, &start(&[0, 1]), &[0], &[1, 2]).is_err());
        assert!(slice_dynamic(&x, &start(&[0]), &[0], &[1, 5]).is_err());
        assert!(slice_dynamic(&x, &floats(&[0.0], &[1], &device), &[0], &[1, 2]).is_err());
        let windows = gather(&x, &[&ints(&[0, 1], &[2], &device)], &[1], &[2, 2])?;
        assert_eq!(windows.shape(), [2, 2, 2]);
        assert_eq!(windows.to_vec::<i32>()?, [0, 1, 3, 4, 1, 2, 4, 5], "{device}");
    }
    Ok(())
}

#[test]
fn the_explicit_level_leaves_outputs_alone_on_error() -> Result<()> {
    for device in devices() {
        let x = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], &device);
        let none = &mut Workspace::none(&device);
        for (indices, fails) in [([2u32, 0, 0, 1, 1, 1], false), ([0, 1, 2, 0, 3, 0], true)] {
            let indices = Array::from_slice_on(&indices, &[2, 3], &device)?;
            let output = floats(&[7.0; 6], &[2, 3], &device);
            let gradient = floats(&[7.0; 6], &[2, 3], &device);
            // Separate submissions: what one of them reports concerns only its own arrays.
            let run = |op: &dyn Op, inputs: &[&Array], output: &Array, none: &mut Workspace| {
                let mut encoder = Encoder::new(&device)?;
                encoder.run(op, inputs, &[output], none)?;
                encoder.submit()?.wait()
            };
            let backward = TakeAlongAxisBackward { axis: -1, length: 3 };
            let results = [
                run(&TakeAlongAxis { axis: -1 }, &[&x, &indices], &output, none),
                run(&backward, &[&indices, &x], &gradient, none),
            ];
            for result in results {
                match result {
                    Ok(()) => assert!(!fails),
                    Err(Error::Index { argument, got: 3, length: 3, .. }) if fails => {
                        assert_eq!(argument, "indices");
                    }
                    other => panic!("{device} {other:?}"),
                }
            }
            if !fails {
                assert_eq!(output.to_vec::<f32>()?, [3.0, 1.0, 1.0, 5.0, 5.0, 5.0], "{device}");
                assert_eq!(gradient.to_vec::<f32>()?, [5.0, 0.0, 1.0, 0.0, 15.0, 0.0]);
            } else {
                assert_eq!(memory(&output), [7.0; 6], "{device}");
                assert_eq!(memory(&gradient), [7.0; 6], "{device}");
            }
        }
    }
    Ok(())
}

/// What is in an array's memory, whatever was reported about it.
fn memory(x: &Array) -> Vec<f32> {
    #[cfg(feature = "gpu")]
    if let Some(gpu) = x.device().as_gpu() {
        let buffer = &x.buffer().unwrap().gpu().unwrap().buffer;
        let bytes = gpu.download(buffer, 0, x.nbytes() as u64).unwrap();
        return bytemuck::pod_collect_to_vec(&bytes);
    }
    x.to_vec().unwrap()
}

#[test]
fn gradients_of_repeated_indices_are_rounded_once() -> Result<()> {
    // One after the other, sums of 1 would stay at 256 in bfloat16 and at 2048 in float16.
    const COUNT: usize = 5000;
    for device in devices() {
        let indices = ints(&[1; COUNT], &[COUNT], &device);
        for (dtype, expected) in [(DType::BF16, 4992), (DType::F16, 5000), (DType::F32, 5000)] {
            let x = astype(&iota(&[3], &device), dtype)?;
            let dy = astype(&ints(&[1; COUNT], &[COUNT], &device), dtype)?;
            let gradient = |f: &dyn Fn(&Array) -> Result<Array>| -> Result<Vec<i32>> {
                let f = |x: &[Array]| Ok(vec![f(&x[0])?]);
                let gradients = vjp(f, &[x.clone()], &[dy.clone()])?.1;
                assert_eq!(gradients[0].dtype(), dtype);
                read(&gradients[0])
            };
            let taken = gradient(&|x| take(x, &indices, Some(0)))?;
            assert_eq!(taken, [0, expected, 0], "take of {dtype} on {device}");
            let along = gradient(&|x| take_along_axis(x, &indices, Some(0)))?;
            assert_eq!(along, [0, expected, 0], "take_along_axis of {dtype} on {device}");
        }
        // Updates round every time, as in MLX.
        let zeros = astype(&ints(&[0; 3], &[3], &device), DType::BF16)?;
        let ones = astype(&ints(&[1; COUNT], &[COUNT, 1], &device), DType::BF16)?;
        let updated = scatter(&zeros, &[&indices], &ones, &[0], Reduce::Add)?;
        assert_eq!(read(&updated)?, [0, 256, 0], "{device}");
    }
    Ok(())
}

#[test]
fn gradients_of_an_index_that_is_nearly_everywhere_are_exact() -> Result<()> {
    // More than the turns that some drivers grant a thread, and windows that begin and end at and around the ends of
    // parts.
    let counts = [1usize, 255, 256, 257, 0, 512, 3, 70_000, 0, 40, 256];
    let count = counts.iter().sum::<usize>();
    let sorted: Vec<i32> =
        counts.iter().enumerate().flat_map(|(id, &times)| vec![id as i32; times]).collect();
    let step = 7919;
    assert!(!count.is_multiple_of(step));
    let indices: Vec<i32> = (0..count).map(|i| sorted[i * step % count]).collect();
    let value = |i: usize| (i * 31 % 5) as i32;
    let updates: Vec<i32> = (0..2 * count).map(value).collect();
    let mut expected = vec![0; 2 * counts.len()];
    for (i, &id) in indices.iter().enumerate() {
        (0..2).for_each(|dim| expected[2 * id as usize + dim] += updates[2 * i + dim]);
    }
    for device in devices() {
        let ids = ints(&indices, &[count], &device);
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let x = astype(&ints(&vec![0; 2 * counts.len()], &[counts.len(), 2], &device), dtype)?;
            let dy = astype(&ints(&updates, &[count, 2], &device), dtype)?;
            let taken = |x: &[Array]| Ok(vec![take(&x[0], &ids, Some(0))?]);
            let got = vjp(taken, &[x], &[dy])?.1.remove(0);
            // Whole numbers are exact in single precision, and rounded once.
            let want = astype(&ints(&expected, &[counts.len(), 2], &device), DType::F32)?;
            let want = astype(&want, dtype)?;
            assert_eq!(
                astype(&got, DType::F32)?.to_vec::<f32>()?,
                astype(&want, DType::F32)?.to_vec::<f32>()?,
                "{dtype} on {device}"
            );
        }
    }
    Ok(())
}

#[test]
fn caches_are_written_where_the_position_says() {
    for device in devices() {
        let cache = Array::from_slice_on(&[0.0f32; 2 * 4 * 3], &[2, 4, 3], &device).unwrap();
        let rows: Vec<f32> = (1..=2 * 2 * 3).map(|i| i as f32).collect();
        let rows = Array::from_slice_on(&rows, &[2, 2, 3], &device).unwrap();
        let at = |position: i32| Array::from_slice_on(&[position], &[1], &device).unwrap();
        let appended = crate::cache_append(&cache, &rows, &at(1)).unwrap();
        let seen = appended.index((.., 1..3, ..)).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(seen, rows.to_vec::<f32>().unwrap());
        assert!(crate::cache_append(&cache, &rows, &at(3)).and_then(|x| x.eval()).is_err());
        // Around the end: row 7 is row 3, and row 8 is row 0.
        let ring = crate::cache_ring(&cache, &rows, &at(7)).unwrap();
        let row =
            |ring: &Array, row: i64| ring.index((.., row, ..)).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(row(&ring, 3), row(&rows, 0));
        assert_eq!(row(&ring, 0), row(&rows, 1));
        assert_eq!(row(&ring, 1), [0.0; 6]);
        let wide = Array::from_slice_on(&[0.0f32; 2 * 5 * 3], &[2, 5, 3], &device).unwrap();
        for error in [
            crate::cache_ring(&cache, &wide, &at(0)).unwrap_err(),
            crate::cache_append(&cache, &wide, &at(0)).unwrap_err(),
        ] {
            assert!(error.to_string().contains("[2, 5, 3]"), "{error}");
        }
    }
}

#[test]
fn a_zero_among_factors_that_are_multiplied_in_passes_gradients_to_the_others_only() -> Result<()> {
    for device in devices() {
        let x = floats(&[2.0, 3.0, 4.0], &[3], &device);
        let factors = floats(&[0.0, 5.0, 0.0, 0.0], &[4], &device);
        let at = ints(&[0, 0, 2, 2], &[4], &device);
        let product = |inputs: &[Array]| Ok(vec![inputs[0].at(&at).multiply(&inputs[1])?]);
        let ones = floats(&[1.0; 3], &[3], &device);
        let (_, gradients) = vjp(product, &[x, factors], &[ones])?;
        assert_eq!(gradients[0].to_vec::<f32>()?, [0.0, 1.0, 0.0], "{device}");
        // The first alone makes its product zero; the last two do it both.
        assert_eq!(gradients[1].to_vec::<f32>()?, [10.0, 0.0, 0.0, 0.0], "{device}");
    }
    Ok(())
}
