//! MLX's `mx.fast`: operations that have fused kernels in MLX. Here they are compositions as long as
//! they have no kernel of their own; the norms and attention have.

use crate::array::{Arg, Array, DType};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::*;
pub use crate::ops::{Mask, layer_norm, rms_norm, scaled_dot_product_attention};
use crate::with_device;

/// Where the angles of [`rope`] come from.
#[derive(Clone, Copy, Debug)]
pub enum RopeBase<'a> {
    /// Angle `i` of a position is the position times `base^(-2i / dims)`.
    Base(f64),
    /// Angle `i` of a position is the position divided by the array's element `i`.
    Freqs(&'a Array),
}

/// Rotary positional encoding of the first `dims` features; positions are the axis before the
/// last and count from `offset`, a number or an array with one for each batch. Features are
/// rotated in pairs of neighbours if `traditional`, else of elements `dims / 2` apart.
///
/// ```
/// use wootz::{Array, fast, fast::RopeBase};
/// let x = Array::new([[[1.0f32, 0.0], [1.0, 0.0]]])?;
/// let y = fast::rope(&x, 2, false, RopeBase::Base(10000.0), 1.0, 0)?.to_vec::<f32>()?;
/// assert!((y[2] - 1f32.cos()).abs() < 1e-6 && (y[3] - 1f32.sin()).abs() < 1e-6);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rope(
    x: &Array,
    dims: usize,
    traditional: bool,
    base: RopeBase<'_>,
    scale: f64,
    offset: impl Into<Arg>,
) -> Result<Array> {
    const OP: &str = "rope";
    if x.rank() < 3 {
        return Err(Error::shape(OP, "x", "at least three axes", x.shape()));
    }
    if !x.dtype().is_float() {
        return Err(Error::dtype(OP, "x", "a floating-point type", x.dtype()));
    }
    let (length, features) = (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]);
    if dims == 0 || !dims.is_multiple_of(2) || dims > features {
        let expected = format!("an even number up to {features}");
        return Err(Error::argument(OP, "dims", expected, dims));
    }
    let half = dims / 2;
    let steps = with_device(x.device(), || arange(0, length, 1, DType::F32))?;
    let positions = match offset.into() {
        Arg::Scalar(offset) => add(steps, offset.as_f64())?,
        Arg::Array(offset) if offset.size() == 1 => {
            add(steps, offset.reshape(&[])?.astype(DType::F32)?)?
        }
        Arg::Array(offset) if offset.shape() == [x.shape()[0]] => {
            // One row of positions for each batch, and axes of length 1 up to the positions.
            let mut shape = vec![1; x.rank() - 1];
            shape[0] = x.shape()[0];
            add(offset.astype(DType::F32)?.reshape(&shape)?, steps)?
        }
        Arg::Array(offset) => {
            let expected = format!("[] or [{}]", x.shape()[0]);
            return Err(Error::shape(OP, "offset", expected, offset.shape()));
        }
    };
    let frequencies = match base {
        RopeBase::Base(base) => {
            // In double precision: a far position multiplies the error.
            let frequency = |i: usize| base.powf(-(i as f64) / half as f64) as f32;
            let frequencies: Vec<f32> = (0..half).map(frequency).collect();
            moved_on_demand(&frequencies, x.device())?
        }
        RopeBase::Freqs(freqs) if freqs.shape() == [half] => reciprocal(freqs.astype(DType::F32)?)?,
        RopeBase::Freqs(freqs) => {
            return Err(Error::shape(OP, "freqs", format!("[{half}]"), freqs.shape()));
        }
    };
    let angles = multiply(expand_dims(&multiply(positions, scale)?, -1)?, frequencies)?;
    let (cosine, sine) = (cos(&angles)?.astype(x.dtype())?, sin(&angles)?.astype(x.dtype())?);
    // Pairs lie along an axis of their own, which is the last if neighbours are paired.
    let pair_axis = if traditional { -1 } else { -2 };
    let split_shape = if traditional { [half as i64, 2] } else { [2, half as i64] };
    let rotated = x.index((Ellipsis, ..dims as i64))?.unflatten(-1, &split_shape)?;
    let first = take(&rotated, 0, Some(pair_axis))?;
    let second = take(&rotated, 1, Some(pair_axis))?;
    let turned = [
        subtract(multiply(&first, &cosine)?, multiply(&second, &sine)?)?,
        add(multiply(&first, &sine)?, multiply(&second, &cosine)?)?,
    ];
    let rotated = match traditional {
        true => stack(&turned, -1)?.flatten(-2, -1)?,
        false => concatenate(&turned, -1)?,
    };
    if dims == features {
        return Ok(rotated);
    }
    concatenate(&[rotated, x.index((Ellipsis, dims as i64..))?], -1)
}

/// Numbers of the host that reach the device when they are needed there.
pub(crate) fn moved_on_demand(numbers: &[f32], device: &Device) -> Result<Array> {
    to_device(&Array::from_slice_on(numbers, &[numbers.len()], &Device::cpu())?, device)
}

/// The most negative finite number: a row in which nothing is seen stays finite.
pub(crate) fn lowest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => half::f16::MIN.to_f64(),
        DType::BF16 => half::bf16::MIN.to_f64(),
        DType::F64 => f64::MIN,
        _ => f32::MIN as f64,
    }
}
