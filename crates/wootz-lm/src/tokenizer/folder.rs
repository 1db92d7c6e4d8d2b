//! The tokenizer of a folder in the layout of Hugging Face.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Special, Tokenizer, parse, post};
use crate::error::{Error, Result};

/// Roles of special tokens, as `tokenizer_config.json` and templates name them.
const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

pub(super) fn open(folder: &Path) -> Result<Tokenizer> {
    let path = folder.join("tokenizer.json");
    if !path.exists() {
        return Err(Error::invalid(path, missing(folder)));
    }
    let json = std::fs::read(&path).map_err(|e| Error::file(&path, e))?;
    let mut inner = parse(&json).map_err(|e| Error::invalid(&path, e))?;
    let files = Files::read(folder)?;
    files.add_missing_tokens(&mut inner)?;

    let id = |text: &str| inner.token_to_id(text);
    let texts = files.special_tokens();
    let role = |wanted: &str| {
        let (_, text) = texts.iter().find(|(role, _)| role == wanted)?;
        Some((id(text)?, text.clone()))
    };
    let (bos, eos) = (role("bos_token"), role("eos_token"));
    let mut ends: Vec<u32> = eos.iter().map(|(id, _)| *id).collect();
    for end in files.eos()? {
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    // As transformers does: what the configuration says replaces what tokenizer.json says.
    let (add_bos, add_eos) = (files.flag("add_bos_token")?, files.flag("add_eos_token")?);
    let begin = bos.clone().map(|(id, _)| id);
    if add_bos.is_some() || add_eos.is_some() {
        let before = bos.filter(|_| add_bos == Some(true));
        let after = eos.filter(|_| add_eos == Some(true));
        inner.with_post_processor(Some(post::around(before, after)?));
    }
    // Merged pieces have the spaces they should have; transformers does not clean them up, either.
    let merged = matches!(inner.get_model(), tokenizers::ModelWrapper::BPE(_));
    let clean_up = files.flag("clean_up_tokenization_spaces")?.unwrap_or(false) && !merged;
    let sources = files.templates(folder)?;
    Tokenizer::new(inner, Special { bos: begin, eos: ends, texts, sources, clean_up, size: 0 })
}

/// What is wrong with a folder without `tokenizer.json`.
fn missing(folder: &Path) -> String {
    let found = ["tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json"];
    let others: Vec<&str> = found.into_iter().filter(|name| folder.join(name).exists()).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(
            "; there is {}, which has to be converted to tokenizer.json first",
            others.join(", ")
        )
    };
    format!("not found; tokenizers are read from tokenizer.json or from GGUF files{others}")
}

/// The files beside `tokenizer.json`, each of which may be missing.
pub(crate) struct Files {
    tokenizer_config: (PathBuf, Value),
    special_tokens_map: (PathBuf, Value),
    generation_config: (PathBuf, Value),
    config: (PathBuf, Value),
}

impl Files {
    pub(crate) fn read(folder: &Path) -> Result<Files> {
        let file = |name: &str| -> Result<(PathBuf, Value)> {
            let path = folder.join(name);
            let value = read_json(&path)?;
            Ok((path, value))
        };
        Ok(Files {
            tokenizer_config: file("tokenizer_config.json")?,
            special_tokens_map: file("special_tokens_map.json")?,
            generation_config: file("generation_config.json")?,
            config: file("config.json")?,
        })
    }

    /// Adds tokens that only the configuration has.
    fn add_missing_tokens(&self, inner: &mut tokenizers::Tokenizer) -> Result<()> {
        let (path, config) = &self.tokenizer_config;
        let Some(listed) = config["added_tokens_decoder"].as_object() else { return Ok(()) };
        let mut missing: Vec<(u32, String, &Value)> = Vec::new();
        for (id, token) in listed {
            let what = || format!("added_tokens_decoder: {id}: {token} is not a token");
            let number = id.parse().map_err(|_| Error::invalid(path, what()))?;
            let text = token_text(token).ok_or_else(|| Error::invalid(path, what()))?;
            if inner.token_to_id(&text).is_none() {
                missing.push((number, text, token));
            }
        }
        missing.sort_by_key(|(number, ..)| *number);
        for (number, text, token) in missing {
            let flag = |name: &str| token[name].as_bool().unwrap_or(false);
            let added = tokenizers::AddedToken::from(text.clone(), flag("special"))
                .normalized(flag("normalized"))
                .single_word(flag("single_word"))
                .lstrip(flag("lstrip"))
                .rstrip(flag("rstrip"));
            inner.add_tokens([added]).map_err(super::failed)?;
            if inner.token_to_id(&text) != Some(number) {
                let what = format!(
                    "added_tokens_decoder: token {number}, {text:?}, does not follow those of tokenizer.json"
                );
                return Err(Error::invalid(path, what));
            }
        }
        Ok(())
    }

    /// Texts of special tokens by role.
    pub(crate) fn special_tokens(&self) -> Vec<(String, String)> {
        let files = [&self.tokenizer_config.1, &self.special_tokens_map.1];
        let text = |role: &str| files.iter().find_map(|file| token_text(&file[role]));
        ROLES.iter().filter_map(|role| Some((role.to_string(), text(role)?))).collect()
    }

    /// The tokens that end a generation by number. As in mlx-lm, what the configuration of generations says replaces what
    /// the model's says, unless Python takes it for false; and only the outer configuration counts.
    fn eos(&self) -> Result<Vec<u32>> {
        let says = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(ids) => !ids.is_empty(),
            Value::Number(id) => id.as_f64() != Some(0.0),
            _ => true,
        };
        let (path, given) = match &self.generation_config {
            (path, file) if says(&file["eos_token_id"]) => (path, &file["eos_token_id"]),
            _ => (&self.config.0, &self.config.1["eos_token_id"]),
        };
        let ids = match given {
            Value::Null | Value::Bool(false) => return Ok(Vec::new()),
            Value::Array(ids) => ids.as_slice(),
            id => std::slice::from_ref(id),
        };
        let number = |id: &Value| {
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let what = || format!("eos_token_id: expected token numbers, got {id}");
            number.ok_or_else(|| Error::invalid(path, what()))
        };
        ids.iter().map(number).collect()
    }

    /// A switch of the tokenizer's configuration.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>> {
        let (path, config) = &self.tokenizer_config;
        match &config[name] {
            Value::Null => Ok(None),
            Value::Bool(flag) => Ok(Some(*flag)),
            other => Err(Error::invalid(path, format!("{name}: expected a bool, got {other}"))),
        }
    }

    /// Chat templates by name. A file of its own comes before what the configuration has.
    pub(crate) fn templates(&self, folder: &Path) -> Result<Vec<(String, String)>> {
        let (path, config) = &self.tokenizer_config;
        let mut templates = named_templates(&config["chat_template"])
            .map_err(|what| Error::invalid(path, format!("chat_template: {what}")))?;
        let path = folder.join("chat_template.json");
        let file = read_json(&path)?;
        let separate = named_templates(&file["chat_template"]);
        templates.extend(separate.map_err(|what| Error::invalid(&path, what))?);
        if let Some(source) = read_text(&folder.join("chat_template.jinja"))? {
            templates.push(("default".into(), source));
        }
        let more = folder.join("additional_chat_templates");
        if more.is_dir() {
            let listed = std::fs::read_dir(&more).map_err(|e| Error::file(&more, e))?;
            let mut paths = listed
                .map(|entry| Ok(entry.map_err(|e| Error::file(&more, e))?.path()))
                .collect::<Result<Vec<PathBuf>>>()?;
            paths.retain(|path| path.extension().is_some_and(|extension| extension == "jinja"));
            paths.sort();
            for path in paths {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                templates.extend(read_text(&path)?.map(|source| (name, source)));
            }
        }
        Ok(templates)
    }
}

/// A special token is a text, or an object with one.
fn token_text(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_string)
}

/// A template is a text; several are a list of objects, or one object.
fn named_templates(value: &Value) -> Result<Vec<(String, String)>, String> {
    let strange = || format!("expected a template or a list of named templates, got {value}");
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(source) => Ok(vec![("default".into(), source.clone())]),
        Value::Array(list) => list
            .iter()
            .map(|entry| match (entry["name"].as_str(), entry["template"].as_str()) {
                (Some(name), Some(source)) => Ok((name.to_string(), source.to_string())),
                _ => Err(strange()),
            })
            .collect(),
        Value::Object(map) => map
            .iter()
            .map(|(name, source)| {
                Ok((name.clone(), source.as_str().ok_or_else(strange)?.to_string()))
            })
            .collect(),
        _ => Err(strange()),
    }
}

fn read_text(path: &Path) -> Result<Option<String>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes).map_err(|e| Error::invalid(path, e))?;
            Ok(Some(text))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::file(path, e)),
    }
}

/// An object; an empty one if there is no such file.
fn read_json(path: &Path) -> Result<Value> {
    let Some(text) = read_text(path)? else { return Ok(Value::Object(Map::new())) };
    let value: Value = serde_json::from_str(&text)
        // Python writes numbers that JSON does not have; none of them is of interest here.
        .or_else(|e| {
            let known = text.replace("-Infinity", "null").replace("Infinity", "null");
            serde_json::from_str(&known.replace("NaN", "null")).map_err(|_| e)
        })
        .map_err(|e| Error::invalid(path, e))?;
    if value.is_object() { Ok(value) } else { Err(Error::invalid(path, "expected a JSON object")) }
}
