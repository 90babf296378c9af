//! Alert rules and the dashboard name only what there is, and are as they are committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::ValueEnum as _;
use schemars::JsonSchema;
use serde_json::Value;

use super::{alerts, dashboard};
use crate::control::{ErrorKind, EventKind, HealthCode};
use crate::metrics::{PREFIX, all_series};

/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

/// All series of the target and the one of Prometheus that are asked for, with their labels.
fn known() -> BTreeMap<String, Vec<&'static str>> {
    let own = all_series().into_iter();
    own.chain([("up".to_owned(), Vec::new())]).collect()
}

/// Every expression, with what is put in the place of names.
fn expressions() -> Vec<(String, String)> {
    let of_rules = alerts::alerts().into_iter();
    let of_rules = of_rules.map(|alert| (alert.expression.clone(), alert.texts()));
    let panels = dashboard::rows().into_iter().flat_map(|row| row.panels);
    let of_panels = panels
        .flat_map(|panel| panel.curves)
        .map(|curve| (curve.expression, curve.legend));
    let choices = dashboard::choices().map(|(_, query)| (query, String::new()));
    of_rules.chain(of_panels).chain(choices).collect()
}

/// Names in an expression, each with the text behind it.
fn names(expression: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(begin) = rest.find(is_part) {
        rest = &rest[begin..];
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        found.push((name, behind));
        rest = behind;
    }
    found
}

/// Labels between braces: `{a="x",b=~"y"}`.
fn matched(behind: &str) -> Vec<&str> {
    let inside = behind.strip_prefix('{').and_then(|it| it.split_once('}'));
    let inside = inside.map_or("", |(inside, _)| inside);
    let parts = inside.split(',').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split(['=', '!']).next().unwrap_or_default())
        .collect()
}

/// Labels that stand in parentheses behind `by`, `on` and `ignoring`, or behind a comma in
/// `label_values`.
fn grouped(expression: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for word in [" by (", " on (", " ignoring ("] {
        for part in expression.split(word).skip(1) {
            let (inside, _) = part.split_once(')').expect("it is closed");
            found.extend(inside.split(',').map(str::trim));
        }
    }
    if expression.starts_with("label_values(") {
        let (_, label) = expression.rsplit_once(',').expect("it has two parts");
        found.push(label.trim().trim_end_matches(')'));
    }
    found
}

/// What is wrong with an expression, and with the text that names labels of its answer.
fn faults(expression: &str, text: &str) -> Vec<String> {
    let known = known();
    let mut wrong = Vec::new();
    let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
    for (name, behind) in names(expression) {
        let Some(own) = known.get(name) else {
            if name.starts_with(PREFIX) && name != PREFIX {
                wrong.push(format!("no series {name}"));
            }
            continue;
        };
        labels.extend(own);
        for label in matched(behind) {
            if !own.contains(&label) && !OF_PROMETHEUS.contains(&label) {
                wrong.push(format!("{name} has no label {label}"));
            }
        }
    }
    let named = text.split("{{").skip(1).filter_map(|part| {
        let (name, _) = part.split_once("}}")?;
        Some(name.trim().trim_start_matches("$labels."))
    });
    let named = named.filter(|name| !name.starts_with("$value"));
    for label in grouped(expression).into_iter().chain(named) {
        if !labels.contains(label) {
            wrong.push(format!("no label {label}"));
        }
    }
    wrong
}

#[test]
fn rules_and_panels_ask_for_nothing_that_is_not_there() {
    for (expression, text) in expressions() {
        let wrong = faults(&expression, &text);
        assert!(wrong.is_empty(), "{expression}: {wrong:?}");
        let some = names(&expression).into_iter();
        let some = some.filter(|(name, _)| known().contains_key(*name));
        assert!(some.count() > 0, "{expression} asks for nothing");
    }
}

/// The test above finds what it is to find.
#[test]
fn what_is_not_there_is_found() {
    for (expression, text) in [
        ("flashyard_no_such_total > 0", ""),
        ("flashyard_healthy{tenant=\"db\"}", ""),
        ("sum by (volume) (rate(flashyard_io_bytes_total[5m]))", ""),
        ("flashyard_healthy == 0 unless on (tenant) up", ""),
        ("label_values(flashyard_healthy, device)", ""),
        ("flashyard_healthy", "{{device}}"),
        ("flashyard_healthy", "{{ $labels.code }}"),
    ] {
        assert_eq!(faults(expression, text).len(), 1, "{expression} {text}");
    }
}

#[test]
fn every_series_is_in_the_dashboard_or_in_a_rule() {
    let asked = expressions();
    let asked: Vec<_> = asked.iter().flat_map(|(it, _)| names(it)).collect();
    let asked = |name: &str| asked.iter().any(|(found, _)| *found == name);
    let mut not: Vec<String> = all_series().into_iter().map(|(name, _)| name).collect();
    not.retain(|name| !asked(name));
    // Runs and their time say nothing that `up` does not, and of times each form stands for all.
    let left = [
        "flashyard_ran_seconds_total",
        "flashyard_starts_total",
        "flashyard_io_duration_seconds_sum",
        "flashyard_io_duration_seconds_count",
    ];
    assert_eq!(not, left);
}

#[test]
fn every_code_has_a_rule_and_a_line_in_the_documentation() {
    let page = include_str!("../../../../docs/monitoring.md");
    for code in HealthCode::value_variants() {
        let line = format!("| `{code}` | {} |", code.severity());
        assert!(page.contains(&line), "docs/monitoring.md: no `{line}`");
        let rules = alerts::alerts();
        let own = |alert: &&alerts::Alert| alert.expression.contains(&format!("\"{code}\""));
        assert_eq!(rules.iter().filter(own).count(), 1, "{code}");
    }
}

/// The words that a type is told by.
fn words<T: JsonSchema>() -> Vec<String> {
    fn collect(schema: &Value, found: &mut Vec<String>) {
        let named = schema["const"].as_str().into_iter();
        let listed = schema["enum"].as_array().into_iter().flatten();
        found.extend(
            named
                .chain(listed.filter_map(Value::as_str))
                .map(str::to_owned),
        );
        for one in schema["oneOf"].as_array().into_iter().flatten() {
            collect(one, found);
        }
    }
    let mut found = Vec::new();
    collect(schemars::schema_for!(T).as_value(), &mut found);
    found
}

#[test]
fn every_kind_of_event_and_of_error_is_in_the_documentation() {
    let [events, errors] = [words::<EventKind>(), words::<ErrorKind>()];
    assert!(
        events.len() > 8 && errors.len() > 6,
        "{events:?} {errors:?}"
    );
    let page = include_str!("../../../../docs/monitoring.md");
    for kind in events {
        assert!(page.contains(&format!("`{kind}`")), "monitoring.md: {kind}");
    }
    let page = include_str!("../../../../docs/api.md");
    // What was typed wrongly does not come to the API.
    for kind in errors.iter().filter(|kind| *kind != "usage") {
        assert!(page.contains(&format!("\n| `{kind}` |")), "api.md: {kind}");
    }
}

#[test]
fn every_metric_is_in_the_documentation() {
    let page = include_str!("../../../../docs/monitoring.md");
    for (name, _) in all_series() {
        let parts = ["_bucket", "_sum", "_count"];
        let name = parts
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(&name);
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/monitoring.md: {name}"
        );
    }
}

/// `make docs` writes it.
fn page_of_monitors(name: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    let file = file.join(name);
    if std::env::var_os("FLASHYARD_WRITE_DOCS").is_some() {
        fs::write(&file, made).expect("the file can be written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(committed == made, "{name} is old: run `make docs`");
}

#[test]
fn page_of_alerts_is_as_committed() {
    page_of_monitors("flashyard.rules.yml", &alerts::rules());
}

#[test]
fn page_of_the_dashboard_is_as_committed() {
    page_of_monitors("flashyard-dashboard.json", &dashboard::dashboard());
}

/// No two panels lie on each other or beyond the page, and each has an id of its own.
#[test]
fn panels_have_places_of_their_own() {
    let document: Value = serde_json::from_str(&dashboard::dashboard()).expect("it is JSON");
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in document["panels"].as_array().expect("a list") {
        assert!(ids.insert(panel["id"].as_u64()), "{panel}");
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        for x in place("x")..place("x") + place("w") {
            assert!(x < 24, "{panel}");
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{panel}");
            }
        }
    }
}
