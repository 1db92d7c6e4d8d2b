//! Takes a model's tensors from a checkpoint by name, and in the end says which of them were missing, had
//! another shape, or were not asked for.

use std::collections::{BTreeMap, BTreeSet};

use wootz::quant::Scheme;
use wootz::{Array, DType, Device, Parameter, Quantized, broadcast_to};

use super::quantization::NO_GLOBAL_SCALE;
use super::{Checkpoint, Quantization, Shards, Tensor};
use crate::layers::{Embedding, Linear, RmsNorm, SwitchLinear};
use crate::{Error, Result};

/// Tensors that a checkpoint may hold although models do not need them.
const IGNORED: [&str; 2] = ["rotary_emb.inv_freq", "masked_bias"];

/// At most so many names of each kind are listed in an error.
const LISTED: usize = 20;

/// Whether a layer has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It has none.
    No,
    /// It has one.
    Yes,
    /// If the checkpoint holds one.
    IfPresent,
}

impl From<bool> for Bias {
    fn from(biased: bool) -> Bias {
        if biased { Bias::Yes } else { Bias::No }
    }
}

/// The tensors of a checkpoint, each to be taken once.
pub struct Loader<'a> {
    checkpoint: &'a Checkpoint,
    device: Device,
    quantization: Option<Quantization>,
    entries: BTreeMap<String, Entry>,
    /// Those of the checkpoint that nobody took yet.
    unused: BTreeSet<String>,
    parameters: u64,
    schemes: BTreeMap<String, Scheme>,
    missing: Vec<String>,
    misfits: Vec<String>,
}

enum Entry {
    /// In the checkpoint, under this of MLX's names.
    Stored(String),
    /// Made of others.
    Made(Array),
}

impl<'a> Loader<'a> {
    /// All tensors of a checkpoint, to be used on a device.
    pub fn new(checkpoint: &'a Checkpoint, device: &Device) -> Result<Loader<'a>> {
        let stored = |name: &str| (name.to_string(), Entry::Stored(name.to_string()));
        Ok(Loader {
            checkpoint,
            device: device.clone(),
            quantization: checkpoint.quantization()?,
            entries: checkpoint.names().map(stored).collect(),
            unused: checkpoint.names().map(str::to_string).collect(),
            parameters: 0,
            schemes: BTreeMap::new(),
            missing: Vec::new(),
            misfits: Vec::new(),
        })
    }

    /// Whether the tensors are those of a GGUF file, whose activations are in single precision.
    pub fn is_gguf(&self) -> bool {
        self.checkpoint.gguf().is_some()
    }

    /// Where tensors go.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The names that are left.
    pub fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The shape of a tensor that is left.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        match self.entries.get(name)? {
            Entry::Stored(name) => self.checkpoint.shape(name).map(<[usize]>::to_vec),
            Entry::Made(array) => Some(array.shape().to_vec()),
        }
    }

    /// Leaves out tensors.
    pub fn remove(&mut self, unwanted: impl Fn(&str) -> bool) {
        self.entries.retain(|name, _| !unwanted(name));
    }

    /// Gives tensors other names.
    pub fn rename(&mut self, change: impl Fn(&str) -> Option<String>) {
        let entries = std::mem::take(&mut self.entries);
        let renamed = |(name, entry): (String, Entry)| (change(&name).unwrap_or(name), entry);
        self.entries = entries.into_iter().map(renamed).collect();
    }

    /// Checks that there are tensors of so many layers, `{path}{number}.…`, before anything is made for each.
    pub fn expect_layers(&self, path: &str, layers: usize) -> Result<()> {
        let number = |name: &String| name.strip_prefix(path)?.split('.').next()?.parse().ok();
        let present: BTreeSet<usize> = self.entries.keys().filter_map(number).collect();
        let present = present.len();
        // A few that are missing are listed by name.
        if layers > present.saturating_add(LISTED) {
            let lost = self.checkpoint.safetensors().and_then(Shards::lost);
            let lost = lost.map(|lost| format!(" ({lost})")).unwrap_or_default();
            let expected = format!("{present}, as many layers as have tensors{lost}");
            return Err(Error::argument("num_hidden_layers", expected, layers));
        }
        Ok(())
    }

    /// Takes numbers out.
    pub fn take(&mut self, name: &str) -> Result<Option<Array>> {
        Ok(self.take_tensor(name)?.map(|tensor| tensor.array))
    }

    /// Puts numbers in, in the place of what has this name.
    pub fn insert(&mut self, name: &str, array: Array) {
        self.entries.insert(name.to_string(), Entry::Made(array));
    }

    fn take_tensor(&mut self, name: &str) -> Result<Option<Tensor>> {
        Ok(match self.entries.remove(name) {
            None => None,
            Some(Entry::Made(array)) => Some(Tensor { array, blocks: None }),
            Some(Entry::Stored(stored)) => {
                self.unused.remove(&stored);
                Some(self.checkpoint.tensor(&stored, &self.device)?)
            }
        })
    }

    /// Numbers of a shape.
    pub fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<Parameter> {
        Ok(match self.optional(name, shape)? {
            Some(parameter) => parameter,
            None => {
                self.missing.push(name.to_string());
                self.stand_in(shape)?
            }
        })
    }

    /// Numbers of a shape, if there are any of this name.
    pub fn optional(&mut self, name: &str, shape: &[usize]) -> Result<Option<Parameter>> {
        let Some(tensor) = self.take_tensor(name)? else { return Ok(None) };
        if let Some(format) = tensor.blocks {
            self.misfits.push(format!("{name}: expected numbers, got {format}"));
            return Ok(Some(self.stand_in(shape)?));
        }
        if tensor.array.shape() != shape {
            let got = tensor.array.shape();
            self.misfits.push(format!("{name}: expected {shape:?}, got {got:?}"));
            return Ok(Some(self.stand_in(shape)?));
        }
        self.parameters += tensor.array.size() as u64;
        Ok(Some(tensor.array.into()))
    }

    /// An array that takes no memory, in the place of one that is not there: loading goes on, to find
    /// all that is wrong.
    fn stand_in(&self, shape: &[usize]) -> Result<Parameter> {
        let zero = Array::from_slice_on(&[0.0f32], &[], &self.device)?;
        Ok(broadcast_to(&zero, shape)?.into())
    }

    /// A normalisation's weight.
    pub fn norm(&mut self, path: &str, dims: usize, eps: f64) -> Result<RmsNorm> {
        Ok(RmsNorm::new(self.parameter(&format!("{path}.weight"), &[dims])?, eps))
    }

    /// A matrix `[outputs, inputs]`, dense or quantized, and a bias.
    pub fn linear(
        &mut self,
        path: &str,
        inputs: usize,
        outputs: usize,
        bias: impl Into<Bias>,
    ) -> Result<Linear> {
        let bias = self.bias(path, &[outputs], bias.into())?;
        let weight = self.weight(path, &[outputs, inputs])?;
        Ok(Linear::new(weight, bias, self.is_gguf()))
    }

    /// A matrix `[outputs, inputs]` for each expert, and a bias.
    pub fn switch_linear(
        &mut self,
        path: &str,
        experts: usize,
        inputs: usize,
        outputs: usize,
        bias: impl Into<Bias>,
    ) -> Result<SwitchLinear> {
        let bias = self.bias(path, &[experts, outputs], bias.into())?;
        let weight = self.weight(path, &[experts, outputs, inputs])?;
        Ok(SwitchLinear::new(weight, bias))
    }

    /// A table `[count, dims]`.
    pub fn embedding(&mut self, path: &str, count: usize, dims: usize) -> Result<Embedding> {
        Ok(Embedding::new(self.weight(path, &[count, dims])?, self.is_gguf()))
    }

    fn bias(&mut self, path: &str, shape: &[usize], bias: Bias) -> Result<Option<Parameter>> {
        let name = format!("{path}.bias");
        match bias {
            Bias::No => Ok(None),
            Bias::Yes => self.parameter(&name, shape).map(Some),
            Bias::IfPresent => self.optional(&name, shape),
        }
    }

    /// The weights of a layer, in whatever form they are.
    fn weight(&mut self, path: &str, shape: &[usize]) -> Result<Weight> {
        let name = format!("{path}.weight");
        let Some(tensor) = self.take_tensor(&name)? else {
            self.missing.push(name);
            return self.stand_in(shape).map(Weight::Dense);
        };
        let (scales, biases) =
            (self.take(&format!("{path}.scales"))?, self.take(&format!("{path}.biases"))?);
        if self.take(&format!("{path}.global_scale"))?.is_some() {
            self.misfits.push(format!("{path}.global_scale: expected {NO_GLOBAL_SCALE}"));
        }
        let scheme = match (&tensor.blocks, &scales) {
            (Some(format), _) => Ok(Some(Scheme::Blocks(*format))),
            (None, None) if biases.is_some() => Err("it has biases, but no scales".to_string()),
            (None, None) => Ok(None),
            (None, Some(scales)) => {
                self.scheme(path, shape, &tensor.array, scales, biases.is_some()).map(Some)
            }
        };
        let made = scheme.and_then(|scheme| {
            let Some(scheme) = scheme else {
                self.expect_numbers(path)?;
                return Ok(Weight::Dense(tensor.array.into()));
            };
            let made = Quantized::new(scheme, &tensor.array, scales.as_ref(), biases.as_ref());
            made.map(Weight::Quantized).map_err(|error| error.to_string())
        });
        let fits = |weight: &Weight| match weight.shape() {
            got if got == shape => Ok(()),
            got => Err(format!("expected {shape:?}, got {got:?}")),
        };
        match made.and_then(|weight| fits(&weight).map(|()| weight)) {
            Ok(weight) => {
                if let Weight::Quantized(weights) = &weight {
                    self.schemes.insert(path.to_string(), weights.scheme());
                }
                self.parameters += shape.iter().map(|&length| length as u64).product::<u64>();
                Ok(weight)
            }
            Err(what) => {
                self.misfits.push(format!("{name}: {what}"));
                self.stand_in(shape).map(Weight::Dense)
            }
        }
    }

    /// An error if the configuration says how a layer without scales is quantized.
    fn expect_numbers(&self, path: &str) -> Result<(), String> {
        match self.quantization.as_ref().and_then(|all| all.layers.get(path)) {
            Some(Some(scheme)) => Err(format!("no scales, though the configuration says {scheme}")),
            _ => Ok(()),
        }
    }

    /// How a layer with scales is quantized: as the configuration says of this layer, else by the arrays' shapes,
    /// whatever it says of all, as in mlx-lm.
    fn scheme(
        &self,
        path: &str,
        shape: &[usize],
        codes: &Array,
        scales: &Array,
        biased: bool,
    ) -> Result<Scheme, String> {
        let named = self.quantization.as_ref().and_then(|all| all.layers.get(path));
        match named {
            Some(Some(scheme)) => return Ok(*scheme),
            Some(None) => {
                return Err("scales, though the configuration says that it is not quantized".into());
            }
            None => {}
        }
        let columns = shape.last().copied().unwrap_or(0);
        let last = |array: &Array| array.shape().last().copied().unwrap_or(0);
        let divided = |a: usize, b: usize| if b > 0 && a.is_multiple_of(b) { a / b } else { 0 };
        let (bits, group) = (divided(last(codes) * 32, columns), divided(columns, last(scales)));
        match (scales.dtype(), biased, bits, group) {
            (DType::U8, false, 4, 32) => Ok(Scheme::Mxfp4),
            (DType::U8, false, 8, 32) => Ok(Scheme::Mxfp8),
            (DType::U8, false, 4, 16) => Ok(Scheme::Nvfp4),
            (DType::U8, ..) | (_, false, ..) => {
                let (codes, scales) = (codes.shape(), scales.shape());
                Err(format!("no scheme has codes of {codes:?} and scales of {scales:?}"))
            }
            (.., 0, _) | (.., 0) => {
                let (codes, scales) = (codes.shape(), scales.shape());
                Err(format!("expected {shape:?}, got codes of {codes:?} and scales of {scales:?}"))
            }
            _ => Scheme::new("affine", Some(group), Some(bits)).map_err(|error| error.to_string()),
        }
    }

    /// How the weights that were taken are quantized, by the path of their layer.
    pub fn schemes(&self) -> &BTreeMap<String, Scheme> {
        &self.schemes
    }

    /// The tensors that nobody took, as those of parts that are not there here.
    pub fn unused(&self) -> &BTreeSet<String> {
        &self.unused
    }

    /// What was loaded, in numbers; or all that was wrong. Tensors that `extra` accepts may be left.
    pub fn finish(self, extra: impl Fn(&str) -> bool) -> Result<u64> {
        let ignored = |name: &String| IGNORED.iter().any(|part| name.contains(part)) || extra(name);
        let unexpected: Vec<String> =
            self.entries.into_keys().filter(|name| !ignored(name)).collect();
        let lost = self.checkpoint.safetensors().and_then(Shards::lost);
        let lost = lost.filter(|_| !self.missing.is_empty() || !self.misfits.is_empty());
        let kinds =
            [("missing", self.missing), ("wrong", self.misfits), ("unexpected", unexpected)];
        let listed =
            kinds.into_iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| {
                let more = match names.len().saturating_sub(LISTED) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("{kind}: {}{more}", names[..names.len().min(LISTED)].join(", "))
            });
        let listed: Vec<String> = listed.chain(lost).collect();
        if listed.is_empty() {
            return Ok(self.parameters);
        }
        Err(Error::Weights(format!("{}: {}", self.checkpoint.path().display(), listed.join("; "))))
    }
}

/// The weights of a layer, as they were found.
pub(crate) enum Weight {
    Dense(Parameter),
    Quantized(Quantized),
}

impl Weight {
    fn shape(&self) -> Vec<usize> {
        match self {
            Weight::Dense(parameter) => parameter.shape().to_vec(),
            Weight::Quantized(weights) => weights.shape(),
        }
    }
}
