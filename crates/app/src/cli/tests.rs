//! The help of all commands: examples that can be typed, options in groups.

use clap::{CommandFactory as _, Parser as _};

use super::Cli;

/// All commands with the words that lead to them.
fn all(command: &clap::Command, words: &[String]) -> Vec<(Vec<String>, clap::Command)> {
    let mut found = vec![(words.to_vec(), command.clone())];
    for below in command
        .get_subcommands()
        .filter(|it| it.get_name() != "help")
    {
        let words = [words, &[below.get_name().to_owned()]].concat();
        found.extend(all(below, &words));
    }
    found
}

fn commands() -> Vec<(Vec<String>, clap::Command)> {
    let mut command = Cli::command();
    command.build();
    all(&command, &["flashyard".to_owned()])
}

/// The words of the examples in a help text, as a shell takes them.
fn examples(help: &str) -> Vec<Vec<String>> {
    let joined = help.replace(" \\\n", " ");
    let lines = joined.lines().map(str::trim);
    let typed = lines.filter(|line| line.starts_with("flashyard "));
    let word = |word: &str| word.trim_matches('\'').to_owned();
    typed
        .map(|line| line.split_whitespace().map(word).collect())
        .collect()
}

#[test]
fn every_command_has_an_example_that_can_be_typed() {
    for (words, command) in commands() {
        let help = command.get_after_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        let examples = examples(&help);
        let own = |example: &&Vec<String>| example.starts_with(&words);
        assert!(examples.iter().any(|it| own(&it)), "no example: {words:?}");
        for example in examples {
            if let Err(error) = Cli::try_parse_from(&example) {
                panic!("{example:?}: {error}");
            }
        }
    }
}

#[test]
fn every_option_stands_in_a_group() {
    for (words, command) in commands() {
        let options = command.get_arguments().filter(|arg| !arg.is_positional());
        for option in options.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
            let name = option.get_id();
            assert!(option.get_help_heading().is_some(), "{words:?} --{name}");
            assert!(option.get_help().is_some(), "{words:?} --{name}");
        }
    }
}

/// The examples of the test itself: quotes and lines that go on.
#[test]
fn examples_are_read_as_a_shell_does() {
    let help = "Examples:\n  flashyard a --host '*' \\\n    --b c\n\nNot flashyard this.";
    assert_eq!(
        examples(help),
        [["flashyard", "a", "--host", "*", "--b", "c"]]
    );
}
