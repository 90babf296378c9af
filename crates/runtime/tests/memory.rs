//! Buffers of two real cores, each dropped on the other one. Alone in its process, whose memory is
//! looked at.

use std::sync::mpsc;
use std::thread;

use flashyard_runtime::{Buf, PAGE, uring};

const LARGEST: usize = 2 << 20;
const BOUND: usize = 16 << 20;
/// What else the process may need.
const REST: usize = 16 << 20;

/// Bytes of memory that this process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
    let pages = statm.split(' ').nth(1).expect("the second is RSS");
    pages.parse::<usize>().expect("a number") * PAGE
}

/// Takes all that the bound allows, in one size after the other, and drops what the other core
/// took.
fn core(core: usize, give: mpsc::Sender<Vec<Buf>>, take: mpsc::Receiver<Vec<Buf>>) {
    let config = uring::Config {
        core,
        buffer_bytes: BOUND,
        ..uring::Config::default()
    };
    let before = resident();
    let main = async move {
        for size in [PAGE, LARGEST, 8 * PAGE, LARGEST / 2, 2 * PAGE, 32 * PAGE] {
            let own: Vec<Buf> = std::iter::from_fn(|| Buf::take(size)).collect();
            assert_eq!(own.len(), BOUND / size, "core {core}, buffers of {size}");
            give.send(own).expect("the other core runs");
            let others = take.recv().expect("the other core runs");
            assert!(resident() < before + 2 * BOUND + REST);
            drop(others);
            give.send(Vec::new()).expect("the other core runs");
            take.recv().expect("all of this core's have been dropped");
        }
        assert_eq!(Buf::balance(), 0, "it dropped as much as it took");
    };
    uring::run(config, |_| main).expect("io_uring works");
}

#[test]
fn all_of_the_bound_is_there_for_each_size_wherever_buffers_are_dropped() {
    let (to_first, at_first) = mpsc::channel();
    let (to_second, at_second) = mpsc::channel();
    let second = thread::spawn(move || core(1, to_first, at_second));
    core(0, to_second, at_first);
    second.join().expect("the other core does not panic");
}
