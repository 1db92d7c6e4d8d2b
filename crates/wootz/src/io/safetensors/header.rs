//! The header of a safetensors file: JSON that says names, dtypes, shapes and places. Checked here,
//! with errors that name the tensor.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use safetensors::tensor::{Dtype, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

/// The key of what is no tensor.
pub(super) const METADATA: &str = "__metadata__";
/// The header's length is in so many bytes before it.
pub(super) const LENGTH_BYTES: usize = 8;
/// A header that is longer than this is refused, as by others.
const LONGEST: u64 = 100_000_000;

/// What is wrong with a file.
type Result<T> = std::result::Result<T, String>;

/// What a file says of itself.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) tensors: BTreeMap<String, Tensor>,
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Its bytes in the file.
    pub(super) range: Range<usize>,
}

/// Reads the header of a whole file.
pub(super) fn parse(bytes: &[u8]) -> Result<Header> {
    let too_short = || "the file ends in the header".to_string();
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or_else(too_short)?;
    let length = u64::from_le_bytes(*length);
    if length > LONGEST {
        return Err(format!("not a safetensors file: the header would have {length} bytes"));
    }
    let (header, data) = rest.split_at_checked(length as usize).ok_or_else(too_short)?;
    let json: Json = serde_json::from_slice(header).map_err(|error| format!("header: {error}"))?;
    let start = bytes.len() - data.len();
    let mut places: Vec<(&String, &TensorInfo)> = json.tensors.iter().collect();
    places.sort_by_key(|(_, info)| info.data_offsets);
    // The format has no gaps, so that nothing can be hidden in them.
    let mut end = 0;
    let mut tensors = BTreeMap::new();
    for (name, info) in places {
        let named = |reason: String| format!("tensor {name:?}: {reason}");
        let (first, last) = info.data_offsets;
        if first != end {
            return Err(named(format!("begins at {first}, but what is before it ends at {end}")));
        }
        let bytes = size(info.dtype, &info.shape).map_err(named)?;
        if last.checked_sub(first) != Some(bytes) {
            let reason = format!(
                "{bytes} bytes for shape {:?} of {}, but it has {first}..{last}",
                info.shape, info.dtype
            );
            return Err(named(reason));
        }
        if last > data.len() {
            let reason = format!("ends at {last}, but the file has {} bytes of data", data.len());
            return Err(named(reason));
        }
        end = last;
        let range = start + first..start + last;
        let tensor = Tensor { dtype: info.dtype, shape: info.shape.clone(), range };
        tensors.insert(name.clone(), tensor);
    }
    if end != data.len() {
        return Err(format!(
            "the tensors end at {end}, but there are {} bytes of data",
            data.len()
        ));
    }
    Ok(Header { metadata: json.metadata, tensors })
}

/// The bytes of a tensor.
fn size(dtype: Dtype, shape: &[usize]) -> Result<usize> {
    // An axis of length 0 makes a tensor empty, but the others must still be sane.
    let mut lengths = shape.iter().filter(|&&length| length != 0);
    let bits = lengths.try_fold(dtype.bitsize(), |bits, &length| bits.checked_mul(length));
    let bits = bits.ok_or_else(|| format!("shape {shape:?} overflows"))?;
    if shape.contains(&0) {
        return Ok(0);
    }
    if !bits.is_multiple_of(8) {
        return Err(format!("shape {shape:?} of {dtype} is not whole bytes"));
    }
    Ok(bits / 8)
}

/// The header as it is written.
struct Json {
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, TensorInfo>,
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Json, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Json, A::Error> {
                let (mut metadata, mut tensors) = (None, BTreeMap::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        // Some writers say that there is none by `null`.
                        let named = |e| A::Error::custom(format!("{METADATA}: {e}"));
                        let pairs = map.next_value::<Option<Pairs>>().map_err(named)?;
                        if metadata.replace(pairs).is_some() {
                            return Err(A::Error::custom(format!("{METADATA} is there twice")));
                        }
                        continue;
                    }
                    let info = map.next_value::<TensorInfo>();
                    let info =
                        info.map_err(|e| A::Error::custom(format!("tensor {name:?}: {e}")))?;
                    if tensors.contains_key(&name) {
                        return Err(A::Error::custom(format!("tensor {name:?} is there twice")));
                    }
                    tensors.insert(name, info);
                }
                let metadata = metadata.flatten().map_or_else(BTreeMap::new, |Pairs(pairs)| pairs);
                Ok(Json { metadata, tensors })
            }
        }

        from.deserialize_map(Entries)
    }
}

/// What a file says beside tensors, each key once.
struct Pairs(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Pairs, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("texts by name")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Pairs, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if pairs.contains_key(&key) {
                        return Err(A::Error::custom(format!("key {key:?} is there twice")));
                    }
                    pairs.insert(key, value);
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(Entries)
    }
}
