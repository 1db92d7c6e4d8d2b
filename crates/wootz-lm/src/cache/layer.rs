//! The arrays of one layer.

use wootz::quant::Scheme;
use wootz::{Array, DType, Device, Quantized, concatenate, quantize, slice};

use super::STEP;
use crate::{Error, Result};

/// What a layer remembers.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerKind {
    /// Keys and values.
    Attention {
        /// Heads of keys and values.
        heads: usize,
        /// Features of a key.
        keys: usize,
        /// Features of a value.
        values: usize,
        /// Tokens that are seen at a time; all, without.
        window: Option<usize>,
        /// The first of them that stay.
        keep: usize,
        /// Of keys and values.
        dtype: DType,
    },
    /// States of these shapes, for one text.
    Recurrent(Vec<(Vec<usize>, DType)>),
}

impl LayerKind {
    /// Attention to all tokens, or to the last few.
    pub fn attention(
        heads: usize,
        head_dim: usize,
        window: Option<usize>,
        dtype: DType,
    ) -> LayerKind {
        // Positions are 32-bit integers: a longer window is one that never slides.
        let window = window.map(|window| window.min(i32::MAX as usize));
        LayerKind::Attention { heads, keys: head_dim, values: head_dim, window, keep: 0, dtype }
    }

    /// With full attention limited to so many tokens.
    pub(super) fn limited(&self, most: Option<usize>, first: usize) -> LayerKind {
        let mut limited = self.clone();
        if let LayerKind::Attention { window: window @ None, keep, .. } = &mut limited
            && most.is_some()
        {
            (*window, *keep) = (most, first);
        }
        limited
    }

    /// Tokens that are seen at a time, and how many of them stay, if there is a limit.
    pub(super) fn window(&self) -> Option<(usize, usize)> {
        match self {
            LayerKind::Attention { window, keep, .. } => window.map(|window| (window, *keep)),
            LayerKind::Recurrent(_) => None,
        }
    }

    /// Checks that there is room for a token beside those that stay.
    pub(crate) fn check_window(&self) -> Result<()> {
        match self {
            LayerKind::Attention { window: Some(window), keep, .. } if window <= keep => {
                let expected = format!("more than {keep} tokens");
                Err(Error::argument("sliding_window", expected, window))
            }
            _ => Ok(()),
        }
    }

    /// Checks that keys and values can be quantized so.
    pub(super) fn check(&self, scheme: Option<Scheme>) -> Result<()> {
        let (LayerKind::Attention { keys, values, .. }, Some(scheme)) = (self, scheme) else {
            return Ok(());
        };
        let Scheme::Affine { group_size, .. } = scheme else { return Ok(()) };
        for dims in [keys, values] {
            if !dims.is_multiple_of(group_size) {
                let expected = format!("a divisor of heads' {dims} features");
                return Err(Error::argument("kv_group_size", expected, group_size));
            }
        }
        Ok(())
    }

    /// Whether tokens can be forgotten after so many were seen.
    pub(super) fn can_trim(&self, length: usize) -> bool {
        match self {
            LayerKind::Attention { window, .. } => window.is_none_or(|window| length <= window),
            LayerKind::Recurrent(_) => false,
        }
    }

    /// The capacity for so many tokens.
    pub(super) fn room_for(&self, tokens: usize) -> usize {
        match self {
            LayerKind::Attention { window, .. } => {
                let whole = tokens.div_ceil(STEP) * STEP;
                window.map_or(whole, |window| whole.min(window))
            }
            LayerKind::Recurrent(_) => 0,
        }
    }
}

/// What a layer remembers, and how.
#[derive(Clone)]
pub(crate) struct LayerState {
    pub(crate) kind: LayerKind,
    /// How keys and values are quantized, if they are.
    pub(crate) scheme: Option<Scheme>,
    /// Keys and then values, `[batch, heads, capacity, …]`: one array each, or codes, scales and biases. Or
    /// the states of a recurrent layer.
    pub(crate) arrays: Vec<Array>,
}

impl LayerState {
    pub(super) fn new(kind: LayerKind, batch: usize, device: &Device) -> Result<LayerState> {
        let zeros = |shape: &[usize], dtype: DType| {
            wootz::with_device(device, || Array::zeros(&[&[batch], shape].concat(), dtype))
        };
        let arrays = match &kind {
            LayerKind::Attention { heads, keys, values, dtype, .. } => {
                vec![zeros(&[*heads, 0, *keys], *dtype)?, zeros(&[*heads, 0, *values], *dtype)?]
            }
            LayerKind::Recurrent(states) => (states.iter())
                .map(|(shape, dtype)| zeros(shape, *dtype))
                .collect::<wootz::Result<_>>()?,
        };
        Ok(LayerState { kind, scheme: None, arrays })
    }

    /// Tokens that there is room for.
    pub(super) fn capacity(&self) -> usize {
        match self.kind {
            LayerKind::Attention { .. } => self.arrays.first().map_or(0, |keys| keys.shape()[2]),
            LayerKind::Recurrent(_) => 0,
        }
    }

    /// Makes room for so many tokens.
    pub(super) fn grow(&mut self, capacity: usize) -> Result<()> {
        let present = self.capacity();
        if capacity <= present {
            return Ok(());
        }
        for array in &mut self.arrays {
            let mut shape = array.shape().to_vec();
            shape[2] = capacity - present;
            let more = wootz::with_device(array.device(), || Array::zeros(&shape, array.dtype()))?;
            *array = if present == 0 { more } else { concatenate(&[&*array, &more], 2)? };
        }
        Ok(())
    }

    /// Quantizes keys and values, if they are not.
    pub(super) fn quantize(&mut self, scheme: Scheme) -> Result<()> {
        if self.scheme.is_some() || !matches!(self.kind, LayerKind::Attention { .. }) {
            return Ok(());
        }
        self.arrays = quantized_arrays(&self.arrays, scheme)?;
        self.scheme = Some(scheme);
        Ok(())
    }

    /// The first tokens only.
    pub(super) fn cut(&self, length: usize) -> Result<Vec<Array>> {
        let LayerKind::Attention { .. } = self.kind else { return Ok(self.arrays.clone()) };
        let length = length.min(self.capacity());
        self.arrays.iter().map(|array| Ok(rows(array, 0, length)?)).collect()
    }
}

/// Keys and values as the arrays of quantized ones.
pub(super) fn quantized_arrays(arrays: &[Array], scheme: Scheme) -> wootz::Result<Vec<Array>> {
    let mut all = Vec::with_capacity(3 * arrays.len());
    for array in arrays {
        if array.size() == 0 {
            all.extend(empty(array, scheme)?);
            continue;
        }
        all.extend_from_slice(quantize(array, scheme)?.arrays());
    }
    Ok(all)
}

/// The arrays of no keys, quantized.
fn empty(array: &Array, scheme: Scheme) -> wootz::Result<Vec<Array>> {
    let mut shape = array.shape().to_vec();
    shape[2] = 1;
    let one = wootz::with_device(array.device(), || Array::zeros(&shape, array.dtype()))?;
    let one: Quantized = quantize(&one, scheme)?;
    one.arrays().iter().map(|array| rows(array, 0, 0)).collect()
}

/// Rows `from..to` of the axis before the last.
pub(super) fn rows(array: &Array, from: usize, to: usize) -> wootz::Result<Array> {
    let rank = array.rank();
    let (mut start, mut stop) = (vec![0; rank], array.shape().to_vec());
    (start[rank - 2], stop[rank - 2]) = (from, to);
    slice(array, &start, &stop, &vec![1; rank])
}
