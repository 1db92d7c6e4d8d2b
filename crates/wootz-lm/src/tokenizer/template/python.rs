//! What Python's values can do in templates, and minijinja's cannot.

use std::borrow::Cow;

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};
use minijinja_contrib::pycompat;

/// Methods of Python's values.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => text_method(value.as_str().unwrap_or_default(), name, arguments)?,
        ValueKind::Map => map_method(value, name, arguments)?,
        ValueKind::Seq => list_method(value, name, arguments)?,
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, name, arguments),
    }
}

fn text_method(text: &str, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "strip" | "lstrip" | "rstrip" => {
            let (set,): (Option<Value>,) = from_args(arguments)?;
            let set = set.as_ref().and_then(|set| set.as_str().map(str::to_string));
            let unwanted = |c: char| match &set {
                Some(set) => set.contains(c),
                None => is_space(c),
            };
            Value::from(match name {
                "strip" => text.trim_matches(unwanted),
                "lstrip" => text.trim_start_matches(unwanted),
                _ => text.trim_end_matches(unwanted),
            })
        }
        "split" | "rsplit" => split(text, name == "rsplit", arguments)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            let (found, otherwise) = if name == "partition" {
                (text.split_once(separator), [text, "", ""])
            } else {
                (text.rsplit_once(separator), ["", "", text])
            };
            let parts = found.map_or(otherwise, |(before, after)| [before, separator, after]);
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "index" => {
            let (part,): (&str,) = from_args(arguments)?;
            let place = text.find(part).ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..place].chars().count())
        }
        "zfill" | "ljust" | "rjust" => {
            let (width, fill): (usize, Option<&str>) = from_args(arguments)?;
            let fill = if name == "zfill" { "0" } else { fill.unwrap_or(" ") };
            // A width is limited: templates come from strangers.
            let missing = width.min(4096).saturating_sub(text.chars().count());
            let fill = fill.repeat(missing);
            Value::from(match (name, text.strip_prefix(['-', '+'])) {
                ("ljust", _) => format!("{text}{fill}"),
                ("zfill", Some(digits)) => format!("{}{fill}{digits}", &text[..1]),
                _ => format!("{fill}{text}"),
            })
        }
        "casefold" => Value::from(text.to_lowercase()),
        _ => return Ok(None),
    }))
}

/// What Python takes for a space: all that Unicode does, and the separators of ASCII.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn split(text: &str, from_end: bool, arguments: &[Value]) -> Result<Value, Error> {
    let (separator, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(arguments)?;
    let separator = match separator {
        Some(separator) => separator,
        None => named.get::<Option<Value>>("sep")?.unwrap_or_default(),
    };
    let most = match most {
        Some(most) => Some(most),
        None => named.get::<Option<i64>>("maxsplit")?,
    };
    named.assert_all_used()?;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX - 1);
    let mut parts: Vec<&str> = match separator.as_str() {
        Some("") => return Err(invalid("empty separator")),
        Some(separator) if from_end => text.rsplitn(most + 1, separator).collect(),
        Some(separator) => text.splitn(most + 1, separator).collect(),
        None => words(text, from_end, most),
    };
    if from_end {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Words between spaces; what is left after the last split keeps its spaces, but for those around it.
fn words(text: &str, from_end: bool, most: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_matches(is_space);
    while !rest.is_empty() {
        let place = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(place) = place.filter(|_| found.len() < most) else {
            found.push(rest);
            break;
        };
        let (before, after) = rest.split_at(place);
        if from_end {
            found.push(after.trim_start_matches(is_space));
            rest = before.trim_end_matches(is_space);
        } else {
            found.push(before);
            rest = after.trim_start_matches(is_space);
        }
    }
    found
}

fn map_method(value: &Value, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    Ok(match name {
        "copy" => {
            let () = from_args(arguments)?;
            Some(value.clone())
        }
        // Transformers runs templates where nothing can be changed.
        "pop" | "popitem" | "update" | "setdefault" | "clear" => return Err(unsafe_method(name)),
        _ => None,
    })
}

fn list_method(value: &Value, name: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    Ok(match name {
        "index" => {
            let (wanted,): (&Value,) = from_args(arguments)?;
            let place = value.try_iter()?.position(|item| item == *wanted);
            Some(Value::from(place.ok_or_else(|| invalid("value is not in the list"))?))
        }
        "copy" => {
            let () = from_args(arguments)?;
            Some(value.clone())
        }
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "reverse" | "sort" => {
            return Err(unsafe_method(name));
        }
        _ => None,
    })
}

/// What `[::-1]` gives.
pub(super) fn reversed(value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    if value.is_none() || value.is_undefined() {
        return Err(invalid("only texts and lists can be sliced"));
    }
    let mut items: Vec<Value> = value.try_iter()?.collect();
    items.reverse();
    Ok(Value::from(items))
}

/// What a loop goes over.
pub(super) fn each(value: Value) -> Result<Value, Error> {
    if value.is_none() { Err(invalid("none is not iterable")) } else { Ok(value) }
}

/// The test `iterable`.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Filters that give generators in Python: they have no length and no place in JSON, and are true.
macro_rules! generators {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $name(
            state: &mut State<'_, '_>,
            value: Value,
            $($argument: $type,)*
            more: Rest<ValueOrKwargs>,
        ) -> Result<Value, Error> {
            filters::$name(state, value, $($argument,)* more).map(generator)
        })*

        pub(super) fn add_generators(environment: &mut Environment<'_>) {
            $(environment.add_filter(stringify!($name), $name);)*
        }
    };
}

generators! {
    map();
    select(test: Option<Cow<'_, str>>);
    reject(test: Option<Cow<'_, str>>);
    selectattr(name: Cow<'_, str>, test: Option<Cow<'_, str>>);
    rejectattr(name: Cow<'_, str>, test: Option<Cow<'_, str>>);
}

fn generator(items: Vec<Value>) -> Value {
    Value::make_iterable(move || items.clone().into_iter())
}

/// The function `dict`.
pub(super) fn dict(positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let mut pairs: Vec<(Value, Value)> = Vec::new();
    for value in positional.iter() {
        let is_map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            let (key, value) = if is_map {
                (item.clone(), value.get_item(&item)?)
            } else {
                (item.get_item_by_index(0)?, item.get_item_by_index(1)?)
            };
            pairs.push((key, value));
        }
    }
    for name in named.args() {
        pairs.push((Value::from(name), named.get(name)?));
    }
    Ok(Value::from_pairs(pairs))
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_string())
}

fn unsafe_method(name: &str) -> Error {
    invalid(&format!("templates may not change values: {name}"))
}
