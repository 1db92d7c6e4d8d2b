//! `mean` and `var`: sums that are scaled at the end, in single precision at least.

use half::{bf16, f16};

use super::cpu::{PANEL, Pass, Plan, Source, reduce};
use super::fold::{Fold, Mean, Squares};
#[cfg(feature = "gpu")]
use super::gpu;
use super::{Axes, Empty, Output, Reduce, Row};
use crate::array::{Array, DType, Meta, Scalar};
use crate::cpu::CpuCall;
use crate::cpu::tile::{self, Storage};
use crate::error::{Error, Result};
use crate::ops::{add, astype, broadcast_to, complex, constant, imag, multiply, real, subtract};

/// The mean over axes; integers become `float32`. The mean of nothing is NaN.
///
/// ```
/// let x = wootz::Array::new([[1, 2], [3, 4]])?;
/// assert_eq!(wootz::mean(&x, 0, false)?.to_vec::<f32>()?, [2.0, 3.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn mean(x: &Array, axes: impl Into<Axes>, keepdims: bool) -> Result<Array> {
    let x = astype(x, x.dtype().to_float())?;
    if x.dtype().is_complex() {
        let axes = axes.into();
        return complex(
            mean(&real(&x)?, axes.clone(), keepdims)?,
            mean(&imag(&x)?, axes, keepdims)?,
        );
    }
    let axes = axes.into();
    if let Some(nothing) = of_nothing(&x, &axes.normalize(MEAN.name, x.rank())?, keepdims)? {
        return Ok(nothing);
    }
    super::apply(&MEAN, &x, &axes, keepdims)
}

/// The variance over axes, with divisor `n - ddof`; integers become `float32`. That of complex numbers is
/// the mean square of their distances from the mean, a `float32`.
///
/// ```
/// let x = wootz::Array::new([1.0f32, 2.0, 4.0, 5.0])?;
/// assert_eq!(wootz::var(&x, (), false, 0)?.item::<f32>()?, 2.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn var(x: &Array, axes: impl Into<Axes>, keepdims: bool, ddof: i64) -> Result<Array> {
    let x = astype(x, x.dtype().to_float())?;
    let axes = axes.into().normalize(VAR.name, x.rank())?;
    if x.dtype().is_complex() {
        let part = |x: Array| var(&x, &axes[..], keepdims, ddof);
        return add(part(real(&x)?)?, part(imag(&x)?)?);
    }
    if let Some(nothing) = of_nothing(&x, &axes, keepdims)? {
        return Ok(nothing);
    }
    Array::apply(Reduce { row: &VAR, axes, keepdims, ddof }, &[&x])
}

/// NaN wherever no numbers come together: a GPU need not give it for zero times infinity.
fn of_nothing(x: &Array, axes: &[usize], keepdims: bool) -> Result<Option<Array>> {
    if axes.iter().all(|&axis| x.shape()[axis] > 0) {
        return Ok(None);
    }
    let nan = constant(Scalar::Float(f64::NAN), x.dtype(), x.device())?;
    let reduced = |axis: &usize| axes.contains(axis);
    let lengths = x.shape().iter().enumerate().map(|(axis, &length)| match reduced(&axis) {
        true => (1, keepdims),
        false => (length, true),
    });
    let shape: Vec<usize> = lengths.filter(|(_, kept)| *kept).map(|(length, _)| length).collect();
    broadcast_to(&nan, &shape).map(Some)
}

impl Array {
    /// See [`mean`].
    pub fn mean(&self, axes: impl Into<Axes>) -> Result<Array> {
        mean(self, axes, false)
    }

    /// See [`mean`]. The reduced axes stay, with length 1.
    pub fn mean_keepdims(&self, axes: impl Into<Axes>) -> Result<Array> {
        mean(self, axes, true)
    }

    /// See [`var`], with divisor `n`.
    pub fn var(&self, axes: impl Into<Axes>) -> Result<Array> {
        var(self, axes, false, 0)
    }
}

/// Calls a macro with the storage type of a float dtype; others were converted.
macro_rules! with_floats {
    ($op:literal, $dtype:expr, $body:ident) => {
        match $dtype {
            DType::F16 => $body!(f16),
            DType::BF16 => $body!(bf16),
            DType::F32 => $body!(f32),
            DType::F64 => $body!(f64),
            other => Err(Error::dtype($op, "x", "a floating-point type", other)),
        }
    };
}
/// A mean with a result of some dtype.
macro_rules! mean_row {
    ($output:ident) => {
        Row {
            name: "mean",
            output: Output::$output,
            empty: Empty::Anything,
            cpu: |call, axes, scale| {
                macro_rules! body {
                    ($type:ty) => {
                        reduce::<$type, Mean>(call, axes, scale)
                    };
                }
                with_floats!("mean", call.meta(0).dtype, body)
            },
            scratch: super::cpu::scratch,
            #[cfg(feature = "gpu")]
            wgsl: gpu::Wgsl {
                acc: gpu::plain,
                element: |_| "v".into(),
                combine: |_| "return a + b;".into(),
                identity: "Acc(0)",
                finish: "(a * scale)",
                scaled: true,
                size: |class| class.size(),
            },
            vjp: Some(mean_vjp),
        }
    };
}

pub(super) static MEAN: Row = mean_row!(Same);

/// A mean that stays in single precision, for gradients of variances.
static WIDE_MEAN: Row = mean_row!(Single);

fn mean_vjp(x: &Array, _: &Array, gradient: &Array, reduce: &Reduce) -> Result<Array> {
    // The share of one of many elements may be too small for the gradient's dtype.
    let share = multiply(wide(gradient)?, reduce.scale(x.shape()))?;
    broadcast_to(&astype(&share, x.dtype())?, x.shape())
}

fn wide(x: &Array) -> Result<Array> {
    astype(x, DType::promote(x.dtype(), DType::F32))
}

pub(super) static VAR: Row = Row {
    name: "var",
    output: Output::Same,
    empty: Empty::Anything,
    cpu: |call, axes, scale| {
        macro_rules! body {
            ($type:ty) => {
                variance::<$type>(call, axes, scale)
            };
        }
        with_floats!("var", call.meta(0).dtype, body)
    },
    scratch: variance_scratch,
    #[cfg(feature = "gpu")]
    wgsl: gpu::Wgsl {
        acc: |_| "alias Acc = WzMoments;\n".into(),
        element: |_| "Acc(1.0, v, 0.0)".into(),
        combine: |_| "return wz_moments_join(a, b);".into(),
        identity: "Acc()",
        finish: "wz_moments_variance(a, scale)",
        scaled: true,
        size: |_| 12,
    },
    vjp: Some(|x, _, g, reduce| {
        let mean = Reduce::new(&WIDE_MEAN, reduce.axes.clone(), true);
        let deviation = subtract(wide(x)?, Array::apply(mean, &[x])?)?;
        let slope = multiply(wide(g)?, 2.0 * reduce.scale(x.shape()))?;
        astype(&multiply(deviation, slope)?, x.dtype())
    }),
};

/// Means of outputs that have several blocks are kept; the others are known where they are needed.
fn variance_scratch(input: &Meta, axes: &[usize]) -> usize {
    let plan = Plan::new(&input.layout, axes);
    let means = if plan.blocks() > 1 { plan.outputs } else { 0 };
    (plan.results() + means) * input.dtype.class().size()
}

/// Means first, then squared distances from them.
fn variance<T: Storage + Sync>(call: &mut CpuCall<'_>, axes: &[usize], scale: f64) -> Result<()>
where
    Mean: Fold<T::Wide, Acc = T::Wide>,
    Squares: Fold<T::Wide, Acc = T::Wide>,
{
    let input = call.strided::<T>(0)?;
    let dtype = call.output_meta(0).dtype;
    let plan = Plan::new(&input.meta.layout, axes);
    let source = Source { data: input.data, dtype: input.meta.dtype };
    let mean = Pass::<T, Mean>::new(source, &plan);
    let squares = Pass::<T, Squares>::new(source, &plan);
    let share = 1.0 / plan.length as f64;
    let (out, scratch) = call.output_and_scratch::<u8, T::Wide>(0)?;
    let (results, means) = scratch.split_at_mut(plan.results());
    let several = plan.blocks() > 1;
    if several {
        mean.blocks(&[], results);
        plan.panels(&mut means[..plan.outputs], 1, |first, _, means| {
            mean.panel(results, &[], first, means, share);
        });
        squares.blocks(means, results);
    }
    let (results, means) = (&*results, &*means);
    plan.panels(out, dtype.size(), |first, count, out| {
        let mut own = [<Mean as Fold<T::Wide>>::IDENTITY; PANEL];
        let centers = match several {
            true => &means[first..first + count],
            false => {
                mean.panel(&[], &[], first, &mut own[..count], share);
                &own[..count]
            }
        };
        let values = &mut [<Squares as Fold<T::Wide>>::IDENTITY; PANEL][..count];
        squares.panel(results, centers, first, values, scale);
        tile::narrow(dtype, bytemuck::cast_slice(values), out);
    });
    Ok(())
}
