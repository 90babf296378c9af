//! Folders that are deleted at the end of their test.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, process};

/// A new, empty folder of a name that no other has. It is deleted when this is dropped, also by a
/// test that fails. It is used as the path that it is.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Among the temporary files of this machine. `label` tells people whose it is.
    ///
    /// # Panics
    /// When it cannot be created.
    pub fn new(label: &str) -> Self {
        Self::within(&env::temp_dir(), label)
    }

    /// In the folder `parent`, for tests that need a certain file system.
    ///
    /// # Panics
    /// When it cannot be created.
    pub fn within(parent: &Path, label: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("flashyard-{label}-{process}-{number}"));
        // A killed process with the same number may have left one.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Writes the file `name` and gives its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_new_and_gone_afterwards() {
        let (first, second) = (Scratch::new("same"), Scratch::new("same"));
        let file = first.file("f", "text");
        assert_eq!(fs::read(&file).expect("just written"), b"text");
        assert!(!second.join("f").exists());
        let paths = [first.to_path_buf(), second.to_path_buf()];
        drop((first, second));
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
