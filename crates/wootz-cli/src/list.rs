//! `wootz list`: models in the caches, and short names.

use crate::source::known::{DEFAULT, KNOWN};
use crate::source::{cached_models, hub_cache, own_cache};
use crate::text::{bytes, print_table};

/// Options of `wootz list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wootz list             what has been downloaded, also by other programs that share the cache
  wootz list --known     short names, one or more for each architecture")]
pub(crate) struct Options {
    /// List short names that `--model` takes, and what they stand for.
    #[arg(long)]
    known: bool,

    /// Print JSON (docs/json.md).
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.known { known(options.json) } else { cached(options.json) }
}

fn known(json: bool) -> anyhow::Result<()> {
    if json {
        let row = |known: &crate::source::known::Known| {
            serde_json::json!({
                "name": known.name, "architecture": known.architecture, "size": known.size,
                "repository": known.repository, "file": known.file, "default": known.name == DEFAULT,
            })
        };
        let rows: Vec<_> = KNOWN.iter().map(row).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    let mut rows = vec![["NAME", "ARCHITECTURE", "SIZE", "REPOSITORY"].map(String::from)];
    for known in KNOWN {
        let name =
            if known.name == DEFAULT { format!("{DEFAULT} (default)") } else { known.name.into() };
        let repository = match known.file {
            Some(file) => format!("{}:{file}", known.repository),
            None => known.repository.to_string(),
        };
        rows.push([name, known.architecture.into(), known.size.into(), repository]);
    }
    print_table(&rows);
    Ok(())
}

fn cached(json: bool) -> anyhow::Result<()> {
    let models = cached_models();
    if json {
        let row = |model: &crate::source::CachedModel| {
            serde_json::json!({
                "name": model.name, "path": model.path, "bytes": model.bytes, "complete": model.complete,
            })
        };
        println!("{}", serde_json::to_string_pretty(&models.iter().map(row).collect::<Vec<_>>())?);
        return Ok(());
    }
    if models.is_empty() {
        println!("There are no models in {} or {}.", hub_cache().display(), own_cache().display());
        return Ok(());
    }
    let mut rows = vec![["NAME", "SIZE", "STATE", "PATH"].map(String::from)];
    for model in models {
        let state = if model.complete { "complete" } else { "incomplete" };
        rows.push([model.name, bytes(model.bytes), state.into(), model.path.display().to_string()]);
    }
    print_table(&rows);
    Ok(())
}
