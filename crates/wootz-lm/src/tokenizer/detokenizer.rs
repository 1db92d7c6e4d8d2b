//! Decoding one token after the other.

use super::pieces::Pieces;
use super::{Tokenizer, failed};
use crate::error::Result;

/// Decodes tokens as they come: a character is given out once, when it is whole, and all that is
/// given out together is what [`Tokenizer::decode`] makes of the tokens. A token costs the same
/// however many came before.
///
/// ```
/// # use wootz_lm::tokenizer::Tokenizer;
/// // Bytes as tokens: "é" is two of them.
/// let json = r#"{"added_tokens": [], "model": {"type": "BPE", "vocab":
///     {"Ã": 0, "©": 1, "!": 2}, "merges": []}, "decoder":
///     {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false}}"#;
/// let tokenizer = Tokenizer::from_json(json.as_bytes())?;
/// let mut detokenizer = tokenizer.detokenizer();
/// assert_eq!(detokenizer.push(0)?, None);
/// assert_eq!(detokenizer.push(1)?.as_deref(), Some("é"));
/// assert_eq!(detokenizer.push(2)?.as_deref(), Some("!"));
/// assert_eq!(detokenizer.finish()?, "");
/// # Ok::<(), wootz_lm::Error>(())
/// ```
#[derive(Debug)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    skip_special_tokens: bool,
    /// Whether no token has been decoded yet.
    first: bool,
    /// Spaces at the beginning of the text that are not part of it.
    strip: usize,
    /// Bytes that do not make a character yet.
    bytes: Vec<u8>,
    window: Window,
    clean_up: Vec<Replace>,
}

impl<'a> Detokenizer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Detokenizer<'a> {
        let clean_up =
            if tokenizer.clean_up { CLEAN_UP.map(Replace::new).to_vec() } else { Vec::new() };
        Detokenizer {
            tokenizer,
            skip_special_tokens: false,
            first: true,
            strip: tokenizer.pieces.strip(),
            bytes: Vec::new(),
            window: Window::default(),
            clean_up,
        }
    }

    /// Whether special tokens are left out of the text; without, they are written.
    #[must_use]
    pub fn skip_special_tokens(mut self, skip: bool) -> Detokenizer<'a> {
        self.skip_special_tokens = skip;
        self
    }

    /// Takes a token and returns the text that is certain now, if there is any.
    pub fn push(&mut self, token: u32) -> Result<Option<String>> {
        let tokenizer = self.tokenizer;
        if self.skip_special_tokens && tokenizer.is_special(token) {
            return Ok(None);
        }
        let Some(written) = tokenizer.token(token) else { return Ok(None) };
        let text = if tokenizer.pieces == Pieces::Other {
            self.window.push(token, &tokenizer.inner)?
        } else {
            tokenizer.pieces.append(&written, self.first, &mut self.bytes);
            whole_characters(&mut self.bytes)
        };
        self.first = false;
        let text = self.finished(text);
        Ok((!text.is_empty()).then_some(text))
    }

    /// The rest of the text: what waited for tokens that did not come.
    pub fn finish(mut self) -> Result<String> {
        let mut text = self.window.finish(&self.tokenizer.inner)?;
        if !self.bytes.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        let mut text = self.finished(text);
        for index in 0..self.clean_up.len() {
            let mut rest = std::mem::take(&mut self.clean_up[index].waiting);
            for later in &mut self.clean_up[index + 1..] {
                rest = later.push(&rest);
            }
            text += &rest;
        }
        Ok(text)
    }

    /// Text without the spaces that an encoder put first, and cleaned up.
    fn finished(&mut self, mut text: String) -> String {
        while self.strip > 0 && !text.is_empty() {
            if text.starts_with(' ') {
                text.remove(0);
                self.strip -= 1;
            } else {
                self.strip = 0;
            }
        }
        self.clean_up.iter_mut().fold(text, |text, replace| replace.push(&text))
    }
}

/// Takes whole characters from the beginning of bytes. What cannot become one is U+FFFD; what might,
/// with more bytes, stays.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text += valid;
                bytes.clear();
                return text;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text += &String::from_utf8_lossy(valid);
                let Some(length) = error.error_len() else {
                    *bytes = after.to_vec();
                    return text;
                };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &after[length..];
            }
        }
    }
}

/// For decoders of which only the result is known: the last tokens are decoded with and without the
/// newest, and what is more is new.
#[derive(Debug, Default)]
struct Window {
    tokens: Vec<u32>,
    /// How many of them have been given out.
    given: usize,
}

/// Tokens that may wait for the end of a character; no character has more bytes than four.
const MOST_WAITING: usize = 16;

impl Window {
    fn push(&mut self, token: u32, tokenizer: &tokenizers::Tokenizer) -> Result<String> {
        self.tokens.push(token);
        let text = self.text(tokenizer)?;
        let waiting = self.tokens.len() - self.given;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && waiting < MOST_WAITING {
            return Ok(String::new());
        }
        self.tokens.drain(..self.given);
        self.given = self.tokens.len();
        Ok(text)
    }

    fn finish(&self, tokenizer: &tokenizers::Tokenizer) -> Result<String> {
        if self.given == self.tokens.len() { Ok(String::new()) } else { self.text(tokenizer) }
    }

    /// What the tokens that were not given out yet add to those that were.
    fn text(&self, tokenizer: &tokenizers::Tokenizer) -> Result<String> {
        let all = tokenizer.decode(&self.tokens, false).map_err(failed)?;
        let before = tokenizer.decode(&self.tokens[..self.given], false).map_err(failed)?;
        let common = all.chars().zip(before.chars()).take_while(|(a, b)| a == b).count();
        Ok(all.chars().skip(common).collect())
    }
}

/// What Hugging Face's `clean_up_tokenization_spaces` replaces, one after the other.
const CLEAN_UP: [(&str, &str); 10] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// Replaces a text in a stream of text.
#[derive(Clone, Debug)]
struct Replace {
    old: &'static str,
    new: &'static str,
    /// The end of the stream, where an occurrence may have begun.
    waiting: String,
}

impl Replace {
    fn new((old, new): (&'static str, &'static str)) -> Replace {
        Replace { old, new, waiting: String::new() }
    }

    fn push(&mut self, text: &str) -> String {
        let all = std::mem::take(&mut self.waiting) + text;
        let last = all.match_indices(self.old).last();
        let last = last.map_or(0, |(start, found)| start + found.len());
        let begun = (1..self.old.len())
            .rev()
            .filter(|length| last + length <= all.len())
            .find(|length| all.ends_with(&self.old[..*length]))
            .unwrap_or(0);
        let (certain, waiting) = all.split_at(all.len() - begun);
        self.waiting = waiting.to_string();
        certain.replace(self.old, self.new)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_is_cleaned_up_as_the_whole_text_is(parts in prop::collection::vec("[ '.nt?a]{0,5}", 0..12)) {
            for replaced in CLEAN_UP {
                let mut replace = Replace::new(replaced);
                let mut streamed: String = parts.iter().map(|part| replace.push(part)).collect();
                streamed += &replace.waiting;
                prop_assert_eq!(streamed, parts.concat().replace(replaced.0, replaced.1));
            }
        }

        #[test]
        fn bytes_become_what_all_of_them_together_would(parts in prop::collection::vec(
            prop::collection::vec(prop_oneof![Just(b'a'), Just(0xf0), Just(0x9f), Just(0xe2), Just(0x82), any::<u8>()], 0..4),
            0..20,
        )) {
            let mut bytes = Vec::new();
            let mut streamed = String::new();
            for part in &parts {
                bytes.extend_from_slice(part);
                streamed += &whole_characters(&mut bytes);
                prop_assert!(bytes.len() < 4);
            }
            streamed += &String::from_utf8_lossy(&bytes);
            let together = parts.concat();
            prop_assert_eq!(streamed, String::from_utf8_lossy(&together));
        }
    }
}
