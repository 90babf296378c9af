//! BARs and configuration space, as the client reads and writes them.

use std::rc::Rc;

use flashyard_controller::pcie::{BAR0_BYTES, DOORBELLS, Doorbell, PAGE, config_space, msix};
use flashyard_nvme::vfio_user::pci::{BAR0, BAR4, BAR5, CONFIG, REGIONS};
use flashyard_nvme::vfio_user::{
    MappableArea, REGION_MMAP, REGION_READ, REGION_WRITE, RegionAccess, RegionInfo,
};

use crate::function::State;

/// The access is not one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InvalidAccess;

/// Bytes of an access at most: the largest region that is read whole.
const MOST: u32 = config_space::BYTES as u32;

/// What region `index` is; `None` if there can be none of this number. With `mapped` the doorbells
/// are a page that the client may map.
pub(crate) fn describe(index: u32, mapped: bool) -> Option<RegionInfo> {
    let size = match index {
        BAR0 => BAR0_BYTES,
        BAR4 | BAR5 => msix::BYTES as u64,
        CONFIG => config_space::BYTES as u64,
        _ => 0,
    };
    let mut info = RegionInfo {
        index,
        size,
        ..RegionInfo::default()
    };
    if size > 0 {
        info.flags = REGION_READ | REGION_WRITE;
    }
    if mapped && index == BAR0 {
        info.flags |= REGION_MMAP;
        info.areas.push(MappableArea {
            offset: DOORBELLS,
            size: PAGE,
        });
    }
    (index < REGIONS).then_some(info)
}

/// Reads a region.
pub(crate) fn read(state: &State, access: RegionAccess) -> Result<Vec<u8>, InvalidAccess> {
    if access.count > MOST {
        return Err(InvalidAccess);
    }
    let mut data = vec![0; access.count as usize];
    let offset = access.offset;
    let read = match access.region {
        BAR0 => return read_registers(state, offset, data),
        BAR4 => state
            .worker
            .interrupts
            .borrow()
            .msix
            .read_table(offset, &mut data),
        BAR5 => {
            let interrupts = state.worker.interrupts.borrow();
            interrupts.msix.read_pending(offset, &mut data)
        }
        CONFIG => state.config.borrow().read(offset, &mut data),
        _ => false,
    };
    if read { Ok(data) } else { Err(InvalidAccess) }
}

fn read_registers(state: &State, offset: u64, mut data: Vec<u8>) -> Result<Vec<u8>, InvalidAccess> {
    let size = data.len();
    let value = if offset < DOORBELLS {
        let read = state.registers.borrow().read(offset, size);
        read.map_err(|_| InvalidAccess)?
    } else {
        // Doorbells read as 0.
        let inside = offset
            .checked_add(size as u64)
            .is_some_and(|end| end <= BAR0_BYTES);
        let aligned = matches!(size, 4 | 8) && offset.is_multiple_of(size as u64);
        if !inside || !aligned {
            return Err(InvalidAccess);
        }
        0
    };
    data.copy_from_slice(&value.to_le_bytes()[..size]);
    Ok(data)
}

/// Writes a region. Whether that has reset the function.
pub(crate) fn write(
    state: &Rc<State>,
    access: RegionAccess,
    data: &[u8],
) -> Result<bool, InvalidAccess> {
    let offset = access.offset;
    let written = match access.region {
        BAR0 => return write_registers(state, offset, data).map(|()| false),
        BAR4 => state
            .worker
            .interrupts
            .borrow_mut()
            .msix
            .write_table(offset, data),
        // Pending bits are read-only.
        BAR5 => offset.saturating_add(data.len() as u64) <= msix::BYTES as u64,
        CONFIG => {
            let change = state.config.borrow_mut().write(offset, data);
            let change = change.ok_or(InvalidAccess)?;
            state.on_config(change);
            return Ok(change.reset);
        }
        _ => false,
    };
    if written {
        Ok(false)
    } else {
        Err(InvalidAccess)
    }
}

fn write_registers(state: &Rc<State>, offset: u64, data: &[u8]) -> Result<(), InvalidAccess> {
    if offset < DOORBELLS {
        let mut value = [0; 8];
        let room = value.get_mut(..data.len()).ok_or(InvalidAccess)?;
        room.copy_from_slice(data);
        let value = u64::from_le_bytes(value);
        let written = state
            .registers
            .borrow_mut()
            .write(offset, data.len(), value);
        let change = written.map_err(|_| InvalidAccess)?;
        state.update_gate();
        if let Some(change) = change {
            state.apply(change);
        }
        return Ok(());
    }
    let value: [u8; 4] = data.try_into().map_err(|_| InvalidAccess)?;
    let inside = offset.is_multiple_of(4) && offset < BAR0_BYTES;
    let doorbell = Doorbell::at(offset).filter(|_| inside);
    let doorbell = doorbell.ok_or(InvalidAccess)?;
    state.on_doorbell(doorbell, u32::from_le_bytes(value));
    Ok(())
}
