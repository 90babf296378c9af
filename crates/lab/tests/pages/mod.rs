//! The committed page of an experiment says what is wanted, and what its own table makes of that.
//!
//! Numbers of a page are rounded, so what came may differ in its last digit from what the run had;
//! what is wanted and whether it is kept may not. `FLASHYARD_WRITE_PAGES=1` puts into the pages
//! what their tables say, for experiments whose promises have changed and whose results have not.

use std::fs;
use std::path::PathBuf;

use flashyard_lab::Experiment;
use flashyard_lab::report::{Report, Unit, Value};

const HEAD: [&str; 2] = ["| wanted | got | kept |", "| --- | --- | --- |"];

/// Compares the page of `experiment`, whose columns are those of `report`, with its table.
pub fn check(report: &Report, experiment: &dyn Experiment) {
    let name = experiment.name();
    if experiment.promises().is_empty() {
        return;
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments");
    let path = path.join(format!("{name}.md"));
    let page = fs::read_to_string(&path).unwrap_or_default();
    let of_table = Report {
        quick: false,
        rows: rows(report, &page),
        ..report.clone()
    };
    assert!(
        !of_table.rows.is_empty(),
        "the page of {name} has no table, or an old one"
    );
    let wanted = of_table.promise_cells(experiment);
    if std::env::var_os("FLASHYARD_WRITE_PAGES").is_some() {
        fs::write(&path, with(&page, &wanted)).expect("the page can be written");
        return;
    }
    let wanted: Vec<[String; 2]> = wanted.into_iter().map(|[it, _, kept]| [it, kept]).collect();
    assert_eq!(shown(&page), wanted, "the page of {name} is old");
}

/// The rows of the table of results.
fn rows(report: &Report, page: &str) -> Vec<Vec<Value>> {
    let headings = report.headings();
    let lines = page.lines().skip_while(|line| cells(line) != headings);
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    let value = |(place, cell): (usize, String)| match report.is_numeric(place) {
        true => number(&cell, report.columns[place].unit),
        false => Value::Text(cell),
    };
    let row = |line| cells(line).into_iter().enumerate().map(value).collect();
    lines.map(row).collect()
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix("| ").and_then(|it| it.strip_suffix(" |"));
    let plain = |cell: &str| cell.replace('\\', "").trim().to_owned();
    inner.map_or_else(Vec::new, |inner| inner.split(" | ").map(plain).collect())
}

/// A number as tables show it, in the base unit of its column.
fn number(cell: &str, unit: Unit) -> Value {
    let mean = cell.split('\u{b1}').next().unwrap_or_default();
    let Ok(number) = mean.replace(',', "").trim().parse::<f64>() else {
        return Value::Missing;
    };
    Value::Real(match unit {
        Unit::BytesPerSecond => number * 1e6,
        Unit::Bytes => number * 1024.0,
        _ => number,
    })
}

/// What is wanted, and whether it is kept, as it stands in a page.
fn shown(page: &str) -> Vec<[String; 2]> {
    let lines = page.lines().skip_while(|line| *line != HEAD[0]).skip(2);
    let row = |line: &str| match &cells(line)[..] {
        [wanted, _, kept] => [wanted.clone(), kept.clone()],
        other => panic!("`{line}` has {} cells", other.len()),
    };
    lines
        .take_while(|line| line.starts_with('|'))
        .map(row)
        .collect()
}

/// The page with these promises below its claim, instead of any that it has.
fn with(page: &str, promises: &[[String; 3]]) -> String {
    let mut lines: Vec<&str> = page.lines().collect();
    if let Some(begin) = lines.iter().position(|line| *line == HEAD[0]) {
        let len = lines[begin..]
            .iter()
            .take_while(|it| it.starts_with('|'))
            .count();
        lines.drain(begin..(begin + len + 1).min(lines.len()));
    }
    let table = lines
        .iter()
        .position(|line| line.starts_with("| "))
        .unwrap_or(lines.len());
    let rows = promises.iter().map(|cells| {
        let plain = |cell: &String| cell.replace('|', "\\|").replace('`', "\\`");
        format!(
            "| {} |",
            cells.iter().map(plain).collect::<Vec<_>>().join(" | ")
        )
    });
    let head = HEAD.map(str::to_owned).into_iter();
    let promises: Vec<String> = head.chain(rows).chain([String::new()]).collect();
    let (above, below) = lines.split_at(table);
    let all = above
        .iter()
        .copied()
        .chain(promises.iter().map(String::as_str))
        .chain(below.iter().copied());
    all.collect::<Vec<_>>().join("\n") + "\n"
}
