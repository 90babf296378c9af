//! What programs are told: with `--json` a command prints one document on standard output, its
//! answer or `{"error": ...}`, so that whoever reads it has one thing to read. Standard error is
//! for people in both cases.
//!
//! `schema_version` grows when a key goes or means something else; keys may be added without.
//! Keys that a configuration file has as well are in the units of the file: bytes, bytes per
//! second, I/Os per second, microseconds. All others have their unit in their name, or are what
//! the name says. A key that has nothing to tell is null.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::control::ErrorKind;
use crate::out::say_line;

/// The version of what is printed.
const SCHEMA_VERSION: u32 = 1;

/// All keys of the things that a target has: what has nothing to tell of one is null there.
const KEYS: [(&str, &[&str]); 5] = [
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
            "used_by",
            "policy_note",
            "state",
            "fault",
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
            "spare",
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
            "uuid",
            "size",
            "free",
            "block_size",
            "state",
            "fault",
        ],
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
            "subnqn",
            "serial",
            "model",
            "volumes",
            "guarantee_state",
            "guarantee_hint",
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
            "tenant",
            "content",
            "nsid",
            "uuid",
            "nguid",
            "eui64",
            "subnqn",
            "read_only",
            "block_size",
            "state",
            "fault",
            "note",
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

/// Prints an answer. A list is told by what is in it: `{"devices": [...]}`.
pub fn print(noun: &str, answer: &impl Serialize) {
    let answer = serde_json::to_value(answer).expect("an answer is plain data");
    say_line!("{:#}", document(noun, answer));
}

/// Prints why there is no answer.
pub fn print_error(kind: ErrorKind, message: &str) {
    // By agreement of all messages, what to do comes last.
    let hint = message.rsplit_once("; ").map(|(_, hint)| hint);
    let error = json!({ "kind": kind, "message": message, "hint": hint });
    say_line!("{:#}", document("", json!({ "error": error })));
}

fn document(noun: &str, answer: Value) -> Value {
    let keys = KEYS.iter().find(|(known, _)| *known == noun);
    let keys = keys.map_or(&[][..], |(_, keys)| keys);
    let mut document = Map::new();
    document.insert("schema_version".into(), SCHEMA_VERSION.into());
    match answer {
        Value::Object(answer) => document.extend(complete(keys, answer)),
        Value::Array(rows) => {
            let rows = rows.into_iter().map(|row| match row {
                Value::Object(row) => Value::Object(complete(keys, row)),
                row => row,
            });
            document.insert(noun.into(), rows.collect());
        }
        // Done, and there is nothing more to tell.
        _ => {}
    }
    Value::Object(document)
}

/// The same with all of these keys, in their order, and then what else there is.
fn complete(keys: &[&str], mut row: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for key in keys {
        let value = match row.shift_remove(*key) {
            Some(Value::Object(rates)) if ["guarantee", "limit", "capability"].contains(key) => {
                Value::Object(complete(&RATES, rates))
            }
            Some(value) => value,
            // What a file leaves out has this.
            None if *key == "curve" => json!([]),
            None if *key == "disposable" => json!(false),
            None => Value::Null,
        };
        all.insert((*key).to_owned(), value);
    }
    all.extend(row);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_object_with_its_version() {
        for (noun, answer, printed) in [
            ("", Value::Null, json!({"schema_version": 1})),
            ("", json!({"a": 1}), json!({"schema_version": 1, "a": 1})),
            (
                "experiments",
                json!([{"name": "x"}]),
                json!({"schema_version": 1, "experiments": [{"name": "x"}]}),
            ),
            (
                "pools",
                json!([{"name": "p", "more": 1}]),
                json!({"schema_version": 1, "pools": [{
                    "name": "p", "devices": null, "uuid": null, "size": null, "free": null,
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
