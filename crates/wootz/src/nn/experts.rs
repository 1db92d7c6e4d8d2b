//! Sparse experts: layers with a weight for each expert, of which a token meets a few.

use super::linear::{affine, uniform};
use super::{Linear, Module, swiglu};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::*;
use crate::tree::Parameter;

/// A [`Linear`] for each expert: `x Wᵀ + b` with the weight that an index chooses.
///
/// ```
/// use wootz::{Array, DType, nn::SwitchLinear};
/// let layer = SwitchLinear::new(4, 6, 3, true)?;
/// let x = Array::ones(&[5, 1, 1, 4], DType::F32)?;
/// let experts = Array::zeros(&[5, 2], DType::U32)?;
/// assert_eq!(layer.forward(&x, &experts)?.shape(), [5, 2, 1, 6]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct SwitchLinear {
    /// `[num_experts, output_dims, input_dims]`.
    pub weight: Parameter,
    /// `[num_experts, output_dims]`.
    pub bias: Option<Parameter>,
}

impl SwitchLinear {
    /// Weights spread evenly over `±1/√input_dims`; biases are zero.
    pub fn new(
        input_dims: usize,
        output_dims: usize,
        num_experts: usize,
        bias: bool,
    ) -> Result<SwitchLinear> {
        let scale = (1.0 / input_dims as f64).sqrt();
        let bias = bias.then(|| super::linear::filled(&[num_experts, output_dims], 0));
        Ok(SwitchLinear {
            weight: uniform(&[num_experts, output_dims, input_dims], scale)?,
            bias: bias.transpose()?,
        })
    }

    /// For `x` of `[…, rows, input_dims]` and expert indices that broadcast with the axes before
    /// the last two.
    pub fn forward(&self, x: &Array, experts: &Array) -> Result<Array> {
        let y = gather_mm(x, &self.weight.swapaxes(-1, -2)?, None, Some(experts), false)?;
        match &self.bias {
            Some(bias) => add(y, expand_dims(&take(bias, experts, Some(0))?, -2)?),
            None => Ok(y),
        }
    }
}

/// Experts that are [gated networks](GatedMlp).
///
/// ```
/// use wootz::{Array, DType, nn::SwitchGLU};
/// let layer = SwitchGLU::new(4, 8, 3, false)?;
/// let experts = Array::zeros(&[5, 2], DType::U32)?;
/// assert_eq!(layer.forward(&Array::ones(&[5, 4], DType::F32)?, &experts)?.shape(), [5, 2, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct SwitchGLU {
    /// Of the gate.
    pub gate_proj: SwitchLinear,
    /// Of what the gate lets through.
    pub up_proj: SwitchLinear,
    /// Of the result.
    pub down_proj: SwitchLinear,
}

impl SwitchGLU {
    /// Experts with this many hidden features.
    pub fn new(
        input_dims: usize,
        hidden_dims: usize,
        num_experts: usize,
        bias: bool,
    ) -> Result<SwitchGLU> {
        let layer = |from, to| SwitchLinear::new(from, to, num_experts, bias);
        Ok(SwitchGLU {
            gate_proj: layer(input_dims, hidden_dims)?,
            up_proj: layer(input_dims, hidden_dims)?,
            down_proj: layer(hidden_dims, input_dims)?,
        })
    }

    /// The results `[…, k, dims]` of each token's experts, for `x` of `[…, dims]` and expert
    /// indices of `[…, k]`.
    pub fn forward(&self, x: &Array, experts: &Array) -> Result<Array> {
        let x = expand_dims(x, [-2, -3])?;
        let gate = self.gate_proj.forward(&x, experts)?;
        let hidden = swiglu(&gate, &self.up_proj.forward(&x, experts)?)?;
        squeeze(&self.down_proj.forward(&hidden, experts)?, -2)
    }
}

/// `down(silu(gate(x)) · up(x))`, without biases.
///
/// ```
/// use wootz::{Array, DType, nn::{GatedMlp, Module}};
/// let layer = GatedMlp::new(4, 8)?;
/// assert_eq!(layer.forward(&Array::ones(&[5, 4], DType::F32)?)?.shape(), [5, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct GatedMlp {
    /// Of the gate.
    pub gate_proj: Linear,
    /// Of what the gate lets through.
    pub up_proj: Linear,
    /// Of the result.
    pub down_proj: Linear,
}

impl GatedMlp {
    /// With this many hidden features.
    pub fn new(dims: usize, hidden_dims: usize) -> Result<GatedMlp> {
        Ok(GatedMlp {
            gate_proj: Linear::new(dims, hidden_dims, false)?,
            up_proj: Linear::new(dims, hidden_dims, false)?,
            down_proj: Linear::new(hidden_dims, dims, false)?,
        })
    }
}

impl Module for GatedMlp {
    fn forward(&self, x: &Array) -> Result<Array> {
        let gate = self.gate_proj.forward(x)?;
        self.down_proj.forward(&swiglu(&gate, &self.up_proj.forward(x)?)?)
    }
}

/// The scores of experts for a token.
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct ExpertGate {
    /// `[num_experts, dims]`.
    pub weight: Parameter,
    /// `[num_experts]`, added to the scores for the choice only: see [`Router::bias`].
    pub e_score_correction_bias: Option<Parameter>,
}

/// Sizes of a [`SparseMoe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoeDims {
    /// Features of a token.
    pub dims: usize,
    /// Hidden features of an expert.
    pub hidden: usize,
    /// How many experts there are.
    pub experts: usize,
    /// Hidden features of the expert that every token meets; 0 for none.
    pub shared: usize,
}

/// A block of sparse experts: a [router] chooses some for each token, and their results are summed
/// with its weights. A shared expert may be added, and it may have a gate of its own. Parameters
/// have the names of mlx-lm's `Qwen3NextSparseMoeBlock`.
///
/// ```
/// use wootz::{Array, DType, Router, nn::{MoeDims, Module, SparseMoe}};
/// let dims = MoeDims { dims: 4, hidden: 8, experts: 6, shared: 8 };
/// let block = SparseMoe::new(dims, Router { renormalise: true, ..Router::new(2) })?;
/// assert_eq!(block.forward(&Array::ones(&[3, 5, 4], DType::F32)?)?.shape(), [3, 5, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct SparseMoe {
    /// What the router asks.
    pub gate: ExpertGate,
    /// The experts.
    pub switch_mlp: SwitchGLU,
    /// The expert of every token.
    pub shared_expert: Option<GatedMlp>,
    /// How much that one counts; all, without.
    pub shared_expert_gate: Option<Linear>,
    /// How experts are chosen; the bias is the gate's.
    #[wootz(value)]
    pub router: Router<'static>,
}

impl SparseMoe {
    /// With a gate for the shared expert if there is one, and no bias for the choice.
    pub fn new(dims: MoeDims, router: Router<'static>) -> Result<SparseMoe> {
        let MoeDims { dims, hidden, experts, shared } = dims;
        if router.bias.is_some() {
            let expected = "none: the gate has it as a parameter";
            return Err(Error::argument("SparseMoe", "router.bias", expected, "one"));
        }
        let scale = (1.0 / dims as f64).sqrt();
        let weight = uniform(&[experts, dims], scale)?;
        Ok(SparseMoe {
            gate: ExpertGate { weight, e_score_correction_bias: None },
            switch_mlp: SwitchGLU::new(dims, hidden, experts, false)?,
            shared_expert: (shared > 0).then(|| GatedMlp::new(dims, shared)).transpose()?,
            shared_expert_gate: (shared > 0).then(|| Linear::new(dims, 1, false)).transpose()?,
            router,
        })
    }
}

impl Module for SparseMoe {
    fn forward(&self, x: &Array) -> Result<Array> {
        let logits = affine(x, &self.gate.weight, None)?;
        let bias = self.gate.e_score_correction_bias.as_deref();
        let Routes { indices, weights } = router(&logits, &Router { bias, ..self.router })?;
        let y = combine_experts(&self.switch_mlp.forward(x, &indices)?, &weights)?;
        let Some(shared) = &self.shared_expert else { return Ok(y) };
        let shared = shared.forward(x)?;
        match &self.shared_expert_gate {
            Some(gate) => add(y, multiply(sigmoid(gate.forward(x)?)?, shared)?),
            None => add(y, shared),
        }
    }
}
