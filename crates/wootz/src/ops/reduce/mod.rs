//! Reductions: a table of rows over any axes.

mod cpu;
pub(crate) mod fold;
#[cfg(test)]
mod tests;

use crate::array::{Array, DType, Meta, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
use crate::op::{Entry, Metas, Op, expect_inputs};
use crate::ops::{astype, broadcast_to, reshape};

/// Cases of the reductions.
pub(crate) fn entries() -> Vec<Entry> {
    Vec::new()
}

/// Axes to reduce: all of them (`()`), one, or several; negative axes count from the end.
#[derive(Clone, Debug, PartialEq)]
pub enum Axes {
    /// Every axis.
    All,
    /// These.
    These(Vec<i64>),
}

impl Axes {
    /// The axes counted from the front, in rising order. An axis named twice is an error.
    pub fn normalize(&self, op: &'static str, rank: usize) -> Result<Vec<usize>> {
        let Axes::These(axes) = self else { return Ok((0..rank).collect()) };
        let mut normal = Vec::with_capacity(axes.len());
        for &axis in axes {
            let axis = normalize_axis(op, axis, rank)?;
            if normal.contains(&axis) {
                return Err(crate::Error::argument(
                    op,
                    "axis",
                    "distinct axes",
                    format!("{axes:?}"),
                ));
            }
            normal.push(axis);
        }
        normal.sort_unstable();
        Ok(normal)
    }
}

impl From<()> for Axes {
    fn from((): ()) -> Axes {
        Axes::All
    }
}

macro_rules! axes_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Axes {
            fn from(axis: $integer) -> Axes {
                Axes::These(vec![axis as i64])
            }
        }
        impl<const N: usize> From<[$integer; N]> for Axes {
            fn from(axes: [$integer; N]) -> Axes {
                Axes::These(axes.iter().map(|&axis| axis as i64).collect())
            }
        }
        impl From<&[$integer]> for Axes {
            fn from(axes: &[$integer]) -> Axes {
                Axes::These(axes.iter().map(|&axis| axis as i64).collect())
            }
        }
    )*};
}

axes_from!(i32, i64, usize);

/// One row of the table.
pub(crate) struct Row {
    name: &'static str,
    output: Output,
    /// Whether an axis of length 0 can be reduced.
    has_identity: bool,
    cpu: fn(&mut CpuCall<'_>, &[usize]) -> Result<()>,
    /// The gradient of the input, from the input, the output and the output's gradient, the
    /// latter two with reduced axes of length 1. `None` where the function is piecewise constant.
    vjp: Option<fn(x: &Array, y: &Array, gradient: &Array, axes: &[usize]) -> Result<Array>>,
}

/// The dtype of a row's result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    /// That of the input.
    Same,
    /// That of the input, but no integer of fewer than 32 bits.
    Word,
    /// `bool`.
    Bool,
}

impl Output {
    fn of(self, input: DType) -> DType {
        match (self, input) {
            (Output::Same, _) => input,
            (Output::Bool, _) => DType::Bool,
            (Output::Word, DType::Bool | DType::I8 | DType::I16) => DType::I32,
            (Output::Word, DType::U8 | DType::U16) => DType::U32,
            (Output::Word, _) => input,
        }
    }
}

/// Defines rows: the static row, the function and the two methods.
macro_rules! reductions {
    ($(
        $(#[$doc:meta])*
        $name:ident, $keepdims:ident {
            fold: $fold:ident, output: $output:ident, has_identity: $identity:literal,
            example: $example:literal, vjp: $vjp:expr
        }
    )*) => {
        crate::ops::elementwise::index_of!($($name),*);
        static ROWS: &[Row] = &[$(
            Row {
                name: stringify!($name),
                output: Output::$output,
                has_identity: $identity,
                cpu: cpu::run::<fold::$fold>,
                vjp: $vjp,
            },
        )*];
        $(
            $(#[$doc])*
            ///
            /// ```
            #[doc = $example]
            /// # Ok::<(), wootz::Error>(())
            /// ```
            pub fn $name(x: &Array, axes: impl Into<Axes>, keepdims: bool) -> Result<Array> {
                apply(&ROWS[Index::$name as usize], x, &axes.into(), keepdims)
            }
        )*
        impl Array {
            $(
                $(#[$doc])*
                pub fn $name(&self, axes: impl Into<Axes>) -> Result<Array> {
                    $name(self, axes, false)
                }

                $(#[$doc])*
                /// The reduced axes stay, with length 1.
                pub fn $keepdims(&self, axes: impl Into<Axes>) -> Result<Array> {
                    $name(self, axes, true)
                }
            )*
        }
    };
}

reductions! {
    /// The sum over axes. Integers of fewer than 32 bits and bools are summed as 32-bit integers.
    sum, sum_keepdims {
        fold: Sum, output: Word, has_identity: true,
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::sum(&x, 0, false)?.to_vec::<i32>()?, [4, 6]);",
        vjp: Some(|x, _, g, _| broadcast_to(g, x.shape()))
    }
    /// The product over axes. Integers of fewer than 32 bits and bools are multiplied as 32-bit
    /// integers.
    prod, prod_keepdims {
        fold: Prod, output: Word, has_identity: true,
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::prod(&x, (), false)?.item::<i32>()?, 24);",
        vjp: None
    }
    /// The largest element over axes; NaN if there is one. An axis of length 0 is an error.
    max, max_keepdims {
        fold: Max, output: Same, has_identity: false,
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::max(&x, -1, false)?.to_vec::<i32>()?, [2, 4]);",
        vjp: None
    }
    /// The smallest element over axes; NaN if there is one. An axis of length 0 is an error.
    min, min_keepdims {
        fold: Min, output: Same, has_identity: false,
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::min(&x, [0, 1], false)?.item::<i32>()?, 1);",
        vjp: None
    }
    /// Whether all elements over axes are other than zero.
    all, all_keepdims {
        fold: All, output: Bool, has_identity: true,
        example: "let x = wootz::Array::new([[1, 0], [3, 4]])?;\nassert_eq!(wootz::all(&x, 1, false)?.to_vec::<bool>()?, [false, true]);",
        vjp: None
    }
    /// Whether any element over axes is other than zero.
    any, any_keepdims {
        fold: Any, output: Bool, has_identity: true,
        example: "let x = wootz::Array::new([[0, 0], [3, 4]])?;\nassert_eq!(wootz::any(&x, 1, false)?.to_vec::<bool>()?, [false, true]);",
        vjp: None
    }
}

fn apply(row: &'static Row, x: &Array, axes: &Axes, keepdims: bool) -> Result<Array> {
    let axes = axes.normalize(row.name, x.rank())?;
    if axes.is_empty() {
        // Nothing is combined, and as in MLX nothing is widened either.
        return if row.output == Output::Bool { astype(x, DType::Bool) } else { Ok(x.clone()) };
    }
    Array::apply(Reduce { row, axes, keepdims }, &[x])
}

/// Sum over axes that stay with length 1.
pub(crate) fn sum_keepdims(x: &Array, axes: &[i64]) -> Result<Array> {
    sum(x, axes, true)
}

/// The shape with `axes` of length 1.
pub(crate) fn kept_shape(shape: &[usize], axes: &[usize]) -> Vec<usize> {
    shape.iter().enumerate().map(|(i, &n)| if axes.contains(&i) { 1 } else { n }).collect()
}

/// The shape of a result: `axes` have length 1 or are gone.
pub(crate) fn reduced_shape(shape: &[usize], axes: &[usize], keepdims: bool) -> Vec<usize> {
    if keepdims {
        return kept_shape(shape, axes);
    }
    (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).collect()
}

/// A row over certain axes.
struct Reduce {
    row: &'static Row,
    axes: Vec<usize>,
    keepdims: bool,
}

impl std::fmt::Debug for Reduce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} over {:?}", self.row.name, self.axes)
    }
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "output"]
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        let shape = inputs[0].shape();
        let empty = self.axes.iter().any(|&axis| shape[axis] == 0);
        if empty && !self.row.has_identity {
            return Err(Error::NoIdentity { op: self.row.name, shape: format!("{shape:?}") });
        }
        let output = reduced_shape(shape, &self.axes, self.keepdims);
        let dtype = self.row.output.of(inputs[0].dtype);
        Ok(Metas::from_elem(Meta::new(self.name(), &output, dtype)?, 1))
    }

    fn scratch(&self, inputs: &[Meta], _gpu: bool) -> usize {
        cpu::scratch(&inputs[0], &self.axes)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        (self.row.cpu)(call, &self.axes)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let (Some(vjp), Some(gradient)) = (self.row.vjp, &cotangents[0]) else {
            return Ok(vec![None]);
        };
        let x = &inputs[0];
        let kept = kept_shape(x.shape(), &self.axes);
        let (y, gradient) = (reshape(&outputs[0], &kept)?, reshape(gradient, &kept)?);
        Ok(vec![Some(astype(&vjp(x, &y, &gradient, &self.axes)?, x.dtype())?)])
    }
}
