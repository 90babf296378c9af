//! Reads that compare all copies, with many writers and readers at the same time: never a false
//! alarm, and what one member tells wrong is noticed, not given to anybody, and put right.
//!
//! Each block has one writer and several readers. A read may give what was written last before it
//! began, or anything that was being written until it ended.

mod arrays;

use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::rc::Rc;

use arrays::{Moody, in_world, memories, new};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule, Frequency};
use flashyard_block::{DeviceExt, Io, IoError, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const WRITERS: u64 = 24;
const READERS: u64 = 24;
const ROUNDS: u64 = 40;

/// What a block may hold: the last version that was answered, and the last that was begun.
#[derive(Clone, Default)]
struct Register(Rc<(Cell<u64>, Cell<u64>)>);

impl Register {
    fn now(&self) -> RangeInclusive<u64> {
        self.0.0.get()..=self.0.1.get()
    }
}

fn content(block: u64, version: u64) -> Buf {
    let mut buf = Buf::take(BLOCK).expect("memory");
    for (at, word) in buf.chunks_exact_mut(8).enumerate() {
        let value = if version == 0 {
            0
        } else {
            Rng::new(block << 32 | version).at(at as u64)
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    buf
}

/// The version that a block holds, if it holds any of those.
fn version(block: u64, found: &[u8], allowed: RangeInclusive<u64>) -> Option<u64> {
    allowed
        .into_iter()
        .find(|version| *content(block, *version) == *found)
}

/// Members with latencies of their own, so that copies change at different times.
fn layers(rt: &Rt, devices: &[SharedDevice], seed: u64) -> Vec<Rc<FaultDevice>> {
    let devices = devices.iter().zip(seed..);
    let layer = |(it, seed): (&SharedDevice, u64)| {
        let layer = FaultDevice::new(rt, it.clone(), seed, vec![latency()]);
        Rc::new(layer)
    };
    devices.map(layer).collect()
}

fn latency() -> FaultRule {
    FaultRule::new(FaultKind::Latency {
        fixed: Duration::from_us(1),
        spread: Duration::from_us(80),
    })
}

async fn create(rt: &Rt, members: &[SharedDevice], copies: usize) -> Rc<Array> {
    let layout = Layout {
        copies,
        parity: 0,
        safe_read: true,
    };
    let options = Options::default();
    let made = Array::create(rt, new(members), arrays::ARRAY, layout, options, false).await;
    Rc::new(made.expect("they hold nothing"))
}

/// Writers and readers at the same few blocks. Gives how many reads there were, and what failed.
async fn storm(rt: &Rt, array: &Rc<Array>, seed: u64) -> (u64, Vec<IoError>) {
    let registers: Vec<Register> = (0..WRITERS).map(|_| Register::default()).collect();
    let (reads, failed) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let mut tasks = Vec::new();
    for (block, register) in (0..).zip(registers.iter().cloned()) {
        let (array, rt) = (array.clone(), rt.clone());
        tasks.push(rt.clone().spawn(async move {
            let mut rng = Rng::new(seed).split(block);
            for round in 1..=ROUNDS {
                register.0.1.set(round);
                // What was not for want of memory is tried again, as a host does.
                loop {
                    let data = content(block, round);
                    let written = array.write(Tag::default(), place(block), data, false);
                    match written.await {
                        Ok(()) => break,
                        Err(error) => assert_eq!(error, IoError::Busy),
                    }
                }
                register.0.0.set(round);
                rt.sleep(Duration::from_us(rng.below(60))).await;
            }
        }));
    }
    for reader in 0..READERS {
        let (array, rt, registers) = (array.clone(), rt.clone(), registers.clone());
        let (reads, failed) = (reads.clone(), failed.clone());
        tasks.push(rt.clone().spawn(async move {
            let mut rng = Rng::new(seed).split(1000 + reader);
            for _ in 0..ROUNDS {
                let block = rng.below(WRITERS);
                let register = &registers[block as usize];
                let first = *register.now().start();
                let into = Buf::take(BLOCK).expect("memory");
                let read = array.read(Tag::default(), place(block), into).await;
                reads.set(reads.get() + 1);
                let allowed = first..=*register.now().end();
                match read {
                    Ok(data) => {
                        let bytes = data.into_bytes();
                        let found = version(block, &bytes, allowed.clone());
                        assert!(found.is_some(), "seed {seed}, block {block}: {allowed:?}");
                    }
                    Err(IoError::Busy) => {}
                    Err(error) => failed.borrow_mut().push(error),
                }
                rt.sleep(Duration::from_us(rng.below(60))).await;
            }
        }));
    }
    for task in tasks {
        task.await;
    }
    (reads.get(), failed.take())
}

/// Blocks side by side, some of them in another region and another set.
fn place(block: u64) -> u64 {
    block / 8 * 30 + block % 8
}

trait IntoBytes {
    fn into_bytes(self) -> Vec<u8>;
}

impl IntoBytes for flashyard_runtime::Data {
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Buf(buf) => buf.to_vec(),
            Self::Zeroes(len) => vec![0; len],
        }
    }
}

#[test]
fn writers_and_readers_together_are_no_alarm() {
    for seed in 0..8 {
        for (members, copies) in [(2, 2), (3, 3), (4, 2)] {
            in_world(async move |rt| {
                let devices = memories(members, 8 * MIB);
                let layers = layers(&rt, &devices, seed);
                let members: Vec<SharedDevice> = layers.into_iter().map(|it| it as _).collect();
                let array = create(&rt, &members, copies).await;
                let (reads, failed) = storm(&rt, &array, seed).await;
                assert_eq!((reads, failed), (READERS * ROUNDS, Vec::new()));
                let counts = array.status().counts;
                assert_eq!(counts.mismatches, 0, "seed {seed}: {counts:?}");
                assert_eq!(counts.disagreements, 0, "seed {seed}: {counts:?}");
                assert_eq!(counts.unresolved, 0, "seed {seed}: {counts:?}");
            });
        }
    }
}

/// A write that came to one copy only, since there was no memory for the other one.
#[test]
fn writes_that_fail_for_want_of_memory_are_no_alarm() {
    let mut busy_in_all = 0;
    for seed in 0..8 {
        let busy = Rc::new(Cell::new(0));
        let busy_here = busy.clone();
        in_world(async move |rt| {
            let devices = memories(2, 8 * MIB);
            let layers = layers(&rt, &devices, seed);
            let moody = Moody::new(layers[1].clone());
            let members: Vec<SharedDevice> = vec![layers[0].clone(), moody.clone()];
            let array = create(&rt, &members, 2).await;
            let mut rng = Rng::new(seed);
            moody.busy_for(move |io| {
                let data = matches!(io, Io::Write { lba, .. } if *lba >= 3 * MIB / BLOCK as u64);
                let is_busy = data && rng.below(10) == 0;
                busy_here.set(busy_here.get() + u64::from(is_busy));
                is_busy
            });
            let (_, failed) = storm(&rt, &array, seed).await;
            assert_eq!(failed, Vec::new(), "seed {seed}");
            let status = array.status();
            assert_eq!(status.counts.unresolved, 0, "seed {seed}: {status:?}");
            assert!(!status.is_degraded(), "seed {seed}: {status:?}");
        });
        busy_in_all += busy.get();
    }
    assert!(busy_in_all > 100, "{busy_in_all}");
}

/// Where no host writes, each read that met a lie is counted.
#[test]
fn a_lie_without_a_write_is_counted_once() {
    in_world(async |rt| {
        let devices = memories(3, 8 * MIB);
        let layers = layers(&rt, &devices, 1);
        let members: Vec<SharedDevice> = layers.iter().map(|it| it.clone() as _).collect();
        let array = create(&rt, &members, 3).await;
        let tag = Tag::default();
        let written = array.write(tag, 5, content(5, 1), false).await;
        written.expect("all work");
        let lost = devices[1].write(tag, 3 * MIB / BLOCK as u64 + 5, content(5, 2), false);
        lost.await.expect("it works");
        for _ in 0..3 {
            let into = Buf::take(BLOCK).expect("memory");
            let read = array.read(tag, 5, into).await.expect("two have it");
            assert_eq!(version(5, &read.into_bytes(), 0..=2), Some(1));
            let status = array.status();
            assert_eq!(
                (status.counts.mismatches, status.counts.disagreements),
                (1, 0)
            );
            let lies: Vec<u64> = status
                .members
                .iter()
                .map(|it| it.counts.wrong_reads)
                .collect();
            assert_eq!(lies, [0, 1, 0]);
        }
    });
}

/// One of three members flips bits, misdirects and loses writes: no host reads that, each
/// lie is of that member, and what it has wrong is right in the end.
#[test]
fn one_member_of_three_that_lies_is_found_out() {
    let mut wrong_in_all = 0;
    for seed in 0..8 {
        let wrong = Rc::new(Cell::new(0));
        let wrong_here = wrong.clone();
        in_world(async move |rt| {
            let devices = memories(3, 8 * MIB);
            let layers = layers(&rt, &devices, seed);
            let members: Vec<SharedDevice> = layers.iter().map(|it| it.clone() as _).collect();
            let array = create(&rt, &members, 3).await;
            let liar = (seed % 3) as usize;
            let rate = Frequency::Rate(40_000_000);
            let data = 3 * MIB / BLOCK as u64..8 * MIB / BLOCK as u64;
            let kinds = [
                FaultRule::new(FaultKind::Poison).on(FaultOn::All),
                FaultRule::new(FaultKind::Lost),
                FaultRule::new(FaultKind::Torn),
                FaultRule::new(FaultKind::Misdirected).on(FaultOn::All),
                FaultRule::new(FaultKind::Error).on(FaultOn::Reads),
            ];
            let mut rules = vec![latency()];
            rules.extend(kinds.map(|rule| rule.at(rate).within(data.clone())));
            layers[liar].set(rules);
            let (reads, failed) = storm(&rt, &array, seed).await;
            assert_eq!((reads, failed), (READERS * ROUNDS, Vec::new()));
            for (rule, counts) in layers[liar].counts() {
                assert!(counts.injected > 0, "{rule:?}: {counts:?}");
            }
            layers[liar].set(Vec::new());
            let status = array.status();
            for (at, member) in status.members.iter().enumerate() {
                let lies = member.counts.wrong_reads;
                assert_eq!(at == liar, lies > 0, "seed {seed}: {status:?}");
                wrong_here.set(wrong_here.get() + lies);
            }
            assert_eq!(status.counts.unresolved, 0, "seed {seed}: {status:?}");
            array.scrub();
            while array.status().scrub.running {
                rt.sleep(Duration::from_ms(10)).await;
            }
            for lba in 3 * MIB / BLOCK as u64..8 * MIB / BLOCK as u64 {
                let read = async |at: usize| {
                    let into = Buf::take(BLOCK).expect("memory");
                    let read = devices[at].read(Tag::default(), lba, into).await;
                    read.expect("memory works").into_bytes()
                };
                assert_eq!(read(0).await, read(1).await, "seed {seed}, block {lba}");
                assert_eq!(read(0).await, read(2).await, "seed {seed}, block {lba}");
            }
        });
        wrong_in_all += wrong.get();
    }
    assert!(wrong_in_all > 300, "{wrong_in_all}");
}
