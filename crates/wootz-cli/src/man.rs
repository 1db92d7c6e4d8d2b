//! `wootz man`: the manual page, made of the help texts.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap_mangen::Man;

/// Options of `wootz man`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wootz man | man -l -
  wootz man --dir ~/.local/share/man/man1")]
pub(crate) struct Options {
    /// Write a page for the program and one for each command into a folder.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, command: clap::Command) -> anyhow::Result<()> {
    if let Some(folder) = &options.dir {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        return clap_mangen::generate_to(command, folder)
            .with_context(|| format!("{}", folder.display()));
    }
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(io::stdout().write_all(&page)?)
}
