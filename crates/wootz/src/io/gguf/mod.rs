//! GGUF, the file format of llama.cpp: metadata and tensors, numbers or quantized blocks, in one
//! file or split into several.
//!
//! [`Gguf`] reads versions 2 and 3, [`Writer`] writes them; what is read and written again is the
//! same bytes.

mod read;
mod types;
mod value;
mod write;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use self::read::{Header, quoted};
pub use self::types::TensorType;
pub use self::value::{Value, Values};
pub use self::write::Writer;
use super::{MappedFile, of_tensor};
use crate::array::Array;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::Quantized;

/// The tensors and the metadata of a GGUF file, the tensors on the default device.
///
/// Quantized tensors stay as they are in the file: see [`GgufTensor`].
///
/// ```
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-load.gguf");
/// let arrays = std::collections::BTreeMap::from([("x".to_string(), Array::new([[1.0f32, 2.0]])?)]);
/// io::save_gguf(&file, &arrays, &[("general.name".to_string(), "two".into())])?;
/// let (tensors, metadata) = io::load_gguf(&file)?;
/// assert_eq!(tensors["x"].data.shape(), [1, 2]);
/// assert_eq!(metadata[0].1.as_str(), Some("two"));
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn load_gguf(
    file: impl AsRef<Path>,
) -> Result<(BTreeMap<String, GgufTensor>, Vec<(String, Value)>)> {
    let gguf = Gguf::open(file)?;
    let tensors = gguf
        .tensors()
        .map(|info| Ok((info.name.to_string(), gguf.tensor(info.name)?)))
        .collect::<Result<_>>()?;
    Ok((tensors, gguf.metadata))
}

/// Writes arrays and metadata to a GGUF file; see [`Writer`].
///
/// ```
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-save.gguf");
/// let arrays = std::collections::BTreeMap::from([("x".to_string(), Array::new([1i8])?)]);
/// io::save_gguf(&file, &arrays, &[])?;
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_gguf(
    file: impl AsRef<Path>,
    arrays: &BTreeMap<String, Array>,
    metadata: &[(String, Value)],
) -> Result<()> {
    let mut writer = Writer::new();
    for (key, value) in metadata {
        writer.metadata(key, value.clone())?;
    }
    for (name, array) in arrays {
        writer.tensor(name, array.clone())?;
    }
    writer.write(file)
}

/// A GGUF file, or several that a model is split into: opening reads what they say, and a tensor's
/// data is where it lies in the file until somebody uses it.
///
/// ```
/// use wootz::{Array, io::gguf::{Gguf, Writer}};
/// let file = std::env::temp_dir().join("wootz-doc-open.gguf");
/// let mut writer = Writer::new();
/// writer.metadata("llama.block_count", 2u32)?.tensor("x", Array::new([1.5f32])?)?;
/// writer.write(&file)?;
/// let gguf = Gguf::open(&file)?;
/// assert_eq!(gguf.get("llama.block_count").and_then(|value| value.as_u64()), Some(2));
/// for info in gguf.tensors() {
///     println!("{} {:?} {}", info.name, info.shape, info.kind);
/// }
/// assert_eq!(gguf.tensor("x")?.data.item::<f32>()?, 1.5);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Debug)]
pub struct Gguf {
    version: u32,
    alignment: u32,
    metadata: Vec<(String, Value)>,
    files: Vec<(MappedFile, Vec<read::Tensor>)>,
    /// File and number in it.
    places: BTreeMap<String, (usize, usize)>,
}

/// What a file says of a tensor.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TensorInfo<'a> {
    /// The tensor's name.
    pub name: &'a str,
    /// Lengths of its axes, row-major as arrays have them: the reverse of the file's.
    pub shape: &'a [usize],
    /// Numbers or quantized blocks.
    pub kind: TensorType,
    /// Its size in the file.
    pub bytes: usize,
}

/// A tensor of a GGUF file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GgufTensor {
    /// The tensor's name.
    pub name: String,
    /// Lengths of its axes, row-major as arrays have them.
    pub shape: Vec<usize>,
    /// Numbers or quantized blocks.
    pub kind: TensorType,
    /// Numbers as an array of `shape`. Blocks are bytes (`uint8`) as they are in the file: the
    /// last axis has the bytes of a row.
    pub data: Array,
}

impl GgufTensor {
    /// The quantized weights that the blocks are; nothing is copied. An error, which names the tensor, if it is not of
    /// blocks.
    ///
    /// ```
    /// use wootz::quant::Format;
    /// use wootz::{Array, DType, dequantize, io::gguf::{Gguf, Writer}, quantize};
    /// let file = std::env::temp_dir().join("wootz-doc-quantized.gguf");
    /// let w = quantize(&Array::ones(&[2, 32], DType::F32)?, Format::Q4_0)?;
    /// let mut writer = Writer::new();
    /// writer.blocks("output.weight", Format::Q4_0, w.codes().clone())?;
    /// writer.write(&file)?;
    /// let read = Gguf::open(&file)?.tensor("output.weight")?.quantized()?;
    /// assert_eq!(dequantize(&read, None)?.sum(())?.item::<f32>()?, 64.0);
    /// # Ok::<(), wootz::Error>(())
    /// ```
    pub fn quantized(&self) -> Result<Quantized> {
        let wrong = |expected: String, got: String| {
            Error::argument("quantized", format!("tensor {}", quoted(&self.name)), expected, got)
        };
        match self.kind {
            TensorType::Blocks(format) => Quantized::new(format, &self.data, None, None)
                .map_err(|error| wrong(format!("blocks of {format}"), error.to_string())),
            kind => Err(wrong("quantized blocks".into(), kind.to_string())),
        }
    }
}

impl Gguf {
    /// Opens a file. If it is the first of several (`NAME-00001-of-0000N.gguf`), opens all of them.
    pub fn open(file: impl AsRef<Path>) -> Result<Gguf> {
        let first = MappedFile::open(file)?;
        let header = header(&first)?;
        let Some(split) = Split::of(&first, &header)? else {
            return Gguf::new(vec![(first, header)]);
        };
        let path = first.path().to_path_buf();
        let (number, count) = (split.number, split.count);
        let named = |number| split.name(&path, number).ok_or_else(|| split.misnamed(&first));
        if number != 0 {
            let reason = format!("part {} of {count}; open {}", number + 1, named(0)?.display());
            return Err(first.error(reason));
        }
        Gguf::joined((first.clone(), header), split, |number| MappedFile::open(named(number)?))
    }

    /// All parts of what is split, given the first; `part` opens the others by number.
    fn joined(
        (first, header): (MappedFile, Header),
        split: Split,
        part: impl Fn(usize) -> Result<MappedFile>,
    ) -> Result<Gguf> {
        let count = split.count;
        let mut parts = vec![(first.clone(), header)];
        for number in 1..count {
            let part = part(number)?;
            let header = self::header(&part)?;
            if Split::of(&part, &header)? != Some(Split { number, ..split }) {
                let expected =
                    format!("part {} of {count} with {} tensors", number + 1, split.tensors);
                return Err(part.error(format!("the keys split.* do not say {expected}")));
            }
            parts.push((part, header));
        }
        let found: usize = parts.iter().map(|(_, header)| header.tensors.len()).sum();
        if found != split.tensors {
            let reason =
                format!("{} tensors in {count} files, but they hold {found}", split.tensors);
            return Err(first.error(reason));
        }
        Gguf::new(parts)
    }

    /// Reads the bytes of a whole file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Gguf> {
        let file = MappedFile::from_bytes("bytes", bytes)?;
        let header = header(&file)?;
        if let Some(Split { count, .. }) = Split::of(&file, &header)? {
            return Err(
                file.error(format!("one of {count} files, which can only be opened by name"))
            );
        }
        Gguf::new(vec![(file, header)])
    }

    /// Reads the bytes of whole files that a model is split into, in their order.
    pub fn from_parts(parts: &[&[u8]]) -> Result<Gguf> {
        let open = |number: usize| {
            let bytes = parts.get(number).copied().ok_or_else(|| {
                Error::argument("gguf", "parts", format!("part {}", number + 1), parts.len())
            })?;
            MappedFile::from_bytes(format!("part {}", number + 1), bytes)
        };
        let first = open(0)?;
        let header = header(&first)?;
        let split = Split::of(&first, &header)?;
        let of_all = split.is_some_and(|split| (split.number, split.count) == (0, parts.len()));
        match split {
            None if parts.len() == 1 => Gguf::new(vec![(first, header)]),
            Some(split) if of_all => Gguf::joined((first, header), split, open),
            _ => Err(first.error(format!("not the first of {} parts", parts.len()))),
        }
    }

    fn new(parts: Vec<(MappedFile, Header)>) -> Result<Gguf> {
        let mut gguf = Gguf {
            version: 0,
            alignment: 0,
            metadata: Vec::new(),
            files: Vec::new(),
            places: BTreeMap::new(),
        };
        for (number, (file, header)) in parts.into_iter().enumerate() {
            for (index, tensor) in header.tensors.iter().enumerate() {
                if gguf.places.insert(tensor.name.clone(), (number, index)).is_some() {
                    let name = quoted(&tensor.name);
                    return Err(file.error(format!("tensor {name} is in an earlier file, too")));
                }
            }
            // The first file describes the model; the others only repeat what splits it.
            if number == 0 {
                (gguf.version, gguf.alignment) = (header.version, header.alignment);
                gguf.metadata = header.metadata;
            }
            gguf.files.push((file, header.tensors));
        }
        Ok(gguf)
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What tensors' places in the file are multiples of, in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// All keys and values, in the file's order.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// What the file says of its tensors, in its order.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        self.files.iter().flat_map(|(_, tensors)| tensors.iter().map(read::Tensor::info))
    }

    /// What the file says of a tensor.
    pub fn info(&self, name: &str) -> Option<TensorInfo<'_>> {
        let &(file, index) = self.places.get(name)?;
        Some(self.files[file].1[index].info())
    }

    /// A tensor, on the default device.
    pub fn tensor(&self, name: &str) -> Result<GgufTensor> {
        self.tensor_on(name, &Device::default_device())
    }

    /// A tensor, on a device.
    pub fn tensor_on(&self, name: &str, device: &Device) -> Result<GgufTensor> {
        let Some(&(file, index)) = self.places.get(name) else {
            let got = quoted(name);
            return Err(Error::argument("gguf", "name", "the name of a tensor", got));
        };
        let (file, tensors) = &self.files[file];
        let read::Tensor { name, shape, kind, range } = &tensors[index];
        let in_array = kind.array_shape(shape).map_err(|reason| file.error(reason))?;
        let data = file.array(range.clone(), &in_array, kind.dtype(), device);
        let data = data.map_err(|error| of_tensor(&quoted(name), error))?;
        Ok(GgufTensor { name: name.clone(), shape: shape.clone(), kind: *kind, data })
    }

    /// A writer of the same file: version, metadata, tensors. Several files become one. Tensors with more axes or longer
    /// names than ggml takes can be read, but are an error here.
    pub fn to_writer(&self) -> Result<Writer> {
        let mut writer = Writer::new();
        writer.version(self.version)?;
        for (key, value) in &self.metadata {
            if self.files.len() == 1 || !SPLIT.contains(&key.as_str()) {
                writer.metadata(key, value.clone())?;
            }
        }
        for info in self.tensors() {
            let data = self.tensor_on(info.name, &Device::cpu())?.data;
            match info.kind {
                TensorType::Numbers(_) => writer.tensor(info.name, data)?,
                TensorType::Blocks(format) => writer.blocks(info.name, format, data)?,
                kind @ TensorType::Q8_1Single => writer.bytes(info, kind, data)?,
            };
        }
        Ok(writer)
    }
}

impl read::Tensor {
    fn info(&self) -> TensorInfo<'_> {
        let read::Tensor { name, shape, kind, range } = self;
        TensorInfo { name, shape, kind: *kind, bytes: range.len() }
    }
}

fn header(file: &MappedFile) -> Result<Header> {
    read::parse(file.bytes()).map_err(|reason| file.error(reason))
}

/// Keys of files that a model is split into: which, of how many, and tensors in all of them.
const SPLIT: [&str; 3] = ["split.no", "split.count", "split.tensors.count"];

/// The format counts them with 16 bits.
const MOST_FILES: usize = u16::MAX as usize;

/// What [`SPLIT`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    number: usize,
    count: usize,
    tensors: usize,
}

impl Split {
    /// What a file says; nothing if it is the only one.
    fn of(file: &MappedFile, header: &Header) -> Result<Option<Split>> {
        let value = |key: &str| header.metadata.iter().find(|(name, _)| name == key);
        if value(SPLIT[1]).is_none_or(|(_, count)| count.as_u64() == Some(1)) {
            return Ok(None);
        }
        let number = |key: &str| {
            let number = value(key).and_then(|(_, value)| value.as_u64()).map(usize::try_from);
            match number {
                Some(Ok(number)) => Ok(number),
                _ => Err(file.error(format!("key {key} is missing or not a number"))),
            }
        };
        let [no, count, tensors] = SPLIT.map(number);
        let split = Split { number: no?, count: count?, tensors: tensors? };
        if split.number >= split.count || split.count > MOST_FILES {
            let Split { number, count, .. } = split;
            return Err(file.error(format!("split.no is {number}, split.count {count}")));
        }
        Ok(Some(split))
    }

    fn suffix(&self, number: usize) -> String {
        format!("-{:05}-of-{:05}.gguf", number + 1, self.count)
    }

    /// Where another part is, from where this one is; nothing if this one's name is not as it
    /// should be.
    fn name(&self, path: &Path, number: usize) -> Option<PathBuf> {
        let name = path.file_name()?.to_str()?;
        let stem = name.strip_suffix(&self.suffix(self.number))?;
        Some(path.with_file_name(format!("{stem}{}", self.suffix(number))))
    }

    fn misnamed(&self, file: &MappedFile) -> Error {
        let Split { number, count, .. } = *self;
        let suffix = self.suffix(number);
        file.error(format!("part {} of {count}, but its name does not end in {suffix}", number + 1))
    }
}
