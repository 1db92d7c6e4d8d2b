//! Going back to an earlier length, also where layers cannot forget.

use super::{Cache, LayerState};
use crate::{Error, Result};

/// How a cache was at some length. Layers that can forget what came later need nothing for it, so
/// that a mark shares no keys with the cache, and appending to it stays in place.
#[derive(Clone)]
pub struct Mark {
    pub(super) lengths: Vec<usize>,
    /// The layers that cannot forget, as they were.
    pub(super) layers: Vec<Option<LayerState>>,
}

impl Mark {
    /// Tokens that the cache had seen; of the longest text, if there are several.
    pub fn length(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    /// Bytes of the layers that it keeps.
    pub fn bytes(&self) -> usize {
        let arrays = self.layers.iter().flatten().flat_map(|layer| &layer.arrays);
        arrays.map(wootz::Array::nbytes).sum()
    }
}

impl Cache {
    /// A mark to go back to from at most so many tokens later.
    pub fn mark(&self, tokens: usize) -> Mark {
        let later = self.length().saturating_add(tokens);
        let layer = |layer: &LayerState| (!layer.kind.can_trim(later)).then(|| layer.clone());
        Mark { lengths: self.lengths.clone(), layers: self.layers.iter().map(layer).collect() }
    }

    /// Whether any number of tokens can be forgotten at any time.
    pub fn can_always_trim(&self) -> bool {
        self.layers.iter().all(|layer| layer.kind.can_trim(usize::MAX))
    }

    /// Goes back to a mark of this cache, or of one that began with the same tokens.
    pub fn back_to(&mut self, mark: &Mark) -> Result<()> {
        let later = self.lengths.iter().zip(&mark.lengths).all(|(now, then)| now >= then);
        if mark.lengths.len() != self.lengths.len()
            || mark.layers.len() != self.layers.len()
            || !later
        {
            return Err(Error::argument("mark", "one of an earlier time of this cache", "another"));
        }
        for (layer, kept) in self.layers.iter_mut().zip(&mark.layers) {
            if let Some(kept) = kept {
                *layer = kept.clone();
            }
        }
        self.lengths.clone_from(&mark.lengths);
        Ok(())
    }
}
