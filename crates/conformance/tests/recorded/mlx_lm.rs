//! Layers and their gradients against values recorded from mlx-lm: see
//! `xtask/goldens/mlx_lm_record.py`.

use std::collections::BTreeMap;

use wootz::nn::{DeltaDims, GatedDeltaNet, Module, MoeDims, SparseMoe};
use wootz::{Array, Device, Result, Router, Ties, tree_unflatten, value_and_grad_of, with_device};

use super::{Recorded, devices};

/// Compares a layer's output, and the gradients of its parameters and its input.
fn check<M: Module + Clone>(recorded: &Recorded, case: &str, layer: &M, device: &Device) {
    let work = || -> Result<BTreeMap<String, Array>> {
        let here = |key: &str| recorded.array(case, key, device);
        let names: Vec<String> = layer.parameters().into_keys().collect();
        let given = names.iter().map(|name| (name.clone(), here(name)));
        let layer = tree_unflatten(layer, given.collect::<Vec<_>>())?;
        let (x, dy) = (here("x"), here("dy"));
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
        recorded.assert_close(case, &key, &got);
    }
}

#[test]
fn sparse_experts_and_their_gradients_are_those_of_qwen3_next() {
    let recorded = Recorded::load("mlx_lm/sparse_experts.safetensors");
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
    let recorded = Recorded::load("mlx_lm/gated_delta.safetensors");
    let dims =
        DeltaDims { dims: 16, key_heads: 2, value_heads: 4, key_dims: 8, value_dims: 6, taps: 4 };
    let layer = GatedDeltaNet::new(dims).unwrap();
    for device in devices() {
        check(&recorded, "short", &layer, &device);
        check(&recorded, "longer", &layer, &device);
    }
}
