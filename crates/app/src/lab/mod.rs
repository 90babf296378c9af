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
        true => json::print("", &report.json(experiment)),
        false => {
            say(&shown(&report, experiment))?;
            for path in written {
                eprintln!("wrote {}", path.display());
            }
        }
    }
    match stopped {
        Some(signal) => Err(Failure::Stopped(signal)),
        None => Ok(verdict(&report, experiment, args.check)?),
    }
}

/// The report as a table for people, with what was promised and its notes.
fn shown(report: &Report, experiment: &dyn Experiment) -> String {
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
    let promises = report.promise_cells(experiment);
    if !promises.is_empty() {
        let headings = ["WANTED", "GOT", "KEPT"].map(|heading| (heading.to_owned(), false));
        let mut table = Table::of(headings);
        for cells in promises {
            table.row(cells.into());
        }
        parts.push(table.render().trim_end().to_owned());
    }
    parts.extend(report.notes.iter().cloned());
    parts.join("\n\n") + "\n"
}

/// Says how many rows pass, of an experiment that compares with something, and how many promises
/// are kept. What is missed is a failure only with `--check`: the experiment itself succeeded.
fn verdict(report: &Report, experiment: &dyn Experiment, check: bool) -> Result<(), Found> {
    let place = report.columns.iter().position(|it| it.name == "pass");
    let rows = report.rows.iter().filter_map(|row| row.get(place?));
    let judged = report.judged(experiment);
    let promises: Vec<Value> = judged.iter().map(|it| report.verdict(it)).collect();
    let [passed, all] = counted(rows);
    let [kept, of] = counted(promises.iter());
    let mut missed = None;
    for (good, all, found) in [
        (passed, all, Found::Rows { passed, all }),
        (kept, of, Found::Promises { kept, all: of }),
    ] {
        match (all - good, check) {
            (0, _) if all == 0 => {}
            (0, _) => eprintln!("{found}"),
            (_, true) if missed.is_none() => missed = Some(found),
            (_, true) => eprintln!("{found}"),
            (_, false) => eprintln!("{found}; --check makes the others a failure"),
        }
    }
    missed.map_or(Ok(()), Err)
}

/// How many say yes, and how many say anything.
fn counted<'a>(values: impl Iterator<Item = &'a Value>) -> [usize; 2] {
    values.fold([0, 0], |[yes, all], value| match value {
        Value::Flag(flag) => [yes + usize::from(*flag), all + 1],
        _ => [yes, all],
    })
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
        let validate = find("ssd-validate").expect("it is there");
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
            shown(&report, validate),
            "ssd-validate   seed 1   digest 000000000000beef\n\n\
             TEST      MEASURED, us  PASS\n\
             QD1 read          85.1  yes\n\
             QD32                 -  NO\n\n\
             A note.\n"
        );
        assert_eq!(verdict(&report, validate, false), Ok(()));
        assert_eq!(
            verdict(&report, validate, true),
            Err(Found::Rows { passed: 1, all: 2 })
        );
        report.rows.pop();
        assert_eq!(verdict(&report, validate, true), Ok(()));
        report.columns.pop();
        assert_eq!(
            verdict(&report, validate, true),
            Ok(()),
            "nothing is compared"
        );
    }

    #[test]
    fn promises_that_are_missed_are_shown_and_fail_the_run_only_when_checked() {
        let sybil = find("sybil").expect("it is there");
        let column = |name| Column {
            name,
            heading: name,
            unit: Unit::None,
        };
        let mut report = Report {
            experiment: "sybil",
            seed: 1,
            quick: false,
            digest: 0xbeef,
            settings: Vec::new(),
            columns: vec![column("policy"), column("f_util_min"), column("f_util_max")],
            rows: vec![vec![
                Value::Text("fair".into()),
                Value::Real(0.9),
                Value::Real(1.0),
            ]],
            charts: Vec::new(),
            notes: Vec::new(),
        };
        let text = shown(&report, sybil);
        assert!(text.contains("WANTED") && text.contains("  NO\n"), "{text}");
        assert_eq!(verdict(&report, sybil, false), Ok(()));
        let missed = Found::Promises { kept: 0, all: 1 };
        assert_eq!(verdict(&report, sybil, true), Err(missed));
        report.quick = true;
        assert_eq!(verdict(&report, sybil, true), Ok(()));
    }
}
