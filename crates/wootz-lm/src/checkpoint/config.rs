//! `config.json`, as Python writes it: JSON in which numbers may also be `NaN`, `Infinity` and `-Infinity`.

use std::path::Path;

use serde_json::Value;

use crate::{Error, Result};

/// Reads the file. What is no finite number is as if it were not given.
pub(super) fn read(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::file(file, error))?;
    let config: Value =
        serde_json::from_str(&finite(&text)).map_err(|error| Error::invalid(file, error))?;
    match config.is_object() {
        true => Ok(config),
        false => Err(Error::invalid(file, "not a JSON object")),
    }
}

/// The text with `null` for every number that JSON lacks. Places stay the same but for the line they are in.
fn finite(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(['"', 'N', 'I', '-']) {
        let (before, from) = rest.split_at(place);
        out.push_str(before);
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| from.starts_with(word));
        let (taken, written) = match word {
            Some(word) => (word.len(), "null"),
            None if from.starts_with('"') => (string_end(from), &from[..string_end(from)]),
            None => (1, &from[..1]),
        };
        out.push_str(written);
        rest = &from[taken..];
    }
    out + rest
}

/// Where the string ends that a text begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (place, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return place + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_not_given_and_strings_stay() {
        let text = r#"{"a": NaN, "b": [-Infinity, Infinity, -1], "NaN": "In\"finity: NaN"}"#;
        let expected = r#"{"a": null, "b": [null, null, -1], "NaN": "In\"finity: NaN"}"#;
        assert_eq!(finite(text), expected);
        assert_eq!(finite("\"open NaN"), "\"open NaN");
    }
}
