//! The style of charts: measures, colours for light and dark, and marks that distinguish series
//! without colour.

use std::fmt::Write as _;

/// The width of every chart, in pixels at full size.
pub(super) const WIDTH: f64 = 760.0;
/// Room at the edges.
pub(super) const MARGIN: f64 = 16.0;
/// Sizes of letters.
pub(super) const TITLE: f64 = 16.0;
/// How much wider the letters of a title are than others of their size.
pub(super) const BOLD: f64 = 1.1;
pub(super) const BODY: f64 = 13.0;
pub(super) const SMALL: f64 = 12.0;
/// From one line of text to the next, in letter sizes.
pub(super) const LEADING: f64 = 1.4;
/// Series before a colour comes again.
const COLOURS: usize = 8;
const MARKERS: usize = 6;
const DASHES: [&str; 6] = ["none", "7 3", "2 3", "10 3 2 3", "14 4", "5 2 1 2 1 2"];

/// The style sheet of a chart. Colours are those of Okabe and Ito, which people with any common
/// colour blindness tell apart; on dark ground the dark ones are raised.
pub(super) const SHEET: &str = "\
<style>
.chart text{font-family:system-ui,-apple-system,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:12px;fill:#57606a}
.chart .title{font-size:16px;font-weight:600;fill:#1b1f24}
.chart .claim{font-size:13px}
.chart .key{font-size:13px;fill:#1b1f24}
.chart .value,.chart .mark-label{fill:#1b1f24;stroke:#ffffff;stroke-width:4px;paint-order:stroke;stroke-linejoin:round}
.chart .ground{fill:#ffffff}
.chart .grid{stroke:#e4e7eb}
.chart .axis{stroke:#8c959f}
.chart .mark{stroke:#57606a;stroke-dasharray:6 4}
.chart .line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.chart .point{fill:currentColor;stroke:#ffffff;stroke-width:1}
.chart .bar{fill:currentColor}
.chart .s0{color:#0072b2}.chart .s1{color:#d55e00}.chart .s2{color:#009e73}.chart .s3{color:#b8579b}
.chart .s4{color:#e69f00}.chart .s5{color:#3aa0dc}.chart .s6{color:#4d4d4d}.chart .s7{color:#a39a00}
@media (prefers-color-scheme:dark){
.chart text{fill:#9aa4af}
.chart .title,.chart .value,.chart .key,.chart .mark-label{fill:#e6e9ed}
.chart .value,.chart .mark-label,.chart .point{stroke:#14181d}
.chart .ground{fill:#14181d}
.chart .grid{stroke:#2a3037}
.chart .axis{stroke:#5d6772}
.chart .mark{stroke:#9aa4af}
.chart .s0{color:#4ba3e3}.chart .s1{color:#f0803c}.chart .s2{color:#2cc295}.chart .s3{color:#df8fc4}
.chart .s4{color:#f0b93a}.chart .s5{color:#9ad8ff}.chart .s6{color:#c2c8cf}.chart .s7{color:#e6df5a}
}
</style>";

/// The class that gives the series its colour.
pub(super) fn colour(series: usize) -> String {
    format!("s{}", series % COLOURS)
}

/// The dash pattern of the series; with its colour, unlike that of any of the 47 before it.
pub(super) fn dashes(series: usize) -> &'static str {
    DASHES[(series % COLOURS + series / COLOURS) % DASHES.len()]
}

/// The outline of the series' marker around a point, as path data; with its colour, unlike that of
/// any of the 47 before it.
pub(super) fn marker(series: usize, (x, y): (f64, f64)) -> String {
    let around = |corners: &[(f64, f64)]| {
        let mut path = String::new();
        for (index, (right, down)) in corners.iter().enumerate() {
            let verb = if index == 0 { 'M' } else { 'L' };
            write!(path, "{verb}{:.1} {:.1}", x + right, y + down)
                .expect("a string takes everything");
        }
        path + "Z"
    };
    match (series % COLOURS + series / COLOURS) % MARKERS {
        0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", x - 4.0),
        1 => around(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
        2 => around(&[(0.0, -5.0), (4.6, 3.4), (-4.6, 3.4)]),
        3 => around(&[(0.0, -5.2), (5.2, 0.0), (0.0, 5.2), (-5.2, 0.0)]),
        4 => around(&[(0.0, 5.0), (4.6, -3.4), (-4.6, -3.4)]),
        _ => around(&[
            (-1.6, -5.0),
            (1.6, -5.0),
            (1.6, -1.6),
            (5.0, -1.6),
            (5.0, 1.6),
            (1.6, 1.6),
            (1.6, 5.0),
            (-1.6, 5.0),
            (-1.6, 1.6),
            (-5.0, 1.6),
            (-5.0, -1.6),
            (-1.6, -1.6),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn series_differ_in_colour_or_marker_and_in_colour_or_dashes() {
        let markers: BTreeSet<_> = (0..48)
            .map(|series| (colour(series), marker(series, (0.0, 0.0))))
            .collect();
        let dashes: BTreeSet<_> = (0..48)
            .map(|series| (colour(series), dashes(series)))
            .collect();
        assert_eq!((markers.len(), dashes.len()), (48, 48));
    }
}
