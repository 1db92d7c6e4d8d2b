//! MLX's `mx.fft`: discrete Fourier transforms of any length, over one or several axes. They are
//! computed on the CPU; arrays of a GPU go there and back by themselves.

mod frames;

use std::str::FromStr;

pub use frames::{Istft, Stft, istft, stft};

use crate::array::{Array, DType, normalize_axis};
use crate::error::{Error, Result};
use crate::ops::fft::{Kind, transform};
use crate::ops::movement::{arange_on, pad_zeros, slice_axis};
use crate::ops::{Axes, astype, concatenate, divide, moveaxis, roll};

/// Which of a transform and its inverse is scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Norm {
    /// The inverse, by one over the length.
    #[default]
    Backward,
    /// Both, by one over the root of the length.
    Ortho,
    /// The transform, by one over the length.
    Forward,
}

impl FromStr for Norm {
    type Err = Error;

    /// By MLX's names.
    ///
    /// ```
    /// use wootz::fft::Norm;
    /// assert_eq!("ortho".parse::<Norm>()?, Norm::Ortho);
    /// assert!("none".parse::<Norm>().is_err());
    /// # Ok::<(), wootz::Error>(())
    /// ```
    fn from_str(name: &str) -> Result<Norm> {
        match name {
            "backward" => Ok(Norm::Backward),
            "ortho" => Ok(Norm::Ortho),
            "forward" => Ok(Norm::Forward),
            _ => Err(Error::argument("fft", "norm", "backward, ortho or forward", name)),
        }
    }
}

impl Norm {
    /// What the results of a transform of this length are multiplied by.
    fn scale(self, length: usize, inverse: bool) -> f32 {
        let length = length as f64;
        match (self, inverse) {
            (Norm::Backward, true) | (Norm::Forward, false) => (1.0 / length) as f32,
            (Norm::Ortho, _) => (1.0 / length.sqrt()) as f32,
            _ => 1.0,
        }
    }
}

/// The discrete Fourier transform along an axis, which is cut or padded with zeros to `n` elements.
///
/// ```
/// use wootz::fft::{Norm, fft};
/// use wootz::{Array, Complex32};
/// let x = Array::new([1.0f32, 2.0, 3.0, 4.0])?;
/// let y = fft(&x, None, -1, Norm::Backward)?; // mx.fft.fft(x)
/// assert_eq!(y.to_vec::<Complex32>()?[1], Complex32::new(-2.0, 2.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn fft(a: &Array, n: Option<usize>, axis: i64, norm: Norm) -> Result<Array> {
    one("fft", a, Kind::Forward, n, axis, norm)
}

/// The inverse of [`fft`](fft()).
///
/// ```
/// use wootz::fft::{Norm, ifft};
/// use wootz::{Array, Complex32};
/// let x = Array::new([4.0f32, 0.0])?;
/// let y = ifft(&x, None, -1, Norm::Backward)?; // mx.fft.ifft(x)
/// assert_eq!(y.to_vec::<Complex32>()?, [Complex32::new(2.0, 0.0); 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn ifft(a: &Array, n: Option<usize>, axis: i64, norm: Norm) -> Result<Array> {
    one("ifft", a, Kind::Inverse, n, axis, norm)
}

/// The transform of real numbers: the first `n / 2 + 1` elements, which tell the others. Of complex
/// numbers the real parts are taken.
///
/// ```
/// use wootz::fft::{Norm, rfft};
/// use wootz::{Array, Complex32};
/// let x = Array::new([1.0f32, 2.0, 3.0, 4.0])?;
/// let y = rfft(&x, None, -1, Norm::Backward)?; // mx.fft.rfft(x)
/// assert_eq!(y.shape(), [3]);
/// assert_eq!(y.to_vec::<Complex32>()?[2], Complex32::new(-2.0, 0.0));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rfft(a: &Array, n: Option<usize>, axis: i64, norm: Norm) -> Result<Array> {
    one("rfft", a, Kind::Real, n, axis, norm)
}

/// The inverse of [`rfft`], of `n` elements: by default an even number of them.
///
/// ```
/// use wootz::fft::{Norm, irfft, rfft};
/// use wootz::Array;
/// let x = Array::new([1.0f32, 2.0, 4.0])?;
/// let y = irfft(&rfft(&x, None, -1, Norm::Ortho)?, Some(3), -1, Norm::Ortho)?;
/// assert!(wootz::allclose(&x, &y, 1e-5, 1e-6, false)?.item::<bool>()?);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn irfft(a: &Array, n: Option<usize>, axis: i64, norm: Norm) -> Result<Array> {
    one("irfft", a, Kind::InverseReal, n, axis, norm)
}

/// [`fft`](fft()) over several axes, all of them if none are given. The sizes `s` of the results belong to
/// these axes, and cannot be given without them.
///
/// ```
/// use wootz::fft::{Norm, fftn};
/// let x = wootz::Array::new([[1.0f32, 2.0], [3.0, 4.0]])?;
/// let y = fftn(&x, None, None, Norm::Backward)?; // mx.fft.fftn(x)
/// assert_eq!(wootz::real(&y)?.to_vec::<f32>()?, [10.0, -2.0, -4.0, 0.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn fftn(a: &Array, s: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Array> {
    several("fftn", a, Kind::Forward, s, axes, norm)
}

/// The inverse of [`fftn`].
///
/// ```
/// use wootz::fft::{Norm, ifftn};
/// let x = wootz::Array::new([[4.0f32, 0.0], [0.0, 0.0]])?;
/// let y = ifftn(&x, None, None, Norm::Backward)?; // mx.fft.ifftn(x)
/// assert_eq!(wootz::real(&y)?.to_vec::<f32>()?, [1.0; 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn ifftn(a: &Array, s: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Array> {
    several("ifftn", a, Kind::Inverse, s, axes, norm)
}

/// [`rfft`] over the last of several axes, then [`fft`](fft()) over the others.
///
/// ```
/// use wootz::fft::{Norm, rfftn};
/// let x = wootz::Array::new([[1.0f32, 2.0, 3.0], [3.0, 4.0, 5.0]])?;
/// assert_eq!(rfftn(&x, None, None, Norm::Backward)?.shape(), [2, 2]); // mx.fft.rfftn(x)
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rfftn(a: &Array, s: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Array> {
    several("rfftn", a, Kind::Real, s, axes, norm)
}

/// The inverse of [`rfftn`].
///
/// ```
/// use wootz::fft::{Norm, irfftn};
/// let x = wootz::Array::new([[4.0f32, 0.0], [0.0, 0.0]])?;
/// let y = irfftn(&x, None, None, Norm::Backward)?; // mx.fft.irfftn(x)
/// assert_eq!(y.to_vec::<f32>()?, [1.0; 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn irfftn(a: &Array, s: Option<&[usize]>, axes: Option<&[i64]>, norm: Norm) -> Result<Array> {
    several("irfftn", a, Kind::InverseReal, s, axes, norm)
}

/// Defines the functions of two axes: those of several, over the last two by default.
macro_rules! of_two_axes {
    ($($name:ident => $of:ident),*) => {$(
        #[doc = concat!("[`", stringify!($of), "`] over two axes; in MLX the default is `[-2, -1]`.")]
        ///
        /// ```
        #[doc = concat!("use wootz::fft::{Norm, ", stringify!($name), "};")]
        /// let x = wootz::Array::ones(&[2, 3, 4], wootz::DType::F32)?;
        #[doc = concat!("let y = ", stringify!($name),
            "(&x, None, Some(&[-2, -1]), Norm::Backward)?; // mx.fft.", stringify!($name), "(x)")]
        /// assert_eq!(y.shape()[..2], [2, 3]);
        /// # Ok::<(), wootz::Error>(())
        /// ```
        pub fn $name(
            a: &Array,
            s: Option<&[usize]>,
            axes: Option<&[i64]>,
            norm: Norm,
        ) -> Result<Array> {
            $of(a, s, axes, norm)
        }
    )*};
}

of_two_axes!(fft2 => fftn, ifft2 => ifftn, rfft2 => rfftn, irfft2 => irfftn);

/// The elements with that of frequency zero in the middle of the axes, all of them with `()`.
///
/// ```
/// use wootz::fft::fftshift;
/// let x = wootz::Array::new([0, 1, 2, -2, -1])?;
/// assert_eq!(fftshift(&x, ())?.to_vec::<i32>()?, [-2, -1, 0, 1, 2]); // mx.fft.fftshift(x)
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn fftshift(a: &Array, axes: impl Into<Axes>) -> Result<Array> {
    shifted("fftshift", a, axes.into(), 1)
}

/// The inverse of [`fftshift`].
///
/// ```
/// use wootz::fft::ifftshift;
/// let x = wootz::Array::new([-2, -1, 0, 1, 2])?;
/// assert_eq!(ifftshift(&x, ())?.to_vec::<i32>()?, [0, 1, 2, -2, -1]); // mx.fft.ifftshift(x)
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn ifftshift(a: &Array, axes: impl Into<Axes>) -> Result<Array> {
    shifted("ifftshift", a, axes.into(), -1)
}

/// The frequencies that the elements of a transform of `n` samples stand for, `d` being the time between
/// two of them.
///
/// ```
/// use wootz::fft::fftfreq;
/// let f = fftfreq(4, 1.0)?; // mx.fft.fftfreq(4)
/// assert_eq!(f.to_vec::<f32>()?, [0.0, 0.25, -0.5, -0.25]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn fftfreq(n: usize, d: f64) -> Result<Array> {
    let whole = (n.div_ceil(2)) as f64;
    let rising = numbers("fftfreq", n, d, 0.0, whole)?;
    let negative = numbers("fftfreq", n, d, whole - n as f64, 0.0)?;
    divide(concatenate(&[rising, negative], 0)?, n as f64 * d)
}

/// The frequencies of the elements of [`rfft`].
///
/// ```
/// use wootz::fft::rfftfreq;
/// assert_eq!(rfftfreq(4, 1.0)?.to_vec::<f32>()?, [0.0, 0.25, 0.5]); // mx.fft.rfftfreq(4)
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn rfftfreq(n: usize, d: f64) -> Result<Array> {
    divide(numbers("rfftfreq", n, d, 0.0, (n / 2 + 1) as f64)?, n as f64 * d)
}

/// Whole numbers as floats, for frequencies of `n` samples.
fn numbers(op: &'static str, n: usize, d: f64, start: f64, stop: f64) -> Result<Array> {
    if n == 0 {
        return Err(Error::argument(op, "n", "at least 1", n));
    }
    if d == 0.0 {
        return Err(Error::argument(op, "d", "a number other than 0", d));
    }
    arange_on(start, stop, 1.0, DType::F32, &crate::device::Device::default_device())
}

fn shifted(op: &'static str, a: &Array, axes: Axes, sign: i64) -> Result<Array> {
    let axes = match axes {
        Axes::All => (0..a.rank()).collect(),
        Axes::These(axes) => (axes.iter())
            .map(|&axis| normalize_axis(op, axis, a.rank()))
            .collect::<Result<Vec<_>>>()?,
    };
    let mut moved = a.clone();
    for axis in axes {
        let shift = sign * (a.shape()[axis] / 2) as i64;
        if shift != 0 {
            moved = roll(&moved, shift, axis)?;
        }
    }
    Ok(moved)
}

/// A transform along one axis.
fn one(
    op: &'static str,
    a: &Array,
    kind: Kind,
    n: Option<usize>,
    axis: i64,
    norm: Norm,
) -> Result<Array> {
    let axis = normalize_axis(op, axis, a.rank())?;
    let length = n.unwrap_or_else(|| default_length(kind, a.shape()[axis]));
    along(op, a, kind, length, axis, norm)
}

/// Transforms along several axes; of real numbers the last one first, or of inverses last.
fn several(
    op: &'static str,
    a: &Array,
    kind: Kind,
    s: Option<&[usize]>,
    axes: Option<&[i64]>,
    norm: Norm,
) -> Result<Array> {
    if a.rank() == 0 {
        return Err(Error::shape(op, "a", "one of at least one axis", a.shape()));
    }
    let axes = match (axes, s) {
        (Some(axes), _) => axes.to_vec(),
        (None, None) => (0..a.rank() as i64).collect(),
        (None, Some(s)) => {
            let expected = "the axes that the sizes s belong to";
            return Err(Error::argument(op, "axes", expected, format!("none for {s:?}")));
        }
    };
    let axes = in_order(op, &axes, a.rank())?;
    let Some((&last, others)) = axes.split_last() else { return Ok(a.clone()) };
    let sizes: Vec<usize> = match s {
        Some(s) if s.len() == axes.len() => s.to_vec(),
        Some(s) => {
            let expected = format!("{} sizes, one for each axis", axes.len());
            return Err(Error::argument(op, "s", expected, format!("{s:?}")));
        }
        None => {
            let mut sizes: Vec<usize> = axes.iter().map(|&axis| a.shape()[axis]).collect();
            sizes[axes.len() - 1] = default_length(kind, a.shape()[last]);
            sizes
        }
    };
    if sizes.contains(&0) {
        return Err(Error::argument(op, "s", "sizes of at least 1", format!("{sizes:?}")));
    }
    let length = sizes[axes.len() - 1];
    let (first, complex, behind) = match kind {
        Kind::Forward | Kind::Real => (Some(kind), Kind::Forward, None),
        Kind::Inverse | Kind::InverseReal => (None, Kind::Inverse, Some(kind)),
    };
    let mut y = a.clone();
    if let Some(kind) = first {
        y = along(op, &y, kind, length, last, norm)?;
    }
    for (&axis, &size) in others.iter().zip(&sizes) {
        y = along(op, &y, complex, size, axis, norm)?;
    }
    match behind {
        Some(kind) => along(op, &y, kind, length, last, norm),
        None => Ok(y),
    }
}

/// The axes counted from the front, in their order, each once.
fn in_order(op: &'static str, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    let mut normal = Vec::with_capacity(axes.len());
    for &axis in axes {
        let axis = normalize_axis(op, axis, rank)?;
        if normal.contains(&axis) {
            return Err(Error::argument(op, "axes", "distinct axes", format!("{axes:?}")));
        }
        normal.push(axis);
    }
    Ok(normal)
}

/// The length of a transform of an axis whose length nobody chose.
fn default_length(kind: Kind, length: usize) -> usize {
    if kind == Kind::InverseReal { 2 * length.saturating_sub(1) } else { length }
}

fn along(
    op: &'static str,
    a: &Array,
    kind: Kind,
    length: usize,
    axis: usize,
    norm: Norm,
) -> Result<Array> {
    if length == 0 {
        return Err(Error::argument(op, "n", "at least 1", length));
    }
    let x = astype(a, if kind == Kind::Real { DType::F32 } else { DType::C64 })?;
    let given = if kind == Kind::InverseReal { length / 2 + 1 } else { length };
    let x = moveaxis(&resized(&x, axis, given)?, axis as i64, -1)?;
    let inverse = matches!(kind, Kind::Inverse | Kind::InverseReal);
    moveaxis(&transform(&x, kind, length, norm.scale(length, inverse))?, -1, axis as i64)
}

/// The array cut, or padded with zeros, to `length` elements along an axis.
fn resized(x: &Array, axis: usize, length: usize) -> Result<Array> {
    let present = x.shape()[axis];
    if present >= length {
        return slice_axis(x, axis, 0, length, 1);
    }
    let mut widths = vec![(0, 0); x.rank()];
    widths[axis].1 = length - present;
    pad_zeros(x, &widths)
}
