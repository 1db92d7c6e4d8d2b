//! Choosing between two arrays.

use bytemuck::Pod;

use super::{Accepts, Output, Row, Vjp, apply_kernel, astype, resolve};
use crate::array::{Arg, Array, Class, DType};
use crate::cpu::simd::dispatch;
use crate::error::Result;
use crate::op::{BLOCK, ElementKernel, block};

/// Elementwise `a` where the condition is true (not zero), else `b`.
///
/// ```
/// use wootz::{Array, where_};
/// let y = where_(&Array::new([true, false])?, &Array::new([1.0f32, 2.0])?, -1)?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, -1.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[doc(alias = "where")]
pub fn where_(condition: impl Into<Arg>, a: impl Into<Arg>, b: impl Into<Arg>) -> Result<Array> {
    let condition = condition.into();
    let [a, b] = resolve(ROWS[0].name, [a.into(), b.into()])?;
    let [condition] = match condition {
        // A bare truth value goes where the arrays are.
        Arg::Scalar(value) => {
            let beside = if a.rank() >= b.rank() { &a } else { &b };
            [super::constant(value, DType::Bool, beside.device())?]
        }
        array => resolve(ROWS[0].name, [array])?,
    };
    let dtype = DType::promote(a.dtype(), b.dtype());
    let condition = astype(&condition, DType::Bool)?;
    apply_kernel(&ROWS[0], &[&condition, &astype(&a, dtype)?, &astype(&b, dtype)?])
}

/// The rows of this table.
pub(crate) static ROWS: &[Row] = &[Row {
    name: "where",
    kernel: &ElementKernel {
        name: "where",
        // Only the width matters.
        cpu: |class| {
            Some(match class {
                Class::U32 | Class::I32 | Class::F32 => choose::<u32>,
                Class::U64 | Class::I64 | Class::F64 | Class::C64 => choose::<u64>,
            })
        },
        wgsl: |_| Some("select(c, b, a != 0u)"),
        boolean: false,
        joined: |_, _| None,
    },
    accepts: Accepts::Any,
    output: Output::Same,
    vjp: Vjp::Rule(|x, _, g| Ok(vec![where_(&x[0], g, 0)?, where_(&x[0], 0, g)?])),
    range: -3.0..3.0,
    arguments: &["condition", "a", "b", "output"],
    narrow: None,
    cases: None,
}];

fn choose<T: Pod>(args: &[&[u8]], out: &mut [u8]) {
    let condition: &[u32] = bytemuck::cast_slice(args[0]);
    let (a, b): (&[T], &[T]) = (bytemuck::cast_slice(args[1]), bytemuck::cast_slice(args[2]));
    let out: &mut [T] = bytemuck::cast_slice_mut(out);
    dispatch(|| {
        for (index, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let (condition, a, b) = (block(condition, index), block(a, index), block(b, index));
            for i in 0..BLOCK {
                out[i] = if condition[i] != 0 { a[i] } else { b[i] };
            }
        }
    });
}
