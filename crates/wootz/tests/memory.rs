//! Memory limits. In a binary of its own, in one test, because the CPU's limit is for the process.
#![allow(missing_docs)]
#![cfg(feature = "gpu")]

use wootz::{Array, DType, Device, Error, Result};

#[test]
fn going_over_the_limit_is_an_error_and_the_process_lives_on() -> Result<()> {
    over_the_limit(&Device::cpu())?;
    match Device::gpu() {
        Ok(gpu) => {
            let index = gpu.as_gpu().map_or(0, |gpu| gpu.summary().index);
            over_the_limit(&Device::gpu_with(index, &Default::default())?)
        }
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: {error}");
            Ok(())
        }
        Err(error) => panic!("{error}"),
    }
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
