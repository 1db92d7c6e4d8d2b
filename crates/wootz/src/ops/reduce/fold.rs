//! The functions that reductions combine elements with, for every class of numbers.

use bytemuck::Pod;

use num_complex::Complex32;

use crate::cpu::simd::{Complex, Real};

/// How elements of type `W` are combined.
pub(crate) trait Fold<W: Pod>: Send + Sync + 'static {
    /// What is accumulated.
    type Acc: Pod + Send + Sync;
    /// The result of combining nothing.
    const IDENTITY: Self::Acc;
    /// An element as an accumulator.
    fn map(element: W) -> Self::Acc;
    /// Whether elements are taken relative to a centre, one for each output.
    const CENTERED: bool = false;
    /// An element, given the centre of its output, as an accumulator.
    #[inline(always)]
    fn map_about(element: W, _center: W) -> Self::Acc {
        Self::map(element)
    }
    /// Combines two accumulators.
    fn combine(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// Joins the results of blocks, in order.
    #[inline(always)]
    fn join(results: impl Iterator<Item = Self::Acc>) -> Self::Acc {
        results.fold(Self::IDENTITY, Self::combine)
    }
    /// The result, from what was accumulated and what an element's share is.
    #[inline(always)]
    fn finish(acc: Self::Acc, _scale: f64) -> Self::Acc {
        acc
    }
}

/// Sums.
pub(crate) struct Sum;
/// Products.
pub(crate) struct Prod;
/// The largest element; NaN if there is one.
pub(crate) struct Max;
/// The smallest element; NaN if there is one.
pub(crate) struct Min;
/// Whether no element is zero.
pub(crate) struct All;
/// Whether some element is not zero.
pub(crate) struct Any;

/// Sums that are scaled at the end; of floats only.
pub(crate) struct Mean;
/// Sums of squared distances from a centre, scaled at the end; of floats only.
pub(crate) struct Squares;
/// The logarithm of the sum of exponentials; of floats only.
pub(crate) struct LogAddExp;

macro_rules! folds {
    ($kind:ident, $type:ty => $acc:ty, $identity:expr, |$x:ident| $map:expr, |$a:ident, $b:ident| $combine:expr
        $(, about: |$y:ident, $center:ident| $about:expr)?
        $(, join: |$results:ident| $join:expr)?
        $(, finish: |$sum:ident, $scale:ident| $finish:expr)?) => {
        impl Fold<$type> for $kind {
            type Acc = $acc;
            const IDENTITY: $acc = $identity;
            #[inline(always)]
            fn map($x: $type) -> $acc {
                $map
            }
            #[inline(always)]
            fn combine($a: $acc, $b: $acc) -> $acc {
                $combine
            }
            $(
                const CENTERED: bool = true;
                #[inline(always)]
                fn map_about($y: $type, $center: $type) -> $acc {
                    $about
                }
            )?
            $(
                #[inline(always)]
                fn join($results: impl Iterator<Item = $acc>) -> $acc {
                    $join
                }
            )?
            $(
                #[inline(always)]
                fn finish($sum: $acc, $scale: f64) -> $acc {
                    $finish
                }
            )?
        }
    };
}

macro_rules! integer_folds {
    ($($type:ident),*) => {$(
        folds!(Sum, $type => $type, 0, |x| x, |a, b| a.wrapping_add(b));
        folds!(Prod, $type => $type, 1, |x| x, |a, b| a.wrapping_mul(b));
        folds!(Max, $type => $type, $type::MIN, |x| x, |a, b| a.max(b));
        folds!(Min, $type => $type, $type::MAX, |x| x, |a, b| a.min(b));
        // Integers are converted before they come here.
        folds!(LogAddExp, $type => $type, 0, |x| x, |a, b| a.max(b));
        folds!(All, $type => u32, 1, |x| (x != 0) as u32, |a, b| a & b);
        folds!(Any, $type => u32, 0, |x| (x != 0) as u32, |a, b| a | b);
    )*};
}
integer_folds!(u32, u64, i32, i64);

// Blocks are joined in double precision: there may be many of them.
macro_rules! float_folds {
    ($($type:ident),*) => {$(
        folds!(Sum, $type => $type, 0.0, |x| x, |a, b| a + b,
            join: |results| results.fold(0.0f64, |sum, part| sum + part as f64) as $type);
        folds!(Prod, $type => $type, 1.0, |x| x, |a, b| a * b,
            join: |results| results.fold(1.0f64, |product, part| product * part as f64) as $type);
        folds!(Max, $type => $type, $type::NEG_INFINITY, |x| x,
            |a, b| if a > b || a.is_nan() { a } else { b });
        folds!(Min, $type => $type, $type::INFINITY, |x| x,
            |a, b| if a < b || a.is_nan() { a } else { b });
        folds!(LogAddExp, $type => $type, $type::NEG_INFINITY, |x| x, |a, b| Real::logaddexp(a, b));
        folds!(Mean, $type => $type, 0.0, |x| x, |a, b| a + b,
            join: |results| <Sum as Fold<$type>>::join(results),
            finish: |sum, scale| sum * scale as $type);
        folds!(Squares, $type => $type, 0.0, |x| x * x, |a, b| a + b,
            about: |x, center| (x - center) * (x - center),
            join: |results| <Sum as Fold<$type>>::join(results),
            finish: |sum, scale| sum * scale as $type);
        folds!(All, $type => u32, 1, |x| (x != 0.0) as u32, |a, b| a & b);
        folds!(Any, $type => u32, 0, |x| (x != 0.0) as u32, |a, b| a | b);
    )*};
}
float_folds!(f32, f64);

const BOTTOM: Complex32 = Complex32::new(f32::NEG_INFINITY, f32::NEG_INFINITY);
const TOP: Complex32 = Complex32::new(f32::INFINITY, f32::INFINITY);
folds!(Sum, Complex32 => Complex32, Complex32::new(0.0, 0.0), |x| x, |a, b| a + b,
join: |results| {
    let add = |(re, im): (f64, f64), part: Complex32| (re + part.re as f64, im + part.im as f64);
    let (re, im) = results.fold((0.0, 0.0), add);
    Complex32::new(re as f32, im as f32)
});
folds!(Prod, Complex32 => Complex32, Complex32::new(1.0, 0.0), |x| x, |a, b| a.times(b));
folds!(Max, Complex32 => Complex32, BOTTOM, |x| x, |a, b| Complex::maximum(a, b));
folds!(Min, Complex32 => Complex32, TOP, |x| x, |a, b| Complex::minimum(a, b));
folds!(LogAddExp, Complex32 => Complex32, Complex32::new(f32::NEG_INFINITY, 0.0), |x| x,
    |a, b| Complex::logaddexp(a, b));
folds!(All, Complex32 => u32, 1, |x| (x != Complex32::default()) as u32, |a, b| a & b);
folds!(Any, Complex32 => u32, 0, |x| (x != Complex32::default()) as u32, |a, b| a | b);
