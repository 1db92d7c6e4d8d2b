//! Complex numbers and Fourier transforms, beside values that MLX 0.32.4 printed and finite differences.
#![allow(missing_docs)]

use wootz::fft::{self, Norm};
use wootz::{Array, Complex32, DType, Device, Result};

fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if !wootz::testing::ci() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}

fn z(re: f32, im: f32) -> Complex32 {
    Complex32::new(re, im)
}

/// `[[1+2j, -0.5-1j, 0.3j], [2, -1+0.001j, -3-4j]]`.
fn first(device: &Device) -> Result<Array> {
    let values =
        [z(1.0, 2.0), z(-0.5, -1.0), z(0.0, 0.3), z(2.0, 0.0), z(-1.0, 1e-3), z(-3.0, -4.0)];
    Array::from_slice_on(&values, &[2, 3], device)
}

fn close(got: &Array, want: &[Complex32], what: &str) -> Result<()> {
    let got = got.to_vec::<Complex32>()?;
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).norm() <= 2e-6 + 2e-6 * want.norm(), "{what}: {got}, not {want}");
    }
    Ok(())
}

#[test]
fn reductions_scans_and_orders_are_those_of_mlx() -> Result<()> {
    for device in devices() {
        let x = first(&device)?;
        close(&x.sum(1)?, &[z(0.5, 1.3), z(-2.0, -3.999)], "sum")?;
        close(&x.prod(1)?, &[z(0.6, 0.45), z(6.008, 7.994)], "prod")?;
        close(&x.mean(1)?, &[z(0.16666667, 0.43333334), z(-0.6666667, -1.333)], "mean")?;
        close(&x.max(1)?, &[z(1.0, 2.0), z(2.0, 0.0)], "max")?;
        close(&x.min(())?, &[z(-3.0, -4.0)], "min")?;
        close(&x.logsumexp(1)?, &[z(0.81623656, 1.5036175), z(2.0443952, 0.0049255067)], "lse")?;
        let products =
            [z(1.0, 2.0), z(1.5, -2.0), z(0.6, 0.45), z(2.0, 0.0), z(-2.0, 0.002), z(6.008, 7.994)];
        close(&x.cumprod(1)?, &products, "cumprod")?;
        let smallest =
            [z(1.0, 2.0), z(-0.5, -1.0), z(-0.5, -1.0), z(2.0, 0.0), z(-1.0, 1e-3), z(-3.0, -4.0)];
        close(&x.cummin(1)?, &smallest, "cummin")?;
        let sorted =
            [z(-0.5, -1.0), z(0.0, 0.3), z(1.0, 2.0), z(-3.0, -4.0), z(-1.0, 1e-3), z(2.0, 0.0)];
        close(&x.sort(1)?, &sorted, "sort")?;
        assert_eq!(x.argsort(1)?.to_vec::<u32>()?, [1, 2, 0, 2, 1, 0], "{device}");
        assert_eq!(x.argmax(())?.item::<u32>()?, 3, "{device}");
        let variance = x.var(1)?.to_vec::<f32>()?;
        assert!((variance[0] - 1.8977778).abs() < 1e-5 && (variance[1] - 7.7786665).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn inverse_tangents_are_right_beside_their_poles() -> Result<()> {
    let (near, far) = (9.924967e-3, 1.0507201);
    for device in devices() {
        let beside = |values: [Complex32; 2]| Array::from_slice_on(&values, &[2], &device);
        let (re, im) = (1.4765965, 1.8404238);
        let angles = beside([z(near, far), z(near, -far)])?.arctan()?;
        close(&angles, &[z(re, im), z(re, -im)], "arctan")?;
        let angles = beside([z(far, near), z(-far, near)])?.arctanh()?;
        close(&angles, &[z(im, re), z(-im, re)], "arctanh")?;
    }
    Ok(())
}

#[test]
fn products_of_matrices_are_those_of_mlx() -> Result<()> {
    for device in devices() {
        let values =
            [z(0.5, -1.0), z(1.5, 1.0), z(-2.0, 0.3), z(0.2, 0.1), z(-1.0, 2.0), z(-3.0, -4.0)];
        let (x, y) = (first(&device)?, Array::from_slice_on(&values, &[2, 3], &device)?);
        let want = [z(2.66, -2.6), z(3.7, -0.4), z(6.699, 4.1015), z(-5.602, 22.199)];
        close(&x.matmul(&y.transpose()?)?, &want, "matmul")?;
        close(&wootz::inner(&x, &y)?, &want, "inner")?;
    }
    Ok(())
}

#[test]
fn dtypes_numbers_and_texts_follow_mlx() -> Result<()> {
    let x = Array::new([z(1.0, 2.0), z(f32::NAN, f32::NAN), z(-0.0, -1e-10), z(0.0, -0.0)])?;
    assert_eq!(x.to_string(), "array([1+2j, nan+nanj, -0-1e-10j, 0+-0j], dtype=complex64)");
    assert_eq!(
        (Array::new([1, 2])? + z(0.0, 1.0)).to_vec::<Complex32>()?,
        [z(1.0, 1.0), z(2.0, 1.0)]
    );
    assert_eq!(wootz::astype(&x, DType::I32)?.to_vec::<i32>()?[0], 1);
    assert_eq!(
        wootz::astype(&Array::new([z(0.0, 0.3), z(0.0, 0.0)])?, DType::Bool)?.to_vec::<bool>()?,
        [true, false]
    );
    assert_eq!(
        wootz::abs(&Array::new([z(3e38, 3e38), z(3.0, 4.0)])?)?.to_vec::<f32>()?,
        [f32::INFINITY, 5.0]
    );
    for (name, outcome) in [
        ("floor", wootz::floor(&x)),
        ("erf", wootz::erf(&x)),
        ("sigmoid", wootz::sigmoid(&x)),
        ("remainder", wootz::remainder(&x, &x)),
        ("arctan2", wootz::arctan2(&x, &x)),
        ("bitwise_and", wootz::bitwise_and(&x, &x)),
        ("nan_to_num", wootz::nan_to_num(&x, 0.0, None, None)),
    ] {
        let error = outcome.map(|_| ()).expect_err(name).to_string();
        assert!(error.contains(name) && error.contains("complex64"), "{error}");
    }
    Ok(())
}

#[test]
fn moving_complex_numbers_moves_their_parts() -> Result<()> {
    type Call = fn(&Array) -> Result<Array>;
    let calls: &[(&str, Call)] = &[
        ("transpose", |x| x.transpose()?.contiguous()),
        ("flip", |x| wootz::flip(x, 1)),
        ("roll", |x| wootz::roll(x, 2, 1)),
        ("tile", |x| wootz::tile(x, &[2, 1])),
        ("repeat", |x| wootz::repeat(x, 2, 0)),
        ("pad", |x| wootz::pad(x, (1, 2), wootz::PadMode::Constant, 0)),
        ("reflect", |x| wootz::pad(x, (1, 1), wootz::PadMode::Reflect, 0)),
        ("concatenate", |x| wootz::concatenate(&[x.clone(), wootz::flip(x, 0)?], 1)),
        ("take", |x| wootz::take(x, &Array::new([2, 0, 2])?, Some(1))),
        ("set", |x| x.at(&Array::new([1])?).set(&x.index(0)?)),
        ("add at", |x| x.at(&Array::new([1, 1])?).add(&x.index(0)?)),
        ("where", |x| wootz::where_(&Array::new([true, false, true])?, x, &wootz::flip(x, 0)?)),
        ("tril", |x| wootz::tril(x, 0)),
        ("diagonal", |x| wootz::diagonal(x, 0, 0, 1)),
        ("cumsum", |x| x.cumsum(1)),
        ("sum", |x| x.sum(0)),
    ];
    for device in devices() {
        wootz::with_device(&device, || -> Result<()> {
            let z = first(&device)?;
            for (name, call) in calls {
                let whole = call(&z)?;
                let parts =
                    [(whole.real()?, call(&z.real()?)?), (whole.imag()?, call(&z.imag()?)?)];
                for (got, want) in parts {
                    assert_eq!(got.shape(), want.shape(), "{name} on {device}");
                    assert_eq!(got.to_vec::<f32>()?, want.to_vec::<f32>()?, "{name} on {device}");
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The gradient of `Re Σ conj(g)·f(x)` by the parts of `x`, as one complex number an element.
fn differences(
    function: &dyn Fn(&Array) -> Result<Array>,
    x: &[Complex32],
    shape: &[usize],
    gradient: &[Complex32],
) -> Result<Vec<Complex32>> {
    const STEP: f32 = 2e-3;
    let loss = |x: &[Complex32]| -> Result<f64> {
        let y = function(&Array::from_slice(x, shape)?)?;
        let y = wootz::astype(&y, DType::C64)?.to_vec::<Complex32>()?;
        Ok(y.iter().zip(gradient).map(|(y, g)| (g.conj() * y).re as f64).sum())
    };
    let along = |i: usize, step: Complex32| -> Result<f32> {
        let (mut above, mut below) = (x.to_vec(), x.to_vec());
        above[i] += step;
        below[i] -= step;
        Ok(((loss(&above)? - loss(&below)?) / (2.0 * STEP as f64)) as f32)
    };
    (0..x.len()).map(|i| Ok(z(along(i, z(STEP, 0.0))?, along(i, z(0.0, STEP))?))).collect()
}

#[test]
fn gradients_are_those_of_the_parts() -> Result<()> {
    let x = [z(0.6, -0.4), z(-0.3, 0.9), z(1.1, 0.2), z(0.1, -1.2), z(-0.8, -0.5), z(0.4, 0.7)];
    let shape = [2, 3];
    let m = Array::from_slice(&[z(0.3, 0.5), z(-1.0, 0.2), z(0.7, -0.6)], &[3, 1])?;
    type Call<'a> = (&'a str, Box<dyn Fn(&Array) -> Result<Array> + 'a>);
    let calls: Vec<Call<'_>> = vec![
        ("matmul", Box::new(|x| x.matmul(&wootz::to_device(&m, x.device())?))),
        ("prod", Box::new(|x| x.prod(1))),
        ("cumprod", Box::new(|x| x.cumprod(1))),
        ("logcumsumexp", Box::new(|x| x.logcumsumexp(1))),
        ("max", Box::new(|x| x.max(1))),
        ("cummax", Box::new(|x| x.cummax(1))),
        ("softmax", Box::new(|x| x.softmax(-1))),
        ("logsumexp", Box::new(|x| x.logsumexp(1))),
        ("var", Box::new(|x| x.var(1))),
        ("sort", Box::new(|x| x.sort(1))),
        ("scatter", Box::new(|x| x.at(&Array::new([1, 1])?).multiply(x))),
        ("power", Box::new(|x| x.power(&wootz::to_device(&m, x.device())?.transpose()?))),
        ("fft", Box::new(|x| fft::fft(x, Some(5), -1, Norm::Backward))),
        ("irfft", Box::new(|x| fft::irfft(x, Some(4), -1, Norm::Ortho))),
        ("ifftn", Box::new(|x| fft::ifftn(x, None, None, Norm::Backward))),
    ];
    for device in devices() {
        for (name, call) in &calls {
            let y = wootz::with_device(&Device::cpu(), || call(&Array::from_slice(&x, &shape)?))?;
            let weight = |i: usize| z(0.3 + 0.2 * i as f32, 0.5 - 0.3 * i as f32);
            let mut gradient: Vec<Complex32> = (0..y.size()).map(weight).collect();
            if !y.dtype().is_complex() {
                gradient.iter_mut().for_each(|g| g.im = 0.0);
            }
            let want = differences(call, &x, &shape, &gradient)?;
            let got = wootz::with_device(&device, || -> Result<Array> {
                let cotangent = Array::from_slice(&gradient, y.shape())?.astype(y.dtype())?;
                let function = |x: &[Array]| Ok(vec![call(&x[0])?]);
                Ok(wootz::vjp(function, &[Array::from_slice(&x, &shape)?], &[cotangent])?
                    .1
                    .remove(0))
            })?;
            let scale = want.iter().map(|z| z.norm()).fold(0.1, f32::max);
            for (got, want) in got.to_vec::<Complex32>()?.iter().zip(&want) {
                assert!(
                    (got - want).norm() < 5e-3 * scale,
                    "{name} on {device}: {got}, not {want}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn transforms_of_any_length_come_back() -> Result<()> {
    for device in devices() {
        for length in [1, 2, 3, 7, 8, 30, 97, 101, 1009, 1024] {
            let values: Vec<f32> = (0..2 * length).map(|i| (i * i % 23) as f32 - 11.0).collect();
            let x = Array::from_slice_on(&values, &[2, length], &device)?;
            for norm in [Norm::Backward, Norm::Ortho, Norm::Forward] {
                let there = fft::rfft(&x, None, -1, norm)?;
                assert_eq!(there.shape(), [2, length / 2 + 1]);
                let back = fft::irfft(&there, Some(length), -1, norm)?;
                assert!(wootz::allclose(&back, &x, 1e-4, 1e-3, false)?.item::<bool>()?, "{length}");
                let back = fft::ifft(&fft::fft(&x, None, -1, norm)?, None, -1, norm)?;
                assert_eq!(back.device(), &device);
                assert!(wootz::allclose(&back, &x, 1e-4, 1e-3, false)?.item::<bool>()?, "{length}");
            }
        }
    }
    Ok(())
}

#[test]
fn batches_of_transforms_are_transforms_of_rows() -> Result<()> {
    for device in devices() {
        let values: Vec<f32> = (0..12).map(|i| (i * i % 7) as f32).collect();
        let x = Array::from_slice_on(&values, &[3, 4], &device)?;
        let rows =
            wootz::vmap(|x| Ok(vec![fft::rfft(&x[0], None, -1, Norm::Backward)?]), 0, 0)(&[
                x.clone()
            ])?;
        let whole = fft::rfft(&x, None, -1, Norm::Backward)?;
        assert_eq!(rows[0].to_vec::<Complex32>()?, whole.to_vec::<Complex32>()?, "{device}");
    }
    Ok(())
}

#[test]
fn lengths_and_axes_that_are_not_there_are_refused() -> Result<()> {
    let (x, empty) = (Array::ones(&[3, 4], DType::F32)?, Array::ones(&[0], DType::F32)?);
    let scalar = Array::scalar(1.0, DType::F32)?;
    assert!(fft::fft(&empty, None, -1, Norm::Backward).is_err());
    assert!(fft::fft(&x, Some(0), -1, Norm::Backward).is_err());
    assert!(fft::irfft(&Array::ones(&[1], DType::F32)?, None, -1, Norm::Backward).is_err());
    assert!(fft::fft(&scalar, None, -1, Norm::Backward).is_err());
    assert!(fft::fftn(&x, Some(&[2]), None, Norm::Backward).is_err());
    assert!(fft::fftn(&x, Some(&[2]), Some(&[0, 1]), Norm::Backward).is_err());
    assert!(fft::fftn(&x, None, Some(&[1, -1]), Norm::Backward).is_err());
    assert_eq!(fft::fftn(&x, None, Some(&[]), Norm::Backward)?.dtype(), DType::F32);
    let batch = Array::ones(&[0, 4], DType::F32)?;
    assert_eq!(fft::rfft(&batch, None, -1, Norm::Backward)?.shape(), [0, 3]);
    Ok(())
}
