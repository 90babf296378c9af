//! Tenants on sets of parallel units, in virtual time: for validation, experiments and tests.

use alloc::vec;
use alloc::vec::Vec;

use flashyard_time::{Duration, Histogram, Rng, Time};

use super::{Command, Completion, Device, MOST_ADDRESSES, Op, Place, Status};
use crate::UNIT_BYTES;

/// What a tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads random sectors of what [`prepare`] wrote, so many at once.
    Read {
        /// Commands in flight.
        depth: u32,
    },
    /// Writes without pause, one write unit in flight on each parallel unit; resets what it writes
    /// next.
    Write,
}

/// A tenant that uses parallel units, alone or shared.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// What it does.
    pub work: Work,
    /// Group and parallel unit of all that it uses.
    pub pus: Vec<(u32, u32)>,
}

/// What a tenant got within the span that was measured.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Latencies of reads or writes, in nanoseconds; of resets none.
    pub latencies: Histogram,
    /// Bytes read or written.
    pub bytes: u64,
    /// Commands with an address that failed.
    pub failures: u64,
    /// The span that was measured.
    pub span: Duration,
}

impl Tally {
    /// Bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        (u128::from(self.bytes) * 1_000_000_000)
            .checked_div(u128::from(self.span.as_ns()))
            .unwrap_or(0) as u64
    }
}

/// Writes the first chunk of every parallel unit, for readers, and waits until all is done. The
/// status is that of the first write that failed.
pub fn prepare(device: &mut Device) -> Status {
    let geometry = device.geometry().clone();
    let mut done = Vec::new();
    for unit in 0..geometry.clba / geometry.ws_min {
        for number in 0..geometry.total_pus() {
            let place = Place {
                group: number % geometry.groups,
                pu: number / geometry.groups,
                chunk: 0,
                sector: unit * geometry.ws_min,
            };
            let now = device.now();
            write(device, now, 0, place);
        }
        while let Some(next) = device.next_event() {
            device.advance(next, &mut done);
        }
    }
    let failed = done.iter().find(|one| one.status != Status::Success);
    failed.map_or(Status::Success, |one| one.status)
}

/// Runs `tenants` on a device at rest for `warm_up` and then for `span`, which is measured.
/// Commands that are in flight at the end are left to the device.
///
/// The device must let free chunks be reset; those behind the first of each parallel unit are
/// divided among the writers that share it, who must find at least one each.
pub fn run(
    device: &mut Device,
    tenants: &[Tenant],
    warm_up: Duration,
    span: Duration,
    seed: u64,
) -> Vec<Tally> {
    let start = device.now();
    let (from, until) = (start + warm_up, start + warm_up + span);
    let mut load = Load::new(device, tenants, span, seed);
    for slot in 0..load.slots.len() {
        load.issue(device, slot, start);
    }
    let mut done = Vec::with_capacity(256);
    while let Some(next) = device.next_event().filter(|next| *next <= until) {
        device.advance(next, &mut done);
        for completion in done.drain(..) {
            load.complete(device, completion, from);
        }
    }
    load.tallies
}

/// Tenants in flight.
struct Load<'a> {
    tenants: &'a [Tenant],
    tallies: Vec<Tally>,
    chance: Vec<Rng>,
    /// One for each command in flight; the tag is the place in here.
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tenant: u32,
    issued: Time,
    writer: Option<Writer>,
}

/// A write point on a parallel unit.
#[derive(Clone, Copy, Debug)]
struct Writer {
    /// Where the next write unit goes.
    next: Place,
    /// The first chunk, and the one behind the last.
    chunks: (u32, u32),
    /// What is in flight is the reset of the chunk.
    resetting: bool,
}

impl<'a> Load<'a> {
    fn new(device: &Device, tenants: &'a [Tenant], span: Duration, seed: u64) -> Self {
        let mut slots = Vec::new();
        for (number, tenant) in (0..).zip(tenants) {
            let slot = |writer| Slot {
                tenant: number,
                issued: Time::ZERO,
                writer,
            };
            match tenant.work {
                Work::Read { depth } => slots.extend((0..depth).map(|_| slot(None))),
                Work::Write => {
                    let points = tenant
                        .pus
                        .iter()
                        .map(|&pu| writer(device, tenants, number, pu));
                    slots.extend(points.map(|point| slot(Some(point))));
                }
            }
        }
        let tally = Tally {
            latencies: Histogram::new(),
            bytes: 0,
            failures: 0,
            span,
        };
        Self {
            tallies: vec![tally; tenants.len()],
            chance: (0..tenants.len() as u64)
                .map(|tenant| Rng::new(seed).split(tenant))
                .collect(),
            tenants,
            slots,
        }
    }

    fn complete(&mut self, device: &mut Device, completion: Completion, from: Time) {
        let slot = self.slots[completion.tag as usize];
        let reset = slot.writer.is_some_and(|writer| writer.resetting);
        if completion.at > from && !reset {
            let tally = &mut self.tallies[slot.tenant as usize];
            tally.failures += u64::from(completion.status != Status::Success);
            tally
                .latencies
                .record(completion.at.since(slot.issued).as_ns());
            let sectors = slot.writer.map_or(1, |_| device.geometry().ws_min);
            tally.bytes += u64::from(sectors) * UNIT_BYTES;
        }
        self.issue(device, completion.tag as usize, completion.at);
    }

    fn issue(&mut self, device: &mut Device, slot: usize, now: Time) {
        let Slot { tenant, writer, .. } = self.slots[slot];
        self.slots[slot].issued = now;
        if let Some(writer) = writer {
            let next = writer.issue(device, now, slot as u64);
            self.slots[slot].writer = Some(next);
            return;
        }
        let chance = &mut self.chance[tenant as usize];
        let pus = &self.tenants[tenant as usize].pus;
        let &(group, pu) = chance.pick(pus).expect("a tenant has parallel units");
        let sector = chance.below(u64::from(device.geometry().clba)) as u32;
        let place = Place {
            group,
            pu,
            chunk: 0,
            sector,
        };
        submit(
            device,
            now,
            slot as u64,
            Op::Read,
            &[address(device, place)],
        );
    }
}

impl Writer {
    /// Issues the next write, or the reset before it. What then is next.
    fn issue(mut self, device: &mut Device, now: Time, tag: u64) -> Self {
        let (clba, size) = (device.geometry().clba, device.geometry().ws_min);
        if self.next.sector == clba {
            self.next.sector = 0;
            self.next.chunk += 1;
            if self.next.chunk == self.chunks.1 {
                self.next.chunk = self.chunks.0;
            }
        }
        if self.next.sector == 0 && !self.resetting {
            self.resetting = true;
            let chunk = address(device, self.next);
            submit(device, now, tag, Op::Reset, &[chunk]);
            return self;
        }
        self.resetting = false;
        write(device, now, tag, self.next);
        self.next.sector += size;
        self
    }
}

/// The write point of tenant `number` on a parallel unit: somewhere in its share of the chunks, so
/// that not all are at the same page type and not all reset at once.
fn writer(device: &Device, tenants: &[Tenant], number: u32, pu: (u32, u32)) -> Writer {
    let sharing = |tenant: &&Tenant| tenant.work == Work::Write && tenant.pus.contains(&pu);
    let writers = tenants.iter().filter(sharing).count() as u32;
    let rank = tenants[..number as usize].iter().filter(sharing).count() as u32;
    let share = (device.geometry().chunks - 1) / writers;
    assert!(share > 0, "fewer chunks than writers on a parallel unit");
    let first = 1 + rank * share;
    Writer {
        next: Place {
            group: pu.0,
            pu: pu.1,
            chunk: first,
            sector: 0,
        },
        chunks: (first, first + share),
        resetting: false,
    }
}

fn write(device: &mut Device, now: Time, tag: u64, place: Place) {
    let first = address(device, place);
    let mut unit = [0; MOST_ADDRESSES];
    let size = device.geometry().ws_min as usize;
    for (address, sector) in unit.iter_mut().zip(first..) {
        *address = sector;
    }
    submit(device, now, tag, Op::Write { metadata: &[] }, &unit[..size]);
}

fn submit(device: &mut Device, now: Time, tag: u64, op: Op<'_>, addresses: &[u64]) {
    let command = Command { tag, op, addresses };
    device
        .submit(now, command)
        .expect("a vector of legal length, and fewer of them than the device takes");
}

fn address(device: &Device, place: Place) -> u64 {
    let address = device.geometry().address(place);
    address.expect("tenants use parallel units of the device")
}
