//! Two steps of arithmetic as one loop over a tile. A step by itself loads and stores every vector
//! for a single instruction; most chains are made of these few operations.

use std::marker::PhantomData;

use crate::cpu::simd::Real;
use crate::op::{BLOCK, TileFn, block};

/// The loop that computes `first`, and then `second` with that as its argument `position`, in
/// `float32`. Its arguments are those of `first` and the other one of `second`.
pub(super) fn joined(first: &str, second: &str, position: usize) -> Option<TileFn> {
    match first {
        "add" => joined_to::<Add>(second, position),
        "subtract" => joined_to::<Subtract>(second, position),
        "multiply" => joined_to::<Multiply>(second, position),
        "maximum" => joined_to::<Maximum>(second, position),
        "minimum" => joined_to::<Minimum>(second, position),
        _ => None,
    }
}

fn joined_to<F: Arithmetic>(second: &str, position: usize) -> Option<TileFn> {
    fn either<F: Arithmetic, G: Arithmetic>(position: usize) -> TileFn {
        if position == 0 { run::<F, G> } else { run::<F, Swapped<G>> }
    }
    match second {
        "add" => Some(either::<F, Add>(position)),
        "subtract" => Some(either::<F, Subtract>(position)),
        "multiply" => Some(either::<F, Multiply>(position)),
        "maximum" => Some(either::<F, Maximum>(position)),
        "minimum" => Some(either::<F, Minimum>(position)),
        _ => None,
    }
}

/// The expression of a row, as in its table.
trait Arithmetic: 'static {
    fn of(a: f32, b: f32) -> f32;
}

macro_rules! arithmetic {
    ($($name:ident: |$a:ident, $b:ident| $value:expr;)*) => {$(
        struct $name;
        impl Arithmetic for $name {
            #[inline(always)]
            fn of($a: f32, $b: f32) -> f32 {
                $value
            }
        }
    )*};
}

arithmetic! {
    Add: |a, b| a + b;
    Subtract: |a, b| a - b;
    Multiply: |a, b| a * b;
    Maximum: |a, b| Real::maximum(a, b);
    Minimum: |a, b| Real::minimum(a, b);
}

/// With its arguments the other way round.
struct Swapped<G>(PhantomData<G>);

impl<G: Arithmetic> Arithmetic for Swapped<G> {
    #[inline(always)]
    fn of(a: f32, b: f32) -> f32 {
        G::of(b, a)
    }
}

fn run<F: Arithmetic, G: Arithmetic>(arguments: &[&[u8]], out: &mut [u8]) {
    let argument =
        |index: usize| bytemuck::cast_slice(arguments.get(index).copied().unwrap_or_default());
    let (a, b, c) = (argument(0), argument(1), argument(2));
    let out = bytemuck::cast_slice_mut(out);
    crate::cpu::simd::run(Loop::<F, G> { a, b, c, out, steps: PhantomData });
}

struct Loop<'a, F, G> {
    a: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    out: &'a mut [f32],
    steps: PhantomData<(F, G)>,
}

impl<F: Arithmetic, G: Arithmetic> pulp::WithSimd for Loop<'_, F, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Loop { a, b, c, out, .. } = self;
        // Plain loops where the first argument is a tile; a constant then stays in its register.
        let whole = |argument: &[f32]| argument.len() == out.len();
        match (whole(a), whole(b), whole(c)) {
            (true, true, true) => {
                for (out, ((&a, &b), &c)) in out.iter_mut().zip(a.iter().zip(b).zip(c)) {
                    *out = G::of(F::of(a, b), c);
                }
            }
            (true, true, false) => {
                for (out, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
                    *out = G::of(F::of(a, b), c[0]);
                }
            }
            (true, false, true) => {
                for (out, (&a, &c)) in out.iter_mut().zip(a.iter().zip(c)) {
                    *out = G::of(F::of(a, b[0]), c);
                }
            }
            (true, false, false) => {
                for (out, &a) in out.iter_mut().zip(a) {
                    *out = G::of(F::of(a, b[0]), c[0]);
                }
            }
            (false, ..) => {
                for (index, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
                    let (a, b, c) = (block(a, index), block(b, index), block(c, index));
                    for i in 0..BLOCK {
                        out[i] = G::of(F::of(a[i], b[i]), c[i]);
                    }
                }
            }
        }
    }
}
