//! Activation functions, losses, and layers with given parameters.

use std::collections::BTreeMap;

use wootz::fast::{self, Mask, RopeBase};
use wootz::nn::{self, losses, losses::Reduction};
use wootz::{Array, Tree};

use super::{many, one, rows};
use crate::call::{Call, Outcome, Refusal, unsayable};

rows! {
    "fast.cross_entropy" => |c| {
        one(fast::cross_entropy(&c.array("logits")?, &c.array("targets")?))
    },
    "fast.gated_delta_update" => |c| {
        let (state, mask) = (c.array_opt("initial_state")?, c.array_opt("mask")?);
        many(
            fast::gated_delta_update(
                &c.array("q")?,
                &c.array("k")?,
                &c.array("v")?,
                &c.array("gamma")?,
                &c.array("beta")?,
                state.as_ref(),
                mask.as_ref(),
            )
            .map(|(y, state)| [y, state]),
        )
    },
    "fast.layer_norm" => |c| {
        let (weight, bias) = (c.array_opt("weight")?, c.array_opt("bias")?);
        one(fast::layer_norm(&c.array("x")?, weight.as_ref(), bias.as_ref(), c.float("eps")? as f32))
    },
    "fast.rope" => |c| {
        let freqs = c.array_opt("freqs")?;
        let base = match (&freqs, c.has("base")) {
            (None, true) => RopeBase::Base(c.float("base")?),
            (Some(freqs), false) => RopeBase::Freqs(freqs),
            _ => return unsayable("base", "given beside freqs, or neither"),
        };
        c.ignore("base");
        one(fast::rope(
            &c.array("a")?,
            c.size("dims")?,
            c.flag("traditional")?,
            base,
            c.float("scale")?,
            c.arg("offset")?,
        ))
    },
    "fast.scaled_dot_product_attention" => |c| {
        c.ignore("force_fused");
        let (array, sinks) = (masks(c)?, c.array_opt("sinks")?);
        let mask = match &array {
            Some(array) => Mask::Array(array),
            None if c.has("mask") => Mask::Causal,
            None => Mask::None,
        };
        one(fast::scaled_dot_product_attention(
            &c.array("q")?,
            &c.array("k")?,
            &c.array("v")?,
            c.float("scale")?,
            mask,
            sinks.as_ref(),
        ))
    },
    "nn.celu" => |c| one(nn::celu(&c.array("x")?, c.float("alpha")?)),
    "nn.elu" => |c| one(nn::elu(&c.array("x")?, c.float("alpha")?)),
    "nn.gelu" => |c| one(nn::gelu(&c.array("x")?)),
    "nn.gelu_approx" => |c| one(nn::gelu_approx(&c.array("x")?)),
    "nn.gelu_fast_approx" => |c| one(nn::gelu_fast_approx(&c.array("x")?)),
    "nn.glu" => |c| one(nn::glu(&c.array("x")?, c.int("axis")?)),
    "nn.hard_shrink" => |c| one(nn::hard_shrink(&c.array("x")?, c.float("lambd")?)),
    "nn.hard_tanh" => |c| {
        one(nn::hard_tanh(&c.array("x")?, c.float("min_val")?, c.float("max_val")?))
    },
    "nn.hardswish" => |c| one(nn::hardswish(&c.array("x")?)),
    "nn.leaky_relu" => |c| one(nn::leaky_relu(&c.array("x")?, c.float("negative_slope")?)),
    "nn.log_sigmoid" => |c| one(nn::log_sigmoid(&c.array("x")?)),
    "nn.log_softmax" => |c| one(nn::log_softmax(&c.array("x")?, c.int("axis")?)),
    "nn.mish" => |c| one(nn::mish(&c.array("x")?)),
    "nn.prelu" => |c| one(nn::prelu(&c.array("x")?, &c.array("alpha")?)),
    "nn.relu" => |c| one(nn::relu(&c.array("x")?)),
    "nn.relu2" => |c| one(nn::relu2(&c.array("x")?)),
    "nn.relu6" => |c| one(nn::relu6(&c.array("x")?)),
    "nn.selu" => |c| one(nn::selu(&c.array("x")?)),
    "nn.sigmoid" => |c| one(nn::sigmoid(&c.array("x")?)),
    "nn.silu" => |c| one(nn::silu(&c.array("x")?)),
    "nn.softmax" => |c| one(nn::softmax(&c.array("x")?, c.int("axis")?)),
    "nn.softmin" => |c| one(nn::softmin(&c.array("x")?, c.int("axis")?)),
    "nn.softplus" => |c| one(nn::softplus(&c.array("x")?)),
    "nn.softshrink" => |c| one(nn::softshrink(&c.array("x")?, c.float("lambd")?)),
    "nn.softsign" => |c| one(nn::softsign(&c.array("x")?)),
    "nn.step" => |c| one(nn::step(&c.array("x")?, c.float("threshold")?)),
    "nn.tanh" => |c| one(nn::tanh(&c.array("x")?)),
    otherwise loss
}

/// Losses.
fn loss(op: &str) -> Option<super::Row> {
    Some(match op {
        "nn.losses.binary_cross_entropy" => |c| {
            let (inputs, targets) = (c.array("inputs")?, c.array("targets")?);
            let (weights, logits) = (c.array_opt("weights")?, c.flag("with_logits")?);
            let reduction = reduction(c)?;
            one(losses::binary_cross_entropy(
                &inputs,
                &targets,
                weights.as_ref(),
                logits,
                reduction,
            ))
        },
        "nn.losses.cosine_similarity_loss" => |c| {
            let (x1, x2) = (c.array("x1")?, c.array("x2")?);
            let (axis, eps) = (c.int("axis")?, c.float("eps")?);
            one(losses::cosine_similarity_loss(&x1, &x2, axis, eps, reduction(c)?))
        },
        "nn.losses.cross_entropy" => |c| {
            let weights = c.array_opt("weights")?;
            one(losses::cross_entropy(
                &c.array("logits")?,
                &c.array("targets")?,
                weights.as_ref(),
                c.int("axis")?,
                c.float("label_smoothing")?,
                reduction(c)?,
            ))
        },
        "nn.losses.gaussian_nll_loss" => |c| {
            one(losses::gaussian_nll_loss(
                &c.array("inputs")?,
                &c.array("targets")?,
                &c.array("vars")?,
                c.flag("full")?,
                c.float("eps")?,
                reduction(c)?,
            ))
        },
        "nn.losses.hinge_loss" => |c| pair(c, "inputs", losses::hinge_loss),
        "nn.losses.huber_loss" => |c| {
            let (inputs, targets) = (c.array("inputs")?, c.array("targets")?);
            one(losses::huber_loss(&inputs, &targets, c.float("delta")?, reduction(c)?))
        },
        "nn.losses.kl_div_loss" => |c| {
            let (inputs, targets) = (c.array("inputs")?, c.array("targets")?);
            one(losses::kl_div_loss(&inputs, &targets, c.int("axis")?, reduction(c)?))
        },
        "nn.losses.l1_loss" => |c| pair(c, "predictions", losses::l1_loss),
        "nn.losses.log_cosh_loss" => |c| pair(c, "inputs", losses::log_cosh_loss),
        "nn.losses.margin_ranking_loss" => |c| {
            one(losses::margin_ranking_loss(
                &c.array("inputs1")?,
                &c.array("inputs2")?,
                &c.array("targets")?,
                c.float("margin")?,
                reduction(c)?,
            ))
        },
        "nn.losses.mse_loss" => |c| pair(c, "predictions", losses::mse_loss),
        "nn.losses.nll_loss" => |c| {
            let (inputs, targets) = (c.array("inputs")?, c.array("targets")?);
            one(losses::nll_loss(&inputs, &targets, c.int("axis")?, reduction(c)?))
        },
        "nn.losses.smooth_l1_loss" => |c| {
            let (inputs, targets) = (c.array("predictions")?, c.array("targets")?);
            one(losses::smooth_l1_loss(&inputs, &targets, c.float("beta")?, reduction(c)?))
        },
        "nn.losses.triplet_loss" => |c| {
            one(losses::triplet_loss(
                &c.array("anchors")?,
                &c.array("positives")?,
                &c.array("negatives")?,
                c.int("axis")?,
                c.float("p")?,
                c.float("margin")?,
                c.float("eps")?,
                reduction(c)?,
            ))
        },
        _ => return layer(op),
    })
}

/// Layers: parameters are inputs, under `parameters.` and their dotted names.
fn layer(op: &str) -> Option<super::Row> {
    Some(match op {
        "nn.ALiBi" => |c| forward(c, nn::ALiBi),
        "nn.BatchNorm" => |c| {
            let mut layer = given(
                c,
                nn::BatchNorm::with(
                    c.size("num_features")?,
                    c.float("eps")?,
                    c.float("momentum")?,
                    c.flag("affine")?,
                    c.flag("track_running_stats")?,
                )?,
            )?;
            let training = c.flag("training")?;
            layer.set_training(training)?;
            let mut outputs = vec![nn::Module::forward(&layer, &c.array("x")?)?];
            if training {
                outputs
                    .extend(layer.running_mean.iter().chain(&layer.running_var).map(|s| s.get()));
            }
            Ok(outputs)
        },
        "nn.Bilinear" => |c| {
            let dims = [c.size("input1_dims")?, c.size("input2_dims")?, c.size("output_dims")?];
            let layer = given(c, nn::Bilinear::new(dims[0], dims[1], dims[2], c.flag("bias")?)?)?;
            one(layer.forward(&c.array("x1")?, &c.array("x2")?))
        },
        "nn.Conv1d" => |c| {
            let options = nn::Conv1dOptions {
                stride: c.size("stride")?,
                padding: c.size("padding")?,
                dilation: c.size("dilation")?,
                groups: c.size("groups")?,
            };
            let (from, to) = (c.size("in_channels")?, c.size("out_channels")?);
            forward(c, nn::Conv1d::new(from, to, c.size("kernel_size")?, options, c.flag("bias")?)?)
        },
        "nn.Embedding" => {
            |c| forward(c, nn::Embedding::new(c.size("num_embeddings")?, c.size("dims")?)?)
        }
        "nn.GroupNorm" => |c| {
            forward(
                c,
                nn::GroupNorm::with(
                    c.size("num_groups")?,
                    c.size("dims")?,
                    c.float("eps")?,
                    c.flag("affine")?,
                    c.flag("pytorch_compatible")?,
                )?,
            )
        },
        "nn.GRU" => |c| {
            let (from, to) = (c.size("input_size")?, c.size("hidden_size")?);
            let layer = given(c, nn::GRU::new(from, to, c.flag("bias")?)?)?;
            one(layer.forward_from(&c.array("x")?, c.array_opt("hidden")?.as_ref()))
        },
        "nn.InstanceNorm" => |c| {
            let (dims, eps) = (c.size("dims")?, c.float("eps")?);
            forward(c, nn::InstanceNorm::new(dims, eps, c.flag("affine")?)?)
        },
        "nn.LayerNorm" => |c| {
            let (dims, eps) = (c.size("dims")?, c.float("eps")?);
            forward(c, nn::LayerNorm::with(dims, eps, c.flag("affine")?, c.flag("bias")?)?)
        },
        "nn.Linear" => |c| {
            let (from, to) = (c.size("input_dims")?, c.size("output_dims")?);
            forward(c, nn::Linear::new(from, to, c.flag("bias")?)?)
        },
        "nn.LSTM" => |c| {
            let (from, to) = (c.size("input_size")?, c.size("hidden_size")?);
            let layer = given(c, nn::LSTM::new(from, to, c.flag("bias")?)?)?;
            let (hidden, cell) = (c.array_opt("hidden")?, c.array_opt("cell")?);
            many(layer.forward(&c.array("x")?, hidden.as_ref(), cell.as_ref()).map(<[_; 2]>::from))
        },
        "nn.MultiHeadAttention" => |c| {
            let (dims, heads) = (c.size("dims")?, c.size("num_heads")?);
            let layer = given(c, nn::MultiHeadAttention::new(dims, heads, c.flag("bias")?)?)?;
            let mask = c.array_opt("mask")?;
            let (q, k, v) = (c.array("queries")?, c.array("keys")?, c.array("values")?);
            one(layer.forward(&q, &k, &v, mask.as_ref().map_or(Mask::None, Mask::Array)))
        },
        "nn.PReLU" => |c| forward(c, nn::PReLU::new(c.size("num_parameters")?, c.float("init")?)?),
        "nn.RMSNorm" => |c| forward(c, nn::RMSNorm::new(c.size("dims")?, c.float("eps")?)?),
        "nn.RNN" => |c| {
            let (from, to) = (c.size("input_size")?, c.size("hidden_size")?);
            let layer = given(c, nn::RNN::new(from, to, c.flag("bias")?)?)?;
            one(layer.forward_from(&c.array("x")?, c.array_opt("hidden")?.as_ref()))
        },
        "nn.RoPE" => |c| {
            let layer = nn::RoPE {
                dims: c.size("dims")?,
                traditional: c.flag("traditional")?,
                base: c.float("base")?,
                scale: c.float("scale")?,
            };
            one(layer.forward_from(&c.array("x")?, c.int("offset")?))
        },
        "nn.SinusoidalPositionalEncoding" => |c| {
            c.ignore("scale");
            forward(
                c,
                nn::SinusoidalPositionalEncoding::with(
                    c.size("dims")?,
                    c.float("min_freq")?,
                    c.float("max_freq")?,
                    c.has("scale").then(|| c.float("scale")).transpose()?,
                    c.flag("cos_first")?,
                    c.flag("full_turns")?,
                )?,
            )
        },
        "nn.Transformer" => |c| {
            let layers = [c.size("num_encoder_layers")?, c.size("num_decoder_layers")?];
            let (dims, heads, options) = transformer(c)?;
            let layer =
                given(c, nn::Transformer::new(dims, heads, layers[0], layers[1], &options)?)?;
            let masks = ["src_mask", "tgt_mask", "memory_mask"].map(|name| c.array_opt(name));
            let [source, target, memory] = masks;
            let (source, target, memory) = (source?, target?, memory?);
            let (src, tgt) = (c.array("src")?, c.array("tgt")?);
            one(layer.forward(&src, &tgt, mask(&source), mask(&target), mask(&memory)))
        },
        "nn.TransformerDecoder" => |c| {
            let (dims, heads, options) = transformer(c)?;
            let layers = c.size("num_layers")?;
            let layer = given(c, nn::TransformerDecoder::with(layers, dims, heads, &options)?)?;
            let (own, other) = (c.array_opt("x_mask")?, c.array_opt("memory_mask")?);
            one(layer.forward(&c.array("x")?, &c.array("memory")?, mask(&own), mask(&other)))
        },
        "nn.TransformerDecoderLayer" => |c| {
            let (dims, heads, options) = transformer(c)?;
            let layer = given(c, nn::TransformerDecoderLayer::with(dims, heads, &options)?)?;
            let (own, other) = (c.array_opt("x_mask")?, c.array_opt("memory_mask")?);
            one(layer.forward(&c.array("x")?, &c.array("memory")?, mask(&own), mask(&other)))
        },
        "nn.TransformerEncoder" => |c| {
            let (dims, heads, options) = transformer(c)?;
            let layers = c.size("num_layers")?;
            let layer = given(c, nn::TransformerEncoder::with(layers, dims, heads, &options)?)?;
            one(layer.forward(&c.array("x")?, mask(&c.array_opt("mask")?)))
        },
        "nn.TransformerEncoderLayer" => |c| {
            let (dims, heads, options) = transformer(c)?;
            let layer = given(c, nn::TransformerEncoderLayer::with(dims, heads, &options)?)?;
            one(layer.forward(&c.array("x")?, mask(&c.array_opt("mask")?)))
        },
        _ => return None,
    })
}

/// Width, heads and options of a transformer's layers.
fn transformer(c: &Call<'_>) -> Result<(usize, usize, nn::TransformerOptions), Refusal> {
    let options = nn::TransformerOptions {
        mlp_dims: Some(c.size("mlp_dims")?),
        norm_first: c.flag("norm_first")?,
        checkpoint: c.has("checkpoint") && c.flag("checkpoint")?,
        ..Default::default()
    };
    Ok((c.size("dims")?, c.size("num_heads")?, options))
}

fn mask(array: &Option<Array>) -> Mask<'_> {
    array.as_ref().map_or(Mask::None, Mask::Array)
}

/// A layer whose parameters are the case's.
fn given<T: Tree>(c: &Call<'_>, mut layer: T) -> Result<T, Refusal> {
    let mut parameters = BTreeMap::new();
    for name in layer.parameters().into_keys() {
        let array = c.array(&format!("parameters.{name}"))?;
        parameters.insert(name, array);
    }
    layer.update(&parameters)?;
    Ok(layer)
}

/// The output of a layer with one input.
pub(super) fn forward(c: &Call<'_>, layer: impl nn::Module) -> Outcome {
    one(given(c, layer)?.forward(&c.array("x")?))
}

/// A mask that is an array.
fn masks(c: &Call<'_>) -> Result<Option<Array>, Refusal> {
    match c.value("mask").and_then(serde_json::Value::as_str) {
        None => c.array_opt("mask"),
        Some("causal") => Ok(None),
        Some(other) => unsayable("mask", other),
    }
}

fn pair(
    c: &Call<'_>,
    first: &str,
    loss: fn(&Array, &Array, Reduction) -> wootz::Result<Array>,
) -> Outcome {
    one(loss(&c.array(first)?, &c.array("targets")?, reduction(c)?))
}

fn reduction(c: &Call<'_>) -> Result<Reduction, Refusal> {
    match c.word("reduction")? {
        "none" => Ok(Reduction::None),
        "mean" => Ok(Reduction::Mean),
        "sum" => Ok(Reduction::Sum),
        other => unsayable("reduction", other),
    }
}
