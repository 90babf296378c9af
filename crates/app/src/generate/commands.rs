//! `docs/commands.md`, made of the commands themselves, as their manual is. `make docs` writes it;
//! without, this fails when the page is not what would be written.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory as _};

use crate::cli::Cli;

const HEAD: &str = "# Commands

Every command and its options. This page is made of the program's own definitions by `make docs`; do not edit it. `flashyard COMMAND --help` and
`man flashyard-COMMAND` say the same. Options of a command with several words may stand behind any of them.
";

fn page() -> String {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut out = HEAD.to_owned();
    // What stands below all commands is said of all of them.
    push_notes(&command, &mut out);
    for below in command.get_subcommands() {
        push(below, (&command, command.get_name()), "##", &mut out);
    }
    out
}

/// A command, and those below it.
fn push(command: &Command, above: (&Command, &str), level: &str, out: &mut String) {
    let words = format!("{} {}", above.1, command.get_name());
    writeln!(out, "\n{level} {words}\n").expect("text");
    let about = command.get_about().map(ToString::to_string);
    writeln!(out, "{}.\n", text(&about.unwrap_or_default())).expect("text");
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    writeln!(out, "```text\n{usage}\n```").expect("text");
    push_options(command, above.0, out);
    push_notes(command, out);
    for below in command.get_subcommands() {
        push(below, (command, &words), "###", out);
    }
}

/// What it takes, without what the command above it takes for all below.
fn push_options(command: &Command, above: &Command, out: &mut String) {
    let inherited = |arg: &Arg| above.get_arguments().any(|it| it.get_id() == arg.get_id());
    let own = |arg: &&Arg| {
        let common = ["help", "version"].contains(&arg.get_id().as_str());
        let told_above = arg.is_global_set() && inherited(arg);
        !(common || told_above || arg.is_hide_set())
    };
    let (places, options): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(own)
        .partition(|arg| arg.is_positional());
    if places.is_empty() && options.is_empty() {
        return;
    }
    out.push_str("\n| option | does | default |\n| --- | --- | --- |\n");
    for arg in places.into_iter().chain(options) {
        let [name, meaning, default] = [typed(arg), meaning(arg), default(arg)];
        writeln!(out, "| {name} | {meaning} | {default} |").expect("text");
    }
}

/// What is typed: `-o`, `--option VALUE`.
fn typed(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let values = names.iter().map(ToString::to_string);
    let values = values.collect::<Vec<_>>().join(" ");
    let takes = arg.get_action().takes_values() && !values.is_empty();
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let long = arg.get_long().map(|long| match takes {
        true => format!("`--{long} {values}`"),
        false => format!("`--{long}`"),
    });
    let options: Vec<String> = short.into_iter().chain(long).collect();
    match options.is_empty() {
        true => format!("`{values}`"),
        false => options.join(", "),
    }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string);
    let mut meaning = text(&help.unwrap_or_default());
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && !values.is_empty() {
        let names = values.iter().map(|value| format!("`{}`", value.get_name()));
        let names = names.collect::<Vec<_>>().join(", ");
        write!(meaning, ": {names}").expect("text");
    }
    meaning
}

fn default(arg: &Arg) -> String {
    let values = arg.get_default_values().iter();
    let values = values.map(|value| format!("`{}`", value.to_string_lossy()));
    let values = values.collect::<Vec<_>>().join(", ");
    match (arg.is_required_set(), arg.get_action().takes_values()) {
        (true, _) => "needed".to_owned(),
        (false, true) => values,
        (false, false) => String::new(),
    }
}

/// Examples and notes, as they stand below the options in `--help`.
fn push_notes(command: &Command, out: &mut String) {
    if let Some(notes) = command.get_after_help() {
        writeln!(out, "\n```text\n{}\n```", notes.to_string().trim_end()).expect("text");
    }
}

/// Text as it can stand in a cell.
fn text(help: &str) -> String {
    let line = help.split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "\\<")
}

#[test]
fn page_of_commands_is_as_committed() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let made = page();
    if std::env::var_os("FLASHYARD_WRITE_DOCS").is_some() {
        fs::write(&file, &made).expect("the page can be written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    let differ = made
        .lines()
        .zip(committed.lines())
        .find(|(new, old)| new != old);
    assert!(
        made == committed,
        "docs/commands.md is old: run `make docs`: {differ:?}"
    );
}

/// The other tests of the manual know what there is; here, that a cell says all of it.
#[test]
fn an_option_is_told_with_its_value_its_choices_and_its_default() {
    let command = Command::new("x").disable_help_flag(true).args([
        Arg::new("size")
            .long("size")
            .short('s')
            .value_name("SIZE")
            .help("a | b")
            .default_value("1"),
        Arg::new("way")
            .required(true)
            .value_name("WAY")
            .value_parser(["in", "out"])
            .help("Which"),
    ]);
    let mut out = String::new();
    push_options(&command, &Command::new("above"), &mut out);
    assert!(
        out.contains("| `-s`, `--size SIZE` | a \\| b | `1` |\n"),
        "{out}"
    );
    assert!(
        out.contains("| `WAY` | Which: `in`, `out` | needed |\n"),
        "{out}"
    );
}
