//! `flashyard generate grafana`: a dashboard for Grafana: who gets what, how long it takes, and
//! what stands below it.

use serde_json::{Value, json};

use crate::metrics::{
    BUILD_INFO, CONNECTIONS, CONTROLLERS, Counter, DRIVE_LATENESS, DRIVE_WRITE_AMPLIFICATION,
    HEALTH_PROBLEMS, HEALTHY, INJECTED_FAULTS, IO_BYTES, IO_DURATION, IO_ERRORS, IO_OPERATIONS,
    IO_SERVED, IO_WAITED, LATENCY_TARGET, MEMBER_HEALED, MEMBER_READ_ERRORS, Metric, OBJECTS,
    POOL_BYTES, PROMISE_MISSED, PROMISE_RATIO, REBUILD_PROGRESS, Times, UNRESOLVED_BLOCKS,
    VOLUME_SIZE,
};

/// The target that was chosen.
const HERE: &str = "job=\"flashyard\",instance=\"$instance\"";
/// The tenants that were chosen, there.
const TENANTS: &str = "job=\"flashyard\",instance=\"$instance\",tenant=~\"$tenant\"";
/// The devices that were chosen, there.
const DEVICES: &str = "job=\"flashyard\",instance=\"$instance\",device=~\"$device\"";
/// Both.
const BOTH: &str =
    "job=\"flashyard\",instance=\"$instance\",tenant=~\"$tenant\",device=~\"$device\"";

/// Width of the page, in the units of Grafana.
const WIDTH: usize = 24;

/// Panels side by side, under a heading.
pub struct Row {
    title: &'static str,
    pub panels: Vec<Panel>,
}

/// One chart, number or table.
pub struct Panel {
    title: &'static str,
    /// What it shows, for people.
    about: &'static str,
    form: Form,
    unit: Unit,
    pub curves: Vec<Curve>,
}

/// What is asked, and what a series of the answer is called.
pub struct Curve {
    pub expression: String,
    pub legend: String,
}

/// How it looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A number.
    Number,
    /// `1` is good, `0` is bad.
    Good,
    /// Curves over time.
    Lines,
    /// Curves that add up.
    Stack,
    /// What is so now, a line for each.
    Table,
    /// How full something is.
    Gauge,
}

/// What a value is, as Grafana calls it.
#[derive(Clone, Copy)]
enum Unit {
    Number,
    PerSecond,
    BytesPerSecond,
    Bytes,
    Seconds,
    Ratio,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Number => "short",
            Self::PerSecond => "ops",
            Self::BytesPerSecond => "Bps",
            Self::Bytes => "bytes",
            Self::Seconds => "s",
            Self::Ratio => "percentunit",
        }
    }
}

/// The dashboard, as Grafana imports it.
pub fn dashboard() -> String {
    let document = json!({
        "uid": "flashyard",
        "title": "Flashyard",
        "description": "Written by `flashyard generate grafana`. Prometheus has to call its job `flashyard`.",
        "tags": ["flashyard", "storage"],
        "schemaVersion": 38,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": variables() },
        "panels": panels(),
    });
    let text = serde_json::to_string_pretty(&document).expect("plain data");
    text + "\n"
}

/// What is chosen at the top: by name, and what Prometheus is asked for its values.
pub fn choices() -> [(&'static str, String); 3] {
    let served = IO_SERVED.count();
    [
        (
            "instance",
            format!("label_values({BUILD_INFO}{{job=\"flashyard\"}}, instance)"),
        ),
        (
            "tenant",
            format!("label_values({CONTROLLERS}{{{HERE}}}, tenant)"),
        ),
        (
            "device",
            format!("label_values({served}{{{HERE}}}, device)"),
        ),
    ]
}

fn variables() -> Vec<Value> {
    let source = json!({
        "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus",
    });
    let chosen = choices().map(|(name, query)| {
        let many = name != "instance";
        json!({
            "name": name,
            "label": name,
            "type": "query",
            "datasource": source_of_data(),
            "query": { "query": query, "refId": name },
            "refresh": 2,
            "sort": 1,
            "multi": many,
            "includeAll": many,
            "allValue": if many { json!(".*") } else { Value::Null },
        })
    });
    std::iter::once(source).chain(chosen).collect()
}

fn source_of_data() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// All panels and headings, with their places.
fn panels() -> Vec<Value> {
    let mut made: Vec<Value> = Vec::new();
    let mut y = 0;
    for row in rows() {
        let id = made.len() + 1;
        made.push(json!({
            "id": id, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": WIDTH, "h": 1 },
        }));
        y += 1;
        let small = |form| matches!(form, Form::Number | Form::Good);
        let height = match row.panels.iter().all(|panel| small(panel.form)) {
            true => 4,
            false => 8,
        };
        let across = row.panels.len().min(if height == 4 { 6 } else { 3 });
        for (index, panel) in row.panels.iter().enumerate() {
            let (line, column) = (index / across, index % across);
            let width = WIDTH / across;
            let mut value = panel.value(made.len() + 1);
            value["gridPos"] =
                json!({ "x": column * width, "y": y + line * height, "w": width, "h": height });
            made.push(value);
        }
        y += row.panels.len().div_ceil(across) * height;
    }
    made
}

impl Panel {
    fn value(&self, id: usize) -> Value {
        let instant = matches!(
            self.form,
            Form::Table | Form::Gauge | Form::Number | Form::Good
        );
        let targets = self.curves.iter().enumerate().map(|(index, curve)| {
            json!({
                "refId": format!("{}", char::from(b'A' + index as u8)),
                "datasource": source_of_data(),
                "expr": curve.expression,
                "legendFormat": curve.legend,
                "instant": instant,
                "range": !instant,
                "format": if self.form == Form::Table { "table" } else { "time_series" },
            })
        });
        let mut value = json!({
            "id": id,
            "title": self.title,
            "description": self.about,
            "datasource": source_of_data(),
            "targets": targets.collect::<Vec<_>>(),
            "type": self.form.name(),
            "fieldConfig": {
                "defaults": { "unit": self.unit.name(), "min": 0, "custom": {} },
                "overrides": [],
            },
            "options": self.form.options(),
        });
        let defaults = &mut value["fieldConfig"]["defaults"];
        match self.form {
            Form::Stack => {
                defaults["custom"] = json!({ "fillOpacity": 20, "stacking": { "mode": "normal" } })
            }
            Form::Good => {
                defaults["mappings"] = json!([{ "type": "value", "options": {
                "0": { "text": "problems", "color": "red", "index": 0 },
                "1": { "text": "healthy", "color": "green", "index": 1 },
            } }])
            }
            Form::Gauge => {
                defaults["max"] = json!(1);
                // Those at which `health` speaks.
                defaults["thresholds"] = json!({ "mode": "absolute", "steps": [
                    { "color": "green", "value": null },
                    { "color": "orange", "value": 0.75 },
                    { "color": "red", "value": 0.95 },
                ] });
            }
            Form::Table => {
                value["transformations"] = json!([{ "id": "organize", "options": {
                "excludeByName": { "Time": true, "__name__": true, "job": true, "instance": true },
            } }])
            }
            Form::Number | Form::Lines => {}
        }
        value
    }
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Number | Self::Good => "stat",
            Self::Lines | Self::Stack => "timeseries",
            Self::Table => "table",
            Self::Gauge => "bargauge",
        }
    }

    fn options(self) -> Value {
        let last = json!({ "calcs": ["lastNotNull"], "fields": "", "values": false });
        match self {
            Self::Number | Self::Good => json!({ "reduceOptions": last, "textMode": "value" }),
            Self::Gauge => json!({ "reduceOptions": last, "orientation": "horizontal" }),
            Self::Lines | Self::Stack => json!({
                "legend": { "displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"] },
                "tooltip": { "mode": "multi", "sort": "desc" },
            }),
            Self::Table => json!({ "showHeader": true }),
        }
    }
}

/// Everything that is shown.
pub fn rows() -> Vec<Row> {
    vec![
        overview(),
        who_gets_what(),
        latency(),
        promises(),
        devices(),
        pools(),
        arrays(),
    ]
}

fn panel(
    title: &'static str,
    about: &'static str,
    form: Form,
    unit: Unit,
    curves: Vec<Curve>,
) -> Panel {
    Panel {
        title,
        about,
        form,
        unit,
        curves,
    }
}

fn curve(expression: String, legend: &str) -> Curve {
    Curve {
        expression,
        legend: legend.to_owned(),
    }
}

/// How fast a counter grows, by some of its labels.
fn rate<const N: usize>(of: &Metric<Counter, N>, which: &str, by: &str) -> String {
    format!("sum by ({by}) (rate({of}{{{which}}}[$__rate_interval]))")
}

/// Within which time so many of all were.
fn quantile(part: &str, of: &Metric<Times, 3>, which: &str, by: &str) -> String {
    let buckets = of.buckets();
    format!(
        "histogram_quantile({part}, sum by (le, {by}) (rate({buckets}{{{which}}}[$__rate_interval])))"
    )
}

/// The mean of times.
fn mean(of: &Metric<Times, 3>, which: &str, by: &str) -> String {
    let grown =
        |series: String| format!("sum by ({by}) (rate({series}{{{which}}}[$__rate_interval]))");
    format!("{} / {}", grown(of.sum()), grown(of.count()))
}

fn overview() -> Row {
    let number = |title, about, expression| {
        panel(
            title,
            about,
            Form::Number,
            Unit::Number,
            vec![curve(expression, "")],
        )
    };
    let health = panel(
        "Health",
        "Of all that is not muted.",
        Form::Good,
        Unit::Number,
        vec![curve(format!("{HEALTHY}{{{HERE}}}"), "")],
    );
    let problems = "Things that are wrong and not muted. The next row says which.";
    Row {
        title: "Overview",
        panels: vec![
            health,
            number(
                "Problems",
                problems,
                format!("sum({HEALTH_PROBLEMS}{{{HERE},muted=\"no\"}}) or vector(0)"),
            ),
            number(
                "Connections",
                "NVMe/TCP.",
                format!("sum({CONNECTIONS}{{{HERE}}})"),
            ),
            number(
                "Controllers",
                "Of hosts and guests.",
                format!("sum({CONTROLLERS}{{{HERE}}})"),
            ),
            number(
                "Tenants",
                "",
                format!("{OBJECTS}{{{HERE},kind=\"tenant\"}}"),
            ),
            number(
                "Volumes",
                "",
                format!("{OBJECTS}{{{HERE},kind=\"volume\"}}"),
            ),
        ],
    }
}

fn who_gets_what() -> Row {
    let by = "{{tenant}} {{op}}";
    let lines = |title, about, form, unit, curves| panel(title, about, form, unit, curves);
    Row {
        title: "Who gets what",
        panels: vec![
            lines(
                "Throughput",
                "Of hosts and guests.",
                Form::Stack,
                Unit::BytesPerSecond,
                vec![curve(rate(&IO_BYTES, TENANTS, "tenant, op"), by)],
            ),
            lines(
                "I/Os",
                "Of hosts and guests.",
                Form::Stack,
                Unit::PerSecond,
                vec![curve(rate(&IO_OPERATIONS, TENANTS, "tenant, op"), by)],
            ),
            lines(
                "Errors",
                "I/O commands that ended with an error.",
                Form::Lines,
                Unit::PerSecond,
                vec![curve(rate(&IO_ERRORS, TENANTS, "tenant"), "{{tenant}}")],
            ),
            lines(
                "Size of volumes",
                "As hosts see them.",
                Form::Lines,
                Unit::Bytes,
                vec![curve(
                    format!("sum by (tenant) ({VOLUME_SIZE}{{{TENANTS}}})"),
                    "{{tenant}}",
                )],
            ),
            lines(
                "Problems",
                "By the codes of `flashyard health`.",
                Form::Table,
                Unit::Number,
                vec![curve(format!("{HEALTH_PROBLEMS}{{{HERE}}}"), "")],
            ),
            lines(
                "Version",
                "",
                Form::Table,
                Unit::Number,
                vec![curve(format!("{BUILD_INFO}{{{HERE}}}"), "")],
            ),
        ],
    }
}

fn latency() -> Row {
    let target = || {
        curve(
            format!("{LATENCY_TARGET}{{{TENANTS}}}"),
            "{{tenant}} target",
        )
    };
    let of_op = |op: &str| format!("{BOTH},op=\"{op}\"");
    let times = |title, about, curves| panel(title, about, Form::Lines, Unit::Seconds, curves);
    let percentiles = |op| {
        vec![
            curve(
                quantile("0.5", &IO_DURATION, &of_op(op), "tenant"),
                "{{tenant}} p50",
            ),
            curve(
                quantile("0.99", &IO_DURATION, &of_op(op), "tenant"),
                "{{tenant}} p99",
            ),
            target(),
        ]
    };
    let about = "At the device: waiting for a turn, and served. Without the network.";
    Row {
        title: "Latency",
        panels: vec![
            times("Reads", about, percentiles("read")),
            times("Writes", about, percentiles("write")),
            times(
                "p99 of both, by device",
                about,
                vec![curve(
                    quantile("0.99", &IO_DURATION, BOTH, "tenant, device"),
                    "{{tenant}} {{device}}",
                )],
            ),
            times(
                "Waiting for a turn, p99",
                "What others, and the own limit, cost.",
                vec![curve(
                    quantile("0.99", &IO_WAITED, BOTH, "tenant"),
                    "{{tenant}}",
                )],
            ),
            times(
                "Waiting for a turn, mean",
                "What others, and the own limit, cost.",
                vec![curve(mean(&IO_WAITED, BOTH, "tenant"), "{{tenant}}")],
            ),
            times(
                "Served by the device, mean",
                "What the device costs.",
                vec![curve(mean(&IO_SERVED, BOTH, "tenant"), "{{tenant}}")],
            ),
        ],
    }
}

fn promises() -> Row {
    let legend = "{{tenant}} {{device}} {{promise}}";
    Row {
        title: "Promises",
        panels: vec![
            panel(
                "Got of what is promised",
                "1 and more is kept. Who asks for less gets less.",
                Form::Lines,
                Unit::Ratio,
                vec![curve(format!("{PROMISE_RATIO}{{{BOTH}}}"), legend)],
            ),
            panel(
                "Missed",
                "A tenant asked for what it is promised and did not get it.",
                Form::Lines,
                Unit::Ratio,
                vec![curve(
                    format!("avg_over_time({PROMISE_MISSED}{{{BOTH}}}[$__rate_interval])"),
                    legend,
                )],
            ),
        ],
    }
}

fn devices() -> Row {
    let device = "{{device}}";
    let lines = |title, about, unit, expression, legend| {
        panel(
            title,
            about,
            Form::Lines,
            unit,
            vec![curve(expression, legend)],
        )
    };
    let served = IO_SERVED.count();
    let injected = rate(&INJECTED_FAULTS, DEVICES, "device, fault");
    Row {
        title: "Devices",
        panels: vec![
            lines(
                "I/Os",
                "Of tenants.",
                Unit::PerSecond,
                format!("sum by (device, op) (rate({served}{{{DEVICES}}}[$__rate_interval]))"),
                "{{device}} {{op}}",
            ),
            lines(
                "Served, p99",
                "What a device takes for an I/O.",
                Unit::Seconds,
                quantile("0.99", &IO_SERVED, DEVICES, "device"),
                device,
            ),
            lines(
                "Waiting for a turn, p99",
                "What waits in front of it.",
                Unit::Seconds,
                quantile("0.99", &IO_WAITED, DEVICES, "device"),
                device,
            ),
            lines(
                "Write amplification",
                "Of emulated drives.",
                Unit::Number,
                format!("{DRIVE_WRITE_AMPLIFICATION}{{{DEVICES}}}"),
                device,
            ),
            lines(
                "Lateness, p99",
                "Of emulated drives.",
                Unit::Seconds,
                format!("{DRIVE_LATENESS}{{{DEVICES}}}"),
                device,
            ),
            lines(
                "Injected faults",
                "On purpose.",
                Unit::PerSecond,
                injected,
                "{{device}} {{fault}}",
            ),
        ],
    }
}

fn pools() -> Row {
    let bytes = |kind: &str| format!("{POOL_BYTES}{{{HERE},kind=\"{kind}\"}}");
    let full = format!("1 - {} / ignoring (kind) {}", bytes("free"), bytes("size"));
    Row {
        title: "Pools",
        panels: vec![
            panel(
                "How full",
                "What cannot be given away any more.",
                Form::Gauge,
                Unit::Ratio,
                vec![curve(full, "{{pool}}")],
            ),
            panel(
                "Free",
                "",
                Form::Lines,
                Unit::Bytes,
                vec![curve(bytes("free"), "{{pool}}")],
            ),
            panel(
                "What is in it",
                "Logical is before compression, stored behind it.",
                Form::Lines,
                Unit::Bytes,
                vec![curve(
                    format!("{POOL_BYTES}{{{HERE},kind=~\"used|logical|snapshot|stored\"}}"),
                    "{{pool}} {{kind}}",
                )],
            ),
        ],
    }
}

fn arrays() -> Row {
    let member = "{{array}} {{member}}";
    let lines = |title, about, unit, expression, legend| {
        panel(
            title,
            about,
            Form::Lines,
            unit,
            vec![curve(expression, legend)],
        )
    };
    let errors = rate(&MEMBER_READ_ERRORS, HERE, "array, member, kind");
    Row {
        title: "Arrays",
        panels: vec![
            lines(
                "Read errors",
                "That a member gave; hosts got what others have.",
                Unit::PerSecond,
                errors,
                "{{array}} {{member}} {{kind}}",
            ),
            lines(
                "Healed blocks",
                "Written again.",
                Unit::PerSecond,
                rate(&MEMBER_HEALED, HERE, "array, member"),
                member,
            ),
            lines(
                "Rebuild",
                "Done, while there is one.",
                Unit::Ratio,
                format!("{REBUILD_PROGRESS}{{{HERE}}}"),
                "{{array}}",
            ),
            lines(
                "Unresolved blocks",
                "Copies disagree.",
                Unit::Number,
                format!("{UNRESOLVED_BLOCKS}{{{HERE}}}"),
                "{{array}}",
            ),
        ],
    }
}
