//! The names of the lines of a line chart, at its right edge.

use crate::markup::Markup;
use crate::report::{Chart, MarkAt};

use super::frame::Frame;
use super::lines;
use super::style::BODY;
use super::svg::{self, Anchor, fitted, wrapped};

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
    /// What it names; a level line of reference when it is no series.
    series: Option<usize>,
    /// Where that ends.
    wanted: f64,
    lines: Vec<String>,
}

/// What the names need of a chart's height.
pub(super) fn height(chart: &Chart) -> f64 {
    let room = width(chart) - SAMPLE - BESIDE;
    names(chart).map(|name| tall(&lines(&name, room))).sum()
}

/// What they take of its width.
pub(super) fn width(chart: &Chart) -> f64 {
    names(chart)
        .map(|name| (BESIDE + SAMPLE + svg::width(&name, BODY)).min(WIDEST))
        .fold(8.0, f64::max)
}

/// Writes the names, each as near as can be to where its line ends.
pub(super) fn draw(canvas: &mut Markup, chart: &Chart, frame: &Frame) {
    let (from, to) = (frame.right + 12.0, frame.right + 12.0 + SAMPLE);
    let keys = keys(chart, frame);
    let wanted: Vec<(f64, f64)> = keys
        .iter()
        .map(|key| (key.wanted, tall(&key.lines)))
        .collect();
    for (key, y) in keys.iter().zip(spread(&wanted, frame.top, frame.bottom)) {
        match key.series {
            Some(series) => lines::draw_sample(canvas, chart, series, (from, to), y),
            None => canvas.line("mark", (from, y), (to, y)),
        }
        let mut foot = y + 4.5 - LINE * (key.lines.len() - 1) as f64 / 2.0;
        for line in &key.lines {
            canvas.text("key", (to + 6.0, foot), Anchor::Start, line);
            foot += LINE;
        }
    }
}

/// Every name that there is.
fn names(chart: &Chart) -> impl Iterator<Item = String> {
    let series = chart.series.iter().map(|series| series.label.clone());
    let marks = levels(chart).map(|(name, _)| name);
    series.chain(marks).filter(|name| !name.trim().is_empty())
}

/// Names and values of the level lines of reference. The name contains the value, since a name that
/// others push aside no longer shows which line it belongs to.
fn levels(chart: &Chart) -> impl Iterator<Item = (String, f64)> {
    chart.marks.iter().filter_map(|mark| {
        let MarkAt::Y(value) = mark.at else {
            return None;
        };
        let text = chart.y.unit.quantity(value, 4);
        match mark.label.contains(&text) {
            true => Some((mark.label.clone(), value)),
            false => Some((format!("{}: {text}", mark.label), value)),
        }
    })
}

/// The names with the places they want, from the top.
fn keys(chart: &Chart, frame: &Frame) -> Vec<Key> {
    let room = width(chart) - SAMPLE - BESIDE;
    let key = |series, wanted: Option<f64>, name: &str| Key {
        series,
        wanted: wanted.unwrap_or(frame.bottom),
        lines: lines(name, room),
    };
    let series = chart.series.iter().enumerate().map(|(index, series)| {
        let mut places = series.points.iter().rev();
        let end = places.find_map(|&point| frame.place(point));
        key(Some(index), end.map(|(_, y)| y), &series.label)
    });
    let marks =
        levels(chart).filter_map(|(name, value)| Some(key(None, Some(frame.down(value)?), &name)));
    let mut keys: Vec<Key> = series
        .chain(marks)
        .filter(|key| !key.lines.is_empty())
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

/// Middles for things of which each wants one and is so tall, in their order: as near as can be to
/// the wanted ones without overlap, none above `top` nor, if there is room, below `bottom`.
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
