//! MSL to the C++ that clang takes, with the headers of this crate.

use std::collections::HashSet;
use std::fmt::Write;

use crate::scan::{self, Argument, Function, Item, Kind, SPACES};

/// Which of the two passes the text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// C++ for OpenCL: address spaces are kept, nothing is run.
    Check,
    /// C++ without address spaces, and a function that calls the kernel.
    Run,
}

/// Adds the kernel to a file with many, in its own namespace. Lines keep their numbers; `symbol`
/// names the namespace, the function to call, and the file in clang's messages. `seen` has the
/// functions that are in the file.
pub(crate) fn rewrite(
    items: &[Item<'_>],
    entry: &str,
    symbol: &str,
    pass: Pass,
    seen: &mut HashSet<String>,
    text: &mut String,
) -> Result<(), String> {
    // Without a name, so that clang drops what is inlined everywhere.
    text.push_str(&format!("namespace in_{symbol} {{ namespace {{\n#line 1 \"{symbol}\"\n"));
    let mut kept = HashSet::new();
    reach(items, entry, &mut kept);
    if pass == Pass::Check {
        // Kernels come with many of the same functions; those not called are checked once.
        for item in items {
            if let Some(function) = &item.function
                && seen.insert(words(item, true))
            {
                reach(items, function.name, &mut kept);
            }
        }
    }
    let mut here = HashSet::new();
    for item in items {
        // Without address spaces, functions that differ only in them are the same.
        let left_out = item.function.as_ref().is_some_and(|function| {
            !kept.contains(function.name) || pass == Pass::Run && !here.insert(words(item, false))
        });
        let helper = item.function.as_ref().is_some_and(|function| function.name != entry);
        let first = item.tokens.iter().find(|token| token.kind != Kind::Blank);
        let template = first.is_some_and(|token| token.is("template"));
        if pass == Pass::Run && helper && !left_out && !template {
            // As GPU compilers do. With fast math clang also promises that no argument or result
            // of a function that is called is NaN or infinite.
            text.push_str("__attribute__((always_inline)) ");
        }
        put(item, left_out, text);
    }
    text.push_str("\n}\n");
    let function = items.iter().filter_map(|item| item.function.as_ref());
    let function = function.into_iter().find(|function| function.name == entry);
    let function = function.ok_or_else(|| format!("there is no function {entry}"))?;
    if pass == Pass::Run {
        put_call(function, symbol, text)?;
    }
    text.push_str("\n}\n");
    Ok(())
}

/// Adds a function, and the names that are reached from it.
fn reach<'a>(items: &[Item<'a>], function: &'a str, reached: &mut HashSet<&'a str>) {
    let mut next = Vec::from_iter(reached.insert(function).then_some(function));
    while let Some(name) = next.pop() {
        let functions = items.iter().filter_map(|item| item.function.as_ref());
        for function in functions.filter(|function| function.name == name) {
            let words = function.body.iter().filter(|token| token.is_word());
            next.extend(words.map(|token| token.text).filter(|word| reached.insert(word)));
        }
    }
}

/// A function's words, for comparing it with others.
fn words(item: &Item<'_>, with_spaces: bool) -> String {
    let kept = |token: &&scan::Token<'_>| {
        token.kind != Kind::Blank && (with_spaces || !SPACES.contains(&token.text))
    };
    item.tokens.iter().filter(kept).map(|token| token.text).collect::<Vec<_>>().join(" ")
}

fn put(item: &Item<'_>, left_out: bool, text: &mut String) {
    let tokens = &item.tokens;
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        let next = |offset: usize| tokens.get(at + offset).map_or("", |token| token.text);
        if left_out {
            text.extend(token.text.chars().filter(|c| *c == '\n'));
        } else if token.kind == Kind::Blank {
            text.push(' ');
            text.extend(token.text.chars().filter(|c| c.is_whitespace()));
        } else if token.is("[") && next(1) == "[" {
            // An attribute; `a[b[i]]` has a name between the brackets.
            while at < tokens.len() && !tokens[at].is("]") {
                text.extend(tokens[at].text.chars().filter(|c| *c == '\n'));
                at += 1;
            }
            at += 1;
        } else if token.is("static_cast") && !points(&tokens[at..]) {
            text.push_str("msl_static_cast");
        } else if token.kind == Kind::Number && scan::is_plain_float(token.text) {
            // MSL has no double: a plain number is a float.
            text.push_str(token.text);
            text.push('f');
        } else {
            text.push_str(token.text);
        }
        at += 1;
    }
}

/// Is this `static_cast<T *>` or `static_cast<T &>`?
fn points(tokens: &[scan::Token<'_>]) -> bool {
    let kind = tokens.iter().take_while(|token| !token.is(">"));
    kind.into_iter().any(|token| token.is("*") || token.is("&"))
}

/// The function that the runner calls for each thread.
fn put_call(function: &Function<'_>, symbol: &str, text: &mut String) -> Result<(), String> {
    let mut group_variables = 0;
    let mut values = Vec::new();
    for argument in &function.arguments {
        values.push(value(argument, &mut group_variables)?);
    }
    let values = values.join(",\n    ");
    let write = write!(
        text,
        "\nextern \"C\" __attribute__((visibility(\"default\"))) void {symbol}(const msl_thread *t) \
         {{\n  {}(\n    {values});\n}}",
        function.name
    );
    write.map_err(|error| error.to_string())
}

fn value(argument: &Argument<'_>, group_variables: &mut usize) -> Result<String, String> {
    let kind = argument.type_text();
    let memory = |from: String| match argument.has("&") {
        true => format!("*(__remove_reference_t({kind}) *){from}"),
        false => format!("({kind}){from}"),
    };
    let attribute = argument.attributes.first().copied().unwrap_or_default();
    Ok(match attribute {
        ("buffer", slot) => memory(format!("t->buffers[{slot}]")),
        ("threadgroup" | "", _) if argument.space() == Some("threadgroup") => {
            *group_variables += 1;
            memory(format!("t->shared[{}]", *group_variables - 1))
        }
        ("thread_position_in_grid", _) => format!("msl::in_grid<{kind}>(t)"),
        ("threads_per_grid", _) => format!("msl::of_grid<{kind}>(t)"),
        ("thread_position_in_threadgroup", _) => format!("msl::position<{kind}>(t->local)"),
        ("threadgroup_position_in_grid", _) => format!("msl::position<{kind}>(t->group)"),
        ("threadgroups_per_grid", _) => format!("msl::position<{kind}>(t->groups)"),
        ("threads_per_threadgroup", _) => format!("msl::position<{kind}>(t->size)"),
        ("thread_index_in_threadgroup", _) => "t->index".into(),
        ("thread_index_in_simdgroup", _) => "t->index % 32".into(),
        ("simdgroup_index_in_threadgroup", _) => "t->index / 32".into(),
        ("simdgroups_per_threadgroup", _) => "(msl::threads(t) + 31) / 32".into(),
        ("threads_per_simdgroup", _) => "32".into(),
        _ => return Err(format!("argument `{}` is not understood", argument.text())),
    })
}
