//! Circles of imports between the files of one crate: the largest that each crate has, held by a
//! ratchet.
//!
//! A file imports another when a path in it resolves to an item that the other defines; re-exports
//! are followed to the definition. `mod` declarations, test modules and macro bodies do not count.

mod circles;
mod references;
mod tree;

use std::path::Path;

use crate::tidy::Finding;
use circles::largest;
use references::imports;
use tree::Tree;

/// A circle of up to so many files is read as one thing.
const MOST_FILES: usize = 5;

/// Crates whose largest circle has more files than that, and how many. A figure can only go down.
const RATCHET: [(&str, usize); 1] = [("engine", 9)];

/// Compares the largest circle of imports in each crate below `root` with what is allowed.
pub(crate) fn check(root: &Path, crates: &[String]) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for name in crates {
        let folder = root.join("crates").join(name);
        let tree = Tree::read(&folder)?;
        let circle = largest(&imports(&tree));
        findings.extend(judge(name, &circle));
    }
    Ok(findings)
}

/// What is wrong with `circle`, the largest of the crate called `name`.
fn judge(name: &str, circle: &[String]) -> Option<Finding> {
    let ratchet = RATCHET.iter().find(|(krate, _)| *krate == name);
    let allowed = ratchet.map_or(MOST_FILES, |(_, files)| *files);
    let files = circle.len();
    let message = if files > allowed {
        format!(
            "{files} files import each other in a circle, {allowed} are allowed: {}",
            circle.join(" ")
        )
    } else if ratchet.is_some() && files < allowed {
        format!("the largest circle has {files} files now: lower the ratchet in xtask/src/imports")
    } else {
        return None;
    };
    Some(Finding {
        file: format!("crates/{name}"),
        line: 1,
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_beyond_what_is_allowed_is_found() {
        let files = |count: usize| (0..count).map(|n| format!("{n}.rs")).collect::<Vec<_>>();
        assert_eq!(judge("unlisted", &files(MOST_FILES)), None);
        let found = judge("unlisted", &files(MOST_FILES + 1)).expect("one file too many");
        assert!(
            found.message.contains("6 files import each other"),
            "{found}"
        );
    }

    #[test]
    fn the_ratchet_names_crates_that_need_it() {
        for (name, files) in RATCHET {
            assert!(files > MOST_FILES, "{name} needs no row");
        }
    }
}
