//! An open-channel device as its host sees it: rules, times, faults, wear.

use flashyard_flash::Profile;
use flashyard_flash::channel::{
    ChannelOrder, ChunkState, Command, Completion, Device, DieOrder, Event, Fault, Faults,
    Geometry, Metadata, Notification, Op, Options, Place, Rejected, Status,
};
use flashyard_time::{Rng, Time};

/// Two channels with two dies each; 8 chunks of 8 write units of 16 sectors on each die.
const CAPACITY: u64 = 16 << 20;

fn profile() -> Profile {
    Profile {
        channels: 2,
        dies_per_channel: 2,
        programs_per_block: 8,
        ..Profile::named("cnex").expect("it ships")
    }
}

fn device(options: Options) -> Device {
    Device::new(&profile(), CAPACITY, 7, options).expect("16 MiB suit it")
}

fn plain() -> Device {
    device(Options::default())
}

fn at(geometry: &Geometry, group: u32, pu: u32, chunk: u32, sector: u32) -> u64 {
    let place = Place {
        group,
        pu,
        chunk,
        sector,
    };
    geometry.address(place).expect("it is on the device")
}

/// An address of the first parallel unit.
fn sector(device: &Device, chunk: u32, sector: u32) -> u64 {
    at(device.geometry(), 0, 0, chunk, sector)
}

fn run(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).collect()
}

fn finish(device: &mut Device) -> Vec<Completion> {
    let mut done = Vec::new();
    while let Some(next) = device.next_event() {
        device.advance(next, &mut done);
    }
    done
}

/// Does one thing and waits for it.
fn once(device: &mut Device, op: Op<'_>, addresses: &[u64]) -> Completion {
    let command = Command {
        tag: 1,
        op,
        addresses,
    };
    let accepted = device.submit(device.now(), command).expect("it is taken");
    let done = finish(device).pop().expect("it is completed");
    let all = u64::MAX >> (64 - addresses.len());
    assert_eq!(accepted | done.failed, all, "every address has its end");
    done
}

fn write(device: &mut Device, addresses: &[u64]) -> Completion {
    once(device, Op::Write { metadata: &[] }, addresses)
}

/// Fills a chunk of the first parallel unit.
fn fill(device: &mut Device, chunk: u32) {
    for unit in 0..8 {
        let addresses = run(sector(device, chunk, unit * 16), 16);
        assert_eq!(write(device, &addresses).status, Status::Success);
    }
}

fn state(device: &Device, chunk: u32) -> (ChunkState, u32) {
    let info = device
        .chunk(sector(device, chunk, 0))
        .expect("it is on the device");
    (info.state, info.write_pointer)
}

fn ns(completion: Completion, since: Time) -> u64 {
    completion.at.since(since).as_ns()
}

#[test]
fn a_chunk_lives_from_free_to_closed_and_back() {
    let mut device = plain();
    assert_eq!(state(&device, 3), (ChunkState::Free, 0));
    let first = run(sector(&device, 3, 0), 16);
    assert_eq!(write(&mut device, &first).status, Status::Success);
    assert_eq!(state(&device, 3), (ChunkState::Open, 16));
    let rest = run(sector(&device, 3, 16), 64);
    assert_eq!(write(&mut device, &rest).status, Status::Success);
    let rest = run(sector(&device, 3, 80), 48);
    assert_eq!(write(&mut device, &rest).status, Status::Success);
    assert_eq!(state(&device, 3), (ChunkState::Closed, 128));
    let chunk = sector(&device, 3, 0);
    assert_eq!(once(&mut device, Op::Reset, &[chunk]).failed, 0);
    assert_eq!(state(&device, 3), (ChunkState::Free, 0));
    assert_eq!(device.chunk(chunk).map(|info| info.resets), Some(1));
    assert_eq!(
        once(&mut device, Op::Read, &[chunk]).status,
        Status::Unwritten
    );
    let counts = device.pu_counts(0, 0).expect("it is there");
    assert_eq!((counts.programs, counts.erases, counts.reads), (8, 1, 0));
    assert_eq!(counts.time.programming, 4 * (850_000 + 2_300_000));
    assert_eq!(device.stats().written_sectors, 128);
    assert_eq!(device.pu_counts(2, 0), None);
    assert_eq!(device.pu_counts(0, 2), None);
}

#[test]
fn what_breaks_a_rule_gets_its_status() {
    let mut device = plain();
    fill(&mut device, 0);
    let open = run(sector(&device, 1, 0), 48);
    write(&mut device, &open);
    let place = |chunk, from| sector(&device, chunk, from);
    let beyond = 1 << device.geometry().bits.iter().sum::<u32>();
    let gap: Vec<u64> = (0..16).map(|number| place(2, number * 2)).collect();
    let two = [run(place(2, 0), 8), run(place(3, 0), 8)].concat();
    let write = Op::Write { metadata: &[] };
    for (op, addresses, status, failed) in [
        (write, run(beyond, 16), Status::OutOfRange, 0xFFFF),
        (write, run(u64::MAX - 16, 16), Status::OutOfRange, 0xFFFF),
        (write, run(place(2, 0), 15), Status::InvalidField, 0x7FFF),
        (write, run(place(2, 0), 1), Status::InvalidField, 1),
        (write, run(place(2, 16), 16), Status::OutOfOrder, 0xFFFF),
        (write, run(place(2, 8), 16), Status::OutOfOrder, 0xFFFF),
        (write, run(place(1, 0), 16), Status::OutOfOrder, 0xFFFF),
        (write, run(place(1, 64), 16), Status::OutOfOrder, 0xFFFF),
        (write, run(place(0, 0), 16), Status::OutOfOrder, 0xFFFF),
        (write, run(place(2, 120), 16), Status::OutOfOrder, 0xFFFF),
        (write, gap, Status::OutOfOrder, 0xFFFF),
        (write, two, Status::OutOfOrder, 0xFFFF),
        (Op::Read, vec![beyond], Status::OutOfRange, 1),
        (Op::Read, vec![place(2, 0)], Status::Unwritten, 1),
        (
            Op::Read,
            vec![place(1, 31), place(1, 32)],
            Status::Unwritten,
            2,
        ),
        (Op::Read, vec![place(1, 48)], Status::Unwritten, 1),
        (Op::Reset, vec![beyond], Status::OutOfRange, 1),
        (Op::Reset, vec![place(0, 1)], Status::InvalidField, 1),
        (Op::Reset, vec![place(2, 0)], Status::InvalidReset, 1),
    ] {
        let done = once(&mut device, op, &addresses);
        assert_eq!(
            (done.status, done.failed),
            (status, failed),
            "{op:?} {addresses:?}"
        );
    }
    let twice = [sector(&device, 0, 0), sector(&device, 0, 0)];
    let done = once(&mut device, Op::Reset, &twice);
    assert_eq!((done.status, done.failed), (Status::InvalidReset, 2));
    assert_eq!(
        state(&device, 1),
        (ChunkState::Open, 48),
        "nothing moved it"
    );
}

#[test]
fn vectors_without_a_sense_are_not_taken() {
    let mut device = plain();
    let many = run(0, 65);
    let metadata = [Metadata::default(); 3];
    for (op, addresses) in [
        (Op::Read, &many[..0]),
        (Op::Read, &many[..]),
        (Op::Reset, &many[..]),
        (
            Op::Write {
                metadata: &metadata,
            },
            &many[..16],
        ),
        (Op::Copy { to: &many[..15] }, &many[..16]),
    ] {
        let command = Command {
            tag: 0,
            op,
            addresses,
        };
        assert_eq!(device.submit(Time::ZERO, command), Err(Rejected::Length));
    }
    let read = Command {
        tag: 0,
        op: Op::Read,
        addresses: &many[..1],
    };
    for _ in 0..65_536 {
        device.submit(Time::ZERO, read).expect("there is room");
    }
    assert_eq!(device.submit(Time::ZERO, read), Err(Rejected::QueueFull));
    assert_eq!(finish(&mut device).len(), 65_536);
}

#[test]
fn capabilities_decide_what_may_be_reset() {
    for (reset_free, reset_open) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut device = device(Options {
            reset_free,
            reset_open,
            ..Options::default()
        });
        let open = run(sector(&device, 1, 0), 16);
        write(&mut device, &open);
        for (chunk, allowed) in [(0, reset_free), (1, reset_open)] {
            let first = sector(&device, chunk, 0);
            let done = once(&mut device, Op::Reset, &[first]);
            let expected = if allowed {
                Status::Success
            } else {
                Status::InvalidReset
            };
            assert_eq!(done.status, expected, "{chunk}");
        }
    }
}

#[test]
fn only_so_many_chunks_of_a_parallel_unit_are_open() {
    let mut device = device(Options {
        open_chunks_per_pu: 2,
        ..Options::default()
    });
    assert_eq!(device.geometry().open_chunks_per_pu, 2);
    for (chunk, status) in [
        (0, Status::Success),
        (1, Status::Success),
        (2, Status::TooManyOpen),
    ] {
        let unit = run(sector(&device, chunk, 0), 16);
        assert_eq!(write(&mut device, &unit).status, status);
    }
    let other = run(at(device.geometry(), 1, 0, 2, 0), 16);
    assert_eq!(write(&mut device, &other).status, Status::Success);
    let first = sector(&device, 0, 0);
    once(&mut device, Op::Reset, &[first]);
    let unit = run(sector(&device, 2, 0), 16);
    assert_eq!(write(&mut device, &unit).status, Status::Success);
}

#[test]
fn metadata_are_read_with_their_sectors_and_copied() {
    let mut device = plain();
    let metadata: Vec<Metadata> = (0..64).map(|number| [number, !number]).collect();
    let from = run(sector(&device, 0, 0), 64);
    let op = Op::Write {
        metadata: &metadata,
    };
    assert_eq!(once(&mut device, op, &from).status, Status::Success);
    let to = run(at(device.geometry(), 1, 1, 4, 0), 32);
    let backwards: Vec<u64> = from[..32].iter().rev().copied().collect();
    let done = once(&mut device, Op::Copy { to: &to }, &backwards);
    assert_eq!(done.status, Status::Success);
    let done = once(&mut device, Op::Read, &[to[0], to[15], from[5], to[16]]);
    let read = [metadata[31], metadata[16], metadata[5], [0, 0]];
    assert_eq!(device.metadata(&done), read);
    assert_eq!((done.status, done.failed), (Status::Unwritten, 8));
    once(&mut device, Op::Read, &[from[0]]);
    assert!(device.metadata(&done).is_empty(), "only until the next");
}

#[test]
fn times_are_the_sums_of_their_stages() {
    let mut device = plain();
    fill(&mut device, 0);
    // Firmware, entry, sensing, one sector over the channel, the same over the link, exit.
    for (from, sensing) in [(0, 48_000), (16, 64_000), (47, 48_000)] {
        let (start, read) = (device.now(), sector(&device, 0, from));
        let done = once(&mut device, Op::Read, &[read]);
        assert_eq!(
            ns(done, start),
            500 + 2_500 + sensing + 14_629 + 640 + 2_500
        );
    }
    // Firmware, entry, a write unit over the link and over the channel, programming, exit.
    for (from, programming) in [(0, 850_000), (16, 2_300_000)] {
        let (start, unit) = (device.now(), run(sector(&device, 1, from), 16));
        let done = write(&mut device, &unit);
        let moving = 16 * 640 + 4 * 58_514;
        assert_eq!(ns(done, start), 500 + 2_500 + moving + programming + 2_500);
    }
    let (start, chunk) = (device.now(), sector(&device, 0, 0));
    let done = once(&mut device, Op::Reset, &[chunk]);
    assert_eq!(ns(done, start), 500 + 2_500 + 3_000_000 + 2_500);
}

#[test]
fn a_buffered_write_is_complete_when_the_die_has_it() {
    let mut device = device(Options {
        buffered: true,
        ..Options::default()
    });
    assert_eq!(device.geometry().mw_cunits, 32);
    let (start, unit) = (device.now(), run(sector(&device, 0, 0), 16));
    let done = write(&mut device, &unit);
    assert_eq!(ns(done, start), 500 + 2_500 + 16 * 640 + 4 * 58_514 + 2_500);
    assert_eq!(state(&device, 0), (ChunkState::Open, 16));
    let more = run(sector(&device, 0, 16), 32);
    write(&mut device, &more);
    let last = [sector(&device, 0, 15), sector(&device, 0, 16)];
    assert_eq!(once(&mut device, Op::Read, &last).failed, 2);
}

#[test]
fn programs_may_take_different_times() {
    let mut device = device(Options {
        program_spread: 100,
        ..Options::default()
    });
    let mut spans: Vec<u64> = (0..8)
        .map(|unit| {
            let (start, unit) = (device.now(), run(sector(&device, 0, unit * 16), 16));
            ns(write(&mut device, &unit), start) - 500 - 2_500 - 16 * 640 - 4 * 58_514 - 2_500
        })
        .collect();
    assert!(
        spans
            .iter()
            .step_by(2)
            .all(|span| (765_000..=935_000).contains(span))
    );
    spans.sort_unstable();
    assert!((2_070_000..=2_530_000).contains(&spans[4]) && spans[7] <= 2_530_000);
    spans.dedup();
    assert_eq!(spans.len(), 8);
}

#[test]
fn a_vector_takes_as_long_as_its_slowest_part() {
    let mut device = plain();
    for (group, pu) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let unit = run(at(device.geometry(), group, pu, 0, 0), 48);
        write(&mut device, &unit);
    }
    let geometry = device.geometry().clone();
    let start = device.now();
    // Both channels at once, and on the first one die after the other.
    let spread = [
        at(&geometry, 0, 0, 0, 0),
        at(&geometry, 1, 0, 0, 0),
        at(&geometry, 0, 1, 0, 0),
    ];
    let done = once(&mut device, Op::Read, &spread);
    let taken = 500 + 2_500 + 48_000 + 2 * 14_629 + 640 + 2_500;
    assert_eq!((done.failed, ns(done, start)), (0, taken));
    // Neighbours in one cell are sensed once.
    let start = device.now();
    let done = once(&mut device, Op::Read, &run(at(&geometry, 0, 0, 0, 0), 16));
    let taken = 500 + 2_500 + 48_000 + 4 * 58_514 + 16 * 640 + 2_500;
    assert_eq!(ns(done, start), taken);
}

/// A read beside a program of its die that has just begun, and one that waits behind it.
fn disturbed_read(options: Options) -> u64 {
    let mut device = device(options);
    fill(&mut device, 0);
    let write = Op::Write { metadata: &[] };
    let units = run(sector(&device, 1, 0), 32);
    let start = device.now();
    let command = |tag, op, addresses| Command { tag, op, addresses };
    let read = [sector(&device, 0, 0)];
    device
        .submit(start, command(0, write, &units))
        .expect("it is taken");
    let now = Time::from_ns(start.as_ns() + 300_000);
    device
        .submit(now, command(9, Op::Read, &read))
        .expect("it is taken");
    let done = finish(&mut device);
    let read = done.iter().find(|one| one.tag == 9);
    ns(*read.expect("it is completed"), now)
}

#[test]
fn the_order_of_a_die_decides_what_a_read_waits_for() {
    let with = |dies, channels| {
        disturbed_read(Options {
            dies,
            channels,
            ..Options::default()
        })
    };
    let reads = ChannelOrder::ReadsFirst;
    let fifo = with(DieOrder::Fifo, ChannelOrder::Fifo);
    let priority = with(DieOrder::ReadPriority { bypass: 8 }, reads);
    let suspend = with(
        DieOrder::Suspend {
            bypass: 8,
            suspends: 1,
        },
        reads,
    );
    assert!((3_400_000..3_410_000).contains(&fifo), "{fifo}");
    assert!((800_000..900_000).contains(&priority), "{priority}");
    assert!((95_000..105_000).contains(&suspend), "{suspend}");
}

#[test]
fn a_failed_program_closes_its_chunk_and_says_so() {
    let mut device = plain();
    let third = sector(&device, 0, 32);
    assert!(device.inject(Fault::Write(third)));
    assert!(!device.inject(Fault::Write(u64::MAX)));
    let units = run(sector(&device, 0, 0), 64);
    let done = write(&mut device, &units);
    assert_eq!(done.status, Status::ClosedEarly);
    assert_eq!(done.failed, 0xFFFF_FFFF << 32, "and what came behind it");
    assert_eq!(state(&device, 0), (ChunkState::Closed, 32));
    let notified = Notification {
        address: sector(&device, 0, 0),
        event: Event::ClosedEarly,
    };
    assert_eq!(device.take_notification(), Some(notified));
    assert_eq!(device.take_notification(), None);
    let reads = [31, 32, 47, 48].map(|from| sector(&device, 0, from));
    assert_eq!(
        once(&mut device, Op::Read, &reads[..2]).status,
        Status::Unreadable
    );
    assert_eq!(once(&mut device, Op::Read, &reads).failed, 0b1110);
    assert_eq!(
        once(&mut device, Op::Read, &reads[3..]).status,
        Status::Unwritten
    );
    let chunk = sector(&device, 0, 0);
    assert_eq!(once(&mut device, Op::Reset, &[chunk]).failed, 0);
    fill(&mut device, 0);
}

#[test]
fn an_unreadable_source_fails_its_copy() {
    let mut device = plain();
    fill(&mut device, 0);
    let (from, to) = (
        run(sector(&device, 0, 0), 32),
        run(sector(&device, 1, 0), 32),
    );
    device.inject(Fault::Read(from[20]));
    let done = once(&mut device, Op::Copy { to: &to }, &from);
    assert_eq!(
        (done.status, done.failed),
        (Status::ClosedEarly, 0xFFFF_0000)
    );
    assert_eq!(state(&device, 1), (ChunkState::Closed, 16));
    device.inject(Fault::Read(from[0]));
    assert_eq!(once(&mut device, Op::Read, &from[..2]).failed, 1);
    assert_eq!(once(&mut device, Op::Read, &from[..2]).failed, 0, "once");
}

#[test]
fn a_failed_reset_and_the_end_of_endurance_take_a_chunk_offline() {
    let mut device = device(Options {
        endurance: 3,
        reset_free: true,
        ..Options::default()
    });
    let (failing, worn) = (sector(&device, 5, 0), sector(&device, 6, 0));
    device.inject(Fault::Reset(failing));
    assert_eq!(
        once(&mut device, Op::Reset, &[failing]).status,
        Status::Offline
    );
    let wear = |device: &Device| device.chunk(worn).expect("it is there").wear_index;
    for expected in [85, 170] {
        assert_eq!(once(&mut device, Op::Reset, &[worn]).failed, 0);
        assert_eq!(wear(&device), expected);
    }
    assert_eq!(
        once(&mut device, Op::Reset, &[worn]).status,
        Status::Offline
    );
    assert_eq!(
        (state(&device, 6).0, wear(&device)),
        (ChunkState::Offline, 255)
    );
    let events: Vec<_> = core::iter::from_fn(|| device.take_notification())
        .map(|one| (one.address, one.event))
        .collect();
    assert_eq!(
        events,
        [(failing, Event::ResetFailed), (worn, Event::WornOut)]
    );
    let unit = run(worn, 16);
    assert_eq!(write(&mut device, &unit).status, Status::Offline);
    assert_eq!(once(&mut device, Op::Read, &[worn]).status, Status::Offline);
    assert_eq!(
        once(&mut device, Op::Reset, &[worn]).status,
        Status::Offline
    );
}

#[test]
fn the_seed_decides_which_chunks_are_bad() {
    let bad = |seed| {
        let faults = Faults {
            bad_chunks: 100_000,
            ..Faults::default()
        };
        let options = Options {
            faults,
            ..Options::default()
        };
        let device = Device::new(&profile(), 256 << 20, seed, options).expect("it suits");
        let report = device.report().collect::<Vec<_>>();
        assert_eq!(report.len(), 512);
        assert!(report.is_sorted_by_key(|info| info.address));
        let offline = report
            .iter()
            .filter(|info| info.state == ChunkState::Offline);
        offline.map(|info| info.address).collect::<Vec<_>>()
    };
    assert_eq!(bad(1), bad(1));
    assert_ne!(bad(1), bad(2));
    assert!((25..80).contains(&bad(1).len()), "{}", bad(1).len());
}

#[test]
fn a_reset_waits_for_what_was_accepted_before_it() {
    let dies = DieOrder::Suspend {
        bypass: 8,
        suspends: 8,
    };
    for options in [
        Options::default(),
        Options {
            dies,
            ..Options::default()
        },
    ] {
        let mut device = device(options);
        fill(&mut device, 0);
        let (all, now) = (run(sector(&device, 0, 0), 64), device.now());
        let open = run(sector(&device, 1, 0), 32);
        let heads = [all[0], open[0]];
        for (tag, op, addresses) in [
            (1, Op::Read, &all[..]),
            (2, Op::Write { metadata: &[] }, &open[..]),
            (3, Op::Reset, &heads[..]),
            (4, Op::Read, &all[..1]),
            (5, Op::Write { metadata: &[] }, &open[..16]),
        ] {
            let command = Command { tag, op, addresses };
            device.submit(now, command).expect("it is taken");
        }
        let mut done = finish(&mut device);
        done.sort_by_key(|one| one.tag);
        let ends: Vec<_> = done.iter().map(|one| one.status).collect();
        let wanted = [
            Status::Success,
            Status::Success,
            Status::Success,
            Status::Unwritten,
            Status::OutOfOrder,
        ];
        assert_eq!(ends, wanted);
        assert!(done[2].at > done[0].at && done[2].at > done[1].at);
        assert_eq!(state(&device, 0), (ChunkState::Free, 0));
        assert_eq!(state(&device, 1), (ChunkState::Free, 0));
    }
}

/// A restless and careless host: much of what it sends is not allowed.
fn careless(device: &mut Device, seed: u64, steps: u64, ask: u64) -> Vec<Completion> {
    let mut chance = Rng::new(seed);
    let mut asked = chance.split(1);
    let (mut done, mut now) = (Vec::new(), 0);
    let chunks: Vec<u64> = device.report().map(|info| info.address).collect();
    let mut pointers = vec![0; chunks.len()];
    for tag in 0..steps {
        let before = now;
        now += chance.below(600_000);
        let mut looked = before;
        for _ in 0..asked.below(ask + 1) {
            looked += asked.below(now - looked + 1);
            device.advance(Time::from_ns(looked), &mut done);
        }
        let chunk = chance.below(12) as usize;
        let count = [1, 16, 32, 64, 7][chance.below(5) as usize];
        let pick = |base: u64| (0..count).map(|step| base.wrapping_add(step)).collect();
        let pointer: Vec<u64> = pick(chunks[chunk] + pointers[chunk]);
        let wild = match chance.below(4) {
            0 => chance.next_u64(),
            _ => chunks[chance.below(12) as usize] + chance.below(64),
        };
        let wild: Vec<u64> = pick(wild);
        let (op, addresses) = match chance.below(10) {
            0..3 => (Op::Read, wild),
            3 => (Op::Copy { to: &pointer }, wild),
            4 => (Op::Reset, vec![chunks[chunk]]),
            5 => (Op::Reset, wild),
            6 => (Op::Write { metadata: &[] }, wild),
            _ => (Op::Write { metadata: &[] }, pointer.clone()),
        };
        let command = Command {
            tag,
            op,
            addresses: &addresses,
        };
        let accepted = device
            .submit(Time::from_ns(now), command)
            .expect("vectors are of legal length");
        match op {
            Op::Read => {}
            Op::Reset => pointers[chunk] = 0,
            _ if accepted == 0 => pointers[chunk] = 0,
            _ => pointers[chunk] = (pointers[chunk] + u64::from(accepted.count_ones())).min(127),
        }
    }
    done.extend(finish(device));
    done
}

fn troubled(dies: DieOrder, buffered: bool) -> Options {
    Options {
        dies,
        buffered,
        channels: ChannelOrder::ReadsFirst,
        reset_free: true,
        open_chunks_per_pu: 4,
        endurance: 50,
        faults: Faults {
            bad_chunks: 20_000,
            writes: 10_000,
            resets: 2_000,
            reads: 5_000,
        },
        ..Options::default()
    }
}

#[test]
fn every_command_is_completed_once_however_often_it_is_asked() {
    let suspend = DieOrder::Suspend {
        bypass: 4,
        suspends: 2,
    };
    for (seed, dies, buffered) in [
        (1, DieOrder::Fifo, false),
        (2, DieOrder::ReadPriority { bypass: 1 }, true),
        (3, suspend, false),
        (4, suspend, true),
    ] {
        let mut seldom = device(troubled(dies, buffered));
        let mut often = device(troubled(dies, buffered));
        let done = careless(&mut seldom, seed, 3_000, 0);
        let same = careless(&mut often, seed, 3_000, 3);
        assert!(done.is_sorted_by_key(|one| one.at));
        let key = |done: &[Completion]| -> Vec<_> {
            done.iter()
                .map(|one| (one.at, one.tag, one.status, one.failed))
                .collect()
        };
        assert_eq!(key(&done), key(&same));
        assert_eq!(seldom.digest(), often.digest());
        let mut tags: Vec<_> = done.iter().map(|one| one.tag).collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..3_000));
        assert_eq!(seldom.outstanding(), 0);
        let good = done.iter().filter(|one| one.status == Status::Success);
        assert!(good.count() > 200, "the load must do something, too");
    }
}

/// The same number in every build and on every machine; it changes only when the model does.
#[test]
fn a_seed_has_its_digest() {
    let mut device = device(troubled(DieOrder::Fifo, false));
    careless(&mut device, 11, 2_000, 0);
    assert_eq!(device.digest(), DIGEST, "{:#X}", device.digest());
}

const DIGEST: u64 = 0x1AC9_A461_ED73_F7C9;
