//! Rotary encoding as models use it: with scaled frequencies and several axes of positions.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use crate::array::{Arg, Array, DType};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::{Positions, Rope, RopeAxes, RopeFrequencies, RopeScaling, RopeType, reshape};

/// Rotary positional encoding whose frequencies are found once; positions are the axis before the
/// last.
///
/// ```
/// use wootz::{Array, DType, RopeScaling, RopeType, nn::RotaryEmbedding};
/// let scaling = RopeScaling { factor: 8.0, ..RopeScaling::new(RopeType::Llama3) };
/// let rope = RotaryEmbedding::new(8, 500000.0, false, &scaling, 131072)?;
/// let x = Array::ones(&[1, 2, 3, 8], DType::F32)?;
/// assert_eq!(rope.forward_from(&x, 5)?.shape(), [1, 2, 3, 8]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug, wootz_macros::Tree)]
pub struct RotaryEmbedding {
    /// Features that are rotated.
    pub dims: usize,
    /// Whether neighbours form the pairs that are rotated.
    pub traditional: bool,
    #[wootz(value)]
    known: Known,
    /// What rotated features are multiplied by.
    attention_factor: f64,
    /// Of shape [axes, dims / 2], in `float32` where the model was made.
    #[wootz(skip)]
    frequencies: Array,
    /// The same in double precision.
    table: Vec<f64>,
    /// On the devices that asked for them, if they are others.
    #[wootz(skip)]
    moved: Moved,
}

/// Arrays by device, shared by clones of the model.
type Moved = Arc<Mutex<Vec<Array>>>;

/// What frequencies are found from.
#[derive(Clone, Debug)]
struct Known {
    base: f64,
    scaling: RopeScaling,
    max_position_embeddings: usize,
    axes: Option<RopeAxes>,
}

impl Hash for Known {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Known { base, scaling, max_position_embeddings, axes } = self;
        (base.to_bits(), scaling, max_position_embeddings, axes).hash(state);
    }
}

impl RotaryEmbedding {
    /// With one axis of positions, for a model of `max_position_embeddings`.
    pub fn new(
        dims: usize,
        base: f64,
        traditional: bool,
        scaling: &RopeScaling,
        max_position_embeddings: usize,
    ) -> Result<RotaryEmbedding> {
        let scaling = scaling.clone();
        let known = Known { base, scaling, max_position_embeddings, axes: None };
        RotaryEmbedding::of(dims, traditional, known, None)
    }

    /// With positions on several axes.
    ///
    /// ```
    /// use wootz::{Array, DType, RopeAxes, RopeScaling, RopeType, nn::RotaryEmbedding};
    /// let scaling = RopeScaling::new(RopeType::Default);
    /// let rope = RotaryEmbedding::new(8, 10000.0, false, &scaling, 4096)?;
    /// let rope = rope.with_axes(RopeAxes::Sections(vec![2, 1, 1]))?;
    /// let positions = Array::new([[[0, 1]], [[0, 0]], [[0, 3]]])?;
    /// let x = Array::ones(&[1, 4, 2, 8], DType::F32)?;
    /// assert_eq!(rope.forward_at(&x, &positions)?.shape(), [1, 4, 2, 8]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn with_axes(self, axes: RopeAxes) -> Result<RotaryEmbedding> {
        let known = Known { axes: Some(axes), ..self.known };
        RotaryEmbedding::of(self.dims, self.traditional, known, None)
    }

    fn of(
        dims: usize,
        traditional: bool,
        known: Known,
        length: Option<usize>,
    ) -> Result<RotaryEmbedding> {
        let Known { base, scaling, max_position_embeddings, axes } = &known;
        // Where each axis has a sequence of its own, it is that of fewer features.
        let parts = if let Some(RopeAxes::Spatial(parts)) = axes { *parts } else { 1 };
        let each = dims.checked_div(parts).unwrap_or(0);
        let found = scaling.frequencies(each, *base, *max_position_embeddings, length)?;
        let RopeFrequencies { frequencies, attention_factor } = found;
        let pairs = dims / 2;
        let axis_of = match axes {
            Some(axes) => axes.of_pairs(pairs)?,
            None => vec![0; pairs],
        };
        // A pair has a frequency on its own axis, and none on the others.
        let count = axes.as_ref().map_or(1, RopeAxes::count);
        let mut table = vec![0.0; count * pairs];
        for (pair, &axis) in axis_of.iter().enumerate() {
            table[axis * pairs + pair] = frequencies[pair % frequencies.len()];
        }
        let single: Vec<f32> = table.iter().map(|&frequency| frequency as f32).collect();
        let frequencies = Array::from_slice(&single, &[count, pairs])?;
        let moved = Moved::default();
        Ok(RotaryEmbedding {
            dims,
            traditional,
            known,
            attention_factor,
            frequencies,
            table,
            moved,
        })
    }

    /// The encoding of positions that count from `offset`, a number or an array with one for each
    /// batch, on every axis. With [dynamic](RopeType::Dynamic) scaling it must be a number, because
    /// frequencies depend on the length of the text.
    pub fn forward_from(&self, x: &Array, offset: impl Into<Arg>) -> Result<Array> {
        let offset = offset.into();
        if let Arg::Array(offset) = &offset {
            self.check_known_length("offset", offset)?;
        }
        let end = match (&offset, x.rank()) {
            (Arg::Scalar(start), 2..) => {
                (start.as_f64() as usize).saturating_add(x.shape()[x.rank() - 2])
            }
            _ => 0,
        };
        if self.known.scaling.rope_type == RopeType::Dynamic
            && end > self.known.max_position_embeddings
        {
            let known = self.known.clone();
            let longer = RotaryEmbedding::of(self.dims, self.traditional, known, Some(end))?;
            return longer.rope().apply_from(x, &longer.frequencies_for(x)?, offset);
        }
        self.rope().apply_from(x, &self.frequencies_for(x)?, offset)
    }

    /// The encoding of the given positions, of shape [axes, batch or 1, length], or [batch or 1,
    /// length] for one axis. There is none with [dynamic](RopeType::Dynamic) scaling.
    pub fn forward_at(&self, x: &Array, positions: &Array) -> Result<Array> {
        self.check_known_length("positions", positions)?;
        let axes = self.frequencies.shape()[0];
        let positions = match *positions.shape() {
            [batch, length] if axes == 1 => reshape(positions, &[1, batch, length])?,
            [_, _, _] => positions.clone(),
            _ => {
                let expected = format!("[{axes}, batch, length]");
                return Err(Error::shape("rope", "positions", expected, positions.shape()));
            }
        };
        let rope = Rope { positions: Positions::Given, ..self.rope() };
        rope.apply(x, &self.frequencies_for(x)?, Some(&positions))
    }

    /// Checks that frequencies do not depend on values that are not known yet.
    fn check_known_length(&self, argument: &str, given: &Array) -> Result<()> {
        if self.known.scaling.rope_type != RopeType::Dynamic {
            return Ok(());
        }
        let expected = "an offset that is a number, as dynamic scaling depends on the length";
        let got = format!("an array of shape {:?}", given.shape());
        Err(Error::argument("rope", argument, expected, got))
    }

    fn rope(&self) -> Rope {
        let amplitude = self.attention_factor;
        Rope { traditional: self.traditional, amplitude, ..Rope::new(self.dims) }
    }

    fn frequencies_for(&self, x: &Array) -> Result<Array> {
        match x.dtype() {
            DType::F64 => Array::from_slice_on(&self.table, self.frequencies.shape(), x.device()),
            _ if self.frequencies.device() == x.device() => Ok(self.frequencies.clone()),
            _ => self.frequencies_on(x.device()),
        }
    }

    /// The frequencies on another device, where they are put once.
    fn frequencies_on(&self, device: &Device) -> Result<Array> {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = moved.iter().find(|array| array.device() == device) {
            return Ok(there.clone());
        }
        let single: Vec<f32> = self.table.iter().map(|&frequency| frequency as f32).collect();
        let there = Array::from_slice_on(&single, self.frequencies.shape(), device)?;
        moved.push(there.clone());
        Ok(there)
    }
}
