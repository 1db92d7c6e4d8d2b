//! Weights in files: round trips and what does not fit.

use std::path::PathBuf;

use wootz::nn::{BatchNorm, Linear, Sequential};
use wootz::{Array, DType, Error, Result, Tree, io, tree_flatten, tree_map};

/// A file of the test's own, removed afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("wootz-networks-{}-{name}.safetensors", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

fn model(width: usize) -> Result<Sequential> {
    Ok(Sequential::new()
        .then(Linear::new(2, width, true)?)
        .then(BatchNorm::new(width)?)
        .then(Linear::new(width, 1, false)?))
}

#[test]
fn what_is_saved_comes_back_to_the_last_bit() -> Result<()> {
    let file = Scratch::new("round-trip");
    let saved = model(5)?;
    saved.save_weights(&file.0)?;
    let mut loaded = model(5)?;
    loaded.load_weights(&file.0, true)?;
    for ((name, a), (other, b)) in tree_flatten(&saved).into_iter().zip(tree_flatten(&loaded)) {
        assert_eq!((name, a.to_bytes()?), (other, b.to_bytes()?));
    }
    assert!(loaded.parameters().contains_key("layers.1.running_mean"));
    Ok(())
}

#[test]
fn weights_are_also_kept_in_npz_files() -> Result<()> {
    let name = format!("wootz-networks-{}.npz", std::process::id());
    let file = Scratch(std::env::temp_dir().join(name));
    let saved = model(5)?;
    saved.save_weights(&file.0)?;
    let arrays = io::load_npz(&file.0)?;
    assert!(arrays.keys().eq(saved.parameters().keys()));
    let mut loaded = model(5)?;
    loaded.load_weights(&file.0, true)?;
    for ((name, a), (other, b)) in tree_flatten(&saved).into_iter().zip(tree_flatten(&loaded)) {
        assert_eq!((name, a.to_bytes()?), (other, b.to_bytes()?));
    }
    let error = model(6)?.load_weights(&file.0, true).unwrap_err();
    assert!(matches!(error, Error::Keys { .. }), "{error}");
    Ok(())
}

#[test]
fn every_dtype_and_a_view_survive_a_file() -> Result<()> {
    let file = Scratch::new("dtypes");
    let x = Array::new([[0.0f32, 1.0, 2.0], [3.0, 4.0, 5.0]])?.transpose()?;
    let mut arrays = std::collections::BTreeMap::new();
    for &dtype in wootz::op::EVERY.iter().chain([&DType::F64]) {
        arrays.insert(
            format!("{dtype}"),
            wootz::with_device(&wootz::Device::cpu(), || x.astype(dtype))?,
        );
    }
    arrays.insert("empty".into(), Array::zeros(&[0, 3], DType::F32)?);
    arrays.insert("scalar".into(), Array::scalar(7, DType::U64)?);
    arrays.insert("\"quoted\\\n\u{1}é".into(), Array::scalar(1, DType::I8)?);
    io::save_safetensors(&file.0, &arrays)?;
    let bytes = std::fs::read(&file.0).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!((8 + header) % 64, 0, "the data is aligned");
    let loaded = io::load_safetensors(&file.0)?;
    assert_eq!(loaded.len(), arrays.len());
    for (name, array) in &arrays {
        assert_eq!(loaded[name].shape(), array.shape(), "{name}");
        assert_eq!(loaded[name].dtype(), array.dtype(), "{name}");
        assert_eq!(loaded[name].to_bytes()?, array.to_bytes()?, "{name}");
    }
    Ok(())
}

#[test]
fn strict_loading_names_all_that_does_not_fit() -> Result<()> {
    let file = Scratch::new("strict");
    model(5)?.save_weights(&file.0)?;
    let mut other = Sequential::new().then(Linear::new(3, 5, true)?).then(Linear::new(2, 1, true)?);
    match other.load_weights(&file.0, true) {
        Err(Error::Keys { op, missing, unexpected, mismatched }) => {
            assert_eq!(op, "load_weights");
            assert_eq!(missing, Vec::<String>::new());
            assert_eq!(
                unexpected,
                ["layers.1.running_mean", "layers.1.running_var", "layers.2.weight"]
            );
            let expected = ["layers.0.weight: expected [5, 3], got [5, 2]"];
            assert_eq!(mismatched[..1], expected);
        }
        result => panic!("{result:?}"),
    }
    let mut wider = model(5)?.then(Linear::new(1, 1, false)?);
    let text = wider.load_weights(&file.0, true).unwrap_err().to_string();
    assert_eq!(text, "[load_weights] missing: layers.3.weight");
    wider.load_weights(&file.0, false)
}

#[test]
fn loading_takes_the_dtype_of_the_file() -> Result<()> {
    let file = Scratch::new("dtype");
    tree_map(&model(3)?, |_, x| x.astype(DType::BF16))?.save_weights(&file.0)?;
    let mut loaded = model(3)?;
    loaded.load_weights(&file.0, true)?;
    assert!(loaded.parameters().values().all(|x| x.dtype() == DType::BF16));
    Ok(())
}

#[test]
fn broken_files_are_errors() -> Result<()> {
    let file = Scratch::new("broken");
    model(3)?.save_weights(&file.0)?;
    let bytes = std::fs::read(&file.0).unwrap();
    for broken in [&bytes[..4], &bytes[..40], &bytes[..bytes.len() - 1], b"no header here"] {
        std::fs::write(&file.0, broken).unwrap();
        match model(3)?.load_weights(&file.0, true) {
            Err(Error::Format { path, .. }) => assert!(path.contains("broken")),
            result => panic!("{result:?}"),
        }
    }
    let missing = std::env::temp_dir().join("wootz-networks-not-there.safetensors");
    assert!(matches!(model(3)?.load_weights(&missing, true), Err(Error::Io { .. })));
    Ok(())
}
