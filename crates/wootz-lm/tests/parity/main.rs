//! The committed sample of tiny checkpoints gives what mlx-lm gave.

mod compare;

use std::path::Path;

use compare::{checkpoints, compare};
use wootz::Device;

#[test]
fn the_committed_checkpoints_give_what_mlx_lm_gave() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models");
    let all = checkpoints(&folder).unwrap();
    assert!(all.len() >= 3, "{} checkpoints in {}", all.len(), folder.display());
    for path in all {
        let outcome = compare(&path, &path, &Device::cpu()).unwrap();
        let (error, tokens) = (outcome.error, outcome.tokens);
        assert!(outcome.passes(), "{}: error {error:.1e}, tokens {tokens:?}", path.display());
    }
}
