//! Mistakes that clang does not see because it is not Apple's compiler.

use std::collections::{HashMap, HashSet};

use crate::scan::{Argument, Function, Item, Kind, SPACES, Token};

/// Words that C++ has and MSL has not, or that kernels must not use.
const FORBIDDEN: [&str; 14] = [
    "double",
    "goto",
    "try",
    "throw",
    "catch",
    "virtual",
    "dynamic_cast",
    "typeid",
    "thread_local",
    "new",
    "delete",
    "long_double",
    "asm",
    "wchar_t",
];

/// Attributes whose argument is one number.
const SCALARS: [&str; 5] = [
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
];

/// Attributes whose argument has as many dimensions as the kernel chooses, the same for all.
const POSITIONS: [&str; 6] = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_threadgroup",
    "threads_per_grid",
];

/// Everything wrong with a file, each with its line.
pub(crate) fn lint(items: &[Item<'_>], entry: &str) -> Vec<String> {
    let mut found = Vec::new();
    for item in items {
        for token in &item.tokens {
            if token.kind == Kind::Word && FORBIDDEN.contains(&token.text) {
                found.push(format!("line {}: MSL has no `{}`", token.line, token.text));
            }
        }
        if let Some(function) = &item.function {
            lint_function(function, function.name == entry, &mut found);
        }
    }
    found.extend(recursion(items));
    found
}

fn lint_function(function: &Function<'_>, is_entry: bool, found: &mut Vec<String>) {
    let (name, line) = (function.name, function.line);
    for argument in &function.arguments {
        if argument.is_pointer() && argument.space().is_none() {
            let text = argument.text();
            found.push(format!("line {line}: `{text}` of {name} needs an address space"));
        }
    }
    if is_entry {
        lint_entry(function, found);
    }
    for window in function.body.windows(4) {
        if let [open, kind, close, after] = window
            && open.is("(")
            && close.is(")")
            && is_vector(kind.text)
            && matches!(after.kind, Kind::Word | Kind::Number)
        {
            // clang would take the bits of a vector where Metal converts.
            found.push(format!("line {}: write `{}(..)`, no cast", kind.line, kind.text));
        }
    }
    for statement in function.body.split(|token| matches!(token.text, ";" | "{" | "}")) {
        let Some(first) = statement.first() else { continue };
        let line = first.line;
        if first.is("threadgroup") && !statement.iter().any(|token| matches!(token.text, "*" | "&"))
        {
            found.push(format!(
                "line {line}: a threadgroup variable is an argument of the kernel here"
            ));
        } else if declares_bare_pointer(statement) {
            found.push(format!("line {line}: a pointer needs an address space"));
        }
    }
}

fn is_vector(name: &str) -> bool {
    let scalar = name.strip_suffix(['2', '3', '4']).unwrap_or_default();
    let scalars = ["float", "half", "bool", "char", "short", "int", "long"];
    scalars.contains(&scalar.strip_prefix('u').unwrap_or(scalar))
}

/// `T *p`, `T const& r = ..` and the like at the beginning of a statement.
fn declares_bare_pointer(statement: &[Token<'_>]) -> bool {
    let mut rest = statement.iter().peekable();
    while rest.next_if(|token| token.is("const")).is_some() {}
    if !rest.next_if(|token| token.is_word() && !SPACES.contains(&token.text)).is_some_and(is_type)
    {
        return false;
    }
    while rest.next_if(|token| token.is("::") || token.is("const")).is_some() {
        rest.next_if(|token| token.is_word());
    }
    rest.next_if(|token| token.is("*") || token.is("&")).is_some()
        && rest.next().is_some_and(Token::is_word)
        && rest.next().is_none_or(|token| token.is("="))
}

fn is_type(token: &Token<'_>) -> bool {
    !matches!(token.text, "return" | "case" | "else" | "do")
}

fn lint_entry(function: &Function<'_>, found: &mut Vec<String>) {
    let mut problem = |text: String| found.push(format!("line {}: {text}", function.line));
    let mut buffers = HashSet::new();
    let mut dimensions = HashSet::new();
    for argument in &function.arguments {
        let text = argument.text();
        for &(name, number) in &argument.attributes {
            match name {
                "buffer" => {
                    if !buffers.insert(number) {
                        problem(format!("buffer({number}) is used twice"));
                    }
                    if !argument.is_pointer()
                        || !matches!(argument.space(), Some("device" | "constant"))
                    {
                        problem(format!(
                            "buffer argument `{text}` is no device or constant pointer"
                        ));
                    }
                }
                "threadgroup" => {}
                _ if SCALARS.contains(&name) || POSITIONS.contains(&name) => {
                    match unsigned_width(argument) {
                        None => problem(format!("[[{name}]] must be unsigned: `{text}`")),
                        Some(1) if SCALARS.contains(&name) => {}
                        Some(_) if SCALARS.contains(&name) => {
                            problem(format!("[[{name}]] must be one number: `{text}`"));
                        }
                        Some(width) => _ = dimensions.insert(width),
                    }
                }
                _ => problem(format!("unknown attribute [[{name}]]")),
            }
        }
        if argument.attributes.is_empty() && argument.space() != Some("threadgroup") {
            problem(format!("argument `{text}` has no attribute"));
        }
    }
    if dimensions.len() > 1 {
        problem("positions must have the same number of dimensions".into());
    }
}

/// The components of an unsigned scalar or vector type.
fn unsigned_width(argument: &Argument<'_>) -> Option<u32> {
    let text = argument.type_text();
    let name = text.rsplit("::").next()?.trim();
    let rest = name.strip_prefix("uint").or_else(|| name.strip_prefix("ushort"))?;
    match rest {
        "" => Some(1),
        "2" => Some(2),
        "3" => Some(3),
        _ => None,
    }
}

/// A function that comes back to itself.
fn recursion(items: &[Item<'_>]) -> Vec<String> {
    let functions = items.iter().filter_map(|item| item.function.as_ref()).collect::<Vec<_>>();
    let mut calls: HashMap<&str, HashSet<&str>> = HashMap::new();
    for function in &functions {
        let called = function.body.windows(2).filter(|pair| pair[0].is_word() && pair[1].is("("));
        calls.entry(function.name).or_default().extend(called.map(|pair| pair[0].text));
    }
    let returns_to = |name: &str| {
        let mut seen = HashSet::new();
        let mut next = vec![name];
        while let Some(function) = next.pop() {
            for &called in calls.get(function).into_iter().flatten() {
                if called == name {
                    return true;
                }
                if calls.contains_key(called) && seen.insert(called) {
                    next.push(called);
                }
            }
        }
        false
    };
    let recursive = functions.iter().filter(|function| returns_to(function.name));
    recursive.map(|f| format!("line {}: {} calls itself", f.line, f.name)).collect()
}
