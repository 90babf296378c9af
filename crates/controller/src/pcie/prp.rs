//! Where the data of a command are: PRP entries and lists (Base Specification, section 4.3).
//! The lists are the guest's, which may change them at any time: each part of one is read once.

use alloc::vec::Vec;

use flashyard_nvme::Status;

use super::PAGE;

/// A piece of the guest's memory within one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Guest address.
    pub address: u64,
    /// Bytes, at least 1.
    pub bytes: u32,
}

/// Bytes of an entry of a list.
const ENTRY: u64 = 8;
const OFFSET_INVALID: Status = Status::PRP_OFFSET_INVALID.with_dnr();

/// Finds the `bytes` of data that begin at `prp1`, and puts them into `segments` in their order.
/// `read` copies a part of the guest's memory.
///
/// # Errors
/// An address has an offset that it may not have; or `read` fails.
pub fn walk(
    (prp1, prp2): (u64, u64),
    bytes: u32,
    segments: &mut Vec<Segment>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Status>,
) -> Result<(), Status> {
    segments.clear();
    if bytes == 0 {
        return Ok(());
    }
    if !prp1.is_multiple_of(4) {
        return Err(OFFSET_INVALID);
    }
    let in_page = (PAGE - prp1 % PAGE) as u32;
    let first = bytes.min(in_page);
    segments.push(Segment {
        address: prp1,
        bytes: first,
    });
    match bytes - first {
        0 => Ok(()),
        rest if u64::from(rest) <= PAGE => push_page(prp2, rest, segments).map(drop),
        rest => walk_lists(prp2, rest, segments, &mut read),
    }
}

/// Reads the list at `list`, which may begin within its page, and those that it is chained with.
fn walk_lists(
    mut list: u64,
    mut rest: u32,
    segments: &mut Vec<Segment>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), Status>,
) -> Result<(), Status> {
    if !list.is_multiple_of(ENTRY) {
        return Err(OFFSET_INVALID);
    }
    let mut page = [0; PAGE as usize];
    loop {
        let slots = (PAGE - list % PAGE) / ENTRY;
        let needed = u64::from(rest).div_ceil(PAGE);
        let chained = needed > slots;
        let count = needed.min(slots) as usize;
        let entries = &mut page[..count * ENTRY as usize];
        read(list, entries)?;
        let (entries, _) = entries.as_chunks::<8>();
        let (of_data, link) = entries.split_at(count - usize::from(chained));
        for entry in of_data {
            rest = push_page(u64::from_le_bytes(*entry), rest, segments)?;
        }
        let Some(next) = link.first() else {
            return Ok(());
        };
        list = u64::from_le_bytes(*next);
        // Lists that are chained begin with a page, so each brings the walk 511 pages further.
        if !list.is_multiple_of(PAGE) {
            return Err(OFFSET_INVALID);
        }
    }
}

/// The next page of data; gives how much is left behind it.
fn push_page(address: u64, rest: u32, segments: &mut Vec<Segment>) -> Result<u32, Status> {
    if !address.is_multiple_of(PAGE) {
        return Err(OFFSET_INVALID);
    }
    let bytes = rest.min(PAGE as u32);
    segments.push(Segment { address, bytes });
    Ok(rest - bytes)
}
