//! Several I/Os as one: composites over composites need no allocation, end when all children have,
//! and go on when no task waits for them.

#[path = "../../runtime/tests/support/counting.rs"]
mod counting;

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_block::array::{Array, Layout, NewMember, Options as ArrayOptions};
use flashyard_block::gate::{Gate, Span};
use flashyard_block::pool::Pool;
use flashyard_block::{
    Device, DeviceExt, Done, EndSource, FileDevice, FileOptions, Info, Io, IoError, IoFuture,
    LentIo, Limits, MemoryDevice, NullDevice, SharedDevice, Tag, TimedEnd, Way,
};
use flashyard_runtime::shared_memory::{Mapping, memory_file};
use flashyard_runtime::sim::{Config, World};
use flashyard_runtime::{Buf, Data, Loans, Parts, Rt, Shared};
use flashyard_testbed::{Paced, Scratch, filled, read, run};
use flashyard_time::Duration;

#[global_allocator]
static COUNTING: counting::Counting = counting::Counting;

const BLOCK: usize = 512;
const MIB: u64 = 1 << 20;

/// Children of each composite, and levels of composites.
const CHILDREN: u64 = 8;
const LEVELS: u32 = 4;
const BLOCKS: u64 = CHILDREN.pow(LEVELS);

fn info(blocks: u64) -> Info {
    Info {
        block_size: BLOCK as u32,
        blocks,
        volatile_cache: false,
        read_only: false,
        deallocate: false,
        limits: Limits::default(),
    }
}

fn in_world<F: Future<Output = ()> + 'static>(main: impl FnOnce(Rt) -> F) {
    let world = World::new(Config::calm(1));
    let machine = world.machine(1);
    world.run(&machine, main);
}

/// A terminal device whose I/Os end when they are polled for the second time. A block holds its
/// number; every seventh one reads as zeroes.
struct Leaf {
    ends: Rc<Ends>,
    wrong: Cell<u64>,
}

#[derive(Default)]
struct Ends {
    polled: RefCell<Vec<bool>>,
    unused: RefCell<Vec<u32>>,
}

impl EndSource for Ends {
    fn poll_end(&self, slot: u32, _: &mut Context<'_>) -> Poll<()> {
        match std::mem::replace(&mut self.polled.borrow_mut()[slot as usize], true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn release(&self, slot: u32) {
        self.unused.borrow_mut().push(slot);
    }
}

impl Ends {
    fn begin(self: &Rc<Self>) -> TimedEnd {
        let slot = self.unused.borrow_mut().pop();
        let slot = slot.unwrap_or_else(|| {
            self.polled.borrow_mut().push(false);
            self.polled.borrow().len() as u32 - 1
        });
        self.polled.borrow_mut()[slot as usize] = false;
        TimedEnd::new(Rc::clone(self) as Rc<dyn EndSource>, slot)
    }
}

impl Device for Leaf {
    fn info(&self) -> Info {
        info(BLOCKS)
    }

    fn submit(&self, _: Tag, io: Io) -> IoFuture {
        let number = byte(io.lba());
        let done = match io {
            Io::Read { mut into, .. } if number != 0 => {
                into.fill(number);
                Data::Buf(into).into()
            }
            Io::Read { into, .. } => Data::Zeroes(into.len()).into(),
            Io::Write { data, .. } => {
                let wrong = data.iter().any(|byte| *byte != number);
                self.wrong.set(self.wrong.get() + u64::from(wrong));
                Done::EMPTY
            }
            _ => Done::EMPTY,
        };
        IoFuture::timed(self.ends.begin(), Ok(done))
    }
}

/// What block `lba` holds.
fn byte(lba: u64) -> u8 {
    (lba % 7) as u8
}

/// A composite: behind a gate, an I/O becomes one for each child, on an equal part each.
struct Fan {
    gate: Rc<Gate>,
    below: SharedDevice,
}

impl Device for Fan {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let blocks = io.blocks(BLOCK as u32).expect("whole blocks");
        let (below, rt) = (self.below.clone(), self.gate.runtime().clone());
        let (start, part) = (io.lba(), blocks / CHILDREN);
        let span = Span {
            start,
            end: start + blocks,
        };
        let bytes = part as usize * BLOCK;
        self.gate.pass(span, false, move || {
            let mut all = IoFuture::all(&rt);
            let lbas = (0..CHILDREN).map(|child| start + child * part);
            match io {
                Io::Read { into, .. } => {
                    let mut parts = Parts::of(into);
                    for lba in lbas {
                        let into = parts.cut(bytes);
                        all.push(below.submit(tag, Io::Read { lba, into }));
                    }
                    all.read_into(parts)
                }
                Io::Write { data, fua, .. } => {
                    for (child, lba) in lbas.enumerate() {
                        let data = data.slice(child * bytes..(child + 1) * bytes);
                        all.push(below.submit(tag, Io::Write { lba, data, fua }));
                    }
                    all.into_io()
                }
                io => below.submit(tag, io),
            }
        })
    }
}

/// Polls by hand until it has ended; how often that took, and what came of it.
fn finish(mut io: IoFuture) -> (u32, Result<Done, IoError>) {
    let mut context = Context::from_waker(Waker::noop());
    for polls in 1.. {
        if let Poll::Ready(result) = Pin::new(&mut io).poll(&mut context) {
            return (polls, result);
        }
    }
    unreachable!("it ends")
}

/// Every block of a read and a write of `blocks` blocks comes from, or goes to, a child of its own.
fn tree(rt: &Rt, levels: u32) -> (SharedDevice, Rc<Leaf>) {
    let leaf = Rc::new(Leaf {
        ends: Rc::default(),
        wrong: Cell::new(0),
    });
    let mut device: SharedDevice = leaf.clone();
    for _ in 0..levels {
        device = Rc::new(Fan {
            gate: Gate::new(rt),
            below: device,
        });
    }
    (device, leaf)
}

fn pattern(blocks: u64) -> Buf {
    let mut buf = Buf::take(blocks as usize * BLOCK).expect("memory");
    for (block, lba) in buf.chunks_mut(BLOCK).zip(0..) {
        block.fill(byte(lba));
    }
    buf
}

#[test]
fn eight_children_on_four_levels_need_no_allocation_once_they_were_there() {
    in_world(async |rt: Rt| {
        let (device, leaf) = tree(&rt, LEVELS);
        let (expected, data) = (pattern(BLOCKS), Shared::from(pattern(BLOCKS)));
        let tag = Tag::default();
        for round in 0..4 {
            let before = counting::allocations();
            let into = Buf::take(expected.len()).expect("memory");
            let (polls, done) = finish(device.submit(tag, Io::Read { lba: 0, into }));
            let Ok(Data::Buf(whole)) = done.map(|done| done.data) else {
                panic!("not all of it is zeroes")
            };
            assert_eq!(polls, 2, "all children are at work at the same time");
            assert!(*whole == *expected);
            let (data, fua) = (data.clone(), false);
            let (polls, done) = finish(device.submit(tag, Io::Write { lba: 0, data, fua }));
            assert_eq!((polls, done.err(), leaf.wrong.get()), (2, None, 0));
            let after = counting::allocations();
            assert!(
                round == 0 || after == before,
                "{} allocations",
                after - before
            );
        }
    });
}

/// A device that does nothing but count what is in flight.
struct Through {
    gate: Rc<Gate>,
    below: SharedDevice,
}

impl Device for Through {
    fn info(&self) -> Info {
        self.below.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let below = self.below.clone();
        let span = Span { start: 0, end: 1 };
        let start = move || below.submit(tag, io);
        self.gate.pass(span, false, start)
    }
}

#[test]
fn gates_above_each_other_need_no_allocation_once_they_were_there() {
    in_world(async |rt: Rt| {
        let (mut device, _leaf) = tree(&rt, 0);
        let gates: Vec<_> = (0..7).map(|_| Gate::new(&rt)).collect();
        for gate in &gates {
            let (gate, below) = (gate.clone(), device);
            device = Rc::new(Through { gate, below });
        }
        for round in 0..4 {
            let before = counting::allocations();
            let into = Buf::take(BLOCK).expect("memory");
            let (_, done) = finish(device.submit(Tag::default(), Io::Read { lba: 3, into }));
            assert!(matches!(done, Ok(Done { data: Data::Buf(block) }) if block[0] == 3));
            let after = counting::allocations();
            assert!(
                round == 0 || after == before,
                "{} allocations",
                after - before
            );
        }
        for gate in &gates {
            gate.close(IoError::NotReady);
            gate.drained().await;
        }
    });
}

/// Reads and writes a page of `device`, some times more than it takes to warm up.
async fn no_allocations(device: &dyn Device, kind: &str) {
    for round in 0..20 {
        let before = counting::allocations();
        let (data, tag) = (filled(4096, round), Tag::default());
        device
            .write(tag, 8, data, false)
            .await
            .expect("it is there");
        let into = filled(4096, 0xa5);
        let data = device.read(tag, 8, into).await.expect("it is there");
        assert!(
            matches!(data, Data::Zeroes(4096))
                || matches!(data, Data::Buf(page) if page[0] == round)
        );
        let after = counting::allocations();
        assert!(
            round < 10 || after == before,
            "{kind}: {} allocations",
            after - before
        );
    }
}

/// An array of new members, each of `layout.copies` with the same data.
async fn array(rt: &Rt, devices: Vec<SharedDevice>, copies: usize, safe_read: bool) -> Array {
    let members = devices.into_iter().enumerate().map(|(at, device)| {
        let name = format!("d{at}");
        NewMember { name, device }
    });
    let layout = Layout {
        copies,
        parity: 0,
        safe_read,
    };
    let options = ArrayOptions::default();
    let made = Array::create(rt, members.collect(), [7; 16], layout, options, false).await;
    made.expect("they hold nothing")
}

#[test]
fn arrays_need_no_allocation_for_reads_and_writes() {
    run(async |rt: Rt| {
        let directory = Scratch::new("array-allocations");
        for (copies, safe_read) in [(1, false), (2, false), (2, true), (4, true)] {
            let memories = (0..4).map(|_| memory(16 * MIB)).collect();
            let at_once = array(&rt, memories, copies, safe_read).await;
            let name = format!("{copies} copies, safe read {safe_read}");
            no_allocations(&at_once, &name).await;
            let mut files: Vec<SharedDevice> = Vec::new();
            for at in 0..4 {
                let options = FileOptions {
                    block_size: BLOCK as u32,
                    size: Some(16 * MIB),
                    read_only: false,
                };
                let path = directory.join(format!("{copies}{safe_read}{at}"));
                let file = FileDevice::open(&rt, &path, options).await;
                files.push(Rc::new(file.expect("a new file")));
            }
            let in_flight = array(&rt, files, copies, safe_read).await;
            no_allocations(&in_flight, &format!("{name}, files")).await;
        }
    });
}

#[test]
fn terminal_devices_and_a_volume_in_one_run_need_no_allocation() {
    run(async |rt: Rt| {
        let null = NullDevice::new(BLOCK as u32, MIB).expect("a good size");
        no_allocations(&null, "null").await;
        no_allocations(&*memory(MIB), "memory").await;
        let directory = Scratch::new("allocations");
        let options = FileOptions {
            block_size: BLOCK as u32,
            size: Some(16 * MIB),
            read_only: false,
        };
        let file = FileDevice::open(&rt, &directory.join("file"), options).await;
        let file: SharedDevice = Rc::new(file.expect("a new file"));
        no_allocations(&*file, "file").await;
        let pool = Pool::create(&rt, file, [1; 16], false)
            .await
            .expect("a pool");
        let volume = pool.create_volume("a", [1; 16], MIB).await.expect("room");
        no_allocations(&*volume, "volume").await;
    });
}

#[test]
fn a_future_is_small() {
    assert!(size_of::<IoFuture>() <= 80, "{}", size_of::<IoFuture>());
    assert!(size_of::<Io>() <= 32, "{}", size_of::<Io>());
}

fn memory(bytes: u64) -> SharedDevice {
    Rc::new(MemoryDevice::new(BLOCK as u32, bytes).expect("a good size"))
}

/// A memory device that takes a millisecond for each I/O, at any depth.
fn slow(rt: &Rt, memory: &SharedDevice) -> SharedDevice {
    let rt = rt.clone();
    let pace = move |_, _: &_| rt.sleep(Duration::from_ms(1));
    Rc::new(Paced::new(memory.clone(), pace))
}

#[test]
fn a_composite_that_is_dropped_runs_to_its_end() {
    in_world(async |rt: Rt| {
        for polled in [false, true] {
            let memory = memory(MIB);
            let device = slow(&rt, &memory);
            let mut all = IoFuture::all(&rt);
            for lba in 0..8 {
                let (data, fua) = (filled(BLOCK, 1 + lba as u8).into(), false);
                all.push(device.submit(Tag::default(), Io::Write { lba, data, fua }));
            }
            let mut io = all.into_io();
            if polled {
                let poll = Pin::new(&mut io).poll(&mut Context::from_waker(Waker::noop()));
                assert!(poll.is_pending());
            }
            drop(io);
            rt.sleep(Duration::from_ms(5)).await;
            for lba in 0..8 {
                let there = read(&*memory, lba, BLOCK).await.expect("memory");
                assert_eq!(there, vec![1 + lba as u8; BLOCK], "block {lba}");
            }
        }
    });
}

#[test]
fn a_composite_fails_when_all_children_have_ended() {
    in_world(async |rt: Rt| {
        let memory = memory(MIB);
        let device = slow(&rt, &memory);
        let begun = rt.now();
        let mut all = IoFuture::all(&rt);
        let write = |lba: u64| Io::Write {
            lba,
            data: filled(BLOCK, 9).into(),
            fua: false,
        };
        let tag = Tag::default();
        all.push(IoFuture::ready(Err(IoError::Read)));
        all.push(device.submit(tag, write(u64::MAX)));
        all.push(device.submit(tag, write(5)));
        assert_eq!(all.len(), 3);
        assert_eq!(
            all.into_io().await.err(),
            Some(IoError::Read),
            "the first in their order"
        );
        assert_eq!(rt.now().since(begun), Duration::from_ms(1));
        assert_eq!(read(&*memory, 5, 1).await.err(), Some(IoError::OutOfRange));
        assert_eq!(read(&*memory, 5, BLOCK).await.expect("memory")[0], 9);
    });
}

/// A volume of three runs: other volumes lie between them.
async fn in_runs(rt: &Rt, below: SharedDevice) -> SharedDevice {
    let pool = Pool::create(rt, below, [1; 16], false)
        .await
        .expect("a pool");
    let volume = pool.create_volume("a", [1; 16], MIB).await.expect("room");
    for (number, size) in [(2, 2 * MIB), (3, 3 * MIB)] {
        let name = format!("between{number}");
        pool.create_volume(&name, [number; 16], MIB)
            .await
            .expect("room");
        pool.grow("a", size).await.expect("room");
    }
    volume
}

#[test]
fn pieces_of_a_volume_are_at_work_at_the_same_time() {
    in_world(async |rt: Rt| {
        let memory = memory(16 * MIB);
        let volume = in_runs(&rt, slow(&rt, &memory)).await;
        let (tag, len) = (Tag::default(), 2 * MIB as usize);
        // Half of the first run, all of the second one, and half of the third.
        let lba = MIB / 2 / BLOCK as u64;
        let mut data = Buf::take(len).expect("memory");
        for (block, number) in data.chunks_mut(BLOCK).zip(0u64..) {
            block.fill((number % 251) as u8);
        }
        let expected = data.to_vec();
        let begun = rt.now();
        volume.write(tag, lba, data, false).await.expect("memory");
        assert!(read(&*volume, lba, len).await.expect("memory") == expected);
        assert_eq!(rt.now().since(begun), Duration::from_ms(2));
        volume
            .deallocate(tag, lba, len as u64 / BLOCK as u64)
            .await
            .expect("memory");
        let zeroes = volume.read(tag, lba, filled(len, 7)).await.expect("memory");
        assert!(matches!(zeroes, Data::Zeroes(bytes) if bytes == len));
        assert_eq!(rt.now().since(begun), Duration::from_ms(4));
    });
}

/// The same with memory that is lent: each piece of the volume gets its part of it.
#[test]
fn lent_memory_is_divided_among_the_pieces_of_a_volume() {
    in_world(async |rt: Rt| {
        let memory = memory(16 * MIB);
        let volume = in_runs(&rt, memory).await;
        assert_eq!(volume.takes_lent(), Some(1));
        let (tag, len) = (Tag::default(), 2 * MIB as usize);
        let lba = MIB / 2 / BLOCK as u64;
        let file = memory_file(4 * MIB).expect("a memfd");
        let mapping = Rc::new(Mapping::new(file.as_fd(), 0, 4 * MIB, true).expect("mapped"));
        let expected: Vec<u8> = (0..len).map(|at| (at / BLOCK % 251) as u8).collect();
        assert!(mapping.write(0, &expected));
        let loans = Rc::new(Loans::default());
        for (at, way) in [(0, Way::Write { fua: false }), (len, Way::Read)] {
            let memory = loans.lend(&mapping, at, len).expect("it is there");
            let io = LentIo { lba, memory, way };
            volume.submit_lent(tag, io).await.expect("memory");
        }
        assert!(!loans.are_out());
        let mut seen = vec![0; len];
        assert!(mapping.read(len, &mut seen) && seen == expected);
        assert!(read(&*volume, lba, len).await.expect("memory") == expected);
        let memory = loans.lend(&mapping, 0, len).expect("it is there");
        let lba = volume.info().blocks - 1;
        let io = LentIo {
            lba,
            memory,
            way: Way::Read,
        };
        let refused = volume.submit_lent(tag, io).await;
        assert!(matches!(refused, Err(IoError::OutOfRange)));
    });
}

/// Some of the runs hold data and others nothing: the parent fills in zeroes, in the same buffer.
#[test]
fn a_piece_that_reads_as_zeroes_is_filled() {
    in_world(async |rt: Rt| {
        let memory = memory(16 * MIB);
        let volume = in_runs(&rt, memory).await;
        let (tag, len) = (Tag::default(), 2 * MIB as usize);
        let data = filled(MIB as usize, 5);
        let second = MIB / BLOCK as u64;
        volume
            .write(tag, second, data, false)
            .await
            .expect("memory");
        let into = filled(len, 0xa5);
        let place = into.as_ptr();
        let half = MIB as usize / 2;
        let lba = half as u64 / BLOCK as u64;
        let Ok(Data::Buf(whole)) = volume.read(tag, lba, into).await else {
            panic!("there are data in it")
        };
        assert_eq!(whole.as_ptr(), place);
        assert!(whole[..half].iter().all(|byte| *byte == 0));
        assert!(whole[half..3 * half].iter().all(|byte| *byte == 5));
        assert!(whole[3 * half..].iter().all(|byte| *byte == 0));
    });
}
