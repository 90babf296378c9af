//! A latency-sensitive tenant on a mapped pool beside one that streams, in virtual time.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_block::pool::{Kind, Pool};
use flashyard_block::{DeviceExt, Io, MemoryDevice, SharedDevice, Tag};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_sched::{Class, Op, TenantId};
use flashyard_testbed::Paced;
use flashyard_time::{Duration, Histogram, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Of a device that does many I/Os at once: before the first byte, a flush, and a byte.
const BASE: Duration = Duration::from_us(20);
const FLUSH: Duration = Duration::from_us(40);
const NS_PER_BYTE: u64 = 1;
/// Bytes of a write of the stream.
const LONG: usize = 256 << 10;

fn device(rt: &Rt) -> SharedDevice {
    let memory = Rc::new(MemoryDevice::new(4096, 256 * MIB).expect("a good size"));
    let clock = rt.clone();
    Rc::new(Paced::new(memory, move |_, io: &Io| {
        let bytes = io.transfers() as u64;
        clock.sleep(match io.op() {
            Op::Flush => FLUSH,
            _ => BASE + Duration::from_ns(bytes * NS_PER_BYTE),
        })
    }))
}

fn tag(tenant: u32, class: Class) -> Tag {
    Tag {
        tenant: TenantId(tenant),
        class,
    }
}

/// How long a write of 4 KiB and a flush take, one after the other.
async fn commits(rt: &Rt, volume: &SharedDevice, tag: Tag, count: u64) -> Histogram {
    let (mut took, mut rng) = (Histogram::new(), Rng::new(1));
    for _ in 0..count {
        let begun = rt.now();
        let mut buf = Buf::take(BLOCK).expect("memory");
        buf.fill(3);
        let lba = rng.below(1000);
        volume
            .write(tag, lba, buf, false)
            .await
            .expect("there is room");
        volume.flush(tag).await.expect("it is good");
        took.record((rt.now() - begun).as_ns());
        rt.sleep(Duration::from_us(rng.below(60))).await;
    }
    took
}

/// Writes anywhere in its volume and discards now and then, until the test ends it.
async fn stream(volume: SharedDevice, seed: u64, end: Rc<Cell<bool>>) -> u64 {
    let (tag, mut rng, mut written) = (tag(2, Class::Throughput), Rng::new(seed), 0);
    let places = volume.info().blocks - (LONG / BLOCK) as u64;
    while !end.get() {
        let mut buf = Buf::take(LONG).expect("memory");
        buf.fill(1 + seed as u8);
        let lba = rng.below(places);
        volume
            .write(tag, lba, buf, false)
            .await
            .expect("there is room");
        written += LONG as u64;
        if rng.below(300) == 0 {
            let blocks = volume.info().blocks / 2;
            volume
                .deallocate(tag, rng.below(blocks), blocks)
                .await
                .expect("it is good");
        }
    }
    written
}

/// The 99th percentile alone and beside a stream, in nanoseconds.
async fn alone_and_beside(rt: &Rt, class: Class) -> (u64, u64) {
    let pool = Pool::create_kind(rt, device(rt), [1; 16], Kind::Mapped, false).await;
    let pool = pool.expect("it is empty");
    let quick = pool
        .create_volume("quick", [2; 16], 8 * MIB)
        .await
        .expect("there is room");
    let long = pool
        .create_volume("long", [3; 16], 96 * MIB)
        .await
        .expect("there is room");
    let tag = tag(1, class);
    let alone = commits(rt, &quick, tag, 300).await;
    let end = Rc::new(Cell::new(false));
    let streams: Vec<_> = (0..4)
        .map(|seed| rt.spawn(stream(long.clone(), seed, end.clone())))
        .collect();
    // Until garbage collection is at work.
    commits(rt, &quick, tag, 300).await;
    let Pool::Mapped(mapped) = &pool else {
        unreachable!("it was made so");
    };
    let before = mapped.stats();
    let beside = commits(rt, &quick, tag, 300).await;
    let after = mapped.stats();
    assert!(after.victims > before.victims + 50, "it collects");
    assert!(
        after.checkpoints > before.checkpoints + 3,
        "it writes checkpoints"
    );
    end.set(true);
    for stream in streams {
        assert!(stream.await > 20 * MIB);
    }
    pool.close().await;
    (alone.percentile(990_000), beside.percentile(990_000))
}

#[test]
fn a_commit_of_a_latency_sensitive_tenant_is_not_held_up_by_a_stream() {
    let world = World::new(Config {
        max_steps: u64::MAX,
        ..Config::calm(1)
    });
    let machine = world.machine(1);
    world.run(&machine, |rt: Rt| async move {
        let (alone, beside) = alone_and_beside(&rt, Class::Latency).await;
        let write = (BASE + Duration::from_ns(LONG as u64 * NS_PER_BYTE)).as_ns();
        assert!(
            beside <= 2 * alone,
            "p99 {alone} ns alone and {beside} ns beside the stream"
        );
        // In the lane of the stream it waits for batches of that one.
        let (_, together) = alone_and_beside(&rt, Class::Throughput).await;
        assert!(together > beside + write / 2, "{together} ns, {beside} ns");
    });
}
