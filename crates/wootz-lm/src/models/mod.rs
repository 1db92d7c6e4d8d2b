//! Language models, one file for each architecture. Their fields have the names of the checkpoint's keys, and they
//! compute what mlx-lm's models of the same names do.

mod decoder;
mod gemma2;
mod gemma3;
mod gpt_oss;
mod granite;
mod llama;
mod mixtral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod smollm3;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use wootz::quant::Scheme;
use wootz::{Array, DType, Device};

use crate::cache::{Cache, CacheOptions, LayerKind, Pass};
use crate::checkpoint::{Checkpoint, Loader, blame};
use crate::{Error, Result};

/// A model that says how likely each token is to come next.
pub trait LanguageModel: Send + Sync {
    /// What is known of it.
    fn info(&self) -> &ModelInfo;

    /// What its layers remember.
    fn layers(&self) -> Vec<LayerKind>;

    /// The states behind the last layer, `[batch, length, hidden]`, of tokens `[batch, length]`.
    fn hidden(&self, tokens: &Array, pass: &mut Pass) -> wootz::Result<Array>;

    /// The scores of all tokens, `[…, vocabulary]`, from such states.
    fn logits(&self, hidden: &Array) -> wootz::Result<Array>;

    /// All arrays, by the checkpoint's names.
    fn parameters(&self) -> BTreeMap<String, Array>;
}

/// What is known of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The `model_type` of its configuration.
    pub architecture: String,
    /// How many layers it has.
    pub layers: usize,
    /// Features of a token.
    pub hidden_size: usize,
    /// Tokens that there are.
    pub vocab_size: usize,
    /// Tokens that it was made to see at a time, if its configuration says so. None where rotary positions are stretched
    /// to texts of any length.
    pub context_length: Option<usize>,
    /// Tokens beyond which its rotary positions depend on how many there are, if they do: then
    /// scores depend on the chunks that a prompt is read in.
    pub dynamic_from: Option<usize>,
    /// Numbers that it is made of.
    pub parameters: u64,
    /// Of activations.
    pub dtype: DType,
    /// Where it is.
    pub device: Device,
    /// How weights are quantized, by the path of their layer; others are not.
    pub schemes: BTreeMap<String, Scheme>,
    /// Tensors of its files that it does not take, as those of parts that see images, by MLX's names.
    pub unused: BTreeSet<String>,
    /// What of its files has no effect, in sentences for a user.
    pub warnings: Vec<String>,
}

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where it goes.
    pub device: Device,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { device: Device::default_device() }
    }
}

type Load = fn(&Value, &mut Loader<'_>) -> Result<Arc<dyn Build>>;

/// The architectures: `model_type` and what makes a model of a configuration and tensors.
const ARCHITECTURES: &[(&str, Load)] = &[
    ("gemma2", gemma2::load),
    ("gemma3", gemma3::load),
    ("gemma3_text", gemma3::load_text),
    ("gpt_oss", gpt_oss::load),
    ("granite", granite::load),
    ("llama", llama::load),
    ("mistral", llama::load),
    ("mixtral", mixtral::load),
    ("olmo2", olmo2::load),
    ("phi3", phi3::load),
    ("qwen2", qwen2::load),
    ("qwen3", qwen3::load),
    ("qwen3_5", qwen3_5::load),
    ("qwen3_5_moe", qwen3_5::load),
    ("qwen3_moe", qwen3_moe::load),
    ("qwen3_next", qwen3_next::load),
    ("smollm3", smollm3::load),
];

/// Other `model_type`s that mlx-lm takes for one of these.
const ALIASES: &[(&str, &str)] = &[("iquestcoder", "llama"), ("xverse", "llama")];

/// Architectures whose models in mlx-lm know `rope_theta` and `rope_scaling` only, and have usual values for what is left out.
const OLDER_ROTATION: &[&str] = &[
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gpt_oss",
    "llama",
    "mistral",
    "mixtral",
    "olmo2",
    "phi3",
    "qwen2",
    "smollm3",
];

/// The `model_type` that another is an alias of, or itself.
pub(crate) fn architecture_of(name: &str) -> &str {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, architecture)| architecture)
}

/// The `model_type`s that can be loaded. Aliases of theirs, as `xverse` of `llama`, are, too.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|(name, _)| *name)
}

/// Makes the model of a checkpoint. Weights are used as they lie in its files.
pub fn load(checkpoint: &Checkpoint, options: &LoadOptions) -> Result<Arc<dyn LanguageModel>> {
    let config = checkpoint.config();
    let name = config.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let wanted = architecture_of(name);
    let Some((_, build)) = ARCHITECTURES.iter().find(|(known, _)| *known == wanted) else {
        let supported = architectures().collect::<Vec<_>>().join(", ");
        return Err(Error::Architecture { name: name.to_string(), supported });
    };
    if config.get("quantize_activations").is_some_and(|given| *given == Value::Bool(true)) {
        let expected = "false: products with quantized activations are not supported";
        return Err(Error::argument("quantize_activations", expected, true));
    }
    let (config, warning) = as_read(wanted, config);
    let mut loader = Loader::new(checkpoint, &options.device)?;
    wootz::with_device(&options.device, || {
        let mut model = build(&config, &mut loader)?;
        let (schemes, unused) = (loader.schemes().clone(), loader.unused().clone());
        let parameters = loader.finish(|_| false)?;
        model.layers().iter().try_for_each(LayerKind::check_window)?;
        let Some(building) = Arc::get_mut(&mut model) else {
            return Err(Error::Weights("the model is in use already".to_string()));
        };
        let info = building.info_mut();
        info.architecture = name.to_string();
        info.parameters = parameters;
        info.schemes = schemes;
        info.unused = unused;
        info.warnings.extend(warning);
        info.device = options.device.clone();
        Ok(model.ready())
    })
}

/// The configuration without what mlx-lm's model of an architecture does not read although it says what other keys do not,
/// and a warning then. Where it could not go on without, it is read here: with a base of `null`, or none that must be there.
fn as_read<'a>(architecture: &str, config: &'a Value) -> (Cow<'a, Value>, Option<String>) {
    let nested = config.get("text_config").is_some_and(Value::is_object);
    let part = if nested { &config["text_config"] } else { config };
    let is_lost = part.get("rope_parameters").is_some_and(Value::is_object)
        && part.get("rope_theta").is_none()
        && OLDER_ROTATION.contains(&architecture);
    if !is_lost {
        return (Cow::Borrowed(config), None);
    }
    let mut config = config.clone();
    let part = if nested { config.get_mut("text_config") } else { Some(&mut config) };
    if let Some(fields) = part.and_then(Value::as_object_mut) {
        fields.remove("rope_parameters");
    }
    let warning = format!(
        "rope_parameters of config.json are not read, as in mlx-lm's {architecture}: rotation has the usual base, unless \
         rope_theta and rope_scaling say the same"
    );
    (Cow::Owned(config), Some(warning))
}

/// What each layer makes of tokens `[1, length]`, and then the states behind the last norm. A layer behind one whose
/// output is `given` goes on from that, so that layers are seen one by one.
pub fn layer_outputs(
    model: &dyn LanguageModel,
    tokens: &[u32],
    given: &[Array],
) -> Result<Vec<Array>> {
    let device = &model.info().device;
    let cache = Cache::new(&model.layers(), &CacheOptions::default(), device)?;
    let ids = Array::from_slice_on(tokens, &[1, tokens.len()], device)?;
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (sink, given) = (seen.clone(), given.to_vec());
    let pass = Pass::known(0, tokens.len(), cache.with_room(tokens.len())?)?;
    let mut pass = pass.observed(Box::new(move |layer, stream| {
        sink.borrow_mut().push(stream.clone());
        Ok(given.get(layer).cloned())
    }));
    let last = wootz::with_device(device, || model.hidden(&ids, &mut pass))?;
    drop(pass);
    let mut outputs = seen.take();
    outputs.push(last);
    Ok(outputs)
}

/// A model whose [`ModelInfo`] is not yet complete.
trait Build: LanguageModel {
    fn info_mut(&mut self) -> &mut ModelInfo;
    fn ready(self: Arc<Self>) -> Arc<dyn LanguageModel>;
}

/// A configuration's part, in the type of an architecture.
fn parse<C: DeserializeOwned>(config: &Value) -> Result<C> {
    let fails = |config: &Value| C::deserialize(config).is_err();
    C::deserialize(config).map_err(|error| blame(config, &error, fails))
}
