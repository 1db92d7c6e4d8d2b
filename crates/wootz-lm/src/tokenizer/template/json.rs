//! JSON in templates, written as Python's `json.dumps` does.

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;

/// JSON as templates see it.
pub(super) fn to_template(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::from(value),
            (_, Some(value)) => Value::from(value),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(values) => Value::from(values.iter().map(to_template).collect::<Vec<_>>()),
        Json::Object(map) => {
            Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), to_template(value))))
        }
    }
}

/// The filter `tojson`.
pub(super) fn tojson(value: Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    // In the order of the arguments that transformers' filter has.
    let argument = |place: usize, name: &str| -> Result<Value, Error> {
        match positional.get(place) {
            Some(value) => Ok(value.clone()),
            None => Ok(named.get::<Option<Value>>(name)?.unwrap_or_default()),
        }
    };
    let given = |value: &Value| !value.is_undefined() && !value.is_none();
    let ensure_ascii = argument(0, "ensure_ascii")?.is_true();
    let indent = argument(1, "indent")?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_true();
    named.assert_all_used()?;
    let indent = match indent.as_str() {
        Some(text) => Some(text.to_string()),
        None if given(&indent) => {
            let width = indent.as_i64().or(indent.is_true().then_some(1)).unwrap_or(0);
            Some(" ".repeat(usize::try_from(width).unwrap_or(0)))
        }
        None => None,
    };
    let (item, key) = if given(&separators) {
        let parts: Vec<Value> = separators.try_iter()?.collect();
        let part = |index: usize| parts.get(index).map(ToString::to_string).unwrap_or_default();
        (part(0), part(1))
    } else {
        (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string())
    };
    let mut writer = Writer { out: String::new(), indent, item, key, ensure_ascii, sort_keys };
    writer.value(&value, 0)?;
    Ok(Value::from(writer.out))
}

/// The filter `fromjson`.
pub(super) fn fromjson(text: &str) -> Result<Value, Error> {
    let json: Json = serde_json::from_str(text)
        .map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("fromjson: {e}")))?;
    Ok(to_template(&json))
}

/// More than any conversation nests.
const MOST_NESTED: usize = 200;

struct Writer {
    out: String,
    indent: Option<String>,
    item: String,
    key: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MOST_NESTED {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => self.out += "null",
            ValueKind::Bool => self.out += if value.is_true() { "true" } else { "false" },
            ValueKind::Number => self.out += &number(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.items('{', '}', keys, depth, |writer, key| {
                    match key.kind() {
                        ValueKind::String => writer.string(key.as_str().unwrap_or_default()),
                        ValueKind::None => writer.string("null"),
                        ValueKind::Bool => {
                            writer.string(if key.is_true() { "true" } else { "false" })
                        }
                        _ => writer.string(&number(key)),
                    }
                    writer.out += &writer.key;
                    writer.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Seq => {
                let items = value.try_iter()?.collect();
                self.items('[', ']', items, depth, |writer, item| writer.value(item, depth + 1))?;
            }
            kind => {
                let what = format!("tojson: {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            }
        }
        Ok(())
    }

    fn items(
        &mut self,
        open: char,
        close: char,
        items: Vec<Value>,
        depth: usize,
        mut each: impl FnMut(&mut Writer, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out += &self.item;
            }
            self.line(depth + 1);
            each(self, item)?;
        }
        if !items.is_empty() {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            self.out += &indent.repeat(depth);
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out += "\\\"",
                '\\' => self.out += "\\\\",
                '\n' => self.out += "\\n",
                '\r' => self.out += "\\r",
                '\t' => self.out += "\\t",
                '\u{8}' => self.out += "\\b",
                '\u{c}' => self.out += "\\f",
                '\0'..='\u{1f}' => self.escape(character),
                '\u{7f}'.. if self.ensure_ascii && !character.is_ascii() => self.escape(character),
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            self.out += &format!("\\u{unit:04x}");
        }
    }
}

/// A number as Python writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) => float(number),
        Err(_) => value.to_string(),
    }
}

fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (f64::INFINITY, "Infinity"),
        ];
        for (value, written) in cases {
            assert_eq!(float(value), written);
        }
    }
}
