//! Behaviour of indexing, with values from MLX.

use crate::ops::*;
use crate::{Array, DType, Device, Error, Result, vjp};

/// The CPU, and a GPU if there is one.
fn devices() -> Vec<Device> {
    std::iter::once(Device::cpu()).chain(Device::gpu()).collect()
}

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
        assert_eq!(take(&x, ints(&[], &[0], &device), Some(0))?.to_vec::<i32>()?, []);
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
        assert!(error.contains("boolean masks are not supported"), "{error}");
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
