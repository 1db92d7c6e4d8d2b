//! The committed sample of MLX's cases, and the goldens, on both devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use conformance::{Filter, Folder, Known, run};
use wootz::Device;

/// One run at a time: the counters that show work on the host belong to the whole device.
static GPU: Mutex<()> = Mutex::new(());

#[test]
fn the_sample_passes_on_the_cpu() {
    check(&sample(), "cpu", &Device::cpu());
}

#[test]
fn the_sample_passes_on_the_gpu() {
    on_gpu(|device| check(&sample(), "gpu", device));
}

#[test]
fn the_goldens_pass_on_the_cpu() {
    if let Some(folder) = goldens() {
        check(&folder, "cpu", &Device::cpu());
    }
}

#[test]
fn the_goldens_pass_on_the_gpu() {
    if let Some(folder) = goldens() {
        on_gpu(|device| check(&folder, "gpu", device));
    }
}

#[test]
fn every_corruption_of_the_sample_is_noticed() {
    let (summary, unnoticed) = conformance::self_test(&sample(), &Device::cpu());
    assert!(unnoticed.is_empty(), "{summary}{}", unnoticed.join("\n"));
}

#[test]
fn the_set_of_networks_has_every_layer_and_optimizer() {
    let networks = Filter::sets(&["networks"]).expect("the set is there");
    let folders = [Some(sample()), goldens()];
    let ops: BTreeSet<String> =
        folders.into_iter().flatten().flat_map(|folder| folder.cases).map(|case| case.op).collect();
    let meant = |op: &&String| op.starts_with("nn.") || op.starts_with("optimizers.");
    let missing: Vec<_> = ops.iter().filter(meant).filter(|op| !networks.takes_op(op)).collect();
    assert!(missing.is_empty(), "not in sets/networks.txt: {missing:?}");
}

fn sample() -> Folder {
    read(&here().join("sample"))
}

fn goldens() -> Option<Folder> {
    let path = here().join("../../goldens");
    if !path.exists() {
        println!("SKIPPED: there is no folder goldens");
        return None;
    }
    Some(read(&path))
}

fn check(folder: &Folder, name: &str, device: &Device) {
    let path = here().join("expected_failures.txt");
    let text = std::fs::read_to_string(path).expect("the list of failures is there");
    let known = Known::parse(&text, name).expect("the list of failures is well formed");
    let report = run(folder, device);
    let differences = known.differences(&report);
    let shown: Vec<&str> = differences.iter().map(String::as_str).take(100).collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), shown.join("\n"));
}

fn on_gpu(body: impl FnOnce(&Device)) {
    let _alone = GPU.lock().unwrap_or_else(PoisonError::into_inner);
    match Device::gpu() {
        Ok(device) => body(&device),
        Err(error) => {
            assert!(!wootz::testing::ci(), "GPU tests must run in CI: {error}");
            println!("SKIPPED: {error}");
        }
    }
}

fn read(folder: &Path) -> Folder {
    conformance::read(folder).expect("the cases can be read")
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
