//! I/O at a volume whose blocks say what they hold: what comes back is judged.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Class, DeviceExt, SharedDevice, Tag, TenantId};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::{Histogram, Rng, Time};

use super::BLOCK;

/// I/Os in flight.
const DEPTH: u64 = 32;

/// Blocks of one write while a volume is filled.
const FILL: u64 = 32;

/// Whose I/O it is.
const HOST: Tag = Tag {
    tenant: TenantId(1),
    class: Class::Throughput,
};

/// What came of I/O.
#[derive(Clone, Default)]
pub(in super::super) struct Tally {
    pub(in super::super) reads: u64,
    pub(in super::super) writes: u64,
    /// Reads that gave other data than were written.
    pub(in super::super) wrong: u64,
    /// Reads and writes that were answered with an error.
    pub(in super::super) failed: u64,
    pub(in super::super) read_latency: Histogram,
    pub(in super::super) write_latency: Histogram,
    /// From the first to the last, in seconds.
    pub(in super::super) seconds: f64,
}

/// Which I/O.
#[derive(Clone, Copy)]
pub(in super::super) struct Mix {
    /// Of a hundred.
    pub(in super::super) reads: u64,
    pub(in super::super) seed: u64,
}

/// What a block holds, eight bytes at a time: a volume is always filled with the same.
fn content(block: u64) -> u64 {
    Rng::new(0x5eed).at(block)
}

fn write_content(lba: u64, buf: &mut [u8]) {
    for (block, bytes) in (lba..).zip(buf.chunks_exact_mut(BLOCK)) {
        bytes.copy_from_slice(&content(block).to_le_bytes().repeat(BLOCK / 8));
    }
}

fn holds_content(lba: u64, data: &Data) -> bool {
    let word = content(lba).to_le_bytes();
    match data {
        Data::Buf(bytes) => {
            bytes.len() == BLOCK && bytes.chunks_exact(8).all(|found| *found == word)
        }
        // No block holds zeroes.
        Data::Zeroes(_) => false,
    }
}

/// Writes all of a volume, in order.
pub(in super::super) async fn fill(volume: &SharedDevice) {
    let blocks = volume.info().blocks;
    for lba in (0..blocks).step_by(FILL as usize) {
        let len = FILL.min(blocks - lba) as usize * BLOCK;
        let mut buf = Buf::take(len).expect("memory");
        write_content(lba, &mut buf);
        let written = volume.write(Tag::default(), lba, buf, false).await;
        written.expect("the drives take writes");
    }
    let flushed = volume.flush(Tag::default()).await;
    flushed.expect("the drives take writes");
}

/// Reads each block of a volume once, in an order without a pattern.
pub(in super::super) async fn once_each(rt: &Rt, volume: &SharedDevice, seed: u64) -> Tally {
    let blocks = volume.info().blocks;
    let mut order: Vec<u64> = (0..blocks).collect();
    Rng::new(seed).shuffle(&mut order);
    let (order, next) = (Rc::new(order), Rc::new(Cell::new(0)));
    by_many(rt, volume, move |_| {
        let at = next.get();
        next.set(at + 1);
        order.get(at).map(|&lba| (lba, true))
    })
    .await
}

/// Reads and writes blocks by chance until `ends` says so.
pub(in super::super) async fn run(
    rt: &Rt,
    volume: &SharedDevice,
    mix: Mix,
    ends: impl Fn(Time) -> bool + 'static,
) -> Tally {
    let blocks = volume.info().blocks;
    let rng = RefCell::new(Rng::new(mix.seed));
    by_many(rt, volume, move |now| {
        let mut rng = rng.borrow_mut();
        (!ends(now)).then(|| (rng.below(blocks), rng.below(100) < mix.reads))
    })
    .await
}

/// Does what `next` says, so many at a time: which block, and whether it is read.
async fn by_many(
    rt: &Rt,
    volume: &SharedDevice,
    next: impl Fn(Time) -> Option<(u64, bool)> + 'static,
) -> Tally {
    let (tally, next) = (Rc::new(RefCell::new(Tally::default())), Rc::new(next));
    let begun = rt.now();
    let work = |_| {
        let (rt, volume) = (rt.clone(), volume.clone());
        let (tally, next) = (tally.clone(), next.clone());
        async move {
            while let Some((lba, reads)) = next(rt.now()) {
                one(&rt, &volume, (lba, reads), &tally).await;
            }
        }
    };
    let tasks: Vec<_> = (0..DEPTH).map(|task| rt.spawn(work(task))).collect();
    for task in tasks {
        task.await;
    }
    let mut tally = tally.take();
    tally.seconds = rt.now().since(begun).as_secs_f64();
    tally
}

async fn one(rt: &Rt, volume: &SharedDevice, (lba, reads): (u64, bool), tally: &RefCell<Tally>) {
    let mut buf = Buf::take(BLOCK).expect("memory");
    let begun = rt.now();
    if reads {
        let read = volume.read(HOST, lba, buf).await;
        let taken = rt.now().since(begun).as_ns();
        let mut tally = tally.borrow_mut();
        tally.reads += 1;
        tally.read_latency.record(taken);
        match read {
            Ok(data) => tally.wrong += u64::from(!holds_content(lba, &data)),
            Err(_) => tally.failed += 1,
        }
    } else {
        write_content(lba, &mut buf);
        let written = volume.write(HOST, lba, buf, false).await;
        let taken = rt.now().since(begun).as_ns();
        let mut tally = tally.borrow_mut();
        tally.writes += 1;
        tally.write_latency.record(taken);
        tally.failed += u64::from(written.is_err());
    }
}

impl Tally {
    /// I/Os per second.
    pub(in super::super) fn rate(&self) -> f64 {
        (self.reads + self.writes) as f64 / self.seconds
    }
}
