//! Models that are on the disk already: Hugging Face's cache, in its layout, and wootz's own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Wanted, known};

/// The first model as the Python package index has it: its name in wootz's cache, and its size.
pub(super) const DEFAULT_FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub(super) const DEFAULT_BYTES: u64 = 98_362_432;

/// The revision that is meant where none is named.
pub(super) const MAIN: &str = "main";

/// A model in a cache.
#[derive(Debug)]
pub(crate) struct CachedModel {
    /// What to give `--model`.
    pub(crate) name: String,
    /// The folder or file.
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Whether all of it is there.
    pub(crate) complete: bool,
}

/// Hugging Face's cache: `$HF_HUB_CACHE`, else `$HF_HOME/hub`, else `~/.cache/huggingface/hub`.
pub(crate) fn hub_cache() -> PathBuf {
    for variable in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"] {
        if let Some(path) = path_in(variable) {
            return path;
        }
    }
    let home = path_in("HF_HOME").or_else(|| Some(path_in("XDG_CACHE_HOME")?.join("huggingface")));
    home.unwrap_or_else(|| home_folder().join(".cache").join("huggingface")).join("hub")
}

/// wootz's own cache: `$XDG_CACHE_HOME/wootz`, else where the system has caches.
pub(crate) fn own_cache() -> PathBuf {
    let caches = path_in("XDG_CACHE_HOME").unwrap_or_else(|| {
        if cfg!(windows) {
            path_in("LOCALAPPDATA").unwrap_or_else(|| home_folder().join("AppData").join("Local"))
        } else if cfg!(target_os = "macos") {
            home_folder().join("Library").join("Caches")
        } else {
            home_folder().join(".cache")
        }
    });
    caches.join("wootz")
}

fn path_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn home_folder() -> PathBuf {
    std::env::home_dir().unwrap_or_else(std::env::temp_dir)
}

/// The first model, if a cache has it.
pub(super) fn default_model() -> Option<PathBuf> {
    let own = own_cache().join(DEFAULT_FILE);
    let whole = own.metadata().is_ok_and(|found| found.is_file() && found.len() == DEFAULT_BYTES);
    if whole {
        return Some(own);
    }
    let known = known::find(known::DEFAULT)?;
    find(Wanted { repository: known.repository, file: known.file, revision: None })
}

/// A repository's folder, or the file of it, if all of it is in Hugging Face's cache.
pub(super) fn find(wanted: Wanted<'_>) -> Option<PathBuf> {
    let folder = repository_folder(wanted.repository);
    let snapshot = snapshot(&folder, wanted.revision.unwrap_or(MAIN))?;
    model_in(&snapshot, wanted.file)
}

/// The folder of a repository in Hugging Face's cache.
pub(super) fn repository_folder(repository: &str) -> PathBuf {
    hub_cache().join(format!("models--{}", repository.replace('/', "--")))
}

/// The files of a revision as it was when it was fetched last, or of a commit.
fn snapshot(folder: &Path, revision: &str) -> Option<PathBuf> {
    let named = std::fs::read_to_string(folder.join("refs").join(revision));
    let commit = match &named {
        Ok(commit) => commit.trim(),
        Err(_) if is_commit(revision) => revision,
        Err(_) => return None,
    };
    let snapshot = folder.join("snapshots").join(commit);
    snapshot.is_dir().then_some(snapshot)
}

/// Whether a revision is a commit by its whole hash, which never becomes another.
pub(super) fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The model of a folder, if it is complete.
pub(super) fn model_in(folder: &Path, file: Option<&str>) -> Option<PathBuf> {
    if let Some(file) = file {
        let path = folder.join(file);
        return parts_of(&path).iter().all(|part| part.is_file()).then_some(path);
    }
    let has = |name: &str| folder.join(name).is_file();
    if has("config.json") && has("tokenizer.json") && has_weights(folder) {
        return Some(folder.to_path_buf());
    }
    let mut files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_gguf = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gguf");
    let first = files.by_ref().find(is_gguf)?;
    (!has("config.json") && !files.any(|path| is_gguf(&path)) && first.is_file()).then_some(first)
}

/// Whether all weights of a folder are there: those that its index names, or a set that is whole without one, which a
/// download of all files leaves beside an index that is older than they.
fn has_weights(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    let index = std::fs::read(folder.join("model.safetensors.index.json")).unwrap_or_default();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap_or_default();
    let map = index.get("weight_map").and_then(serde_json::Value::as_object);
    let named: BTreeSet<&str> = map.into_iter().flatten().filter_map(|(_, v)| v.as_str()).collect();
    if !named.is_empty() && named.into_iter().all(has) {
        return true;
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let firsts = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut firsts =
        firsts.filter(|name| name.starts_with("model-00001-of-") && name.ends_with(".safetensors"));
    has("model.safetensors")
        || firsts.any(|first| {
            let parts = parts_of_type(Path::new(&first), ".safetensors");
            parts.iter().all(|part| folder.join(part).is_file())
        })
}

/// The files of a model that may be split: `NAME-00001-of-0000N.gguf` and those that follow it.
pub(super) fn parts_of(path: &Path) -> Vec<PathBuf> {
    parts_of_type(path, ".gguf")
}

/// The same of files whose names end so.
fn parts_of_type(path: &Path, end: &str) -> Vec<PathBuf> {
    let whole = || vec![path.to_path_buf()];
    let Some(stem) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(end)) else {
        return whole();
    };
    let Some((stem, count)) = stem.rsplit_once("-of-") else { return whole() };
    let Some(name) = stem.strip_suffix("-00001") else { return whole() };
    let Some(number) = count.parse::<usize>().ok().filter(|_| count.len() == 5) else {
        return whole();
    };
    (1..=number)
        .map(|part| path.with_file_name(format!("{name}-{part:05}-of-{count}{end}")))
        .collect()
}

/// All models in both caches, by name.
pub(crate) fn cached_models() -> Vec<CachedModel> {
    let mut models = Vec::new();
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect::<Vec<_>>()
    };
    for folder in entries(&hub_cache()) {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) =
            name.and_then(|name| Some(name.strip_prefix("models--")?.replace("--", "/")))
        else {
            continue;
        };
        let path = snapshot(&folder, MAIN);
        let bytes = entries(&folder.join("blobs"))
            .iter()
            .filter_map(|blob| Some(blob.metadata().ok()?.len()))
            .sum();
        let ggufs: Vec<PathBuf> = path
            .iter()
            .flat_map(|path| entries(path))
            .filter(|file| {
                file.extension().is_some_and(|extension| extension == "gguf")
                    && !super::is_later_part(file)
            })
            .collect();
        let whole = path.as_ref().is_some_and(|path| path.join("config.json").is_file());
        if whole || ggufs.is_empty() {
            let complete = path.as_ref().is_some_and(|path| model_in(path, None).is_some());
            let path = path.clone().unwrap_or_else(|| folder.clone());
            models.push(CachedModel { name: name.clone(), path, bytes, complete });
            continue;
        }
        for file in ggufs {
            let title = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            let parts = parts_of(&file);
            let bytes = parts.iter().filter_map(|part| Some(part.metadata().ok()?.len())).sum();
            let complete = parts.iter().all(|part| part.is_file());
            models.push(CachedModel {
                name: format!("{name}:{title}"),
                path: file,
                bytes,
                complete,
            });
        }
    }
    let own = own_cache().join(DEFAULT_FILE);
    if let Ok(found) = own.metadata() {
        let (name, complete) = (known::DEFAULT.to_string(), found.len() == DEFAULT_BYTES);
        models.push(CachedModel { name, path: own, bytes: found.len(), complete });
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_whole_if_its_index_or_the_names_of_its_files_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        let whole = || model_in(folder.path(), None).is_some();
        let index = "model.safetensors.index.json";
        write("config.json", "{}");
        write("tokenizer.json", "{}");
        assert!(!whole());
        // An index of files that are not there.
        write(index, r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#);
        write("model-1.safetensors", "");
        assert!(!whole());
        write("model-2.safetensors", "");
        assert!(whole());
        std::fs::remove_file(at("model-1.safetensors")).unwrap();
        // Others that need none.
        write("model-00001-of-00002.safetensors", "");
        assert!(!whole());
        write("model-00002-of-00002.safetensors", "");
        assert!(whole());
        std::fs::remove_file(at("model-00001-of-00002.safetensors")).unwrap();
        assert!(!whole());
        write("model.safetensors", "");
        assert!(whole());
        // One that cannot be read says nothing.
        write(index, "{");
        assert!(whole());
        std::fs::remove_file(at("model.safetensors")).unwrap();
        assert!(!whole());
    }
}
