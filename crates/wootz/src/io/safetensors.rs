//! The safetensors format: named arrays in one file.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors};

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

/// Writes arrays to a safetensors file under their names. The data begins at a multiple of 64 bytes,
/// with the arrays of the widest elements first, so that every array is aligned for its own.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let arrays = BTreeMap::from([("x".to_string(), Array::new([1.5f32])?)]);
/// io::save_safetensors(&std::env::temp_dir().join("wootz-doc-one.safetensors"), &arrays)?;
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_safetensors(file: &Path, arrays: &BTreeMap<String, Array>) -> Result<()> {
    // What fails, fails before there is a file.
    crate::eval(arrays.values())?;
    let mut sorted: Vec<(&String, &Array)> = arrays.iter().collect();
    sorted.sort_by_key(|(_, array)| Reverse(array.dtype().size()));
    let header = header(&sorted)?;
    let write = |bytes: &[u8], to: &mut BufWriter<File>| {
        to.write_all(bytes).map_err(|error| io_error(file, error))
    };
    let mut to = BufWriter::new(File::create(file).map_err(|error| io_error(file, error))?);
    write(&(header.len() as u64).to_le_bytes(), &mut to)?;
    write(header.as_bytes(), &mut to)?;
    for (_, array) in sorted {
        write(&array.to_bytes()?, &mut to)?;
    }
    to.flush().map_err(|error| io_error(file, error))
}

/// Names, dtypes, shapes and places, padded so that the data behind it is aligned.
fn header(arrays: &[(&String, &Array)]) -> Result<String> {
    const METADATA: &str = "__metadata__";
    let mut header = format!(r#"{{"{METADATA}":{{"format":"mlx"}}"#);
    let mut start = 0;
    for (name, array) in arrays {
        if *name == METADATA {
            let expected = "names that the format does not use itself";
            return Err(Error::argument("save_safetensors", "arrays", expected, name));
        }
        let Some((_, dtype)) = DTYPES.iter().find(|(ours, _)| *ours == array.dtype()) else {
            let expected = "a dtype of the format";
            return Err(Error::dtype("save_safetensors", "arrays", expected, array.dtype()));
        };
        let (shape, stop) = (array.shape(), start + array.nbytes());
        header += &format!(
            r#",{}:{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{stop}]}}"#,
            quoted(name)
        );
        start = stop;
    }
    header.push('}');
    // The header's length takes 8 bytes before it; spaces behind it belong to the format.
    let padded = (8 + header.len()).next_multiple_of(64) - 8;
    header.push_str(&" ".repeat(padded - header.len()));
    Ok(header)
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\0'..='\x1f' => quoted += &format!("\\u{:04x}", character as u32),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
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

fn in_file(file: &Path, error: SafeTensorError) -> Error {
    match error {
        SafeTensorError::IoError(source) => io_error(file, source),
        other => Error::Format { path: file.display().to_string(), reason: other.to_string() },
    }
}

fn io_error(file: &Path, source: std::io::Error) -> Error {
    Error::Io { path: file.display().to_string(), source: Arc::new(source) }
}
