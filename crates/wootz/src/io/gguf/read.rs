//! The header of a GGUF file: what its bytes say, checked, and errors that name the key or tensor.
//!
//! Nothing here trusts a number of the file: lengths are compared with what is left of it before
//! anything is allocated, sizes are computed with checks, and every turn of a loop consumes bytes.

use std::collections::HashSet;
use std::ops::Range;

use half::f16;

use super::types::TensorType;
use super::value::{ARRAY, BOOL, STRING, Value, Values, for_scalars};
use crate::quant::Format;

/// Every GGUF file begins with this.
pub(super) const MAGIC: &[u8] = b"GGUF";
/// The key that says to what tensors are aligned, and what holds without it.
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
const ALIGNMENT: u32 = 32;
/// More than the pages of any system have.
const MOST_ALIGNMENT: u32 = 1 << 20;
/// More axes than any tensor has, and than are written.
const MOST_AXES: usize = 8;
/// Arrays in arrays in arrays: files have them two deep, and a reader has only so much stack.
pub(super) const MOST_NESTED: usize = 16;

/// What is wrong with a file.
pub(super) type Result<T> = std::result::Result<T, String>;

/// What a file says of itself.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) alignment: u32,
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) tensors: Vec<Tensor>,
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    /// Row-major: the file's order reversed.
    pub(super) shape: Vec<usize>,
    pub(super) kind: TensorType,
    /// Its bytes in the file.
    pub(super) range: Range<usize>,
}

/// Reads the header of a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Header> {
    let mut input = Input { rest: bytes };
    if input.take(4, "the magic number")? != MAGIC {
        return Err("not a GGUF file: it does not begin with \"GGUF\"".into());
    }
    let version = input.u32("the version")?;
    match version {
        2 | 3 => {}
        _ if matches!(version.swap_bytes(), 1..=3) => {
            return Err("a big-endian GGUF file; only little-endian ones can be read".into());
        }
        _ => return Err(format!("GGUF version {version}; versions 2 and 3 can be read")),
    }
    let tensors = input.u64("the number of tensors")?;
    let keys = input.u64("the number of keys")?;
    let metadata = metadata(&mut input, keys)?;
    let alignment = alignment(&metadata)?;
    let infos = infos(&mut input, tensors)?;
    let header = bytes.len() - input.rest.len();
    let data = header.checked_next_multiple_of(alignment as usize).ok_or("the header overflows")?;
    let mut offsets: Vec<u64> = infos.iter().map(|info| info.offset).collect();
    offsets.sort_unstable();
    let after = bytes.get(data..).unwrap_or_default();
    let tensors = (infos.iter())
        .map(|info| {
            let named = |reason: String| format!("tensor {}: {reason}", quoted(&info.name));
            let kind = info.tensor_type(&offsets, after, alignment);
            kind.and_then(|kind| info.place(kind, data, alignment, bytes.len())).map_err(named)
        })
        .collect::<Result<Vec<_>>>()?;
    check_overlaps(&tensors)?;
    Ok(Header { version, alignment, metadata, tensors })
}

fn metadata(input: &mut Input<'_>, count: u64) -> Result<Vec<(String, Value)>> {
    let mut metadata = Vec::new();
    let mut seen = HashSet::new();
    for number in 0..count {
        let key = input.text(|| format!("key {number} of {count}"))?;
        let value = input.u32("the type").and_then(|kind| value(input, kind));
        let value = value.map_err(|reason| format!("key {}: {reason}", quoted(&key)))?;
        if !seen.insert(key.clone()) {
            return Err(format!("key {} is there twice", quoted(&key)));
        }
        metadata.push((key, value));
    }
    Ok(metadata)
}

macro_rules! read_values {
    ($($name:ident $type:ident $number:literal),*) => {
        fn value(input: &mut Input<'_>, kind: u32) -> Result<Value> {
            Ok(match kind {
                $($number => Value::$name($type::from_le_bytes(input.array("the value")?)),)*
                BOOL => {
                    let [byte] = input.array("the value")?;
                    Value::Bool(truth(byte)?)
                }
                STRING => Value::String(input.text(|| "the value".into())?),
                ARRAY => Value::Array(values(input, MOST_NESTED)?),
                _ => return Err(format!("type {kind} is unknown")),
            })
        }

        /// An array with at most `depth` arrays in each other.
        fn values(input: &mut Input<'_>, depth: usize) -> Result<Values> {
            let (kind, length) = (input.u32("the element type")?, input.u64("the length")?);
            Ok(match kind {
                $($number => {
                    const SIZE: usize = size_of::<$type>();
                    let (elements, _) = input.elements(length, SIZE)?.as_chunks::<SIZE>();
                    Values::$name(elements.iter().map(|&e| $type::from_le_bytes(e)).collect())
                })*
                BOOL => {
                    let bytes = input.elements(length, 1)?;
                    Values::Bool(bytes.iter().map(|&byte| truth(byte)).collect::<Result<_>>()?)
                }
                STRING => Values::String(input.several(length, |input, index| {
                    input.text(|| format!("text {index} of {length}"))
                })?),
                ARRAY => {
                    let depth = depth.checked_sub(1).ok_or("arrays are nested too deeply")?;
                    Values::Array(input.several(length, |input, _| values(input, depth))?)
                }
                _ => return Err(format!("the element type {kind} is unknown")),
            })
        }
    };
}

for_scalars!(read_values);

fn truth(byte: u8) -> Result<bool> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(format!("a truth value is {byte}")),
    }
}

/// What the metadata says about alignment.
pub(super) fn alignment(metadata: &[(String, Value)]) -> Result<u32> {
    match metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
        None => Ok(ALIGNMENT),
        Some((_, Value::U32(value))) if value.is_power_of_two() && *value <= MOST_ALIGNMENT => {
            Ok(*value)
        }
        Some((_, value)) => Err(format!(
            "key {ALIGNMENT_KEY}: expected a power of two up to {MOST_ALIGNMENT} of type 4 (u32), got \
             {value} of type {}",
            value.number()
        )),
    }
}

/// What the file says of a tensor, as it says it.
struct Info {
    name: String,
    /// The last axis of the shape first.
    lengths: Vec<u64>,
    kind: u32,
    /// From the beginning of the data.
    offset: u64,
}

fn infos(input: &mut Input<'_>, count: u64) -> Result<Vec<Info>> {
    let mut infos = Vec::new();
    let mut seen = HashSet::new();
    for number in 0..count {
        let name = input.text(|| format!("the name of tensor {number} of {count}"))?;
        let info =
            info(input, &name).map_err(|reason| format!("tensor {}: {reason}", quoted(&name)))?;
        if !seen.insert(name) {
            return Err(format!("tensor {} is there twice", quoted(&info.name)));
        }
        infos.push(info);
    }
    Ok(infos)
}

fn info(input: &mut Input<'_>, name: &str) -> Result<Info> {
    let axes = input.u32("the number of axes")?;
    if axes as usize > MOST_AXES {
        return Err(format!("{axes} axes; at most {MOST_AXES} can be read"));
    }
    let lengths = (0..axes).map(|_| input.u64("the shape")).collect::<Result<_>>()?;
    let (kind, offset) = (input.u32("the type")?, input.u64("the offset")?);
    Ok(Info { name: name.to_string(), lengths, kind, offset })
}

impl Info {
    /// The shape, row-major.
    fn shape(&self) -> Result<Vec<usize>> {
        let overflow = || format!("shape {:?} overflows", self.lengths);
        let lengths = self.lengths.iter().rev();
        lengths.map(|&length| usize::try_from(length).map_err(|_| overflow())).collect()
    }

    /// What the tensor is made of. Of the two layouts of Q8_1, it is the one that fills the room up to the next of the
    /// sorted `offsets`, or the end of the `data`. Where both do, it is ggml's of today if that makes sense of the first block.
    fn tensor_type(&self, offsets: &[u64], data: &[u8], alignment: u32) -> Result<TensorType> {
        let kind = TensorType::from_ggml_type(self.kind)
            .ok_or_else(|| format!("type {} is unknown", self.kind))?;
        if kind != TensorType::Blocks(Format::Q8_1) {
            return Ok(kind);
        }
        let shape = self.shape()?;
        let [narrow, wide] = [kind, TensorType::Q8_1Single].map(|kind| kind.bytes(&shape));
        let (narrow, Ok(wide)) = (narrow?, wide) else { return Ok(kind) };
        let place =
            |offset: u64| usize::try_from(offset).map_or(data.len(), |at| at.min(data.len()));
        let next = offsets.partition_point(|&offset| offset <= self.offset);
        let start = place(self.offset);
        let room = offsets.get(next).map_or(data.len(), |&next| place(next)) - start;
        if wide > room || wide == 0 {
            return Ok(kind);
        }
        let filled = narrow.next_multiple_of(alignment as usize) >= room;
        Ok(if filled && is_summed(&data[start..]) { kind } else { TensorType::Q8_1Single })
    }

    /// The tensor, if its bytes are in a file of `length` bytes whose data begins at `data`.
    fn place(
        &self,
        kind: TensorType,
        data: usize,
        alignment: u32,
        length: usize,
    ) -> Result<Tensor> {
        let shape = self.shape()?;
        let bytes = kind.bytes(&shape)?;
        if !self.offset.is_multiple_of(alignment.into()) {
            return Err(format!("offset {} is not a multiple of {alignment}", self.offset));
        }
        let range = || {
            let start = data.checked_add(usize::try_from(self.offset).ok()?)?;
            let stop = start.checked_add(bytes)?;
            // An empty tensor is nowhere.
            Some(if bytes == 0 { 0..0 } else { start..stop }).filter(|range| range.end <= length)
        };
        let range = range().ok_or_else(|| {
            format!(
                "{bytes} bytes at offset {} of the data, which begins at {data}, are beyond the \
                 file's {length} bytes",
                self.offset
            )
        })?;
        Ok(Tensor { name: self.name.clone(), shape, kind, range })
    }
}

/// Whether bytes begin with a block of ggml's Q8_1: a scale, its product with the sum of the codes, and these.
fn is_summed(bytes: &[u8]) -> bool {
    let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    if bytes.len() < Format::Q8_1.block_bytes() {
        return false;
    }
    let sum: i32 = bytes[4..36].iter().map(|&code| i32::from(code as i8)).sum();
    let expected = half(0) * sum as f32;
    // Both were rounded to 11 bits.
    (half(2) - expected).abs() <= 2e-3 * expected.abs()
}

/// Tensors that share bytes could make much of a small file.
fn check_overlaps(tensors: &[Tensor]) -> Result<()> {
    let mut sorted: Vec<&Tensor> = tensors.iter().filter(|t| !t.range.is_empty()).collect();
    sorted.sort_by_key(|tensor| tensor.range.start);
    for pair in sorted.windows(2) {
        if let [first, second] = pair
            && first.range.end > second.range.start
        {
            let [first, second] = [&first.name, &second.name].map(|name| quoted(name));
            return Err(format!("tensor {second} overlaps tensor {first}"));
        }
    }
    Ok(())
}

/// A name from a file, as short as a message should be.
pub(super) fn quoted(name: &str) -> String {
    const SHOWN: usize = 100;
    match name.char_indices().nth(SHOWN) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", &name[..end]),
    }
}

/// What is left of a file.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| format!("the file ends in {what}"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let taken = self.take(N, what)?;
        taken.try_into().map_err(|_| format!("the file ends in {what}"))
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The bytes of `length` elements of `size` bytes.
    fn elements(&mut self, length: u64, size: usize) -> Result<&'a [u8]> {
        let bytes = usize::try_from(length).ok().and_then(|length| length.checked_mul(size));
        let too_long = || format!("{length} elements are beyond the end of the file");
        let bytes = bytes.filter(|&bytes| bytes <= self.rest.len()).ok_or_else(too_long)?;
        self.take(bytes, "an array")
    }

    /// `length` things that take at least 8 bytes each.
    fn several<T>(
        &mut self,
        length: u64,
        mut read: impl FnMut(&mut Self, u64) -> Result<T>,
    ) -> Result<Vec<T>> {
        if length > self.rest.len() as u64 / 8 {
            return Err(format!("{length} elements are beyond the end of the file"));
        }
        (0..length).map(|index| read(self, index)).collect()
    }

    fn text(&mut self, what: impl Fn() -> String) -> Result<String> {
        let length = self.u64("");
        let bytes = length.and_then(|length| self.elements(length, 1));
        let bytes = bytes.map_err(|_| format!("the file ends in {}", what()))?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_string).map_err(|_| format!("{} is not UTF-8", what()))
    }
}
