//! Values as they are typed: units, numbers, sizes, names of hosts. What is wrong is refused with
//! what may stand there, and changes nothing.

use std::process::Command;

use serde_json::{Value, json};

use crate::rig::{PROGRAM, Scratch, Target, expect_failure, names, path, serve};

const IOS: &str = "is not a number of I/Os per second: write it like 20000, 20k or 1.5M";
const BYTES: &str = "is not a size: write it like 4096, 512KiB, 8GiB or 1.5TB";
const HOST: &str = "is not an address with a port: write it like 127.0.0.1:4420, [::1]:4420";

/// What is typed, and what is said before any target is asked.
const REFUSED: [(&str, &str); 30] = [
    (
        "tenant set db --weight -1",
        "`-1` cannot be: give a whole number, 1 to 10000",
    ),
    (
        "tenant set db --weight 1.5",
        "`1.5` cannot be: give a whole number, 1 to 10000",
    ),
    (
        "tenant set db --guarantee read_iops=-5",
        "read_iops: `-5` is not a number",
    ),
    ("tenant set db --guarantee read_iops=1.5", IOS),
    ("tenant set db --guarantee read_iops=20KiB", IOS),
    (
        "tenant set db --guarantee reads=5",
        "there is no rate `reads`: use iops, read_iops",
    ),
    (
        "tenant set db --limit bandwidth=-5",
        "bandwidth: `-5` is not a bandwidth: write it like 1GB/s",
    ),
    (
        "tenant set db --latency-target -5",
        "`-5` is not a span of time: write it like 500us",
    ),
    (
        "tenant set db --latency-target soon",
        "`soon` is not a span of time: write it like 500us",
    ),
    ("volume create v --pool fast --tenant db --size -5", BYTES),
    ("volume create v --pool fast --tenant db --size 1.5", BYTES),
    (
        "volume create v --pool fast --tenant db --size 1MiB --nsid x",
        "`x` cannot be: give a whole number, 1 to",
    ),
    (
        "device create d --kind memory --size 8 --block-size 4k",
        "`4k` cannot be: give 512 or 4096",
    ),
    (
        "device create d --kind flash --size 8GiB --seed -1",
        "`-1` cannot be: give a whole number",
    ),
    (
        "device create d --kind flash --size 8GiB --dilation x",
        "give a whole number, 1 to 1000",
    ),
    (
        "device create d --kind nvme-tcp --address localhost --subnqn x",
        HOST,
    ),
    (
        "partition create p --device oc0 --count -4",
        "`-4` cannot be: give a whole number, 1 to",
    ),
    ("target set --listen localhost", HOST),
    ("target set --listen 127.0.0.256:1", HOST),
    (
        "target set --io-queues -1",
        "`-1` cannot be: give a whole number, 1 to 1024",
    ),
    (
        "target set --queue-depth 1.5",
        "`1.5` cannot be: give a whole number, 2 to 1024",
    ),
    ("serve --listen localhost", HOST),
    (
        "serve --cores 0",
        "`0` cannot be: give a whole number, 1 to 256",
    ),
    ("serve --buffers -1", BYTES),
    ("discover --connect localhost", HOST),
    ("perf --connect localhost --subnqn x --rw read", HOST),
    (
        "perf --connect h:1 --subnqn nqn.2026-11.x:y --rw read --qd -1",
        "`-1` cannot be: give a whole number, 1 to 65536",
    ),
    (
        "perf --connect h:1 --subnqn nqn.2026-11.x:y --rw read --rate 1.5",
        IOS,
    ),
    (
        "demo --seconds 0",
        "`0` cannot be: give a whole number, 1 to 86400",
    ),
    (
        "sim --minutes many",
        "`many` cannot be: give a whole number, 1 to 100000",
    ),
];

#[test]
fn what_cannot_be_is_refused_with_what_can() {
    for (typed, why) in REFUSED {
        let output = Command::new(PROGRAM).args(typed.split(' ')).output();
        expect_failure(&output.expect("the program starts"), 2, why);
    }
}

/// `--size 1` was 4 KiB, and `--size 5000` was 8 KiB.
#[test]
fn a_size_is_what_was_said_or_is_refused() {
    let scratch = Scratch::new("sizes");
    let target = Target::start(&scratch, &[]);
    let typed = |line: &str| target.json(&line.split(' ').collect::<Vec<_>>());
    let refused = |line: &str, why: &str| target.refused(&line.split(' ').collect::<Vec<_>>(), why);
    let unit = "at least 1 MiB, and a multiple of 4096 bytes";
    for size in ["1", "4096", "1023KiB"] {
        let create = format!("device create small --kind memory --size {size}");
        refused(&create, unit);
    }
    typed("device create ram0 --kind memory --size 64MiB");
    typed("pool create fast --device ram0");
    typed("tenant create db --host *");
    for size in ["0.5k", "1", "5000", "4KiB", "1.0001MiB"] {
        let create = format!("volume create v --pool fast --tenant db --size {size}");
        refused(&create, unit);
    }
    assert_eq!(typed("volume list"), json!([]));
    let made = typed("volume create v --pool fast --tenant db --size 1.5MiB");
    assert_eq!(made["size"], 3 << 19);
    refused("volume set v --size 2000000", unit);
    assert_eq!(typed("volume show v")["size"], 3 << 19);
    assert_eq!(typed("volume set v --size 2MiB")["size"], 2 << 20);
    let file = scratch.file(
        "small.toml",
        "[[volume]]\nname = \"w\"\npool = \"fast\"\ntenant = \"db\"\nsize = 1\n",
    );
    let line = format!("{}: line 5: volume `w`: size is 1 bytes; give", path(&file));
    target.refused(&["apply", path(&file)], &line);
    assert_eq!(names(&typed("volume list")), ["v"]);
}

#[test]
fn rates_are_written_alike_in_files_and_on_the_command_line() {
    let scratch = Scratch::new("rates");
    let target = Target::start(&scratch, &[]);
    let limit = "read_iops=20k,write_iops=1.5M,bandwidth=1GB/s";
    let typed = target.json(&[
        "tenant",
        "create",
        "a",
        "--host",
        "*",
        "--limit",
        limit,
        "--latency-target",
        "2ms",
    ]);
    let file = scratch.file(
        "rates.toml",
        "[[tenant]]\nname = \"b\"\nhosts = [\"*\"]\nlatency_target = \"2ms\"\n\
         limit = { read_iops = \"20k\", write_iops = \"1.5M\", bandwidth = \"1GB/s\" }\n",
    );
    target.json(&["apply", path(&file)]);
    let applied = target.json(&["tenant", "show", "b"]);
    for key in ["limit", "latency_target"] {
        assert!(typed[key] != Value::Null, "{typed}");
        assert_eq!(typed[key], applied[key], "{key}");
    }
    assert_eq!(typed["limit"]["read_iops"], 20_000);
}

#[test]
fn a_host_may_be_given_by_its_name() {
    let scratch = Scratch::new("names");
    let target = Target::start(&scratch, &[]);
    target.json(&["target", "set", "--listen", "localhost:0"]);
    let shown = target.json(&["target", "show"]);
    assert_eq!(shown["listen"], json!(["localhost:0"]));
    let real: Vec<&str> = shown["addresses"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let port = real
        .iter()
        .find_map(|it| it.strip_prefix("127.0.0.1:"))
        .expect("it is loopback");
    let named = format!("localhost:{port}");
    target.json(&["tenant", "create", "db", "--host", "*"]);
    target.json(&[
        "device", "create", "ram0", "--kind", "memory", "--size", "8MiB",
    ]);
    target.json(&[
        "volume", "create", "v", "--device", "ram0", "--tenant", "db",
    ]);
    let subnqn = "nqn.2026-11.dev.flashyard:db";
    let found = Command::new(PROGRAM)
        .args(["discover", "--connect", &named])
        .output();
    let found = found.expect("the program starts");
    assert!(
        String::from_utf8_lossy(&found.stdout).contains(subnqn),
        "{found:?}"
    );
    let perf = Command::new(PROGRAM)
        .args([
            "perf",
            "--connect",
            &named,
            "--subnqn",
            subnqn,
            "--rw",
            "read",
        ])
        .args(["--seconds", "0.1", "--warmup", "0", "--json"])
        .output()
        .expect("the program starts");
    assert!(perf.status.success(), "{perf:?}");

    // What was written is kept over a restart and shown.
    let other = Scratch::new("names-other");
    let far = [
        "device",
        "create",
        "far",
        "--kind",
        "nvme-tcp",
        "--address",
        &named,
        "--subnqn",
        subnqn,
    ];
    let initiator = Target::start(&other, &[]);
    assert_eq!(initiator.json(&far)["address"], named);
    let nobody = [
        &far[..5],
        &["--address", "no-such-host.invalid:1", "--subnqn", subnqn],
    ]
    .concat();
    let nobody: Vec<&str> = nobody
        .iter()
        .map(|word| if *word == "far" { "nobody" } else { word })
        .collect();
    initiator.refused(&nobody, "cannot look up no-such-host.invalid:1");
    initiator.kill();
    let again = Target::start(&other, &[]);
    let shown = again.json(&["device", "show", "far"]);
    assert_eq!(
        (&shown["address"], &shown["state"]),
        (&json!(named), &json!("online"))
    );
    let unknown = serve(
        &Scratch::new("names-none"),
        &["--listen", "no-such-host.invalid:1"],
    )
    .output();
    let unknown = unknown.expect("the program starts");
    expect_failure(&unknown, 1, "cannot look up no-such-host.invalid:1");
}
