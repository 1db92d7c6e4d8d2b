//! Types of GGUF tensors: numbers, which become arrays, and quantized blocks, which stay bytes.

use std::fmt;

use crate::array::{DType, checked_size};
use crate::quant::Format;

/// What a tensor of a GGUF file is made of.
///
/// ```
/// use wootz::{DType, io::gguf::TensorType};
/// assert_eq!(TensorType::from_ggml_type(30), Some(TensorType::Numbers(DType::BF16)));
/// assert_eq!(TensorType::from_ggml_type(8).map(|kind| kind.to_string()).as_deref(), Some("Q8_0"));
/// assert_eq!(TensorType::from_ggml_type(1234), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorType {
    /// Numbers, as arrays have them.
    Numbers(DType),
    /// Blocks of quantized numbers.
    Blocks(Format),
    /// Q8_1 with scale and sum in single precision: 40 bytes for 32 numbers, as ggml had it at first and as the package
    /// `gguf` still sizes it. Its bytes are read and written; nothing computes with them.
    Q8_1Single,
}

/// Numbers in a block of [`TensorType::Q8_1Single`], and its bytes.
const Q8_1_SINGLE: (usize, usize) = (32, 40);

/// Types of numbers: name and number in files, and the arrays' dtype.
const NUMBERS: [(&str, u32, DType); 8] = [
    ("F32", 0, DType::F32),
    ("F16", 1, DType::F16),
    ("I8", 24, DType::I8),
    ("I16", 25, DType::I16),
    ("I32", 26, DType::I32),
    ("I64", 27, DType::I64),
    ("F64", 28, DType::F64),
    ("BF16", 30, DType::BF16),
];

impl TensorType {
    /// The type that has this number in files.
    pub fn from_ggml_type(ggml_type: u32) -> Option<TensorType> {
        let numbers = NUMBERS.iter().find(|(_, number, _)| *number == ggml_type);
        let blocks = || Format::from_ggml_type(ggml_type).map(TensorType::Blocks);
        numbers.map(|row| TensorType::Numbers(row.2)).or_else(blocks)
    }

    /// The type's number in files; nothing for a dtype that they cannot hold.
    pub fn ggml_type(self) -> Option<u32> {
        match self {
            TensorType::Numbers(dtype) => row(dtype).map(|row| row.1),
            TensorType::Blocks(format) => Some(format.ggml_type()),
            TensorType::Q8_1Single => Some(Format::Q8_1.ggml_type()),
        }
    }

    /// The dtype of the array that holds a tensor: blocks are bytes.
    pub fn dtype(self) -> DType {
        match self {
            TensorType::Numbers(dtype) => dtype,
            TensorType::Blocks(_) | TensorType::Q8_1Single => DType::U8,
        }
    }

    /// The shape of the array that holds a tensor: with blocks the last axis counts bytes.
    pub(super) fn array_shape(self, shape: &[usize]) -> Result<Vec<usize>, String> {
        let mut shape = shape.to_vec();
        let (elements, bytes) = match self {
            TensorType::Numbers(_) => return Ok(shape),
            TensorType::Blocks(format) => (format.block_elements(), format.block_bytes()),
            TensorType::Q8_1Single => Q8_1_SINGLE,
        };
        let row = shape.last_mut().ok_or_else(|| format!("a scalar cannot be {self}"))?;
        if !row.is_multiple_of(elements) {
            return Err(format!("rows of {row} are not whole blocks of {elements} ({self})"));
        }
        let bytes = (*row / elements).checked_mul(bytes);
        *row = bytes.ok_or_else(|| format!("rows of {row} overflow"))?;
        Ok(shape)
    }

    /// The bytes of a tensor.
    pub(super) fn bytes(self, shape: &[usize]) -> Result<usize, String> {
        let size = checked_size("gguf", &self.array_shape(shape)?, self.dtype());
        size.map(|size| size * self.dtype().size())
            .map_err(|_| format!("shape {shape:?} overflows"))
    }
}

fn row(dtype: DType) -> Option<&'static (&'static str, u32, DType)> {
    NUMBERS.iter().find(|row| row.2 == dtype)
}

impl fmt::Display for TensorType {
    /// As GGUF's tools write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorType::Numbers(dtype) => match row(*dtype) {
                Some((name, ..)) => f.pad(name),
                None => fmt::Display::fmt(dtype, f),
            },
            TensorType::Blocks(format) => fmt::Display::fmt(format, f),
            TensorType::Q8_1Single => fmt::Display::fmt(&Format::Q8_1, f),
        }
    }
}
