//! GGUF's vocabulary, from `tokenizer.json` and what lies beside it.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;
use wootz::io::gguf::Value;

use crate::tokenizer::folder::Files;
use crate::tokenizer::gguf::{BYTE_LEVEL, name_of};
use crate::{Error, Result};

/// Types of tokens, as llama.cpp numbers them.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Keys `tokenizer.*` of a model with so many tokens.
pub(super) fn of(folder: &Path, size: usize) -> Result<Vec<(String, Value)>> {
    let path = folder.join("tokenizer.json");
    let json = read(&path)?;
    let files = Files::read(folder)?;
    let model = &json["model"];
    let wrong = |what: String| Error::invalid(&path, what);
    let kind = model["type"].as_str().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(wrong(format!(
            "a tokenizer of type {kind} cannot be written as GGUF, only BPE"
        )));
    }
    let sentencepiece = model["byte_fallback"].as_bool().unwrap_or(false);
    let vocabulary =
        model["vocab"].as_object().ok_or_else(|| wrong("it has no vocabulary".into()))?;
    let mut tokens: Vec<String> = (0..size).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![UNUSED; size];
    let mut set = |id: Option<u64>, token: &str, kind: i32| {
        let id = id.map_or(usize::MAX, |id| id as usize);
        match (tokens.get_mut(id), types.get_mut(id)) {
            (Some(place), Some(of)) => {
                (*place, *of) = (token.to_string(), kind);
                Ok(())
            }
            _ => {
                Err(wrong(format!("token {token:?} has the number {id}, but the model has {size}")))
            }
        }
    };
    for (token, id) in vocabulary {
        let is_byte =
            sentencepiece && token.len() == 6 && token.starts_with("<0x") && token.ends_with('>');
        set(id.as_u64(), token, if is_byte { BYTE } else { NORMAL })?;
    }
    let unknown = model["unk_token"].as_str();
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let text = token["content"].as_str().unwrap_or_default();
        let kind = match token["special"].as_bool() {
            _ if sentencepiece && unknown == Some(text) => UNKNOWN,
            Some(true) => CONTROL,
            _ => USER,
        };
        set(token["id"].as_u64(), text, kind)?;
    }
    let merges = merges(model).ok_or_else(|| wrong("it has no merges".into()))?;
    let ids: BTreeMap<&str, u32> =
        tokens.iter().zip(0..).map(|(token, id)| (token.as_str(), id)).collect();
    let special: BTreeMap<String, String> = files.special_tokens().into_iter().collect();
    let mut all: Vec<(String, Value)> = Vec::new();
    let mut put = |key: &str, value: Value| all.push((format!("tokenizer.{key}"), value));
    match sentencepiece {
        true => {
            put("ggml.model", "llama".into());
            put("ggml.pre", "default".into());
            put("ggml.scores", scores(&tokens, &merges).into());
        }
        false => {
            put("ggml.model", "gpt2".into());
            put("ggml.pre", pre_tokenizer(&json).map_err(wrong)?.into());
            let merges: Vec<String> = merges.iter().map(|(a, b)| format!("{a} {b}")).collect();
            put("ggml.merges", merges.into());
        }
    }
    for (key, name) in [
        ("bos", "bos_token"),
        ("eos", "eos_token"),
        ("unknown", "unk_token"),
        ("padding", "pad_token"),
    ] {
        if let Some(id) = special.get(name).and_then(|token| ids.get(token.as_str())) {
            put(&format!("ggml.{key}_token_id"), (*id).into());
        }
    }
    let adds_bos = (files.flag("add_bos_token")?)
        .unwrap_or_else(|| post_processor_adds(&json, special.get("bos_token")));
    put("ggml.add_bos_token", adds_bos.into());
    if let Some(adds) = files.flag("add_eos_token")? {
        put("ggml.add_eos_token", adds.into());
    }
    if sentencepiece {
        let prefixed = json.to_string().contains("\"prepend\":\"▁\"");
        put("ggml.add_space_prefix", prefixed.into());
    }
    // Of several with one name the last counts, as in the folder's own tokenizer.
    let templates = files.templates(folder)?;
    if let Some((_, template)) = templates.into_iter().rfind(|(name, _)| name == "default") {
        put("chat_template", template.into());
    }
    put("ggml.token_type", types.into());
    put("ggml.tokens", tokens.clone().into());
    Ok(all)
}

fn read(path: &Path) -> Result<Json> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
    serde_json::from_str(&text).map_err(|error| Error::invalid(path, error))
}

/// Pairs that are merged, the first before the others.
fn merges(model: &Json) -> Option<Vec<(String, String)>> {
    let pair = |merge: &Json| match merge {
        Json::String(text) => text.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string())),
        Json::Array(pair) => match &pair[..] {
            [Json::String(a), Json::String(b)] => Some((a.clone(), b.clone())),
            _ => None,
        },
        _ => None,
    };
    model["merges"].as_array()?.iter().map(pair).collect()
}

/// Scores by which sentencepiece merges in the order of the merges.
fn scores(tokens: &[String], merges: &[(String, String)]) -> Vec<f32> {
    let mut ranks: BTreeMap<String, usize> = BTreeMap::new();
    for (rank, (a, b)) in merges.iter().enumerate() {
        ranks.entry(format!("{a}{b}")).or_insert(rank);
    }
    let score = |token: &String| ranks.get(token).map_or(0.0, |rank| -(*rank as f32) - 1.0);
    tokens.iter().map(score).collect()
}

/// Whether a text begins with a token that the post-processor puts there.
fn post_processor_adds(json: &Json, bos: Option<&String>) -> bool {
    let of = |processor: &Json| {
        let first = processor["single"].as_array().and_then(|parts| parts.first());
        let id = first.and_then(|part| part["SpecialToken"]["id"].as_str());
        id.is_some() && id == bos.map(String::as_str)
    };
    let processor = &json["post_processor"];
    of(processor) || processor["processors"].as_array().into_iter().flatten().any(of)
}

/// llama.cpp's name for the way text is cut before it is merged.
fn pre_tokenizer(json: &Json) -> Result<&'static str, String> {
    let pre = &json["pre_tokenizer"];
    let parts: Vec<&Json> = match pre["pretokenizers"].as_array() {
        Some(parts) => parts.iter().collect(),
        None => vec![pre],
    };
    let mut patterns = Vec::new();
    for part in parts {
        let says = |key: &str| part[key].as_bool();
        let pattern = match part["type"].as_str() {
            // Bytes are cut as the first of such tokenizers did it, where nothing else is said.
            Some("ByteLevel") => says("use_regex").unwrap_or(true).then_some(BYTE_LEVEL),
            Some("Digits") if says("individual_digits") == Some(true) => Some(r"\p{N}"),
            Some("Digits") => Some(r"\p{N}+"),
            Some("Split") => {
                let behavior = part["behavior"].as_str().unwrap_or_default();
                let inverted = says("invert").unwrap_or(false);
                // These patterns match all of a text, so that both ways keep all of it.
                let isolates =
                    matches!((behavior, inverted), ("Isolated", false) | ("Removed", true));
                let pattern = part["pattern"]["Regex"].as_str().filter(|_| isolates);
                Some(
                    pattern
                        .ok_or_else(|| format!("GGUF has no pre-tokenizer that cuts as {part}"))?,
                )
            }
            _ => return Err(format!("GGUF has no pre-tokenizer of the kind {part}")),
        };
        patterns.extend(pattern.map(str::to_string));
    }
    let whole_tokens = json["model"]["ignore_merges"].as_bool().unwrap_or(false);
    name_of(&patterns, whole_tokens).ok_or_else(|| {
        let listed = patterns.join("  and  ");
        format!("GGUF has no known name for a pre-tokenizer that cuts by {listed}")
    })
}
