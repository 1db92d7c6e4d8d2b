//! Rotary encoding made of plainer operations.

use super::{NAME, Positions, Rope, wide};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::*;
use crate::with_device;

/// What [`Rope`] computes of its inputs.
pub(super) fn rotated(rope: &Rope, inputs: &[Array]) -> Result<Array> {
    let (x, frequencies) = (&inputs[0], &inputs[1]);
    let (half, dims) = (rope.dims / 2, rope.dims as i64);
    let (cosine, sine) = {
        let angles = angles(rope, x, frequencies, inputs.get(2))?;
        let sine = sin(&angles)?;
        let sine = if rope.inverse { negative(sine)? } else { sine };
        (multiply(cos(&angles)?, rope.amplitude)?, multiply(sine, rope.amplitude)?)
    };
    // Pairs lie along an axis of their own, which is the last if neighbours are paired.
    let pair_axis = if rope.traditional { -1 } else { -2 };
    let split_shape = if rope.traditional { [half as i64, 2] } else { [2, half as i64] };
    let wide_x = astype(x, wide(x.dtype()))?;
    let pairs = wide_x.index((Ellipsis, ..dims))?.unflatten(-1, &split_shape)?;
    let first = take(&pairs, 0, Some(pair_axis))?;
    let second = take(&pairs, 1, Some(pair_axis))?;
    let turned = [
        subtract(multiply(&first, &cosine)?, multiply(&second, &sine)?)?,
        add(multiply(&first, &sine)?, multiply(&second, &cosine)?)?,
    ];
    let turned = match rope.traditional {
        true => stack(&turned, -1)?.flatten(-2, -1)?,
        false => concatenate(&turned, -1)?,
    };
    let turned = astype(&turned, x.dtype())?;
    if rope.dims == x.shape()[3] {
        return Ok(turned);
    }
    concatenate(&[turned, x.index((Ellipsis, dims..))?], -1)
}

/// The angles, of shape [batch or 1, 1, length, pairs].
fn angles(rope: &Rope, x: &Array, frequencies: &Array, positions: Option<&Array>) -> Result<Array> {
    let (dtype, length) = (wide(x.dtype()), x.shape()[2]);
    let steps = || with_device(x.device(), || arange(0, length, 1, dtype));
    let given = positions.map(|positions| astype(positions, dtype)).transpose()?;
    // Of shape [axes or 1, batch or 1, length].
    let places = match (rope.positions, given) {
        (Positions::From(start), _) => reshape(&add(steps()?, start)?, &[1, 1, length])?,
        (_, Some(given)) if rope.positions == Positions::Offset => {
            add(reshape(&given, &[1, given.size(), 1])?, steps()?)?
        }
        (_, Some(given)) => given,
        (_, None) => return Err(Error::argument(NAME, "inputs", "three arrays", 2)),
    };
    let (axes, pairs) = (frequencies.shape()[0], frequencies.shape()[1]);
    let frequencies = reshape(frequencies, &[axes, 1, 1, pairs])?;
    let terms = multiply(expand_dims(&multiply(places, rope.scale)?, -1)?, frequencies)?;
    let angles = if axes == 1 { squeeze(&terms, 0)? } else { sum(&terms, 0, false)? };
    expand_dims(&angles, 1)
}
