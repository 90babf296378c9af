//! Checks of I/O commands: what a submission queue entry asks for, or why not (NVM Command Set,
//! section 3).
//!
//! On the path of every I/O: no allocation, no lookup beyond the namespace that the caller has
//! found.

use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::identify::NSID_ALL;
use flashyard_nvme::{IoOpcode, Status, SubmissionQueueEntry};

use super::limits::WRITE_ZEROES_BYTES;
use super::{NamespaceInfo, Transfer};

/// An I/O command that may be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoRequest {
    /// What is to be done.
    pub op: IoOp,
    /// Its data.
    pub transfer: Transfer,
}

/// What an I/O command does. Ranges lie within the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Read.
    Read {
        /// Blocks.
        range: LbaRange,
        /// Force Unit Access: what is read has to be on the medium.
        fua: bool,
    },
    /// Write.
    Write {
        /// Blocks.
        range: LbaRange,
        /// Force Unit Access: finished only when on the medium.
        fua: bool,
    },
    /// Compare the data with what is stored.
    Compare {
        /// Blocks.
        range: LbaRange,
        /// Force Unit Access: what is compared has to be on the medium.
        fua: bool,
    },
    /// Write Zeroes.
    WriteZeroes {
        /// Blocks.
        range: LbaRange,
        /// Force Unit Access.
        fua: bool,
        /// The blocks may be given back (DEAC).
        deallocate: bool,
    },
    /// Dataset Management; the data are the ranges ([`check_ranges`]).
    DatasetManagement {
        /// How many of them.
        ranges: usize,
        /// Deallocate them; otherwise they are hints and nothing is to be done.
        deallocate: bool,
    },
    /// Flush.
    Flush,
}

impl IoOp {
    /// The blocks that it is about; none for a Flush, and for what names them in its data.
    #[inline]
    pub fn range(&self) -> Option<LbaRange> {
        match self {
            Self::Read { range, .. }
            | Self::Write { range, .. }
            | Self::Compare { range, .. }
            | Self::WriteZeroes { range, .. } => Some(*range),
            Self::DatasetManagement { .. } | Self::Flush => None,
        }
    }
}

/// Checks an I/O command, which may move `transfer_bytes` at most. `namespace` is the one its NSID
/// names, if there is one attached.
///
/// # Errors
/// The status to answer with.
#[inline]
pub fn check(
    sqe: &SubmissionQueueEntry,
    namespace: Option<&NamespaceInfo>,
    transfer_bytes: u32,
) -> Result<IoRequest, Status> {
    if sqe.fuse() == Fuse::Reserved {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    match sqe.io_opcode() {
        IoOpcode::READ | IoOpcode::WRITE | IoOpcode::COMPARE => {
            transfer(sqe, attached(namespace)?, transfer_bytes)
        }
        IoOpcode::FLUSH => flush(sqe, namespace),
        IoOpcode::WRITE_ZEROES => write_zeroes(sqe, attached(namespace)?),
        IoOpcode::DATASET_MANAGEMENT => dataset_management(sqe, attached(namespace)?),
        _ => Err(Status::INVALID_OPCODE.with_dnr()),
    }
}

/// The ranges of a Dataset Management command, checked: all or none are to be executed. `data` is
/// the command's payload.
///
/// # Errors
/// LBA Out of Range.
pub fn check_ranges<'a>(
    data: &'a [u8],
    ranges: usize,
    namespace: &NamespaceInfo,
) -> Result<impl ExactSizeIterator<Item = DsmRange> + 'a, Status> {
    let all = data
        .get(..ranges * DsmRange::LEN)
        .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
    if DsmRange::all(all).all(|range| range.is_within(namespace.blocks)) {
        Ok(DsmRange::all(all))
    } else {
        Err(Status::LBA_OUT_OF_RANGE.with_dnr())
    }
}

fn write_zeroes(
    sqe: &SubmissionQueueEntry,
    namespace: &NamespaceInfo,
) -> Result<IoRequest, Status> {
    writable(namespace)?;
    no_protection_information(sqe)?;
    let range = range_within(sqe, namespace)?;
    if u64::from(range.blocks) * u64::from(namespace.block_size) > WRITE_ZEROES_BYTES {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    Ok(IoRequest {
        op: IoOp::WriteZeroes {
            range,
            fua: sqe.fua(),
            deallocate: sqe.deac(),
        },
        transfer: Transfer::None,
    })
}

fn dataset_management(
    sqe: &SubmissionQueueEntry,
    namespace: &NamespaceInfo,
) -> Result<IoRequest, Status> {
    let ranges = sqe.dsm_ranges();
    let deallocate = sqe.dsm_deallocate();
    if deallocate {
        writable(namespace)?;
    }
    // Linux sends room for all 256 ranges whatever their number is.
    let most = DsmRange::MAX_RANGES * DsmRange::LEN;
    let least = ranges * DsmRange::LEN;
    Ok(IoRequest {
        op: IoOp::DatasetManagement { ranges, deallocate },
        transfer: Transfer::FromHost {
            least: least as u32,
            most: most as u32,
        },
    })
}

/// VWC of Identify Controller says that Flush of all namespaces at once is not supported.
fn flush(
    sqe: &SubmissionQueueEntry,
    namespace: Option<&NamespaceInfo>,
) -> Result<IoRequest, Status> {
    attached(namespace.filter(|_| sqe.nsid() != NSID_ALL))?;
    Ok(IoRequest {
        op: IoOp::Flush,
        transfer: Transfer::None,
    })
}

#[inline]
fn attached(namespace: Option<&NamespaceInfo>) -> Result<&NamespaceInfo, Status> {
    namespace.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr())
}

#[inline]
fn writable(namespace: &NamespaceInfo) -> Result<(), Status> {
    if namespace.read_only {
        Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr())
    } else {
        Ok(())
    }
}

/// Read, Write and Compare, which move the data of all their blocks.
#[inline]
fn transfer(
    sqe: &SubmissionQueueEntry,
    namespace: &NamespaceInfo,
    transfer_bytes: u32,
) -> Result<IoRequest, Status> {
    let opcode = sqe.io_opcode();
    if opcode == IoOpcode::WRITE {
        writable(namespace)?;
    }
    no_protection_information(sqe)?;
    let blocks = (sqe.cdw12() & 0xffff) + 1;
    let bytes = u64::from(blocks) * u64::from(namespace.block_size);
    if bytes > u64::from(transfer_bytes) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let (range, fua, bytes) = (range_within(sqe, namespace)?, sqe.fua(), bytes as u32);
    let (op, transfer) = match opcode {
        IoOpcode::READ => (IoOp::Read { range, fua }, Transfer::ToHost { bytes }),
        IoOpcode::WRITE => (IoOp::Write { range, fua }, Transfer::from_host(bytes)),
        _ => (IoOp::Compare { range, fua }, Transfer::from_host(bytes)),
    };
    Ok(IoRequest { op, transfer })
}

#[inline]
fn range_within(sqe: &SubmissionQueueEntry, namespace: &NamespaceInfo) -> Result<LbaRange, Status> {
    sqe.lba_range()
        .filter(|range| range.is_within(namespace.blocks))
        .ok_or(Status::LBA_OUT_OF_RANGE.with_dnr())
}

/// No namespace has metadata, so there is nothing that PRACT or PRCHK could mean.
#[inline]
fn no_protection_information(sqe: &SubmissionQueueEntry) -> Result<(), Status> {
    if sqe.prinfo() == 0 {
        Ok(())
    } else {
        Err(Status::INVALID_PROTECTION_INFORMATION.with_dnr())
    }
}

#[cfg(test)]
mod tests;
