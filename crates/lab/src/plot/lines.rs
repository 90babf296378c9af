//! Line charts. Each series is named at the right edge, beside where it ends.

use std::fmt::Write as _;

use crate::markup::{Markup, escape};
use crate::report::{Chart, MarkAt, Scale, Series};

use super::scale::{Fit, Span, drawable};
use super::style::{BODY, MARGIN, SMALL, WIDTH, colour, dashes, marker};
use super::svg::{Anchor, fitted, width};
use super::{nothing, tick_labels, tooltip};

/// The height of the drawing itself, unless the names of the series need more.
const HEIGHT: f64 = 300.0;
/// From one name at the right edge to the next, at least.
const KEY_STEP: f64 = 19.0;
/// The sample of a line before its name, and the room that both may take.
const SAMPLE: f64 = 26.0;
const KEYS_AT_MOST: f64 = 230.0;
/// With more points in a series there are dashes instead of markers.
const MOST_MARKED: usize = 60;

/// Draws the chart below `top`, and returns where it ends.
pub(super) fn draw(canvas: &mut Markup, chart: &Chart, top: f64) -> f64 {
    let Some(frame) = Frame::fit(chart, top) else {
        return nothing(canvas, top);
    };
    frame.axes(canvas, chart);
    frame.marks(canvas, chart);
    for (index, series) in chart.series.iter().enumerate() {
        frame.series(canvas, chart, index, series);
    }
    frame.mark_labels(canvas, chart);
    frame.keys(canvas, chart);
    frame.bottom + 50.0
}

/// Where things stand: the edges of the drawing, and what they mean.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Span,
    y: Span,
    y_ticks: Vec<(f64, String)>,
    marked: bool,
}

impl Frame {
    /// `None` when no point can be drawn.
    fn fit(chart: &Chart, top: f64) -> Option<Self> {
        let points = || {
            chart
                .series
                .iter()
                .flat_map(|series| &series.points)
                .copied()
                .filter(|&point| has_place(chart, point))
        };
        points().next()?;
        let at_x = chart.marks.iter().filter_map(|mark| match mark.at {
            MarkAt::X(value) => Some(value),
            MarkAt::Y(_) => None,
        });
        let at_y = chart.marks.iter().filter_map(|mark| match mark.at {
            MarkAt::Y(value) => Some(value),
            MarkAt::X(_) => None,
        });
        let x = Span::fit(
            points().map(|point| point.0).chain(at_x),
            chart.x.scale,
            Fit::Close,
        )?;
        let y = Span::fit(
            points().map(|point| point.1).chain(at_y),
            chart.y.scale,
            Fit::Roomy,
        )?;
        let height = HEIGHT.max(KEY_STEP * chart.series.len() as f64);
        let ticks = y.ticks((height / 55.0) as usize);
        let labels = tick_labels(&chart.y, &ticks);
        let gutter = labels
            .iter()
            .map(|label| width(label, SMALL))
            .fold(24.0, f64::max);
        // The axis has its name above it.
        let top = top + SMALL + 8.0;
        Some(Self {
            left: MARGIN + gutter + 8.0,
            right: WIDTH - MARGIN - keys_width(chart),
            top,
            bottom: top + height,
            x,
            y,
            y_ticks: ticks.into_iter().zip(labels).collect(),
            marked: chart
                .series
                .iter()
                .all(|series| series.points.len() <= MOST_MARKED),
        })
    }

    fn place(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((self.across(x)?, self.down(y)?))
    }

    fn across(&self, x: f64) -> Option<f64> {
        Some(self.left + self.x.place(x)? * (self.right - self.left))
    }

    fn down(&self, y: f64) -> Option<f64> {
        Some(self.bottom - self.y.place(y)? * (self.bottom - self.top))
    }

    fn axes(&self, canvas: &mut Markup, chart: &Chart) {
        canvas.text(
            "claim",
            (MARGIN, self.top - 12.0),
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

    /// Ticks whose labels do not touch. On a logarithmic axis with few values the values themselves: queue depths.
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

    fn series(&self, canvas: &mut Markup, chart: &Chart, index: usize, series: &Series) {
        let class = colour(index);
        let dashes = if self.marked { "none" } else { dashes(index) };
        canvas.put(format_args!(
            r#"<path class="line {class}" stroke-dasharray="{dashes}" d="{}"><title>{}</title></path>"#,
            self.path(&series.points),
            escape(&series.label)
        ));
        if !self.marked {
            return;
        }
        for &(x, y) in &series.points {
            let Some(place) = self.place((x, y)) else {
                continue;
            };
            let at = format!("{} {}", chart.x.label, chart.x.unit.quantity(x, 4));
            canvas.put(format_args!(
                r#"<path class="point {class}" d="{}"><title>{}</title></path>"#,
                marker(index, place),
                escape(&tooltip(chart, &series.label, &at, y))
            ));
        }
    }

    /// Path data of a line that is parted where a point has no place.
    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        let mut verb = 'M';
        for &point in points {
            match self.place(point) {
                Some((x, y)) => {
                    write!(path, "{verb}{x:.1} {y:.1}").expect("a string takes everything");
                    verb = 'L';
                }
                None => verb = 'M',
            }
        }
        path
    }

    fn marks(&self, canvas: &mut Markup, chart: &Chart) {
        for mark in &chart.marks {
            match mark.at {
                MarkAt::X(value) => {
                    if let Some(x) = self.across(value) {
                        canvas.line("mark", (x, self.top), (x, self.bottom));
                    }
                }
                MarkAt::Y(value) => {
                    if let Some(y) = self.down(value) {
                        canvas.line("mark", (self.left, y), (self.right, y));
                    }
                }
            }
        }
    }

    /// What the marks are, above the lines: upright ones in rows from the top, so that they do not cover each other.
    fn mark_labels(&self, canvas: &mut Markup, chart: &Chart) {
        let mut row = 0;
        for mark in &chart.marks {
            let room = (self.right - self.left) / 2.0;
            let label = fitted(&mark.label, SMALL, room);
            match mark.at {
                MarkAt::X(value) => {
                    let Some(x) = self.across(value) else {
                        continue;
                    };
                    let y = self.top + 12.0 + 16.0 * f64::from(row);
                    row += 1;
                    let (x, anchor) = match x + 6.0 + width(&label, SMALL) <= self.right {
                        true => (x + 6.0, Anchor::Start),
                        false => (x - 6.0, Anchor::End),
                    };
                    canvas.text("mark-label", (x, y), anchor, &label);
                }
                MarkAt::Y(value) => {
                    let Some(y) = self.down(value) else { continue };
                    let y = if y - self.top < 16.0 {
                        y + 15.0
                    } else {
                        y - 5.0
                    };
                    canvas.text("mark-label", (self.left + 6.0, y), Anchor::Start, &label);
                }
            }
        }
    }

    /// The names of the series, as near as can be to where each one ends.
    fn keys(&self, canvas: &mut Markup, chart: &Chart) {
        let mut keys: Vec<(f64, usize)> = chart
            .series
            .iter()
            .enumerate()
            .filter(|(_, series)| !series.label.is_empty())
            .map(|(index, series)| {
                let end = series
                    .points
                    .iter()
                    .rev()
                    .find_map(|&point| self.place(point));
                (end.map_or(self.bottom, |(_, y)| y), index)
            })
            .collect();
        keys.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
        let wanted: Vec<f64> = keys.iter().map(|key| key.0).collect();
        let places = spread(&wanted, self.top, self.bottom);
        for (&(_, index), y) in keys.iter().zip(places) {
            self.key(canvas, index, &chart.series[index].label, y);
        }
    }

    fn key(&self, canvas: &mut Markup, index: usize, label: &str, y: f64) {
        let class = colour(index);
        let (from, to) = (self.right + 12.0, self.right + 12.0 + SAMPLE);
        let dashes = if self.marked { "none" } else { dashes(index) };
        canvas.put(format_args!(
            r#"<path class="line {class}" stroke-dasharray="{dashes}" d="M{from:.1} {y:.1}L{to:.1} {y:.1}"/>"#
        ));
        if self.marked {
            let middle = (f64::midpoint(from, to), y);
            canvas.put(format_args!(
                r#"<path class="point {class}" d="{}"/>"#,
                marker(index, middle)
            ));
        }
        let room = WIDTH - MARGIN - to - 6.0;
        canvas.text(
            "key",
            (to + 6.0, y + 4.5),
            Anchor::Start,
            &fitted(label, BODY, room),
        );
    }
}

fn has_place(chart: &Chart, (x, y): (f64, f64)) -> bool {
    drawable(x, chart.x.scale) && drawable(y, chart.y.scale)
}

/// The horizontal values, each once, ascending.
fn distinct(chart: &Chart) -> Vec<f64> {
    let mut values: Vec<f64> = chart
        .series
        .iter()
        .flat_map(|series| &series.points)
        .filter(|&&point| has_place(chart, point))
        .map(|point| point.0)
        .collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// What the names of the series take at the right edge.
fn keys_width(chart: &Chart) -> f64 {
    chart
        .series
        .iter()
        .filter(|series| !series.label.is_empty())
        .map(|series| (18.0 + SAMPLE + width(&series.label, BODY)).min(KEYS_AT_MOST))
        .fold(8.0, f64::max)
}

/// Ascending places near the `wanted` ones, `KEY_STEP` apart, none above `top` nor, if there is room, below `bottom`.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    let mut free = top;
    for &place in wanted {
        let place = place.max(free);
        free = place + KEY_STEP;
        places.push(place);
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - KEY_STEP;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_and_within() {
        let table: [(&[f64], &[f64]); 4] = [
            (&[10.0, 100.0], &[10.0, 100.0]),
            (&[50.0, 50.0, 50.0], &[50.0, 69.0, 88.0]),
            (&[100.0, 100.0], &[81.0, 100.0]),
            (&[-5.0], &[0.0]),
        ];
        for (wanted, places) in table {
            assert_eq!(spread(wanted, 0.0, 100.0), places, "{wanted:?}");
        }
    }
}
