//! How long the memory table takes at a million records: look-ups of chunks that it knows and of
//! chunks that it does not, and putting. `cargo bench -p flashyard-logstore` prints the table.

use std::hint::black_box;

use flashyard_logstore::{Entry, Lineage, MOST_RECORDS, Table};
use flashyard_time::Rng;

const LOOKUPS: u64 = 1_000_000;
/// The best counts: the machine is shared.
const PASSES: u64 = 7;

fn main() {
    for records in [1 << 18, 1 << 20, MOST_RECORDS as u64 - 1] {
        // The place of a record gives its chunk, so that a look-up touches nothing but the table.
        measure("1 TiB, uniform", records, |place| {
            place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 36
        });
        measure("in order", records, |place| place);
    }
}

fn measure(name: &str, records: u64, chunk: impl Fn(u64) -> u64) {
    let mut table = Table::new(records as usize, 0x1234_5678_9abc_def1);
    let mut put = u64::MAX;
    for _ in 0..PASSES {
        table.clear();
        let began = cpu_ns();
        for chunk in (0..records).map(&chunk) {
            let entry = Entry::stored(chunk + 1, 8, 1, chunk as u32);
            table
                .put(Lineage(3), chunk, entry, 0)
                .expect("there is room");
        }
        put = put.min((cpu_ns() - began) / records);
    }
    let found = lookups(&table, |place| chunk(place % records));
    let absent = lookups(&table, |place| (1 << 30) + place % (1 << 28));
    let mib = table.memory() >> 20;
    println!(
        "{records:>8} records, {name:<15} {mib:>4} MiB: put {put:>3} ns, found {found:>3} ns, absent {absent:>3} ns"
    );
}

/// Nanoseconds of a look-up, each of which waits for the one before: nothing overlaps.
fn lookups(table: &Table, chunk: impl Fn(u64) -> u64) -> u64 {
    let pass = |seed| {
        let mut chance = Rng::new(seed);
        let began = cpu_ns();
        let mut last = 0;
        for _ in 0..LOOKUPS {
            let place = (chance.next_u64() >> 8) ^ last;
            let known = table.get(Lineage(3), chunk(place));
            last = u64::from(black_box(known).is_some());
        }
        (cpu_ns() - began) / LOOKUPS
    };
    (0..PASSES).map(pass).min().unwrap_or(0)
}

/// CPU time of this thread; zero where the kernel does not say.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.unwrap_or(0)
}
