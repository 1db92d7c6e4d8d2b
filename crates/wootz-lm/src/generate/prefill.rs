//! A prompt through the model: what a prompt cache has is not computed again, the rest goes in chunks.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wootz::Array;

use super::options::GenerateOptions;
use super::prompt_cache::{Kept, PromptCache};
use super::session::Session;
use crate::cache::Mark;
use crate::error::{Error, Result};

/// Hears how many tokens of a prompt are done, and how many there are. It may end the work.
pub type Progress<'a> = dyn FnMut(usize, usize) -> ControlFlow<()> + 'a;

/// What is left when a prompt was read.
pub(crate) struct Prefilled {
    /// Logits `[1, vocabulary]` after the last token.
    pub logits: Array,
    /// Tokens that did not have to be computed.
    pub cached: usize,
    /// How the cache was on the way, if it cannot always be cut.
    pub checkpoints: Vec<Mark>,
}

/// Reads `prompt` into a session that has seen nothing.
pub(crate) fn prefill(
    session: &mut Session,
    prompt: &[u32],
    options: &GenerateOptions,
    kept: Option<&Mutex<PromptCache>>,
    progress: &mut Progress<'_>,
) -> Result<Prefilled> {
    if prompt.is_empty() {
        return Err(Error::argument("prompt", "at least one token", "none"));
    }
    let model = session.model().clone();
    let info = model.info();
    if let Some(context) = options.context_of(info)
        && prompt.len() > context
    {
        let whose = match options.context_length {
            Some(_) => "as context_length says",
            None => "the model's context (context_length may allow more)",
        };
        let expected = format!("at most {context} tokens, {whose}");
        return Err(Error::argument("prompt", expected, prompt.len()));
    }
    let (step, vocabulary) = (options.prefill_step_of(info), info.vocab_size);
    if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocabulary) {
        return Err(Error::argument("prompt", format!("tokens below {vocabulary}"), token));
    }
    let (mut done, mut checkpoints) = (0, Vec::new());
    if let Some(kept) = kept
        && let Some(found) = lock(kept).take_like(prompt, Some(session.cache()))?
    {
        session.set_cache(found.cache)?;
        (done, checkpoints) = (found.tokens.len(), found.checkpoints);
    }
    let cached = done;
    let mut logits = None;
    while done < prompt.len() {
        if progress(done, prompt.len()).is_break() {
            keep(session, &prompt[..done], checkpoints, kept)?;
            return Err(Error::Interrupted { done, total: prompt.len() });
        }
        // The same prompt again goes on from before its last token, whose logits it wants. With or without a cache to
        // keep: where chunks decide about results, mlx-lm reads the last token by itself.
        let uncut = !session.cache().can_always_trim();
        let mut end = prompt.len().min(done + step);
        if (uncut || options.chunks_matter(info)) && end == prompt.len() && done + 1 < end {
            end -= 1;
        }
        logits = Some(session.prefill(&prompt[done..end], step, &mut |_, _| {})?);
        done = end;
        if uncut && kept.is_some() && done < prompt.len() {
            checkpoints.push(session.cache().mark(usize::MAX));
        }
    }
    // Whether to go on is asked before each token from here on.
    let _ = progress(prompt.len(), prompt.len());
    let logits = logits.ok_or_else(|| Error::argument("prompt", "at least one token", "none"))?;
    Ok(Prefilled { logits, cached, checkpoints })
}

/// Gives what a session has seen to the prompt cache.
pub(crate) fn keep(
    session: &Session,
    tokens: &[u32],
    checkpoints: Vec<Mark>,
    kept: Option<&Mutex<PromptCache>>,
) -> Result<()> {
    let Some(kept) = kept else { return Ok(()) };
    let (tokens, cache) = (tokens.to_vec(), session.cache().clone());
    lock(kept).insert(Kept { tokens, cache, checkpoints })
}

fn lock(kept: &Mutex<PromptCache>) -> MutexGuard<'_, PromptCache> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
