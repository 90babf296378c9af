//! An open-channel device that loses its power: nothing is read that was not written there, and
//! nothing that was safe is lost.

use flashyard_flash::Profile;
use flashyard_flash::channel::{
    ChunkInfo, ChunkState, Command, Completion, Device, DieOrder, Fault, Op, Options, Status,
};
use flashyard_time::{Duration, Rng, Time};

const CUTS: u64 = if cfg!(debug_assertions) { 300 } else { 10_000 };
/// Chunks of the device.
const CHUNKS: u64 = 32;
const CAPACITY: u64 = 16 << 20;

/// Two channels with two dies each, and chunks of 8 write units, none of whose erases is left out.
fn device(name: &str, options: Options) -> Device {
    let profile = Profile {
        channels: 2,
        dies_per_channel: 2,
        programs_per_block: 8,
        ..Profile::named(name).expect("it ships")
    };
    let row = 4 * profile.planes * profile.page_bytes * profile.pages_per_program;
    let capacity = CAPACITY.max(row * 64);
    Device::new(&profile, capacity, 7, options).expect("it suits the profile")
}

/// A host that keeps to the rules, remembers what it wrote, and checks what is left of it.
struct Host {
    device: Device,
    chance: Rng,
    chunks: Vec<Chunk>,
    /// What it sent: chunk and what it did there. The tag is the place in here.
    sent: Vec<(usize, Sent)>,
    version: u64,
    /// How much less than is complete may be left.
    slack: u64,
    losses: u64,
    resets_cut: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Write,
    Reset,
    Read,
}

/// What the host knows of a chunk.
struct Chunk {
    first: u64,
    /// Of each sector, what was last accepted there. An owner would keep the data here.
    versions: Vec<u64>,
    /// Sectors accepted, and of complete writes, since the chunk was last free.
    accepted: u64,
    complete: u64,
    /// What was accepted before belongs to another life of the chunk.
    born: u64,
    resetting: bool,
}

impl Host {
    fn new(name: &str, options: Options, seed: u64) -> Self {
        let device = device(name, options);
        let slack = if options.buffer_protected {
            0
        } else {
            u64::from(device.geometry().mw_cunits)
        };
        let chunks = device.report().take(CHUNKS as usize).map(|info| Chunk {
            first: info.address,
            versions: vec![0; device.geometry().clba as usize],
            accepted: 0,
            complete: 0,
            born: 0,
            resetting: false,
        });
        Self {
            chunks: chunks.collect(),
            device,
            chance: Rng::new(seed),
            sent: Vec::new(),
            version: 0,
            slack,
            losses: 0,
            resets_cut: 0,
        }
    }

    /// Works for a while, loses the power somewhere in it, and looks at what is left.
    fn live_and_lose_power(&mut self) {
        let start = self.device.now();
        let cut = start + Duration::from_ns(self.chance.below(20_000_000));
        let mut now = start;
        let mut done = Vec::new();
        loop {
            now += Duration::from_ns(self.chance.below(1_500_000));
            if now >= cut {
                break;
            }
            self.step(now);
            self.device.advance(now, &mut done);
            self.take(&mut done);
        }
        self.device.advance(cut, &mut done);
        self.take(&mut done);
        let recovered = self.device.power_cut(cut);
        self.losses += recovered.lost_sectors;
        self.resets_cut += u64::from(recovered.erases);
        assert_eq!(self.device.outstanding(), 0);
        self.sent.clear();
        for chunk in 0..self.chunks.len() {
            self.check(chunk);
        }
    }

    fn step(&mut self, now: Time) {
        let chunk = self.chance.below(CHUNKS) as usize;
        match self.chance.below(8) {
            0 => self.read(now, chunk),
            1 => self.reset(now, chunk),
            _ => self.write(now, chunk),
        }
    }

    fn send(&mut self, now: Time, chunk: usize, sent: Sent, op: Op<'_>, addresses: &[u64]) -> u64 {
        let tag = self.sent.len() as u64;
        self.sent.push((chunk, sent));
        let command = Command { tag, op, addresses };
        self.device.submit(now, command).expect("it is taken")
    }

    fn write(&mut self, now: Time, index: usize) {
        let (clba, size) = (
            u64::from(self.device.geometry().clba),
            u64::from(self.device.geometry().ws_min),
        );
        let chunk = &self.chunks[index];
        if chunk.resetting || chunk.accepted == clba {
            return;
        }
        let units = 1 + self.chance.below(64 / size);
        let count = (units * size).min(clba - chunk.accepted);
        let from = chunk.accepted;
        let addresses: Vec<u64> = (from..from + count)
            .map(|sector| chunk.first + sector)
            .collect();
        let first_version = self.version + 1;
        self.version += count;
        let metadata: Vec<[u64; 2]> = (first_version..)
            .zip(&addresses)
            .map(|(version, address)| [*address, version])
            .collect();
        let op = Op::Write {
            metadata: &metadata,
        };
        let accepted = self.send(now, index, Sent::Write, op, &addresses);
        if accepted == 0 {
            // Closed early by a cut that was reported to the host.
            return;
        }
        assert_eq!(accepted, u64::MAX >> (64 - count), "the rules were kept");
        let chunk = &mut self.chunks[index];
        for (sector, version) in (from..from + count).zip(first_version..) {
            chunk.versions[sector as usize] = version;
        }
        chunk.accepted += count;
    }

    fn reset(&mut self, now: Time, index: usize) {
        if self.chunks[index].resetting || self.chunks[index].accepted == 0 {
            return;
        }
        let first = self.chunks[index].first;
        let accepted = self.send(now, index, Sent::Reset, Op::Reset, &[first]);
        assert_eq!(accepted, 1, "the rules were kept");
        self.chunks[index].resetting = true;
    }

    fn read(&mut self, now: Time, index: usize) {
        let first = self.chunks[index].first;
        let addresses: Vec<u64> = (first..first + 64).collect();
        self.send(now, index, Sent::Read, Op::Read, &addresses);
    }

    fn take(&mut self, done: &mut Vec<Completion>) {
        for completion in done.drain(..) {
            let (chunk, sent) = self.sent[completion.tag as usize];
            let chunk = &mut self.chunks[chunk];
            match sent {
                Sent::Write if completion.status == Status::Success => {
                    chunk.complete = self.device.chunk(chunk.first).map_or(0, complete);
                }
                Sent::Write | Sent::Read => {}
                Sent::Reset => {
                    assert_eq!(completion.status, Status::Success);
                    (chunk.accepted, chunk.complete) = (0, 0);
                    chunk.born = self.version;
                    chunk.resetting = false;
                }
            }
        }
    }

    /// Compares what a chunk tells and holds with what the host knows.
    fn check(&mut self, index: usize) {
        let geometry = self.device.geometry().clone();
        let info = self
            .device
            .chunk(self.chunks[index].first)
            .expect("it is there");
        let chunk = &mut self.chunks[index];
        let pointer = u64::from(info.write_pointer);
        assert!(pointer <= chunk.accepted, "never more than was sent");
        let slack = self.slack;
        let emptied = chunk.resetting && pointer == 0;
        assert!(
            emptied || pointer + slack >= chunk.complete,
            "{pointer} of {} complete, {slack} may be missing",
            chunk.complete
        );
        match info.state {
            ChunkState::Free => assert_eq!(pointer, 0),
            ChunkState::Open => assert!(pointer > 0 && pointer < u64::from(geometry.clba)),
            ChunkState::Closed => {}
            ChunkState::Offline => panic!("nothing wears out here"),
        }
        chunk.resetting = false;
        chunk.complete = pointer;
        // The next write of a chunk that ends early is refused; a reset makes it free.
        chunk.accepted = if info.state == ChunkState::Closed {
            u64::from(geometry.clba)
        } else {
            pointer
        };
        self.check_sectors(index, info);
    }

    /// Reads some sectors around the end of a chunk, or anywhere.
    fn check_sectors(&mut self, index: usize, info: ChunkInfo) {
        let geometry = self.device.geometry().clone();
        let clba = u64::from(geometry.clba);
        let margin = match info.state {
            ChunkState::Open => geometry.mw_cunits,
            _ => 0,
        };
        let readable = u64::from(info.write_pointer.saturating_sub(margin));
        let from = if self.chance.chance(1, 2) {
            readable.saturating_sub(32).min(clba - 64)
        } else {
            self.chance.below(clba - 63)
        };
        let chunk = &self.chunks[index];
        let addresses: Vec<u64> = (from..from + 64)
            .map(|sector| chunk.first + sector)
            .collect();
        let command = Command {
            tag: 0,
            op: Op::Read,
            addresses: &addresses,
        };
        let now = self.device.now();
        self.device.submit(now, command).expect("it is taken");
        let mut done = Vec::new();
        while let Some(next) = self.device.next_event() {
            self.device.advance(next, &mut done);
        }
        let done = done.pop().expect("it is completed");
        let metadata = self.device.metadata(&done);
        for (place, sector) in (from..from + 64).enumerate() {
            let failed = done.failed >> place & 1 == 1;
            assert_eq!(failed, sector >= readable, "sector {sector} of {info:?}");
            if !failed {
                let version = chunk.versions[sector as usize];
                assert!(version > chunk.born, "of an earlier life");
                assert_eq!(metadata[place], [addresses[place], version]);
            }
        }
    }
}

fn complete(info: ChunkInfo) -> u64 {
    u64::from(info.write_pointer)
}

fn survives(name: &str, options: Options, loses: bool) {
    let mut host = Host::new(name, options, 3);
    for _ in 0..CUTS {
        host.live_and_lose_power();
    }
    assert!(host.resets_cut > 0, "some erases must have been cut short");
    assert_eq!(host.losses > 0, loses, "{} sectors lost", host.losses);
}

#[test]
fn page_pairs_lose_no_more_than_was_reported() {
    survives("cnex", Options::default(), true);
}

#[test]
fn one_shot_programs_lose_nothing_that_was_complete() {
    survives("dct983", Options::default(), false);
}

#[test]
fn a_volatile_buffer_loses_no_more_than_was_reported() {
    let options = Options {
        buffered: true,
        ..Options::default()
    };
    survives("cnex", options, true);
    survives("dct983", options, true);
}

#[test]
fn a_protected_buffer_loses_nothing() {
    let options = Options {
        buffered: true,
        buffer_protected: true,
        ..Options::default()
    };
    survives("cnex", options, false);
}

#[test]
fn suspended_programs_and_erases_are_cut_like_others() {
    let options = Options {
        dies: DieOrder::Suspend {
            bypass: 8,
            suspends: 3,
        },
        ..Options::default()
    };
    survives("cnex", options, true);
}

#[test]
fn a_cut_destroys_the_word_line_in_flight() {
    let mut device = device("cnex", Options::default());
    let write = |device: &mut Device, from: u64| {
        let addresses: Vec<u64> = (from..from + 16).collect();
        let op = Op::Write { metadata: &[] };
        let command = Command {
            tag: 0,
            op,
            addresses: &addresses,
        };
        device.submit(device.now(), command).expect("it is taken");
    };
    for from in [0, 16, 32] {
        write(&mut device, from);
        device.advance(device.now() + Duration::from_ms(5), &mut Vec::new());
    }
    write(&mut device, 48);
    let recovered = device.power_cut(device.now() + Duration::from_ms(1));
    assert_eq!(
        (recovered.commands, recovered.programs, recovered.erases),
        (1, 1, 0)
    );
    assert_eq!(
        recovered.lost_sectors, 16,
        "the lower page of the word line"
    );
    let info = device.chunk(0).expect("it is there");
    assert_eq!((info.state, info.write_pointer), (ChunkState::Closed, 32));
    let mut done = Vec::new();
    for address in [31, 32, 63, 64] {
        let command = Command {
            tag: address,
            op: Op::Read,
            addresses: &[address],
        };
        device.submit(device.now(), command).expect("it is taken");
    }
    device.advance(Time::MAX, &mut done);
    done.sort_by_key(|one| one.tag);
    let ends: Vec<_> = done.iter().map(|one| one.status).collect();
    let wanted = [
        Status::Success,
        Status::Unreadable,
        Status::Unreadable,
        Status::Unwritten,
    ];
    assert_eq!(ends, wanted);
}

#[test]
fn what_could_not_be_read_is_not_protected() {
    let options = Options {
        buffered: true,
        buffer_protected: true,
        ..Options::default()
    };
    for broken in [false, true] {
        let mut device = device("cnex", options);
        let from: Vec<u64> = (0..48).collect();
        let to: Vec<u64> = (128..144).collect();
        let write = Op::Write { metadata: &[] };
        for (op, addresses, span) in [
            (write, &from[..], 20_000),
            (Op::Copy { to: &to }, &from[..16], 1_000),
        ] {
            if broken {
                device.inject(Fault::Read(3));
            }
            let command = Command {
                tag: 0,
                op,
                addresses,
            };
            let now = device.now();
            assert_eq!(
                device.submit(now, command),
                Ok(u64::MAX >> (64 - addresses.len()))
            );
            device.advance(now + Duration::from_us(span), &mut Vec::new());
        }
        let recovered = device.power_cut(device.now());
        let info = device.chunk(to[0]).expect("it is there");
        let (state, pointer) = if broken {
            (ChunkState::Closed, 0)
        } else {
            (ChunkState::Open, 16)
        };
        assert_eq!((info.state, info.write_pointer), (state, pointer));
        assert_eq!(recovered.programs, u32::from(broken));
    }
}

#[test]
fn a_cut_before_anything_was_programmed_changes_nothing() {
    let mut device = device("cnex", Options::default());
    let addresses: Vec<u64> = (0..16).collect();
    let op = Op::Write { metadata: &[] };
    let command = Command {
        tag: 0,
        op,
        addresses: &addresses,
    };
    for _ in 0..3 {
        assert_eq!(device.submit(device.now(), command), Ok(0xFFFF));
        let recovered = device.power_cut(device.now() + Duration::from_us(200));
        assert_eq!((recovered.commands, recovered.programs), (1, 0));
        assert_eq!(recovered.lost_sectors, 0);
        let info = device.chunk(0).expect("it is there");
        assert_eq!((info.state, info.write_pointer), (ChunkState::Free, 0));
        assert_eq!(device.next_event(), None, "nothing goes on by itself");
    }
}
