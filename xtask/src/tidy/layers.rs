//! Machinery knows operations only through `dyn Op`: no import of an op, no op's name in a string.

use std::collections::BTreeSet;

use super::Source;
use crate::docs;

const LIBRARY: &str = "crates/wootz/src/";
const MACHINERY: [&str; 9] = [
    "array/",
    "eval/",
    "autograd/",
    "cpu/",
    "gpu/",
    "op.rs",
    "buffer.rs",
    "device.rs",
    "encoder.rs",
];

/// (file or folder, ops it may call, why)
const ALLOWED: [(&str, Option<&[&str]>, &str); 6] = [
    (
        "autograd/",
        Some(&["add", "broadcast_to", "ones_like", "to_device", "zeros_like"]),
        "cotangents of several users are summed; the first is ones, an unused one zeros; what a batch shares is spread",
    ),
    ("array/operators.rs", None, "operators forward to ops"),
    ("array/construct.rs", None, "constructors forward to ops"),
    ("array/display.rs", Some(&["astype"]), "narrow numbers are printed as wide ones"),
    ("array/methods.rs", None, "methods forward to ops"),
    (
        "array/mod.rs",
        Some(&["copy", "to_device", "identity_op"]),
        "`contiguous`, `to` and tracing make nodes",
    ),
];

/// Adds the breaches of this rule.
pub(super) fn check(files: &[Source], breaches: &mut Vec<String>) {
    let ops = names(files);
    for file in files {
        let Some(inner) = file.path.strip_prefix(LIBRARY) else { continue };
        // Tests of the machinery may name what they test with.
        let test = inner.ends_with("tests.rs");
        if test || file.extension() != "rs" || !MACHINERY.iter().any(|m| inner.starts_with(m)) {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(path, ..)| inner.starts_with(path)).map(|a| a.1);
        if allowed == Some(None) {
            continue;
        }
        let may_call = allowed.flatten().unwrap_or_default();
        for (number, line) in file.code() {
            for op in imports(line).filter(|op| !may_call.contains(op)) {
                breaches.push(format!("{}:{number}: machinery uses ops::{op}", file.path));
            }
            for op in literals(line).filter(|l| ops.contains(*l)) {
                breaches.push(format!("{}:{number}: machinery names the op \"{op}\"", file.path));
            }
        }
    }
}

/// Names of ops: the folders under ops/ and the rows of the generated table.
fn names(files: &[Source]) -> BTreeSet<String> {
    let folders = files.iter().filter_map(|f| {
        let inner = f.path.strip_prefix(LIBRARY)?.strip_prefix("ops/")?;
        Some(inner.split_once('/')?.0.to_string())
    });
    let table = std::fs::read_to_string(docs::committed()).unwrap_or_default();
    let rows = table.lines().filter_map(|line| {
        let cell = line.strip_prefix('|')?.split('|').next()?.trim().trim_matches('`');
        let named = !cell.is_empty() && cell != "op" && !cell.starts_with('-');
        named.then(|| cell.to_string())
    });
    folders.chain(rows.collect::<Vec<_>>()).collect()
}

/// What follows `ops::` on a line, the standard library's `std::ops` apart.
fn imports(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("ops::").filter_map(move |(at, text)| {
        let before = &line[..at];
        let own = !before.ends_with("std::")
            && !before.ends_with("core::")
            && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &line[at + text.len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        own.then(|| &rest[..end])
    })
}

fn literals(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> usize {
        let op = Source { path: format!("{LIBRARY}ops/softmax/mod.rs"), text: String::new() };
        let file = Source { path: format!("{LIBRARY}{path}"), text: text.into() };
        let mut found = Vec::new();
        check(&[op, file], &mut found);
        found.len()
    }

    #[test]
    fn machinery_may_not_know_an_op() {
        assert_eq!(breaches("eval/order.rs", "use crate::ops::softmax;"), 1);
        assert_eq!(breaches("gpu/kernel.rs", "if name == \"softmax\" {"), 1);
        assert_eq!(breaches("eval/order.rs", "use std::ops::Range; // ops::softmax"), 0);
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::ops::softmax;";
        assert_eq!(breaches("eval/order.rs", tests), 0);
        let below = "#[cfg(test)]\nmod tests;\nuse crate::ops::softmax;";
        assert_eq!(breaches("eval/order.rs", below), 1);
    }

    #[test]
    fn the_exceptions_are_no_wider_than_their_reason() {
        assert_eq!(breaches("autograd/vjp.rs", "ops::add(&a, &b)"), 0);
        assert_eq!(breaches("autograd/vjp.rs", "ops::multiply(&a, &b)"), 1);
        assert_eq!(breaches("array/operators.rs", "ops::multiply(&a, &b)"), 0);
        assert_eq!(breaches("ops/softmax/cpu.rs", "ops::multiply(&a, &b)"), 0);
    }
}
