//! Charts as SVG that can be read without explanation: a title, a sentence on what to see, axes
//! with units, series named where they end. Light and dark follow the reader's choice, no script is
//! needed, and a pointer held over a point shows its values.

mod bars;
mod frame;
mod keys;
mod labels;
mod lines;
mod marks;
mod scale;
mod style;
mod svg;

use crate::markup::{Markup, escape};
use crate::report::{Chart, ChartKind};
use style::{BODY, BOLD, LEADING, MARGIN, SHEET, TITLE, WIDTH};
use svg::{Anchor, wrapped};

/// The chart as a whole SVG document, which may also stand inside an HTML page.
///
/// What is no finite number, or not above zero on a logarithmic axis, is left out and parts the
/// line.
pub fn svg(chart: &Chart) -> String {
    let mut canvas = Markup::default();
    let top = head(&mut canvas, chart);
    let height = match &chart.kind {
        ChartKind::Lines => lines::draw(&mut canvas, chart, top),
        ChartKind::Bars { categories } => bars::draw(&mut canvas, chart, categories, top),
    };
    format!(
        "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
        width=\"{WIDTH:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">\n{SHEET}\n\
        <rect class=\"ground\" width=\"{WIDTH:.0}\" height=\"{height:.0}\"/>\n{}</svg>\n",
        escape(&format!("{}. {}", chart.title, chart.claim)),
        canvas.finish()
    )
}

/// Writes the title and what to see, and returns where they end.
fn head(canvas: &mut Markup, chart: &Chart) -> f64 {
    let room = WIDTH - 2.0 * MARGIN;
    let mut y = MARGIN / 2.0;
    for line in wrapped(&chart.title, TITLE * BOLD, room) {
        y += TITLE * LEADING;
        canvas.text("title", (MARGIN, y), Anchor::Start, &line);
    }
    for line in wrapped(&chart.claim, BODY, room) {
        y += BODY * LEADING;
        canvas.text("claim", (MARGIN, y), Anchor::Start, &line);
    }
    y + MARGIN
}

#[cfg(test)]
mod tests;
