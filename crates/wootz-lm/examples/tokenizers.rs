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
    let mut failed = 0;
    for reference::Outcome { name, compared, failures } in &outcomes {
        let verdict = match (failures.len(), compared) {
            (0, 0) => "opens, nothing to compare with".to_string(),
            (0, compared) => format!("pass ({compared})"),
            (failures, compared) => format!("FAIL ({failures} of {compared})"),
        };
        println!("{name}: {verdict}");
        for failure in failures.iter().take(SHOWN) {
            println!("    {failure}");
        }
        failed += usize::from(!failures.is_empty());
    }
    let compared: usize = outcomes.iter().map(|outcome| outcome.compared).sum();
    let passed = outcomes.len() - failed;
    println!("{passed} of {} files pass, {compared} texts and conversations", outcomes.len());
    if failed == 0 && !outcomes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
