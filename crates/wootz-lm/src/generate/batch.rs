//! Several prompts at once: each is read by itself, then their caches are stacked and every step of the
//! model serves all of them. Sequences have lengths of their own and end independently; one that has
//! ended leaves the stack.

use std::collections::VecDeque;

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
    session: Session,
    sampler: TokenSampler,
    /// Those that have not ended, in the order of the cache.
    rows: Vec<Row<'a>>,
    /// Whether what was drawn went through the model already.
    fed: bool,
    ready: VecDeque<(usize, Piece)>,
    statistics: Statistics,
    clock: Clock,
    device: Device,
    failed: bool,
}

/// One sequence.
struct Row<'a> {
    index: usize,
    pieces: Pieces<'a>,
    state: SamplerState,
    draw: Draw,
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
        if let (Some(from), 2..) = (self.model.info().dynamic_from, prompts.len()) {
            let expected = format!(
                "one at a time: beyond {from} tokens positions are rotated as the length of each text says"
            );
            return Err(Error::argument("prompts", expected, prompts.len()));
        }
        let clock = Clock::start();
        let device = self.model.info().device.clone();
        let sampler = self.sampler(options)?;
        let mut session = self.session(options)?;
        let empty = session.cache().clone();
        let mut rows = Vec::with_capacity(prompts.len());
        let mut caches = Vec::with_capacity(prompts.len());
        let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
        for (index, prompt) in prompts.iter().enumerate() {
            session.set_cache(empty.clone())?;
            let read = prefill(&mut session, prompt, options, None, go_on)?;
            let seed = options.seed.map(|seed| seed.wrapping_add(index as u64));
            let (draw, state) = sampler.draw(&read.logits, &sampler.start(prompt, seed)?)?;
            let pieces = Pieces::new(&self.tokenizer, options, self.most_tokens(prompt, options));
            rows.push(Row { index, pieces, state, draw });
            caches.push(session.cache().clone());
        }
        session.set_cache(Cache::stack(&caches)?)?;
        let prompt_tokens = prompts.iter().map(Vec::len).sum();
        Ok(BatchGeneration {
            session,
            sampler,
            rows,
            fed: true,
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
        if !self.fed {
            self.step()?;
        }
        let drawn: Vec<Draw> = match self.device.is_gpu() && self.rows.iter().any(Row::goes_on) {
            // Queued before the tokens are read; sequences that turn out to have ended are dropped.
            true => {
                let drawn = self.rows.iter().map(|row| row.draw.clone()).collect();
                self.step()?;
                drawn
            }
            false => {
                self.fed = false;
                self.rows.iter().map(|row| row.draw.clone()).collect()
            }
        };
        for (row, draw) in self.rows.iter_mut().zip(&drawn) {
            let piece = row.pieces.push(draw.read()?, false)?;
            self.ready.push_back((row.index, piece));
        }
        self.clock.token();
        self.statistics.generation_tokens += drawn.len();
        self.drop_ended()
    }

    /// The tokens drawn last go through the model, and the next are drawn.
    fn step(&mut self) -> Result<()> {
        let tokens: Vec<&Array> = self.rows.iter().map(|row| &row.draw.token).collect();
        let logits = self.session.decode(&concatenate(&tokens, 0)?)?;
        for (place, row) in self.rows.iter_mut().enumerate() {
            let place = place as i64;
            let own = logits.index(place..place + 1)?;
            (row.draw, row.state) = self.sampler.draw(&own, &row.state)?;
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
            && !self.rows.is_empty()
            && let Err(error) = self.advance()
        {
            self.failed = true;
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}
