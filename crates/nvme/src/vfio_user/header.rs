//! The header of every message, and what can be wrong with a message.

use alloc::vec::Vec;

use super::{put_u32s, u32_at};

/// Bytes of a payload at most: 1 MiB of data of a region, and what stands before them.
pub const MAX_PAYLOAD: usize = (1 << 20) + 64;

/// Flags, bits 3:0: the message is a reply.
const TYPE_MASK: u32 = 0xf;
const TYPE_REPLY: u32 = 1;
/// Flags: the sender wants no reply.
const NO_REPLY: u32 = 1 << 4;
/// Flags: the reply is an error.
const ERROR: u32 = 1 << 5;

/// A command, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command(pub u16);

impl Command {
    /// Version negotiation.
    pub const VERSION: Self = Self(1);
    /// Memory of the guest appears.
    pub const DMA_MAP: Self = Self(2);
    /// Memory of the guest goes.
    pub const DMA_UNMAP: Self = Self(3);
    /// What the device is.
    pub const DEVICE_INFO: Self = Self(4);
    /// What a region is.
    pub const REGION_INFO: Self = Self(5);
    /// What a kind of interrupt is.
    pub const IRQ_INFO: Self = Self(7);
    /// Interrupts get eventfds, lose them, are masked or triggered.
    pub const SET_IRQS: Self = Self(8);
    /// Read of a region.
    pub const REGION_READ: Self = Self(9);
    /// Write of a region.
    pub const REGION_WRITE: Self = Self(10);
    /// Reset of the device.
    pub const RESET: Self = Self(13);
}

/// The 16 bytes before every payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender's name for the message; repeated in its reply.
    pub id: u16,
    /// The command.
    pub command: Command,
    /// Bytes of the payload, without the header.
    pub payload: usize,
    /// It is a reply.
    pub reply: bool,
    /// The sender of the request wants no reply.
    pub no_reply: bool,
    /// The error of a reply, if it is one; 0 where its sender names none.
    pub error: Option<u32>,
}

impl Header {
    /// Length in bytes.
    pub const LEN: usize = 16;

    /// Reads a header.
    ///
    /// # Errors
    /// The message is shorter than its header or longer than any may be, or its type is unknown.
    /// Where the next message begins is unknown then.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, Malformed> {
        let (size, flags) = (u32_at(bytes, 4) as usize, u32_at(bytes, 8));
        let payload = size
            .checked_sub(Self::LEN)
            .filter(|payload| *payload <= MAX_PAYLOAD)
            .ok_or(Malformed::Size)?;
        if flags & TYPE_MASK > TYPE_REPLY {
            return Err(Malformed::Type);
        }
        Ok(Self {
            id: u16::from_ne_bytes([bytes[0], bytes[1]]),
            command: Command(u16::from_ne_bytes([bytes[2], bytes[3]])),
            payload,
            reply: flags & TYPE_MASK == TYPE_REPLY,
            no_reply: flags & NO_REPLY != 0,
            error: (flags & ERROR != 0).then(|| u32_at(bytes, 12)),
        })
    }

    /// Bytes of the message that begins so, if it is one.
    pub fn message_len(bytes: &[u8; Self::LEN]) -> Option<usize> {
        let header = Self::decode(bytes).ok()?;
        Some(Self::LEN + header.payload)
    }

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = u32::from(self.reply);
        if self.no_reply {
            flags |= NO_REPLY;
        }
        if self.error.is_some() {
            flags |= ERROR;
        }
        out.extend_from_slice(&self.id.to_ne_bytes());
        out.extend_from_slice(&self.command.0.to_ne_bytes());
        let size = (Self::LEN + self.payload) as u32;
        put_u32s(out, &[size, flags, self.error.unwrap_or(0)]);
    }
}

/// What is wrong with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The size in the header is less than a header, or more than any message has.
    Size,
    /// The type is neither command nor reply, or not the one that this end gets.
    Type,
    /// The payload is too short or too long for the command.
    Length,
    /// argsz is less than the fixed part of the payload.
    Argsz,
    /// The command is unknown or not offered.
    Unsupported,
    /// A count of file descriptors that the command does not have.
    Descriptors,
    /// A field has a value that it cannot have.
    Field,
    /// The text of a version is not a JSON object that ends with NUL.
    Text,
}

impl Malformed {
    /// The error of the reply, as `errno` has it.
    pub fn errno(self) -> u32 {
        const EINVAL: u32 = 22;
        const ENOTSUP: u32 = 95;
        match self {
            Self::Unsupported => ENOTSUP,
            _ => EINVAL,
        }
    }

    /// Whether the stream cannot be read on, since the start of the next message is unknown.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::Size | Self::Type)
    }
}
