//! `flashyard lab`: experiments listed, shown and run; what comes of one as a table, JSON, Markdown
//! or plots.

pub mod output;
mod progress;

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use flashyard_lab::report::{QUICK, Report, Value};
use flashyard_lab::{Context, Experiment, Refused, Request, experiments, find};
use serde_json::json;

use crate::cli::{Cli, LabArgs, LabCommand, LabRunArgs};
use crate::failure::{Failure, Found, System};
use crate::json;
use crate::table::Table;
use output::Outputs;
use progress::Listener;

/// Runs the command.
pub fn run(args: LabArgs) -> Result<(), Failure> {
    match args.command {
        LabCommand::List { json } => list(json),
        LabCommand::Show { name, json } => show(known(&name)?, json),
        LabCommand::Run(args) => perform(&args),
    }
}

/// What is asked for cannot be had: says what there is, as clap does for what is no command.
fn misused(refused: Refused) -> Failure {
    let mut command = Cli::command();
    command.build();
    let lab = command.find_subcommand_mut("lab");
    lab.expect("the laboratory is a command")
        .error(ErrorKind::ValueValidation, refused)
        .into()
}

fn known(name: &str) -> Result<&'static dyn Experiment, Failure> {
    find(name).map_err(misused)
}

fn list(json: bool) -> Result<(), Failure> {
    if json {
        let all: Vec<_> = experiments()
            .iter()
            .map(|experiment| json!({"name": experiment.name(), "claim": first_sentence(experiment.claim())}))
            .collect();
        json::print("experiments", &all);
        return Ok(());
    }
    let mut table = Table::new(&["name", "shows"]);
    for experiment in experiments() {
        let claim = first_sentence(experiment.claim());
        table.row(vec![experiment.name().into(), claim.into()]);
    }
    say(&table.render())
}

fn show(experiment: &dyn Experiment, json: bool) -> Result<(), Failure> {
    let settings = experiment.settings();
    if json {
        let settings: Vec<_> = settings
            .iter()
            .map(|setting| {
                json!({
                    "key": setting.key,
                    "default": setting.default,
                    "allowed": setting.domain.to_string(),
                    "meaning": setting.meaning,
                })
            })
            .collect();
        let shown = json!({
            "name": experiment.name(),
            "claim": experiment.claim(),
            "policies": experiment.policies(),
            "settings": settings,
        });
        json::print("", &shown);
        return Ok(());
    }
    let mut parts = vec![experiment.name().to_owned(), experiment.claim().to_owned()];
    if !experiment.policies().is_empty() {
        parts.push(format!("policies: {}", experiment.policies().join(", ")));
    }
    for setting in settings {
        parts.push(format!(
            "--set {}={}\n    {}\n    {}",
            setting.key, setting.default, setting.meaning, setting.domain
        ));
    }
    say(&(parts.join("\n\n") + "\n"))
}

fn perform(args: &LabRunArgs) -> Result<(), Failure> {
    let experiment = known(&args.name)?;
    let listener = Listener::new(args.json);
    let request = Request {
        seed: args.seed,
        seeds: args.seeds,
        quick: args.quick,
        policies: args.policies.clone(),
        settings: args.settings.clone(),
    };
    let context = Context::new(experiment, &request, &listener).map_err(misused)?;
    listener.end_at_a_signal().map_err(System::Signals)?;
    // Nobody wants to hear of a full disk or a missing permission after minutes of computing.
    let outputs = Outputs::prepare(args.plot.as_deref(), args.markdown.as_deref())?;
    let outcome = experiment.run(&context);
    listener.finish();
    let stopped = listener.stopped_early();
    let mut report = match (outcome, stopped) {
        // Nothing is complete, which is an answer as well.
        (Err(Refused::Stopped), Some(_)) => Report::of(experiment, &context, 0, &[]),
        (outcome, _) => outcome.map_err(misused)?,
    };
    if stopped.is_some() {
        report.stop_early();
    }
    report.label_charts();
    let written = outputs.write(&report, experiment, &again(args))?;
    match args.json {
        true => json::print("", &report.json()),
        false => {
            say(&shown(&report))?;
            for path in written {
                eprintln!("wrote {}", path.display());
            }
        }
    }
    match stopped {
        Some(signal) => Err(Failure::Stopped(signal)),
        None => Ok(verdict(&report, args.check)?),
    }
}

/// The report as a table for people, with its notes.
fn shown(report: &Report) -> String {
    let columns = report.columns.iter().enumerate().map(|(place, column)| {
        let heading = column.unit.beside(&column.heading.to_uppercase());
        (heading, report.is_numeric(place))
    });
    let mut table = Table::of(columns);
    for row in report.cells() {
        table.row(row);
    }
    let title = format!(
        "{}   seed {}   digest {}",
        report.experiment,
        report.seed,
        report.digest_text()
    );
    let mut parts = vec![title];
    if report.quick {
        parts.push(QUICK.to_owned());
    }
    parts.push(table.render().trim_end().to_owned());
    parts.extend(report.notes.iter().cloned());
    parts.join("\n\n") + "\n"
}

/// Says how many rows pass, of an experiment that compares with something. It is a failure only
/// with `--check`: the experiment itself succeeded.
fn verdict(report: &Report, check: bool) -> Result<(), Found> {
    let Some(place) = report
        .columns
        .iter()
        .position(|column| column.name == "pass")
    else {
        return Ok(());
    };
    let count = |wanted: bool| {
        let is = |row: &&Vec<Value>| row.get(place) == Some(&Value::Flag(wanted));
        report.rows.iter().filter(is).count()
    };
    let (passed, failed) = (count(true), count(false));
    let all = passed + failed;
    let rows = Found::Rows { passed, all };
    match (failed, check) {
        (0, _) => eprintln!("{rows}"),
        (_, true) => return Err(rows),
        (_, false) => eprintln!("{rows}; --check makes the others a failure"),
    }
    Ok(())
}

/// The command that repeats the run.
fn again(args: &LabRunArgs) -> String {
    let mut words = vec!["flashyard lab run".to_owned(), quoted(&args.name)];
    let mut option = |name: &str, value: String| words.push(format!("--{name} {}", quoted(&value)));
    if !args.policies.is_empty() {
        option("policy", args.policies.join(","));
    }
    if let Some(seed) = args.seed {
        option("seed", seed.to_string());
    }
    if let Some(seeds) = args.seeds {
        option("seeds", seeds.to_string());
    }
    for (key, value) in &args.settings {
        option("set", format!("{key}={value}"));
    }
    if args.quick {
        words.push("--quick".into());
    }
    words.join(" ")
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,=:/%+@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A claim up to its first full stop.
fn first_sentence(claim: &str) -> &str {
    let end = claim.find(". ").map_or(claim.len(), |stop| stop + 1);
    &claim[..end]
}

/// Prints; who has closed the pipe has read enough.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(System::Print(error).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use flashyard_lab::report::{Column, Unit};

    use super::*;
    use crate::cli::Command;

    fn parsed(args: &[&str]) -> LabRunArgs {
        let all = [&["flashyard", "lab", "run", "ssd-validate"], args].concat();
        let cli = Cli::try_parse_from(all).expect("it is well formed");
        let Command::Lab(LabArgs {
            command: LabCommand::Run(args),
        }) = cli.command
        else {
            panic!("something else was parsed");
        };
        args
    }

    #[test]
    fn the_command_that_repeats_a_run_can_be_typed() {
        for (args, typed) in [
            (&[][..], ""),
            (&["--seed", "7", "--quick", "--json"], " --seed 7 --quick"),
            (
                &["--policy", "a,b", "--policy", "c", "--seeds", "5"],
                " --policy a,b,c --seeds 5",
            ),
            (
                &[
                    "--set",
                    "trace=it's here",
                    "--set",
                    "condition=fragmented=50%",
                ],
                r" --set 'trace=it'\''s here' --set condition=fragmented=50%",
            ),
        ] {
            assert_eq!(
                again(&parsed(args)),
                format!("flashyard lab run ssd-validate{typed}")
            );
        }
    }

    #[test]
    fn a_claim_is_listed_by_its_first_sentence() {
        assert_eq!(
            first_sentence("It is 0.5 of that. More."),
            "It is 0.5 of that."
        );
        assert_eq!(first_sentence("No stop"), "No stop");
        assert_eq!(first_sentence(""), "");
    }

    #[test]
    fn rows_that_fail_fail_the_run_only_when_checked() {
        let column = |name, unit| Column {
            name,
            heading: name,
            unit,
        };
        let mut report = Report {
            experiment: "ssd-validate",
            seed: 1,
            quick: false,
            digest: 0xbeef,
            settings: Vec::new(),
            columns: vec![
                column("test", Unit::None),
                column("measured", Unit::Micros),
                column("pass", Unit::None),
            ],
            rows: vec![
                vec![
                    Value::Text("QD1 read".into()),
                    Value::Real(85.1),
                    Value::Flag(true),
                ],
                vec![
                    Value::Text("QD32".into()),
                    Value::Missing,
                    Value::Flag(false),
                ],
            ],
            charts: Vec::new(),
            notes: vec!["A note.".into()],
        };
        assert_eq!(
            shown(&report),
            "ssd-validate   seed 1   digest 000000000000beef\n\n\
             TEST      MEASURED, us  PASS\n\
             QD1 read          85.1  yes\n\
             QD32                 -  NO\n\n\
             A note.\n"
        );
        assert_eq!(verdict(&report, false), Ok(()));
        assert_eq!(
            verdict(&report, true),
            Err(Found::Rows { passed: 1, all: 2 })
        );
        report.rows.pop();
        assert_eq!(verdict(&report, true), Ok(()));
        report.columns.pop();
        assert_eq!(verdict(&report, true), Ok(()), "nothing is compared");
    }
}
