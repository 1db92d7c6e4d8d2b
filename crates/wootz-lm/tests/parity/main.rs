//! The committed sample of tiny checkpoints gives what mlx-lm gave: one or more of every architecture.

mod compare;

use std::collections::BTreeSet;
use std::path::Path;

use compare::{checkpoints, compare};
use wootz::Device;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::models::architectures;

#[test]
fn the_committed_checkpoints_give_what_mlx_lm_gave() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models");
    let mut seen = BTreeSet::new();
    for path in checkpoints(&folder).unwrap() {
        let outcome = compare(&path, &path, &Device::cpu()).unwrap();
        let (dtype, error, tokens) = (outcome.dtype, outcome.error, outcome.tokens);
        let at = path.display();
        assert!(outcome.passes(), "{at} in {dtype}: error {error:.1e}, tokens {tokens:?}");
        let checkpoint = Checkpoint::open(&path).unwrap();
        seen.insert(checkpoint.config()["model_type"].as_str().unwrap().to_string());
    }
    let missing: Vec<&str> = architectures().filter(|name| !seen.contains(*name)).collect();
    assert!(missing.is_empty(), "no checkpoint of {missing:?}");
}
