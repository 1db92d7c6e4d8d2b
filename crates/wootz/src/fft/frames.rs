//! Transforms of short, overlapping frames of a signal, and back.

use super::{Norm, fft, ifft, irfft, resized, rfft};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::ops::movement::{pad_zeros, slice_axis};
use crate::ops::{
    PadMode, PadWidth, as_strided, broadcast_to, divide, full, maximum, multiply, pad, real,
    reshape, square, swapaxes, take_along_axis_backward, to_device,
};

/// How [`stft`] cuts a signal into frames. The defaults are MLX's.
#[derive(Clone)]
pub struct Stft {
    /// Samples of a frame.
    pub n_fft: usize,
    /// Samples from the start of a frame to that of the next; a quarter of a frame by default.
    pub hop_length: Option<usize>,
    /// Samples of the window where none is given; those of a frame by default.
    pub win_length: Option<usize>,
    /// What frames are multiplied by: a vector, with zeros around it if it is shorter than a frame. Ones
    /// by default.
    pub window: Option<Array>,
    /// Whether half a frame is added at either end, so that a frame is about the sample it starts at.
    pub center: bool,
    /// What is added there.
    pub pad_mode: PadMode,
    /// How transforms are scaled.
    pub norm: Norm,
    /// Whether only frequencies that are not negative are returned; by default those of real signals.
    pub onesided: Option<bool>,
}

impl Default for Stft {
    fn default() -> Stft {
        Stft {
            n_fft: 2048,
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            pad_mode: PadMode::Reflect,
            norm: Norm::Backward,
            onesided: None,
        }
    }
}

/// How [`istft`] joins frames. The defaults are MLX's.
#[derive(Clone)]
pub struct Istft {
    /// Samples of a frame; by default what the number of frequencies tells, and even if these are
    /// one-sided.
    pub n_fft: Option<usize>,
    /// Samples from the start of a frame to that of the next; a quarter of a frame by default.
    pub hop_length: Option<usize>,
    /// Samples of the window where none is given; those of a frame by default.
    pub win_length: Option<usize>,
    /// What frames were multiplied by.
    pub window: Option<Array>,
    /// Whether the frames were centred.
    pub center: bool,
    /// How transforms were scaled.
    pub norm: Norm,
    /// Whether there are only frequencies that are not negative.
    pub onesided: bool,
    /// Samples to return: more are cut off, missing ones are zeros.
    pub length: Option<usize>,
}

impl Default for Istft {
    fn default() -> Istft {
        Istft {
            n_fft: None,
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            norm: Norm::Backward,
            onesided: true,
            length: None,
        }
    }
}

/// The transforms of overlapping frames of the last axis, each multiplied by a window: `[…, frequencies,
/// frames]`.
///
/// ```
/// use wootz::fft::{Stft, stft};
/// let x = wootz::Array::ones(&[16], wootz::DType::F32)?;
/// let y = stft(&x, &Stft { n_fft: 8, ..Stft::default() })?; // mx.fft.stft(x, n_fft=8)
/// assert_eq!(y.shape(), [5, 9]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn stft(x: &Array, options: &Stft) -> Result<Array> {
    let Stft { n_fft, center, pad_mode, norm, .. } = *options;
    if x.rank() == 0 {
        return Err(Error::shape("stft", "x", "one of at least one axis", x.shape()));
    }
    let hop = hop_length("stft", n_fft, options.hop_length)?;
    let window = window("stft", options.window.as_ref(), options.win_length, n_fft, x)?;
    let last = x.rank() - 1;
    let mut x = x.clone();
    let onesided = options.onesided.unwrap_or(!x.dtype().is_complex());
    if center {
        let mut widths = vec![(0, 0); x.rank()];
        widths[last] = (n_fft / 2, n_fft / 2);
        x = pad(&x, PadWidth::Each(widths), pad_mode, 0)?;
    }
    let length = x.shape()[last];
    if length < n_fft {
        let expected = format!("one of at least the {n_fft} samples of a frame");
        return Err(Error::shape("stft", "x", expected, x.shape()));
    }
    let mut shape = x.shape().to_vec();
    shape[last] = (length - n_fft) / hop + 1;
    shape.push(n_fft);
    let x = x.contiguous()?;
    let mut strides = x.strides().to_vec();
    strides[last] = hop as isize;
    strides.push(1);
    let frames = multiply(as_strided(&x, &shape, &strides, 0)?, window)?;
    let spectra = match onesided {
        true => rfft(&frames, Some(n_fft), -1, norm)?,
        false => fft(&frames, Some(n_fft), -1, norm)?,
    };
    swapaxes(&spectra, -1, -2)
}

/// The signal that [`stft`] made these transforms of: frames are transformed back, multiplied by the
/// window, added where they overlap and divided by the sum of the squared windows there.
///
/// ```
/// use wootz::fft::{Istft, Stft, istft, stft};
/// let x = wootz::arange(0.0, 16.0, 1.0, wootz::DType::F32)?;
/// let y = stft(&x, &Stft { n_fft: 8, ..Stft::default() })?;
/// let z = istft(&y, &Istft::default())?; // mx.fft.istft(y)
/// assert!(wootz::allclose(&x, &z, 1e-4, 1e-4, false)?.item::<bool>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn istft(stft_matrix: &Array, options: &Istft) -> Result<Array> {
    let shape = stft_matrix.shape();
    let [batch @ .., frequencies, count] = shape else {
        let expected = "one of at least two axes: frequencies and frames";
        return Err(Error::shape("istft", "stft_matrix", expected, shape));
    };
    if shape.contains(&0) {
        return Err(Error::shape("istft", "stft_matrix", "one that is not empty", shape));
    }
    let natural = if options.onesided { 2 * (frequencies - 1) } else { *frequencies };
    let n_fft = options.n_fft.unwrap_or(natural);
    let hop = hop_length("istft", n_fft, options.hop_length)?;
    let like = stft_matrix;
    let window = window("istft", options.window.as_ref(), options.win_length, n_fft, like)?;
    let spectra = swapaxes(stft_matrix, -1, -2)?;
    let frames = match options.onesided {
        true => irfft(&spectra, Some(n_fft), -1, options.norm)?,
        false => real(ifft(&spectra, Some(n_fft), -1, options.norm)?)?,
    };
    let total = n_fft + hop * (count - 1);
    let envelope = broadcast_to(&square(&window)?, &[*count, n_fft])?;
    let envelope = maximum(overlap_add(&envelope, hop, total)?, SMALLEST_ENVELOPE)?;
    let signal = divide(overlap_add(&multiply(frames, &window)?, hop, total)?, envelope)?;
    let start = if options.center { n_fft / 2 } else { 0 };
    let stop = match options.length {
        Some(length) => start + length,
        None => total.saturating_sub(start).max(start),
    };
    let last = batch.len();
    let from = start.min(total);
    let kept = slice_axis(&signal, last, from, stop.min(total).max(from), 1)?;
    resized(&kept, last, stop - start)
}

/// What overlapping windows are at least taken to sum to.
const SMALLEST_ENVELOPE: f64 = 1e-8;

/// Frames `[…, frames, samples]` added into signals of `total` samples, each `hop` after the one before.
fn overlap_add(frames: &Array, hop: usize, total: usize) -> Result<Array> {
    let [batch @ .., count, length] = frames.shape() else {
        return Err(Error::shape("istft", "frames", "one of at least two axes", frames.shape()));
    };
    let places: Vec<u32> =
        (0..count * length).map(|i| (i / length * hop + i % length) as u32).collect();
    let places = Array::from_slice_on(&places, &[places.len()], frames.device())?;
    let flat = [batch, &[count * length]].concat();
    let places = broadcast_to(&places, &flat)?;
    let values = reshape(frames, &flat)?;
    take_along_axis_backward(&places, &values, batch.len() as i64, total)
}

fn hop_length(op: &'static str, n_fft: usize, hop: Option<usize>) -> Result<usize> {
    if n_fft == 0 {
        return Err(Error::argument(op, "n_fft", "at least 1", n_fft));
    }
    match hop.unwrap_or(n_fft / 4) {
        0 => Err(Error::argument(op, "hop_length", "at least 1", 0)),
        hop => Ok(hop),
    }
}

/// The window with zeros around it, as long as a frame.
fn window(
    op: &'static str,
    window: Option<&Array>,
    length: Option<usize>,
    n_fft: usize,
    beside: &Array,
) -> Result<Array> {
    let window = match window {
        Some(window) if window.rank() == 1 => to_device(window, beside.device())?,
        Some(window) => return Err(Error::shape(op, "window", "a vector", window.shape())),
        None => {
            let ones = full(&[length.unwrap_or(n_fft)], 1.0, DType::F32)?;
            to_device(&ones, beside.device())?
        }
    };
    let size = window.size();
    if size > n_fft {
        let expected = format!("at most {n_fft} samples, those of a frame");
        return Err(Error::argument(op, "window", expected, size));
    }
    let before = (n_fft - size) / 2;
    pad_zeros(&window, &[(before, n_fft - size - before)])
}
