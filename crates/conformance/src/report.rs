//! What came of a run: counts by operation and tier, and the reasons of failures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::Filter;
use crate::case::{Case, Class};
use crate::execute::Verdict;
use crate::known::Known;
use crate::tensor::{Kind, Tensors};

/// One case and its verdict.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case's id.
    pub id: String,
    /// Its operation.
    pub op: String,
    /// Its tier.
    pub tier: usize,
    /// How its outputs are compared.
    pub class: Class,
    /// Whether complex numbers occur.
    pub complex: bool,
    /// What came of it.
    pub verdict: Verdict,
}

impl Outcome {
    pub(crate) fn new(case: &Case, verdict: Verdict, tensors: &Tensors) -> Outcome {
        Outcome {
            id: case.id.clone(),
            op: case.op.clone(),
            tier: case.tier,
            class: case.class,
            complex: case.mentions(Kind::Complex64, tensors),
            verdict,
        }
    }

    /// Whether the call must be refused.
    fn error(&self) -> bool {
        self.class == Class::Error
    }

    /// The reason if the case counts as failed.
    pub fn failure(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Failed(why) => Some(why.clone()),
            Verdict::Unknown(what) => Some(format!("unknown: {what}")),
            Verdict::Passed | Verdict::NotCounted(_) => None,
        }
    }
}

/// Shares of groups of cases that must pass, in percent.
pub struct Figures<'a> {
    /// Of the tiers, from the first.
    pub tiers: &'a [f64],
    /// Of the cases that are compared in one way.
    pub classes: &'a [(Class, f64)],
    /// Of named sets of operations.
    pub sets: &'a [(String, f64)],
    /// Cases that do not count among those of a class.
    pub known: &'a Known,
}

/// All verdicts of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the folder.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Error cases pass only beside a normal case of their operation that passes: an operation
    /// that refuses everything is not right about what to refuse.
    pub(crate) fn new(mut outcomes: Vec<Outcome>) -> Report {
        let passes = |outcome: &&Outcome| !outcome.error() && outcome.verdict == Verdict::Passed;
        let works: BTreeSet<String> =
            outcomes.iter().filter(passes).map(|outcome| outcome.op.clone()).collect();
        for outcome in &mut outcomes {
            let alone = outcome.error() && !works.contains(&outcome.op);
            if alone && outcome.verdict == Verdict::Passed {
                let why = "refused, but no normal case of the operation passes";
                outcome.verdict = Verdict::Failed(why.into());
            }
        }
        Report { outcomes }
    }

    /// The table that is printed: operations that do not pass, or all of them, then the tiers.
    pub fn text(&self, all: bool, reasons: usize) -> String {
        let mut by_op: BTreeMap<(usize, &str), Counts> = BTreeMap::new();
        for outcome in &self.outcomes {
            by_op.entry((outcome.tier, &outcome.op)).or_default().add(outcome);
        }
        let mut text = String::new();
        let _ = writeln!(text, "{:<34} tier {}", "operation", Counts::HEADER);
        for ((tier, op), counts) in by_op.iter().filter(|(_, counts)| all || counts.bad() > 0) {
            let _ = writeln!(text, "{op:<34} {tier:>4} {}", counts.row());
        }
        let whole = by_op.values().filter(|counts| counts.bad() == 0).count();
        let _ = writeln!(text, "\n{whole} of {} operations pass all of their cases\n", by_op.len());
        let failures = self.outcomes.iter().filter_map(|o| Some((o, o.failure()?)));
        let mut first: BTreeMap<&str, Vec<(&Outcome, String)>> = BTreeMap::new();
        for (outcome, why) in failures.filter(|(o, _)| !matches!(o.verdict, Verdict::Unknown(_))) {
            first.entry(&outcome.op).or_default().push((outcome, why));
        }
        for (op, list) in first {
            for (outcome, why) in list.iter().take(reasons) {
                let _ = writeln!(text, "{} {op}: {}", outcome.id, shortened(why));
            }
        }
        let _ = writeln!(text, "\n{:<34}      {}", "tier", Counts::HEADER);
        for tier in [Some(1), Some(2), Some(3), None] {
            let counts = self.counts(|outcome| tier.is_none_or(|tier| tier == outcome.tier));
            let name = tier.map_or("all".into(), |tier| tier.to_string());
            let _ = writeln!(text, "{name:<34}      {}", counts.row());
        }
        for class in Class::ALL {
            let counts = self.counts(|outcome| outcome.class == class);
            if counts.counted() > 0 {
                let _ = writeln!(text, "{:<34}      {}", class.name(), counts.row());
            }
        }
        text
    }

    /// One object for each case.
    pub fn json(&self) -> Value {
        let case = |outcome: &Outcome| {
            let (result, reason) = match &outcome.verdict {
                Verdict::Passed => ("passed", None),
                Verdict::Failed(why) => ("failed", Some(why)),
                Verdict::Unknown(what) => ("unknown", Some(what)),
                Verdict::NotCounted(why) => ("not counted", Some(why)),
            };
            json!({
                "id": outcome.id, "op": outcome.op, "tier": outcome.tier, "error": outcome.error(),
                "class": outcome.class.name(), "complex": outcome.complex, "result": result, "reason": reason,
            })
        };
        Value::Array(self.outcomes.iter().map(case).collect())
    }

    /// An error if a group of cases has a smaller share of passes than asked for.
    pub fn require(&self, figures: &Figures<'_>) -> Result<()> {
        let mut groups = Vec::new();
        for (tier, &wanted) in (1..).zip(figures.tiers) {
            let counts = self.counts(|outcome| outcome.tier == tier);
            groups.push((format!("tier {tier}"), counts, wanted));
        }
        for &(class, wanted) in figures.classes {
            let meant =
                |outcome: &Outcome| outcome.class == class && !figures.known.lists(&outcome.id);
            groups.push((class.name().to_string(), self.counts(meant), wanted));
        }
        for (set, wanted) in figures.sets {
            let filter = Filter::sets(&[set])?;
            let counts = self.counts(|outcome| filter.takes_op(&outcome.op));
            groups.push((format!("set {set}"), counts, *wanted));
        }
        let mut missed = Vec::new();
        for (name, counts, wanted) in groups {
            // A share of nothing is missed too: the figure was asked for.
            let share = if counts.counted() == 0 { 0.0 } else { counts.percent() };
            if share < wanted && wanted > 0.0 {
                missed.push(format!("{name}: {share:.2} % of {wanted} %"));
            }
        }
        if !missed.is_empty() {
            bail!("required figures are missed: {}", missed.join(", "));
        }
        Ok(())
    }

    fn counts(&self, meant: impl Fn(&Outcome) -> bool) -> Counts {
        let mut counts = Counts::default();
        self.outcomes.iter().filter(|o| meant(o)).for_each(|outcome| counts.add(outcome));
        counts
    }
}

/// Verdicts of a group of cases.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    unknown: usize,
    /// Failed or unknown, with complex numbers.
    complex: usize,
    not_counted: usize,
}

impl Counts {
    const HEADER: &str = " passed  failed unknown   cases  percent | complex64  percent without";

    fn add(&mut self, outcome: &Outcome) {
        match outcome.verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Unknown(_) => self.unknown += 1,
            Verdict::NotCounted(_) => self.not_counted += 1,
        }
        self.complex += (outcome.complex && outcome.failure().is_some()) as usize;
    }

    fn bad(&self) -> usize {
        self.failed + self.unknown
    }

    fn counted(&self) -> usize {
        self.passed + self.bad()
    }

    fn percent(&self) -> f64 {
        share(self.passed, self.counted())
    }

    fn row(&self) -> String {
        let Counts { passed, failed, unknown, complex, not_counted } = self;
        let counted = self.counted();
        let mut row = format!("{passed:>7} {failed:>7} {unknown:>7} {counted:>7} ");
        let (percent, without) = (self.percent(), share(*passed, counted - complex));
        let _ = write!(row, "{percent:>8.2} | {complex:>9} {without:>16.2}");
        if *not_counted > 0 {
            let _ = write!(row, "  ({not_counted} not counted)");
        }
        row
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(op: &str, error: bool, verdict: Verdict) -> Outcome {
        let class = if error { Class::Error } else { Class::Close };
        Outcome { id: "0".into(), op: op.into(), tier: 1, class, complex: false, verdict }
    }

    #[test]
    fn error_cases_need_a_normal_case_that_passes() {
        let report = Report::new(vec![
            outcome("works", true, Verdict::Passed),
            outcome("works", false, Verdict::Passed),
            outcome("refuses", true, Verdict::Passed),
            outcome("refuses", false, Verdict::Unknown("operation".into())),
        ]);
        let passed: Vec<_> = report.outcomes.iter().map(|o| o.failure().is_none()).collect();
        assert_eq!(passed, [true, true, false, false]);
        let require = |tiers: &[f64], classes: &[(Class, f64)], known: &str| {
            let known = Known::parse(known, "cpu")?;
            report.require(&Figures { tiers, classes, sets: &[], known: &known })
        };
        assert!(require(&[50.0, 0.0, 0.0], &[], "").is_ok());
        assert!(require(&[50.1], &[], "").is_err());
        assert!(require(&[0.0, 1.0], &[], "").is_err());
        assert!(require(&[], &[(Class::Error, 50.0), (Class::Close, 50.0)], "").is_ok());
        let error = require(&[], &[(Class::Close, 50.0), (Class::Error, 50.1)], "").unwrap_err();
        assert!(error.to_string().ends_with("missed: error: 50.00 % of 50.1 %"), "{error}");
        assert!(require(&[], &[(Class::Exact, 1.0)], "").is_err());
        // Here all cases have the same id, and one that is listed does not count.
        assert!(require(&[], &[(Class::Close, 1.0)], "cpu 0 works: a reason").is_err());
        assert!(require(&[50.0], &[(Class::Close, 50.0)], "cpu 1 works: a reason").is_ok());
    }

    #[test]
    fn sets_have_figures() {
        let report = Report::new(vec![
            outcome("nn.relu", false, Verdict::Passed),
            outcome("nn.Linear", false, Verdict::Failed("wrong".into())),
            outcome("add", false, Verdict::Failed("wrong".into())),
        ]);
        let require = |percent| {
            let (sets, known) = ([("networks".to_string(), percent)], Known::default());
            report.require(&Figures { tiers: &[], classes: &[], sets: &sets, known: &known })
        };
        assert!(require(50.0).is_ok());
        assert!(require(50.1).is_err());
    }
}
