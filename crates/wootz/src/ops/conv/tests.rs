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

/// Windows at the border of an image are laid beside it, those inside are read where they lie; in an image that has
/// its zeros already, all of them are. Sums have one order.
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
