//! The Walsh–Hadamard transform of the last axis. The operation transforms an axis that fits a
//! workgroup's memory; longer ones are transformed in two passes, along and across.

mod cpu;
#[cfg(test)]
mod tests;

use crate::array::{Array, DType, Meta};
use crate::cpu::CpuCall;
use crate::error::{Error, Result};
#[cfg(feature = "gpu")]
use crate::gpu::{Bind, GpuCall, Kernel, grid, packed};
use crate::op::{
    Batch, Case, Entry, Metas, Op, Tolerance, expect_contiguous, expect_float, expect_inputs,
};

/// The longest axis that one operation transforms: 16 KiB, which every GPU has in a workgroup.
const LONGEST: usize = 4096;

/// Cases of the operation, and of what is made of several.
pub(crate) fn entries() -> Vec<Entry> {
    let shapes: [&[usize]; 9] =
        [&[3, 2], &[1], &[5, 1], &[2, 3, 16], &[3, 128], &[0, 4], &[2, 24], &[20], &[3, 56]];
    let case = |shape: &[usize]| {
        Case::new(format!("{shape:?}"), &[shape], |x| Ok(vec![hadamard_transform(&x[0], None)?]))
            .tolerance(Tolerance::Reduction)
    };
    let mut cases: Vec<Case> = shapes.iter().map(|shape| case(shape)).collect();
    let reason = "long rows are transformed in two steps, with a rounding in between";
    cases.push(
        Case::new("8192, scaled", &[&[8192]], |x| Ok(vec![hadamard_transform(&x[0], 0.25)?]))
            .tolerance(Tolerance::Rounded(1.5, reason)),
    );
    for length in [5120, 6144, 7168] {
        let label = format!("2 × {length}");
        let transform = |x: &[Array]| Ok(vec![hadamard_transform(&x[0], None)?]);
        let case = Case::new(label, &[&[2, length]], transform).dtypes(&[DType::F32]);
        cases.push(case.tolerance(Tolerance::Rounded(1.5, reason)));
    }
    vec![Entry { name: "hadamard_transform", cases }]
}

/// The Walsh–Hadamard transform of the last axis, times `scale`, which without being given is the
/// one that makes the transform orthonormal: `1 / sqrt(n)`. The axis has `n = m·2^k` elements with
/// `m` 1, 12, 20 or 28. Sums are kept in `float32`.
///
/// ```
/// let x = wootz::Array::new([1.0f32, 2.0, 3.0, 4.0])?;
/// let y = wootz::hadamard_transform(&x, 1.0)?;
/// assert_eq!(y.to_vec::<f32>()?, [10.0, -2.0, -4.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn hadamard_transform(x: &Array, scale: impl Into<Option<f64>>) -> Result<Array> {
    const OP: &str = "hadamard_transform";
    if !x.dtype().is_float() && !x.dtype().is_integer() && x.dtype() != DType::Bool {
        return Err(Error::dtype(OP, "x", "a real type", x.dtype()));
    }
    let dtype = x.dtype().to_float();
    let length = x.shape().last().copied().unwrap_or(1);
    if factors(length).is_none() {
        let expected = "a last axis of m·2^k elements with m 1, 12, 20 or 28";
        return Err(Error::shape(OP, "x", expected, x.shape()));
    }
    let scale = scale.into().unwrap_or(1.0 / (length as f64).sqrt());
    along_and_across(&x.astype(dtype)?, scale)
}

impl Array {
    /// See [`hadamard_transform`].
    pub fn hadamard_transform(&self, scale: impl Into<Option<f64>>) -> Result<Array> {
        hadamard_transform(self, scale)
    }
}

/// `m` and `2^k` of a length that can be transformed.
fn factors(length: usize) -> Option<(usize, usize)> {
    let odd_part = length.checked_shr(length.trailing_zeros())?;
    let odd = match odd_part {
        1 => 1,
        3 => 12,
        5 => 20,
        7 => 28,
        _ => return None,
    };
    length.is_multiple_of(odd).then(|| (odd, length / odd))
}

/// The transform of any length: that of parts of the last axis, and then of equal places in them.
fn along_and_across(x: &Array, scale: f64) -> Result<Array> {
    let length = x.shape().last().copied().unwrap_or(1);
    if length <= LONGEST {
        return rows(x, scale);
    }
    // Parts are powers of two: what is left keeps all of `m`.
    let part = factors(length).map_or(1, |(_, power)| power.min(LONGEST));
    let parts = [(length / part) as i64, part as i64];
    let along = rows(&x.unflatten(-1, &parts)?, scale)?;
    let across = along_and_across(&along.swapaxes(-1, -2)?, 1.0)?;
    across.swapaxes(-1, -2)?.flatten(-2, -1)
}

/// The operation over the last axis.
fn rows(x: &Array, scale: f64) -> Result<Array> {
    Array::apply(Hadamard::new(scale as f32), &[&x.contiguous()?])
}

/// Rows of the matrices of order 12, 20 and 28 that MLX uses: a set bit is a minus.
const SIGNS_12: [u32; 12] = [2, 2731, 968, 2414, 3872, 1466, 3212, 1766, 572, 2966, 2288, 3674];
const SIGNS_20: [u32; 20] = [
    603102, 189373, 345979, 659191, 301551, 407489, 813986, 579428, 110312, 219632, 64083, 95399,
    159054, 286364, 539961, 1014381, 980218, 912853, 778123, 507702,
];
const SIGNS_28: [u32; 28] = [
    215391870, 162364541, 58374395, 114651639, 227206127, 188057567, 107695935, 189169475,
    111984263, 223952270, 179469212, 90503096, 180989936, 95625185, 142586661, 16737994, 31378837,
    60676906, 119273044, 236448937, 204462546, 265228953, 264119602, 259803876, 251188553,
    233957907, 199480486, 132622668,
];

/// The rows of the matrix of an order, or of its transpose.
fn signs(order: usize, transposed: bool) -> Vec<u32> {
    let rows: &[u32] = match order {
        12 => &SIGNS_12,
        20 => &SIGNS_20,
        28 => &SIGNS_28,
        _ => &[0],
    };
    if !transposed {
        return rows.to_vec();
    }
    let column = |column: usize| {
        rows.iter().enumerate().map(|(row, signs)| (signs >> column & 1) << row).sum()
    };
    (0..rows.len()).map(column).collect()
}

/// The transform of the last axis of a row-major array, of at most 4,096 elements.
#[derive(Clone, Copy, Debug)]
pub struct Hadamard {
    scale: f32,
    /// The matrices of order 20 and 28 are not symmetric.
    transposed: bool,
}

impl Hadamard {
    /// The transform, times `scale`.
    pub fn new(scale: f32) -> Hadamard {
        Hadamard { scale, transposed: false }
    }
}

impl Op for Hadamard {
    fn name(&self) -> &'static str {
        "hadamard_transform"
    }

    fn arguments(&self) -> &'static [&'static str] {
        &["x", "y"]
    }

    fn infer(&self, inputs: &[&Meta]) -> Result<Metas> {
        expect_inputs(self, inputs, 1)?;
        expect_float(self, inputs, 0)?;
        expect_contiguous(self, inputs, 0)?;
        let shape = inputs[0].shape();
        let length = shape.last().copied().unwrap_or(1);
        if factors(length).is_none() || length > LONGEST {
            let expected = format!("a last axis of m·2^k up to {LONGEST}, with m 1, 12, 20 or 28");
            return Err(Error::shape(self.name(), "x", expected, shape));
        }
        Ok(Metas::from_elem(Meta::new(self.name(), shape, inputs[0].dtype)?, 1))
    }

    fn may_alias(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn cpu(&self, call: &mut CpuCall<'_>) -> Result<()> {
        cpu::transform(call, self)
    }

    #[cfg(feature = "gpu")]
    fn gpu(&self, call: &mut GpuCall<'_>) -> Result<()> {
        let meta = call.output_meta(0);
        let (dtype, size) = (meta.dtype, meta.size());
        let length = meta.shape().last().copied().unwrap_or(1);
        let Some((order, power)) = factors(length) else { return Ok(()) };
        // A group transforms the elements of one row, or of as many rows as keep it busy.
        let span = length * (SHORTEST_SPAN / length).max(1);
        let aliased = call.aliased(0);
        let offset = call.meta(0).layout.offset as u32;
        let params = [size as u32, power as u32, span as u32, offset, self.scale.to_bits()];
        let bindings = [Bind::Input(0), Bind::Output(0)];
        call.launch(&Kernel {
            variant: format!(
                "rows.{order}{}.{dtype}{}",
                if self.transposed { "t" } else { "" },
                if aliased { '=' } else { '-' }
            ),
            source: &|| {
                let out = usize::from(!aliased);
                let reader = match aliased {
                    true => packed::load_written("x", "out", dtype),
                    false => packed::reader("x", 0, dtype),
                };
                let writer = packed::writer("out", out, dtype);
                let rows = signs(order, self.transposed)
                    .iter()
                    .map(|row| format!("{row}u"))
                    .collect::<Vec<_>>();
                let matrix = format!(
                    "const ORDER = {order}u;\nfn signs_of(row: u32) -> u32 {{\n    \
                     var rows = array<u32, ORDER>({});\n    return rows[row];\n}}\n",
                    rows.join(", ")
                );
                [packed::PACKING, &writer, &reader, &matrix, include_str!("rows.wgsl")].concat()
            },
            bindings: &bindings[usize::from(aliased)..],
            params: &params,
            groups: grid(size.div_ceil(span)),
        })
    }

    fn vjp(
        &self,
        _: &[Array],
        _: &[Array],
        cotangents: &[Option<Array>],
    ) -> Result<Vec<Option<Array>>> {
        let back = Hadamard { transposed: !self.transposed, ..*self };
        let gradient = cotangents[0].as_ref().map(|dy| Array::apply(back, &[&dy.contiguous()?]));
        Ok(vec![gradient.transpose()?])
    }

    fn vmap(&self, batch: &Batch<'_>) -> Result<Vec<Array>> {
        batch.again(&batch.dense()?)
    }
}

/// Elements that a workgroup of the GPU transforms at least.
#[cfg(feature = "gpu")]
const SHORTEST_SPAN: usize = 1024;
