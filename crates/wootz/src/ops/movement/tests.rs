//! What MLX gives for the movement operations.

use super::*;
use crate::array::DType;
use crate::device::Device;
use crate::ops::full;
use crate::testing::devices;

fn ints(values: &[i32], shape: &[usize], device: &Device) -> Array {
    Array::from_slice_on(values, shape, device).unwrap()
}

fn count(shape: &[usize], device: &Device) -> Array {
    let values: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
    ints(&values, shape, device)
}

#[test]
fn concatenate_joins_any_layouts_and_widths() -> Result<()> {
    for device in devices() {
        let x = count(&[2, 3], &device);
        for dtype in [DType::Bool, DType::U8, DType::I16, DType::BF16, DType::F32, DType::I64] {
            let x = crate::ops::astype(&x, dtype)?;
            let turned = x.transpose()?;
            let flipped = flip(&turned, ())?;
            let joined = concatenate(&[&turned, &flipped, &turned], 1)?;
            let back = crate::ops::astype(&joined, DType::I32)?;
            let mut expected = vec![0, 3, 5, 2, 0, 3, 1, 4, 4, 1, 1, 4, 2, 5, 3, 0, 2, 5];
            if dtype == DType::Bool {
                expected.iter_mut().for_each(|value| *value = (*value != 0) as i32);
            }
            assert_eq!(back.to_vec::<i32>()?, expected, "{device} {dtype}");
        }
    }
    let cpu = Device::cpu();
    let x = count(&[2, 3], &cpu);
    assert_eq!(concatenate(&[&x, &count(&[1, 2], &cpu)], ())?.shape(), [8]);
    assert!(concatenate(&[&x, &count(&[2, 4], &cpu)], 0).is_err());
    assert!(concatenate(&[&x, &count(&[3], &cpu)], 0).is_err());
    assert!(concatenate(&Vec::<Array>::new(), 0).is_err());
    let scalar = Array::scalar(1, DType::I32)?;
    assert!(matches!(concatenate(&[&scalar, &scalar], 0), Err(Error::Axis { .. })));
    assert_eq!(concatenate(&[&scalar], 0)?.shape(), &[] as &[usize]);
    let mixed = concatenate(&[Array::new([1])?, Array::new([1.5f32])?], 0)?;
    assert_eq!(mixed.to_vec::<f32>()?, [1.0, 1.5]);
    Ok(())
}

#[test]
fn pad_fills_each_mode_as_mlx() -> Result<()> {
    for device in devices() {
        let x = ints(&[1, 2, 3], &[3], &device);
        let run = |width: (usize, usize), mode| pad(&x, width, mode, 0)?.to_vec::<i32>();
        assert_eq!(run((2, 4), PadMode::Reflect)?, [3, 2, 1, 2, 3, 2, 1, 2, 3]);
        assert_eq!(run((2, 5), PadMode::Symmetric)?, [2, 1, 1, 2, 3, 3, 2, 1, 1, 2]);
        assert_eq!(run((2, 2), PadMode::Edge)?, [1, 1, 1, 2, 3, 3, 3]);
        assert_eq!(run((2, 1), PadMode::Constant)?, [0, 0, 1, 2, 3, 0]);
        assert_eq!(pad(&x, 1, PadMode::Constant, 2.7)?.to_vec::<i32>()?, [2, 1, 2, 3, 2]);
        let one = ints(&[1], &[1], &device);
        assert_eq!(pad(&one, (2, 5), PadMode::Reflect, 0)?.to_vec::<i32>()?, [1; 8]);
        assert_eq!(pad(&one, (2, 5), PadMode::Symmetric, 0)?.to_vec::<i32>()?, [1; 8]);
        let bytes = crate::ops::astype(&count(&[2, 2], &device), DType::U8)?;
        let padded = pad(&bytes.transpose()?, [(1, 0), (0, 3)], PadMode::Constant, 7)?;
        assert_eq!(padded.to_vec::<u8>()?, [7, 7, 7, 7, 7, 0, 2, 7, 7, 7, 1, 3, 7, 7, 7]);
        let empty = ints(&[], &[0], &device);
        assert_eq!(pad(&empty, (2, 1), PadMode::Constant, 5)?.to_vec::<i32>()?, [5, 5, 5]);
        assert!(pad(&empty, (2, 1), PadMode::Edge, 0).is_err());
        assert!(pad(&x, [(1, 1), (1, 1)], PadMode::Constant, 0).is_err());
        assert!(pad(&x, usize::MAX, PadMode::Constant, 0).is_err());
    }
    Ok(())
}

#[test]
fn split_cuts_as_mlx() -> Result<()> {
    let x = count(&[6], &Device::cpu());
    let parts = |sections: Sections| -> Result<Vec<Vec<i32>>> {
        split(&x, sections, 0)?.iter().map(|part| part.to_vec::<i32>()).collect()
    };
    assert_eq!(parts([2, 9].into())?, [vec![0, 1], vec![2, 3, 4, 5], vec![]]);
    assert_eq!(parts([4, 2].into())?, [vec![0, 1, 2, 3], vec![], vec![2, 3, 4, 5]]);
    assert_eq!(parts([-2].into())?, [vec![0, 1, 2, 3], vec![4, 5]]);
    assert_eq!(parts(Sections::At(vec![]))?.len(), 1);
    assert!(parts(0.into()).is_err() && parts(4.into()).is_err() && parts((-1).into()).is_err());
    Ok(())
}

#[test]
fn roll_repeat_and_tile_as_mlx() -> Result<()> {
    let x = count(&[2, 3], &Device::cpu());
    assert_eq!(roll(&x, 4, ())?.to_vec::<i32>()?, [2, 3, 4, 5, 0, 1]);
    assert_eq!(roll(&x, [1, 2], [0, 1])?.to_vec::<i32>()?, [4, 5, 3, 1, 2, 0]);
    assert_eq!(roll(&x, [1, 2], 1)?.to_vec::<i32>()?, [0, 1, 2, 3, 4, 5]);
    assert_eq!(roll(&x, 1, [0, 1])?.to_vec::<i32>()?, [5, 3, 4, 2, 0, 1]);
    assert_eq!(roll(&x, [1, 2, 3], [0, 1])?.to_vec::<i32>()?, [4, 5, 3, 1, 2, 0]);
    assert_eq!(roll(&x, [1, 2], ())?.to_vec::<i32>()?, [3, 4, 5, 0, 1, 2]);
    assert!(roll(&x, 1, 2).is_err());
    assert_eq!(repeat(&Array::scalar(3, DType::I32)?, 2, ())?.to_vec::<i32>()?, [3, 3]);
    assert_eq!(repeat(&x, 0, 1)?.shape(), [2, 0]);
    assert_eq!(tile(&Array::new([1, 2])?, &[2, 2])?.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2, 1, 2]);
    assert_eq!(tile(&Array::new([1, 2])?, &[0])?.shape(), [0]);
    Ok(())
}

#[test]
fn axes_are_checked_as_mlx_does() -> Result<()> {
    let x = Array::zeros(&[2, 3, 4], DType::F32)?;
    assert_eq!(flatten(&x, 0, 9)?.shape(), [24]);
    assert_eq!(flatten(&x, -9, 1)?.shape(), [6, 4]);
    assert!(flatten(&x, 2, 1).is_err());
    assert!(unflatten(&x, 1, &[]).is_err() && unflatten(&x, 1, &[2, -1]).is_err());
    let ones = Array::zeros(&[1, 2, 1], DType::F32)?;
    assert_eq!(squeeze(&ones, [0, -1])?.shape(), [2]);
    assert!(squeeze(&ones, [0, 0]).is_err());
    let vector = Array::zeros(&[2], DType::F32)?;
    assert!(expand_dims(&vector, 2).is_err() && expand_dims(&vector, [0, 0]).is_err());
    assert!(swapaxes(&x, 0, 3).is_err() && moveaxis(&x, 3, 0).is_err());
    let empty = Array::zeros(&[0, 3], DType::F32)?;
    assert_eq!(reshape_infer(&empty, &[-1, 3])?.shape(), [0, 3]);
    assert!(reshape_infer(&empty, &[0, -1]).is_err());
    assert!(reshape_infer(&x, &[-1, -1]).is_err() && reshape_infer(&x, &[-2, 12]).is_err());
    assert_eq!(atleast_3d(&x.flatten(1, 2)?)?.shape(), [2, 12, 1]);
    Ok(())
}

#[test]
fn diagonals_and_structured_matrices_as_mlx() -> Result<()> {
    for device in devices() {
        let x = count(&[2, 3], &device);
        assert_eq!(diag(&x, -1)?.to_vec::<i32>()?, [3]);
        assert_eq!(diag(&x, 7)?.shape(), [0]);
        let cube = count(&[2, 3, 4], &device);
        assert_eq!(diagonal(&cube, 1, 1, 2)?.to_vec::<i32>()?, [1, 6, 11, 13, 18, 23]);
        let v = ints(&[1, 2], &[2], &device);
        assert_eq!(diag(&v, 1)?.to_vec::<i32>()?, [0, 1, 0, 0, 0, 2, 0, 0, 0]);
    }
    for device in devices() {
        let x = full(&[2, 2], f32::NAN, DType::F32)?;
        let x = crate::ops::to_device(&x, &device)?;
        let kept = |x: Array| -> Result<Vec<bool>> {
            Ok(x.to_vec::<f32>()?.iter().map(|value| value.is_nan()).collect())
        };
        assert_eq!(kept(tril(&x, 0)?)?, [true, false, true, true]);
        assert_eq!(kept(triu(&x, 1)?)?, [false, true, false, false]);
    }
    assert!(tril(&count(&[3], &Device::cpu()), 0).is_err());
    assert!(diagonal(&count(&[3], &Device::cpu()), 0, 0, 1).is_err());
    assert!(diagonal(&count(&[3, 3], &Device::cpu()), 0, 1, 1).is_err());
    assert_eq!(eye(2, 3, -1, DType::I32)?.to_vec::<i32>()?, [0, 0, 0, 1, 0, 0]);
    assert_eq!(eye(3, 3, 5, DType::I32)?.to_vec::<i32>()?, [0; 9]);
    assert_eq!(tri(2, 3, 1, DType::I32)?.to_vec::<i32>()?, [1, 1, 0, 1, 1, 1]);
    assert_eq!(tri(3, 3, -9, DType::I32)?.to_vec::<i32>()?, [0; 9]);
    let grid = meshgrid(&[Array::new([0, 1])?, Array::new([0, 1, 2])?], true, GridIndexing::Ij)?;
    assert_eq!((grid[0].shape(), grid[1].shape()), (&[2, 1][..], &[1, 3][..]));
    Ok(())
}

#[test]
fn gradients_of_views_land_where_the_elements_came_from() -> Result<()> {
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    let through = |f: fn(&Array) -> Result<Array>, dy: &Array| -> Result<Vec<f32>> {
        let (_, dx) = crate::vjp(|x| Ok(vec![f(&x[0])?]), &[x.clone()], &[dy.clone()])?;
        assert_eq!(dx[0].shape(), [2, 3]);
        dx[0].to_vec::<f32>()
    };
    let dy = Array::from_slice(&[10.0f32, 20.0], &[2])?;
    assert_eq!(through(|x| diagonal(x, 1, 0, 1), &dy)?, [0.0, 10.0, 0.0, 0.0, 0.0, 20.0]);
    assert_eq!(through(|x| diagonal(x, 0, 1, 0), &dy)?, [10.0, 0.0, 0.0, 0.0, 20.0, 0.0]);
    let dy = Array::from_slice(&[7.0f32, 8.0], &[2, 1])?;
    let second = |x: &Array| Ok(split(x, 3, 1)?[1].clone());
    assert_eq!(through(second, &dy)?, [0.0, 7.0, 0.0, 0.0, 8.0, 0.0]);
    let dy = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    assert_eq!(through(|x| flip(x, ()), &dy)?, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    let padded = full(&[3, 3], 1, DType::F32)?;
    assert_eq!(through(|x| pad(x, [(1, 0), (0, 0)], PadMode::Constant, 0), &padded)?, [1.0; 6]);
    Ok(())
}

#[test]
fn arange_and_linspace_as_mlx() -> Result<()> {
    assert_eq!(arange(0.5, 3, 0.5, None)?.to_vec::<f32>()?, [0.5, 1.0, 1.5, 2.0, 2.5]);
    assert_eq!(arange(2.7, 0, 1, DType::I32)?.shape(), [0]);
    assert_eq!(arange(0, 2.7, 1, DType::I32)?.to_vec::<i32>()?, [0, 1, 2]);
    assert_eq!(arange(0, 3, 0.5, DType::I32)?.to_vec::<i32>()?, [0; 6]);
    assert_eq!(arange(-1, -4, -0.9, DType::I32)?.to_vec::<i32>()?, [-1, -1, -1, -1]);
    assert_eq!(arange(0, 1i64 << 40, 1i64 << 39, None)?.to_vec::<i64>()?, [0, 1 << 39]);
    assert_eq!(arange(0, 300, 100, DType::U8)?.to_vec::<u8>()?, [0, 100, 200]);
    assert!(arange(0, 5, 0, None).is_err() && arange(0, 5, 1, DType::Bool).is_err());
    assert!(arange(0, f64::NAN, 1, None).is_err() && arange(f64::INFINITY, 1, 5, None).is_err());
    let x = linspace(0.1, 1.7, 7, true, DType::F32)?.to_vec::<f32>()?;
    assert_eq!(x, [0.1, 0.3666667, 0.6333334, 0.90000004, 1.1666667, 1.4333333, 1.7]);
    assert_eq!(linspace(0.0, 7.0, 6, true, DType::I32)?.to_vec::<i32>()?, [0, 1, 2, 4, 5, 7]);
    let open = linspace(0.0, 1.0, 5, false, DType::F32)?.to_vec::<f32>()?;
    assert_eq!(open, [0.0, 0.2, 0.4, 0.6, 0.8]);
    assert_eq!(linspace(2.0, 3.0, 1, true, DType::F32)?.to_vec::<f32>()?, [2.0]);
    assert_eq!(linspace(2.0, 3.0, 0, true, DType::F32)?.shape(), [0]);
    for device in devices() {
        for dtype in [DType::I8, DType::U16, DType::F16, DType::F32, DType::I64] {
            let x = arange_on(-3.0, 6.0, 3.0, dtype, &device);
            let x = crate::ops::astype(&x?, DType::I32)?.to_vec::<i32>()?;
            let expected = if dtype == DType::U16 { [65533, 0, 3] } else { [-3, 0, 3] };
            assert_eq!(x, expected, "{device} {dtype}");
        }
    }
    Ok(())
}

#[test]
fn view_and_as_strided_see_bytes() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&[1i8, 2, 3, 4], &[4], &device)?;
        assert_eq!(view(&x, DType::I16)?.to_vec::<i16>()?, [513, 1027]);
        let tail = slice_axis(&x, 0, 1, 3, 1)?;
        assert_eq!(view(&tail, DType::I16)?.to_vec::<i16>()?, [0x0302]);
        assert!(view(&slice_axis(&x, 0, 0, 3, 1)?, DType::I16).is_err());
        let truth = view(&Array::from_slice_on(&[1i8, 0, 3], &[3], &device)?, DType::Bool)?;
        assert_eq!(truth.to_vec::<bool>()?, [true, false, true]);
        let floats = Array::from_slice_on(&[0.5f32, 1.0], &[2, 1], &device)?;
        let halves = view(&floats.transpose()?, DType::U16)?;
        assert_eq!(halves.to_vec::<u16>()?, [0, 0x3f00, 0, 0x3f80]);
        let turned = count(&[2, 3], &device).transpose()?;
        assert_eq!(as_strided(&turned, &[2, 2], &[1, 1], 1)?.to_vec::<i32>()?, [3, 1, 1, 4]);
        assert_eq!(as_strided(&turned, &[3], &[-1], 5)?.to_vec::<i32>()?, [5, 2, 4]);
        assert!(as_strided(&turned, &[3], &[-1], 1).is_err());
    }
    assert!(view(&Array::scalar(1, DType::I32)?, DType::I16).is_err());
    Ok(())
}

#[test]
fn transposing_copies_move_every_element() -> Result<()> {
    for shape in [[33, 70], [100, 32], [64, 64], [31, 40]] {
        for dtype in [DType::U8, DType::F16, DType::I32, DType::I64] {
            let x = count(&shape, &Device::cpu());
            let narrow = crate::ops::astype(&x, dtype)?;
            let turned = narrow.transpose()?.contiguous()?;
            let back = crate::ops::astype(&turned.transpose()?, DType::F32)?;
            let expected = crate::ops::astype(&narrow, DType::F32)?;
            assert_eq!(back.to_vec::<f32>()?, expected.to_vec::<f32>()?, "{shape:?} {dtype}");
            let values = crate::ops::astype(&turned, DType::I32)?.to_vec::<i32>()?;
            let second = crate::ops::astype(&narrow, DType::I32)?.to_vec::<i32>()?[shape[1]];
            assert_eq!(values[1], second, "{shape:?} {dtype}");
        }
    }
    let stack = count(&[3, 40, 50], &Device::cpu());
    let turned = swapaxes(&stack, 1, 2)?.contiguous()?.to_vec::<i32>()?;
    assert_eq!((turned[1], turned[40], turned[2000 + 41]), (50, 1, 2000 + 51));
    Ok(())
}
