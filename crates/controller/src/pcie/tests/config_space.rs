//! The configuration space as a guest looks through it, and the MSI-X table.

use alloc::vec;
use alloc::vec::Vec;

use crate::pcie::config_space::{ConfigChange, ConfigSpace, Identity};
use crate::pcie::msix::Msix;

const VECTORS: u16 = 65;

fn space() -> ConfigSpace {
    let identity = Identity {
        vendor: 0x4e58,
        device: 1,
        subsystem_vendor: 0x4e58,
        subsystem: 2,
    };
    ConfigSpace::new(&identity, VECTORS)
}

fn read<const N: usize>(space: &ConfigSpace, offset: u64) -> [u8; N] {
    let mut to = [0xaa; N];
    assert!(space.read(offset, &mut to));
    to
}

fn dword(space: &ConfigSpace, offset: u64) -> u32 {
    u32::from_le_bytes(read(space, offset))
}

#[test]
fn a_guest_finds_an_nvme_controller_with_three_capabilities() {
    let space = space();
    assert_eq!(dword(&space, 0), 0x0001_4e58);
    assert_eq!(dword(&space, 8) >> 8, 0x01_0802, "class");
    assert_eq!(dword(&space, 0x2c), 0x0002_4e58);
    assert_eq!(read::<1>(&space, 0x3d), [1], "INTA");
    let mut at = u64::from(read::<1>(&space, 0x34)[0]);
    let mut found = Vec::new();
    while at != 0 {
        let [id, next] = read(&space, at);
        found.push(id);
        at = next.into();
    }
    assert_eq!(found, [0x01, 0x11, 0x10]);
    assert_eq!(dword(&space, 0x50) >> 16 & 0x7ff, u32::from(VECTORS) - 1);
    assert_eq!((dword(&space, 0x54), dword(&space, 0x58)), (4, 5), "BARs");
    assert_ne!(dword(&space, 0x64) & 1 << 28, 0, "function level reset");
    assert_eq!(read::<8>(&space, 256), [0; 8], "no extended capabilities");
}

#[test]
fn bars_show_their_sizes() {
    let mut space = space();
    for (bar, size) in [
        (0x10, 0xffff_c004),
        (0x14, u32::MAX),
        (0x18, 0),
        (0x20, 0xffff_f000),
        (0x24, 0xffff_f000),
    ] {
        assert!(space.write(bar, &[0xff; 4]).is_some());
        assert_eq!(dword(&space, bar), size, "{bar:#x}");
    }
}

#[test]
fn what_is_read_only_stays_and_what_is_outside_is_refused() {
    let mut space = space();
    let before: [u8; 256] = read(&space, 0);
    for at in [0, 2, 6, 8, 0x2c, 0x34, 0x3d, 0x41, 0x51, 0x54, 0x61, 0x64] {
        assert!(space.write(at, &[0xff]).is_some());
    }
    assert_eq!(read::<256>(&space, 0), before);
    assert!(space.write(4095, &[1]).is_some(), "ignored");
    for (offset, len) in [(4096, 1), (4095, 2), (u64::MAX, 4)] {
        assert_eq!(space.write(offset, &vec![0; len]), None);
        assert!(!space.read(offset, &mut vec![0; len]));
    }
}

#[test]
fn bits_for_interrupts_are_seen_and_a_reset_clears_them() {
    let mut space = space();
    assert!(!space.is_bus_master() && !space.takes_msix() && !space.is_intx_disabled());
    let changed = Some(ConfigChange {
        reset: false,
        interrupts: true,
    });
    assert_eq!(space.write(4, &[0x06, 0x04]), changed);
    assert!(space.is_bus_master() && space.is_intx_disabled());
    assert_eq!(space.write(0x53, &[0x80]), changed);
    assert!(space.takes_msix());
    assert_eq!(space.write(0x53, &[0xc0]), changed);
    assert!(!space.takes_msix() && space.is_msix_enabled());
    assert_eq!(space.write(0x53, &[0xc0]), Some(ConfigChange::default()));
    space.reset();
    assert!(!space.is_bus_master() && !space.is_msix_enabled());
}

#[test]
fn a_function_level_reset_is_asked_for_by_a_bit_that_reads_as_0() {
    let mut space = space();
    let change = space.write(0x68, &[0x10, 0x80]).expect("Device Control");
    assert!(change.reset);
    assert_eq!(read::<2>(&space, 0x68), [0x10, 0]);
    assert!(!space.write(0x68, &[0x10, 0]).expect("Device Control").reset);
}

#[test]
fn the_msix_table_is_kept_and_pending_bits_are_taken_once() {
    let mut msix = Msix::new(VECTORS);
    let mut entry = [0; 16];
    assert!(msix.read_table(64 * 16, &mut entry));
    assert_eq!(entry[12], 1, "masked at first");
    assert!(msix.write_table(64 * 16, &[7; 16]) && msix.read_table(64 * 16, &mut entry));
    assert_eq!(entry, [7; 16]);
    assert!(
        msix.write_table(4080, &[9; 16]),
        "behind the table: ignored"
    );
    assert!(msix.read_table(4080, &mut entry) && entry == [0; 16]);
    for (offset, len) in [(4096u64, 1), (4090, 8), (u64::MAX, 1)] {
        assert!(!msix.write_table(offset, &vec![0; len]));
        assert!(!msix.read_table(offset, &mut vec![0; len]));
        assert!(!msix.read_pending(offset, &mut vec![0; len]));
    }
    for vector in [0, 64, 65, 300, u16::MAX] {
        msix.set_pending(vector);
    }
    let mut bits = [0; 16];
    assert!(msix.read_pending(0, &mut bits));
    assert_eq!((bits[0], bits[8]), (1, 1), "65 and more are no vectors");
    assert!(msix.take_pending(64) && !msix.take_pending(64) && !msix.take_pending(u16::MAX));
}
