//! Identify structures that are lists: namespaces (02h), descriptors (03h), controllers (13h),
//! command sets (1Ch).

use crate::bytes::Field;
use crate::identify::IDENTIFY_LEN;

/// Namespace identifiers a list holds.
const MAX_NAMESPACES: usize = IDENTIFY_LEN / 4;
/// Controller identifiers a list holds.
const MAX_CONTROLLERS: usize = IDENTIFY_LEN / 2 - 1;

/// Writes a namespace list from NSIDs in ascending order; what does not fit in 1,024 is left out.
/// The caller gives only those above the NSID of the command.
pub fn encode_namespace_list(nsids: impl IntoIterator<Item = u32>, data: &mut [u8; IDENTIFY_LEN]) {
    data.fill(0);
    for (i, nsid) in nsids.into_iter().take(MAX_NAMESPACES).enumerate() {
        nsid.put(data, i * 4);
    }
}

/// Reads a namespace list up to its first zero.
pub fn decode_namespace_list(data: &[u8; IDENTIFY_LEN]) -> impl Iterator<Item = u32> + '_ {
    data.as_chunks()
        .0
        .iter()
        .map(|b| u32::from_le_bytes(*b))
        .take_while(|nsid| *nsid != 0)
}

/// Writes a controller list from identifiers in ascending order; what does not fit in 2,047 is left
/// out.
pub fn encode_controller_list(ids: impl IntoIterator<Item = u16>, data: &mut [u8; IDENTIFY_LEN]) {
    data.fill(0);
    let mut count: u16 = 0;
    for id in ids.into_iter().take(MAX_CONTROLLERS) {
        count += 1;
        id.put(data, usize::from(count) * 2);
    }
    count.put(data, 0);
}

/// Reads a controller list; a count that is too great is cut.
pub fn decode_controller_list(data: &[u8; IDENTIFY_LEN]) -> impl Iterator<Item = u16> + '_ {
    let count = usize::from(u16::get(data, 0)).min(MAX_CONTROLLERS);
    (1..=count).map(|i| u16::get(data, i * 2))
}

/// Writes the I/O command set combinations (CNS 1Ch): bit `n` of a combination is the command set
/// with CSI `n`.
pub fn encode_command_sets(combinations: &[u64], data: &mut [u8; IDENTIFY_LEN]) {
    data.fill(0);
    for (i, combination) in combinations.iter().take(IDENTIFY_LEN / 8).enumerate() {
        combination.put(data, i * 8);
    }
}

/// Reads the I/O command set combinations up to the first empty one.
pub fn decode_command_sets(data: &[u8; IDENTIFY_LEN]) -> impl Iterator<Item = u64> + '_ {
    data.as_chunks()
        .0
        .iter()
        .map(|b| u64::from_le_bytes(*b))
        .take_while(|set| *set != 0)
}

/// Namespace Identification Descriptor list (CNS 03h): the names a namespace is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NamespaceDescriptors {
    /// Type 1: IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
    /// Type 2: Namespace Globally Unique Identifier.
    pub nguid: Option<[u8; 16]>,
    /// Type 3: UUID.
    pub uuid: Option<[u8; 16]>,
    /// Type 4: Command Set Identifier.
    pub csi: Option<u8>,
}

impl NamespaceDescriptors {
    const EUI64: u8 = 1;
    const NGUID: u8 = 2;
    const UUID: u8 = 3;
    const CSI: u8 = 4;
    const HEADER: usize = 4;

    /// Writes the list; a descriptor of length zero ends it.
    pub fn encode(&self, data: &mut [u8; IDENTIFY_LEN]) {
        data.fill(0);
        let mut at = 0;
        let mut descriptor = |kind: u8, value: &[u8]| {
            [kind, value.len() as u8].put(data, at);
            at += Self::HEADER;
            data[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        };
        if let Some(eui64) = &self.eui64 {
            descriptor(Self::EUI64, eui64);
        }
        if let Some(nguid) = &self.nguid {
            descriptor(Self::NGUID, nguid);
        }
        if let Some(uuid) = &self.uuid {
            descriptor(Self::UUID, uuid);
        }
        if let Some(csi) = self.csi {
            descriptor(Self::CSI, &[csi]);
        }
    }

    /// Reads the list. Unknown types, and known ones of a wrong length, are passed over; a
    /// descriptor that runs past the end ends the list.
    pub fn decode(data: &[u8; IDENTIFY_LEN]) -> Self {
        let mut found = Self::default();
        let mut rest = &data[..];
        while let [kind, length @ 1..=255, _, _, tail @ ..] = rest {
            let Some((value, tail)) = tail.split_at_checked(usize::from(*length)) else {
                break;
            };
            match *kind {
                Self::EUI64 => found.eui64 = value.try_into().ok().or(found.eui64),
                Self::NGUID => found.nguid = value.try_into().ok().or(found.nguid),
                Self::UUID => found.uuid = value.try_into().ok().or(found.uuid),
                Self::CSI => found.csi = value.first().copied(),
                _ => {}
            }
            rest = tail;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn namespace_list_both_ways() {
        let mut data = [0xaa; IDENTIFY_LEN];
        encode_namespace_list([1, 0x0102_0304], &mut data);
        assert_eq!(data[..12], [1, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(
            decode_namespace_list(&data).collect::<Vec<_>>(),
            [1, 0x0102_0304]
        );
        encode_namespace_list(1..5000, &mut data);
        assert_eq!(decode_namespace_list(&data).last(), Some(1024));
    }

    #[test]
    fn controller_list_both_ways() {
        let mut data = [0xaa; IDENTIFY_LEN];
        encode_controller_list([1, 0x0203], &mut data);
        assert_eq!(data[..8], [2, 0, 1, 0, 3, 2, 0, 0]);
        assert_eq!(
            decode_controller_list(&data).collect::<Vec<_>>(),
            [1, 0x0203]
        );
        encode_controller_list(0..5000, &mut data);
        assert_eq!(decode_controller_list(&data).count(), 2047);
        data[..2].fill(0xff);
        assert_eq!(decode_controller_list(&data).count(), 2047);
    }

    #[test]
    fn command_sets_both_ways() {
        let mut data = [0xaa; IDENTIFY_LEN];
        encode_command_sets(&[1, 5], &mut data);
        assert_eq!(
            data[..17],
            [1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(decode_command_sets(&data).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn descriptors_both_ways() {
        let names = NamespaceDescriptors {
            eui64: None,
            nguid: Some(*b"0123456789abcdef"),
            uuid: Some(*b"ABCDEFGHIJKLMNOP"),
            csi: Some(0),
        };
        let mut data = [0xaa; IDENTIFY_LEN];
        names.encode(&mut data);
        assert_eq!(
            &data[..46],
            b"\x02\x10\0\x000123456789abcdef\x03\x10\0\0ABCDEFGHIJKLMNOP\x04\x01\0\0\0\0"
        );
        assert_eq!(NamespaceDescriptors::decode(&data), names);
    }

    #[test]
    fn hostile_descriptors() {
        let mut data = [0xff; IDENTIFY_LEN];
        assert_eq!(
            NamespaceDescriptors::decode(&data),
            NamespaceDescriptors::default()
        );
        data[..10].copy_from_slice(&[1, 3, 9, 9, 1, 2, 3, 4, 1, 0]);
        assert_eq!(
            NamespaceDescriptors::decode(&data).eui64,
            None,
            "an EUI64 has eight bytes"
        );
    }
}
