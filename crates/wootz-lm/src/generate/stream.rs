//! A running generation: an iterator of pieces of text, with statistics. Dropping it stops it.

use std::sync::{Arc, Mutex};

use wootz::Device;

use super::options::GenerateOptions;
use super::pieces::{Piece, Pieces};
use super::prefill::{Prefilled, Progress, keep, prefill};
use super::prompt_cache::PromptCache;
use super::sampler::Token;
use super::session::Session;
use super::speculative::{SpeculativeSteps, within};
use super::statistics::{Clock, Statistics};
use super::text_model::TextModel;
use super::tokens::TokenSteps;
use crate::cache::Mark;
use crate::error::{Error, Result};

/// What to generate from, and how. Made by [`TextModel::request`].
pub struct Request<'a> {
    model: &'a TextModel,
    tokens: Vec<u32>,
    options: GenerateOptions,
    draft: Option<&'a TextModel>,
    kept: Option<&'a Mutex<PromptCache>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(model: &'a TextModel, tokens: Vec<u32>) -> Request<'a> {
        let options = model.default_options().clone();
        Request { model, tokens, options, draft: None, kept: None }
    }

    /// Other settings than the model's own.
    pub fn options(mut self, options: &GenerateOptions) -> Request<'a> {
        self.options = options.clone();
        self
    }

    /// A smaller model with the same tokenizer that proposes tokens. The result does not change.
    pub fn draft(mut self, draft: &'a TextModel) -> Request<'a> {
        self.draft = Some(draft);
        self
    }

    /// Goes on from what the prompt cache has of the prompt, and leaves there what was computed.
    pub fn prompt_cache(mut self, kept: &'a Mutex<PromptCache>) -> Request<'a> {
        self.kept = Some(kept);
        self
    }

    /// Reads the prompt. The pieces come from the iterator.
    pub fn start(self) -> Result<Generation<'a>> {
        self.start_with(&mut |_, _| std::ops::ControlFlow::Continue(()))
    }

    /// As [`start`](Self::start); `progress` hears how many of the prompt's tokens are done, and may
    /// end the work between two chunks, which is [`Error::Interrupted`](crate::Error::Interrupted). With a draft model it
    /// hears of the prompt twice: each model reads it.
    pub fn start_with(self, progress: &mut Progress<'_>) -> Result<Generation<'a>> {
        let Request { model, tokens, options, draft, kept } = self;
        options.validate()?;
        expect_same_tokens(model, draft)?;
        let clock = Clock::start();
        let device = model.model.info().device.clone();
        let mut session = model.session(&options)?;
        let read = prefill(&mut session, &tokens, &options, kept, progress)?;
        let sampler = Arc::new(model.sampler(&options)?);
        let state = sampler.start(&tokens, options.seed)?;
        let steps = match draft {
            None => Steps::Plain(Box::new(TokenSteps::new(session, sampler, state, &read.logits)?)),
            Some(draft) => {
                let mut drafting = draft.session(&options)?;
                let known = within(&tokens, draft.model.info().vocab_size);
                let drafted = prefill(&mut drafting, &known, &options, None, progress);
                if let Err(error @ Error::Interrupted { .. }) = drafted {
                    keep(&session, &tokens, read.checkpoints, kept)?;
                    return Err(error);
                }
                drafted?;
                let count = options.num_draft_tokens;
                let steps =
                    SpeculativeSteps::new(session, drafting, sampler, state, &read.logits, count)?;
                Steps::Speculative(Box::new(steps))
            }
        };
        let pieces = Pieces::new(&model.tokenizer, &options, model.most_tokens(&tokens, &options));
        let statistics = Statistics {
            prompt_tokens: tokens.len(),
            cached_tokens: read.cached,
            ..Statistics::default()
        };
        let Prefilled { checkpoints, .. } = read;
        Ok(Generation {
            steps,
            pieces,
            tokens,
            kept,
            checkpoints,
            statistics,
            clock,
            device,
            failed: false,
        })
    }
}

/// An error if a draft model has other tokens. As many rows need not be: vocabularies are padded.
fn expect_same_tokens(model: &TextModel, draft: Option<&TextModel>) -> Result<()> {
    let Some(draft) = draft else { return Ok(()) };
    let Some(id) = model.tokenizer.difference(&draft.tokenizer) else { return Ok(()) };
    let said = |of: &TextModel| of.tokenizer.token(id).unwrap_or_default();
    let expected = format!("the model's tokenizer, in which token {id} is {:?}", said(model));
    Err(Error::argument("draft model", expected, format!("{:?}", said(draft))))
}

/// An iterator of [`Piece`]s; the last one says why it is the last. Dropping it stops the generation.
pub struct Generation<'a> {
    steps: Steps,
    pieces: Pieces<'a>,
    /// The prompt and what was generated.
    tokens: Vec<u32>,
    kept: Option<&'a Mutex<PromptCache>>,
    checkpoints: Vec<Mark>,
    statistics: Statistics,
    clock: Clock,
    device: Device,
    failed: bool,
}

enum Steps {
    Plain(Box<TokenSteps>),
    Speculative(Box<SpeculativeSteps>),
}

impl Generation<'_> {
    /// Counts and times so far.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.statistics.clone();
        self.clock.write(&mut statistics, &self.device);
        statistics
    }

    /// The prompt's tokens and all that were generated.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// All text that is left to come.
    pub fn text(&mut self) -> Result<String> {
        self.map(|piece| Ok(piece?.text)).collect()
    }

    fn advance(&mut self) -> Result<Piece> {
        let left = self.pieces.left();
        let (token, from_draft): (Token, bool) = match &mut self.steps {
            Steps::Plain(steps) => (steps.next(left == 1)?, false),
            Steps::Speculative(steps) => steps.next(left)?,
        };
        self.clock.token();
        self.tokens.push(token.token);
        self.statistics.generation_tokens += 1;
        self.statistics.draft_tokens += usize::from(from_draft);
        self.pieces.push(token, from_draft)
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        if self.failed || self.pieces.finished() {
            return None;
        }
        let piece = self.advance();
        self.failed = piece.is_err();
        Some(piece)
    }
}

impl Drop for Generation<'_> {
    /// What was computed stays in the prompt cache.
    fn drop(&mut self) {
        if self.failed || self.kept.is_none() {
            return;
        }
        let session = self.steps.session();
        let mut tokens = std::mem::take(&mut self.tokens);
        tokens.extend(self.steps.unread());
        if let Some(seen) = tokens.get(..session.cache().length()) {
            // A failure here costs only the reuse.
            let _ = keep(session, seen, std::mem::take(&mut self.checkpoints), self.kept);
        }
    }
}

impl Steps {
    fn session(&self) -> &Session {
        match self {
            Steps::Plain(steps) => steps.session(),
            Steps::Speculative(steps) => steps.session(),
        }
    }

    /// Tokens that are computed and were not asked for.
    fn unread(&self) -> Vec<u32> {
        match self {
            Steps::Plain(_) => Vec::new(),
            Steps::Speculative(steps) => steps.unread().collect(),
        }
    }
}
