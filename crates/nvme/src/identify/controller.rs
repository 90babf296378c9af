//! Identify Controller (CNS 01h) and its part for the NVM command set (CNS 06h, CSI 0).

use crate::bytes::{Field, structure};
use crate::nqn::Nqn;

structure! {
    /// Identify Controller data structure (CNS 01h).
    pub struct IdentifyController: 4096 {
        /// PCI Vendor ID.
        vid: u16 = 0,
        /// PCI Subsystem Vendor ID.
        ssvid: u16 = 2,
        /// Serial Number, ASCII; the same for all controllers of a subsystem.
        sn: [u8; 20] = 4,
        /// Model Number, ASCII.
        mn: [u8; 40] = 24,
        /// Firmware Revision, ASCII.
        fr: [u8; 8] = 64,
        /// Recommended Arbitration Burst, 2^n.
        rab: u8 = 72,
        /// IEEE OUI, little-endian.
        ieee: [u8; 3] = 73,
        /// Multi-Path I/O and sharing: bit 0 ports, bit 1 controllers, bit 3 ANA.
        cmic: u8 = 76,
        /// Maximum Data Transfer Size, 2^n pages of CAP.MPSMIN; 0 without limit.
        mdts: u8 = 77,
        /// Controller Identifier.
        cntlid: u16 = 78,
        /// Version, as the property.
        ver: u32 = 80,
        /// RTD3 Resume Latency, microseconds.
        rtd3r: u32 = 84,
        /// RTD3 Entry Latency, microseconds.
        rtd3e: u32 = 88,
        /// Optional Asynchronous Events Supported ([`crate::feature::AsyncEventConfiguration`] has
        /// the bits).
        oaes: u32 = 92,
        /// Controller Attributes.
        ctratt: u32 = 96,
        /// Controller Type: 1 I/O, 2 discovery, 3 administrative.
        cntrltype: u8 = 111,
        /// FRU Globally Unique Identifier.
        fguid: [u8; 16] = 112,
        /// Command Retry Delay Time 1, in units of 100 ms.
        crdt1: u16 = 128,
        /// Command Retry Delay Time 2, in units of 100 ms.
        crdt2: u16 = 130,
        /// Command Retry Delay Time 3, in units of 100 ms.
        crdt3: u16 = 132,
        /// Optional Admin Command Support.
        oacs: u16 = 256,
        /// Abort Command Limit, zero-based.
        acl: u8 = 258,
        /// Asynchronous Event Request Limit, zero-based.
        aerl: u8 = 259,
        /// Firmware Updates: bit 0 slot 1 read-only, bits 3:1 count of slots.
        frmw: u8 = 260,
        /// Log Page Attributes.
        lpa: u8 = 261,
        /// Error Log Page Entries, zero-based.
        elpe: u8 = 262,
        /// Number of Power States Support, zero-based.
        npss: u8 = 263,
        /// Warning Composite Temperature Threshold, kelvin.
        wctemp: u16 = 266,
        /// Critical Composite Temperature Threshold, kelvin.
        cctemp: u16 = 268,
        /// Total NVM Capacity, bytes.
        tnvmcap: u128 = 280,
        /// Unallocated NVM Capacity, bytes.
        unvmcap: u128 = 296,
        /// Keep Alive Support: granularity in units of 100 ms, 0 if there is none.
        kas: u16 = 320,
        /// Host Controlled Thermal Management Attributes.
        hctma: u16 = 322,
        /// Sanitize Capabilities.
        sanicap: u32 = 328,
        /// ANA Transition Time, seconds.
        anatt: u8 = 342,
        /// Asymmetric Namespace Access Capabilities.
        anacap: u8 = 343,
        /// ANA Group Identifier Maximum.
        anagrpmax: u32 = 344,
        /// Number of ANA Group Identifiers.
        nanagrpid: u32 = 348,
        /// Submission Queue Entry Size: 2^n, required in bits 3:0, maximum in bits 7:4.
        sqes: u8 = 512,
        /// Completion Queue Entry Size: 2^n, required in bits 3:0, maximum in bits 7:4.
        cqes: u8 = 513,
        /// Maximum Outstanding Commands of a queue.
        maxcmd: u16 = 514,
        /// Number of Namespaces: the greatest NSID.
        nn: u32 = 516,
        /// Optional NVM Command Support.
        oncs: u16 = 520,
        /// Fused Operation Support: bit 0 Compare and Write.
        fuses: u16 = 522,
        /// Format NVM Attributes.
        fna: u8 = 524,
        /// Volatile Write Cache: bit 0 present, bits 2:1 Flush with NSID FFFFFFFFh (2 no, 3 yes).
        vwc: u8 = 525,
        /// Atomic Write Unit Normal, logical blocks, zero-based.
        awun: u16 = 526,
        /// Atomic Write Unit Power Fail, logical blocks, zero-based.
        awupf: u16 = 528,
        /// I/O Command Set Vendor Specific Command Configuration.
        icsvscc: u8 = 530,
        /// Namespace Write Protection Capabilities.
        nwpc: u8 = 531,
        /// Atomic Compare and Write Unit, logical blocks, zero-based.
        acwu: u16 = 532,
        /// Optional Copy Formats Supported.
        ocfs: u16 = 534,
        /// SGL Support.
        sgls: u32 = 536,
        /// Maximum Number of Allowed Namespaces; 0 means NN.
        mnan: u32 = 540,
        /// NVM Subsystem NVMe Qualified Name.
        subnqn: Option<Nqn> = 768,
        /// I/O Queue Command Capsule Supported Size, in units of 16 bytes; at least 4.
        ioccsz: u32 = 1792,
        /// I/O Queue Response Capsule Supported Size, in units of 16 bytes; at least 1.
        iorcsz: u32 = 1796,
        /// In Capsule Data Offset, in units of 16 bytes; 0 on NVMe/TCP.
        icdoff: u16 = 1800,
        /// Fabrics Controller Attributes: bit 0 set for the static controller model.
        fcatt: u8 = 1802,
        /// Maximum SGL Data Block Descriptors.
        msdbd: u8 = 1803,
        /// Optional Fabrics Commands Support: bit 0 Disconnect.
        ofcs: u16 = 1804,
        /// Power state 0.
        psd0: PowerStateDescriptor = 2048,
    }
}

impl IdentifyController {
    /// CMIC: the subsystem may have more than one port.
    pub const CMIC_MULTIPLE_PORTS: u8 = 1;
    /// CMIC: the subsystem may have more than one controller.
    pub const CMIC_MULTIPLE_CONTROLLERS: u8 = 1 << 1;
    /// CMIC: ANA reporting.
    pub const CMIC_ANA: u8 = 1 << 3;

    /// CTRATT: 128-bit Host Identifiers.
    pub const CTRATT_HOST_ID_128: u32 = 1;
    /// CTRATT: Traffic Based Keep Alive.
    pub const CTRATT_TBKAS: u32 = 1 << 6;
    /// CTRATT: Extended LBA Formats Supported.
    pub const CTRATT_ELBAS: u32 = 1 << 15;

    /// CNTRLTYPE of an I/O controller.
    pub const TYPE_IO: u8 = 1;
    /// CNTRLTYPE of a discovery controller.
    pub const TYPE_DISCOVERY: u8 = 2;

    /// OACS: Doorbell Buffer Config.
    pub const OACS_DOORBELL_BUFFER: u16 = 1 << 8;

    /// FRMW: slot 1 is read-only.
    pub const FRMW_SLOT1_READ_ONLY: u8 = 1;
    /// FRMW: one slot.
    pub const FRMW_ONE_SLOT: u8 = 1 << 1;

    /// LPA: SMART log per namespace.
    pub const LPA_SMART_PER_NAMESPACE: u8 = 1;
    /// LPA: Commands Supported and Effects log.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA: extended Get Log Page: 32-bit NUMD and an offset.
    pub const LPA_EXTENDED: u8 = 1 << 2;

    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1;
    /// ONCS: Dataset Management.
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS: Save and Select fields of Set and Get Features.
    pub const ONCS_SAVE_SELECT: u16 = 1 << 4;
    /// ONCS: Reservations.
    pub const ONCS_RESERVATIONS: u16 = 1 << 5;
    /// ONCS: Timestamp feature.
    pub const ONCS_TIMESTAMP: u16 = 1 << 6;
    /// ONCS: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// ONCS: Copy.
    pub const ONCS_COPY: u16 = 1 << 8;

    /// FUSES: Compare and Write.
    pub const FUSES_COMPARE_AND_WRITE: u16 = 1;

    /// SGLS: SGLs are supported, without alignment rules.
    pub const SGLS_SUPPORTED: u32 = 1;
    /// SGLS: the address of a data block may be an offset (in-capsule data).
    pub const SGLS_OFFSET: u32 = 1 << 20;
    /// SGLS: Transport SGL Data Block descriptor.
    pub const SGLS_TRANSPORT: u32 = 1 << 21;

    /// The most data of one command, bytes, if pages are of 2^(12 + `mpsmin`) bytes; `None` without
    /// limit.
    pub fn max_transfer(&self, mpsmin: u8) -> Option<u64> {
        let shift = 12 + u32::from(mpsmin & 0xf) + u32::from(self.mdts);
        if self.mdts == 0 {
            None
        } else {
            1u64.checked_shl(shift)
        }
    }

    /// The most in-capsule data of an I/O command, bytes.
    pub fn max_in_capsule_data(&self) -> u64 {
        (u64::from(self.ioccsz) * 16).saturating_sub(64)
    }
}

/// A Power State Descriptor, of which only the power is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PowerStateDescriptor {
    /// Maximum Power, in units of 10 mW.
    pub mp: u16,
}

impl Field for PowerStateDescriptor {
    fn get(from: &[u8], at: usize) -> Self {
        Self {
            mp: Field::get(from, at),
        }
    }

    fn put(&self, to: &mut [u8], at: usize) {
        self.mp.put(to, at);
    }
}

structure! {
    /// I/O Command Set specific Identify Controller for the NVM command set (CNS 06h, CSI 0). Sizes
    /// are limits, 0 without limit (or not reported).
    pub struct IdentifyControllerNvm: 4096 {
        /// Verify Size Limit, 2^n pages of CAP.MPSMIN.
        vsl: u8 = 0,
        /// Write Zeroes Size Limit, 2^n pages of CAP.MPSMIN.
        wzsl: u8 = 1,
        /// Write Uncorrectable Size Limit, 2^n pages of CAP.MPSMIN.
        wusl: u8 = 2,
        /// Dataset Management Ranges Limit.
        dmrl: u8 = 3,
        /// Dataset Management Range Size Limit, logical blocks.
        dmrsl: u32 = 4,
        /// Dataset Management Size Limit, logical blocks.
        dmsl: u64 = 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identify::{ascii_field, ascii_text};

    #[test]
    fn controller_bytes_both_ways() {
        let controller = IdentifyController {
            vid: 0x1234,
            sn: ascii_field("FY0001"),
            mn: ascii_field("Flashyard"),
            cntlid: 0x0102,
            ver: 0x0002_0000,
            oaes: 0x100,
            cntrltype: IdentifyController::TYPE_IO,
            kas: 100,
            sqes: 0x66,
            cqes: 0x44,
            maxcmd: 128,
            nn: 1024,
            sgls: 0x0030_0001,
            subnqn: Some(Nqn::DISCOVERY),
            ioccsz: 516,
            iorcsz: 1,
            msdbd: 1,
            mdts: 8,
            psd0: PowerStateDescriptor { mp: 2500 },
            ..IdentifyController::default()
        };
        let mut data = [0xaa; 4096];
        controller.encode(&mut data);
        assert_eq!(IdentifyController::decode(&data), controller);
        for (at, bytes) in [
            (0, &[0x34u8, 0x12][..]),
            (4, b"FY0001              Flashyard  "),
            (77, &[8, 2, 1, 0, 0, 2, 0]),
            (92, &[0, 1, 0, 0]),
            (111, &[1]),
            (320, &[100, 0]),
            (512, &[0x66, 0x44, 128, 0, 0, 4, 0, 0]),
            (536, &[1, 0, 0x30, 0]),
            (768, b"nqn.2014-08.org"),
            (1792, &[4, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]),
            (2048, &[0xc4, 9]),
        ] {
            assert_eq!(&data[at..at + bytes.len()], bytes, "at {at}");
        }
        let reported = data.iter().filter(|b| **b != 0).count();
        assert_eq!(
            reported,
            2 + 20 + 40 + 3 + 1 + 1 + 1 + 1 + 4 + 2 + 36 + 4 + 2,
            "all the rest is zero"
        );
        assert_eq!(controller.max_transfer(0), Some(1 << 20));
        assert_eq!(controller.max_in_capsule_data(), 8192);
        assert_eq!(ascii_text(&controller.mn), Some("Flashyard"));
    }

    #[test]
    fn reserved_bytes_do_not_matter() {
        let mut data = [0; 4096];
        data[2080..].fill(0xff);
        data[541 + 3..768].fill(0xff);
        assert_eq!(
            IdentifyController::decode(&data),
            IdentifyController::default()
        );
    }

    #[test]
    fn absurd_sizes_do_not_wrap() {
        let controller = IdentifyController {
            mdts: 255,
            ioccsz: 3,
            ..IdentifyController::default()
        };
        assert_eq!(controller.max_transfer(15), None);
        assert_eq!(controller.max_in_capsule_data(), 0);
        assert_eq!(ascii_field::<6>("aé\nbcdef"), *b"a??bcd");
    }

    #[test]
    fn nvm_limits_bytes() {
        let limits = IdentifyControllerNvm {
            wzsl: 8,
            dmrl: 255,
            dmrsl: 0x0102_0304,
            dmsl: 5,
            ..Default::default()
        };
        let mut data = [0xaa; 4096];
        limits.encode(&mut data);
        assert_eq!(
            data[..16],
            [0, 8, 0, 255, 4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(IdentifyControllerNvm::decode(&data), limits);
    }
}
