//! Failures that are known, with their reasons: a file with a line `device id op: reason` for each.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use crate::report::Report;

/// The known failures of one device by case id.
#[derive(Clone, Debug, Default)]
pub struct Known {
    reasons: BTreeMap<String, String>,
}

impl Known {
    /// Reads the lines of `device`, which is `cpu` or `gpu`; lines of `both` count for each.
    pub fn parse(text: &str, device: &str) -> Result<Known> {
        let mut reasons = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.splitn(3, ' ');
            let (Some(of), Some(id), Some(reason)) = (words.next(), words.next(), words.next())
            else {
                bail!("not `device id op: reason`: {line}");
            };
            reason.split_once(": ").filter(|(_, why)| !why.is_empty()).context("no reason")?;
            match of {
                "both" => {}
                "cpu" | "gpu" if of == device => {}
                "cpu" | "gpu" => continue,
                _ => bail!("the device is cpu, gpu or both: {line}"),
            }
            reasons.insert(id.to_string(), reason.to_string());
        }
        Ok(Known { reasons })
    }

    /// Whether a case is listed.
    pub fn lists(&self, id: &str) -> bool {
        self.reasons.contains_key(id)
    }

    /// What a report shows beyond the known: failures that are not listed, and listed cases that
    /// pass or do not count. Cases that were not run are not judged.
    pub fn differences(&self, report: &Report) -> Vec<String> {
        let difference = |outcome: &crate::Outcome| {
            let listed = self.lists(&outcome.id);
            match (outcome.failure(), listed) {
                (Some(why), false) => Some(format!("{} {}: {why}", outcome.id, outcome.op)),
                (None, true) => Some(format!("{} {}: listed, but passes", outcome.id, outcome.op)),
                _ => None,
            }
        };
        report.outcomes.iter().filter_map(difference).collect()
    }

    /// The lines for the failures of a report.
    pub fn lines(report: &Report, device: &str) -> String {
        let line = |outcome: &crate::Outcome| {
            let why = outcome.failure()?;
            let why = why.lines().next().unwrap_or("no message").to_string();
            Some(format!("{device} {} {}: {why}\n", outcome.id, outcome.op))
        };
        report.outcomes.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Outcome, Verdict};

    #[test]
    fn lists_are_exact() -> Result<()> {
        let outcome = |id: &str, verdict| Outcome {
            id: id.into(),
            op: "add".into(),
            tier: 1,
            class: Class::Close,
            complex: false,
            verdict,
        };
        let failed = || Verdict::Failed("wrong".into());
        let text = "# why\nboth 1 add: wrong\ncpu 2 add: wrong\ngpu 3 add: wrong\n";
        let known = Known::parse(text, "cpu")?;
        let outcomes = vec![outcome("1", failed()), outcome("2", Verdict::Passed)];
        let report = Report { outcomes };
        assert_eq!(known.differences(&report), ["2 add: listed, but passes"]);
        let report = Report { outcomes: vec![outcome("3", failed())] };
        assert_eq!(known.differences(&report), ["3 add: wrong"]);
        assert_eq!(Known::lines(&report, "cpu"), "cpu 3 add: wrong\n");
        assert!(
            Known::parse("cpu 2", "cpu").is_err() && Known::parse("tpu 2 a: b", "cpu").is_err()
        );
        Ok(())
    }
}
