//! Bad input: each kind is its own error, with the numbers in it, and leaves earlier arrays usable.
#![allow(missing_docs)]
#![cfg(feature = "gpu")]

use wootz::gpu::GpuOptions;
use wootz::{Array, DType, Device, Error, Result};

/// The CPU, and a GPU if there is one; in CI there must be one.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if !wootz::testing::ci() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}

fn ramp(device: &Device, shape: &[usize]) -> Array {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
    Array::from_slice_on(&values, shape, device).unwrap()
}

/// The error of something that must fail, while `kept` stays usable.
#[track_caller]
fn error_of<T>(result: Result<T>, kept: &Array) -> Error {
    let error = result.err().expect("this must fail");
    let values = (kept + 1.0).to_vec::<f32>().expect("earlier arrays stay usable");
    let expected: Vec<f32> = (0..kept.size()).map(|i| i as f32 + 1.0).collect();
    assert_eq!(values, expected);
    error
}

/// Checks the variant and that the text holds all of these.
macro_rules! assert_error {
    ($error:expr, $pattern:pat, $($part:expr),+) => {{
        let error = $error;
        assert!(matches!(error, $pattern), "{error:?}");
        let text = error.to_string();
        $(assert!(text.contains($part), "{text:?} lacks {:?}", $part);)+
    }};
}

#[test]
fn mismatched_shapes_name_both_shapes() {
    for device in devices() {
        let a = ramp(&device, &[2, 3]);
        let b = ramp(&device, &[4]);
        assert_error!(
            error_of(wootz::add(&a, &b), &a),
            Error::Shape { op: "add", .. },
            "[2, 3]",
            "[4]"
        );
        assert_error!(
            error_of(wootz::matmul(&a, &a), &a),
            Error::Shape { op: "matmul", .. },
            "matmul",
            "[2, 3]"
        );
        assert_error!(
            error_of(a.reshape(&[5]), &a),
            Error::Shape { op: "reshape", .. },
            "6 elements",
            "[5]"
        );
        assert_error!(
            error_of(wootz::broadcast_to(&a, &[3, 2]), &a),
            Error::Shape { op: "broadcast_to", .. },
            "[2, 3]",
            "[3, 2]"
        );
        let concatenated = wootz::concatenate(&[a.clone(), ramp(&device, &[2, 2])], 0);
        assert_error!(error_of(concatenated, &a), Error::Shape { .. }, "[2, 2]");
    }
}

#[test]
fn wrong_dtypes_name_the_dtype() {
    for device in devices() {
        let a = ramp(&device, &[2, 3]);
        let shifted = wootz::left_shift(&a, &a);
        assert_error!(error_of(shifted, &a), Error::Dtype { op: "left_shift", .. }, "float32");
        assert_error!(
            error_of(a.to_vec::<i32>(), &a),
            Error::Dtype { op: "to_vec", .. },
            "int32",
            "float32"
        );
    }
}

#[test]
fn bad_axes_name_axis_and_rank() {
    for device in devices() {
        let a = ramp(&device, &[2, 3]);
        let is = |result: Result<Array>, axis: &str| {
            assert_error!(error_of(result, &a), Error::Axis { rank: 2, .. }, axis, "rank 2");
        };
        is(a.sum(2), "axis 2");
        is(a.sum([0, -3]), "axis -3");
        is(wootz::softmax(&a, 5), "axis 5");
        is(wootz::transpose_axes(&a, &[0, 7]), "axis 7");
        is(wootz::concatenate(&[a.clone(), a.clone()], 2), "axis 2");
        let twice = a.sum([0, 0]);
        assert_error!(error_of(twice, &a), Error::Argument { op: "sum", .. }, "[0, 0]");
    }
}

#[test]
fn sizes_that_overflow_are_errors_before_anything_is_allocated() {
    let huge = 1usize << 40;
    for device in devices() {
        let a = ramp(&device, &[2, 3]);
        let zeros =
            wootz::with_device(&device, || Array::zeros(&[huge, huge], DType::F32)).map(|_| ());
        assert_error!(error_of(zeros, &a), Error::SizeOverflow { .. }, "1099511627776");
        let empty = Array::empty_on(&[huge, huge], DType::U8, &device).map(|_| ());
        assert_error!(error_of(empty, &a), Error::SizeOverflow { .. }, "1099511627776");
        let one = a.reshape(&[2, 3, 1]).unwrap();
        let wide = wootz::broadcast_to(&one, &[huge, huge, 2, 3, 1]).map(|_| ());
        assert_error!(error_of(wide, &a), Error::SizeOverflow { .. }, "1099511627776");
        let reshaped = a.reshape(&[huge, huge]);
        assert_error!(error_of(reshaped, &a), Error::SizeOverflow { .. }, "1099511627776");
        let too_few = Array::from_slice_on(&[1.0f32; 3], &[2, 2], &device).map(|_| ());
        assert_error!(error_of(too_few, &a), Error::Shape { .. }, "[2, 2]", "3");
    }
}

#[test]
fn reductions_without_identity_say_so() {
    for device in devices() {
        let a = ramp(&device, &[2, 3]);
        let none = Array::from_slice_on::<f32>(&[], &[0, 3], &device).unwrap();
        for (name, result) in [
            ("max", none.max(0)),
            ("min", none.min(0)),
            ("argmax", wootz::argmax(&none, 0, false)),
            ("argmin", wootz::argmin(&none, 0, false)),
        ] {
            assert_error!(error_of(result, &a), Error::NoIdentity { .. }, name, "[0, 3]");
        }
        assert_eq!(none.sum(0).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
        assert_eq!(none.prod(0).unwrap().to_vec::<f32>().unwrap(), [1.0; 3]);
    }
}

#[test]
fn indices_out_of_range_are_errors_on_every_device() {
    for device in devices() {
        let a = ramp(&device, &[2, 3]);
        let bad =
            |values: &[i32], shape: &[usize]| Array::from_slice_on(values, shape, &device).unwrap();
        let taken = wootz::take(&a, bad(&[0, 7], &[2]), Some(1)).and_then(|y| y.to_vec::<f32>());
        assert_error!(error_of(taken, &a), Error::Index { op: "take", got: 7, length: 3, .. }, "7");
        let along = wootz::take_along_axis(&a, &bad(&[0, -4], &[2, 1]), Some(1));
        let along = along.and_then(|y| y.to_vec::<f32>());
        assert_error!(
            error_of(along, &a),
            Error::Index { op: "take_along_axis", got: -4, length: 3, .. },
            "-4"
        );
    }
}

#[test]
fn arrays_of_another_device_are_refused_but_scalars_move() {
    let [cpu, gpu] = &devices()[..] else { return };
    let (a, b) = (ramp(cpu, &[2, 3]), ramp(gpu, &[2, 3]));
    let mixed = wootz::add(&a, &b);
    assert_error!(error_of(mixed, &b), Error::DeviceMismatch { op: "add", .. }, "cpu", "gpu");
    let scalar = Array::from_slice_on(&[1.0f32], &[], cpu).unwrap();
    assert_eq!(wootz::add(&b, &scalar).unwrap().device(), gpu);
}

#[test]
fn devices_that_do_not_exist_are_named() {
    let kept = ramp(&Device::cpu(), &[3]);
    let no = |result: Result<Device>, name: &str| {
        assert_error!(error_of(result, &kept), Error::NoDevice { .. }, name);
    };
    no(Device::gpu_at(999), "999");
    no(Device::from_name("gpu:99"), "99");
    no(Device::from_name("tpu"), "tpu");
    no(Device::from_name("gpu:x"), "gpu:x");
}

#[test]
fn a_missing_feature_of_the_driver_is_named() {
    let Some(Ok(index)) = devices().get(1).map(adapter) else { return };
    let options = GpuOptions { without_int64: true, ..Default::default() };
    let device = Device::gpu_with(index, &options).unwrap();
    let kept = ramp(&device, &[4]);
    let x = Array::from_slice_on(&[1i64, 2], &[2], &device).unwrap();
    let sum = wootz::add(&x, &x).and_then(|sum| sum.to_vec::<i64>());
    assert_error!(error_of(sum, &kept), Error::MissingFeature { .. }, "SHADER_INT64", "int64");
}

#[test]
fn a_ring_of_32_bit_positions_needs_no_feature_for_longer_ones() {
    let mut all = devices();
    let options = GpuOptions { without_int64: true, ..Default::default() };
    all.extend(all.get(1).map(|gpu| Device::gpu_with(adapter(gpu).unwrap(), &options).unwrap()));
    for device in all {
        let cache = ramp(&device, &[1, 5, 1]);
        let rows = Array::from_slice_on(&[7.0f32, 8.0], &[1, 2, 1], &device).unwrap();
        let at = |position: Array| wootz::cache_ring(&cache, &rows, &position).unwrap();
        let position = |p: i32| Array::from_slice_on(&[p], &[1], &device).unwrap();
        // 2^31 - 1 is 2 in a ring of five, and so is 2^32 - 4.
        for (ring, want) in [
            (at(position(9)), [8.0, 1.0, 2.0, 3.0, 7.0]),
            (at(position(i32::MAX)), [0.0, 1.0, 7.0, 8.0, 4.0]),
            (at(position(-1)), [8.0, 1.0, 2.0, 3.0, 7.0]),
            (
                at(Array::from_slice_on(&[u32::MAX - 3], &[1], &device).unwrap()),
                [0.0, 1.0, 7.0, 8.0, 4.0],
            ),
        ] {
            assert_eq!(ring.to_vec::<f32>().unwrap(), want, "{device}");
        }
    }
}

#[test]
fn doubles_on_a_gpu_are_refused_when_the_node_is_built() {
    let Some(gpu) = devices().get(1).cloned() else { return };
    let kept = ramp(&gpu, &[4]);
    let made = Array::from_slice_on(&[1.0f64], &[1], &gpu).map(|_| ());
    assert_error!(error_of(made, &kept), Error::NotOnDevice { .. }, "float64");
    let cast = wootz::astype(&kept, DType::F64).map(|_| ());
    assert_error!(error_of(cast, &kept), Error::NotOnDevice { .. }, "float64");
}

#[test]
fn a_lost_device_is_reported_and_others_go_on() {
    let Some(Ok(index)) = devices().get(1).map(adapter) else { return };
    let device = Device::gpu_with(index, &Default::default()).unwrap();
    let (kept, other) = (ramp(&Device::cpu(), &[3]), ramp(&devices()[1], &[3]));
    let x = ramp(&device, &[8]);
    let lazy = &x + 1.0;
    device.as_gpu().unwrap().lose_for_test();
    assert_error!(
        error_of(lazy.to_vec::<f32>(), &kept),
        Error::DeviceLost { .. },
        "destroyed by a test"
    );
    let upload = Array::from_slice_on(&[1.0f32], &[1], &device).map(|_| ());
    assert_error!(error_of(upload, &kept), Error::DeviceLost { .. }, "destroyed");
    assert_eq!((&other * 2.0).to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0]);
}

fn adapter(device: &Device) -> Result<usize, ()> {
    device.as_gpu().map(|gpu| gpu.summary().index).ok_or(())
}
