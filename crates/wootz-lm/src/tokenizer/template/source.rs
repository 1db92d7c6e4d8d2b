//! The source of a template, with what only Jinja2 understands written in another way.

/// The filter that a slice backwards becomes.
pub(super) const REVERSED: &str = "reversed_slice";

/// The filter that what a loop goes over goes through.
pub(super) const EACH: &str = "each_of";

/// Adapts what stands between delimiters, and leaves lines and comments as they are.
pub(super) fn adapted(source: &str) -> String {
    const DELIMITERS: [(&str, &str); 3] = [("{%", "%}"), ("{{", "}}"), ("{#", "#}")];
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    let first = |text: &str| {
        let found = DELIMITERS.iter().filter_map(|pair| Some((text.find(pair.0)?, pair)));
        found.min_by_key(|(start, _)| *start)
    };
    while let Some((start, (open, close))) = first(rest) {
        let (before, after) = rest.split_at(start);
        let Some(length) = after[open.len()..].find(close) else { break };
        let (inner, after) = after.split_at(open.len() + length);
        result += before;
        match *open {
            "{#" => result += inner,
            _ => result += &loops(&slices(&generation(inner))),
        }
        rest = after;
    }
    result + rest
}

/// Blocks that mark what the model said, for training, are scopes like any other.
fn generation(inner: &str) -> String {
    let word = inner.trim_start_matches("{%");
    match word.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+') {
        word @ "generation" => inner.replacen(word, "with", 1),
        word @ "endgeneration" => inner.replacen(word, "endwith", 1),
        _ => inner.to_string(),
    }
}

/// A list that goes backwards: minijinja panics if it is empty.
fn slices(inner: &str) -> String {
    const SLICE: &str = "[::-1]";
    let mut parts = inner.split(SLICE);
    let mut result = parts.next().unwrap_or_default().to_string();
    for part in parts {
        // A filter cannot be called or indexed as a slice can.
        if part.starts_with(['.', '[', '(', '"', '\'']) {
            result += SLICE;
        } else {
            result.push('|');
            result += REVERSED;
        }
        result += part;
    }
    result
}

/// A loop over a variable: minijinja takes nothing for an empty list, and Python for an error.
fn loops(inner: &str) -> String {
    let Some(words) = inner.strip_prefix("{%") else { return inner.to_string() };
    let words = words.trim_start_matches(['-', '+']).trim_start();
    let Some((_, over)) = words.strip_prefix("for ").and_then(|words| words.split_once(" in "))
    else {
        return inner.to_string();
    };
    let name = over.trim_end_matches(['-', '+']).trim();
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    if name.is_empty() || !name.chars().all(plain) {
        return inner.to_string();
    }
    let (before, after) = inner.split_at(inner.len() - over.len());
    format!("{before}{}", after.replacen(name, &format!("{name}|{EACH}"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_jinja2_alone_understands_is_written_otherwise() {
        let cases = [
            ("a {%- generation -%} b {% endgeneration %} c", "a {%- with -%} b {% endwith %} c"),
            ("generation {{ generation }} [::-1]", "generation {{ generation }} [::-1]"),
            ("{% for m in messages[::-1] %}", "{% for m in messages|reversed_slice %}"),
            ("{{ x[::-1][0] }} {{ y[1:] }}", "{{ x[::-1][0] }} {{ y[1:] }}"),
            ("{%- for a, b in x.y -%}", "{%- for a, b in x.y|each_of -%}"),
            ("{% for a in x if a %}{% for b in [1] %}", "{% for a in x if a %}{% for b in [1] %}"),
            ("{% unclosed", "{% unclosed"),
            ("{{}}{%%}{#", "{{}}{%%}{#"),
            ("{# {% generation %} {{ x[::-1] }} #}", "{# {% generation %} {{ x[::-1] }} #}"),
            ("{#- it's {{ here -#}{{ x[::-1] }}", "{#- it's {{ here -#}{{ x|reversed_slice }}"),
            ("{#}{{ x[::-1] }}#}{{ x[::-1] }}", "{#}{{ x[::-1] }}#}{{ x|reversed_slice }}"),
        ];
        for (source, expected) in cases {
            assert_eq!(adapted(source), expected);
        }
    }
}
