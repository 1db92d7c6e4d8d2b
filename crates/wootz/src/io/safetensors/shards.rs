//! Checkpoints in several files: the index that says which tensor is where, and folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use super::{Safetensors, read};
use crate::error::{Error, Result};
use crate::io::{MappedFile, io_error};

/// The index of a folder.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// An index file.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Index {
    /// What is known of all files together.
    #[serde(default, skip_deserializing)]
    pub(super) metadata: BTreeMap<&'static str, u64>,
    /// The file of each tensor, in the index's folder.
    pub(super) weight_map: BTreeMap<String, String>,
}

/// Whether a folder's file holds tensors of its model.
pub(super) fn is_part(name: &str) -> bool {
    name.starts_with("model") && name.ends_with(".safetensors")
}

/// Opens a folder's index; without one, all its `model*.safetensors`.
pub(super) fn open_folder(folder: &Path) -> Result<Safetensors> {
    let index = folder.join(INDEX);
    if index.exists() {
        return open_index(&index);
    }
    let names = parts_in(folder)?;
    if names.is_empty() {
        let reason = format!("neither {INDEX} nor model*.safetensors in this folder");
        return Err(Error::Format { path: folder.display().to_string(), reason });
    }
    let open = |name: &String| read(MappedFile::open(folder.join(name))?);
    Safetensors::new(names.iter().map(open).collect::<Result<_>>()?)
}

/// The names of the files in a folder that [are parts](is_part), sorted.
pub(super) fn parts_in(folder: &Path) -> Result<BTreeSet<String>> {
    let failed = |error| io_error(folder, error);
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
            && is_part(&name)
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Opens the files that an index names. What is in them counts, as in mlx-lm, which does not read the index: tools that
/// rewrite a file leave an old one beside it. Whoever needs a tensor that is in no file misses it by name.
pub(super) fn open_index(path: &Path) -> Result<Safetensors> {
    open_indexed(&MappedFile::open(path)?, |name| MappedFile::open(path.with_file_name(name)))
}

/// Opens the files that an index names, each by `open`.
pub(super) fn open_indexed(
    index: &MappedFile,
    open: impl Fn(&str) -> Result<MappedFile>,
) -> Result<Safetensors> {
    let parsed: Index =
        serde_json::from_slice(index.bytes()).map_err(|error| index.error(error.to_string()))?;
    let names: BTreeSet<&String> = parsed.weight_map.values().collect();
    let mut parts = Vec::new();
    for name in names {
        // The index may come from anywhere: it does not choose files elsewhere.
        let plain = matches!(&Path::new(name).components().collect::<Vec<_>>()[..],
            [Component::Normal(only)] if *only == name.as_str());
        if !plain {
            let reason = format!("{name:?} is not the name of a file beside the index");
            return Err(index.error(reason));
        }
        parts.push(read(open(name)?)?);
    }
    Safetensors::new(parts)
}
