//! The keys of an encrypted pool's volumes, each wrapped by the key of the pool. They are the only
//! thing of a pool that is overwritten in place, so that a key can be forgotten: what is deleted
//! cannot be read by anybody who has the device, whatever of its data is still there.
//!
//! They are kept twice, far from each other, a sector of 512 bytes for each, little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 4 | magic |
//! | 4 | 4 | version |
//! | 8 | 4 | lineage of the volume |
//! | 12 | 4 | zero |
//! | 16 | 16 | UUID of the pool |
//! | 32 | 92 | the key, wrapped |
//! | 124 | 4 | CRC32C of all before it |
//! | 128 | 384 | zero |
//!
//! A key is durable at both places before its volume is, and is overwritten when the deletion of
//! the volume is durable. So a key without a volume is one that was not to stay: opening the pool
//! overwrites it. One place is flushed before the other is written.

use std::cell::RefCell;
use std::collections::BTreeSet;

use flashyard_checksum::Crc32c;
use flashyard_codec::cipher::{Cipher, Key, Unit};
use flashyard_keys::{KeyError, WRAPPED_BYTES, Wrapped, WrappingKey, draw};
use flashyard_logstore::Lineage;
use flashyard_logstore::format::{BLOCK, SECTOR};
use flashyard_runtime::Buf;

use super::key_header::{flush, read_blocks, write_blocks};
use super::layout::{KEY_BLOCKS, KEY_HEADERS, KEYS};
use crate::pool::error::{PoolError, device_error};
use crate::superblock::{Raw, Reads};
use crate::{Device, IoError, SharedDevice};

const MAGIC: [u8; 4] = *b"FYVK";
const VERSION: u32 = 1;
const WRAPPED_AT: usize = 32;
const CHECKSUM_AT: usize = WRAPPED_AT + WRAPPED_BYTES;
/// What a key belongs to, with the UUID of the pool and the lineage.
const BELONGS_TO: &[u8] = b"flashyard volume ";
/// Keys of a block.
const PER_BLOCK: usize = BLOCK / SECTOR;
/// Places for keys.
const PLACES: usize = KEY_BLOCKS * PER_BLOCK;

/// See the module.
pub(super) struct Keys {
    device: SharedDevice,
    uuid: [u8; 16],
    /// Nothing for who looks at a pool without its key.
    with: Option<WrappingKey>,
    places: RefCell<Vec<Option<Kept>>>,
}

/// A key as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub lineage: Lineage,
    pub wrapped: Wrapped,
}

/// What there was to be put right when a pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Places that differed or were damaged.
    pub repaired: usize,
    /// Keys of volumes that are not there.
    pub erased: usize,
    /// Volumes of which no copy of the key is good.
    pub lost: Vec<Lineage>,
}

impl Kept {
    pub fn encode(&self, uuid: [u8; 16], sector: &mut [u8]) {
        sector.fill(0);
        sector[..4].copy_from_slice(&MAGIC);
        sector[4..8].copy_from_slice(&VERSION.to_le_bytes());
        sector[8..12].copy_from_slice(&self.lineage.0.to_le_bytes());
        sector[16..32].copy_from_slice(&uuid);
        sector[WRAPPED_AT..CHECKSUM_AT].copy_from_slice(self.wrapped.bytes());
        let sum = Crc32c::of(&sector[..CHECKSUM_AT]);
        sector[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Nothing when no program writes such a sector. Bears any bytes.
    pub fn decode(uuid: [u8; 16], sector: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = sector.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let wrapped = sector.get(WRAPPED_AT..CHECKSUM_AT)?;
        let kept = Self {
            lineage: Lineage(number(8)?),
            wrapped: Wrapped::from_bytes(wrapped.try_into().ok()?),
        };
        let mut same = [0; SECTOR];
        kept.encode(uuid, &mut same);
        (same == sector).then_some(kept)
    }
}

impl Keys {
    /// Of a new pool, whose device has none.
    pub fn new(device: SharedDevice, uuid: [u8; 16], key: &Key) -> Result<Self, KeyError> {
        Ok(Self {
            device,
            uuid,
            with: Some(WrappingKey::of(key)?),
            places: RefCell::new(vec![None; PLACES]),
        })
    }

    /// Of a pool that is opened and has these volumes. Both places become what they have to be.
    pub async fn open(
        device: SharedDevice,
        uuid: [u8; 16],
        key: Option<&Key>,
        volumes: &BTreeSet<Lineage>,
    ) -> Result<(Self, Settled), PoolError> {
        let with = key.map(WrappingKey::of).transpose();
        let copies = [
            read_blocks(&*device, KEYS[0], KEY_BLOCKS).await?,
            read_blocks(&*device, KEYS[1], KEY_BLOCKS).await?,
        ];
        let mut found = vec![None; PLACES];
        let mut settled = Settled::default();
        let mut missing = volumes.clone();
        // Blocks with a place of which as many tell one key as another.
        let mut tied = BTreeSet::new();
        for (place, found) in found.iter_mut().enumerate() {
            let read = sectors(&copies, place).concat().into_iter().flatten();
            let kept: Vec<Kept> = read.filter_map(|it| Kept::decode(uuid, it)).collect();
            let known = |kept: &Kept| volumes.contains(&kept.lineage);
            settled.erased += usize::from(!kept.iter().all(known));
            let (chosen, is_tied) = most_told(kept.into_iter().filter(known));
            if is_tied {
                tied.insert(place / PER_BLOCK);
            }
            *found = chosen;
            if let Some(kept) = found {
                missing.remove(&kept.lineage);
            }
        }
        settled.lost = missing.into_iter().collect();
        let keys = Self {
            device,
            uuid,
            with: with.map_err(PoolError::Key)?,
            places: RefCell::new(found),
        };
        let mut changed = [BTreeSet::new(), BTreeSet::new()];
        for place in 0..PLACES {
            let wanted = keys.sector(place);
            let is_wanted = |sector: Option<&[u8]>| sector == Some(&wanted[..]);
            let differs = sectors(&copies, place).map(|read| !read.into_iter().all(is_wanted));
            // What is damaged may be what is missing.
            let is_unclear = wanted == [0; SECTOR]
                && !settled.lost.is_empty()
                && sectors(&copies, place)
                    .concat()
                    .into_iter()
                    .flatten()
                    .all(|sector| Kept::decode(uuid, sector).is_none());
            // Which key is the right one cannot be told, so none of them is overwritten.
            let is_unclear = is_unclear || tied.contains(&(place / PER_BLOCK));
            if is_unclear || differs == [false; 2] {
                continue;
            }
            settled.repaired += 1;
            for (blocks, _) in changed
                .iter_mut()
                .zip(differs)
                .filter(|(_, differs)| *differs)
            {
                blocks.insert(place / PER_BLOCK);
            }
        }
        settled.repaired = settled.repaired.saturating_sub(settled.erased);
        for (copy, blocks) in changed.iter().enumerate() {
            keys.write(copy, blocks).await?;
        }
        Ok((keys, settled))
    }

    /// Gives new volumes keys by chance, durably.
    pub async fn add(&self, volumes: &[Lineage]) -> Result<(), PoolError> {
        let with = self.with.as_ref().ok_or(PoolError::Locked)?;
        let mut changed = BTreeSet::new();
        for &lineage in volumes {
            let key = draw().map_err(PoolError::Key)?;
            let wrapped = with.wrap(&key, &self.belongs_to(lineage));
            let wrapped = wrapped.map_err(PoolError::Key)?;
            // One that was not made after all has left its place.
            let place = self.place_of(Some(lineage)).or_else(|| self.place_of(None));
            let place = place.ok_or(PoolError::TooManyVolumes)?;
            self.places.borrow_mut()[place] = Some(Kept { lineage, wrapped });
            changed.insert(place / PER_BLOCK);
        }
        self.write_both(&changed).await
    }

    /// Forgets the key of a volume, durably.
    pub async fn erase(&self, volume: Lineage) -> Result<(), PoolError> {
        let Some(place) = self.place_of(Some(volume)) else {
            return Ok(());
        };
        self.places.borrow_mut()[place] = None;
        self.write_both(&BTreeSet::from([place / PER_BLOCK])).await
    }

    /// What encrypts a volume. Nothing when its key is not there, or is that of another pool.
    pub fn cipher(&self, volume: Lineage) -> Option<Cipher> {
        let place = self.place_of(Some(volume))?;
        let kept = self.places.borrow()[place].clone()?;
        let with = self.with.as_ref()?;
        let key = with.unwrap(&kept.wrapped, &self.belongs_to(volume)).ok()?;
        Cipher::new(&key, Unit::Page).ok()
    }

    fn place_of(&self, volume: Option<Lineage>) -> Option<usize> {
        let places = self.places.borrow();
        let mut lineages = places.iter().map(|kept| Some(kept.as_ref()?.lineage));
        lineages.position(|lineage| lineage == volume)
    }

    fn belongs_to(&self, volume: Lineage) -> Vec<u8> {
        [BELONGS_TO, &self.uuid, &volume.0.to_le_bytes()].concat()
    }

    /// What is to be at a place.
    fn sector(&self, place: usize) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        if let Some(kept) = &self.places.borrow()[place] {
            kept.encode(self.uuid, &mut sector);
        }
        sector
    }

    async fn write_both(&self, blocks: &BTreeSet<usize>) -> Result<(), PoolError> {
        self.write(0, blocks).await?;
        self.write(1, blocks).await
    }

    /// Writes blocks of one copy, durably.
    async fn write(&self, copy: usize, blocks: &BTreeSet<usize>) -> Result<(), PoolError> {
        for &block in blocks {
            let mut data = take(BLOCK)?;
            let places = block * PER_BLOCK..;
            for (place, sector) in places.zip(data.chunks_exact_mut(SECTOR)) {
                sector.copy_from_slice(&self.sector(place));
            }
            write_blocks(&*self.device, KEYS[copy] + block as u64, data).await?;
        }
        match blocks.is_empty() {
            true => Ok(()),
            false => flush(&*self.device).await,
        }
    }
}

/// What most of those tell that can be read: one that has lost a write tells an older key. Whether
/// others are told as often.
fn most_told(kept: impl Iterator<Item = Kept>) -> (Option<Kept>, bool) {
    let mut told: Vec<(Kept, usize)> = Vec::new();
    for kept in kept {
        match told.iter_mut().find(|(known, _)| *known == kept) {
            Some((_, times)) => *times += 1,
            None => told.push((kept, 1)),
        }
    }
    let most = told.iter().map(|(_, times)| *times).max();
    let mut first = told.into_iter().filter(|(_, times)| Some(*times) == most);
    let chosen = first.next().map(|(kept, _)| kept);
    (chosen, first.next().is_some())
}

/// Forgets all keys of a device, durably: zeroes are written over them and the header.
pub(super) async fn erase_all(device: &dyn Device) -> Result<(), PoolError> {
    for first in KEY_HEADERS {
        let mut zeroes = take((KEY_BLOCKS + 1) * BLOCK)?;
        zeroes.fill(0);
        write_blocks(device, first, zeroes).await?;
        flush(device).await?;
    }
    Ok(())
}

/// What each device holds of both copies at a place; nothing where it cannot be read.
fn sectors(copies: &[Reads<Vec<u8>>; 2], place: usize) -> [Vec<Option<&[u8]>>; 2] {
    let of_copy = |reads: usize| copies[reads].iter().map(|read| sector(read, place));
    [0, 1].map(|copy| of_copy(copy).collect())
}

/// A place of a copy; nothing where it cannot be read.
fn sector(copy: &Raw<Vec<u8>>, place: usize) -> Option<&[u8]> {
    const BLANK: &[u8] = &[0; SECTOR];
    match copy {
        Raw::Blank => Some(BLANK),
        Raw::Unreadable => None,
        Raw::Bytes(bytes) => bytes.get(place * SECTOR..(place + 1) * SECTOR),
    }
}

fn take(len: usize) -> Result<Buf, PoolError> {
    let buf = Buf::take(len).ok_or(IoError::Busy);
    buf.map_err(device_error("writing the pool's keys"))
}

const _: () = assert!(PLACES >= flashyard_logstore::MOST_VOLUMES);
const _: () = assert!(KEY_HEADERS[0] + 1 == KEYS[0] && KEY_HEADERS[1] + 1 == KEYS[1]);

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(byte: u8) -> Kept {
        Kept {
            lineage: Lineage(1),
            wrapped: Wrapped::from_bytes([byte; WRAPPED_BYTES]),
        }
    }

    #[test]
    fn what_most_tell_counts_and_a_tie_is_told() {
        let cases: [(&[u8], Option<u8>, bool); 6] = [
            (&[], None, false),
            (&[1], Some(1), false),
            (&[1, 2, 2], Some(2), false),
            (&[2, 1, 2, 2], Some(2), false),
            (&[1, 2, 2, 1], Some(1), true),
            (&[3, 1, 2, 2], Some(2), false),
        ];
        for (told, chosen, is_tied) in cases {
            let found = most_told(told.iter().map(|&byte| kept(byte)));
            assert_eq!(found, (chosen.map(kept), is_tied), "{told:?}");
        }
    }
}
