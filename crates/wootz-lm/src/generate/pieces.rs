//! Pieces of text from tokens: whole characters, the ends of a text, stop texts.

use serde::Serialize;

use super::options::GenerateOptions;
use super::sampler::Token;
use super::stop::StopTexts;
use crate::error::Result;
use crate::tokenizer::{Detokenizer, Tokenizer};

/// A token and the text that became certain with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Piece {
    /// The token.
    pub token: u32,
    /// Text that no later token changes. It may be empty: a character can take several tokens, and
    /// what may begin a stop text is held back.
    pub text: String,
    /// The token's log-probability, if [`GenerateOptions::logprobs`] asks for some.
    pub logprob: Option<f32>,
    /// The most probable tokens and their log-probabilities, best first.
    pub top_logprobs: Vec<(u32, f32)>,
    /// Whether a draft model had proposed the token.
    pub from_draft: bool,
    /// Why this is the last piece, if it is.
    pub finish_reason: Option<FinishReason>,
}

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended its text with this token.
    EndToken(u32),
    /// This stop text appeared.
    StopText(String),
    /// As many tokens as were asked for, or as the model's context holds.
    Length,
}

impl FinishReason {
    /// As mlx-lm and OpenAI's interface name it: `stop` or `length`.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::EndToken(_) | FinishReason::StopText(_) => "stop",
            FinishReason::Length => "length",
        }
    }
}

/// Makes pieces of one sequence of tokens.
pub(crate) struct Pieces<'a> {
    /// None after the end.
    detokenizer: Option<Detokenizer<'a>>,
    stops: StopTexts,
    ends: Vec<u32>,
    /// Tokens that may still come.
    left: usize,
    finished: bool,
}

impl<'a> Pieces<'a> {
    /// For at most `most` tokens.
    pub(crate) fn new(
        tokenizer: &'a Tokenizer,
        options: &GenerateOptions,
        most: usize,
    ) -> Pieces<'a> {
        let mut ends = options.stop_tokens.clone();
        if !options.ignore_eos {
            ends.extend_from_slice(tokenizer.eos());
        }
        let stops = StopTexts::new(&options.stop);
        let detokenizer = Some(tokenizer.detokenizer());
        Pieces { detokenizer, stops, ends, left: most, finished: false }
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    pub(crate) fn finished(&self) -> bool {
        self.finished || self.left == 0
    }

    /// The piece of the next token.
    pub(crate) fn push(&mut self, token: Token, from_draft: bool) -> Result<Piece> {
        let Token { token, logprob, top_logprobs } = token;
        self.left = self.left.saturating_sub(1);
        let (text, finish_reason) = self.text_of(token)?;
        self.finished = finish_reason.is_some();
        Ok(Piece { token, text, logprob, top_logprobs, from_draft, finish_reason })
    }

    fn text_of(&mut self, token: u32) -> Result<(String, Option<FinishReason>)> {
        let ended = self.ends.contains(&token);
        let new = match &mut self.detokenizer {
            Some(detokenizer) if !ended => detokenizer.push(token)?,
            _ => None,
        };
        let passed = self.stops.push(new.as_deref().unwrap_or_default());
        if let Some(stop) = passed.stopped_by {
            return Ok((passed.text, Some(FinishReason::StopText(stop))));
        }
        if !ended && self.left > 0 {
            return Ok((passed.text, None));
        }
        // What was held back comes out, and may complete a stop text at last.
        let rest = self.detokenizer.take().map(Detokenizer::finish).transpose()?;
        let rest = self.stops.push(&rest.unwrap_or_default());
        let mut text = passed.text + &rest.text;
        let reason = match rest.stopped_by {
            Some(stop) => FinishReason::StopText(stop),
            None => {
                text += &self.stops.finish();
                if ended { FinishReason::EndToken(token) } else { FinishReason::Length }
            }
        };
        Ok((text, Some(reason)))
    }
}
