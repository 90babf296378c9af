//! Discovery log (70h): a header of 1,024 bytes, then an entry of 1,024 bytes for each way to a
//! subsystem.

use crate::bytes::{self, Field, structure};
use crate::nqn::Nqn;

structure! {
    /// Header of the discovery log.
    pub struct DiscoveryHeader: 1024 {
        /// Generation Counter: moves with every change this host can see.
        genctr: u64 = 0,
        /// Number of Records.
        numrec: u64 = 8,
        /// Record Format, 0.
        recfmt: u16 = 16,
    }
}

structure! {
    /// Entry of the discovery log.
    pub struct DiscoveryEntry: 1024 {
        /// Transport Type.
        trtype: TransportType = 0,
        /// Address Family.
        adrfam: AddressFamily = 1,
        /// Subsystem Type.
        subtype: SubsystemType = 2,
        /// Transport Requirements.
        treq: Treq = 3,
        /// Port ID: the same for entries of one port.
        portid: u16 = 4,
        /// Controller ID; FFFFh for dynamic controllers.
        cntlid: u16 = 6,
        /// Admin Max SQ Size, at least 32.
        asqsz: u16 = 8,
        /// Entry Flags.
        eflags: u16 = 10,
        /// Transport Service Identifier: the port number, ASCII.
        trsvcid: [u8; 32] = 32,
        /// NVM Subsystem NVMe Qualified Name.
        subnqn: Option<Nqn> = 256,
        /// Transport Address, ASCII.
        traddr: [u8; 256] = 512,
        /// Transport Specific Address Subtype of TCP: Security Type.
        sectype: SecurityType = 768,
    }
}

impl DiscoveryEntry {
    /// EFLAGS: this port tells the same as the one it was read from.
    pub const EFLAGS_DUPLICATE: u16 = 1;
    /// EFLAGS: explicit persistent connections are supported.
    pub const EFLAGS_PERSISTENT: u16 = 1 << 1;

    /// TRADDR or TRSVCID from text: padded with spaces as the specification has it, cut if too
    /// long.
    pub fn text<const N: usize>(text: &str) -> [u8; N] {
        bytes::ascii(text)
    }

    /// TRSVCID as text; `None` if it is not ASCII.
    pub fn service(&self) -> Option<&str> {
        bytes::text_of(&self.trsvcid)
    }

    /// TRADDR as text; `None` if it is not ASCII.
    pub fn address(&self) -> Option<&str> {
        bytes::text_of(&self.traddr)
    }
}

macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $code:ident = $value:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$doc])* pub const $code: Self = Self($value);)*
        }

        impl Field for $name {
            fn get(from: &[u8], at: usize) -> Self {
                Self(from[at])
            }

            fn put(&self, to: &mut [u8], at: usize) {
                to[at] = self.0;
            }
        }
    )*};
}

codes! {
    /// Transport Type (TRTYPE).
    TransportType {
        /// RDMA.
        RDMA = 1,
        /// Fibre Channel.
        FC = 2,
        /// TCP.
        TCP = 3,
        /// Loopback within a host.
        LOOP = 254,
    }
    /// Address Family (ADRFAM).
    AddressFamily {
        /// IPv4.
        IPV4 = 1,
        /// IPv6.
        IPV6 = 2,
    }
    /// Subsystem Type (SUBTYPE).
    SubsystemType {
        /// Referral to another discovery service.
        REFERRAL = 1,
        /// NVM subsystem.
        NVM = 2,
        /// The discovery subsystem that is asked.
        CURRENT_DISCOVERY = 3,
    }
    /// Transport Requirements (TREQ): bits 1:0 secure channel.
    Treq {
        /// Not specified; what a target without TLS says.
        NOT_SPECIFIED = 0,
        /// A secure channel is required.
        REQUIRED = 1,
        /// A secure channel is not required.
        NOT_REQUIRED = 2,
    }
    /// Security Type of a TCP port (SECTYPE).
    SecurityType {
        /// None.
        NONE = 0,
        /// TLS 1.2.
        TLS_1_2 = 1,
        /// TLS 1.3.
        TLS_1_3 = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_both_ways() {
        let header = DiscoveryHeader {
            genctr: 0x0102,
            numrec: 3,
            recfmt: 0,
        };
        let mut data = [0xaa; 1024];
        header.encode(&mut data);
        assert_eq!(
            data[..18],
            [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert!(data[18..].iter().all(|b| *b == 0));
        assert_eq!(DiscoveryHeader::decode(&data), header);
    }

    #[test]
    fn entry_bytes_both_ways() {
        let entry = DiscoveryEntry {
            trtype: TransportType::TCP,
            adrfam: AddressFamily::IPV4,
            subtype: SubsystemType::NVM,
            treq: Treq::NOT_SPECIFIED,
            portid: 0x0102,
            cntlid: 0xffff,
            asqsz: 32,
            eflags: DiscoveryEntry::EFLAGS_PERSISTENT,
            trsvcid: DiscoveryEntry::text("4420"),
            subnqn: Some(Nqn::new("nqn.2026-11.dev.flashyard:db").expect("good")),
            traddr: DiscoveryEntry::text("127.0.0.1"),
            sectype: SecurityType::NONE,
        };
        let mut data = [0xaa; 1024];
        entry.encode(&mut data);
        assert_eq!(data[..12], [3, 1, 2, 0, 2, 1, 0xff, 0xff, 32, 0, 2, 0]);
        assert_eq!(&data[32..38], b"4420  ");
        assert_eq!(&data[256..285], b"nqn.2026-11.dev.flashyard:db\0");
        assert_eq!(&data[512..522], b"127.0.0.1 ");
        assert_eq!((data[63], data[767], data[768]), (b' ', b' ', 0));
        assert_eq!(DiscoveryEntry::decode(&data), entry);
        assert_eq!(
            (entry.service(), entry.address()),
            (Some("4420"), Some("127.0.0.1"))
        );

        data[512..768].fill(0);
        data[512..521].copy_from_slice(b"10.0.0.1\0");
        data[256] = b'x';
        let entry = DiscoveryEntry::decode(&data);
        assert_eq!((entry.address(), entry.subnqn), (Some("10.0.0.1"), None));
    }
}
