//! Options of llama.cpp and mlx-lm that have another name here, or none: what to give instead.

/// Their names, and what a user is told of them.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["-ngl", "--n-gpu-layers", "--gpu-layers"], "--device gpu computes all layers on a GPU"),
    (
        &["--ctx-size"],
        "-c N (--max-kv-size) limits what is remembered, --context N allows texts beyond the model's context",
    ),
    (&["-f", "--file"], "`wootz generate < FILE` reads a prompt, `wootz perplexity FILE` a text"),
    (&["--predict", "--n-predict"], "-n N (--max-tokens) limits the answer"),
    (&["-s"], "--seed N decides where random numbers start"),
    (&["--repeat-penalty"], "--repetition-penalty X is the same"),
    (&["--repeat-last-n"], "--repetition-context-size N is the same"),
    (
        &["-ctk", "-ctv", "--cache-type-k", "--cache-type-v"],
        "--kv-bits 8 quantizes keys and values",
    ),
    (&["-hf", "-hfr", "--hf-repo"], "-m org/name takes a Hugging Face repository"),
    (&["-cnv", "--conversation", "-i", "--interactive"], "`wootz chat` is a conversation"),
    (&["-no-cnv", "--no-conversation"], "--ignore-chat-template continues the prompt as it is"),
    (&["--trust-remote-code"], "leave it out: no code of a model is run"),
    (&["--use-default-chat-template"], "leave it out: a model's own template is used"),
    (&["--adapter-path"], "adapters are not supported: fuse them into the model before"),
];

/// What helps whoever has given one of them.
pub(crate) fn hint(arguments: impl IntoIterator<Item = String>) -> Option<String> {
    arguments.into_iter().skip(1).find_map(|given| {
        let name = given.split_once('=').map_or(given.as_str(), |(name, _)| name);
        let (_, instead) = FOREIGN.iter().find(|(names, _)| names.contains(&name))?;
        Some(format!("instead of {name}: {instead}"))
    })
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn options_of_others_are_explained() {
        let of = |words: &[&str]| hint(words.iter().map(|word| word.to_string()));
        let told = of(&["wootz", "generate", "-p", "x", "-ngl", "99"]).unwrap();
        assert!(told.starts_with("instead of -ngl: --device gpu"), "{told}");
        let told = of(&["wootz", "generate", "--ctx-size=512"]).unwrap();
        assert!(told.starts_with("instead of --ctx-size: -c N"), "{told}");
        assert_eq!(of(&["wootz", "generate", "--tempp", "1"]), None);
    }
}
