//! What a table is made of: columns with their titles and units, and cells.

use serde_json::Value;

use crate::printable::printable;
use crate::units::microseconds;

/// What a column tells of: titles that stand above those of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// What the row is.
    Of,
    /// What is promised, and whether it is kept.
    Promise,
    /// What its hosts want.
    Wants,
    /// What it gets.
    Gets,
    /// How long that takes.
    Waits,
    /// Who is in the way.
    Blame,
}

impl Group {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Of => "",
            Self::Promise => "PROMISE",
            Self::Wants => "WANTS",
            Self::Gets => "GETS",
            Self::Waits => "WAITS",
            Self::Blame => "BLAME",
        }
    }
}

/// What the values of a column are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Words, of which as much is shown as there is room for.
    Text,
    /// A number that something is called by.
    Number,
    Count,
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// Microseconds.
    Time,
    /// A part of one.
    Part,
}

impl Unit {
    /// Of figures the largest are looked for, and of names the first.
    pub(super) fn is_figure(self) -> bool {
        !matches!(self, Self::Text | Self::Number)
    }

    /// Numbers stand to the right.
    pub(super) fn is_number(self) -> bool {
        self != Self::Text
    }

    fn shown(self, value: f64) -> String {
        match self {
            Self::Text | Self::Number | Self::Count | Self::Iops => format!("{value:.0}"),
            Self::Bandwidth => format!("{:.1}", value / f64::from(1 << 20)),
            Self::Time => microseconds(value),
            Self::Part => format!("{:.0} %", value * 100.0),
        }
    }

    /// For programs: whole counts and bytes, all else to a thousandth.
    fn exact(self, value: f64) -> Value {
        match self {
            Self::Number | Self::Count | Self::Bandwidth => (value.round() as u64).into(),
            Self::Text | Self::Iops | Self::Time | Self::Part => {
                ((value * 1e3).round() / 1e3).into()
            }
        }
    }
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// What it is called in JSON.
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) group: Group,
    pub(super) unit: Unit,
    /// Where there is not room for all, those with larger ranks are left out.
    pub(super) rank: u8,
}

impl Column {
    /// Whether somebody who types this means this column.
    pub(super) fn is_called(&self, typed: &str) -> bool {
        self.key.eq_ignore_ascii_case(typed) || self.title.eq_ignore_ascii_case(typed)
    }
}

/// What stands in a row under a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// There is nothing to tell.
    Nothing,
    Text(String),
    Number(f64),
}

impl Cell {
    /// A name or other words; made harmless for a terminal.
    pub(super) fn text(text: &str) -> Self {
        Self::Text(printable(text))
    }

    /// The same of what there may be none of.
    pub(super) fn text_if(text: Option<&str>) -> Self {
        text.map_or(Self::Nothing, Self::text)
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Number(count as f64)
    }

    pub(super) fn shown(&self, unit: Unit) -> String {
        match self {
            Self::Nothing => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Number(value) => unit.shown(*value),
        }
    }

    pub(super) fn exact(&self, unit: Unit) -> Value {
        match self {
            Self::Nothing => Value::Null,
            Self::Text(text) => text.clone().into(),
            Self::Number(value) => unit.exact(*value),
        }
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Nothing, Self::Number)
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// What it is about, by which it is found again in the next table.
    pub(super) name: String,
    /// Whose `why` it stands for.
    pub(super) tenant: Option<String>,
    /// One for each column.
    pub(super) cells: Vec<Cell>,
    /// Something is not as it was promised, or does not answer. The words of a cell say so too.
    pub(super) alarming: bool,
}

impl Row {
    /// Whether this is in any of its words, in capitals or not.
    pub(super) fn has(&self, lowercase: &str) -> bool {
        self.cells.iter().any(|cell| match cell {
            Cell::Text(text) => text.to_lowercase().contains(lowercase),
            Cell::Nothing | Cell::Number(_) => false,
        })
    }
}
