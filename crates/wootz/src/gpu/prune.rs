//! Leaves out of a kernel's text the functions that it does not call. Kernels are put together from
//! snippets with many functions; every compiler on the way would read them all.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The text without functions that nothing else in it names. Comments between functions stay.
pub(super) fn prune(text: &str) -> String {
    let functions = functions(text);
    let mut kept = String::with_capacity(text.len());
    let mut end = 0;
    for function in &functions {
        kept.push_str(&text[end..function.place.start]);
        end = function.place.end;
    }
    kept.push_str(&text[end..]);

    let by_name: HashMap<&str, &Function<'_>> =
        functions.iter().map(|function| (function.name, function)).collect();
    let mut called: HashSet<&str> = HashSet::new();
    let mut pending: Vec<&str> = vec![&kept];
    while let Some(part) = pending.pop() {
        for word in words(part) {
            if let Some(function) = by_name.get(word)
                && called.insert(function.name)
            {
                pending.push(&text[function.place.clone()]);
            }
        }
    }
    let mut result = String::with_capacity(text.len());
    let mut end = 0;
    for function in functions.iter().filter(|function| !called.contains(function.name)) {
        result.push_str(&text[end..function.place.start]);
        end = function.place.end;
    }
    result.push_str(&text[end..]);
    result
}

/// A function without attributes, which is not an entry point.
struct Function<'a> {
    name: &'a str,
    place: Range<usize>,
}

/// The functions that begin a line, up to their last brace.
fn functions(text: &str) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    let mut at = 0;
    // The line before may end with the attributes of an entry point.
    let mut attributed = false;
    while at < text.len() {
        let line = text[at..].find('\n').map_or(text.len(), |length| at + length + 1);
        let code = text[at..line].split("//").next().unwrap_or_default().trim();
        if let Some(name) = code.strip_prefix("fn ").and_then(|rest| words(rest).next())
            && !attributed
            && let Some(end) = closing_brace(text, at)
        {
            functions.push(Function { name, place: at..end });
            at = end;
            continue;
        }
        if !code.is_empty() {
            attributed = code.starts_with('@') && !code.ends_with([';', '}']);
        }
        at = line;
    }
    functions
}

/// Behind the brace that closes the first one opened from `start` on.
fn closing_brace(text: &str, start: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut comment = false;
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'\n' => comment = false,
            _ if comment => {}
            b'/' if bytes.get(at + 1) == Some(&b'/') => comment = true,
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(at + 1),
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

/// Names, numbers and keywords.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::prune;

    #[test]
    fn functions_that_nothing_calls_are_left_out() {
        let text = "const A = used_by_constant;\n\
                    fn unused(x: f32) -> f32 { return deep(x); } // { a comment\n\
                    fn deep(x: f32) -> f32 {\n    if (x > 0.0) { return x; } // }\n    return -x;\n}\n\
                    fn helper(x: f32) -> f32 { return deeper(x); }\n\
                    fn deeper(x: f32) -> f32 { return x; }\n\
                    @compute @workgroup_size(1)\n\
                    fn main() { let y = helper(1.0); }\n";
        let pruned = prune(text);
        assert!(!pruned.contains("fn unused") && !pruned.contains("fn deep("), "{pruned}");
        for kept in ["fn helper", "fn deeper", "fn main", "const A", "@compute"] {
            assert!(pruned.contains(kept), "{kept} is missing from {pruned}");
        }
        assert_eq!(prune(&pruned), pruned);
    }

    #[test]
    fn an_entry_point_on_one_line_with_its_attributes_stays() {
        let text = "fn a() {}\n@compute @workgroup_size(1) fn main() { b(); }\nfn b() {}\n";
        assert_eq!(prune(text), "\n@compute @workgroup_size(1) fn main() { b(); }\nfn b() {}\n");
    }

    #[test]
    fn text_that_is_not_wgsl_does_not_upset_it() {
        for text in ["", "fn", "fn x", "fn x {", "}", "@@@\nfn {", "fn x() { { }"] {
            assert_eq!(prune(text), text);
        }
    }
}
