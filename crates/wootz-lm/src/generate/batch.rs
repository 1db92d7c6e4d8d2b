//! Several prompts at once: each is read by itself, then the caches of those that are kept alike are stacked, and every
//! step of the model serves all of a stack. Sequences have lengths of their own and end independently; one that has
//! ended leaves its stack.

use std::collections::{BTreeMap, VecDeque};

use wootz::{Array, Device, concatenate};

use super::options::GenerateOptions;
use super::pieces::{Piece, Pieces};
use super::prefill::prefill;
use super::sampler::{Draw, SamplerState, TokenSampler};
use super::session::Session;
use super::statistics::{Clock, Statistics};
use super::text_model::TextModel;
use crate::cache::Cache;
use crate::error::{Error, Result};

/// An iterator of pieces with the number of their prompt, as they come. Made by
/// [`TextModel::generate_batch`].
pub struct BatchGeneration<'a> {
    sampler: TokenSampler,
    /// Those in which a sequence has not ended.
    stacks: Vec<Stack<'a>>,
    ready: VecDeque<(usize, Piece)>,
    statistics: Statistics,
    clock: Clock,
    device: Device,
    failed: bool,
}

/// Sequences that go through the model together.
struct Stack<'a> {
    session: Session,
    /// Those that have not ended, in the order of the cache.
    rows: Vec<Row<'a>>,
    /// Whether what was drawn went through the model already.
    fed: bool,
}

/// One sequence.
struct Row<'a> {
    index: usize,
    pieces: Pieces<'a>,
    state: SamplerState,
    draw: Draw,
}

/// What sequences of one stack have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    /// Tokens until keys and values are quantized, if that will be: a cache is quantized as a whole.
    until_quantized: Option<usize>,
    /// Its own number, where positions are rotated as the length of each text says.
    alone: Option<usize>,
}

impl TextModel {
    /// Continues several prompts at once. With a seed, the prompt of number `i` draws as if it were alone
    /// with `seed + i`.
    pub fn generate_batch(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
    ) -> Result<BatchGeneration<'_>> {
        options.validate()?;
        if prompts.is_empty() {
            return Err(Error::argument("prompts", "at least one", 0));
        }
        let clock = Clock::start();
        let device = self.model.info().device.clone();
        let sampler = self.sampler(options)?;
        let mut session = self.session(options)?;
        let empty = session.cache().clone();
        let mut stacks: BTreeMap<Alike, (Vec<Row<'_>>, Vec<Cache>)> = BTreeMap::new();
        let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
        for (index, prompt) in prompts.iter().enumerate() {
            session.set_cache(empty.clone())?;
            let read = prefill(&mut session, prompt, options, None, go_on)?;
            let seed = options.seed.map(|seed| seed.wrapping_add(index as u64));
            let (draw, state) = sampler.draw(&read.logits, &sampler.start(prompt, seed)?)?;
            let most = self.most_tokens(prompt, options);
            let pieces = Pieces::new(&self.tokenizer, options, most);
            let alike = Alike {
                until_quantized: options.until_quantized(prompt.len(), most),
                alone: self.model.info().dynamic_from.map(|_| index),
            };
            let (rows, caches) = stacks.entry(alike).or_default();
            rows.push(Row { index, pieces, state, draw });
            caches.push(session.cache().clone());
        }
        let stack = |(rows, caches): (Vec<_>, Vec<Cache>)| {
            let mut session = self.session(options)?;
            session.set_cache(Cache::stack(&caches)?)?;
            Ok(Stack { session, rows, fed: true })
        };
        let prompt_tokens = prompts.iter().map(Vec::len).sum();
        Ok(BatchGeneration {
            sampler,
            stacks: stacks.into_values().map(stack).collect::<Result<_>>()?,
            ready: VecDeque::new(),
            statistics: Statistics { prompt_tokens, ..Statistics::default() },
            clock,
            device,
            failed: false,
        })
    }
}

impl BatchGeneration<'_> {
    /// Counts and times so far, of all prompts together.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = self.statistics.clone();
        self.clock.write(&mut statistics, &self.device);
        statistics
    }

    /// The text that is left to come of each of `prompts` prompts.
    pub fn texts(&mut self, prompts: usize) -> Result<Vec<String>> {
        let mut texts = vec![String::new(); prompts];
        for piece in self {
            let (index, piece) = piece?;
            if let Some(text) = texts.get_mut(index) {
                text.push_str(&piece.text);
            }
        }
        Ok(texts)
    }

    /// Makes a piece of every sequence ready.
    fn advance(&mut self) -> Result<()> {
        for stack in &mut self.stacks {
            let pieces = stack.advance(&self.sampler, &self.device)?;
            self.statistics.generation_tokens += pieces.len();
            self.ready.extend(pieces);
            self.clock.token();
        }
        self.stacks.retain(|stack| !stack.rows.is_empty());
        Ok(())
    }
}

impl Stack<'_> {
    /// A piece of every sequence.
    fn advance(&mut self, sampler: &TokenSampler, device: &Device) -> Result<Vec<(usize, Piece)>> {
        if !self.fed {
            self.step(sampler)?;
        }
        let drawn: Vec<Draw> = self.rows.iter().map(|row| row.draw.clone()).collect();
        match device.is_gpu() && self.rows.iter().any(Row::goes_on) {
            // Queued before the tokens are read; sequences that turn out to have ended are dropped.
            true => self.step(sampler)?,
            false => self.fed = false,
        }
        let mut pieces = Vec::with_capacity(drawn.len());
        for (row, draw) in self.rows.iter_mut().zip(&drawn) {
            pieces.push((row.index, row.pieces.push(draw.read()?, false)?));
        }
        self.drop_ended()?;
        Ok(pieces)
    }

    /// The tokens drawn last go through the model, and the next are drawn.
    fn step(&mut self, sampler: &TokenSampler) -> Result<()> {
        let tokens: Vec<&Array> = self.rows.iter().map(|row| &row.draw.token).collect();
        let logits = self.session.decode(&concatenate(&tokens, 0)?)?;
        for (place, row) in self.rows.iter_mut().enumerate() {
            let place = place as i64;
            let own = logits.index(place..place + 1)?;
            (row.draw, row.state) = sampler.draw(&own, &row.state)?;
        }
        self.fed = true;
        Ok(())
    }

    fn drop_ended(&mut self) -> Result<()> {
        let running = |(place, row): (usize, &Row<'_>)| (!row.pieces.finished()).then_some(place);
        let running: Vec<usize> = self.rows.iter().enumerate().filter_map(running).collect();
        if running.len() < self.rows.len() && !running.is_empty() {
            self.session.set_cache(self.session.cache().select(&running)?)?;
        }
        self.rows.retain(|row| !row.pieces.finished());
        Ok(())
    }
}

impl Row<'_> {
    /// Whether more than one token may still come.
    fn goes_on(&self) -> bool {
        self.pieces.left() > 1
    }
}

impl Iterator for BatchGeneration<'_> {
    type Item = Result<(usize, Piece)>;

    fn next(&mut self) -> Option<Result<(usize, Piece)>> {
        if self.failed {
            return None;
        }
        if self.ready.is_empty()
            && !self.stacks.is_empty()
            && let Err(error) = self.advance()
        {
            self.failed = true;
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}
