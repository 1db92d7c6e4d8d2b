//! Writing safetensors files: aligned, with metadata, whole or split.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use super::DTYPES;
use super::header::{LENGTH_BYTES, METADATA};
use super::shards::{INDEX, Index, parts_in};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::io::io_error;
use crate::io::replace::replace;

const OP: &str = "save_safetensors";

/// What the data of a file begins at a multiple of.
const ALIGNMENT: usize = 64;

/// Writes arrays to a safetensors file under their names. The data begins at a multiple of 64 bytes,
/// with the arrays of the widest elements first, so that every array is aligned for its own. A file
/// that is there is replaced at the end: it stays if this fails, and what is mapped of it is not
/// changed.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let arrays = BTreeMap::from([("x".to_string(), Array::new([1.5f32])?)]);
/// io::save_safetensors(&std::env::temp_dir().join("wootz-doc-one.safetensors"), &arrays)?;
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_safetensors(file: &Path, arrays: &BTreeMap<String, Array>) -> Result<()> {
    save_safetensors_with(file, arrays, &BTreeMap::new())
}

/// As [`save_safetensors`], with metadata. `format` is `mlx` unless it says otherwise.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-with.safetensors");
/// let arrays = BTreeMap::from([("x".to_string(), Array::new([1.5f32])?)]);
/// let metadata = BTreeMap::from([("step".to_string(), "7".to_string())]);
/// io::save_safetensors_with(&file, &arrays, &metadata)?;
/// assert_eq!(io::Safetensors::open(&file)?.metadata()["step"], "7");
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_safetensors_with(
    file: &Path,
    arrays: &BTreeMap<String, Array>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    // All together, as they may have much in common.
    crate::eval(arrays.values())?;
    save(file, arrays.iter().map(|(name, array)| (name.clone(), array.clone())).collect(), metadata)
}

/// How [`save_sharded`] splits a checkpoint.
#[derive(Clone, Debug)]
pub struct Sharding {
    /// The most bytes of arrays in a file, unless a single array has more.
    pub max_bytes: usize,
    /// Metadata of every file.
    pub metadata: BTreeMap<String, String>,
    /// The number of parameters for the index, where it is not the arrays' number of elements, as in
    /// a quantized model.
    pub total_parameters: Option<u64>,
}

impl Default for Sharding {
    /// Files of 5 GiB, as mlx-lm has them.
    fn default() -> Sharding {
        Sharding { max_bytes: 5 << 30, metadata: BTreeMap::new(), total_parameters: None }
    }
}

/// Writes a checkpoint into a folder as mlx-lm does: `model.safetensors`, or
/// `model-00001-of-0000N.safetensors` and so on, and `model.safetensors.index.json`. Arrays come in
/// their order; each is computed when it is written and then dropped, so that a lazy conversion
/// never is in memory as a whole.
///
/// ```
/// use wootz::{Array, io};
/// let folder = std::env::temp_dir().join("wootz-doc-sharded");
/// std::fs::create_dir_all(&folder).unwrap();
/// let arrays = ["a", "b"].map(|name| (name.to_string(), Array::new([1.0f32]).unwrap()));
/// let sharding = io::Sharding { max_bytes: 4, ..Default::default() };
/// io::save_sharded(&folder, arrays, &sharding)?;
/// assert!(folder.join("model-00002-of-00002.safetensors").exists());
/// assert_eq!(io::Safetensors::open(&folder)?.names().count(), 2);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_sharded(
    folder: &Path,
    arrays: impl IntoIterator<Item = (String, Array)>,
    sharding: &Sharding,
) -> Result<()> {
    let arrays: Vec<(String, Array)> = arrays.into_iter().collect();
    let elements = arrays.iter().map(|(_, array)| array.size() as u64).sum();
    let mut shards: Vec<Vec<(String, Array)>> = Vec::new();
    let (mut total, mut filled) = (0u64, 0usize);
    for (name, array) in arrays {
        let bytes = array.nbytes();
        total += bytes as u64;
        match shards.last_mut() {
            Some(shard) if filled.saturating_add(bytes) <= sharding.max_bytes => {
                filled += bytes;
                shard.push((name, array));
            }
            _ => {
                filled = bytes;
                shards.push(vec![(name, array)]);
            }
        }
    }
    let count = shards.len();
    let file = |number: usize| match count {
        0 | 1 => "model.safetensors".to_string(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
    };
    if count == 0 {
        shards.push(Vec::new());
    }
    let files: Vec<String> = (0..shards.len()).map(file).collect();
    // Readers that look for files rather than into the index would take them for parts.
    if let Some(other) = parts_in(folder)?.into_iter().find(|other| !files.contains(other)) {
        let taken = std::io::Error::other("a file of another checkpoint is in the way");
        return Err(io_error(&folder.join(other), taken));
    }
    let mut index = Index { metadata: BTreeMap::new(), weight_map: BTreeMap::new() };
    index.metadata.insert("total_size", total);
    index.metadata.insert("total_parameters", sharding.total_parameters.unwrap_or(elements));
    for (file, shard) in files.iter().zip(&shards) {
        for (name, _) in shard {
            if index.weight_map.insert(name.clone(), file.clone()).is_some() {
                let got = format!("{name} twice");
                return Err(Error::argument(OP, "arrays", "names that differ", got));
            }
        }
    }
    for (file, shard) in files.iter().zip(shards) {
        save(&folder.join(file), shard, &sharding.metadata)?;
    }
    let path = folder.join(INDEX);
    let json = serde_json::to_vec_pretty(&index).map_err(|error| io_error(&path, error.into()))?;
    replace(&path, |file| file.write(&json))
}

/// Writes one file, an array after the other, and drops them.
fn save(
    file: &Path,
    mut arrays: Vec<(String, Array)>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    arrays.sort_by_key(|(_, array)| Reverse(array.dtype().size()));
    let header = header(&arrays, metadata).and_then(|json| {
        serde_json::to_string(&json).map_err(|error| io_error(file, error.into()))
    })?;
    // Spaces behind the header belong to the format.
    let padded = (LENGTH_BYTES + header.len()).next_multiple_of(ALIGNMENT) - LENGTH_BYTES;
    replace(file, |file| {
        file.write(&(padded as u64).to_le_bytes())?;
        file.write(header.as_bytes())?;
        file.write(&vec![b' '; padded - header.len()])?;
        arrays.reverse();
        while let Some((_, array)) = arrays.pop() {
            file.write_array(&array)?;
            drop(array);
            // Scales are computed with codes, written later, and must not keep these until then.
            for (_, other) in &mut arrays {
                if let Some(alone) = other.alone() {
                    *other = alone;
                }
            }
        }
        Ok(())
    })
}

/// Names, dtypes, shapes and places.
fn header(
    arrays: &[(String, Array)],
    metadata: &BTreeMap<String, String>,
) -> Result<serde_json::Map<String, serde_json::Value>> {
    let mut metadata = metadata.clone();
    metadata.entry("format".into()).or_insert_with(|| "mlx".into());
    let mut header = serde_json::Map::new();
    header.insert(METADATA.into(), serde_json::json!(metadata));
    let mut start = 0;
    for (name, array) in arrays {
        let Some((_, dtype)) = DTYPES.iter().find(|(ours, _)| *ours == array.dtype()) else {
            let expected = "a dtype of the format";
            return Err(Error::dtype(OP, format!("array {name}"), expected, array.dtype()));
        };
        let (shape, stop) = (array.shape(), start + array.nbytes());
        let entry = serde_json::json!({
            "dtype": dtype.to_string(), "shape": shape, "data_offsets": [start, stop]
        });
        if header.insert(name.clone(), entry).is_some() {
            let expected = "names that differ and that the format does not use itself";
            return Err(Error::argument(OP, "arrays", expected, name));
        }
        start = stop;
    }
    Ok(header)
}
