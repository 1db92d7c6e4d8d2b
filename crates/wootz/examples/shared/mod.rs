//! What the examples have in common: command line options and a line that shows progress.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use wootz::{Device, Result, with_device};

/// `--device cpu|gpu|gpu:N`, `--threads N`, `--steps N`.
pub struct Options {
    device: Device,
    threads: Option<usize>,
    steps: usize,
}

impl Options {
    /// Reads the command line.
    pub fn parse(steps: usize) -> std::result::Result<Options, String> {
        let mut arguments = std::env::args().skip(1);
        let mut options = Options { device: Device::default_device(), threads: None, steps };
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--device" => {
                    options.device =
                        Device::from_name(&value()?).map_err(|error| error.to_string())?;
                }
                "--threads" => options.threads = Some(positive(&flag, &value()?)?),
                "--steps" => options.steps = positive(&flag, &value()?)?,
                _ => {
                    return Err(format!(
                        "unknown option {flag}; known: --device --threads --steps"
                    ));
                }
            }
        }
        Ok(options)
    }

    /// Runs `train` with the number of steps on the chosen device, and says how long it took.
    pub fn run<T>(&self, train: impl FnOnce(usize) -> Result<T>) -> Result<T> {
        if let Some(threads) = self.threads {
            wootz::set_threads(threads);
        }
        println!("device: {}, threads: {}", self.device, wootz::threads());
        let start = Instant::now();
        let result = with_device(&self.device, || train(self.steps))?;
        println!("{} steps in {:.2} s", self.steps, start.elapsed().as_secs_f64());
        Ok(result)
    }
}

/// One line that is rewritten on a terminal, and a line now and then elsewhere.
pub fn progress(step: usize, steps: usize, loss: f32) {
    let mut out = std::io::stderr();
    // A closed stderr is no reason to stop.
    let _ = if out.is_terminal() {
        let filled = 30 * step / steps;
        let end = if step == steps { "\n" } else { "" };
        write!(out, "\r[{:30}] {step}/{steps} loss {loss:.5}{end}", "=".repeat(filled))
    } else if step == steps || step.is_multiple_of((steps / 5).max(1)) {
        writeln!(out, "step {step}/{steps} loss {loss:.5}")
    } else {
        Ok(())
    };
    let _ = out.flush();
}

fn positive(flag: &str, value: &str) -> std::result::Result<usize, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{flag} needs a positive number, got {value:?}")),
    }
}
