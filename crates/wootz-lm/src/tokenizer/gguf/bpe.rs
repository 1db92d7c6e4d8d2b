//! Vocabularies of byte-pair encoding: tokens and an ordered list of merges.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;
use wootz::io::gguf::Values;

use super::pre::{self, Pre};
use super::{Made, Vocabulary, array, invalid, spm, text};
use crate::error::Result;
use crate::tokenizer::failed;

/// Merges of bytes, each written as a character.
pub(super) fn bytes(vocabulary: &Vocabulary<'_>) -> Result<Made> {
    let name = text(vocabulary.gguf, "tokenizer.ggml.pre")?.unwrap_or("default");
    let pre = pre::named(name)?;
    if pre.marked {
        return marked(vocabulary, name);
    }
    let tokens: Vocab = vocabulary.pairs().map(|(token, id)| (token.to_string(), id)).collect();
    let model = BPE::builder()
        .vocab_and_merges(tokens, merges(vocabulary)?)
        .ignore_merges(pre.whole_tokens)
        .build()
        .map_err(failed)?;
    let mut inner = tokenizers::Tokenizer::new(model);
    let mut splits = splits(&pre)?;
    splits.push(ByteLevel::new(false, false, false).into());
    inner.with_pre_tokenizer(Some(Sequence::new(splits)));
    inner.with_decoder(Some(ByteLevel::new(false, false, false)));
    Ok(Made { inner, bos: None, eos: None, add_bos: pre.add_bos, add_eos: false })
}

/// Merges of characters, with marks for spaces and tokens for bytes.
pub(super) fn marked(vocabulary: &Vocabulary<'_>, name: &str) -> Result<Made> {
    let pre = pre::named(name)?;
    let mut merges = merges(vocabulary)?;
    merges.extend(lines(vocabulary, &merges));
    let mut inner = spm::merging(vocabulary, merges, false)?;
    inner.with_pre_tokenizer(Some(Sequence::new(splits(&pre)?)));
    Ok(Made { inner, bos: None, eos: None, add_bos: true, add_eos: false })
}

fn splits(pre: &Pre) -> Result<Vec<PreTokenizerWrapper>> {
    let split = |pattern: &&str| {
        let pattern = SplitPattern::Regex(pattern.to_string());
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        Ok(split.map_err(failed)?.into())
    };
    pre.patterns.iter().map(split).collect()
}

/// Merges in the file's order. Those that make no token cannot have been used.
fn merges(vocabulary: &Vocabulary<'_>) -> Result<Vec<(String, String)>> {
    const KEY: &str = "tokenizer.ggml.merges";
    let merges = array(vocabulary.gguf, KEY)?.and_then(Values::as_strings);
    let merges = merges.ok_or_else(|| invalid(KEY, "expected an array of texts"))?;
    let mut found = Vec::with_capacity(merges.len());
    for merge in merges {
        // The first part may begin with a space, but is not empty.
        let space = merge.bytes().enumerate().skip(1).find(|(_, byte)| *byte == b' ');
        let (left, right) = space
            .map(|(place, _)| (&merge[..place], &merge[place + 1..]))
            .ok_or_else(|| invalid(KEY, format!("{merge:?} is not two tokens")))?;
        let known = |token: &str| vocabulary.ids.contains_key(token);
        if known(left) && known(right) && known(&format!("{left}{right}")) {
            found.push((left.to_string(), right.to_string()));
        }
    }
    Ok(found)
}

/// Merges of lines' ends, which files do not have: a run of them is one token if there is such a
/// token.
fn lines(vocabulary: &Vocabulary<'_>, merges: &[(String, String)]) -> Vec<(String, String)> {
    let ends = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte == b'\n');
    if merges.iter().any(|(left, right)| ends(left) && ends(right)) {
        return Vec::new();
    }
    let longest = vocabulary.tokens.iter().filter(|token| ends(token)).map(|token| token.len());
    let longest = longest.max().unwrap_or(0);
    let known = |length: usize| vocabulary.ids.contains_key("\n".repeat(length).as_str());
    let mut found = Vec::new();
    for length in (2..=longest).filter(|length| known(*length)) {
        let parts = (1..length).filter(|left| known(*left) && known(length - left));
        found.extend(parts.map(|left| ("\n".repeat(left), "\n".repeat(length - left))));
    }
    found
}
