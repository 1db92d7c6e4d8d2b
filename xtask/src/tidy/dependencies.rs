//! Rules about dependencies, from `cargo metadata`: no C in what `wootz` builds, known licences only.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::run::{capture, cargo};

const LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Crates under another licence that come with downloads of the program, which can be built without them: two are
/// free file by file and used as they are, one is the list of the web's root certificates.
const OF_DOWNLOADS: [(&str, &str); 3] = [
    ("colored", "MPL-2.0"),
    ("option-ext", "MPL-2.0"),
    ("webpki-root-certs", "CDLA-Permissive-2.0"),
];
/// Crates that build C or look for it.
const BUILDERS: [&str; 5] = ["bindgen", "cc", "cmake", "pkg-config", "vcpkg"];
/// Crates whose `links` key only keeps two versions of themselves apart.
const LINKS_NOTHING: [&str; 3] = ["objc2", "rayon-core", "wasm-bindgen-shared"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    links: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// Nothing for a normal dependency.
    kind: Option<String>,
}

/// Adds the breaches of these rules.
pub(super) fn check(breaches: &mut Vec<String>) -> Result<()> {
    let text = capture(&mut cargo(&["metadata", "--format-version", "1", "--all-features"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
    licences(&metadata, breaches);
    compiled_c(&metadata, "wootz", breaches);
    compiled_c(&metadata, "wootz-lm", breaches);
    Ok(())
}

fn licences(metadata: &Metadata, breaches: &mut Vec<String>) {
    for p in &metadata.packages {
        let licence = p.license.as_deref().unwrap_or("none stated");
        if !allowed(licence) && !OF_DOWNLOADS.contains(&(p.name.as_str(), licence)) {
            breaches.push(format!("dependency {}: licence {licence} is not allowed", p.name));
        }
    }
}

fn compiled_c(metadata: &Metadata, name: &str, breaches: &mut Vec<String>) {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|p| (p.id.as_str(), p)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut todo: Vec<&str> =
        metadata.packages.iter().filter(|p| p.name == name).map(|p| p.id.as_str()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else { continue };
        if !seen.insert(id) {
            continue;
        }
        if let Some(links) = &package.links
            && !LINKS_NOTHING.contains(&package.name.as_str())
        {
            breaches.push(format!("dependency {} of {name} links {links}", package.name));
        }
        for edge in &node.deps {
            let of = |kind: Option<&str>| edge.dep_kinds.iter().any(|k| k.kind.as_deref() == kind);
            if of(None) {
                todo.push(&edge.pkg);
            }
            let builder = packages.get(edge.pkg.as_str()).map_or("", |p| p.name.as_str());
            if of(Some("build")) && BUILDERS.contains(&builder) {
                breaches
                    .push(format!("dependency {} of {name} builds C with {builder}", package.name));
            }
        }
    }
}

/// Whether an SPDX expression can be satisfied with allowed licences only.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    either(&mut tokens) && tokens.next().is_none()
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(tokens: &mut Tokens<'_>) -> bool {
    let mut good = both(tokens);
    while tokens.next_if_eq(&"OR").is_some() {
        good |= both(tokens);
    }
    good
}

fn both(tokens: &mut Tokens<'_>) -> bool {
    let mut good = single(tokens);
    while tokens.next_if_eq(&"AND").is_some() {
        good &= single(tokens);
    }
    good
}

fn single(tokens: &mut Tokens<'_>) -> bool {
    if tokens.next_if_eq(&"(").is_some() {
        return either(tokens) & tokens.next_if_eq(&")").is_some();
    }
    let good = tokens.next().is_some_and(|name| LICENCES.contains(&name));
    // An exception only gives more rights.
    if tokens.next_if_eq(&"WITH").is_some() {
        tokens.next();
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_are_understood() {
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND Zlib",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(allowed(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND MPL-2.0", "", "(MIT", "none stated"] {
            assert!(!allowed(bad), "{bad}");
        }
    }

    #[test]
    fn c_is_found_below_a_normal_dependency_and_not_below_a_development_one() {
        let text = r#"{"packages": [
            {"id": "w", "name": "wootz"}, {"id": "a", "name": "a"}, {"id": "c", "name": "cc"},
            {"id": "z", "name": "z-sys", "links": "z"}, {"id": "d", "name": "d", "links": "d"}],
          "resolve": {"nodes": [
            {"id": "w", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]},
                                 {"pkg": "d", "dep_kinds": [{"kind": "dev"}]}]},
            {"id": "a", "deps": [{"pkg": "c", "dep_kinds": [{"kind": "build"}]},
                                 {"pkg": "z", "dep_kinds": [{"kind": null}]}]},
            {"id": "z", "deps": []}, {"id": "d", "deps": []}, {"id": "c", "deps": []}]}}"#;
        let metadata: Metadata = serde_json::from_str(text).expect("metadata");
        let mut found = Vec::new();
        compiled_c(&metadata, "wootz", &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
