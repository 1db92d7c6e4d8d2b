//! Tests of files: what other programs wrote is read alike, what is written is read by them, and
//! whatever is wrong is an error.

#[path = "../../../../fuzz/checks.rs"]
mod checks;
mod gguf;
mod mapped;
mod npy;
mod safetensors;

use std::path::{Path, PathBuf};

use self::checks::check;
use super::*;
use crate::array::Array;
use crate::device::Device;
use crate::error::Result;

/// Files that the packages `gguf` and `safetensors` wrote.
fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/files")
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(goldens().join(name)).unwrap()
}

/// What these packages read in them.
fn expected() -> serde_json::Value {
    serde_json::from_slice(&golden("expected.json")).unwrap()
}

/// A folder of a test's own, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("wootz-files-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self.0.join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Asserts that an error tells these words.
#[track_caller]
fn assert_says<T: std::fmt::Debug>(result: Result<T>, words: &str) {
    match result {
        Err(error) if error.to_string().contains(words) => {}
        other => panic!("expected an error with {words:?}, got {other:?}"),
    }
}

/// An array whose computation fails.
fn failing() -> Array {
    let x = Array::from_slice_on(&[1.0f32, 2.0], &[2], &Device::cpu()).unwrap();
    let index = Array::from_slice_on(&[7i32], &[1], &Device::cpu()).unwrap();
    crate::ops::take(&x, &index, Some(0)).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn damaged_files_are_errors_or_read() {
    let (mut read, mut refused) = (0, 0);
    let folders = [goldens(), goldens().join("../arrays"), goldens().join("../arrays/hostile")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    for entry in entries {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if !matches!(kind, "gguf" | "safetensors" | "npy" | "npz") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let mut count = |bytes: &[u8]| match check(kind, bytes) {
            true => read += 1,
            false => refused += 1,
        };
        (0..=bytes.len()).for_each(|length| count(&bytes[..length]));
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            for byte in [0xff, bytes[at] ^ 1] {
                damaged[at] = byte;
                count(&damaged);
            }
            damaged[at] = bytes[at];
        }
    }
    // Damage to numbers in the data is not seen; damage to headers mostly is.
    assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn what_fuzzing_found_is_read_or_refused() {
    for reader in ["safetensors", "safetensors_index", "gguf", "gguf_parts", "npy", "npz"] {
        let folder = goldens().join("../corpus").join(reader);
        let entries = std::fs::read_dir(&folder).expect("inputs that fuzzing found");
        let (mut read, mut refused) = (0, 0);
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            match check(reader, &std::fs::read(&path).unwrap()) {
                true => read += 1,
                false => refused += 1,
            }
        }
        // Both kinds, or what was kept does not reach what it should.
        assert!(read > 0 && refused > 0, "{reader}: {read} read, {refused} refused");
    }
}
