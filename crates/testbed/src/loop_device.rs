//! Loop devices: block devices of the kernel over files, where the machine allows them.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file, which goes away when this is dropped. It is used as the path that it
/// is.
#[derive(Debug)]
pub struct Loop(PathBuf);

impl Loop {
    /// Over `file`, with sectors of so many bytes. Nothing where none can be made: root and
    /// `losetup` are needed.
    pub fn new(file: &Path, sector: u32) -> Option<Self> {
        let sector = sector.to_string();
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector])
            .arg(file)
            .output()
            .ok()?;
        let device = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !device.is_empty()).then(|| Self(device.into()))
    }
}

impl Deref for Loop {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _detached = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}
