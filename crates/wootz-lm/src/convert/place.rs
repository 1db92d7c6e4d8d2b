//! Where a conversion goes: made under another name beside it and then renamed, so that what is there
//! is whole, and what was there before stays if something fails.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fs4::fs_std::FileExt;

use super::{companions, is_gguf};
use crate::{Error, Result};

/// The place of an output, which no other process writes to meanwhile.
#[derive(Debug)]
pub(super) struct Place {
    target: PathBuf,
    /// A folder beside the target, for this conversion only.
    workshop: PathBuf,
    /// Held as long as the conversion runs; the system lets go of it if the process ends.
    lock: Option<File>,
}

impl Place {
    /// Claims a place. What is there already is in the way, unless it may be overwritten.
    pub(super) fn claim(target: &Path, overwrite: bool) -> Result<Place> {
        let no_name =
            || Error::argument("output", "the name of a folder or file", target.display());
        let name = target.file_name().ok_or_else(no_name)?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        fs::create_dir_all(&parent).map_err(|error| Error::file(&parent, error))?;
        let target = parent.join(name);
        check_free(&target, overwrite)?;
        let workshop = parent.join(format!(".{}.converting", name.to_string_lossy()));
        let lock = lock(&target, &workshop)?;
        let place = Place { target, workshop, lock: Some(lock) };
        place.restore()?;
        // Another process may have finished in between.
        check_free(&place.target, overwrite)?;
        place.tidy()?;
        Ok(place)
    }

    /// Where to make the output.
    pub(super) fn draft(&self) -> PathBuf {
        self.workshop.join("new")
    }

    /// Puts what was made in its place, once all of it is on disk.
    pub(super) fn finish(self) -> Result<()> {
        sync(&self.draft())?;
        let failed = |error| Error::file(&self.target, error);
        if self.target.exists() {
            fs::rename(&self.target, self.old()).map_err(failed)?;
        }
        if let Err(error) = fs::rename(self.draft(), &self.target) {
            self.restore()?;
            return Err(failed(error));
        }
        self.target.parent().map_or(Ok(()), sync_entries)
    }

    /// Where what is replaced is kept until the new is in its place.
    fn old(&self) -> PathBuf {
        self.workshop.join("old")
    }

    /// Puts back what a run took away that was ended before it put the new in its place.
    fn restore(&self) -> Result<()> {
        if self.target.exists() || !self.old().exists() {
            return Ok(());
        }
        fs::rename(self.old(), &self.target).map_err(|error| Error::file(&self.target, error))
    }

    /// Removes what a run left that was ended.
    fn tidy(&self) -> Result<()> {
        for path in [self.draft(), self.old()] {
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false if path.exists() => fs::remove_file(&path),
                false => Ok(()),
            };
            removed.map_err(|error| Error::file(&path, error))?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What could not be put back stays where it is.
        if self.restore().is_err() {
            return;
        }
        // Not every system removes files that are open.
        self.lock = None;
        let _stays_if_it_must = fs::remove_dir_all(&self.workshop);
    }
}

/// Brings a file, or a folder with all that is in it, to the disk: names must not be there before what they name.
fn sync(path: &Path) -> Result<()> {
    let failed = |error| Error::file(path, error);
    if path.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            sync(&entry.map_err(failed)?.path())?;
        }
        return sync_entries(path);
    }
    // Windows wants to be asked for writing.
    let file = File::options().read(true).write(cfg!(windows)).open(path).map_err(failed)?;
    file.sync_all().map_err(failed)
}

/// Brings the names in a folder to the disk, where a system lets programs open folders.
fn sync_entries(folder: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    // Some file systems cannot.
    match synced {
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(|error| Error::file(folder, error)),
    }
}

/// An error if replacing the target would remove what the model is read from: it is the target, or lies in it.
pub(super) fn expect_apart(source: &Path, target: &Path) -> Result<()> {
    // Where nothing is, nothing is removed.
    let Ok(place) = target.canonicalize() else { return Ok(()) };
    let mut files = vec![source.to_path_buf()];
    if source.is_dir() {
        let entries = fs::read_dir(source).map_err(|error| Error::file(source, error))?;
        let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
        // A model that lies beside it, or below, is another.
        let is_read = |file: &PathBuf| {
            file.is_file() && (!is_gguf(file) || file.ends_with(companions::METADATA))
        };
        files.extend(entries.filter(is_read));
    }
    // Both what a link is and what it leads to.
    let inside = |file: &PathBuf| {
        let named = file.parent().and_then(|parent| {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Some(parent.canonicalize().ok()?.join(file.file_name()?))
        });
        [named, file.canonicalize().ok()].iter().flatten().any(|file| file.starts_with(&place))
    };
    match files.iter().find(|file| inside(file)) {
        None => Ok(()),
        Some(file) => {
            let got = format!("{}, which has {} in it", target.display(), file.display());
            Err(Error::argument("output", "a place that the model is not read from", got))
        }
    }
}

/// Takes the lock of a workshop, or says that somebody else has it.
fn lock(target: &Path, workshop: &Path) -> Result<File> {
    let path = workshop.join("lock");
    let failed = |error| Error::file(workshop, error);
    // Whoever had the lock removes the folder at the end: what was locked then is nowhere.
    for _ in 0..16 {
        fs::create_dir_all(workshop).map_err(failed)?;
        let Ok(file) = File::options().create(true).append(true).open(&path) else { continue };
        if !file.try_lock_exclusive().map_err(failed)? {
            break;
        }
        if path.exists() {
            return Ok(file);
        }
    }
    Err(Error::argument(
        "output",
        "a place that nobody else writes to",
        format!("{}, which another process is converting to", target.display()),
    ))
}

/// An error if something is in the way.
fn check_free(target: &Path, overwrite: bool) -> Result<()> {
    if !target.exists() {
        return Ok(());
    }
    let got = || format!("{}, which exists", target.display());
    if !overwrite {
        return Err(Error::argument("output", "a new folder or file (or to overwrite it)", got()));
    }
    // Nobody means to replace a folder of other things.
    let mut entries = match target.is_dir() {
        true => fs::read_dir(target).map_err(|error| Error::file(target, error))?,
        false => return Ok(()),
    };
    match target.join("config.json").exists() || entries.next().is_none() {
        true => Ok(()),
        false => Err(Error::argument("output", "a model to overwrite", got() + " and is none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_claims_a_place_and_an_ended_run_does_not_hold_it() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("model");
        let first = Place::claim(&target, false).unwrap();
        let error = Place::claim(&target, false).unwrap_err().to_string();
        assert!(error.contains("another process is converting"), "{error}");
        fs::create_dir(first.draft()).unwrap();
        drop(first);
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none());

        // As if a process had been ended while it wrote.
        let left = folder.path().join(".model.converting").join("new");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("config.json"), "{").unwrap();
        let again = Place::claim(&target, false).unwrap();
        assert!(!again.draft().exists());
    }

    #[test]
    fn what_is_there_stays_unless_it_may_be_overwritten_and_is_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("model");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("letters.txt"), "dear").unwrap();
        assert!(Place::claim(&target, false).is_err());
        let error = Place::claim(&target, true).unwrap_err().to_string();
        assert!(error.contains("a model to overwrite"), "{error}");

        fs::write(target.join("config.json"), "{}").unwrap();
        let place = Place::claim(&target, true).unwrap();
        fs::create_dir(place.draft()).unwrap();
        fs::write(place.draft().join("config.json"), "new").unwrap();
        place.finish().unwrap();
        assert_eq!(fs::read_to_string(target.join("config.json")).unwrap(), "new");
        assert!(!target.join("letters.txt").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_there_comes_back_if_a_run_ends_between_its_two_renamings() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("model");
        let old = folder.path().join(".model.converting").join("old");
        fs::create_dir_all(&old).unwrap();
        fs::write(old.join("config.json"), "old").unwrap();
        let error = Place::claim(&target, false).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
        assert_eq!(fs::read_to_string(target.join("config.json")).unwrap(), "old");

        // Nothing was made that could take its place.
        let place = Place::claim(&target, true).unwrap();
        assert!(place.finish().is_err());
        assert_eq!(fs::read_to_string(target.join("config.json")).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    #[cfg(unix)]
    fn what_cannot_be_brought_to_the_disk_takes_no_place() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("model");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("config.json"), "old").unwrap();
        let place = Place::claim(&target, true).unwrap();
        fs::create_dir_all(place.draft().join("inner")).unwrap();
        fs::write(place.draft().join("config.json"), "new").unwrap();
        // A file that is there by name only.
        std::os::unix::fs::symlink("nowhere", place.draft().join("inner/weights")).unwrap();
        let error = place.finish().unwrap_err().to_string();
        assert!(error.contains("inner/weights"), "{error}");
        assert_eq!(fs::read_to_string(target.join("config.json")).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
