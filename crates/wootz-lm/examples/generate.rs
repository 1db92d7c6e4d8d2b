//! Continues a text: `cargo run --release --example generate -- MODEL "The capital of France is"`, where MODEL
//! is a folder in MLX's layout or a GGUF file.

use std::io::Write;

use wootz_lm::generate::TextModel;
use wootz_lm::models::LoadOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(prompt)) = (arguments.next(), arguments.next()) else {
        return Err("usage: generate MODEL PROMPT".into());
    };
    let model = TextModel::open(path, &LoadOptions::default())?;
    if let Some(file) = model.defaults_from() {
        eprintln!("settings of {}", file.display());
    }
    let mut generation = model.generate(&prompt, model.default_options())?;
    for piece in &mut generation {
        print!("{}", piece?.text);
        std::io::stdout().flush()?;
    }
    println!("\n==========\n{}", generation.statistics());
    Ok(())
}
