//! The safetensors format: named arrays in one file, or in several with an index.

mod header;
mod shards;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::Dtype;

use self::header::{Header, Tensor};
pub use self::write::{Sharding, save_safetensors, save_safetensors_with, save_sharded};
use super::{MappedFile, of_tensor};
use crate::array::{Array, DType};
use crate::device::Device;
use crate::error::{Error, Result};

/// The arrays of a safetensors file, by name, on the default device; also of a folder or an index, as
/// [`Safetensors::open`].
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
    let file = Safetensors::open(file)?;
    file.names().map(|name| Ok((name.to_string(), file.tensor(name)?))).collect()
}

/// A safetensors file, or several that a checkpoint is split into: opening reads what they say, and
/// a tensor's data is where it lies in the file until somebody uses it.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-open.safetensors");
/// io::save_safetensors(&file, &BTreeMap::from([("x".to_string(), Array::new([[1.5f32]])?)]))?;
/// let file = io::Safetensors::open(&file)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["x"]);
/// assert_eq!(file.shape("x"), Some(&[1, 1][..]));
/// assert_eq!(file.metadata()["format"], "mlx");
/// assert_eq!(file.tensor("x")?.item::<f32>()?, 1.5);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Debug)]
pub struct Safetensors {
    files: Vec<MappedFile>,
    metadata: BTreeMap<String, String>,
    /// With the number of the file.
    tensors: BTreeMap<String, (usize, Tensor)>,
}

impl Safetensors {
    /// Opens a file; an index (`model.safetensors.index.json`) with the files it names; or a folder
    /// that has an index, or else `model*.safetensors`. The files say which tensors there are: an index may be
    /// older than they.
    pub fn open(path: impl AsRef<Path>) -> Result<Safetensors> {
        let path = path.as_ref();
        if path.is_dir() {
            return shards::open_folder(path);
        }
        if path.extension().is_some_and(|extension| extension == "json") {
            return shards::open_index(path);
        }
        Safetensors::new(vec![read(MappedFile::open(path)?)?])
    }

    /// Reads the bytes of a whole file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Safetensors> {
        Safetensors::new(vec![read(MappedFile::from_bytes("bytes", bytes)?)?])
    }

    /// Reads the bytes of an index, with those of the files that it names: `file` gives them by name.
    pub fn from_indexed_bytes(
        index: &[u8],
        file: impl Fn(&str) -> Result<Vec<u8>>,
    ) -> Result<Safetensors> {
        let index = MappedFile::from_bytes("index", index)?;
        shards::open_indexed(&index, |name| MappedFile::from_bytes(name, &file(name)?))
    }

    fn new(parts: Vec<(MappedFile, Header)>) -> Result<Safetensors> {
        let mut all =
            Safetensors { files: Vec::new(), metadata: BTreeMap::new(), tensors: BTreeMap::new() };
        for (number, (file, header)) in parts.into_iter().enumerate() {
            // Files of one checkpoint say the same, or each about itself; the first is heard.
            for (key, value) in header.metadata {
                all.metadata.entry(key).or_insert(value);
            }
            for (name, tensor) in header.tensors {
                if let Some((earlier, _)) = all.tensors.get(&name) {
                    let earlier = all.files[*earlier].path().display();
                    return Err(file.error(format!("tensor {name:?} is in {earlier}, too")));
                }
                all.tensors.insert(name, (number, tensor));
            }
            all.files.push(file);
        }
        Ok(all)
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// What the file says beside its tensors.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// A tensor's shape.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|(_, tensor)| &tensor.shape[..])
    }

    /// A tensor's dtype as an array, which is `uint8` for floats of 8 bits (`F8_E4M3`), as in MLX; nothing if there is
    /// no such tensor or arrays cannot have its dtype, like other floats of few bits.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        array_dtype(self.tensors.get(name)?.1.dtype)
    }

    /// The file's word for a tensor's dtype: `F32`, `F8_E4M3`, ….
    pub fn stored_dtype(&self, name: &str) -> Option<String> {
        self.tensors.get(name).map(|(_, tensor)| tensor.dtype.to_string())
    }

    /// A tensor, on the default device. One whose dtype arrays cannot have is an error; see
    /// [`raw`](Self::raw).
    pub fn tensor(&self, name: &str) -> Result<Array> {
        self.tensor_on(name, &Device::default_device())
    }

    /// As [`tensor`](Self::tensor), on a device.
    pub fn tensor_on(&self, name: &str, device: &Device) -> Result<Array> {
        let (file, Tensor { dtype, shape, range }) = self.find(name)?;
        let Some(dtype) = array_dtype(*dtype) else {
            let reason = format!("tensor {name:?} has the dtype {dtype}, which arrays cannot have");
            return Err(file.error(reason));
        };
        let array = file.array(range.clone(), shape, dtype, device);
        array.map_err(|error| of_tensor(&format!("{name:?}"), error))
    }

    /// The bytes of a tensor of any dtype, in one row (`uint8`), on the default device.
    pub fn raw(&self, name: &str) -> Result<Array> {
        let (file, Tensor { range, .. }) = self.find(name)?;
        let device = Device::default_device();
        let array = file.array(range.clone(), &[range.len()], DType::U8, &device);
        array.map_err(|error| of_tensor(&format!("{name:?}"), error))
    }

    fn find(&self, name: &str) -> Result<(&MappedFile, &Tensor)> {
        let (file, tensor) = self.tensors.get(name).ok_or_else(|| {
            Error::argument("safetensors", "name", "the name of a tensor", format!("{name:?}"))
        })?;
        Ok((&self.files[*file], tensor))
    }
}

fn read(file: MappedFile) -> Result<(MappedFile, Header)> {
    let header = header::parse(file.bytes()).map_err(|reason| file.error(reason))?;
    Ok((file, header))
}

/// As in MLX, floats of e4m3 are their bytes.
fn array_dtype(dtype: Dtype) -> Option<DType> {
    if dtype == Dtype::F8_E4M3 {
        return Some(DType::U8);
    }
    DTYPES.iter().find(|(_, theirs)| *theirs == dtype).map(|(ours, _)| *ours)
}

const DTYPES: [(DType, Dtype); 14] = [
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
    (DType::C64, Dtype::C64),
];
