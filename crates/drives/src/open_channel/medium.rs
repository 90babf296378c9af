//! The part of an open-channel device that survives a power cut: the state of its flash, and the
//! data in it.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use flashyard_block::{FileDevice, IoError, Sparse};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{self, Geometry, Place};
use flashyard_runtime::Rt;

use super::error::PartitionError;
use super::file_store::FileStore;
use super::image::Image;
use super::reopen;

/// Bytes of a sector.
pub(super) const SECTOR: usize = UNIT_BYTES as usize;

/// The flash of an open-channel device with its content: in memory, which is taken when sectors are
/// first written and given back when their chunk is reset, or in a file.
pub struct Medium {
    pub(super) device: channel::Device,
    pub(super) store: Store,
}

/// Where the content is.
pub(super) enum Store {
    Memory(Content),
    File(Rc<FileStore>),
}

impl Medium {
    /// A device on which nothing was written through this type, in memory.
    pub fn new(device: channel::Device) -> Self {
        Self {
            device,
            store: Store::Memory(Content {
                bytes: Sparse::with_extents(SECTOR),
                lost: BTreeSet::new(),
            }),
        }
    }

    /// A device in a file with blocks of 4096 bytes, of which there are [`Medium::file_bytes`].
    /// `device` is as it comes from the factory, and gets into the state that the file tells of. An
    /// empty file becomes that of this device, called `uuid`, if there is one to call it; one that
    /// holds anything else is refused.
    pub async fn in_file(
        rt: &Rt,
        mut device: channel::Device,
        file: FileDevice,
        uuid: Option<[u8; 16]>,
    ) -> Result<Self, PartitionError> {
        let store = reopen::open(rt, file, &mut device, uuid).await?;
        Ok(Self {
            device,
            store: Store::File(Rc::new(store)),
        })
    }

    /// Bytes of the file that holds such a device.
    pub fn file_bytes(device: &channel::Device) -> u64 {
        let image = Image::new([0; 16], device.geometry().clone());
        image.pieces() * UNIT_BYTES
    }

    /// Writes down what the next to open a file would have to find out. Without it nothing is lost
    /// but time.
    pub(super) async fn settle(&self, rt: &Rt) {
        if let Store::File(store) = &self.store {
            // A file that has failed is found as it is.
            let _ = reopen::settle(rt, store).await;
        }
    }

    /// The file that it is in.
    pub(super) fn file(&self) -> Option<&Rc<FileStore>> {
        match &self.store {
            Store::File(file) => Some(file),
            Store::Memory(_) => None,
        }
    }

    /// Whether it is kept when the program ends.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.store, Store::File(_))
    }

    /// Bytes of memory that the content takes.
    pub(super) fn allocated(&self) -> u64 {
        match &self.store {
            Store::Memory(content) => content.bytes.allocated(),
            Store::File(_) => 0,
        }
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Medium");
        shown.field("device", &self.device);
        shown.field("is_kept", &self.is_kept());
        shown.finish_non_exhaustive()
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

    /// Stores the sector at `address`. [`IoError::NoSpace`] when memory has run out: it is lost
    /// until it is erased.
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
