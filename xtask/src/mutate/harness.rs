//! The test harness of the copy: built once, run for one operation at a time in a process of its
//! own, because a mistake may end it or let it hang.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Mutation, copy};
use crate::driver::Driver;
use crate::run::cargo;

/// Far more than one operation takes.
const LIMIT: Duration = Duration::from_secs(1800);

/// What a run noticed.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    pub(super) checks: usize,
    /// What failed, as (place, message).
    pub(super) failures: Vec<(String, String)>,
    /// How the process ended, if it did so without a report.
    pub(super) ended: Option<String>,
}

impl Findings {
    /// What was not noticed in another run.
    pub(super) fn beyond(mut self, other: &Findings) -> Findings {
        let known: BTreeSet<&str> = other.failures.iter().map(|(place, _)| &**place).collect();
        self.failures.retain(|(place, _)| !known.contains(&**place));
        self
    }

    pub(super) fn summary(&self) -> String {
        format!("{} checks, {} failures", self.checks, self.failures.len())
    }
}

/// The test programs of the copy.
pub(super) struct Harness {
    tree: PathBuf,
    programs: BTreeMap<String, PathBuf>,
    driver: Driver,
}

impl Harness {
    /// Compiles what the mistakes are looked for with.
    pub(super) fn build(tree: &Path, mutations: &[Mutation]) -> Result<Harness> {
        let mut tests: BTreeSet<&str> = BTreeSet::from(["every_op"]);
        tests.extend(mutations.iter().filter_map(|mutation| mutation.test.as_ref()).map(|t| &*t.0));
        let mut build = cargo(&["test", "--no-run", "--package", "wootz"]);
        build.args(["--message-format", "json-render-diagnostics"]).current_dir(tree);
        build.arg("--target-dir").arg(copy::folder().join("target")).stderr(Stdio::inherit());
        build.args(tests.iter().flat_map(|test| ["--test", test]));
        let output = build.output().with_context(|| format!("cannot start {build:?}"))?;
        ensure!(output.status.success(), "the copy does not compile");
        let mut programs = BTreeMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let message: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let name = message["target"]["name"].as_str();
            if let (Some(name), Some(program)) = (name, message["executable"].as_str()) {
                programs.insert(name.to_string(), PathBuf::from(program));
            }
        }
        Ok(Harness { tree: tree.to_path_buf(), programs, driver: Driver::prepare()? })
    }

    /// The mistake's operation, and its own test, on the software driver.
    pub(super) fn driver(&self, mutation: &Mutation) -> Result<Findings> {
        let test = ["--exact", "every_operation_is_right_on_every_device"];
        let mut findings = self.run(mutation, &test)?;
        if let Some((file, name)) = &mutation.test {
            findings.checks += 1;
            let output = self.command(file)?.args(["--exact", name]).output()?;
            if !output.status.success() {
                let place = format!("tests/{file}.rs");
                findings.failures.push((place, output.status.to_string()));
            }
        }
        Ok(findings)
    }

    /// The mistake's operation as Metal.
    pub(super) fn metal(&self, mutation: &Mutation) -> Result<Findings> {
        self.run(mutation, &["--ignored", "--exact", "every_kernel_is_right_as_metal"])
    }

    fn command(&self, program: &str) -> Result<Command> {
        let path = self.programs.get(program).with_context(|| format!("no program {program}"))?;
        let mut command = Command::new(path);
        // Where cargo would run it; and nothing may be skipped.
        command.current_dir(self.tree.join("crates/wootz")).env("CI", "true");
        self.driver.apply(&mut command);
        Ok(command)
    }

    fn run(&self, mutation: &Mutation, arguments: &[&str]) -> Result<Findings> {
        let report = copy::folder().join("failures.txt");
        std::fs::remove_file(&report).ok();
        let mut command = self.command("every_op")?;
        command.args(arguments).env("WOOTZ_OPS", &mutation.op).env("WOOTZ_FAILURES", &report);
        let ended = wait(&mut command)?;
        let Ok(text) = std::fs::read_to_string(&report) else {
            return Ok(Findings { ended: Some(ended), ..Findings::default() });
        };
        let mut findings = read(&text);
        if let Some(text) = &mutation.without {
            findings.failures.retain(|(place, _)| !place.contains(text));
        }
        Ok(findings)
    }
}

/// The harness's own report: the number of checks, then failures as operation, place and message.
fn read(text: &str) -> Findings {
    let mut lines = text.lines();
    let checks = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
    let failure = |line: &str| {
        let mut parts = line.splitn(3, '\t').skip(1).map(str::to_string);
        Some((parts.next()?, parts.next()?))
    };
    Findings { checks, failures: lines.filter_map(failure).collect(), ended: None }
}

/// Waits for a process, not forever, and tells how it ended.
fn wait(command: &mut Command) -> Result<String> {
    let log = copy::folder().join("output.txt");
    let output = std::fs::File::create(&log)?;
    command.stderr(output.try_clone()?).stdout(output);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let error = text.lines().rfind(|line| line.starts_with("error: "));
            return Ok(error.map_or_else(|| status.to_string(), str::to_string));
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(format!("no end after {LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn reports_are_read() {
    let findings = read("12\nsum\tcase 'a', f32 on gpu\telement 0 is 1\tor 2\n");
    assert_eq!((findings.checks, findings.failures.len()), (12, 1));
    assert_eq!(findings.failures[0].1, "element 0 is 1\tor 2");
    assert!(findings.clone().beyond(&findings).failures.is_empty());
}
