//! What a server answers.

use alloc::vec::Vec;

use super::version::Version;
use super::{
    Command, DmaUnmap, Header, Malformed, RegionAccess, put_u32s, put_u64s, u32_at, u64_at,
};

/// The device can be reset.
pub const DEVICE_RESET: u32 = 1;
/// The device is a PCI device.
pub const DEVICE_PCI: u32 = 2;
/// The region can be read.
pub const REGION_READ: u32 = 1;
/// The region can be written.
pub const REGION_WRITE: u32 = 2;
/// The region can be mapped: the reply brings a file descriptor.
pub const REGION_MMAP: u32 = 4;
/// Capabilities follow the information about the region.
pub const REGION_CAPS: u32 = 8;
/// Interrupts of this kind come by eventfd.
pub const IRQ_EVENTFD: u32 = 1;
/// All interrupts of this kind are set up at once.
pub const IRQ_NORESIZE: u32 = 8;

/// Bytes of the information about a region, without capabilities.
const REGION_INFO: usize = 32;
/// The capability that says which parts of a region can be mapped.
const SPARSE_MMAP: u16 = 1;
/// Parts of a region that are read at most.
const MOST_AREAS: usize = 64;

/// What the device is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// [`DEVICE_RESET`], [`DEVICE_PCI`].
    pub flags: u32,
    /// Regions.
    pub regions: u32,
    /// Kinds of interrupts.
    pub irqs: u32,
}

/// What a region is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RegionInfo {
    /// [`REGION_READ`] and so on; [`REGION_CAPS`] is set by what there is.
    pub flags: u32,
    /// Number of the region.
    pub index: u32,
    /// Bytes; 0 if there is none of this number.
    pub size: u64,
    /// Where it begins in the file that comes with it.
    pub offset: u64,
    /// The parts that can be mapped; without any, all of a mappable region can.
    pub areas: Vec<MappableArea>,
    /// Bytes that the whole reply has, when the client had room for less.
    pub argsz: u32,
}

/// A part of a region that can be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappableArea {
    /// Offset in the region.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// What a kind of interrupt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IrqInfo {
    /// [`IRQ_EVENTFD`] and so on.
    pub flags: u32,
    /// Number of the kind.
    pub index: u32,
    /// Interrupts of the kind.
    pub count: u32,
}

/// A reply of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// Done; there is nothing to say: DMA_MAP, SET_IRQS, RESET.
    Done(Command),
    /// What is spoken.
    Version(Version<'a>),
    /// The request, repeated.
    DmaUnmap(DmaUnmap),
    /// What the device is.
    Device(DeviceInfo),
    /// What a region is.
    Region(RegionInfo),
    /// What a kind of interrupt is.
    Irq(IrqInfo),
    /// What was read.
    RegionRead(RegionAccess, &'a [u8]),
    /// It was written.
    RegionWrite(RegionAccess),
    /// The request failed: its command and `errno`.
    Error(Command, u32),
}

impl<'a> Reply<'a> {
    /// Reads the payload behind `header`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, Malformed> {
        if !header.reply {
            return Err(Malformed::Type);
        }
        if let Some(errno) = header.error {
            return Ok(Self::Error(header.command, errno));
        }
        let exactly = |len| {
            if payload.len() == len {
                Ok(payload)
            } else {
                Err(Malformed::Length)
            }
        };
        Ok(match header.command {
            Command::DMA_MAP | Command::SET_IRQS | Command::RESET => {
                exactly(0).map(|_| Self::Done(header.command))?
            }
            Command::VERSION => Self::Version(Version::decode(payload)?),
            Command::DMA_UNMAP => exactly(24).map(|payload| {
                Self::DmaUnmap(DmaUnmap {
                    argsz: u32_at(payload, 0),
                    flags: u32_at(payload, 4),
                    address: u64_at(payload, 8),
                    size: u64_at(payload, 16),
                })
            })?,
            Command::DEVICE_INFO => exactly(16).map(|payload| {
                Self::Device(DeviceInfo {
                    flags: u32_at(payload, 4),
                    regions: u32_at(payload, 8),
                    irqs: u32_at(payload, 12),
                })
            })?,
            Command::REGION_INFO => Self::Region(RegionInfo::decode(payload)?),
            Command::IRQ_INFO => exactly(16).map(|payload| {
                Self::Irq(IrqInfo {
                    flags: u32_at(payload, 4),
                    index: u32_at(payload, 8),
                    count: u32_at(payload, 12),
                })
            })?,
            Command::REGION_READ => {
                let (access, data) = RegionAccess::decode(payload)?;
                if data.len() != access.count as usize {
                    return Err(Malformed::Length);
                }
                Self::RegionRead(access, data)
            }
            Command::REGION_WRITE => {
                let (access, _) = RegionAccess::decode(exactly(RegionAccess::LEN)?)?;
                Self::RegionWrite(access)
            }
            _ => return Err(Malformed::Unsupported),
        })
    }

    fn command(&self) -> Command {
        match self {
            Self::Done(command) | Self::Error(command, _) => *command,
            Self::Version(_) => Command::VERSION,
            Self::DmaUnmap(_) => Command::DMA_UNMAP,
            Self::Device(_) => Command::DEVICE_INFO,
            Self::Region(_) => Command::REGION_INFO,
            Self::Irq(_) => Command::IRQ_INFO,
            Self::RegionRead(..) => Command::REGION_READ,
            Self::RegionWrite(_) => Command::REGION_WRITE,
        }
    }

    /// The message that answers request `id`.
    pub fn encode(&self, id: u16) -> Vec<u8> {
        let mut payload = Vec::new();
        self.payload(&mut payload);
        let header = Header {
            id,
            command: self.command(),
            payload: payload.len(),
            reply: true,
            no_reply: false,
            error: match self {
                Self::Error(_, errno) => Some(*errno),
                _ => None,
            },
        };
        let mut message = Vec::with_capacity(Header::LEN + payload.len());
        header.encode(&mut message);
        message.append(&mut payload);
        message
    }

    fn payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done(_) | Self::Error(..) => {}
            Self::Version(version) => version.encode(out),
            Self::DmaUnmap(unmap) => unmap.encode(out),
            Self::Device(info) => put_u32s(out, &[16, info.flags, info.regions, info.irqs]),
            Self::Region(info) => info.encode(out),
            Self::Irq(info) => put_u32s(out, &[16, info.flags, info.index, info.count]),
            Self::RegionRead(access, data) => {
                access.encode(out);
                out.extend_from_slice(data);
            }
            Self::RegionWrite(access) => access.encode(out),
        }
    }
}

impl RegionInfo {
    /// Bytes of the reply.
    pub fn reply_bytes(&self) -> u32 {
        let areas = match self.areas.len() {
            0 => 0,
            areas => 16 + 16 * areas,
        };
        (REGION_INFO + areas) as u32
    }

    /// The reply for a client that has room for `argsz` bytes: if that is too little, without
    /// capabilities, but with the length that the whole has. The client asks again then, and gets
    /// the file descriptor only with the whole.
    pub fn within(mut self, argsz: u32) -> Self {
        self.argsz = self.reply_bytes();
        if self.argsz > argsz {
            self.areas.clear();
        }
        self
    }

    /// Whether there was too little room for all of it.
    pub fn is_cut(&self) -> bool {
        self.argsz > self.reply_bytes()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let caps = if self.areas.is_empty() {
            0
        } else {
            REGION_CAPS
        };
        let cap_offset = if caps == 0 { 0 } else { REGION_INFO as u32 };
        let flags = self.flags & !REGION_CAPS | caps;
        put_u32s(out, &[self.argsz, flags, self.index, cap_offset]);
        put_u64s(out, &[self.size, self.offset]);
        if caps == 0 {
            return;
        }
        out.extend_from_slice(&SPARSE_MMAP.to_ne_bytes());
        out.extend_from_slice(&1u16.to_ne_bytes());
        put_u32s(out, &[0, self.areas.len() as u32, 0]);
        for area in &self.areas {
            put_u64s(out, &[area.offset, area.size]);
        }
    }

    fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        if payload.len() < REGION_INFO {
            return Err(Malformed::Length);
        }
        let flags = u32_at(payload, 4);
        let areas = if flags & REGION_CAPS == 0 {
            Vec::new()
        } else {
            areas(payload, u32_at(payload, 12) as usize)?
        };
        Ok(Self {
            argsz: u32_at(payload, 0),
            flags: flags & !REGION_CAPS,
            index: u32_at(payload, 8),
            size: u64_at(payload, 16),
            offset: u64_at(payload, 24),
            areas,
        })
    }
}

/// The parts that can be mapped, of the one capability at `at`.
fn areas(payload: &[u8], at: usize) -> Result<Vec<MappableArea>, Malformed> {
    let behind = payload.get(at..).ok_or(Malformed::Field)?;
    let (head, list) = behind.split_at_checked(16).ok_or(Malformed::Length)?;
    if u16::from_ne_bytes([head[0], head[1]]) != SPARSE_MMAP {
        return Err(Malformed::Unsupported);
    }
    let count = u32_at(head, 8) as usize;
    if count > MOST_AREAS || list.len() < count * 16 {
        return Err(Malformed::Length);
    }
    let area = |bytes: &[u8]| MappableArea {
        offset: u64_at(bytes, 0),
        size: u64_at(bytes, 8),
    };
    Ok(list[..count * 16].chunks_exact(16).map(area).collect())
}
