//! The smoke test: a few seconds that touch every layer.
#![allow(missing_docs)]

use wootz::{Array, DType, Device, Result};

fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if !wootz::testing::ci() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}

fn on(device: &Device, values: &[f32], shape: &[usize]) -> Array {
    Array::from_slice_on(values, shape, device).unwrap()
}

#[test]
fn arrays_are_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Array>();
    check::<Device>();
}

#[test]
fn elementwise_chains_run_on_every_device() -> Result<()> {
    for device in devices() {
        let x = on(&device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
        let bias = on(&device, &[10.0, 20.0], &[2, 1]);
        let y = ((&x + &bias) * 2.0 - &x).square()?;
        let expected = [21.0f32, 22.0, 23.0, 44.0, 45.0, 46.0].map(|v: f32| v * v);
        assert_eq!(y.to_vec::<f32>()?, expected, "{device}");
        let t = &x.transpose()? * &x.transpose()?;
        assert_eq!(t.to_vec::<f32>()?, [1.0, 16.0, 4.0, 25.0, 9.0, 36.0], "{device}");
        for dtype in [DType::F16, DType::BF16, DType::U8, DType::I16, DType::I64, DType::Bool] {
            let narrow = wootz::astype(&x, dtype)?;
            let back = wootz::astype(&(&narrow + &narrow), DType::F32)?;
            let expected: Vec<f32> = match dtype {
                DType::Bool => vec![1.0; 6],
                _ => vec![2.0, 4.0, 6.0, 8.0, 10.0, 12.0],
            };
            assert_eq!(back.to_vec::<f32>()?, expected, "{device} {dtype}");
        }
    }
    Ok(())
}

#[test]
fn a_chain_of_a_million_nodes_evaluates_and_drops() -> Result<()> {
    let mut x = on(&Device::cpu(), &[0.0], &[1]);
    for _ in 0..1_000_000 {
        x = &x + 1.0;
    }
    assert_eq!(x.to_vec::<f32>()?, [1_000_000.0]);
    let mut lazy = on(&Device::cpu(), &[0.0], &[1]);
    for _ in 0..1_000_000 {
        lazy = &lazy + 1.0;
    }
    drop(lazy);
    Ok(())
}

#[cfg(feature = "gpu")]
#[test]
fn a_hundred_dependent_operations_are_one_submission() -> Result<()> {
    let Ok(device) = Device::gpu_with(0, &Default::default()) else { return Ok(()) };
    let gpu = device.as_gpu().unwrap();
    let mut x = on(&device, &[0.0; 8], &[8]);
    let before = gpu.counters().submissions;
    let mut kept = Vec::new();
    for _ in 0..100 {
        x = &x + 1.0;
        kept.push(x.clone());
    }
    x.eval()?;
    assert_eq!(gpu.counters().submissions - before, 1);
    assert_eq!(kept[41].to_vec::<f32>()?, [42.0; 8]);
    Ok(())
}
