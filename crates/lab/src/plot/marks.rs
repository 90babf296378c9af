//! Lines of reference in a line chart. The names of upright ones stand above the drawing, those of
//! level ones among the names of the series.

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

/// Gives every upright mark's name a place in the lowest row where it touches no other; in the
/// lowest the name of the axis stands already.
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

/// Writes the names of the upright ones.
pub(super) fn draw_names(canvas: &mut Markup, frame: &Frame) {
    for mark in &frame.upright {
        let y = frame.top - ABOVE - ROW * f64::from(mark.row);
        canvas.text("mark-label", (mark.left, y), Anchor::Start, &mark.name);
    }
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
}
