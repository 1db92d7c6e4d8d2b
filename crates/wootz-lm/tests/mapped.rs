//! Dense weights are multiplied where they lie in a file, also at odd bytes, where MLX puts them: of every architecture,
//! in a prompt and in a step, and with the bits of weights that are aligned.

use std::path::{Path, PathBuf};

use serde_json::Value;
use wootz::testing::counters;
use wootz::{Array, DType, Device};
use wootz_lm::cache::CacheOptions;
use wootz_lm::checkpoint::Checkpoint;
use wootz_lm::convert::{ConvertOptions, convert};
use wootz_lm::generate::Session;
use wootz_lm::models::{LoadOptions, load};

#[test]
fn no_matrix_at_odd_bytes_of_a_file_is_copied() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/tiny-models");
    let folders = std::fs::read_dir(goldens).unwrap().map(|entry| entry.unwrap().path());
    let mut models: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    models.sort();
    assert!(models.len() > 10, "{models:?}");
    for (number, source) in models.iter().enumerate() {
        // Most weights are bfloat16; a few models stand for the others.
        let dtype = [DType::BF16, DType::F16, DType::BF16, DType::F32][number % 4];
        check(source, dtype);
    }
}

fn check(source: &Path, dtype: DType) {
    let folder = tempfile::tempdir().unwrap();
    let dense = folder.path().join("dense");
    let options =
        ConvertOptions { dequantize: true, dtype: Some(dtype), ..ConvertOptions::default() };
    convert(source, &dense, &options).unwrap();
    let case = format!("{} as {dtype}", source.file_name().unwrap().display());

    let file = dense.join("model.safetensors");
    write_behind(0, &file);
    let (aligned, copied) = scores(&dense);
    assert_eq!(copied, 0, "{case}: aligned");
    let [matrices, others] = write_behind(1, &file);
    let (odd, copied) = scores(&dense);
    println!("{case}: {copied} bytes copied, matrices have {matrices}");
    assert!(copied <= others, "{case}: {copied} bytes copied, all but matrices have {others}");
    assert!(odd == aligned, "{case}: other scores");
}

/// Scores after a prompt and after a few tokens, and how many bytes of the file were copied for them.
fn scores(folder: &Path) -> (Vec<u8>, u64) {
    let before = counters();
    let checkpoint = Checkpoint::open(folder).unwrap();
    let model = load(&checkpoint, &LoadOptions { device: Device::cpu() }).unwrap();
    let mut session = Session::new(model, &CacheOptions::default()).unwrap();
    let prompt: Vec<u32> = (2..23).collect();
    let mut scores = vec![session.prefill(&prompt, 14, &mut |_, _| ()).unwrap()];
    for id in [7u32, 30] {
        scores.push(session.decode(&Array::from_slice(&[id], &[1, 1]).unwrap()).unwrap());
    }
    let bytes = scores.iter().flat_map(|scores| scores.to_bytes().unwrap()).collect();
    (bytes, counters().since(&before).copied_bytes)
}

/// Makes a file's data begin so many bytes behind a multiple of 64. Tells how many bytes are matrices that are multiplied, and
/// how many are not.
fn write_behind(distance: usize, file: &Path) -> [u64; 2] {
    let bytes = std::fs::read(file).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header = header.trim_ascii_end().to_vec();
    while (8 + header.len()) % 64 != distance {
        header.push(b' ');
    }
    let moved = [&(header.len() as u64).to_le_bytes(), &header[..], data].concat();
    std::fs::write(file, moved).unwrap();

    let mut sizes = [0, 0];
    let entries: serde_json::Map<String, Value> = serde_json::from_slice(&header).unwrap();
    for (name, entry) in entries.iter().filter(|(name, _)| *name != "__metadata__") {
        let ends = [0, 1].map(|end| entry["data_offsets"][end].as_u64().unwrap());
        let vector = entry["shape"].as_array().unwrap().len() < 2;
        sizes[(vector || name.contains("conv1d")) as usize] += ends[1] - ends[0];
    }
    sizes
}
