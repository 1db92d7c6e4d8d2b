//! npz, NumPy's file format of several arrays: a zip archive of npy files, plain or compressed.

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::replace::{bytes_of, replace};
use super::{MappedFile, io_error, npy};
use crate::array::Array;
use crate::device::Device;
use crate::error::{Error, Result};

/// What the name of every file in an archive ends with.
const EXTENSION: &str = ".npy";
/// Deflate makes a byte of no more than this.
const MOST_DEFLATED: u64 = 1032;

/// The arrays of an npz file by name, on the default device.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-load.npz");
/// // mx.savez("x.npz", x=x); arrays = mx.load("x.npz")
/// io::savez(&file, &BTreeMap::from([("x".to_string(), Array::new([1, 2])?)]))?;
/// assert_eq!(io::load_npz(&file)?["x"].to_vec::<i32>()?, [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn load_npz(file: impl AsRef<Path>) -> Result<BTreeMap<String, Array>> {
    let file = Npz::open(file)?;
    file.names().map(|name| Ok((name.to_string(), file.array(name)?))).collect()
}

/// Writes arrays to an npz file under their names, as they are. A file that is there is replaced at the
/// end.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let arrays = BTreeMap::from([("x".to_string(), Array::new([1.5f32])?)]);
/// // mx.savez("x.npz", x=x)
/// io::savez(std::env::temp_dir().join("wootz-doc-save.npz"), &arrays)?;
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn savez(file: impl AsRef<Path>, arrays: &BTreeMap<String, Array>) -> Result<()> {
    save(file.as_ref(), arrays, CompressionMethod::Stored)
}

/// As [`savez`], compressed.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, DType, io};
/// let file = std::env::temp_dir().join("wootz-doc-compressed.npz");
/// let arrays = BTreeMap::from([("x".to_string(), Array::zeros(&[10_000], DType::F32)?)]);
/// // mx.savez_compressed("x.npz", x=x)
/// io::savez_compressed(&file, &arrays)?;
/// assert!(std::fs::metadata(&file).unwrap().len() < 1000);
/// # Ok::<(), wootz::Error>(())
/// ```
pub fn savez_compressed(file: impl AsRef<Path>, arrays: &BTreeMap<String, Array>) -> Result<()> {
    save(file.as_ref(), arrays, CompressionMethod::Deflated)
}

fn save(file: &Path, arrays: &BTreeMap<String, Array>, method: CompressionMethod) -> Result<()> {
    let mut headers = Vec::with_capacity(arrays.len());
    for array in arrays.values() {
        headers.push(npy::header("savez", array)?);
    }
    crate::eval(arrays.values())?;
    replace(file, |new| {
        let failed = |error: std::io::Error| io_error(file, error);
        let mut zip = ZipWriter::new(new.seekable());
        for ((name, array), header) in arrays.iter().zip(&headers) {
            // What does not fit 32 bits must be known before it is written.
            let large = (array.nbytes() + header.len()) as u64 >= u32::MAX as u64 / 2;
            let options = SimpleFileOptions::default().compression_method(method).large_file(large);
            zip.start_file(format!("{name}{EXTENSION}"), options)
                .map_err(|error| failed(error.into()))?;
            zip.write_all(header).map_err(failed)?;
            bytes_of(array, |bytes| zip.write_all(bytes).map_err(failed))?;
        }
        zip.finish().map_err(|error| failed(error.into()))?;
        Ok(())
    })
}

/// An npz file: opening reads what is in it, and an array is read, checked and decompressed when it is
/// asked for.
///
/// ```
/// use std::collections::BTreeMap;
/// use wootz::{Array, io};
/// let file = std::env::temp_dir().join("wootz-doc-open.npz");
/// io::savez(&file, &BTreeMap::from([("x".to_string(), Array::new([[1.5f32]])?)]))?;
/// let file = io::Npz::open(&file)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["x"]);
/// assert_eq!(file.array("x")?.item::<f32>()?, 1.5);
/// # Ok::<(), wootz::Error>(())
/// ```
pub struct Npz {
    file: MappedFile,
    archive: ZipArchive<Cursor<Bytes>>,
    /// Places in the archive.
    entries: BTreeMap<String, usize>,
}

/// The bytes of a file that is mapped.
#[derive(Clone)]
struct Bytes(MappedFile);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl std::fmt::Debug for Npz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Npz").field("file", &self.file).field("entries", &self.entries).finish()
    }
}

impl Npz {
    /// Opens a file.
    pub fn open(file: impl AsRef<Path>) -> Result<Npz> {
        Npz::new(MappedFile::open(file)?)
    }

    /// Reads the bytes of a whole file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Npz> {
        Npz::new(MappedFile::from_bytes("bytes", bytes)?)
    }

    fn new(file: MappedFile) -> Result<Npz> {
        let wrong = |reason: String| file.error(reason);
        let mut archive = ZipArchive::new(Cursor::new(Bytes(file.clone())))
            .map_err(|error| wrong(format!("not a zip archive: {error}")))?;
        // Otherwise a little data could count often.
        let overlap = archive.has_overlapping_entries();
        if overlap.map_err(|error| wrong(format!("not a zip archive: {error}")))? {
            return Err(wrong("entries that overlap".into()));
        }
        if archive.has_duplicate_names() {
            return Err(wrong("entries of one name".into()));
        }
        let mut entries = BTreeMap::new();
        for index in 0..archive.len() {
            let entry = archive
                .by_index_raw(index)
                .map_err(|error| wrong(format!("entry {index}: {error}")))?;
            let full = entry.name().map_err(|error| wrong(format!("entry {index}: {error}")))?;
            let named = |reason: &str| wrong(format!("{full:?}: {reason}"));
            let Some(name) = full.strip_suffix(EXTENSION) else {
                return Err(named("not an npy file"));
            };
            let (size, stored) = (entry.size(), entry.compressed_size());
            let most = match entry.compression() {
                _ if entry.encrypted() => return Err(named("encrypted")),
                CompressionMethod::Stored => stored,
                CompressionMethod::Deflated => stored.saturating_mul(MOST_DEFLATED),
                other => return Err(named(&format!("compressed by {other}, which is not known"))),
            };
            // So that nothing is allocated that the file's size does not justify.
            if size > most {
                return Err(named(&format!("{size} bytes cannot be made of {stored}")));
            }
            if entries.insert(name.to_string(), index).is_some() {
                return Err(named("there twice"));
            }
        }
        Ok(Npz { file, archive, entries })
    }

    /// The arrays' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// An array, on the default device.
    pub fn array(&self, name: &str) -> Result<Array> {
        self.array_on(name, &Device::default_device())
    }

    /// As [`array`](Self::array), on a device.
    pub fn array_on(&self, name: &str, device: &Device) -> Result<Array> {
        let Some(&index) = self.entries.get(name) else {
            let expected = "the name of an array";
            return Err(Error::argument("npz", "name", expected, format!("{name:?}")));
        };
        let wrong = |reason: String| self.file.error(format!("array {name:?}: {reason}"));
        let bytes = self.read(index).map_err(|error| wrong(error.to_string()))?;
        npy::from_bytes(&bytes, device).map_err(wrong)?
    }

    /// The npy file at a place, whose sum is checked.
    fn read(&self, index: usize) -> std::io::Result<Vec<u8>> {
        // Clones share all but where they read.
        let mut archive = self.archive.clone();
        let entry = archive.by_index(index)?;
        let size = entry.size();
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size as usize)?;
        // One more, to see whether there is more.
        entry.take(size + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 == size {
            true => Ok(bytes),
            false => Err(std::io::Error::other(format!("it does not have {size} bytes"))),
        }
    }
}
