//! What every command capsule is looked at for, on the Admin queue and on I/O queues: the rules of
//! a queue pair (how many commands may be outstanding, which identifiers are in use, the head
//! pointer that completions carry), and where the data of the command are.

use std::cell::{Cell, RefCell};

use flashyard_controller::{Room, Transfer};
use flashyard_nvme::command::Psdt;
use flashyard_nvme::tcp::Violation;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};

/// SQHD in the answer to Connect when the host switched SQ flow control off.
pub(crate) const NO_FLOW_CONTROL: u16 = 0xffff;

/// One queue pair. A command is outstanding from its capsule until its answer lies in the outbox,
/// which is before the host can have it: so a host that reuses a place at once is always in time.
pub(crate) struct QueuePair {
    entries: u16,
    flow_control: bool,
    outstanding: Cell<u16>,
    head: Cell<u16>,
    identifiers: RefCell<CidSet>,
}

/// An identifier that is in use already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duplicate;

impl QueuePair {
    /// An empty queue pair. The Connect that made it was its first command.
    pub(crate) fn new(entries: u16, flow_control: bool) -> Self {
        Self {
            entries,
            flow_control,
            outstanding: Cell::new(0),
            head: Cell::new(1 % entries),
            identifiers: RefCell::default(),
        }
    }

    /// Whether completions carry the head pointer.
    pub(crate) fn has_flow_control(&self) -> bool {
        self.flow_control
    }

    /// Commands in flight.
    #[inline]
    pub(crate) fn outstanding(&self) -> u16 {
        self.outstanding.get()
    }

    /// How many commands can be outstanding.
    pub(crate) fn places(&self) -> usize {
        usize::from(self.entries)
    }

    /// A command has come. One with an identifier that is in use still takes a place, until it is
    /// answered.
    #[inline]
    pub(crate) fn begin(&self, cid: u16) -> Result<Result<(), Duplicate>, Violation> {
        if self.outstanding.get() >= self.entries {
            return Err(Violation::sequence());
        }
        self.outstanding.set(self.outstanding.get() + 1);
        let fresh = self.identifiers.borrow_mut().insert(cid);
        Ok(if fresh { Ok(()) } else { Err(Duplicate) })
    }

    /// A command is being answered; gives SQHD.
    #[inline]
    pub(crate) fn end(&self, cid: u16) -> u16 {
        self.identifiers.borrow_mut().remove(cid);
        self.end_duplicate()
    }

    /// A command with an identifier in use is being refused: the identifier stays in use.
    #[inline]
    pub(crate) fn end_duplicate(&self) -> u16 {
        debug_assert!(self.outstanding.get() > 0, "every command is answered once");
        self.outstanding.set(self.outstanding.get() - 1);
        if !self.flow_control {
            return 0;
        }
        let head = self.head.get() + 1;
        self.head.set(if head >= self.entries { 0 } else { head });
        self.head.get()
    }
}

/// Identifiers per segment.
const SEGMENT: usize = 1024;
const WORDS: usize = SEGMENT / 64;

/// The command identifiers in use on a queue. Hosts choose them freely from 65,536 (Linux puts a
/// generation into the upper bits), so the set is a bitmap in segments that come into being when
/// first touched: at most 8 KiB, for most hosts a few hundred bytes.
#[derive(Default)]
struct CidSet {
    segments: Vec<Option<Box<[u64; WORDS]>>>,
}

impl CidSet {
    /// Adds `cid`; false if it was there.
    #[inline]
    fn insert(&mut self, cid: u16) -> bool {
        let (segment, word, bit) = place(cid);
        if segment >= self.segments.len() || self.segments[segment].is_none() {
            self.grow(segment);
        }
        let Some(words) = &mut self.segments[segment] else {
            return false;
        };
        let fresh = words[word] & bit == 0;
        words[word] |= bit;
        fresh
    }

    /// Takes `cid` out.
    #[inline]
    fn remove(&mut self, cid: u16) {
        let (segment, word, bit) = place(cid);
        if let Some(Some(words)) = self.segments.get_mut(segment) {
            words[word] &= !bit;
        }
    }

    #[cold]
    fn grow(&mut self, segment: usize) {
        if segment >= self.segments.len() {
            self.segments.resize_with(segment + 1, || None);
        }
        self.segments[segment] = Some(Box::new([0; WORDS]));
    }
}

#[inline]
fn place(cid: u16) -> (usize, usize, u64) {
    let cid = usize::from(cid);
    (cid / SEGMENT, cid % SEGMENT / 64, 1 << (cid % 64))
}

/// The data of a command, as its SGL descriptor says and its opcode demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payload {
    /// No data.
    None,
    /// So many bytes go to the host.
    ToHost {
        /// Length, bytes.
        bytes: u32,
    },
    /// The data came in the capsule.
    InCapsule {
        /// Where they begin in the capsule's data.
        offset: u32,
        /// Length, bytes.
        bytes: u32,
    },
    /// The data have to be asked for with R2T.
    ByR2t {
        /// Length, bytes.
        bytes: u32,
    },
}

impl Payload {
    /// Length in bytes.
    #[inline]
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost { bytes } | Self::InCapsule { bytes, .. } | Self::ByR2t { bytes } => bytes,
        }
    }

    /// Where the data of a command are; its capsule brought `capsule_bytes`.
    ///
    /// # Errors
    /// Data SGL Length Invalid, SGL Offset Invalid, SGL Descriptor Type Invalid, Invalid Field.
    #[inline]
    pub(crate) fn locate(
        transfer: Transfer,
        sqe: &SubmissionQueueEntry,
        capsule_bytes: u32,
    ) -> Result<Self, Status> {
        match transfer {
            Transfer::None => Ok(Self::None),
            Transfer::ToHost { bytes } => {
                if room(sqe)? == bytes {
                    Ok(Self::ToHost { bytes })
                } else {
                    Err(LENGTH_INVALID)
                }
            }
            Transfer::FromHost { least, most } => Self::from_host(sqe, least, most, capsule_bytes),
        }
    }

    /// Data of the host: in the capsule or by R2T.
    #[inline]
    fn from_host(
        sqe: &SubmissionQueueEntry,
        least: u32,
        most: u32,
        capsule_bytes: u32,
    ) -> Result<Self, Status> {
        demand_sgl(sqe)?;
        let (place, length) = match sqe.sgl() {
            Sgl::Transport { length } => (None, length),
            Sgl::InCapsule { offset, length } => (Some(offset), length),
            _ => return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
        };
        if !(least..=most).contains(&length) {
            return Err(LENGTH_INVALID);
        }
        let Some(offset) = place else {
            return Ok(Self::ByR2t { bytes: length });
        };
        let offset = u32::try_from(offset)
            .ok()
            .filter(|offset| *offset <= capsule_bytes)
            .ok_or(Status::SGL_OFFSET_INVALID.with_dnr())?;
        if length > capsule_bytes - offset {
            return Err(LENGTH_INVALID);
        }
        Ok(Self::InCapsule {
            offset,
            bytes: length,
        })
    }
}

/// Room that a host has for data, as its command says.
#[inline]
pub(crate) fn room(sqe: &SubmissionQueueEntry) -> Room {
    demand_sgl(sqe)?;
    match sqe.sgl() {
        Sgl::Transport { length } => Ok(length),
        _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
    }
}

const LENGTH_INVALID: Status = Status::DATA_SGL_LENGTH_INVALID.with_dnr();

/// Fabrics knows SGLs only (Base Specification, PSDT).
#[inline]
fn demand_sgl(sqe: &SubmissionQueueEntry) -> Result<(), Status> {
    if sqe.psdt() == Psdt::Sgl {
        Ok(())
    } else {
        Err(Status::INVALID_FIELD.with_dnr())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn the_head_goes_round_and_the_depth_is_kept() {
        let queue = QueuePair::new(4, true);
        for cid in 0..4 {
            assert_eq!(queue.begin(cid), Ok(Ok(())));
        }
        assert_eq!(queue.begin(9), Err(Violation::sequence()));
        assert_eq!(queue.end(2), 2);
        assert_eq!(queue.begin(3), Ok(Err(Duplicate)));
        assert_eq!(queue.end_duplicate(), 3);
        assert_eq!(
            queue.begin(3),
            Ok(Err(Duplicate)),
            "refusing the other one has not freed it"
        );
        assert_eq!(queue.end_duplicate(), 0);
        assert_eq!(queue.end(3), 1);
        assert_eq!(queue.begin(3), Ok(Ok(())));
    }

    #[test]
    fn without_flow_control_the_head_says_nothing() {
        let queue = QueuePair::new(2, false);
        assert_eq!(queue.begin(1), Ok(Ok(())));
        assert_eq!(queue.end(1), 0);
    }

    #[test]
    fn agrees_with_a_plain_set() {
        let (mut set, mut model) = (CidSet::default(), BTreeSet::new());
        let mut rng = Rng::new(7);
        for _ in 0..200_000 {
            let cid = rng.next_u64() as u16;
            if rng.chance(1, 2) {
                assert_eq!(set.insert(cid), model.insert(cid));
            } else {
                set.remove(cid);
                model.remove(&cid);
            }
        }
    }

    fn with(sgl: Sgl) -> SubmissionQueueEntry {
        SubmissionQueueEntry::raw(1, 1).with_sgl(sgl)
    }

    fn capsule(offset: u64, length: u32) -> SubmissionQueueEntry {
        with(Sgl::InCapsule { offset, length })
    }

    #[test]
    fn data_of_the_host() {
        let by_r2t = |length| with(Sgl::Transport { length });
        let host_data = Transfer::FromHost {
            least: 512,
            most: 1024,
        };
        let length = Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        let offset = Err(Status::SGL_OFFSET_INVALID.with_dnr());
        let kind = Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr());
        let table = [
            (by_r2t(512), Ok(Payload::ByR2t { bytes: 512 })),
            (by_r2t(511), length),
            (by_r2t(1025), length),
            (
                capsule(0, 1024),
                Ok(Payload::InCapsule {
                    offset: 0,
                    bytes: 1024,
                }),
            ),
            (
                capsule(512, 512),
                Ok(Payload::InCapsule {
                    offset: 512,
                    bytes: 512,
                }),
            ),
            (capsule(513, 512), length),
            (capsule(1025, 512), offset),
            (capsule(u64::MAX, 512), offset),
            (capsule(0, u32::MAX), length),
            (
                with(Sgl::Address {
                    address: 0,
                    length: 512,
                }),
                kind,
            ),
            (with(Sgl::Keyed { identifier: 0x40 }), kind),
            (with(Sgl::Other { identifier: 0x20 }), kind),
        ];
        for (sqe, expected) in table {
            assert_eq!(
                Payload::locate(host_data, &sqe, 1024),
                expected,
                "{:?}",
                sqe.sgl()
            );
        }
    }

    #[test]
    fn data_for_the_host() {
        let locate = |bytes, sqe| Payload::locate(Transfer::ToHost { bytes }, &sqe, 8192);
        let read = with(Sgl::Transport { length: 4096 });
        assert_eq!(locate(4096, read), Ok(Payload::ToHost { bytes: 4096 }));
        assert_eq!(
            locate(4092, read),
            Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
        );
        assert_eq!(
            locate(4096, capsule(0, 4096)),
            Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr())
        );
        let prp = SubmissionQueueEntry::default();
        assert_eq!(locate(0, prp), Err(Status::INVALID_FIELD.with_dnr()));
    }

    #[test]
    fn a_command_without_data_needs_no_descriptor() {
        let prp = SubmissionQueueEntry::default();
        assert_eq!(Payload::locate(Transfer::None, &prp, 0), Ok(Payload::None));
    }

    /// As `data_of_the_host`, for the lengths that I/O commands demand.
    #[test]
    fn data_of_io_commands() {
        let moved = |length| with(Sgl::Transport { length });
        let keyed = with(Sgl::Keyed { identifier: 0x40 });
        let read = Transfer::ToHost { bytes: 512 };
        let write = Transfer::FromHost {
            least: 512,
            most: 512,
        };
        let two_ranges = Transfer::FromHost {
            least: 32,
            most: 4096,
        };
        let length = Status::DATA_SGL_LENGTH_INVALID;
        for (transfer, sqe, status) in [
            (read, moved(513), length),
            (read, moved(0), length),
            (write, moved(1024), length),
            (write, capsule(7681, 512), length),
            (write, capsule(8193, 512), Status::SGL_OFFSET_INVALID),
            (read, capsule(0, 512), Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (write, keyed, Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (two_ranges, moved(31), length),
            (two_ranges, moved(4097), length),
        ] {
            let located = Payload::locate(transfer, &sqe, 8192);
            assert_eq!(located, Err(status.with_dnr()), "{sqe:?}");
        }
        let located = Payload::locate(two_ranges, &capsule(4096, 4096), 8192);
        let (offset, bytes) = (4096, 4096);
        assert_eq!(located, Ok(Payload::InCapsule { offset, bytes }));
    }
}
