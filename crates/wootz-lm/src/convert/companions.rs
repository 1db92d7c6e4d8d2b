//! What a folder has beside weights and configuration: the tokenizer's files, and what is kept of a GGUF
//! file that it was made of.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use wootz::Array;
use wootz::io::gguf::{Gguf, Writer};

use crate::tokenizer::Tokenizer;
use crate::{Error, Result};

/// The file of a folder that keeps the metadata of the GGUF file it was made of, so that making one of
/// the folder again gives the same bytes.
pub(super) const METADATA: &str = "metadata.gguf";

/// The key under which it has the tensors of that file: name and type, in their order.
pub(super) const TENSORS: &str = "wootz.tensors";

/// Writes what belongs to a model that was a GGUF file: its tokenizer as Hugging Face has it, its metadata, and
/// tensors that MLX has otherwise.
pub(super) fn of_gguf(file: &Gguf, kept: &[(String, Array)], folder: &Path) -> Result<()> {
    write_tokenizer(&Tokenizer::from_gguf(file)?, folder)?;
    let mut writer = Writer::new();
    writer.version(file.version())?;
    for (key, value) in file.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
        writer.metadata(key, value.clone())?;
    }
    let tensors: Vec<String> =
        file.tensors().map(|info| format!("{} {}", info.name, info.kind)).collect();
    writer.metadata(TENSORS, tensors)?;
    for (name, array) in kept {
        writer.tensor(name, array.clone())?;
    }
    Ok(writer.write(folder.join(METADATA))?)
}

/// Writes a tokenizer as Hugging Face's programs read it.
fn write_tokenizer(tokenizer: &Tokenizer, folder: &Path) -> Result<()> {
    let path = folder.join("tokenizer.json");
    fs::write(&path, tokenizer.to_json()?).map_err(|error| Error::file(&path, error))?;
    let mut config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false });
    for role in ["bos_token", "eos_token", "unk_token", "pad_token"] {
        if let Some(text) = tokenizer.special_token(role) {
            config[role] = json!(text);
        }
    }
    if let Some((_, template)) = tokenizer.chat_templates().find(|(name, _)| *name == "default") {
        config["chat_template"] = json!(template);
    }
    write_json(&folder.join("tokenizer_config.json"), &config)?;
    let mut generation = json!({ "eos_token_id": tokenizer.eos() });
    if let Some(bos) = tokenizer.bos() {
        generation["bos_token_id"] = json!(bos);
    }
    write_json(&folder.join("generation_config.json"), &generation)
}

/// Writes JSON as mlx-lm does: sorted, with four spaces.
pub(super) fn write_json(path: &Path, value: &Value) -> Result<()> {
    use serde::Serialize;
    let sorted: std::collections::BTreeMap<&String, &Value> =
        value.as_object().into_iter().flatten().collect();
    let mut bytes = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, format);
    sorted.serialize(&mut serializer).map_err(|error| Error::invalid(path, error))?;
    fs::write(path, bytes).map_err(|error| Error::file(path, error))
}

/// Copies what belongs to a model in a folder.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| Error::file(from, error);
    for entry in fs::read_dir(from).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let made = ["config.json", "model.safetensors.index.json"].contains(&name);
        let ends = [".json", ".jinja", ".txt", ".model", ".py", ".tiktoken"];
        let starts = ["LICENSE", "NOTICE", "USE_POLICY"];
        let kept = name == METADATA
            || ends.iter().any(|end| name.ends_with(end))
            || starts.iter().any(|start| name.starts_with(start));
        if made || !kept || !path.is_file() {
            continue;
        }
        let copy = to.join(name);
        // Not `fs::copy`: a cache's files may be read-only, and the copies should not be.
        let bytes = fs::read(&path).map_err(|error| Error::file(&path, error))?;
        fs::write(&copy, bytes).map_err(|error| Error::file(&copy, error))?;
    }
    Ok(())
}
