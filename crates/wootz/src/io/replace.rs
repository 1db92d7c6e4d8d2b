//! Files that appear whole or not at all: written beside their place and then renamed, so that the
//! old file stays where there is no room for the new one.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::io_error;
use crate::array::Array;
use crate::error::Result;

/// Writes the file at `path` through `write`, and replaces what is there once all of it is on disk.
pub(super) fn replace(path: &Path, write: impl FnOnce(&mut NewFile) -> Result<()>) -> Result<()> {
    let mut file = NewFile::create(path)?;
    write(&mut file)?;
    file.finish()
}

/// A file that has not taken its place yet. Dropped before that, it is gone.
pub(super) struct NewFile {
    path: PathBuf,
    // Before what removes it: not every system removes files that are open.
    to: BufWriter<File>,
    temporary: Temporary,
    written: u64,
}

/// A file that is removed when this is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0);
    }
}

impl NewFile {
    fn create(path: &Path) -> Result<NewFile> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let no_name = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
        let name = path.file_name().ok_or_else(|| io_error(path, no_name()))?;
        loop {
            // Of its own in this process and among others.
            let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(format!(".{process}-{number}.part"));
            let temporary = path.with_file_name(hidden);
            let file = match File::create_new(&temporary) {
                // Left by a process of the same number that was ended.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                file => file.map_err(|error| io_error(path, error))?,
            };
            let to = BufWriter::with_capacity(1 << 20, file);
            let (path, temporary) = (path.to_path_buf(), Temporary(temporary));
            return Ok(NewFile { path, to, temporary, written: 0 });
        }
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(|error| io_error(&self.path, error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Appends zeros up to a multiple of `alignment` bytes.
    pub(super) fn align(&mut self, alignment: u64) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut missing = self.written.next_multiple_of(alignment) - self.written;
        while missing > 0 {
            let some = missing.min(ZEROS.len() as u64);
            self.write(&ZEROS[..some as usize])?;
            missing -= some;
        }
        Ok(())
    }

    /// Appends an array's elements in row-major order; computes them if need be.
    pub(super) fn write_array(&mut self, array: &Array) -> Result<()> {
        bytes_of(array, |bytes| self.write(bytes))
    }

    /// The file itself, for a format that goes back in it. [`align`](Self::align) does not know of what is
    /// written so.
    pub(super) fn seekable(&mut self) -> &mut BufWriter<File> {
        &mut self.to
    }

    /// Puts the file in its place.
    fn finish(self) -> Result<()> {
        let NewFile { path, to, temporary, .. } = self;
        let failed = |error| io_error(&path, error);
        let file = to.into_inner().map_err(|error| failed(error.into_error()))?;
        // A system may find out late that there is no room.
        file.sync_all().map_err(failed)?;
        drop(file);
        std::fs::rename(&temporary.0, &path).map_err(failed)
    }
}

/// Shows an array's elements in row-major order; computes them if need be.
pub(super) fn bytes_of(array: &Array, show: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    let dense = array.contiguous()?;
    dense.eval()?;
    let (meta, buffer) = (dense.meta(), dense.buffer());
    match buffer.and_then(|buffer| buffer.read()) {
        Some(memory) => {
            let start = meta.layout.offset * meta.dtype.size();
            show(&memory.bytes()[start..start + meta.bytes()])
        }
        None => show(&dense.to_bytes()?),
    }
}
