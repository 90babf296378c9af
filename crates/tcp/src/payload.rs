//! Where the data of a command are: in its capsule, to be asked for with R2T, or on their way to
//! the host; checked against what the command moves.

use flashyard_controller::{Room, Transfer};
use flashyard_nvme::command::Psdt;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};

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
    use super::*;

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
