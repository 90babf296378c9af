//! `flashyard generate`: pages of the manual and completions for shells, made of the commands
//! themselves, so that they say what this very program takes; and what monitors need, made of its
//! metrics.

mod alerts;
#[cfg(test)]
mod commands;
mod dashboard;
#[cfg(test)]
mod monitor_tests;

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::{Cli, GenerateArgs, GenerateCommand, Shell};
use crate::failure::{Failure, Invalid};
use crate::out::say;

/// A page: the name of its file and what is in it.
type Page = (String, Vec<u8>);

/// Makes what is asked for.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    match &args.command {
        GenerateCommand::Man { folder } => Ok(write_pages(folder)?),
        GenerateCommand::Completions { shell } => {
            say!("{}", completions(*shell));
            Ok(())
        }
        GenerateCommand::Alerts => {
            say!("{}", alerts::rules());
            Ok(())
        }
        GenerateCommand::Grafana => {
            say!("{}", dashboard::dashboard());
            Ok(())
        }
    }
}

fn write_pages(folder: &Path) -> Result<(), Invalid> {
    let failed = |path: &Path, error| Invalid::Unwritable(path.to_owned(), error);
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    let pages = pages().map_err(|error| failed(folder, error))?;
    for (name, text) in pages {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// A page for each command.
fn pages() -> io::Result<Vec<Page>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut made = Vec::new();
    add_pages(&command, &mut made)?;
    Ok(made)
}

fn add_pages(command: &Command, made: &mut Vec<Page>) -> io::Result<()> {
    made.push(page(command)?);
    command
        .get_subcommands()
        .try_for_each(|below| add_pages(below, made))
}

fn page(command: &Command) -> io::Result<Page> {
    let man = Man::new(command.clone())
        .source(concat!("flashyard ", env!("CARGO_PKG_VERSION")))
        .manual("Flashyard");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(help) = command.get_after_help() {
        notes(&help.to_string()).to_writer(&mut text)?;
    }
    Ok((man.get_filename(), text))
}

/// What stands below the options in `--help`, line by line: examples are not joined.
fn notes(help: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["NOTES"]).control("nf", []);
    for line in help.lines() {
        match line {
            "" => roff.control("sp", []),
            line => roff.text([roman(line)]),
        };
    }
    roff.control("fi", []);
    roff
}

fn completions(shell: Shell) -> String {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "flashyard", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// All commands, by the words that lead to them.
    fn commands() -> Vec<(String, Command)> {
        fn add(command: &Command, words: &str, found: &mut Vec<(String, Command)>) {
            for below in command
                .get_subcommands()
                .filter(|it| it.get_name() != "help")
            {
                add(below, &format!("{words} {}", below.get_name()), found);
            }
            found.push((words.to_owned(), command.clone()));
        }
        let mut command = Cli::command();
        command.build();
        let mut found = Vec::new();
        add(&command, "flashyard", &mut found);
        found
    }

    /// A page as it is read, without what a formatter takes out.
    fn read(page: &[u8]) -> String {
        let text = String::from_utf8_lossy(page).into_owned();
        let marks = ["\\fB", "\\fI", "\\fR", "\\&"];
        let plain = marks.iter().fold(text, |text, mark| text.replace(mark, ""));
        let plain = plain.replace("\\-", "-").replace("\\*(Aq", "'");
        plain.replace(r"\\", r"\")
    }

    #[test]
    fn every_command_has_a_page_with_its_options_and_examples() {
        let pages = pages().expect("memory takes them");
        let commands = commands();
        assert_eq!(pages.len(), commands.len());
        for (words, command) in commands {
            let name = format!("{}.1", words.replace(' ', "-"));
            let found = pages.iter().find(|(page, _)| *page == name);
            let text = read(&found.unwrap_or_else(|| panic!("no page {name}")).1);
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(text.contains(&format!("--{option}")), "{name}: {option}");
            }
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            for line in help.lines().filter(|line| !line.is_empty()) {
                assert!(text.lines().any(|it| it == line), "{name}: `{line}`");
            }
        }
    }

    #[test]
    fn every_shell_hears_of_every_command() {
        for shell in Shell::value_variants() {
            let text = completions(*shell);
            for (words, command) in commands() {
                let word = words.rsplit(' ').next().unwrap_or_default();
                assert!(text.contains(word), "{shell:?}: {words}");
                for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                    assert!(text.contains(option), "{shell:?}: {words} --{option}");
                }
            }
        }
    }
}
