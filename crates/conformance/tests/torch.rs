//! Attention, losses over a vocabulary and layer norms, with their gradients, against values recorded
//! from PyTorch: see `xtask/goldens/torch_record.py`.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::path::Path;

use wootz::{
    Array, AttentionOptions, CrossEntropyOptions, DType, Device, Result, attention,
    cross_entropy_with, io, kl_divergence, layer_norm, to_device, vjp,
};

/// The largest error of f32, relative to the largest number or 1.
const MOST: f32 = 2e-5;

/// Recorded arrays by name.
struct Recorded(BTreeMap<String, Array>);

impl Recorded {
    fn load(file: &str) -> Recorded {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/torch");
        Recorded(io::load_safetensors(&folder.join(file)).unwrap())
    }

    /// Checks the results of a function of the arrays `inputs`, and then its gradients.
    fn check(
        &self,
        case: &str,
        device: &Device,
        inputs: &[&str],
        cotangent: &str,
        results: &[&str],
        function: impl Fn(&[Array]) -> Result<Array>,
    ) {
        let array = |key: &str| to_device(&self.0[&format!("{case}.{key}")], device).unwrap();
        let inputs: Vec<Array> = inputs.iter().map(|key| array(key)).collect();
        let function = |x: &[Array]| Ok(vec![function(x)?]);
        let (mut found, gradients) = vjp(function, &inputs, &[array(cotangent)]).unwrap();
        found.extend(gradients);
        assert_eq!(found.len(), results.len());
        for (key, got) in results.iter().zip(&found) {
            let want = self.0[&format!("{case}.{key}")].to_vec::<f32>().unwrap();
            let got = to_device(got, &Device::cpu()).unwrap().to_vec::<f32>().unwrap();
            let largest = want.iter().fold(1f32, |most, x| most.max(x.abs()));
            let off = got.iter().zip(&want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(off <= MOST * largest, "{case}.{key} on {device}: off by {off:e}");
            assert_eq!(got.len(), want.len());
        }
    }
}

fn devices() -> Vec<Device> {
    let mut devices = vec![Device::cpu()];
    match Device::gpu() {
        Ok(gpu) => devices.push(gpu),
        Err(error) if std::env::var_os("CI").is_none() => eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    }
    devices
}

#[test]
fn attention_and_its_gradients_are_those_of_pytorch() {
    let recorded = Recorded::load("attention.safetensors");
    for device in devices() {
        for (case, causal, masked) in [
            ("plain", false, false),
            ("grouped", true, false),
            ("more_keys", true, false),
            ("additive", false, true),
        ] {
            let count = if masked { 4 } else { 3 };
            let inputs = &["q", "k", "v", "mask"][..count];
            let results = &["out", "dq", "dk", "dv", "dmask"][..count + 1];
            recorded.check(case, &device, inputs, "dout", results, |x| {
                let options =
                    AttentionOptions { causal, mask: x.get(3), ..AttentionOptions::new(0.4) };
                attention(&x[0], &x[1], &x[2], &options)
            });
        }
    }
}

#[test]
fn losses_over_a_vocabulary_are_those_of_pytorch() {
    let recorded = Recorded::load("rows.safetensors");
    for device in devices() {
        for (case, label_smoothing) in [("labels", 0.0), ("smoothed", 0.1)] {
            // Recorded as floats, like everything.
            let labels = recorded.0[&format!("{case}.labels")].astype(DType::I32).unwrap();
            let labels = to_device(&labels, &device).unwrap();
            recorded.check(case, &device, &["logits"], "g", &["loss", "dlogits"], |x| {
                let ignore_index = Some(-100);
                let options = CrossEntropyOptions { label_smoothing, ignore_index, mask: None };
                cross_entropy_with(&x[0], &labels, &options)
            });
        }
        let results = &["loss", "dp", "dq"];
        recorded.check("divergence", &device, &["p", "q"], "g", results, |x| {
            kl_divergence(&x[0], &x[1])
        });
    }
}

#[test]
fn layer_norm_and_its_gradients_are_those_of_pytorch() {
    let recorded = Recorded::load("rows.safetensors");
    for device in devices() {
        let results = &["y", "dx", "dweight", "dbias"];
        recorded.check("layer_norm", &device, &["x", "weight", "bias"], "dy", results, |x| {
            layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)
        });
    }
}
