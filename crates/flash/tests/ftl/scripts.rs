//! One behaviour each.

use flashyard_flash::channel::{self, ChunkState, Fault};
use flashyard_flash::ftl::{Op, Options, Outcome, State};
use flashyard_time::Rng;

use crate::owner::Owner;

fn owner() -> Owner {
    Owner::on(
        "dct983",
        24,
        1,
        channel::Options::default(),
        Options::default(),
    )
}

#[test]
fn what_is_written_is_read() {
    let mut owner = owner();
    assert_eq!(owner.ftl.state(), State::Ready);
    assert_eq!(owner.read(7), Some(0));
    owner.submit(Op::Write { durable: false }, 5, 100, 1000);
    owner.settle();
    assert_eq!(owner.read_many(4, 3), [Some(0), Some(1000), Some(1001)]);
    owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    assert_eq!(owner.read(104), Some(1099));
    owner.submit(Op::Deallocate, 50, 10, 0);
    owner.settle();
    assert_eq!(owner.read_many(49, 3), [Some(1044), Some(0), Some(0)]);
    owner.ftl.check().expect("the map is sound");
    assert!(
        owner
            .done
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::Success)
    );
}

#[test]
fn a_flushed_write_survives_a_cut() {
    for name in ["dct983", "cnex", "970pro"] {
        let mut owner = Owner::on(name, 24, 1, channel::Options::default(), Options::default());
        owner.submit(Op::Write { durable: true }, 5, 3, 1000);
        owner.settle();
        assert_eq!(owner.done.len(), 1, "{name}");
        owner.cut();
        owner.recover();
        assert_eq!(owner.ftl.state(), State::Ready, "{name}");
        assert_eq!(owner.read_many(4, 3), [Some(0), Some(1000), Some(1001)]);
    }
}

/// What a flush and a durable write make of a vector that is not full.
#[test]
fn a_flush_pads_what_is_not_full_and_nothing_else() {
    let grain = 12;
    let mut owner = owner();
    let padding = |owner: &Owner| owner.ftl.stats().padding_units;
    let written = |owner: &Owner| owner.ftl.stats().written_units;
    let (padded, before) = (padding(&owner), written(&owner));
    owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    assert_eq!(written(&owner), before, "nothing was there to be flushed");
    owner.submit(Op::Write { durable: false }, 0, 5, 100);
    owner.settle();
    assert_eq!(written(&owner), before, "it waits for more");
    owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    assert_eq!(padding(&owner) - padded, grain - 5);
    owner.submit(Op::Write { durable: true }, 0, 1, 200);
    owner.settle();
    assert_eq!(padding(&owner) - padded, grain - 5 + grain - 1);
    owner.submit(Op::Write { durable: true }, 0, grain as u32, 300);
    owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    assert_eq!(padding(&owner) - padded, grain - 5 + grain - 1);
    assert_eq!(written(&owner) - before, 3 * grain);
    assert!(owner.done.iter().all(|(_, end)| *end == Outcome::Success));
}

/// A chunk that a failed program closes keeps what it holds, the rest goes elsewhere, and it is
/// collected soon.
#[test]
fn a_chunk_closed_early_loses_nothing_and_is_used_again() {
    for name in ["dct983", "cnex"] {
        let mut owner = Owner::on(name, 24, 1, channel::Options::default(), Options::default());
        let capacity = owner.ftl.capacity();
        let write = |owner: &mut Owner, first, version| {
            owner.submit(Op::Write { durable: false }, first, 16, version);
            owner.settle();
        };
        // Where a chunk is being written: behind what was written last.
        write(&mut owner, 0, 1000);
        owner.submit(Op::Flush, 0, 0, 0);
        owner.settle();
        let last = owner.ftl.locate(15).expect("it is durable");
        let pointer = owner.device.chunk(last).expect("it is there");
        let next = pointer.address + u64::from(pointer.write_pointer);
        assert!(owner.device.inject(Fault::Write(next)));
        for first in (16..capacity / 2).step_by(16) {
            write(&mut owner, first, 1000 + first);
        }
        let stats = owner.ftl.stats();
        assert_eq!(stats.failed_writes, 1, "{name}");
        let closed = owner.device.chunk(last).expect("it is there");
        assert_eq!(closed.state, ChunkState::Closed, "{name}");
        assert!(
            closed.write_pointer < owner.device.geometry().clba,
            "{name}"
        );
        let all = |owner: &mut Owner, until: u64| {
            for unit in 0..until {
                assert_eq!(owner.read(unit), Some(1000 + unit), "{name}: unit {unit}");
            }
        };
        owner.submit(Op::Flush, 0, 0, 0);
        owner.settle();
        all(&mut owner, capacity / 2 / 16 * 16);
        owner.cut();
        owner.recover();
        all(&mut owner, capacity / 2 / 16 * 16);
        let resets = owner.device.chunk(last).expect("it is there").resets;
        let mut chance = Rng::new(1);
        for _ in 0..capacity / 4 {
            let first = chance.below(capacity / 16 - 1) * 16;
            write(&mut owner, first, 1000 + first);
        }
        let again = owner.device.chunk(last).expect("it is there");
        assert!(again.resets > resets, "{name}: it was never collected");
    }
}

/// After a clean stop recovery reads a sector of each chunk, the checkpoint's line and each page
/// once; no data.
#[test]
fn a_recovery_after_a_stop_reads_only_what_it_needs() {
    for name in ["dct983", "cnex"] {
        let mut owner = Owner::on(name, 24, 1, channel::Options::default(), Options::default());
        let capacity = owner.ftl.capacity();
        for first in (0..3 * capacity).step_by(16) {
            let first = first % (capacity - 16);
            owner.submit(Op::Write { durable: false }, first, 16, 1000);
            owner.settle();
        }
        owner.submit(Op::Stop, 0, 0, 0);
        owner.settle();
        owner.restart();
        owner.recover();
        let stopped = owner.ftl.recovery().expect("it was recovered");
        let geometry = owner.device.geometry().clone();
        let chunks = u64::from(geometry.total_pus() * geometry.chunks);
        let line = u64::from(geometry.total_pus() * geometry.clba);
        let (pages, roots) = (capacity / 1020 + 2, 2);
        // The host's line and that of what is moved were open: their data are looked through.
        assert!(stopped.scanned_sectors <= 2 * line, "{name}: {stopped:?}");
        let needed = chunks + line + pages + roots + stopped.scanned_sectors;
        assert!(stopped.read_sectors <= needed, "{name}: {stopped:?}");
        assert_eq!(stopped.unreadable_sectors, 0, "{name}");
        owner.settle();
        // Without a stop there is more to read.
        for first in (0..capacity / 8).step_by(16) {
            owner.submit(Op::Write { durable: false }, first, 16, 1000);
            owner.settle();
        }
        owner.cut();
        owner.recover();
        let cut = owner.ftl.recovery().expect("it was recovered");
        assert!(cut.scanned_sectors > capacity / 10, "{name}: {cut:?}");
        assert!(
            cut.scanned_sectors < capacity / 2 + 4 * line,
            "{name}: {cut:?}"
        );
    }
}
