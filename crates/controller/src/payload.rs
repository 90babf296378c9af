//! Where the data of a command is, checked against what the command needs.

use flashyard_nvme::command::Psdt;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};

/// The data of a command, as its SGL descriptor says and its opcode demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
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
    Invited {
        /// Length, bytes.
        bytes: u32,
    },
}

impl Payload {
    /// Length in bytes.
    #[inline]
    pub fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost { bytes } | Self::InCapsule { bytes, .. } | Self::Invited { bytes } => {
                bytes
            }
        }
    }

    /// Data for the host: exactly `bytes`, moved by the transport.
    ///
    /// # Errors
    /// Data SGL Length Invalid, SGL Descriptor Type Invalid, Invalid Field.
    #[inline]
    pub fn to_host(sqe: &SubmissionQueueEntry, bytes: u32) -> Result<Self, Status> {
        Self::to_host_between(sqe, bytes, bytes)
    }

    /// Data for the host: at least `least` and at most `most` bytes, as many as the host has room
    /// for.
    ///
    /// # Errors
    /// As [`Self::to_host`].
    #[inline]
    pub fn to_host_between(
        sqe: &SubmissionQueueEntry,
        least: u32,
        most: u32,
    ) -> Result<Self, Status> {
        demand_sgl(sqe)?;
        match sqe.sgl() {
            Sgl::Transport { length } if (least..=most).contains(&length) => {
                Ok(Self::ToHost { bytes: length })
            }
            Sgl::Transport { .. } => Err(LENGTH_INVALID),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
        }
    }

    /// Data of the host: at least `least` and at most `most` bytes, in the capsule (which brought
    /// `capsule_bytes`) or by R2T.
    ///
    /// # Errors
    /// Data SGL Length Invalid, SGL Offset Invalid, SGL Descriptor Type Invalid, Invalid Field.
    #[inline]
    pub fn from_host(
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
            return Ok(Self::Invited { bytes: length });
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
        let invited = |length| with(Sgl::Transport { length });
        let length = Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        let offset = Err(Status::SGL_OFFSET_INVALID.with_dnr());
        let kind = Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr());
        let table = [
            (invited(512), Ok(Payload::Invited { bytes: 512 })),
            (invited(511), length),
            (invited(1025), length),
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
                Payload::from_host(&sqe, 512, 1024, 1024),
                expected,
                "{:?}",
                sqe.sgl()
            );
        }
    }

    #[test]
    fn data_for_the_host() {
        let read = with(Sgl::Transport { length: 4096 });
        assert_eq!(
            Payload::to_host(&read, 4096),
            Ok(Payload::ToHost { bytes: 4096 })
        );
        assert_eq!(
            Payload::to_host(&read, 4092),
            Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
        );
        assert_eq!(
            Payload::to_host(&capsule(0, 4096), 4096),
            Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr())
        );
        let prp = SubmissionQueueEntry::default();
        assert_eq!(
            Payload::to_host(&prp, 0),
            Err(Status::INVALID_FIELD.with_dnr())
        );
    }
}
