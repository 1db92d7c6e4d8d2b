//! Rotary positional encoding: pairs of features are turned by angles that grow with the position.
//! The gradient is the same operation with the angles negated.

mod append;
mod cases;
mod composed;
mod cpu;
mod frequencies;
#[cfg(feature = "gpu")]
mod gpu;
mod scaling;
#[cfg(test)]
mod scaling_tests;
mod single;
#[cfg(test)]
mod tests;

pub use append::{RopeAppend, rope_append};
pub(crate) use cases::entries;
pub use scaling::{RopeAxes, RopeFrequencies, RopeScaling, RopeType};

use crate::array::{Arg, Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_dtype, expect_float, expect_inputs};
use crate::ops::{reciprocal, reshape};

const NAME: &str = "rope";

/// Where the angles of [`rope`] come from.
#[derive(Clone, Copy, Debug)]
pub enum RopeBase<'a> {
    /// Angle `i` of a position is the position times `base^(-2i / dims)`.
    Base(f64),
    /// Angle `i` of a position is the position divided by the array's element `i`.
    Freqs(&'a Array),
}

/// Rotary positional encoding of the first `dims` features; positions are the axis before the
/// last and count from `offset`, a finite number or an array with one for each batch. Features are
/// rotated in pairs of neighbours if `traditional`, else of elements `dims / 2` apart. Angles are
/// found in `float32` (`float64` for `float64`), and the result is rounded once.
///
/// ```
/// use wootz::{Array, fast, fast::RopeBase};
/// let x = Array::new([[[1.0f32, 0.0], [1.0, 0.0]]])?;
/// let y = fast::rope(&x, 2, false, RopeBase::Base(10000.0), 1.0, 0)?.to_vec::<f32>()?;
/// assert!((y[2] - 1f32.cos()).abs() < 1e-6 && (y[3] - 1f32.sin()).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rope(
    x: &Array,
    dims: usize,
    traditional: bool,
    base: RopeBase<'_>,
    scale: f64,
    offset: impl Into<Arg>,
) -> Result<Array> {
    let rope = Rope { traditional, scale, ..Rope::new(dims) };
    rope.check(x.meta())?;
    let half = dims / 2;
    let frequencies = match base {
        RopeBase::Base(base) if !(base > 0.0 && base.is_finite()) => {
            return Err(Error::argument(NAME, "base", "a finite number above 0", base));
        }
        RopeBase::Base(base) if x.dtype() == DType::F64 => {
            Array::from_slice_on(&scaling::geometric(dims, base), &[1, half], x.device())?
        }
        RopeBase::Base(base) => frequencies::of_base(dims, base, x.device())?,
        RopeBase::Freqs(freqs) if freqs.shape() == [half] => {
            reshape(&reciprocal(freqs.astype(wide(x.dtype()))?)?, &[1, half])?
        }
        RopeBase::Freqs(freqs) => {
            return Err(Error::shape(NAME, "freqs", format!("[{half}]"), freqs.shape()));
        }
    };
    rope.apply_from(x, &frequencies, offset.into())
}

/// The dtype that angles are found in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Rotary encoding as an operation. Inputs are `x` of shape [batch, heads, length, features], of any
/// strides but one between features; frequencies of shape [axes, dims / 2], in `float32` (or
/// `float64` for `float64`); and what [`Positions`] says. Pair `i` at a position is turned by the
/// sum over the axes of `position · scale · frequency[axis, i]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Features that are rotated, an even number; those behind them are copied.
    pub dims: usize,
    /// Whether neighbours form the pairs that are rotated.
    pub traditional: bool,
    /// Of positions.
    pub scale: f64,
    /// What the rotated features are multiplied by.
    pub amplitude: f64,
    /// Where positions come from.
    pub positions: Positions,
    /// Whether angles are negated, as the gradient wants it.
    pub inverse: bool,
}

/// Where the positions of [`Rope`] come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// They count from this number, on every axis.
    From(f64),
    /// They count from the element of a third input that has one, or one for each batch.
    Offset,
    /// They are the third input, of shape [axes, batch or 1, length].
    Given,
}

impl Positions {
    /// Inputs that it takes.
    fn inputs(self) -> usize {
        !matches!(self, Positions::From(_)) as usize
    }

    /// The first position, if it is a plain number.
    #[cfg(feature = "gpu")]
    fn start(self) -> f32 {
        if let Positions::From(start) = self { start as f32 } else { 0.0 }
    }
}

impl Rope {
    /// Pairs `dims / 2` apart, positions from zero.
    pub fn new(dims: usize) -> Rope {
        let positions = Positions::From(0.0);
        Rope { dims, traditional: false, scale: 1.0, amplitude: 1.0, positions, inverse: false }
    }

    /// The encoding of positions that count from `offset`.
    pub(crate) fn apply_from(self, x: &Array, frequencies: &Array, offset: Arg) -> Result<Array> {
        let batch = x.shape().first().copied().unwrap_or(1);
        match offset {
            Arg::Scalar(start) => Rope { positions: Positions::From(start.as_f64()), ..self }
                .apply(x, frequencies, None),
            Arg::Array(offset) if offset.size() == 1 || offset.shape() == [batch] => {
                let offset = reshape(&offset, &[offset.size()])?;
                Rope { positions: Positions::Offset, ..self }.apply(x, frequencies, Some(&offset))
            }
            Arg::Array(offset) => {
                let expected = format!("[] or [{batch}]");
                Err(Error::shape(NAME, "offset", expected, offset.shape()))
            }
        }
    }

    /// The operation on an array of three axes or more: axes between the first and the last two
    /// are heads.
    pub(crate) fn apply(
        self,
        x: &Array,
        frequencies: &Array,
        positions: Option<&Array>,
    ) -> Result<Array> {
        self.check(x.meta())?;
        let (shape, rank) = (x.shape(), x.rank());
        let heads = shape[1..rank - 2].iter().product();
        let merged = reshape(x, &[shape[0], heads, shape[rank - 2], shape[rank - 1]])?;
        let mut inputs = vec![with_rows(&merged)?, frequencies.contiguous()?];
        inputs.extend(positions.map(Array::contiguous).transpose()?);
        reshape(&Array::apply(self, &inputs.iter().collect::<Vec<_>>())?, shape)
    }

    /// Checks `x` of any number of heads.
    fn check(&self, x: &Meta) -> Result<()> {
        let shape = x.shape();
        if shape.len() < 3 {
            return Err(Error::shape(NAME, "x", "at least three axes", shape));
        }
        expect_float(self, &[x], 0)?;
        let features = shape[shape.len() - 1];
        if self.dims == 0 || !self.dims.is_multiple_of(2) || self.dims > features {
            let expected = format!("an even number up to {features}");
            return Err(Error::argument(NAME, "dims", expected, self.dims));
        }
        let start = if let Positions::From(start) = self.positions { start } else { 0.0 };
        let numbers = [("scale", self.scale), ("amplitude", self.amplitude), ("offset", start)];
        match numbers.into_iter().find(|(_, number)| !number.is_finite()) {
            Some((name, number)) => Err(Error::argument(NAME, name, "a finite number", number)),
            None => Ok(()),
        }
    }
}

/// The same array if its rows lie in one piece, else a row-major copy.
fn with_rows(x: &Array) -> Result<Array> {
    if rows_are_whole(x.meta()) { Ok(x.clone()) } else { x.contiguous() }
}

fn rows_are_whole(x: &Meta) -> bool {
    x.size() == 0 || x.layout.strides.last() == Some(&1)
}

/// What the shapes of valid inputs say.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    length: usize,
    features: usize,
    half: usize,
    /// Rows of positions or offsets: one for all, or one for each batch.
    position_batches: usize,
}

impl Sizes {
    fn of(rope: &Rope, inputs: &[&Meta]) -> Sizes {
        let x = inputs[0].shape();
        let given = rope.positions == Positions::Given;
        Sizes {
            batch: x[0],
            heads: x[1],
            length: x[2],
            features: x[3],
            half: rope.dims / 2,
            position_batches: inputs.get(2).map_or(1, |meta| meta.shape()[given as usize]),
        }
    }

    /// Groups of heads that have the same positions, and how many heads a group has.
    fn groups(&self) -> (usize, usize) {
        match self.position_batches {
            1 => (1, self.batch * self.heads),
            _ => (self.batch, self.heads),
        }
    }
}

impl Op for Rope {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.positions {
            Positions::From(_) => &["x", "frequencies", "y"],
            Positions::Offset => &["x", "frequencies", "offset", "y"],
            Positions::Given => &["x", "frequencies", "positions", "y"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2 + self.positions.inputs())?;
        let (x, frequencies) = (inputs[0], inputs[1]);
        let &[batch, _, length, _] = x.shape() else {
            let expected = "[batch, heads, length, features]";
            return Err(Error::shape(NAME, "x", expected, x.shape()));
        };
        self.check(x)?;
        if !rows_are_whole(x) {
            let got = format!("strides {:?}", &x.layout.strides[..]);
            return Err(Error::argument(NAME, "x", "rows in one piece", got));
        }
        expect_dtype(self, inputs, 1, wide(x.dtype))?;
        expect_contiguous(self, inputs, 1)?;
        let half = self.dims / 2;
        let axes = match *frequencies.shape() {
            [axes, pairs] if axes > 0 && pairs == half => axes,
            _ => {
                let expected = format!("[axes, {half}]");
                return Err(Error::shape(NAME, "frequencies", expected, frequencies.shape()));
            }
        };
        if let Some(positions) = inputs.get(2) {
            expect_contiguous(self, inputs, 2)?;
            let fits = |one: bool| {
                let batch = if one { 1 } else { batch };
                match self.positions {
                    Positions::Given => positions.shape() == [axes, batch, length],
                    _ => positions.shape() == [batch],
                }
            };
            if !fits(true) && !fits(false) {
                let (name, expected) = match self.positions {
                    Positions::Given => ("positions", format!("[{axes}, {batch}, {length}]")),
                    _ => ("offset", format!("[1] or [{batch}]")),
                };
                return Err(Error::shape(NAME, name, expected, positions.shape()));
            }
        }
        Ok(Metas::from_elem(Meta::new(NAME, x.shape(), x.dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::rotate(call, self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::rotate(call, self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dy) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        // Frequencies and positions seldom depend on what is differentiated.
        let mut gradients = match inputs[1..].iter().any(|input| input.node.is_traced()) {
            true => {
                let composed = |x: &[Array]| self.composed(x);
                crate::autograd::composed_vjp(NAME, composed, inputs, outputs, cotangents)?
            }
            false => vec![None; inputs.len()],
        };
        let mut given = inputs.to_vec();
        given[0] = with_rows(dy)?;
        let back = Rope { inverse: !self.inverse, ..*self };
        gradients[0] = Some(Array::apply(back, &given.iter().collect::<Vec<_>>())?);
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed::rotated(self, inputs).map(|y| vec![y]))
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        // Where positions are common, the batch is part of the array's own.
        let given = self.positions == Positions::Given;
        let common = batch.inputs.len() == 2 || batch.shape(2)[given as usize] == 1;
        if !common || batch.batched[1..].contains(&true) {
            return batch.composed(NAME, |inputs| self.composed(inputs));
        }
        let (shape, own) = (batch.shape(0), batch.inputs[0].shape());
        let mut merged = shape.to_vec();
        merged[0] *= batch.size;
        let mut inputs = batch.inputs.to_vec();
        inputs[0] = with_rows(&reshape(&inputs[0], &merged)?)?;
        batch.again(&inputs)?.into_iter().map(|y| reshape(&y, own)).collect()
    }
}
