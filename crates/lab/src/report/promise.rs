//! What is wanted of the results of an experiment, and whether they are so.
//!
//! A promise judges the table, whose rows and columns everybody sees. It is what is wanted, not
//! what comes out: one that is missed stays as it is, and the page shows it as missed.

use std::fmt;

use super::{Column, Report, Value};
use crate::Experiment;

/// What is wanted of the results of an experiment.
#[derive(Clone, Copy)]
pub struct Promise {
    /// A sentence, without its full stop.
    pub wanted: &'static str,
    /// What came of it; nothing where the run did not measure it.
    pub judge: fn(&Rows) -> Option<Got>,
}

/// What came of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    /// Whether it is as was wanted.
    pub kept: bool,
    /// What it is.
    pub text: String,
}

/// A promise with what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What is wanted.
    pub wanted: &'static str,
    /// What came; nothing where the run did not measure it.
    pub got: Option<Got>,
}

/// Some rows of a table.
#[derive(Clone)]
pub struct Rows<'a> {
    rows: Vec<Row<'a>>,
}

/// A row of a table.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    columns: &'a [Column],
    values: &'a [Value],
}

impl Report {
    /// The promises of the experiment that this is a report of, with what came of them. A quick run
    /// shows that they can be judged; what comes of it says nothing.
    pub fn judged(&self, experiment: &dyn Experiment) -> Vec<Judged> {
        let rows = Rows::of(self);
        let judge = |promise: &Promise| Judged {
            wanted: promise.wanted,
            got: (promise.judge)(&rows),
        };
        experiment.promises().iter().map(judge).collect()
    }
}

impl<'a> Rows<'a> {
    /// All rows of a report.
    pub fn of(report: &'a Report) -> Self {
        let columns = &report.columns[..];
        let row = |values: &'a Vec<Value>| Row { columns, values };
        Self {
            rows: report.rows.iter().map(row).collect(),
        }
    }

    /// Those that are so.
    pub fn that(&self, is: impl Fn(&Row) -> bool) -> Self {
        let rows = self.rows.iter().copied().filter(|row| is(row));
        Self {
            rows: rows.collect(),
        }
    }

    /// Those with this word in a column.
    pub fn with(&self, column: &str, word: &str) -> Self {
        self.that(|row| row.word(column) == word)
    }

    /// Those with the same words in these columns as `like`.
    pub fn like(&self, like: &Row, columns: &[&str]) -> Self {
        self.that(|row| {
            columns
                .iter()
                .all(|name| row.value(name) == like.value(name))
        })
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Row<'a>> + '_ {
        self.rows.iter().copied()
    }

    /// The first of them.
    pub fn first(&self) -> Option<Row<'a>> {
        self.rows.first().copied()
    }

    /// The numbers of a column, of the rows that have one.
    pub fn numbers(&self, column: &str) -> Vec<f64> {
        self.iter().filter_map(|row| row.number(column)).collect()
    }

    /// Something of each row that has it.
    pub fn each(&self, of: impl Fn(&Row) -> Option<f64>) -> Vec<f64> {
        self.rows.iter().filter_map(of).collect()
    }
}

impl<'a> Row<'a> {
    /// What stands in a column, if there is such a column and something stands there.
    pub fn value(&self, column: &str) -> Option<&'a Value> {
        let place = self.columns.iter().position(|it| it.name == column);
        debug_assert!(place.is_some(), "there is no column {column}");
        self.values.get(place?)
    }

    /// The word in a column; empty where there is none.
    pub fn word(&self, column: &str) -> &'a str {
        match self.value(column) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The number in a column; the mean of an interval.
    pub fn number(&self, column: &str) -> Option<f64> {
        let number = match self.value(column)? {
            Value::Count(count) => *count as f64,
            Value::Real(real) => *real,
            Value::Interval { mean, .. } => *mean,
            Value::Text(_) | Value::Flag(_) | Value::Missing => return None,
        };
        number.is_finite().then_some(number)
    }

    /// One column by another.
    pub fn ratio(&self, of: &str, to: &str) -> Option<f64> {
        let (of, to) = (self.number(of)?, self.number(to)?);
        (to > 0.0).then(|| of / to)
    }
}

impl Got {
    /// All lie from `least` to `most`; nothing when there are none.
    pub fn within(values: &[f64], least: f64, most: f64) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let missed = values.iter().filter(|it| **it < least || **it > most);
        let missed = missed.count();
        let mut text = match values.len() {
            1 => short(low),
            _ => format!("{} to {}", short(low), short(high)),
        };
        if missed > 0 && values.len() > 1 {
            text = format!("{text}; {missed} of {} outside", values.len());
        }
        Some(Self {
            kept: missed == 0,
            text,
        })
    }

    /// None is less.
    pub fn at_least(values: &[f64], least: f64) -> Option<Self> {
        Self::within(values, least, f64::INFINITY)
    }

    /// None is more.
    pub fn at_most(values: &[f64], most: f64) -> Option<Self> {
        Self::within(values, f64::NEG_INFINITY, most)
    }

    /// All are zero.
    pub fn none(values: &[f64]) -> Option<Self> {
        let sum: f64 = values.iter().sum();
        (!values.is_empty()).then(|| Self {
            kept: sum == 0.0,
            text: short(sum),
        })
    }

    /// Each is more than the one before it.
    pub fn rising(values: &[f64]) -> Option<Self> {
        let texts: Vec<String> = values.iter().map(|it| short(*it)).collect();
        (values.len() > 1).then(|| Self {
            kept: values.is_sorted_by(|before, after| before < after),
            text: texts.join(", "),
        })
    }
}

impl Judged {
    /// Whether it is kept, as a cell.
    pub fn kept(&self) -> Value {
        let kept = self.got.as_ref().map(|got| got.kept);
        kept.map_or(Value::Missing, Value::Flag)
    }

    /// What came, as a cell.
    pub fn got(&self) -> &str {
        self.got.as_ref().map_or("not measured", |got| &got.text)
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }
}

/// A number as it stands in a sentence: three digits that count, all of a whole number.
fn short(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size >= 100.0 || number.fract() == 0.0 => format!("{number:.0}"),
        _ if size >= 10.0 => format!("{number:.1}"),
        _ if size >= 0.1 => format!("{number:.3}"),
        _ => format!("{number:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unit;
    use super::*;

    #[test]
    fn numbers_are_judged_by_their_bounds() {
        let kept = |got: Option<Got>| got.map(|got| (got.kept, got.text));
        let values = [0.951, 1.0, 1.049];
        let all = (true, "0.951 to 1.049".to_owned());
        assert_eq!(kept(Got::within(&values, 0.95, 1.05)), Some(all));
        let one = (false, "0.951 to 1.049; 1 of 3 outside".to_owned());
        assert_eq!(kept(Got::at_least(&values, 0.96)), Some(one));
        assert_eq!(
            kept(Got::at_most(&[12.34], 12.0)),
            Some((false, "12.3".into()))
        );
        assert_eq!(kept(Got::at_most(&[], 1.0)), None);
        assert_eq!(kept(Got::none(&[0.0, 0.0])), Some((true, "0".into())));
        assert_eq!(kept(Got::none(&[0.0, 2.0])), Some((false, "2".into())));
        assert_eq!(kept(Got::rising(&[1.0, 2.0])), Some((true, "1, 2".into())));
        assert!(Got::rising(&[2.0, 1.0]).is_some_and(|got| !got.kept));
        assert_eq!(kept(Got::rising(&[1.0])), None);
    }

    #[test]
    fn rows_are_found_by_their_words() {
        let column = |name| Column {
            name,
            heading: name,
            unit: Unit::None,
        };
        let columns = [column("policy"), column("rate")];
        let row = |policy: &str, rate| [Value::Text(policy.into()), rate];
        let values = [
            row("fair", Value::Real(2.0)),
            row("fifo", Value::Count(4)),
            row("fair", Value::Missing),
        ];
        let row = |values| Row {
            columns: &columns,
            values,
        };
        let rows = Rows {
            rows: values.iter().map(|values| row(&values[..])).collect(),
        };
        assert_eq!(rows.with("policy", "fair").numbers("rate"), [2.0]);
        assert_eq!(rows.with("policy", "none").first().map(|_| ()), None);
        let first = rows.first().expect("there are three");
        assert_eq!(rows.like(&first, &["policy"]).iter().count(), 2);
        assert_eq!((first.word("rate"), first.number("policy")), ("", None));
        assert_eq!(first.ratio("rate", "rate"), Some(1.0));
    }
}
