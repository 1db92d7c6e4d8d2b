//! What all models have in common: embeddings, layers one after the other, a norm, and an output layer.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use wootz::{Array, DType, Result, Tree, divide, multiply, nn};

use super::{Build, LanguageModel, ModelInfo};
use crate::cache::{LayerKind, Pass};
use crate::checkpoint::{Loader, given_truth};
use crate::layers::{Attention, Embedding, FeedForward, Linear, Residual, RmsNorm, RopeConfig};

/// A layer of a model.
pub(super) trait Layer: Tree + Send + Sync + 'static {
    /// What it remembers.
    fn kind(&self) -> LayerKind;

    /// Tokens beyond which its rotation depends on how many there are, if it does.
    fn dynamic_from(&self) -> Option<usize> {
        None
    }

    /// Adds to the stream.
    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> Result<()>;
}

/// A model of layers.
#[derive(Tree)]
pub(super) struct Decoder<L> {
    model: Backbone<L>,
    lm_head: Option<Linear>,
    /// Tells what the model is; nothing is computed from it.
    #[wootz(skip)]
    info: ModelInfo,
    #[wootz(value)]
    style: Style,
    /// The layers that run.
    #[wootz(value)]
    running: usize,
}

/// All but the output layer.
#[derive(Tree)]
pub(super) struct Backbone<L> {
    embed_tokens: Embedding,
    layers: Vec<L>,
    norm: RmsNorm,
}

/// What some models do beside their layers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// Embeddings are multiplied with it.
    pub(super) embedding_scale: Option<f64>,
    /// Scores are divided by it.
    pub(super) logits_divisor: Option<f64>,
    /// Scores stay below it.
    pub(super) logits_softcap: Option<f64>,
}

impl Hash for Style {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Style { embedding_scale, logits_divisor, logits_softcap } = *self;
        let numbers = [embedding_scale, logits_divisor, logits_softcap];
        numbers.map(|number| number.map(f64::to_bits)).hash(state);
    }
}

/// What configurations have in common, as one of their parts.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Common {
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) intermediate_size: usize,
    pub(super) num_attention_heads: usize,
    pub(super) rms_norm_eps: f64,
    pub(super) vocab_size: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(default, deserialize_with = "given_truth")]
    tie_word_embeddings: Option<bool>,
    #[serde(flatten)]
    pub(super) rope: RopeConfig,
}

impl Common {
    /// Heads of queries, and of keys and values.
    pub(super) fn heads(&self) -> [usize; 2] {
        let heads = self.num_attention_heads;
        [heads, self.num_key_value_heads.unwrap_or(heads)]
    }

    /// Features of a head.
    pub(super) fn head_dim(&self) -> usize {
        let divided = self.hidden_size / self.num_attention_heads.max(1);
        self.head_dim.filter(|&dims| dims > 0).unwrap_or(divided)
    }

    /// The sizes; `tied` is what an architecture takes if a configuration does not say it.
    pub(super) fn sizes(&self, tied: bool) -> Sizes {
        Sizes {
            layers: self.num_hidden_layers,
            hidden: self.hidden_size,
            vocabulary: self.vocab_size,
            context: self.rope.context(),
            eps: self.rms_norm_eps,
            tied: self.tie_word_embeddings.unwrap_or(tied),
            offset: false,
        }
    }
}

/// Sizes that every configuration has.
pub(super) struct Sizes {
    pub(super) layers: usize,
    pub(super) hidden: usize,
    pub(super) vocabulary: usize,
    pub(super) context: Option<usize>,
    pub(super) eps: f64,
    /// Whether the output layer is the embeddings.
    pub(super) tied: bool,
    /// Whether 1 is added to weights of norms.
    pub(super) offset: bool,
}

impl<L: Layer> Decoder<L> {
    /// Loads all but the layers, which `layer` makes of their number and path. `path` is before all names.
    pub(super) fn load(
        loader: &mut Loader<'_>,
        path: &str,
        sizes: Sizes,
        style: Style,
        mut layer: impl FnMut(&mut Loader<'_>, usize, &str, DType) -> crate::Result<L>,
    ) -> crate::Result<Decoder<L>> {
        let Sizes { hidden, vocabulary, eps, .. } = sizes;
        loader.expect_layers(&format!("{path}model.layers."), sizes.layers)?;
        let at = format!("{path}model.embed_tokens");
        let embed_tokens = loader.embedding(&at, vocabulary, hidden)?;
        let norm = loader.norm(&format!("{path}model.norm"), hidden, eps)?;
        // Norms that are wider than embeddings widen all that comes behind them.
        let dtype = DType::promote(embed_tokens.dtype(), norm.weight.dtype());
        let norm = norm.with_offset(sizes.offset)?;
        let layers = (0..sizes.layers)
            .map(|number| layer(loader, number, &format!("{path}model.layers.{number}"), dtype))
            .collect::<crate::Result<Vec<_>>>()?;
        // What a text may have has no end where rotation follows its length.
        let dynamic_from = layers.iter().find_map(Layer::dynamic_from);
        let context_length = sizes.context.filter(|_| dynamic_from.is_none());
        let head = format!("{path}lm_head");
        let lm_head = if sizes.tied {
            loader
                .remove(|name| name.strip_prefix(&head).is_some_and(|rest| rest.starts_with('.')));
            None
        } else {
            Some(loader.linear(&head, hidden, vocabulary, false)?)
        };
        let info = ModelInfo {
            architecture: String::new(),
            layers: sizes.layers,
            hidden_size: hidden,
            vocab_size: vocabulary,
            context_length,
            dynamic_from,
            parameters: 0,
            dtype,
            device: loader.device().clone(),
            schemes: BTreeMap::new(),
            unused: BTreeSet::new(),
            warnings: Vec::new(),
        };
        let (model, running) = (Backbone { embed_tokens, layers, norm }, sizes.layers);
        Ok(Decoder { model, lm_head, info, style, running })
    }

    /// With only the first layers run; `warning` says why. The weights of the others stay.
    pub(super) fn run_first(mut self, layers: usize, warning: String) -> Decoder<L> {
        self.running = layers.min(self.running);
        self.info.layers = self.running;
        self.info.warnings.push(warning);
        self
    }

    fn running(&self) -> &[L] {
        &self.model.layers[..self.running.min(self.model.layers.len())]
    }
}

impl<L: Layer> LanguageModel for Decoder<L> {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn layers(&self) -> Vec<LayerKind> {
        self.running().iter().map(Layer::kind).collect()
    }

    fn hidden(&self, tokens: &Array, pass: &mut Pass) -> Result<Array> {
        let mut x = self.model.embed_tokens.forward(tokens)?;
        if let Some(scale) = self.style.embedding_scale {
            x = multiply(x, scale)?;
        }
        let mut stream = Residual::new(x);
        for (number, layer) in self.running().iter().enumerate() {
            layer.forward(&mut stream, pass, number)?;
            pass.observe(number, &mut stream)?;
        }
        stream.norm(&self.model.norm)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        let mut logits = match &self.lm_head {
            Some(head) => head.forward(hidden)?,
            None => self.model.embed_tokens.as_linear(hidden)?,
        };
        if let Some(divisor) = self.style.logits_divisor {
            logits = divide(logits, divisor)?;
        }
        if let Some(cap) = self.style.logits_softcap {
            logits = nn::softcap(&logits, cap)?;
        }
        Ok(logits)
    }

    fn parameters(&self) -> BTreeMap<String, Array> {
        Tree::parameters(self)
    }
}

impl<L: Layer> Build for Decoder<L> {
    fn info_mut(&mut self) -> &mut ModelInfo {
        &mut self.info
    }

    fn ready(self: Arc<Self>) -> Arc<dyn LanguageModel> {
        self
    }
}

/// A model within one that does more than language.
#[derive(Tree)]
pub(super) struct Nested<M> {
    pub(super) language_model: M,
}

impl<M: Build + Tree> LanguageModel for Nested<M> {
    fn info(&self) -> &ModelInfo {
        self.language_model.info()
    }

    fn layers(&self) -> Vec<LayerKind> {
        self.language_model.layers()
    }

    fn hidden(&self, tokens: &Array, pass: &mut Pass) -> Result<Array> {
        self.language_model.hidden(tokens, pass)
    }

    fn logits(&self, hidden: &Array) -> Result<Array> {
        self.language_model.logits(hidden)
    }

    fn parameters(&self) -> BTreeMap<String, Array> {
        Tree::parameters(self)
    }
}

impl<M: Build + Tree + 'static> Build for Nested<M> {
    fn info_mut(&mut self) -> &mut ModelInfo {
        self.language_model.info_mut()
    }

    fn ready(self: Arc<Self>) -> Arc<dyn LanguageModel> {
        self
    }
}

/// The layer that most models have: attention and a network, each behind a norm.
#[derive(Tree)]
pub(super) struct Block {
    pub(super) self_attn: Attention,
    pub(super) mlp: FeedForward,
    pub(super) input_layernorm: RmsNorm,
    pub(super) post_attention_layernorm: RmsNorm,
    /// What results are multiplied with before they are added.
    pub(super) residual_multiplier: Option<f64>,
}

impl Block {
    /// With its norms, around attention and a network.
    pub(super) fn load(
        loader: &mut Loader<'_>,
        path: &str,
        [hidden, eps]: [f64; 2],
        self_attn: Attention,
        mlp: FeedForward,
    ) -> crate::Result<Block> {
        let mut norm = |name: &str| loader.norm(&format!("{path}.{name}"), hidden as usize, eps);
        Ok(Block {
            self_attn,
            mlp,
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            residual_multiplier: None,
        })
    }

    fn scaled(&self, x: Array) -> Result<Array> {
        self.residual_multiplier.map_or(Ok(x.clone()), |by| multiply(&x, by))
    }
}

impl Layer for Block {
    fn kind(&self) -> LayerKind {
        self.self_attn.config().kind()
    }

    fn dynamic_from(&self) -> Option<usize> {
        self.self_attn.config().dynamic_from()
    }

    fn forward(&self, stream: &mut Residual, pass: &mut Pass, layer: usize) -> Result<()> {
        let x = stream.norm(&self.input_layernorm)?;
        stream.add(self.scaled(self.self_attn.forward(&x, pass, layer)?)?)?;
        let x = stream.norm(&self.post_attention_layernorm)?;
        stream.add(self.scaled(self.mlp.forward(&x)?)?)
    }
}
