//! Operations, layers and their gradients against values recorded from PyTorch, MLX, mlx-lm and gguf.
#![allow(missing_docs)]

mod mlx_lm;
mod quantized;
mod torch;

use std::collections::BTreeMap;
use std::path::Path;

use wootz::{Array, Device, io, to_device};

/// The largest error of f32, relative to the largest number or 1.
const MOST: f32 = 2e-5;

/// A file of recorded cases.
struct Recorded(BTreeMap<String, Array>);

impl Recorded {
    /// A file below `goldens`.
    fn load(file: &str) -> Recorded {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
        Recorded(io::load_safetensors(&folder.join(file)).unwrap())
    }

    fn array(&self, case: &str, key: &str, device: &Device) -> Array {
        to_device(&self.0[&format!("{case}.{key}")], device).unwrap()
    }

    /// Asserts that an array is the recorded one; a NaN is not.
    fn assert_close(&self, case: &str, key: &str, got: &Array) {
        let (cpu, device) = (Device::cpu(), got.device());
        let want = self.array(case, key, &cpu);
        assert_eq!(got.shape(), want.shape(), "{case}.{key} on {device}");
        let want = want.to_vec::<f32>().unwrap();
        let got = to_device(got, &cpu).unwrap().to_vec::<f32>().unwrap();
        let largest = want.iter().fold(1f32, |most, x| most.max(x.abs()));
        let close = |(got, want): (&f32, &f32)| (got - want).abs() <= MOST * largest;
        if let Some(at) = got.iter().zip(&want).position(|pair| !close(pair)) {
            panic!("{case}.{key} on {device}: {} at {at}, expected {}", got[at], want[at]);
        }
    }
}

fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(_) if cfg!(not(feature = "gpu")) => {}
        Err(error) if !wootz::testing::ci() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}
