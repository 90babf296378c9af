//! The two copies of the metadata on a device.
//!
//! A change is written to the copy that is not the newest, flushed, and then to the other one,
//! flushed again. So a power cut at any write leaves at least one copy whole, with the state before
//! or after the change; and between changes both copies are equal, so that losing one of them loses
//! nothing.

use flashyard_runtime::{Buf, Data};

use super::PoolError;
use super::codec::{Decoded, MAGIC, decode, encode};
use super::error::device_error;
use super::foreign::{LOOKED_AT, recognise};
use super::metadata::{COPY_BYTES, Metadata};
use crate::{Device, IoError, Tag};

/// Metadata is written in whole pieces of this size, in bytes: no disk has larger sectors.
const PIECE: usize = 4096;

/// What was found at the places of the two copies.
pub(super) struct Found {
    pub(super) copies: [Decoded; 2],
    foreign: Option<&'static str>,
}

/// The state that counts.
#[derive(Debug)]
pub(super) struct Newest {
    pub(super) metadata: Metadata,
    /// Which copy it is from.
    pub(super) copy: usize,
    /// The other copy is damaged or gone, so it may have held a later state.
    pub(super) doubtful: bool,
}

/// Reads both copies. A copy that the device cannot read counts as damaged.
pub(super) async fn find(device: &dyn Device) -> Result<Found, PoolError> {
    let (first, foreign) = read(device, 0).await?;
    let (second, _) = read(device, 1).await?;
    Ok(Found {
        copies: [first, second],
        foreign,
    })
}

impl Found {
    /// The newest state, or why there is none that can be trusted.
    pub(super) fn newest(self) -> Result<Newest, PoolError> {
        if let Some(version) = self.copies.iter().find_map(newer) {
            return Err(PoolError::Newer { version });
        }
        match self.copies {
            [Decoded::Valid(first), Decoded::Valid(second)] => choose(first, second),
            [Decoded::Valid(metadata), _] => Ok(Newest {
                metadata,
                copy: 0,
                doubtful: true,
            }),
            [_, Decoded::Valid(metadata)] => Ok(Newest {
                metadata,
                copy: 1,
                doubtful: true,
            }),
            [Decoded::Absent, Decoded::Absent] => Err(PoolError::NotAPool),
            [first, second] => Err(PoolError::Damaged([why(&first), why(&second)])),
        }
    }

    /// What a new pool would destroy.
    pub(super) fn occupant(&self) -> Option<String> {
        if self.copies.iter().any(|copy| *copy != Decoded::Absent) {
            return Some("a pool, or the remains of one".into());
        }
        self.foreign.map(str::to_owned)
    }

    /// A generation that is newer than anything found, and the copy to write first.
    pub(super) fn successor(&self) -> Result<(u64, usize), PoolError> {
        let generation = |copy: &Decoded| match copy {
            Decoded::Valid(metadata) => metadata.generation,
            _ => 0,
        };
        let [first, second] = [generation(&self.copies[0]), generation(&self.copies[1])];
        Ok((after(first.max(second))?, usize::from(first >= second)))
    }
}

/// Metadata on its way to the device.
pub(super) struct Prepared {
    copies: [Buf; 2],
}

/// Lays `metadata` out for both copies. Memory may be short for the moment: that is found here,
/// when nothing has been written yet.
pub(super) fn prepare(metadata: &Metadata) -> Result<Prepared, PoolError> {
    let bytes = encode(metadata);
    let lay_out = || {
        let mut buf = Buf::take_zeroed(bytes.len().next_multiple_of(PIECE)).ok_or(IoError::Busy)?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(buf)
    };
    let copies = || Ok([lay_out()?, lay_out()?]);
    let copies = copies().map_err(device_error("laying out the pool's metadata"))?;
    Ok(Prepared { copies })
}

/// Makes what was prepared (with its new generation) the state on the device; `newest` is the copy
/// that counted before. Gives the copy that counts now.
pub(super) async fn commit(
    device: &dyn Device,
    prepared: Prepared,
    newest: usize,
) -> Result<usize, PoolError> {
    let first = 1 - newest;
    for (copy, buf) in [first, newest].into_iter().zip(prepared.copies) {
        write(device, copy, buf)
            .await
            .map_err(device_error("writing the pool's metadata"))?;
    }
    Ok(first)
}

/// Removes both copies for good.
pub(super) async fn erase(device: &dyn Device) -> Result<(), PoolError> {
    let failed = device_error("erasing the metadata");
    let blocks = COPY_BYTES / u64::from(device.info().block_size);
    for copy in [0, 1] {
        let erased = device
            .write_zeroes(Tag::default(), lba(device, copy), blocks, true)
            .await;
        erased.map_err(&failed)?;
        device.flush(Tag::default()).await.map_err(&failed)?;
    }
    Ok(())
}

/// The generation after `generation`.
pub(super) fn after(generation: u64) -> Result<u64, PoolError> {
    let exhausted = || {
        PoolError::Geometry("the pool's generation cannot grow any more: make a new pool".into())
    };
    generation.checked_add(1).ok_or_else(exhausted)
}

fn choose(first: Metadata, second: Metadata) -> Result<Newest, PoolError> {
    if first.generation == second.generation && first != second {
        let why = || "same generation as the other copy, other content".to_owned();
        return Err(PoolError::Damaged([why(), why()]));
    }
    let newest = if first.generation >= second.generation {
        (first, 0)
    } else {
        (second, 1)
    };
    Ok(Newest {
        metadata: newest.0,
        copy: newest.1,
        doubtful: false,
    })
}

fn newer(copy: &Decoded) -> Option<u32> {
    match copy {
        Decoded::Newer(version) => Some(*version),
        _ => None,
    }
}

/// What is wrong with a copy, in words.
pub(super) fn why(copy: &Decoded) -> String {
    match copy {
        Decoded::Absent => "there is none".into(),
        Decoded::Damaged(why) => why.clone(),
        Decoded::Newer(version) => format!("its layout is version {version}"),
        Decoded::Valid(metadata) => format!("whole, generation {}", metadata.generation),
    }
}

async fn read(
    device: &dyn Device,
    copy: usize,
) -> Result<(Decoded, Option<&'static str>), PoolError> {
    let failed = device_error("reading the pool's metadata");
    let buf = Buf::take(COPY_BYTES as usize)
        .ok_or(IoError::Busy)
        .map_err(&failed)?;
    match device.read(Tag::default(), lba(device, copy), buf).await {
        Ok(Data::Zeroes(_)) | Err(IoError::OutOfRange) => Ok((Decoded::Absent, None)),
        Ok(Data::Buf(bytes)) => Ok((decode(&bytes), recognise(&bytes[..LOOKED_AT]))),
        Err(IoError::Read | IoError::Integrity) => {
            Ok((Decoded::Damaged("it cannot be read".into()), None))
        }
        Err(error) => Err(failed(error)),
    }
}

async fn write(device: &dyn Device, copy: usize, buf: Buf) -> Result<(), IoError> {
    device
        .write(Tag::default(), lba(device, copy), buf, false)
        .await?;
    device.flush(Tag::default()).await
}

fn lba(device: &dyn Device, copy: usize) -> u64 {
    copy as u64 * COPY_BYTES / u64::from(device.info().block_size)
}

const _: () = assert!(MAGIC.len() < PIECE && LOOKED_AT < COPY_BYTES as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_alone_is_not_believed_to_be_the_newest() {
        let pool = Metadata::new([1; 16], 4096, 64 << 20).unwrap();
        let alone = [
            [Decoded::Valid(pool.clone()), Decoded::Absent],
            [
                Decoded::Damaged("flipped".into()),
                Decoded::Valid(pool.clone()),
            ],
        ];
        for copies in alone {
            let found = Found {
                copies,
                foreign: None,
            };
            assert!(found.newest().unwrap().doubtful);
        }
        let both = Found {
            copies: [Decoded::Valid(pool.clone()), Decoded::Valid(pool)],
            foreign: None,
        };
        assert!(!both.newest().unwrap().doubtful);
    }
}
