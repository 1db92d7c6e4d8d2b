//! Root-mean-square normalisation over the last axis, and its backward kernels as operations of
//! their own.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{
    MANY, MANY_BLOCKS, Norm, SHAPES, WIDE, WIDE_BLOCKS, WIDE_DTYPES, WIDEST, as_column, columns_of,
    cpu, expect_eps, expect_factors, expect_like_x, expect_row, expect_rows, like, partials_bytes,
    wide, wide_gradient_moves,
};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Case, Entry, Metas, Op, Tolerance, evaluate_argument, expect_inputs};
use crate::ops::elementwise::sum_to_shape;
use crate::ops::{add, astype, divide, multiply, subtract, sum_keepdims, zeros_like};

/// Cases of all five operations.
pub(super) fn entries() -> Vec<Entry> {
    // Large enough that finite differences of short rows stay smooth.
    const EPS: f32 = 0.1;
    type Call = fn(&[Array]) -> Result<Vec<Array>>;
    let cases = |arguments: usize, (moved, arrays): (&[[usize; 2]], usize), call: Call| {
        let case = |shape: &&[usize]| {
            let last = &shape[shape.len() - 1..];
            let inputs: Vec<&[usize]> = [*shape, last, *shape][..arguments].to_vec();
            Case::new(format!("{shape:?}"), &inputs, call).tolerance(Tolerance::Reduction)
        };
        // Whatever has rows is read or written once, and little else.
        let counted =
            (moved.iter()).map(|shape| case(&&shape[..]).moves(arrays * shape[0] * shape[1], 1.1));
        SHAPES.iter().map(case).chain(counted).collect::<Vec<Case>>()
    };
    let forward = cases(2, (&[MANY, WIDE], 2), |x| Ok(vec![rms_norm(&x[0], Some(&x[1]), EPS)?]));
    let twice = "normalised values are rounded before they meet the weight, as in MLX";
    let twice = |case: Case| case.tolerance(Tolerance::Twice(twice));
    let mut forward: Vec<Case> = forward.into_iter().map(twice).collect();
    let unweighted =
        Case::new("without weight", &[&[3, 33]], |x| Ok(vec![rms_norm(&x[0], None, EPS)?]));
    forward.push(unweighted.tolerance(Tolerance::Reduction));
    let widest = Case::new(format!("{WIDEST:?} without weight"), &[&WIDEST], |x| {
        Ok(vec![rms_norm(&x[0], None, EPS)?])
    });
    forward.push(widest.tolerance(Tolerance::Reduction).moves(2 * WIDEST[0] * WIDEST[1], 1.1));
    let mut dx = cases(3, (&[], 0), |x| {
        let r = rms_inv(&x[0], EPS)?;
        evaluate_argument(&r)?;
        Ok(vec![rms_norm_backward_dx(&x[0], Some(&x[1]), &x[2], &r)?])
    });
    let unweighted = Case::new("without weight", &[&[3, 33], &[3, 33]], |x| {
        let r = rms_inv(&x[0], EPS)?;
        evaluate_argument(&r)?;
        Ok(vec![rms_norm_backward_dx(&x[0], None, &x[1], &r)?])
    });
    dx.push(unweighted.tolerance(Tolerance::Reduction));
    let dw = cases(3, (&[], 0), |x| {
        let r = rms_inv(&x[0], EPS)?;
        evaluate_argument(&r)?;
        Ok(vec![rms_norm_backward_dw(&x[0], &x[2], &r)?])
    });
    let call: Call = |x| {
        let (dx, dw) = rms_norm_backward(&x[0], &x[1], &x[2], EPS)?;
        Ok(vec![dx, dw])
    };
    let mut both = cases(3, (&MANY_BLOCKS, 3), call);
    both.extend(WIDE_DTYPES.map(|dtypes| {
        let inputs: [&[usize]; 3] = [&WIDE_BLOCKS, &WIDE_BLOCKS[1..], &WIDE_BLOCKS];
        let case = Case::new(format!("{WIDE_BLOCKS:?}"), &inputs, call).dtypes(dtypes);
        let case = case.tolerance(Tolerance::Reduction);
        case.moves(wide_gradient_moves(3, 1, dtypes[0]), 1.1)
    }));
    for shape in [&[3, 33][..], &[2, 8204], &[0, 4], &MANY] {
        let case = Case::new(format!("{shape:?} without weight"), &[shape, shape], |x| {
            let (x, dy) = (x[0].contiguous()?, x[1].contiguous()?);
            Ok(vec![Array::apply(RmsNormBackward::unweighted(EPS), &[&x, &dy])?])
        });
        let case = case.tolerance(Tolerance::Reduction);
        both.push(if shape == MANY { case.moves(3 * MANY[0] * MANY[1], 1.1) } else { case });
    }
    let direct = |shape: &[usize]| {
        let inputs = [shape, &shape[shape.len() - 1..], shape, shape];
        let call = |x: &[Array]| RmsNormBackward::new(EPS).apply(&[&x[0], &x[1], &x[2], &x[3]]);
        Case::new(format!("{shape:?} of a sum"), &inputs, call).tolerance(Tolerance::Reduction)
    };
    both.extend(SHAPES.map(direct));
    both.extend(MANY_BLOCKS.map(|shape| direct(&shape).moves(4 * shape[0] * shape[1], 1.1)));
    both.push(
        Case::new("of a sum without weight", &[&[3, 33], &[3, 33], &[3, 33]], |x| {
            RmsNormBackward::unweighted(EPS).apply(&[&x[0], &x[1], &x[2]])
        })
        .tolerance(Tolerance::Reduction),
    );
    vec![
        Entry { name: "rms_norm", cases: forward },
        Entry { name: "rms_inv", cases: cases(1, (&[], 0), |x| Ok(vec![rms_inv(&x[0], EPS)?])) },
        Entry { name: "rms_norm_backward_dx", cases: dx },
        Entry { name: "rms_norm_backward_dw", cases: dw },
        Entry { name: "rms_norm_backward", cases: both },
    ]
}

/// `x` divided by the root of the mean of its squares along the last axis, times `weight` if there
/// is one. The normalised values are rounded to the output's dtype before they meet the weight.
///
/// On a GPU rows of up to 32,768 elements, and in the gradient of up to 8,192, are read once (of 8,192 and 4,096 where a
/// workgroup has fewer than 512 threads); longer ones are read again for each sum over them.
///
/// ```
/// use wootz::{Array, rms_norm};
/// let x = Array::new([[1.0f32, 7.0], [0.0, 0.0]])?;
/// let weight = Array::new([5.0f32, 10.0])?;
/// assert_eq!(rms_norm(&x, Some(&weight), 0.0)?.to_vec::<f32>()?[..2], [1.0, 14.0]);
/// assert_eq!(rms_norm(&x, None, 1e-5)?.to_vec::<f32>()?[2..], [0.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f32) -> Result<Array> {
    let dtype = weight.map_or(x.dtype(), |weight| DType::promote(x.dtype(), weight.dtype()));
    if !dtype.is_float() {
        return Err(Error::dtype("rms_norm", "x", "a floating-point type", dtype));
    }
    let Some(weight) = weight else {
        return Array::apply(RmsNorm::unweighted(eps), &[&x.contiguous()?]);
    };
    let (x, weight) = (astype(x, dtype)?, astype(weight, dtype)?);
    Array::apply(RmsNorm::new(eps), &[&x.contiguous()?, &weight.contiguous()?])
}

/// The factor that [`rms_norm`] multiplies each row with: `1 / √(mean x² + eps)`, one for each row,
/// as `float32` (or `float64` for `float64`).
///
/// ```
/// use wootz::{Array, rms_inv};
/// let x = Array::new([[1.0f32, 7.0], [3.0, 4.0]])?;
/// assert_eq!(rms_inv(&x, 0.0)?.to_vec::<f32>()?[0], 0.2);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_inv(x: &Array, eps: f32) -> Result<Array> {
    Array::apply(RmsInv::new(eps), &[&x.contiguous()?])
}

/// The gradient of [`rms_norm`]'s `x`, given [`rms_inv`]'s `r`: `r·(dy·w − x·s·r²/D)`, where `s` is
/// the sum of `dy·x·w` over the row and `D` its length.
///
/// ```
/// use wootz::{Array, rms_inv, rms_norm_backward_dx};
/// let (x, dy) = (Array::new([[1.0f32, 7.0]])?, Array::new([[1.0f32, 7.0]])?);
/// let dx = rms_norm_backward_dx(&x, None, &dy, &rms_inv(&x, 0.0)?)?;
/// assert!(dx.to_vec::<f32>()?.iter().all(|d| d.abs() < 1e-6));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_norm_backward_dx(
    x: &Array,
    weight: Option<&Array>,
    dy: &Array,
    r: &Array,
) -> Result<Array> {
    let (x, dy, r) = (x.contiguous()?, dy.contiguous()?, r.contiguous()?);
    match weight {
        Some(weight) => {
            Array::apply(RmsNormBackwardDx::new(), &[&x, &weight.contiguous()?, &dy, &r])
        }
        None => Array::apply(RmsNormBackwardDx::unweighted(), &[&x, &dy, &r]),
    }
}

/// The gradient of [`rms_norm`]'s weight, given [`rms_inv`]'s `r`: the sum over the rows of
/// `dy·x·r`.
///
/// ```
/// use wootz::{Array, rms_inv, rms_norm_backward_dw};
/// let (x, dy) = (Array::new([[1.0f32, 7.0]])?, Array::new([[5.0f32, 10.0]])?);
/// let dw = rms_norm_backward_dw(&x, &dy, &rms_inv(&x, 0.0)?)?;
/// assert_eq!(dw.to_vec::<f32>()?, [1.0, 14.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_norm_backward_dw(x: &Array, dy: &Array, r: &Array) -> Result<Array> {
    Array::apply(RmsNormBackwardDw, &[&x.contiguous()?, &dy.contiguous()?, &r.contiguous()?])
}

/// The gradients of [`rms_norm`]'s `x` and weight in one pass over memory.
///
/// ```
/// use wootz::{Array, rms_norm_backward};
/// let (x, dy) = (Array::new([[1.0f32, 7.0]])?, Array::new([[5.0f32, 10.0]])?);
/// let (dx, dw) = rms_norm_backward(&x, &Array::new([1.0f32, 1.0])?, &dy, 0.0)?;
/// assert_eq!((dx.shape(), dw.to_vec::<f32>()?), (&[1, 2][..], vec![1.0, 14.0]));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rms_norm_backward(
    x: &Array,
    weight: &Array,
    dy: &Array,
    eps: f32,
) -> Result<(Array, Array)> {
    let mut outputs = RmsNormBackward::new(eps).apply(&[x, weight, dy])?.into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(dx), Some(dw)) => Ok((dx, dw)),
        _ => Err(Error::argument("rms_norm_backward", "outputs", "two arrays", "fewer")),
    }
}

impl Array {
    /// See [`rms_norm`].
    pub fn rms_norm(&self, weight: Option<&Array>, eps: f32) -> Result<Array> {
        rms_norm(self, weight, eps)
    }
}

/// [`rms_norm`] as an operation: `x` and, unless it is [unweighted](RmsNorm::unweighted), a weight,
/// row-major and of one dtype.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm {
    eps: f32,
    weighted: bool,
}

impl RmsNorm {
    /// With inputs `x` and `weight`.
    pub fn new(eps: f32) -> RmsNorm {
        RmsNorm { eps, weighted: true }
    }

    /// With input `x` alone.
    pub fn unweighted(eps: f32) -> RmsNorm {
        RmsNorm { eps, weighted: false }
    }
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        if self.weighted { &["x", "weight", "y"] } else { &["x", "y"] }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1 + self.weighted as usize)?;
        let columns = expect_rows(self, inputs)?;
        expect_eps(self, self.eps)?;
        if self.weighted {
            expect_row(self, inputs, 1, columns)?;
        }
        like(self, inputs[0])
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, norm(self.eps, self.weighted))
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, norm(self.eps, self.weighted))
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dy) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        let x = &inputs[0];
        match inputs.get(1) {
            Some(weight) => {
                let (dx, dw) = rms_norm_backward(x, weight, dy, self.eps)?;
                Ok(vec![Some(dx), Some(dw)])
            }
            // Without columns there is no mean, and nothing to compute either.
            None if x.size() == 0 => Ok(vec![Some(zeros_like(x)?)]),
            None => {
                let op = RmsNormBackward::unweighted(self.eps);
                Ok(vec![Some(Array::apply(op, &[x, &dy.contiguous()?])?)])
            }
        }
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let x = &inputs[0];
            let r = as_column(&rms_inv(x, self.eps)?)?;
            let normal = astype(&multiply(&astype(x, r.dtype())?, &r)?, x.dtype())?;
            Ok(vec![match inputs.get(1) {
                Some(weight) => multiply(&normal, weight)?,
                None => normal,
            }])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        if batch.batched[0] && !batch.batched[1..].contains(&true) {
            return Ok(vec![rms_norm(&batch.inputs[0], batch.inputs.get(1), self.eps)?]);
        }
        let inputs = batch.aligned()?;
        Ok(vec![multiply(rms_norm(&inputs[0], None, self.eps)?, &inputs[1])?])
    }
}

/// [`rms_inv`] as an operation on a row-major array.
#[derive(Clone, Copy, Debug)]
pub struct RmsInv {
    eps: f32,
}

impl RmsInv {
    /// With input `x`.
    pub fn new(eps: f32) -> RmsInv {
        RmsInv { eps }
    }
}

impl Op for RmsInv {
    fn name(&self) -> &'static str {
        "rms_inv"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "r"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        let columns = expect_rows(self, inputs)?;
        expect_eps(self, self.eps)?;
        let shape = inputs[0].shape();
        if columns == 0 {
            let expected = "one with columns to take the mean of";
            return Err(Error::shape(self.name(), "x", expected, shape));
        }
        let rows = &shape[..shape.len() - 1];
        Ok(Metas::from_elem(Meta::new(self.name(), rows, wide(inputs[0].dtype))?, 1))
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::inverse(call, self.eps)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::inverse(call, self.eps)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dr) = &cotangents[0] else { return Ok(vec![None]) };
        let (x, r) = (&inputs[0], &outputs[0]);
        // dr/dx = −r³·x / D
        let cube = multiply(multiply(r, r)?, r)?;
        let factor = divide(multiply(dr, cube)?, -(columns_of(x) as f64))?;
        let dx = multiply(&astype(x, r.dtype())?, &as_column(&factor)?)?;
        Ok(vec![Some(astype(&dx, x.dtype())?)])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// [`rms_norm_backward_dx`] as an operation on row-major arrays.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackwardDx {
    weighted: bool,
}

impl RmsNormBackwardDx {
    /// With inputs `x`, `weight`, `dy` and `r`.
    #[expect(clippy::new_without_default, reason = "neither way is the default")]
    pub fn new() -> RmsNormBackwardDx {
        RmsNormBackwardDx { weighted: true }
    }

    /// With inputs `x`, `dy` and `r`.
    pub fn unweighted() -> RmsNormBackwardDx {
        RmsNormBackwardDx { weighted: false }
    }
}

impl Op for RmsNormBackwardDx {
    fn name(&self) -> &'static str {
        "rms_norm_backward_dx"
    }

    fn arguments(&self) -> &'static [&'static str] {
        if self.weighted { &["x", "weight", "dy", "r", "dx"] } else { &["x", "dy", "r", "dx"] }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let dy = 1 + self.weighted as usize;
        expect_inputs(self, inputs, dy + 2)?;
        let columns = expect_rows(self, inputs)?;
        if self.weighted {
            expect_row(self, inputs, 1, columns)?;
        }
        expect_like_x(self, inputs, dy)?;
        expect_factors(self, inputs, dy + 1)?;
        like(self, inputs[0])
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        if self.weighted { &[(0, 0), (2, 0)] } else { &[(0, 0), (1, 0)] }
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward_dx(call, self.weighted)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward_dx(call, self.weighted)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let (weight, rest) = if self.weighted { (inputs.get(1), 2) } else { (None, 1) };
        let composed =
            || Ok(vec![plain_dx(&inputs[0], weight, &inputs[rest], &inputs[rest + 1], None)?]);
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        if self.weighted && batch.batched[1] {
            return batch.composed(self.name(), |inputs| self.composed(inputs));
        }
        let mut inputs = batch.dense()?;
        if self.weighted {
            inputs[1] = batch.inputs[1].clone();
        }
        batch.again(&inputs)
    }
}

/// [`rms_norm_backward_dw`] as an operation on row-major arrays `x`, `dy` and `r`.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackwardDw;

impl Op for RmsNormBackwardDw {
    fn name(&self) -> &'static str {
        "rms_norm_backward_dw"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "dy", "r", "dw"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 3)?;
        let columns = expect_rows(self, inputs)?;
        expect_like_x(self, inputs, 1)?;
        expect_factors(self, inputs, 2)?;
        Ok(Metas::from_elem(Meta::new(self.name(), &[columns], inputs[0].dtype)?, 1))
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        partials_bytes(inputs[0], 1, gpu)
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward_dw(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward_dw(call)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || Ok(vec![plain_dw(&inputs[0], &inputs[1], &inputs[2])?]);
        Some(composed())
    }
}

/// [`rms_norm_backward`] as an operation on row-major arrays `x`, the weight unless it is
/// [unweighted](RmsNormBackward::unweighted), `dy`, and what is added to `dx` if it is [direct](RmsNormBackward::direct).
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackward {
    eps: f32,
    weighted: bool,
    direct: bool,
}

impl RmsNormBackward {
    /// With inputs `x`, `weight` and `dy`; outputs `dx` and `dw`.
    pub fn new(eps: f32) -> RmsNormBackward {
        RmsNormBackward { eps, weighted: true, direct: false }
    }

    /// With inputs `x` and `dy`; output `dx`.
    pub fn unweighted(eps: f32) -> RmsNormBackward {
        RmsNormBackward { eps, weighted: false, direct: false }
    }

    /// The same with one input more, behind the others, that is added to `dx` before it is rounded: the gradient of what
    /// else `x` is used for.
    pub fn direct(self) -> RmsNormBackward {
        RmsNormBackward { direct: true, ..self }
    }

    fn norm(self) -> Norm {
        Norm { direct: self.direct, ..norm(self.eps, self.weighted) }
    }

    /// With a weight: `x`, that, `dy`, and what is added, if there is such.
    pub(super) fn apply(self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let op = RmsNormBackward { direct: inputs.len() > self.norm().cotangent() + 1, ..self };
        let inputs = inputs.iter().map(|x| x.contiguous()).collect::<Result<Vec<_>>>()?;
        Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
    }
}

impl Op for RmsNormBackward {
    fn name(&self) -> &'static str {
        "rms_norm_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.weighted, self.direct) {
            (true, true) => &["x", "weight", "dy", "direct", "dx", "dw"],
            (true, false) => &["x", "weight", "dy", "dx", "dw"],
            (false, true) => &["x", "dy", "direct", "dx"],
            (false, false) => &["x", "dy", "dx"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        let norm = self.norm();
        expect_inputs(self, inputs, norm.backward_inputs())?;
        let columns = expect_rows(self, inputs)?;
        expect_eps(self, self.eps)?;
        let mut outputs = like(self, inputs[0])?;
        if self.weighted {
            expect_row(self, inputs, 1, columns)?;
            outputs.push(Meta::new(self.name(), &[columns], inputs[0].dtype)?);
        }
        for input in norm.cotangent()..inputs.len() {
            expect_like_x(self, inputs, input)?;
        }
        Ok(outputs)
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        match self.weighted {
            true => partials_bytes(inputs[0], 1, gpu),
            // A GPU's kernel binds memory for sums over rows also where there are none.
            false if gpu => wide(inputs[0].dtype).size(),
            false => 0,
        }
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        self.norm().backward_aliases()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self.norm())
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, self.norm())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (norm, x) = (self.norm(), &inputs[0]);
            let weight = norm.weight().map(|input| &inputs[input]);
            let dy = &inputs[norm.cotangent()];
            let direct = norm.direct().map(|input| &inputs[input]);
            if x.size() == 0 {
                let weight = weight.map(zeros_like).transpose()?;
                return Ok([zeros_like(x)?].into_iter().chain(weight).collect());
            }
            let r = rms_inv(x, self.eps)?;
            let mut gradients = vec![plain_dx(x, weight, dy, &r, direct)?];
            if weight.is_some() {
                gradients.push(plain_dw(x, dy, &r)?);
            }
            Ok(gradients)
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        match self.weighted {
            // The weight's gradient is a sum for each element of the batch.
            true => batch.composed(self.name(), |inputs| self.composed(inputs)),
            false => batch.again(&batch.dense()?),
        }
    }
}

fn norm(eps: f32, weighted: bool) -> Norm {
    Norm { weighted, eps, ..Norm::default() }
}

/// `r·(dy·w − x·s·r²/D)`, and what is added to it, of plain operations.
fn plain_dx(
    x: &Array,
    weight: Option<&Array>,
    dy: &Array,
    r: &Array,
    direct: Option<&Array>,
) -> Result<Array> {
    let (dtype, r) = (x.dtype(), as_column(r)?);
    let (x, dy) = (astype(x, r.dtype())?, astype(dy, r.dtype())?);
    let dy = match weight {
        Some(weight) => multiply(&dy, &astype(weight, r.dtype())?)?,
        None => dy,
    };
    let sum = sum_keepdims(&multiply(&dy, &x)?, &[-1])?;
    let slope = divide(multiply(sum, multiply(&r, &r)?)?, columns_of(&x).max(1) as f64)?;
    let mut dx = multiply(&r, &subtract(&dy, multiply(&x, &slope)?)?)?;
    if let Some(direct) = direct {
        dx = add(dx, astype(direct, r.dtype())?)?;
    }
    astype(&dx, dtype)
}

/// The sum of `dy·x·r` over the rows, of plain operations.
fn plain_dw(x: &Array, dy: &Array, r: &Array) -> Result<Array> {
    let (dtype, r) = (x.dtype(), as_column(r)?);
    let (x, dy) = (astype(x, r.dtype())?, astype(dy, r.dtype())?);
    let terms = multiply(multiply(&dy, &x)?, &r)?;
    astype(&sum_to_shape(&terms, &[columns_of(&x)])?, dtype)
}
