//! Grouped bar charts. The bars lie, so that the names of groups have room however many and however
//! long they are.

use crate::markup::{Markup, escape};
use crate::report::{Chart, MarkAt, Series};

use super::labels::{nothing, tick_labels, tooltip};
use super::scale::{Fit, Span};
use super::style::{BODY, MARGIN, SMALL, WIDTH, colour};
use super::svg::{Anchor, fitted, width};

/// The room that the names of groups may take.
const NAMES_AT_MOST: f64 = 240.0;
/// Free space between groups.
const BETWEEN: f64 = 12.0;
/// A key of the legend: its square, and free space behind its name.
const SQUARE: f64 = 11.0;
const BEHIND: f64 = 20.0;

/// Draws the chart below `top`, and returns where it ends.
pub(super) fn draw(canvas: &mut Markup, chart: &Chart, categories: &[String], top: f64) -> f64 {
    let Some(span) = span(chart) else {
        return nothing(canvas, top);
    };
    let top = legend(canvas, chart, top);
    let frame = Frame::new(chart, categories, span, top);
    frame.axis(canvas, chart);
    for (group, name) in categories.iter().enumerate() {
        frame.group(canvas, chart, group, name);
    }
    frame.marks(canvas, chart);
    for group in 0..categories.len() {
        frame.values(canvas, chart, group);
    }
    frame.bottom + 50.0
}

struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// Thickness of a bar.
    bar: f64,
    span: Span,
}

impl Frame {
    fn new(chart: &Chart, categories: &[String], span: Span, top: f64) -> Self {
        let names = categories
            .iter()
            .map(|name| width(name, BODY))
            .fold(24.0, f64::max)
            .min(NAMES_AT_MOST);
        let values = values(chart)
            .map(|value| width(&chart.y.unit.quantity(value, 3), SMALL))
            .fold(24.0, f64::max);
        let bar = match chart.series.len() {
            0..=1 => 20.0,
            2..=4 => 15.0,
            _ => 13.0,
        };
        // Names of marks stand above.
        let marks = chart
            .marks
            .iter()
            .filter(|mark| matches!(mark.at, MarkAt::Y(_)));
        let top = top + 16.0 * marks.count() as f64;
        let group = bar * chart.series.len() as f64 + BETWEEN;
        Self {
            left: MARGIN + names + 8.0,
            right: WIDTH - MARGIN - values - 6.0,
            top,
            bottom: top + group * categories.len() as f64 + BETWEEN,
            bar,
            span,
        }
    }

    fn across(&self, value: f64) -> Option<f64> {
        Some(self.left + self.span.place(value)? * (self.right - self.left))
    }

    /// Where bars begin: at zero, or where a logarithmic axis begins.
    fn origin(&self) -> f64 {
        self.across(0.0).unwrap_or(self.left)
    }

    fn axis(&self, canvas: &mut Markup, chart: &Chart) {
        let ticks = self.span.ticks(((self.right - self.left) / 90.0) as usize);
        let mut free = f64::NEG_INFINITY;
        for (&tick, label) in ticks.iter().zip(tick_labels(&chart.y, &ticks)) {
            let Some(x) = self.across(tick) else { continue };
            canvas.line("grid", (x, self.top), (x, self.bottom));
            let half = width(&label, SMALL) / 2.0;
            if x - half >= free {
                canvas.text("tick", (x, self.bottom + 19.0), Anchor::Middle, &label);
                free = x + half + 8.0;
            }
        }
        let origin = self.origin();
        canvas.line("axis", (origin, self.top), (origin, self.bottom));
        canvas.text(
            "claim",
            (f64::midpoint(self.left, self.right), self.bottom + 38.0),
            Anchor::Middle,
            &chart.y.label,
        );
    }

    /// The name of a group, and its bars.
    fn group(&self, canvas: &mut Markup, chart: &Chart, group: usize, name: &str) {
        let middle = self.bar_top(chart, group, 0) + self.bar * chart.series.len() as f64 / 2.0;
        let label = fitted(name, BODY, NAMES_AT_MOST);
        canvas.text("key", (self.left - 8.0, middle + 4.5), Anchor::End, &label);
        let origin = self.origin();
        for (index, series) in chart.series.iter().enumerate() {
            let Some(value) = value_at(series, group) else {
                continue;
            };
            let Some(end) = self.across(value) else {
                continue;
            };
            canvas.put(format_args!(
                r#"<rect class="bar {}" x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}"><title>{}</title></rect>"#,
                colour(index),
                origin.min(end),
                self.bar_top(chart, group, index) + 0.5,
                (end - origin).abs().max(0.5),
                self.bar - 1.0,
                escape(&tooltip(chart, &series.label, name, value))
            ));
        }
    }

    /// The numbers behind the bars of a group, on top of everything; what cannot be drawn is
    /// written nevertheless.
    fn values(&self, canvas: &mut Markup, chart: &Chart, group: usize) {
        let origin = self.origin();
        for (index, series) in chart.series.iter().enumerate() {
            let Some(value) = value_at(series, group) else {
                continue;
            };
            let end = self.across(value).map_or(origin, |end| end.max(origin));
            let foot = self.bar_top(chart, group, index) + self.bar / 2.0 + 4.0;
            let text = chart.y.unit.quantity(value, 3);
            canvas.text("value", (end + 6.0, foot), Anchor::Start, &text);
        }
    }

    fn bar_top(&self, chart: &Chart, group: usize, index: usize) -> f64 {
        let height = self.bar * chart.series.len() as f64 + BETWEEN;
        self.top + BETWEEN + height * group as f64 + self.bar * index as f64
    }

    /// Values to compare with stand upright here, since the bars lie; their names are above, one to
    /// a row.
    fn marks(&self, canvas: &mut Markup, chart: &Chart) {
        let mut row = 0;
        for mark in &chart.marks {
            let MarkAt::Y(value) = mark.at else { continue };
            row += 1;
            let Some(x) = self.across(value) else {
                continue;
            };
            let y = self.top - 16.0 * f64::from(row) + 8.0;
            canvas.line("mark", (x, y + 4.0), (x, self.bottom));
            let room = (self.right - self.left) / 2.0;
            let label = fitted(&mark.label, SMALL, room);
            let anchor = match x - self.left < room {
                true => Anchor::Start,
                false => Anchor::End,
            };
            canvas.text("mark-label", (x, y), anchor, &label);
        }
    }
}

/// The value that a series has in a group.
fn value_at(series: &Series, group: usize) -> Option<f64> {
    // A place is a small whole number; the margin makes up for one that was computed.
    let here = |&&(place, _): &&(f64, f64)| (place - group as f64).abs() < 0.5;
    series.points.iter().find(here).map(|point| point.1)
}

/// What the values need; `None` when none can be drawn.
fn span(chart: &Chart) -> Option<Span> {
    let marks = chart.marks.iter().filter_map(|mark| match mark.at {
        MarkAt::Y(value) => Some(value),
        MarkAt::X(_) => None,
    });
    Span::fit(values(chart), chart.y.scale, Fit::FromZero)?;
    Span::fit(values(chart).chain(marks), chart.y.scale, Fit::FromZero)
}

fn values(chart: &Chart) -> impl Iterator<Item = f64> {
    chart
        .series
        .iter()
        .flat_map(|series| &series.points)
        .map(|point| point.1)
}

/// The names of the series in rows, unless there is only one; returns where they end.
fn legend(canvas: &mut Markup, chart: &Chart, top: f64) -> f64 {
    if chart.series.len() < 2 {
        return top;
    }
    let (mut x, mut y) = (MARGIN, top);
    for (index, series) in chart.series.iter().enumerate() {
        let label = fitted(&series.label, BODY, WIDTH / 2.0);
        let needed = SQUARE + 6.0 + width(&label, BODY);
        if x > MARGIN && x + needed > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + 20.0);
        }
        canvas.put(format_args!(
            r#"<rect class="bar {}" x="{x:.1}" y="{y:.1}" width="{SQUARE}" height="{SQUARE}"/>"#,
            colour(index)
        ));
        canvas.text(
            "key",
            (x + SQUARE + 6.0, y + SQUARE - 1.0),
            Anchor::Start,
            &label,
        );
        x += needed + BEHIND;
    }
    y + 24.0
}
