//! Writing GGUF files.

use std::collections::HashSet;
use std::path::Path;

use super::read::{self, ALIGNMENT_KEY, MAGIC, MOST_NESTED};
use super::value::for_scalars;
use super::{TensorInfo, TensorType, Value, Values};
use crate::array::{Array, DType};
use crate::error::{Error, Result};
use crate::io::replace::replace;
use crate::quant::Format;

const OP: &str = "save_gguf";
/// What ggml reads at most: it refuses files with more. Readers here take more.
const MOST_AXES: usize = 4;
const LONGEST_NAME: usize = 63;

/// Writes a GGUF file: collects metadata and tensors, in the order that they will have.
///
/// ```
/// use wootz::{Array, io::gguf::{Gguf, Writer}};
/// let file = std::env::temp_dir().join("wootz-doc-writer.gguf");
/// let mut writer = Writer::new();
/// writer.metadata("general.architecture", "llama")?;
/// writer.tensor("output_norm.weight", Array::new([1.0f32, 2.0])?)?;
/// writer.write(&file)?;
/// let read = Gguf::open(&file)?;
/// assert_eq!(read.get("general.architecture").and_then(|v| v.as_str()), Some("llama"));
/// assert_eq!(read.tensor("output_norm.weight")?.data.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    version: u32,
    metadata: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
    keys: HashSet<String>,
    names: HashSet<String>,
}

#[derive(Debug)]
struct Tensor {
    name: String,
    shape: Vec<usize>,
    kind: TensorType,
    data: Array,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// A file of version 3 with nothing in it.
    pub fn new() -> Writer {
        Writer {
            version: 3,
            metadata: Vec::new(),
            tensors: Vec::new(),
            keys: HashSet::new(),
            names: HashSet::new(),
        }
    }

    /// Makes it a file of another version: 2 or 3.
    pub fn version(&mut self, version: u32) -> Result<&mut Writer> {
        if !matches!(version, 2 | 3) {
            return Err(Error::argument(OP, "version", "2 or 3", version));
        }
        self.version = version;
        Ok(self)
    }

    /// Adds a value. That of `general.alignment` (32 if there is none) is obeyed.
    pub fn metadata(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut Writer> {
        let value = value.into();
        if self.keys.contains(key) {
            return Err(Error::argument(
                OP,
                "metadata",
                "keys that differ",
                format!("{key} twice"),
            ));
        }
        if nested(&value) > MOST_NESTED {
            let expected = format!("{key} to be nested at most {MOST_NESTED} deep");
            return Err(Error::argument(OP, "metadata", expected, "a deeper one"));
        }
        let added = (key.to_string(), value);
        if key == ALIGNMENT_KEY {
            checked_alignment(std::slice::from_ref(&added))?;
        }
        self.keys.insert(key.to_string());
        self.metadata.push(added);
        Ok(self)
    }

    /// Adds a tensor of numbers. They are computed when the file is written, one tensor at a time.
    pub fn tensor(&mut self, name: &str, data: Array) -> Result<&mut Writer> {
        let kind = TensorType::Numbers(data.dtype());
        if kind.ggml_type().is_none() {
            let expected = "a dtype of GGUF files";
            return Err(Error::dtype(OP, format!("tensor {name}"), expected, data.dtype()));
        }
        let shape = data.shape().to_vec();
        self.add(Tensor { name: name.to_string(), shape, kind, data })
    }

    /// Adds a tensor of quantized blocks: the bytes of each row, as
    /// [`GgufTensor`](super::GgufTensor) has them.
    pub fn blocks(&mut self, name: &str, format: Format, data: Array) -> Result<&mut Writer> {
        let argument = || format!("tensor {name}");
        if data.dtype() != DType::U8 {
            return Err(Error::dtype(OP, argument(), DType::U8, data.dtype()));
        }
        let mut shape = data.shape().to_vec();
        match shape.last_mut() {
            Some(row) if row.is_multiple_of(format.block_bytes()) => {
                *row = *row / format.block_bytes() * format.block_elements();
            }
            _ => {
                let expected = format!("rows of whole blocks of {} bytes", format.block_bytes());
                return Err(Error::shape(OP, argument(), expected, data.shape()));
            }
        }
        let kind = TensorType::Blocks(format);
        self.add(Tensor { name: name.to_string(), shape, kind, data })
    }

    /// Adds bytes of a tensor that was read.
    pub(super) fn bytes(
        &mut self,
        info: TensorInfo<'_>,
        kind: TensorType,
        data: Array,
    ) -> Result<&mut Writer> {
        let (name, shape) = (info.name.to_string(), info.shape.to_vec());
        self.add(Tensor { name, shape, kind, data })
    }

    fn add(&mut self, tensor: Tensor) -> Result<&mut Writer> {
        let name = &tensor.name;
        if tensor.shape.len() > MOST_AXES {
            let expected = format!("at most {MOST_AXES} axes");
            return Err(Error::shape(OP, format!("tensor {name}"), expected, &tensor.shape));
        }
        if name.len() > LONGEST_NAME {
            let expected = format!("a name of at most {LONGEST_NAME} bytes");
            let got = format!("{} bytes", name.len());
            return Err(Error::argument(OP, format!("tensor {name}"), expected, got));
        }
        if !self.names.insert(name.clone()) {
            let got = format!("{name} twice");
            return Err(Error::argument(OP, "tensors", "names that differ", got));
        }
        self.tensors.push(tensor);
        Ok(self)
    }

    /// Writes the file. What is there before is replaced at the end, so that it stays if this fails.
    pub fn write(self, file: impl AsRef<Path>) -> Result<()> {
        let alignment = checked_alignment(&self.metadata)?;
        let header = self.header(alignment)?;
        replace(file.as_ref(), |file| {
            file.write(&header)?;
            file.align(alignment)?;
            for tensor in self.tensors {
                file.write_array(&tensor.data)?;
                file.align(alignment)?;
            }
            Ok(())
        })
    }

    /// All that comes before the data.
    fn header(&self, alignment: u64) -> Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_le_bytes());
        put_length(&mut bytes, self.tensors.len());
        put_length(&mut bytes, self.metadata.len());
        for (key, value) in &self.metadata {
            put_text(&mut bytes, key);
            bytes.extend(value.number().to_le_bytes());
            put_value(&mut bytes, value);
        }
        let mut offset = 0u64;
        for Tensor { name, shape, kind, data } in &self.tensors {
            let overflow = || Error::shape(OP, format!("tensor {name}"), "a smaller one", shape);
            put_text(&mut bytes, name);
            bytes.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&length| put_length(&mut bytes, length));
            bytes.extend(kind.ggml_type().ok_or_else(overflow)?.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
            let end = offset.checked_add(data.nbytes() as u64);
            offset =
                end.and_then(|end| end.checked_next_multiple_of(alignment)).ok_or_else(overflow)?;
        }
        Ok(bytes)
    }
}

fn checked_alignment(metadata: &[(String, Value)]) -> Result<u64> {
    let wrong = |reason| Error::argument(OP, "metadata", "a valid alignment", reason);
    read::alignment(metadata).map(u64::from).map_err(wrong)
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend((length as u64).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_length(bytes, text.len());
    bytes.extend(text.as_bytes());
}

macro_rules! put_values {
    ($($name:ident $type:ident $number:literal),*) => {
        fn put_value(bytes: &mut Vec<u8>, value: &Value) {
            match value {
                $(Value::$name(value) => bytes.extend(value.to_le_bytes()),)*
                Value::Bool(value) => bytes.push(u8::from(*value)),
                Value::String(text) => put_text(bytes, text),
                Value::Array(values) => put_values(bytes, values),
            }
        }

        fn put_values(bytes: &mut Vec<u8>, values: &Values) {
            bytes.extend(values.number().to_le_bytes());
            put_length(bytes, values.len());
            match values {
                $(Values::$name(values) => {
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                })*
                Values::Bool(values) => bytes.extend(values.iter().map(|&value| u8::from(value))),
                Values::String(texts) => texts.iter().for_each(|text| put_text(bytes, text)),
                Values::Array(arrays) => arrays.iter().for_each(|values| put_values(bytes, values)),
            }
        }
    };
}

for_scalars!(put_values);

/// How many arrays are in each other below a value that is one.
fn nested(value: &Value) -> usize {
    fn depth(values: &Values) -> usize {
        match values {
            Values::Array(arrays) => 1 + arrays.iter().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    value.as_array().map_or(0, depth)
}
