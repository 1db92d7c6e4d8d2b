//! Making arrays from Rust data.

use super::{Array, DType, Element, Meta, Scalar, checked_size};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{Error, Result};

impl Array {
    /// An array of the given shape with the values of a slice, on the default device.
    pub fn from_slice<T: Element>(values: &[T], shape: &[usize]) -> Result<Array> {
        Array::from_slice_on(values, shape, &Device::default_device())
    }

    /// An array of the given shape with the values of a slice.
    pub fn from_slice_on<T: Element>(
        values: &[T],
        shape: &[usize],
        device: &Device,
    ) -> Result<Array> {
        if checked_size("array", shape, T::DTYPE)? != values.len() {
            let expected = format!("{shape:?}");
            return Err(Error::shape("array", "values", expected, &[values.len()]));
        }
        Array::from_bytes_on(&T::bytes(values), shape, T::DTYPE, device)
    }

    /// An array from the little-endian bytes of its elements in row-major order.
    pub fn from_bytes_on(
        bytes: &[u8],
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Array> {
        let meta = Meta::new("array", shape, dtype)?;
        if meta.bytes() != bytes.len() {
            let expected = format!("{} bytes for shape {shape:?} of {dtype}", meta.bytes());
            return Err(Error::argument("array", "bytes", expected, bytes.len()));
        }
        super::check_gpu_dtypes_if_gpu("array", device, &meta)?;
        Ok(Array::from_buffer(device, meta, Buffer::from_bytes(device, bytes)?))
    }

    /// An array from nested Rust arrays or vectors, whose lengths become the shape.
    ///
    /// ```
    /// use wootz::Array;
    /// let x = Array::new([[1, 2, 3], [4, 5, 6]])?;
    /// assert_eq!(x.shape(), [2, 3]);
    /// assert!(Array::new(vec![vec![1.0f32], vec![]]).is_err());
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn new<N: Nested>(values: N) -> Result<Array> {
        let mut flat = Vec::new();
        let mut shape = Vec::new();
        values.flatten_into(&mut flat, &mut shape, 0)?;
        Array::from_slice(&flat, &shape)
    }

    /// Evaluated memory with unspecified contents, for the explicit level.
    pub fn empty_on(shape: &[usize], dtype: DType, device: &Device) -> Result<Array> {
        let meta = Meta::new("empty", shape, dtype)?;
        super::check_gpu_dtypes_if_gpu("empty", device, &meta)?;
        let buffer = Buffer::alloc(device, meta.bytes())?;
        Ok(Array::from_buffer(device, meta, buffer))
    }

    /// An array of zeros.
    pub fn zeros(shape: &[usize], dtype: DType) -> Result<Array> {
        crate::ops::full(shape, 0, dtype)
    }

    /// An array of ones.
    pub fn ones(shape: &[usize], dtype: DType) -> Result<Array> {
        crate::ops::full(shape, 1, dtype)
    }

    /// A scalar array of the given dtype. It takes no memory until it is read.
    pub fn scalar(value: impl Into<Scalar>, dtype: DType) -> Result<Array> {
        crate::ops::constant(value.into(), dtype, &Device::default_device())
    }
}

/// What is an array, or nested data: as an array, of another dtype if one is asked for. An array that has
/// that dtype is itself.
///
/// ```
/// use wootz::{DType, asarray};
/// // mx.asarray([1, 2], dtype=mx.float16)
/// let x = asarray([1, 2], Some(DType::F16))?;
/// assert_eq!(x.dtype(), DType::F16);
/// assert_eq!(asarray(&x, Some(DType::F32))?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn asarray(a: impl AsArray, dtype: Option<DType>) -> Result<Array> {
    let array = a.as_array()?;
    dtype.map_or(Ok(array.clone()), |dtype| array.astype(dtype))
}

/// What [`asarray`] takes: arrays, and [nested data](Nested).
pub trait AsArray {
    /// The array, on the default device if it is made.
    fn as_array(&self) -> Result<Array>;
}

impl<N: Nested> AsArray for N {
    fn as_array(&self) -> Result<Array> {
        Array::new(self)
    }
}

impl AsArray for Array {
    fn as_array(&self) -> Result<Array> {
        Ok(self.clone())
    }
}

impl AsArray for &Array {
    fn as_array(&self) -> Result<Array> {
        Ok((*self).clone())
    }
}

/// Nested data: elements, or arrays, slices and vectors of nested data.
pub trait Nested {
    /// The innermost type.
    type Item: Element;
    /// Appends all elements and checks that inner lengths agree.
    #[doc(hidden)]
    fn flatten_into(
        &self,
        flat: &mut Vec<Self::Item>,
        shape: &mut Vec<usize>,
        depth: usize,
    ) -> Result<()>;
}

macro_rules! nested_elements {
    ($($type:ty),*) => {$(
        impl Nested for $type {
            type Item = $type;
            fn flatten_into(&self, flat: &mut Vec<$type>, _: &mut Vec<usize>, _: usize) -> Result<()> {
                flat.push(*self);
                Ok(())
            }
        }
    )*};
}

nested_elements!(
    bool,
    u8,
    u16,
    u32,
    u64,
    i8,
    i16,
    i32,
    i64,
    half::f16,
    half::bf16,
    f32,
    f64,
    num_complex::Complex32
);

impl<N: Nested> Nested for [N] {
    type Item = N::Item;
    fn flatten_into(
        &self,
        flat: &mut Vec<N::Item>,
        shape: &mut Vec<usize>,
        depth: usize,
    ) -> Result<()> {
        match shape.get(depth) {
            None => shape.push(self.len()),
            Some(&expected) if expected != self.len() => {
                let expected = format!("length {expected} at depth {depth}");
                return Err(Error::argument("array", "values", expected, self.len()));
            }
            Some(_) => {}
        }
        self.iter().try_for_each(|inner| inner.flatten_into(flat, shape, depth + 1))
    }
}

impl<N: Nested, const LENGTH: usize> Nested for [N; LENGTH] {
    type Item = N::Item;
    fn flatten_into(
        &self,
        flat: &mut Vec<N::Item>,
        shape: &mut Vec<usize>,
        depth: usize,
    ) -> Result<()> {
        self[..].flatten_into(flat, shape, depth)
    }
}

impl<N: Nested> Nested for Vec<N> {
    type Item = N::Item;
    fn flatten_into(
        &self,
        flat: &mut Vec<N::Item>,
        shape: &mut Vec<usize>,
        depth: usize,
    ) -> Result<()> {
        self[..].flatten_into(flat, shape, depth)
    }
}

impl<N: Nested + ?Sized> Nested for &N {
    type Item = N::Item;
    fn flatten_into(
        &self,
        flat: &mut Vec<N::Item>,
        shape: &mut Vec<usize>,
        depth: usize,
    ) -> Result<()> {
        (**self).flatten_into(flat, shape, depth)
    }
}
