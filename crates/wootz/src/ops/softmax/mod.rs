//! `softmax` over an axis, and its backward as an operation of its own.

mod cpu;
#[cfg(test)]
mod tests;

pub(crate) use self::cpu::softmax_row;
use crate::array::{Array, Meta};
use crate::cpu::CpuCall;
use crate::error::Result;
#[cfg(feature = "gpu")]
use crate::gpu::rows::{Group, Rows};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, MATH, grid, packed};
use crate::op::{
    Batch, Case, Entry, Metas, Op, Tolerance, expect_contiguous, expect_dtype, expect_float,
    expect_inputs, expect_shape,
};
use crate::ops::*;

/// Cases of both operations.
pub(crate) fn entries() -> Vec<Entry> {
    // Where a GPU's bytes are counted.
    const MANY: &[usize] = &[16, 260];
    // The longest that are read once there, and one that is too long for its registers.
    const WIDEST: &[usize] = &[2, 32_768];
    const WIDEST_GRADIENT: &[usize] = &[2, 16_384];
    let shapes: [&[usize]; 10] = [
        &[3, 5],
        &[1],
        &[4, 1],
        &[2, 257],
        &[2, 3, 16],
        &[0, 4],
        &[3, 1025],
        &[2, 1030],
        &[2, 8204],
        &[1, 32_774],
    ];
    let forward = |shape: &&[usize]| {
        Case::new(format!("{shape:?}"), &[*shape], |x| Ok(vec![softmax(&x[0], -1)?]))
            .tolerance(Tolerance::Reduction)
    };
    let backward = |shape: &&[usize]| {
        Case::new(format!("{shape:?}"), &[*shape, *shape], |x| {
            Ok(vec![softmax_backward(&x[0], &x[1], -1)?])
        })
        .range(0.0..1.0)
        .tolerance(Tolerance::Reduction)
    };
    let first_axis = Case::new("axis 0", &[&[5, 7]], |x| Ok(vec![softmax(&x[0], 0)?]))
        .tolerance(Tolerance::Reduction);
    let all_axes = Case::new("all axes", &[&[2, 3, 4]], |x| Ok(vec![softmax(&x[0], ())?]))
        .tolerance(Tolerance::Reduction);
    let mut cases: Vec<Case> = shapes.iter().map(forward).collect();
    cases.extend([first_axis, all_axes]);
    cases.extend([MANY, WIDEST].map(|shape| forward(&shape).moves(2 * shape[0] * shape[1], 1.1)));
    let mut gradients: Vec<Case> = shapes.iter().map(backward).collect();
    let counted = [MANY, WIDEST_GRADIENT];
    gradients.extend(counted.map(|shape| backward(&shape).moves(3 * shape[0] * shape[1], 1.1)));
    vec![Entry { name: "softmax", cases }, Entry { name: "softmax_backward", cases: gradients }]
}

/// `e^x` divided by its sum over the given axes, accumulated in `float32`. A row of −∞ gives NaN.
///
/// On a GPU rows of up to 32,768 elements (16,384 in the gradient) are read once, if it has 512 threads in a workgroup, else
/// of up to 8,192 (4,096); longer ones are read again for each pass over them.
///
/// ```
/// let x = wootz::Array::new([[0.0f32, 0.0], [f32::NEG_INFINITY, 1.0]])?;
/// assert_eq!(wootz::softmax(&x, -1)?.to_vec::<f32>()?, [0.5, 0.5, 0.0, 1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn softmax(x: &Array, axes: impl Into<Axes>) -> Result<Array> {
    let x = astype(x, x.dtype().to_float())?;
    let axes = axes.into().normalize("softmax", x.rank())?;
    if x.size() == 0 {
        return Ok(x);
    }
    if x.dtype().is_complex() {
        let largest = stop_gradient(max(&x, &axes[..], true)?)?;
        let powers = exp(subtract(&x, largest)?)?;
        return divide(&powers, sum(&powers, &axes[..], true)?);
    }
    over_rows(&[&x], &axes, |rows| Array::apply(Softmax, rows))
}

/// The gradient of [`softmax`]'s input, from its output `y` and that output's gradient:
/// `y·(dy − Σ y·dy)`.
///
/// ```
/// use wootz::{Array, softmax_backward};
/// let y = Array::new([0.5f32, 0.5])?;
/// let dx = softmax_backward(&y, &Array::new([1.0f32, 3.0])?, -1)?;
/// assert_eq!(dx.to_vec::<f32>()?, [-0.5, 0.5]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn softmax_backward(y: &Array, dy: &Array, axes: impl Into<Axes>) -> Result<Array> {
    let axes = axes.into().normalize("softmax_backward", y.rank())?;
    expect_shape(&SoftmaxBackward, &[y.meta(), dy.meta()], 1, y.shape())?;
    over_rows(&[y, dy], &axes, |rows| Array::apply(SoftmaxBackward, rows))
}

impl Array {
    /// See [`softmax`].
    pub fn softmax(&self, axes: impl Into<Axes>) -> Result<Array> {
        softmax(self, axes)
    }
}

/// Moves `axes` to the end and merges them, applies `call` to row-major rows, and moves them back.
fn over_rows(
    arrays: &[&Array],
    axes: &[usize],
    call: impl FnOnce(&[&Array]) -> Result<Array>,
) -> Result<Array> {
    let rank = arrays[0].rank();
    let mut order: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    order.extend(axes);
    let signed: Vec<i64> = order.iter().map(|&axis| axis as i64).collect();
    let moved_shape: Vec<usize> = order.iter().map(|&axis| arrays[0].shape()[axis]).collect();
    let kept = rank - axes.len();
    let mut rows_shape = moved_shape[..kept].to_vec();
    rows_shape.push(moved_shape[kept..].iter().product());
    let rows = arrays
        .iter()
        .map(|array| reshape(&transpose_axes(array, &signed)?, &rows_shape)?.contiguous())
        .collect::<Result<Vec<_>>>()?;
    let result = call(&rows.iter().collect::<Vec<_>>())?;
    let mut inverse = vec![0; rank];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to as i64;
    }
    transpose_axes(&reshape(&result, &moved_shape)?, &inverse)
}

/// Softmax over the last axis of a row-major array.
#[derive(Clone, Copy, Debug)]
pub struct Softmax;

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "y"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::softmax(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        row_kernel(call, &["x"], include_str!("row.wgsl"))
    }

    fn vjp(
        &self,
        _: &[Array],
        outputs: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let gradient = cotangents[0].as_ref().map(|dy| softmax_backward(&outputs[0], dy, -1));
        Ok(vec![gradient.transpose()?])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// The gradient of [`Softmax`].
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxBackward;

impl Op for SoftmaxBackward {
    fn name(&self) -> &'static str {
        "softmax_backward"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["y", "dy", "dx"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 2)?;
        expect_float(self, inputs, 0)?;
        expect_dtype(self, inputs, 1, inputs[0].dtype)?;
        expect_shape(self, inputs, 1, inputs[0].shape())?;
        expect_contiguous(self, inputs, 0)?;
        expect_contiguous(self, inputs, 1)?;
        Ok(Metas::from_elem(Meta::new(self.name(), inputs[0].shape(), inputs[0].dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::softmax_backward(call)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        row_kernel(call, &["y", "dy"], include_str!("backward.wgsl"))
    }

    fn vjp(
        &self,
        inputs: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let (y, dy) = (&inputs[0], &inputs[1]);
        let Some(g) = &cotangents[0] else { return Ok(vec![None, None]) };
        let s = sum_keepdims(&multiply(y, dy)?, &[-1])?;
        let t = sum_keepdims(&multiply(y, g)?, &[-1])?;
        let to_y = subtract(multiply(g, subtract(dy, &s)?)?, multiply(dy, &t)?)?;
        Ok(vec![Some(to_y), Some(softmax_backward(y, g, -1)?)])
    }

    fn composed(&self, inputs: &[Array]) -> Option<Result<Vec<Array>>> {
        let composed = || {
            let (y, dy) = (&inputs[0], &inputs[1]);
            let dot = sum_keepdims(&multiply(y, dy)?, &[-1])?;
            Ok(vec![multiply(y, subtract(dy, &dot)?)?])
        };
        Some(composed())
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// Elements that a thread keeps in registers.
#[cfg(feature = "gpu")]
const KEPT: usize = 64;

/// Records a kernel that takes one workgroup per row; inputs and the output have one dtype.
#[cfg(feature = "gpu")]
fn row_kernel(call: &mut GpuCall<'_>, names: &[&str], text: &str) -> Result<()> {
    let meta = call.output_meta(0);
    let dtype = meta.dtype;
    let columns = meta.shape().last().copied().unwrap_or(1);
    let rows = meta.size() / columns;
    let aliased: Vec<bool> = (0..names.len()).map(|input| call.aliased(input)).collect();
    let bound: Vec<usize> = (0..names.len()).filter(|&input| !aliased[input]).collect();
    let offsets: Vec<usize> =
        (0..names.len()).map(|input| call.meta(input).layout.offset).collect();
    let mut params = vec![rows as u32, columns as u32];
    params.extend(offsets.iter().map(|&offset| offset as u32));
    let groups = [128, 512].map(|width| Group { width, most: KEPT / names.len() });
    let kept = Rows::in_groups(dtype, columns, offsets, &groups, call.gpu().max_threads());
    let mut bindings: Vec<Bind<'_>> = bound.iter().map(|&input| Bind::Input(input)).collect();
    bindings.push(Bind::Output(0));
    let in_place: String = aliased.iter().map(|&aliased| if aliased { '=' } else { '-' }).collect();
    call.launch(&Kernel {
        variant: format!("row.{dtype}{in_place}.{}", kept.key()),
        source: &|| {
            let mut source = [packed::PACKING, MATH, &kept.types()].concat();
            source.push_str(&kept.each("span_exp", "wz_exp(value)"));
            for (binding, &input) in bound.iter().enumerate() {
                source.push_str(&kept.reader(names[input], binding));
            }
            source.push_str(&kept.writer("out", bound.len()));
            for (name, aliased) in names.iter().zip(&aliased) {
                if *aliased {
                    source.push_str(&kept.load_written(name, "out"));
                }
                source.push_str(&kept.keeper(name));
            }
            kept.typed(&(source + text))
        },
        bindings: &bindings,
        params: &params,
        groups: grid(rows),
    })
}
