//! Drivers that poll: many commands at a time, and no interrupt.

use flashyard_host::vfio::{PolledFunction, PolledOptions, PolledQueue};
use flashyard_host::{HostError, Payload, ReadInto};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::{Buf, Data};
use flashyard_testbed::{BLOCK, pattern};
use flashyard_vfio::Doorbells;

use super::{range, run};

const NONE: Sgl = Sgl::Transport { length: 0 };
const OPTIONS: PolledOptions = PolledOptions {
    queues: 2,
    depth: 8,
    transfer: 256 << 10,
    shadow: true,
    mapped: false,
};

fn buf(bytes: &[u8]) -> Buf {
    let mut buf = Buf::take(bytes.len()).expect("memory");
    buf.copy_from_slice(bytes);
    buf
}

/// Writes and reads places of its own.
async fn work(queue: PolledQueue, number: u64) {
    for round in 0..20 {
        let blocks = [1, 2, 3, 64][(number + round) as usize % 4];
        let at = range(number * 64, blocks);
        let bytes = (blocks * BLOCK) as usize;
        let data = pattern(number << 32 | round, bytes);
        let written = match round % 5 {
            4 => Data::Zeroes(bytes),
            _ => Data::Buf(buf(&data)),
        };
        let entry = SubmissionQueueEntry::write(1, at, NONE);
        let done = queue.command(entry, Payload::Out(written)).await;
        done.expect("written");
        let entry = SubmissionQueueEntry::read(1, at, NONE);
        let into = Payload::In(ReadInto::Buf(buf(&vec![0xff; bytes])));
        let answer = queue.command(entry, into).await.expect("read");
        let Payload::In(ReadInto::Buf(read)) = answer.payload else {
            panic!("a read gives its buffer back");
        };
        match round % 5 {
            4 => assert!(read.iter().all(|byte| *byte == 0)),
            _ => assert!(*read == data, "{blocks} blocks"),
        }
    }
}

async fn all(function: &PolledFunction, rt: &flashyard_runtime::Rt) {
    let queues = function.queues();
    // More than there are places.
    let workers = (0..24).map(|number| {
        let queue = queues[number as usize % queues.len()].clone();
        rt.spawn(work(queue, number))
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await;
    }
}

#[test]
fn many_commands_at_a_time_over_any_doorbells() {
    for (shadow, mapped) in [(false, false), (true, false), (false, true), (true, true)] {
        run(move |site| async move {
            let (_function, path) = site.offer_with("a", Doorbells::Mapped);
            let options = PolledOptions {
                shadow,
                mapped,
                ..OPTIONS
            };
            let started = PolledFunction::start(&site.rt, &path, options, 1).await;
            let function = started.expect("a function that works");
            assert_eq!(function.namespace().block_size(), Some(BLOCK));
            all(&function, &site.rt).await;
            function.close().await;
        });
    }
}

#[test]
fn a_function_that_goes_ends_the_commands_of_its_guest() {
    run(|site| async move {
        let (function, path) = site.offer("a");
        let started = PolledFunction::start(&site.rt, &path, OPTIONS, 1).await;
        let guest = started.expect("a function that works");
        drop(function);
        let queue = guest.queues().swap_remove(0);
        let entry = SubmissionQueueEntry::flush(1);
        let failed = queue.command(entry, Payload::None).await;
        assert!(matches!(failed, Err(HostError::Transport(_))), "{failed:?}");
        guest.close().await;
    });
}
