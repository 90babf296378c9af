//! The host FTL in numbers: write amplification against theory, sequential bandwidth against that
//! of the units, recovery, memory and speed. `cargo bench -p flashyard-flash --bench ftl` prints
//! the table; `-- recovery` takes only rows with that word.

use std::collections::{HashMap, VecDeque};

use flashyard_flash::Profile;
use flashyard_flash::channel::{self, ChunkInfo, ChunkState, Device, Geometry, Metadata, Place};
use flashyard_flash::ftl::{Action, Command, Ftl, IoOp, Op, Options, Part, State, Tag};
use flashyard_time::{Rng, Time};

const KEY: u64 = 0xF1A5;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| {
        let mut words = words.iter().filter(|word| !word.starts_with('-'));
        words.all(|word| name.contains(word.as_str()))
    };
    for (over_provisioning, op) in [(70, 0.07), (120, 0.12), (200, 0.20), (280, 0.28)] {
        if wanted("amplification") {
            amplification(over_provisioning, op);
        }
    }
    if wanted("sequential") {
        for name in ["dct983", "cnex"] {
            sequential(name);
        }
    }
    if wanted("speed") {
        speed();
    }
    if wanted("recovery") {
        recovery();
    }
}

/// A medium that does everything at once and keeps no data but pages of the FTL.
struct Medium {
    geometry: Geometry,
    units: Vec<(u32, u32)>,
    ftl: Ftl,
    metadata: Vec<Metadata>,
    pages: HashMap<u64, Box<[u8]>>,
    /// State and write pointer of each chunk, by the upper bits of its addresses.
    chunks: Vec<(ChunkState, u32)>,
    queue: VecDeque<Tag>,
    done: u64,
    /// Units read and written, vectors of reads.
    read: u64,
    read_vectors: u64,
    reports: Vec<Metadata>,
}

impl Medium {
    fn new(geometry: &Geometry, options: Options) -> Self {
        let units = units(geometry);
        let chunks = 1_usize << (geometry.bits[0] + geometry.bits[1] + geometry.bits[2]);
        let mut medium = Self {
            ftl: Ftl::format(geometry, &units, [], KEY, options).expect("it suits"),
            geometry: geometry.clone(),
            units,
            metadata: vec![Metadata::default(); chunks << geometry.bits[3]],
            pages: HashMap::new(),
            chunks: vec![(ChunkState::Free, 0); chunks],
            queue: VecDeque::new(),
            done: 0,
            read: 0,
            read_vectors: 0,
            reports: Vec::new(),
        };
        medium.settle();
        medium
    }

    fn act(&mut self) {
        while let Some(action) = self.ftl.poll(Time::ZERO) {
            match action {
                Action::Submit(tag) => self.queue.push_back(tag),
                Action::Done { .. } => self.done += 1,
                Action::Store { .. } | Action::Load { .. } | Action::Zeroes { .. } => {}
            }
        }
    }

    /// One vector ends.
    fn turn(&mut self) -> bool {
        self.act();
        let Some(tag) = self.queue.pop_front() else {
            return false;
        };
        self.perform(tag);
        true
    }

    fn settle(&mut self) {
        while self.turn() {}
    }

    fn perform(&mut self, tag: Tag) {
        let bits = self.geometry.bits[3];
        let io = self.ftl.io(tag);
        let mut read = std::mem::take(&mut self.reports);
        read.clear();
        let mut pages = Vec::new();
        match io.op() {
            IoOp::Read => {
                self.read += io.addresses().len() as u64;
                self.read_vectors += 1;
                for (place, (&address, part)) in io.addresses().iter().zip(io.parts()).enumerate() {
                    read.push(self.metadata[address as usize]);
                    if *part == Part::Page {
                        pages.push((place, address));
                    }
                }
            }
            IoOp::Write => {
                for (place, (&address, part)) in io.addresses().iter().zip(io.parts()).enumerate() {
                    self.metadata[address as usize] = io.metadata()[place];
                    if *part == Part::Page {
                        pages.push((place, address));
                    }
                }
                let chunk = &mut self.chunks[(io.addresses()[0] >> bits) as usize];
                chunk.1 += io.addresses().len() as u32;
                chunk.0 = match chunk.1 == self.geometry.clba {
                    true => ChunkState::Closed,
                    false => ChunkState::Open,
                };
            }
            IoOp::Reset => {
                for address in io.addresses() {
                    self.chunks[(address >> bits) as usize] = (ChunkState::Free, 0);
                }
            }
            IoOp::Report => panic!("nothing fails, and a write is durable when it ends"),
        }
        let writes = io.op() == IoOp::Write;
        for (place, address) in pages {
            if writes {
                let mut bytes = vec![0; 4096].into_boxed_slice();
                self.ftl.page(tag, place, &mut bytes);
                self.pages.insert(address, bytes);
            } else {
                self.ftl.on_page(tag, place, &self.pages[&address]);
            }
        }
        self.ftl.on_completion(Time::ZERO, tag, 0, &read);
        self.reports = read;
    }

    fn submit(&mut self, op: Op, first: u64, count: u32) {
        let command = Command {
            id: 0,
            op,
            first,
            count,
        };
        self.ftl.submit(command).expect("commands are legal");
    }

    /// Random writes of one unit, 64 at once.
    fn write_randomly(&mut self, writes: u64, chance: &mut Rng) {
        let capacity = self.ftl.capacity();
        let (from, mut sent) = (self.done, 0);
        while self.done - from < writes {
            while sent < writes && sent - (self.done - from) < 64 {
                self.submit(Op::Write { durable: false }, chance.below(capacity), 1);
                sent += 1;
            }
            self.turn();
        }
    }

    fn fill(&mut self) {
        for first in (0..self.ftl.capacity()).step_by(64) {
            let count = (self.ftl.capacity() - first).min(64) as u32;
            self.submit(Op::Write { durable: false }, first, count);
            self.settle();
        }
    }

    fn report(&self) -> Vec<ChunkInfo> {
        let mut all = Vec::new();
        for &(group, pu) in &self.units {
            for chunk in 0..self.geometry.chunks {
                let place = Place {
                    group,
                    pu,
                    chunk,
                    sector: 0,
                };
                let address = self.geometry.address(place).expect("it is on the device");
                let (state, write_pointer) =
                    self.chunks[(address >> self.geometry.bits[3]) as usize];
                all.push(ChunkInfo {
                    address,
                    state,
                    write_pointer,
                    wear_index: 0,
                    resets: 0,
                    sequential: true,
                });
            }
        }
        all
    }
}

fn units(geometry: &Geometry) -> Vec<(u32, u32)> {
    let groups = 0..geometry.groups;
    groups
        .flat_map(|group| (0..geometry.pus).map(move |pu| (group, pu)))
        .collect()
}

/// Four dies with 256 chunks of 768 units each: 3 GiB.
fn geometry(chunks: u64, programs: u64) -> Geometry {
    let profile = Profile {
        channels: 2,
        dies_per_channel: 2,
        planes: 1,
        programs_per_block: programs,
        ..Profile::named("dct983").expect("it ships")
    };
    let row = 4 * profile.page_bytes * profile.pages_per_program;
    let device = Device::new(
        &profile,
        row * programs * chunks,
        1,
        channel::Options::default(),
    );
    device.expect("it suits").geometry().clone()
}

/// Uniform random writes, against `a / (a + W(-a e^-a))`.
fn amplification(over_provisioning: u32, op: f64) {
    let options = Options {
        over_provisioning,
        ..Options::default()
    };
    let mut medium = Medium::new(&geometry(256, 64), options);
    let capacity = medium.ftl.capacity();
    let mut chance = Rng::new(1);
    medium.fill();
    medium.write_randomly(3 * capacity, &mut chance);
    let before = medium.ftl.stats();
    medium.write_randomly(capacity, &mut chance);
    let after = medium.ftl.stats();
    let per_unit = |written: u64| written as f64 / (after.host_units - before.host_units) as f64;
    let all = per_unit(after.written_units - before.written_units);
    let checkpoints = per_unit(after.checkpoint_units - before.checkpoint_units);
    let theory = theory(1.0 + op);
    println!(
        "amplification, {:2.0} % over-provisioning: {all:.3}, of it checkpoints {checkpoints:.3}; theory {theory:.3}, ratio {:.3}",
        op * 100.0,
        all / theory
    );
}

/// Of cleaning in the order of writing, for random writes over `1 / a` of the flash.
fn theory(a: f64) -> f64 {
    // The valid part of a victim solves v = exp(-(1 - v) a).
    let mut valid = 0.5_f64;
    for _ in 0..10_000 {
        valid = (-(1.0 - valid) * a).exp();
    }
    1.0 / (1.0 - valid)
}

/// Sequential writes in virtual time, against programs without pause.
fn sequential(name: &str) {
    let profile = Profile {
        channels: 2,
        dies_per_channel: 2,
        ..Profile::named(name).expect("it ships")
    };
    let mut device =
        Device::new(&profile, 4 << 30, 1, channel::Options::default()).expect("it suits");
    let units = units(device.geometry());
    let mut ftl = Ftl::format(
        device.geometry(),
        &units,
        device.report(),
        KEY,
        Options::default(),
    )
    .expect("it suits");
    let (mut next, mut in_flight, mut done) = (0, 0, Vec::new());
    let mut start = None;
    let mut finished = 0;
    loop {
        while let Some(action) = ftl.poll(device.now()) {
            match action {
                Action::Submit(tag) => send(&mut device, &mut ftl, tag),
                Action::Done { .. } => {
                    in_flight -= 1;
                    finished += 64;
                }
                _ => {}
            }
        }
        if ftl.state() == State::Ready {
            start.get_or_insert(device.now());
            if finished >= 3 * ftl.capacity() / 2 {
                break;
            }
            if in_flight < 32 {
                let command = Command {
                    id: 0,
                    op: Op::Write { durable: false },
                    first: next,
                    count: 64,
                };
                ftl.submit(command).expect("commands are legal");
                next = (next + 64) % (ftl.capacity() - 64);
                in_flight += 1;
                continue;
            }
        }
        let event = device.next_event().expect("writes are in flight");
        device.advance(event, &mut done);
        for completion in done.drain(..) {
            let metadata = device.metadata(&completion).to_vec();
            let tag = completion.tag as Tag;
            ftl.on_completion(completion.at, tag, completion.failed, &metadata);
        }
    }
    let span = device
        .now()
        .since(start.unwrap_or(Time::ZERO))
        .as_secs_f64();
    let rate = finished as f64 * 4096.0 / span;
    let geometry = device.geometry();
    let bytes = f64::from(geometry.ws_min) * 4096.0;
    let load = bytes / profile.channel_bytes_per_second as f64;
    let full = 4.0 * bytes / (geometry.write_ns.0 as f64 / 1e9 + load);
    println!(
        "sequential, {name}: {:.1} MB/s of {:.1} MB/s, ratio {:.3}",
        rate / 1e6,
        full / 1e6,
        rate / full
    );
}

fn send(device: &mut Device, ftl: &mut Ftl, tag: Tag) {
    let io = ftl.io(tag);
    let op = match io.op() {
        IoOp::Read => channel::Op::Read,
        IoOp::Write => channel::Op::Write {
            metadata: io.metadata(),
        },
        IoOp::Reset => channel::Op::Reset,
        IoOp::Report => {
            let info = device.chunk(io.addresses()[0]);
            return ftl.on_report(device.now(), tag, info);
        }
    };
    let command = channel::Command {
        tag: u64::from(tag),
        op,
        addresses: io.addresses(),
    };
    device
        .submit(device.now(), command)
        .expect("vectors are legal");
}

/// Random reads and writes per second of CPU time.
fn speed() {
    let mut medium = Medium::new(&geometry(256, 64), Options::default());
    medium.fill();
    let mut chance = Rng::new(2);
    let capacity = medium.ftl.capacity();
    medium.write_randomly(capacity, &mut chance);
    let (writes, before) = (capacity, cpu_ns());
    let written = medium.ftl.stats().written_units;
    medium.write_randomly(writes, &mut chance);
    let spent = (cpu_ns() - before) as f64 / 1e9;
    let written = medium.ftl.stats().written_units - written;
    println!(
        "speed: {:.2} M random writes/s ({:.2} M units/s to flash), medium included",
        writes as f64 / spent / 1e6,
        written as f64 / spent / 1e6
    );
    let (reads, before) = (2_000_000, cpu_ns());
    for _ in 0..reads {
        medium.submit(Op::Read, chance.below(capacity), 1);
        medium.turn();
    }
    let spent = (cpu_ns() - before) as f64 / 1e9;
    println!(
        "speed: {:.2} M random reads/s",
        f64::from(reads) / spent / 1e6
    );
}

/// Recovery of a partition of 32 GiB, after a stop and after a cut as late as can be after a
/// checkpoint.
fn recovery() {
    let mut medium = Medium::new(&geometry(820, 256), Options::default());
    let gib = medium.ftl.capacity() as f64 * 4096.0 / f64::from(1 << 30);
    medium.fill();
    let space = medium.ftl.space();
    println!(
        "memory: {:.2} MiB per GiB of {gib:.1} GiB",
        space.memory as f64 / f64::from(1 << 20) / gib
    );
    let mut chance = Rng::new(3);
    medium.submit(Op::Stop, 0, 0);
    medium.settle();
    recover(&mut medium, "stop", gib);
    let checkpoints = medium.ftl.stats().checkpoints;
    while medium.ftl.stats().checkpoints == checkpoints {
        medium.write_randomly(10_000, &mut chance);
    }
    let most = medium.ftl.capacity() / 16;
    medium.write_randomly(most, &mut chance);
    recover(&mut medium, "cut", gib);
}

fn recover(medium: &mut Medium, after: &str, gib: f64) {
    medium.queue.clear();
    (medium.read, medium.read_vectors) = (0, 0);
    let report = medium.report();
    let before = cpu_ns();
    let ftl = Ftl::recover(
        &medium.geometry,
        &medium.units,
        report,
        KEY,
        Options::default(),
    );
    medium.ftl = ftl.expect("it was built before");
    while medium.ftl.state() == State::Recovering {
        medium.turn();
    }
    let spent = (cpu_ns() - before) as f64 / 1e9;
    let stats = medium.ftl.recovery().expect("it was recovered");
    // Each channel moves what its dies have read.
    let channel = stats.read_sectors as f64 * 4096.0 / 2.0 / 800e6;
    println!(
        "recovery of {gib:.1} GiB after a {after}: {spent:.2} s of CPU time; {} sectors read, {} scanned, {channel:.1} s on two channels; state {:?}",
        stats.read_sectors,
        stats.scanned_sectors,
        medium.ftl.state()
    );
    medium.settle();
}

/// CPU time of this thread; where the kernel does not tell, zero, and the table shows no rates.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0)
}
