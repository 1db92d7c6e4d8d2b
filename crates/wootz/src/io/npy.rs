//! npy, NumPy's file format of one array: a header that is a Python literal, then the elements.

use std::ops::Range;
use std::path::Path;

use super::MappedFile;
use super::replace::replace;
use crate::array::{Array, DType};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ops::transpose;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers are filled up so that the elements begin at a multiple of this.
const ALIGNMENT: usize = 64;
/// NumPy's arrays have no more axes.
const MOST_AXES: usize = 64;

/// NumPy's words for dtypes, behind the order of bytes. MLX writes bfloat16 as two bytes that mean nothing.
const DTYPES: [(&str, DType); 14] = [
    ("b1", DType::Bool),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("f2", DType::F16),
    ("V2", DType::BF16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("c8", DType::C64),
];

/// The array of an npy file, on the default device. In either order of axes and of bytes; little-endian
/// elements stay where they are in the file until somebody uses them. `V2` is bfloat16, as MLX writes it.
///
/// ```
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-load.npy");
/// // mx.save("x.npy", x); x = mx.load("x.npy")
/// io::save_npy(&file, &Array::new([[1, 2], [3, 4]])?)?;
/// assert_eq!(io::load_npy(&file)?.to_vec::<i32>()?, [1, 2, 3, 4]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn load_npy(file: impl AsRef<Path>) -> Result<Array> {
    read_npy(&MappedFile::open(file)?, &Device::default_device())
}

/// As [`load_npy`], of a file that is mapped, or of bytes, on a device.
///
/// ```
/// use wootz::{Device, io};
/// let bytes = io::MappedFile::from_bytes("x.npy", b"not an array")?;
/// assert!(io::read_npy(&bytes, &Device::cpu()).is_err());
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn read_npy(file: &MappedFile, device: &Device) -> Result<Array> {
    let header = Header::parse(file.bytes()).map_err(|reason| file.error(reason))?;
    let mapped = |shape: &[usize]| file.array(header.data.clone(), shape, header.dtype, device);
    header.array(file.bytes(), device, mapped)
}

/// The array of the bytes of an npy file, copied; `Err` is the reason if they are none.
pub(super) fn from_bytes(bytes: &[u8], device: &Device) -> Result<Result<Array>, String> {
    let header = Header::parse(bytes)?;
    let copied = |shape: &[usize]| {
        Array::from_bytes_on(&bytes[header.data.clone()], shape, header.dtype, device)
    };
    Ok(header.array(bytes, device, copied))
}

/// Writes an array to an npy file. A file that is there is replaced at the end.
///
/// ```
/// use wootz::{Array, io};
/// io::save_npy(std::env::temp_dir().join("wootz-doc-save.npy"), &Array::new([1.5f32])?)?;
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn save_npy(file: impl AsRef<Path>, array: &Array) -> Result<()> {
    let header = header("save_npy", array)?;
    replace(file.as_ref(), |file| {
        file.write(&header)?;
        file.write_array(array)
    })
}

/// What is before the elements of an array.
pub(super) fn header(op: &'static str, array: &Array) -> Result<Vec<u8>> {
    let Some((word, _)) = DTYPES.iter().find(|(_, dtype)| *dtype == array.dtype()) else {
        return Err(Error::dtype(op, "array", "a dtype of the format", array.dtype()));
    };
    if array.rank() > MOST_AXES {
        let expected = format!("at most {MOST_AXES} axes");
        return Err(Error::shape(op, "array", expected, array.shape()));
    }
    let order = if array.dtype().size() == 1 { '|' } else { '<' };
    let lengths: Vec<String> = array.shape().iter().map(usize::to_string).collect();
    // A tuple of one has a comma.
    let comma = if lengths.len() == 1 { "," } else { "" };
    let shape = format!("({}{comma})", lengths.join(", "));
    let mut text =
        format!("{{'descr': '{order}{word}', 'fortran_order': False, 'shape': {shape}, }}");
    let before = MAGIC.len() + 4;
    let padded = (before + text.len() + 1).next_multiple_of(ALIGNMENT) - before;
    text.extend(std::iter::repeat_n(' ', padded - 1 - text.len()));
    text.push('\n');
    // No shape of so few axes is longer than version 1 can tell.
    Ok([MAGIC, &[1, 0], &(padded as u16).to_le_bytes(), text.as_bytes()].concat())
}

/// What a header says.
#[derive(Debug, PartialEq)]
struct Header {
    dtype: DType,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
    /// The elements' bytes.
    data: Range<usize>,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Header, String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("not an npy file: it begins otherwise")?;
        let too_short = || "the file ends in the header".to_string();
        let (&[major, minor], rest) = rest.split_first_chunk().ok_or_else(too_short)?;
        let (length, rest) = match major {
            1 => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(too_short)?;
                (u16::from_le_bytes(*length) as usize, rest)
            }
            2 | 3 => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(too_short)?;
                (u32::from_le_bytes(*length) as usize, rest)
            }
            _ => return Err(format!("version {major}.{minor}; known are 1, 2 and 3")),
        };
        let (text, data) = rest.split_at_checked(length).ok_or_else(too_short)?;
        let text = std::str::from_utf8(text).map_err(|error| format!("header: {error}"))?;
        let said = Literal { rest: text }.header().map_err(|why| format!("header: {why}"))?;
        let (dtype, big_endian) = dtype(said.descr)?;
        let Some(size) = said.shape.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n))
        else {
            return Err(format!("shape {:?} of {dtype} overflows", said.shape));
        };
        if size != data.len() {
            let shape = &said.shape;
            return Err(format!(
                "{size} bytes for shape {shape:?} of {dtype}, but there are {}",
                data.len()
            ));
        }
        Ok(Header {
            dtype,
            big_endian,
            fortran_order: said.fortran_order,
            shape: said.shape,
            data: bytes.len() - data.len()..bytes.len(),
        })
    }

    /// The array, from `plain`, which makes one of a shape of little-endian elements, or of turned bytes.
    fn array(
        &self,
        bytes: &[u8],
        device: &Device,
        plain: impl FnOnce(&[usize]) -> Result<Array>,
    ) -> Result<Array> {
        let mut shape = self.shape.clone();
        if self.fortran_order {
            shape.reverse();
        }
        let array = if self.big_endian {
            let mut turned = bytes[self.data.clone()].to_vec();
            // The parts of complex numbers are turned one by one.
            let size = if self.dtype.is_complex() { 4 } else { self.dtype.size() };
            turned.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            Array::from_bytes_on(&turned, &shape, self.dtype, device)?
        } else {
            plain(&shape)?
        };
        if self.fortran_order { transpose(&array) } else { Ok(array) }
    }
}

/// The dtype of a description such as `<f4`, and whether its bytes are turned.
fn dtype(descr: &str) -> Result<(DType, bool), String> {
    let (order, word) = match descr.chars().next() {
        Some(order @ ('<' | '>' | '|' | '=')) => (order, &descr[1..]),
        _ => ('=', descr),
    };
    let found = DTYPES.iter().find(|(known, _)| *known == word);
    let (_, dtype) = found.ok_or(format!("the dtype {descr:?}, which arrays cannot have"))?;
    Ok((*dtype, order == '>' && dtype.size() > 1))
}

/// The dictionary of a header.
struct Said<'a> {
    descr: &'a str,
    fortran_order: bool,
    shape: Vec<usize>,
}

/// What is left to read of a Python literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn header(mut self) -> Result<Said<'a>, String> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.take('}') {
            let key = self.string()?;
            self.expect(':')?;
            let twice = match key {
                "descr" => descr.replace(self.string()?).is_some(),
                "fortran_order" => fortran_order.replace(self.truth()?).is_some(),
                "shape" => shape.replace(self.tuple()?).is_some(),
                other => return Err(format!("unknown key {other:?}")),
            };
            if twice {
                return Err(format!("key {key:?} is there twice"));
            }
            if !self.take(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest.trim_matches(SPACES).is_empty() {
            return Err(format!("{:?} behind the dictionary", shortened(self.rest)));
        }
        let missing = |key: &str| format!("no key {key:?}");
        Ok(Said {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let rest = self.next();
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let Some((text, after)) = quote.and_then(|quote| rest[1..].split_once(quote)) else {
            return Err(format!("expected a string, got {:?}", shortened(rest)));
        };
        if text.contains('\\') {
            return Err(format!("the string {:?} has escapes", shortened(text)));
        }
        self.rest = after;
        Ok(text)
    }

    fn truth(&mut self) -> Result<bool, String> {
        let rest = self.next();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(after) = rest.strip_prefix(word) {
                self.rest = after;
                return Ok(value);
            }
        }
        Err(format!("expected True or False, got {:?}", shortened(rest)))
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut lengths = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            if lengths.len() == MOST_AXES {
                return Err(format!("more than {MOST_AXES} axes"));
            }
            lengths.push(self.length()?);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(lengths)
    }

    /// A length; old versions of Python put an `L` behind large ones.
    fn length(&mut self) -> Result<usize, String> {
        let rest = self.next();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let length = digits
            .parse()
            .map_err(|_| format!("expected the length of an axis, got {:?}", shortened(rest)))?;
        self.rest = after.strip_prefix('L').unwrap_or(after);
        Ok(length)
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.take(wanted) {
            true => Ok(()),
            false => Err(format!("expected {wanted:?}, got {:?}", shortened(self.rest))),
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let after = self.next().strip_prefix(wanted);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// What is left, without spaces before it.
    fn next(&mut self) -> &'a str {
        self.rest = self.rest.trim_start_matches(SPACES);
        self.rest
    }
}

const SPACES: [char; 4] = [' ', '\t', '\n', '\r'];

/// For messages.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}
