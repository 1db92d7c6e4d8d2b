//! Values and errors as MLX gives them, and the promise that only shapes decide the bits.

use half::f16;

use crate::ops::*;
use crate::testing::devices;
use crate::{Array, DType, Device, Error, Result};

const NAN: f32 = f32::NAN;

/// Deterministic values between -1 and 1.
fn values(count: usize) -> Vec<f32> {
    (0..count as u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 8) as f32 / (1u32 << 23) as f32 - 1.0)
        .collect()
}

fn on(device: &Device, shape: &[usize]) -> Result<Array> {
    Array::from_slice_on(&values(shape.iter().product()), shape, device)
}

#[test]
fn dtypes_of_results_are_mlx_s() -> Result<()> {
    use DType::*;
    for (from, summed) in [
        (Bool, I32),
        (U8, U32),
        (U16, U32),
        (U32, U32),
        (U64, U64),
        (I8, I32),
        (I16, I32),
        (I32, I32),
        (I64, I64),
        (F16, F16),
        (BF16, BF16),
        (F32, F32),
        (F64, F64),
    ] {
        let x = astype(&Array::new([0, 1, 2])?, from)?;
        assert_eq!(x.sum(())?.dtype(), summed);
        assert_eq!(x.prod(())?.dtype(), summed);
        assert_eq!(x.max(())?.dtype(), from);
        assert_eq!(x.min(())?.dtype(), from);
        assert_eq!(x.all(())?.dtype(), Bool);
        let total = astype(&x.sum(())?, F32)?.item::<f32>()?;
        assert_eq!(total, if from == Bool { 2.0 } else { 3.0 }, "{from}");
    }
    Ok(())
}

#[test]
fn an_empty_list_of_axes_changes_nothing_but_truth() -> Result<()> {
    let none: [i64; 0] = [];
    let x = Array::new([true, false])?;
    assert_eq!(sum(&x, none, false)?.dtype(), DType::Bool);
    let y = Array::new([2.0f32, 0.0])?;
    assert_eq!(all(&y, none, true)?.to_vec::<bool>()?, [true, false]);
    assert_eq!(max(&y, none, false)?.to_vec::<f32>()?, [2.0, 0.0]);
    Ok(())
}

#[test]
fn empty_axes_give_the_identity_or_an_error() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on::<f32>(&[], &[0, 3], &device)?;
        assert_eq!(x.sum(())?.item::<f32>()?, 0.0);
        assert_eq!(x.sum(0)?.to_vec::<f32>()?, [0.0; 3]);
        // More rows than the least memory has elements.
        let rows = Array::from_slice_on::<f32>(&[], &[100, 0], &device)?;
        assert_eq!(rows.sum(1)?.to_vec::<f32>()?, [0.0; 100]);
        assert_eq!(x.prod(0)?.to_vec::<f32>()?, [1.0; 3]);
        assert!(x.all(())?.item::<bool>()? && !x.any(())?.item::<bool>()?);
        for nothing in [mean(&rows, 1, true)?, var(&rows, 1, true, 0)?, std(&rows, 1, true, 1)?] {
            assert_eq!(nothing.shape(), [100, 1]);
            assert!(nothing.to_vec::<f32>()?.iter().all(|x| x.is_nan()));
        }
        assert!(x.mean(())?.item::<f32>()?.is_nan() && x.mean(1)?.to_vec::<f32>()?.is_empty());
        assert_eq!(x.max(1)?.shape(), [0]);
        assert!(x.max(1)?.to_vec::<f32>()?.is_empty());
        assert!(matches!(x.max(0), Err(Error::NoIdentity { op: "max", .. })));
        assert!(matches!(x.min(()), Err(Error::NoIdentity { op: "min", .. })));
    }
    Ok(())
}

#[test]
fn axes_are_checked() -> Result<()> {
    let x = Array::new([[1, 2], [3, 4]])?;
    assert!(matches!(x.sum(2), Err(Error::Axis { got: 2, rank: 2, .. })));
    assert!(matches!(x.sum([0, -2]), Err(Error::Argument { .. })));
    assert_eq!(x.sum([1, 0])?.shape(), [0usize; 0]);
    assert_eq!(x.sum_keepdims(())?.shape(), [1, 1]);
    assert!(Array::scalar(3.0, DType::F32)?.sum(0).is_err());
    assert_eq!(Array::scalar(3.0, DType::F32)?.sum(())?.item::<f32>()?, 3.0);
    Ok(())
}

#[test]
fn nan_wins_and_infinities_are_ordered() -> Result<()> {
    for device in devices() {
        let rows = [1.0, NAN, 3.0, -f32::INFINITY, 2.0, -5.0, f32::INFINITY, 2.0, -5.0];
        let x = Array::from_slice_on(&rows, &[3, 3], &device)?;
        let expected_max = [NAN, 2.0, f32::INFINITY].map(f32::to_bits);
        let got = x.max(1)?.to_vec::<f32>()?;
        assert!(got[0].is_nan() && got[1].to_bits() == expected_max[1], "{got:?} on {device}");
        assert_eq!(got[2], f32::INFINITY);
        let got = x.min(1)?.to_vec::<f32>()?;
        assert!(got[0].is_nan() && got[1] == -f32::INFINITY && got[2] == -5.0, "{got:?}");
        let lows = Array::from_slice_on(&[-f32::INFINITY; 40], &[40], &device)?;
        assert_eq!(lows.max(())?.item::<f32>()?, -f32::INFINITY);
        assert_eq!((-&lows).min(())?.item::<f32>()?, f32::INFINITY);
        let nan = Array::from_slice_on(&[NAN, 0.0], &[2], &device)?;
        assert_eq!((nan.any(())?.item::<bool>()?, nan.all(())?.item::<bool>()?), (true, false));
    }
    Ok(())
}

#[test]
fn every_layout_gives_the_same_bits() -> Result<()> {
    for shape in [[5000usize, 7, 3], [3, 9000, 5], [4, 3, 4100], [33, 2, 700]] {
        let x = on(&Device::cpu(), &shape)?;
        for axes in
            [vec![0i64], vec![1], vec![2], vec![0, 2], vec![0, 1], vec![1, 2], vec![0, 1, 2]]
        {
            let expected = x.sum(&axes[..])?.to_vec::<f32>()?;
            for order in [[0i64, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
                let mut back = [0i64; 3];
                order.iter().enumerate().for_each(|(to, &from)| back[from as usize] = to as i64);
                let moved = copy(&transpose_axes(&x, &order)?)?;
                let moved = transpose_axes(&moved, &back)?;
                let got = moved.sum(&axes[..])?.to_vec::<f32>()?;
                assert_eq!(got, expected, "{shape:?} {axes:?} {order:?}");
                let exact = moved.max(&axes[..])?.to_vec::<f32>()?;
                assert_eq!(exact, x.max(&axes[..])?.to_vec::<f32>()?);
            }
        }
    }
    Ok(())
}

#[test]
fn one_and_two_threads_give_the_same_bits() -> Result<()> {
    let x = on(&Device::cpu(), &[300, 1111])?;
    let run = |threads| -> Result<Vec<Vec<f32>>> {
        crate::set_threads(threads);
        [x.sum(())?, x.sum(0)?, x.sum(1)?, x.prod(())?].iter().map(|y| y.to_vec()).collect()
    };
    assert_eq!(run(1)?, run(2)?);
    let exact: f64 = values(300 * 1111).iter().map(|&v| v as f64).sum();
    let got = x.sum(())?.item::<f32>()? as f64;
    assert!((got - exact).abs() < 1.7e5 * 1e-7, "{got} {exact}");
    Ok(())
}

#[test]
fn half_precision_accumulates_in_single() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&vec![f16::ONE; 6000], &[2, 3000], &device)?;
        assert_eq!(x.sum(1)?.to_vec::<f16>()?, [f16::from_f32(3000.0); 2]);
        assert_eq!(x.transpose()?.sum(0)?.to_vec::<f16>()?, [f16::from_f32(3000.0); 2]);
    }
    Ok(())
}

#[test]
fn the_gradient_of_a_sum_spreads() -> Result<()> {
    let x = on(&Device::cpu(), &[2, 3])?;
    let g = crate::grad(|x: &[Array]| (x[0].sum(0)? * Array::new([1.0f32, 2.0, 3.0])?).sum(()));
    assert_eq!(g(&[x])?[0].to_vec::<f32>()?, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
    Ok(())
}

#[test]
fn arguments_of_extrema_follow_mlx() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&[1.0, NAN, 3.0, NAN, 5.0, NAN, 1.0, NAN], &[2, 4], &device)?;
        assert_eq!(x.argmax(1)?.to_vec::<u32>()?, [1, 1]);
        assert_eq!(x.argmin(1)?.to_vec::<u32>()?, [1, 1]);
        assert_eq!(x.argmax(0)?.to_vec::<u32>()?, [1, 0, 0, 0]);
        assert_eq!(x.argmin(0)?.to_vec::<u32>()?, [0, 0, 1, 0]);
        let ties = Array::from_slice_on(&[1, 5, 5, 9, 9, 3], &[2, 3], &device)?;
        assert_eq!(ties.argmax(1)?.to_vec::<u32>()?, [1, 0]);
        assert_eq!(argmax(&ties, (), true)?.shape(), [1, 1]);
        assert_eq!(ties.argmax(())?.item::<u32>()?, 3);
        assert_eq!(ties.argmin(0)?.to_vec::<u32>()?, [0, 0, 1]);
        let truth = astype(&ties, DType::Bool)?;
        assert_eq!(truth.argmin(())?.item::<u32>()?, 0);
        let long = on(&device, &[3, 5000])?;
        let moved = copy(&long.transpose()?)?;
        assert_eq!(long.argmax(1)?.to_vec::<u32>()?, moved.argmax(0)?.to_vec::<u32>()?);
        let lows = Array::from_slice_on(&[-f32::INFINITY; 70], &[70], &device)?;
        assert_eq!(lows.argmax(())?.item::<u32>()?, 0);
        let zeros = Array::from_slice_on(&[-0.0f32, 0.0, -0.0], &[3], &device)?;
        assert_eq!((zeros.argmax(0)?.item::<u32>()?, zeros.argmin(0)?.item::<u32>()?), (0, 0));
        let empty = Array::from_slice_on::<f32>(&[], &[0, 3], &device)?;
        assert!(matches!(empty.argmax(1), Err(Error::NoIdentity { op: "argmax", .. })));
        assert!(ties.argmax([0, 1]).is_err());
    }
    Ok(())
}

#[test]
fn logsumexp_of_infinities() -> Result<()> {
    const INF: f32 = f32::INFINITY;
    for device in devices() {
        let rows = [-INF, -INF, INF, 1.0, INF, -INF, NAN, 1.0, INF, INF, NAN, INF];
        let x = Array::from_slice_on(&rows, &[6, 2], &device)?;
        let y = x.logsumexp(1)?.to_vec::<f32>()?;
        assert_eq!([y[0], y[1], y[2], y[4]], [-INF, INF, INF, INF], "{device}");
        assert!(y[3].is_nan() && y[5].is_nan(), "{y:?} on {device}");
        let large = on(&device, &[2, 5000])?;
        let moved = copy(&large.transpose()?)?;
        let (a, b) = (large.logsumexp(1)?.to_vec::<f32>()?, moved.logsumexp(0)?.to_vec::<f32>()?);
        assert_eq!(a, b);
        let exact: f64 = values(5000).iter().map(|&v| (v as f64).exp()).sum::<f64>().ln();
        assert!((a[0] as f64 - exact).abs() < 1e-5, "{a:?} {exact}");
        let many = Array::from_slice_on(&[1000.0f32; 5000], &[5000], &device)?;
        let expected = 1000.0 + 5000f32.ln();
        assert!((many.logsumexp(())?.item::<f32>()? - expected).abs() < 1e-3);
    }
    assert_eq!(logsumexp(&Array::new([true, false])?, (), false)?.dtype(), DType::F32);
    assert!(Array::zeros(&[0, 3], DType::F32)?.logsumexp(0).is_err());
    Ok(())
}

#[test]
fn means_and_variances() -> Result<()> {
    let x = Array::new([1, 2, 4])?;
    assert!((std(&x, (), false, 0)?.item::<f32>()? - 1.247_219_1).abs() < 1e-6);
    let two = Array::new([1.0f32, 2.0])?;
    assert_eq!(var(&two, (), false, 2)?.item::<f32>()?, f32::INFINITY);
    assert_eq!(var(&two, (), false, 3)?.item::<f32>()?, f32::INFINITY);
    assert!(Array::zeros(&[0, 3], DType::F32)?.mean(())?.item::<f32>()?.is_nan());
    let none: [i64; 0] = [];
    assert_eq!(mean(&x, none, false)?.to_vec::<f32>()?, [1.0, 2.0, 4.0]);
    assert_eq!(count_nonzero(&Array::new([1.0, 0.0, NAN])?, (), false)?.item::<i32>()?, 2);
    // The sum alone would overflow.
    let half = Array::new([f16::from_f32(60000.0); 2])?;
    assert_eq!(half.mean(())?.item::<f16>()?, f16::from_f32(60000.0));
    Ok(())
}

#[test]
fn gradients_of_ties_and_zeros_are_mlx_s() -> Result<()> {
    let gradient = |x: Array, f: fn(&Array) -> Result<Array>| -> Result<Vec<f32>> {
        let y = f(&x)?;
        let ones: Vec<f32> = (1..=y.size()).map(|i| i as f32).collect();
        let g = Array::from_slice(&ones, y.shape())?;
        crate::vjp(|x| Ok(vec![f(&x[0])?]), &[x], &[g])?.1[0].to_vec()
    };
    let x = Array::new([1.0f32, 3.0, 3.0])?;
    assert_eq!(gradient(x.clone(), |x| x.max(()))?, [0.0, 0.5, 0.5]);
    assert_eq!(gradient(-&x, |x| x.min(()))?, [0.0, 0.5, 0.5]);
    assert_eq!(gradient(Array::new([2.0f32, 0.0, 3.0])?, |x| x.prod(()))?, [0.0, 6.0, 0.0]);
    assert_eq!(gradient(Array::new([0.0f32, 0.0, 3.0])?, |x| x.prod(()))?, [0.0; 3]);
    let cube = Array::new([[[0.0f32, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]])?;
    let expected = [20.0, 0.0, 252.0, 168.0, 0.0, 0.0, 84.0, 72.0];
    assert_eq!(gradient(cube, |x| x.prod([0, 2]))?, expected);
    let close = |got: Vec<f32>, expected: [f32; 3]| {
        assert!(got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{got:?}");
    };
    let y = Array::new([1.0f32, 2.0, 4.0])?;
    close(
        gradient(y.clone(), |x| var(x, (), false, 1))?,
        [-1.333_333_4, -0.333_333_34, 1.666_666_6],
    );
    close(gradient(y.clone(), |x| x.std(()))?, [-0.356_348_37, -0.089_087_09, 0.445_435_43]);
    close(gradient(y, |x| x.logsumexp(()))?, [0.042_010_07, 0.114_195_19, 0.843_794_76]);
    Ok(())
}
