//! Keeping the cache small: folders of other versions, and kernels of long ago.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Versions that are kept: those of some branches that one works on.
const VERSIONS: usize = 4;

/// Files of a version that are kept; all tests need less than half of them.
const KERNELS: usize = 100_000;

/// Whoever opened a version longer ago has ended.
const IN_USE: Duration = Duration::from_secs(6 * 3600);

/// Its time is that of the last use.
const MARK: &str = "used";

/// Notes that a version is used now, and removes others that are not, and its kernels if they are too
/// many. `version` is a folder beside those of other versions. What cannot be removed stays: another
/// process may be removing it.
pub(crate) fn clean(version: &Path) {
    let now = SystemTime::now();
    let free = |folder: &Path| {
        let age = now.duration_since(last_use(folder)).unwrap_or_default();
        age > IN_USE
    };
    let kernels = version.join("kernels");
    let count = fs::read_dir(&kernels).map_or(0, Iterator::count);
    if count > KERNELS && free(version) {
        fs::remove_dir_all(&kernels).ok();
    }
    fs::create_dir_all(version).ok();
    fs::write(version.join(MARK), "").ok();

    let Some(Ok(entries)) = version.parent().map(fs::read_dir) else { return };
    let mut versions: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(MARK).exists() || path.join("kernels").exists())
        .collect();
    versions.sort_by_key(|path| std::cmp::Reverse(last_use(path)));
    for old in versions.iter().skip(VERSIONS).filter(|path| free(path)) {
        fs::remove_dir_all(old).ok();
    }
}

fn last_use(version: &Path) -> SystemTime {
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    time(&version.join(MARK)).or_else(|_| time(version)).unwrap_or_else(|_| SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_removed_and_new_ones_and_other_folders_stay() {
        let parent = std::env::temp_dir().join(format!("metal-sim-clean-{}", std::process::id()));
        let used = |name: &str, hours: u64| {
            let version = parent.join(name);
            fs::create_dir_all(version.join("kernels")).unwrap();
            fs::write(version.join(MARK), "").unwrap();
            let time = SystemTime::now() - Duration::from_secs(3600 * hours);
            let mark = fs::File::options().write(true).open(version.join(MARK)).unwrap();
            mark.set_modified(time).unwrap();
        };
        for (name, hours) in
            [("a", 90), ("b", 80), ("c", 70), ("d", 60), ("e", 50), ("f", 3), ("g", 2), ("h", 1)]
        {
            used(name, hours);
        }
        fs::create_dir_all(parent.join("other")).unwrap();
        // With `c`, the last four are `c`, `f`, `g` and `h`.
        clean(&parent.join("c"));
        let left = |parent: &Path| {
            let names = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> =
                names.map(|name| name.to_string_lossy().into_owned()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(left(&parent), "c f g h other");
        // All are in use.
        ["i", "j", "k"].iter().for_each(|name| clean(&parent.join(name)));
        assert_eq!(left(&parent), "c f g h i j k other");
        fs::remove_dir_all(&parent).unwrap();
    }
}
