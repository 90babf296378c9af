//! The rules for a single file.

use crate::mask::{is_word, mask};
use crate::tidy::Finding;

/// Beyond this a file holds more than one idea.
const MOST_LINES: usize = 700;
/// Comments are read side by side with another file.
const WIDEST_COMMENT: usize = 100;
/// Crates without clock, socket, thread or randomness: decisions only.
const PURE: [&str; 6] = ["time", "nvme", "sched", "flash", "logstore", "controller"];
/// Crates that talk to the kernel or to guest memory, or have vector instructions.
const MAY_BE_UNSAFE: [&str; 4] = ["runtime", "vfio", "codec", "checksum"];
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];
// Split, so that this file does not complain of itself.
const NOTES: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACHINE_PATHS: [&str; 4] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
];

/// Everything wrong with the file called `name`, relative to the workspace, that holds `text`.
pub(crate) fn check(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut complain = |line: usize, message: String| {
        findings.push(Finding {
            file: name.to_owned(),
            line,
            message,
        });
    };
    check_text(text, &mut complain);
    if std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "rs")
    {
        check_rust(name, text, &mut complain);
    }
    findings
}

fn check_text(text: &str, complain: &mut impl FnMut(usize, String)) {
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_end() != line {
            complain(number, "trailing whitespace".into());
        }
        for path in MACHINE_PATHS {
            if begins_somewhere(line, path) {
                complain(number, format!("a path of one machine, `{path}`"));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complain(
            text.lines().count(),
            "no newline at the end of the file".into(),
        );
    }
}

fn check_rust(name: &str, text: &str, complain: &mut impl FnMut(usize, String)) {
    if !text.starts_with("//!") {
        complain(
            1,
            "the file does not begin with `//!` and its purpose".into(),
        );
    }
    let lines = text.lines().count();
    if lines > MOST_LINES {
        complain(
            MOST_LINES + 1,
            format!("{lines} lines; divide what is longer than {MOST_LINES}"),
        );
    }
    check_purity(name, text, complain);
    let may_be_unsafe = MAY_BE_UNSAFE
        .iter()
        .any(|owner| name.starts_with(&format!("crates/{owner}/")));
    for (number, code) in (1..).zip(mask(text).lines()) {
        if !may_be_unsafe && has_word(code, "unsafe") {
            complain(
                number,
                format!("`unsafe` outside of {}", MAY_BE_UNSAFE.join(" and ")),
            );
        }
        for unfinished in UNFINISHED {
            if begins_somewhere(code, unfinished) {
                complain(number, format!("`{unfinished}...)` is left over"));
            }
        }
    }
    for (number, line) in (1..).zip(text.lines()) {
        if is_comment(line) && line.chars().count() > WIDEST_COMMENT {
            complain(
                number,
                format!("a comment wider than {WIDEST_COMMENT} columns"),
            );
        }
        for note in NOTES {
            if has_word(line, note) {
                complain(number, format!("`{note}`: do it, or open an issue"));
            }
        }
    }
}

/// Whether there is nothing but a comment, rows of tables aside, which cannot be wrapped.
fn is_comment(line: &str) -> bool {
    let text = line.trim_start();
    let words = text.trim_start_matches(['/', '!']).trim_start();
    text.starts_with("//") && !words.starts_with('|')
}

/// A pure crate says so at its root, where the compiler holds it to it.
fn check_purity(name: &str, text: &str, complain: &mut impl FnMut(usize, String)) {
    if !PURE
        .iter()
        .any(|pure| name == format!("crates/{pure}/src/lib.rs"))
    {
        return;
    }
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        if !text.lines().any(|line| line == attribute) {
            complain(1, format!("a pure crate says `{attribute}`"));
        }
    }
}

/// True when `wanted` occurs in `line` and does not continue a word.
fn begins_somewhere(line: &str, wanted: &str) -> bool {
    occurrences(line, wanted).any(|place| place == 0 || !is_word(line.as_bytes()[place - 1]))
}

/// True when `wanted` occurs in `line` as a whole word.
fn has_word(line: &str, wanted: &str) -> bool {
    let ends = |place: usize| {
        line.as_bytes()
            .get(place + wanted.len())
            .is_none_or(|&byte| !is_word(byte))
    };
    occurrences(line, wanted)
        .any(|place| ends(place) && (place == 0 || !is_word(line.as_bytes()[place - 1])))
}

fn occurrences<'a>(line: &'a str, wanted: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(wanted).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(name: &str, text: &str) -> Vec<String> {
        check(name, text).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn finds(name: &str, text: &str, line: usize, part: &str) {
        let found = check(name, text);
        assert!(
            found
                .iter()
                .any(|it| it.line == line && it.message.contains(part)),
            "{found:?}"
        );
    }

    #[test]
    fn a_tidy_file_is_left_alone() {
        let text = "//! Purpose.\n#![no_std]\n#![forbid(unsafe_code)]\n\n/// Not unsafe, never `dbg!(`.\nfn safe() {}\n";
        assert_eq!(
            messages("crates/time/src/lib.rs", text),
            Vec::<String>::new()
        );
        assert_eq!(messages("Makefile", "all:\n\ttrue\n"), Vec::<String>::new());
    }

    #[test]
    fn every_fault_is_found_on_its_line() {
        let rust = "crates/block/src/a.rs";
        finds(rust, "fn a() {}\n", 1, "//!");
        finds(rust, "//! A.\nfn a() { unsafe { b() } }\n", 2, "unsafe");
        finds(rust, "//! A.\n\nfn a() { todo!() }\n", 3, "todo!(");
        finds(rust, "//! A.\nfn a() { std::dbg!(1); }\n", 2, "dbg!(");
        finds(rust, "//! A.\nfn a() { }  \n", 2, "trailing");
        finds(rust, "//! A.", 1, "newline");
        let long = "words ".repeat(20);
        let comment = format!("//! A.\n    // {long}.\n");
        finds(rust, &comment, 2, "wider than 100");
        let others = format!("//! A.\n//! | {long} |\nconst A: &str = \"{long}.\";\n");
        assert_eq!(messages(rust, &others), Vec::<String>::new());
        finds(
            rust,
            &format!("//! A.\n// {}: later\n", NOTES[0]),
            2,
            NOTES[0],
        );
        finds(
            "docs/a.md",
            &format!("see {}someone/a\n", MACHINE_PATHS[0]),
            1,
            "machine",
        );
        finds(
            "crates/sched/src/lib.rs",
            "//! A.\n#![no_std]\n",
            1,
            "forbid(unsafe_code)",
        );
        finds(
            "crates/nvme/src/lib.rs",
            "//! A.\n#![forbid(unsafe_code)]\n",
            1,
            "no_std",
        );
        finds(
            rust,
            &format!("//! A.\n{}", "\n".repeat(MOST_LINES)),
            MOST_LINES + 1,
            "divide",
        );
    }

    #[test]
    fn what_only_looks_like_a_fault_is_none() {
        for text in [
            "//! A.\n// unsafe, todo!( and dbg!(\n",
            "//! A.\nconst A: &str = \"unsafe { todo!() }\";\n",
            "//! A.\n#![deny(unsafe_op_in_unsafe_fn)]\n",
            "//! A.\nfn a() { not_a_todo!(); }\n",
        ] {
            assert_eq!(
                messages("crates/block/src/a.rs", text),
                Vec::<String>::new()
            );
        }
        assert_eq!(
            messages("docs/a.md", &format!("src{}plan.md\n", MACHINE_PATHS[0])),
            Vec::<String>::new()
        );
        assert_eq!(
            messages("crates/runtime/src/a.rs", "//! A.\nunsafe fn a() {}\n"),
            Vec::<String>::new()
        );
    }
}
