//! Mapped volumes over the whole path: our host library, the engine, a mapped pool, a disk that
//! loses power, flips bits or is full.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_block::fault::{FaultDevice, FaultKind, FaultRule, Frequency};
use flashyard_block::pool::{Kind, Pool, check};
use flashyard_block::{Device, DeviceExt, FileDevice, IoError, SharedDevice, Tag, Verdict};
use flashyard_engine::Limits;
use flashyard_host::{Persistence, RemoteDevice};
use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_testbed::{Bench, Site, memory, options};
use flashyard_time::{Duration, Rng};

const DISK: &str = "/dev/disk";
const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
/// Blocks of the volume that hosts write.
const BLOCKS: u64 = 512;

/// Blocks of which every word is `value`.
fn blocks(count: u64, value: u32) -> Buf {
    let mut buf = Buf::take(count as usize * BLOCK).expect("memory");
    for word in buf.chunks_exact_mut(4) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    buf
}

/// The value of each block of a range.
async fn values(device: &dyn Device, lba: u64, count: u64) -> Result<Vec<u32>, IoError> {
    let buf = Buf::take(count as usize * BLOCK).expect("memory");
    let bytes = match device.read(Tag::default(), lba, buf).await? {
        Data::Buf(buf) => buf.to_vec(),
        Data::Zeroes(len) => vec![0; len],
    };
    let value = |block: &[u8]| {
        let value = u32::from_le_bytes(block[..4].try_into().expect("4 bytes"));
        let whole = block
            .chunks_exact(4)
            .all(|word| word == value.to_le_bytes());
        assert!(whole, "a block that was never written so");
        value
    };
    Ok(bytes.chunks_exact(BLOCK).map(value).collect())
}

/// Runs a task on a core of another machine and waits for what it gives.
async fn there<T: 'static>(here: &Rt, there: &Rt, task: impl Future<Output = T> + 'static) -> T {
    let result = Rc::new(RefCell::new(None));
    let place = result.clone();
    let run = async move {
        let output = task.await;
        *place.borrow_mut() = Some(output);
    };
    there.spawn(run).detach();
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

async fn new_pool(rt: &Rt, device: SharedDevice) -> Pool {
    let made = Pool::create_kind(rt, device, [1; 16], Kind::Mapped, false).await;
    let pool = made.expect("an empty disk");
    let volume = pool.create_volume("v", [2; 16], 1 << 40).await;
    volume.expect("it may be larger than the disk");
    pool
}

/// A target whose tenant `a` has a mapped volume as namespace 1, at home on core `home`.
async fn serve(here: &Rt, server: &Machine, home: usize) -> SocketAddr {
    let rts = vec![server.rt(0), server.rt(1)];
    let addr = SocketAddr::new(server.ip(), 4420);
    let bench = Bench::new(rts, addr, here.clone(), Limits::default());
    let rt = bench.rts[home].clone();
    let volume = there(here, &bench.rts[home], async move {
        let pool = new_pool(&rt, open_disk(&rt)).await;
        pool.volume("v").expect("it is there")
    });
    let volume = volume.await;
    bench.attach("a", 1, home, volume);
    addr
}

async fn connect(rt: &Rt, addr: SocketAddr) -> RemoteDevice {
    let opened = RemoteDevice::open(rt, addr, options("a", 9), 1, Persistence::default());
    opened.await.expect("connects")
}

/// What is on the disk when the machine is up again: its values, after a check.
async fn found(rt: Rt) -> Vec<u32> {
    let report = check(&rt, open_disk(&rt)).await.expect("it can be read");
    assert_ne!(report.verdict(), Verdict::Lost, "{report}");
    let pool = Pool::open(&rt, open_disk(&rt)).await.expect("it is whole");
    let volume = pool.volume("v").expect("it is there");
    let mut found = Vec::new();
    for lba in (0..BLOCKS).step_by(32) {
        found.extend(values(&*volume, lba, 32).await.expect("good media"));
    }
    pool.close().await;
    found
}

/// A host writes until the power goes at some moment; what was answered as durable is there.
fn survives_a_cut(seed: u64) {
    let config = match seed % 2 {
        0 => Config::calm(seed),
        _ => Config::stormy(seed),
    };
    let world = World::new(config);
    let (server, hosts) = (world.machine(2), world.machine(1));
    server.add_disk(DISK, 33 * MIB);
    world.run(&hosts, move |rt| async move {
        let addr = serve(&rt, &server, (seed / 2 % 2) as usize).await;
        let device = Rc::new(connect(&rt, addr).await);
        // Of each block the value that is durable, and the one that was begun last.
        let known = Rc::new(RefCell::new(vec![(0, 0); BLOCKS as usize]));
        let (writer, notes) = (device.clone(), known.clone());
        let work = rt.spawn(async move {
            let mut rng = Rng::new(seed);
            for value in 1.. {
                let lba = rng.below(BLOCKS - 16);
                let count = 1 + rng.below(16);
                let range = lba as usize..(lba + count) as usize;
                for note in &mut notes.borrow_mut()[range.clone()] {
                    note.1 = value;
                }
                let (tag, fua) = (Tag::default(), rng.below(4) == 0);
                let data = blocks(count, value);
                if writer.write(tag, lba, data, fua).await.is_err() {
                    return;
                }
                if fua {
                    for note in &mut notes.borrow_mut()[range] {
                        note.0 = value;
                    }
                } else if rng.below(8) == 0 {
                    let before: Vec<u32> = notes.borrow().iter().map(|note| note.1).collect();
                    if writer.flush(tag).await.is_err() {
                        return;
                    }
                    for (note, value) in notes.borrow_mut().iter_mut().zip(before) {
                        note.0 = value;
                    }
                }
            }
        });
        rt.sleep(Duration::from_us(500 + Rng::new(seed).below(60_000)))
            .await;
        server.power_cut();
        drop(work);
        drop(device);
        server.restart();
        let again = server.rt(0);
        let found = there(&rt, &again, found(again.clone())).await;
        let mut durable = 0;
        for (block, (value, (least, most))) in found.iter().zip(known.borrow().iter()).enumerate() {
            let fits = (*least..=*most).contains(value);
            assert!(
                fits,
                "seed {seed}: block {block} has {value}, not {least} to {most}"
            );
            durable += usize::from(*least > 0);
        }
        assert!(
            durable > 0 || seed > 0,
            "the first host has written something durable"
        );
    });
}

#[test]
fn what_a_host_was_told_is_durable_survives_a_cut_at_any_moment() {
    let rounds = std::env::var("FLASHYARD_ROUNDS").ok();
    let rounds: u64 = rounds.and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in 0..16 * rounds {
        survives_a_cut(seed);
    }
}

#[test]
fn flipped_bits_below_a_pool_are_found_and_never_returned() {
    for seed in 0..3 {
        let site = Site::new(Config::calm(seed), 1);
        site.run(move |bench| async move {
            let rt = bench.rts[0].clone();
            let faults = Rc::new(FaultDevice::new(&rt, memory(64 * MIB), seed, Vec::new()));
            let pool = new_pool(&rt, faults.clone()).await;
            bench.attach("a", 1, 0, pool.volume("v").expect("it is there"));
            let host = connect(&bench.host_rt, bench.addr).await;
            let tag = Tag::default();
            for lba in (0..BLOCKS).step_by(16) {
                let written = host
                    .write(tag, lba, blocks(16, 1 + lba as u32), false)
                    .await;
                written.expect("there is room");
            }
            let rate = Frequency::Rate(20_000_000);
            faults.set(vec![FaultRule::new(FaultKind::Poison).at(rate)]);
            let (mut refused, mut rng) = (0, Rng::new(seed));
            let mut expected: Vec<u32> = (0..BLOCKS as u32).map(|lba| 1 + lba / 16 * 16).collect();
            for round in 0..1500 {
                let lba = rng.below(BLOCKS - 4);
                if rng.below(3) == 0 {
                    let value = 10_000 + round;
                    let written = host.write(tag, lba, blocks(4, value), false).await;
                    written.expect("there is room");
                    expected[lba as usize..][..4].fill(value);
                } else {
                    match values(&host, lba, 4).await {
                        Ok(values) => assert_eq!(values, expected[lba as usize..][..4]),
                        Err(error) => {
                            assert_eq!(error, IoError::Read);
                            refused += 1;
                        }
                    }
                }
            }
            let injected: u64 = faults.counts().iter().map(|(_, it)| it.injected).sum();
            assert!(
                injected > 20 && refused > 0,
                "{injected} bits, {refused} refused"
            );
            let Pool::Mapped(mapped) = &pool else {
                panic!("it was made mapped");
            };
            assert!(mapped.stats().bad_reads > 0);
            // What a write has left can be written again.
            faults.set(Vec::new());
            for lba in (0..BLOCKS).step_by(16) {
                let written = host.write(tag, lba, blocks(16, 7), false).await;
                written.expect("there is room");
                assert_eq!(values(&host, lba, 16).await, Ok(vec![7; 16]));
            }
            pool.close().await;
        });
    }
}

#[test]
fn at_the_wall_writes_are_refused_and_deallocating_makes_room() {
    let site = Site::new(Config::calm(3), 1);
    site.run(|bench| async move {
        let rt = bench.rts[0].clone();
        let device = memory(40 * MIB);
        let pool = new_pool(&rt, device.clone()).await;
        bench.attach("a", 1, 0, pool.volume("v").expect("it is there"));
        let host = connect(&bench.host_rt, bench.addr).await;
        let tag = Tag::default();
        for round in 1..4 {
            let mut full = 0;
            while full < 1 << 20 {
                match host.write(tag, full, blocks(32, round), false).await {
                    Ok(()) => full += 32,
                    Err(error) => {
                        assert_eq!(error, IoError::NoSpace);
                        break;
                    }
                }
            }
            assert!(full * 4096 > 16 * MIB, "{full} blocks in round {round}");
            assert!(pool.info().free < MIB, "{:?}", pool.info());
            // What is there can be overwritten without end, and read.
            for lba in (0..full).step_by(32) {
                let written = host.write(tag, lba, blocks(32, 100 + round), false).await;
                written.expect("it has room");
            }
            assert_eq!(values(&host, 0, 32).await, Ok(vec![100 + round; 32]));
            host.deallocate(tag, 0, full)
                .await
                .expect("a trim at the wall");
            host.flush(tag).await.expect("good media");
            assert_eq!(values(&host, full - 32, 32).await, Ok(vec![0; 32]));
        }
        pool.close().await;
        let report = check(&rt, device).await.expect("it can be read");
        assert_eq!(report.verdict(), Verdict::Sound, "{report}");
    });
}
