//! `wootz completions`: what a shell needs to complete the program's options.

use std::io::{self, Write};

use clap_complete::{Shell, generate};

/// Options of `wootz completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wootz completions bash > ~/.local/share/bash-completion/completions/wootz
  wootz completions zsh > ~/.zfunc/_wootz
  wootz completions fish > ~/.config/fish/completions/wootz.fish")]
pub(crate) struct Options {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(options: &Options, command: &mut clap::Command) -> anyhow::Result<()> {
    // In memory first, because the generator panics where it cannot write.
    let mut text = Vec::new();
    generate(options.shell, command, "wootz", &mut text);
    Ok(io::stdout().write_all(&text)?)
}
