//! Text to tokens and back, and chat templates.
//!
//! [`Tokenizer::open`] reads what lies beside a model's weights, or the vocabulary inside a GGUF file:
//! either becomes one and the same tokenizer.
//!
//! ```no_run
//! use wootz_lm::tokenizer::{ChatOptions, Message, Tokenizer};
//! let tokenizer = Tokenizer::open("SmolLM2-135M-Instruct")?;
//! let messages = [Message::new("user", "What is the capital of France?")];
//! let prompt = tokenizer.apply_chat_template(&messages, &ChatOptions::default())?;
//! // The template wrote the special tokens already.
//! let tokens = tokenizer.encode(&prompt, false)?;
//! let mut text = tokenizer.detokenizer();
//! for token in tokens {
//!     if let Some(piece) = text.push(token)? {
//!         print!("{piece}");
//!     }
//! }
//! println!("{}", text.finish()?);
//! # Ok::<(), wootz_lm::Error>(())
//! ```

mod chat;
mod detokenizer;
pub(crate) mod folder;
pub(crate) mod gguf;
mod pieces;
mod post;
mod template;

use std::path::Path;

use wootz::io::gguf::Gguf;

pub use self::chat::{ChatOptions, Message};
pub use self::detokenizer::Detokenizer;
use self::pieces::Pieces;
use self::template::Templates;
use crate::error::{Error, Result};

/// Text to tokens and back.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    pieces: Pieces,
    /// Whether decoding removes spaces before punctuation.
    clean_up: bool,
    /// At least so many tokens, of which some may have no text.
    size: usize,
    bos: Option<u32>,
    eos: Vec<u32>,
    templates: Templates,
}

impl Tokenizer {
    /// Opens the tokenizer of a model: a folder with `tokenizer.json`, or a GGUF file.
    pub fn open(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let path = path.as_ref();
        let metadata = std::fs::metadata(path).map_err(|e| Error::file(path, e))?;
        if metadata.is_dir() {
            folder::open(path)
        } else {
            Tokenizer::from_gguf(&Gguf::open(path)?)
        }
    }

    /// The tokenizer inside a GGUF file.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer> {
        gguf::open(gguf)
    }

    /// Reads the bytes of a `tokenizer.json`, without any of the files beside it: no special tokens
    /// are known, and there is no chat template.
    ///
    /// ```
    /// # use wootz_lm::tokenizer::Tokenizer;
    /// let json = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer":
    ///     {"type": "Whitespace"}, "post_processor": null, "decoder": null, "model":
    ///     {"type": "WordLevel", "vocab": {"two": 0, "words": 1, "?": 2}, "unk_token": "?"}}"#;
    /// let tokenizer = Tokenizer::from_json(json.as_bytes())?;
    /// assert_eq!(tokenizer.encode("two words", true)?, [0, 1]);
    /// assert_eq!(tokenizer.decode(&[0, 1], true)?, "two words");
    /// # Ok::<(), wootz_lm::Error>(())
    /// ```
    pub fn from_json(json: &[u8]) -> Result<Tokenizer> {
        Tokenizer::new(parse(json)?, Special::default())
    }

    /// The tokens of a text. Special tokens that are written in the text are recognised; with
    /// `add_special_tokens` those are added that the model wants around every text, which is wrong
    /// for what a chat template wrote.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, add_special_tokens).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens. Bytes that are not UTF-8 become U+FFFD, and numbers that are no tokens, as
    /// models with padded vocabularies have, nothing.
    pub fn decode(&self, tokens: &[u32], skip_special_tokens: bool) -> Result<String> {
        let mut detokenizer = self.detokenizer().skip_special_tokens(skip_special_tokens);
        let mut text = String::new();
        for token in tokens {
            text.extend(detokenizer.push(*token)?);
        }
        text += &detokenizer.finish()?;
        Ok(text)
    }

    /// Decodes one token after the other.
    pub fn detokenizer(&self) -> Detokenizer<'_> {
        Detokenizer::new(self)
    }

    /// How many tokens there are: one more than the greatest.
    pub fn vocab_size(&self) -> usize {
        let added = self.inner.get_added_vocabulary().get_vocab().values().max();
        let added = added.map_or(0, |id| *id as usize + 1);
        self.inner.get_vocab_size(false).max(added).max(self.size)
    }

    /// The token that begins a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// All tokens that end a generation, the usual one first.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// A token as the vocabulary has it, which is not the text it stands for.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The number of a token of the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// A token that stands for something else in another tokenizer, if there is one. Added tokens do not count, which get
    /// other names from version to version, nor those that only one of them has: vocabularies are padded.
    pub(crate) fn difference(&self, other: &Tokenizer) -> Option<u32> {
        let added = |of: &Tokenizer, id: &u32| {
            of.inner.get_added_vocabulary().get_added_tokens_decoder().contains_key(id)
        };
        let both = self.vocab_size().min(other.vocab_size()) as u32;
        (0..both).find(|id| match (self.token(*id), other.token(*id)) {
            (Some(own), Some(theirs)) => own != theirs && !added(self, id) && !added(other, id),
            _ => false,
        })
    }

    /// Whether a token is special: one that no text contains and that decoding may skip.
    pub fn is_special(&self, id: u32) -> bool {
        let added = self.inner.get_added_vocabulary();
        added.get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    /// Whether there is a template for chats.
    pub fn has_chat_template(&self) -> bool {
        !self.templates.is_empty()
    }

    /// The names and sources of the chat templates; most models have only the one named `default`.
    pub fn chat_templates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.templates.sources()
    }

    /// Replaces the chat template, as a user of a model without one may want to.
    pub fn set_chat_template(&mut self, source: impl Into<String>) {
        self.templates.insert("default", source.into());
    }

    /// A conversation as the text that the model was trained on.
    pub fn apply_chat_template(
        &self,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<String> {
        self.templates.render(messages, options)
    }

    /// [`apply_chat_template`](Tokenizer::apply_chat_template) for messages that are JSON objects of any shape,
    /// which a template sees as they are.
    pub fn apply_chat_template_to_json(
        &self,
        messages: &[serde_json::Value],
        options: &ChatOptions,
    ) -> Result<String> {
        self.templates.render_json(messages.to_vec(), options)
    }

    /// The tokenizer as the text of a `tokenizer.json`.
    pub fn to_json(&self) -> Result<String> {
        self.inner.to_string(false).map_err(failed)
    }

    /// The text of a special token by its role, as templates see it: `bos_token`, `eos_token`, `unk_token`, ….
    pub fn special_token(&self, role: &str) -> Option<&str> {
        self.templates.special(role)
    }

    fn new(mut inner: tokenizers::Tokenizer, special: Special) -> Result<Tokenizer> {
        // Files may say both, for training; a prompt is taken whole.
        inner.with_truncation(None).map_err(failed)?;
        inner.with_padding(None);
        let Special { bos, eos, texts, sources, clean_up, size } = special;
        let pieces = Pieces::of(&inner)?;
        let mut templates = Templates::new(texts);
        for (name, source) in sources {
            templates.insert(&name, source);
        }
        Ok(Tokenizer { inner, pieces, clean_up, size, bos, eos, templates })
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("bos", &self.bos)
            .field("eos", &self.eos)
            .field("chat_template", &self.has_chat_template())
            .finish_non_exhaustive()
    }
}

/// What is known of a tokenizer beside its vocabulary.
#[derive(Default)]
struct Special {
    bos: Option<u32>,
    eos: Vec<u32>,
    /// Special tokens by role, such as `bos_token`.
    texts: Vec<(String, String)>,
    /// Chat templates by name.
    sources: Vec<(String, String)>,
    clean_up: bool,
    size: usize,
}

/// Reads a `tokenizer.json`.
fn parse(json: &[u8]) -> Result<tokenizers::Tokenizer> {
    // The library panics on merges that are longer than any token of the vocabulary.
    match std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(json)) {
        Ok(read) => read.map_err(failed),
        Err(_) => Err(Error::Tokenizer("the merges do not fit the vocabulary".into())),
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Tokenizer(error.to_string())
}
