//! Kernels that do the same with several arrays are put together from one text, once for each array.

use std::fmt::Write;

/// A text with a number behind the names that it declares outside of functions, and behind `more` names.
pub(crate) fn numbered(text: &str, more: &[&str], number: usize) -> String {
    let names: Vec<&str> = more.iter().copied().chain(text.lines().filter_map(declared)).collect();
    let mut result = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(start) = rest.find(is_name) {
        let end = rest[start..].find(|c| !is_name(c)).map_or(rest.len(), |length| start + length);
        result.push_str(&rest[..end]);
        // Behind a dot is a part of something, which has none of the text's own names.
        let part = rest[..start].ends_with('.');
        let known = if part { more } else { &names };
        if known.contains(&&rest[start..end]) {
            // Writing to a string does not fail.
            let _ = write!(result, "_{number}");
        }
        rest = &rest[end..];
    }
    result + rest
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What a line declares, if that is a function, a constant or a buffer.
fn declared(line: &str) -> Option<&str> {
    let rest = match line.split_once("var<storage") {
        Some((_, rest)) => rest.split_once("> ")?.1,
        None => line.strip_prefix("fn ").or_else(|| line.strip_prefix("const "))?,
    };
    rest.split(|c| !is_name(c)).next()
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn only_what_a_text_declares_gets_a_number() {
        let text = "@group(0) @binding(3) var<storage, read> w_data: array<u32>;\n\
                    const BITS = 4u;\n\
                    fn w(i: u32) -> u32 { return w_data[p.w_at + i] >> BITS + shared(i).w; }\n";
        let expected = "@group(0) @binding(3) var<storage, read> w_data_2: array<u32>;\n\
                        const BITS_2 = 4u;\n\
                        fn w_2(i: u32) -> u32 { return w_data_2[p.w_at_2 + i] >> BITS_2 + shared(i).w; }\n";
        assert_eq!(numbered(text, &["w_at"], 2), expected);
    }
}
