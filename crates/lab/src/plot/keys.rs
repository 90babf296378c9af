//! The names of a line chart's series, at its right edge.

use crate::markup::Markup;
use crate::report::Chart;

use super::frame::Frame;
use super::style::BODY;
use super::svg::{self, Anchor, fitted, wrapped};
use super::{lines, style};

/// Free space between two names.
const BETWEEN: f64 = 4.0;
/// The sample of a line before its name, and the room that both may take.
const SAMPLE: f64 = 26.0;
const WIDEST: f64 = 250.0;
/// Lines of a name before it is cut.
const MOST_LINES: usize = 2;
const LINE: f64 = 15.0;
/// Free space before the sample and before the name.
const BESIDE: f64 = 20.0;

/// A name, broken into lines.
struct Key {
    series: usize,
    /// Where its series ends.
    wanted: f64,
    lines: Vec<String>,
}

/// What the names need of a chart's height.
pub(super) fn height(chart: &Chart) -> f64 {
    let room = width(chart) - SAMPLE - BESIDE;
    let names = chart.series.iter().map(|series| lines(&series.label, room));
    names.map(|lines| tall(&lines)).sum()
}

/// What they take of its width.
pub(super) fn width(chart: &Chart) -> f64 {
    chart
        .series
        .iter()
        .filter(|series| !series.label.is_empty())
        .map(|series| (BESIDE + SAMPLE + svg::width(&series.label, BODY)).min(WIDEST))
        .fold(8.0, f64::max)
}

/// Writes the names, each as near as can be to where its series ends.
pub(super) fn draw(canvas: &mut Markup, chart: &Chart, frame: &Frame) {
    let (from, to) = (frame.right + 12.0, frame.right + 12.0 + SAMPLE);
    let keys = keys(chart, frame);
    let wanted: Vec<(f64, f64)> = keys
        .iter()
        .map(|key| (key.wanted, tall(&key.lines)))
        .collect();
    for (key, y) in keys.iter().zip(spread(&wanted, frame.top, frame.bottom)) {
        let sample = format!("M{from:.1} {y:.1}L{to:.1} {y:.1}");
        lines::stroke(canvas, chart, key.series, &sample);
        if lines::has_markers(chart) {
            canvas.put(format_args!(
                r#"<path class="point {}" d="{}"/>"#,
                style::colour(key.series),
                style::marker(key.series, (f64::midpoint(from, to), y))
            ));
        }
        let mut foot = y + 4.5 - LINE * (key.lines.len() - 1) as f64 / 2.0;
        for line in &key.lines {
            canvas.text("key", (to + 6.0, foot), Anchor::Start, line);
            foot += LINE;
        }
    }
}

/// The names of the series that have one, by where their series end, from the top.
fn keys(chart: &Chart, frame: &Frame) -> Vec<Key> {
    let room = width(chart) - SAMPLE - BESIDE;
    let mut keys: Vec<Key> = chart
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| !series.label.is_empty())
        .map(|(index, series)| {
            let mut places = series.points.iter().rev();
            let end = places.find_map(|&point| frame.place(point));
            Key {
                series: index,
                wanted: end.map_or(frame.bottom, |(_, y)| y),
                lines: lines(&series.label, room),
            }
        })
        .collect();
    keys.sort_by(|left, right| left.wanted.total_cmp(&right.wanted));
    keys
}

/// A name in few lines; what does not fit is cut.
fn lines(name: &str, room: f64) -> Vec<String> {
    // The width was summed up in another order: a hair's breadth is no reason to break a line.
    let room = room + 0.5;
    let mut lines = wrapped(name, BODY, room);
    if lines.len() > MOST_LINES {
        let rest = lines.split_off(MOST_LINES - 1).join(" ");
        lines.push(fitted(&rest, BODY, room));
    }
    lines
}

fn tall(lines: &[String]) -> f64 {
    LINE * lines.len() as f64 + BETWEEN
}

/// Middles for things of which each wants one and is so tall, in their order: as near as can be to the wanted ones
/// without overlap, none above `top` nor, if there is room, below `bottom`.
fn spread(wanted: &[(f64, f64)], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    let mut free = f64::NEG_INFINITY;
    for &(place, tall) in wanted {
        let place = place.max(top).max(free + tall / 2.0);
        free = place + tall / 2.0;
        places.push(place);
    }
    let mut limit = f64::INFINITY;
    for (place, (_, tall)) in places.iter_mut().zip(wanted).rev() {
        *place = place.min(bottom).min(limit - tall / 2.0);
        limit = *place - tall / 2.0;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_and_within() {
        let table = [
            (&[(10.0, 20.0), (100.0, 20.0)][..], &[10.0, 100.0][..]),
            (&[(50.0, 20.0); 3], &[50.0, 70.0, 90.0]),
            (
                &[(50.0, 20.0), (50.0, 40.0), (50.0, 20.0)],
                &[40.0, 70.0, 100.0],
            ),
            (&[(100.0, 20.0); 2], &[80.0, 100.0]),
            (&[(-5.0, 20.0)], &[0.0]),
        ];
        for (wanted, places) in table {
            assert_eq!(spread(wanted, 0.0, 100.0), places, "{wanted:?}");
        }
    }

    #[test]
    fn long_names_take_two_lines_and_no_more() {
        assert_eq!(lines("short", 100.0), ["short"]);
        assert_eq!(lines("two words", 60.0), ["two", "words"]);
        let cut = lines("one two three four five six seven", 60.0);
        assert!(cut.len() == 2 && cut[1].ends_with('…'), "{cut:?}");
        assert!(lines("", 60.0).is_empty());
    }
}
