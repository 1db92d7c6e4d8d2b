//! Gated networks, and sparse experts that are such.

use wootz::{
    Array, Gate, Result, Tree, add, argsort, astype, combine_experts, divide, expand_dims, maximum,
    minimum, multiply, negative, sigmoid, slice, softmax, squeeze, sum, take_along_axis,
};

use super::{Linear, SwitchLinear};
use crate::checkpoint::{Bias, Loader};

/// How a gate and what it lets through are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `silu(gate) · up`.
    Silu,
    /// `gelu(gate) · up`, by way of a hyperbolic tangent.
    GeluTanh,
    /// Clamped, as gpt-oss has it.
    Clamped,
}

impl Activation {
    /// The gate of products that know it.
    fn gate(self) -> Option<Gate> {
        match self {
            Activation::Silu => Some(Gate::Silu),
            Activation::GeluTanh => Some(Gate::GeluTanh),
            Activation::Clamped => None,
        }
    }

    fn apply(self, gate: &Array, up: &Array) -> Result<Array> {
        match self {
            Activation::Silu => Gate::Silu.apply(gate, up),
            Activation::GeluTanh => Gate::GeluTanh.apply(gate, up),
            Activation::Clamped => {
                const LIMIT: f64 = 7.0;
                let gate = minimum(gate, LIMIT)?;
                let up = maximum(minimum(up, LIMIT)?, -LIMIT)?;
                let through = multiply(&gate, sigmoid(multiply(&gate, 1.702)?)?)?;
                multiply(add(up, 1.0)?, through)
            }
        }
    }
}

/// `down(act(gate(x)) · up(x))`.
#[derive(Clone, Debug, Tree)]
pub struct GatedMlp {
    /// Of the gate.
    pub gate_proj: Linear,
    /// Of what the gate lets through.
    pub up_proj: Linear,
    /// Of the result.
    pub down_proj: Linear,
    #[wootz(value)]
    activation: Activation,
}

impl GatedMlp {
    /// With so many hidden features.
    pub fn load(
        loader: &mut Loader<'_>,
        path: &str,
        dims: usize,
        hidden: usize,
        bias: impl Into<Bias>,
        activation: Activation,
    ) -> crate::Result<GatedMlp> {
        let bias = bias.into();
        Ok(GatedMlp {
            gate_proj: loader.linear(&format!("{path}.gate_proj"), dims, hidden, bias)?,
            up_proj: loader.linear(&format!("{path}.up_proj"), dims, hidden, bias)?,
            down_proj: loader.linear(&format!("{path}.down_proj"), hidden, dims, bias)?,
            activation,
        })
    }

    /// For `x` of `[…, dims]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let hidden = match self.activation.gate() {
            Some(by) => Linear::forward_gated(&self.gate_proj, &self.up_proj, x, by)?,
            None => {
                let [gate, up] = Linear::forward_each([&self.gate_proj, &self.up_proj], x)?;
                self.activation.apply(&gate, &up)?
            }
        };
        self.down_proj.forward(&hidden)
    }
}

/// Experts that are gated networks.
#[derive(Clone, Debug, Tree)]
pub struct SwitchGlu {
    /// Of the gate.
    pub gate_proj: SwitchLinear,
    /// Of what the gate lets through.
    pub up_proj: SwitchLinear,
    /// Of the result.
    pub down_proj: SwitchLinear,
    #[wootz(value)]
    activation: Activation,
}

impl SwitchGlu {
    /// With so many hidden features.
    pub fn load(
        loader: &mut Loader<'_>,
        path: &str,
        experts: usize,
        [dims, hidden]: [usize; 2],
        bias: bool,
        activation: Activation,
    ) -> crate::Result<SwitchGlu> {
        let mut layer = |name: &str, from: usize, to: usize| {
            loader.switch_linear(&format!("{path}.{name}"), experts, from, to, bias)
        };
        Ok(SwitchGlu {
            gate_proj: layer("gate_proj", dims, hidden)?,
            up_proj: layer("up_proj", dims, hidden)?,
            down_proj: layer("down_proj", hidden, dims)?,
            activation,
        })
    }

    /// The results `[…, k, dims]` of each token's experts, for `x` of `[…, dims]` and experts of `[…, k]`.
    pub fn forward(&self, x: &Array, experts: &Array) -> Result<Array> {
        let x = expand_dims(x, [-2, -3])?;
        let gate = self.gate_proj.forward(&x, experts)?;
        let up = self.up_proj.forward(&x, experts)?;
        let hidden = self.activation.apply(&gate, &up)?;
        squeeze(&self.down_proj.forward(&hidden, experts)?, -2)
    }
}

/// How tokens are sent to experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoeConfig {
    /// How many experts there are.
    pub experts: usize,
    /// Experts for each token.
    pub k: usize,
    /// Whether the softmax is of the chosen only; else of all.
    pub chosen_only: bool,
    /// Whether weights are divided by their sum.
    pub renormalise: bool,
    /// Whether the first of equal scores wins; else the last. Scores of narrow types are often equal.
    pub first_wins: bool,
}

impl MoeConfig {
    /// The experts of each token and how much they count, from scores `[…, experts]`.
    pub fn route(&self, logits: &Array) -> Result<(Array, Array)> {
        // Models take the end of MLX's `argpartition`, or the beginning of that of the negative.
        let best = |scores: &Array| {
            let sorted = match self.first_wins {
                true => argsort(&negative(scores)?, -1)?,
                false => argsort(scores, -1)?,
            };
            let (mut start, mut stop) = (vec![0; sorted.rank()], sorted.shape().to_vec());
            match self.first_wins {
                true => stop[sorted.rank() - 1] = self.k,
                false => start[sorted.rank() - 1] = self.experts - self.k,
            }
            slice(&sorted, &start, &stop, &vec![1; sorted.rank()])?.contiguous()
        };
        if self.chosen_only {
            let experts = best(logits)?;
            let weights = softmax(&take_along_axis(logits, &experts, Some(-1))?, -1)?;
            return Ok((experts, weights));
        }
        let scores = softmax(logits, -1)?;
        let experts = best(&scores)?;
        let weights = take_along_axis(&scores, &experts, Some(-1))?;
        if self.renormalise {
            let total = sum(&weights, -1, true)?;
            return Ok((experts, divide(weights, total)?));
        }
        Ok((experts, weights))
    }
}

/// Experts that tokens are sent to, and one that all of them meet.
#[derive(Clone, Debug, Tree)]
pub struct SparseMoe {
    /// The scores of experts.
    pub gate: Linear,
    /// The experts.
    pub switch_mlp: SwitchGlu,
    /// The expert of every token.
    pub shared_expert: Option<GatedMlp>,
    /// How much that one counts.
    pub shared_expert_gate: Option<Linear>,
    #[wootz(value)]
    config: MoeConfig,
}

impl SparseMoe {
    /// With experts of so many hidden features; `shared` are those of the one that all tokens meet.
    pub fn load(
        loader: &mut Loader<'_>,
        path: &str,
        config: MoeConfig,
        [dims, hidden, shared]: [usize; 3],
    ) -> crate::Result<SparseMoe> {
        if config.k == 0 || config.k > config.experts {
            let expected = format!("1 to {}", config.experts);
            return Err(crate::Error::argument("num_experts_per_tok", expected, config.k));
        }
        let experts = config.experts;
        let silu = Activation::Silu;
        let at = format!("{path}.switch_mlp");
        let switch_mlp = SwitchGlu::load(loader, &at, experts, [dims, hidden], false, silu)?;
        let (mut shared_expert, mut shared_expert_gate) = (None, None);
        if shared > 0 {
            let at = format!("{path}.shared_expert");
            shared_expert = Some(GatedMlp::load(loader, &at, dims, shared, false, silu)?);
            let at = format!("{path}.shared_expert_gate");
            shared_expert_gate = Some(loader.linear(&at, dims, 1, false)?);
        }
        let gate = loader.linear(&format!("{path}.gate"), dims, experts, false)?;
        Ok(SparseMoe { gate, switch_mlp, shared_expert, shared_expert_gate, config })
    }

    /// For `x` of `[…, dims]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let (experts, weights) = self.config.route(&self.gate.forward(x)?)?;
        let y = combine_experts(&self.switch_mlp.forward(x, &experts)?, &weights)?;
        let (Some(shared), Some(gate)) = (&self.shared_expert, &self.shared_expert_gate) else {
            return astype(&y, x.dtype());
        };
        let shared = multiply(sigmoid(gate.forward(x)?)?, shared.forward(x)?)?;
        add(y, shared)
    }
}

/// Either of them.
#[derive(Clone, Debug, Tree)]
pub enum FeedForward {
    /// One network.
    Dense(Box<GatedMlp>),
    /// Experts.
    Sparse(Box<SparseMoe>),
}

impl FeedForward {
    /// For `x` of `[…, dims]`.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        match self {
            FeedForward::Dense(mlp) => mlp.forward(x),
            FeedForward::Sparse(moe) => moe.forward(x),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_scores_the_first_wins_or_the_last() {
        let scores = Array::from_slice(&[0.5f32, 2.0, 0.5, 0.5], &[1, 4]).unwrap();
        let chosen = |first_wins: bool, chosen_only: bool| {
            let config =
                MoeConfig { experts: 4, k: 2, chosen_only, renormalise: false, first_wins };
            let (experts, weights) = config.route(&scores).unwrap();
            let (experts, weights) = (experts.to_vec::<u32>(), weights.to_vec::<f32>());
            let mut both: Vec<_> = experts.unwrap().into_iter().zip(weights.unwrap()).collect();
            both.sort_by_key(|(expert, _)| *expert);
            both
        };
        for chosen_only in [false, true] {
            let (first, last) = (chosen(true, chosen_only), chosen(false, chosen_only));
            assert_eq!([first[0].0, first[1].0, last[0].0, last[1].0], [0, 1, 1, 3]);
            assert_eq!([first[0].1, first[1].1], [last[1].1, last[0].1]);
        }
    }
}
