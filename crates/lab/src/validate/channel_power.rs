//! Test 17 for open-channel drives: what a chunk still holds, by its metadata.

use flashyard_time::{Duration, Rng, Time};

use super::bench::{Bench, shipped};
use super::row::Row;
use flashyard_flash::Profile;
use flashyard_flash::channel::{
    ChunkState, Command, Completion, Device, MOST_ADDRESSES, Op, Options,
};

/// Chunks that the host writes.
const CHUNKS: usize = 24;

/// Cuts without a buffer, with a volatile and with a protected one.
pub(super) fn cuts(bench: &Bench) -> Vec<Row> {
    let cuts = if bench.full { 10_000 } else { 100 };
    let buffered = Options {
        buffered: true,
        ..Options::default()
    };
    let protected = Options {
        buffer_protected: true,
        ..buffered
    };
    let modes = [
        (
            "open channel, no buffer: what had to stay and did not",
            Options::default(),
        ),
        (
            "open channel, volatile buffer: what had to stay and did not",
            buffered,
        ),
        (
            "open channel, protected buffer: what had to stay and did not",
            protected,
        ),
    ];
    let row = |(test, options)| {
        let mut host = Host::new(options);
        for _ in 0..cuts {
            host.live_and_lose_power();
        }
        Row::exact(test, 0, host.wrong)
    };
    modes.into_iter().map(row).collect()
}

struct Host {
    device: Device,
    /// Sectors before the write pointer that a cut may take, though their write was complete.
    slack: u32,
    chance: Rng,
    chunks: Vec<Chunk>,
    /// Of every write the chunk, and its write pointer then.
    writes: Vec<(usize, u32)>,
    versions: u64,
    wrong: u64,
}

/// What the host knows of a chunk.
struct Chunk {
    first: u64,
    /// Of each sector, the number of the write.
    versions: Vec<u64>,
    accepted: u32,
    complete: u32,
}

impl Host {
    fn new(options: Options) -> Self {
        let profile = Profile {
            channels: 2,
            dies_per_channel: 2,
            programs_per_block: 8,
            ..shipped("cnex")
        };
        let device =
            Device::new(&profile, 16 << 20, 7, options).expect("the capacity suits the profile");
        let geometry = device.geometry();
        let clba = geometry.clba as usize;
        let chunks = device.report().take(CHUNKS).map(|info| Chunk {
            first: info.address,
            versions: vec![0; clba],
            accepted: 0,
            complete: 0,
        });
        Self {
            slack: if options.buffer_protected {
                0
            } else {
                geometry.mw_cunits
            },
            chunks: chunks.collect(),
            device,
            chance: Rng::new(5),
            writes: Vec::new(),
            versions: 0,
            wrong: 0,
        }
    }

    fn live_and_lose_power(&mut self) {
        let cut = self.device.now() + Duration::from_ns(self.chance.below(15_000_000));
        let mut done = Vec::new();
        let mut now = self.device.now();
        while now < cut {
            self.device.advance(now, &mut done);
            self.complete(&mut done);
            self.write(now);
            now += Duration::from_ns(self.chance.below(1_000_000));
        }
        self.device.advance(cut, &mut done);
        self.complete(&mut done);
        self.device.power_cut(cut);
        self.writes.clear();
        for chunk in 0..CHUNKS {
            self.compare(chunk);
        }
    }

    /// Writes a few units of a chunk with room.
    fn write(&mut self, now: Time) {
        let index = self.chance.below(CHUNKS as u64) as usize;
        let (clba, size) = (self.device.geometry().clba, self.device.geometry().ws_min);
        let chunk = &mut self.chunks[index];
        let units = 1 + self.chance.below(u64::from(MOST_ADDRESSES as u32 / size)) as u32;
        let count = (units * size).min(clba - chunk.accepted);
        if count == 0 {
            return;
        }
        let sectors = chunk.accepted..chunk.accepted + count;
        let addresses: Vec<u64> = sectors
            .clone()
            .map(|sector| chunk.first + u64::from(sector))
            .collect();
        let metadata: Vec<[u64; 2]> = (self.versions + 1..)
            .zip(&addresses)
            .map(|(version, address)| [*address, version])
            .collect();
        for (sector, &[_, version]) in sectors.zip(&metadata) {
            chunk.versions[sector as usize] = version;
        }
        chunk.accepted += count;
        self.versions += u64::from(count);
        self.writes.push((index, chunk.accepted));
        let tag = self.writes.len() as u64 - 1;
        let op = Op::Write {
            metadata: &metadata,
        };
        let command = Command {
            tag,
            op,
            addresses: &addresses,
        };
        let taken = self.device.submit(now, command);
        self.wrong += u64::from(taken != Ok(u64::MAX >> (64 - count)));
    }

    fn complete(&mut self, done: &mut Vec<Completion>) {
        for completion in done.drain(..) {
            let (chunk, pointer) = self.writes[completion.tag as usize];
            self.wrong += u64::from(completion.failed != 0);
            let complete = &mut self.chunks[chunk].complete;
            *complete = pointer.max(*complete);
        }
    }

    /// Holds what a chunk says and what can be read of it against what was written, and empties it
    /// when it is closed.
    fn compare(&mut self, index: usize) {
        let chunk = &self.chunks[index];
        let Some(info) = self.device.chunk(chunk.first) else {
            self.wrong += 1;
            return;
        };
        let pointer = info.write_pointer;
        let lost_more = pointer.saturating_add(self.slack) < chunk.complete;
        self.wrong += u64::from(lost_more || pointer > chunk.accepted);
        let margin = match info.state {
            ChunkState::Open => self.device.geometry().mw_cunits,
            _ => 0,
        };
        let readable = pointer.saturating_sub(margin);
        if readable > 0 {
            let most = readable.min(MOST_ADDRESSES as u32);
            let from = self.chance.below(u64::from(readable - most) + 1) as u32;
            self.read(index, from..from + most);
        }
        let chunk = &mut self.chunks[index];
        (chunk.accepted, chunk.complete) = (pointer, pointer);
        if info.state == ChunkState::Closed {
            let first = chunk.first;
            (chunk.accepted, chunk.complete) = (0, 0);
            let reset = self.run(Op::Reset, &[first]);
            self.wrong += u64::from(reset.is_none_or(|reset| reset.failed != 0));
        }
    }

    fn read(&mut self, index: usize, sectors: core::ops::Range<u32>) {
        let first = self.chunks[index].first;
        let addresses: Vec<u64> = sectors
            .clone()
            .map(|sector| first + u64::from(sector))
            .collect();
        let Some(read) = self.run(Op::Read, &addresses) else {
            self.wrong += 1;
            return;
        };
        self.wrong += u64::from(read.failed != 0);
        let held = self.device.metadata(&read);
        let versions = &self.chunks[index].versions[sectors.start as usize..];
        for ((held, address), version) in held.iter().zip(&addresses).zip(versions) {
            self.wrong += u64::from(*held != [*address, *version]);
        }
    }

    /// Does one thing, with nothing else in flight.
    fn run(&mut self, op: Op<'_>, addresses: &[u64]) -> Option<Completion> {
        let command = Command {
            tag: 0,
            op,
            addresses,
        };
        self.device.submit(self.device.now(), command).ok()?;
        let mut done = Vec::new();
        while let Some(next) = self.device.next_event() {
            self.device.advance(next, &mut done);
        }
        done.pop()
    }
}
