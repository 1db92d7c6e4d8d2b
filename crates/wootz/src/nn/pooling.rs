//! Pools: the largest element or the mean of windows that move over an array.

use super::Module;
use crate::array::Array;
use crate::error::{Error, Result};
use crate::ops::{PadMode, Spatial, as_strided, max, mean, pad, reshape, transpose_axes};

/// What becomes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Max,
    Average,
}

/// Windows that move over the spatial axes of `[batch, …, channels]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pool {
    name: &'static str,
    kind: Kind,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
}

impl Pool {
    fn new(
        name: &'static str,
        kind: Kind,
        rank: usize,
        kernel: Spatial,
        stride: Option<Spatial>,
        padding: Spatial,
    ) -> Result<Pool> {
        let stride = stride.unwrap_or_else(|| kernel.clone());
        let kernel = kernel.each(name, "kernel_size", rank)?;
        let stride = stride.each(name, "stride", rank)?;
        for (argument, numbers) in [("kernel_size", &kernel), ("stride", &stride)] {
            if numbers.contains(&0) {
                let got = format!("{numbers:?}");
                return Err(Error::argument(name, argument, "positive numbers", got));
            }
        }
        Ok(Pool { name, kind, kernel, stride, padding: padding.each(name, "padding", rank)? })
    }

    fn forward(&self, x: &Array) -> Result<Array> {
        let rank = self.kernel.len();
        if x.rank() != rank + 2 {
            let expected = format!("[batch, …, channels] with {rank} spatial axes");
            return Err(Error::shape(self.name, "x", expected, x.shape()));
        }
        let mut padded = x.clone();
        if self.padding.iter().any(|&side| side > 0) {
            let sides = self.padding.iter().map(|&side| (side, side));
            let widths: Vec<_> = [(0, 0)].into_iter().chain(sides).chain([(0, 0)]).collect();
            let value = match self.kind {
                Kind::Max => f64::NEG_INFINITY,
                Kind::Average => 0.0,
            };
            padded = pad(x, &widths[..], PadMode::Constant, value)?;
        }
        let windows = self.windows(&padded)?;
        let axes: Vec<i64> = (rank as i64 + 1..2 * rank as i64 + 1).collect();
        match self.kind {
            Kind::Max => max(&windows, &axes[..], false),
            Kind::Average => mean(&windows, &axes[..], false),
        }
    }

    /// `[batch, windows…, kernel…, channels]`.
    fn windows(&self, x: &Array) -> Result<Array> {
        let (rank, shape) = (self.kernel.len(), x.shape());
        let (batch, channels) = (shape[0], shape[rank + 1]);
        let lengths = &shape[1..=rank];
        let mut counts = Vec::with_capacity(rank);
        for (axis, &length) in lengths.iter().enumerate() {
            let (kernel, stride) = (self.kernel[axis], self.stride[axis]);
            // As MLX counts them: a window that is too long by less than a step is none.
            match (length + stride).checked_sub(kernel) {
                Some(room) => counts.push(room / stride),
                None => {
                    let expected = format!("at most {length} along spatial axis {axis}, padded");
                    return Err(Error::argument(self.name, "kernel_size", expected, kernel));
                }
            }
        }
        let whole = |axis: usize| {
            self.kernel[axis] == self.stride[axis]
                && lengths[axis].is_multiple_of(self.kernel[axis])
        };
        if (0..rank).all(whole) {
            // Windows that tile the array are the array with more axes.
            let mut split = vec![batch];
            for (length, kernel) in lengths.iter().zip(&self.kernel) {
                split.extend([length / kernel, *kernel]);
            }
            split.push(channels);
            let last = split.len() as i64 - 1;
            let order: Vec<i64> = [0]
                .into_iter()
                .chain((1..last).step_by(2))
                .chain((2..last).step_by(2))
                .chain([last])
                .collect();
            return transpose_axes(&reshape(x, &split)?, &order);
        }
        // From an element to the next along each axis of the row-major array.
        let mut steps = vec![1usize; rank + 2];
        for axis in (0..=rank).rev() {
            steps[axis] = steps[axis + 1] * shape[axis + 1];
        }
        let mut shape = vec![batch];
        let mut strides = vec![steps[0]];
        for axis in 0..rank {
            shape.push(counts[axis]);
            strides.push(steps[axis + 1] * self.stride[axis]);
        }
        shape.extend(&self.kernel);
        strides.extend(&steps[1..=rank]);
        shape.push(channels);
        strides.push(1);
        let strides: Vec<isize> = strides.into_iter().map(|stride| stride as isize).collect();
        as_strided(x, &shape, &strides, 0)
    }
}

/// A layer that is a pool.
macro_rules! pool {
    ($(#[$doc:meta])* $name:ident, $kind:expr, $rank:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, wootz_macros::Tree)]
        pub struct $name {
            #[wootz(value)]
            pool: Pool,
        }

        impl $name {
            /// Windows of `kernel_size` elements, `stride` apart; without a stride they lie side
            /// by side. `padding` elements on both sides of every spatial axis count as the
            /// smallest there are for a maximum, and as zeros for a mean.
            pub fn new(
                kernel_size: impl Into<Spatial>,
                stride: Option<Spatial>,
                padding: impl Into<Spatial>,
            ) -> Result<$name> {
                let (kernel, padding) = (kernel_size.into(), padding.into());
                let name = stringify!($name);
                Ok($name { pool: Pool::new(name, $kind, $rank, kernel, stride, padding)? })
            }
        }

        impl Module for $name {
            fn forward(&self, x: &Array) -> Result<Array> {
                self.pool.forward(x)
            }
        }
    };
}

pool! {
    /// The largest elements of windows over `[batch, length, channels]`. In MLX:
    /// `nn.MaxPool1d(kernel_size=2, stride=1)`.
    ///
    /// ```
    /// use wootz::{Array, nn::{MaxPool1d, Module}};
    /// let x = Array::new([[[1.0f32], [3.0], [2.0]]])?;
    /// let y = MaxPool1d::new(2, Some(1.into()), 0)?.forward(&x)?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 3.0]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    MaxPool1d, Kind::Max, 1
}

pool! {
    /// The largest elements of windows over `[batch, height, width, channels]`. In MLX:
    /// `nn.MaxPool2d(kernel_size=2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{MaxPool2d, Module}};
    /// let x = Array::ones(&[1, 4, 6, 3], DType::F32)?;
    /// assert_eq!(MaxPool2d::new(2, None, 0)?.forward(&x)?.shape(), [1, 2, 3, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    MaxPool2d, Kind::Max, 2
}

pool! {
    /// The largest elements of windows over `[batch, depth, height, width, channels]`. In MLX:
    /// `nn.MaxPool3d(kernel_size=2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{MaxPool3d, Module}};
    /// let x = Array::ones(&[1, 2, 4, 6, 3], DType::F32)?;
    /// assert_eq!(MaxPool3d::new(2, None, 0)?.forward(&x)?.shape(), [1, 1, 2, 3, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    MaxPool3d, Kind::Max, 3
}

pool! {
    /// The means of windows over `[batch, length, channels]`. In MLX:
    /// `nn.AvgPool1d(kernel_size=2, padding=1)`.
    ///
    /// ```
    /// use wootz::{Array, nn::{AvgPool1d, Module}};
    /// let x = Array::new([[[1.0f32], [3.0]]])?;
    /// let y = AvgPool1d::new(2, None, 1)?.forward(&x)?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.5, 1.5]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    AvgPool1d, Kind::Average, 1
}

pool! {
    /// The means of windows over `[batch, height, width, channels]`. In MLX:
    /// `nn.AvgPool2d(kernel_size=2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{AvgPool2d, Module}};
    /// let x = Array::ones(&[1, 4, 6, 3], DType::F32)?;
    /// assert_eq!(AvgPool2d::new((2, 3), None, 0)?.forward(&x)?.shape(), [1, 2, 2, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    AvgPool2d, Kind::Average, 2
}

pool! {
    /// The means of windows over `[batch, depth, height, width, channels]`. In MLX:
    /// `nn.AvgPool3d(kernel_size=2)`.
    ///
    /// ```
    /// use wootz::{Array, DType, nn::{AvgPool3d, Module}};
    /// let x = Array::ones(&[1, 2, 4, 6, 3], DType::F32)?;
    /// assert_eq!(AvgPool3d::new(2, None, 0)?.forward(&x)?.shape(), [1, 1, 2, 3, 3]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    AvgPool3d, Kind::Average, 3
}
