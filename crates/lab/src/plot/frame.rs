//! The drawing of a line chart: its edges, its axes, and where a pair of values stands in it.

use crate::markup::Markup;
use crate::report::{Chart, MarkAt, Scale};

use super::keys;
use super::labels::tick_labels;
use super::marks::{self, Upright};
use super::scale::{Fit, Span, drawable};
use super::style::{MARGIN, SMALL, WIDTH};
use super::svg::{Anchor, width};

/// The height of the drawing itself, unless the names of the series need more.
const HEIGHT: f64 = 300.0;
/// From the top of the drawing to the foot of what is written above it, and from there to the line
/// above.
pub(super) const ABOVE: f64 = 13.0;
pub(super) const ROW: f64 = 16.0;

/// Where things stand: the edges of the drawing, and what they mean.
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
    /// The names of upright marks, above the drawing.
    pub(super) upright: Vec<Upright>,
    x: Span,
    y: Span,
    y_ticks: Vec<(f64, String)>,
}

impl Frame {
    /// `None` when no point can be drawn.
    pub(super) fn fit(chart: &Chart, top: f64) -> Option<Self> {
        let (x, y) = spans(chart)?;
        let height = HEIGHT.max(keys::height(chart));
        let ticks = y.ticks((height / 55.0) as usize);
        let labels = tick_labels(&chart.y, &ticks);
        let gutter = labels
            .iter()
            .map(|label| width(label, SMALL))
            .fold(24.0, f64::max);
        let mut frame = Self {
            left: MARGIN + gutter + 8.0,
            right: WIDTH - MARGIN - keys::width(chart),
            top,
            bottom: top + height,
            upright: Vec::new(),
            x,
            y,
            y_ticks: ticks.into_iter().zip(labels).collect(),
        };
        frame.upright = marks::upright(chart, &frame);
        let rows = frame.upright.iter().map(|mark| mark.row).max().unwrap_or(0);
        let above = ABOVE + 7.0 + ROW * f64::from(rows);
        frame.top += above;
        frame.bottom += above;
        Some(frame)
    }

    pub(super) fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.across(x)?, self.down(y)?))
    }

    pub(super) fn across(&self, x: f64) -> Option<f64> {
        Some(self.left + self.x.place(x)? * (self.right - self.left))
    }

    pub(super) fn down(&self, y: f64) -> Option<f64> {
        Some(self.bottom - self.y.place(y)? * (self.bottom - self.top))
    }

    /// Draws the axes with their ticks and names.
    pub(super) fn axes(&self, canvas: &mut Markup, chart: &Chart) {
        canvas.text(
            "claim",
            (MARGIN, self.top - ABOVE),
            Anchor::Start,
            &chart.y.label,
        );
        for (tick, label) in &self.y_ticks {
            let Some(y) = self.down(*tick) else { continue };
            canvas.line("grid", (self.left, y), (self.right, y));
            canvas.text("tick", (self.left - 8.0, y + 4.0), Anchor::End, label);
        }
        for (tick, label) in self.x_ticks(chart) {
            let Some(x) = self.across(tick) else { continue };
            canvas.line("axis", (x, self.bottom), (x, self.bottom + 5.0));
            canvas.text("tick", (x, self.bottom + 19.0), Anchor::Middle, &label);
        }
        canvas.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        canvas.text(
            "claim",
            (f64::midpoint(self.left, self.right), self.bottom + 38.0),
            Anchor::Middle,
            &chart.x.label,
        );
    }

    /// Ticks whose labels do not touch. On a logarithmic axis with few values the values
    /// themselves: queue depths.
    fn x_ticks(&self, chart: &Chart) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        if chart.x.scale == Scale::Log {
            ticks = distinct(chart);
        }
        if !(2..=14).contains(&ticks.len()) {
            ticks = self.x.ticks(((self.right - self.left) / 80.0) as usize);
        }
        let mut free = f64::NEG_INFINITY;
        let labels = tick_labels(&chart.x, &ticks);
        ticks
            .into_iter()
            .zip(labels)
            .filter(|(tick, label)| {
                let half = width(label, SMALL) / 2.0;
                let Some(x) = self.across(*tick) else {
                    return false;
                };
                let fits = x - half >= free;
                if fits {
                    free = x + half + 8.0;
                }
                fits
            })
            .collect()
    }
}

/// What the axes span; `None` when no point can be drawn.
fn spans(chart: &Chart) -> Option<(Span, Span)> {
    let points: Vec<(f64, f64)> = points(chart).collect();
    if points.is_empty() {
        return None;
    }
    let at_x = chart.marks.iter().filter_map(|mark| match mark.at {
        MarkAt::X(value) => Some(value),
        MarkAt::Y(_) => None,
    });
    let at_y = chart.marks.iter().filter_map(|mark| match mark.at {
        MarkAt::Y(value) => Some(value),
        MarkAt::X(_) => None,
    });
    let x = points.iter().map(|point| point.0).chain(at_x);
    let y = points.iter().map(|point| point.1).chain(at_y);
    Some((
        Span::fit(x, chart.x.scale, Fit::Close)?,
        Span::fit(y, chart.y.scale, Fit::Roomy)?,
    ))
}

/// The points of all series that can be drawn.
fn points(chart: &Chart) -> impl Iterator<Item = (f64, f64)> {
    chart
        .series
        .iter()
        .flat_map(|series| &series.points)
        .copied()
        .filter(|&(x, y)| drawable(x, chart.x.scale) && drawable(y, chart.y.scale))
}

/// The horizontal values, each once, ascending.
fn distinct(chart: &Chart) -> Vec<f64> {
    let mut values: Vec<f64> = points(chart).map(|point| point.0).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}
