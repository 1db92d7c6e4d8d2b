//! What ran, as the table `docs/ops.md`, and what failed, as text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use wootz::DType;
use wootz::op::{Gradient, Tolerance};

use super::gpu::Work;
use super::{Failure, Log, Subject};

/// What ran for one operation.
#[derive(Default)]
struct Row {
    cases: usize,
    checks: usize,
    dtypes: BTreeSet<DType>,
    work: Option<Work>,
    gradient: BTreeSet<&'static str>,
    reference: bool,
    exceptions: BTreeSet<String>,
}

/// Everything that ran.
#[derive(Default)]
pub(crate) struct Report {
    rows: BTreeMap<&'static str, Row>,
    pub(crate) failures: Vec<Failure>,
}

impl Report {
    pub(crate) fn subject(&mut self, subject: &Subject) {
        let row = self.rows.entry(subject.op).or_default();
        let case = &subject.case;
        row.cases += 1;
        row.dtypes.extend(case.dtypes);
        row.reference |= subject.reference.is_some();
        row.gradient.insert(match case.gradient {
            _ if !case.dtypes.iter().any(|dtype| dtype.is_float()) => "",
            Gradient::Checked => "yes",
            Gradient::Zero => "zero",
            Gradient::None => "none",
        });
        if let Tolerance::Because(factor, reason) = case.tolerance {
            row.exceptions.insert(format!("×{factor}: {reason}"));
        }
    }

    pub(crate) fn add(&mut self, log: Log, work: Option<Work>) {
        let row = self.rows.entry(log.op).or_default();
        row.checks += log.checks;
        row.work = row.work.max(work);
        self.failures.extend(log.failures);
    }

    /// The checks that ran.
    pub(crate) fn checks(&self) -> usize {
        self.rows.values().map(|row| row.checks).sum()
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "# Operations\n\n\
             Written by the test harness from what ran (`cargo xtask docs` copies it here).\n\n\
             - GPU: `kernel`, the operation has a kernel of its own; `composed`, it is made of other\n  \
             operations; `view`, no element moves; `host`, bytes went through the host.\n\
             - Gradient: `yes`, checked in float64 against finite differences and in every float\n  \
             dtype on both devices; `zero`, piecewise constant; `none`, asking is an error.\n\
             - Reference: compared with naive loops in float64 that share no code with the kernels.\n\n\
             | Operation | GPU | Dtypes | Gradient | Reference | Cases | Checks |\n\
             |---|---|---|---|---|---|---|\n",
        );
        for (name, row) in &self.rows {
            let work = match row.work {
                Some(Work::View) => "view",
                Some(Work::Kernel) => "kernel",
                Some(Work::Composed) => "composed",
                Some(Work::Host) => "host",
                None => "—",
            };
            let gradient: Vec<&str> =
                row.gradient.iter().copied().filter(|text| !text.is_empty()).collect();
            let gradient =
                if gradient.is_empty() { "—".to_string() } else { gradient.join(", ") };
            let _ = writeln!(
                text,
                "| {name} | {work} | {} | {gradient} | {} | {} | {} |",
                dtypes(&row.dtypes),
                if row.reference { "yes" } else { "—" },
                row.cases,
                row.checks,
            );
        }
        let exceptions: Vec<_> =
            self.rows.iter().filter(|(_, row)| !row.exceptions.is_empty()).collect();
        if !exceptions.is_empty() {
            text.push_str("\n## Wider tolerances\n\n");
            for (name, row) in exceptions {
                for exception in &row.exceptions {
                    let _ = writeln!(text, "- {name}: {exception}");
                }
            }
        }
        text
    }

    /// The failures, at most some for each operation.
    pub(crate) fn failures_text(&self, most: usize) -> String {
        let mut by_op: BTreeMap<&str, Vec<&Failure>> = BTreeMap::new();
        for failure in &self.failures {
            by_op.entry(failure.op).or_default().push(failure);
        }
        let mut text = String::new();
        for (op, failures) in by_op {
            let _ = writeln!(text, "\n{op}: {} failures", failures.len());
            for Failure { place, message, .. } in failures.iter().take(most) {
                let _ = writeln!(text, "  {place}: {message}");
            }
        }
        text
    }
}

/// Dtypes in words: whole families by their name.
fn dtypes(set: &BTreeSet<DType>) -> String {
    let mut left = set.clone();
    let mut words = Vec::new();
    let families = [
        ("every", wootz::op::EVERY),
        ("integers", wootz::op::INTEGERS),
        ("floats", wootz::op::FLOATS),
    ];
    for (word, family) in families {
        if family.iter().all(|dtype| left.contains(dtype)) {
            words.push(word.to_string());
            left.retain(|dtype| !family.contains(dtype));
        }
    }
    words.extend(left.iter().map(|dtype| dtype.to_string()));
    words.join(", ")
}
