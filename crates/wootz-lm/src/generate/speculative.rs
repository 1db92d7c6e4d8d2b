//! Speculative decoding: a small model proposes a few tokens, and the large one looks at all of them
//! at once. As in mlx-lm, a proposal is accepted if it is the token that the large model's own sampler
//! draws there, so the tokens are those of the large model alone. They are so for any temperature:
//! each place has its own random key, whoever draws. The small model draws with the same keys, which
//! makes agreement likelier.
//!
//! Models of one tokenizer may have vocabularies that are padded to different sizes: the small model's scores are
//! brought to the large one's width, and tokens that it has no row for are another to it.
//!
//! What was rejected is cut from the caches. Where a cache cannot be cut, it goes back to how it was
//! before the proposals, and the accepted tokens are read again.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use wootz::{Array, Ellipsis, PadMode, concatenate, pad};

use super::sampler::{SamplerState, Token, TokenSampler};
use super::session::Session;
use crate::cache::Mark;
use crate::error::{Error, Result};

/// A large and a small session in step.
pub(crate) struct SpeculativeSteps {
    target: Reader,
    draft: Drafter,
    sampler: Arc<TokenSampler>,
    /// Before the draw of the token that comes next.
    state: SamplerState,
    /// The last token, which has not been through the target.
    last: u32,
    /// Those at the end that have not been through the draft.
    pending: Vec<u32>,
    proposals: usize,
    ready: VecDeque<(Token, bool)>,
}

/// The small model, whose scores are to be as wide as the large one's.
struct Drafter {
    reader: Reader,
    width: usize,
}

/// A session whose last tokens can be taken back.
struct Reader(Session);

impl SpeculativeSteps {
    /// Goes on from the logits after the prompt, which both sessions have seen.
    pub(crate) fn new(
        target: Session,
        draft: Session,
        sampler: Arc<TokenSampler>,
        state: SamplerState,
        logits: &Array,
        proposals: usize,
    ) -> Result<SpeculativeSteps> {
        let (draw, state) = sampler.draw(logits, &state)?;
        let first = draw.read()?;
        Ok(SpeculativeSteps {
            draft: Drafter { width: target.model().info().vocab_size, reader: Reader(draft) },
            target: Reader(target),
            sampler,
            state,
            last: first.token,
            pending: vec![first.token],
            proposals,
            ready: VecDeque::from([(first, false)]),
        })
    }

    /// The next token, and whether the draft model had proposed it. `left` is how many will be asked
    /// for, this one included.
    pub(crate) fn next(&mut self, left: usize) -> Result<(Token, bool)> {
        if self.ready.is_empty() {
            self.round(self.proposals.min(left.saturating_sub(1)))?;
        }
        self.ready.pop_front().ok_or_else(|| Error::argument("generation", "a token", "none"))
    }

    /// Proposes `count` tokens, looks at them, and makes the accepted and one more ready.
    fn round(&mut self, count: usize) -> Result<()> {
        // Where rotation follows the length of the text, proposals that are read together would be rotated otherwise than
        // one after the other.
        let seen = self.target.0.cache().length() + 1;
        let dynamic_from = self.target.0.model().info().dynamic_from;
        let count = dynamic_from.map_or(count, |from| count.min(from.saturating_sub(seen)));
        let count = count.min(self.target.0.cache().alike_together().saturating_sub(1));
        // Marks reach as far as the caches may go before something is taken back.
        let draft_before = self.draft.reader.0.cache().mark(self.pending.len() + count);
        let proposed = self.propose(count)?;
        let target_before = self.target.0.cache().mark(1 + count);
        let logits = self.target.0.logits_of(&[&[self.last], &proposed[..]].concat())?;
        let mut state = self.state.clone();
        let mut draws = Vec::with_capacity(count + 1);
        for row in 0..=count as i64 {
            let scores = logits.index(row..row + 1)?;
            let (draw, next) = self.sampler.draw(&scores, &state)?;
            state = next.clone();
            draws.push((draw, next));
        }
        for (accepted, (draw, state)) in draws.into_iter().enumerate() {
            let token = draw.read()?;
            let number = token.token;
            let agreed = proposed.get(accepted) == Some(&number);
            self.ready.push_back((token, agreed));
            if !agreed {
                self.state = state;
                return self.settle(accepted, &proposed, number, [target_before, draft_before]);
            }
        }
        Ok(())
    }

    /// Tokens that the draft model draws, with the keys and penalties that the target will use.
    fn propose(&mut self, count: usize) -> Result<Vec<u32>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut logits = self.draft.read(&self.pending)?;
        let mut state = self.state.clone();
        let mut drawn: Vec<Array> = Vec::with_capacity(count);
        loop {
            let (draw, next) = self.sampler.draw(&logits, &state)?;
            state = next;
            drawn.push(draw.token);
            match drawn.last() {
                Some(token) if drawn.len() < count => logits = self.draft.decode(token)?,
                _ => break,
            }
        }
        // Read together: the host waits once.
        Ok(concatenate(&drawn, 0)?.to_vec::<u32>()?)
    }

    /// Brings both caches to the tokens that are certain: the first `accepted` proposals.
    fn settle(
        &mut self,
        accepted: usize,
        proposed: &[u32],
        next: u32,
        before: [Mark; 2],
    ) -> Result<()> {
        let [target_before, draft_before] = before;
        let certain = |begin: &[u32], count: usize| [begin, &proposed[..count]].concat();
        let replay = certain(&[self.last], accepted);
        self.target.take_back(proposed.len() - accepted, &target_before, &replay)?;
        self.last = next;
        // The draft model has not read its own last proposal.
        let read = accepted.min(proposed.len().saturating_sub(1));
        if !proposed.is_empty() {
            let replay = self.draft.known(&certain(&self.pending, read));
            self.draft.reader.take_back(proposed.len() - 1 - read, &draft_before, &replay)?;
            self.pending = proposed[read..accepted].to_vec();
        }
        self.pending.push(next);
        Ok(())
    }

    pub(crate) fn session(&self) -> &Session {
        &self.target.0
    }

    /// Tokens that are ready and were not asked for.
    pub(crate) fn unread(&self) -> impl Iterator<Item = u32> + '_ {
        self.ready.iter().map(|(token, _)| token.token)
    }
}

/// The tokens of a text as a model sees them whose vocabulary may be shorter: what it has no row for is its last token.
pub(crate) fn within(tokens: &[u32], vocabulary: usize) -> Vec<u32> {
    let last = vocabulary.saturating_sub(1) as u32;
    tokens.iter().map(|&token| token.min(last)).collect()
}

impl Drafter {
    fn known(&self, tokens: &[u32]) -> Vec<u32> {
        within(tokens, self.reader.0.model().info().vocab_size)
    }

    /// Logits `[1, width]` after these tokens.
    fn read(&mut self, tokens: &[u32]) -> Result<Array> {
        let logits = self.reader.read(&self.known(tokens))?;
        Ok(as_wide_as(self.width, logits)?)
    }

    /// The same after a token that was drawn from such logits.
    fn decode(&mut self, token: &Array) -> Result<Array> {
        Ok(as_wide_as(self.width, self.reader.0.decode(token)?)?)
    }
}

/// Scores without those of padding beyond a vocabulary, or with such that are never drawn.
fn as_wide_as(width: usize, scores: Array) -> wootz::Result<Array> {
    let own = scores.shape().last().copied().unwrap_or(0);
    match own.cmp(&width) {
        Ordering::Equal => Ok(scores),
        Ordering::Greater => scores.index((Ellipsis, ..width as i64)),
        Ordering::Less => {
            pad(&scores, [(0, 0), (0, width - own)], PadMode::Constant, f64::NEG_INFINITY)
        }
    }
}

impl Reader {
    /// Logits `[1, vocabulary]` after these tokens.
    fn read(&mut self, tokens: &[u32]) -> Result<Array> {
        match tokens {
            [token] => {
                let device = self.0.model().info().device.clone();
                self.0.decode(&Array::from_slice_on(&[*token], &[1, 1], &device)?)
            }
            _ => self.0.prefill(tokens, tokens.len(), &mut |_, _| {}),
        }
    }

    /// Forgets the last `count` tokens: by cutting the cache, or from how it was `before` by reading
    /// `replay` again.
    fn take_back(&mut self, count: usize, before: &Mark, replay: &[u32]) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        if self.0.cache().can_trim(count) {
            return self.0.trim(count);
        }
        let mut cache = self.0.cache().clone();
        cache.back_to(before)?;
        self.0.set_cache(cache)?;
        self.read(replay)?;
        Ok(())
    }
}
