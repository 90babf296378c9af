//! A small report in each of its forms.

use serde_json::json;

use super::*;
use crate::experiment::Domain;
use crate::{Context, Experiment, Refused, Setting};

struct Sample;

impl Experiment for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn claim(&self) -> &'static str {
        "Readers suffer from writers. A <claim> for the test."
    }

    fn settings(&self) -> &'static [Setting] {
        &[Setting {
            key: "profile",
            default: "dct983",
            domain: Domain::Word(&["dct983"]),
            meaning: "the drive & its parts",
        }]
    }

    fn promises(&self) -> &'static [Promise] {
        &[
            Promise {
                wanted: "nobody is slower than <3 ms",
                judge: |rows| Got::at_most(&rows.numbers("p99_us"), 3000.0),
            },
            Promise {
                wanted: "everybody reads",
                judge: |rows| Got::at_least(&rows.with("worker", "reader").numbers("iops"), 1.0),
            },
            Promise {
                wanted: "a rate of 500 thousand",
                judge: |rows| Got::at_least(&rows.numbers("iops"), 5e5),
            },
        ]
    }

    fn run(&self, _context: &Context) -> Result<Report, Refused> {
        Ok(report())
    }
}

fn column(name: &'static str, heading: &'static str, unit: Unit) -> Column {
    Column {
        name,
        heading,
        unit,
    }
}

fn report() -> Report {
    Report {
        experiment: "sample",
        seed: 7,
        quick: false,
        digest: 0xfeed,
        settings: vec![("profile".into(), "dct983".into())],
        columns: vec![
            column("worker", "worker", Unit::None),
            column("iops", "IOPS", Unit::Iops),
            column("bytes_per_second", "bandwidth", Unit::BytesPerSecond),
            column("p99_us", "p99", Unit::Micros),
            column("pass", "pass", Unit::None),
        ],
        rows: vec![
            vec![
                Value::Text("a|b <i>".into()),
                Value::Count(402_113),
                Value::Real(3.2e9),
                Value::Interval {
                    mean: 569.25,
                    half: 12.5,
                },
                Value::Flag(true),
            ],
            vec![
                Value::Text("writer".into()),
                Value::Missing,
                Value::Real(f64::NAN),
                Value::Real(2940.0),
                Value::Flag(false),
            ],
            vec![Value::Text("cut short".into())],
        ],
        charts: Vec::new(),
        notes: vec!["Two <notes>.".into()],
    }
}

#[test]
fn markdown_is_a_table_with_its_claim() {
    let expected = "# sample

Readers suffer from writers. A \\<claim> for the test.

| wanted | got | kept |
| --- | --- | --- |
| nobody is slower than \\<3 ms | 569 to 2940 | yes |
| everybody reads | not measured | - |
| a rate of 500 thousand | 402113 | NO |

| worker | IOPS | bandwidth, MB/s | p99, us | pass |
| --- | ---: | ---: | ---: | --- |
| a\\|b \\<i> | 402,113 | 3,200 | 569 ± 12 | yes |
| writer | - | no number | 2,940 | NO |
| cut short | - | - | - | - |

- Two \\<notes>.

Made by `flashyard lab run sample`; seed 7, digest 000000000000feed.
";
    assert_eq!(
        report().markdown(&Sample, "flashyard lab run sample"),
        expected
    );
}

#[test]
fn json_keeps_the_contract() {
    assert_eq!(
        report().json(&Sample),
        json!({
            "experiment": "sample",
            "seed": 7,
            "quick": false,
            "digest": "000000000000feed",
            "settings": {"profile": "dct983"},
            "rows": [
                {
                    "worker": "a|b <i>",
                    "iops": 402_113,
                    "bytes_per_second": 3.2e9,
                    "p99_us": {"mean": 569.25, "half_width_95": 12.5},
                    "pass": true,
                },
                {
                    "worker": "writer",
                    "iops": null,
                    "bytes_per_second": null,
                    "p99_us": 2940.0,
                    "pass": false,
                },
                {
                    "worker": "cut short",
                    "iops": null,
                    "bytes_per_second": null,
                    "p99_us": null,
                    "pass": null,
                },
            ],
            "promises": [
                {"wanted": "nobody is slower than <3 ms", "got": "569 to 2940", "kept": true},
                {"wanted": "everybody reads", "got": null, "kept": null},
                {"wanted": "a rate of 500 thousand", "got": "402113", "kept": false},
            ],
            "notes": ["Two <notes>."],
        })
    );
}

fn chart() -> Chart {
    Chart {
        name: "reads",
        title: "Reads <b>".into(),
        claim: "They wait.".into(),
        kind: ChartKind::Lines,
        x: axis("load"),
        y: axis("latency"),
        series: vec![Series {
            label: "clean".into(),
            points: vec![(1.0, 2.0), (2.0, 4.0)],
        }],
        marks: Vec::new(),
    }
}

#[test]
fn the_page_has_everything_and_no_markup_of_others() {
    let mut report = report();
    report.charts.push(chart());
    let page = report.page(&Sample, "flashyard lab run sample --set 'profile=dct983'");
    for wanted in [
        "<h1>sample</h1>",
        "A &lt;claim&gt; for the test.",
        "<svg class=\"chart\"",
        "Reads &lt;b&gt;",
        "<th class=\"number\">p99, us</th>",
        "<td class=\"number\">402,113</td>",
        "<td class=\"word\">a|b &lt;i&gt;</td>",
        "<td class=\"no\">NO</td>",
        "<td>nobody is slower than &lt;3 ms</td><td>569 to 2940</td><td>yes</td>",
        "the drive &amp; its parts",
        "--set &#39;profile=dct983&#39;",
        "000000000000feed",
    ] {
        assert!(page.contains(wanted), "`{wanted}` is not in {page}");
    }
    for unwanted in ["<script", "http://", "https://", "<i>", "<notes>"] {
        let found = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(unwanted), "`{unwanted}` is in {page}");
    }
}

#[test]
fn an_empty_report_has_every_form() {
    let empty = Report {
        rows: Vec::new(),
        columns: Vec::new(),
        ..report()
    };
    assert_eq!(empty.json(&Sample)["rows"], json!([]));
    assert!(empty.cells().is_empty());
    assert!(empty.markdown(&Sample, "again").contains("# sample"));
    assert!(empty.page(&Sample, "again").contains("<h1>sample</h1>"));
}

/// The figures of a quick run are marked as such in every form.
#[test]
fn a_quick_run_says_so_in_every_form() {
    let mut report = report();
    assert_eq!(report.json(&Sample)["quick"], false);
    report.charts = vec![chart()];
    let charts = report.charts.len();
    assert!(!report.page(&Sample, "again").contains("uick run"));
    report.quick = true;
    report.label_charts();
    assert_eq!(report.json(&Sample)["quick"], true);
    assert!(report.markdown(&Sample, "again").contains(QUICK));
    let kept = &report.json(&Sample)["promises"][0]["kept"];
    assert!(kept.is_null(), "a quick run decides nothing: {kept}");
    let page = report.page(&Sample, "again");
    assert!(page.contains(QUICK), "{page}");
    assert!(
        report
            .charts
            .iter()
            .all(|chart| chart.title.ends_with(" (quick run)"))
    );
    assert!(page.matches("(quick run)").count() >= charts, "{page}");
}

fn axis(label: &str) -> Axis {
    Axis {
        label: label.into(),
        unit: Unit::None,
        scale: Scale::Linear,
    }
}
