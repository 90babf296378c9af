//! Flash that is only read, never changed: in a file, or on a real zoned device.

use std::rc::Rc;

use flashyard_flash::channel::{ChunkInfo, Geometry, Metadata};

use super::file_store::FileStore;
use super::reopen::{self, Found};
use crate::zoned::Sight;

/// See the module.
pub(super) enum Still {
    /// A file, and every chunk in the order of addresses.
    File(Rc<FileStore>, Vec<Found>),
    /// A zoned device.
    Zones(Rc<Sight>),
}

impl Still {
    pub fn geometry(&self) -> &Geometry {
        match self {
            Self::File(store, _) => store.image().geometry(),
            Self::Zones(sight) => sight.geometry(),
        }
    }

    /// Write vectors that may be in flight at once in one chunk, when it is used.
    pub fn writes_per_chunk(&self) -> u32 {
        match self {
            Self::File(..) => 2,
            Self::Zones(_) => 1,
        }
    }

    /// Every chunk, in the order of addresses.
    pub fn report(&self) -> Vec<ChunkInfo> {
        match self {
            Self::File(store, found) => {
                let info = |found: &Found| ChunkInfo {
                    address: reopen::address_of(store.image(), found.chunk),
                    state: found.state,
                    write_pointer: found.metadata.len() as u32,
                    wear_index: 0,
                    resets: found.kept.head.resets,
                    sequential: true,
                };
                found.iter().map(info).collect()
            }
            Self::Zones(sight) => sight.report(),
        }
    }

    /// What is stored beside a sector, and its data if there is room for them; nothing when it was
    /// not written, or cannot be read.
    pub async fn sector(&self, address: u64, page: Option<&mut [u8]>) -> Option<Metadata> {
        match self {
            Self::File(store, found) => {
                let image = store.image();
                let (chunk, sector) = image.chunk_of(address)?;
                let metadata = &found.get(chunk as usize)?.metadata;
                let metadata = metadata.get(sector as usize).copied()?;
                if let Some(page) = page {
                    let read = store.read(image.sector(chunk, sector), page).await;
                    read.ok().filter(|()| store.is_sound(chunk, sector, page))?;
                }
                Some(metadata)
            }
            Self::Zones(sight) => sight.read(address, page).await,
        }
    }
}
