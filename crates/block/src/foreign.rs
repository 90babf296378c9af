//! Signatures of foreign content on a device, which must not be overwritten by accident.

/// Bytes from the start of a device that [`recognise`] wants to see.
pub(crate) const LOOKED_AT: usize = 128 * 1024;

/// Offset, bytes there, what it is.
const SIGNATURES: [(usize, &[u8], &str); 15] = [
    (0, b"FLSHPOOL", "a pool"),
    (0, b"FLSHCRPT", "the header of an encrypted device"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of an md array"),
    (512, b"LABELONE", "an LVM physical volume"),
    (512, b"EFI PART", "a partition table"),
    (4096, b"EFI PART", "a partition table"),
    (1080, b"\x53\xef", "an ext file system"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (510, b"\x55\xaa", "a partition table or a FAT file system"),
];

/// Names what the first bytes of a device belong to, if it is known.
pub(crate) fn recognise(start: &[u8]) -> Option<&'static str> {
    let matches = |offset: usize, bytes: &[u8]| {
        start
            .get(offset..)
            .is_some_and(|rest| rest.starts_with(bytes))
    };
    SIGNATURES
        .iter()
        .find(|(offset, bytes, _)| matches(*offset, bytes))
        .map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_is_found_and_an_empty_device_is_free() {
        let empty = vec![0; LOOKED_AT];
        assert_eq!(recognise(&empty), None);
        assert_eq!(recognise(&[]), None);
        for (offset, bytes, name) in SIGNATURES {
            let mut start = empty.clone();
            start[offset..offset + bytes.len()].copy_from_slice(bytes);
            assert_eq!(recognise(&start), Some(name));
        }
    }
}
