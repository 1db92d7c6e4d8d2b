//! `cargo xtask goldens`: records expected values from MLX and mlx-lm, files of other programs, and what
//! tokenizers and chat templates give, or checks what is recorded.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::bench::LLAMA;
use crate::run::{capture, python, root, show};

/// Options of `goldens`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Record into a temporary folder and compare with goldens/ byte for byte
    #[arg(long)]
    check: bool,
}

// Other versions of MLX give other numbers; other versions of NumPy may give other inputs.
const MLX: &str = "mlx[cpu]==0.32.4";
const NUMPY: &str = "numpy==2.4.6";

/// A script, with what it records.
struct Recording {
    script: &'static str,
    /// The Python environment and its packages.
    environment: (&'static str, &'static [&'static str]),
    /// Below `goldens`.
    folder: &'static str,
    /// What is compared; of a folder, all that is in it.
    files: &'static [&'static str],
}

/// Renders chat templates; for `cargo xtask tokenizers`, too.
pub(crate) const TEMPLATES: (&str, &[&str]) = ("goldens-jinja2-3.1.6", &["jinja2==3.1.6"]);

const RECORDINGS: [Recording; 10] = [
    Recording {
        script: "record.py",
        environment: ("goldens-mlx-0.32.4", &[MLX, NUMPY]),
        folder: "",
        files: &["cases.jsonl", "tensors.safetensors"],
    },
    Recording {
        script: "mlx_lm_record.py",
        environment: ("goldens-mlx-lm-0.32.2", &[MLX, NUMPY, "mlx-lm==0.32.2"]),
        folder: "mlx_lm",
        files: &["sparse_experts.safetensors", "gated_delta.safetensors"],
    },
    Recording {
        script: "generation_record.py",
        environment: ("goldens-mlx-lm-0.32.2", &[MLX, NUMPY, "mlx-lm==0.32.2"]),
        folder: "generation",
        files: &[
            "cases.jsonl",
            "perplexity.jsonl",
            "full/config.json",
            "full/model.safetensors",
            "full/tokenizer.json",
            "full/tokenizer_config.json",
            "near/model.safetensors",
            "recurrent/model.safetensors",
            "sliding/model.safetensors",
        ],
    },
    Recording {
        script: "files_record.py",
        environment: ("goldens-files", &["gguf==0.19.0", "safetensors==0.8.0", NUMPY]),
        folder: "files",
        files: &[
            "expected.json",
            "aligned.gguf",
            "big_endian.gguf",
            "blocks.gguf",
            "every.gguf",
            "every.safetensors",
            "metadata.gguf",
            "odd.safetensors",
            "older.gguf",
            "sharded/model-00001-of-00002.safetensors",
            "sharded/model-00002-of-00002.safetensors",
            "sharded/model.safetensors.index.json",
            "split-00001-of-00002.gguf",
            "split-00002-of-00002.gguf",
        ],
    },
    Recording {
        script: "arrays_record.py",
        environment: ("goldens-mlx-0.32.4", &[MLX, NUMPY]),
        folder: "arrays",
        files: &[
            "expected.json",
            "big_endian.npy",
            "big_endian_fortran.npy",
            "empty.npy",
            "every.npz",
            "every_compressed.npz",
            "fortran.npy",
            "hostile/axes.npy",
            "hostile/bomb.npz",
            "hostile/count.npz",
            "hostile/deep.npy",
            "hostile/directory.npz",
            "hostile/encrypted.npz",
            "hostile/fields.npy",
            "hostile/header_length.npy",
            "hostile/huge.npy",
            "hostile/long.npy",
            "hostile/method.npz",
            "hostile/names.npz",
            "hostile/negative.npy",
            "hostile/not_text.npy",
            "hostile/objects.npy",
            "hostile/overflow.npy",
            "hostile/overflow_with_zero.npy",
            "hostile/place.npz",
            "hostile/short.npy",
            "hostile/size.npz",
            "hostile/sum.npz",
            "hostile/text.npz",
            "hostile/twice.npz",
            "mlx.npy",
            "mlx.npz",
            "mlx_bfloat16.npy",
            "mlx_compressed.npz",
            "mlx_scalar.npy",
            "scalar.npy",
            "version_2.npy",
            "version_3.npy",
            "zeros.npz",
        ],
    },
    Recording {
        script: "quantized_record.py",
        environment: ("goldens-gguf-0.19.0", &[MLX, NUMPY, "gguf==0.19.0"]),
        folder: "quantized",
        files: &[
            "blocks.safetensors",
            "words.safetensors",
            "planted_blocks.safetensors",
            "planted_words.safetensors",
        ],
    },
    Recording {
        script: "ggml_record.py",
        environment: (LLAMA.environment, LLAMA.packages),
        folder: "quantized",
        files: &["encoders.safetensors", "decoded.safetensors"],
    },
    Recording {
        script: "tiny_models_record.py",
        environment: ("goldens-mlx-lm-0.32.2", &[MLX, NUMPY, "mlx-lm==0.32.2"]),
        folder: "tiny-models",
        files: &["variants.json", "."],
    },
    Recording {
        script: "tokenizers_record.py",
        environment: (
            "goldens-tokenizers-0.23.3",
            &["tokenizers==0.23.3", "sentencepiece==0.2.2", "gguf==0.19.0", NUMPY],
        ),
        folder: "tokenizers",
        files: &[
            "bytes.gguf.out",
            "bytes.gguf.inp",
            "bytes.gguf",
            "bytes/config.json",
            "bytes/generation_config.json",
            "bytes/special_tokens_map.json",
            "bytes/tokenizer.json",
            "bytes/tokenizer_config.json",
            "marked.gguf",
            "marked.gguf.inp",
            "marked.gguf.out",
        ],
    },
    Recording {
        script: "templates_record.py",
        environment: TEMPLATES,
        folder: "templates",
        files: &["renderings.json"],
    },
];

/// Makes the Python environments if need be, and records.
pub(crate) fn run(options: &Options) -> Result<()> {
    for recording in &RECORDINGS {
        let (name, packages) = recording.environment;
        let python = python(name, packages)?;
        let kept = root().join("goldens").join(recording.folder);
        if !options.check {
            record(&python, recording, &kept)?;
            continue;
        }
        let made = std::env::temp_dir().join(format!("wootz-goldens-{}", std::process::id()));
        let result =
            record(&python, recording, &made).and_then(|()| compare(recording, &kept, &made));
        std::fs::remove_dir_all(&made).ok();
        result?;
    }
    Ok(())
}

fn record(python: &Path, recording: &Recording, folder: &Path) -> Result<()> {
    // -B: no byte code beside the script.
    let script = root().join("xtask/goldens").join(recording.script);
    show(Command::new(python).arg("-B").arg(script).arg(folder))
}

fn compare(recording: &Recording, kept: &Path, made: &Path) -> Result<()> {
    let Recording { files, folder, .. } = recording;
    let mut all = BTreeSet::new();
    for file in *files {
        for place in [kept, made] {
            below(place, Path::new(file), &mut all)?;
        }
    }
    for file in all {
        let read = |place: &Path| {
            let path = place.join(&file);
            std::fs::read(&path).with_context(|| path.display().to_string())
        };
        if read(kept)? == read(made)? {
            continue;
        }
        // A text diff of the cases says which ops changed; of tensors only the fact is known.
        let cases = [kept.join(files[0]), made.join(files[0])];
        let shown =
            capture(Command::new("sh").args(["-c", "diff \"$0\" \"$1\" | head -20"]).args(cases))?;
        let file = file.display();
        bail!("goldens/{folder}/{file} differs from what {} gives now\n{shown}", recording.script);
    }
    println!("goldens: {}: the same bytes", recording.script);
    Ok(())
}

/// Adds a file of a folder, or all files of a folder in it.
fn below(folder: &Path, file: &Path, to: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !folder.join(file).is_dir() {
        to.insert(file.to_path_buf());
        return Ok(());
    }
    for entry in std::fs::read_dir(folder.join(file))? {
        below(folder, &file.join(entry?.file_name()), to)?;
    }
    Ok(())
}
