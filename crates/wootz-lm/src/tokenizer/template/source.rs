//! The source of a template, with what only Jinja2 understands written in another way.

/// The filter that a slice backwards becomes.
pub(super) const REVERSED: &str = "reversed_slice";

/// Adapts what stands between delimiters, and leaves lines as they are.
pub(super) fn adapted(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%").into_iter().chain(rest.find("{{")).min() {
        let close = if rest[start..].starts_with("{%") { "%}" } else { "}}" };
        let Some(length) = rest[start..].find(close) else { break };
        let (before, after) = rest.split_at(start);
        let (inner, after) = after.split_at(length.max(2));
        result += before;
        result += &slices(&generation(inner));
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
            ("{% unclosed", "{% unclosed"),
            ("{{}}{%%}{#", "{{}}{%%}{#"),
        ];
        for (source, expected) in cases {
            assert_eq!(adapted(source), expected);
        }
    }
}
