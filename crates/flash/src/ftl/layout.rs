//! Where things are: lines, chunks and units of a partition, and their addresses on the device.
//!
//! A unit has a number: units of a chunk follow each other, then the chunks of a line (one of each
//! parallel unit), then the lines. Numbers of 32 bits are half the memory of addresses.

use alloc::vec::Vec;

use super::options::BuildError;
use super::stamp::{LINES_PER_PAGE, UNITS_PER_PAGE};
use crate::channel::{Geometry, MOST_ADDRESSES, Place};

/// Numbers from here on are not units: slots of the write buffer, and marks.
pub(super) const FIRST_SLOT: u32 = 0xE000_0000;
/// A logical unit without data: it reads as zeros.
pub(super) const NONE: u32 = u32::MAX;
/// A logical unit whose data the medium has lost.
pub(super) const LOST: u32 = u32::MAX - 1;

/// Whether a map entry is a slot of the write buffer.
pub(super) fn is_slot(entry: u32) -> bool {
    (FIRST_SLOT..LOST).contains(&entry)
}

/// Whether a map entry is a unit in flash.
pub(super) fn is_unit(entry: u32) -> bool {
    entry < FIRST_SLOT
}

/// Lines that are kept free beyond those of the next checkpoint: one for each writer to open, and
/// one being erased.
const SPARE_LINES: u32 = 3;

#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The address of the first sector of each parallel unit.
    bases: Vec<u64>,
    sector_bits: u32,
    /// Parallel units: chunks of a line.
    pub width: u32,
    pub lines: u32,
    /// Units of a chunk.
    pub chunk_units: u32,
    /// Units of a line all of whose chunks are good.
    pub line_units: u32,
    /// Units of one write vector, all into one chunk.
    pub grain: u32,
    /// Units that have to be written behind one before it is durable while its chunk is open.
    pub distance: u32,
    /// How long to wait for a chunk to close.
    pub write_ns: u64,
    /// Units shown to the host.
    pub logical: u32,
    /// Lines that one checkpoint needs at most.
    pub checkpoint_lines: u32,
}

impl Layout {
    /// The layout of `units`, groups and parallel units within them; nothing is shown to the host
    /// yet.
    pub fn new(geometry: &Geometry, units: &[(u32, u32)]) -> Result<Self, BuildError> {
        let width = u32::try_from(units.len()).map_err(|_| BuildError::Units)?;
        let bases: Option<Vec<u64>> = units.iter().map(|&unit| base(geometry, unit)).collect();
        let bases = bases.ok_or(BuildError::Units)?;
        let mut apart = bases.clone();
        apart.sort_unstable();
        apart.dedup();
        if bases.is_empty() || apart.len() != bases.len() {
            return Err(BuildError::Units);
        }
        let line_units = u64::from(width) * u64::from(geometry.clba);
        if line_units * u64::from(geometry.chunks) >= u64::from(FIRST_SLOT) {
            return Err(BuildError::TooLarge);
        }
        if !geometry.reset_open {
            return Err(BuildError::ResetOpen);
        }
        let mut layout = Self {
            bases,
            sector_bits: geometry.bits[3],
            width,
            lines: geometry.chunks,
            chunk_units: geometry.clba,
            line_units: line_units as u32,
            grain: grain(geometry),
            distance: geometry.mw_cunits,
            write_ns: geometry.write_ns.1,
            logical: 0,
            checkpoint_lines: 1,
        };
        layout.checkpoint_lines = layout
            .checkpoint_units(layout.lines * layout.line_units)
            .div_ceil(layout.line_units);
        Ok(layout)
    }

    /// Says how much is shown of `good` units, with so many thousandths of it beyond.
    pub fn size(&mut self, good: u32, over_provisioning: u32) -> Result<(), BuildError> {
        let own = (self.checkpoint_lines + self.keep()) * self.line_units;
        let data = u64::from(good.saturating_sub(own));
        let logical = data * 1000 / (1000 + u64::from(over_provisioning));
        if data < 2 * u64::from(self.line_units) {
            let least_chunks = self.checkpoint_lines + self.keep() + 2;
            return Err(BuildError::TooSmall { least_chunks });
        }
        self.logical = logical as u32;
        Ok(())
    }

    /// Lines that garbage collection keeps free.
    pub fn keep(&self) -> u32 {
        self.checkpoint_lines + SPARE_LINES
    }

    /// Free lines that the host's data leave to checkpoints and what is moved.
    pub fn host_reserve(&self) -> u32 {
        self.checkpoint_lines + 1
    }

    pub fn chunks(&self) -> u32 {
        self.lines * self.width
    }

    pub fn units(&self) -> u32 {
        self.lines * self.line_units
    }

    /// Pages of the map.
    pub fn map_pages(&self) -> u32 {
        self.logical.div_ceil(UNITS_PER_PAGE)
    }

    /// Pages of a checkpoint but its root.
    pub fn pages(&self) -> u32 {
        self.map_pages() + self.lines.div_ceil(LINES_PER_PAGE)
    }

    /// Units that a checkpoint of so many logical units takes, padding included: all pages twice,
    /// twice the root.
    pub fn checkpoint_units(&self, logical: u32) -> u32 {
        let pages = logical.div_ceil(UNITS_PER_PAGE) + self.lines.div_ceil(LINES_PER_PAGE);
        2 * pages + 2 * self.width * (self.distance + self.grain) + 4 * self.grain
    }

    pub fn line_of(&self, unit: u32) -> u32 {
        unit / self.line_units
    }

    pub fn chunk_of(&self, unit: u32) -> u32 {
        unit / self.chunk_units
    }

    /// The number of the unit at `sector` of a chunk.
    pub fn unit(&self, chunk: u32, sector: u32) -> u32 {
        chunk * self.chunk_units + sector
    }

    /// The sector of a unit within its chunk.
    pub fn sector(&self, unit: u32) -> u32 {
        unit % self.chunk_units
    }

    /// Where a unit is on the device.
    pub fn address(&self, unit: u32) -> u64 {
        let (chunk, sector) = (unit / self.chunk_units, unit % self.chunk_units);
        let line = u64::from(chunk / self.width);
        self.bases[(chunk % self.width) as usize] + (line << self.sector_bits) + u64::from(sector)
    }

    /// The chunk that begins at `address`; nothing when it belongs to another owner.
    pub fn chunk_at(&self, geometry: &Geometry, address: u64) -> Option<u32> {
        let place = geometry.place(address)?;
        let first = base(geometry, (place.group, place.pu))?;
        let unit = self.bases.iter().position(|base| *base == first)? as u32;
        Some(place.chunk * self.width + unit)
    }
}

/// The first address of a parallel unit.
fn base(geometry: &Geometry, (group, pu): (u32, u32)) -> Option<u64> {
    geometry.address(Place {
        group,
        pu,
        chunk: 0,
        sector: 0,
    })
}

/// The best write that fits into one vector.
fn grain(geometry: &Geometry) -> u32 {
    let fits =
        geometry.ws_opt <= MOST_ADDRESSES as u32 && geometry.clba.is_multiple_of(geometry.ws_opt);
    if fits {
        geometry.ws_opt
    } else {
        geometry.ws_min
    }
}
