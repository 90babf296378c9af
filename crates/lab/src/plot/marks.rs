//! Lines of reference in a line chart, and their names where they cover as little as possible.

use crate::markup::Markup;
use crate::report::{Chart, MarkAt};

use super::frame::{ABOVE, Frame, ROW};
use super::style::{BODY, MARGIN, SMALL};
use super::svg::{Anchor, fitted, width};

/// Free space around a name.
const APART: f64 = 8.0;

/// The name of an upright mark, above the drawing.
pub(super) struct Upright {
    /// How many lines of text above the lowest.
    pub(super) row: u16,
    line: f64,
    left: f64,
    name: String,
}

/// Gives every upright mark's name a place in the lowest row where it touches no other; in the lowest the name of the
/// axis stands already.
pub(super) fn upright(chart: &Chart, frame: &Frame) -> Vec<Upright> {
    let mut taken = vec![(0_u16, MARGIN, MARGIN + width(&chart.y.label, BODY))];
    let mut names = Vec::new();
    for mark in &chart.marks {
        let MarkAt::X(value) = mark.at else { continue };
        let Some(line) = frame.across(value) else {
            continue;
        };
        let name = fitted(&mark.label, SMALL, frame.right - frame.left);
        let size = width(&name, SMALL);
        let left = (line - size / 2.0).clamp(MARGIN, frame.right - size / 2.0);
        let touches = |row: u16| {
            taken.iter().any(|&(other, from, to)| {
                other == row && left < to + APART && left + size + APART > from
            })
        };
        let row = (0..u16::MAX).find(|&row| !touches(row)).unwrap_or(u16::MAX);
        taken.push((row, left, left + size));
        names.push(Upright {
            row,
            line,
            left,
            name,
        });
    }
    names
}

/// Draws the lines, which belong under those of the series.
pub(super) fn draw_lines(canvas: &mut Markup, chart: &Chart, frame: &Frame) {
    for mark in &frame.upright {
        let top = frame.top - ABOVE - ROW * f64::from(mark.row) + 3.0;
        canvas.line("mark", (mark.line, top), (mark.line, frame.bottom));
    }
    for mark in &chart.marks {
        let MarkAt::Y(value) = mark.at else { continue };
        if let Some(y) = frame.down(value) {
            canvas.line("mark", (frame.left, y), (frame.right, y));
        }
    }
}

/// Writes the names, which belong on top of everything.
pub(super) fn draw_names(canvas: &mut Markup, chart: &Chart, frame: &Frame) {
    for mark in &frame.upright {
        let y = frame.top - ABOVE - ROW * f64::from(mark.row);
        canvas.text("mark-label", (mark.left, y), Anchor::Start, &mark.name);
    }
    let mut obstacles = obstacles(chart, frame);
    for mark in &chart.marks {
        let MarkAt::Y(value) = mark.at else { continue };
        let Some(y) = frame.down(value) else { continue };
        let name = fitted(&mark.label, SMALL, (frame.right - frame.left) / 2.0);
        let (x, y) = free_place(frame, y, width(&name, SMALL), &obstacles);
        // The next mark's name keeps away from this one.
        let letters = (0..=24).map(|step| x + width(&name, SMALL) * f64::from(step) / 24.0);
        obstacles.extend(letters.map(|x| (x, y - 4.0)));
        canvas.text("mark-label", (x, y), Anchor::Start, &name);
    }
}

/// Where a name of this width stands beside the level line at `line` and covers the fewest obstacles: above it or
/// below, from the left.
fn free_place(frame: &Frame, line: f64, width: f64, obstacles: &[(f64, f64)]) -> (f64, f64) {
    const STEPS: u8 = 12;
    let room = (frame.right - frame.left - width - 2.0 * APART).max(0.0);
    let covered = |&(left, foot): &(f64, f64)| {
        obstacles
            .iter()
            .filter(|&&(x, y)| {
                (left - 3.0..=left + width + 3.0).contains(&x)
                    && (foot - SMALL - 1.0..=foot + 3.0).contains(&y)
            })
            .count()
    };
    (0..=STEPS)
        .map(|step| frame.left + APART + room * f64::from(step) / f64::from(STEPS))
        .flat_map(|left| [(left, line - 5.0), (left, line + 15.0)])
        .filter(|&(_, foot)| foot - SMALL >= frame.top && foot <= frame.bottom)
        .min_by_key(covered)
        .unwrap_or((frame.left + APART, line - 5.0))
}

/// Places on the lines of all series, close enough together that no name slips through. The measured points count
/// several times: to cover one is worse than to cross a line.
fn obstacles(chart: &Chart, frame: &Frame) -> Vec<(f64, f64)> {
    const WEIGHT: usize = 8;
    let mut obstacles = Vec::new();
    for series in &chart.series {
        for place in series.points.iter().filter_map(|&point| frame.place(point)) {
            obstacles.extend([place; WEIGHT]);
        }
        for pair in series.points.windows(2) {
            let (Some(from), Some(to)) = (frame.place(pair[0]), frame.place(pair[1])) else {
                continue;
            };
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let steps = (length / 4.0).ceil().max(1.0) as u16;
            obstacles.extend((0..=steps).map(|step| {
                let part = f64::from(step) / f64::from(steps);
                (
                    from.0 + (to.0 - from.0) * part,
                    from.1 + (to.1 - from.1) * part,
                )
            }));
        }
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, ChartKind, Mark, Scale, Series, Unit};

    fn chart(marks: &[(&str, MarkAt)]) -> Chart {
        let axis = Axis {
            label: "axis".into(),
            unit: Unit::None,
            scale: Scale::Linear,
        };
        Chart {
            name: "marks",
            title: String::new(),
            claim: String::new(),
            kind: ChartKind::Lines,
            x: axis.clone(),
            y: axis,
            series: vec![Series {
                label: String::new(),
                points: vec![(0.0, 50.0), (50.0, 50.0), (100.0, 0.0)],
            }],
            marks: marks
                .iter()
                .map(|(label, at)| Mark {
                    label: (*label).into(),
                    at: *at,
                })
                .collect(),
        }
    }

    #[test]
    fn names_above_share_a_row_only_if_they_do_not_touch() {
        let marks = [
            ("the first", MarkAt::X(40.0)),
            ("beside it", MarkAt::X(41.0)),
            ("far from both", MarkAt::X(90.0)),
            ("over the axis", MarkAt::X(0.0)),
        ];
        let frame = Frame::fit(&chart(&marks), 0.0).expect("there are points");
        let rows: Vec<u16> = frame.upright.iter().map(|mark| mark.row).collect();
        assert_eq!(rows, [0, 1, 0, 1]);
    }

    #[test]
    fn a_level_name_stands_where_no_line_runs() {
        for (value, below) in [(49.0, true), (51.0, false)] {
            let chart = chart(&[("threshold", MarkAt::Y(value))]);
            let frame = Frame::fit(&chart, 0.0).expect("there are points");
            let line = frame.down(value).expect("it is within");
            let (_, foot) = free_place(&frame, line, 60.0, &obstacles(&chart, &frame));
            assert_eq!(foot > line, below, "beside {value}");
        }
    }
}
