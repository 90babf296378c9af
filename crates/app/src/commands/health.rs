//! `flashyard health`, `flashyard metrics` and `flashyard status`.

use serde::Deserialize;
use serde_json::Value;

use super::{place, run, show};
use crate::api;
use crate::cli::{HealthArgs, HealthCommand, Reach, StatusArgs};
use crate::control::{HealthAsk, HealthState, HealthView, MetricsForm, Page, Request};
use crate::failure::{Failure, Found};
use crate::json;
use crate::out::{say, say_line};
use crate::table;

/// `flashyard health …`.
pub fn health(args: &HealthArgs) -> Result<(), Failure> {
    match args.command {
        None => show(&args.reach, &Request::Health(HealthAsk::Show), print_health),
        Some(HealthCommand::Mute { code, seconds }) => run(
            &args.reach,
            &Request::Health(HealthAsk::Mute(code, seconds)),
        ),
        Some(HealthCommand::Unmute { code }) => {
            run(&args.reach, &Request::Health(HealthAsk::Unmute(code)))
        }
    }
}

/// `flashyard metrics`.
pub fn metrics(reach: &Reach) -> Result<(), Failure> {
    show(
        reach,
        &Request::Metrics(MetricsForm::Text),
        |text: &String| say!("{text}"),
    )
}

/// `flashyard status`.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    match args.check {
        true => check(&args.reach),
        false => show(
            &args.reach,
            &Request::Status(Page::default()),
            |status: &Value| {
                if let Ok(health) = HealthView::deserialize(status) {
                    print_health(&health);
                    say_line!();
                }
                table::print_status(status);
            },
        ),
    }
}

/// `flashyard status --check`.
fn check(reach: &Reach) -> Result<(), Failure> {
    let place = place(reach)?;
    let view: HealthView = api::ask(&place, &Request::Health(HealthAsk::Show))?;
    match reach.json {
        true => json::print("", &view),
        false => say_line!("{}", line(&view)),
    }
    match view.health {
        HealthState::Healthy => Ok(()),
        state => Err(Found::Health(state).into()),
    }
}

/// All of it in a line, for a monitor.
fn line(view: &HealthView) -> String {
    let counting = view.problems.iter().filter(|row| row.muted_until.is_none());
    let all: Vec<String> = counting
        .map(|row| format!("{} ({})", row.code, row.count))
        .collect();
    match all.is_empty() {
        true => view.health.to_string(),
        false => format!("{}: {}", view.health, all.join(", ")),
    }
}

fn print_health(view: &HealthView) {
    say_line!("{}", view.health);
    for row in &view.problems {
        let more = match row.count.saturating_sub(row.what.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        say_line!(
            "  {} ({}): {}{more}",
            row.code,
            row.severity,
            row.what.join(", ")
        );
        if !row.detail.is_empty() {
            say_line!("    {}", row.detail);
        }
        say_line!("    to do: {}", row.remedy);
        if let Some(until) = &row.muted_until {
            say_line!("    muted until {until}");
        }
    }
}
