//! gpt-oss: sinks, sliding windows, and experts with clamped gates.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use wootz::{Array, DType, Ellipsis, Result as ArrayResult, Slice, Tree, combine_experts, view};

use super::decoder::{Decoder, Layer, Sizes, Style};
use super::{Build, parse};
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Bias, Loader};
use crate::layers::{
    Activation, Attention, AttentionConfig, Linear, MoeConfig, Residual, RmsNorm, RopeConfig,
    SwitchGlu,
};
use crate::{Error, Result};

#[derive(Debug, Deserialize)]
#[serde(default)]
struct Config {
    num_hidden_layers: usize,
    num_local_experts: usize,
    num_experts_per_tok: usize,
    vocab_size: usize,
    rms_norm_eps: f64,
    hidden_size: usize,
    intermediate_size: usize,
    head_dim: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    sliding_window: usize,
    layer_types: Option<Vec<String>>,
    #[serde(flatten)]
    rope: RopeConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            num_hidden_layers: 36,
            num_local_experts: 128,
            num_experts_per_tok: 4,
            vocab_size: 201088,
            rms_norm_eps: 1e-5,
            hidden_size: 2880,
            intermediate_size: 2880,
            head_dim: 64,
            num_attention_heads: 64,
            num_key_value_heads: 8,
            sliding_window: 128,
            layer_types: None,
            rope: RopeConfig::default(),
        }
    }
}

#[derive(Tree)]
struct OssMoe {
    experts: SwitchGlu,
    router: Linear,
    #[wootz(value)]
    config: MoeConfig,
}

#[derive(Tree)]
struct OssLayer {
    self_attn: Attention,
    mlp: OssMoe,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl Layer for OssLayer {
    fn kind(&self) -> LayerKind {
        self.self_attn.config().kind()
    }

    fn dynamic_from(&self) -> Option<usize> {
        self.self_attn.config().dynamic_from()
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> ArrayResult<()> {
        let x = stream.norm(&self.input_layernorm)?;
        stream.add(self.self_attn.forward(&x, pass, layer)?)?;
        let x = stream.norm(&self.post_attention_layernorm)?;
        let (experts, weights) = self.mlp.config.route(&self.mlp.router.forward(&x)?)?;
        stream.add(combine_experts(&self.mlp.experts.forward(&x, &experts)?, &weights)?)
    }
}

pub(super) fn load(config: &Value, loader: &mut Loader<'_>) -> Result<Arc<dyn Build>> {
    let config: Config = parse(config)?;
    let (hidden, heads, head_dim) =
        (config.hidden_size, config.num_attention_heads, config.head_dim);
    let (experts, k, eps) =
        (config.num_local_experts, config.num_experts_per_tok, config.rms_norm_eps);
    if k == 0 || k > experts {
        return Err(Error::argument("num_experts_per_tok", format!("1 to {experts}"), k));
    }
    loader.expect_layers("model.layers.", config.num_hidden_layers)?;
    let sliding = sliding_layers(&config)?;
    separate(loader)?;
    let neighbours = RopeConfig { rope_traditional: false, ..config.rope.clone() };
    let rope = neighbours.rope(head_dim, 150000.0, loader.device())?;
    let sizes = Sizes {
        layers: config.num_hidden_layers,
        hidden,
        vocabulary: config.vocab_size,
        context: config.rope.context(),
        eps,
        tied: false,
        offset: false,
    };
    let decoder =
        Decoder::load(loader, "", sizes, Style::default(), |loader, number, at, dtype| {
            let attention = AttentionConfig {
                rope: Some(rope.clone()),
                window: sliding
                    .get(number)
                    .is_some_and(|slides| *slides)
                    .then_some(config.sliding_window),
                ..AttentionConfig::new(hidden, [heads, config.num_key_value_heads], head_dim, dtype)
            };
            let path = format!("{at}.self_attn");
            let self_attn = Attention {
                sinks: Some(loader.parameter(&format!("{path}.sinks"), &[heads])?),
                ..Attention::load(loader, &path, attention, [Bias::Yes; 2])?
            };
            let (path, sizes) = (format!("{at}.mlp.experts"), [hidden, config.intermediate_size]);
            let clamped = Activation::Clamped;
            let mlp = OssMoe {
                experts: SwitchGlu::load(loader, &path, experts, sizes, true, clamped)?,
                router: loader.linear(&format!("{at}.mlp.router"), hidden, experts, true)?,
                config: MoeConfig {
                    experts,
                    k,
                    chosen_only: true,
                    renormalise: false,
                    first_wins: false,
                },
            };
            let mut norm = |name: &str| loader.norm(&format!("{at}.{name}"), hidden, eps);
            Ok(OssLayer {
                self_attn,
                mlp,
                input_layernorm: norm("input_layernorm")?,
                post_attention_layernorm: norm("post_attention_layernorm")?,
            })
        })?;
    let (running, layers) = (sliding.len(), config.num_hidden_layers);
    if running == layers {
        return Ok(Arc::new(decoder));
    }
    let warning = format!(
        "layer_types tells {running} of {layers} layers what they are: as in mlx-lm, the others do not run"
    );
    Ok(Arc::new(decoder.run_first(running, warning)))
}

/// Which layers have a window: every second without types. As in mlx-lm, layers without a type of their own do not run,
/// and so neither does the last of an odd number.
fn sliding_layers(config: &Config) -> Result<Vec<bool>> {
    let layers = config.num_hidden_layers;
    let types = config.layer_types.as_deref().unwrap_or_default();
    let sliding: Vec<bool> = match types.is_empty() {
        true => (0..layers / 2 * 2).map(|layer| layer % 2 == 0).collect(),
        false => types.iter().take(layers).map(|kind| kind != "full_attention").collect(),
    };
    // mlx-lm wants both kinds.
    let both = sliding.contains(&true) && sliding.contains(&false);
    if sliding.len() < layers && !both {
        let expected = format!("one for each of {layers} layers");
        return Err(Error::argument("layer_types", expected, types.len()));
    }
    Ok(sliding)
}

/// Gates and what they let through apart, and blocks as words, where the checkpoint is not MLX's.
fn separate(loader: &mut Loader<'_>) -> Result<()> {
    if loader.names().iter().any(|name| name.contains("gate_proj.weight")) {
        return Ok(());
    }
    let rows = |x: &Array, first: i64, last: bool| {
        let every_second = Slice::new(Some(first), None, Some(2));
        let taken = match last {
            true => x.index((Ellipsis, every_second)),
            false => x.index((Ellipsis, every_second, ..)),
        };
        taken?.contiguous()
    };
    for name in loader.names() {
        if !name.contains("gate_up_proj") && !name.contains("down_proj") {
            continue;
        }
        let Some(mut array) = loader.take(&name)? else { continue };
        let is_bias = name.ends_with("_bias");
        let mut ours = name.replace("_bias", ".bias").replace("_scales", ".scales");
        if let Some(path) = name.strip_suffix("_blocks") {
            let words = view(&array.contiguous()?, DType::U32)?;
            array = words.flatten(-2, -1)?;
            ours = format!("{path}.weight");
        }
        if name.contains("gate_up_proj") {
            let gate = rows(&array, 0, is_bias)?;
            loader.insert(&ours.replace("gate_up_proj", "gate_proj"), gate);
            let up = rows(&array, 1, is_bias)?;
            loader.insert(&ours.replace("gate_up_proj", "up_proj"), up);
        } else {
            loader.insert(&ours, array);
        }
    }
    Ok(())
}
