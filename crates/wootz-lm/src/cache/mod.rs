//! What a model remembers of the tokens it has seen: keys and values of attention, growing or in a ring, as
//! numbers or quantized; and the states of recurrent layers.
//!
//! A [`Cache`] owns the arrays between passes. A [`Pass`] is one call of a model over it: layers append to
//! their arrays and attend to them, and afterwards the arrays go back.

mod file;
mod layer;
mod mark;
mod pass;

pub use layer::LayerKind;
pub(crate) use layer::LayerState;
pub use mark::Mark;
pub use pass::{Attend, Pass};
use wootz::quant::Scheme;
use wootz::{Array, Device, concatenate};

use crate::{Error, Result};

/// Keys that are allocated at a time.
pub const STEP: usize = 256;

/// How a [`Cache`] is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// At most so many tokens of full attention; then the oldest are forgotten.
    pub max_kv_size: Option<usize>,
    /// So many of the first tokens are never forgotten, where `max_kv_size` is given.
    pub keep: usize,
    /// Bits of quantized keys and values.
    pub kv_bits: Option<usize>,
    /// Numbers that share a scale there.
    pub kv_group_size: usize,
    /// Tokens after which keys and values are quantized. As in mlx-lm, those that are read together see each other as
    /// they are, and are quantized then.
    pub quantized_kv_start: usize,
    /// Texts side by side.
    pub batch: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            max_kv_size: None,
            keep: 4,
            kv_bits: None,
            kv_group_size: 64,
            quantized_kv_start: 0,
            batch: 1,
        }
    }
}

impl CacheOptions {
    /// How keys and values are quantized, if they are.
    fn scheme(&self) -> Result<Option<Scheme>> {
        let Some(bits) = self.kv_bits else { return Ok(None) };
        Ok(Some(Scheme::new("affine", Some(self.kv_group_size), Some(bits))?))
    }
}

/// The memory of a model. A clone is a snapshot: arrays are shared until one of the two goes on.
#[derive(Clone)]
pub struct Cache {
    layers: Vec<LayerState>,
    /// Tokens seen, of each text.
    lengths: Vec<usize>,
    scheme: Option<Scheme>,
    quantized_start: usize,
    device: Device,
}

impl Cache {
    /// An empty one for layers of these kinds.
    pub fn new(kinds: &[LayerKind], options: &CacheOptions, device: &Device) -> Result<Cache> {
        if options.batch == 0 {
            return Err(Error::argument("batch", "at least 1", 0));
        }
        if options.max_kv_size.is_some_and(|size| size <= options.keep) {
            let expected = format!("more than the {} that are kept", options.keep);
            return Err(Error::argument("max_kv_size", expected, options.max_kv_size.unwrap_or(0)));
        }
        let scheme = options.scheme()?;
        let make = |kind: &LayerKind| {
            let kind = kind.limited(options.max_kv_size, options.keep);
            kind.check_window()?;
            kind.check(scheme)?;
            LayerState::new(kind, options.batch, device)
        };
        let layers = kinds.iter().map(make).collect::<Result<_>>()?;
        let quantized_start = options.quantized_kv_start;
        let lengths = vec![0; options.batch];
        Ok(Cache { layers, lengths, scheme, quantized_start, device: device.clone() })
    }

    /// Tokens that it has seen; of the longest text, if there are several.
    pub fn length(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Tokens that it has seen of each text.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Texts side by side.
    pub fn batch(&self) -> usize {
        self.lengths.len()
    }

    /// Bytes of all arrays.
    pub fn bytes(&self) -> usize {
        self.layers.iter().flat_map(|layer| &layer.arrays).map(Array::nbytes).sum()
    }

    /// Whether the last tokens can be forgotten.
    pub fn can_trim(&self, tokens: usize) -> bool {
        let longest = self.length();
        let enough = self.lengths.iter().all(|&length| tokens <= length);
        tokens == 0 || (enough && self.layers.iter().all(|layer| layer.kind.can_trim(longest)))
    }

    /// Forgets the last tokens. An error where something is no longer known: in a ring that went around,
    /// or in a recurrent layer.
    pub fn trim(&mut self, tokens: usize) -> Result<()> {
        if !self.can_trim(tokens) {
            let expected = "a number of tokens that every layer can forget";
            return Err(Error::argument("trim", expected, tokens));
        }
        self.lengths.iter_mut().for_each(|length| *length -= tokens);
        Ok(())
    }

    /// Forgets the last tokens of each text by itself.
    pub fn trim_each(&mut self, tokens: &[usize]) -> Result<()> {
        if tokens.len() != self.batch() {
            let expected = format!("{} numbers", self.batch());
            return Err(Error::argument("trim", expected, tokens.len()));
        }
        let most = tokens.iter().copied().max().unwrap_or(0);
        let enough = self.lengths.iter().zip(tokens).all(|(length, tokens)| tokens <= length);
        let longest = self.length();
        if most > 0 && !(enough && self.layers.iter().all(|layer| layer.kind.can_trim(longest))) {
            let expected = "a number of tokens that every layer can forget";
            return Err(Error::argument("trim", expected, most));
        }
        self.lengths.iter_mut().zip(tokens).for_each(|(length, tokens)| *length -= tokens);
        Ok(())
    }

    /// Several caches of one model side by side, each with a length of its own.
    pub fn stack(caches: &[Cache]) -> Result<Cache> {
        let Some(first) = caches.first() else {
            return Err(Error::argument("caches", "at least one", 0));
        };
        let same = |cache: &Cache| {
            let states = cache.layers.iter().zip(&first.layers);
            cache.layers.len() == first.layers.len()
                && states.clone().all(|(a, b)| (&a.kind, a.scheme) == (&b.kind, b.scheme))
        };
        if !caches.iter().all(same) {
            let expected = "caches of one model, kept alike";
            return Err(Error::argument("caches", expected, "others"));
        }
        let mut parts = caches.to_vec();
        let layers = (0..first.layers.len()).map(|index| {
            let most = caches.iter().map(|cache| cache.layers[index].capacity()).max();
            for part in &mut parts {
                part.layers[index].grow(most.unwrap_or(0))?;
            }
            let arrays = (0..first.layers[index].arrays.len()).map(|array| {
                let parts: Vec<&Array> =
                    parts.iter().map(|part| &part.layers[index].arrays[array]).collect();
                concatenate(&parts, 0)
            });
            let arrays = arrays.collect::<wootz::Result<_>>()?;
            Ok(LayerState { arrays, ..first.layers[index].clone() })
        });
        let layers = layers.collect::<Result<_>>()?;
        let lengths = caches.iter().flat_map(|cache| cache.lengths.clone()).collect();
        Ok(Cache { layers, lengths, ..first.clone() })
    }

    /// Some of the texts, in the given order.
    pub fn select(&self, rows: &[usize]) -> Result<Cache> {
        if let Some(row) = rows.iter().find(|row| **row >= self.batch()) {
            return Err(Error::argument("rows", format!("below {}", self.batch()), row));
        }
        let indices: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        let indices = Array::from_slice_on(&indices, &[rows.len()], &self.device)?;
        let layer = |layer: &LayerState| {
            let arrays = layer.arrays.iter().map(|array| wootz::take(array, &indices, Some(0)));
            Ok(LayerState { arrays: arrays.collect::<wootz::Result<_>>()?, ..layer.clone() })
        };
        Ok(Cache {
            layers: self.layers.iter().map(layer).collect::<Result<_>>()?,
            lengths: rows.iter().map(|&row| self.lengths[row]).collect(),
            ..self.clone()
        })
    }

    /// An error if another is kept otherwise than this one was asked to be: fewer tokens, or fewer bits.
    /// What this one was not asked for may be as it is.
    pub(crate) fn expect_alike(&self, other: &Cache) -> Result<()> {
        let said =
            |scheme: Option<Scheme>| scheme.map_or("none".into(), |scheme| scheme.to_string());
        if self.scheme.is_some() && self.scheme != other.scheme {
            let expected = format!("{} as the prompt cache has", said(other.scheme));
            return Err(Error::argument("kv_bits", expected, said(self.scheme)));
        }
        for (own, other) in self.layers.iter().zip(&other.layers) {
            let (own, other) = (own.kind.window(), other.kind.window());
            if own.is_some() && own != other {
                let said = |window: Option<(usize, usize)>| match window {
                    Some((window, keep)) => format!("{window} tokens, {keep} of them kept"),
                    None => "no limit".to_string(),
                };
                let expected = format!("{} as in the prompt cache", said(other));
                return Err(Error::argument("max_kv_size", expected, said(own)));
            }
        }
        Ok(())
    }

    /// Tokens that can be read at once with the results of one after the other. There are fewer before a ring that keeps its
    /// first tokens goes around, which lets those of a chunk see more, and before keys and values are quantized.
    pub(crate) fn alike_together(&self) -> usize {
        let rings = self.layers.iter().filter_map(|layer| layer.kind.window());
        let rings = rings.filter(|(_, keep)| *keep > 0).map(|(window, _)| window);
        let room = rings.map(|window| window.saturating_sub(self.length())).min();
        let left = self.quantized_start.saturating_sub(self.length());
        // What is taken back after that is quantized already.
        let left = (self.scheme.is_some() && left > 0).then(|| left - 1);
        room.unwrap_or(usize::MAX).min(left.unwrap_or(usize::MAX))
    }

    /// All arrays, for whoever wants them computed.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.layers.iter().flat_map(|layer| &layer.arrays)
    }

    pub(crate) fn layers(&self) -> &[LayerState] {
        &self.layers
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The arrays alone, with room for so many tokens.
    pub(crate) fn with_room(mut self, tokens: usize) -> Result<Vec<LayerState>> {
        self.reserve(tokens)?;
        Ok(self.layers)
    }

    /// Moves the arrays out, to be appended to in place.
    pub(crate) fn take_layers(&mut self) -> Vec<LayerState> {
        std::mem::take(&mut self.layers)
    }

    /// Gives the arrays back, after so many tokens.
    pub(crate) fn give_back(&mut self, layers: Vec<LayerState>, tokens: usize) -> Result<()> {
        self.layers = layers;
        self.lengths.iter_mut().for_each(|length| *length += tokens);
        self.quantize_if_due()
    }

    /// Whether the arrays are there: they are lost when a pass failed.
    pub(crate) fn is_whole(&self) -> bool {
        !self.layers.is_empty()
    }

    /// Makes room for one more token of each text.
    pub(crate) fn reserve(&mut self, tokens: usize) -> Result<()> {
        let wanted = self.length() + tokens;
        for layer in &mut self.layers {
            layer.grow(layer.kind.room_for(wanted))?;
        }
        Ok(())
    }

    fn quantize_if_due(&mut self) -> Result<()> {
        let Some(scheme) = self.scheme else { return Ok(()) };
        if self.length() >= self.quantized_start {
            self.layers.iter_mut().try_for_each(|layer| layer.quantize(scheme))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use wootz::DType;

    use super::*;

    #[test]
    fn a_cache_that_is_kept_otherwise_than_asked_for_is_refused() {
        let kinds = [LayerKind::attention(2, 32, None, DType::F32)];
        let cache = |kv_bits: Option<usize>, max_kv_size: Option<usize>| {
            let usual = CacheOptions { kv_group_size: 32, ..CacheOptions::default() };
            let options = CacheOptions { kv_bits, max_kv_size, ..usual };
            Cache::new(&kinds, &options, &Device::cpu()).unwrap()
        };
        let (plain, narrow, short) =
            (cache(None, None), cache(Some(8), None), cache(None, Some(64)));
        for other in [&plain, &narrow, &short] {
            plain.expect_alike(other).unwrap();
            other.expect_alike(other).unwrap();
        }
        let error = narrow.expect_alike(&plain).unwrap_err().to_string();
        assert!(error.starts_with("kv_bits: "), "{error}");
        assert!(narrow.expect_alike(&cache(Some(4), None)).is_err());
        let error = short.expect_alike(&plain).unwrap_err().to_string();
        assert!(error.starts_with("max_kv_size: "), "{error}");
        assert!(short.expect_alike(&cache(None, Some(65))).is_err());
    }

    #[test]
    fn a_window_has_room_for_a_token() {
        let kinds = [LayerKind::attention(2, 32, Some(0), DType::F32)];
        let none = Cache::new(&kinds, &CacheOptions::default(), &Device::cpu());
        assert!(none.err().unwrap().to_string().starts_with("sliding_window: "));
    }
}
