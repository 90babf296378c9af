//! Line charts: a line through the points of each series.

use std::fmt::Write as _;

use crate::markup::{Markup, escape};
use crate::report::Chart;

use super::frame::Frame;
use super::labels::{nothing, tooltip};
use super::style::{colour, dashes, marker};
use super::{keys, marks};

/// With more points in a series there are dashes instead of markers.
const MOST_MARKED: usize = 60;

/// Draws the chart below `top`, and returns where it ends.
pub(super) fn draw(canvas: &mut Markup, chart: &Chart, top: f64) -> f64 {
    let Some(frame) = Frame::fit(chart, top) else {
        return nothing(canvas, top);
    };
    frame.axes(canvas, chart);
    marks::draw_lines(canvas, chart, &frame);
    for index in 0..chart.series.len() {
        draw_series(canvas, chart, &frame, index);
    }
    marks::draw_names(canvas, &frame);
    keys::draw(canvas, chart, &frame);
    frame.bottom + 50.0
}

/// Draws a piece of a series' line, level and between two horizontal places.
pub(super) fn draw_sample(
    canvas: &mut Markup,
    chart: &Chart,
    series: usize,
    (from, to): (f64, f64),
    y: f64,
) {
    stroke(
        canvas,
        chart,
        series,
        &format!("M{from:.1} {y:.1}L{to:.1} {y:.1}"),
    );
    if has_markers(chart) {
        canvas.put(format_args!(
            r#"<path class="point {}" d="{}"/>"#,
            colour(series),
            marker(series, (f64::midpoint(from, to), y))
        ));
    }
}

/// Whether every point has a marker. Otherwise there are too many, and lines differ by their
/// dashes.
fn has_markers(chart: &Chart) -> bool {
    let few = |points: usize| points <= MOST_MARKED;
    chart.series.iter().all(|series| few(series.points.len()))
}

/// Draws path data as a series' lines are drawn.
fn stroke(canvas: &mut Markup, chart: &Chart, index: usize, path: &str) {
    let dashes = match has_markers(chart) {
        true => "none",
        false => dashes(index),
    };
    canvas.put(format_args!(
        r#"<path class="line {}" stroke-dasharray="{dashes}" d="{path}"><title>{}</title></path>"#,
        colour(index),
        escape(&chart.series[index].label)
    ));
}

fn draw_series(canvas: &mut Markup, chart: &Chart, frame: &Frame, index: usize) {
    let series = &chart.series[index];
    stroke(canvas, chart, index, &path(frame, &series.points));
    if !has_markers(chart) {
        return;
    }
    for &(x, y) in &series.points {
        let Some(place) = frame.place((x, y)) else {
            continue;
        };
        let at = format!("{} {}", chart.x.label, chart.x.unit.quantity(x, 4));
        canvas.put(format_args!(
            r#"<path class="point {}" d="{}"><title>{}</title></path>"#,
            colour(index),
            marker(index, place),
            escape(&tooltip(chart, &series.label, &at, y))
        ));
    }
}

/// Path data of a line that is parted where a point has no place.
fn path(frame: &Frame, points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut verb = 'M';
    for &point in points {
        match frame.place(point) {
            Some((x, y)) => {
                write!(path, "{verb}{x:.1} {y:.1}").expect("a string takes everything");
                verb = 'L';
            }
            None => verb = 'M',
        }
    }
    path
}
