//! What tests of the program share: running it in a world of its own.
#![allow(missing_docs, dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A home of its own, so that no test sees the user's models, and no network.
pub struct World {
    pub folder: tempfile::TempDir,
}

impl World {
    pub fn new() -> World {
        World { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn hub(&self) -> PathBuf {
        self.path("hub")
    }

    /// The program, with caches in the world and nobody at the hub's address.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wootz"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("HF_HUB_CACHE", self.hub())
            .env("HF_ENDPOINT", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command().args(arguments))
    }
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Run {
        Run::from(command.output().unwrap())
    }

    pub fn from(output: Output) -> Run {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Run { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What was printed by a run that succeeded.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self.out
    }

    /// What a run that failed complained of.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self.err
    }
}

/// A recorded checkpoint: a small llama of mlx-lm's.
pub fn model() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/generation/full");
    folder.canonicalize().unwrap().to_string_lossy().into_owned()
}
