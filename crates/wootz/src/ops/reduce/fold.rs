//! The functions that reductions combine elements with, for every class of numbers.

use bytemuck::Pod;

use crate::cpu::simd::Real;

/// How elements of type `W` are combined.
pub(crate) trait Fold<W: Pod>: Send + Sync + 'static {
    /// What is accumulated.
    type Acc: Pod + Send + Sync;
    /// The result of combining nothing.
    const IDENTITY: Self::Acc;
    /// An element as an accumulator.
    fn map(element: W) -> Self::Acc;
    /// Combines two accumulators.
    fn combine(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// Joins the results of blocks, in order.
    #[inline(always)]
    fn join(results: impl Iterator<Item = Self::Acc>) -> Self::Acc {
        results.fold(Self::IDENTITY, Self::combine)
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

/// The logarithm of the sum of exponentials; of floats only.
pub(crate) struct LogAddExp;

macro_rules! folds {
    ($kind:ident, $type:ty => $acc:ty, $identity:expr, |$x:ident| $map:expr, |$a:ident, $b:ident| $combine:expr
        $(, join: |$results:ident| $join:expr)?) => {
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
                #[inline(always)]
                fn join($results: impl Iterator<Item = $acc>) -> $acc {
                    $join
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
        folds!(All, $type => u32, 1, |x| (x != 0.0) as u32, |a, b| a & b);
        folds!(Any, $type => u32, 0, |x| (x != 0.0) as u32, |a, b| a | b);
    )*};
}
float_folds!(f32, f64);
