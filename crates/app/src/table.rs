//! Tables for people, made of the JSON that the target gives.

use serde_json::Value;

use crate::control::{FoundPartitionsView, Holds, ImportView, KindName};
use crate::out::{say, say_line};
use crate::units;

/// Rows of text under a header, columns as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Which columns belong to the right; found from their cells where not given.
    numeric: Option<Vec<bool>>,
}

impl Table {
    /// A table with its header.
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|cell| cell.to_uppercase()).collect()],
            numeric: None,
        }
    }

    /// A table with a header of columns, each with its name and whether it has numbers.
    pub fn of(columns: impl IntoIterator<Item = (String, bool)>) -> Self {
        let (header, numeric) = columns.into_iter().unzip();
        Self {
            rows: vec![header],
            numeric: Some(numeric),
        }
    }

    /// Objects of the target's answers, each a row, with these of their properties.
    fn of_rows(columns: &[&str], rows: &[Value]) -> Self {
        // Cells have their units.
        let header = columns.iter().map(|column| named(column));
        let mut table = Self::new(&header.collect::<Vec<_>>());
        for row in rows {
            let cells = columns.iter().map(|column| cell(column, &row[*column]));
            table.row(cells.collect());
        }
        table
    }

    /// Adds a row of as many cells as the header has.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Numbers to the right, words to the left.
    pub fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = match &self.numeric {
            Some(numeric) => numeric.clone(),
            None => (0..columns)
                .map(|column| self.has_numbers(column))
                .collect(),
        };
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = (0..columns)
                .map(|column| match numeric[column] && self.rows.len() > 1 {
                    true => format!("{:>1$}", row[column], widths[column]),
                    false => format!("{:<1$}", row[column], widths[column]),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    fn has_numbers(&self, column: usize) -> bool {
        self.rows[1..]
            .iter()
            .all(|row| row[column].starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// Prints all things of a kind.
pub fn print_list(kind: KindName, rows: &[Value]) {
    if rows.is_empty() {
        let kind = kind.name();
        say_line!("no {kind} yet: `flashyard {kind} create --help` shows how to make one");
        return;
    }
    let columns: &[&str] = match kind {
        KindName::Device => &[
            "name",
            "kind",
            "size",
            "block_size",
            "policy",
            "used_by",
            "state",
        ],
        KindName::Partition => &[
            "name",
            "device",
            "size",
            "op",
            "placement",
            "write_amplification",
            "used_by",
            "state",
        ],
        KindName::Pool => &[
            "name",
            "kind",
            "devices",
            "size",
            "used_bytes",
            "free_bytes",
            "logical_bytes",
            "state",
        ],
        KindName::Tenant => &[
            "name",
            "class",
            "weight",
            "guarantee_state",
            "promise_state",
            "hosts",
            "volumes",
            "subnqn",
        ],
        KindName::Volume => &["name", "tenant", "nsid", "size", "pool", "device", "state"],
        KindName::Function => &[
            "name",
            "tenant",
            "guest",
            "io_queues",
            "core",
            "socket",
            "state",
        ],
    };
    say!("{}", Table::of_rows(columns, rows).render());
    for row in rows {
        let trouble = row["fault"]
            .as_str()
            .or(row["guarantee_hint"].as_str())
            .or(row["space_hint"].as_str())
            .or_else(|| quota_hint(row));
        if let Some(fault) = trouble {
            say_line!("{}: {fault}", row["name"].as_str().unwrap_or_default());
        }
    }
}

/// What is to be done about the first quota of a tenant that is nearly used up.
fn quota_hint(row: &Value) -> Option<&str> {
    let mut quotas = row["quotas"].as_array().into_iter().flatten();
    quotas.find_map(|quota| quota["space_hint"].as_str())
}

/// Prints one thing, a line for each property.
pub fn print_one(value: &Value) {
    let Value::Object(map) = value else {
        say_line!("{value}");
        return;
    };
    let width = map.keys().map(|key| named(key).len()).max().unwrap_or(0);
    let tables = [
        "promises", "faults", "injected", "curve", "members", "notes",
    ];
    for (key, value) in map
        .iter()
        .filter(|(key, _)| !tables.contains(&key.as_str()))
    {
        say_line!("{:<width$}  {}", named(key), cell(key, value));
    }
    if let Value::Array(promises) = &value["promises"] {
        print_promises(promises, &[]);
    }
    if let Value::Array(members) = &value["members"] {
        let columns = [
            "device",
            "set",
            "state",
            "read_errors",
            "wrong_reads",
            "healed",
            "copied_bytes",
            "why",
        ];
        say_line!("members\n{}", Table::of_rows(&columns, members).render());
    }
    if let Value::Array(notes) = &value["notes"] {
        for note in notes.iter().filter_map(Value::as_str) {
            say_line!("note: {note}");
        }
    }
    if let Value::Array(points) = &value["curve"]
        && !points.is_empty()
    {
        say_line!("latency of reads by load\n{}", curve(points).render());
    }
    if let Value::Array(rows) = &value["injected"]
        && !rows.is_empty()
    {
        let columns = ["fault", "seen", "injected", "missed"];
        say_line!(
            "injected on purpose\n{}",
            Table::of_rows(&columns, rows).render()
        );
    }
}

/// What a device was measured to give.
fn curve(points: &[Value]) -> Table {
    let latencies = ["mean_us", "p50_us", "p95_us", "p99_us"];
    let mut table = Table::new(&["read_iops", "mean", "p50", "p95", "p99"]);
    for point in points {
        let mut row = vec![cell("read_iops", &point["read_iops"])];
        let us = |key: &&str| point[key].as_f64().map(units::microseconds);
        row.extend(latencies.iter().map(|key| us(key).unwrap_or_default()));
        table.row(row);
    }
    table
}

/// Prints the target at a glance.
pub fn print_status(status: &Value) {
    for section in [
        "target",
        "cores",
        "drives",
        "partitions",
        "injected",
        "tenants",
        "functions",
        "promises",
        "faults",
        "events",
    ] {
        match &status[section] {
            Value::Array(rows) if section == "promises" => print_promises(rows, &["tenant"]),
            Value::Array(rows) if !rows.is_empty() => {
                let columns: Vec<&str> = match &rows[0] {
                    Value::Object(map) => map.keys().map(String::as_str).collect(),
                    _ => continue,
                };
                say_line!("{section}\n{}", Table::of_rows(&columns, rows).render());
            }
            Value::Object(map) if !map.is_empty() => {
                print_one(&status[section]);
                say_line!();
            }
            _ => {}
        }
    }
}

/// Prints what a pool on a device has, and what is to be done with it.
pub fn print_import(found: &ImportView) {
    let device = found.devices.join(" ");
    let size = |bytes| units::size(bytes);
    match &found.pool {
        Some(pool) => say_line!("pool {pool} on device {device}, UUID {}", found.uuid),
        None => say_line!(
            "a pool on device {device}, not imported, UUID {}",
            found.uuid
        ),
    }
    say_line!(
        "{} for volumes, {} free",
        size(found.size),
        size(found.free)
    );
    let mut table = Table::new(&["volume", "size", "uuid", "tenant", "nsid"]);
    for volume in &found.volumes {
        let nsid = volume.nsid.map(|nsid| nsid.to_string());
        table.row(vec![
            volume.name.clone(),
            size(volume.size.0),
            volume.uuid.to_string(),
            volume.tenant.clone().unwrap_or_else(|| "-".to_owned()),
            nsid.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    if !found.volumes.is_empty() {
        say!("{}", table.render());
    }
    for note in &found.notes {
        say_line!("note: {note}");
    }
    let pool = found.pool.as_deref().unwrap_or("NAME");
    if found.pool.is_none() {
        say_line!("`flashyard pool import {pool} --device {device}` takes it over");
    } else if found.volumes.iter().any(|volume| volume.tenant.is_none()) {
        say_line!(
            "volumes without a tenant are not served: `flashyard volume import VOLUME --pool {pool} --tenant TENANT`"
        );
    }
}

/// Prints the partitions that a device has, and what is to be done with them.
pub fn print_found_partitions(found: &FoundPartitionsView) {
    let device = &found.device;
    if found.partitions.is_empty() {
        return say_line!("device {device} has no partitions");
    }
    let mut table = Table::new(&[
        "partition",
        "size",
        "op",
        "units",
        "imported",
        "holds",
        "uuid",
    ]);
    for it in &found.partitions {
        let size = it.size.map(units::size);
        let holds = it.holds.map(|holds| match holds {
            Holds::Nothing => "nothing",
            Holds::Pool => "a pool",
            Holds::Data => "data",
        });
        table.row(vec![
            it.name.clone(),
            size.unwrap_or_else(|| "-".to_owned()),
            it.op.clone(),
            it.given
                .iter()
                .map(|units| units.split(',').count())
                .sum::<usize>()
                .to_string(),
            if it.imported { "yes" } else { "no" }.to_owned(),
            holds.unwrap_or("-").to_owned(),
            it.uuid.clone(),
        ]);
    }
    say!("{}", table.render());
    for note in &found.notes {
        say_line!("note: {note}");
    }
    for it in &found.partitions {
        let name = &it.name;
        match (&it.fault, it.imported, it.holds) {
            (Some(fault), ..) => say_line!("{fault}"),
            (None, false, _) => {
                say_line!(
                    "`flashyard partition import {name} --device {device}` takes {name} over"
                );
            }
            (None, true, Some(Holds::Pool)) => say_line!(
                "`flashyard pool import POOL --device {name}` takes the pool in {name} over"
            ),
            (None, true, Some(Holds::Data)) => say_line!(
                "`flashyard volume create VOLUME --device {name} --tenant TENANT --keep --uuid UUID --nsid N` gives {name} back \
                 with what is in it"
            ),
            _ => {}
        }
    }
}

/// Prints what is promised beside what was got in the last seconds; nothing where there is nothing.
fn print_promises(rows: &[Value], more: &[&str]) {
    if rows.is_empty() {
        return;
    }
    let own = [
        "promise",
        "device",
        "promised",
        "got",
        "state",
        "limited_by",
    ];
    let columns = [more, &own].concat();
    let mut table = Table::new(&[&columns[..], &["why"]].concat());
    for row in rows {
        let unit = row["unit"].as_str().unwrap_or_default();
        let cells = columns.iter().map(|column| match *column {
            "promised" | "got" => match row[*column].as_u64() {
                Some(value) => units::figure(value, unit),
                None => "-".to_owned(),
            },
            column => cell(column, &row[column]),
        });
        let why = cell("reason", &row["reason"]);
        table.row(cells.chain([why]).collect());
    }
    say_line!("promises in the last seconds\n{}", table.render());
}

/// A key as people read it: byte counts have a unit of their own.
fn named(key: &str) -> &str {
    key.strip_suffix("_bytes").unwrap_or(key)
}

/// A value as people read it; byte counts by the column's name.
fn cell(column: &str, value: &Value) -> String {
    const BYTES: [&str; 6] = [
        "size",
        "block_size",
        "bytes_read",
        "bytes_written",
        "max_transfer",
        "in_capsule",
    ];
    let is_bytes = BYTES.contains(&column) || column.ends_with("_bytes");
    let unit = |name: fn(f64) -> String| value.as_f64().map(name).unwrap_or_default();
    match value {
        Value::Null => "-".to_owned(),
        Value::Number(_)
            if column.ends_with("bandwidth") || column.ends_with("bytes_per_second") =>
        {
            unit(units::bandwidth)
        }
        Value::Number(_) if column == "latency_target" => unit(units::microseconds),
        Value::Object(keys) => keys
            .iter()
            .map(|(key, value)| format!("{} {}", named(key), cell(key, value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Number(number) if is_bytes => number
            .as_u64()
            .map_or_else(|| number.to_string(), units::size),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items
            .iter()
            .map(|item| cell(column, item))
            .collect::<Vec<_>>()
            .join(if items[0].is_object() { "; " } else { " " }),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let mut table = Table::new(&["name", "iops"]);
        table.row(vec!["db".into(), "1200".into()]);
        table.row(vec!["analytics".into(), "7".into()]);
        assert_eq!(
            table.render(),
            "NAME       IOPS\ndb         1200\nanalytics     7\n"
        );
    }

    #[test]
    fn a_curve_is_a_table_with_units() {
        let points = serde_json::json!([
            {"read_iops": 68, "mean_us": 84.6, "p50_us": 80.1, "p95_us": 120.9, "p99_us": 1234.5},
            {"read_iops": 6800, "mean_us": 90.0, "p50_us": 88.0, "p95_us": 130.0, "p99_us": 200.0},
        ]);
        let rows = points.as_array().expect("a list");
        assert_eq!(
            curve(rows).render(),
            "READ_IOPS   MEAN    P50     P95      P99\n\
             \x20      68  85 us  80 us  121 us  1.23 ms\n\
             \x20    6800  90 us  88 us  130 us   200 us\n"
        );
    }

    #[test]
    fn bytes_are_shown_with_units_and_nothing_as_a_dash() {
        assert_eq!(cell("size", &serde_json::json!(1_u64 << 30)), "1 GiB");
        assert_eq!(cell("weight", &serde_json::json!(1024)), "1024");
        assert_eq!(cell("pool", &Value::Null), "-");
        assert_eq!(cell("hosts", &serde_json::json!(["a", "b"])), "a b");
        assert_eq!(cell("latency_target", &serde_json::json!(500)), "500 us");
    }

    #[test]
    fn no_cell_has_json() {
        let rates = serde_json::json!({"read_iops": 20_000, "bandwidth": 1_000_000_000});
        assert_eq!(
            cell("limit", &rates),
            "read_iops 20000, bandwidth 1.00 GB/s"
        );
        let curve = serde_json::json!([{"read_iops": 5, "mean_ns": 7}, {"read_iops": 6}]);
        assert_eq!(cell("curve", &curve), "read_iops 5, mean_ns 7; read_iops 6");
    }
}
