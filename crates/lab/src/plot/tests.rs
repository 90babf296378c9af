//! Charts of ordinary and of impossible values, read back as markup.

use super::*;
use crate::report::Axis;
use crate::report::{Mark, MarkAt, Scale, Series, Unit};

/// The name of a series, and its points.
type Line<'a> = (&'a str, &'a [(f64, f64)]);

fn axis(label: &str, unit: Unit, scale: Scale) -> Axis {
    Axis {
        label: label.into(),
        unit,
        scale,
    }
}

fn chart(kind: ChartKind, scale: Scale, series: &[Line]) -> Chart {
    Chart {
        name: "sample",
        title: "Latency against load".into(),
        claim: "It rises before the drive is full.".into(),
        kind,
        x: axis("offered load", Unit::Iops, scale),
        y: axis("mean latency", Unit::Micros, scale),
        series: series
            .iter()
            .map(|(label, points)| Series {
                label: (*label).into(),
                points: points.to_vec(),
            })
            .collect(),
        marks: Vec::new(),
    }
}

fn bars(categories: &[&str]) -> ChartKind {
    ChartKind::Bars {
        categories: categories.iter().map(|&name| name.to_owned()).collect(),
    }
}

/// What stands between the tags, after checking that every tag is closed in order and every number
/// is one.
fn texts(svg: &str) -> Vec<String> {
    let mut open = Vec::new();
    let mut texts = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let text = rest[..start].trim();
        if !text.is_empty() && open.last() != Some(&"style") {
            texts.push(text.to_owned());
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        let name = tag.split([' ', '/']).find(|part| !part.is_empty());
        let name = name.expect("a tag has a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed what was not open");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        for bad in ["NaN", "inf"] {
            assert!(!tag.contains(bad), "{tag}");
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
    texts
}

fn has(texts: &[String], wanted: &str) -> bool {
    texts.iter().any(|text| text == wanted)
}

#[test]
fn a_line_chart_says_everything_it_needs() {
    let mut chart = chart(
        ChartKind::Lines,
        Scale::Log,
        &[
            ("clean", &[(1e3, 85.0), (1e4, 90.0), (1e5, 120.0)]),
            ("fragmented", &[(1e3, 95.0), (1e4, 400.0), (1e5, 2900.0)]),
        ],
    );
    for (label, at) in [
        ("rated load", MarkAt::X(4e4)),
        ("target", MarkAt::Y(500.0)),
        ("limit of 2 ms", MarkAt::Y(2e3)),
    ] {
        chart.marks.push(Mark {
            label: label.into(),
            at,
        });
    }
    let texts = texts(&svg(&chart));
    for wanted in [
        "Latency against load",
        "It rises before the drive is full.",
        "offered load",
        "mean latency",
        "clean",
        "fragmented",
        "rated load",
        "target: 500 us",
        "limit of 2 ms",
        "10K",
        "100 us",
        "1 ms",
        "fragmented: 2.9 ms at offered load 100K",
    ] {
        assert!(has(&texts, wanted), "`{wanted}` is not among {texts:?}");
    }
}

#[test]
fn a_bar_chart_names_groups_series_and_values() {
    let chart = chart(
        bars(&["fifo", "fair"]),
        Scale::Linear,
        &[
            ("reader", &[(0.0, 3100.0), (1.0, 210.0)]),
            ("writer", &[(0.0, 700.0)]),
        ],
    );
    let texts = texts(&svg(&chart));
    for wanted in [
        "fifo",
        "fair",
        "reader",
        "writer",
        "3.1 ms",
        "210 us",
        "reader: 3.1 ms at fifo",
    ] {
        assert!(has(&texts, wanted), "`{wanted}` is not among {texts:?}");
    }
}

#[test]
fn text_of_others_stays_text() {
    let evil = "</text><script>alert(1)</script>\u{1}";
    for kind in [ChartKind::Lines, bars(&[evil, evil])] {
        let mut chart = chart(kind, Scale::Linear, &[(evil, &[(0.0, 1.0), (1.0, 2.0)])]);
        chart.title = evil.into();
        chart.claim = evil.into();
        chart.x.label = evil.into();
        chart.y.label = evil.into();
        chart.marks.push(Mark {
            label: evil.into(),
            at: MarkAt::Y(1.5),
        });
        let svg = svg(&chart);
        texts(&svg);
        assert!(!svg.contains("<script"), "{svg}");
    }
}

#[test]
fn nothing_to_draw_is_said() {
    let series: [&[Line]; 3] = [
        &[],
        &[("empty", &[])],
        &[("nothing finite", &[(f64::NAN, 1.0), (1.0, f64::INFINITY)])],
    ];
    for series in series {
        let drawn = texts(&svg(&chart(ChartKind::Lines, Scale::Log, series)));
        assert!(
            has(&drawn, "nothing to draw: no value was measured"),
            "{series:?}"
        );
    }
    let drawn = texts(&svg(&chart(bars(&[]), Scale::Linear, &[])));
    assert!(has(&drawn, "nothing to draw: no value was measured"));
}

#[test]
fn no_value_breaks_a_chart() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-300,
        1e30,
        -1e30,
        f64::MAX,
        f64::MIN,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for scale in [Scale::Linear, Scale::Log] {
        for left in values {
            for right in values {
                let points = [(left, right), (right, left)];
                let mut lines = chart(ChartKind::Lines, scale, &[("a", &points), ("b", &points)]);
                for at in [MarkAt::X(left), MarkAt::Y(right)] {
                    lines.marks.push(Mark {
                        label: "mark".into(),
                        at,
                    });
                }
                texts(&svg(&lines));
                let places = [(0.0, left), (1.0, right), (left, right)];
                let mut bars = chart(bars(&["a", "b"]), scale, &[("a", &places), ("b", &places)]);
                bars.marks = lines.marks;
                texts(&svg(&bars));
            }
        }
    }
}

#[test]
fn one_point_is_drawn() {
    for scale in [Scale::Linear, Scale::Log] {
        let drawn = texts(&svg(&chart(
            ChartKind::Lines,
            scale,
            &[("only", &[(8.0, 85.0)])],
        )));
        assert!(has(&drawn, "only: 85 us at offered load 8"), "{drawn:?}");
    }
}

#[test]
fn many_series_and_many_points_are_distinguishable() {
    let points: Vec<(f64, f64)> = (0..500).map(|x| (f64::from(x), f64::from(x % 7))).collect();
    let labels: Vec<String> = (0..30).map(|index| format!("tenant {index}")).collect();
    let series: Vec<Line> = labels
        .iter()
        .map(|label| (label.as_str(), points.as_slice()))
        .collect();
    let svg = svg(&chart(ChartKind::Lines, Scale::Linear, &series));
    let drawn = texts(&svg);
    assert!(labels.iter().all(|label| has(&drawn, label)));
    assert!(
        svg.contains("stroke-dasharray=\"7 3\""),
        "dashes stand in for markers"
    );
    assert!(!svg.contains("class=\"point"), "no markers on a dense line");
}
