//! The registers of BAR 0 below the doorbells. All are looked at as dwords: an access of 8 bytes is
//! two of 4, low one first, so that a register of 64 bits may come in halves, in either order.

use flashyard_nvme::fabrics::{
    Configuration, ControllerStatus, Property, PropertySize, Shutdown, ShutdownStatus,
};

use super::{DOORBELLS, PAGE};
use crate::properties::Properties;

/// An access that no register takes: its size is not 4 or 8 bytes, or it is not aligned to that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadAccess;

/// What the function has to do after a register was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// CC.EN went to 1 and everything is right: make the controller, then say
    /// [`Registers::set_ready`].
    Enable(AdminQueues),
    /// CC.EN went to 0: fetch nothing more and forget all queues. Then, when nothing touches the
    /// guest's memory any more, say [`Registers::set_stopped`].
    Disable,
    /// The guest announces its end; the queues stay until CC.EN is 0.
    Shutdown {
        /// CC.SHN was "abrupt".
        abrupt: bool,
    },
    /// The mask of INTx has changed.
    InterruptMask,
}

/// The Admin queue as a guest has set it up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdminQueues {
    /// Address of the submission queue; 0 is as good as any.
    pub submission: u64,
    /// Its entries.
    pub submission_entries: u16,
    /// Address of the completion queue.
    pub completion: u64,
    /// Its entries.
    pub completion_entries: u16,
    /// CC, for the controller.
    pub configuration: u32,
}

const INTMS: u64 = 0x0c;
const INTMC: u64 = 0x10;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;

/// AQA: sizes of both queues, zero-based, 12 bits each.
const AQA_MASK: u32 = 0x0fff_0fff;

/// The registers of one function.
#[derive(Clone, Debug)]
pub struct Registers {
    /// CAP, VS and CRTO, which are the same on every transport.
    fixed: Properties,
    cc: Configuration,
    csts: ControllerStatus,
    interrupt_mask: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
}

impl Registers {
    /// After power-on; I/O queues may have so many entries.
    pub fn new(queue_depth: u16) -> Self {
        Self {
            fixed: Properties::new(queue_depth),
            cc: Configuration::default(),
            csts: ControllerStatus::default(),
            interrupt_mask: 0,
            aqa: 0,
            asq: 0,
            acq: 0,
        }
    }

    /// CSTS.
    pub fn status(&self) -> ControllerStatus {
        self.csts
    }

    /// Whether CC.EN is 1.
    pub fn is_enabled(&self) -> bool {
        self.cc.en
    }

    /// Nothing of what the controller had is at work any more: CSTS.RDY is 0, unless the guest has
    /// enabled it again.
    pub fn set_stopped(&mut self) {
        self.csts.rdy &= self.cc.en;
    }

    /// Whether commands are fetched.
    pub fn is_ready(&self) -> bool {
        self.cc.en && self.csts.rdy && !self.csts.cfs
    }

    /// The mask of INTx.
    pub fn interrupt_mask(&self) -> u32 {
        self.interrupt_mask
    }

    /// The controller is there: CSTS.RDY, unless the guest has changed its mind.
    pub fn set_ready(&mut self) {
        self.csts.rdy = self.cc.en && !self.csts.cfs;
    }

    /// CSTS.CFS.
    pub fn is_fatal(&self) -> bool {
        self.csts.cfs
    }

    /// CSTS.CFS until CC.EN is 0.
    pub fn set_fatal(&mut self) {
        self.csts.cfs = true;
    }

    /// Nothing is left to be saved: CSTS.SHST says so.
    pub fn set_shut_down(&mut self) {
        if self.csts.shst == ShutdownStatus::Occurring {
            self.csts.shst = ShutdownStatus::Complete;
        }
    }

    /// Reads `size` bytes at `offset`. What has no register reads as 0.
    ///
    /// # Errors
    /// The access is not one.
    pub fn read(&self, offset: u64, size: usize) -> Result<u64, BadAccess> {
        check(offset, size)?;
        let low = self.dword(offset);
        let high = if size == 8 { self.dword(offset + 4) } else { 0 };
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Writes `size` bytes at `offset`. What cannot be written is ignored.
    ///
    /// # Errors
    /// The access is not one; nothing has changed.
    pub fn write(
        &mut self,
        offset: u64,
        size: usize,
        value: u64,
    ) -> Result<Option<Change>, BadAccess> {
        check(offset, size)?;
        let mut change = self.set_dword(offset, value as u32);
        if size == 8 {
            change = self.set_dword(offset + 4, (value >> 32) as u32).or(change);
        }
        Ok(change)
    }

    fn dword(&self, offset: u64) -> u32 {
        let fixed = |property: Property, size| self.fixed.get(property, size).unwrap_or(0);
        let capabilities = || fixed(Property::Capabilities, PropertySize::Eight);
        match offset {
            0x00 => capabilities() as u32,
            0x04 => (capabilities() >> 32) as u32,
            0x08 => fixed(Property::Version, PropertySize::Four) as u32,
            INTMS | INTMC => self.interrupt_mask,
            CC => self.cc.bits(),
            CSTS => self.csts.bits(),
            AQA => self.aqa,
            ASQ => self.asq as u32,
            0x2c => (self.asq >> 32) as u32,
            ACQ => self.acq as u32,
            0x34 => (self.acq >> 32) as u32,
            0x68 => fixed(Property::ReadyTimeouts, PropertySize::Four) as u32,
            _ => 0,
        }
    }

    fn set_dword(&mut self, offset: u64, value: u32) -> Option<Change> {
        match offset {
            INTMS => self.interrupt_mask |= value,
            INTMC => self.interrupt_mask &= !value,
            CC => return self.configure(Configuration::from_bits(value)),
            // The Admin queue of an enabled controller stays where it is.
            AQA..=0x37 if self.cc.en => return None,
            AQA => self.aqa = value & AQA_MASK,
            ASQ | 0x2c => set_half(&mut self.asq, offset == ASQ, value),
            ACQ | 0x34 => set_half(&mut self.acq, offset == ACQ, value),
            _ => return None,
        }
        matches!(offset, INTMS | INTMC).then_some(Change::InterruptMask)
    }

    fn configure(&mut self, wanted: Configuration) -> Option<Change> {
        let before = core::mem::replace(&mut self.cc, wanted);
        match (before.en, wanted.en) {
            (false, true) => return self.enable(),
            (true, false) => {
                let rdy = self.csts.rdy;
                self.csts = ControllerStatus {
                    rdy,
                    ..ControllerStatus::default()
                };
                return Some(Change::Disable);
            }
            _ => {}
        }
        match wanted.shn {
            Shutdown::Normal | Shutdown::Abrupt if before.shn != wanted.shn => {
                self.csts.shst = ShutdownStatus::Occurring;
                let abrupt = wanted.shn == Shutdown::Abrupt;
                Some(Change::Shutdown { abrupt })
            }
            _ => None,
        }
    }

    /// Looks at everything that has to be right for an enabled controller. What is not is fatal.
    fn enable(&mut self) -> Option<Change> {
        self.csts = ControllerStatus::default();
        let queues = AdminQueues {
            submission: self.asq,
            submission_entries: (self.aqa & 0xfff) as u16 + 1,
            completion: self.acq,
            completion_entries: (self.aqa >> 16) as u16 + 1,
            configuration: self.cc.bits(),
        };
        let sizes = queues.submission_entries.min(queues.completion_entries);
        let entries = self.cc.iosqes == 6 && self.cc.iocqes == 4;
        let aligned = (queues.submission | queues.completion).is_multiple_of(PAGE);
        if sizes >= 2 && entries && aligned && self.fixed.supports(self.cc) {
            Some(Change::Enable(queues))
        } else {
            self.csts.cfs = true;
            None
        }
    }
}

fn check(offset: u64, size: usize) -> Result<(), BadAccess> {
    let aligned = matches!(size, 4 | 8) && offset.is_multiple_of(size as u64);
    if aligned && offset < DOORBELLS {
        Ok(())
    } else {
        Err(BadAccess)
    }
}

fn set_half(register: &mut u64, low: bool, value: u32) {
    *register = if low {
        *register & !0xffff_ffff | u64::from(value)
    } else {
        *register & 0xffff_ffff | u64::from(value) << 32
    };
}
