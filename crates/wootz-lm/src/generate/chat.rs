//! A conversation with a model: the history, rendered by the model's chat template, and the cache that
//! makes each turn cost only what is new.

use std::sync::Mutex;

use super::options::GenerateOptions;
use super::pieces::Piece;
use super::prefill::Progress;
use super::prompt_cache::PromptCache;
use super::statistics::Statistics;
use super::stream::Generation;
use super::text_model::TextModel;
use crate::error::{Error, Result};
use crate::tokenizer::{ChatOptions, Message};

/// Bytes of caches that a conversation keeps.
const KEPT: usize = 2 << 30;

/// A conversation. Each turn computes only what the caches do not have.
///
/// ```no_run
/// use wootz_lm::generate::{Conversation, TextModel};
/// # let model = TextModel::open("model", &Default::default())?;
/// let mut conversation = Conversation::new(&model, model.default_options());
/// conversation.system("Answer in one sentence.");
/// for piece in conversation.send("What is Damascus steel?")? {
///     print!("{}", piece?.text);
/// }
/// assert_eq!(conversation.messages().len(), 3);
/// # Ok::<(), wootz_lm::Error>(())
/// ```
pub struct Conversation<'a> {
    model: &'a TextModel,
    draft: Option<&'a TextModel>,
    /// Settings of the next answers.
    pub options: GenerateOptions,
    /// What the template is told beside the messages.
    pub chat: ChatOptions,
    messages: Vec<Message>,
    kept: Mutex<PromptCache>,
}

impl<'a> Conversation<'a> {
    /// An empty conversation.
    pub fn new(model: &'a TextModel, options: &GenerateOptions) -> Conversation<'a> {
        Conversation {
            model,
            draft: None,
            options: options.clone(),
            chat: ChatOptions::default(),
            messages: Vec::new(),
            kept: Mutex::new(PromptCache::new(KEPT)),
        }
    }

    /// A smaller model that proposes tokens.
    pub fn draft(mut self, draft: &'a TextModel) -> Conversation<'a> {
        self.draft = Some(draft);
        self
    }

    /// Says what the model should be, before everything else; replaces what was said before.
    pub fn system(&mut self, text: &str) {
        self.messages.retain(|message| message.role != "system");
        self.messages.insert(0, Message::new("system", text));
    }

    /// All messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Goes on from another history.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Forgets everything but the system's message.
    pub fn reset(&mut self) {
        self.messages.retain(|message| message.role == "system");
    }

    /// The answer to a message of the user, as an iterator of pieces. It joins the history when it is
    /// dropped, as far as it came.
    pub fn send(&mut self, text: &str) -> Result<Reply<'_>> {
        self.send_with(text, &mut |_, _| std::ops::ControlFlow::Continue(()))
    }

    /// As [`send`](Self::send), with progress over the prompt; see
    /// [`Request::start_with`](super::Request::start_with).
    pub fn send_with(&mut self, text: &str, progress: &mut Progress<'_>) -> Result<Reply<'_>> {
        if !self.model.tokenizer.has_chat_template() {
            return Err(Error::Template("the tokenizer has none; use TextModel::generate".into()));
        }
        let Conversation { model, draft, options, chat, messages, kept } = self;
        messages.push(Message::new("user", text));
        let started = (|| {
            let prompt = model.tokenizer.apply_chat_template(messages, chat)?;
            // The template writes the tokens that a text begins with.
            let tokens = model.tokenizer.encode(&prompt, false)?;
            let mut request = model.request(tokens).options(options).prompt_cache(kept);
            if let Some(draft) = draft {
                request = request.draft(draft);
            }
            request.start_with(progress)
        })();
        match started {
            Ok(generation) => Ok(Reply { generation, messages, text: String::new() }),
            Err(error) => {
                messages.pop();
                Err(error)
            }
        }
    }
}

/// A running answer: an iterator of [`Piece`]s.
pub struct Reply<'c> {
    generation: Generation<'c>,
    messages: &'c mut Vec<Message>,
    text: String,
}

impl Reply<'_> {
    /// Counts and times so far.
    pub fn statistics(&self) -> Statistics {
        self.generation.statistics()
    }
}

impl Iterator for Reply<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        let piece = self.generation.next()?;
        if let Ok(piece) = &piece {
            self.text.push_str(&piece.text);
        }
        Some(piece)
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        self.messages.push(Message::new("assistant", &std::mem::take(&mut self.text)));
    }
}
