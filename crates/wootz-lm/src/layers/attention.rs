//! Attention as most models have it, with all that they vary.

use std::hash::{Hash, Hasher};

use wootz::{Array, DType, Parameter, Result, Tree, multiply, sigmoid, split};

use super::{Linear, RmsNorm, Rope};
use crate::cache::{Attend, LayerKind, Pass};
use crate::checkpoint::{Bias, Loader};

/// What attention does.
#[derive(Clone, Debug)]
pub struct AttentionConfig {
    /// Features of a token.
    pub hidden: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// What products of queries and keys are multiplied with.
    pub scale: f64,
    /// Rotary positions, if there are any.
    pub rope: Option<Rope>,
    /// Tokens that are seen at a time; all, without.
    pub window: Option<usize>,
    /// Scores stay below it.
    pub softcap: Option<f64>,
    /// Whether the projection of queries has a gate for the result beside each head.
    pub gated: bool,
    /// Of activations, and so of keys and values.
    pub dtype: DType,
}

/// Numbers count by their bits.
impl Hash for AttentionConfig {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let AttentionConfig { hidden, heads, kv_heads, head_dim, scale, rope, .. } = self;
        let AttentionConfig { window, softcap, gated, dtype, .. } = self;
        (hidden, heads, kv_heads, head_dim, scale.to_bits(), rope).hash(state);
        (window, softcap.map(f64::to_bits), gated, dtype).hash(state);
    }
}

impl AttentionConfig {
    /// The usual, with these sizes.
    pub fn new(
        hidden: usize,
        [heads, kv_heads]: [usize; 2],
        head_dim: usize,
        dtype: DType,
    ) -> AttentionConfig {
        AttentionConfig {
            hidden,
            heads,
            kv_heads,
            head_dim,
            scale: 1.0 / (head_dim as f64).sqrt(),
            rope: None,
            window: None,
            softcap: None,
            gated: false,
            dtype,
        }
    }

    /// What the layer remembers.
    pub fn kind(&self) -> LayerKind {
        LayerKind::attention(self.kv_heads, self.head_dim, self.window, self.dtype)
    }

    /// See [`Rope::dynamic_from`].
    pub(crate) fn dynamic_from(&self) -> Option<usize> {
        self.rope.as_ref().and_then(Rope::dynamic_from)
    }

    /// `[batch, length, heads · dims]` as `[batch, heads, length, dims]`.
    fn split_heads(&self, x: &Array, heads: usize) -> Result<Array> {
        let (batch, length) = (x.shape()[0], x.shape()[1]);
        if length == 1 {
            return x.reshape(&[batch, heads, 1, self.head_dim]);
        }
        x.reshape(&[batch, length, heads, self.head_dim])?.swapaxes(1, 2)
    }

    /// The reverse.
    fn join_heads(&self, x: &Array) -> Result<Array> {
        let &[batch, heads, length, dims] = x.shape() else { return Ok(x.clone()) };
        if length == 1 {
            return x.reshape(&[batch, 1, heads * dims]);
        }
        x.swapaxes(1, 2)?.reshape(&[batch, length, heads * dims])
    }

    /// Rotates queries and keys, appends, and attends: `[batch, length, heads · dims]` of queries, keys
    /// and values, with norms of heads on the way.
    pub fn attend(
        &self,
        [q, k, v]: [&Array; 3],
        norms: [Option<&RmsNorm>; 2],
        sinks: Option<&Array>,
        pass: &mut Pass,
        layer: usize,
    ) -> Result<Array> {
        let heads = |x: &Array, count: usize, norm: Option<&RmsNorm>| match norm {
            // Normalised while rows lie in one piece.
            Some(norm) => {
                let (batch, length) = (x.shape()[0], x.shape()[1]);
                let whole = x.reshape(&[batch, length, count, self.head_dim])?;
                self.split_heads(&norm.forward(&whole)?.reshape(x.shape())?, count)
            }
            None => self.split_heads(x, count),
        };
        let (q, k) = (heads(q, self.heads, norms[0])?, heads(k, self.kv_heads, norms[1])?);
        let v = self.split_heads(v, self.kv_heads)?;
        let rope = self.rope.as_ref();
        let options = Attend { rope, scale: self.scale, softcap: self.softcap, sinks };
        self.join_heads(&pass.attend(layer, [&q, &k, &v], options)?)
    }
}

/// Attention with a projection each for queries, keys, values and the result.
#[derive(Clone, Debug, Tree)]
pub struct Attention {
    /// To queries.
    pub q_proj: Linear,
    /// To keys.
    pub k_proj: Linear,
    /// To values.
    pub v_proj: Linear,
    /// Of the result.
    pub o_proj: Linear,
    /// Of queries: of each head, or of all together.
    pub q_norm: Option<RmsNorm>,
    /// Of keys.
    pub k_norm: Option<RmsNorm>,
    /// `[heads]`.
    pub sinks: Option<Parameter>,
    #[wootz(value)]
    pub(crate) config: AttentionConfig,
}

impl Attention {
    /// With biases of the first three projections and of the last. A model adds the norms and sinks it has.
    pub fn load(
        loader: &mut Loader<'_>,
        path: &str,
        config: AttentionConfig,
        [inner, outer]: [Bias; 2],
    ) -> crate::Result<Attention> {
        let AttentionConfig { hidden, heads, kv_heads, head_dim, .. } = config;
        let queries = heads * head_dim * if config.gated { 2 } else { 1 };
        let keys = kv_heads * head_dim;
        Ok(Attention {
            q_proj: loader.linear(&format!("{path}.q_proj"), hidden, queries, inner)?,
            k_proj: loader.linear(&format!("{path}.k_proj"), hidden, keys, inner)?,
            v_proj: loader.linear(&format!("{path}.v_proj"), hidden, keys, inner)?,
            o_proj: loader.linear(&format!("{path}.o_proj"), heads * head_dim, hidden, outer)?,
            q_norm: None,
            k_norm: None,
            sinks: None,
            config,
        })
    }

    /// With norms of each head's queries and keys.
    pub fn with_head_norms(
        self,
        loader: &mut Loader<'_>,
        path: &str,
        eps: f64,
        offset: bool,
    ) -> crate::Result<Attention> {
        let dims = self.config.head_dim;
        let mut norm = |name: &str| -> crate::Result<Option<RmsNorm>> {
            let norm = loader.norm(&format!("{path}.{name}"), dims, eps)?;
            Ok(Some(norm.with_offset(offset)?))
        };
        Ok(Attention { q_norm: norm("q_norm")?, k_norm: norm("k_norm")?, ..self })
    }

    /// What it does.
    pub fn config(&self) -> &AttentionConfig {
        &self.config
    }

    /// For `x` of `[batch, length, hidden]`.
    pub fn forward(&self, x: &Array, pass: &mut Pass, layer: usize) -> Result<Array> {
        let config = &self.config;
        let projections = [&self.q_proj, &self.k_proj, &self.v_proj];
        let [mut q, mut k, v] = Linear::forward_each(projections, x)?;
        let mut gate = None;
        if config.gated {
            let (batch, length) = (x.shape()[0], x.shape()[1]);
            let both = q.reshape(&[batch, length, config.heads, 2 * config.head_dim])?;
            let parts = split(&both, 2, -1)?;
            let shape = [batch, length, config.heads * config.head_dim];
            gate = Some(parts[1].reshape(&shape)?);
            q = parts[0].reshape(&shape)?;
        }
        let (mut q_norm, mut k_norm) = (self.q_norm.as_ref(), self.k_norm.as_ref());
        // A norm that is as wide as all heads is of all together.
        let of_all = |norm: &RmsNorm| norm.weight.size() != config.head_dim;
        if let Some(norm) = q_norm.take_if(|norm| of_all(norm)) {
            q = norm.forward(&q)?;
        }
        if let Some(norm) = k_norm.take_if(|norm| of_all(norm)) {
            k = norm.forward(&k)?;
        }
        // Files may keep them wider than what they are compared with.
        let sinks = self.sinks.as_deref().map(|sinks| sinks.astype(q.dtype())).transpose()?;
        let sinks = sinks.as_ref();
        let mut y = config.attend([&q, &k, &v], [q_norm, k_norm], sinks, pass, layer)?;
        if let Some(gate) = gate {
            y = multiply(y, sigmoid(gate)?)?;
        }
        self.o_proj.forward(&y)
    }
}
