//! The names of a line chart's series, at its right edge.

use crate::markup::Markup;
use crate::report::Chart;

use super::frame::Frame;
use super::style::{BODY, MARGIN, WIDTH};
use super::svg::{self, Anchor, fitted};
use super::{lines, style};

/// From one name to the next, at least.
const STEP: f64 = 19.0;
/// The sample of a line before its name, and the room that both may take.
const SAMPLE: f64 = 26.0;
const WIDEST: f64 = 250.0;

/// What the names need of a chart's height.
pub(super) fn height(chart: &Chart) -> f64 {
    STEP * chart.series.len() as f64
}

/// What they take of its width.
pub(super) fn width(chart: &Chart) -> f64 {
    chart
        .series
        .iter()
        .filter(|series| !series.label.is_empty())
        .map(|series| (20.0 + SAMPLE + svg::width(&series.label, BODY)).min(WIDEST))
        .fold(8.0, f64::max)
}

/// Writes the names, each as near as can be to where its series ends.
pub(super) fn draw(canvas: &mut Markup, chart: &Chart, frame: &Frame) {
    let mut keys: Vec<(f64, usize)> = chart
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| !series.label.is_empty())
        .map(|(index, series)| {
            let mut places = series.points.iter().rev();
            let end = places.find_map(|&point| frame.place(point));
            (end.map_or(frame.bottom, |(_, y)| y), index)
        })
        .collect();
    keys.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    let wanted: Vec<f64> = keys.iter().map(|key| key.0).collect();
    let (from, to) = (frame.right + 12.0, frame.right + 12.0 + SAMPLE);
    let room = WIDTH - MARGIN - to - 6.0;
    for (&(_, index), y) in keys.iter().zip(spread(&wanted, frame.top, frame.bottom)) {
        lines::stroke(
            canvas,
            chart,
            index,
            &format!("M{from:.1} {y:.1}L{to:.1} {y:.1}"),
        );
        if lines::has_markers(chart) {
            canvas.put(format_args!(
                r#"<path class="point {}" d="{}"/>"#,
                style::colour(index),
                style::marker(index, (f64::midpoint(from, to), y))
            ));
        }
        let label = fitted(&chart.series[index].label, BODY, room);
        canvas.text("key", (to + 6.0, y + 4.5), Anchor::Start, &label);
    }
}

/// Ascending places near the `wanted` ones, `STEP` apart, none above `top` nor, if there is room, below `bottom`.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    let mut free = top;
    for &place in wanted {
        let place = place.max(free);
        free = place + STEP;
        places.push(place);
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - STEP;
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
