//! Mamba's selective scan and its gradient as operations on row-major arrays.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{composed, cpu};
use crate::array::{Array, DType, Meta};
use crate::autograd::composed_vjp;
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{
    Metas, Op, argument_name, expect_contiguous, expect_float, expect_inputs, expect_shape,
};
use crate::ops::state_space::{expect, wide};
use crate::ops::{add, astype, multiply, sum, zeros_like};

/// [`selective_scan`](crate::selective_scan) as an operation: `x`, `dt`, `a`, `b`, `c`, then maybe `d`, then maybe the
/// state. `x`, `dt`, `b` and `c` have one dtype, the others that or the dtype of sums. Nothing is empty.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveScan {
    /// Whether `d` is given.
    pub skips: bool,
    /// Whether a state is given.
    pub stated: bool,
}

/// The gradients of `x`, `dt`, `a`, `b`, `c` and, if there is one, the state of a scan that skips nothing, given these and
/// the gradients of the results and of the last state.
#[derive(Clone, Copy, Debug)]
pub struct SelectiveScanBackward {
    /// Whether a state is given.
    pub stated: bool,
}

/// Steps of a chunk: states are kept at their starts.
pub(super) const CHUNK: usize = 32;

/// The largest state of a channel that threads of a GPU have room for.
pub(super) const MOST: usize = 256;

/// Sizes of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) steps: usize,
    pub(super) channels: usize,
    pub(super) size: usize,
}

impl Sizes {
    pub(super) fn new(x: &Meta, a: &Meta) -> Sizes {
        let (x, a) = (x.shape(), a.shape());
        Sizes { batch: x[0], steps: x[1], channels: x[2], size: a[1] }
    }
}

impl SelectiveScan {
    pub(super) fn d(self) -> Option<usize> {
        self.skips.then_some(5)
    }

    pub(super) fn state(self) -> Option<usize> {
        self.stated.then_some(5 + self.skips as usize)
    }
}

/// Checks the first five inputs.
fn expect_scan(op: &dyn Op, inputs: &[&Meta]) -> Result<Sizes> {
    expect_float(op, inputs, 0)?;
    expect_contiguous(op, inputs, 0)?;
    let (&[batch, steps, channels], &[_, size]) = (inputs[0].shape(), inputs[2].shape()) else {
        let expected = "[batch, steps, channels], and a of [channels, size]";
        return Err(Error::shape(op.name(), "x", expected, inputs[0].shape()));
    };
    if batch * steps * channels * size == 0 {
        return Err(Error::shape(op.name(), "x", "one that is not empty", inputs[0].shape()));
    }
    let dtype = inputs[0].dtype;
    expect(op, inputs, 1, dtype, &[batch, steps, channels])?;
    expect_near(op, inputs, 2, &[channels, size])?;
    expect(op, inputs, 3, dtype, &[batch, steps, size])?;
    expect(op, inputs, 4, dtype, &[batch, steps, size])?;
    Ok(Sizes { batch, steps, channels, size })
}

/// Checks an input of the dtype of `x` or of sums.
fn expect_near(op: &dyn Op, inputs: &[&Meta], input: usize, shape: &[usize]) -> Result<()> {
    let (dtype, sums) = (inputs[0].dtype, wide(inputs[0].dtype));
    let own = inputs[input].dtype;
    if own != dtype && own != sums {
        let expected = format!("{dtype} or {sums}");
        return Err(Error::dtype(op.name(), argument_name(op, input), expected, own));
    }
    expect_shape(op, inputs, input, shape)?;
    expect_contiguous(op, inputs, input)
}

impl Op for SelectiveScan {
    fn name(&self) -> &'static str {
        "selective_scan"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.skips, self.stated) {
            (true, true) => &["x", "dt", "a", "b", "c", "d", "state", "y", "next_state"],
            (true, false) => &["x", "dt", "a", "b", "c", "d", "y", "next_state"],
            (false, true) => &["x", "dt", "a", "b", "c", "state", "y", "next_state"],
            (false, false) => &["x", "dt", "a", "b", "c", "y", "next_state"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 5 + self.skips as usize + self.stated as usize)?;
        let Sizes { batch, channels, size, .. } = expect_scan(self, inputs)?;
        let state = [batch, channels, size];
        if let Some(d) = self.d() {
            expect_near(self, inputs, d, &[channels])?;
        }
        if let Some(input) = self.state() {
            expect_near(self, inputs, input, &state)?;
        }
        let y = Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?;
        Ok(Metas::from_iter([y, Meta::new(self.name(), &state, wide(inputs[0].dtype))?]))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, *self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, *self)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let mut given: Vec<Array> = inputs[..5].to_vec();
        given.extend(self.state().map(|input| inputs[input].clone()));
        for (output, cotangent) in outputs.iter().zip(cotangents) {
            given.push(match cotangent {
                Some(cotangent) => cotangent.contiguous()?,
                None => zeros_like(output)?.contiguous()?,
            });
        }
        let op = SelectiveScanBackward { stated: self.stated };
        let gradients = Array::apply_all(op, &given.iter().collect::<Vec<_>>())?;
        let mut gradients: Vec<Option<Array>> = gradients.into_iter().map(Some).collect();
        if let Some(input) = self.d() {
            let (x, d) = (&inputs[0], &inputs[input]);
            let mut of_d = None;
            if let Some(dy) = &cotangents[0] {
                let sums = wide(x.dtype());
                let dy = astype(dy, sums)?;
                let skip = multiply(&dy, astype(d, sums)?)?;
                let dx = gradients[0].take();
                let dx = dx.map(|dx| astype(&add(astype(&dx, sums)?, skip)?, x.dtype()));
                gradients[0] = dx.transpose()?;
                let terms = multiply(dy, astype(x, sums)?)?;
                of_d = Some(astype(&sum(&terms, &[0i64, 1][..], false)?, d.dtype())?);
            }
            gradients.insert(input, of_d);
        }
        Ok(gradients)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        Some(composed(inputs, *self))
    }
}

impl Op for SelectiveScanBackward {
    fn name(&self) -> &'static str {
        "selective_scan_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match self.stated {
            true => &[
                "x",
                "dt",
                "a",
                "b",
                "c",
                "state",
                "dy",
                "dnext_state",
                "dx",
                "ddt",
                "da",
                "db",
                "dc",
                "dstate",
            ],
            false => {
                &["x", "dt", "a", "b", "c", "dy", "dnext_state", "dx", "ddt", "da", "db", "dc"]
            }
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let given = 5 + self.stated as usize;
        expect_inputs(self, inputs, given + 2)?;
        let Sizes { batch, channels, size, .. } = expect_scan(self, inputs)?;
        let (dtype, state) = (inputs[0].dtype, [batch, channels, size]);
        if self.stated {
            expect_near(self, inputs, 5, &state)?;
        }
        expect(self, inputs, given, dtype, inputs[0].shape())?;
        expect(self, inputs, given + 1, wide(dtype), &state)?;
        inputs[..given].iter().map(|x| Meta::new(self.name(), x.shape(), x.dtype)).collect()
    }

    #[cfg(feature = "gpu")]
    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        if gpu { gpu::scratch(inputs) } else { 0 }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self.stated)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, self.stated)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let [inputs @ .., dy, dstate] = inputs else { return None };
        let outputs = [dy.clone(), dstate.clone()];
        let cotangents = outputs.clone().map(Some);
        let op = SelectiveScan { skips: false, stated: self.stated };
        let forward = |x: &[Array]| Some(composed(x, op));
        let gradients = composed_vjp(self.name(), forward, inputs, &outputs, &cotangents);
        Some(gradients.map(|gradients| gradients.into_iter().flatten().collect()))
    }
}

/// The dtype that a scan of these is computed from: that of `x`, `dt`, `b` and `c` together.
pub(super) fn common(arrays: [&Array; 4]) -> DType {
    let [x, others @ ..] = arrays;
    others.iter().fold(x.dtype(), |dtype, x| DType::promote(dtype, x.dtype()))
}
