//! The table of a report as text, JSON and Markdown.

use serde_json::{Map, Value as Json, json};

use super::{Judged, QUICK, Report, Value, number};
use crate::Experiment;

impl Report {
    /// What stands above each column, with its unit.
    pub fn headings(&self) -> Vec<String> {
        self.columns
            .iter()
            .map(|column| column.unit.beside(column.heading))
            .collect()
    }

    /// The rows as people read them; the numbers of a column have one unit and equally many
    /// decimals.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let mut rows = vec![Vec::with_capacity(self.columns.len()); self.rows.len()];
        for (place, column) in self.columns.iter().enumerate() {
            for (row, cell) in rows
                .iter_mut()
                .zip(number::cells(*column, &self.values(place)))
            {
                row.push(cell);
            }
        }
        rows
    }

    /// Whether what stands in a column is numbers, which belong to the right.
    pub fn is_numeric(&self, place: usize) -> bool {
        let words = |value: &&Value| matches!(value, Value::Text(_) | Value::Flag(_));
        !self.values(place).iter().any(words)
    }

    /// The report for programs. `rows` are objects with the columns' names; an interval is `{mean,
    /// half_width_95}`; what was not measured, or is not finite, is null. Units are the columns'
    /// base units (microseconds, bytes, bytes per second). `digest` is 16 hexadecimal digits, since
    /// not every reader of JSON keeps 64 bits of a number. `promises` have what is wanted, what
    /// came and whether it is kept; that is null where it was not measured, and in a quick run.
    pub fn json(&self, experiment: &dyn Experiment) -> Json {
        let rows = (0..self.rows.len()).map(|row| Json::Object(self.json_row(row)));
        let settings = self
            .settings
            .iter()
            .map(|(key, value)| (key.clone(), Json::from(value.as_str())));
        json!({
            "experiment": self.experiment,
            "seed": self.seed,
            "quick": self.quick,
            "digest": self.digest_text(),
            "settings": settings.collect::<Map<_, _>>(),
            "rows": rows.collect::<Vec<_>>(),
            "promises": self.promises_json(experiment),
            "notes": self.notes,
        })
    }

    /// The report as a document to be committed: claim, table, notes, and `command`, which repeats
    /// it.
    pub fn markdown(&self, experiment: &dyn Experiment, command: &str) -> String {
        let mut lines = vec![
            format!("# {}", self.experiment),
            String::new(),
            plain(experiment.claim()),
            String::new(),
        ];
        if self.quick {
            lines.extend([format!("**{QUICK}**"), String::new()]);
        }
        self.promises_markdown(experiment, &mut lines);
        lines.push(markdown_row(&self.headings()));
        let rules: Vec<String> = (0..self.columns.len())
            .map(|place| {
                if self.is_numeric(place) {
                    "---:"
                } else {
                    "---"
                }
                .to_owned()
            })
            .collect();
        lines.push(format!("| {} |", rules.join(" | ")));
        lines.extend(self.cells().iter().map(|row| markdown_row(row)));
        lines.push(String::new());
        if !self.notes.is_empty() {
            lines.extend(self.notes.iter().map(|note| format!("- {}", plain(note))));
            lines.push(String::new());
        }
        let command = command.replace(['`', '\n'], " ");
        lines.push(if experiment.is_measured() {
            format!("Made by `{command}`; measured, so another run gives other figures.")
        } else {
            let (seed, digest) = (self.seed, self.digest_text());
            format!("Made by `{command}`; seed {seed}, digest {digest}.")
        });
        lines.push(String::new());
        lines.join("\n")
    }

    /// The digest as it is written everywhere: 16 hexadecimal digits, or "none" of what was
    /// measured.
    pub fn digest_text(&self) -> String {
        match self.digest {
            0 => "none".into(),
            digest => format!("{digest:016x}"),
        }
    }

    fn promises_json(&self, experiment: &dyn Experiment) -> Vec<Json> {
        let one = |judged: &Judged| {
            json!({
                "wanted": judged.wanted,
                "got": judged.got.as_ref().map(|got| got.text.as_str()),
                "kept": json_value(&self.verdict(judged)),
            })
        };
        self.judged(experiment).iter().map(one).collect()
    }

    fn promises_markdown(&self, experiment: &dyn Experiment, lines: &mut Vec<String>) {
        let rows = self.promise_cells(experiment);
        if rows.is_empty() {
            return;
        }
        lines.extend(["| wanted | got | kept |", "| --- | --- | --- |"].map(str::to_owned));
        lines.extend(rows.iter().map(|cells| markdown_row(cells)));
        lines.push(String::new());
    }

    /// What is wanted, what came and whether it is kept, for people.
    pub fn promise_cells(&self, experiment: &dyn Experiment) -> Vec<[String; 3]> {
        let cells = |judged: &Judged| {
            let kept = match self.verdict(judged) {
                Value::Flag(true) => "yes",
                Value::Flag(false) => "NO",
                _ => "-",
            };
            [judged.wanted, judged.got(), kept].map(str::to_owned)
        };
        self.judged(experiment).iter().map(cells).collect()
    }

    /// Whether a promise is kept. A quick run does not decide that.
    pub fn verdict(&self, judged: &Judged) -> Value {
        match self.quick {
            true => Value::Missing,
            false => judged.kept(),
        }
    }

    fn json_row(&self, row: usize) -> Map<String, Json> {
        self.columns
            .iter()
            .enumerate()
            .map(|(place, column)| (column.name.to_owned(), json_value(self.value(row, place))))
            .collect()
    }

    fn values(&self, place: usize) -> Vec<&Value> {
        (0..self.rows.len())
            .map(|row| self.value(row, place))
            .collect()
    }

    /// A row that is too short has nothing in its last columns.
    fn value(&self, row: usize, place: usize) -> &Value {
        self.rows[row].get(place).unwrap_or(&Value::Missing)
    }
}

fn json_value(value: &Value) -> Json {
    match value {
        Value::Text(text) => Json::from(text.as_str()),
        Value::Count(count) => Json::from(*count),
        Value::Real(real) => Json::from(*real),
        Value::Interval { mean, half } => json!({"mean": mean, "half_width_95": half}),
        Value::Flag(flag) => Json::from(*flag),
        Value::Missing => Json::Null,
    }
}

fn markdown_row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
    format!("| {} |", cells.join(" | "))
}

/// Text that Markdown shows as it is, in one line.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '<' | '[' => plain.extend(['\\', c]),
            c if c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    plain.trim_end().to_owned()
}
