//! What a drive takes of memory, as the kernel sees it. Alone in this process, so that nothing else
//! is counted.

use flashyard_flash::Profile;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_flash::workload::{Worker, closed_loop};
use flashyard_time::Duration;

const GIB: u64 = 4;
/// 2.5 MiB for each GiB of capacity.
const MOST: u64 = GIB * (5 << 19);

#[test]
fn a_drive_takes_two_and_a_half_mib_per_gib_at_most() {
    let Some(before) = resident() else {
        return;
    };
    let profile = Profile::named("dct983").expect("it ships");
    let mut device = Device::in_condition(&profile, GIB << 30, 1, Condition::Fragmented(100))
        .expect("4 GiB suit it");
    let worker = Worker::writer(128);
    closed_loop(
        &mut device,
        &[worker],
        Duration::ZERO,
        Duration::from_ms(200),
        1,
    );
    let taken = resident().expect("it was there before") - before;
    assert!(taken <= MOST, "{taken} bytes, of {MOST}");
}

/// Bytes of memory that this process has; nothing where the kernel does not tell.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}
