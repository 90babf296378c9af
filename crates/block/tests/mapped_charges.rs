//! What tenants of a mapped pool cost: who causes garbage collection pays for it, and what all are
//! charged is what members have moved.

mod arrays;

use std::cell::Cell;
use std::rc::Rc;

use arrays::{ARRAY, in_world, memories, new};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::pool::{MappedOptions, MappedPool, Pool};
use flashyard_block::{DeviceExt, Io, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_sched::{Class, Cost, Op, TenantId};
use flashyard_testbed::Paced;
use flashyard_time::Rng;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Who overwrites by chance, who in order, and who reads.
const CHANCE: u32 = 1;
const ORDER: u32 = 2;
const READER: u32 = 3;

/// Bytes that members have read and written.
type Counted = Rc<Cell<[u64; 2]>>;

fn counting(device: SharedDevice, counted: &Counted) -> SharedDevice {
    let counted = counted.clone();
    Rc::new(Paced::new(device, move |_, io: &Io| {
        let [mut read, mut written] = counted.get();
        match io.op() {
            Op::Read => read += io.transfers() as u64,
            _ => written += io.transfers() as u64,
        }
        counted.set([read, written]);
        std::future::ready(())
    }))
}

/// A pool of about 32 MiB with three volumes that are full of data, and what stands below it.
async fn pool(rt: &Rt, members: &[SharedDevice], parity: usize) -> (MappedPool, Vec<SharedDevice>) {
    let below: SharedDevice = match members {
        [one] => one.clone(),
        _ => {
            let layout = Layout {
                copies: members.len(),
                parity,
                safe_read: false,
            };
            let options = Options::default();
            let array = Array::create(rt, new(members), ARRAY, layout, options, false).await;
            Rc::new(array.expect("they hold nothing"))
        }
    };
    let made = MappedPool::create(rt, below, [7; 16], MappedOptions::default()).await;
    let pool = made.expect("it is large enough");
    let bytes = pool.info().bytes * 72 / 100 / 3 / MIB * MIB;
    let all = Pool::Mapped(pool.clone());
    let mut volumes = Vec::new();
    for (number, name) in [(CHANCE, "chance"), (ORDER, "order"), (READER, "reader")] {
        let made = all.create_volume(name, [number as u8; 16], bytes).await;
        let volume = made.expect("there is room");
        for lba in (0..volume.info().blocks).step_by(32) {
            write(&volume, number, lba, 32).await;
        }
        volumes.push(volume);
    }
    (pool, volumes)
}

fn tag(tenant: u32) -> Tag {
    Tag {
        tenant: TenantId(tenant),
        class: Class::Throughput,
    }
}

async fn write(volume: &SharedDevice, tenant: u32, lba: u64, blocks: usize) {
    let mut buf = Buf::take(blocks * BLOCK).expect("memory");
    buf.fill(lba as u8 | 1);
    let written = volume.write(tag(tenant), lba, buf, false).await;
    written.expect("there is room");
}

/// What each has cost since this was asked last: the system, then the three.
fn taken(volumes: &[SharedDevice]) -> [Cost; 4] {
    let of = |tenant| volumes[0].take_cost(TenantId(tenant));
    [0, CHANCE, ORDER, READER].map(|tenant| of(tenant).expect("such pools count"))
}

/// All three write or read a block of theirs, `count` times.
async fn work(volumes: &[SharedDevice], count: u64) {
    let mut rng = Rng::new(5);
    for turn in 0..count {
        let blocks = volumes[0].info().blocks;
        write(&volumes[0], CHANCE, rng.below(blocks), 1).await;
        write(&volumes[1], ORDER, turn % blocks, 1).await;
        let buf = Buf::take(BLOCK).expect("memory");
        let read = volumes[2].read(tag(READER), rng.below(blocks), buf).await;
        read.expect("it was written");
    }
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    members: usize,
    parity: usize,
}

const CASES: [Case; 2] = [
    Case {
        name: "one device",
        members: 1,
        parity: 0,
    },
    Case {
        name: "parity",
        members: 4,
        parity: 1,
    },
];

#[test]
fn all_that_members_move_is_charged_and_to_whose_overwrites_made_the_garbage() {
    for case in CASES {
        in_world(move |rt| async move {
            let counted = Counted::default();
            let each = 34 * MIB / (case.members - case.parity) as u64 + 8 * MIB;
            let members = memories(case.members, each);
            let members = members.into_iter().map(|it| counting(it, &counted));
            let members: Vec<SharedDevice> = members.collect();
            let (pool, volumes) = pool(&rt, &members, case.parity).await;
            let blocks = volumes[0].info().blocks;
            work(&volumes, blocks).await;
            let (_, before, stats) = (taken(&volumes), counted.get(), pool.stats());
            work(&volumes, blocks).await;
            pool.checkpoint().await.expect("it is good");
            let [system, chance, order, reader] = taken(&volumes);
            let (moved, now) = (counted.get(), pool.stats());
            let name = case.name;
            assert!(
                now.moved_blocks > stats.moved_blocks + blocks / 4,
                "{name}: it collects"
            );
            // Nothing is missing, and nothing is charged twice.
            let mut all = system;
            for it in [chance, order, reader] {
                all += it;
            }
            for (charged, real) in [
                (all.read, moved[0] - before[0]),
                (all.written, moved[1] - before[1]),
            ] {
                assert!(
                    charged.abs_diff(real) <= real / 100,
                    "{name}: {charged} of {real}"
                );
            }
            // The system has caused hardly anything.
            assert!(
                system.written < all.written / 50,
                "{name}: {system:?} of {all:?}"
            );
            // The reader pays for its reads, and for nothing else.
            let read = blocks * BLOCK as u64;
            assert!(
                (read..read + read / 50).contains(&reader.read),
                "{name}: {reader:?}"
            );
            assert_eq!(reader.written, 0, "{name}");
            // Both writers write the same; garbage collection is that of the one by chance.
            assert!(
                chance.upkeep > 4 * order.upkeep,
                "{name}: {chance:?}, {order:?}"
            );
            drop(volumes);
            pool.close().await;
        });
    }
}

#[test]
fn a_volume_that_nobody_writes_any_more_is_paid_for_by_others() {
    in_world(|rt| async move {
        let counted = Counted::default();
        let members: Vec<_> = memories(1, 40 * MIB);
        let one = counting(members[0].clone(), &counted);
        let (pool, volumes) = pool(&rt, &[one], 0).await;
        let blocks = volumes[0].info().blocks;
        let mut rng = Rng::new(9);
        for _ in 0..blocks {
            write(&volumes[0], CHANCE, rng.below(blocks), 1).await;
        }
        taken(&volumes);
        for _ in 0..2 * blocks {
            write(&volumes[0], CHANCE, rng.below(blocks), 1).await;
        }
        let [_, chance, order, reader] = taken(&volumes);
        assert!(pool.stats().moved_blocks > blocks / 2, "it collects");
        // The others' data were moved out of the way.
        for other in [order, reader] {
            assert!(other.upkeep < chance.upkeep / 50, "{other:?} of {chance:?}");
        }
        assert!(chance.upkeep > chance.written / 4);
        drop(volumes);
        pool.close().await;
    });
}
