//! `config.json`, as Python writes it: JSON in which numbers may also be `NaN`, `Infinity` and `-Infinity`.

use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::Error;

/// Reads the file. Numbers that JSON lacks become what newer configurations write for them, `{"__float__": "Infinity"}`: no
/// number for whoever asks for one.
pub(super) fn read(file: &Path) -> crate::Result<Value> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::file(file, error))?;
    let config: Value =
        serde_json::from_str(&tagged(&text)).map_err(|error| Error::invalid(file, error))?;
    match config.is_object() {
        true => Ok(config),
        false => Err(Error::invalid(file, "not a JSON object")),
    }
}

/// The text with an object for every number that JSON lacks. Lines stay the same.
fn tagged(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find(['"', 'N', 'I', '-']) {
        let (before, from) = rest.split_at(place);
        out.push_str(before);
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| from.starts_with(word));
        let taken = match word {
            Some(word) => word.len(),
            None if from.starts_with('"') => string_end(from),
            None => 1,
        };
        match word {
            Some(word) => out.push_str(&json!({ "__float__": word }).to_string()),
            None => out.push_str(&from[..taken]),
        }
        rest = &from[taken..];
    }
    out + rest
}

/// A value as a configuration has it.
pub(crate) fn said(value: &Value) -> String {
    match value.get("__float__").and_then(Value::as_str) {
        Some(word) => word.to_string(),
        None => value.to_string(),
    }
}

/// The error of a configuration that could not be read: with the key that is to blame, if another value there would have
/// been read. `fails` tells of a configuration whether it cannot be read, either.
pub(crate) fn blame(
    config: &Value,
    error: &serde_json::Error,
    fails: impl Fn(&Value) -> bool,
) -> Error {
    let is_plain = |value: &Value| value.is_object() && value.get("__float__").is_none();
    let mut places: Vec<Vec<&str>> = Vec::new();
    for (key, value) in config.as_object().into_iter().flatten() {
        places.push(vec![key.as_str()]);
        for (inner, _) in value.as_object().filter(|_| is_plain(value)).into_iter().flatten() {
            places.push(vec![key.as_str(), inner.as_str()]);
        }
    }
    let others = [Value::Null, json!(1), json!(true), json!("x"), json!([])];
    for place in places {
        let given = place.iter().try_fold(config, |value, key| value.get(*key));
        let Some(given) = given.filter(|given| !is_plain(given)) else { continue };
        let read_with = |other: &Value| {
            let mut changed = config.clone();
            let found = place.iter().try_fold(&mut changed, |value, key| value.get_mut(*key));
            found.map(|found| *found = other.clone()).is_some() && !fails(&changed)
        };
        if others.iter().any(read_with) {
            return Error::argument(place.join("."), expected(&error.to_string()), said(given));
        }
    }
    Error::argument("config.json", "an architecture's values", error)
}

/// What an error of reading says that it expected, in words.
fn expected(error: &str) -> &str {
    match error.rsplit_once("expected ").map_or("another value", |(_, expected)| expected) {
        "f64" | "f32" => "a finite number",
        "usize" | "u64" | "u32" => WHOLE,
        "i64" | "i32" => "a whole number",
        other => other,
    }
}

/// What [`count`] expects.
pub(crate) const WHOLE: &str = "a whole number of at least 0";

/// A number of things, which may be written as a float.
pub(crate) fn whole(number: f64) -> Option<usize> {
    let fits = number >= 0.0 && number.fract() == 0.0 && number <= i64::MAX as f64;
    fits.then_some(number as usize)
}

/// A truth value; `null` is false, as in Python.
pub(crate) fn truth<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(false))
}

/// As [`truth`], where it matters whether there is one.
pub(crate) fn given_truth<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    truth(from).map(Some)
}

/// A number of things, which may be written as a float, if it is given.
pub(crate) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let number: Option<f64> = Option::deserialize(from)?;
    let wrong = |number| D::Error::custom(format!("got {number}, expected {WHOLE}"));
    number.map(|number| whole(number).ok_or_else(|| wrong(number))).transpose()
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
    fn numbers_that_json_lacks_are_tagged_and_strings_stay() {
        let text = r#"{"a": NaN, "b": [-Infinity, Infinity, -1], "NaN": "In\"finity: NaN"}"#;
        let expected = r#"{"a": {"__float__":"NaN"}, "b": [{"__float__":"-Infinity"}, {"__float__":"Infinity"}, -1], "NaN": "In\"finity: NaN"}"#;
        assert_eq!(tagged(text), expected);
        assert_eq!(tagged("\"open NaN"), "\"open NaN");
    }

    #[test]
    fn the_key_that_cannot_be_read_is_named_with_its_value() {
        #[derive(Deserialize)]
        #[allow(dead_code)]
        struct Inner {
            eps: f64,
        }
        #[derive(Deserialize)]
        #[allow(dead_code)]
        struct Config {
            size: usize,
            inner: Inner,
            #[serde(default, deserialize_with = "count")]
            length: Option<usize>,
        }
        let error = |config: Value| {
            let fails = |config: &Value| Config::deserialize(config).is_err();
            let error = Config::deserialize(&config).err().unwrap();
            blame(&config, &error, fails).to_string()
        };
        let infinite = json!({ "__float__": "-Infinity" });
        let found = error(json!({ "size": 1, "inner": { "eps": infinite }, "free": infinite }));
        assert_eq!(found, "inner.eps: expected a finite number, got -Infinity");
        let of_length = |length: Value| {
            error(json!({ "free": infinite, "size": 1, "inner": { "eps": 0 }, "length": length }))
        };
        for (given, got) in
            [(json!(-5), "-5"), (json!(0.5), "0.5"), (infinite.clone(), "-Infinity")]
        {
            let found = of_length(given);
            assert!(found.starts_with("length: expected a") && found.ends_with(got), "{found}");
        }
        let found = error(json!({ "size": -1, "inner": { "eps": 0 } }));
        assert_eq!(found, "size: expected a whole number of at least 0, got -1");
        let found = error(json!({ "inner": { "eps": 0 } }));
        assert!(found.starts_with("config.json: ") && found.contains("`size`"), "{found}");
    }
}
