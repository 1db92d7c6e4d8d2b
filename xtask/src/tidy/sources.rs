//! Rules about single files: length, names, unstable features, `unsafe`, workplace words.

use super::Source;

const LONGEST: usize = 800;
// `unsafe` belongs where memory is handled; everything else is safe Rust.
const UNSAFE: [&str; 3] =
    ["crates/wootz/src/cpu/", "crates/wootz/src/gpu/", "crates/wootz/src/io/"];

/// Adds the breaches of these rules.
pub(super) fn check(files: &[Source], breaches: &mut Vec<String>) {
    for file in files {
        if matches!(file.extension(), "rs" | "wgsl" | "py") {
            length(file, breaches);
            names(file, breaches);
        }
        if file.extension() == "rs" {
            unstable(file, breaches);
            memory(file, breaches);
        }
        workplace(file, breaches);
    }
}

fn length(file: &Source, breaches: &mut Vec<String>) {
    let lines = file.text.lines().count();
    if lines > LONGEST {
        breaches.push(format!("{}: {lines} lines, the limit is {LONGEST}", file.path));
    }
}

/// Names say how a thing differs, not that it came later.
fn names(file: &Source, breaches: &mut Vec<String>) {
    let stem = file.path.rsplit('/').next().and_then(|n| n.split('.').next()).unwrap_or("");
    if tells_history(stem) {
        breaches.push(format!("{}: the file's name tells its history", file.path));
    }
    let keywords =
        ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "def", "class"];
    for (number, line) in file.text.lines().enumerate() {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        while let Some(word) = words.next() {
            if keywords.contains(&word)
                && let Some(name) = words.next().filter(|n| tells_history(n))
            {
                breaches.push(format!("{}:{}: `{name}` tells its history", file.path, number + 1));
            }
        }
    }
}

fn tells_history(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.len() < name.len() && stem.ends_with("_v")
        || name.ends_with("_new")
        || name.ends_with("_fast")
}

fn unstable(file: &Source, breaches: &mut Vec<String>) {
    for (number, line) in file.code() {
        if line.trim_start().starts_with("#![feature") {
            breaches.push(format!("{}:{number}: unstable feature", file.path));
        }
    }
}

fn memory(file: &Source, breaches: &mut Vec<String>) {
    let product = file.path.starts_with("crates/wootz") && file.path.contains("/src/");
    if !product || UNSAFE.iter().any(|folder| file.path.starts_with(folder)) {
        return;
    }
    for (number, line) in file.code() {
        let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if words.any(|w| w == "unsafe") {
            breaches
                .push(format!("{}:{number}: unsafe outside src/cpu, src/gpu, src/io", file.path));
        }
    }
}

/// Words that belong to the place where the code was written, not to the product.
fn workplace(file: &Source, breaches: &mut Vec<String>) {
    if file.path.starts_with("goldens/") || file.path == "Cargo.lock" {
        return;
    }
    // Joined at run time so that this file does not accuse itself.
    let paths = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat()];
    let outside = ["../sha", "red"].concat();
    let word = ["age", "nt"].concat();
    for (number, line) in file.text.lines().enumerate() {
        let found = paths.iter().any(|p| line.contains(p.as_str()))
            || file.path != ".ci/run" && line.contains(&outside)
            || line
                .to_lowercase()
                .split(|c: char| !c.is_alphanumeric())
                .any(|w| w.strip_prefix("sub").unwrap_or(w).trim_end_matches('s') == word);
        if found {
            breaches.push(format!("{}:{}: a word of the workplace", file.path, number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> usize {
        let mut found = Vec::new();
        check(&[Source { path: path.into(), text: text.into() }], &mut found);
        found.len()
    }

    #[test]
    fn names_that_tell_history_are_found() {
        let text = ["fn matmul_", "v2() {}\nstruct Row_", "new;\nmod add_", "fast;"].concat();
        assert_eq!(breaches("a.rs", &text), 3);
        assert_eq!(breaches("softmax_v3.wgsl", ""), 1);
        assert_eq!(breaches("a.rs", "fn new() {}\nfn v2() {}\nfn rev_v() {}\nfn renew() {}"), 0);
    }

    #[test]
    fn unsafe_is_found_only_where_it_does_not_belong() {
        assert_eq!(breaches("crates/wootz/src/eval/a.rs", "unsafe { f() }"), 1);
        assert_eq!(breaches("crates/wootz/src/cpu/a.rs", "unsafe { f() }"), 0);
        assert_eq!(breaches("crates/wootz/src/eval/a.rs", "// unsafe\n#![deny(unsafe_code)]"), 0);
    }

    #[test]
    fn long_files_and_unstable_features_are_found() {
        assert_eq!(breaches("a.rs", &"\n".repeat(801)), 1);
        assert_eq!(breaches("a.rs", &"\n".repeat(800)), 0);
        assert_eq!(breaches("a.rs", "#![feature(test)]"), 1);
    }

    #[test]
    fn words_of_the_workplace_are_found() {
        assert_eq!(breaches("a.md", &["a suba", "gent wrote"].concat()), 1);
        assert_eq!(breaches("a.md", &["see /wo", "rk/x"].concat()), 1);
        assert_eq!(breaches("a.md", "a reagent, the workgroup/size, and network/x"), 0);
    }
}
