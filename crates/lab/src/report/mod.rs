//! The results of an experiment: a table, charts and notes, without a form; and their forms: text
//! table, JSON, Markdown and an HTML page.

mod number;
mod page;
mod promise;
mod table;
#[cfg(test)]
mod tests;

pub use promise::{Got, Judged, Promise, Row, Rows};

/// Everything that one run of an experiment says.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name under which the experiment is run.
    pub experiment: &'static str,
    /// What all chance in the run followed from.
    pub seed: u64,
    /// Whether drives were small and spans short: what came of it says that the experiment works,
    /// and no more.
    pub quick: bool,
    /// A number that depends on every completion of every simulation in the run: equal digests,
    /// equal runs. Zero when the run measured the machine it ran on.
    pub digest: u64,
    /// Every setting with the value it had, in the experiment's order.
    pub settings: Vec<(String, String)>,
    /// What the values of a row mean.
    pub columns: Vec<Column>,
    /// The table; every row has a value for every column.
    pub rows: Vec<Vec<Value>>,
    /// What is better seen than read.
    pub charts: Vec<Chart>,
    /// Sentences for the reader, plain text.
    pub notes: Vec<String>,
}

/// What stands with everything that a quick run gives.
pub const QUICK: &str = "Quick run: small drives and short spans. It shows that the experiment works, not what comes of it.";

impl Report {
    /// Marks the report as stopped before all was measured. It then has no digest.
    pub fn stop_early(&mut self) {
        self.digest = 0;
        let note = "Stopped early: what is missing was not measured.";
        self.notes.insert(0, note.to_owned());
        for chart in &mut self.charts {
            chart.title.push_str(" (stopped early)");
        }
    }

    /// Says in the titles of charts, which are seen by themselves, that the run was quick.
    pub fn label_charts(&mut self) {
        for chart in self.charts.iter_mut().filter(|_| self.quick) {
            chart.title.push_str(" (quick run)");
        }
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name in JSON, the same in every experiment: `p99_us`.
    pub name: &'static str,
    /// What a reader sees above the column, without the unit: `p99`.
    pub heading: &'static str,
    /// What numbers of this column count.
    pub unit: Unit,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing, or something that the heading says.
    None,
    /// Something else in every row, which says what.
    OfRow,
    /// Microseconds.
    Micros,
    /// I/Os per second.
    Iops,
    /// Bytes per second.
    BytesPerSecond,
    /// Bytes.
    Bytes,
    /// Parts of a hundred.
    Percent,
    /// A fraction or a multiple of something.
    Ratio,
}

/// A place in the table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A word or a sentence.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number.
    Real(f64),
    /// A mean over seeds; the true one lies within `mean - half..=mean + half` with 95 %
    /// confidence.
    Interval {
        /// The mean.
        mean: f64,
        /// Half the width of the interval.
        half: f64,
    },
    /// Yes or no.
    Flag(bool),
    /// This row has none.
    Missing,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Part of a file's name: small letters, digits and hyphens.
    pub name: &'static str,
    /// What is shown.
    pub title: String,
    /// One sentence: what to see.
    pub claim: String,
    /// How it is drawn.
    pub kind: ChartKind,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Lines of reference.
    pub marks: Vec<Mark>,
}

/// How a chart is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChartKind {
    /// A line through the points of each series.
    Lines,
    /// Groups of bars, a group for each category; the first number of a point is the place of its
    /// category.
    Bars {
        /// The names of the groups, from the left.
        categories: Vec<String>,
    },
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What is drawn along it, without the unit.
    pub label: String,
    /// What its numbers count.
    pub unit: Unit,
    /// How it is divided.
    pub scale: Scale,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps add.
    Linear,
    /// Equal steps multiply. What is not above zero has no place on it.
    Log,
}

/// What belongs together in a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Horizontal and vertical value of each point, from the left.
    pub points: Vec<(f64, f64)>,
}

/// A line of reference across a chart.
#[derive(Clone, Debug)]
pub struct Mark {
    /// What it stands for.
    pub label: String,
    /// Where it is drawn.
    pub at: MarkAt,
}

/// Where a line of reference is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MarkAt {
    /// Upright, at a value of the horizontal axis.
    X(f64),
    /// Level, at a value of the vertical axis.
    Y(f64),
}
