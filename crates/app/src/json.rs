//! What programs read: with `--json` a command prints one document on standard output, its
//! answer or `{"error": ...}`, so that whoever reads it has one thing to read. Standard error is
//! for people in both cases.
//!
//! `schema_version` grows when a key goes or means something else; keys may be added without.
//! Keys that a configuration file has as well are in the units of the file: bytes, bytes per
//! second, I/Os per second, microseconds. All others have their unit in their name or in that of
//! what they are in, or count what the name says; where each row has its own, a key beside them
//! names it. A quantity has one unit everywhere. A key that has nothing to tell is null. The
//! `gauges` of `why` are the policy's own affair.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::control::ErrorKind;
use crate::out::say_line;

/// The version of what is printed.
const SCHEMA_VERSION: u32 = 2;

/// All keys of what a target tells of, by the place where that stands: the noun of the answer, and
/// keys below it; or `*` and a key that means the same wherever it is. What has nothing to tell of
/// one is null there.
const KEYS: [(&str, &[&str]); 17] = [
    (
        "devices",
        &[
            "name",
            "kind",
            "size",
            "block_size",
            "path",
            "address",
            "subnqn",
            "nsid",
            "profile",
            "condition",
            "store",
            "seed",
            "dilation",
            "units",
            "partition",
            "device",
            "key",
            "uuid",
            "faults",
            "devices",
            "redundancy",
            "copies",
            "columns",
            "safe_read",
            "rebuild_priority",
            "rebuild_limit",
            "spares",
            "array_uuid",
            "members",
            "rebuild_percent",
            "rebuild_left_seconds",
            "scrub",
            "mismatches",
            "unresolved",
            "dirty_bytes",
            "notes",
            "policy",
            "capability",
            "curve",
            "calibration",
            "disposable",
            "volatile_cache",
            "read_only",
            "core",
            "write_amplification",
            "free_superblocks",
            "in_flight",
            "latency_mean_us",
            "lateness_p99_us",
            "kept_time",
            "injected",
            "unflushed_bytes",
            "used_by",
            "policy_note",
            "state",
            "fault",
        ],
    ),
    (
        "devices.faults",
        &[
            "kind", "rate", "every", "on", "from", "to", "latency", "spread",
        ],
    ),
    (
        "partitions",
        &[
            "name",
            "device",
            "op",
            "size",
            "units",
            "placement",
            "write_bytes_per_second",
            "bytes_written",
            "write_amplification",
            "wear",
            "spare_bytes",
            "lateness_p99_us",
            "read_only",
            "policy",
            "used_by",
            "state",
            "fault",
        ],
    ),
    (
        "pools",
        &[
            "name",
            "devices",
            "kind",
            "key",
            "compression",
            "chunk_bytes",
            "uuid",
            "size",
            "free_bytes",
            "used_bytes",
            "reserved_bytes",
            "logical_bytes",
            "snapshot_bytes",
            "written_bytes",
            "stored_bytes",
            "compression_ratio",
            "block_size",
            "space_hint",
            "array_uuid",
            "members",
            "rebuild_percent",
            "rebuild_left_seconds",
            "scrub",
            "mismatches",
            "unresolved",
            "dirty_bytes",
            "notes",
            "state",
            "fault",
        ],
    ),
    (
        "*.members",
        &[
            "device",
            "set",
            "state",
            "read_errors",
            "wrong_reads",
            "healed",
            "copied_bytes",
            "why",
        ],
    ),
    (
        "*.scrub",
        &["scrub_state", "percent", "repaired", "unresolved"],
    ),
    (
        "tenants",
        &[
            "name",
            "hosts",
            "class",
            "weight",
            "guarantee",
            "limit",
            "latency_target",
            "quotas",
            "subnqn",
            "serial",
            "model",
            "volumes",
            "functions",
            "guarantee_state",
            "guarantee_hint",
            "promise_state",
            "promises",
            "note",
        ],
    ),
    (
        "volumes",
        &[
            "name",
            "pool",
            "device",
            "size",
            "compression",
            "chunk_bytes",
            "reserved_bytes",
            "tenant",
            "content",
            "nsid",
            "uuid",
            "nguid",
            "eui64",
            "subnqn",
            "read_only",
            "block_size",
            "own_bytes",
            "shared_bytes",
            "written_bytes",
            "compression_ratio",
            "state",
            "fault",
            "note",
        ],
    ),
    (
        "functions",
        &[
            "name",
            "tenant",
            "socket",
            "mode",
            "owner",
            "group",
            "doorbells",
            "cores",
            "subnqn",
            "volumes",
            "core",
            "guest",
            "io_queues",
            "reads",
            "writes",
            "bytes_read",
            "bytes_written",
            "errors",
            "state",
            "fault",
        ],
    ),
    (
        "why.devices",
        &[
            "device",
            "policy",
            "ios",
            "mean_us",
            "p50_us",
            "p99_us",
            "p999_us",
            "max_us",
            "receive_us",
            "intake_us",
            "turn_us",
            "device_us",
            "send_us",
            "causes",
            "gauges",
        ],
    ),
    (
        "why.devices.causes",
        &["kind", "cause", "tenant", "share", "us"],
    ),
    (
        "*.quotas",
        &[
            "pool",
            "quota_bytes",
            "used_bytes",
            "reserved_bytes",
            "space_hint",
        ],
    ),
    ("*.guarantee", &RATES),
    ("*.limit", &RATES),
    ("*.capability", &RATES),
    (
        "*.calibration",
        &[
            "date",
            "medium",
            "place",
            "measured_bytes",
            "free_bytes",
            "io_bytes",
            "in_flight",
            "unstable",
        ],
    ),
    (
        "*.partition",
        &[
            "device",
            "channels",
            "units",
            "count",
            "op",
            "given",
            "imported",
            "unfinished",
        ],
    ),
];

/// Keys of rates, wherever some are.
const RATES: [&str; 6] = [
    "iops",
    "read_iops",
    "write_iops",
    "bandwidth",
    "read_bandwidth",
    "write_bandwidth",
];

/// Whether somebody has typed `--json`, in whatever was typed.
pub fn is_wanted() -> bool {
    std::env::args_os().any(|word| word == "--json")
}

/// Prints an answer. A list is named by what is in it: `{"devices": [...]}`.
pub fn print(noun: &str, answer: &impl Serialize) {
    say_line!("{}", text(noun, answer));
}

/// An answer as it is printed.
pub fn text(noun: &str, answer: &impl Serialize) -> String {
    let answer = serde_json::to_value(answer).expect("an answer is plain data");
    format!("{:#}", document(noun, answer))
}

/// Prints one of many answers, in a line of its own.
pub fn print_line(answer: Value) {
    say_line!("{}", document("", answer));
}

/// Prints why there is no answer.
pub fn print_error(kind: ErrorKind, message: &str) {
    // By agreement of all messages, what to do comes last.
    let hint = message.rsplit_once("; ").map(|(_, hint)| hint);
    let error = json!({ "kind": kind, "message": message, "hint": hint });
    say_line!("{:#}", document("", json!({ "error": error })));
}

fn document(noun: &str, answer: Value) -> Value {
    let mut document = Map::new();
    document.insert("schema_version".into(), SCHEMA_VERSION.into());
    match complete(noun, noun, answer) {
        Value::Object(answer) => document.extend(answer),
        rows @ Value::Array(_) => {
            document.insert(noun.into(), rows);
        }
        // Done, and there is nothing more to tell.
        _ => {}
    }
    Value::Object(document)
}

/// The same with all keys of the places in it, in their order, and then what else there is.
fn complete(place: &str, key: &str, value: Value) -> Value {
    match value {
        Value::Array(all) => {
            let all = all.into_iter().map(|one| complete(place, key, one));
            all.collect()
        }
        Value::Object(mut row) => {
            let here = |known: &&(&str, &[&str])| {
                known.0 == place || known.0.strip_prefix("*.") == Some(key)
            };
            let keys = KEYS.iter().find(here).map_or(&[][..], |(_, keys)| keys);
            let mut all = Map::new();
            for key in keys {
                let value = row.shift_remove(*key).unwrap_or_else(|| left_out(key));
                all.insert((*key).to_owned(), value);
            }
            all.extend(row);
            let below = |(key, value): (String, Value)| {
                let value = complete(&format!("{place}.{key}"), &key, value);
                (key, value)
            };
            Value::Object(all.into_iter().map(below).collect())
        }
        value => value,
    }
}

/// What a key has that was left out.
fn left_out(key: &str) -> Value {
    match key {
        "curve" | "unstable" | "given" | "causes" | "members" | "notes" | "spares" => json!([]),
        "disposable" | "imported" | "unfinished" => json!(false),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_of_a_place_is_named_twice() {
        for (place, keys) in KEYS {
            let all: std::collections::BTreeSet<_> = keys.iter().collect();
            assert_eq!(all.len(), keys.len(), "{place}");
        }
    }

    #[test]
    fn an_answer_is_one_object_with_its_version() {
        for (noun, answer, printed) in [
            ("", Value::Null, json!({"schema_version": 2})),
            ("", json!({"a": 1}), json!({"schema_version": 2, "a": 1})),
            (
                "experiments",
                json!([{"name": "x"}]),
                json!({"schema_version": 2, "experiments": [{"name": "x"}]}),
            ),
            (
                "pools",
                json!([{"name": "p", "more": 1}]),
                json!({"schema_version": 2, "pools": [{
                    "name": "p", "devices": null, "kind": null, "key": null, "uuid": null, "size": null,
                    "compression": null, "chunk_bytes": null,
                    "free_bytes": null, "used_bytes": null, "reserved_bytes": null, "logical_bytes": null, "snapshot_bytes": null,
                    "written_bytes": null, "stored_bytes": null, "compression_ratio": null, "space_hint": null,
                    "array_uuid": null, "members": [], "rebuild_percent": null, "rebuild_left_seconds": null,
                    "scrub": null, "mismatches": null, "unresolved": null, "dirty_bytes": null, "notes": [],
                    "block_size": null, "state": null, "fault": null, "more": 1,
                }]}),
            ),
        ] {
            assert_eq!(document(noun, answer), printed, "{noun}");
        }
        let tenant = document("tenants", json!({"limit": {"iops": 5}}));
        assert_eq!(tenant["limit"]["iops"], 5);
        assert_eq!(tenant["limit"].as_object().map(Map::len), Some(RATES.len()));
        assert_eq!(tenant["guarantee"], Value::Null);
    }
}
