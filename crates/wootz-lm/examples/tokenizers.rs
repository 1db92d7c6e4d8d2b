//! Compares vocabularies and chat templates of a folder with what is recorded beside them:
//! `tokenizers DIR [RENDERINGS]`, where DIR is laid out as llama.cpp's `models`, and RENDERINGS is what
//! `xtask/goldens/templates_record.py` wrote of `DIR/templates`. `cargo xtask tokenizers DIR` does both.

use std::path::Path;
use std::process::ExitCode;

#[path = "../tests/reference/mod.rs"]
mod reference;

/// Differences that are shown of each file.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, recorded @ ..] = arguments.as_slice() else {
        eprintln!("usage: tokenizers DIR [RENDERINGS]");
        return ExitCode::from(2);
    };
    let folder = Path::new(folder);
    let mut outcomes = reference::vocabularies(folder);
    if let [recorded] = recorded {
        let text = std::fs::read_to_string(recorded).map_err(|e| e.to_string());
        match text.and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string())) {
            Ok(recorded) => {
                outcomes.extend(reference::templates(&folder.join("templates"), &recorded));
            }
            Err(error) => {
                eprintln!("error: {recorded}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let (mut failed, mut known) = (0, 0);
    for outcome in &outcomes {
        let reference::Outcome { name, compared, failures } = outcome;
        let verdict = match (failures.len(), compared, outcome.known()) {
            (0, 0, _) => "opens, nothing to compare with".to_string(),
            (0, compared, _) => format!("pass ({compared})"),
            (failures, compared, Some(reason)) => {
                known += 1;
                format!("DIFFERS ({failures} of {compared}): {reason}")
            }
            (failures, compared, None) => {
                failed += 1;
                format!("FAIL ({failures} of {compared})")
            }
        };
        println!("{name}: {verdict}");
        for failure in failures.iter().take(SHOWN).filter(|_| outcome.known().is_none()) {
            println!("    {failure}");
        }
    }
    let compared: usize = outcomes.iter().map(|outcome| outcome.compared).sum();
    println!(
        "{} files, {compared} texts and conversations: {} files pass, {known} are known to differ, {failed} fail",
        outcomes.len(),
        outcomes.len() - failed - known,
    );
    if failed == 0 && !outcomes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
