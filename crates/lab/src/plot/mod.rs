//! Charts as SVG that can be read without explanation: a title, a sentence on what to see, axes with units, series
//! named where they end. Light and dark follow the reader's choice, no script is needed, and a pointer held over a
//! point tells its values.

mod bars;
mod frame;
mod keys;
mod lines;
mod marks;
mod scale;
mod style;
mod svg;

use crate::markup::{Markup, escape};
use crate::report::{Axis, Chart, ChartKind};
use style::{BODY, BOLD, LEADING, MARGIN, SHEET, TITLE, WIDTH};
use svg::{Anchor, wrapped};

/// The chart as a whole SVG document, which may also stand inside an HTML page.
///
/// What is no finite number, or not above zero on a logarithmic axis, is left out and parts the line.
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

/// Says that there is nothing to draw, and returns where that ends.
fn nothing(canvas: &mut Markup, top: f64) -> f64 {
    canvas.text(
        "claim",
        (WIDTH / 2.0, top + 40.0),
        Anchor::Middle,
        "nothing to draw: no value was measured",
    );
    top + 80.0
}

/// The ticks as text, with as many digits as it takes to tell them apart.
fn tick_labels(axis: &Axis, ticks: &[f64]) -> Vec<String> {
    (3..=8)
        .map(|digits| {
            ticks
                .iter()
                .map(|&tick| axis.unit.quantity(tick, digits))
                .collect::<Vec<_>>()
        })
        .find(|labels| labels.windows(2).all(|pair| pair[0] != pair[1]))
        .unwrap_or_else(|| {
            ticks
                .iter()
                .map(|&tick| axis.unit.quantity(tick, 9))
                .collect()
        })
}

/// What a pointer held over a value shows.
fn tooltip(chart: &Chart, series: &str, x: &str, y: f64) -> String {
    let value = chart.y.unit.quantity(y, 4);
    let name = match series {
        "" => String::new(),
        name => format!("{name}: "),
    };
    format!("{name}{value} at {x}")
}

#[cfg(test)]
mod tests;
