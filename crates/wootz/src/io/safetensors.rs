//! The safetensors format: named arrays in one file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};

use crate::array::{Array, DType};
use crate::device::Device;
use crate::error::{Error, Result};

/// The arrays of a safetensors file, by name, on the default device.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-arrays.safetensors");
/// io::save_safetensors(&file, &BTreeMap::from([("x".to_string(), Array::new([1, 2])?)]))?;
/// assert_eq!(io::load_safetensors(&file)?["x"].to_vec::<i32>()?, [1, 2]);
/// assert!(io::load_safetensors(std::path::Path::new("not there")).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn load_safetensors(file: &Path) -> Result<BTreeMap<String, Array>> {
    let bytes = std::fs::read(file).map_err(|source| io_error(file, source))?;
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| in_file(file, error))?;
    let device = Device::default_device();
    let array = |(name, view): (&str, safetensors::tensor::TensorView<'_>)| {
        let Some((dtype, _)) = DTYPES.iter().find(|(_, theirs)| *theirs == view.dtype()) else {
            let reason =
                format!("{name} has the dtype {:?}, which arrays cannot have", view.dtype());
            return Err(Error::Format { path: file.display().to_string(), reason });
        };
        let array = Array::from_bytes_on(view.data(), view.shape(), *dtype, &device)?;
        Ok((name.to_string(), array))
    };
    tensors.iter().map(array).collect()
}

/// Writes arrays to a safetensors file under their names.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let arrays = BTreeMap::from([("x".to_string(), Array::new([1.5f32])?)]);
/// io::save_safetensors(&std::env::temp_dir().join("wootz-doc-one.safetensors"), &arrays)?;
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_safetensors(file: &Path, arrays: &BTreeMap<String, Array>) -> Result<()> {
    let tensors = arrays.iter().map(|(name, array)| Ok((name, Tensor::read(array)?)));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let metadata = HashMap::from([("format".to_string(), "mlx".to_string())]);
    safetensors::serialize_to_file(tensors, Some(metadata), file)
        .map_err(|error| in_file(file, error))
}

const DTYPES: [(DType, Dtype); 13] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
];

/// An array's elements on the host, as the format wants them.
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensor {
    fn read(array: &Array) -> Result<Tensor> {
        let Some((_, dtype)) = DTYPES.iter().find(|(ours, _)| *ours == array.dtype()) else {
            let expected = "a dtype of the format";
            return Err(Error::dtype("save_safetensors", "arrays", expected, array.dtype()));
        };
        Ok(Tensor { dtype: *dtype, shape: array.shape().to_vec(), bytes: array.to_bytes()? })
    }
}

impl View for Tensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

fn in_file(file: &Path, error: SafeTensorError) -> Error {
    match error {
        SafeTensorError::IoError(source) => io_error(file, source),
        other => Error::Format { path: file.display().to_string(), reason: other.to_string() },
    }
}

fn io_error(file: &Path, source: std::io::Error) -> Error {
    Error::Io { path: file.display().to_string(), source: Arc::new(source) }
}
