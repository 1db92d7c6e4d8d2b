//! Layer normalisation over the last axis, and its gradients in one pass as an operation of its own.

#[cfg(feature = "gpu")]
use super::gpu;
use super::{
    MANY, MANY_BLOCKS, Norm, SHAPES, WIDE, WIDE_BLOCKS, WIDE_DTYPES, WIDEST, columns_of, cpu,
    expect_eps, expect_like_x, expect_row, expect_rows, like, partials_bytes, wide,
    wide_gradient_moves,
};
use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::GpuCall;
use crate::op::{Batch, Case, Entry, Metas, Op, Tolerance, expect_inputs};
use crate::ops::elementwise::sum_to_shape;
use crate::ops::{
    add, astype, divide, mean, multiply, rsqrt, square, subtract, sum_keepdims, zeros_like,
};

/// Cases of both operations.
pub(super) fn entries() -> Vec<Entry> {
    // Large enough that finite differences of short rows stay smooth.
    const EPS: f32 = 0.1;
    let case = |name: String, inputs: &[&[usize]], call: fn(&[Array]) -> Result<Vec<Array>>| {
        Case::new(name, inputs, call).tolerance(Tolerance::Reduction)
    };
    let mut forward = vec![
        case("without weight and bias".into(), &[&[3, 33]], |x| {
            Ok(vec![layer_norm(&x[0], None, None, EPS)?])
        }),
        case("without bias".into(), &[&[3, 33], &[33]], |x| {
            Ok(vec![layer_norm(&x[0], Some(&x[1]), None, EPS)?])
        }),
        case("without weight".into(), &[&[3, 33], &[33]], |x| {
            Ok(vec![layer_norm(&x[0], None, Some(&x[1]), EPS)?])
        }),
    ];
    let mut backward = vec![
        case("without weight and bias".into(), &[&[3, 33], &[3, 33]], |x| {
            LayerNormBackward::new(EPS, false, false).apply(&[&x[0], &x[1]])
        }),
        case("without bias".into(), &[&[3, 33], &[33], &[3, 33]], |x| {
            LayerNormBackward::new(EPS, true, false).apply(&[&x[0], &x[1], &x[2]])
        }),
    ];
    let of = |shape: &[usize]| {
        let last = &shape[shape.len() - 1..];
        let call = |x: &[Array]| Ok(vec![layer_norm(&x[0], Some(&x[1]), Some(&x[2]), EPS)?]);
        Case::new(format!("{shape:?}"), &[shape, last, last], call).tolerance(Tolerance::Reduction)
    };
    let back = |shape: &[usize]| {
        let last = &shape[shape.len() - 1..];
        case(format!("{shape:?}"), &[shape, last, shape], |x| {
            let (dx, dw, db) = layer_norm_backward(&x[0], &x[1], &x[2], EPS)?;
            Ok(vec![dx, dw, db])
        })
    };
    forward.extend(SHAPES.map(of));
    forward.extend([MANY, WIDE].map(|shape| of(&shape).moves(2 * shape[0] * shape[1], 1.1)));
    let widest = Case::new(format!("{WIDEST:?} without weight and bias"), &[&WIDEST], |x| {
        Ok(vec![layer_norm(&x[0], None, None, EPS)?])
    });
    forward.push(widest.tolerance(Tolerance::Reduction).moves(2 * WIDEST[0] * WIDEST[1], 1.1));
    let direct = |shape: &[usize]| {
        let inputs = [shape, &shape[shape.len() - 1..], shape, shape];
        case(format!("{shape:?} of a sum"), &inputs, |x| {
            LayerNormBackward::new(EPS, true, true).apply(&[&x[0], &x[1], &x[2], &x[3]])
        })
    };
    backward.extend(SHAPES.map(back));
    backward.extend(SHAPES.map(direct));
    backward.extend(MANY_BLOCKS.map(|shape| direct(&shape).moves(4 * shape[0] * shape[1], 1.1)));
    backward.push(case("of a sum without weight".into(), &[&[3, 33], &[3, 33], &[3, 33]], |x| {
        LayerNormBackward::new(EPS, false, false).apply(&[&x[0], &x[1], &x[2]])
    }));
    backward.extend(MANY_BLOCKS.map(|shape| back(&shape).moves(3 * shape[0] * shape[1], 1.1)));
    backward.extend(WIDE_DTYPES.map(|dtypes| {
        back(&WIDE_BLOCKS).dtypes(dtypes).moves(wide_gradient_moves(3, 2, dtypes[0]), 1.1)
    }));
    vec![
        Entry { name: "layer_norm", cases: forward },
        Entry { name: "layer_norm_backward", cases: backward },
    ]
}

/// Normalisation over the last axis to mean 0 and variance 1, then scale and shift. Computed in
/// single precision at least, and rounded once.
///
/// On a GPU rows of up to 32,768 elements, and in the gradient of up to 8,192, are read once (of 8,192 and 4,096 where a
/// workgroup has fewer than 512 threads); longer ones are read again for each sum over them.
///
/// ```
/// use wootz::{Array, layer_norm};
/// let y = layer_norm(&Array::new([[1.0f32, 3.0]])?, None, None, 1e-5)?;
/// assert!((y.to_vec::<f32>()?[0] + 1.0).abs() < 1e-4);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn layer_norm(
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    eps: f32,
) -> Result<Array> {
    // As in MLX, a bias without a weight has no say.
    let rows = weight.into_iter().flat_map(|weight| [Some(weight), bias]).flatten();
    let dtype = rows.fold(x.dtype(), |dtype, row| DType::promote(dtype, row.dtype()));
    if !dtype.is_float() {
        return Err(Error::dtype("layer_norm", "x", "a floating-point type", dtype));
    }
    let inputs = [Some(x), weight, bias]
        .into_iter()
        .flatten()
        .map(|input| astype(input, dtype)?.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let op = LayerNorm::new(eps, weight.is_some(), bias.is_some());
    Array::apply(op, &inputs.iter().collect::<Vec<_>>())
}

/// The gradients of [`layer_norm`]'s `x`, weight and bias in one pass over memory.
///
/// ```
/// use wootz::{Array, layer_norm_backward};
/// let (x, dy) = (Array::new([[1.0f32, 3.0]])?, Array::new([[5.0f32, 10.0]])?);
/// let (dx, dw, db) = layer_norm_backward(&x, &Array::new([1.0f32, 1.0])?, &dy, 0.0)?;
/// assert_eq!((dw.to_vec::<f32>()?, db.to_vec::<f32>()?), (vec![-5.0, 10.0], vec![5.0, 10.0]));
/// # assert_eq!(dx.shape(), [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn layer_norm_backward(
    x: &Array,
    weight: &Array,
    dy: &Array,
    eps: f32,
) -> Result<(Array, Array, Array)> {
    let op = LayerNormBackward::new(eps, true, true);
    let mut outputs = op.apply(&[x, weight, dy])?.into_iter();
    match (outputs.next(), outputs.next(), outputs.next()) {
        (Some(dx), Some(dw), Some(db)) => Ok((dx, dw, db)),
        _ => Err(Error::argument(op.name(), "outputs", "three arrays", "fewer")),
    }
}

impl Array {
    /// See [`layer_norm`].
    pub fn layer_norm(
        &self,
        weight: Option<&Array>,
        bias: Option<&Array>,
        eps: f32,
    ) -> Result<Array> {
        layer_norm(self, weight, bias, eps)
    }
}

/// [`layer_norm`] as an operation: `x`, then a weight and a bias if it has them, row-major and of
/// one dtype.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm(Norm);

impl LayerNorm {
    /// With inputs `x`, and the weight and the bias if there are such.
    pub fn new(eps: f32, weighted: bool, biased: bool) -> LayerNorm {
        LayerNorm(Norm { centred: true, weighted, biased, eps, ..Norm::default() })
    }
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.0.weighted, self.0.biased) {
            (true, true) => &["x", "weight", "bias", "y"],
            (true, false) => &["x", "weight", "y"],
            (false, true) => &["x", "bias", "y"],
            (false, false) => &["x", "y"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1 + self.0.sums())?;
        let columns = expect_rows(self, inputs)?;
        expect_eps(self, self.0.eps)?;
        for input in 1..inputs.len() {
            expect_row(self, inputs, input, columns)?;
        }
        like(self, inputs[0])
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::forward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::forward(call, self.0)
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let Some(dy) = &cotangents[0] else { return Ok(vec![None; inputs.len()]) };
        // Its outputs are in the order of these inputs.
        let weight = self.0.weight().and_then(|input| inputs.get(input));
        let given: Vec<&Array> =
            [Some(&inputs[0]), weight, Some(dy)].into_iter().flatten().collect();
        let gradients = LayerNormBackward(self.0).apply(&given)?;
        Ok(gradients.into_iter().map(Some).collect())
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let x = &inputs[0];
            let centred = centred(x)?;
            let mut y = multiply(&centred, scale(&centred, self.0.eps)?)?;
            if let Some(input) = self.0.weight() {
                y = multiply(y, astype(&inputs[input], centred.dtype())?)?;
            }
            if let Some(input) = self.0.bias() {
                y = add(y, astype(&inputs[input], centred.dtype())?)?;
            }
            Ok(vec![astype(&y, x.dtype())?])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        let Norm { weighted, biased, eps, .. } = self.0;
        if batch.batched[0] && !batch.batched[1..].contains(&true) {
            let [weight, bias] = [self.0.weight(), self.0.bias()]
                .map(|input| input.and_then(|input| batch.inputs.get(input)));
            return Ok(vec![layer_norm(&batch.inputs[0], weight, bias, eps)?]);
        }
        // Rounded once here, too.
        let inputs = batch.aligned()?;
        let (dtype, wide) = (inputs[0].dtype(), wide(inputs[0].dtype()));
        let mut y = layer_norm(&astype(&inputs[0], wide)?, None, None, eps)?;
        if weighted {
            y = multiply(y, astype(&inputs[1], wide)?)?;
        }
        if biased {
            y = add(y, astype(&inputs[1 + weighted as usize], wide)?)?;
        }
        Ok(vec![astype(&y, dtype)?])
    }
}

/// The gradients of [`layer_norm`] as an operation on row-major arrays: of `x`, with what is added to it if it is
/// [direct](LayerNormBackward::direct), then of the weight and of the bias if it has them.
#[derive(Clone, Copy, Debug)]
pub struct LayerNormBackward(Norm);

impl LayerNormBackward {
    /// With inputs `x`, the weight if there is one, and `dy`.
    pub fn new(eps: f32, weighted: bool, biased: bool) -> LayerNormBackward {
        LayerNormBackward(Norm { centred: true, weighted, biased, eps, ..Norm::default() })
    }

    /// The same with one input more, behind the others, that is added to the gradient of `x` before it is rounded: the
    /// gradient of what else `x` is used for.
    pub fn direct(self) -> LayerNormBackward {
        LayerNormBackward(Norm { direct: true, ..self.0 })
    }

    pub(super) fn apply(self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let direct = inputs.len() > self.0.cotangent() + 1;
        let inputs = inputs.iter().map(|x| x.contiguous()).collect::<Result<Vec<_>>>()?;
        let op = LayerNormBackward(Norm { direct, ..self.0 });
        Ok(Array::apply_all(op, &inputs.iter().collect::<Vec<_>>())?.into_vec())
    }
}

impl Op for LayerNormBackward {
    fn name(&self) -> &'static str {
        "layer_norm_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        match (self.0.weighted, self.0.direct) {
            (true, true) => &["x", "weight", "dy", "direct", "dx", "dw", "db"],
            (true, false) => &["x", "weight", "dy", "dx", "dw", "db"],
            (false, true) => &["x", "dy", "direct", "dx", "db"],
            (false, false) => &["x", "dy", "dx", "db"],
        }
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, self.0.backward_inputs())?;
        let columns = expect_rows(self, inputs)?;
        expect_eps(self, self.0.eps)?;
        if let Some(weight) = self.0.weight() {
            expect_row(self, inputs, weight, columns)?;
        }
        for input in self.0.cotangent()..inputs.len() {
            expect_like_x(self, inputs, input)?;
        }
        let mut outputs = like(self, inputs[0])?;
        for _ in 0..self.0.sums() {
            outputs.push(Meta::new(self.name(), &[columns], inputs[0].dtype)?);
        }
        Ok(outputs)
    }

    fn scratch(&self, inputs: &[&Meta], gpu: bool) -> usize {
        partials_bytes(inputs[0], self.0.sums().max(1), gpu)
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        self.0.backward_aliases()
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::backward(call, self.0)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        gpu::backward(call, self.0)
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (x, dy) = (&inputs[0], &inputs[self.0.cotangent()]);
            let weight = self.0.weight().map(|input| &inputs[input]);
            let (columns, dtype) = (columns_of(x), wide(x.dtype()));
            let centred = centred(x)?;
            let r = scale(&centred, self.0.eps)?;
            let dy = astype(dy, dtype)?;
            let term = match weight {
                Some(weight) => multiply(&dy, &astype(weight, dtype)?)?,
                None => dy.clone(),
            };
            let count = columns.max(1) as f64;
            let products = sum_keepdims(&multiply(&term, &centred)?, &[-1])?;
            let slope = divide(multiply(products, square(&r)?)?, count)?;
            let level = divide(sum_keepdims(&term, &[-1])?, count)?;
            let flat = subtract(subtract(&term, multiply(&centred, slope)?)?, level)?;
            let mut dx = multiply(&flat, &r)?;
            if let Some(input) = self.0.direct() {
                dx = add(dx, astype(&inputs[input], dtype)?)?;
            }
            let mut outputs = vec![dx];
            if self.0.weighted {
                let terms = multiply(&dy, multiply(&centred, &r)?)?;
                outputs.push(sum_to_shape(&terms, &[columns])?);
            }
            if self.0.biased {
                outputs.push(sum_to_shape(&dy, &[columns])?);
            }
            outputs.iter().map(|output| astype(output, x.dtype())).collect()
        };
        Some(composed())
    }
}

/// Rows without their means, in the dtype of sums.
fn centred(x: &Array) -> Result<Array> {
    let x = astype(x, wide(x.dtype()))?;
    if x.size() == 0 {
        return zeros_like(&x);
    }
    subtract(&x, mean(&x, -1, true)?)
}

/// `1 / √(variance + eps)` of each row without its mean.
fn scale(centred: &Array, eps: f32) -> Result<Array> {
    rsqrt(add(mean(&square(centred)?, -1, true)?, eps as f64)?)
}
