//! Faults on purpose, through a whole target over NVMe/TCP: what the host sees of each, and that it
//! was counted. An injector that injects nothing looks like success.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::rc::Rc;

use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule, Frequency};
use flashyard_block::pool::Pool;
use flashyard_block::{DeviceExt, FileDevice, SharedDevice, Tag};
use flashyard_engine::Limits;
use flashyard_host::{Persistence, RemoteDevice};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::{BLOCK, Bench, Client, Site, memory, options, pattern};
use flashyard_time::Duration;

const NSID: u32 = 1;
/// Blocks that tests write and read at a time.
const BLOCKS: u32 = 16;
const LEN: usize = (BLOCKS * BLOCK) as usize;
const SECTOR: usize = 512;
const DISK: &str = "/dev/disk";

/// A target whose namespace 1 of tenant `a` has these faults, and a host of it.
fn with_faults<F>(
    seed: u64,
    rules: impl Into<Vec<FaultRule>>,
    test: impl FnOnce(Bench, Rc<FaultDevice>, Client) -> F + 'static,
) -> F::Output
where
    F: Future + 'static,
{
    let site = Site::new(Config::calm(seed), 1);
    let faults = site
        .bench
        .attach_faulty("a", NSID, memory(16 << 20), (seed, rules.into()));
    let own = faults.clone();
    let output = site.run(|bench| async move {
        let (_admin, io) = bench.connect("a", 1).await;
        test(bench, own, io).await
    });
    // What still hangs ends with the layer, and the site finds nothing left.
    faults.close();
    output
}

async fn write(io: &mut Client, lba: u64, data: &[u8]) -> Status {
    io.write_by_r2t(NSID, lba, data, BLOCK, 32 << 10).await
}

async fn read(io: &mut Client, lba: u64) -> Result<Vec<u8>, Status> {
    io.read(NSID, lba, BLOCKS, BLOCK).await
}

async fn flush(io: &mut Client) -> Status {
    io.command(SubmissionQueueEntry::flush(NSID), &[])
        .await
        .status()
}

/// What a fault has injected, and what it could not.
fn counted(faults: &FaultDevice) -> (u64, u64) {
    let counts = faults.counts();
    let (_, counts) = counts.first().expect("there is a fault");
    (counts.injected, counts.missed)
}

fn code(status: Status) -> u16 {
    status.bits() & 0x7ff
}

fn flipped_bits(a: &[u8], b: &[u8]) -> u64 {
    let bits = a
        .iter()
        .zip(b)
        .map(|(a, b)| u64::from((a ^ b).count_ones()));
    bits.sum()
}

#[test]
fn a_poisoned_write_has_one_bit_of_each_block_wrong_for_good() {
    let rule = FaultRule::new(FaultKind::Poison).always();
    with_faults(1, [rule], async |_, faults, mut io| {
        let data = pattern(5, LEN);
        assert!(write(&mut io, 8, &data).await.is_success());
        let there = read(&mut io, 8).await.expect("read");
        for (there, data) in there
            .chunks(BLOCK as usize)
            .zip(data.chunks(BLOCK as usize))
        {
            assert_eq!(flipped_bits(there, data), 1);
        }
        assert_eq!(counted(&faults), (u64::from(BLOCKS), 0));
        faults.set(Vec::new());
        assert_eq!(read(&mut io, 8).await, Ok(there), "it is on the medium");
    });
}

/// One block of a thousand is hit, and what the host finds is what was counted.
#[test]
fn poison_without_a_rate_hits_one_block_of_a_thousand() {
    with_faults(
        2,
        [FaultRule::new(FaultKind::Poison)],
        async |_, faults, mut io| {
            let data = pattern(6, LEN);
            let mut wrong = 0;
            for lba in (0..4096 - u64::from(BLOCKS)).step_by(BLOCKS as usize) {
                assert!(write(&mut io, lba, &data).await.is_success());
                wrong += flipped_bits(&read(&mut io, lba).await.expect("read"), &data);
            }
            assert_eq!(counted(&faults), (wrong, 0));
            assert!((1..=12).contains(&wrong), "{wrong} of 4080");
        },
    );
}

#[test]
fn a_poisoned_read_is_wrong_once_and_the_medium_is_right() {
    let every = Frequency::Every(NonZeroU64::new(BLOCKS.into()).expect("not 0"));
    let rule = FaultRule::new(FaultKind::Poison)
        .on(FaultOn::Reads)
        .at(every);
    with_faults(3, [rule], async |_, faults, mut io| {
        let data = pattern(7, LEN);
        assert!(write(&mut io, 0, &data).await.is_success());
        let there = read(&mut io, 0).await.expect("read");
        assert_eq!(flipped_bits(&there, &data), 1);
        // Blocks that were never written, too.
        let zeroes = read(&mut io, 1000).await.expect("read");
        assert_eq!(flipped_bits(&zeroes, &vec![0; LEN]), 1);
        assert_eq!(counted(&faults), (2, 0));
        faults.set(Vec::new());
        assert_eq!(read(&mut io, 0).await, Ok(data));
    });
}

#[test]
fn of_a_torn_write_some_sectors_are_new_and_some_old() {
    let rule = FaultRule::new(FaultKind::Torn).always();
    with_faults(4, [], async move |_, faults, mut io| {
        let (old, new) = (pattern(8, LEN), pattern(9, LEN));
        for _ in 0..20 {
            faults.set(Vec::new());
            assert!(write(&mut io, 32, &old).await.is_success());
            faults.set(vec![rule.clone()]);
            assert!(write(&mut io, 32, &new).await.is_success());
            assert_eq!(counted(&faults), (1, 0));
            let there = read(&mut io, 32).await.expect("read");
            let sectors = there
                .chunks(SECTOR)
                .zip(old.chunks(SECTOR))
                .zip(new.chunks(SECTOR));
            let mut of_each = [0, 0];
            for ((there, old), new) in sectors {
                assert!(there == old || there == new, "a sector is never torn");
                of_each[usize::from(there == new)] += 1;
            }
            assert!(of_each[0] > 0 && of_each[1] > 0, "{of_each:?}");
        }
    });
}

#[test]
fn a_lost_write_is_acknowledged_and_changes_nothing() {
    let every = Frequency::Every(NonZeroU64::new(2).expect("not 0"));
    let rule = FaultRule::new(FaultKind::Lost).at(every);
    with_faults(5, [rule], async |_, faults, mut io| {
        let (first, second) = (pattern(10, LEN), pattern(11, LEN));
        assert!(write(&mut io, 0, &first).await.is_success());
        assert!(write(&mut io, 0, &second).await.is_success());
        assert!(flush(&mut io).await.is_success());
        assert_eq!(read(&mut io, 0).await, Ok(first));
        assert_eq!(counted(&faults), (1, 0));
    });
}

#[test]
fn a_misdirected_write_lands_elsewhere_in_its_range() {
    let rule = FaultRule::new(FaultKind::Misdirected)
        .always()
        .within(64..128);
    with_faults(6, [], async |_, faults, mut io| {
        let (old, new) = (pattern(12, LEN), pattern(13, LEN));
        assert!(write(&mut io, 80, &old).await.is_success());
        faults.set(vec![rule]);
        assert!(write(&mut io, 80, &new).await.is_success());
        // Outside of the range nothing happens.
        assert!(write(&mut io, 200, &new).await.is_success());
        assert_eq!(counted(&faults), (1, 0));
        assert_eq!(
            read(&mut io, 80).await,
            Ok(old),
            "the right place is as it was"
        );
        assert_eq!(read(&mut io, 200).await.as_ref(), Ok(&new));
        let mut places = 0;
        for lba in 64..=112 {
            places += u32::from(read(&mut io, lba).await.as_ref() == Ok(&new));
        }
        assert_eq!(places, 1);
    });
}

#[test]
fn a_misdirected_read_gives_what_is_elsewhere() {
    let rule = FaultRule::new(FaultKind::Misdirected)
        .always()
        .on(FaultOn::Reads);
    with_faults(7, [rule.within(0..32)], async |_, faults, mut io| {
        let (here, there) = (pattern(14, LEN), pattern(15, LEN));
        assert!(write(&mut io, 0, &here).await.is_success());
        assert!(write(&mut io, 16, &there).await.is_success());
        assert_eq!(read(&mut io, 0).await, Ok(there));
        assert_eq!(read(&mut io, 16).await, Ok(here));
        assert_eq!(counted(&faults), (2, 0));
    });
}

#[test]
fn a_stale_read_gives_what_was_there_before() {
    let rule = FaultRule::new(FaultKind::Stale).always();
    with_faults(8, [rule], async |_, faults, mut io| {
        let (old, new) = (pattern(16, LEN), pattern(17, LEN));
        assert!(write(&mut io, 0, &old).await.is_success());
        assert_eq!(read(&mut io, 0).await, Ok(vec![0; LEN]));
        assert!(write(&mut io, 0, &new).await.is_success());
        assert_eq!(read(&mut io, 0).await.as_ref(), Ok(&old));
        // What was never written has no former content.
        assert_eq!(read(&mut io, 500).await, Ok(vec![0; LEN]));
        assert_eq!(counted(&faults), (2, 1));
        faults.set(Vec::new());
        assert_eq!(read(&mut io, 0).await, Ok(new));
    });
}

/// Media errors by what the command does; a device that is gone; and what is not touched goes on.
#[test]
fn errors_have_the_status_that_hosts_know() {
    use FaultOn::{All, Reads, Writes};
    let (fine, unread, unwritten) = (0, 0x281, 0x280);
    let gone = 0x082;
    for (kind, on, [of_read, of_write, of_flush]) in [
        (FaultKind::Error, All, [unread, unwritten, unwritten]),
        (FaultKind::Error, Reads, [unread, fine, fine]),
        (FaultKind::Error, Writes, [fine, unwritten, fine]),
        (FaultKind::Gone, All, [gone, gone, gone]),
    ] {
        with_faults(
            9,
            [FaultRule::new(kind).on(on)],
            async move |_, faults, mut io| {
                let data = pattern(18, LEN);
                let found = read(&mut io, 0).await.map_or_else(code, |_| fine);
                assert_eq!(found, of_read, "{kind:?} {on:?}");
                assert_eq!(code(write(&mut io, 0, &data).await), of_write);
                let range = LbaRange { slba: 0, blocks: 1 };
                let zero = SubmissionQueueEntry::write_zeroes(NSID, range, false);
                assert_eq!(code(io.command(zero, &[]).await.status()), of_write);
                let flushed = flush(&mut io).await;
                assert_eq!(code(flushed), of_flush, "{kind:?} {on:?}");
                assert!(!flushed.dnr());
                let failed = [of_read, of_write, of_write, of_flush];
                let failed = failed.iter().filter(|it| **it != fine).count() as u64;
                assert_eq!(counted(&faults), (failed, 0));
                faults.set(Vec::new());
                assert!(write(&mut io, 0, &data).await.is_success());
                assert_eq!(read(&mut io, 0).await, Ok(data), "the device is back");
            },
        );
    }
}

/// Only blocks of the range: the neighbour in front of it and the one behind it are as ever.
#[test]
fn an_error_of_one_block_is_found_by_every_io_that_touches_it() {
    let rule = FaultRule::new(FaultKind::Error)
        .on(FaultOn::Reads)
        .within(100..101);
    with_faults(10, [rule], async |_, faults, mut io| {
        for (lba, fails) in [(84, false), (85, true), (100, true), (101, false)] {
            let found = read(&mut io, lba).await;
            assert_eq!(found.is_err(), fails, "{lba}");
        }
        assert_eq!(counted(&faults), (2, 0));
    });
}

#[test]
fn latency_is_what_was_asked_for() {
    let (fixed, spread) = (Duration::from_ms(50), Duration::from_ms(30));
    let usual = Duration::from_ms(5);
    let rule = FaultRule::new(FaultKind::Latency { fixed, spread }).on(FaultOn::Reads);
    with_faults(11, [rule], async move |bench, faults, mut io| {
        let (mut least, mut most) = (Duration::from_secs(1), Duration::ZERO);
        for _ in 0..200 {
            let begun = bench.host_rt.now();
            assert!(read(&mut io, 0).await.is_ok());
            let took = bench.host_rt.now() - begun;
            (least, most) = (least.min(took), most.max(took));
        }
        assert!(
            least >= fixed && most < fixed + spread + usual,
            "{least} {most}"
        );
        assert!(most.as_ns() - least.as_ns() > spread.as_ns() * 9 / 10);
        let begun = bench.host_rt.now();
        assert!(write(&mut io, 0, &pattern(1, LEN)).await.is_success());
        assert!(bench.host_rt.now() - begun < usual, "writes are as ever");
        assert_eq!(counted(&faults), (200, 0));
    });
}

fn read_command(lba: u64) -> SubmissionQueueEntry {
    let range = LbaRange {
        slba: lba,
        blocks: BLOCKS,
    };
    let length = LEN as u32;
    SubmissionQueueEntry::read(NSID, range, Sgl::Transport { length })
}

/// The host hears nothing, whatever it waits; when the fault is taken away it gets its data.
#[test]
fn what_hangs_goes_on_when_the_fault_is_taken_away() {
    with_faults(12, [], async |bench, faults, mut io| {
        let data = pattern(19, LEN);
        assert!(write(&mut io, 0, &data).await.is_success());
        faults.set(vec![FaultRule::new(FaultKind::Hang)]);
        let cid = io.submit(read_command(0), &[]).await;
        let heard = io.next_within(Duration::from_secs(3600)).await;
        assert!(heard.is_none(), "{heard:?}");
        assert_eq!(counted(&faults), (1, 0));
        // Another fault beside it changes nothing.
        let latency = FaultKind::Latency {
            fixed: Duration::from_ms(1),
            spread: Duration::ZERO,
        };
        faults.set(vec![
            FaultRule::new(latency),
            FaultRule::new(FaultKind::Hang),
        ]);
        assert!(io.next_within(Duration::from_secs(60)).await.is_none());
        faults.set(Vec::new());
        match io.next().await {
            flashyard_testbed::Incoming::Data {
                header, data: read, ..
            } => {
                assert_eq!((header.cccid, read), (cid, data));
            }
            other => panic!("{other:?}"),
        }
        drop(bench);
    });
}

/// The connection breaks, or the host resets its controller, or the target ends: with the layer
/// closed nothing of what hung is left ([`Site`] looks when it is dropped).
#[test]
fn what_hangs_leaves_nothing_when_its_host_goes_and_the_target_ends() {
    for resets in [false, true] {
        with_faults(
            13,
            [FaultRule::new(FaultKind::Hang)],
            async move |bench, faults, mut io| {
                let (mut admin, cntlid) = bench.admin("a", 2).await;
                let mut other = bench.io("a", 2, cntlid).await;
                for lba in 0..8 {
                    io.submit(read_command(lba), &[]).await;
                    other.submit(read_command(lba), &[]).await;
                }
                bench.host_rt.sleep(Duration::from_secs(1)).await;
                assert_eq!(counted(&faults), (16, 0));
                if resets {
                    admin.disable().await;
                }
                drop((io, other, admin));
                bench.host_rt.sleep(Duration::from_secs(10)).await;
            },
        );
    }
}

/// The layer is closed under I/O that hangs: the host may try again elsewhere.
#[test]
fn what_hangs_ends_with_namespace_not_ready_when_the_layer_is_closed() {
    with_faults(
        14,
        [FaultRule::new(FaultKind::Hang)],
        async |_, faults, mut io| {
            io.submit(read_command(0), &[]).await;
            assert!(io.next_within(Duration::from_secs(1)).await.is_none());
            faults.close();
            let status = io.response().await.status();
            assert_eq!((code(status), status.dnr()), (0x082, false));
        },
    );
}

/// A device without a volatile cache promises with each write; with one, with a flush and FUA.
#[test]
fn what_a_flush_lies_about_is_read_until_the_layer_is_closed_and_lost_then() {
    with_faults(15, [], async |_, faults, mut io| {
        let (old, new) = (pattern(20, LEN), pattern(21, LEN));
        assert!(write(&mut io, 0, &old).await.is_success());
        faults.set(vec![FaultRule::new(FaultKind::LyingFlush)]);
        assert!(write(&mut io, 0, &new).await.is_success());
        assert!(flush(&mut io).await.is_success());
        assert_eq!(read(&mut io, 0).await, Ok(new), "it looks durable");
        assert_eq!(faults.unflushed_bytes(), LEN as u64);
        assert_eq!(counted(&faults), (2, 0));
        faults.close();
        assert_eq!(read(&mut io, 0).await, Ok(old), "as after a power cut");
    });
}

/// The power of the target is cut after a flush that was acknowledged.
fn survives_a_power_cut(lies: bool) -> bool {
    let world = World::new(Config::calm(16));
    let (server, hosts) = (world.machine(1), world.machine(1));
    server.add_disk(DISK, 8 << 20);
    let open = |rt: &Rt| -> SharedDevice {
        let opened = FileDevice::open_block(rt, DISK.as_ref(), BLOCK, false);
        Rc::new(opened.expect("the disk is there"))
    };
    world.run(&hosts, move |rt| async move {
        let addr = SocketAddr::new(server.ip(), 4420);
        let bench = Bench::new(vec![server.rt(0)], addr, rt.clone(), Limits::default());
        let rules = [FaultRule::new(FaultKind::LyingFlush)];
        let rules = rules[..usize::from(lies)].to_vec();
        let disk = open(&bench.rts[0]);
        let faults = bench.attach_faulty("a", NSID, disk, (1, rules));
        let device = RemoteDevice::open(&rt, addr, options("a", 9), NSID, Persistence::default())
            .await
            .expect("connects");
        let mut data = Buf::take(LEN).expect("memory");
        data.copy_from_slice(&pattern(22, LEN));
        let tag = Tag::default();
        device.write(tag, 5, data, false).await.expect("written");
        device.flush(tag).await.expect("flushed");
        assert_eq!(faults.counts().iter().any(|(_, it)| it.injected > 0), lies);
        server.power_cut();
        drop(device);
        server.restart();
        let (again, found) = (server.rt(0), Rc::new(RefCell::new(None)));
        let place = found.clone();
        let disk = open(&again);
        again
            .spawn(async move {
                let there = flashyard_testbed::read(&*disk, 5, LEN).await;
                *place.borrow_mut() = Some(there.expect("read"));
            })
            .detach();
        loop {
            if let Some(found) = found.borrow_mut().take() {
                return found == pattern(22, LEN);
            }
            rt.sleep(Duration::from_us(100)).await;
        }
    })
}

#[test]
fn a_lying_flush_is_found_out_by_a_power_cut() {
    assert!(survives_a_power_cut(false));
    assert!(!survives_a_power_cut(true));
}

/// A pool and its volumes stand on a device with faults as on any other.
#[test]
fn a_volume_of_a_pool_meets_the_faults_of_its_device() {
    let site = Site::new(Config::calm(17), 1);
    let faults = site.run(|bench| async move {
        let rt = bench.rts[0].clone();
        let faults = Rc::new(FaultDevice::new(&rt, memory(16 << 20), 1, Vec::new()));
        let pool = Pool::create(&rt, faults.clone(), [1; 16], false).await;
        let pool = pool.expect("an empty device");
        pool.create_volume("v", [2; 16], 4 << 20)
            .await
            .expect("there is room");
        bench.attach("a", NSID, 0, pool.volume("v").expect("it is there"));
        let (_admin, mut io) = bench.connect("a", 1).await;
        let (old, new) = (pattern(23, LEN), pattern(24, LEN));
        assert!(write(&mut io, 0, &old).await.is_success());
        faults.set(vec![FaultRule::new(FaultKind::Lost).always()]);
        assert!(write(&mut io, 0, &new).await.is_success());
        assert_eq!(read(&mut io, 0).await, Ok(old));
        assert_eq!(counted(&faults), (1, 0));
        faults.set(vec![FaultRule::new(FaultKind::Hang)]);
        io.submit(read_command(0), &[]).await;
        assert!(io.next_within(Duration::from_secs(1)).await.is_none());
        faults
    });
    faults.close();
}

/// All that a host gets from one run of mixed I/O under mixed faults, and all that was counted.
fn run_of(seed: u64, rules: Option<Vec<FaultRule>>) -> (Vec<String>, Vec<String>) {
    let site = Site::new(Config::stormy(3), 1);
    let device = memory(16 << 20);
    let faults = match rules {
        Some(rules) => Some(site.bench.attach_faulty("a", NSID, device, (seed, rules))),
        None => {
            site.bench.attach("a", NSID, 0, device);
            None
        }
    };
    let seen = site.run(|bench| async move {
        let (mut admin, mut io) = bench.connect("a", 1).await;
        let mut seen = Vec::new();
        let sgl = Sgl::Transport { length: 4096 };
        let identify = SubmissionQueueEntry::identify(0, NSID, 0, 0, sgl);
        seen.push(format!("{:?}", admin.fetch(identify).await));
        for round in 0..150_u64 {
            let lba = round * 7 % 60;
            seen.push(match round % 5 {
                0..=1 => format!("{:?}", write(&mut io, lba, &pattern(round, LEN)).await),
                4 => format!("{:?}", flush(&mut io).await),
                _ => format!("{:?}", read(&mut io, lba).await),
            });
        }
        seen
    });
    let counts = faults.iter().flat_map(|faults| faults.counts());
    (seen, counts.map(|counts| format!("{counts:?}")).collect())
}

#[test]
fn one_seed_is_one_run_and_without_faults_all_is_as_without_the_layer() {
    let a_tenth = Frequency::Rate(100_000_000);
    let kinds = [
        FaultKind::Poison,
        FaultKind::Torn,
        FaultKind::Lost,
        FaultKind::Misdirected,
        FaultKind::Stale,
        FaultKind::Error,
        FaultKind::Gone,
        FaultKind::LyingFlush,
    ];
    let rules = kinds.map(|kind| FaultRule::new(kind).at(a_tenth)).to_vec();
    let first = run_of(1, Some(rules.clone()));
    assert!(first == run_of(1, Some(rules.clone())), "one seed, one run");
    assert!(
        first != run_of(2, Some(rules.clone())),
        "another seed, another run"
    );
    let (bare, _) = run_of(1, None);
    assert!(first.0 != bare);
    let elsewhere = kinds[..7].iter();
    let elsewhere = elsewhere.map(|kind| FaultRule::new(*kind).always().within(4000..4001));
    for rules in [vec![], elsewhere.collect()] {
        let (seen, _) = run_of(1, Some(rules));
        assert!(seen == bare, "byte by byte");
    }
}
