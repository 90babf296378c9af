//! The power of a target is cut at the moment when its host learns that a write is durable, over
//! the whole path: our host library, the engine on one or another core, a volume of a pool, a disk
//! with a volatile cache.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_block::pool::Pool;
use flashyard_block::{DeviceExt, FileDevice, SharedDevice, Tag};
use flashyard_engine::Limits;
use flashyard_host::{Payload, Persistence, RemoteDevice};
use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::command::LbaRange;
use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_testbed::{Bench, options};
use flashyard_time::{Duration, Rng};

const DISK: &str = "/dev/disk";
const BLOCK: usize = 4096;
/// The first block of the second extent of the volume.
const EDGE: u64 = 256;

/// What a host does last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// Blocks from where on, how many.
    Write(u64, u32),
    WriteAndFlush(u64, u32),
    CompareAndWrite(u64),
    WriteZeroes(u64, u32),
    /// Nothing says that it is durable.
    Plain(u64, u32),
}

impl Last {
    fn range(self) -> LbaRange {
        let (slba, blocks) = match self {
            Self::Write(slba, blocks)
            | Self::WriteAndFlush(slba, blocks)
            | Self::WriteZeroes(slba, blocks)
            | Self::Plain(slba, blocks) => (slba, blocks),
            Self::CompareAndWrite(slba) => (slba, 1),
        };
        LbaRange { slba, blocks }
    }

    /// What is there afterwards.
    fn content(self) -> Buf {
        let mut buf = Buf::take(self.range().blocks as usize * BLOCK).expect("memory");
        match self {
            Self::WriteZeroes(..) => buf.fill(0),
            _ => Rng::new(77).fill_bytes(&mut buf),
        }
        buf
    }

    async fn perform(self, device: &RemoteDevice) {
        let (tag, range) = (Tag::default(), self.range());
        match self {
            Self::Write(lba, _) => device.write(tag, lba, self.content(), true).await,
            Self::Plain(lba, _) => device.write(tag, lba, self.content(), false).await,
            Self::WriteAndFlush(lba, _) => {
                let written = device.write(tag, lba, self.content(), false).await;
                written.and(device.flush(tag).await)
            }
            Self::CompareAndWrite(lba) => {
                let (before, after) = (noise(range), self.content());
                device
                    .compare_and_write(tag, lba, before, after, true)
                    .await
            }
            Self::WriteZeroes(..) => {
                let zero = SubmissionQueueEntry::write_zeroes(1, range, false).with_fua();
                let remote = device.remote();
                let done = remote.once(async |queue| queue.command(zero, Payload::None).await);
                done.await.expect("zeroed");
                Ok(())
            }
        }
        .expect("done");
    }
}

/// What is in a range before.
fn noise(range: LbaRange) -> Buf {
    let mut buf = Buf::take(range.blocks as usize * BLOCK).expect("memory");
    Rng::new(range.slba).fill_bytes(&mut buf);
    buf
}

/// Runs a task on a core of another machine and waits for what it gives.
async fn there<T: 'static>(here: &Rt, there: &Rt, task: impl Future<Output = T> + 'static) -> T {
    let result = Rc::new(RefCell::new(None));
    let place = result.clone();
    there
        .spawn(async move {
            let output = task.await;
            *place.borrow_mut() = Some(output);
        })
        .detach();
    loop {
        if let Some(output) = result.borrow_mut().take() {
            return output;
        }
        here.sleep(Duration::from_us(10)).await;
    }
}

fn open_disk(rt: &Rt) -> SharedDevice {
    let opened = FileDevice::open_block(rt, DISK.as_ref(), BLOCK as u32, false);
    Rc::new(opened.expect("the disk is there"))
}

/// A volume of two extents that lie apart.
async fn new_volume(rt: Rt) -> SharedDevice {
    let pool = Pool::create(&rt, open_disk(&rt), [1; 16], false).await;
    let pool = pool.expect("an empty disk");
    for (name, number) in [("ours", 1), ("between", 2)] {
        let made = pool.create_volume(name, [number; 16], 1 << 20).await;
        made.expect("there is room");
    }
    pool.grow("ours", 2 << 20).await.expect("there is room");
    pool.volume("ours").expect("it is there")
}

/// The blocks of a range, when the machine is up again.
async fn found(rt: Rt, range: LbaRange) -> Vec<u8> {
    let pool = Pool::open(&rt, open_disk(&rt)).await.expect("it is whole");
    let volume = pool.volume("ours").expect("it is there");
    let buf = Buf::take(range.blocks as usize * BLOCK).expect("memory");
    match volume.read(Tag::default(), range.slba, buf).await {
        Ok(Data::Buf(buf)) => buf.to_vec(),
        Ok(Data::Zeroes(len)) => vec![0; len],
        Err(error) => panic!("{error:?}"),
    }
}

/// A target whose tenant `a` has the volume as namespace 1, at home on core `home`.
async fn serve(here: &Rt, server: &Machine, home: usize) -> SocketAddr {
    let rts = vec![server.rt(0), server.rt(1)];
    let addr = SocketAddr::new(server.ip(), 4420);
    let bench = Bench::new(rts, addr, here.clone(), Limits::default());
    let rt = &bench.rts[home];
    let volume = there(here, rt, new_volume(rt.clone())).await;
    bench.attach("a", 1, home, volume);
    addr
}

/// Whether what was done `last` is there when the power is back.
fn survives(config: Config, home: usize, last: Last) -> bool {
    let world = World::new(config);
    let (server, hosts) = (world.machine(2), world.machine(1));
    server.add_disk(DISK, 8 << 20);
    world.run(&hosts, move |rt| async move {
        let addr = serve(&rt, &server, home).await;
        let device = RemoteDevice::open(&rt, addr, options("a", 9), 1, Persistence::default())
            .await
            .expect("connects");
        // What was there before is on the medium; beside it is what is not.
        let range = last.range();
        let tag = Tag::default();
        let before = device.write(tag, range.slba, noise(range), true).await;
        before.expect("written");
        for slba in [0, EDGE + 100] {
            let beside = noise(LbaRange { slba, blocks: 3 });
            device
                .write(tag, slba, beside, false)
                .await
                .expect("written");
        }
        last.perform(&device).await;
        server.power_cut();
        drop(device);
        server.restart();
        let again = server.rt(0);
        let found = there(&rt, &again, found(again.clone(), range)).await;
        found == *last.content()
    })
}

#[test]
fn what_was_reported_durable_survives_a_power_cut_at_once() {
    let durable = [
        Last::Write(10, 1),
        Last::Write(EDGE - 1, 2),
        // By R2T, in one extent and over both.
        Last::Write(20, 8),
        Last::Write(EDGE - 4, 8),
        Last::WriteAndFlush(EDGE - 1, 2),
        Last::WriteAndFlush(EDGE - 4, 8),
        Last::CompareAndWrite(EDGE),
        Last::WriteZeroes(EDGE - 4, 8),
    ];
    let mut lost = 0;
    for seed in 0..8 {
        let config = || match seed % 2 {
            0 => Config::calm(seed),
            _ => Config::stormy(seed),
        };
        for home in [0, 1] {
            for last in durable {
                let there = survives(config(), home, last);
                assert!(there, "seed {seed}, home {home}: {last:?} is lost");
            }
            lost += usize::from(!survives(config(), home, Last::Plain(EDGE - 1, 2)));
        }
    }
    assert!(lost > 0, "a cut that takes nothing shows nothing");
}
