//! How a convolution moves over its input: one number for all spatial axes, or one for each.

use smallvec::SmallVec;

use crate::error::{Error, Result};

/// A number for every spatial axis: one for all of them, or one for each.
///
/// ```
/// use wootz::Spatial;
/// assert_eq!(Spatial::from(2), Spatial::from([2]));
/// assert_ne!(Spatial::from(2), Spatial::from((2, 2)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spatial(SmallVec<[usize; 3]>);

impl Spatial {
    /// The number of each of `rank` axes.
    pub(crate) fn each(&self, op: &'static str, argument: &str, rank: usize) -> Result<Vec<usize>> {
        match self.0[..] {
            [all] => Ok(vec![all; rank]),
            _ if self.0.len() == rank => Ok(self.0.to_vec()),
            _ => {
                let expected = format!("one number, or {rank} for {rank} spatial axes");
                Err(Error::argument(op, argument, expected, format!("{:?}", &self.0[..])))
            }
        }
    }
}

impl From<usize> for Spatial {
    fn from(all: usize) -> Spatial {
        Spatial(SmallVec::from_elem(all, 1))
    }
}

impl<const N: usize> From<[usize; N]> for Spatial {
    fn from(each: [usize; N]) -> Spatial {
        Spatial(SmallVec::from_slice(&each))
    }
}

impl From<&[usize]> for Spatial {
    fn from(each: &[usize]) -> Spatial {
        Spatial(SmallVec::from_slice(each))
    }
}

impl From<(usize, usize)> for Spatial {
    fn from((first, second): (usize, usize)) -> Spatial {
        Spatial::from([first, second])
    }
}

impl From<(usize, usize, usize)> for Spatial {
    fn from((first, second, third): (usize, usize, usize)) -> Spatial {
        Spatial::from([first, second, third])
    }
}

/// Zeros around the spatial axes: the same on both sides, or not. A negative number cuts
/// elements off.
///
/// ```
/// use wootz::Padding;
/// assert_eq!(Padding::from(1), Padding::from([1]));
/// assert_eq!(Padding::from([1, 2]), Padding::sides(&[1, 2], &[1, 2]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Padding {
    low: SmallVec<[i64; 3]>,
    high: SmallVec<[i64; 3]>,
}

impl Padding {
    /// So many before the first element and so many behind the last of each axis, or of all.
    pub fn sides(low: &[i64], high: &[i64]) -> Padding {
        Padding { low: SmallVec::from_slice(low), high: SmallVec::from_slice(high) }
    }

    /// Both sides of each of `rank` axes.
    pub(crate) fn each(&self, op: &'static str, rank: usize) -> Result<Vec<(i64, i64)>> {
        let side = |side: &[i64]| match *side {
            [all] => Ok(vec![all; rank]),
            _ if side.len() == rank => Ok(side.to_vec()),
            _ => {
                let expected = format!("one number, or {rank} for {rank} spatial axes");
                Err(Error::argument(op, "padding", expected, format!("{side:?}")))
            }
        };
        Ok(side(&self.low)?.into_iter().zip(side(&self.high)?).collect())
    }
}

macro_rules! padding_from {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Padding {
            fn from(all: $integer) -> Padding {
                Padding::sides(&[all as i64], &[all as i64])
            }
        }
    )*};
}

padding_from!(i32, i64, usize);

impl<const N: usize> From<[i64; N]> for Padding {
    fn from(each: [i64; N]) -> Padding {
        Padding::sides(&each, &each)
    }
}

impl From<(i64, i64)> for Padding {
    fn from((first, second): (i64, i64)) -> Padding {
        Padding::from([first, second])
    }
}

impl From<(i64, i64, i64)> for Padding {
    fn from((first, second, third): (i64, i64, i64)) -> Padding {
        Padding::from([first, second, third])
    }
}

/// All that [`conv_general`](super::conv_general) can be told, with MLX's names and defaults.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvOptions {
    /// Steps of the window.
    pub stride: Spatial,
    /// Zeros around the input.
    pub padding: Padding,
    /// Distance between the elements of the window.
    pub kernel_dilation: Spatial,
    /// Distance between the elements of the input: zeros lie between them.
    pub input_dilation: Spatial,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether the window is read backwards along every spatial axis, as a convolution in
    /// mathematics does and one in networks does not.
    pub flip: bool,
}

impl Default for ConvOptions {
    /// Steps of one, no zeros, one group.
    fn default() -> ConvOptions {
        ConvOptions {
            stride: Spatial::from(1),
            padding: Padding::from(0),
            kernel_dilation: Spatial::from(1),
            input_dilation: Spatial::from(1),
            groups: 1,
            flip: false,
        }
    }
}
