//! Operations on quantized weights: `quantize`, `dequantize`, products, and rows by index.
//!
//! The format is a parameter of each operation: whoever decodes 32 weights of it on either device takes
//! part in all of them.

mod cases;
pub(in crate::ops) mod cpu;
mod gather;
mod global_scale;
#[cfg(feature = "gpu")]
pub(in crate::ops) mod gpu;
mod matmul;
mod qqmm;
mod quantize;
#[cfg(test)]
mod tests;

pub(crate) use self::cases::entries;
pub use self::gather::{GatherQmm, gather_qmm};
pub use self::global_scale::{dequantize_global, quantize_global};
pub(in crate::ops) use self::matmul::quantized_matmul_with;
pub use self::matmul::{QuantizedMatmul, quantized_matmul};
pub use self::qqmm::{gather_qqmm, qqmm};
pub use self::quantize::{Dequantize, Quantize, dequantize, fake_quantize, quantize};
use crate::array::{Array, DType, Meta};
use crate::error::{Error, Result};
use crate::op::{Op, expect_contiguous, expect_dtype, expect_shape};
use crate::ops::{reshape, take};
use crate::quant::Scheme;

/// Quantized weights: the arrays that hold them, and how. What is read from a file is made one with
/// [`Quantized::new`]; nothing is copied.
///
/// ```
/// use wootz::quant::Format;
/// use wootz::{Array, quantize};
/// let w = wootz::arange(0.0, 64.0, 1.0, wootz::DType::F32)?.reshape(&[2, 32])?;
/// let q = quantize(&w, Format::Q8_0)?;
/// assert_eq!((q.shape(), q.codes().shape()), (vec![2, 32], &[2, 34][..]));
/// let rows = q.take(&Array::new([1, 1, 0])?, wootz::DType::F32)?;
/// assert_eq!(rows.shape(), [3, 32]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantized {
    scheme: Scheme,
    /// Codes, scales, biases: as many as the scheme has.
    arrays: Vec<Array>,
}

impl Quantized {
    /// Weights that these arrays hold: GGUF's blocks as bytes; MLX's words and scales, and for an affine
    /// scheme biases. Shapes and dtypes are checked.
    ///
    /// ```
    /// use wootz::quant::Scheme;
    /// use wootz::{Array, DType, Quantized, dequantize};
    /// let scheme = Scheme::new("affine", Some(32), Some(4))?;
    /// let words = Array::new([[0x3210u32, 0, 0, 0]])?;
    /// let (scales, biases) = (Array::new([[0.5f32]])?, Array::new([[1.0f32]])?);
    /// let q = Quantized::new(scheme, &words, Some(&scales), Some(&biases))?;
    /// assert_eq!(dequantize(&q, None)?.to_vec::<f32>()?[..5], [1.0, 1.5, 2.0, 2.5, 1.0]);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn new(
        scheme: impl Into<Scheme>,
        codes: &Array,
        scales: Option<&Array>,
        biases: Option<&Array>,
    ) -> Result<Quantized> {
        const OP: &str = "quantized";
        let scheme = scheme.into();
        scheme.check(OP)?;
        let given = [Some(codes), scales, biases];
        for (index, name) in ["codes", "scales", "biases"].iter().enumerate() {
            let wanted = index < scheme.arrays();
            if wanted != given[index].is_some() {
                let (expected, got) =
                    if wanted { ("an array", "none") } else { ("none", "an array") };
                return Err(Error::argument(OP, *name, format!("{expected} for {scheme}"), got));
            }
        }
        let arrays: Vec<Array> = given.into_iter().flatten().cloned().collect();
        let metas: Vec<&Meta> = arrays.iter().map(Array::meta).collect();
        check_weights(OP, scheme, &metas)?;
        Ok(Quantized { scheme, arrays })
    }

    /// How the weights are quantized.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The shape of the weights.
    pub fn shape(&self) -> Vec<usize> {
        weights_shape(self.scheme, self.arrays[0].meta())
    }

    /// The blocks, or the words of codes.
    pub fn codes(&self) -> &Array {
        &self.arrays[0]
    }

    /// The scales of groups, if they have an array of their own.
    pub fn scales(&self) -> Option<&Array> {
        self.arrays.get(1)
    }

    /// The biases of groups, if there are any.
    pub fn biases(&self) -> Option<&Array> {
        self.arrays.get(2)
    }

    /// The arrays: codes, scales, biases.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Rows of a matrix by index, decoded: a quantized embedding.
    pub fn take(&self, indices: &Array, dtype: DType) -> Result<Array> {
        let codes = self.codes().shape();
        if codes.len() < 2 {
            return Err(Error::shape("take", "codes", "two axes or more", codes));
        }
        let taken = self.each(|array| take(array, indices, Some(0)))?;
        dequantize(&taken, Some(dtype))
    }

    /// The same weights with each array changed alike.
    fn each(&self, change: impl Fn(&Array) -> Result<Array>) -> Result<Quantized> {
        let arrays = self.arrays.iter().map(change).collect::<Result<_>>()?;
        Ok(Quantized { scheme: self.scheme, arrays })
    }

    /// With other axes before the last two.
    fn with_batch(&self, batch: &[usize]) -> Result<Quantized> {
        self.each(|array| {
            let matrix = &array.shape()[array.rank() - 2..];
            reshape(array, &[batch, matrix].concat())
        })
    }

    /// With rows that follow each other in memory, as kernels read them.
    fn contiguous(&self) -> Result<Quantized> {
        self.each(Array::contiguous)
    }

    /// The dtype of a product with `x`.
    pub(in crate::ops) fn product_dtype(&self, op: &'static str, x: &Array) -> Result<DType> {
        let dtype = match self.scheme {
            Scheme::Affine { .. } => DType::promote(x.dtype(), self.arrays[1].dtype()),
            _ => x.dtype(),
        };
        match dtype.is_float() {
            true => Ok(dtype),
            false => Err(Error::dtype(op, "x", "a floating-point type", x.dtype())),
        }
    }
}

/// The shape of the weights whose codes have this.
pub(in crate::ops) fn weights_shape(scheme: Scheme, codes: &Meta) -> Vec<usize> {
    let mut shape = codes.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = scheme.weights(*last).unwrap_or(0);
    }
    shape
}

/// Checks the arrays of quantized weights against each other.
fn check_weights(op: &'static str, scheme: Scheme, arrays: &[&Meta]) -> Result<()> {
    let codes = arrays[0];
    let dtype = if scheme.bits().is_some() { DType::U32 } else { DType::U8 };
    if codes.dtype != dtype {
        return Err(Error::dtype(op, "codes", format!("{dtype} for {scheme}"), codes.dtype));
    }
    let last = codes.shape().last().copied();
    let Some(width) = last.and_then(|last| scheme.weights(last)) else {
        let each = scheme.codes(scheme.granule());
        let expected = format!("a last axis that is a multiple of {each}, as {scheme} has");
        return Err(Error::shape(op, "codes", expected, codes.shape()));
    };
    let mut shape = codes.shape().to_vec();
    if let (Some(last), Some(group)) = (shape.last_mut(), scheme.group_size()) {
        *last = width / group;
    }
    for (name, array) in ["scales", "biases"].iter().zip(&arrays[1..]) {
        if array.shape() != shape {
            return Err(Error::shape(op, *name, format!("{shape:?}"), array.shape()));
        }
    }
    let Some(scales) = arrays.get(1) else { return Ok(()) };
    if scheme.floats().is_some() && scales.dtype != DType::U8 {
        return Err(Error::dtype(op, "scales", format!("uint8 for {scheme}"), scales.dtype));
    }
    let Some(biases) = arrays.get(2) else { return Ok(()) };
    if !scales.dtype.is_float() {
        return Err(Error::dtype(op, "scales", "a floating-point type", scales.dtype));
    }
    if biases.dtype != scales.dtype {
        return Err(Error::dtype(op, "biases", scales.dtype, biases.dtype));
    }
    Ok(())
}

/// Checks the arrays of quantized weights among an operation's inputs, from input `first` on.
pub(in crate::ops) fn expect_weights(
    op: &dyn Op,
    scheme: Scheme,
    inputs: &[&Meta],
    first: usize,
) -> Result<()> {
    scheme.check(op.name())?;
    let arrays = inputs.get(first..first + scheme.arrays()).ok_or_else(|| {
        let expected = format!("{} arrays of weights", scheme.arrays());
        Error::argument(op.name(), "inputs", expected, inputs.len())
    })?;
    check_weights(op.name(), scheme, arrays)?;
    (first..first + scheme.arrays()).try_for_each(|input| expect_contiguous(op, inputs, input))
}

/// Checks `x` of a product: matrices with rows as long as the weights want, in the dtype of the result.
fn expect_x(op: &dyn Op, inputs: &[&Meta], shape: &[usize]) -> Result<()> {
    crate::op::expect_float(op, inputs, 0)?;
    expect_shape(op, inputs, 0, shape)?;
    expect_contiguous(op, inputs, 0)
}

/// Checks index vectors of one length and dtype.
fn expect_indices(op: &dyn Op, inputs: &[&Meta], first: usize) -> Result<usize> {
    let count = inputs[first].size();
    for index in [first, first + 1] {
        expect_dtype(op, inputs, index, inputs[first].dtype)?;
        expect_shape(op, inputs, index, &[count])?;
        expect_contiguous(op, inputs, index)?;
    }
    Ok(count)
}
