//! What data a command moves. Where they are (in a capsule, behind an SGL, in pages) is a matter of
//! the transport, which finds them with this.

use flashyard_nvme::Status;

/// The data of a command, as its opcode and the namespace demand them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// No data.
    None,
    /// So many bytes go to the host.
    ToHost {
        /// Length, bytes.
        bytes: u32,
    },
    /// The host's data; what it sends beyond `least` means nothing.
    FromHost {
        /// Bytes that it has to send.
        least: u32,
        /// Bytes that it may send.
        most: u32,
    },
}

impl Transfer {
    /// Exactly so many bytes of the host.
    #[inline]
    pub(crate) const fn from_host(bytes: u32) -> Self {
        Self::FromHost {
            least: bytes,
            most: bytes,
        }
    }
}

/// Room that the host has for the data of an Admin command, bytes, as the transport has found it;
/// or what is wrong with the command's descriptor.
pub type Room = Result<u32, Status>;

/// The bytes to send when at least `least` and at most `most` are there.
pub(crate) fn within(room: Room, least: u32, most: u32) -> Result<u32, Status> {
    let bytes = room?;
    if (least..=most).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr())
    }
}
