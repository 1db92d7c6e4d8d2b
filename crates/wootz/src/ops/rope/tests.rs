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
            assert_close(&encode(&x)?, &want, 2e-5)?;
            let apart = swapaxes(&swapaxes(&x, 1, 2)?.contiguous()?, 1, 2)?;
            assert!(!apart.meta().layout.is_contiguous());
            let y = encode(&apart)?;
            assert!(y.producer().is_some_and(
                |(op, inputs)| op.name() == NAME && !inputs[0].meta().layout.is_contiguous()
            ));
            assert_close(&y, &want, 2e-5)?;
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
        assert_close(&encode(7.into())?, &alike, 2e-5)?;
        for dtype in [DType::I32, DType::I64, DType::U8, DType::F32, DType::F16] {
            let offsets = to_device(&Array::new([7, 100])?, &device)?.astype(dtype)?;
            let one = offsets.index(0)?;
            assert_close(&encode(one.into())?, &alike, 2e-5)?;
            assert_close(&encode(offsets.into())?, &apart, 2e-5)?;
        }
    }
    Ok(())
}

/// Frequencies of base 1,000,000 for 32 dims, recorded from MLX 0.32.4.
#[test]
fn frequencies_are_those_of_mlx_to_the_bit() {
    let recorded: [u32; 16] = [
        0x3f80_0000,
        0x3ed7_e89b,
        0x3e36_1888,
        0x3d99_940d,
        0x3d01_86e3,
        0x3c5a_7bf0,
        0x3bb8_4499,
        0x3b1b_690c,
        0x3a83_1270,
        0x39dd_1721,
        0x393a_7751,
        0x389d_43ab,
        0x3804_a2af,
        0x375f_ba55,
        0x36bc_b0c0,
        0x361f_23de,
    ];
    let found = single::geometric(32, 1e6);
    assert_eq!(found.iter().map(|frequency| frequency.to_bits()).collect::<Vec<_>>(), recorded);
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
        (
            super::rope(&x, 8, false, RopeBase::Base(0.0), 1.0, 0),
            "base: expected a finite number above 0, got 0",
        ),
        (super::rope(&x, 8, false, RopeBase::Base(-3.5), 1.0, 0), "-3.5"),
        (super::rope(&x.astype(DType::F64)?, 8, false, RopeBase::Base(f64::NAN), 1.0, 0), "base"),
        (
            super::rope(&x, 8, false, base, f64::INFINITY, 0),
            "scale: expected a finite number, got inf",
        ),
        (
            super::rope(&x, 8, false, base, 1.0, f64::NAN),
            "offset: expected a finite number, got NaN",
        ),
    ];
    for (result, numbers) in cases {
        let text = text(result).unwrap_or_default();
        assert!(text.contains(NAME) && text.contains(numbers), "{text}");
    }
    Ok(())
}
