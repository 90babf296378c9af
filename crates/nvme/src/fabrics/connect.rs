//! Connect: makes a TCP connection a queue of a controller.

use crate::bytes::Field;
use crate::command::{CompletionQueueEntry, Status, SubmissionQueueEntry};
use crate::nqn::{InvalidNqn, Nqn};

/// The Connect command's own fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Connect {
    /// Record Format; 0 is the only one.
    pub recfmt: u16,
    /// Queue Identifier; 0 is the Admin queue.
    pub qid: u16,
    /// Submission Queue Size, zero-based; at least 1.
    pub sqsize: u16,
    /// Connect Attributes.
    pub cattr: u8,
    /// Keep Alive Timeout in milliseconds, 0 for none; Admin queue only.
    pub kato: u32,
}

impl Connect {
    /// CATTR bits 1:0: priority class of the queue, for weighted round robin with urgent.
    pub const CATTR_PRIORITY: u8 = 0x03;
    /// CATTR bit 2: SQ flow control is disabled: SQHD in completions is reserved.
    pub const CATTR_DISABLE_SQ_FLOW_CONTROL: u8 = 0x04;
    /// CATTR bit 3: the host may delete this queue by itself (Disconnect).
    pub const CATTR_INDIVIDUAL_DELETE: u8 = 0x08;

    /// Reads the fields of a Connect command. Reserved CATTR bits are kept.
    pub fn parse(entry: &SubmissionQueueEntry) -> Self {
        Self {
            recfmt: entry.cdw10() as u16,
            qid: (entry.cdw10() >> 16) as u16,
            sqsize: entry.cdw11() as u16,
            cattr: (entry.cdw11() >> 16) as u8,
            kato: entry.cdw12(),
        }
    }

    /// Whether SQ flow control is disabled.
    pub fn sq_flow_control_disabled(&self) -> bool {
        self.cattr & Self::CATTR_DISABLE_SQ_FLOW_CONTROL != 0
    }
}

/// The 1,024 bytes of data of Connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectData {
    /// Host Identifier, as 128 bits in wire order.
    pub hostid: [u8; 16],
    /// Controller Identifier; FFFFh asks for a new one (dynamic), FFFEh for any static one.
    pub cntlid: u16,
    /// The subsystem that the host wants.
    pub subnqn: Nqn,
    /// The host.
    pub hostnqn: Nqn,
}

impl ConnectData {
    /// Length in bytes.
    pub const LEN: usize = 1024;
    /// CNTLID that asks for a dynamic controller.
    pub const DYNAMIC: u16 = 0xffff;

    const CNTLID: usize = 16;
    const SUBNQN: usize = 256;
    const HOSTNQN: usize = 512;

    /// Reads the data. Reserved bytes are ignored.
    ///
    /// # Errors
    /// What to answer: [`InvalidParameter`] of the name that is not one.
    pub fn decode(data: &[u8; Self::LEN]) -> Result<Self, InvalidParameter> {
        let name = |at: usize| -> Result<Nqn, InvalidParameter> {
            Nqn::from_field(&data[at..at + Nqn::FIELD_LEN])
                .map_err(|_: InvalidNqn| InvalidParameter::in_data(at as u16))
        };
        Ok(Self {
            hostid: Field::get(data, 0),
            cntlid: Field::get(data, Self::CNTLID),
            subnqn: name(Self::SUBNQN)?,
            hostnqn: name(Self::HOSTNQN)?,
        })
    }

    /// Writes the data, reserved bytes zero.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut data = [0; Self::LEN];
        self.hostid.put(&mut data, 0);
        self.cntlid.put(&mut data, Self::CNTLID);
        self.subnqn.to_field().put(&mut data, Self::SUBNQN);
        self.hostnqn.to_field().put(&mut data, Self::HOSTNQN);
        data
    }
}

/// Which parameter of Connect is invalid; goes with [`Status::CONNECT_INVALID_PARAMETERS`] in DW0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidParameter {
    /// Invalid Parameter Offset, bytes.
    pub ipo: u16,
    /// Whether the offset is in the data; otherwise in the submission queue entry.
    pub in_data: bool,
}

impl InvalidParameter {
    /// QID of the command.
    pub const QID: Self = Self::in_command(42);
    /// SQSIZE of the command.
    pub const SQSIZE: Self = Self::in_command(44);
    /// CATTR of the command.
    pub const CATTR: Self = Self::in_command(46);
    /// KATO of the command.
    pub const KATO: Self = Self::in_command(48);
    /// HOSTID of the data.
    pub const HOSTID: Self = Self::in_data(0);
    /// CNTLID of the data.
    pub const CNTLID: Self = Self::in_data(ConnectData::CNTLID as u16);
    /// SUBNQN of the data.
    pub const SUBNQN: Self = Self::in_data(ConnectData::SUBNQN as u16);
    /// HOSTNQN of the data.
    pub const HOSTNQN: Self = Self::in_data(ConnectData::HOSTNQN as u16);

    /// At this offset of the submission queue entry.
    pub const fn in_command(ipo: u16) -> Self {
        Self {
            ipo,
            in_data: false,
        }
    }

    /// At this offset of the data.
    pub const fn in_data(ipo: u16) -> Self {
        Self { ipo, in_data: true }
    }

    /// DW0 of the response: IPO in bits 15:0, IATTR in bits 23:16.
    pub const fn dw0(self) -> u32 {
        self.ipo as u32 | (self.in_data as u32) << 16
    }

    /// Reads DW0 of a response.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self {
            ipo: dw0 as u16,
            in_data: dw0 & 1 << 16 != 0,
        }
    }

    /// The completion that refuses the Connect.
    pub fn completion(self, cid: u16) -> CompletionQueueEntry {
        CompletionQueueEntry::new(cid, Status::CONNECT_INVALID_PARAMETERS.with_dnr())
            .with_dw0(self.dw0())
    }
}

/// DW0 of a successful Connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectResponse {
    /// The controller that the queue belongs to.
    pub cntlid: u16,
    /// The host has to authenticate this queue in a transaction (AUTHREQ.ATR).
    pub authentication_required: bool,
    /// The host has to authenticate and make a secure channel of it (AUTHREQ.ASCR).
    pub secure_channel_required: bool,
}

impl ConnectResponse {
    /// DW0 of the response.
    pub const fn dw0(self) -> u32 {
        self.cntlid as u32
            | (self.authentication_required as u32) << 17
            | (self.secure_channel_required as u32) << 18
    }

    /// Reads DW0 of a response.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self {
            cntlid: dw0 as u16,
            authentication_required: dw0 & 1 << 17 != 0,
            secure_channel_required: dw0 & 1 << 18 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn command_bytes() {
        let connect = Connect {
            recfmt: 0,
            qid: 3,
            sqsize: 127,
            cattr: 4,
            kato: 5000,
        };
        let entry = SubmissionQueueEntry::connect(connect).with_cid(0x1234);
        let bytes = entry.as_bytes();
        assert_eq!(bytes[..5], [0x7f, 0x40, 0x34, 0x12, 0x01]);
        assert_eq!(
            bytes[24..40],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1]
        );
        assert_eq!(bytes[40..52], [0, 0, 3, 0, 127, 0, 4, 0, 0x88, 0x13, 0, 0]);
        assert_eq!(Connect::parse(&entry), connect);
        assert!(connect.sq_flow_control_disabled());
    }

    #[test]
    fn data_bytes_both_ways() {
        let data = ConnectData {
            hostid: [7; 16],
            cntlid: ConnectData::DYNAMIC,
            subnqn: Nqn::DISCOVERY,
            hostnqn: Nqn::new("nqn.2026-11.a:host").expect("good"),
        };
        let mut bytes = data.encode();
        assert_eq!(bytes[..16], [7; 16]);
        assert_eq!(bytes[16..18], [0xff, 0xff]);
        assert_eq!(&bytes[256..268], b"nqn.2014-08.");
        assert_eq!(&bytes[512..531], b"nqn.2026-11.a:host\0");
        assert!(bytes[18..256].iter().chain(&bytes[768..]).all(|b| *b == 0));
        assert_eq!(ConnectData::decode(&bytes), Ok(data));

        bytes[18..256].fill(0xff);
        bytes[768..].fill(0xff);
        assert_eq!(
            ConnectData::decode(&bytes),
            Ok(data),
            "reserved bytes do not matter"
        );
        bytes[512] = b'x';
        assert_eq!(ConnectData::decode(&bytes), Err(InvalidParameter::HOSTNQN));
        bytes[256..512].fill(b'n');
        assert_eq!(ConnectData::decode(&bytes), Err(InvalidParameter::SUBNQN));
    }

    #[test]
    fn responses_both_ways() {
        let parameter = InvalidParameter::CNTLID;
        assert_eq!(parameter.dw0(), 0x1_0010);
        assert_eq!(InvalidParameter::from_dw0(0x1_0010), parameter);
        assert_eq!(InvalidParameter::SQSIZE.dw0(), 44);
        assert_eq!(parameter.completion(9).status().bits(), 0x4182);
        let response = ConnectResponse {
            cntlid: 0x10,
            authentication_required: true,
            secure_channel_required: false,
        };
        assert_eq!(response.dw0(), 0x2_0010);
        assert_eq!(ConnectResponse::from_dw0(0x2_0010), response);
    }
}
