//! How many I/Os the model simulates in a second of CPU time, load generation included. `cargo
//! bench -p flashyard-flash` prints the table; `-- 32 writes` takes another capacity in GiB and
//! only rows with that word.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_flash::workload::{Worker, closed_loop};
use flashyard_time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = arguments.iter().find_map(|argument| argument.parse().ok());
    let gib: u64 = given.unwrap_or(8);
    let words: Vec<&String> = arguments
        .iter()
        .filter(|argument| argument.chars().all(char::is_alphabetic))
        .collect();
    let profile = Profile::named("dct983").expect("it ships");
    println!(
        "{:28} {:>12} {:>16}",
        format!("dct983, {gib} GiB"),
        "I/Os",
        "I/Os per CPU s"
    );
    let mixed = Worker {
        reads: 70,
        ..Worker::reader(128)
    };
    for (name, worker, ms) in [
        ("4 KiB reads, depth 128", Worker::reader(128), 5_000),
        ("4 KiB 70:30, fragmented", mixed, 10_000),
        ("4 KiB writes, fragmented", Worker::writer(32), 20_000),
    ] {
        if !words.iter().all(|word| name.contains(word.as_str())) {
            continue;
        }
        let built = Device::in_condition(&profile, gib << 30, 1, Condition::Fragmented(100));
        let mut device = built.expect("the capacity suits the profile");
        let before = cpu_ns();
        closed_loop(
            &mut device,
            &[worker],
            Duration::ZERO,
            Duration::from_ms(ms),
            1,
        );
        let spent = cpu_ns() - before;
        let done = device.stats().completions;
        let rate = done
            .saturating_mul(1_000_000_000)
            .checked_div(spent)
            .unwrap_or(0);
        println!("{name:28} {done:>12} {rate:>16}");
    }
}

/// CPU time of this thread; where the kernel does not tell, zero, and the table shows no rates.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0)
}
