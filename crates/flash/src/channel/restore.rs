//! Restores devices whose flash survived the program: chunks are put back into the state they had,
//! and geometries are read from what was stored of them.

use super::geometry::bits;
use super::{ChunkState, Device, Geometry, MOST_ADDRESSES, Metadata};

/// Sectors of a device at most, so that counts of its parts fit into 32 bits.
const MOST_SECTORS: u64 = u32::MAX as u64;

/// What has to be known of a device for its addresses and the rules of its chunks; in the terms of
/// [`Geometry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Groups.
    pub groups: u32,
    /// Parallel units of each group.
    pub pus: u32,
    /// Chunks of each parallel unit.
    pub chunks: u32,
    /// Sectors of each chunk.
    pub clba: u32,
    /// Sectors of the smallest write.
    pub ws_min: u32,
    /// Sectors of the best write.
    pub ws_opt: u32,
    /// Sectors that have to be written behind one before it can be read while the chunk is open.
    pub mw_cunits: u32,
    /// Chunks of a parallel unit that may be open at once; 0 for any number.
    pub open_chunks_per_pu: u32,
}

/// What is known of a chunk that was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptChunk {
    /// The address of its first sector.
    pub address: u64,
    /// Its state.
    pub state: ChunkState,
    /// Sectors programmed.
    pub write_pointer: u32,
    /// How often it was erased.
    pub resets: u32,
}

impl Shape {
    /// The shape of a geometry.
    pub fn of(geometry: &Geometry) -> Self {
        Self {
            groups: geometry.groups,
            pus: geometry.pus,
            chunks: geometry.chunks,
            clba: geometry.clba,
            ws_min: geometry.ws_min,
            ws_opt: geometry.ws_opt,
            mw_cunits: geometry.mw_cunits,
            open_chunks_per_pu: geometry.open_chunks_per_pu,
        }
    }

    /// The geometry of a device of this shape, whose open chunks can be reset and which tells
    /// nothing of its times; nothing when no device can be so.
    pub fn geometry(&self) -> Option<Geometry> {
        let sectors = [self.groups, self.pus, self.chunks, self.clba]
            .into_iter()
            .try_fold(1_u64, |all, part| all.checked_mul(u64::from(part)))?;
        let sound = (1..=MOST_SECTORS).contains(&sectors)
            && (1..=MOST_ADDRESSES as u32).contains(&self.ws_min)
            && self.ws_opt >= self.ws_min
            && self.ws_opt.is_multiple_of(self.ws_min)
            && self.clba.is_multiple_of(self.ws_min)
            && self.mw_cunits.is_multiple_of(self.ws_min)
            && self.mw_cunits < self.clba;
        let parts = [self.groups, self.pus, self.chunks, self.clba];
        sound.then(|| Geometry {
            groups: self.groups,
            pus: self.pus,
            chunks: self.chunks,
            clba: self.clba,
            ws_min: self.ws_min,
            ws_opt: self.ws_opt,
            mw_cunits: self.mw_cunits,
            open_chunks_per_pu: self.open_chunks_per_pu,
            reset_free: false,
            reset_open: true,
            read_ns: (0, 0),
            write_ns: (0, 0),
            reset_ns: (0, 0),
            reset_dilution: 1,
            bits: parts.map(|part| bits(u64::from(part))),
            paired: self.ws_opt / self.ws_min,
            cell: self.ws_min,
            program_ns: (0, 0),
        })
    }
}

impl Device {
    /// Puts a chunk of a device that was not used yet into the state it had; `metadata` is that of
    /// its programmed sectors. False, and nothing changed, when no chunk can be so.
    pub fn restore(&mut self, kept: &KeptChunk, metadata: &[Metadata]) -> bool {
        let place = self.geometry.place(kept.address);
        let Some(place) = place.filter(|place| place.sector == 0) else {
            return false;
        };
        let (pointer, clba) = (kept.write_pointer, self.geometry.clba);
        let fits = match kept.state {
            ChunkState::Free | ChunkState::Offline => pointer == 0,
            ChunkState::Open => (1..clba).contains(&pointer),
            ChunkState::Closed => pointer <= clba,
        };
        let whole = pointer.is_multiple_of(self.geometry.ws_min);
        if !fits || !whole || metadata.len() != pointer as usize {
            return false;
        }
        let number = self.geometry.chunk_number(place);
        let die = self.die_of(number as usize) as usize;
        let chunk = &mut self.chunks[number as usize];
        self.open[die] -= u32::from(chunk.state == ChunkState::Open);
        self.open[die] += u32::from(kept.state == ChunkState::Open);
        *chunk = super::Chunk::new(kept.state);
        chunk.resets = kept.resets;
        (chunk.next, chunk.acknowledged) = (pointer, pointer);
        chunk.programmed = pointer;
        if kept.state == ChunkState::Closed {
            // What is behind the end of a chunk that was cut off was destroyed, not erased.
            chunk.torn = clba;
        }
        self.metadata[number as usize] = None;
        for (sector, one) in (0..).zip(metadata) {
            self.put_metadata(number * clba + sector, *one);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use flashyard_time::Time;

    use super::*;
    use crate::Profile;
    use crate::channel::{Command, Completion, Op, Options, Status};

    fn device() -> Device {
        let profile = Profile::named("cnex").expect("it ships");
        Device::new(&profile, 1 << 30, 1, Options::default()).expect("it fits")
    }

    fn finish(device: &mut Device, op: Op<'_>, addresses: &[u64]) -> Completion {
        let command = Command {
            tag: 1,
            op,
            addresses,
        };
        device.submit(device.now(), command).expect("it is taken");
        let mut done = Vec::new();
        while done.is_empty() {
            let at = device.next_event().expect("it is in flight");
            device.advance(at, &mut done);
        }
        done[0]
    }

    #[test]
    fn a_chunk_is_what_it_was() {
        let mut device = device();
        let geometry = device.geometry().clone();
        let metadata: Vec<Metadata> = (0..32).map(|sector| [sector, 7]).collect();
        let kept = |address, state, write_pointer| KeptChunk {
            address,
            state,
            write_pointer,
            resets: 5,
        };
        let open = kept(0, ChunkState::Open, 32);
        let offline = kept(u64::from(geometry.clba), ChunkState::Offline, 0);
        let closed = kept(2 * u64::from(geometry.clba), ChunkState::Closed, 32);
        assert!(device.restore(&open, &metadata));
        assert!(device.restore(&offline, &[]));
        assert!(device.restore(&closed, &metadata));
        for kept in [open, offline, closed] {
            let info = device.chunk(kept.address).expect("it is there");
            let found = (info.state, info.write_pointer, info.resets);
            assert_eq!(found, (kept.state, kept.write_pointer, 5));
        }
        let read = finish(&mut device, Op::Read, &[closed.address + 31, 3]);
        assert_eq!(read.failed, 0);
        assert_eq!(device.metadata(&read), [[31, 7], [3, 7]]);
        let behind = finish(&mut device, Op::Read, &[closed.address + 32]);
        assert_eq!(behind.status, Status::Unreadable);
        let next: Vec<u64> = (32..48).collect();
        let written = finish(&mut device, Op::Write { metadata: &[] }, &next);
        assert_eq!(written.status, Status::Success);
        let reset = finish(&mut device, Op::Reset, &[closed.address]);
        assert_eq!(reset.status, Status::Success);
        assert_eq!(device.chunk(closed.address).map(|one| one.resets), Some(6));
        assert!(device.now() > Time::ZERO);
    }

    #[test]
    fn what_no_chunk_can_be_is_refused() {
        let mut device = device();
        let clba = device.geometry().clba;
        let kept = |address, state, write_pointer| KeptChunk {
            address,
            state,
            write_pointer,
            resets: 0,
        };
        for (kept, sectors) in [
            (kept(1, ChunkState::Free, 0), 0),
            (kept(1 << 60, ChunkState::Free, 0), 0),
            (kept(0, ChunkState::Free, 16), 16),
            (kept(0, ChunkState::Open, clba), clba),
            (kept(0, ChunkState::Open, 8), 8),
            (kept(0, ChunkState::Closed, clba + 16), clba + 16),
            (kept(0, ChunkState::Closed, 16), 15),
        ] {
            let metadata = vec![Metadata::default(); sectors as usize];
            assert!(!device.restore(&kept, &metadata), "{kept:?}");
        }
    }

    #[test]
    fn a_geometry_follows_from_its_shape() {
        let device = device();
        let shape = Shape::of(device.geometry());
        let geometry = shape.geometry().expect("a device has it");
        assert_eq!(Shape::of(&geometry), shape);
        assert_eq!(geometry.bits, device.geometry().bits);
        let last = device.report().last().expect("there are chunks").address;
        assert_eq!(geometry.place(last), device.geometry().place(last));
        let wrong = |change: fn(&mut Shape)| {
            let mut shape = shape;
            change(&mut shape);
            shape.geometry()
        };
        assert_eq!(wrong(|shape| shape.pus = 0), None);
        assert_eq!(wrong(|shape| shape.ws_min = 65), None);
        assert_eq!(wrong(|shape| shape.ws_opt = 17), None);
        assert_eq!(wrong(|shape| shape.clba = 100), None);
        assert_eq!(wrong(|shape| shape.mw_cunits = shape.clba), None);
        assert_eq!(wrong(|shape| shape.groups = u32::MAX), None);
        let units_of_one_sector = |groups| Shape {
            groups,
            pus: 1 << 16,
            chunks: 1,
            clba: 1,
            ws_min: 1,
            ws_opt: 1,
            mw_cunits: 0,
            open_chunks_per_pu: 0,
        };
        assert_eq!(units_of_one_sector(1 << 16).geometry(), None);
        let most = units_of_one_sector((1 << 16) - 1).geometry();
        assert_eq!(most.map(|one| one.total_pus()), Some(0xffff_0000));
    }
}
