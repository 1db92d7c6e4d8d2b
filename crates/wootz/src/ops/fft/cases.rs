//! Cases of the Fourier transforms. Arguments and results are parts of complex numbers, so that values
//! and gradients are compared as those of any other function.

use crate::array::{Array, DType};
use crate::error::Result;
use crate::fft::*;
use crate::op::{Case, Entry, Gradient, Tolerance};
use crate::ops::{complex, imag, real};

/// The precision that transforms are computed in.
const SINGLE: &[DType] = &[DType::F32];

/// Cases.
pub(crate) fn entries() -> Vec<Entry> {
    type Call = fn(&Array) -> Result<Array>;
    let parts = |y: Array| -> Result<Vec<Array>> {
        Ok(if y.dtype().is_complex() { vec![real(&y)?, imag(&y)?] } else { vec![y] })
    };
    let of_complex = move |label: &str, shape: &[usize], call: Call| {
        Case::new(label, &[shape, shape], move |x| parts(call(&complex(&x[0], &x[1])?)?))
            .tolerance(Tolerance::Contraction)
            .gradient(Gradient::Single)
            .dtypes(SINGLE)
    };
    let of_real = move |label: &str, shape: &[usize], call: Call| {
        Case::new(label, &[shape], move |x| parts(call(&x[0])?))
            .tolerance(Tolerance::Contraction)
            .gradient(Gradient::Single)
            .dtypes(SINGLE)
    };
    let moved = |label: &str, shape: &[usize], call: Call| {
        Case::new(label, &[shape], move |x| Ok(vec![call(&x[0])?])).tolerance(Tolerance::Exact)
    };
    let short = || Stft { n_fft: 8, ..Stft::default() };
    let frames = Case::new("framed", &[&[2, 21], &[8]], move |x| {
        parts(stft(&x[0], &Stft { window: Some(x[1].clone()), hop_length: Some(3), ..short() })?)
    });
    let overlapped = Case::new("overlapped", &[&[5, 6], &[5, 6]], |x| {
        let spectrum = complex(&x[0], &x[1])?;
        Ok(vec![istft(&spectrum, &Istft { hop_length: Some(3), ..Istft::default() })?])
    });
    let of_frames = |case: Case| {
        case.tolerance(Tolerance::Contraction).gradient(Gradient::Single).dtypes(SINGLE)
    };
    vec![
        Entry {
            name: "fft",
            cases: vec![
                of_complex("power of two", &[3, 8], |z| fft(z, None, -1, Norm::Backward)),
                of_complex("prime", &[2, 13], |z| fft(z, None, -1, Norm::Ortho)),
                of_complex("first axis, longer", &[5, 3], |z| fft(z, Some(6), 0, Norm::Forward)),
                of_complex("shorter", &[2, 9], |z| fft(z, Some(4), 1, Norm::Backward)),
            ],
        },
        Entry {
            name: "ifft",
            cases: vec![
                of_complex("even", &[3, 6], |z| ifft(z, None, -1, Norm::Backward)),
                of_complex("odd", &[7, 2], |z| ifft(z, None, 0, Norm::Ortho)),
            ],
        },
        Entry {
            name: "rfft",
            cases: vec![
                of_real("even", &[3, 8], |x| rfft(x, None, -1, Norm::Backward)),
                of_real("odd", &[9, 2], |x| rfft(x, None, 0, Norm::Forward)),
                of_real("one", &[3, 1], |x| rfft(x, None, -1, Norm::Backward)),
            ],
        },
        Entry {
            name: "irfft",
            cases: vec![
                of_complex("even", &[3, 5], |z| irfft(z, None, -1, Norm::Backward)),
                of_complex("odd", &[3, 5], |z| irfft(z, Some(9), -1, Norm::Ortho)),
                of_complex("first axis", &[4, 3], |z| irfft(z, Some(7), 0, Norm::Forward)),
            ],
        },
        Entry {
            name: "fftn",
            cases: vec![
                of_complex("all axes", &[2, 3, 4], |z| fftn(z, None, None, Norm::Backward)),
                of_complex("sizes", &[3, 4], |z| {
                    fftn(z, Some(&[2, 6]), Some(&[1, 0]), Norm::Ortho)
                }),
            ],
        },
        Entry {
            name: "ifftn",
            cases: vec![of_complex("", &[3, 4], |z| ifftn(z, None, None, Norm::Backward))],
        },
        Entry {
            name: "rfftn",
            cases: vec![of_real("", &[3, 4], |x| rfftn(x, None, None, Norm::Backward))],
        },
        Entry {
            name: "irfftn",
            cases: vec![of_complex("", &[3, 4], |z| irfftn(z, None, None, Norm::Backward))],
        },
        Entry { name: "fftshift", cases: vec![moved("all axes", &[3, 4], |x| fftshift(x, ()))] },
        Entry { name: "ifftshift", cases: vec![moved("one axis", &[3, 5], |x| ifftshift(x, 1))] },
        Entry { name: "stft", cases: vec![of_frames(frames)] },
        Entry { name: "istft", cases: vec![of_frames(overlapped)] },
    ]
}
