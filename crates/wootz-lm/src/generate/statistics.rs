//! What a generation took: tokens, times, memory.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use wootz::Device;

/// Counts and times of a generation. [`Display`](fmt::Display) prints mlx-lm's three lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were in a cache already.
    pub cached_tokens: usize,
    /// Tokens generated, the one that ended the text included.
    pub generation_tokens: usize,
    /// How many of them a draft model had proposed.
    pub draft_tokens: usize,
    /// Seconds from the start to the first token: reading the prompt.
    pub time_to_first_token: f64,
    /// Seconds from the first token to the last so far.
    pub generation_time: f64,
    /// The most bytes that arrays held on the model's device since the program began, and those of weights that
    /// are read where they lie in a mapped file: as mlx-lm counts, where weights are arrays like others.
    pub peak_memory: u64,
}

impl Statistics {
    /// Tokens of the prompt that were computed, in a second.
    pub fn prompt_tokens_per_second(&self) -> f64 {
        let computed = self.prompt_tokens.saturating_sub(self.cached_tokens);
        rate(computed as f64, self.time_to_first_token)
    }

    /// Tokens generated in a second. The first comes with the prompt and is not counted.
    pub fn generation_tokens_per_second(&self) -> f64 {
        rate(self.generation_tokens.saturating_sub(1) as f64, self.generation_time)
    }

    /// Tokens generated in a second of the whole time, that of the prompt included.
    pub fn effective_tokens_per_second(&self) -> f64 {
        rate(self.generation_tokens as f64, self.time_to_first_token + self.generation_time)
    }
}

fn rate(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prompt, generated) = (self.prompt_tokens, self.generation_tokens);
        let (prompt_rate, rate) =
            (self.prompt_tokens_per_second(), self.generation_tokens_per_second());
        writeln!(f, "Prompt: {prompt} tokens, {prompt_rate:.3} tokens-per-sec")?;
        writeln!(f, "Generation: {generated} tokens, {rate:.3} tokens-per-sec")?;
        write!(f, "Peak memory: {:.3} GB", self.peak_memory as f64 / 1e9)
    }
}

/// The most bytes that arrays held on a device, with what they read of mapped files.
pub fn peak_memory(device: &Device) -> u64 {
    let memory = device.memory();
    memory.peak + memory.mapped
}

/// Takes the times of a generation.
pub(crate) struct Clock {
    started: Instant,
    first: Option<Duration>,
    last: Duration,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { started: Instant::now(), first: None, last: Duration::ZERO }
    }

    /// A token is there.
    pub(crate) fn token(&mut self) {
        self.last = self.started.elapsed();
        self.first.get_or_insert(self.last);
    }

    pub(crate) fn write(&self, statistics: &mut Statistics, device: &Device) {
        let first = self.first.unwrap_or_default();
        statistics.time_to_first_token = first.as_secs_f64();
        statistics.generation_time = self.last.saturating_sub(first).as_secs_f64();
        statistics.peak_memory = peak_memory(device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_lines_are_those_of_mlx_lm() {
        let statistics = Statistics {
            prompt_tokens: 120,
            cached_tokens: 20,
            generation_tokens: 51,
            time_to_first_token: 0.5,
            generation_time: 2.0,
            peak_memory: 1_234_567_890,
            ..Statistics::default()
        };
        let expected = "Prompt: 120 tokens, 200.000 tokens-per-sec\n\
                        Generation: 51 tokens, 25.000 tokens-per-sec\n\
                        Peak memory: 1.235 GB";
        assert_eq!(statistics.to_string(), expected);
        assert_eq!(statistics.effective_tokens_per_second(), 51.0 / 2.5);
        assert_eq!(Statistics::default().generation_tokens_per_second(), 0.0);
    }
}
