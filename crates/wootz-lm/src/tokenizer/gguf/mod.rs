//! The vocabulary of a GGUF file as a tokenizer.
//!
//! A file has the tokens, for byte-pair encoding the merges, and names for the rest: which kind of
//! tokenizer it is (`tokenizer.ggml.model`) and how text is split before it is merged
//! (`tokenizer.ggml.pre`).

mod bpe;
mod ends;
mod pre;
mod spm;
mod wordpiece;

use std::collections::HashMap;

pub(crate) use pre::{BYTE_LEVEL, name_of};
use tokenizers::AddedToken;
use wootz::io::gguf::{Gguf, Value, Values};

use super::{Special, Tokenizer, failed, post};
use crate::error::{Error, Result};

pub(super) fn open(gguf: &Gguf) -> Result<Tokenizer> {
    let vocabulary = Vocabulary::read(gguf)?;
    let made = match text(gguf, "tokenizer.ggml.model")? {
        Some("gpt2") => bpe::bytes(&vocabulary)?,
        Some("gemma4") => bpe::marked(&vocabulary, "gemma4")?,
        Some("llama") => spm::tokenizer(&vocabulary)?,
        Some("bert") => wordpiece::tokenizer(&vocabulary)?,
        Some(other) => {
            let what = format!("tokenizer.ggml.model: {other:?} is not supported; {SUPPORTED} are");
            return Err(Error::Tokenizer(what));
        }
        None => return Err(Error::Tokenizer("the file has no tokenizer.ggml.model".into())),
    };
    finish(made, &vocabulary)
}

const SUPPORTED: &str = "gpt2 (byte-pair encoding), llama (SentencePiece), gemma4 and bert";

/// A tokenizer without its special tokens, and what its kind does where the file says nothing.
struct Made {
    inner: tokenizers::Tokenizer,
    /// The first and the last token of every text, where they are not `bos` and `eos`.
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

/// The kinds of tokens, as files number them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// What a file says of its tokens.
struct Vocabulary<'a> {
    gguf: &'a Gguf,
    tokens: Vec<&'a str>,
    kinds: Vec<Kind>,
    ids: HashMap<&'a str, u32>,
}

impl<'a> Vocabulary<'a> {
    fn read(gguf: &'a Gguf) -> Result<Vocabulary<'a>> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        let tokens = array(gguf, TOKENS)?.and_then(Values::as_strings);
        let tokens = tokens.ok_or_else(|| invalid(TOKENS, "expected an array of texts"))?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            let id = u32::try_from(id).map_err(failed)?;
            if let Some(other) = ids.insert(token.as_str(), id)
                && !token.is_empty()
            {
                let what = format!("{token:?} is both token {other} and token {id}");
                return Err(invalid(TOKENS, what));
            }
        }
        let mut vocabulary = Vocabulary {
            gguf,
            tokens: tokens.iter().map(String::as_str).collect(),
            kinds: vec![Kind::Normal; tokens.len()],
            ids,
        };
        if let Some(kinds) = vocabulary.of_tokens("tokenizer.ggml.token_type")? {
            let kinds = kinds.iter().map(|kind| match kind.as_i64() {
                Some(2) => Kind::Unknown,
                Some(3) => Kind::Control,
                Some(4) => Kind::UserDefined,
                Some(5) => Kind::Unused,
                Some(6) => Kind::Byte,
                _ => Kind::Normal,
            });
            vocabulary.kinds = kinds.collect();
        }
        Ok(vocabulary)
    }

    /// An array with a value for each token.
    fn of_tokens(&self, key: &str) -> Result<Option<&'a Values>> {
        let values = array(self.gguf, key)?;
        let (found, expected) = (values.map_or(0, Values::len), self.tokens.len());
        if values.is_some() && found != expected {
            return Err(invalid(key, format!("{found} values for {expected} tokens")));
        }
        Ok(values)
    }

    /// The tokens that have a text, with their numbers.
    fn pairs(&self) -> impl Iterator<Item = (&'a str, u32)> {
        self.tokens
            .iter()
            .zip(0u32..)
            .filter(|(token, _)| !token.is_empty())
            .map(|(t, id)| (*t, id))
    }

    fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Normal)
    }

    fn token(&self, id: u32) -> Option<&'a str> {
        self.tokens.get(id as usize).copied()
    }

    /// The number of a token that a key names.
    fn special(&self, key: &str) -> Result<Option<u32>> {
        let key = format!("tokenizer.ggml.{key}");
        let Some(value) = self.gguf.get(&key) else { return Ok(None) };
        let id = value.as_i64().ok_or_else(|| invalid(&key, "expected the number of a token"))?;
        // Converters write -1, or its bits, for tokens that a model does not have.
        if id == -1 || id == i64::from(u32::MAX) {
            return Ok(None);
        }
        match u32::try_from(id) {
            Ok(id) if self.token(id).is_some() => Ok(Some(id)),
            _ => Err(invalid(&key, format!("{id}, but there are {} tokens", self.tokens.len()))),
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>> {
        let key = format!("tokenizer.ggml.{key}");
        let flag = self.gguf.get(&key);
        flag.map(|value| value.as_bool().ok_or_else(|| invalid(&key, "expected a bool")))
            .transpose()
    }
}

/// Adds what all kinds have in common: special tokens, tokens around a text, templates.
fn finish(made: Made, vocabulary: &Vocabulary<'_>) -> Result<Tokenizer> {
    let Made { mut inner, bos, eos, add_bos, add_eos } = made;
    let ends = ends::of(vocabulary)?;
    add_tokens(&mut inner, vocabulary, &ends)?;

    let bos = vocabulary.special("bos_token_id")?.or(bos);
    let usual = vocabulary.special("eos_token_id")?.or(eos);
    let named = |id: u32| inner.id_to_token(id).map(|token| (id, token));
    let before = vocabulary.flag("add_bos_token")?.unwrap_or(add_bos).then_some(bos).flatten();
    let after = vocabulary.flag("add_eos_token")?.unwrap_or(add_eos).then_some(usual).flatten();
    if before.is_some() || after.is_some() {
        let around = post::around(before.and_then(named), after.and_then(named))?;
        inner.with_post_processor(Some(around));
    }

    let mut eos: Vec<u32> = usual.into_iter().collect();
    eos.extend(ends.into_iter().filter(|end| Some(*end) != usual));
    let roles = [
        ("bos_token", bos),
        ("eos_token", usual),
        ("unk_token", vocabulary.special("unknown_token_id")?),
        // As files spell it.
        ("sep_token", vocabulary.special("seperator_token_id")?),
        ("pad_token", vocabulary.special("padding_token_id")?),
        ("cls_token", vocabulary.special("cls_token_id")?),
        ("mask_token", vocabulary.special("mask_token_id")?),
    ];
    let texts = roles
        .into_iter()
        .filter_map(|(role, id)| Some((role.to_string(), inner.id_to_token(id?)?)))
        .collect();
    let (sources, size) = (templates(vocabulary.gguf)?, vocabulary.tokens.len());
    Tokenizer::new(inner, Special { bos, eos, texts, sources, clean_up: false, size })
}

/// Control tokens are special; those that users defined are found in text before anything else is.
fn add_tokens(
    inner: &mut tokenizers::Tokenizer,
    vocabulary: &Vocabulary<'_>,
    ends: &[u32],
) -> Result<()> {
    let name = text(vocabulary.gguf, "general.name")?.unwrap_or_default().to_lowercase();
    let phi3 = name.contains("phi-3") || name.contains("phi3");
    let mut added = Vec::new();
    for (_, id) in vocabulary.pairs() {
        let control = matches!(vocabulary.kind(id), Kind::Control | Kind::Unknown);
        let special = control || ends.contains(&id);
        if !special && vocabulary.kind(id) != Kind::UserDefined {
            continue;
        }
        // Not as the file writes it, but as the tokenizer was made with it.
        let Some(token) = inner.id_to_token(id) else { continue };
        // Phi-3 was trained without the spaces behind its special tokens, which files do not say.
        let strips = phi3 && !["<unk>", "<s>", "<|endoftext|>"].contains(&token.as_str());
        added.push(AddedToken::from(token, special).normalized(false).rstrip(strips));
    }
    inner.add_tokens(added).map_err(failed)?;
    Ok(())
}

/// Chat templates by name.
fn templates(gguf: &Gguf) -> Result<Vec<(String, String)>> {
    const KEY: &str = "tokenizer.chat_template";
    let mut templates = Vec::new();
    for (key, value) in gguf.metadata() {
        let name = match key.strip_prefix(KEY) {
            Some("") => "default",
            Some(rest) => match rest.strip_prefix('.') {
                Some(name) => name,
                None => continue,
            },
            None => continue,
        };
        let source = value.as_str().ok_or_else(|| invalid(key, "expected a text"))?;
        templates.push((name.to_string(), source.to_string()));
    }
    Ok(templates)
}

fn text<'a>(gguf: &'a Gguf, key: &str) -> Result<Option<&'a str>> {
    let value = gguf.get(key);
    value.map(|value| value.as_str().ok_or_else(|| invalid(key, "expected a text"))).transpose()
}

fn array<'a>(gguf: &'a Gguf, key: &str) -> Result<Option<&'a Values>> {
    let value = gguf.get(key);
    value
        .map(|value: &Value| value.as_array().ok_or_else(|| invalid(key, "expected an array")))
        .transpose()
}

fn invalid(key: &str, what: impl std::fmt::Display) -> Error {
    Error::Tokenizer(format!("{key}: {what}"))
}
