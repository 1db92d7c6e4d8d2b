//! Rotary encoding against plain loops, on both devices.

use super::*;
use crate::ops::{swapaxes, to_device};
use crate::testing::devices;

/// Elements that look random, in ±1.
pub(super) fn numbers(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Rows `[row, features]` turned by angles `[row, pair]`, in double precision.
pub(super) fn turned(
    x: &[f32],
    rows: usize,
    angle: impl Fn(usize, usize) -> f64,
    rope: &Rope,
) -> Vec<f64> {
    let (features, half) = (x.len() / rows, rope.dims / 2);
    let mut y: Vec<f64> = x.iter().map(|&x| x as f64).collect();
    for (row, y) in y.chunks_mut(features).enumerate() {
        for pair in 0..half {
            let (a, b) =
                if rope.traditional { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
            let (sine, cosine) = angle(row, pair).sin_cos();
            let (first, second) = (y[a], y[b]);
            y[a] = rope.amplitude * (first * cosine - second * sine);
            y[b] = rope.amplitude * (first * sine + second * cosine);
        }
    }
    y
}

pub(super) fn assert_close(got: &Array, want: &[f64], allowed: f64) -> Result<()> {
    let got = got.astype(DType::F32)?.contiguous()?.to_vec::<f32>()?;
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (*got as f64 - want).abs();
        assert!(error <= allowed * want.abs().max(1.0), "element {i} is {got}, expected {want}");
    }
    Ok(())
}

/// More than one block of positions and of heads, for the CPU and for a thread of the GPU, and heads
/// that are read from where a projection left them: [batch, length, heads, features].
#[test]
fn heads_share_angles_whatever_their_layout() -> Result<()> {
    let (heads, length, features) = (17, 33, 128);
    let base = 10000f64;
    for device in devices() {
        for traditional in [false, true] {
            let rope = Rope { traditional, ..Rope::new(96) };
            let frequency = |pair: usize| base.powf(-(pair as f64) / 48.0) as f32 as f64;
            let x = numbers(heads * length * features);
            let angle = |row: usize, pair: usize| (row % length) as f64 * frequency(pair);
            let want = turned(&x, heads * length, angle, &rope);
            let encode = |x: &Array| super::rope(x, 96, traditional, RopeBase::Base(base), 1.0, 0);
            let x = Array::from_slice_on(&x, &[1, heads, length, features], &device)?;
            assert_close(&encode(&x)?, &want, 4e-6)?;
            let apart = swapaxes(&swapaxes(&x, 1, 2)?.contiguous()?, 1, 2)?;
            assert!(!apart.meta().layout.is_contiguous());
            let y = encode(&apart)?;
            assert!(y.producer().is_some_and(
                |(op, inputs)| op.name() == NAME && !inputs[0].meta().layout.is_contiguous()
            ));
            assert_close(&y, &want, 4e-6)?;
            for (dtype, allowed) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
                // What the narrow type holds of x is what is turned.
                let narrow = x.astype(dtype)?;
                let rounded = narrow.astype(DType::F32)?.to_vec::<f32>()?;
                let want = turned(&rounded, heads * length, angle, &rope);
                assert_close(&encode(&narrow)?, &want, allowed)?;
            }
        }
    }
    Ok(())
}

#[test]
fn offsets_are_numbers_scalars_or_one_for_each_batch() -> Result<()> {
    let shape = [2, 3, 4, 8];
    let x = numbers(shape.iter().product());
    let angle = |offsets: [f64; 2]| {
        move |row: usize, pair: usize| {
            let (batch, step) = (row / 12, row % 4);
            (offsets[batch] + step as f64)
                * 0.25
                * (100f64.powf(-(pair as f64) / 4.0) as f32 as f64)
        }
    };
    let rope = Rope::new(8);
    let alike = turned(&x, 24, angle([7.0; 2]), &rope);
    let apart = turned(&x, 24, angle([7.0, 100.0]), &rope);
    for device in devices() {
        let x = Array::from_slice_on(&x, &shape, &device)?;
        let base = RopeBase::Base(100.0);
        let encode = |offset: Arg| super::rope(&x, 8, false, base, 0.25, offset);
        assert_close(&encode(7.into())?, &alike, 4e-6)?;
        for dtype in [DType::I32, DType::I64, DType::U8, DType::F32, DType::F16] {
            let offsets = to_device(&Array::new([7, 100])?, &device)?.astype(dtype)?;
            let one = offsets.index(0)?;
            assert_close(&encode(one.into())?, &alike, 4e-6)?;
            assert_close(&encode(offsets.into())?, &apart, 4e-6)?;
        }
    }
    Ok(())
}

#[test]
fn the_memory_of_a_temporary_is_used_again() -> Result<()> {
    for device in devices() {
        for dtype in [DType::F32, DType::BF16] {
            let shape = [1, 2, 64, 64];
            let x = Array::from_slice_on(&numbers(2 * 64 * 64), &shape, &device)?.astype(dtype)?;
            let encode = |x: &Array| super::rope(x, 32, false, RopeBase::Base(10.0), 1.0, 3);
            let want = encode(&x)?.to_bytes()?;
            let doubled = crate::ops::multiply(&x, 1)?;
            let in_place = encode(&doubled)?;
            drop(doubled);
            assert_eq!(in_place.to_bytes()?, want);
        }
    }
    Ok(())
}

#[test]
fn arguments_that_do_not_fit_are_errors_with_the_numbers() -> Result<()> {
    let x = Array::zeros(&[2, 3, 4, 8], DType::F32)?;
    let base = RopeBase::Base(10.0);
    let text = |result: Result<Array>| result.err().map(|error| error.to_string());
    let cases = [
        (super::rope(&x.index(0)?.index(0)?, 8, false, base, 1.0, 0), "[4, 8]"),
        (super::rope(&x, 7, false, base, 1.0, 0), "7"),
        (super::rope(&x, 10, false, base, 1.0, 0), "10"),
        (super::rope(&x.astype(DType::I32)?, 8, false, base, 1.0, 0), "int32"),
        (super::rope(&x, 8, false, base, 1.0, Array::new([1, 2, 3])?), "[3]"),
        (super::rope(&x, 8, false, RopeBase::Freqs(&Array::new([1.0f32])?), 1.0, 0), "[4]"),
    ];
    for (result, numbers) in cases {
        let text = text(result).unwrap_or_default();
        assert!(text.contains(NAME) && text.contains(numbers), "{text}");
    }
    Ok(())
}
