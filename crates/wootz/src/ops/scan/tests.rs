//! Values as MLX gives them.

use crate::ops::*;
use crate::testing::devices;
use crate::{Array, DType, Device, Result};

const INF: f32 = f32::INFINITY;

fn gradient(x: &[f32], device: &Device, f: impl Fn(&Array) -> Result<Array>) -> Result<Vec<f32>> {
    let x = Array::from_slice_on(x, &[x.len()], device)?;
    let ones: Vec<f32> = (1..=x.size()).map(|i| i as f32).collect();
    let g = Array::from_slice_on(&ones, &[x.size()], device)?;
    crate::vjp(|x| Ok(vec![f(&x[0])?]), &[x], &[g])?.1[0].to_vec()
}

#[test]
fn exclusive_scans_start_with_the_identity_of_the_dtype() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&[0i32, 3, 2, 5], &[4], &device)?;
        for (dtype, low, high) in [
            (DType::F32, -INF, INF),
            (DType::F16, -INF, INF),
            (DType::U8, 0.0, 255.0),
            (DType::I8, -128.0, 127.0),
            (DType::I16, -32768.0, 32767.0),
            (DType::U16, 0.0, 65535.0),
        ] {
            let x = astype(&x, dtype)?;
            let get = |y: Array| astype(&y, DType::F32)?.to_vec::<f32>();
            assert_eq!(get(cumsum(&x, 0, false, false)?)?, [0.0, 0.0, 3.0, 5.0], "{dtype}");
            assert_eq!(get(cumprod(&x, 0, true, false)?)?, [30.0, 10.0, 5.0, 1.0], "{dtype}");
            assert_eq!(
                get(cummax(&x, 0, false, false)?)?,
                [low, 0.0, 3.0, 3.0],
                "{dtype} {device}"
            );
            assert_eq!(
                get(cummin(&x, 0, true, false)?)?,
                [2.0, 2.0, 5.0, high],
                "{dtype} {device}"
            );
        }
        let b = astype(&x, DType::Bool)?;
        assert_eq!(cumsum(&b, 0, false, false)?.to_vec::<i32>()?, [0, 0, 1, 2]);
        assert_eq!(cumprod(&b, 0, true, true)?.to_vec::<bool>()?, [false, true, true, true]);
        assert_eq!(cummin(&b, 0, false, false)?.to_vec::<bool>()?, [true, false, false, false]);
        let l = cummax(&astype(&x, DType::I64)?, (), false, false)?;
        assert_eq!(l.to_vec::<i64>()?, [i64::MIN, 0, 3, 3]);
        let l = cummin(&x, (), false, false)?;
        assert_eq!(l.to_vec::<i32>()?, [i32::MAX, 0, 0, 0]);
    }
    Ok(())
}

#[test]
fn nan_stays_and_infinities_are_handled() -> Result<()> {
    for device in devices() {
        let x = Array::from_slice_on(&[1.0, f32::NAN, 3.0, 2.0], &[4], &device)?;
        for y in [x.cummax(0)?, x.cummin(0)?, x.logcumsumexp(0)?, x.cumsum(0)?] {
            let y = y.to_vec::<f32>()?;
            assert!(y[0] == 1.0 && y[1..].iter().all(|v| v.is_nan()), "{y:?}");
        }
        let x = Array::from_slice_on(&[-INF, -INF, 1.0, INF, 2.0], &[5], &device)?;
        assert_eq!(x.logcumsumexp(0)?.to_vec::<f32>()?, [-INF, -INF, 1.0, INF, INF]);
        let y = logcumsumexp(&x, 0, false, false)?.to_vec::<f32>()?;
        assert_eq!(y, [-INF, -INF, -INF, 1.0, INF]);
    }
    Ok(())
}

#[test]
fn shapes_and_axes() -> Result<()> {
    assert_eq!(Array::scalar(3.0, DType::F32)?.cumsum(())?.shape(), [1]);
    assert!(Array::scalar(3.0, DType::F32)?.cumsum(0).is_err());
    assert!(Array::new([1])?.cumsum(1).is_err());
    assert!(Array::new([[1]])?.cumsum([0, 1]).is_err());
    let x = Array::new([[1, 2], [3, 4]])?;
    assert_eq!(x.cumsum(())?.to_vec::<i32>()?, [1, 3, 6, 10]);
    assert_eq!(x.transpose()?.cumsum(1)?.to_vec::<i32>()?, [1, 4, 2, 6]);
    assert_eq!(Array::zeros(&[0, 3], DType::F32)?.cummax(0)?.shape(), [0, 3]);
    Ok(())
}

#[test]
fn gradients_are_mlx_s() -> Result<()> {
    for device in devices() {
        let d = &device;
        assert_eq!(gradient(&[1.0, 2.0, 3.0], d, |x| x.cumsum(0))?, [6.0, 5.0, 3.0]);
        let exclusive = gradient(&[1.0, 2.0, 3.0], d, |x| cumsum(x, 0, true, false))?;
        assert_eq!(exclusive, [0.0, 1.0, 3.0]);
        assert_eq!(gradient(&[1.0, 2.0, 3.0], d, |x| x.cumprod(0))?, [23.0, 11.0, 6.0]);
        assert_eq!(gradient(&[1.0, 0.0, 3.0, 2.0], d, |x| x.cumprod(0))?, [1.0, 35.0, 0.0, 0.0]);
        assert_eq!(gradient(&[0.0, 2.0, 0.0, 2.0], d, |x| x.cumprod(0))?, [5.0, 0.0, 0.0, 0.0]);
        let exclusive = gradient(&[1.0, 2.0, 3.0], d, |x| cumprod(x, 0, false, false))?;
        assert_eq!(exclusive, [8.0, 3.0, 0.0]);
        let reverse = gradient(&[1.0, 2.0, 3.0], d, |x| cumprod(x, 0, true, true))?;
        assert_eq!(reverse, [6.0, 9.0, 9.0]);
        let ties = [1.0, 3.0, 3.0, 2.0, 5.0];
        assert_eq!(gradient(&ties, d, |x| x.cummax(0))?, [1.0, 2.0, 7.0, 0.0, 5.0]);
        let reverse = gradient(&ties, d, |x| cummax(x, 0, true, true))?;
        assert_eq!(reverse, [0.0, 0.0, 0.0, 0.0, 15.0]);
        let exclusive = gradient(&ties, d, |x| cummax(x, 0, false, false))?;
        assert_eq!(exclusive, [2.0, 3.0, 9.0, 0.0, 0.0]);
        let both = gradient(&ties, d, |x| cummax(x, 0, true, false))?;
        assert_eq!(both, [0.0, 0.0, 0.0, 0.0, 10.0]);
        let low = gradient(&[4.0, 3.0, 3.0, 2.0, 5.0], d, |x| x.cummin(0))?;
        assert_eq!(low, [1.0, 2.0, 3.0, 9.0, 0.0]);
        // MLX crashes here.
        let nan = gradient(&[f32::NAN, 1.0, f32::NAN], d, |x| x.cummax(0))?;
        assert_eq!(nan, [6.0, 0.0, 0.0]);
        let close = |got: Vec<f32>, expected: [f32; 3]| {
            let near = got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(near, "{got:?} {expected:?}");
        };
        close(
            gradient(&[1.0, 2.0, 3.0], d, |x| x.logcumsumexp(0))?,
            [1.8079746, 2.1963024, 1.9957225],
        );
        close(
            gradient(&[1.0, 2.0, 3.0], d, |x| logcumsumexp(x, 0, false, false))?,
            [2.8068242, 2.1931756, 0.0],
        );
        close(
            gradient(&[1.0, 2.0, 3.0], d, |x| logcumsumexp(x, 0, true, true))?,
            [0.09003057, 0.7826114, 5.1273584],
        );
    }
    Ok(())
}

#[test]
fn second_gradients_of_products() -> Result<()> {
    // The sum of the products of x, y, z is x + xy + xyz.
    let x = Array::new([2.0f32, 3.0, 5.0])?;
    let first = |x: &[Array]| -> Result<Array> {
        let g = crate::grad(|x: &[Array]| x[0].cumprod(0)?.sum(()))(x)?;
        // Its x-derivative, 1 + y + yz.
        multiply(&g[0], Array::new([1.0f32, 0.0, 0.0])?)?.sum(())
    };
    assert_eq!(first(std::slice::from_ref(&x))?.item::<f32>()?, 19.0);
    assert_eq!(crate::grad(first)(&[x])?[0].to_vec::<f32>()?, [0.0, 6.0, 3.0]);
    Ok(())
}
