//! Options that every command has, and what they change.

use anyhow::Context;
use wootz::Device;

use crate::failure::{WithHint, usage};

/// Options of every command.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// Where to compute: cpu, gpu, or gpu:N as `wootz devices` lists them [default: a GPU, if there is one].
    #[arg(long, global = true, value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// Threads of the CPU [default: as many as there are cores].
    #[arg(long, short = 't', global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,

    /// How activations are rounded before they meet quantized weights on the CPU: to 16 bits, or to 8.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "exact")]
    pub(crate) activations: Activations,

    /// Only print what was asked for.
    #[arg(long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more about what is done.
    #[arg(long, short = 'v', global = true)]
    pub(crate) verbose: bool,
}

/// How activations are rounded before they are multiplied with quantized weights.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activations {
    /// To 16 bits: results are those of floats, to a ten thousandth.
    Exact,
    /// To 8 bits, as llama.cpp does.
    Fast,
}

impl Activations {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Activations::Exact => "exact",
            Activations::Fast => "fast",
        }
    }
}

impl Common {
    /// Fails if there are no such threads or device, also for commands that use neither.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.threads == Some(0) {
            return Err(no_threads());
        }
        self.given_device().map(drop)
    }

    /// Fails if a device or threads are asked for where something else is sure to be used.
    pub(crate) fn expect_none(&self, reason: &str) -> anyhow::Result<()> {
        for (option, given) in
            [("--device", self.device.is_some()), ("--threads", self.threads.is_some())]
        {
            if given {
                return Err(usage(format!("{option} cannot be honoured: {reason}")));
            }
        }
        Ok(())
    }

    /// The device that is asked for, if one is.
    fn given_device(&self) -> anyhow::Result<Option<Device>> {
        let Some(name) = &self.device else { return Ok(None) };
        let found = Device::from_name(name).with_context(|| format!("--device {name}"));
        found.map(Some).hint("`wootz devices` lists what there is")
    }

    /// Makes device, threads and level of activations those of the process.
    pub(crate) fn apply(&self) -> anyhow::Result<Device> {
        match self.threads {
            Some(0) => return Err(no_threads()),
            Some(threads) => wootz::set_threads(threads),
            None => {}
        }
        wootz::quant::set_activations(match self.activations {
            Activations::Exact => wootz::quant::Activations::Exact,
            Activations::Fast => wootz::quant::Activations::Fast,
        });
        let device = self.given_device()?.unwrap_or_else(|| Device::choose().0);
        Device::set_default(&device);
        Ok(device)
    }

    /// Tells the user something about the run, beside what was asked for.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("{}", text.as_ref());
        }
    }

    /// The same, for those who want to know more.
    pub(crate) fn detail(&self, text: impl AsRef<str>) {
        if self.verbose {
            eprintln!("{}", text.as_ref());
        }
    }
}

fn no_threads() -> anyhow::Error {
    usage("--threads: expected at least 1, got 0")
}
