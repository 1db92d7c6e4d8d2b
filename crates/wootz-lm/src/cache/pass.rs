//! One call of a model over its cache: layers append keys and values, and attend to them.
//!
//! A pass of one token for each text is recorded and replayed, so that positions are arrays there. In a pass
//! of several tokens, the first position is known.

use wootz::quant::Scheme;
use wootz::{
    Array, AttentionOptions, DType, Error, Quantized, Result, add, attention, cache_append,
    concatenate, less, minimum, quantized_attention, remainder, rope_append, subtract, where_,
};

use super::layer::{LayerKind, LayerState, quantized_arrays, rows};
use crate::layers::{Residual, Rope};

/// What a layer asks of attention.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// How queries and keys are rotated, if they are.
    pub rope: Option<&'a Rope>,
    /// What products of queries and keys are multiplied with.
    pub scale: f64,
    /// Scores are softened to stay below it.
    pub softcap: Option<f64>,
    /// A score for each head that takes part in the softmax and is dropped.
    pub sinks: Option<&'a Array>,
}

/// One call of a model.
pub struct Pass {
    /// Where the new tokens of each text begin, `[batch]`.
    positions: Array,
    /// Where they end.
    ends: Array,
    /// The first position, if it is known and the same for all texts.
    start: Option<usize>,
    /// New tokens of each text.
    length: usize,
    layers: Vec<LayerState>,
    /// Of windows that layers share: see [`Pass::ring`].
    rings: Vec<((usize, usize), [Array; 2])>,
    observer: Option<Observer>,
}

/// Told a layer's number and the stream behind it; may give another to go on with.
type Observer = Box<dyn FnMut(usize, &Array) -> Result<Option<Array>>>;

impl Pass {
    /// New tokens from a position that is known.
    pub(crate) fn known(start: usize, length: usize, layers: Vec<LayerState>) -> Result<Pass> {
        let device = layers.iter().flat_map(|layer| &layer.arrays).map(Array::device).next();
        let device = device.cloned().unwrap_or_else(wootz::Device::default_device);
        let number = |number: usize| Array::from_slice_on(&[number as i32], &[1], &device);
        let (positions, ends) = (number(start)?, number(start + length)?);
        Ok(Pass {
            positions,
            ends,
            start: Some(start),
            length,
            layers,
            rings: Vec::new(),
            observer: None,
        })
    }

    /// One token of each text, at positions that an array holds.
    pub(crate) fn next(positions: &Array, layers: Vec<LayerState>) -> Result<Pass> {
        let (positions, ends) = (positions.clone(), add(positions, 1)?);
        let rings = Vec::new();
        Ok(Pass { positions, ends, start: None, length: 1, layers, rings, observer: None })
    }

    /// With somebody who looks at what flows from layer to layer.
    pub(crate) fn observed(self, observer: Observer) -> Pass {
        Pass { observer: Some(observer), ..self }
    }

    /// Shows the stream behind a layer.
    pub(crate) fn observe(&mut self, layer: usize, stream: &mut Residual) -> Result<()> {
        let Some(observer) = &mut self.observer else { return Ok(()) };
        if let Some(other) = observer(layer, &stream.value()?)? {
            *stream = Residual::new(other);
        }
        Ok(())
    }

    pub(crate) fn into_layers(self) -> Vec<LayerState> {
        self.layers
    }

    /// Where the new tokens of each text begin, `[batch]` in `int32`; one for all if it is the same.
    pub fn positions(&self) -> &Array {
        &self.positions
    }

    /// New tokens of each text.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Rotates queries and keys, appends keys and values to those of a layer, and attends to all of them. Arrays are
    /// `[batch, heads, length, features]`.
    pub fn attend(
        &mut self,
        layer: usize,
        [q, k, v]: [&Array; 3],
        options: Attend<'_>,
    ) -> Result<Array> {
        let unknown = || Error::argument("attend", "layer", "one of the cache's", layer);
        let mut state = self.layers.get_mut(layer).map(std::mem::take).ok_or_else(unknown)?;
        let LayerKind::Attention { window, keep, .. } = state.kind else { return Err(unknown()) };
        let plain = AttentionOptions {
            softcap: options.softcap,
            sinks: options.sinks,
            ..AttentionOptions::new(options.scale)
        };
        let arrays = std::mem::take(&mut state.arrays);
        let around = window.zip(self.start).filter(|(window, start)| start + self.length > *window);
        let y = if let Some((window, start)) = around {
            let ring = Ring { window, keep };
            let (q, new) = self.rotated([q, k, v], options.rope, &state, &arrays)?;
            let all = (arrays.iter().zip(&new))
                .map(|(old, new)| ring.in_order(old, start, new))
                .collect::<Result<Vec<_>>>()?;
            let end = start + self.length;
            state.arrays = all.iter().map(|all| ring.last(all, end)).collect::<Result<_>>()?;
            let seen = AttentionOptions { causal: true, window: Some(window as i64), ..plain };
            attend(&q, &all, state.scheme, &seen)?
        } else {
            let [slots, valid] = self.ring(window, keep)?;
            let q = match (state.scheme, &arrays[..]) {
                (None, [keys, values]) if [q, k, v].iter().all(|x| x.dtype() == keys.dtype()) => {
                    let rope =
                        options.rope.map(|rope| rope.parts(q, &self.positions)).transpose()?;
                    let rope = rope.as_ref().map(|(op, table)| (*op, table, &self.positions));
                    let (caches, q) = rope_append([q, k, v], rope, [keys, values], &slots)?;
                    state.arrays = caches.to_vec();
                    q
                }
                _ => {
                    let (q, new) = self.rotated([q, k, v], options.rope, &state, &arrays)?;
                    state.arrays = (arrays.iter().zip(&new))
                        .map(|(old, new)| append(old, new, &slots))
                        .collect::<Result<_>>()?;
                    q
                }
            };
            drop(arrays);
            // In a ring, one query sees whatever is there.
            let causal = self.length > 1;
            let seen = AttentionOptions { causal, key_length: Some(&valid), ..plain };
            attend(&q, &state.arrays, state.scheme, &seen)?
        };
        self.layers[layer] = state;
        Ok(y)
    }

    /// Rotated queries, and the rows that keys and values add to the arrays of a layer.
    fn rotated(
        &self,
        [q, k, v]: [&Array; 3],
        rope: Option<&Rope>,
        state: &LayerState,
        arrays: &[Array],
    ) -> Result<(Array, Vec<Array>)> {
        let turned = |x: &Array| match rope {
            Some(rope) => rope.forward(x, &self.positions),
            None => Ok(x.clone()),
        };
        let (q, k) = (turned(q)?, turned(k)?);
        let new = match state.scheme {
            Some(scheme) => quantized_arrays(&[k, v.clone()], scheme)?,
            None => vec![k.astype(arrays[0].dtype())?, v.astype(arrays[1].dtype())?],
        };
        Ok((q, new))
    }

    /// The rows that new keys are written to, and how many are valid then.
    fn ring(&mut self, window: Option<usize>, keep: usize) -> Result<[Array; 2]> {
        let (Some(window), None) = (window, self.start) else {
            return Ok([self.positions.clone(), self.ends.clone()]);
        };
        if let Some((_, known)) = self.rings.iter().find(|(of, _)| *of == (window, keep)) {
            return Ok(known.clone());
        }
        let p = &self.positions;
        let slots = if keep == 0 {
            remainder(p, window as i32)?
        } else {
            let around = remainder(subtract(p, keep as i32)?, (window - keep) as i32)?;
            where_(less(p, window as i32)?, p, add(around, keep as i32)?)?
        };
        let ring = [slots, minimum(&self.ends, window as i32)?];
        self.rings.push(((window, keep), ring.clone()));
        Ok(ring)
    }

    /// The states of a recurrent layer.
    pub fn states(&mut self, layer: usize) -> Result<Vec<Array>> {
        match self.layers.get_mut(layer) {
            Some(LayerState { kind: LayerKind::Recurrent(_), arrays, .. }) => {
                Ok(std::mem::take(arrays))
            }
            _ => Err(Error::argument("states", "layer", "a recurrent one", layer)),
        }
    }

    /// Stores the states of a recurrent layer.
    pub fn set_states(&mut self, layer: usize, states: Vec<Array>) -> Result<()> {
        let Some(LayerState { kind: LayerKind::Recurrent(kinds), arrays, .. }) =
            self.layers.get_mut(layer)
        else {
            return Err(Error::argument("states", "layer", "a recurrent one", layer));
        };
        *arrays = (states.iter().zip(kinds.iter()))
            .map(|(state, (_, dtype))| state.astype(*dtype))
            .collect::<Result<_>>()?;
        Ok(())
    }
}

impl Default for LayerState {
    fn default() -> LayerState {
        LayerState { kind: LayerKind::Recurrent(Vec::new()), scheme: None, arrays: Vec::new() }
    }
}

/// Attention to the arrays of keys and values.
fn attend(
    q: &Array,
    arrays: &[Array],
    scheme: Option<Scheme>,
    options: &AttentionOptions<'_>,
) -> Result<Array> {
    match (scheme, arrays) {
        (None, [k, v]) => attention(q, k, v, options),
        (Some(scheme), [k, k_scales, k_biases, v, v_scales, v_biases]) => {
            let k = Quantized::new(scheme, k, Some(k_scales), Some(k_biases))?;
            let v = Quantized::new(scheme, v, Some(v_scales), Some(v_biases))?;
            quantized_attention(q, &k, &v, options)
        }
        _ => Err(Error::argument("attend", "arrays", "keys and values", arrays.len())),
    }
}

/// Writes the rows of `new` from `slots` on: one place for all texts, or one row for each.
fn append(old: &Array, new: &Array, slots: &Array) -> Result<Array> {
    if slots.size() == 1 {
        return cache_append(old, new, slots);
    }
    let batch = slots.size() as i32;
    let texts = wootz::with_device(old.device(), || wootz::arange(0, batch, 1, DType::I32))?;
    let &[batch, heads, _, features] = new.shape() else {
        return Err(Error::shape("attend", "keys", "[batch, heads, 1, features]", new.shape()));
    };
    old.at((&texts, .., slots)).set(new.reshape(&[batch, heads, features])?)
}

/// Rows that are used in turns: the first `keep` stay, the others go around.
#[derive(Clone, Copy)]
struct Ring {
    window: usize,
    keep: usize,
}

impl Ring {
    /// The row of a position.
    fn slot(self, position: usize) -> usize {
        match position < self.window {
            true => position,
            false => self.keep + (position - self.keep) % (self.window - self.keep),
        }
    }

    /// The rows that new ones can see, in order, and then those.
    fn in_order(self, old: &Array, start: usize, new: &Array) -> Result<Array> {
        let Ring { window, keep } = self;
        if start < window {
            return concatenate(&[&rows(old, 0, start)?, new], 2);
        }
        // The oldest of those that go around is seen by none of the new.
        let oldest = self.slot(start);
        let parts = [
            rows(old, 0, keep)?,
            rows(old, oldest + 1, window)?,
            rows(old, keep, oldest)?,
            new.clone(),
        ];
        concatenate(&parts, 2)
    }

    /// The last rows of all, up to position `end`, each in its place.
    fn last(self, all: &Array, end: usize) -> Result<Array> {
        let Ring { window, keep } = self;
        let count = all.shape()[2];
        let around = window - keep;
        let first = self.slot(end - around);
        let turn = count - around;
        let middle = turn + window - first;
        let parts = [rows(all, 0, keep)?, rows(all, middle, count)?, rows(all, turn, middle)?];
        concatenate(&parts, 2)
    }
}
