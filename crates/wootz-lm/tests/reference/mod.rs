//! Compares tokenizers and chat templates with what others recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value};
use wootz_lm::tokenizer::{ChatOptions, Tokenizer};

/// What was compared, and what differed.
#[derive(Debug)]
pub struct Outcome {
    /// The file.
    pub name: String,
    /// How many texts or conversations.
    pub compared: usize,
    /// The first few that differ, or why nothing could be compared.
    pub failures: Vec<String>,
}

/// Files that are known to differ, and why.
const KNOWN: [(&str, &str); 2] = [
    (
        "ggml-vocab-nomic-bert-moe.gguf",
        "Unigram vocabularies are not supported, and refused by name",
    ),
    (
        "meetkai-functionary-medium-v3.1.jinja",
        "in Python, text that is added to safe text is escaped as HTML; here it is not",
    ),
];

impl Outcome {
    /// Why the file is known to differ.
    pub fn known(&self) -> Option<&'static str> {
        KNOWN.iter().find(|(name, _)| *name == self.name).map(|(_, reason)| *reason)
    }
}

/// Every vocabulary of a folder, `NAME.gguf`, with `NAME.gguf.inp` and `NAME.gguf.out` as llama.cpp
/// has them: texts, and the tokens of each. Vocabularies without them only have to open.
pub fn vocabularies(folder: &Path) -> Vec<Outcome> {
    files(folder, "gguf").iter().map(|path| vocabulary(path)).collect()
}

fn vocabulary(path: &Path) -> Outcome {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut outcome = Outcome { name, compared: 0, failures: Vec::new() };
    let tokenizer = match Tokenizer::open(path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            outcome.failures.push(error.to_string());
            return outcome;
        }
    };
    let beside = |ending: &str| fs::read_to_string(format!("{}.{ending}", path.display())).ok();
    let (Some(texts), Some(tokens)) = (beside("inp"), beside("out")) else { return outcome };
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let tokens: Vec<&str> = tokens.lines().collect();
    for (text, line) in texts.iter().zip(&tokens) {
        let expected: Vec<u32> = line.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        outcome.compared += 1;
        match tokenizer.encode(text, false) {
            Ok(found) if found == expected => {}
            found => {
                outcome.failures.push(format!("{text:?}: expected {expected:?}, got {found:?}"))
            }
        }
    }
    if texts.len() < tokens.len() {
        outcome.failures.push(format!("{} texts, {} lines of tokens", texts.len(), tokens.len()));
    }
    outcome
}

/// Every template of a folder, `NAME.jinja`, with what `templates_record.py` recorded.
pub fn templates(folder: &Path, recorded: &Value) -> Vec<Outcome> {
    let compare = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut outcome = Outcome { name, compared: 0, failures: Vec::new() };
        let source = fs::read_to_string(path).unwrap_or_default();
        let Some(expected) = recorded["renderings"][&outcome.name].as_object() else {
            outcome.failures.push("nothing was recorded".into());
            return outcome;
        };
        for (case, expected) in expected {
            outcome.compared += 1;
            if let Err(difference) = rendering(&source, recorded, case, expected) {
                outcome.failures.push(format!("{case}: {difference}"));
            }
        }
        outcome
    };
    files(folder, "jinja").iter().map(compare).collect()
}

fn rendering(source: &str, recorded: &Value, case: &str, expected: &Value) -> Result<(), String> {
    let now = recorded["now"].as_u64().unwrap_or_default();
    let case = &recorded["cases"][case];
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let mut variables = recorded["special"].as_object().cloned().unwrap_or_default();
    variables.extend(case["variables"].as_object().cloned().unwrap_or_default());
    let mut options = ChatOptions::default();
    options.tools = list("tools");
    options.documents = list("documents");
    options.add_generation_prompt = case["add_generation_prompt"].as_bool().unwrap_or(true);
    options.variables = variables.into_iter().collect::<Map<_, _>>();
    options.now = Some(UNIX_EPOCH + Duration::from_secs(now));
    let mut tokenizer = no_tokens();
    tokenizer.set_chat_template(source);
    let found = tokenizer.apply_chat_template_to_json(&list("messages"), &options);
    match (found, expected["text"].as_str(), expected["error"].as_str()) {
        (Ok(found), Some(expected), _) if found == expected => Ok(()),
        (Ok(found), Some(expected), _) => {
            let common = found.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count();
            let from = common.saturating_sub(40);
            let around = |text: &str| text.chars().skip(from).take(120).collect::<String>();
            Err(format!("expected …{:?}, got …{:?}", around(expected), around(&found)))
        }
        (Ok(found), None, error) => {
            let found: String = found.chars().take(200).collect();
            Err(format!("expected an error, {:?}, got {found:?}", error.unwrap_or_default()))
        }
        (Err(found), None, Some(error)) => {
            // What a template says itself is the same; other errors are worded otherwise.
            let found = found.to_string();
            let same = found == format!("chat template: {error}");
            if same || expected["raised"] == false {
                Ok(())
            } else {
                Err(format!("expected the error {error:?}, got {found:?}"))
            }
        }
        (Err(found), ..) => Err(format!("expected a text, got the error {:?}", found.to_string())),
    }
}

/// A tokenizer for the sake of its template.
fn no_tokens() -> Tokenizer {
    let json = r#"{"added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}"#;
    Tokenizer::from_json(json.as_bytes()).expect("an empty vocabulary is one")
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    paths
}
