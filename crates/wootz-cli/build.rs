//! Gives the program the commit it was built from, for `wootz --version`.

use std::process::Command;

fn main() {
    // Without git, or outside a checkout (as in a published package), the commit is unknown.
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=WOOTZ_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // HEAD changes with the branch, logs/HEAD with every commit. A path that does not exist would
    // force a rebuild each time.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            && std::path::Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// What git prints, if it can.
fn git(arguments: &[&str]) -> Option<String> {
    let out = Command::new("git").args(arguments).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?.trim().to_string();
    (!text.is_empty()).then_some(text)
}
