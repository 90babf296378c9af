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

/// Each of these would say two things at once, or nothing.
#[test]
fn a_pool_is_set_in_one_way() {
    let set = ["flashyard", "pool", "set", "p"];
    let rebuild = ["--rebuild-priority", "low"];
    let limit = ["--rebuild-limit", "50MB/s"];
    let new = ["--compression", "lz4"];
    for (more, is_good) in [
        (rebuild.to_vec(), true),
        (new.to_vec(), true),
        ([rebuild, limit].concat(), true),
        ([rebuild, new].concat(), false),
        ([limit, new].concat(), false),
        (vec!["--rebuild-limit", "fast"], false),
        (vec!["--rebuild-priority", "medium"], false),
        (Vec::new(), false),
    ] {
        let parsed = Cli::try_parse_from(set.iter().chain(&more));
        assert_eq!(parsed.is_ok(), is_good, "{more:?}");
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

/// Where the texts of refusals are.
const TEXTS: [&str; 13] = [
    include_str!("../api.rs"),
    include_str!("../api/client.rs"),
    include_str!("../api/tokens.rs"),
    include_str!("../service/cause.rs"),
    include_str!("../service/cause/in_use.rs"),
    include_str!("../service/cause/refused.rs"),
    include_str!("../service/cause/remote.rs"),
    include_str!("../service/cause/to_import.rs"),
    include_str!("../service/promises.rs"),
    include_str!("../state/error.rs"),
    include_str!("../failure.rs"),
    include_str!("../perf/error.rs"),
    include_str!("../takeover.rs"),
];

/// Options that a refusal names without a command, and the commands that are refused so.
const NAMED: [(&str, &[&str]); 45] = [
    ("--bs", &["perf"]),
    ("--baseline", &["perf"]),
    ("--buffers", &["serve"]),
    ("--chunk", &["volume move"]),
    ("--class", &["tenant set"]),
    ("--compression", &["volume move"]),
    ("--connect", &["perf"]),
    ("--destroy", &["device calibrate"]),
    (
        "--device",
        &["partition delete", "pool import", "volume create"],
    ),
    ("--erase", &["volume create", "pool delete"]),
    ("--take-over", &["serve"]),
    ("--spare", &["pool add"]),
    ("--eui64", &["volume create", "volume import"]),
    (
        "--force",
        &[
            "tenant create",
            "tenant set",
            "volume create",
            "volume move",
            "apply",
            "pool create",
            "device create",
        ],
    ),
    ("--api-ca", &["status", "volume list", "apply"]),
    ("--api-cert", &["serve"]),
    ("--api-client-ca", &["serve"]),
    ("--api-key", &["serve"]),
    ("--doorbells", &["function set"]),
    ("--cores", &["function set"]),
    ("--group", &["function set"]),
    ("--guarantee", &["tenant create", "tenant set"]),
    ("--host", &["tenant set"]),
    ("--hostnqn", &["discover"]),
    ("--import", &["apply"]),
    ("--key", &["pool create", "pool import"]),
    ("--keep", &["volume create"]),
    ("--kind", &["pool create"]),
    ("--latency-target", &["tenant set"]),
    ("--limit", &["tenant set"]),
    ("--listen", &["serve", "target set"]),
    ("--mode", &["function set"]),
    ("--nguid", &["volume create", "volume import"]),
    ("--nsid", &["perf", "volume create", "volume import"]),
    ("--owner", &["function set"]),
    ("--policy", &["partition import"]),
    ("--qd", &["perf"]),
    ("--queues", &["perf"]),
    ("--quota", &["tenant set"]),
    ("--read-only", &["volume create", "volume import"]),
    ("--restore-state", &["serve"]),
    ("--state", &["serve", "restore", "status", "volume list"]),
    ("--uuid", &["volume create", "volume import"]),
    ("--weight", &["tenant set"]),
    (
        "--yes",
        &[
            "apply",
            "restore",
            "volume delete",
            "volume move",
            "partition delete",
            "function delete",
            "device delete",
        ],
    ),
];

/// Words such as `--force` in a text.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let end = |rest: &str| {
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        rest.find(|c| !name(c)).unwrap_or(rest.len())
    };
    let found = text
        .match_indices(" --")
        .map(|(place, _)| &text[place + 1..]);
    found.map(move |rest| &rest[..end(rest)])
}

#[test]
fn what_a_refusal_says_to_type_can_be_typed() {
    let commands = commands();
    let has = |words: &str, option: &str| {
        let wanted = format!("flashyard {words}");
        let found = commands.iter().find(|(path, _)| path.join(" ") == wanted);
        let (_, command) = found.unwrap_or_else(|| panic!("there is no `{wanted}`"));
        let mut all = command.get_arguments();
        all.any(|arg| arg.get_long() == option.strip_prefix("--"))
    };
    for (option, refused) in NAMED {
        for words in refused {
            assert!(has(words, option), "`flashyard {words}` has no {option}");
        }
    }
    for text in TEXTS {
        // Joined as the compiler does it.
        let text = text.split("\\\n").map(str::trim_start).collect::<String>();
        for quoted in text
            .split('`')
            .filter(|text| text.starts_with("flashyard "))
        {
            let words = quoted.split(' ').skip(1);
            let words: Vec<&str> = words
                .take_while(|it| it.starts_with(char::is_lowercase))
                .collect();
            let known = |count: &usize| {
                let wanted = ["flashyard", &words[..*count].join(" ")].join(" ");
                commands.iter().any(|(path, _)| path.join(" ") == wanted)
            };
            // Of a kind that only the program knows: `flashyard {kind} list`.
            let Some(count) = (1..=words.len().min(2)).rev().find(known) else {
                continue;
            };
            for option in options(quoted) {
                assert!(has(&words[..count].join(" "), option), "{quoted}");
            }
        }
        let alone = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        for option in options(&alone) {
            assert!(
                NAMED.iter().any(|(named, _)| *named == option),
                "which commands are refused with a word on {option}?"
            );
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
