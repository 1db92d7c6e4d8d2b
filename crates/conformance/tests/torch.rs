//! Attention and its gradients against values recorded from PyTorch: see
//! `xtask/goldens/torch_record.py`.
#![allow(missing_docs)]

use std::path::Path;

use wootz::{Array, AttentionOptions, Device, attention, io, to_device, vjp};

/// The largest error of f32, relative to the largest number or 1.
const MOST: f32 = 2e-5;

#[test]
fn attention_and_its_gradients_are_those_of_pytorch() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/torch/attention.safetensors");
    let arrays = io::load_safetensors(&file).unwrap();
    let cpu = Device::cpu();
    let mut devices = vec![cpu.clone()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if std::env::var_os("CI").is_none() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    for device in devices {
        for (name, causal, masked) in [
            ("plain", false, false),
            ("grouped", true, false),
            ("more_keys", true, false),
            ("additive", false, true),
        ] {
            let array = |key: &str| to_device(&arrays[&format!("{name}.{key}")], &device).unwrap();
            let mut inputs = vec![array("q"), array("k"), array("v")];
            inputs.extend(masked.then(|| array("mask")));
            let attend = |x: &[Array]| {
                let options =
                    AttentionOptions { causal, mask: x.get(3), ..AttentionOptions::new(0.4) };
                Ok(vec![attention(&x[0], &x[1], &x[2], &options)?])
            };
            let (mut results, gradients) = vjp(attend, &inputs, &[array("dout")]).unwrap();
            results.extend(gradients);
            for (key, got) in ["out", "dq", "dk", "dv", "dmask"].iter().zip(&results) {
                let want = arrays[&format!("{name}.{key}")].to_vec::<f32>().unwrap();
                let got = to_device(got, &cpu).unwrap().to_vec::<f32>().unwrap();
                let largest = want.iter().fold(1f32, |most, x| most.max(x.abs()));
                let off = got.iter().zip(&want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
                assert!(off <= MOST * largest, "{name}.{key} on {device}: off by {off:e}");
                assert_eq!(got.len(), want.len());
            }
        }
    }
}
