//! What a client asks.

use alloc::vec::Vec;

use super::version::Version;
use super::{Command, Header, Malformed, put_u32s, put_u64s, u32_at, u64_at};

/// The device may read the memory.
pub const DMA_READ: u32 = 1;
/// The device may write the memory.
pub const DMA_WRITE: u32 = 2;
/// Flag of DMA_UNMAP: all there is, whatever the range says.
pub const UNMAP_ALL: u32 = 2;

/// A request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// What it wants to speak.
    Version(Version<'a>),
    /// Memory of the guest appears.
    DmaMap(DmaMap),
    /// Memory of the guest goes.
    DmaUnmap(DmaUnmap),
    /// What the device is.
    DeviceInfo,
    /// What a region is.
    RegionInfo {
        /// Bytes that the reply may have.
        argsz: u32,
        /// Number of the region.
        index: u32,
    },
    /// What a kind of interrupt is.
    IrqInfo {
        /// Number of the kind.
        index: u32,
    },
    /// Interrupts are set up.
    SetIrqs(SetIrqs<'a>),
    /// Read of a region.
    RegionRead(RegionAccess),
    /// Write of a region.
    RegionWrite(RegionAccess, &'a [u8]),
    /// Reset of the device.
    Reset,
}

/// DMA_MAP. The memory is reachable only with a file descriptor beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaMap {
    /// [`DMA_READ`], [`DMA_WRITE`]; others are unknown here.
    pub flags: u32,
    /// Where in the file the memory begins.
    pub offset: u64,
    /// Guest address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// DMA_UNMAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DmaUnmap {
    /// As the client has sent it; the reply repeats it.
    pub argsz: u32,
    /// [`UNMAP_ALL`].
    pub flags: u32,
    /// Guest address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// SET_IRQS: what happens to interrupts `start` to `start + count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetIrqs<'a> {
    /// Number of the kind.
    pub index: u32,
    /// First interrupt.
    pub start: u32,
    /// How many; 0 with [`IrqData::None`] and [`IrqAction::Trigger`] disables all of the kind.
    pub count: u32,
    /// What is done.
    pub action: IrqAction,
    /// What comes with it.
    pub data: IrqData<'a>,
}

/// What SET_IRQS does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqAction {
    /// Masks.
    Mask,
    /// Unmasks.
    Unmask,
    /// Triggers, or with eventfds: sets what is triggered by the device.
    Trigger,
}

/// What comes with SET_IRQS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqData<'a> {
    /// Nothing: all of the range.
    None,
    /// A byte for each: those that are not 0.
    Bool(&'a [u8]),
    /// Eventfds, one for each; none takes them away.
    EventFds,
}

/// What REGION_READ and REGION_WRITE are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionAccess {
    /// Offset in the region.
    pub offset: u64,
    /// Number of the region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

impl RegionAccess {
    pub(super) const LEN: usize = 16;

    /// Reads the first 16 bytes of a payload; gives what follows them.
    pub(super) fn decode(payload: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (fixed, data) = payload
            .split_at_checked(Self::LEN)
            .ok_or(Malformed::Length)?;
        let access = Self {
            offset: u64_at(fixed, 0),
            region: u32_at(fixed, 8),
            count: u32_at(fixed, 12),
        };
        Ok((access, data))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u64s(out, &[self.offset]);
        put_u32s(out, &[self.region, self.count]);
    }
}

const DATA_NONE: u32 = 1;
const DATA_BOOL: u32 = 2;
const DATA_EVENTFD: u32 = 4;
const ACTION_MASK: u32 = 8;
const ACTION_UNMASK: u32 = 16;
const ACTION_TRIGGER: u32 = 32;
/// Interrupts of one message at most, far beyond what MSI-X has.
const MOST_IRQS: u32 = 4096;

/// A payload of exactly `len` bytes that begins with an argsz of at least as much.
fn fixed(payload: &[u8], len: usize) -> Result<u32, Malformed> {
    if payload.len() != len {
        return Err(Malformed::Length);
    }
    let argsz = u32_at(payload, 0);
    if (argsz as usize) < len {
        return Err(Malformed::Argsz);
    }
    Ok(argsz)
}

impl<'a> Request<'a> {
    /// Reads the payload behind `header`, which came with so many file descriptors.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(
        header: &Header,
        payload: &'a [u8],
        descriptors: usize,
    ) -> Result<Self, Malformed> {
        if header.reply {
            return Err(Malformed::Type);
        }
        let request = Self::of_payload(header.command, payload)?;
        let fits = match &request {
            Self::DmaMap(_) => descriptors <= 1,
            Self::SetIrqs(set) if set.data == IrqData::EventFds => {
                descriptors == 0 || descriptors == set.count as usize
            }
            _ => descriptors == 0,
        };
        if fits {
            Ok(request)
        } else {
            Err(Malformed::Descriptors)
        }
    }

    fn of_payload(command: Command, payload: &'a [u8]) -> Result<Self, Malformed> {
        Ok(match command {
            Command::VERSION => Self::Version(Version::decode(payload)?),
            Command::DMA_MAP => {
                fixed(payload, 32)?;
                Self::DmaMap(DmaMap {
                    flags: u32_at(payload, 4),
                    offset: u64_at(payload, 8),
                    address: u64_at(payload, 16),
                    size: u64_at(payload, 24),
                })
            }
            Command::DMA_UNMAP => Self::DmaUnmap(DmaUnmap {
                argsz: fixed(payload, 24)?,
                flags: u32_at(payload, 4),
                address: u64_at(payload, 8),
                size: u64_at(payload, 16),
            }),
            Command::DEVICE_INFO => fixed(payload, 16).map(|_| Self::DeviceInfo)?,
            Command::REGION_INFO => Self::RegionInfo {
                argsz: fixed(payload, 32)?,
                index: u32_at(payload, 8),
            },
            Command::IRQ_INFO => {
                fixed(payload, 16)?;
                let index = u32_at(payload, 8);
                Self::IrqInfo { index }
            }
            Command::SET_IRQS => Self::SetIrqs(SetIrqs::decode(payload)?),
            Command::REGION_READ => match RegionAccess::decode(payload)? {
                (access, []) => Self::RegionRead(access),
                _ => return Err(Malformed::Length),
            },
            Command::REGION_WRITE => {
                let (access, data) = RegionAccess::decode(payload)?;
                if data.len() != access.count as usize {
                    return Err(Malformed::Length);
                }
                Self::RegionWrite(access, data)
            }
            Command::RESET if payload.is_empty() => Self::Reset,
            Command::RESET => return Err(Malformed::Length),
            _ => return Err(Malformed::Unsupported),
        })
    }

    /// Its command.
    pub fn command(&self) -> Command {
        match self {
            Self::Version(_) => Command::VERSION,
            Self::DmaMap(_) => Command::DMA_MAP,
            Self::DmaUnmap(_) => Command::DMA_UNMAP,
            Self::DeviceInfo => Command::DEVICE_INFO,
            Self::RegionInfo { .. } => Command::REGION_INFO,
            Self::IrqInfo { .. } => Command::IRQ_INFO,
            Self::SetIrqs(_) => Command::SET_IRQS,
            Self::RegionRead(_) => Command::REGION_READ,
            Self::RegionWrite(..) => Command::REGION_WRITE,
            Self::Reset => Command::RESET,
        }
    }

    /// The message with this identifier.
    pub fn encode(&self, id: u16) -> Vec<u8> {
        self.message(id, false)
    }

    /// The same for a sender that wants no reply.
    pub fn encode_posted(&self, id: u16) -> Vec<u8> {
        self.message(id, true)
    }

    fn message(&self, id: u16, no_reply: bool) -> Vec<u8> {
        let mut payload = Vec::new();
        self.payload(&mut payload);
        let header = Header {
            id,
            command: self.command(),
            payload: payload.len(),
            reply: false,
            no_reply,
            error: None,
        };
        let mut message = Vec::with_capacity(Header::LEN + payload.len());
        header.encode(&mut message);
        message.append(&mut payload);
        message
    }

    fn payload(&self, out: &mut Vec<u8>) {
        match self {
            Self::Version(version) => version.encode(out),
            Self::DmaMap(map) => {
                put_u32s(out, &[32, map.flags]);
                put_u64s(out, &[map.offset, map.address, map.size]);
            }
            Self::DmaUnmap(unmap) => unmap.encode(out),
            Self::DeviceInfo => put_u32s(out, &[16, 0, 0, 0]),
            Self::RegionInfo { argsz, index } => {
                put_u32s(out, &[*argsz, 0, *index, 0]);
                put_u64s(out, &[0, 0]);
            }
            Self::IrqInfo { index } => put_u32s(out, &[16, 0, *index, 0]),
            Self::SetIrqs(set) => set.encode(out),
            Self::RegionRead(access) => access.encode(out),
            Self::RegionWrite(access, data) => {
                access.encode(out);
                out.extend_from_slice(data);
            }
            Self::Reset => {}
        }
    }
}

impl DmaUnmap {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_u32s(out, &[self.argsz, self.flags]);
        put_u64s(out, &[self.address, self.size]);
    }
}

impl<'a> SetIrqs<'a> {
    const LEN: usize = 20;

    fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        let (fixed, behind) = payload
            .split_at_checked(Self::LEN)
            .ok_or(Malformed::Length)?;
        let (argsz, flags) = (u32_at(fixed, 0) as usize, u32_at(fixed, 4));
        if argsz < payload.len() {
            return Err(Malformed::Argsz);
        }
        let (start, count) = (u32_at(fixed, 12), u32_at(fixed, 16));
        if start.saturating_add(count) > MOST_IRQS {
            return Err(Malformed::Field);
        }
        let data = match flags & 7 {
            DATA_NONE => IrqData::None,
            DATA_BOOL => IrqData::Bool(behind),
            DATA_EVENTFD => IrqData::EventFds,
            _ => return Err(Malformed::Field),
        };
        let action = match flags & !7 {
            ACTION_MASK => IrqAction::Mask,
            ACTION_UNMASK => IrqAction::Unmask,
            ACTION_TRIGGER => IrqAction::Trigger,
            _ => return Err(Malformed::Field),
        };
        let bools = if flags & 7 == DATA_BOOL { count } else { 0 };
        if behind.len() != bools as usize {
            return Err(Malformed::Length);
        }
        Ok(Self {
            index: u32_at(fixed, 8),
            start,
            count,
            action,
            data,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (data, bools): (u32, &[u8]) = match self.data {
            IrqData::None => (DATA_NONE, &[]),
            IrqData::Bool(bools) => (DATA_BOOL, bools),
            IrqData::EventFds => (DATA_EVENTFD, &[]),
        };
        let action = match self.action {
            IrqAction::Mask => ACTION_MASK,
            IrqAction::Unmask => ACTION_UNMASK,
            IrqAction::Trigger => ACTION_TRIGGER,
        };
        let argsz = (Self::LEN + bools.len()) as u32;
        let fields = [argsz, data | action, self.index, self.start, self.count];
        put_u32s(out, &fields);
        out.extend_from_slice(bools);
    }
}
