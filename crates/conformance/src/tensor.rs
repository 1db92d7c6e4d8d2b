//! Tensors on the host, and the safetensors files that hold them. The header is read by hand: the
//! runner shares no code with what it judges.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use wootz::DType;

/// The element type of a recorded tensor; complex numbers apart, which are compared in their own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A type of numbers with one part.
    Real(DType),
    /// Interleaved single-precision real and imaginary parts.
    Complex64,
}

const NAMES: [(&str, Kind); 14] = [
    ("BOOL", Kind::Real(DType::Bool)),
    ("U8", Kind::Real(DType::U8)),
    ("U16", Kind::Real(DType::U16)),
    ("U32", Kind::Real(DType::U32)),
    ("U64", Kind::Real(DType::U64)),
    ("I8", Kind::Real(DType::I8)),
    ("I16", Kind::Real(DType::I16)),
    ("I32", Kind::Real(DType::I32)),
    ("I64", Kind::Real(DType::I64)),
    ("F16", Kind::Real(DType::F16)),
    ("BF16", Kind::Real(DType::BF16)),
    ("F32", Kind::Real(DType::F32)),
    ("F64", Kind::Real(DType::F64)),
    ("C64", Kind::Complex64),
];

impl Kind {
    /// The kind of an array's elements.
    pub fn of(dtype: DType) -> Kind {
        if dtype.is_complex() { Kind::Complex64 } else { Kind::Real(dtype) }
    }

    /// The element type of arrays of this kind.
    pub fn dtype(self) -> DType {
        match self {
            Kind::Real(dtype) => dtype,
            Kind::Complex64 => DType::C64,
        }
    }

    /// Bytes per element.
    pub fn size(self) -> usize {
        self.dtype().size()
    }

    /// MLX's name.
    pub fn name(self) -> &'static str {
        self.dtype().name()
    }

    /// The kind with this name in MLX.
    pub fn from_name(name: &str) -> Result<Kind> {
        let kinds = NAMES.iter().map(|(_, kind)| *kind);
        kinds.into_iter().find(|kind| kind.name() == name).with_context(|| {
            let known: Vec<&str> = NAMES.iter().map(|(_, kind)| kind.name()).collect();
            format!("there is no dtype {name:?}; known are {}", known.join(", "))
        })
    }

    /// Whether values are compared with a tolerance.
    pub fn is_inexact(self) -> bool {
        self.dtype().is_inexact()
    }
}

/// A row-major tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The element type.
    pub kind: Kind,
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub bytes: Vec<u8>,
}

/// The elements of a tensor in a type wide enough for each kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Wide {
    /// Integers and truth values.
    Ints(Vec<i128>),
    /// Floats of any width.
    Floats(Vec<f64>),
    /// Real and imaginary parts.
    Complex(Vec<[f64; 2]>),
}

impl Tensor {
    /// The values of an evaluated or lazy array.
    pub fn read(array: &wootz::Array) -> wootz::Result<Tensor> {
        let bytes = array.to_bytes()?;
        Ok(Tensor { kind: Kind::of(array.dtype()), shape: array.shape().to_vec(), bytes })
    }

    /// The elements, widened.
    pub fn wide(&self) -> Wide {
        fn list<T: bytemuck::AnyBitPattern + bytemuck::NoUninit, W>(
            bytes: &[u8],
            widen: impl Fn(T) -> W,
        ) -> Vec<W> {
            bytemuck::pod_collect_to_vec::<u8, T>(bytes).into_iter().map(widen).collect()
        }
        let bytes = &self.bytes;
        let dtype = match self.kind {
            Kind::Complex64 => {
                return Wide::Complex(list(bytes, |[re, im]: [f32; 2]| [re as f64, im as f64]));
            }
            Kind::Real(dtype) => dtype,
        };
        match dtype {
            DType::Bool => Wide::Ints(list(bytes, |x: u8| (x != 0) as i128)),
            DType::U8 => Wide::Ints(list(bytes, |x: u8| x.into())),
            DType::U16 => Wide::Ints(list(bytes, |x: u16| x.into())),
            DType::U32 => Wide::Ints(list(bytes, |x: u32| x.into())),
            DType::U64 => Wide::Ints(list(bytes, |x: u64| x.into())),
            DType::I8 => Wide::Ints(list(bytes, |x: i8| x.into())),
            DType::I16 => Wide::Ints(list(bytes, |x: i16| x.into())),
            DType::I32 => Wide::Ints(list(bytes, |x: i32| x.into())),
            DType::I64 => Wide::Ints(list(bytes, |x: i64| x.into())),
            DType::F16 => Wide::Floats(list(bytes, |x: f16| x.to_f64())),
            DType::BF16 => Wide::Floats(list(bytes, |x: bf16| x.to_f64())),
            DType::F32 => Wide::Floats(list(bytes, |x: f32| x.into())),
            _ => Wide::Floats(list(bytes, |x: f64| x)),
        }
    }

    /// Overwrites one element of a float or complex tensor (its real part).
    pub fn set_float(&mut self, index: usize, value: f64) {
        let at = index * self.kind.size();
        let bytes = match self.kind {
            Kind::Real(DType::F16) => f16::from_f64(value).to_le_bytes().to_vec(),
            Kind::Real(DType::BF16) => bf16::from_f64(value).to_le_bytes().to_vec(),
            Kind::Real(DType::F64) => value.to_le_bytes().to_vec(),
            _ => (value as f32).to_le_bytes().to_vec(),
        };
        self.bytes[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    /// Dtype and shape, for messages.
    pub fn describe(&self) -> String {
        format!("{}{:?}", self.kind.name(), self.shape)
    }
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Reads a safetensors file.
pub fn read(path: &Path) -> Result<Tensors> {
    let file = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&file).with_context(|| format!("{} is not a safetensors file", path.display()))
}

fn parse(file: &[u8]) -> Result<Tensors> {
    let (length, rest) = file.split_first_chunk::<8>().context("it has no header")?;
    let length = usize::try_from(u64::from_le_bytes(*length))?;
    let header = rest.get(..length).context("its header is cut off")?;
    let data = &rest[length..];
    let header: Map<String, Value> = serde_json::from_slice(header)?;
    let mut tensors = Tensors::new();
    for (name, entry) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
        let dtype = entry["dtype"].as_str().unwrap_or_default();
        let Some((_, kind)) = NAMES.into_iter().find(|(known, _)| *known == dtype) else {
            bail!("tensor {name} has the unknown dtype {dtype:?}");
        };
        let shape: Vec<usize> = serde_json::from_value(entry["shape"].clone())?;
        let [from, to]: [usize; 2] = serde_json::from_value(entry["data_offsets"].clone())?;
        let bytes = data.get(from..to).with_context(|| format!("tensor {name} is cut off"))?;
        let size: usize = shape.iter().product();
        ensure!(size * kind.size() == bytes.len(), "tensor {name} has a wrong size");
        tensors.insert(name, Tensor { kind, shape, bytes: bytes.to_vec() });
    }
    Ok(tensors)
}

/// Writes a safetensors file, wide elements first so that all are aligned.
pub fn write(path: &Path, tensors: &Tensors) -> Result<()> {
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|(_, tensor)| std::cmp::Reverse(tensor.kind.size()));
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, tensor) in order {
        let dtype = NAMES.iter().find(|(_, kind)| *kind == tensor.kind).map(|(name, _)| name);
        let from = data.len();
        data.extend_from_slice(&tensor.bytes);
        let offsets = [from, data.len()];
        let entry = json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": offsets });
        header.insert(name.clone(), entry);
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(&header);
    file.extend_from_slice(&data);
    std::fs::write(path, file).with_context(|| format!("cannot write {}", path.display()))
}
