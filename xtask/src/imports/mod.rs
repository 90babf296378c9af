//! Counts circles of imports between the files of one crate; none of them may be large.
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
    let files = circle.len();
    if files <= MOST_FILES {
        return None;
    }
    let message = format!(
        "{files} files import each other in a circle, {MOST_FILES} are allowed: {}",
        circle.join(" ")
    );
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
}
