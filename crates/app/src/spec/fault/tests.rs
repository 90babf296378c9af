//! Faults as they are written, and what is wrong with them.

use std::num::NonZeroU64;

use super::*;
use crate::spec::{Config, DeviceSpec};

const GOOD: &str = r#"
[[device]]
name = "ram0"
kind = "memory"
size = "64MiB"

[[device]]
name = "bad0"
kind = "fault"
device = "ram0"
seed = 7
faults = [
    { kind = "poison" },
    { kind = "lost", every = 1000, from = "1MiB", to = "2MiB" },
    { kind = "misdirected", rate = "0.05%", on = "read" },
    { kind = "latency", latency = "5ms", spread = "500us", on = "write" },
]
"#;

#[test]
fn faults_are_read_with_what_holds_where_nothing_is_said() {
    let config = Config::parse(GOOD).expect("it is right");
    let device = &config.devices[1];
    assert_eq!(device.stands_on(), ["ram0"]);
    let rules = device.fault_layer().expect("a layer").rules(4096);
    let nth = NonZeroU64::new(1000).expect("not 0");
    let (fixed, spread) = (Duration::from_ms(5), Duration::from_us(500));
    let expected = [
        FaultRule::new(FaultKind::Poison)
            .at(Frequency::Rate(1_000_000))
            .on(FaultOn::Writes),
        FaultRule::new(FaultKind::Lost)
            .at(Frequency::Every(nth))
            .within(256..512),
        FaultRule::new(FaultKind::Misdirected)
            .at(Frequency::Rate(500_000))
            .on(FaultOn::Reads),
        FaultRule::new(FaultKind::Latency { fixed, spread })
            .at(Frequency::ALWAYS)
            .on(FaultOn::Writes),
    ];
    assert_eq!(rules, expected);
    let written = serde_json::to_string(device).expect("plain data");
    let read: DeviceSpec = serde_json::from_str(&written).expect("what was written");
    assert_eq!(read, *device);
}

/// What is shown can be typed, and what is typed is what a file says.
#[test]
fn a_fault_is_typed_as_it_is_shown() {
    for text in [
        "poison",
        "poison,rate=0.1%",
        "torn,rate=100%",
        "lost,every=3,from=4096",
        "stale,rate=12.3456789%,on=read",
        "lying-flush,rate=0.0000001%",
        "error,on=all,from=0,to=8192",
        "latency,on=write,latency=5000us,spread=20us",
    ] {
        let fault: FaultSpec = text.parse().expect(text);
        assert_eq!(fault.check(4096), Ok(()), "{text}");
        assert_eq!(fault.to_string(), text);
        let keys = serde_json::to_value(&fault).expect("plain data");
        let read: FaultSpec = serde_json::from_value(keys).expect("what was written");
        assert_eq!(read, fault);
    }
    let typed: FaultSpec = "latency, latency=5ms, from=1MiB"
        .parse()
        .expect("it is right");
    assert_eq!(typed.to_string(), "latency,from=1048576,latency=5000us");
}

#[test]
fn every_mistake_on_the_command_line_is_named() {
    for (text, why) in [
        ("", "`` is no fault: begin with one of poison, torn, lost, "),
        ("rot", "`rot` is no fault"),
        ("poison,0.1%", "`0.1%` is no key with its value"),
        (
            "poison,rate=0.1",
            "rate: `0.1` is not a rate: write it like 0.1%",
        ),
        ("poison,rate=x", "rate: `x` is not a rate"),
        (
            "poison,rate=0%",
            "poison: rate is out of range: give more than 0%",
        ),
        ("poison,rate=100.1%", "100% at most"),
        ("poison,every=0", "every must be a whole number, 1 at least"),
        ("poison,every=x", "every must be a whole number"),
        ("poison,every=2,rate=1%", "give either `rate` or `every`"),
        (
            "poison,on=flush",
            "on is `flush`: give read or write or all",
        ),
        ("lost,on=read", "lost: on is `read`: it can only be write"),
        ("stale,on=all", "stale: on is `all`: it can only be read"),
        ("lying-flush,on=write", "it can only be all"),
        (
            "poison,seed=1",
            "a fault has no `seed`: use rate, every, on",
        ),
        ("poison,from=x", "from: `x` is not a size: write it like"),
        (
            "poison,from=1000",
            "from is byte 1000: give a multiple of 4096",
        ),
        ("poison,to=4097", "to is byte 4097: give a multiple of 4096"),
        (
            "poison,from=8KiB,to=8KiB",
            "is nothing: `to` must be greater",
        ),
        ("poison,to=0", "from byte 0 to byte 0 is nothing"),
        ("lying-flush,from=0", "lying-flush: has no `from`"),
        ("lying-flush,to=4096", "lying-flush: has no `to`"),
        ("latency", "latency: needs `latency`, a span such as 5ms"),
        (
            "latency,latency=soon",
            "latency: `soon` is not a span of time",
        ),
        ("hang,latency=5ms", "hang: has no `latency`"),
        ("hang,spread=5ms", "hang: has no `spread`"),
    ] {
        let fault: Result<FaultSpec, FaultError> = text.parse();
        let error = match fault {
            Ok(fault) => fault.check(4096).expect_err(text),
            Err(error) => error,
        };
        let error = error.to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn every_mistake_in_a_file_has_its_line_and_what_is_allowed() {
    for (right, wrong, why) in [
        (
            "device = \"ram0\"\n",
            "",
            "line 8: device `bad0`: a fault device needs `device`",
        ),
        (
            "seed = 7",
            "size = \"1GiB\"",
            "line 11: device `bad0`: a fault device has no `size`",
        ),
        (
            "size = \"64MiB\"",
            "size = \"64MiB\"\nfaults = []",
            "line 6: device `ram0`: a memory device has no `faults`",
        ),
        (
            "size = \"64MiB\"",
            "size = \"64MiB\"\ndevice = \"x\"",
            "line 6: device `ram0`: a memory device has no `device`",
        ),
        (
            "device = \"ram0\"",
            "device = 7",
            "line 10: device `bad0`: device is 7: give text, such as \"ssd0\"",
        ),
        (
            "{ kind = \"poison\" }",
            "{ kind = \"rot\" }",
            "line 13: device `bad0`: faults.kind: unknown variant `rot`, expected one of `poison`, `torn`",
        ),
        ("{ kind = \"poison\" }", "{ }", "missing field `kind`"),
        (
            "{ kind = \"poison\" }",
            "{ kind = \"poison\", odds = 1 }",
            "line 13: device `bad0`: unknown field `odds`, expected one of `kind`, `rate`",
        ),
        (
            "every = 1000",
            "every = -1",
            "line 14: device `bad0`: faults.every is -1: give a whole number, 1 to 4294967295",
        ),
        (
            "rate = \"0.05%\"",
            "rate = 0.0005",
            "line 15: device `bad0`: faults.rate: `0.0005` is not a rate: write it like 0.1%",
        ),
        (
            "rate = \"0.05%\"",
            "rate = true",
            "line 15: device `bad0`: faults.rate is true: give a rate, such as 0.1%",
        ),
        (
            "rate = \"0.05%\"",
            "rate = \"200%\"",
            "line 12: device `bad0`: faults: misdirected: rate is out of range",
        ),
        (
            "on = \"read\"",
            "on = \"flush\"",
            "line 15: device `bad0`: faults.on: unknown variant `flush`, expected one of `read`, `write`, `all`",
        ),
        (
            "\"5ms\"",
            "\"soon\"",
            "line 16: device `bad0`: faults.latency: `soon` is not a span of time",
        ),
        (
            "from = \"1MiB\"",
            "from = 1",
            "line 12: device `bad0`: faults: lost: from is byte 1: give a multiple of 4096",
        ),
        (
            "faults = [\n",
            "faults = 1\nx = [\n",
            "line 12: device `bad0`: faults is 1: give a list of tables, such as [{ kind",
        ),
    ] {
        assert!(GOOD.contains(right), "{right}");
        let parsed = Config::parse(&GOOD.replacen(right, wrong, 1));
        let error = parsed.expect_err(wrong).to_string();
        assert!(error.contains(why), "{wrong}: {error}");
    }
    let many = vec!["{ kind = \"hang\" }"; MOST_FAULTS + 1].join(", ");
    let many =
        format!("[[device]]\nname = \"b\"\nkind = \"fault\"\ndevice = \"a\"\nfaults = [{many}]");
    let error = Config::parse(&many).expect_err("too many").to_string();
    assert!(
        error.contains("faults: 65 faults: give at most 64"),
        "{error}"
    );
    // Delays add up.
    let delayed = |faults: &str| {
        let file = "[[device]]\nname = \"b\"\nkind = \"fault\"\ndevice = \"a\"\n";
        Config::parse(&format!("{file}faults = [{faults}]")).map_err(|error| error.to_string())
    };
    let half = "{ kind = \"latency\", latency = \"20s\", spread = \"10s\" }";
    assert!(delayed(&[half; 2].join(", ")).is_ok());
    let hour = "{ kind = \"latency\", latency = \"3600s\" }";
    let most = "{ kind = \"latency\", latency = \"18446744073709551us\" }";
    for (faults, longest) in [
        ([half; 3].join(", "), "90 s"),
        (hour.into(), "3600 s"),
        ([most; 3].join(", "), " s"),
    ] {
        let error = delayed(&faults).expect_err("too long");
        let why = "faults: latency: an I/O would be delayed by up to ";
        assert!(
            error.contains(why) && error.contains(&format!("{longest}: give 60 s at most")),
            "{error}"
        );
    }
}
