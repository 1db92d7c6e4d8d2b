//! Convolutions that are refused, and what their messages say; and images with zeros around them.

use super::*;

fn of(shape: &[usize]) -> Array {
    Array::ones(shape, DType::F32).unwrap()
}

fn refused(result: Result<Array>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn channels_that_do_not_fit_are_told() {
    let message = refused(conv1d(&of(&[1, 5, 3]), &of(&[4, 2, 2]), 1, 0, 1, 1));
    assert!(message.contains("conv1d") && message.contains("3 channels"), "{message}");
    let message = refused(conv2d(&of(&[1, 5, 5, 4]), &of(&[3, 2, 2, 2]), 1, 0, 1, 2));
    assert!(message.contains("groups") && message.contains("3 outputs"), "{message}");
    let message = refused(conv2d(&of(&[1, 5, 5, 4]), &of(&[3, 2, 2, 4]), 1, 0, 1, 0));
    assert!(message.contains("groups"), "{message}");
}

#[test]
fn a_window_larger_than_what_it_moves_over_is_told() {
    let message = refused(conv2d(&of(&[1, 3, 9, 1]), &of(&[1, 4, 1, 1]), 1, 0, 2, 1));
    assert!(message.contains("at most 3") && message.contains("7"), "{message}");
    let message = refused(conv1d(&of(&[1, 3, 1]), &of(&[1, 0, 1]), 1, 0, 1, 1));
    assert!(message.contains("at least one"), "{message}");
    let message = refused(conv1d(&of(&[1, 3, 1]), &of(&[1, 2, 1]), 1, -2, 1, 1));
    assert!(message.contains("0 long"), "{message}");
}

#[test]
fn steps_of_nothing_are_refused() {
    let (x, w) = (of(&[1, 5, 5, 2]), of(&[3, 2, 2, 2]));
    assert!(refused(conv2d(&x, &w, (1, 0), 0, 1, 1)).contains("stride"));
    assert!(refused(conv2d(&x, &w, 1, 0, 0, 1)).contains("dilation"));
    assert!(refused(conv_transpose2d(&x, &w, 0, 0, 1, 0, 1)).contains("stride"));
    assert!(refused(conv2d(&x, &w, [1, 1, 1], 0, 1, 1)).contains("2 spatial axes"));
}

#[test]
fn ranks_and_dtypes_are_checked() {
    assert!(refused(conv1d(&of(&[1, 5, 5, 2]), &of(&[3, 2, 2, 2]), 1, 0, 1, 1)).contains("input"));
    assert!(refused(conv1d(&of(&[1, 5, 2]), &of(&[3, 2]), 1, 0, 1, 1)).contains("weight"));
    let general = conv_general(&of(&[1, 2]), &of(&[3, 2]), &ConvOptions::default());
    assert!(refused(general).contains("one to three"));
    let integers = Array::ones(&[1, 5, 2], DType::I32).unwrap();
    assert!(refused(conv1d(&integers, &of(&[3, 2, 2]), 1, 0, 1, 1)).contains("floating-point"));
    assert!(refused(convolve(&of(&[0]), &of(&[3]), ConvolveMode::Full)).contains("convolve"));
}

#[test]
fn the_dtype_is_the_common_one() -> Result<()> {
    let x = Array::ones(&[1, 5, 2], DType::F16)?;
    assert_eq!(conv1d(&x, &of(&[3, 2, 2]), 1, 0, 1, 1)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn padding_beyond_all_words_is_an_error() {
    let message = refused(conv1d(&of(&[1, 5, 1]), &of(&[1, 2, 1]), 1, i64::MAX, 1, 1));
    assert!(message.contains("padding") || message.contains("elements"), "{message}");
}

/// Zeros around an image may be multiplied where they are, or never be there.
#[test]
fn zeros_around_an_image_are_the_same_inside_it_to_the_last_bit() -> Result<()> {
    crate::with_device(&crate::Device::cpu(), || {
        let key = crate::random::key(3)?;
        let draw = |shape: &[usize]| crate::random::normal(shape, DType::F32, 0.0, 1.0, Some(&key));
        for (rows, columns, channels) in [(72, 80, 5), (90, 71, 16), (1, 300, 3)] {
            for (window, low, high) in [([3, 3], [1, 1], [1, 1]), ([1, 4], [0, 2], [0, 1])] {
                for (stride, dilation) in [(1, 1), (2, 1), (1, 2)] {
                    if (window[0] - 1) * dilation >= rows + 2 {
                        continue;
                    }
                    let x = draw(&[2, rows, columns, channels])?;
                    let w = draw(&[9, window[0], window[1], channels])?;
                    let around = Padding::sides(&low, &high);
                    let got = conv2d(&x, &w, stride, around, dilation, 1)?;
                    let zeros = |axis: usize| (low[axis] as usize, high[axis] as usize);
                    let widths = [(0, 0), zeros(0), zeros(1), (0, 0)];
                    let whole = crate::pad(&x, widths, crate::PadMode::Constant, 0)?;
                    let want = conv2d(&whole, &w, stride, 0, dilation, 1)?;
                    assert_eq!(got.shape(), want.shape());
                    let bits = |y: &Array| -> Result<Vec<u32>> {
                        Ok(y.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
                    };
                    assert!(
                        bits(&got)? == bits(&want)?,
                        "{rows} × {columns} × {channels}, windows {window:?} at steps of {stride}, {dilation}"
                    );
                }
            }
        }
        Ok(())
    })
}

/// Windows of 3 × 3 are transformed, where an infinity, or a number near the largest, reaches outputs that do not look at it.
#[test]
fn what_is_not_finite_reaches_only_outputs_that_look_at_it() -> Result<()> {
    let (side, channels, outputs) = (13, 17, 18);
    let spot = |at: usize, value: f32| move |i: usize| (i == at).then_some(value);
    let none = |_: usize| None;
    let image: [&dyn Fn(usize) -> Option<f32>; 5] = [
        &spot((5 * side + 6) * channels + 3, f32::INFINITY),
        &spot(0, f32::NAN),
        &none,
        &none,
        &|i| Some(if i % 2 == 0 { 2e38 } else { 1.5e38 }),
    ];
    let kernel: [&dyn Fn(usize) -> Option<f32>; 5] =
        [&none, &none, &spot(70, f32::NEG_INFINITY), &spot(9, f32::NAN), &|_| Some(1e-4)];
    crate::with_device(&crate::Device::cpu(), || {
        for (image, kernel) in image.into_iter().zip(kernel) {
            let number = |i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0;
            let x: Vec<f32> =
                (0..side * side * channels).map(|i| image(i).unwrap_or(number(i))).collect();
            let w: Vec<f32> =
                (0..outputs * 9 * channels).map(|i| kernel(i).unwrap_or(number(i + 5))).collect();
            let arrays = [
                Array::from_slice(&x, &[1, side, side, channels])?,
                Array::from_slice(&w, &[outputs, 3, 3, channels])?,
            ];
            let got = conv2d(&arrays[0], &arrays[1], 1, 1, 1, 1)?.to_vec::<f32>()?;
            for (i, &got) in got.iter().enumerate() {
                let (place, output) = (i / outputs, i % outputs);
                let mut want = 0.0;
                for tap in 0..9 {
                    let (line, column) = (place / side + tap / 3, place % side + tap % 3);
                    let inside = (1..=side).contains(&line) && (1..=side).contains(&column);
                    for channel in 0..channels {
                        let at = || ((line - 1) * side + column - 1) * channels + channel;
                        let x = if inside { x[at()] as f64 } else { 0.0 };
                        want += x * w[(output * 9 + tap) * channels + channel] as f64;
                    }
                }
                let same = match want.is_finite() {
                    true => (got as f64 - want).abs() <= 2e-5 * want.abs().max(1.0),
                    false => got as f64 == want || got.is_nan() && want.is_nan(),
                };
                assert!(same, "output {output} at {place}: {got} instead of {want}");
            }
        }
        Ok(())
    })
}
