//! Which tokens end a generation: files name one or two, and models have more.

use super::Vocabulary;
use crate::error::Result;

/// Keys of tokens that end a text, a turn or a message.
const KEYS: [&str; 6] = [
    "eos_token_id",
    "eot_token_id",
    "eom_token_id",
    "fim_pad_token_id",
    "fim_rep_token_id",
    "fim_sep_token_id",
];

/// Tokens that end a generation wherever a vocabulary has them.
const TEXTS: [&str; 31] = [
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "</s>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

pub(super) fn of(vocabulary: &Vocabulary<'_>) -> Result<Vec<u32>> {
    let id = |text: &str| vocabulary.ids.get(text).copied();
    let has = |text: &str| id(text).is_some();
    // Where a turn ends with other tokens, these are part of it.
    let inner_end = has("<|end|>")
        && ((has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>")));
    let normal_s = has("<|tool_response>") || has("<|plamo:eos|>");
    let mut ends = Vec::new();
    let known = TEXTS
        .into_iter()
        .filter(|text| match *text {
            "<|end|>" => !inner_end,
            "</s>" => !normal_s,
            _ => true,
        })
        .map(|text| Ok(id(text)));
    for end in KEYS.iter().map(|key| vocabulary.special(key)).chain(known) {
        ends.extend(end?.filter(|end| !ends.contains(end)));
    }
    Ok(ends)
}
