//! An interval as a table, as lines for scripts, or as JSON.

use serde_json::{Map, Value, json};

use super::figures::{Direction, Figures, Interval, Part};
use crate::cli::IostatArgs;
use crate::json;
use crate::out::say;
use crate::table::Table;
use crate::units::microseconds;

/// How intervals are printed.
pub(super) struct Print {
    form: Form,
    latency: bool,
    histogram: bool,
    lines: u64,
    /// Cores that were said not to answer.
    silent: Vec<usize>,
}

enum Form {
    Table,
    Script,
    Json,
}

/// A column of figures: what it is called for programs and for people.
struct Column {
    key: &'static str,
    title: &'static str,
    unit: Unit,
    value: fn(&Figures, &Interval) -> Option<f64>,
}

#[derive(Clone, Copy)]
enum Unit {
    Iops,
    Bandwidth,
    Count,
    Time,
}

macro_rules! columns {
    ($($key:literal $title:literal $unit:ident $value:expr;)*) => {
        &[$(Column { key: $key, title: $title, unit: Unit::$unit, value: $value },)*]
    };
}

fn p99(direction: &Direction, part: Part, interval: &Interval) -> Option<f64> {
    direction.p99_us(part, &interval.bounds_us)
}

const RATES: &[Column] = columns! {
    "read_iops" "reads/s" Iops |it, all| Some(it.read.iops(all.seconds));
    "write_iops" "writes/s" Iops |it, all| Some(it.write.iops(all.seconds));
    "read_bytes_per_second" "read MiB/s" Bandwidth |it, all| Some(it.read.bytes_per_second(all.seconds));
    "write_bytes_per_second" "write MiB/s" Bandwidth |it, all| Some(it.write.bytes_per_second(all.seconds));
    "in_flight" "in flight" Count |it, _| Some(it.in_flight as f64);
};

const TIMES: &[Column] = columns! {
    "read_mean_us" "read mean" Time |it, _| it.read.mean_us(Part::All);
    "read_p99_us" "read p99" Time |it, all| p99(&it.read, Part::All, all);
    "write_mean_us" "write mean" Time |it, _| it.write.mean_us(Part::All);
    "write_p99_us" "write p99" Time |it, all| p99(&it.write, Part::All, all);
};

const PARTS: &[Column] = columns! {
    "read_waited_mean_us" "read waited" Time |it, _| it.read.mean_us(Part::Waited);
    "read_waited_p99_us" "p99" Time |it, all| p99(&it.read, Part::Waited, all);
    "read_served_mean_us" "read served" Time |it, _| it.read.mean_us(Part::Served);
    "read_served_p99_us" "p99" Time |it, all| p99(&it.read, Part::Served, all);
    "write_waited_mean_us" "write waited" Time |it, _| it.write.mean_us(Part::Waited);
    "write_waited_p99_us" "p99" Time |it, all| p99(&it.write, Part::Waited, all);
    "write_served_mean_us" "write served" Time |it, _| it.write.mean_us(Part::Served);
    "write_served_p99_us" "p99" Time |it, all| p99(&it.write, Part::Served, all);
};

impl Print {
    pub(super) fn new(args: &IostatArgs) -> Self {
        let form = match (args.reach.json, args.script) {
            (true, _) => Form::Json,
            (false, true) => Form::Script,
            (false, false) => Form::Table,
        };
        Self {
            form,
            latency: args.latency,
            histogram: args.histogram,
            lines: 0,
            silent: Vec::new(),
        }
    }

    /// Prints an interval, all of it at once.
    pub(super) fn line(&mut self, interval: &Interval) {
        if self.silent != interval.silent_cores {
            self.silent.clone_from(&interval.silent_cores);
            for core in &self.silent {
                eprintln!(
                    "flashyard: core {core} does not answer: of its devices nothing is shown"
                );
            }
        }
        match self.form {
            Form::Json => json::print_line(self.object(interval)),
            Form::Script => say!("{}", self.script(interval)),
            Form::Table => {
                let gap = if self.lines > 0 { "\n" } else { "" };
                say!("{gap}{}", self.table(interval));
            }
        }
        self.lines += 1;
    }

    fn columns(&self) -> impl Iterator<Item = &'static Column> {
        let parts: &[Column] = if self.latency { PARTS } else { &[] };
        RATES.iter().chain(TIMES).chain(parts)
    }

    fn table(&self, interval: &Interval) -> String {
        if interval.rows.is_empty() {
            let of = interval.by.name();
            return format!("no {of} yet: `flashyard {of} create --help` shows how to make one\n");
        }
        let name = (interval.by.name().to_uppercase(), false);
        let header = self
            .columns()
            .map(|column| (column.title.to_uppercase(), true));
        let mut table = Table::of(std::iter::once(name).chain(header));
        for row in &interval.rows {
            let cells = self.columns().map(|column| {
                let value = (column.value)(row, interval);
                value.map_or("-".to_owned(), |value| column.unit.shown(value))
            });
            table.row(std::iter::once(row.name.clone()).chain(cells).collect());
        }
        let mut text = table.render();
        for row in interval.rows.iter().filter(|_| self.histogram) {
            text.push('\n');
            text.push_str(&self.histogram(row, interval));
        }
        text
    }

    /// How many of a row took how long, from the first bucket with any to the last.
    fn histogram(&self, row: &Figures, interval: &Interval) -> String {
        let parts: &[(Part, &str)] = match self.latency {
            false => &[(Part::All, "")],
            true => &[
                (Part::All, ""),
                (Part::Waited, " WAITED"),
                (Part::Served, " SERVED"),
            ],
        };
        let directions = [(&row.read, "READS"), (&row.write, "WRITES")];
        let series: Vec<(String, &[u64])> = directions
            .into_iter()
            .flat_map(|(direction, name)| {
                let of = |(part, what): &(Part, &str)| {
                    (format!("{name}{what}"), direction.counts(*part))
                };
                parts.iter().map(of).collect::<Vec<_>>()
            })
            .collect();
        let any = |bucket: &usize| {
            series
                .iter()
                .any(|(_, counts)| counts.get(*bucket) > Some(&0))
        };
        let filled: Vec<usize> = (0..interval.bounds_us.len()).filter(any).collect();
        let (Some(first), Some(last)) = (filled.first(), filled.last()) else {
            return format!("{}: no reads and no writes\n", row.name);
        };
        let header = std::iter::once((format!("{} UNDER", row.name), true));
        let columns = series.iter().map(|(name, _)| (name.clone(), true));
        let mut table = Table::of(header.chain(columns));
        for bucket in *first..=*last {
            let bound =
                interval.bounds_us[bucket].map_or("any".to_owned(), |us| Unit::Time.shown(us));
            let counts = series
                .iter()
                .map(|(_, counts)| counts.get(bucket).unwrap_or(&0).to_string());
            table.row(std::iter::once(bound).chain(counts).collect());
        }
        table.render()
    }

    fn script(&self, interval: &Interval) -> String {
        let mut text = String::new();
        for row in &interval.rows {
            text.push_str(&row.name);
            for column in self.columns() {
                text.push('\t');
                match (column.value)(row, interval) {
                    None => text.push('-'),
                    Some(value) => text.push_str(&column.unit.exact(value).to_string()),
                }
            }
            text.push('\n');
        }
        text
    }

    fn object(&self, interval: &Interval) -> Value {
        let rows = interval.rows.iter().map(|row| {
            let mut object = Map::new();
            object.insert("name".into(), row.name.clone().into());
            for column in RATES.iter().chain(TIMES).chain(PARTS) {
                let value = (column.value)(row, interval).map(|value| column.unit.exact(value));
                object.insert(column.key.into(), value.into());
            }
            if self.histogram {
                for (key, direction) in [("read_buckets", &row.read), ("write_buckets", &row.write)]
                {
                    object.insert(key.into(), buckets(direction, interval));
                }
            }
            Value::Object(object)
        });
        json!({
            "by": interval.by.name(),
            "since_start": interval.since_start,
            "seconds": interval.seconds,
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

/// Buckets with anything in them.
fn buckets(direction: &Direction, interval: &Interval) -> Value {
    let [took, waited, served] =
        [Part::All, Part::Waited, Part::Served].map(|part| direction.counts(part));
    let at = |counts: &[u64], bucket: usize| counts.get(bucket).copied().unwrap_or_default();
    let rows = interval
        .bounds_us
        .iter()
        .enumerate()
        .filter_map(|(bucket, bound)| {
            let all = [took, waited, served].map(|counts| at(counts, bucket));
            (all != [0; 3]).then(
                || json!({"under_us": bound, "took": all[0], "waited": all[1], "served": all[2]}),
            )
        });
    rows.collect()
}

impl Unit {
    /// For people.
    fn shown(self, value: f64) -> String {
        match self {
            Self::Iops | Self::Count => format!("{value:.0}"),
            Self::Bandwidth => format!("{:.2}", value / f64::from(1 << 20)),
            Self::Time => microseconds(value),
        }
    }

    /// For programs: whole I/Os, whole bytes, and times to the nanosecond.
    fn exact(self, value: f64) -> Value {
        match self {
            Self::Count | Self::Bandwidth => (value.round() as u64).into(),
            Self::Iops | Self::Time => ((value * 1e3).round() / 1e3).into(),
        }
    }
}
