//! Attention with several heads.

use super::{Linear, Module};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::fast::{self, Mask};
use crate::ops::*;

/// Widths of a [`MultiHeadAttention`]'s inputs and outputs; all are `dims` unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionDims {
    /// Of queries and keys inside.
    pub dims: usize,
    /// Of the queries that are put in.
    pub query_input: usize,
    /// Of the keys that are put in.
    pub key_input: usize,
    /// Of the values that are put in.
    pub value_input: usize,
    /// Of values inside.
    pub value: usize,
    /// Of what comes out.
    pub value_output: usize,
}

impl From<usize> for AttentionDims {
    fn from(dims: usize) -> AttentionDims {
        AttentionDims {
            dims,
            query_input: dims,
            key_input: dims,
            value_input: dims,
            value: dims,
            value_output: dims,
        }
    }
}

/// Scaled dot product attention with several heads and projections before and after.
///
/// ```
/// use wootz::{Array, DType, fast::Mask, nn::MultiHeadAttention};
/// let attention = MultiHeadAttention::new(8, 2, false)?;
/// let x = Array::ones(&[1, 5, 8], DType::F32)?;
/// assert_eq!(attention.forward(&x, &x, &x, Mask::Causal)?.shape(), [1, 5, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct MultiHeadAttention {
    /// Of queries.
    pub query_proj: Linear,
    /// Of keys.
    pub key_proj: Linear,
    /// Of values.
    pub value_proj: Linear,
    /// Of the result.
    pub out_proj: Linear,
    num_heads: usize,
}

impl MultiHeadAttention {
    /// MLX's default is without biases.
    pub fn new(
        dims: impl Into<AttentionDims>,
        num_heads: usize,
        bias: bool,
    ) -> Result<MultiHeadAttention> {
        let dims = dims.into();
        if num_heads == 0 || dims.dims % num_heads != 0 || dims.value % num_heads != 0 {
            let expected = format!("a divisor of the widths {} and {}", dims.dims, dims.value);
            return Err(Error::argument("MultiHeadAttention", "num_heads", expected, num_heads));
        }
        Ok(MultiHeadAttention {
            query_proj: Linear::new(dims.query_input, dims.dims, bias)?,
            key_proj: Linear::new(dims.key_input, dims.dims, bias)?,
            value_proj: Linear::new(dims.value_input, dims.value, bias)?,
            out_proj: Linear::new(dims.value, dims.value_output, bias)?,
            num_heads,
        })
    }

    /// What the queries, `[batch, queries, dims]`, find in the values at the keys,
    /// `[batch, keys, dims]`.
    pub fn forward(
        &self,
        queries: &Array,
        keys: &Array,
        values: &Array,
        mask: Mask<'_>,
    ) -> Result<Array> {
        let heads = |layer: &Linear, x: &Array| {
            let x = layer.forward(x)?.unflatten(-1, &[self.num_heads as i64, -1])?;
            transpose_axes(&x, &[0, 2, 1, 3])
        };
        let q = heads(&self.query_proj, queries)?;
        let (k, v) = (heads(&self.key_proj, keys)?, heads(&self.value_proj, values)?);
        let scale = (1.0 / q.dim(-1)? as f64).sqrt();
        let y = fast::scaled_dot_product_attention(&q, &k, &v, scale, mask, None)?;
        let y = transpose_axes(&y, &[0, 2, 1, 3])?.flatten(-2, -1)?;
        self.out_proj.forward(&y)
    }

    /// A mask to add to scores that hides later positions.
    pub fn create_additive_causal_mask(length: usize, dtype: DType) -> Result<Array> {
        let indices = arange(0, length, 1, None)?;
        let later = less(expand_dims(&indices, 1)?, &indices)?;
        multiply(later.astype(dtype)?, fast::lowest(dtype))
    }
}
