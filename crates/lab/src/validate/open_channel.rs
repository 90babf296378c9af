//! Test 12: an open-channel drive, as it was measured for LightNVM and profiled for FEMU.

use flashyard_time::{Duration, Histogram, Rng, Time};

use super::bench::{Bench, shipped};
use super::row::Row;
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{Command, Device, MOST_ADDRESSES, Op, Options, Place};

/// Test 12.
pub(super) fn cnex(bench: &Bench) -> Vec<Row> {
    // Long for the slow programs of a few units, short enough that all of them do not fill the
    // device.
    let span = Duration::from_ms(if bench.full { 500 } else { 100 });
    let rate = |pus| Writers::new(bench, pus).rate(span);
    let mut filled = Writers::new(bench, 128);
    filled.fill_a_chunk();
    let reads = read_one_by_one(&mut filled.device, bench.short);
    vec![
        Row::near("CNEX: idle 4 KiB read, us", 76.0, reads, 0.05)
            .note("the study gives about 76 us; LightNVM measured 56 MB/s at depth 1, 73 us"),
        Row::near("CNEX: writes to 128 units, B/s", 4.2e9, rate(128), 0.05)
            .note("channels of 280 MB/s move at most 4.48 GB/s"),
        Row::near("CNEX: writes to 4 units, B/s", 144e6, rate(4), 0.05),
    ]
}

/// A device, and parallel units of it that are written with one program in flight on each.
struct Writers {
    device: Device,
    /// Of each unit that is written, the programs begun.
    begun: Vec<u32>,
}

impl Writers {
    /// Writers to `pus` units, on as many channels as can be.
    fn new(bench: &Bench, pus: usize) -> Self {
        let device = Device::new(&shipped("cnex"), bench.capacity, 1, Options::default())
            .expect("the capacity suits the profile");
        Self {
            device,
            begun: vec![0; pus],
        }
    }

    /// Bytes per second over `span`, after as long again.
    fn rate(&mut self, span: Duration) -> f64 {
        let begin = self.device.now();
        let bytes = u64::from(self.device.geometry().ws_min) * UNIT_BYTES;
        let programs = self.write(u32::MAX, begin + span, begin + span + span);
        (programs * bytes) as f64 / span.as_secs_f64()
    }

    /// Writes the first chunk of every unit.
    fn fill_a_chunk(&mut self) {
        let geometry = self.device.geometry();
        let programs = geometry.clba / geometry.ws_min;
        self.write(programs, Time::ZERO, Time::MAX);
    }

    /// Writes up to `most` programs of each unit until `end`. Returns how many were complete
    /// after `begin`.
    fn write(&mut self, most: u32, begin: Time, end: Time) -> u64 {
        for unit in 0..self.begun.len() {
            self.begin(unit);
        }
        let (mut done, mut counted) = (Vec::new(), 0);
        while let Some(next) = self.device.next_event().filter(|next| *next <= end) {
            self.device.advance(next, &mut done);
            for completion in done.drain(..) {
                assert_eq!(completion.failed, 0, "nothing fails by chance here");
                counted += u64::from(completion.at > begin);
                let unit = completion.tag as usize;
                if self.begun[unit] < most {
                    self.begin(unit);
                }
            }
        }
        counted
    }

    fn begin(&mut self, unit: usize) {
        let geometry = self.device.geometry();
        let sector = self.begun[unit] * geometry.ws_min;
        let mut addresses = [0; MOST_ADDRESSES];
        let addresses = &mut addresses[..geometry.ws_min as usize];
        for (offset, address) in (0..).zip(addresses.iter_mut()) {
            let place = Place {
                group: unit as u32 % geometry.groups,
                pu: unit as u32 / geometry.groups,
                chunk: sector / geometry.clba,
                sector: sector % geometry.clba + offset,
            };
            *address = geometry
                .address(place)
                .expect("the span is too short to fill the device");
        }
        self.begun[unit] += 1;
        let command = Command {
            tag: unit as u64,
            op: Op::Write { metadata: &[] },
            addresses,
        };
        let now = self.device.now();
        self.device
            .submit(now, command)
            .expect("there is one for each unit");
    }
}

/// Mean microseconds of reads of one sector at random in the first chunk of a unit at random, one
/// after another.
fn read_one_by_one(device: &mut Device, span: Duration) -> f64 {
    let end = device.now() + span;
    let geometry = device.geometry().clone();
    let (mut chance, mut latencies) = (Rng::new(5), Histogram::new());
    let mut done = Vec::new();
    while device.now() < end {
        let mut below = |bound| chance.below(u64::from(bound)) as u32;
        let place = Place {
            group: below(geometry.groups),
            pu: below(geometry.pus),
            chunk: 0,
            sector: below(geometry.clba),
        };
        let address = geometry.address(place).expect("it lies on the device");
        let begin = device.now();
        let command = Command {
            tag: 0,
            op: Op::Read,
            addresses: &[address],
        };
        device.submit(begin, command).expect("it is the only one");
        while let Some(next) = device.next_event() {
            device.advance(next, &mut done);
        }
        for completion in done.drain(..) {
            assert_eq!(completion.failed, 0, "the chunk was written");
            latencies.record(completion.at.since(begin).as_ns());
        }
    }
    latencies.mean() as f64 / 1e3
}
