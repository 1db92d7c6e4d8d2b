//! `config.json`, as Python writes it: JSON in which numbers may also be `NaN`, `Infinity` and `-Infinity`.

use std::path::Path;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::Error;

/// Reads the file. What is no finite number is as if it were not given.
pub(super) fn read(file: &Path) -> crate::Result<Value> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::file(file, error))?;
    let mut config: Value =
        serde_json::from_str(&finite(&text)).map_err(|error| Error::invalid(file, error))?;
    untag(&mut config);
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

/// Puts `null` for numbers that newer configurations write as `{"__float__": "Infinity"}`.
fn untag(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(untag),
        Value::Object(fields) => match fields.get("__float__").and_then(Value::as_str) {
            Some("NaN" | "Infinity" | "-Infinity") if fields.len() == 1 => *value = Value::Null,
            _ => fields.values_mut().for_each(untag),
        },
        _ => {}
    }
}

/// A truth value; `null` is false, as in Python.
pub(crate) fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(false))
}

/// As [`truth`], where it matters whether there is one.
pub(crate) fn given_truth<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    truth(from).map(Some)
}

/// A number of things, which may be written as a float.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let number: Option<f64> = Option::deserialize(from)?;
    Ok(number.map(|number| number as usize))
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
        let mut tagged: Value =
            serde_json::from_str(r#"{"a": [{"__float__": "Infinity"}], "b": {"__float__": 1}}"#)
                .unwrap();
        untag(&mut tagged);
        assert_eq!(tagged.to_string(), r#"{"a":[null],"b":{"__float__":1}}"#);
    }
}
