//! Reading MSL: tokens, the items of a file, and the arguments of a kernel.
//!
//! Only as much as naga's output and small kernels written by hand need: no preprocessor.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// White space, comments and `#include` lines.
    Blank,
    Word,
    Number,
    Text,
    Mark,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub(crate) fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// The words that name address spaces.
pub(crate) const SPACES: [&str; 4] = ["device", "constant", "threadgroup", "thread"];

/// A function, a structure, a constant or a type name at the top of a file.
#[derive(Clone, Debug)]
pub(crate) struct Item<'a> {
    /// All its tokens, blanks too.
    pub(crate) tokens: Vec<Token<'a>>,
    /// What it is if it is a function.
    pub(crate) function: Option<Function<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: usize,
    pub(crate) arguments: Vec<Argument<'a>>,
    /// The tokens between the braces, without blanks.
    pub(crate) body: Vec<Token<'a>>,
}

/// An argument of a function.
#[derive(Clone, Debug)]
pub(crate) struct Argument<'a> {
    /// The declaration without attributes and blanks.
    pub(crate) tokens: Vec<Token<'a>>,
    /// `[[name(number)]]`, the number empty if there is none.
    pub(crate) attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Argument<'a> {
    pub(crate) fn has(&self, word: &str) -> bool {
        self.tokens.iter().any(|token| token.is(word))
    }

    pub(crate) fn is_pointer(&self) -> bool {
        self.has("*") || self.has("&")
    }

    pub(crate) fn space(&self) -> Option<&'a str> {
        self.tokens.iter().map(|token| token.text).find(|text| SPACES.contains(text))
    }

    /// The declared type: everything but the name.
    pub(crate) fn type_text(&self) -> String {
        let named = self.tokens.len() > 1 && self.tokens.last().is_some_and(Token::is_word);
        let type_tokens = &self.tokens[..self.tokens.len() - usize::from(named)];
        let words = type_tokens.iter().map(|token| token.text);
        words.collect::<Vec<_>>().join(" ").replace(" :: ", "::")
    }

    pub(crate) fn text(&self) -> String {
        self.tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
    }
}

/// Cuts a text into tokens. The error names the line.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let (kind, length) = match bytes[at] {
            b'#' => {
                let length = rest.find('\n').unwrap_or(rest.len());
                if !rest.starts_with("#include") {
                    return Err(format!("line {line}: only #include is known"));
                }
                (Kind::Blank, length)
            }
            c if c.is_ascii_whitespace() => (Kind::Blank, length_of(rest, |c| c.is_whitespace())),
            b'/' if rest.starts_with("//") => (Kind::Blank, rest.find('\n').unwrap_or(rest.len())),
            b'/' if rest.starts_with("/*") => {
                (Kind::Blank, rest.find("*/").map_or(rest.len(), |end| end + 2))
            }
            b'"' => (Kind::Text, rest[1..].find('"').map_or(rest.len(), |end| end + 2)),
            c if c.is_ascii_alphabetic() || c == b'_' => (Kind::Word, length_of(rest, is_word)),
            c if c.is_ascii_digit() => (Kind::Number, number_length(rest)),
            b'.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                (Kind::Number, number_length(rest))
            }
            _ if rest.starts_with("::") => (Kind::Mark, 2),
            _ => (Kind::Mark, rest.chars().next().map_or(1, char::len_utf8)),
        };
        let token = &rest[..length];
        found.push(Token { kind, text: token, line });
        line += token.matches('\n').count();
        at += length;
    }
    Ok(found)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn length_of(text: &str, part: impl Fn(char) -> bool) -> usize {
    text.find(|c| !part(c)).unwrap_or(text.len())
}

fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let mut at = 0;
    while at < bytes.len() {
        let signed = matches!(bytes[at], b'+' | b'-')
            && at > 0
            && match hexadecimal {
                true => matches!(bytes[at - 1], b'p' | b'P'),
                false => matches!(bytes[at - 1], b'e' | b'E'),
            };
        if !(is_word(bytes[at] as char) || bytes[at] == b'.' || signed) {
            break;
        }
        at += 1;
    }
    at
}

/// Does this number have a fraction or an exponent, and no suffix?
pub(crate) fn is_plain_float(number: &str) -> bool {
    let hexadecimal = number.starts_with("0x") || number.starts_with("0X");
    !hexadecimal
        && number.contains(['.', 'e', 'E'])
        && !number.ends_with(|c: char| c.is_alphabetic() && !matches!(c, 'e' | 'E'))
}

/// Cuts a file into its items.
pub(crate) fn items<'a>(tokens: &[Token<'a>]) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let (mut start, mut depth) = (0, 0usize);
    // Seen in this item at the top: the arguments of a function, and a value.
    let (mut called, mut value, mut attribute) = (false, false, 0usize);
    for (at, token) in tokens.iter().enumerate() {
        let mut ends = false;
        match token.text {
            "[" => attribute += 1,
            "]" => attribute = attribute.saturating_sub(1),
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                ends = depth == 0 && called && !value;
            }
            ";" => ends = depth == 0,
            "(" if depth == 0 && attribute == 0 => called = true,
            "=" if depth == 0 => value = true,
            _ => {}
        }
        if ends {
            items.push(item(&tokens[start..=at], called && !value && token.is("}")));
            (start, called, value, attribute) = (at + 1, false, false, 0);
        }
    }
    items.push(item(&tokens[start..], false));
    items
}

fn item<'a>(tokens: &[Token<'a>], is_function: bool) -> Item<'a> {
    let function = is_function.then(|| function(tokens)).flatten();
    Item { tokens: tokens.to_vec(), function }
}

fn function<'a>(tokens: &[Token<'a>]) -> Option<Function<'a>> {
    let tokens =
        tokens.iter().filter(|token| token.kind != Kind::Blank).copied().collect::<Vec<_>>();
    let mut attribute = 0usize;
    let open = tokens.iter().position(|token| {
        match token.text {
            "[" => attribute += 1,
            "]" => attribute -= 1,
            _ => {}
        }
        token.is("(") && attribute == 0
    })?;
    let close = closing(&tokens, open)?;
    let name = tokens[..open].last()?;
    let body = tokens[close..].iter().position(|token| token.is("{"))? + close;
    Some(Function {
        name: name.text,
        line: name.line,
        arguments: arguments(&tokens[open + 1..close]),
        body: tokens[body + 1..tokens.len() - 1].to_vec(),
    })
}

/// Where the parenthesis that opens at `open` is closed.
pub(crate) fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" => depth += 1,
            ")" => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn arguments<'a>(tokens: &[Token<'a>]) -> Vec<Argument<'a>> {
    let mut arguments = Vec::new();
    let mut depth = 0usize;
    let mut start = 0;
    for at in 0..=tokens.len() {
        match tokens.get(at).map(|token| token.text) {
            Some("(" | "[" | "<") => depth += 1,
            Some(")" | "]" | ">") => depth = depth.saturating_sub(1),
            Some(",") if depth == 0 => {}
            None => {}
            _ => continue,
        }
        let ends = tokens.get(at).is_none_or(|token| token.is(",") && depth == 0);
        if ends {
            if start < at {
                arguments.push(argument(&tokens[start..at]));
            }
            start = at + 1;
        }
    }
    arguments
}

fn argument<'a>(tokens: &[Token<'a>]) -> Argument<'a> {
    let mut argument = Argument { tokens: Vec::new(), attributes: Vec::new() };
    let mut at = 0;
    while at < tokens.len() {
        let opens = tokens[at].is("[") && tokens.get(at + 1).is_some_and(|token| token.is("["));
        if !opens {
            argument.tokens.push(tokens[at]);
            at += 1;
            continue;
        }
        let name = tokens.get(at + 2).map_or("", |token| token.text);
        let number = match tokens.get(at + 3) {
            Some(token) if token.is("(") => tokens.get(at + 4).map_or("", |token| token.text),
            _ => "",
        };
        argument.attributes.push((name, number));
        while at < tokens.len() && !tokens[at].is("]") {
            at += 1;
        }
        at += 2;
    }
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_arguments_are_found() {
        let text = "#include <metal_stdlib>\nconstant float K = 1.5;\nstruct P { uint n; };\n\
            template <typename A>\nuint f(device A *a, uint b) { return b; }\n\
            [[max_total_threads_per_threadgroup(64)]] kernel void main_(\n  metal::uint3 id \
            [[thread_position_in_grid]]\n, device type_2 const& x [[buffer(1)]]) { x[id.x]; }\n";
        let tokens = tokens(text).unwrap();
        let functions = items(&tokens).into_iter().filter_map(|item| item.function);
        let functions = functions.collect::<Vec<_>>();
        assert_eq!(functions.iter().map(|f| f.name).collect::<Vec<_>>(), ["f", "main_"]);
        let arguments = &functions[1].arguments;
        assert_eq!(arguments[0].attributes, [("thread_position_in_grid", "")]);
        assert_eq!(arguments[0].type_text(), "metal::uint3");
        assert_eq!(arguments[1].attributes, [("buffer", "1")]);
        assert_eq!(arguments[1].type_text(), "device type_2 const &");
    }

    #[test]
    fn numbers_are_whole_tokens() {
        let text = "1.0e-5+0x1.8p-3f 7u 3. .5";
        let numbers = tokens(text).unwrap();
        let numbers = numbers.iter().filter(|token| token.kind == Kind::Number);
        let numbers = numbers.map(|token| (token.text, is_plain_float(token.text)));
        let want =
            [("1.0e-5", true), ("0x1.8p-3f", false), ("7u", false), ("3.", true), (".5", true)];
        assert_eq!(numbers.collect::<Vec<_>>(), want);
    }
}
