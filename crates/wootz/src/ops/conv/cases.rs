//! Cases of convolutions for the harness.

use super::geometry::{Window, three};
use super::*;
use crate::op::{Case, Entry, Tolerance};

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    vec![
        Entry { name: "conv1d", cases: conv1d_cases() },
        Entry { name: "conv2d", cases: conv2d_cases() },
        Entry { name: "conv3d", cases: conv3d_cases() },
        Entry { name: "conv_general", cases: general_cases() },
        Entry { name: "conv_transpose1d", cases: transpose1d_cases() },
        Entry { name: "conv_transpose2d", cases: transpose2d_cases() },
        Entry { name: "conv_transpose3d", cases: transpose3d_cases() },
        Entry { name: "convolve", cases: convolve_cases() },
        Entry { name: "conv_backward_weight", cases: backward_cases() },
    ]
}

/// A case of two arguments.
fn case(
    label: &str,
    input: &[usize],
    weight: &[usize],
    call: impl Fn(&Array, &Array) -> Result<Array> + Send + Sync + 'static,
) -> Case {
    Case::new(label, &[input, weight], move |x| Ok(vec![call(&x[0], &x[1])?]))
        .tolerance(Tolerance::Contraction)
}

fn conv1d_cases() -> Vec<Case> {
    vec![
        case("plain", &[2, 9, 3], &[5, 3, 3], |x, w| conv1d(x, w, 1, 0, 1, 1)),
        case("stride, padding and dilation", &[2, 11, 3], &[4, 3, 3], |x, w| {
            conv1d(x, w, 2, 3, 2, 1)
        }),
        case("groups", &[1, 8, 6], &[4, 3, 3], |x, w| conv1d(x, w, 1, 1, 1, 2)),
        case("every channel by itself", &[2, 7, 9], &[9, 4, 1], |x, w| conv1d(x, w, 1, 2, 1, 9)),
        case("every channel by itself, more than a tile", &[1, 61, 35], &[35, 4, 1], |x, w| {
            conv1d(x, w, 1, 3, 1, 35)
        }),
        case("a line in several tasks", &[2, 131, 3], &[9, 3, 3], |x, w| conv1d(x, w, 1, 1, 1, 1)),
        case("no batch", &[0, 7, 3], &[5, 3, 3], |x, w| conv1d(x, w, 1, 0, 1, 1)),
        case("no channels", &[2, 5, 0], &[3, 2, 0], |x, w| conv1d(x, w, 1, 0, 1, 1)),
        case("zeros alone", &[2, 0, 3], &[4, 2, 3], |x, w| conv1d(x, w, 1, 2, 1, 1)),
    ]
}

fn conv2d_cases() -> Vec<Case> {
    vec![
        case("plain", &[2, 5, 6, 3], &[4, 3, 2, 3], |x, w| conv2d(x, w, 1, 0, 1, 1)),
        case("padding", &[1, 7, 9, 4], &[17, 3, 3, 4], |x, w| conv2d(x, w, 1, 1, 1, 1)),
        case("stride and dilation", &[1, 9, 8, 2], &[3, 2, 3, 2], |x, w| {
            conv2d(x, w, (2, 3), (1, 2), (3, 1), 1)
        }),
        case("groups", &[2, 5, 5, 8], &[12, 2, 2, 2], |x, w| conv2d(x, w, 1, 1, 1, 4)),
        case("every channel by itself", &[1, 6, 7, 11], &[11, 3, 3, 1], |x, w| {
            conv2d(x, w, 2, 1, 1, 11)
        }),
        case("one element", &[2, 3, 4, 5], &[6, 1, 1, 5], |x, w| conv2d(x, w, 1, 0, 1, 1)),
        case("every channel by itself, with steps", &[2, 9, 8, 17], &[17, 2, 4, 1], |x, w| {
            conv2d(x, w, (2, 1), (1, 4), (3, 2), 17)
        }),
        case("more than a tile", &[1, 10, 11, 37], &[67, 3, 3, 37], |x, w| {
            conv2d(x, w, 1, 1, 1, 1)
        }),
        case(
            "windows that are transformed, of two images",
            &[2, 9, 12, 17],
            &[18, 3, 3, 17],
            |x, w| conv2d(x, w, 1, (1, 2), 1, 1),
        )
        .dtypes(&[DType::F32, DType::BF16]),
        case("groups of more than a tile", &[1, 5, 15, 10], &[66, 3, 2, 5], |x, w| {
            conv2d(x, w, 1, 1, 1, 2)
        }),
        case("a window longer than a slice", &[1, 3, 4, 203], &[9, 2, 3, 203], |x, w| {
            conv2d(x, w, 1, 1, 1, 1)
        }),
        case("small images", &[21, 3, 2, 4], &[8, 2, 2, 4], |x, w| conv2d(x, w, 1, 1, 1, 1)),
    ]
}

fn conv3d_cases() -> Vec<Case> {
    vec![
        case("plain", &[1, 3, 4, 5, 2], &[3, 2, 2, 3, 2], |x, w| conv3d(x, w, 1, 0, 1, 1)),
        case("all options", &[2, 4, 5, 4, 4], &[6, 2, 3, 2, 2], |x, w| {
            conv3d(x, w, (2, 1, 2), (1, 2, 0), (1, 2, 1), 2)
        }),
        case("every channel by itself", &[1, 4, 3, 5, 18], &[18, 2, 2, 2, 1], |x, w| {
            conv3d(x, w, 1, (1, 0, 1), (2, 1, 1), 18)
        }),
    ]
}

fn general_cases() -> Vec<Case> {
    let sides = ConvOptions {
        stride: Spatial::from([2, 1]),
        padding: Padding::sides(&[2, 0], &[1, 3]),
        kernel_dilation: Spatial::from([1, 2]),
        input_dilation: Spatial::from([2, 3]),
        groups: 2,
        flip: true,
    };
    let negative = ConvOptions { padding: Padding::sides(&[-2], &[-1]), ..ConvOptions::default() };
    let spread = ConvOptions {
        padding: Padding::from(4),
        input_dilation: Spatial::from(3),
        ..ConvOptions::default()
    };
    vec![
        case("all options", &[2, 3, 4, 4], &[6, 3, 2, 2], move |x, w| conv_general(x, w, &sides)),
        case("less than nothing around", &[1, 9, 2], &[3, 3, 2], move |x, w| {
            conv_general(x, w, &negative)
        }),
        case("more around than the window", &[1, 4, 2], &[3, 2, 2], move |x, w| {
            conv_general(x, w, &spread)
        }),
    ]
}

fn transpose1d_cases() -> Vec<Case> {
    vec![
        case("stride", &[2, 5, 3], &[4, 3, 3], |x, w| conv_transpose1d(x, w, 2, 0, 1, 0, 1)),
        case("all options", &[1, 6, 4], &[6, 3, 2], |x, w| conv_transpose1d(x, w, 3, 2, 2, 1, 2)),
    ]
}

fn transpose2d_cases() -> Vec<Case> {
    vec![
        case("stride", &[1, 3, 4, 3], &[5, 2, 3, 3], |x, w| conv_transpose2d(x, w, 2, 1, 1, 0, 1)),
        case("all options", &[2, 3, 3, 2], &[4, 3, 2, 1], |x, w| {
            conv_transpose2d(x, w, (2, 1), (1, 0), (1, 2), (1, 0), 2)
        }),
    ]
}

fn transpose3d_cases() -> Vec<Case> {
    vec![case("stride", &[1, 2, 3, 2, 2], &[3, 2, 2, 3, 2], |x, w| {
        conv_transpose3d(x, w, (1, 2, 2), 1, 1, (0, 1, 0), 1)
    })]
}

fn convolve_cases() -> Vec<Case> {
    vec![
        case("full", &[7], &[4], |a, v| convolve(a, v, ConvolveMode::Full)),
        case("same, even", &[7], &[4], |a, v| convolve(a, v, ConvolveMode::Same)),
        case("same, odd", &[5], &[9], |a, v| convolve(a, v, ConvolveMode::Same)),
        case("valid", &[4], &[9], |a, v| convolve(a, v, ConvolveMode::Valid)),
    ]
}

fn backward_cases() -> Vec<Case> {
    let back = |label: &str, input: &[usize], dy: &[usize], window: Window, kernel: &[usize]| {
        let op = ConvBackwardWeight { window, kernel: three(kernel, 1) };
        case(label, input, dy, move |x, dy| {
            Array::apply(op.clone(), &[&x.contiguous()?, &dy.contiguous()?])
        })
    };
    let plain = Window {
        rank: 2,
        stride: [1; 3],
        low: [0, 1, 1],
        kernel_dilation: [1; 3],
        input_dilation: [1; 3],
        groups: 1,
        flip: false,
    };
    vec![
        back("plain", &[2, 5, 6, 3], &[2, 5, 6, 4], plain, &[3, 3]),
        back(
            "groups and steps",
            &[2, 6, 5, 4],
            &[2, 3, 3, 6],
            Window { stride: [1, 2, 2], groups: 2, flip: true, ..plain },
            &[3, 2],
        ),
        back(
            "every channel by itself",
            &[1, 6, 5, 9],
            &[1, 6, 5, 9],
            Window { groups: 9, ..plain },
            &[3, 3],
        ),
        back(
            "every channel by itself, flipped",
            &[2, 6, 7, 35],
            &[2, 3, 3, 35],
            Window { stride: [1, 2, 2], low: [0, 1, 2], groups: 35, flip: true, ..plain },
            &[3, 5],
        ),
        back("more than a tile", &[1, 9, 17, 35], &[1, 9, 17, 34], plain, &[3, 3]),
    ]
}
