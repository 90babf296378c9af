//! Logs about the state of a controller: errors (01h), SMART (02h), firmware slots (03h).

use crate::bytes::{Field, structure};
use crate::command::Status;

structure! {
    /// An entry of the Error Information log (01h).
    pub struct ErrorLogEntry: 64 {
        /// Error Count: the number of this error since the controller was made, from 1; 0 is an
        /// empty entry.
        error_count: u64 = 0,
        /// Submission Queue ID; FFFFh if the error is of no queue.
        sqid: u16 = 8,
        /// Command ID; FFFFh if the error is of no command.
        cid: u16 = 10,
        /// Status Field.
        status: Status = 12,
        /// Parameter Error Location: byte in bits 7:0, bit in 10:8; FFFFh if there is none.
        parameter_error_location: u16 = 14,
        /// First logical block that had the error.
        lba: u64 = 16,
        /// Namespace.
        nsid: u32 = 24,
        /// Vendor Specific Information Available.
        vendor_specific: u8 = 28,
        /// Transport Type: 3 is TCP.
        trtype: u8 = 29,
        /// Command Set Indicator.
        csi: u8 = 30,
        /// Opcode.
        opcode: u8 = 31,
        /// Command Specific Information.
        command_specific: u64 = 32,
        /// Transport Type Specific Information.
        transport_specific: u16 = 40,
        /// Log Page Version: 1 if TRTYPE, CSI and the opcode are reported.
        version: u8 = 63,
    }
}

/// The status field as in DW3 of a completion, phase tag 0.
impl Field for Status {
    fn get(from: &[u8], at: usize) -> Self {
        Self::from_bits(u16::get(from, at) >> 1)
    }

    fn put(&self, to: &mut [u8], at: usize) {
        (self.bits() << 1).put(to, at);
    }
}

/// Bits of Critical Warning in [`SmartLog`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CriticalWarning;

impl CriticalWarning {
    /// Available spare is below its threshold.
    pub const SPARE: u8 = 1;
    /// A temperature is past its threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded.
    pub const RELIABILITY: u8 = 1 << 2;
    /// All media are read-only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// The backup of volatile memory failed.
    pub const VOLATILE_BACKUP: u8 = 1 << 4;
}

structure! {
    /// SMART / Health Information log (02h).
    pub struct SmartLog: 512 {
        /// Critical Warning ([`CriticalWarning`]).
        critical_warning: u8 = 0,
        /// Composite Temperature, kelvin.
        composite_temperature: u16 = 1,
        /// Available Spare, percent.
        available_spare: u8 = 3,
        /// Available Spare Threshold, percent.
        available_spare_threshold: u8 = 4,
        /// Percentage Used; 255 for 255 and more.
        percentage_used: u8 = 5,
        /// Endurance Group Critical Warning Summary.
        endurance_group_warning: u8 = 6,
        /// Data Units Read, thousands of 512 bytes, rounded up.
        data_units_read: u128 = 32,
        /// Data Units Written, thousands of 512 bytes, rounded up.
        data_units_written: u128 = 48,
        /// Host Read Commands.
        host_read_commands: u128 = 64,
        /// Host Write Commands.
        host_write_commands: u128 = 80,
        /// Controller Busy Time, minutes.
        controller_busy_time: u128 = 96,
        /// Power Cycles.
        power_cycles: u128 = 112,
        /// Power On Hours.
        power_on_hours: u128 = 128,
        /// Unsafe Shutdowns.
        unsafe_shutdowns: u128 = 144,
        /// Media and Data Integrity Errors.
        media_errors: u128 = 160,
        /// Number of Error Information Log Entries over the life of the controller.
        error_log_entries: u128 = 176,
        /// Warning Composite Temperature Time, minutes.
        warning_temperature_time: u32 = 192,
        /// Critical Composite Temperature Time, minutes.
        critical_temperature_time: u32 = 196,
    }
}

impl SmartLog {
    /// Data units (thousands of 512 bytes, rounded up) of a count of bytes.
    pub fn data_units(bytes: u128) -> u128 {
        bytes.div_ceil(512_000)
    }
}

structure! {
    /// Firmware Slot Information log (03h), of one slot.
    pub struct FirmwareSlotLog: 512 {
        /// Active Firmware Info: bits 2:0 the slot in use, bits 6:4 the slot of the next reset.
        afi: u8 = 0,
        /// Firmware Revision of slot 1, ASCII.
        frs1: [u8; 8] = 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_entry_bytes_both_ways() {
        let entry = ErrorLogEntry {
            error_count: 5,
            sqid: 1,
            cid: 0x0203,
            status: Status::LBA_OUT_OF_RANGE.with_dnr(),
            parameter_error_location: 0xffff,
            lba: 0x0102_0304_0506_0708,
            nsid: 9,
            trtype: 3,
            opcode: 2,
            version: 1,
            ..ErrorLogEntry::default()
        };
        let mut data = [0xaa; 64];
        entry.encode(&mut data);
        assert_eq!(
            data[..16],
            [5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 2, 0x00, 0x81, 0xff, 0xff]
        );
        assert_eq!(
            data[16..32],
            [8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 3, 0, 2]
        );
        assert_eq!(data[63], 1);
        assert_eq!(ErrorLogEntry::decode(&data), entry);
        data[42..63].fill(0xff);
        assert_eq!(
            ErrorLogEntry::decode(&data),
            entry,
            "reserved bytes do not matter"
        );
    }

    #[test]
    fn smart_bytes_both_ways() {
        let smart = SmartLog {
            critical_warning: CriticalWarning::READ_ONLY,
            composite_temperature: 0x0134,
            available_spare: 100,
            data_units_read: 0x0102,
            media_errors: 7,
            critical_temperature_time: 1,
            ..SmartLog::default()
        };
        let mut data = [0xaa; 512];
        smart.encode(&mut data);
        assert_eq!(data[..7], [8, 0x34, 1, 100, 0, 0, 0]);
        assert_eq!(data[32..35], [2, 1, 0]);
        assert_eq!((data[160], data[196]), (7, 1));
        assert_eq!(data.iter().filter(|b| **b != 0).count(), 8);
        assert_eq!(SmartLog::decode(&data), smart);
        assert_eq!(
            [0, 1, 512_000, 512_001].map(SmartLog::data_units),
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn firmware_bytes_both_ways() {
        let firmware = FirmwareSlotLog {
            afi: 1,
            frs1: *b"0.1.0   ",
        };
        let mut data = [0xaa; 512];
        firmware.encode(&mut data);
        assert_eq!(&data[..17], b"\x01\0\0\0\0\0\0\x000.1.0   \0");
        assert_eq!(FirmwareSlotLog::decode(&data), firmware);
    }
}
