//! What is in memory, and its limits. In a binary of its own, and one test at a time, because the
//! CPU's counters and its limit are for the process.
#![allow(missing_docs)]
#![cfg(feature = "gpu")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use wootz::{Array, DType, Device, Error, Result};

/// Held by each test here while it runs; a test that failed does not fail the next.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPU, and a GPU device of the test's own.
fn devices() -> Vec<Device> {
    let opened = Device::gpu().and_then(|gpu| {
        Device::gpu_with(gpu.as_gpu().map_or(0, |gpu| gpu.summary().index), &Default::default())
    });
    match opened {
        Ok(gpu) => vec![Device::cpu(), gpu],
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {error}");
            vec![Device::cpu()]
        }
        Err(error) => panic!("{error}"),
    }
}

fn ramp(device: &Device, count: usize) -> Array {
    let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
    Array::from_slice_on(&values, &[count], device).unwrap()
}

#[test]
fn views_take_no_memory() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        let x = ramp(&device, 1 << 20);
        let active = device.memory().active;
        let y = x.reshape(&[1024, 1024])?.transpose()?;
        let y = wootz::slice(&y, &[3, 1000], &[900, 0], &[2, -1])?;
        let wide = wootz::broadcast_to(&x.reshape(&[1, 1 << 20])?, &[500, 1 << 20])?;
        wootz::eval([&y, &wide])?;
        assert!(y.is_evaluated() && wide.is_evaluated());
        assert_eq!(device.memory().active, active, "{device}");
    }
    Ok(())
}

#[test]
fn memory_that_nobody_else_needs_is_written_again() -> Result<()> {
    let _turn = take_turn();
    const BYTES: u64 = 4 << 20;
    for device in devices() {
        let mut x = ramp(&device, 1 << 20);
        device.reset_peak_memory();
        let start = device.memory().active;
        for i in 0..20 {
            // One evaluation per step, so that it is not fused away.
            let next = &x + i;
            drop(x);
            next.eval()?;
            x = next;
        }
        let peak = device.memory().peak;
        assert!(peak < start + BYTES / 2, "{device}: {} bytes above the start", peak - start);
        // A handle that is kept keeps its values.
        let kept = x.clone();
        let next = &x + 1.0;
        next.eval()?;
        assert_eq!(kept.to_vec::<f32>()?[0] + 1.0, next.to_vec::<f32>()?[0]);
    }
    Ok(())
}

#[test]
fn going_over_the_limit_is_an_error_and_the_process_lives_on() -> Result<()> {
    let _turn = take_turn();
    for device in devices() {
        over_the_limit(&device)?;
    }
    Ok(())
}

fn over_the_limit(device: &Device) -> Result<()> {
    const MIB: usize = 1 << 20;
    let quarter: Vec<f32> = (0..MIB / 16).map(|i| i as f32).collect();
    let x = Array::from_slice_on(&quarter, &[quarter.len()], device)?;
    let before = device.memory();
    let limit = before.active + MIB as u64;
    device.set_memory_limit(limit);

    // Too large at once.
    let error = Array::empty_on(&[2 * MIB], DType::U8, device).err();
    let Some(Error::OutOfMemory { requested, active, limit: told, .. }) = error else {
        panic!("{device}: {error:?}");
    };
    assert!(requested >= 2 * MIB as u64, "{requested}");
    assert_eq!((active, told), (before.active, limit));

    // Too large in the middle of an evaluation: what was there before stays.
    let mut kept = vec![x.clone()];
    let mut error = None;
    for i in 0..8 {
        let next = &kept[i] + 1.0;
        match next.eval() {
            Ok(()) => kept.push(next),
            Err(found) => {
                error = Some((found, next));
                break;
            }
        }
    }
    let Some((Error::OutOfMemory { .. }, failed)) = error else { panic!("{device}: no error") };
    let last = kept.len() - 1;
    assert!(last >= 2, "{device}: only {last} arrays of a quarter MiB fit under a limit of one");
    for (i, array) in kept.iter().enumerate() {
        assert_eq!(array.to_vec::<f32>()?[5], 5.0 + i as f32, "{device}");
    }

    // With memory given back the same array can be evaluated.
    kept.truncate(1);
    drop(kept);
    assert_eq!(failed.to_vec::<f32>()?[5], 6.0 + last as f32, "{device}");
    drop(failed);
    device.set_memory_limit(u64::MAX);
    let large = Array::empty_on(&[2 * MIB], DType::U8, device)?;
    assert!(device.memory().active >= before.active + 2 * MIB as u64);
    drop(large);
    drop(x);
    assert!(device.memory().active < before.active);
    device.clear_cache();
    assert_eq!(device.memory().cached, 0);
    Ok(())
}
