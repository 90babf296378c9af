//! `flashyard generate alerts`: rules for Prometheus. There is one for each code of `health`, which
//! says what is muted, and one for each thing that a target cannot say of itself.

use std::fmt::Write as _;

use clap::ValueEnum as _;

use crate::control::{HealthCode, HealthState};
use crate::metrics::{
    BUILD_INFO, HEALTH_PROBLEMS, MEMBER_READ_ERRORS, PROMISE_MISSED, UNSAFE_SHUTDOWNS,
};

/// A rule: when it is true for so long, somebody is told.
pub struct Alert {
    pub name: String,
    pub expression: String,
    minutes: u32,
    urgency: Urgency,
    summary: String,
    description: String,
}

/// Who is to look at it, as the label `severity` has it.
#[derive(Clone, Copy)]
enum Urgency {
    /// Somebody, now.
    Critical,
    /// Somebody, on the same day.
    Warning,
    /// Whoever looks anyway.
    Info,
}

impl Urgency {
    fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }

    fn of(code: HealthCode) -> Self {
        match code {
            HealthCode::GuaranteeUnverified
            | HealthCode::GuaranteeIgnored
            | HealthCode::EmulationLate
            | HealthCode::FaultsInjected => Self::Info,
            code if code.severity() == HealthState::Failed => Self::Critical,
            _ => Self::Warning,
        }
    }
}

/// All rules, as a file for Prometheus.
pub fn rules() -> String {
    let mut text =
        "# Written by `flashyard generate alerts`. Prometheus has to call its job `flashyard`.\n\
        groups:\n  - name: flashyard\n    rules:\n"
            .to_owned();
    for alert in alerts() {
        alert.write(&mut text);
    }
    text
}

/// All rules.
pub fn alerts() -> Vec<Alert> {
    let of_codes = HealthCode::value_variants().iter().map(|code| of(*code));
    of_target().into_iter().chain(of_codes).collect()
}

/// What Prometheus itself knows of the target, and what only a comparison with before shows.
fn of_target() -> [Alert; 5] {
    let alert =
        |name: &str, urgency, minutes, expression, summary: &str, description: &str| Alert {
            name: format!("Flashyard{name}"),
            expression,
            minutes,
            urgency,
            summary: summary.to_owned(),
            description: description.to_owned(),
        };
    [
        alert(
            "Down",
            Urgency::Critical,
            2,
            "up{job=\"flashyard\"} == 0".to_owned(),
            "{{ $labels.instance }} gives Prometheus no figures",
            "It does not run, or refuses the token. See `systemctl status flashyard`, and the page Targets of Prometheus.",
        ),
        alert(
            "NotScraped",
            Urgency::Warning,
            10,
            "absent(up{job=\"flashyard\"})".to_owned(),
            "Prometheus asks no target",
            "There is no job `flashyard` in its configuration, or the job has no targets.",
        ),
        alert(
            "NoFigures",
            Urgency::Warning,
            10,
            format!("up{{job=\"flashyard\"}} == 1 unless on (job, instance) {BUILD_INFO}"),
            "What {{ $labels.instance }} answers is not a target's",
            "Another program has its port, or the metrics_path of the job is not /api/v1/metrics.",
        ),
        alert(
            "UnsafeShutdown",
            Urgency::Warning,
            0,
            format!("increase({UNSAFE_SHUTDOWNS}[1h]) > 0"),
            "{{ $labels.instance }} was cut off and has started again",
            "Its log, and that of the machine, say why.",
        ),
        alert(
            "MemberReadErrors",
            Urgency::Warning,
            0,
            format!("increase({MEMBER_READ_ERRORS}[1h]) > 0"),
            "Member {{ $labels.member }} of array {{ $labels.array }} gives wrong or no data ({{ $labels.kind }})",
            "What others have was given to hosts. Look at the drive, and replace it if it goes on: `flashyard pool replace`.",
        ),
    ]
}

/// The rule of a code. What is muted is not told.
fn of(code: HealthCode) -> Alert {
    let value = code.to_possible_value().expect("no code is skipped");
    let about = value.get_help().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let remedy = code.remedy();
    let (expression, minutes, description) = match code {
        HealthCode::GuaranteeMissed => of_promise(code, "!="),
        HealthCode::LatencyTargetMissed => of_promise(code, "="),
        code => (
            format!("{HEALTH_PROBLEMS}{{code=\"{code}\",muted=\"no\"}} > 0"),
            patience(code),
            "{{ $value }} at {{ $labels.instance }}; `flashyard health` says which.".to_owned(),
        ),
    };
    Alert {
        name: format!("Flashyard{}", camel(&code.to_string())),
        expression,
        minutes,
        urgency: Urgency::of(code),
        summary: about,
        description: format!("{description} To do: {remedy}."),
    }
}

/// Promises come and go within seconds, so what counts is how much of the time one was missed.
fn of_promise(code: HealthCode, is_target: &str) -> (String, u32, String) {
    (
        format!(
            "avg_over_time({PROMISE_MISSED}{{promise{is_target}\"latency_target\"}}[10m]) > 0.5 \
             unless on (job, instance) {HEALTH_PROBLEMS}{{code=\"{code}\",muted=\"yes\"}}"
        ),
        0,
        "Tenant {{ $labels.tenant }} on device {{ $labels.device }} ({{ $labels.promise }}), for \
         {{ $value | humanizePercentage }} of the last ten minutes."
            .to_owned(),
    )
}

/// Minutes after which somebody is told.
fn patience(code: HealthCode) -> u32 {
    match code {
        HealthCode::RedundancyLost | HealthCode::CopiesDisagree => 1,
        code if code.severity() == HealthState::Failed => 1,
        _ => 10,
    }
}

/// `POOL_FULL` as `PoolFull`.
fn camel(code: &str) -> String {
    let words = code.split('_').filter_map(|word| word.split_at_checked(1));
    words
        .map(|(first, rest)| first.to_owned() + &rest.to_lowercase())
        .collect()
}

impl Alert {
    /// What people read, with what is put in the place of names.
    #[cfg(test)]
    pub fn texts(&self) -> String {
        format!("{} {}", self.summary, self.description)
    }

    fn write(&self, text: &mut String) {
        let Self {
            name,
            expression,
            minutes,
            urgency,
            summary,
            description,
        } = self;
        let urgency = urgency.name();
        writeln!(
            text,
            "      - alert: {name}\n        expr: {}\n        for: {minutes}m\n        labels:\n          \
             severity: {urgency}\n        annotations:\n          summary: {}\n          description: {}",
            quoted(expression),
            quoted(summary),
            quoted(description),
        )
        .expect("a string takes all");
    }
}

/// For YAML, in which nothing but the quotation mark itself means anything between these.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
