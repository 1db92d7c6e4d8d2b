//! Attention, losses over a vocabulary and layer norms, with their gradients, against values recorded
//! from PyTorch: see `xtask/goldens/torch_record.py`.

use wootz::{
    Array, AttentionOptions, CrossEntropyOptions, DType, Device, Result, attention,
    cross_entropy_with, kl_divergence, layer_norm, vjp,
};

use super::{Recorded, devices};

impl Recorded {
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
        let array = |key: &str| self.array(case, key, device);
        let inputs: Vec<Array> = inputs.iter().map(|key| array(key)).collect();
        let function = |x: &[Array]| Ok(vec![function(x)?]);
        let (mut found, gradients) = vjp(function, &inputs, &[array(cotangent)]).unwrap();
        found.extend(gradients);
        assert_eq!(found.len(), results.len());
        for (key, got) in results.iter().zip(&found) {
            self.assert_close(case, key, got);
        }
    }
}

#[test]
fn attention_and_its_gradients_are_those_of_pytorch() {
    let seen = Recorded::load("torch/attention.safetensors");
    // Four of the queries see nothing.
    let unseen = Recorded::load("torch/unseen.safetensors");
    for device in devices() {
        for (recorded, case, causal, masked) in [
            (&seen, "plain", false, false),
            (&seen, "grouped", true, false),
            (&seen, "more_keys", true, false),
            (&unseen, "more_queries", true, false),
            (&seen, "additive", false, true),
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
    let recorded = Recorded::load("torch/rows.safetensors");
    for device in devices() {
        for (case, label_smoothing) in [("labels", 0.0), ("smoothed", 0.1)] {
            // Recorded as floats, like everything.
            let labels = recorded.array(case, "labels", &device).astype(DType::I32).unwrap();
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
    let recorded = Recorded::load("torch/rows.safetensors");
    for device in devices() {
        let results = &["y", "dx", "dweight", "dbias"];
        recorded.check("layer_norm", &device, &["x", "weight", "bias"], "dy", results, |x| {
            layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)
        });
    }
}
