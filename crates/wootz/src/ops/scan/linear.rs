//! Linear recurrences along an axis: what the gradients of scans are made of. Their own gradients
//! are recurrences again.

use num_complex::Complex32;

use super::{around, shifted};
use crate::array::{Array, DType, Meta};
use crate::cpu::tile::Storage;
use crate::cpu::{CpuCall, threads};
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Batch, Metas, Op, expect_contiguous, expect_dtype, expect_inexact, expect_inputs, expect_shape,
};
use crate::ops::{conjugate, multiply};

/// `s` with `s_t = b_t + a·s_u` along `axis`, where `u` is scanned before `t` and `a` is taken at
/// `t`, or with `lag` at `u`.
pub(in crate::ops) fn recurrence(
    a: &Array,
    b: &Array,
    axis: usize,
    reverse: bool,
    lag: bool,
) -> Result<Array> {
    let kind = if lag { Kind::Lagged } else { Kind::Plain };
    Array::apply(Linear { kind, axis, reverse }, &[&a.contiguous()?, &b.contiguous()?])
}

/// The elements of `x` that made the running extremum `y` change win the outputs up to the next of
/// them. Sums `v` over the outputs that each element won or, with `spread`, shows each output the
/// `v` of its winner.
pub(super) fn winners(
    x: &Array,
    y: &Array,
    v: &Array,
    axis: usize,
    reverse: bool,
    spread: bool,
) -> Result<Array> {
    // Sums run against the scan, to meet the winner last.
    let (kind, reverse) = if spread { (Kind::Spread, reverse) } else { (Kind::Gather, !reverse) };
    let [x, y, v] = [x.contiguous()?, y.contiguous()?, v.contiguous()?];
    Array::apply(Linear { kind, axis, reverse }, &[&x, &y, &v])
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Plain,
    Lagged,
    Gather,
    Spread,
}

impl Kind {
    /// Names of the inputs.
    pub(super) fn inputs(self) -> &'static [&'static str] {
        match self {
            Kind::Plain | Kind::Lagged => &["a", "b"],
            Kind::Gather | Kind::Spread => &["x", "y", "v"],
        }
    }

    /// The step, in the words of `linear.wgsl`.
    #[cfg(feature = "gpu")]
    pub(super) fn wgsl(self) -> &'static str {
        match self {
            Kind::Plain => {
                "let factor = a(p.offset0 + t);\n\
                 running = b(p.offset1 + t) + select(times(factor, running), Wide(), begins);\n\
                 s_set(t, running);"
            }
            Kind::Lagged => {
                "let factor = a(p.offset0 + u);\n\
                 running = b(p.offset1 + t) + select(times(factor, running), Wide(), begins);\n\
                 s_set(t, running);"
            }
            Kind::Gather => {
                // The element scanned before `t` is the next one here.
                "let later = base + select(k + 1u, p.length - 2u - k, REVERSE) * p.inner;\n\
                 let here = x(p.offset0 + t);\n\
                 var wins = same(here, y(p.offset1 + t));\n\
                 if (is_nan(here)) { wins = ends || !is_nan(y(p.offset1 + select(later, t, ends))); }\n\
                 running += v(p.offset2 + t);\n\
                 s_set(t, select(Wide(), running, wins));\n\
                 if (wins) { running = Wide(); }"
            }
            Kind::Spread => {
                "let here = x(p.offset0 + t);\n\
                 var wins = same(here, y(p.offset1 + t));\n\
                 if (is_nan(here)) { wins = begins || !is_nan(y(p.offset1 + u)); }\n\
                 if (wins) { running = v(p.offset2 + t); }\n\
                 s_set(t, running);"
            }
        }
    }
}

/// A recurrence along an axis of row-major arrays.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) kind: Kind,
    pub(super) axis: usize,
    pub(super) reverse: bool,
}

impl Op for Linear {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Plain | Kind::Lagged => "recurrence",
            Kind::Gather | Kind::Spread => "winners",
        }
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Plain | Kind::Lagged => &["a", "b", "output"],
            Kind::Gather | Kind::Spread => &["x", "y", "v", "output"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, self.kind.inputs().len())?;
        expect_inexact(self, inputs, 0)?;
        for index in 0..inputs.len() {
            expect_dtype(self, inputs, index, inputs[0].dtype)?;
            expect_shape(self, inputs, index, inputs[0].shape())?;
            expect_contiguous(self, inputs, index)?;
        }
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        match call.meta(0).dtype {
            DType::F16 => self.lines::<half::f16>(call),
            DType::BF16 => self.lines::<half::bf16>(call),
            DType::F32 => self.lines::<f32>(call),
            DType::F64 => self.lines::<f64>(call),
            DType::C64 => self.lines::<Complex32>(call),
            other => Err(Error::dtype(self.name(), "a", "a floating-point type", other)),
        }
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        super::gpu::linear(call, self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(g) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        // Gradients of complex functions are multiplied by conjugates of derivatives.
        let g = &conjugate(g)?;
        let (axis, reverse) = (self.axis, self.reverse);
        let gradients = match self.kind {
            Kind::Plain => {
                let to_b = recurrence(&inputs[0], g, axis, !reverse, true)?;
                let before = shifted(&outputs[0], axis, !reverse)?;
                vec![Some(multiply(&to_b, before)?), Some(to_b)]
            }
            Kind::Lagged => {
                let to_b = recurrence(&inputs[0], g, axis, !reverse, false)?;
                let to_a = multiply(&outputs[0], shifted(&to_b, axis, reverse)?)?;
                vec![Some(to_a), Some(to_b)]
            }
            Kind::Gather | Kind::Spread => {
                let (x, y) = (&inputs[0], &inputs[1]);
                let to_v = match self.kind {
                    Kind::Gather => winners(x, y, g, axis, !reverse, true)?,
                    _ => winners(x, y, g, axis, reverse, false)?,
                };
                vec![None, None, Some(to_v)]
            }
        };
        gradients.into_iter().map(|gradient| gradient.map(conjugate).transpose()).collect()
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.apply(Linear { axis: self.axis + 1, ..*self }, &batch.dense()?)
    }
}

impl Linear {
    fn lines<T: Storage + Send + Sync>(&self, call: &mut CpuCall<'_>) -> Result<()>
    where
        T::Wide: Number,
    {
        let (_, length, inner) = around(call.meta(0).shape(), self.axis);
        let slab = length * inner;
        if slab == 0 {
            return Ok(());
        }
        let p = call.input::<T>(0)?;
        let q = call.input::<T>(1)?;
        let v = if self.kind.inputs().len() > 2 { call.input::<T>(2)? } else { q };
        threads::chunks_mut(call.output::<T>(0)?, slab, |index, out| {
            let slab = index * slab..(index + 1) * slab;
            let (p, q, v) = (&p[slab.clone()], &q[slab.clone()], &v[slab]);
            let mut running = vec![T::Wide::ZERO; inner];
            for k in 0..length {
                let row = |k: usize| if self.reverse { length - 1 - k } else { k } * inner;
                let (begins, ends) = (k == 0, k + 1 == length);
                for (j, running) in running.iter_mut().enumerate() {
                    let t = row(k) + j;
                    let wins = |previous: Option<usize>| {
                        let here = p[t].widen();
                        let fresh = || previous.is_none_or(|u| !q[u].widen().is_nan());
                        if here.is_nan() { fresh() } else { here == q[t].widen() }
                    };
                    let carried = |factor: T| {
                        if begins { T::Wide::ZERO } else { factor.widen() * *running }
                    };
                    match self.kind {
                        Kind::Plain => *running = q[t].widen() + carried(p[t]),
                        Kind::Lagged => {
                            let u = if begins { t } else { row(k - 1) + j };
                            *running = q[t].widen() + carried(p[u]);
                        }
                        Kind::Gather => {
                            *running = *running + v[t].widen();
                            let won = wins((!ends).then(|| row(k + 1) + j));
                            out[t] = T::narrow(if won { *running } else { T::Wide::ZERO });
                            if won {
                                *running = T::Wide::ZERO;
                            }
                            continue;
                        }
                        Kind::Spread => {
                            if wins((!begins).then(|| row(k - 1) + j)) {
                                *running = v[t].widen();
                            }
                        }
                    }
                    out[t] = T::narrow(*running);
                }
            }
        });
        Ok(())
    }
}

/// What is needed of numbers.
trait Number: Copy + PartialEq + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    const ZERO: Self;
    fn is_nan(self) -> bool;
}

impl Number for f32 {
    const ZERO: f32 = 0.0;
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

impl Number for Complex32 {
    const ZERO: Complex32 = Complex32::new(0.0, 0.0);
    fn is_nan(self) -> bool {
        Complex32::is_nan(self)
    }
}

impl Number for f64 {
    const ZERO: f64 = 0.0;
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}
