//! Texts of a chart that do not depend on its kind: ticks, tooltips, and the text of an empty
//! chart.

use super::style::WIDTH;
use super::svg::Anchor;
use crate::markup::Markup;
use crate::report::{Axis, Chart};

/// Says that there is nothing to draw, and returns where that ends.
pub(super) fn nothing(canvas: &mut Markup, top: f64) -> f64 {
    canvas.text(
        "claim",
        (WIDTH / 2.0, top + 40.0),
        Anchor::Middle,
        "nothing to draw: no value was measured",
    );
    top + 80.0
}

/// The ticks as text, with as many digits as it takes to tell them apart.
pub(super) fn tick_labels(axis: &Axis, ticks: &[f64]) -> Vec<String> {
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
pub(super) fn tooltip(chart: &Chart, series: &str, x: &str, y: f64) -> String {
    let value = chart.y.unit.quantity(y, 4);
    let name = match series {
        "" => String::new(),
        name => format!("{name}: "),
    };
    format!("{name}{value} at {x}")
}
