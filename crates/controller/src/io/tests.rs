//! Every I/O command, right and wrong.

use alloc::vec::Vec;

use flashyard_nvme::Sgl;
use flashyard_time::Rng;

use super::*;
use crate::tests::namespace;

const TRANSFER_BYTES: u32 = 128 << 10;

fn blocks(slba: u64, blocks: u32) -> LbaRange {
    LbaRange { slba, blocks }
}

fn moved(length: u32) -> Sgl {
    Sgl::Transport { length }
}

/// Checked against namespace 1: 1,024 blocks of 512 B.
fn checked(sqe: SubmissionQueueEntry) -> Result<IoRequest, Status> {
    let namespace = namespace(1);
    check(
        &sqe,
        (sqe.nsid() == 1).then_some(&namespace),
        TRANSFER_BYTES,
    )
}

fn accepted(op: IoOp, transfer: Transfer) -> IoRequest {
    IoRequest { op, transfer }
}

type Entry = SubmissionQueueEntry;

#[test]
fn what_is_accepted() {
    let range = blocks(1016, 8);
    let table = [
        (
            Entry::read(1, range, moved(4096)).with_fua(),
            accepted(
                IoOp::Read { range, fua: true },
                Transfer::ToHost { bytes: 4096 },
            ),
        ),
        (
            Entry::write(1, range, moved(4096)),
            accepted(IoOp::Write { range, fua: false }, Transfer::from_host(4096)),
        ),
        (
            Entry::write(1, range, moved(4096)).with_fua(),
            accepted(IoOp::Write { range, fua: true }, Transfer::from_host(4096)),
        ),
        (
            Entry::compare(1, range, moved(4096)),
            accepted(
                IoOp::Compare { range, fua: false },
                Transfer::from_host(4096),
            ),
        ),
        (
            Entry::compare(1, range, moved(4096)).with_fua(),
            accepted(
                IoOp::Compare { range, fua: true },
                Transfer::from_host(4096),
            ),
        ),
        (
            Entry::write_zeroes(1, blocks(0, 1024), true),
            accepted(
                IoOp::WriteZeroes {
                    range: blocks(0, 1024),
                    fua: false,
                    deallocate: true,
                },
                Transfer::None,
            ),
        ),
        (Entry::flush(1), accepted(IoOp::Flush, Transfer::None)),
        (
            Entry::deallocate(1, 2, moved(32)),
            accepted(
                IoOp::DatasetManagement {
                    ranges: 2,
                    deallocate: true,
                },
                Transfer::FromHost {
                    least: 32,
                    most: 4096,
                },
            ),
        ),
        (
            // Linux sends room for all ranges.
            Entry::deallocate(1, 1, moved(4096)),
            accepted(
                IoOp::DatasetManagement {
                    ranges: 1,
                    deallocate: true,
                },
                Transfer::FromHost {
                    least: 16,
                    most: 4096,
                },
            ),
        ),
        (
            Entry::deallocate(1, 256, moved(4096)).with_cdw(11, 3),
            accepted(
                IoOp::DatasetManagement {
                    ranges: 256,
                    deallocate: false,
                },
                Transfer::FromHost {
                    least: 4096,
                    most: 4096,
                },
            ),
        ),
    ];
    for (sqe, expected) in table {
        assert_eq!(checked(sqe), Ok(expected), "{sqe:?}");
    }
}

#[test]
fn what_is_refused() {
    let one = blocks(0, 1);
    let limit = blocks(0, 257);
    let range = Status::LBA_OUT_OF_RANGE;
    let table = [
        (Entry::read(1, blocks(1024, 1), moved(512)), range),
        (Entry::read(1, blocks(1017, 8), moved(4096)), range),
        (Entry::read(1, blocks(u64::MAX, 1), moved(512)), range),
        (Entry::write(1, blocks(u64::MAX - 7, 8), moved(4096)), range),
        (Entry::write_zeroes(1, blocks(1, 1024), false), range),
        (Entry::compare(1, blocks(1 << 63, 1), moved(512)), range),
        (
            Entry::read(1, limit, moved(257 * 512)),
            Status::INVALID_FIELD,
        ),
        (
            Entry::write(1, limit, moved(257 * 512)),
            Status::INVALID_FIELD,
        ),
        (
            Entry::compare(1, limit, moved(257 * 512)),
            Status::INVALID_FIELD,
        ),
        (
            Entry::read(2, one, moved(512)),
            Status::INVALID_NAMESPACE_OR_FORMAT,
        ),
        (
            Entry::read(0, one, moved(512)),
            Status::INVALID_NAMESPACE_OR_FORMAT,
        ),
        (Entry::flush(NSID_ALL), Status::INVALID_NAMESPACE_OR_FORMAT),
        (Entry::flush(2), Status::INVALID_NAMESPACE_OR_FORMAT),
        (
            Entry::read(1, one, moved(512)).with_cdw(12, 1 << 29),
            Status::INVALID_PROTECTION_INFORMATION,
        ),
        (
            Entry::write_zeroes(1, one, false).with_cdw(12, 1 << 26),
            Status::INVALID_PROTECTION_INFORMATION,
        ),
        (
            Entry::read(1, one, moved(512)).with_fuse(Fuse::Reserved),
            Status::INVALID_FIELD,
        ),
        (Entry::default(), Status::INVALID_NAMESPACE_OR_FORMAT),
    ];
    for (sqe, status) in table {
        assert_eq!(checked(sqe), Err(status.with_dnr()), "{sqe:?}");
    }
}

#[test]
fn opcodes_that_there_are() {
    let known = [0x00, 0x01, 0x02, 0x05, 0x08, 0x09];
    for opcode in 0..=0xff {
        let refused = checked(Entry::raw(opcode, 1)) == Err(Status::INVALID_OPCODE.with_dnr());
        assert_eq!(refused, !known.contains(&opcode), "{opcode:#x}");
    }
}

#[test]
fn a_read_only_namespace_is_read_only() {
    let namespace = NamespaceInfo {
        read_only: true,
        ..namespace(1)
    };
    let one = blocks(0, 1);
    for (sqe, refused) in [
        (Entry::write(1, one, moved(512)), true),
        (Entry::write_zeroes(1, one, true), true),
        (Entry::deallocate(1, 1, moved(16)), true),
        (Entry::deallocate(1, 1, moved(16)).with_cdw(11, 1), false),
        (Entry::read(1, one, moved(512)), false),
        (Entry::compare(1, one, moved(512)), false),
        (Entry::flush(1), false),
    ] {
        let status = check(&sqe, Some(&namespace), TRANSFER_BYTES).err();
        let protected = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();
        assert_eq!(status, refused.then_some(protected), "{sqe:?}");
    }
}

#[test]
fn write_zeroes_has_a_limit_of_its_own() {
    let namespace = NamespaceInfo {
        block_size: 4096,
        blocks: 1 << 20,
        ..namespace(1)
    };
    let check = |count| {
        check(
            &Entry::write_zeroes(1, blocks(0, count), false),
            Some(&namespace),
            TRANSFER_BYTES,
        )
    };
    assert!(check(8192).is_ok(), "32 MiB");
    assert_eq!(check(8193), Err(Status::INVALID_FIELD.with_dnr()));
}

#[test]
fn ranges_are_taken_all_or_none() {
    let namespace = namespace(1);
    let range = |slba, blocks| DsmRange {
        attributes: 0,
        blocks,
        slba,
    };
    let data =
        [range(0, 8), range(1024, 0), range(1016, 8), range(1020, 5)].map(|range| range.encode());
    let data = data.as_flattened();
    let taken: Vec<_> = check_ranges(data, 3, &namespace).expect("within").collect();
    assert_eq!(taken, [range(0, 8), range(1024, 0), range(1016, 8)]);
    let status = |ranges| {
        check_ranges(data, ranges, &namespace)
            .map(|ranges| ranges.len())
            .err()
    };
    assert_eq!(status(4), Some(Status::LBA_OUT_OF_RANGE.with_dnr()));
    assert_eq!(status(5), Some(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
    let wraps = range(u64::MAX, u32::MAX).encode();
    assert!(check_ranges(&wraps, 1, &namespace).is_err());
}

#[test]
fn random_commands_stay_within_the_namespace_and_the_limits() {
    let namespace = namespace(1);
    let mut rng = Rng::new(2);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut sqe = Entry::raw(rng.below(16) as u8, 1)
            .with_cdw(10, rng.below(1100) as u32)
            .with_cdw(12, rng.below(300) as u32)
            .with_sgl(moved(rng.below(300) as u32 * 512));
        if rng.chance(1, 8) {
            sqe = sqe.with_cdw(rng.range(10..16) as usize, rng.next_u64() as u32);
        }
        if let Ok(request) = check(&sqe, Some(&namespace), TRANSFER_BYTES) {
            accepted += 1;
            assert_sound(&sqe, request, &namespace);
        }
    }
    assert!(
        accepted > 1000,
        "{accepted} accepted: the test says too little"
    );
}

fn assert_sound(sqe: &Entry, request: IoRequest, namespace: &NamespaceInfo) {
    let range = match request.op {
        IoOp::Read { range, .. } => {
            let bytes = range.blocks * 512;
            assert_eq!(request.transfer, Transfer::ToHost { bytes }, "{sqe:?}");
            assert!(bytes <= TRANSFER_BYTES, "{sqe:?}");
            range
        }
        IoOp::Write { range, .. } | IoOp::Compare { range, .. } => {
            let bytes = range.blocks * 512;
            assert_eq!(request.transfer, Transfer::from_host(bytes), "{sqe:?}");
            assert!(bytes <= TRANSFER_BYTES, "{sqe:?}");
            range
        }
        IoOp::WriteZeroes { range, .. } => range,
        IoOp::DatasetManagement { ranges, .. } => {
            let (least, most) = (ranges as u32 * 16, 4096);
            let expected = Transfer::FromHost { least, most };
            assert_eq!(request.transfer, expected, "{sqe:?}");
            return;
        }
        IoOp::Flush => return,
    };
    assert!(range.is_within(namespace.blocks), "{sqe:?}");
}
