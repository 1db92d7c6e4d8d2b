//! Files mapped into memory, and arrays that see regions of them.

use std::fs::{File, Metadata, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};

use super::io_error;
use crate::array::{Array, DType, Meta};
use crate::buffer::Buffer;
use crate::cpu::mapped::MappedMemory;
use crate::device::Device;
use crate::error::{Error, Result};

/// A file in memory: nothing is read before it is used, and the system may drop what was read.
///
/// Clones share the mapping, and so do arrays made of it, which keep it. Nobody may change the file
/// meanwhile: the arrays would change, and a process that reads what was cut off is ended by
/// the system; an array that is made of it after it was cut is an error. Replacing the file, as everything in [`io`](crate::io) does that writes, is fine.
///
/// ```
/// use wootz::{DType, Device, io::MappedFile};
/// let file = std::env::temp_dir().join("wootz-doc-mapped");
/// std::fs::write(&file, [7, 1, 0, 2, 0]).unwrap();
/// let mapped = MappedFile::open(&file)?;
/// let x = mapped.array(1..5, &[2], DType::U16, &Device::cpu())?;
/// assert_eq!(x.to_vec::<u16>()?, [1, 2]);
/// # Ok::<(), wootz::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MappedFile {
    path: PathBuf,
    map: Arc<Mmap>,
    /// The file, unless the mapping is a copy of bytes.
    file: Option<Arc<File>>,
}

impl MappedFile {
    /// Maps a file.
    #[allow(unsafe_code)]
    pub fn open(path: impl AsRef<Path>) -> Result<MappedFile> {
        let path = path.as_ref();
        let map = || {
            let file = open_regular(path)?;
            // SAFETY: bytes of the mapping are read as bytes and numbers, for which every pattern is
            // good; that the file is not changed while it is mapped is what this type's text asks for.
            Ok((unsafe { Mmap::map(&file)? }, file))
        };
        let (map, file) = map().map_err(|error| io_error(path, error))?;
        let (path, file) = (path.to_path_buf(), Some(Arc::new(file)));
        Ok(MappedFile { path, map: Arc::new(map), file })
    }

    /// A copy of bytes as if they were a file's; `path` is its name in errors.
    pub fn from_bytes(path: impl AsRef<Path>, bytes: &[u8]) -> Result<MappedFile> {
        let path = path.as_ref();
        let map = || {
            let mut map = MmapMut::map_anon(bytes.len())?;
            map[..bytes.len()].copy_from_slice(bytes);
            map.make_read_only()
        };
        let mapped = map().map_err(|error| io_error(path, error))?;
        Ok(MappedFile { path: path.to_path_buf(), map: Arc::new(mapped), file: None })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// A row-major array whose elements are the bytes `range`, little-endian.
    ///
    /// On the CPU the array is the file's memory, wherever the region begins: an operation that
    /// needs aligned elements copies them once, when it runs. On a GPU see
    /// [`GpuBuffer::from_mapped`](crate::gpu::GpuBuffer::from_mapped). No operation writes it.
    pub fn array(
        &self,
        range: Range<usize>,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Array> {
        const OP: &str = "mapped array";
        let meta = Meta::new(OP, shape, dtype)?;
        if Some(meta.bytes()) != range.end.checked_sub(range.start) {
            let expected = format!("{} bytes for shape {shape:?} of {dtype}", meta.bytes());
            return Err(Error::argument(OP, "range", expected, format!("{range:?}")));
        }
        crate::array::check_gpu_dtypes_if_gpu(OP, device, &meta)?;
        self.check_length(range.end)?;
        #[cfg(feature = "gpu")]
        if let Some(gpu) = device.as_gpu() {
            let size = dtype.size();
            let made = crate::gpu::GpuBuffer::from_mapped(gpu, &self.map, range, size)?;
            let mut meta = meta;
            meta.layout.offset = made.start as usize / size;
            let memory = crate::buffer::GpuMemory::new(made.buffer);
            return Ok(Array::from_buffer(device, meta, Arc::new(Buffer::Gpu(memory))));
        }
        let memory = MappedMemory::new(&self.map, range.clone()).ok_or_else(|| {
            let expected = format!("a range within the file's {} bytes", self.map.len());
            Error::argument(OP, "range", expected, format!("{range:?}"))
        })?;
        Ok(Array::from_buffer(device, meta, Arc::new(Buffer::Mapped(memory))))
    }

    /// Checks that a file that was mapped with so many bytes still has them.
    fn check_length(&self, end: usize) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let now = file.metadata().map_err(|error| io_error(&self.path, error))?.len();
        match now < end.min(self.map.len()) as u64 {
            true => Err(self.error(format!("was cut to {now} bytes while it was mapped"))),
            false => Ok(()),
        }
    }

    /// An error about the file's contents.
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        Error::Format { path: self.path.display().to_string(), reason: reason.into() }
    }
}

/// Opens a file, and nothing else: what is not one is asked after it was opened, so that nobody can put another in its
/// place meanwhile.
fn open_regular(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    // Opening a pipe would wait for somebody to write.
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, NONBLOCK);
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    check_kind(&std::fs::metadata(path)?)?;
    let file = options.open(path)?;
    check_kind(&file.metadata()?)?;
    Ok(file)
}

/// A folder can be opened on some systems, and its mapping fails with strange words.
fn check_kind(metadata: &Metadata) -> std::io::Result<()> {
    match (metadata.is_dir(), metadata.is_file()) {
        (true, _) => Err(std::io::ErrorKind::IsADirectory.into()),
        (_, true) => Ok(()),
        _ => Err(std::io::Error::other("not a regular file")),
    }
}

/// `O_NONBLOCK`, which the standard library does not name.
#[cfg(target_vendor = "apple")]
const NONBLOCK: i32 = 0x4;
#[cfg(any(target_os = "linux", target_os = "android"))]
const NONBLOCK: i32 = match cfg!(any(target_arch = "mips", target_arch = "mips64")) {
    true => 0o200,
    false if cfg!(target_arch = "sparc64") => 0o40000,
    false => 0o4000,
};
