//! The safetensors files of a folder. As in mlx-lm all `model*.safetensors` are read, and the files say which tensors
//! there are: an index may be older than they, and is asked only where they leave a question.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use serde_json::Value;
use wootz::io::Safetensors;
use wootz::{Array, DType, Device};

use crate::{Error, Result};

/// The index of a folder.
const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a folder's files, by name.
#[derive(Debug)]
pub struct Shards {
    files: Vec<Safetensors>,
    /// With the number of the file.
    tensors: BTreeMap<String, usize>,
    /// Files that the index names and that are not there.
    absent: Vec<String>,
}

impl Shards {
    /// Opens the files of a folder.
    pub(super) fn open(folder: &Path) -> Result<Shards> {
        let index = Index::read(folder);
        let mut names = parts_in(folder)?;
        let absent = |name: &&String| !folder.join(name).exists();
        let absent: Vec<String> = index.files().into_iter().filter(absent).cloned().collect();
        if names.is_empty() {
            names.extend(index.files().into_iter().filter(|name| !absent.contains(name)).cloned());
        }
        if names.is_empty() {
            let what = match absent.first() {
                Some(first) => format!("{first} is not there, which {INDEX} names"),
                None => "no model*.safetensors in this folder".to_string(),
            };
            return Err(Error::invalid(folder, what));
        }
        let mut shards = Shards { files: Vec::new(), tensors: BTreeMap::new(), absent };
        for name in &names {
            shards.add(Safetensors::open(folder.join(name))?, name, &names, &index, folder)?;
        }
        Ok(shards)
    }

    /// Adds a file. Of a tensor that is in two, the index may say which counts.
    fn add(
        &mut self,
        file: Safetensors,
        name: &str,
        names: &BTreeSet<String>,
        index: &Index,
        folder: &Path,
    ) -> Result<()> {
        let number = self.files.len();
        for tensor in file.names() {
            let Some(earlier) = self.tensors.get(tensor) else {
                self.tensors.insert(tensor.to_string(), number);
                continue;
            };
            let earlier = names.iter().nth(*earlier).map(String::as_str).unwrap_or_default();
            match index.weight_map.get(tensor) {
                Some(named) if named == name => {
                    self.tensors.insert(tensor.to_string(), number);
                }
                Some(named) if named == earlier => {}
                _ => {
                    let what = format!("tensor {tensor:?} is in {earlier}, too");
                    return Err(Error::invalid(folder.join(name), what));
                }
            }
        }
        self.files.push(file);
        Ok(())
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor's shape.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.file(name)?.shape(name)
    }

    /// A tensor's dtype as an array, if arrays can have it.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.file(name)?.dtype(name)
    }

    /// The file's word for a tensor's dtype: `F32`, `F8_E4M3`, ….
    pub fn stored_dtype(&self, name: &str) -> Option<String> {
        self.file(name)?.stored_dtype(name)
    }

    /// A tensor, on a device.
    pub fn tensor_on(&self, name: &str, device: &Device) -> Result<Array> {
        let missing = || Error::argument("tensor", "the name of one", format!("{name:?}"));
        Ok(self.file(name).ok_or_else(missing)?.tensor_on(name, device)?)
    }

    fn file(&self, name: &str) -> Option<&Safetensors> {
        self.files.get(*self.tensors.get(name)?)
    }

    /// What explains tensors that are in no file.
    pub(super) fn lost(&self) -> Option<String> {
        let first = self.absent.first()?;
        Some(match self.absent.len() {
            1 => format!("{INDEX} names {first}, which is not there"),
            count => format!("{INDEX} names {first} and {} more, which are not there", count - 1),
        })
    }
}

/// What an index says; nothing if there is none that can be read, because nobody needs it.
struct Index {
    /// The file of each tensor.
    weight_map: BTreeMap<String, String>,
}

impl Index {
    fn read(folder: &Path) -> Index {
        let bytes = std::fs::read(folder.join(INDEX)).unwrap_or_default();
        let json: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let map = json.get("weight_map").and_then(Value::as_object).into_iter().flatten();
        let entry =
            |(name, file): (&String, &Value)| Some((name.clone(), file.as_str()?.to_string()));
        Index { weight_map: map.filter_map(entry).collect() }
    }

    /// The files beside it that it names. It does not choose files elsewhere.
    fn files(&self) -> BTreeSet<&String> {
        let plain = |name: &&String| {
            let parts: Vec<_> = Path::new(name.as_str()).components().collect();
            matches!(parts[..], [Component::Normal(only)] if only == name.as_str())
        };
        self.weight_map.values().filter(plain).collect()
    }
}

/// The names of a folder's files that hold tensors of its model.
fn parts_in(folder: &Path) -> Result<BTreeSet<String>> {
    let failed = |error| Error::file(folder, error);
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
            && name.starts_with("model")
            && name.ends_with(".safetensors")
        {
            names.insert(name);
        }
    }
    Ok(names)
}
