//! The copies that a device keeps of its blocks, one by one: for who knows what they should hold.
//! [`read_each`] and [`read_long`] read what has a checksum of its own from each of them.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use flashyard_runtime::{Buf, Data};

use crate::superblock::{Raw, Reads};
use crate::{Device, DeviceExt, IoError, IoFuture, Tag};

/// Ends with how many copies were put right.
pub type Healed = Pin<Box<dyn Future<Output = Result<usize, IoError>>>>;

/// Whether what a range of blocks holds is not needed: it may become zeroes at any time
/// until something is written to it.
pub type Unneeded = Box<dyn Fn(Range<u64>) -> bool>;

/// See the module. A range that is read or healed is one of 4 KiB, at a multiple of that.
pub trait Copies {
    /// Bytes of a stripe: what lies between two multiples of it is on one member.
    fn stripe(&self) -> u64;

    /// How many copies of a block can be read now; 0 for what is not on the device.
    fn count(&self, lba: u64) -> usize;

    /// How many of these are stored as they are; the others, which follow, are computed of what
    /// other blocks hold.
    fn stored(&self, lba: u64) -> usize {
        self.count(lba)
    }

    /// All that matters of what is stored was read and verified: the rest may be made to agree with
    /// that, in the background.
    fn verified(&self) {}

    /// From now on what this says is not needed may become zeroes, instead of being copied to
    /// members that are rebuilt. It is asked between the I/Os of who stands on the device.
    fn set_unneeded(&self, _unneeded: Unneeded) {}

    /// Reads one of them into `into`. [`IoError::OutOfRange`] if there is no such copy, or the
    /// range lies on several members.
    fn read(&self, tag: Tag, copy: usize, lba: u64, into: Buf) -> IoFuture;

    /// Writes what a range holds to the copies that hold something else or cannot be read, if a
    /// copy holds it still, and counts these as wrong. Goes to its end once it was polled.
    fn heal(&self, tag: Tag, lba: u64, data: Buf) -> Healed;
}

/// What each copy of a range holds that lies on one member, at least one. A member that is gone
/// takes its copy with it; that is an error only where no other is there.
pub(crate) async fn read_each(
    device: &dyn Device,
    lba: u64,
    bytes: usize,
) -> Result<Reads<Buf>, IoError> {
    let count = || device.copies().map_or(1, |copies| copies.count(lba).max(1));
    let (mut all, mut gone) = (Vec::new(), IoError::NotReady);
    let (mut copy, mut counted) = (0, count());
    while copy < counted {
        match read_one(device, copy, lba, bytes).await {
            Ok(Data::Buf(bytes)) => all.push(Raw::Bytes(bytes)),
            Ok(Data::Zeroes(_)) | Err(IoError::OutOfRange) => all.push(Raw::Blank),
            Err(IoError::Read | IoError::Integrity) => all.push(Raw::Unreadable),
            Err(error @ (IoError::Busy | IoError::Aborted)) => return Err(error),
            Err(error) => gone = error,
        }
        copy += 1;
        if count() < counted {
            // A member has gone, and those behind it have other numbers.
            (copy, counted) = (0, count());
            all.clear();
        }
    }
    match all.is_empty() {
        true => Err(gone),
        false => Ok(all),
    }
}

/// The same of a range that may lie on several members. What is put together holds of each stripe
/// the copy of one number, or of the next one that can be read. So what has one wrong member is
/// whole in another of them; what has wrong ones of other numbers in other stripes is in none. A
/// number of which something could not be read is told as unreadable as well, so that it is healed.
pub(crate) async fn read_long(
    device: &dyn Device,
    lba: u64,
    bytes: usize,
) -> Result<Reads<Vec<u8>>, IoError> {
    let stripe = device.copies().map(Copies::stripe);
    let block_size = u64::from(device.info().block_size);
    let mut pieces = Vec::new();
    let (mut at, end) = (lba * block_size, lba * block_size + bytes as u64);
    while at < end {
        let next = stripe.map_or(end, |stripe| (at + 1).next_multiple_of(stripe).min(end));
        let piece = (next - at) as usize;
        let read = read_each(device, at / block_size, piece).await?;
        // Of the memory for I/O, which is short, one piece of each copy is taken at a time.
        pieces.push((piece, read.into_iter().map(kept).collect()));
        at = next;
    }
    Ok(put_together(&pieces))
}

fn kept(read: Raw<Buf>) -> Raw<Vec<u8>> {
    match read {
        Raw::Bytes(bytes) => Raw::Bytes(bytes.to_vec()),
        Raw::Blank => Raw::Blank,
        Raw::Unreadable => Raw::Unreadable,
    }
}

/// All that the copies of pieces hold, and their lengths.
fn put_together(pieces: &[(usize, Reads<Vec<u8>>)]) -> Reads<Vec<u8>> {
    let most = pieces.iter().map(|(_, copies)| copies.len()).max();
    let mut all = Vec::new();
    let mut unreadable = false;
    for copy in 0..most.unwrap_or(0) {
        match put_one_together(pieces, copy, &mut unreadable) {
            Raw::Unreadable => unreadable = true,
            read => all.push(read),
        }
    }
    if unreadable {
        all.push(Raw::Unreadable);
    }
    all
}

/// What the copies of one number hold, or the last ones where there are fewer; for what cannot be
/// read of it, that of another number.
fn put_one_together(
    pieces: &[(usize, Reads<Vec<u8>>)],
    copy: usize,
    unreadable: &mut bool,
) -> Raw<Vec<u8>> {
    let mut whole = Vec::with_capacity(pieces.iter().map(|(bytes, _)| bytes).sum());
    let mut blank = true;
    for (bytes, copies) in pieces {
        let first = copy.min(copies.len() - 1);
        let others = copies[first..].iter().chain(&copies[..first]);
        let mut readable = others.filter(|read| !matches!(read, Raw::Unreadable));
        *unreadable |= matches!(copies[first], Raw::Unreadable);
        match readable.next() {
            None | Some(Raw::Unreadable) => return Raw::Unreadable,
            Some(Raw::Blank) => whole.resize(whole.len() + bytes, 0),
            Some(Raw::Bytes(read)) => {
                whole.extend_from_slice(read);
                blank = false;
            }
        }
    }
    match blank {
        true => Raw::Blank,
        false => Raw::Bytes(whole),
    }
}

async fn read_one(
    device: &dyn Device,
    copy: usize,
    lba: u64,
    bytes: usize,
) -> Result<Data, IoError> {
    let into = Buf::take(bytes).ok_or(IoError::Busy)?;
    let tag = Tag::default();
    match device.copies() {
        Some(copies) => Ok(copies.read(tag, copy, lba, into).await?.data),
        None => device.read(tag, lba, into).await,
    }
}

#[cfg(test)]
mod tests;
