//! The conformance runner: operations of wootz against cases recorded from MLX.
//!
//! A case is judged by [`judge`]: its inputs are built as the views it names, the row of
//! the [table] that has its operation's name is called, and outputs and recorded gradients are
//! compared by the case's class. [`run`] does that for a folder and makes a [`Report`].

pub mod call;
pub mod case;
pub mod compare;
pub mod execute;
pub mod known;
pub mod report;
pub mod sample;
pub mod self_test;
pub mod table;
pub mod tensor;
mod watchdog;

use std::path::Path;

use anyhow::{Context, Result, ensure};
pub use case::{Case, Class, Expected, Folder};
pub use execute::{Verdict, judge};
pub use known::Known;
pub use report::{Figures, Outcome, Report};
pub use sample::sample;
pub use self_test::self_test;
use watchdog::Watchdog;
use wootz::Device;

/// Which cases of a folder to run.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Names of operations; empty for all.
    pub ops: Vec<String>,
    /// Whether they are those of sets, which may lie in several folders.
    pub of_sets: bool,
}

impl Filter {
    /// The operations of named sets: `foundation`, `networks`, `quantized` and `transformer`.
    pub fn sets(names: &[impl AsRef<str>]) -> Result<Filter> {
        let mut ops = Vec::new();
        for name in names {
            let text = match name.as_ref() {
                "foundation" => include_str!("../sets/foundation.txt"),
                "networks" => include_str!("../sets/networks.txt"),
                "quantized" => include_str!("../sets/quantized.txt"),
                "transformer" => include_str!("../sets/transformer.txt"),
                other => anyhow::bail!(
                    "there is no set {other:?}; known are foundation, networks, quantized and transformer"
                ),
            };
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            ops.extend(lines.flat_map(str::split_whitespace).map(String::from));
        }
        Ok(Filter { ops, of_sets: true })
    }

    /// Whether a case is meant.
    pub fn takes(&self, case: &Case) -> bool {
        self.takes_op(&case.op)
    }

    /// Whether the cases of an operation are meant.
    pub fn takes_op(&self, op: &str) -> bool {
        self.ops.is_empty() || self.ops.iter().any(|meant| meant == op)
    }

    /// Keeps the cases that are meant. An operation that was asked for and has no cases is a mistake.
    pub fn apply(&self, folder: &mut Folder) -> Result<()> {
        folder.cases.retain(|case| self.takes(case));
        if self.of_sets {
            ensure!(!folder.cases.is_empty(), "there is no case of these sets");
            return Ok(());
        }
        for op in &self.ops {
            let found = folder.cases.iter().any(|case| case.op == *op);
            ensure!(found, "there is no case of {op}");
        }
        Ok(())
    }
}

/// Reads a folder of cases.
pub fn read(folder: &Path) -> Result<Folder> {
    Folder::read(folder).with_context(|| format!("cannot read the cases of {}", folder.display()))
}

/// Runs all cases of a folder on a device.
pub fn run(folder: &Folder, device: &Device) -> Report {
    let _quiet = QuietPanics::install();
    let watchdog = Watchdog::start();
    let judged = folder.cases.iter().map(|case| {
        watchdog.begin(case);
        let expected = Expected::of(case, &folder.tensors);
        let verdict = judge(case, &expected, &folder.tensors, device);
        Outcome::new(case, verdict, &folder.tensors)
    });
    Report::new(judged.collect())
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync>;

/// Panics of cases are results; their messages are kept out of the output while this lives.
struct QuietPanics(Option<Hook>);

impl QuietPanics {
    fn install() -> QuietPanics {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        QuietPanics(Some(before))
    }
}

impl Drop for QuietPanics {
    fn drop(&mut self) {
        // The hook cannot be changed while this thread unwinds.
        if let Some(hook) = self.0.take()
            && !std::thread::panicking()
        {
            std::panic::set_hook(hook);
        }
    }
}
