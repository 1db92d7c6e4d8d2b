//! `cargo xtask mutate`: plants the mistakes of `xtask/mutations` in a copy of the project and
//! tells which of them the test harness notices, with the software driver and as Metal.
//!
//! All are planted at once, each in another operation, so that two builds are enough: one of the
//! copy as it is, whose failures do not count, and one with the mistakes.

mod copy;
mod harness;
mod report;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::run::root;
use harness::{Findings, Harness};
use report::Row;

/// Options of `mutate`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Tell the mistakes and do nothing
    #[arg(long)]
    list: bool,
    /// Plant only these
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
}

/// A mistake, as its file describes it: what it is in the first line, then `op: NAME`, maybe
/// `without: TEXT` (checks with this in their place also run kernels of other mistakes and do not
/// count) and `test: FILE NAME` (a test that should notice it beside the harness), then a patch.
#[derive(Clone, Debug, Default, PartialEq)]
struct Mutation {
    name: String,
    path: PathBuf,
    what: String,
    op: String,
    without: Option<String>,
    test: Option<(String, String)>,
}

/// How many may remain unnoticed.
const MISSED: usize = 1;

/// Plants, runs, reports.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = mutations()?;
    let mut chosen = all.clone();
    if !options.only.is_empty() {
        chosen.retain(|mutation| options.only.contains(&mutation.name));
        ensure!(chosen.len() == options.only.len(), "there is no such mistake: see --list");
    }
    if options.list {
        for Mutation { name, what, op, .. } in &chosen {
            println!("{name:<31}{op:<26}{what}");
        }
        return Ok(());
    }
    let tree = copy::make()?;
    chosen.iter().try_for_each(|mutation| copy::check(&tree, mutation))?;
    println!("== as it is");
    let harness = Harness::build(&tree, &chosen)?;
    let mut before = Vec::new();
    for mutation in &chosen {
        let (driver, metal) = (harness.driver(mutation)?, harness.metal(mutation)?);
        for (place, findings) in [("the driver", &driver), ("metal-sim", &metal)] {
            let ran = findings.checks > 0 && findings.ended.is_none();
            ensure!(ran, "{} did not run with {place}: {findings:?}", mutation.op);
        }
        println!("{}: {}; as Metal: {}", mutation.op, driver.summary(), metal.summary());
        before.push((driver, metal));
    }
    println!("== with mistakes");
    chosen.iter().try_for_each(|mutation| copy::plant(&tree, mutation))?;
    let harness = Harness::build(&tree, &chosen)?;
    let mut rows = Vec::new();
    for (mutation, (driver, metal)) in chosen.iter().zip(&before) {
        let row = Row {
            mutation,
            driver: harness.driver(mutation)?.beyond(driver),
            metal: harness.metal(mutation)?.beyond(metal),
        };
        println!("{}", row.line());
        rows.push(row);
    }
    let text = report::text(&rows, &before);
    println!("\n{text}");
    if options.only.is_empty() {
        report::write(&text)?;
    }
    verdict(&rows, &before)
}

fn verdict(rows: &[Row<'_>], before: &[(Findings, Findings)]) -> Result<()> {
    let silent: Vec<&str> =
        rows.iter().filter(|row| !row.ran()).map(|row| &*row.mutation.op).collect();
    ensure!(silent.is_empty(), "not run: {}", silent.join(", "));
    for (place, caught) in [
        ("at all", rows.iter().map(Row::caught).collect::<Vec<_>>()),
        ("as Metal", rows.iter().map(Row::caught_as_metal).collect()),
    ] {
        let missed: Vec<&str> = (rows.iter().zip(caught))
            .filter(|(_, caught)| !caught)
            .map(|(row, _)| &*row.mutation.name)
            .collect();
        if missed.len() > MISSED {
            bail!("{} mistakes were not noticed {place}: {}", missed.len(), missed.join(", "));
        }
    }
    let both =
        |(driver, metal): &(Findings, Findings)| driver.failures.len() + metal.failures.len();
    let failures: usize = before.iter().map(both).sum();
    ensure!(failures == 0, "{failures} failures without any mistake");
    Ok(())
}

/// All mistakes, by name; each belongs to an operation of its own.
fn mutations() -> Result<Vec<Mutation>> {
    let folder = root().join("xtask/mutations");
    let mut paths = std::fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    let mut mutations: Vec<Mutation> = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let mutation = Mutation { path: path.clone(), ..parse(&path.to_string_lossy(), &text)? };
        if let Some(other) = mutations.iter().find(|other| other.op == mutation.op) {
            bail!("{} and {} are both in {}", other.name, mutation.name, mutation.op);
        }
        mutations.push(mutation);
    }
    Ok(mutations)
}

fn parse(path: &str, text: &str) -> Result<Mutation> {
    let mut mutation = Mutation::default();
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    mutation.name = file.trim_end_matches(".patch").to_string();
    let mut lines = text.lines();
    mutation.what = lines.next().unwrap_or_default().to_string();
    for line in lines.take_while(|line| !line.is_empty()) {
        let (key, value) = line.split_once(": ").with_context(|| format!("{path}: {line}"))?;
        match key {
            "op" => mutation.op = value.to_string(),
            "without" => mutation.without = Some(value.to_string()),
            "test" => {
                let (file, name) =
                    value.split_once(' ').with_context(|| format!("{path}: {line}"))?;
                mutation.test = Some((file.to_string(), name.to_string()));
            }
            _ => bail!("{path}: {line}"),
        }
    }
    let starts = |line: &str| line.starts_with("op: ") || line.starts_with("diff ");
    let described = !mutation.what.is_empty() && !starts(&mutation.what);
    ensure!(described, "{path}: the first line must say what the mistake is");
    ensure!(!mutation.op.is_empty(), "{path}: a line `op: NAME` is missing");
    Ok(mutation)
}

#[test]
fn headers_are_read() {
    let text =
        "A slip.\nop: matmul\nwithout: gradient\ntest: explicit index\n\ndiff --git a/x b/x\n";
    let mutation = parse("xtask/mutations/slip.patch", text).unwrap();
    assert_eq!(mutation.name, "slip");
    assert_eq!((&*mutation.what, &*mutation.op), ("A slip.", "matmul"));
    assert_eq!(mutation.without.as_deref(), Some("gradient"));
    assert_eq!(mutation.test, Some(("explicit".into(), "index".into())));
    assert!(parse("x.patch", "A slip.\n\ndiff --git a/x b/x\n").is_err());
    assert!(parse("x.patch", "op: matmul\n\ndiff --git a/x b/x\n").is_err());
}

#[test]
fn every_mistake_can_be_planted() {
    let mutations = mutations().unwrap();
    assert!(mutations.len() >= 12);
    for mutation in &mutations {
        copy::check(&root(), mutation).unwrap();
    }
}
