//! CAP, CC, CSTS and the Admin queue.

use flashyard_nvme::fabrics::{Capabilities, ShutdownStatus};

use crate::pcie::registers::{AdminQueues, BadAccess, Change, Registers};

/// Offsets, and what is written there.
type Writes = &'static [(u64, u64)];

const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;

/// Registers with an Admin queue of 32 entries at 0x1000, completions of 16 at 0x2000.
fn with_admin() -> Registers {
    let mut registers = Registers::new(1024);
    for (offset, size, value) in [
        (0x24, 4, 0x000f_001f),
        (0x28, 8, 0x1_0000_1000),
        (0x30, 8, 0x1_0000_2000),
    ] {
        assert_eq!(registers.write(offset, size, value), Ok(None));
    }
    registers
}

fn enabled() -> Registers {
    let mut registers = with_admin();
    let change = registers.write(CC, 4, 0x46_0001);
    assert!(matches!(change, Ok(Some(Change::Enable(_)))), "{change:?}");
    registers.set_ready();
    registers
}

fn csts(registers: &Registers) -> u64 {
    registers.read(CSTS, 4).expect("CSTS")
}

#[test]
fn a_guest_reads_what_the_controller_can_do() {
    let registers = Registers::new(1024);
    let capabilities = Capabilities::from_bits(registers.read(0, 8).expect("CAP"));
    assert_eq!((capabilities.mqes, capabilities.cqr), (1023, true));
    assert_eq!((capabilities.mpsmin, capabilities.mpsmax), (0, 0));
    let halves = [0, 4].map(|at| registers.read(at, 4).expect("half of CAP"));
    assert_eq!(registers.read(0, 8), Ok(halves[1] << 32 | halves[0]));
    assert_eq!(registers.read(8, 4), Ok(0x0002_0000));
    for absent in [0x20, 0x38, 0x3c, 0x40, 0xe00, 0xffc] {
        assert_eq!(registers.read(absent, 4), Ok(0), "{absent:#x}");
    }
}

#[test]
fn an_access_of_another_size_or_alignment_changes_nothing() {
    let mut registers = with_admin();
    for (offset, size) in [
        (0, 1),
        (0, 2),
        (0x14, 3),
        (2, 4),
        (4, 8),
        (0x1000, 4),
        (0, 16),
        (0, 0),
    ] {
        assert_eq!(
            registers.read(offset, size),
            Err(BadAccess),
            "{offset} {size}"
        );
        assert_eq!(registers.write(offset, size, 0), Err(BadAccess));
    }
    assert!(!registers.is_enabled());
}

#[test]
fn enabling_gives_the_admin_queue_and_waits_for_the_controller() {
    let mut registers = with_admin();
    let expected = AdminQueues {
        submission: 0x1_0000_1000,
        submission_entries: 32,
        completion: 0x1_0000_2000,
        completion_entries: 16,
        configuration: 0x46_0001,
    };
    assert_eq!(
        registers.write(CC, 4, 0x46_0001),
        Ok(Some(Change::Enable(expected)))
    );
    assert_eq!(csts(&registers), 0, "not before the controller is there");
    registers.set_ready();
    assert_eq!(csts(&registers), 1);
    assert_eq!(registers.write(CC, 4, 0x46_0001), Ok(None), "nothing new");
    assert_eq!(registers.write(CC, 4, 0x46_0000), Ok(Some(Change::Disable)));
    assert_eq!(csts(&registers), 1, "not before it has stopped");
    assert!(!registers.is_ready(), "no command is fetched");
    registers.set_stopped();
    assert_eq!(csts(&registers), 0);
    registers.set_ready();
    assert_eq!(csts(&registers), 0, "the guest has changed its mind");
}

#[test]
fn an_admin_queue_may_be_at_address_0_and_come_in_halves_in_either_order() {
    let mut registers = Registers::new(1024);
    for (offset, value) in [
        (0x24, 0x0001_0001),
        (0x34, 5),
        (0x30, 0x3000),
        (0x2c, 0),
        (0x28, 0),
    ] {
        assert_eq!(registers.write(offset, 4, value), Ok(None));
    }
    let Ok(Some(Change::Enable(queues))) = registers.write(CC, 4, 0x46_0001) else {
        panic!("it can be enabled")
    };
    assert_eq!((queues.submission, queues.completion), (0, 0x5_0000_3000));
    assert_eq!(queues.submission_entries, 2);
}

#[test]
fn what_is_wrong_at_the_moment_of_enabling_is_fatal() {
    let table: [(Writes, u64, &str); 9] = [
        (&[(0x24, 0x000f_0000)], 0x46_0001, "one entry to submit"),
        (&[(0x24, 0x0000_000f)], 0x46_0001, "one entry to complete"),
        (&[(0x28, 0x1800)], 0x46_0001, "ASQ not aligned"),
        (&[(0x30, 0x1010)], 0x46_0001, "ACQ not aligned"),
        (&[], 0x45_0001, "IOSQES 5"),
        (&[], 0x36_0001, "IOCQES 3"),
        (&[], 0x46_0081, "MPS 1"),
        (&[], 0x46_0061, "CSS 110b"),
        (&[], 0x46_1001, "AMS 2"),
    ];
    for (writes, cc, what) in table {
        let mut registers = with_admin();
        for (offset, value) in writes {
            assert_eq!(registers.write(*offset, 4, *value), Ok(None), "{what}");
        }
        assert_eq!(registers.write(CC, 4, cc), Ok(None), "{what}");
        registers.set_ready();
        assert_eq!(csts(&registers), 2, "{what}: CFS, not RDY");
        assert_eq!(
            registers.write(CC, 4, 0),
            Ok(Some(Change::Disable)),
            "{what}"
        );
        assert_eq!(csts(&registers), 0, "{what}: a reset clears it");
    }
}

#[test]
fn the_admin_queue_of_an_enabled_controller_stays() {
    let mut registers = enabled();
    for (offset, value) in [
        (0x24, 0),
        (0x28, 0x9000),
        (0x2c, 7),
        (0x30, 0x9000),
        (0x34, 7),
    ] {
        let before = registers.read(offset, 4);
        assert_eq!(registers.write(offset, 4, value), Ok(None));
        assert_eq!(registers.read(offset, 4), before, "{offset:#x}");
    }
}

#[test]
fn a_shutdown_is_reported_when_nothing_is_left_to_be_saved() {
    for (cc, abrupt) in [(0x46_4001, false), (0x46_8001, true)] {
        let mut registers = enabled();
        assert_eq!(
            registers.write(CC, 4, cc),
            Ok(Some(Change::Shutdown { abrupt }))
        );
        assert_eq!(registers.status().shst, ShutdownStatus::Occurring);
        assert_eq!(registers.write(CC, 4, cc), Ok(None), "once");
        registers.set_shut_down();
        assert_eq!(registers.status().shst, ShutdownStatus::Complete);
        assert_eq!(registers.write(CC, 4, 0), Ok(Some(Change::Disable)));
        assert_eq!(registers.status().shst, ShutdownStatus::Normal);
        registers.set_shut_down();
        registers.set_stopped();
        assert_eq!(csts(&registers), 0, "too late");
    }
}

#[test]
fn a_controller_that_has_stopped_too_late_does_not_stop_the_next_one() {
    let mut registers = enabled();
    assert_eq!(registers.write(CC, 4, 0), Ok(Some(Change::Disable)));
    let enabled = registers.write(CC, 4, 0x46_0001);
    assert!(matches!(enabled, Ok(Some(Change::Enable(_)))));
    assert_eq!(csts(&registers), 0);
    registers.set_stopped();
    registers.set_ready();
    registers.set_stopped();
    assert_eq!(csts(&registers), 1);
}

#[test]
fn the_mask_of_intx_is_set_and_cleared_by_bits() {
    let mut registers = Registers::new(2);
    assert_eq!(registers.write(0x0c, 4, 5), Ok(Some(Change::InterruptMask)));
    assert_eq!(registers.write(0x10, 4, 4), Ok(Some(Change::InterruptMask)));
    assert_eq!(registers.interrupt_mask(), 1);
    // Eight bytes at 10h are INTMC and CC.
    assert_eq!(registers.write(0x10, 8, 1), Ok(Some(Change::InterruptMask)));
    assert_eq!(registers.interrupt_mask(), 0);
}
