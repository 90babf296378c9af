//! Each wait of a command that has not been issued ends by an Abort, by its deadline, and when its
//! host leaves; and nothing of what waited is done then.

use std::rc::Rc;

use flashyard_block::SharedDevice;
use flashyard_engine::Limits;
use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, NO_DIGESTS, Site, memory};
use flashyard_time::Duration;

use crate::devices::{Gate, Held};

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    /// What the connection may have of memory.
    Memory,
    /// The same, for a Compare.
    CompareMemory,
    /// Memory for data in capsules.
    CapsuleMemory,
    /// The turn of a read.
    Turn,
    /// The turn of a write, before its R2T comes.
    WriteTurn,
    /// Data of a write, requested by R2T.
    Data,
    /// The same of a Compare.
    CompareData,
}

const WAITS: [Wait; 7] = [
    Wait::Memory,
    Wait::CompareMemory,
    Wait::CapsuleMemory,
    Wait::Turn,
    Wait::WriteTurn,
    Wait::Data,
    Wait::CompareData,
];

impl Wait {
    /// What is in flight, and what waits because of it.
    fn commands(self) -> (Vec<SubmissionQueueEntry>, SubmissionQueueEntry) {
        let range = |blocks| LbaRange { slba: 0, blocks };
        let sgl = |blocks| Sgl::Transport {
            length: blocks * BLOCK,
        };
        let read = |blocks| SubmissionQueueEntry::read(1, range(blocks), sgl(blocks));
        let write = |blocks| SubmissionQueueEntry::write(1, range(blocks), sgl(blocks));
        let compare = |blocks| SubmissionQueueEntry::compare(1, range(blocks), sgl(blocks));
        let here = Sgl::InCapsule {
            offset: 0,
            length: 2 * BLOCK,
        };
        let small = SubmissionQueueEntry::write(1, range(2), here);
        match self {
            Self::Memory => (vec![read(256); 2], read(1)),
            Self::CompareMemory => (vec![read(256); 2], compare(1)),
            Self::CapsuleMemory => (vec![small; 2], small),
            Self::Turn => (vec![read(1)], read(1)),
            Self::WriteTurn => (vec![read(1)], write(16)),
            Self::Data => (vec![], write(16)),
            Self::CompareData => (vec![], compare(16)),
        }
    }

    /// Whether it waits for its host only, whose connection is closed when it does not do what it
    /// should.
    fn is_for_host(self) -> bool {
        matches!(self, Self::Data | Self::CompareData)
    }
}

/// A host on core 1 with a command that waits.
struct Stage {
    bench: Bench,
    wait: Wait,
    gate: Rc<Gate>,
    admin: Client,
    io: Client,
    cid: u16,
    /// Commands that are at the device, or wait for their turn before the one that this is about.
    before: usize,
}

impl Stage {
    async fn set(bench: Bench, wait: Wait, home: usize) -> Self {
        let (device, gate) = Held::around(memory(4 << 20));
        attach(&bench, home, device, wait);
        let (admin, cntlid) = bench.admin("a", 1).await;
        let mut io = bench.io_with("a", 1, NO_DIGESTS, (cntlid, 1, 32)).await;
        gate.shut();
        let (before, entry) = wait.commands();
        for (cid, entry) in (100..).zip(before.iter().chain([&entry])) {
            let carries = matches!(entry.sgl(), Sgl::InCapsule { .. });
            let data = vec![1; if carries { 2 * BLOCK as usize } else { 0 }];
            io.submit_as(cid, *entry, &data).await;
            if wait.is_for_host() {
                assert!(matches!(io.next().await, Incoming::R2t(_)), "{wait:?}");
            }
        }
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let stage = Self {
            cid: 100 + before.len() as u16,
            before: before.len(),
            bench,
            wait,
            gate,
            admin,
            io,
        };
        assert_eq!(stage.issued(), stage.before, "{wait:?} at home {home}");
        stage
    }

    fn issued(&self) -> usize {
        self.gate.issued.borrow().len()
    }

    /// It is answered so, while all that was before it is still in flight.
    async fn ends_with(&mut self, status: Status) {
        let what = self.wait;
        let answer = self.io.response().await;
        assert_eq!(answer.cid(), self.cid, "{what:?}");
        assert!(answer.status().is(status), "{what:?}: {answer:?}");
    }

    /// What was before it is answered, it was never issued, and the queue goes on.
    async fn goes_on(mut self) {
        self.gate.open();
        let mut left = self.before;
        while left > 0 {
            match self.io.next().await {
                Incoming::Data { .. } => {}
                Incoming::Response(answer) => {
                    assert!(answer.status().is_success());
                    left -= 1;
                }
                other => panic!("{:?}: {other:?}", self.wait),
            }
        }
        assert_eq!(self.issued(), self.before, "{:?}", self.wait);
        let read = self.io.read(1, 0, 256, BLOCK).await;
        assert!(read.is_ok(), "{:?}", self.wait);
    }
}

/// A device of core `home`: one that takes as much as it gets, or one I/O at a time.
fn attach(bench: &Bench, home: usize, device: SharedDevice, wait: Wait) {
    let one = Window {
        ios: 1,
        bytes: u64::MAX,
    };
    let window = match wait {
        Wait::Turn | Wait::WriteTurn => one,
        _ => Window::UNLIMITED,
    };
    let core = &bench.cores[home];
    let switch = core.add_switch(Box::new(Fifo::new(window)));
    bench.attach_handle("a", 1, &core.add_device(device, &switch));
}

/// Sets the stage for each wait, with the device at home on the core of the connection and on
/// another one.
fn for_each(act: impl AsyncFn(Stage) + Copy + 'static) {
    for (seed, (wait, home)) in (0..).zip(WAITS.into_iter().flat_map(|wait| [(wait, 1), (wait, 0)]))
    {
        let limits = Limits {
            tenant_capsule_bytes: 4 * BLOCK as usize,
            ..Limits::default()
        };
        let site = Site::with_limits(Config::stormy(seed), 2, limits);
        site.run(move |bench| async move { act(Stage::set(bench, wait, home).await).await });
    }
}

#[test]
fn by_an_abort() {
    for_each(async |mut stage: Stage| {
        let abort = SubmissionQueueEntry::abort(1, stage.cid);
        let answer = stage.admin.command(abort, &[]).await;
        let seen = (answer.status().is_success(), answer.dw0() & 1);
        assert_eq!(seen, (true, 0), "{:?}", stage.wait);
        stage.ends_with(Status::ABORT_REQUESTED).await;
        // Not even for want of the data that it does not send now.
        stage.bench.host_rt.sleep(Duration::from_secs(40)).await;
        stage.goes_on().await;
    });
}

#[test]
fn by_its_deadline() {
    for_each(async |mut stage: Stage| {
        let begun = stage.bench.host_rt.now();
        if stage.wait.is_for_host() {
            let end = stage.io.next().await;
            assert!(matches!(end, Incoming::End), "{:?}: {end:?}", stage.wait);
        } else {
            stage.ends_with(Status::COMMAND_INTERRUPTED).await;
        }
        let waited = stage.bench.host_rt.now().since(begun);
        let most = Duration::from_secs(31);
        assert!(waited <= most, "{:?}: {waited}", stage.wait);
        if !stage.wait.is_for_host() {
            stage.goes_on().await;
        }
    });
}

#[test]
fn when_the_host_leaves() {
    for_each(async |stage: Stage| {
        let Stage {
            bench,
            wait,
            gate,
            admin,
            io,
            before,
            ..
        } = stage;
        drop((admin, io));
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let left = |bench: &Bench| bench.target.snapshot().connections_per_core;
        let expected = usize::from(before > 0);
        assert_eq!(left(&bench), [0, expected], "{wait:?}: what is issued");
        gate.open();
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(left(&bench), [0, 0], "{wait:?}");
        assert_eq!(gate.issued.borrow().len(), before, "{wait:?}");
        bench.connect("a", 1).await;
    });
}

/// A host that leaves right after it has sent more than a core has places for from others: all of
/// that is taken back.
#[test]
fn when_the_host_leaves_with_more_than_there_are_places_for() {
    const EACH: u16 = 1000;
    for seed in 0..10 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(move |bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            attach(&bench, 0, device, Wait::Turn);
            let (_admin, cntlid) = bench.admin("a", 1).await;
            let mut queues = Vec::new();
            for qid in 1..=3 {
                queues.push(bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 1024)).await);
            }
            gate.shut();
            let mut leaving = queues.pop().expect("on core 1");
            let mut staying = queues.swap_remove(0);
            for io in [&mut staying, &mut leaving] {
                let flush = SubmissionQueueEntry::flush(1);
                let capsules = (0..EACH).flat_map(|cid| io.capsule(flush.with_cid(cid), &[]));
                let bytes: Vec<u8> = capsules.collect();
                io.send_bytes(&bytes).await;
            }
            drop(leaving);
            bench.host_rt.sleep(Duration::from_secs(1)).await;
            let connections = bench.target.snapshot().connections_per_core;
            assert_eq!(connections, [2, 1], "seed {seed}");
            gate.open();
            for _ in 0..EACH {
                assert!(staying.response().await.status().is_success());
            }
            let issued = gate.issued.borrow().len();
            assert_eq!(issued, usize::from(EACH), "seed {seed}");
        });
    }
}

/// An Abort of either half of a fused pair that waits for its data ends both.
#[test]
fn a_pair_by_an_abort_of_either_half() {
    for half in 0..2 {
        let site = Site::new(Config::stormy(half), 2);
        site.run(move |bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            attach(&bench, 0, device, Wait::Data);
            let (mut admin, mut io) = bench.connect("a", 1).await;
            let range = LbaRange { slba: 0, blocks: 1 };
            let sgl = Sgl::Transport { length: BLOCK };
            let pair = [
                SubmissionQueueEntry::compare(1, range, sgl).with_fuse(Fuse::First),
                SubmissionQueueEntry::write(1, range, sgl).with_fuse(Fuse::Second),
            ];
            let mut cids = Vec::new();
            for entry in pair {
                cids.push(io.submit(entry, &[]).await);
            }
            for _ in 0..2 {
                assert!(matches!(io.next().await, Incoming::R2t(_)));
            }
            let abort = SubmissionQueueEntry::abort(1, cids[half as usize]);
            let answer = admin.command(abort, &[]).await;
            assert!(answer.status().is_success() && answer.dw0() & 1 == 0);
            let (first, second) = (io.response().await, io.response().await);
            assert_eq!([first.cid(), second.cid()], cids[..]);
            assert!(first.status().is(Status::ABORT_REQUESTED), "{first:?}");
            assert!(
                second.status().is(Status::ABORTED_FAILED_FUSED),
                "{second:?}"
            );
            bench.host_rt.sleep(Duration::from_secs(40)).await;
            assert!(gate.issued.borrow().is_empty());
            assert!(io.read(1, 0, 1, BLOCK).await.is_ok());
        });
    }
}

/// A pool that has less than is promised: whoever has its turn and finds no buffer is asked to come
/// again, at once; whose data are fetched, when they have come.
#[test]
fn nobody_waits_for_a_buffer() {
    for home in [0, 1] {
        let config = Config {
            buffer_bytes: 512 << 10,
            ..Config::calm(1)
        };
        let site = Site::new(config, 2);
        site.run(move |bench| async move {
            attach(&bench, home, memory(4 << 20), Wait::Turn);
            let (_admin, mut io) = bench.connect("a", 1).await;
            let range = LbaRange {
                slba: 0,
                blocks: 256,
            };
            let sgl = Sgl::Transport { length: 1 << 20 };
            let begun = bench.host_rt.now();
            let read = SubmissionQueueEntry::read(1, range, sgl);
            let status = io.command(read, &[]).await.status();
            assert!(status.is(Status::COMMAND_INTERRUPTED), "{status}");
            for entry in [
                SubmissionQueueEntry::write(1, range, sgl),
                SubmissionQueueEntry::compare(1, range, sgl),
            ] {
                io.submit(entry, &[]).await;
                let Incoming::R2t(r2t) = io.next().await else {
                    panic!("an R2T comes first")
                };
                io.send_requested(&r2t, &vec![7; 1 << 20], 1 << 20).await;
                let status = io.response().await.status();
                assert!(status.is(Status::COMMAND_INTERRUPTED), "{status}");
            }
            let waited = bench.host_rt.now().since(begun);
            assert!(waited < Duration::from_ms(100), "{waited}");
            // The turn of each was given back.
            assert!(io.read(1, 0, 1, BLOCK).await.is_ok());
        });
    }
}
