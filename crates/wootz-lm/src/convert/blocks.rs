//! GGUF's blocks as MLX's affine arrays and back, without loss: the same codes, scales and minima in
//! another order. All of it is made of operations, so that nothing is computed before it is written.

use wootz::quant::{Format, Scheme};
use wootz::{
    Array, DType, Quantized, Result, array_equal, bitwise_and, bitwise_or, bitwise_xor,
    broadcast_to, concatenate, dequantize, left_shift, multiply, reshape, right_shift, slice, view,
};

/// Blocks of a format that is affine in groups of 32, `[…, rows, bytes]`, as MLX has them. Nothing for
/// others.
pub(super) fn to_affine(format: Format, blocks: &Array) -> Result<Option<Quantized>> {
    let bits = match format {
        Format::Q4_0 | Format::Q4_1 => 4,
        Format::Q8_0 => 8,
        _ => return Ok(None),
    };
    let (lead, bytes) = lead_and_last(blocks);
    let count = bytes / format.block_bytes();
    let blocks = reshape(blocks, &joined(lead, &[count, format.block_bytes()]))?;
    let number = |from: usize| -> Result<Array> {
        let two = last_axis(&blocks, from, from + 2, 1)?.contiguous()?;
        reshape(&view(&two, DType::F16)?, &joined(lead, &[count]))
    };
    let scales = number(0)?;
    let (biases, codes_at) = match format {
        Format::Q4_0 => (multiply(&scales, -8.0)?, 2),
        Format::Q8_0 => (multiply(&scales, -128.0)?, 2),
        _ => (number(2)?, 4),
    };
    let codes = last_axis(&blocks, codes_at, format.block_bytes(), 1)?;
    let codes = match bits {
        8 => bitwise_xor(&codes, byte(128)?)?,
        _ => {
            // The low nibbles are the first sixteen codes. MLX has neighbours in a byte.
            let low = bitwise_and(&codes, byte(15)?)?;
            let high = right_shift(&codes, byte(4)?)?;
            concatenate(&[pairs(&low)?, pairs(&high)?], -1)?
        }
    };
    let words = reshape(&codes.contiguous()?, &joined(lead, &[count * bits * 4]))?;
    let words = view(&words, DType::U32)?;
    let scheme = Scheme::Affine { group_size: 32, bits };
    Quantized::new(scheme, &words, Some(&scales), Some(&biases)).map(Some)
}

/// Two neighbours of the last axis in a byte each.
fn pairs(codes: &Array) -> Result<Array> {
    let length = lead_and_last(codes).1;
    let even = last_axis(codes, 0, length, 2)?;
    let odd = last_axis(codes, 1, length, 2)?;
    bitwise_or(&even, left_shift(&odd, byte(4)?)?)
}

/// The blocks that hold exactly what affine arrays hold, if a format has them: scales and biases are
/// numbers of half precision, and codes have 4 bits, or 8 with the bias of Q8_0. If several formats do,
/// `wanted` is one that is taken.
pub(super) fn from_affine(
    weights: &Quantized,
    wanted: Option<Format>,
) -> Result<Option<(Format, Array)>> {
    let Scheme::Affine { group_size, bits } = weights.scheme() else { return Ok(None) };
    let (Some(scales), Some(biases)) = (weights.scales(), weights.biases()) else {
        return Ok(None);
    };
    let (Some(scales), Some(biases)) = (halves(scales)?, halves(biases)?) else { return Ok(None) };
    let is_times = |factor: f32| -> Result<bool> {
        array_equal(&multiply(&scales, factor)?, &biases, false)?.item::<bool>()
    };
    let format = match bits {
        2..=4 if wanted == Some(Format::Q4_1) => Format::Q4_1,
        2..=4 if is_times(-8.0)? => Format::Q4_0,
        2..=4 => Format::Q4_1,
        8 if is_times(-128.0)? => Format::Q8_0,
        _ => return Ok(None),
    };
    let shape = weights.shape();
    let (lead, columns) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
    let count = columns / 32;
    // Of each group, the numbers of all its blocks.
    let spread = |numbers: &Array| -> Result<Array> {
        let repeat = group_size / 32;
        let numbers = reshape(numbers, &joined(lead, &[count / repeat, 1]))?;
        let numbers = broadcast_to(&numbers, &joined(lead, &[count / repeat, repeat]))?;
        let numbers = reshape(&numbers.contiguous()?, &joined(lead, &[count, 1]))?;
        view(&numbers, DType::U8)
    };
    let codes = reshape(&codes(weights)?, &joined(lead, &[count, 32]))?;
    let mut parts = vec![spread(&scales)?];
    if format == Format::Q4_1 {
        parts.push(spread(&biases)?);
    }
    parts.push(match format {
        Format::Q8_0 => bitwise_xor(&codes, byte(128)?)?,
        _ => {
            let high = left_shift(&last_axis(&codes, 16, 32, 1)?, byte(4)?)?;
            bitwise_or(&last_axis(&codes, 0, 16, 1)?, &high)?
        }
    });
    let blocks = concatenate(&parts, -1)?;
    let bytes = count * format.block_bytes();
    Ok(Some((format, reshape(&blocks, &joined(lead, &[bytes]))?)))
}

/// The codes of affine weights, a byte each: what they are with a scale of 1 and no bias.
fn codes(weights: &Quantized) -> Result<Array> {
    let shape = weights.scales().map(|scales| scales.shape().to_vec()).unwrap_or_default();
    let (one, zero) = (Array::ones(&shape, DType::F32)?, Array::zeros(&shape, DType::F32)?);
    let plain = Quantized::new(weights.scheme(), weights.codes(), Some(&one), Some(&zero))?;
    dequantize(&plain, None)?.astype(DType::U8)
}

/// Numbers of half precision that are the same, if there are such.
fn halves(numbers: &Array) -> Result<Option<Array>> {
    if numbers.dtype() == DType::F16 {
        return Ok(Some(numbers.clone()));
    }
    let half = numbers.astype(DType::F16)?;
    let same = array_equal(&half.astype(numbers.dtype())?, numbers, false)?.item::<bool>()?;
    Ok(same.then_some(half))
}

fn byte(value: u8) -> Result<Array> {
    Array::from_slice_on(&[value], &[], &wootz::Device::cpu())
}

/// The axes before the last, and the last.
fn lead_and_last(array: &Array) -> (&[usize], usize) {
    match array.shape() {
        [lead @ .., last] => (lead, *last),
        [] => (&[], 1),
    }
}

fn joined(lead: &[usize], rest: &[usize]) -> Vec<usize> {
    [lead, rest].concat()
}

/// A range of the last axis.
fn last_axis(array: &Array, start: usize, stop: usize, step: isize) -> Result<Array> {
    let mut from = vec![0; array.rank()];
    let mut to = array.shape().to_vec();
    let mut steps = vec![1; array.rank()];
    if let (Some(from), Some(to), Some(steps)) = (from.last_mut(), to.last_mut(), steps.last_mut())
    {
        (*from, *to, *steps) = (start, stop, step);
    }
    slice(array, &from, &to, &steps)
}

#[cfg(test)]
mod tests {
    use wootz::{Device, with_device};

    use super::*;

    /// Every code, and scales and minima that half precision has.
    fn blocks(format: Format) -> Array {
        let bytes = format.block_bytes();
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 24) as u8
        };
        let mut all: Vec<u8> = (0..2 * 3 * 4 * bytes).map(|_| next()).collect();
        for block in all.chunks_mut(bytes) {
            // Exponents that neither overflow nor are those of infinities.
            block[1] = block[1] & 0x83 | 0x2c;
            block[3] = if format == Format::Q4_1 { block[3] & 0x83 | 0x2c } else { block[3] };
        }
        Array::from_slice_on(&all, &[2, 3, 4 * bytes], &Device::cpu()).unwrap()
    }

    #[test]
    fn affine_blocks_become_mlx_arrays_of_the_same_numbers_and_the_same_blocks_again() {
        with_device(&Device::cpu(), || {
            for format in [Format::Q4_0, Format::Q4_1, Format::Q8_0] {
                let blocks = blocks(format);
                let bytes = blocks.to_vec::<u8>().unwrap();
                let weights = to_affine(format, &blocks).unwrap().unwrap();
                assert_eq!(weights.shape(), [2, 3, 128]);
                let mut expected = vec![0.0; 2 * 3 * 128];
                format.decode(&bytes, &mut expected).unwrap();
                // In single precision, where the sum of a code's share and the bias is not rounded.
                let wide = |array: &Array| array.astype(DType::F32).unwrap();
                let (scales, biases) = (weights.scales().unwrap(), weights.biases().unwrap());
                let single = Quantized::new(
                    weights.scheme(),
                    weights.codes(),
                    Some(&wide(scales)),
                    Some(&wide(biases)),
                )
                .unwrap();
                let got = dequantize(&single, None).unwrap().to_vec::<f32>().unwrap();
                for (got, expected) in got.iter().zip(&expected) {
                    assert!((got - expected).abs() <= expected.abs() * 1e-6 + 1e-6, "{format}");
                }
                let (again, back) = from_affine(&weights, Some(format)).unwrap().unwrap();
                assert_eq!((again, back.to_vec::<u8>().unwrap()), (format, bytes), "{format}");
            }
        });
    }

    #[test]
    fn groups_of_64_become_two_blocks_each_and_what_half_precision_lacks_becomes_none() {
        with_device(&Device::cpu(), || {
            let numbers: Vec<f32> =
                (0..256).map(|i| ((i * 37) % 101) as f32 / 16.0 - 2.0).collect();
            let dense = Array::from_slice_on(&numbers, &[2, 128], &Device::cpu()).unwrap();
            let scheme = Scheme::Affine { group_size: 64, bits: 4 };
            let half = wootz::quantize(&dense.astype(DType::F16).unwrap(), scheme).unwrap();
            let (format, blocks) = from_affine(&half, None).unwrap().unwrap();
            assert_eq!((format, blocks.shape()), (Format::Q4_1, &[2, 80][..]));
            let mut got = vec![0.0; 256];
            format.decode(&blocks.to_vec::<u8>().unwrap(), &mut got).unwrap();
            let expected = dequantize(&half, None).unwrap().astype(DType::F32).unwrap();
            for (got, expected) in got.iter().zip(expected.to_vec::<f32>().unwrap()) {
                assert!((got - expected).abs() <= 2e-3, "{got} {expected}");
            }
            let single = wootz::quantize(&dense, scheme).unwrap();
            assert!(from_affine(&single, None).unwrap().is_none());
        });
    }
}
