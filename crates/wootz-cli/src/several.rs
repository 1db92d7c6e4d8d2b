//! Several prompts of `wootz generate` at once: their answers come in the order of the prompts.

use std::io::{self, Write};

use serde_json::{Value, json};
use wootz_lm::generate::{FinishReason, GenerateOptions, Piece};

use crate::common::Common;
use crate::generate::{logprobs_json, statistics_json};
use crate::session::{Opened, setting, setting_json};

/// How answers are printed.
pub(crate) struct How {
    /// The model's name, as it was given.
    pub(crate) name: String,
    /// As one line of JSON for each.
    pub(crate) json: bool,
    /// With the log-probabilities of tokens, and of so many of the likeliest.
    pub(crate) logprobs: Option<usize>,
}

/// What came of a prompt.
#[derive(Default)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    pieces: Vec<Value>,
    finish: Option<FinishReason>,
}

impl Answer {
    fn push(&mut self, piece: Piece, how: &How) {
        self.text.push_str(&piece.text);
        self.tokens.push(piece.token);
        if let Some(listed) = how.logprobs {
            self.pieces.push(logprobs_json(&piece, listed));
        }
        self.finish = piece.finish_reason.or(self.finish.take());
    }
}

/// Answers all, and prints what came when the last has ended.
pub(crate) fn answer(
    Opened { model, path, device }: &Opened,
    prompts: &[String],
    tokens: &[Vec<u32>],
    settings: &GenerateOptions,
    how: &How,
    common: &Common,
) -> anyhow::Result<()> {
    common.detail(setting(device, common));
    let mut answers: Vec<Answer> = prompts.iter().map(|_| Answer::default()).collect();
    let mut generation = model.generate_batch(tokens, settings)?;
    for piece in &mut generation {
        let (index, piece) = piece?;
        if let Some(answer) = answers.get_mut(index) {
            answer.push(piece, how);
        }
    }
    let statistics = generation.statistics();
    let mut out = io::stdout().lock();
    for (index, (prompt, answer)) in prompts.iter().zip(&answers).enumerate() {
        if how.json {
            let mut object = json!({
                "model": how.name, "path": path, "index": index, "prompt": prompt, "text": answer.text,
                "tokens": answer.tokens, "finish_reason": answer.finish.as_ref().map(FinishReason::name),
                "setting": setting_json(device, common), "statistics": statistics_json(&statistics),
            });
            if how.logprobs.is_some() {
                object["logprobs"] = Value::Array(answer.pieces.clone());
            }
            writeln!(out, "{object}")?;
            continue;
        }
        match common.quiet {
            true if index == 0 => {}
            true => writeln!(out, "==========")?,
            false => writeln!(out, "========== {} of {}", index + 1, prompts.len())?,
        }
        writeln!(out, "{}", answer.text)?;
    }
    if !how.json && !common.quiet {
        writeln!(out, "==========\n{statistics}")?;
        writeln!(out, "Activations: {}", common.activations.name())?;
    }
    Ok(())
}
