//! What a user is told when something fails: the error, what may help, and the exit code.

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;

/// An error with something to try.
#[derive(Debug)]
struct Hinted {
    error: anyhow::Error,
    hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for Hinted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Options that do not make sense together, which clap cannot know.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// An error about options: exit code 2.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// Adds what may help to an error.
pub(crate) trait WithHint<T> {
    fn hint(self, hint: impl fmt::Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> WithHint<T> for Result<T, E> {
    fn hint(self, hint: impl fmt::Display) -> anyhow::Result<T> {
        self.map_err(|error| hinted(error, hint))
    }
}

pub(crate) fn hinted(error: impl Into<anyhow::Error>, hint: impl fmt::Display) -> anyhow::Error {
    Hinted { error: error.into(), hint: hint.to_string() }.into()
}

/// An error if a file cannot be written because its folder is not there: better before the work than behind it.
pub(crate) fn expect_folder_of(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(anyhow!("{}: there is no folder {}", file.display(), folder.display())),
        None => Ok(()),
    }
}

/// Prints an error and its hint; says how the program ends.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    // A reader such as `head` may have enough before the end.
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("{} {}", paint("1;31", "error:"), said_once(error));
    if let Some(hint) = hint_of(error) {
        print_hint(&hint);
    }
    if is_usage(error) { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Prints what may help.
pub(crate) fn print_hint(hint: &str) {
    eprintln!("{} {hint}", paint("1;36", "hint:"));
}

/// A word for the error stream, in a colour where there are some.
fn paint(code: &str, word: &str) -> String {
    match colours(&io::stderr()) {
        true => format!("\x1b[{code}m{word}\x1b[0m"),
        false => word.to_string(),
    }
}

/// An error and its causes, without those that an error before them has told already.
fn said_once(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.ends_with(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

/// Whether options are at fault, also behind a hint.
fn is_usage(error: &anyhow::Error) -> bool {
    let hinted = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<Hinted>().is_some_and(|hinted| is_usage(&hinted.error))
    };
    error.chain().any(|cause| cause.is::<Usage>() || hinted(cause))
}

/// The hint that was given, or what is known to help.
fn hint_of(error: &anyhow::Error) -> Option<String> {
    if let Some(hinted) = error.chain().find_map(|cause| cause.downcast_ref::<Hinted>()) {
        return Some(hinted.hint.clone());
    }
    let known = error.chain().find_map(|cause| cause.downcast_ref::<wootz_lm::Error>());
    let known = known.and_then(|known| match known {
        wootz_lm::Error::Architecture { .. } => {
            Some("`wootz list --known` shows models of every architecture that there is")
        }
        wootz_lm::Error::Weights(_) => Some(INCOMPLETE),
        wootz_lm::Error::Invalid { what, .. } if what.contains(".safetensors is not there") => {
            Some(INCOMPLETE)
        }
        wootz_lm::Error::Array(wootz::Error::Io { path, source })
            if source.kind() == io::ErrorKind::NotFound && path.ends_with(".safetensors") =>
        {
            Some(INCOMPLETE)
        }
        wootz_lm::Error::Template(_) => Some("--ignore-chat-template sends the prompt as it is"),
        wootz_lm::Error::Argument { expected, .. } if expected.contains("context_length may") => {
            Some("--context N allows more")
        }
        _ => None,
    });
    known.or_else(|| error.chain().find_map(of_system)).map(str::to_string)
}

/// What helps against an error of the system's, whoever met it.
fn of_system(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    let kind = match (cause.downcast_ref::<wootz_lm::Error>(), cause.downcast_ref()) {
        (Some(wootz_lm::Error::File { source, .. }), _)
        | (Some(wootz_lm::Error::Array(wootz::Error::Io { source, .. })), _)
        | (_, Some(wootz::Error::Io { source, .. })) => source.kind(),
        _ => cause.downcast_ref::<io::Error>()?.kind(),
    };
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            Some("make room on the disk, or write elsewhere")
        }
        io::ErrorKind::PermissionDenied => Some("check who may read and write there"),
        _ => None,
    }
}

/// What helps where a part of a model is missing.
const INCOMPLETE: &str =
    "the folder may be incomplete: compare it with the list of files where it comes from";

/// Whether to use colours on a stream.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &(dyn Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_full_disk_and_a_place_of_others_have_hints_whoever_meets_them() {
        for (kind, hint) in [
            (io::ErrorKind::StorageFull, Some("make room")),
            (io::ErrorKind::FileTooLarge, Some("make room")),
            (io::ErrorKind::PermissionDenied, Some("check who")),
            (io::ErrorKind::InvalidData, None),
        ] {
            let source = || Arc::new(io::Error::from(kind));
            let ours = wootz::Error::Io { path: "model.safetensors".into(), source: source() };
            let errors: [anyhow::Error; 4] = [
                wootz_lm::Error::File { path: "model".into(), source: source() }.into(),
                wootz_lm::Error::Array(ours.clone()).into(),
                ours.into(),
                anyhow::Error::from(io::Error::from(kind)).context("talk.json"),
            ];
            for error in errors {
                let found = hint_of(&error);
                assert_eq!(found.is_some(), hint.is_some(), "{error}");
                let starts =
                    |hint: &str| found.as_ref().is_some_and(|found| found.starts_with(hint));
                assert!(hint.is_none_or(starts), "{error}: {found:?}");
            }
        }
    }
}
