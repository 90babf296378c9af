//! Runs every check over the working tree and reports what is wrong, one line each.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, io};

use crate::{edges, imports, pages, source};

/// Folders that hold nothing of ours, relative to the root: what is built, and what fuzzing finds.
const SKIPPED: [&str; 5] = [
    ".git",
    "target",
    "fuzz/target",
    "fuzz/artifacts",
    "fuzz/coverage",
];
/// What is read as text. Scripts without an extension are recognised by their name.
const TEXT_EXTENSIONS: [&str; 12] = [
    "rs", "toml", "md", "sh", "py", "yml", "yaml", "json", "html", "css", "js", "txt",
];
const TEXT_NAMES: [&str; 3] = ["Makefile", "run", ".gitignore"];

/// Something to be fixed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the root of the workspace.
    pub(crate) file: String,
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Checks the workspace at `root`; 1 when something is to be fixed, 2 when the checks themselves
/// could not run.
pub(crate) fn run(root: &Path) -> ExitCode {
    match check(root) {
        Ok((files, findings)) if findings.is_empty() => {
            println!("tidy: {files} files, nothing to fix");
            ExitCode::SUCCESS
        }
        Ok((files, findings)) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {files} files, {} to fix", findings.len());
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("tidy: {problem}");
            ExitCode::from(2)
        }
    }
}

/// How many files were read, and what is wrong with them.
fn check(root: &Path) -> Result<(usize, Vec<Finding>), String> {
    let metadata = metadata(root)?;
    let mut findings = edges::check(&metadata)?;
    findings.extend(imports::check(root, &edges::crates(&metadata)?)?);
    let mut files = Vec::new();
    walk(root, root, &mut files)
        .map_err(|error| format!("cannot list {}: {error}", root.display()))?;
    files.sort();
    let mut texts = BTreeMap::new();
    for path in &files {
        let name = path
            .strip_prefix(root)
            .unwrap_or(path)
            .to_string_lossy()
            .replace('\\', "/");
        let bytes = fs::read(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        match String::from_utf8(bytes) {
            Ok(text) => {
                findings.extend(source::check(&name, &text));
                if path.extension().is_some_and(|extension| extension == "md") {
                    texts.insert(name, text);
                }
            }
            Err(_) => findings.push(Finding {
                file: name,
                line: 1,
                message: "not UTF-8".into(),
            }),
        }
    }
    findings.extend(pages::check(root, &texts));
    Ok((files.len(), findings))
}

/// What `cargo metadata` says of the workspace's own packages.
fn metadata(root: &Path) -> Result<serde_json::Value, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))
}

/// Adds every text file below `folder`, which lies in `root`, to `files`.
fn walk(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        let path = entry.path();
        let skipped = SKIPPED.iter().any(|skipped| path == root.join(skipped));
        if kind.is_dir() && !skipped {
            walk(root, &path, files)?;
        } else if kind.is_file() && is_text(&name) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_text(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    TEXT_NAMES.contains(&name)
        || extension.is_some_and(|extension| TEXT_EXTENSIONS.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_name_file_and_line() {
        let finding = Finding {
            file: "crates/a/src/lib.rs".into(),
            line: 7,
            message: "why".into(),
        };
        assert_eq!(finding.to_string(), "crates/a/src/lib.rs:7: why");
    }

    #[test]
    fn text_is_recognised_by_name() {
        assert!(is_text("lib.rs") && is_text("Makefile") && is_text("run"));
        assert!(!is_text("image.png") && !is_text("Cargo.lock"));
    }

    #[test]
    fn the_walk_skips_nothing_that_git_tracks() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("xtask lies in the workspace");
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(root)
            .output()
            .expect("git is there");
        assert!(listed.status.success(), "the tests run in a checkout");
        let mut walked = Vec::new();
        walk(root, root, &mut walked).expect("our own sources can be listed");
        let tracked = String::from_utf8(listed.stdout).expect("names are UTF-8");
        for name in tracked.split_terminator('\0') {
            let path = root.join(name);
            let text = path
                .file_name()
                .is_some_and(|name| is_text(&name.to_string_lossy()));
            assert!(
                !text || !path.exists() || walked.contains(&path),
                "{name} is not checked"
            );
        }
        assert!(
            !walked
                .iter()
                .any(|path| path.starts_with(root.join("target")))
        );
    }
}
