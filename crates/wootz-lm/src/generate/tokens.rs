//! Tokens from a model, one after the other. On a GPU the next step is queued before the last token is
//! read, so that the device never waits for the host.

use std::sync::Arc;

use wootz::Array;

use super::sampler::{Draw, SamplerState, Token, TokenSampler};
use super::session::Session;
use crate::error::{Error, Result};

/// A session and a sampler that take turns.
pub(crate) struct TokenSteps {
    session: Session,
    sampler: Arc<TokenSampler>,
    state: SamplerState,
    /// None after a failure.
    next: Option<Next>,
    /// Whether the step after a token is queued before the token is read.
    ahead: bool,
}

/// What the next call begins with.
enum Next {
    /// A token that was drawn and not read.
    Read(Draw),
    /// A token that was read and is not in the cache.
    Feed(Array),
}

impl TokenSteps {
    /// Goes on from the logits after the prompt, which `session` has seen.
    pub(crate) fn new(
        mut session: Session,
        sampler: Arc<TokenSampler>,
        state: SamplerState,
        logits: &Array,
    ) -> Result<TokenSteps> {
        // A CPU computes a step when it is asked for it: before that, the token can be shown.
        let ahead = logits.device().is_gpu();
        let (draw, state) = sampler.draw(logits, &state)?;
        session.set_head(sampler.head());
        Ok(TokenSteps { session, sampler, state, next: Some(Next::Read(draw)), ahead })
    }

    /// The next token. `last` says that no further one will be asked for.
    pub(crate) fn next(&mut self, last: bool) -> Result<Token> {
        let draw = match self.next.take() {
            Some(Next::Read(draw)) => draw,
            Some(Next::Feed(token)) => self.step(&token)?,
            None => return Err(Error::argument("generation", "no failure before", "one")),
        };
        self.next = Some(match self.ahead && !last {
            true => Next::Read(self.step(&draw.token)?),
            false => Next::Feed(draw.token.clone()),
        });
        draw.read()
    }

    fn step(&mut self, token: &Array) -> Result<Draw> {
        let outputs = self.session.decode_with(token, &self.state.arrays)?;
        let (draw, state) = self.sampler.drawn(outputs)?;
        self.state = state;
        Ok(draw)
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }
}
