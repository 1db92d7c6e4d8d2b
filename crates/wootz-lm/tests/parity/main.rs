//! The committed sample of tiny checkpoints gives what mlx-lm gave: one or more of every architecture, and of some
//! what other configurations make of them.

mod compare;
mod configurations;
mod layouts;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use compare::{checkpoints, compare};
use wootz::{Array, Device};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::generate::Session;
use wootz_lm::models::{LoadOptions, architectures, load};

fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models")
}

/// The scores `[length, vocabulary]` that the model of a folder gives tokens.
fn scores(folder: &Path, tokens: &[u32]) -> wootz_lm::Result<Array> {
    let model = load(&Checkpoint::open(folder)?, &LoadOptions { device: Device::cpu() })?;
    Session::new(model, &CacheOptions::default())?.logits_of(tokens)
}

/// The prompt of a committed checkpoint.
fn prompt(name: &str) -> Vec<u32> {
    let file = wootz::io::Safetensors::open(goldens().join(name).join(compare::EXPECTED)).unwrap();
    let prompt = file.tensor_on("prompt", &Device::cpu()).unwrap().to_vec::<i32>().unwrap();
    prompt.into_iter().map(|token| token as u32).collect()
}

#[test]
fn the_committed_checkpoints_give_what_mlx_lm_gave() {
    let mut seen = BTreeSet::new();
    for path in checkpoints(&goldens()).unwrap() {
        let outcome = compare(&path, &path, &Device::cpu()).unwrap();
        let (dtype, error, tokens) = (outcome.dtype, outcome.error, outcome.tokens);
        let at = path.display();
        let limits = outcome.limits();
        assert!(
            outcome.passes(),
            "{at} in {dtype}: error {error:.1e}, tokens {tokens:?}; {limits}"
        );
        let checkpoint = Checkpoint::open(&path).unwrap();
        seen.insert(checkpoint.config()["model_type"].as_str().unwrap().to_string());
    }
    let missing: Vec<&str> = architectures().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no checkpoint of {missing:?}");
}
