//! Cumulative operations along an axis, and the recurrences that their gradients are.

mod cases;
mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
pub(super) mod linear;
#[cfg(test)]
mod tests;

pub(crate) use cases::entries;

use self::linear::{recurrence, winners};
use super::Axes;
use crate::array::{Array, DType, Meta, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_contiguous, expect_inputs};
use crate::ops::{
    astype, concatenate, conjugate, exp, multiply, reshape, slice, subtract, zeros_like,
};

/// One row of the table.
pub(crate) struct Row {
    name: &'static str,
    cpu: fn(&mut CpuCall<'_>, &Scan) -> Result<()>,
    /// The body of a WGSL function that combines `a` with the later `b`.
    #[cfg(feature = "gpu")]
    combine: fn(crate::array::Class) -> String,
    /// What an exclusive scan starts with.
    start: Start,
    /// Whether only floats are computed.
    float: bool,
    vjp: fn(scan: &Scan, x: &Array, y: &Array, gradient: &Array) -> Result<Array>,
}

/// The first element of an exclusive scan.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Zero,
    One,
    Lowest,
    Highest,
}

/// Defines rows: the static row, the function and the method.
macro_rules! scans {
    ($(
        $(#[$doc:meta])*
        $name:ident { fold: $fold:ident, combine: $combine:expr, start: $start:ident,
            float: $float:literal, example: $example:literal, vjp: $vjp:expr }
    )*) => {
        crate::ops::elementwise::index_of!($($name),*);
        static ROWS: &[Row] = &[$(
            Row {
                name: stringify!($name),
                cpu: cpu::run::<crate::ops::reduce::fold::$fold>,
                #[cfg(feature = "gpu")]
                combine: $combine,
                start: Start::$start,
                float: $float,
                vjp: $vjp,
            },
        )*];
        $(
            $(#[$doc])*
            /// `reverse` starts from the end. Without `inclusive`, an element of the result covers
            /// only those before its own.
            ///
            /// ```
            #[doc = $example]
            /// # Ok::<(), wootz::Error>(())
            /// ```
            pub fn $name(
                x: &Array,
                axis: impl Into<Axes>,
                reverse: bool,
                inclusive: bool,
            ) -> Result<Array> {
                apply(&ROWS[Index::$name as usize], x, &axis.into(), reverse, inclusive)
            }
        )*
        impl Array {
            $(
                $(#[$doc])*
                pub fn $name(&self, axis: impl Into<Axes>) -> Result<Array> {
                    $name(self, axis, false, true)
                }
            )*
        }
    };
}

scans! {
    /// Sums of the elements so far along an axis, or of the flattened array for `()`. Bools are
    /// summed as `int32`.
    cumsum { fold: Sum, combine: |_| "return a + b;".into(), start: Zero, float: false,
        example: "let x = wootz::Array::new([1, 2, 3])?;\nassert_eq!(wootz::cumsum(&x, 0, false, true)?.to_vec::<i32>()?, [1, 3, 6]);",
        vjp: |scan, _, _, g| scan.again(&ROWS[Index::cumsum as usize], g, !scan.reverse, scan.inclusive) }
    /// Products of the elements so far along an axis, or of the flattened array for `()`.
    cumprod { fold: Prod, combine: crate::ops::reduce::gpu::product, start: One, float: false,
        example: "let x = wootz::Array::new([1, 2, 3])?;\nassert_eq!(wootz::cumprod(&x, 0, false, true)?.to_vec::<i32>()?, [1, 2, 6]);",
        vjp: |scan, x, _, g| {
            // The product before an element, times the gradients behind it, each with the product
            // of the elements in between: no division, so zeros are elements like others.
            let before = scan.again(&ROWS[Index::cumprod as usize], x, scan.reverse, false)?;
            multiply(before, recurrence(x, g, scan.axis, !scan.reverse, true)?)
        } }
    /// The largest of the elements so far along an axis, or of the flattened array for `()`; NaN
    /// from the first NaN on.
    cummax { fold: Max, combine: |class| crate::ops::reduce::gpu::extremum(class, true),
        start: Lowest, float: false,
        example: "let x = wootz::Array::new([1, 3, 2])?;\nassert_eq!(wootz::cummax(&x, 0, false, true)?.to_vec::<i32>()?, [1, 3, 3]);",
        vjp: |scan, x, y, g| winners(x, y, g, scan.axis, scan.reverse, false) }
    /// The smallest of the elements so far along an axis, or of the flattened array for `()`; NaN
    /// from the first NaN on.
    cummin { fold: Min, combine: |class| crate::ops::reduce::gpu::extremum(class, false),
        start: Highest, float: false,
        example: "let x = wootz::Array::new([2, 3, 1])?;\nassert_eq!(wootz::cummin(&x, 0, false, true)?.to_vec::<i32>()?, [2, 2, 1]);",
        vjp: |scan, x, y, g| winners(x, y, g, scan.axis, scan.reverse, false) }
    /// Logarithms of the sums of `e^x` so far along an axis, or of the flattened array for `()`.
    logcumsumexp { fold: LogAddExp, combine: crate::ops::reduce::gpu::log_sum,
        start: Lowest, float: true,
        example: "let x = wootz::Array::new([0.0f32, 0.0])?;\nassert_eq!(wootz::logcumsumexp(&x, 0, false, true)?.to_vec::<f32>()?, [0.0, 0.6931472]);",
        vjp: |scan, x, y, g| {
            // Σ g_i e^(y_j - y_i) over the later i: factors of at most 1 from step to step.
            let steps = exp(subtract(y, scan.later(y)?)?)?;
            let sums = recurrence(&steps, g, scan.axis, !scan.reverse, false)?;
            multiply(exp(subtract(x, y)?)?, sums)
        } }
}

fn apply(
    row: &'static Row,
    x: &Array,
    axis: &Axes,
    reverse: bool,
    inclusive: bool,
) -> Result<Array> {
    let x = match x.dtype() {
        dtype if row.float => astype(x, dtype.to_float())?,
        _ => x.clone(),
    };
    let (x, axis) = match axis {
        Axes::All => (reshape(&x, &[x.size()])?, 0),
        Axes::These(axes) => match axes[..] {
            [axis] => {
                let axis = normalize_axis(row.name, axis, x.rank())?;
                (x, axis)
            }
            _ => {
                let got = format!("{axes:?}");
                return Err(Error::argument(row.name, "axis", "one axis, or () for all", got));
            }
        },
    };
    Array::apply(Scan { row, axis, reverse, inclusive }, &[&x.contiguous()?])
}

/// A row along a certain axis of a row-major array.
pub(crate) struct Scan {
    row: &'static Row,
    axis: usize,
    reverse: bool,
    inclusive: bool,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Scan { row, axis, reverse, inclusive } = self;
        write!(f, "{} along {axis}, reverse {reverse}, inclusive {inclusive}", row.name)
    }
}

impl Scan {
    /// A scan along the same axis.
    fn again(&self, row: &'static Row, x: &Array, reverse: bool, inclusive: bool) -> Result<Array> {
        apply(row, x, &Axes::from(self.axis), reverse, inclusive)
    }

    /// At each element the one that is scanned after it; zero behind the last.
    fn later(&self, x: &Array) -> Result<Array> {
        shifted(x, self.axis, self.reverse)
    }
}

/// At each element the next along `axis`, or with `reverse` the one before it; zero at the end.
fn shifted(x: &Array, axis: usize, reverse: bool) -> Result<Array> {
    let length = x.shape()[axis];
    if length == 0 {
        return Ok(x.clone());
    }
    let part = |from: usize, to: usize| {
        let (mut start, mut stop) = (vec![0; x.rank()], x.shape().to_vec());
        (start[axis], stop[axis]) = (from, to);
        slice(x, &start, &stop, &vec![1; x.rank()])
    };
    let zero = zeros_like(&part(0, 1)?)?;
    match reverse {
        false => concatenate(&[part(1, length)?, zero], axis),
        true => concatenate(&[zero, part(0, length - 1)?], axis),
    }
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "output"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_contiguous(self, inputs, 0)?;
        // Truth values are counted.
        let dtype = match inputs[0].dtype {
            DType::Bool if self.row.start == Start::Zero => DType::I32,
            dtype => dtype,
        };
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        (self.row.cpu)(call, self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::scan(call, self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(gradient) = &cotangents[0] else { return Ok(vec![None]) };
        let x = &inputs[0];
        // Gradients of complex functions are multiplied by conjugates of derivatives.
        let gradient = &conjugate(gradient)?;
        if self.inclusive || self.row.start == Start::Zero {
            return Ok(vec![Some(conjugate((self.row.vjp)(self, x, &outputs[0], gradient)?)?)]);
        }
        // An exclusive scan is an inclusive one, one step later.
        let y = self.again(self.row, x, self.reverse, true)?;
        Ok(vec![Some(conjugate((self.row.vjp)(self, x, &y, &self.later(gradient)?)?)?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.apply(Scan { axis: self.axis + 1, ..*self }, &batch.dense()?)
    }
}

/// A row-major array around an axis: how many before it, along it and behind it.
fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}
