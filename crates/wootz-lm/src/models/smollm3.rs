//! SmolLM3: llama with some layers that know no positions.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::{Build, llama, parse};
use crate::checkpoint::Loader;
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
struct Config {
    #[serde(flatten)]
    llama: llama::Config,
    #[serde(default = "four")]
    no_rope_layer_interval: usize,
    /// For each layer, whether it has rotary positions.
    no_rope_layers: Option<Vec<Truth>>,
}

/// `true` or `false`, or a number that is not 0, as Python takes either.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Truth {
    Word(bool),
    Number(f64),
}

impl Truth {
    fn holds(&self) -> bool {
        match self {
            Truth::Word(word) => *word,
            Truth::Number(number) => *number != 0.0,
        }
    }
}

fn four() -> usize {
    4
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let Config { llama, no_rope_layer_interval: interval, no_rope_layers } = parse(config)?;
    let layers = llama.common.num_hidden_layers;
    loader.expect_layers("model.layers.", layers)?;
    let rotated: Vec<bool> = match no_rope_layers {
        None if interval == 0 => {
            return Err(Error::argument("no_rope_layer_interval", "at least 1", 0));
        }
        None => (0..layers).map(|layer| !(layer + 1).is_multiple_of(interval)).collect(),
        Some(given) if given.len() == layers => given.iter().map(Truth::holds).collect(),
        Some(given) => {
            let expected = format!("one number for each of {layers} layers");
            return Err(Error::argument("no_rope_layers", expected, given.len()));
        }
    };
    llama::load_with(&llama, loader, |layer| rotated.get(layer) != Some(&false))
}
