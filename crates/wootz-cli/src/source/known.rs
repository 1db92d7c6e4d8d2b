//! Short names of models, and the repositories they stand for.

/// A model with a short name.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// As the model's configuration has it.
    pub(crate) architecture: &'static str,
    pub(crate) repository: &'static str,
    /// The file of a repository of GGUF files.
    pub(crate) file: Option<&'static str>,
    /// Parameters, and bits of most weights.
    pub(crate) size: &'static str,
}

/// The model that is used when none is given.
pub(crate) const DEFAULT: &str = "smollm2-135m";

const fn row(
    name: &'static str,
    architecture: &'static str,
    size: &'static str,
    repository: &'static str,
) -> Known {
    Known { name, architecture, repository, file: None, size }
}

/// Every short name, by architecture.
#[rustfmt::skip]
pub(crate) const KNOWN: &[Known] = &[
    row("smollm2-135m",     "llama",      "135M, bf16",       "HuggingFaceTB/SmolLM2-135M-Instruct"),
    row("smollm2-360m",     "llama",      "360M, bf16",       "HuggingFaceTB/SmolLM2-360M-Instruct"),
    row("llama3.2-1b",      "llama",      "1.2B, 4 bits",     "mlx-community/Llama-3.2-1B-Instruct-4bit"),
    row("llama3.2-3b",      "llama",      "3.2B, 4 bits",     "mlx-community/Llama-3.2-3B-Instruct-4bit"),
    row("llama3.1-8b",      "llama",      "8B, 4 bits",       "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit"),
    row("mistral-7b",       "mistral",    "7.2B, 4 bits",     "mlx-community/Mistral-7B-Instruct-v0.3-4bit"),
    row("qwen2.5-0.5b",     "qwen2",      "0.5B, 4 bits",     "mlx-community/Qwen2.5-0.5B-Instruct-4bit"),
    row("qwen2.5-7b",       "qwen2",      "7.6B, 4 bits",     "mlx-community/Qwen2.5-7B-Instruct-4bit"),
    row("qwen3-0.6b",       "qwen3",      "0.6B, 4 bits",     "mlx-community/Qwen3-0.6B-4bit"),
    row("qwen3-4b",         "qwen3",      "4B, 4 bits",       "mlx-community/Qwen3-4B-Instruct-2507-4bit"),
    row("qwen3-30b-a3b",    "qwen3_moe",  "30B, 4 bits",      "mlx-community/Qwen3-30B-A3B-4bit"),
    row("qwen3-next-80b",   "qwen3_next", "80B, 4 bits",      "mlx-community/Qwen3-Next-80B-A3B-Instruct-4bit"),
    row("qwen3.5-0.8b",     "qwen3_5",    "0.8B, 4 bits",     "mlx-community/Qwen3.5-0.8B-MLX-4bit"),
    row("qwen3.5-35b-a3b",  "qwen3_5_moe","35B, 4 bits",      "mlx-community/Qwen3.5-35B-A3B-4bit"),
    row("gemma2-2b",        "gemma2",     "2.6B, 4 bits",     "mlx-community/gemma-2-2b-it-4bit"),
    row("gemma3-1b",        "gemma3_text","1B, 4 bits",       "mlx-community/gemma-3-1b-it-4bit"),
    row("gemma3-4b",        "gemma3",     "4.3B, 4 bits",     "mlx-community/gemma-3-4b-it-4bit"),
    row("phi3-mini",        "phi3",       "3.8B, 4 bits",     "mlx-community/Phi-3-mini-4k-instruct-4bit"),
    row("gpt-oss-20b",      "gpt_oss",    "21B, mxfp4",       "mlx-community/gpt-oss-20b-MXFP4-Q8"),
    row("mixtral-8x7b",     "mixtral",    "47B, 4 bits",      "mlx-community/Mixtral-8x7B-Instruct-v0.1-4bit"),
    row("olmo2-7b",         "olmo2",      "7.3B, 4 bits",     "mlx-community/OLMo-2-1124-7B-Instruct-4bit"),
    row("smollm3-3b",       "smollm3",    "3.1B, 4 bits",     "mlx-community/SmolLM3-3B-4bit"),
    row("granite3.3-2b",    "granite",    "2.5B, 4 bits",     "mlx-community/granite-3.3-2b-instruct-4bit"),
];

/// The model of a short name.
pub(crate) fn find(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

/// Short names that are like a word, the closest first.
pub(crate) fn near(word: &str) -> Vec<&'static str> {
    let word = word.to_lowercase();
    let likeness = |known: &'static Known| (strsim::jaro_winkler(&word, known.name), known.name);
    let mut near: Vec<(f64, &str)> = KNOWN.iter().map(likeness).collect();
    near.retain(|(likeness, _)| *likeness > 0.85);
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_a_short_name_and_no_name_is_there_twice() {
        for architecture in wootz_lm::models::architectures() {
            assert!(KNOWN.iter().any(|known| known.architecture == architecture), "{architecture}");
        }
        let names: std::collections::BTreeSet<_> = KNOWN.iter().map(|known| known.name).collect();
        assert_eq!(names.len(), KNOWN.len());
        assert!(find(DEFAULT).is_some());
    }

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        assert_eq!(near("qwen3-0.6")[0], "qwen3-0.6b");
        assert_eq!(near("smolm2-135m")[0], "smollm2-135m");
        assert!(near("xyz").is_empty());
    }
}
