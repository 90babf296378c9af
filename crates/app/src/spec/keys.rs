//! What may stand at each key of a configuration file, for errors in files and on the command line.

use clap::ValueEnum;
use flashyard_block::array::MAX_COLUMNS;

use super::array::{RebuildPriority, Redundancy};
use super::drive::StoreName;
use super::error::{DILATION_MOST, WEIGHT_MOST};
use super::fault::{FaultName, FaultOnName};
use super::kind::{CompressionName, DeviceKind, VolumeKind};
use super::policy_name::PolicyName;
use super::target::{CORES_MOST, IO_QUEUES, QUEUE_DEPTH};
use super::{ClassName, ContentName, DoorbellName};
use crate::units::{BANDWIDTH, Grammar, IOS, RATE, SIZE, SPAN};

/// What may stand at a key, after "give"; `key` is with the tables that it is in, such as
/// `guarantee.read_iops`.
pub fn allowed(section: &str, key: &str) -> String {
    let text = |like: &str| format!("text, such as \"{like}\"");
    let list = |like: &str| format!("a list, such as [\"{like}\"]");
    let number = |least: u64, most: u64| format!("a whole number, {least} to {most}");
    let any_number = |least| number(least, u64::from(u32::MAX));
    match (section, key) {
        ("target", "listen") => list("127.0.0.1:4420"),
        ("target", "socket_folder") => text("/run/flashyard"),
        ("function", "socket") => text("/run/flashyard/vm1.sock"),
        ("function", "mode") => text("0660"),
        ("function", "owner" | "group") => text("kvm"),
        ("function", "doorbells") => names::<DoorbellName>(),
        ("target", "nqn_prefix") => text("nqn.2026-11.dev.flashyard"),
        ("target" | "function", "cores") => number(1, CORES_MOST as u64),
        ("target", "io_queues") => number(IO_QUEUES[0].into(), IO_QUEUES[1].into()),
        ("target", "queue_depth") => number(QUEUE_DEPTH[0].into(), QUEUE_DEPTH[1].into()),
        (_, "size" | "reserve" | "max_transfer" | "in_capsule" | "faults.from" | "faults.to") => value(&SIZE),
        (_, "block_size") => "512 or 4096".into(),
        ("pool" | "volume", "kind") => names::<VolumeKind>(),
        ("pool" | "volume", "compression") => names::<CompressionName>(),
        ("pool" | "volume", "chunk") => "4KiB or 16KiB".into(),
        (_, "kind") => names::<DeviceKind>(),
        ("device", "device") => text("ssd0"),
        (_, "key") => "`file:PATH`, `command:PROGRAM ...` or `credential:NAME`, after `passphrase-` for what a person chose".into(),
        (_, "faults") => {
            "a list of tables, such as [{ kind = \"poison\", rate = \"0.1%\" }]".into()
        }
        (_, "faults.kind") => names::<FaultName>(),
        (_, "faults.rate") => value(&RATE),
        (_, "faults.on") => names::<FaultOnName>(),
        (_, "policy") => names::<PolicyName>(),
        (_, "store") => names::<StoreName>(),
        (_, "class") => names::<ClassName>(),
        (_, "content") => names::<ContentName>(),
        (_, "condition") => "`empty`, `clean`, `fragmented` or `fragmented=NN%`".into(),
        (_, "dilation") => number(1, DILATION_MOST.into()),
        (_, "seed") => "a whole number".into(),
        (_, "weight") => number(1, WEIGHT_MOST.into()),
        (_, "nsid" | "count" | "partition.count" | "faults.every") | ("device", "units") => {
            any_number(1)
        }
        (_, "partition") => "a table, such as { device = \"oc0\", count = 4 }".into(),
        (_, "curve") => "a list of tables, as `device calibrate` measures them".into(),
        (_, "calibration") => "nothing: `device calibrate` writes it".into(),
        (
            _,
            "disposable"
            | "read_only"
            | "safe_read"
            | "partition.unfinished"
            | "partition.imported",
        ) => "true or false".into(),
        (_, "guarantee" | "limit" | "capability") => {
            "a table, such as { read_iops = \"20k\" }".into()
        }
        ("tenant", "quota") => "a table, such as { safe = \"100GiB\" }".into(),
        ("tenant", key) if key.starts_with("quota.") => value(&SIZE),
        (_, "latency_target" | "faults.latency" | "faults.spread") => value(&SPAN),
        (_, "devices") => list("ssd0"),
        (_, "spares") => list("ssd9"),
        (_, "redundancy") => names::<Redundancy>(),
        (_, "rebuild_priority") => names::<RebuildPriority>(),
        (_, "copies") => number(2, 4),
        (_, "columns") => number(3, MAX_COLUMNS as u64),
        (_, "address") => text("storage.example:4420"),
        (_, "uuid") => text("2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11"),
        (_, "nguid") => "32 hexadecimal digits in quotes".into(),
        (_, "eui64") => "16 hexadecimal digits in quotes".into(),
        (_, "serial") => "text, 1 to 20 printable characters".into(),
        (_, "model") => "text, 1 to 40 printable characters".into(),
        (_, "partition.op") => text("20%"),
        (_, "partition.given") => list("0.0,1.0"),
        ("tenant", "hosts") => list("nqn.2014-08.org.nvmexpress:uuid:..."),
        (_, key) if key.starts_with("curve.") => "a whole number".into(),
        (_, "rebuild_limit") => value(&BANDWIDTH),
        (_, key) if key.ends_with("bandwidth") => value(&BANDWIDTH),
        (_, key) if key.ends_with("iops") => value(&IOS),
        (_, key) => {
            let key = key.rsplit('.').next().unwrap_or(key);
            format!("text, such as {key} = \"...\"")
        }
    }
}

fn value(grammar: &Grammar) -> String {
    format!("{grammar}")
}

fn names<T: ValueEnum>() -> String {
    let variants = T::value_variants().iter();
    let names: Vec<String> = variants
        .filter_map(ValueEnum::to_possible_value)
        .map(|name| format!("`{}`", name.get_name()))
        .collect();
    format!("one of {}", names.join(", "))
}
