//! Peers that are Python packages, each in a process of its own, asked row by row so that their runs alternate
//! with wootz's.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::rows::Row;

/// A running peer.
pub struct Python {
    name: &'static str,
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    version: String,
}

impl Python {
    /// Starts the program and asks for its version.
    pub fn start(
        name: &'static str,
        python: &Path,
        script: &Path,
        arguments: &[String],
    ) -> Result<Python> {
        let mut child = Command::new(python)
            .arg("-B")
            .arg(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", python.display()))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("a peer without output")?);
        let mut peer = Python { name, child, requests, answers, version: String::new() };
        let answer = peer.ask("version")?;
        peer.version = format!(
            "{name} {} with {} threads",
            answer["version"].as_str().unwrap_or("?"),
            answer["threads"]
        );
        Ok(peer)
    }

    /// Version and threads, for the head of the table.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its best time for a row, in seconds, and the bytes it takes where memory is compared.
    pub fn time(&mut self, row: &Row, reps: usize) -> Result<(f64, Option<f64>)> {
        let answer = self.ask(&format!("{} reps {reps}", row.title()))?;
        match answer["ms"].as_f64() {
            Some(ms) => Ok((ms / 1e3, answer["bytes"].as_f64())),
            None => bail!("{}: {}", self.name, answer["error"].as_str().unwrap_or("no answer")),
        }
    }

    /// The time of a request, in seconds.
    pub fn seconds(&mut self, request: &str) -> Result<f64> {
        let answer = self.ask(request)?;
        match answer["ms"].as_f64() {
            Some(ms) => Ok(ms / 1e3),
            None => bail!("{}: {}", self.name, answer["error"].as_str().unwrap_or("no answer")),
        }
    }

    /// Sends a request and waits for the answer.
    pub fn ask(&mut self, request: &str) -> Result<Value> {
        let pipe = self.requests.as_mut().context("a peer has ended")?;
        writeln!(pipe, "{request}")?;
        pipe.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{} answered {line:?}", self.name))
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // The end of its input ends the program.
        self.requests = None;
        self.child.wait().ok();
    }
}
