//! What of an open-channel device outlives a power cut: the state of its flash, and what is in it.

use std::collections::BTreeSet;

use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{self, Geometry, Place};

use crate::IoError;
use crate::sparse::Sparse;

/// Bytes of a sector.
pub(super) const SECTOR: usize = UNIT_BYTES as usize;

/// The flash of an open-channel device with its content, which is kept in memory: taken when sectors are first written,
/// given back when their chunk is reset.
#[derive(Debug)]
pub struct Medium {
    pub(super) device: channel::Device,
    content: Content,
}

impl Medium {
    /// A device on which nothing was written through this type.
    pub fn new(device: channel::Device) -> Self {
        Self {
            device,
            content: Content {
                bytes: Sparse::with_extents(SECTOR),
                lost: BTreeSet::new(),
            },
        }
    }

    /// Device and content apart.
    pub(super) fn split(&mut self) -> (&mut channel::Device, &mut Content) {
        (&mut self.device, &mut self.content)
    }

    /// Bytes of memory that the content takes.
    pub(super) fn allocated(&self) -> u64 {
        self.content.bytes.allocated()
    }
}

/// What is in each sector, by its address.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Sparse,
    /// Sectors that there was no memory for when they were written.
    lost: BTreeSet<u64>,
}

impl Content {
    /// Fills `target` with the sector at `address`; false when that is lost.
    pub fn read(&self, address: u64, target: &mut [u8]) -> bool {
        self.bytes.read(address * UNIT_BYTES, target);
        !self.lost.contains(&address)
    }

    /// Stores the sector at `address`. [`IoError::NoSpace`] when memory has run out: it is lost until it is erased.
    pub fn write(&mut self, address: u64, source: &[u8]) -> Result<(), IoError> {
        let written = self.bytes.write(address * UNIT_BYTES, source);
        if written.is_err() {
            self.lost.insert(address);
        }
        written
    }

    /// Forgets the chunk that begins at `address`.
    pub fn forget(&mut self, address: u64, geometry: &Geometry) {
        let len = u64::from(geometry.clba) * UNIT_BYTES;
        self.bytes.zero(address * UNIT_BYTES, len, true);
        let chunk = address..address + u64::from(geometry.clba);
        self.lost.retain(|lost| !chunk.contains(lost));
    }
}

/// The first address of a chunk of a parallel unit that the device has.
pub(super) fn chunk_address(geometry: &Geometry, (group, pu): (u32, u32), chunk: u32) -> u64 {
    let place = Place {
        group,
        pu,
        chunk,
        sector: 0,
    };
    geometry
        .address(place)
        .expect("units and chunks are those of the device")
}
