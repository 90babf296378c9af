//! Whatever a command prints for programs: a number has its unit in its name, and a key is there
//! whether it has something to tell or not.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};

use serde_json::{Map, Value};

use crate::rig::{PROGRAM, Scratch, Target, path};

/// How a key ends that names its unit.
const UNITS: [&str; 10] = [
    "bytes",
    "bytes_per_second",
    "iops",
    "us",
    "ms",
    "ns",
    "seconds",
    "percent",
    "ratio",
    "part",
];

/// Keys of a configuration file: bytes, bytes per second, I/Os per second, microseconds.
const OF_A_FILE: [&str; 14] = [
    "size",
    "block_size",
    "max_transfer",
    "in_capsule",
    "bandwidth",
    "read_bandwidth",
    "write_bandwidth",
    "latency_target",
    "bytes_read",
    "bytes_written",
    "from",
    "to",
    "latency",
    "spread",
];

/// Numbers without a unit: what is counted is in the name.
const COUNTS: [&str; 55] = [
    // What something is called.
    "schema_version",
    "nsid",
    "core",
    "controller",
    "number",
    "seed",
    "generation",
    "uid",
    // Of what there are so many.
    "cores",
    "units",
    "count",
    "devices",
    "pools",
    "volumes",
    "functions",
    "hosts",
    "connections",
    "starts",
    "ended_unsafely",
    "ios",
    "reads",
    "writes",
    "errors",
    "interrupted",
    "unsent",
    "good",
    "unwritten",
    "mismatches",
    "waited",
    "served",
    "took",
    "io_queues",
    "queue_depth",
    "in_flight",
    "queued",
    "free_superblocks",
    "moved_units",
    "free",
    "written",
    "offline",
    "lives",
    "commands",
    "connects",
    "troubles",
    "tenants",
    "lost",
    "every",
    "seen",
    "injected",
    "missed",
    // Parts and multiples.
    "weight",
    "share",
    "dilation",
    "advised_dilation",
    "write_amplification",
];

/// Objects whose keys are names that somebody else has given.
const NAMED_BY_OTHERS: [&str; 2] = ["gauges", "settings"];

/// All that was printed: at each place, the keys that objects there have.
#[derive(Default)]
struct Printed {
    places: BTreeMap<String, BTreeSet<Vec<String>>>,
    unnamed: BTreeSet<String>,
}

impl Printed {
    /// What a command about this has printed.
    fn take(&mut self, about: &str, document: &Value) {
        let plural = format!("{about}s");
        match document.get(&plural) {
            Some(Value::Array(rows)) if document.as_object().map(Map::len) == Some(2) => {
                for row in rows {
                    self.walk(about, row, false);
                }
            }
            _ => {
                let mut document = document.clone();
                let keys = document.as_object_mut().expect("an object");
                keys.remove("schema_version");
                // Done, and nothing to tell.
                if !keys.is_empty() {
                    self.walk(about, &document, false);
                }
            }
        }
    }

    /// `has_unit`: something above says what numbers are in.
    fn walk(&mut self, place: &str, value: &Value, has_unit: bool) {
        let key = place.rsplit('.').next().unwrap_or_default();
        match value {
            Value::Object(all) if NAMED_BY_OTHERS.contains(&key) => {
                assert!(all.values().all(|one| !one.is_object()), "{place}");
            }
            Value::Object(all) => {
                let mut keys: Vec<_> = all.keys().cloned().collect();
                keys.sort_unstable();
                self.places.entry(place.into()).or_default().insert(keys);
                let has_unit = has_unit || all.contains_key("unit");
                for (key, one) in all {
                    let place = format!("{place}.{key}");
                    self.walk(&place, one, has_unit || names_a_unit(key));
                }
            }
            Value::Array(all) => {
                for one in all {
                    self.walk(place, one, has_unit);
                }
            }
            Value::Number(_) if !has_unit && !COUNTS.contains(&key) => {
                self.unnamed.insert(place.to_owned());
            }
            _ => {}
        }
    }
}

fn names_a_unit(key: &str) -> bool {
    let ends = |unit: &str| key.strip_suffix(unit).is_some_and(ends_a_word);
    OF_A_FILE.contains(&key) || UNITS.iter().any(|unit| ends(unit))
}

fn ends_a_word(before: &str) -> bool {
    before.is_empty() || before.ends_with('_')
}

/// Types a command that has to print one document, and gives that.
fn json(typed: &str) -> Value {
    let words = typed.split(' ');
    let output = Command::new(PROGRAM).args(words).arg("--json").output();
    let output = output.expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    let printed = serde_json::from_slice(&output.stdout);
    printed.unwrap_or_else(|error| panic!("{typed}: {error}: {message}"))
}

/// What a target is asked, and what that is about.
const ASKED: [(&str, &str); 60] = [
    ("device", "device create null0 --kind null --size 8MiB"),
    ("device", "device create ram0 --kind memory --size 64MiB"),
    ("device", "device create ram1 --kind memory --size 64MiB"),
    (
        "device",
        "device create file0 --kind file --path SCRATCH/file0 --size 64MiB",
    ),
    (
        "device",
        "device create nand0 --kind flash --size 1GiB --profile dct983 --policy fair",
    ),
    (
        "device",
        "device create oc0 --kind open-channel --size 4GiB --profile cnex --store file --path SCRATCH/oc0",
    ),
    (
        "device",
        "device create bad0 --kind fault --device null0 --fault poison,every=9,from=4096 --fault latency,latency=1ms",
    ),
    (
        "device",
        "device set bad0 --fault hang,to=8192 --fault latency,latency=1ms,spread=1ms",
    ),
    ("partition", "partition create p0 --device oc0 --count 4"),
    ("partition", "partition create p1 --device oc0 --channels 1"),
    ("pool", "pool create fast --device ram0"),
    ("device", "device create ram2 --kind memory --size 64MiB"),
    ("pool", "pool create filed --device file0"),
    ("pool", "pool create thin --device ram2 --kind mapped"),
    (
        "tenant",
        "tenant create db --host * --limit bandwidth=1GB/s --latency-target 5ms",
    ),
    ("tenant", "tenant create lab --host *"),
    (
        "volume",
        "volume create v --pool fast --size 8MiB --tenant db",
    ),
    ("volume", "volume create w --device nand0 --tenant db"),
    ("volume", "volume create x --device p0 --tenant lab"),
    (
        "volume",
        "volume create y --pool thin --size 8MiB --tenant lab",
    ),
    ("function", "function create vm1 --tenant db"),
    ("calibration", "device calibrate nand0"),
    ("tenant", "tenant set db --guarantee read_iops=100"),
    ("perf", "PERF"),
    ("perf", "PERF --verify --credits --rate 500"),
    ("perf", "PERF --baseline --nsid 2"),
    ("discovered", "discover --connect ADDRESS"),
    ("device", "device list"),
    ("device", "device show nand0"),
    ("device", "device set null0 --policy caps"),
    ("partition", "partition list"),
    ("partition", "partition show p0"),
    ("partition", "partition grow p0 --count 2"),
    ("pool", "pool list"),
    ("pool", "pool show fast"),
    ("import", "pool import filed --device file0 --list"),
    ("tenant", "tenant list"),
    ("tenant", "tenant show db"),
    ("tenant", "tenant rename lab labs"),
    ("volume", "volume list"),
    ("volume", "volume show v"),
    ("volume", "volume set v --size 9MiB"),
    ("volume", "volume move y --to filed"),
    ("function", "function list"),
    ("function", "function show vm1"),
    ("function", "function set vm1 --mode 0660"),
    ("pool", "pool show thin"),
    ("target", "target show"),
    ("status", "status"),
    ("why", "why db"),
    ("iostat", "iostat --by volume --histogram"),
    ("top of tenants", "top --once --interval 0.1"),
    ("top of volumes", "top --once --interval 0.1 --tab volumes"),
    ("top of devices", "top --once --interval 0.1 --tab devices"),
    ("top of cores", "top --once --interval 0.1 --tab cores"),
    (
        "top of connections",
        "top --once --interval 0.1 --tab connections",
    ),
    ("why", "why labs"),
    ("applied", "apply SCRATCH/more.toml --plan"),
    ("applied", "apply SCRATCH/more.toml"),
    ("done", "backup SCRATCH/backup.db"),
];

/// What needs no target, or when the target has ended.
const ALONE: [(&str, &str); 8] = [
    ("checked pool", "check SCRATCH/file0"),
    ("checked image", "check SCRATCH/oc0"),
    (
        "restored",
        "restore SCRATCH/backup.db --state SCRATCH/other",
    ),
    ("experiment", "lab list"),
    ("described", "lab show ssd-validate"),
    ("run of an experiment", "lab run trace-replay --quick"),
    ("lives", "sim --seeds 0..2"),
    ("demonstration", "demo --seconds 2 --exit --dilation 20"),
];

fn load(target: &Target) -> Child {
    let typed = format!(
        "perf --connect {} --subnqn nqn.2026-11.dev.flashyard:db --rw randread --seconds 30",
        target.address
    );
    let mut command = Command::new(PROGRAM);
    command.args(typed.split(' ')).stdout(Stdio::null());
    command.spawn().expect("the program starts")
}

#[test]
fn every_number_has_its_unit_and_every_key_is_always_there() {
    let scratch = Scratch::new("units");
    scratch.file(
        "more.toml",
        "[[tenant]]\nname = \"more\"\nhosts = [\"*\"]\n",
    );
    let folder = path(&scratch.join("")).trim_end_matches('/').to_owned();
    let target = Target::start(&scratch, &[]);
    let perf = "perf --connect ADDRESS --subnqn nqn.2026-11.dev.flashyard:db --rw randrw --seconds 0.2 --warmup 0";
    let typed = |line: &str| {
        line.replace("PERF", perf)
            .replace("ADDRESS", &target.address)
            .replace("SCRATCH", &folder)
    };
    let mut printed = Printed::default();
    let mut host = None;
    for (about, line) in ASKED {
        // Under load there are figures of the last seconds.
        if line == "device list" {
            host = Some(load(&target));
            while json(&format!("why db --state {folder}/state"))["devices"][0]["ios"].is_null() {}
        }
        let mut typed = typed(line);
        if !line.contains("ADDRESS") && !line.starts_with("PERF") {
            typed = format!("{typed} --state {folder}/state");
        }
        let document = json(&typed);
        assert!(document["error"].is_null(), "{typed}: {document}");
        printed.take(about, &document);
    }
    let mut host = host.expect("it was started");
    host.kill().expect("it runs");
    host.wait().expect("it was ours");
    assert_eq!(target.terminate(), 0);
    for (about, line) in ALONE {
        let document = json(&line.replace("SCRATCH", &folder));
        assert!(document["error"].is_null(), "{line}: {document}");
        printed.take(about, &document);
    }
    assert_eq!(printed.unnamed, BTreeSet::new(), "numbers without a unit");
    for (place, keys) in printed.places {
        assert_eq!(keys.len(), 1, "{place}: {keys:#?}");
    }
}
