//! Whether dedicated flash units protect a tenant from others: one reader of 4 KiB at depth 1
//! beside tenants that write without pause, on shared parallel units, on channels of its own, on
//! dies of its own. Prints the result of the model beside the expected one. `cargo run --release
//! --example isolation`; the seconds simulated per row may be given.
//!
//! Programs that all take the same time run in lockstep: dies that write without pause meet each
//! other less and less on their channel. The channel then moves more, and a read waits less, than
//! in the prototype that the expectations come from. So the rows in which reads wait for a channel
//! are given once more with program times that vary by a tenth.

use flashyard_flash::Profile;
use flashyard_flash::channel::load::{Tally, Tenant, Work, prepare, run};
use flashyard_flash::channel::{ChannelOrder, Device, DieOrder, Options};
use flashyard_time::Duration;

const GROUPS: u32 = 16;
const PUS: u32 = 8;
const FIFO: DieOrder = DieOrder::Fifo;
const PRIORITY: DieOrder = DieOrder::ReadPriority { bypass: u16::MAX };
const SUSPEND: DieOrder = DieOrder::Suspend {
    bypass: u16::MAX,
    suspends: u8::MAX,
};

/// Who has which parallel units.
#[derive(Clone, Copy)]
enum Placement {
    Shared,
    Channels,
    Dies,
}

/// Mean, median, 99th and 99.9th percentile and greatest latency of the reader in microseconds, and
/// MB/s of all writers: what a prototype of the model gave in 20 s. Ranges where only a range was
/// published.
type Expected = [&'static str; 6];

fn main() {
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    let span = Duration::from_secs(seconds.unwrap_or(5));
    alone(span);
    println!();
    heading("tenants, placement, order");
    let (shared, channels, dies) = (Placement::Shared, Placement::Channels, Placement::Dies);
    for (name, placement, options, expected) in [
        ("shared, FIFO", shared, order(FIFO, false, 0), SHARED_FIFO),
        (
            "shared, FIFO, varying",
            shared,
            order(FIFO, false, 100),
            SHARED_FIFO,
        ),
        (
            "shared, reads first",
            shared,
            order(PRIORITY, true, 0),
            SHARED_PRIORITY,
        ),
        (
            "shared, suspend",
            shared,
            order(SUSPEND, true, 0),
            SHARED_SUSPEND,
        ),
        (
            "own channels, FIFO",
            channels,
            order(FIFO, false, 0),
            CHANNELS,
        ),
        ("own dies, FIFO", dies, order(FIFO, false, 0), DIES_FIFO),
        (
            "own dies, FIFO, varying",
            dies,
            order(FIFO, false, 100),
            DIES_FIFO,
        ),
        (
            "own dies, reads first",
            dies,
            order(FIFO, true, 0),
            DIES_READS,
        ),
    ] {
        for (tenants, expected) in [2, 4, 8].into_iter().zip(expected) {
            let name = format!("{tenants} {name}");
            row(tenants, placement, options, &name, span, expected);
        }
    }
    println!();
    heading("one reader, writers on so many dies");
    for (pus, expected) in [128, 64, 32, 16, 8, 4].into_iter().zip(WRITING) {
        writing(pus, span, expected);
    }
}

const SHARED_FIFO: [Expected; 3] = [
    ["1348", "1205", "3051", "4187", "5196", "4189"],
    ["5723", "5689", "8812", "9986", "10303", "4017"],
    ["14564", "14571", "19306", "20197", "20996", "3938"],
];
const SHARED_PRIORITY: [Expected; 3] = [
    ["1226", "1150", "2830-3076", "3000-3300", "3205", "4000"],
    ["1278", "1150", "2830-3076", "3000-3300", "3436", "4000"],
    ["1286", "1150", "2830-3076", "3000-3300", "3553", "4000"],
];
const SHARED_SUSPEND: [Expected; 3] = [
    ["187", "139", "708", "1000", "1300-1400", "4000"],
    ["204", "139", "835", "1000", "1300-1400", "4000"],
    ["213", "139", "916", "1000", "1300-1400", "4000"],
];
const CHANNELS: [Expected; 3] = [
    ["76", "68-84", "84", "84", "84", "2090"],
    ["76", "68-84", "84", "84", "84", "3134"],
    ["76", "68-84", "84", "84", "84", "3657"],
];
const DIES_FIFO: [Expected; 3] = [
    ["189", "84", "858", "1000", "1000", "2249"],
    ["423", "238", "1931", "-", "2900", "3250"],
    ["558", "362", "2158", "2700", "3300", "3751"],
];
const DIES_READS: [Expected; 3] = [
    ["91", "84-99", "140", "141", "142", "2294"],
    ["97", "84-99", "140", "141", "142", "3280"],
    ["100", "84-99", "140", "141", "142", "3748"],
];
const WRITING: [Expected; 6] = [
    ["1341", "-", "3000", "-", "4100-4600", "4192"],
    ["675", "-", "2600", "-", "4100-4600", "2249"],
    ["372", "-", "2500", "-", "4100-4600", "1147"],
    ["222", "-", "2300", "-", "4100-4600", "576"],
    ["151", "-", "2100", "-", "4100-4600", "288"],
    ["112", "-", "1500", "-", "4100-4600", "144"],
];

/// The reader without neighbours.
fn alone(span: Duration) {
    let mut device = device(order(FIFO, false, 0));
    let reader = [reader(all())];
    let tally = run(&mut device, &reader, Duration::ZERO, span, 1).remove(0);
    println!(
        "idle reader: {} us (expected 76), {} MB/s (expected 56 by the study, which read from faster flash)",
        tally.latencies.mean() / 1000,
        tally.bytes_per_second() / 1_000_000
    );
}

fn row(
    tenants: u32,
    placement: Placement,
    options: Options,
    name: &str,
    span: Duration,
    expected: Expected,
) {
    let mut device = device(options);
    let share = |number| match placement {
        Placement::Shared => all(),
        Placement::Channels => {
            let each = GROUPS / tenants;
            block(number * each..(number + 1) * each, 0..PUS)
        }
        Placement::Dies => {
            let each = PUS / tenants;
            block(0..GROUPS, number * each..(number + 1) * each)
        }
    };
    let everyone: Vec<Tenant> = (0..tenants)
        .map(|number| match number {
            0 => reader(share(0)),
            _ => writer(share(number)),
        })
        .collect();
    let tallies = run(&mut device, &everyone, Duration::from_ms(200), span, 1);
    print(name, &tallies, expected);
}

/// One reader of all parallel units, writers on `pus` of them, spread over the channels.
fn writing(pus: u32, span: Duration, expected: Expected) {
    let mut device = device(order(FIFO, false, 0));
    let written = all().into_iter().take(pus as usize).collect();
    let everyone = [reader(all()), writer(written)];
    let tallies = run(&mut device, &everyone, Duration::from_ms(200), span, 1);
    print(&format!("{pus}"), &tallies, expected);
}

fn order(dies: DieOrder, reads_first: bool, program_spread: u16) -> Options {
    let channels = if reads_first {
        ChannelOrder::ReadsFirst
    } else {
        ChannelOrder::Fifo
    };
    Options {
        dies,
        channels,
        program_spread,
        reset_free: true,
        ..Options::default()
    }
}

fn device(options: Options) -> Device {
    let profile = Profile::named("cnex").expect("it ships");
    let mut device = Device::new(&profile, 32 << 30, 1, options).expect("32 GiB suit it");
    prepare(&mut device);
    device
}

fn reader(pus: Vec<(u32, u32)>) -> Tenant {
    let work = Work::Read { depth: 1 };
    Tenant { work, pus }
}

fn writer(pus: Vec<(u32, u32)>) -> Tenant {
    let work = Work::Write;
    Tenant { work, pus }
}

/// All parallel units, channel first.
fn all() -> Vec<(u32, u32)> {
    block(0..GROUPS, 0..PUS)
}

fn block(groups: std::ops::Range<u32>, pus: std::ops::Range<u32>) -> Vec<(u32, u32)> {
    pus.flat_map(|pu| groups.clone().map(move |group| (group, pu)))
        .collect()
}

fn heading(first: &str) {
    println!(
        "{first:36} {:>18} {:>18} {:>18} {:>18} {:>18} {:>18}",
        "mean us", "p50 us", "p99 us", "p99.9 us", "max us", "writers MB/s"
    );
}

fn print(name: &str, tallies: &[Tally], expected: Expected) {
    let latencies = &tallies[0].latencies;
    let written: u64 = tallies[1..].iter().map(Tally::bytes_per_second).sum();
    let measured = [
        latencies.mean() / 1000,
        latencies.percentile(500_000) / 1000,
        latencies.percentile(990_000) / 1000,
        latencies.percentile(999_000) / 1000,
        latencies.max() / 1000,
        written / 1_000_000,
    ];
    print!("{name:36}");
    for (measured, expected) in measured.iter().zip(expected) {
        print!(" {:>18}", format!("{measured} ({expected})"));
    }
    println!();
}
