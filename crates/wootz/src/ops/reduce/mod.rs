//! Reductions: a table of rows over any axes, and what is made of them.

mod arg;
mod cases;
mod composed;
mod cpu;
pub(crate) mod fold;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
mod logsumexp;
mod moments;
#[cfg(test)]
mod tests;

pub(crate) use cases::entries;
pub use composed::*;
pub use moments::*;

use crate::array::{Array, DType, Meta, normalize_axis};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Metas, Op, expect_inputs};
use crate::ops::{
    add, astype, broadcast_to, conjugate, divide, equal, exp, log, multiply, reshape, softmax,
    stop_gradient, subtract,
};

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
    empty: Empty,
    /// The CPU kernel: over which axes, and what to multiply a scaled result by.
    cpu: fn(&mut CpuCall<'_>, &[usize], f64) -> Result<()>,
    /// Bytes that the CPU kernel needs beside the output.
    scratch: fn(&Meta, &[usize]) -> usize,
    #[cfg(feature = "gpu")]
    wgsl: gpu::Wgsl,
    vjp: Option<Vjp>,
}

/// The gradient of the input, from the input, the output and the output's gradient, the latter two
/// with reduced axes of length 1.
type Vjp = fn(x: &Array, y: &Array, gradient: &Array, reduce: &Reduce) -> Result<Array>;

/// The dtype of a row's result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    /// That of the input.
    Same,
    /// That of the input, but no integer of fewer than 32 bits.
    Word,
    /// That of the input, but `float32` for smaller floats.
    Single,
    /// `bool`.
    Bool,
    /// `uint32`.
    Index,
}

/// What may be empty.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Empty {
    /// Anything: there is an identity.
    Anything,
    /// Axes that stay.
    KeptAxes,
    /// Nothing.
    Nothing,
}

impl Output {
    fn of(self, input: DType) -> DType {
        match (self, input) {
            (Output::Bool, _) => DType::Bool,
            (Output::Index, _) => DType::U32,
            (Output::Word, DType::Bool | DType::I8 | DType::I16) => DType::I32,
            (Output::Word, DType::U8 | DType::U16) => DType::U32,
            (Output::Single, DType::F16 | DType::BF16) => DType::F32,
            _ => input,
        }
    }
}

/// A row whose CPU kernel is a fold.
macro_rules! fold_row {
    ($name:expr, $fold:ident, $output:ident, $empty:ident, [$element:expr, $combine:expr, $nothing:expr], $vjp:expr) => {
        Row {
            name: $name,
            output: Output::$output,
            empty: Empty::$empty,
            cpu: cpu::run::<fold::$fold>,
            scratch: cpu::scratch,
            #[cfg(feature = "gpu")]
            wgsl: gpu::Wgsl {
                acc: if matches!(Output::$output, Output::Bool) {
                    |_| gpu::plain("u32")
                } else {
                    gpu::plain
                },
                element: $element,
                combine: $combine,
                identity: $nothing,
                finish: "a",
                scaled: false,
                size: |class| class.size(),
            },
            vjp: $vjp,
        }
    };
}

/// Defines rows: the static row, the function and the two methods.
macro_rules! reductions {
    ($(
        $(#[$doc:meta])*
        $name:ident, $keepdims:ident {
            fold: $fold:ident, output: $output:ident, empty: $empty:ident,
            wgsl: $wgsl:tt,
            vjp: $vjp:expr,
            example: $example:literal
        }
    )*) => {
        crate::ops::elementwise::index_of!($($name),*);
        static ROWS: &[Row] =
            &[$(fold_row!(stringify!($name), $fold, $output, $empty, $wgsl, $vjp),)*];
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
        fold: Sum, output: Word, empty: Anything,
        wgsl: [|_| "v".into(), |_| "return a + b;".into(), "Acc(0)"],
        vjp: Some(|x, _, g, _| broadcast_to(g, x.shape())),
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::sum(&x, 0, false)?.to_vec::<i32>()?, [4, 6]);"
    }
    /// The product over axes. Integers of fewer than 32 bits and bools are multiplied as 32-bit
    /// integers.
    prod, prod_keepdims {
        fold: Prod, output: Word, empty: Anything,
        wgsl: [|_| "v".into(), gpu::product, "wz_one()"],
        vjp: Some(|x, _, g, reduce| multiply(g, composed::others_product(x, &reduce.axes)?)),
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::prod(&x, (), false)?.item::<i32>()?, 24);"
    }
    /// The largest element over axes; NaN if there is one. An axis of length 0 is an error. Equal
    /// elements share the gradient evenly.
    max, max_keepdims {
        fold: Max, output: Same, empty: KeptAxes,
        wgsl: [|_| "v".into(), |class| gpu::extremum(class, true), "Acc(0)"],
        vjp: Some(shared_gradient),
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::max(&x, -1, false)?.to_vec::<i32>()?, [2, 4]);"
    }
    /// The smallest element over axes; NaN if there is one. An axis of length 0 is an error. Equal
    /// elements share the gradient evenly.
    min, min_keepdims {
        fold: Min, output: Same, empty: KeptAxes,
        wgsl: [|_| "v".into(), |class| gpu::extremum(class, false), "Acc(0)"],
        vjp: Some(shared_gradient),
        example: "let x = wootz::Array::new([[1, 2], [3, 4]])?;\nassert_eq!(wootz::min(&x, [0, 1], false)?.item::<i32>()?, 1);"
    }
    /// Whether all elements over axes are other than zero.
    all, all_keepdims {
        fold: All, output: Bool, empty: Anything,
        wgsl: [|class| gpu::truth(class), |_| "return a & b;".into(), "1u"],
        vjp: None,
        example: "let x = wootz::Array::new([[1, 0], [3, 4]])?;\nassert_eq!(wootz::all(&x, 1, false)?.to_vec::<bool>()?, [false, true]);"
    }
    /// Whether any element over axes is other than zero.
    any, any_keepdims {
        fold: Any, output: Bool, empty: Anything,
        wgsl: [|class| gpu::truth(class), |_| "return a | b;".into(), "0u"],
        vjp: None,
        example: "let x = wootz::Array::new([[0, 0], [3, 4]])?;\nassert_eq!(wootz::any(&x, 1, false)?.to_vec::<bool>()?, [false, true]);"
    }
}

macro_rules! arg_row {
    ($name:literal, $fold:ident, $largest:literal) => {
        Row {
            name: $name,
            output: Output::Index,
            empty: Empty::Nothing,
            cpu: arg::run::<fold::$fold>,
            scratch: |_, _| 0,
            #[cfg(feature = "gpu")]
            wgsl: gpu::Wgsl {
                acc: |value| format!("struct Acc {{ v: {value}, i: u32 }}\n"),
                element: |_| "Acc(v, i)".into(),
                combine: |class| gpu::choice(class, $largest),
                identity: "Acc()",
                finish: "a.i",
                scaled: false,
                size: |class| 2 * class.size(),
            },
            vjp: None,
        }
    };
}

static ARGMAX: Row = arg_row!("argmax", Max, true);
static ARGMIN: Row = arg_row!("argmin", Min, false);

static LOGSUMEXP: Row = Row {
    name: "logsumexp",
    output: Output::Same,
    empty: Empty::Nothing,
    cpu: logsumexp::run,
    scratch: |_, _| 0,
    #[cfg(feature = "gpu")]
    wgsl: gpu::Wgsl {
        acc: |_| "alias Acc = vec2f;\n".into(),
        element: |_| "vec2f(v, 1.0)".into(),
        combine: |_| "return wz_lse_join(a, b);".into(),
        identity: "Acc()",
        finish: "wz_lse_value(a)",
        scaled: false,
        size: |_| 8,
    },
    vjp: Some(|x, _, g, reduce| multiply(g, softmax(x, &reduce.axes[..])?)),
};

/// The place of the largest element along an axis, or in the flattened array for `()`; the first
/// of several, and a NaN before any number.
///
/// ```
/// let x = wootz::Array::new([[1, 5, 5], [7, 2, 3]])?;
/// assert_eq!(wootz::argmax(&x, 1, false)?.to_vec::<u32>()?, [1, 0]);
/// assert_eq!(wootz::argmax(&x, (), false)?.item::<u32>()?, 3);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn argmax(x: &Array, axis: impl Into<Axes>, keepdims: bool) -> Result<Array> {
    arg_reduce(&ARGMAX, x, axis.into(), keepdims)
}

/// The place of the smallest element along an axis, or in the flattened array for `()`; the first
/// of several, and a NaN before any number.
///
/// ```
/// let x = wootz::Array::new([[1, 5, 5], [7, 2, 3]])?;
/// assert_eq!(wootz::argmin(&x, 1, false)?.to_vec::<u32>()?, [0, 1]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn argmin(x: &Array, axis: impl Into<Axes>, keepdims: bool) -> Result<Array> {
    arg_reduce(&ARGMIN, x, axis.into(), keepdims)
}

/// `log Σ e^x` over axes, without overflow. −∞ alone gives −∞.
///
/// ```
/// let x = wootz::Array::new([1000.0f32, 1000.0])?;
/// assert!((wootz::logsumexp(&x, (), false)?.item::<f32>()? - 1000.6931).abs() < 1e-4);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn logsumexp(x: &Array, axes: impl Into<Axes>, keepdims: bool) -> Result<Array> {
    let x = astype(x, x.dtype().to_float())?;
    let axes = axes.into().normalize(LOGSUMEXP.name, x.rank())?;
    if axes.is_empty() && x.size() > 0 {
        return Ok(x);
    }
    if x.dtype().is_complex() {
        let largest = stop_gradient(max(&x, &axes[..], true)?)?;
        let total = sum(&exp(subtract(&x, &largest)?)?, &axes[..], true)?;
        let shape = reduced_shape(x.shape(), &axes, keepdims);
        return reshape(&add(log(total)?, largest)?, &shape);
    }
    // The CPU kernel reads along the reduced axes, so these are brought together first; for any number of
    // neighbours, so that a batch of any size is made of as many nodes.
    let plan = cpu::Plan::new(&x.meta().layout, &axes);
    if plan.across && !x.device().is_gpu() {
        let mut order: Vec<i64> =
            (0..x.rank()).filter(|axis| !axes.contains(axis)).map(|axis| axis as i64).collect();
        let kept = order.len();
        order.extend(axes.iter().map(|&axis| axis as i64));
        let rows = crate::ops::transpose_axes(&x, &order)?.contiguous()?;
        let shape = reduced_shape(x.shape(), &axes, keepdims);
        let op = Reduce::new(&LOGSUMEXP, (kept..x.rank()).collect(), false);
        return reshape(&Array::apply(op, &[&rows])?, &shape);
    }
    Array::apply(Reduce::new(&LOGSUMEXP, axes, keepdims), &[&x])
}

impl Array {
    /// See [`argmax`].
    pub fn argmax(&self, axis: impl Into<Axes>) -> Result<Array> {
        argmax(self, axis, false)
    }

    /// See [`argmin`].
    pub fn argmin(&self, axis: impl Into<Axes>) -> Result<Array> {
        argmin(self, axis, false)
    }

    /// See [`logsumexp`].
    pub fn logsumexp(&self, axes: impl Into<Axes>) -> Result<Array> {
        logsumexp(self, axes, false)
    }
}

fn apply(row: &'static Row, x: &Array, axes: &Axes, keepdims: bool) -> Result<Array> {
    let axes = axes.normalize(row.name, x.rank())?;
    if axes.is_empty() {
        // Nothing is combined, and as in MLX nothing is widened either.
        return if row.output == Output::Bool { astype(x, DType::Bool) } else { Ok(x.clone()) };
    }
    Array::apply(Reduce::new(row, axes, keepdims), &[x])
}

fn arg_reduce(row: &'static Row, x: &Array, axis: Axes, keepdims: bool) -> Result<Array> {
    if let Axes::These(axes) = &axis
        && axes.len() != 1
    {
        return Err(Error::argument(
            row.name,
            "axis",
            "one axis, or () for all",
            format!("{axes:?}"),
        ));
    }
    let axes = axis.normalize(row.name, x.rank())?;
    Array::apply(Reduce::new(row, axes, keepdims), &[x])
}

/// Sum over axes that stay with length 1.
pub(crate) fn sum_keepdims(x: &Array, axes: &[i64]) -> Result<Array> {
    sum(x, axes, true)
}

/// The gradient of an extremum: spread over the elements that equal it.
fn shared_gradient(x: &Array, y: &Array, gradient: &Array, reduce: &Reduce) -> Result<Array> {
    let winners = astype(&equal(x, y)?, gradient.dtype())?;
    let share = divide(gradient, sum(&winners, &reduce.axes[..], true)?)?;
    multiply(winners, share)
}

/// The shape of a result: `axes` have length 1 or are gone.
pub(crate) fn reduced_shape(shape: &[usize], axes: &[usize], keepdims: bool) -> Vec<usize> {
    let lengths = shape.iter().enumerate();
    if keepdims {
        return lengths.map(|(i, &length)| if axes.contains(&i) { 1 } else { length }).collect();
    }
    lengths.filter(|(i, _)| !axes.contains(i)).map(|(_, &length)| length).collect()
}

/// A row over certain axes.
struct Reduce {
    row: &'static Row,
    axes: Vec<usize>,
    keepdims: bool,
    /// What the divisor of a scaled result lacks to the number of reduced elements.
    ddof: i64,
}

impl Reduce {
    fn new(row: &'static Row, axes: Vec<usize>, keepdims: bool) -> Reduce {
        Reduce { row, axes, keepdims, ddof: 0 }
    }

    /// What a scaled result of an input of `shape` is multiplied by.
    fn scale(&self, shape: &[usize]) -> f64 {
        let count: usize = self.axes.iter().map(|&axis| shape[axis]).product();
        1.0 / (count as i64).saturating_sub(self.ddof).max(0) as f64
    }
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

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        let shape = inputs[0].shape();
        let refused = match self.row.empty {
            Empty::Anything => false,
            Empty::KeptAxes => self.axes.iter().any(|&axis| shape[axis] == 0),
            Empty::Nothing => shape.contains(&0),
        };
        if refused {
            return Err(Error::NoIdentity { op: self.row.name, shape: format!("{shape:?}") });
        }
        let output = reduced_shape(shape, &self.axes, self.keepdims);
        let dtype = self.row.output.of(inputs[0].dtype);
        Ok(Metas::from_elem(Meta::new(self.name(), &output, dtype)?, 1))
    }

    #[cfg_attr(not(feature = "gpu"), allow(unused_variables))]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        #[cfg(feature = "gpu")]
        if gpu {
            return gpu::scratch(&self.row.wgsl, inputs[0], &self.axes);
        }
        (self.row.scratch)(inputs[0], &self.axes)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let scale = self.scale(call.meta(0).shape());
        (self.row.cpu)(call, &self.axes, scale)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let scale = self.scale(call.meta(0).shape());
        gpu::run(&self.row.wgsl, call, &self.axes, scale as f32)
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
        let kept = reduced_shape(x.shape(), &self.axes, true);
        let (y, gradient) = (reshape(&outputs[0], &kept)?, reshape(gradient, &kept)?);
        // Gradients of complex functions are multiplied by conjugates of derivatives.
        let gradient = conjugate(vjp(x, &y, &conjugate(gradient)?, self)?)?;
        Ok(vec![Some(astype(&gradient, x.dtype())?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let x = &batch.inputs[0];
        let shape = batch.shape(0);
        if self.row.output == Output::Index && self.axes.len() != 1 {
            // Places in a flattened element.
            let flat = reshape(x, &[batch.size, shape.iter().product()])?;
            let places = Array::apply(Reduce::new(self.row, vec![1], false), &[&flat])?;
            let kept = reduced_shape(shape, &self.axes, self.keepdims);
            return Ok(vec![reshape(&places, &[&[batch.size], &kept[..]].concat())?]);
        }
        let axes: Vec<usize> = self.axes.iter().map(|axis| axis + 1).collect();
        if self.row.name == LOGSUMEXP.name {
            return Ok(vec![logsumexp(x, &axes[..], self.keepdims)?]);
        }
        batch.apply(Reduce { axes, ..*self }, batch.inputs)
    }
}
