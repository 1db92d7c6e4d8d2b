//! What was noticed, as a table, and its place in the documentation.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::Mutation;
use super::harness::Findings;
use crate::run::root;

/// What became of a mistake.
pub(super) struct Row<'a> {
    pub(super) mutation: &'a Mutation,
    pub(super) driver: Findings,
    pub(super) metal: Findings,
}

impl Row<'_> {
    /// Whether both looked at it; a process that the mistake ended did.
    pub(super) fn ran(&self) -> bool {
        let ran = |findings: &Findings| findings.checks > 0 || findings.ended.is_some();
        ran(&self.driver) && ran(&self.metal)
    }

    pub(super) fn caught(&self) -> bool {
        caught(&self.driver) || self.caught_as_metal()
    }

    pub(super) fn caught_as_metal(&self) -> bool {
        caught(&self.metal)
    }

    /// A line of the table.
    pub(super) fn line(&self) -> String {
        let Mutation { name, op, what, .. } = self.mutation;
        let (driver, metal) = (cell(&self.driver), cell(&self.metal));
        format!("| `{name}`: {what} | {op} | {driver} | {metal} |")
    }
}

fn caught(findings: &Findings) -> bool {
    findings.ended.is_some() || !findings.failures.is_empty()
}

/// What noticed it. Not how often: that differs from run to run where threads race.
fn cell(findings: &Findings) -> String {
    if let Some(ended) = &findings.ended {
        return format!("**caught**: the process ended: {ended}");
    }
    let kinds: BTreeSet<String> =
        findings.failures.iter().map(|(place, message)| kind(place, message)).collect();
    match kinds.is_empty() {
        true => "missed".into(),
        false => format!("**caught**: {}", Vec::from_iter(kinds).join("; ")),
    }
}

/// The check that failed, and how if that says more than that values are wrong.
fn kind(place: &str, message: &str) -> String {
    // `case 'a label', float32 as Metal, fast-math, Contiguous`; cases and dtypes are many.
    let check = place.split_once("', ").map_or(place, |(_, check)| check);
    let check = match check.split_once(' ') {
        Some((_, rest)) if rest.starts_with("on ") || rest.starts_with("as ") => rest,
        _ => check,
    };
    if check.starts_with("gradient") {
        return "gradients".into();
    }
    let Some(column) = check.strip_prefix("as Metal, ") else {
        // Layouts and special values are many, too.
        return match check.split_once(" with [") {
            Some((device, _)) => format!("{device} with NaN or infinities"),
            None => check.split(", ").next().unwrap_or(check).to_string(),
        };
    };
    let column = column.split(", ").next().unwrap_or(column);
    let found = FOUND.iter().find(|(text, _)| message.contains(text));
    format!("{column}: {}", found.map_or("wrong values", |(_, words)| words))
}

/// Parts of messages of `metal-sim` and of the harness's Metal part, and what they mean.
const FOUND: &[(&str, &str)] = &[
    ("OutOfBounds in launch", "out of bounds"),
    ("DivergentBarrier in launch", "divergent barrier"),
    ("PartialSimdgroup in launch", "part of a simdgroup"),
    ("Race in launch", "race"),
    ("Timeout in launch", "no end"),
    ("Crash in launch", "crash"),
    ("Launch in launch", "launch refused"),
    ("other bits when threads run in the order", "depends on the order of threads"),
];

/// The table, and what it comes to.
pub(super) fn text(rows: &[Row<'_>], before: &[(Findings, Findings)]) -> String {
    let mut text =
        String::from("| mistake | operation | software driver | metal-sim |\n|---|---|---|---|\n");
    rows.iter().for_each(|row| text += &format!("{}\n", row.line()));
    let count = |caught: &dyn Fn(&Row<'_>) -> bool| rows.iter().filter(|row| caught(row)).count();
    let (driver, metal) = (count(&|row| caught(&row.driver)), count(&|row| caught(&row.metal)));
    text += &format!(
        "\nOf {} mistakes the software driver alone shows {driver}, metal-sim {metal}, both \
         together {}.\n",
        rows.len(),
        count(&|row| row.caught()),
    );
    let (mut checks, mut failures) = ([0, 0], [0, 0]);
    for (driver, metal) in before {
        for (i, findings) in [driver, metal].into_iter().enumerate() {
            checks[i] += findings.checks;
            failures[i] += findings.failures.len();
        }
    }
    text += &format!(
        "Without mistakes, of the same operations: {} failures of {} checks with the driver, {} of \
         {} as Metal.\n",
        failures[0], checks[0], failures[1], checks[1],
    );
    text
}

const BEGIN: &str = "<!-- mutate: begin -->\n";
const END: &str = "<!-- mutate: end -->";

/// Puts the table between the marks in `docs/metal.md`.
pub(super) fn write(text: &str) -> Result<()> {
    let path = root().join("docs/metal.md");
    let page = std::fs::read_to_string(&path).context("docs/metal.md")?;
    std::fs::write(&path, placed(&page, text).context("docs/metal.md has no marks for this")?)?;
    println!("docs/metal.md is up to date");
    Ok(())
}

fn placed(page: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{text}{END}{after}"))
}

#[test]
fn kinds_are_short() {
    let of = |place: &str| kind(&format!("case '[2, 3] over 0', {place}"), "element 0 is 1");
    assert_eq!(of("float32 on gpu against cpu"), "on gpu against cpu");
    assert_eq!(of("float32 on gpu, Transposed"), "on gpu");
    assert_eq!(of("float32 on gpu with [inf, -inf]"), "on gpu with NaN or infinities");
    assert_eq!(of("gradient in float16 on gpu against float64"), "gradients");
    assert_eq!(of("float16 as Metal, fast-math, with [NaN]"), "fast-math: wrong values");
    let race = kind("case 'a', uint8 as Metal, watched, Contiguous", "x: Race in launch 0 (k)");
    assert_eq!(race, "watched: race");
}

#[test]
fn the_table_takes_the_place_of_the_last() {
    let page = format!("# Metal\n{BEGIN}old\n{END}\nmore\n");
    assert_eq!(placed(&page, "new\n").unwrap(), format!("# Metal\n{BEGIN}new\n{END}\nmore\n"));
    assert_eq!(placed("# Metal\n", "new\n"), None);
}
