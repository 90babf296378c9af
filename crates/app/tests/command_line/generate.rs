//! Pages of the manual and completions, as they are installed.

use std::fs;
use std::process::Command;

use crate::rig::{PROGRAM, Scratch, expect_failure, path};

/// Asks Bash what it makes of words of which the last one is being typed.
const COMPLETE: &str = r#"
    set -eu
    source /dev/stdin
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    before=
    (($# < 2)) || before=${COMP_WORDS[COMP_CWORD - 1]}
    # Its status is that of nothing found.
    _flashyard flashyard "${COMP_WORDS[COMP_CWORD]}" "$before" || true
    printf '%s\n' "${COMPREPLY[@]}"
"#;

fn generated(words: &[&str]) -> Vec<u8> {
    let output = Command::new(PROGRAM).arg("generate").args(words).output();
    let output = output.expect("the program starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn pages_are_written_to_a_folder_and_not_over_a_file() {
    let scratch = Scratch::new("pages");
    let folder = scratch.join("share/man/man1");
    generated(&["man", path(&folder)]);
    for name in ["flashyard.1", "flashyard-volume-create.1"] {
        let page = fs::read_to_string(folder.join(name)).expect("it is written");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    let file = scratch.file("taken", "a file");
    let output = Command::new(PROGRAM)
        .args(["generate", "man", path(&file)])
        .output();
    expect_failure(&output.expect("the program starts"), 1, "cannot write");
}

#[test]
fn bash_completes_commands_options_and_values() {
    let scratch = Scratch::new("completions");
    let script = scratch.join("flashyard");
    fs::write(&script, generated(&["completions", "bash"])).expect("it is ours");
    let complete = |words: &str| {
        let output = Command::new("bash")
            .args(["-c", COMPLETE, "complete"])
            .args(words.split(' '))
            .stdin(fs::File::open(&script).expect("it is there"))
            .output()
            .expect("there is a bash");
        assert!(
            output.status.success(),
            "{words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout)
            .expect("words")
            .trim()
            .to_owned()
    };
    assert_eq!(complete("flashyard volu"), "volume");
    assert_eq!(complete("flashyard volume cre"), "create");
    assert_eq!(complete("flashyard serve --restore"), "--restore-state");
    assert_eq!(complete("flashyard generate completions zs"), "zsh");
    assert_eq!(complete("flashyard nosuch x"), "");
}
