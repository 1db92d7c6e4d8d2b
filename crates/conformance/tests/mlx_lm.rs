//! Layers and their gradients against values recorded from mlx-lm: see
//! `xtask/goldens/mlx_lm_record.py`.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::path::Path;

use wootz::nn::{DeltaDims, GatedDeltaNet, Module, MoeDims, SparseMoe};
use wootz::{
    Array, Device, Result, Router, Ties, io, to_device, tree_unflatten, value_and_grad_of,
    with_device,
};

/// The largest error of f32, relative to the largest number or 1.
const MOST: f32 = 2e-5;

/// A file of recorded cases.
struct Recorded(BTreeMap<String, Array>);

impl Recorded {
    fn load(file: &str) -> Recorded {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/mlx_lm");
        Recorded(io::load_safetensors(&folder.join(file)).unwrap())
    }

    fn array(&self, case: &str, key: &str) -> Array {
        to_device(&self.0[&format!("{case}.{key}")], &Device::cpu()).unwrap()
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

/// Compares a layer's output, and the gradients of its parameters and its input.
fn check<M: Module + Clone>(recorded: &Recorded, case: &str, layer: &M, device: &Device) {
    let work = || -> Result<BTreeMap<String, Array>> {
        let here = |key: &str| to_device(&recorded.array(case, key), device);
        let names: Vec<String> = layer.parameters().into_keys().collect();
        let given = names.iter().map(|name| Ok((name.clone(), here(name)?)));
        let layer = tree_unflatten(layer, given.collect::<Result<Vec<_>>>()?)?;
        let (x, dy) = (here("x")?, here("dy")?);
        let loss = |point: &(M, Array)| point.0.forward(&point.1)?.multiply(&dy)?.sum(());
        let y = layer.forward(&x)?;
        let (_, gradients) = value_and_grad_of(loss)(&(layer, x))?;
        let mut found = BTreeMap::from([("y".to_string(), y), ("dx".to_string(), gradients.1)]);
        for (name, gradient) in gradients.0.parameters() {
            found.insert(format!("grad.{name}"), gradient);
        }
        assert_eq!(found.len(), names.len() + 2);
        Ok(found)
    };
    for (key, got) in with_device(device, work).unwrap() {
        let want = recorded.array(case, &key);
        assert_eq!(got.shape(), want.shape(), "{case}.{key}");
        let want = want.to_vec::<f32>().unwrap();
        let got = to_device(&got, &Device::cpu()).unwrap().to_vec::<f32>().unwrap();
        let largest = want.iter().fold(1f32, |most, x| most.max(x.abs()));
        let off = got.iter().zip(&want).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(off <= MOST * largest, "{case}.{key} on {device}: off by {off:e} of {largest}");
    }
}

#[test]
fn sparse_experts_and_their_gradients_are_those_of_qwen3_next() {
    let recorded = Recorded::load("sparse_experts.safetensors");
    let dims = MoeDims { dims: 16, hidden: 12, experts: 8, shared: 10 };
    let router = Router { renormalise: true, ties: Ties::HigherFirst, ..Router::new(3) };
    let block = SparseMoe::new(dims, router).unwrap();
    let as_they_are = SparseMoe::new(dims, Router { k: 5, renormalise: false, ..router }).unwrap();
    for device in devices() {
        check(&recorded, "plain", &block, &device);
        check(&recorded, "ties", &block, &device);
        check(&recorded, "all_equal", &block, &device);
        check(&recorded, "as_they_are", &as_they_are, &device);
    }
}

#[test]
fn the_gated_delta_layer_and_its_gradients_are_those_of_qwen3_next() {
    let recorded = Recorded::load("gated_delta.safetensors");
    let dims =
        DeltaDims { dims: 16, key_heads: 2, value_heads: 4, key_dims: 8, value_dims: 6, taps: 4 };
    let layer = GatedDeltaNet::new(dims).unwrap();
    for device in devices() {
        check(&recorded, "short", &layer, &device);
        check(&recorded, "longer", &layer, &device);
    }
}
