//! What Identify returns, read as a host reads it.

use alloc::vec::Vec;

use flashyard_nvme::identify::{
    ascii_text, decode_command_sets, decode_controller_list, decode_namespace_list,
};
use flashyard_nvme::{Nqn, Sgl};

use super::*;
use crate::tests::{Fixture, namespace as example};

const SGL: Sgl = Sgl::Transport { length: 4096 };

fn identify(cns: u8, nsid: u32, cntid: u16, csi: u8) -> SubmissionQueueEntry {
    SubmissionQueueEntry::identify(cns, nsid, cntid, csi, SGL)
}

fn page(fixture: &mut Fixture, cns: u8, nsid: u32) -> Page {
    let page = fixture.page(identify(cns, nsid, 0, 0));
    page.try_into().expect("4,096 bytes")
}

#[test]
fn an_io_controller() {
    let mut fixture = Fixture::io();
    let it = IdentifyController::decode(&page(&mut fixture, 1, 0));
    assert_eq!(it.sn, fixture.subsystem.serial);
    assert_eq!(ascii_text(&it.mn), Some("Flashyard"));
    assert_eq!(ascii_text(&it.fr), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!((it.cntlid, it.ver, it.cntrltype), (5, 0x2_0000, 1));
    assert_eq!(
        (it.kas, it.sqes, it.cqes, it.maxcmd),
        (100, 0x66, 0x44, 1024)
    );
    assert_eq!((it.nn, it.mnan), (8, 8));
    assert_eq!(it.max_transfer(0), Some(1 << 20));
    assert_eq!(it.max_in_capsule_data(), 8192);
    assert_eq!((it.ioccsz, it.iorcsz, it.icdoff, it.msdbd), (516, 1, 0, 1));
    assert_eq!(it.sgls, 0x30_0001);
    assert_eq!(it.subnqn, Some(fixture.subsystem.nqn));
    assert_eq!(
        it.oncs, 0b101_1101,
        "Compare, DSM, Write Zeroes, Select, Timestamp"
    );
    assert_eq!((it.fuses, it.vwc, it.oacs), (1, 5, 0));
    assert_eq!((it.cmic, it.ctratt), (3, 0x41));
    assert_eq!((it.oaes, it.lpa, it.elpe, it.aerl), (0x100, 6, 63, 7));
    assert_eq!((it.awun, it.awupf, it.acwu), (0, 0, 0));
    assert_eq!((it.crdt1, it.fcatt, it.fguid), (1, 0, [0; 16]));
    assert!(it.wctemp < it.cctemp);
    let owned = (it.vid, it.ssvid, it.ieee);
    assert_eq!(owned, (0, 0, [0; 3]), "no number that others own");
    // The two namespaces of 1,024 blocks of 512 B; of what others have, and what is free, nothing.
    assert_eq!((it.tnvmcap, it.unvmcap), (2 * 1024 * 512, 0));
}

/// What Linux makes `io_min` and `io_opt` of: no stripe of more than a command carries.
#[test]
fn write_sizes_that_a_host_can_use() {
    let mut fixture = Fixture::io();
    assert_eq!(fixture.controller.limits().transfer_bytes, 1 << 20);
    // Block size, granularity and optimum in blocks; NPWG and NOWS in bytes.
    for (block_size, granularity, optimal, npwg, nows) in [
        // A partition of many units, one of a few, and one of three.
        (4096, 1, 1024, 4096, 1 << 20),
        (4096, 1, 16, 4096, 64 << 10),
        (4096, 1, 768, 4096, 768 << 10),
        (4096, 1, 1536, 4096, 768 << 10),
        (512, 8, 8, 4096, 4096),
        // Nothing below the bound is a multiple of the granularity.
        (4096, 1, 257, 4096, 4096),
        (512, 8, 12, 4096, 4096),
        (512, 8, 0, 4096, 4096),
        (512, 0, 0, 512, 512),
    ] {
        let sizes = NamespaceInfo {
            block_size,
            write_granularity: granularity,
            optimal_write: optimal,
            ..example(1)
        };
        fixture.subsystem.namespaces.insert(1, sizes);
        let it = IdentifyNamespace::decode(&page(&mut fixture, 0, 1));
        let bytes = |zero_based: u16| (u32::from(zero_based) + 1) * block_size;
        assert_eq!((bytes(it.npwg), bytes(it.npwa)), (npwg, npwg), "{sizes:?}");
        assert_eq!(bytes(it.nows), nows, "{sizes:?}");
    }
}

#[test]
fn a_discovery_controller() {
    let mut fixture = Fixture::discovery();
    let it = IdentifyController::decode(&page(&mut fixture, 1, 0));
    assert_eq!((it.cntrltype, it.oaes), (2, 1 << 31));
    assert_eq!((it.nn, it.oncs, it.vwc), (0, 0, 0));
    assert_eq!(it.subnqn, Some(Nqn::DISCOVERY));
    for cns in (0..=0xff).filter(|cns| *cns != 1) {
        assert_eq!(fixture.status(identify(cns, 1, 0, 0)), INVALID, "{cns:#x}");
    }
}

#[test]
fn a_namespace() {
    let mut fixture = Fixture::io();
    let it = IdentifyNamespace::decode(&page(&mut fixture, 0, 3));
    assert_eq!((it.nsze, it.ncap, it.nuse), (1024, 1024, 1000));
    assert_eq!((it.nlbaf, it.flbas, it.block_size()), (0, 0, Some(512)));
    assert_eq!((it.nsfeat, it.nmic, it.dlfeat), (0b1_1010, 1, 0b1001));
    assert_eq!((it.nawun, it.nawupf, it.nacwu), (7, 7, 7));
    assert_eq!(
        (it.npwg, it.npwa, it.npdg, it.npda, it.nows),
        (7, 7, 0, 0, 7)
    );
    assert_eq!((it.nsattr, it.nvmcap), (0, 1024 * 512));
    assert_eq!(it.nguid, *b"a NGUID of tests");
    assert!(
        it.lbaf[1..]
            .iter()
            .all(|format| *format == LbaFormat::default())
    );
}

#[test]
fn a_plain_read_only_namespace_promises_nothing() {
    let mut fixture = Fixture::io();
    let plain = NamespaceInfo {
        block_size: 4096,
        read_only: true,
        volatile_cache: false,
        deallocate: false,
        write_granularity: 0,
        optimal_write: 0,
        atomic_write: 1,
        ..example(2)
    };
    fixture.subsystem.namespaces.insert(2, plain);
    let it = IdentifyNamespace::decode(&page(&mut fixture, 0, 2));
    assert_eq!((it.nsfeat, it.nsattr, it.dlfeat), (0b1000, 1, 1));
    assert_eq!((it.nawupf, it.npwg, it.block_size()), (0, 0, Some(4096)));
    let it = IdentifyNamespaceIndependent::decode(&page(&mut fixture, 8, 2));
    assert_eq!(
        (it.nsfeat, it.nmic, it.nsattr, it.nstat),
        (0b10_1000, 1, 1, 1)
    );
    let cached = IdentifyNamespaceIndependent::decode(&page(&mut fixture, 8, 1));
    assert_eq!((cached.nsfeat, cached.nsattr), (0b1000, 0));
}

#[test]
fn names_of_a_namespace() {
    let mut fixture = Fixture::io();
    assert_eq!(
        NamespaceDescriptors::decode(&page(&mut fixture, 3, 1)),
        NamespaceDescriptors {
            eui64: None,
            nguid: Some(*b"a NGUID of tests"),
            uuid: Some(*b"an UUID of tests"),
            csi: Some(0),
        }
    );
}

#[test]
fn lists() {
    let mut fixture = Fixture::io();
    for cns in [2, 7] {
        for (above, listed) in [
            (0, &[1, 3][..]),
            (1, &[3]),
            (2, &[3]),
            (3, &[]),
            (0xffff_fffd, &[]),
        ] {
            let page = page(&mut fixture, cns, above);
            let nsids: Vec<u32> = decode_namespace_list(&page).collect();
            assert_eq!(nsids, listed, "{cns:#x} above {above:#x}");
        }
    }
    for (from, listed) in [(0, &[2, 5, 9][..]), (5, &[5, 9]), (10, &[])] {
        let page: Page = fixture
            .page(identify(0x13, 0, from, 0))
            .try_into()
            .expect("4,096 bytes");
        let ids: Vec<u16> = decode_controller_list(&page).collect();
        assert_eq!(ids, listed, "from {from}");
    }
    for of in [5, 0xffff] {
        let page: Page = fixture
            .page(identify(0x1c, 0, of, 0))
            .try_into()
            .expect("4,096 bytes");
        assert_eq!(decode_command_sets(&page).collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn the_nvm_command_set() {
    let mut fixture = Fixture::io();
    let limits = IdentifyControllerNvm::decode(&page(&mut fixture, 6, 0));
    assert_eq!(4096_u64 << limits.wzsl, WRITE_ZEROES_BYTES);
    assert_eq!((limits.dmrl, limits.dmrsl, limits.dmsl), (0, 0, 0));
    assert_eq!(page(&mut fixture, 5, 1), [0; IDENTIFY_LEN]);
}

#[test]
fn a_namespace_that_is_not_attached_is_zero() {
    let mut fixture = Fixture::io();
    for cns in [0, 5, 8] {
        assert_eq!(page(&mut fixture, cns, 2), [0; IDENTIFY_LEN], "{cns:#x}");
    }
}

#[test]
fn refusals() {
    let mut fixture = Fixture::io();
    let in_capsule = Sgl::InCapsule {
        offset: 0,
        length: 4096,
    };
    let short = Sgl::Transport { length: 4092 };
    let table = [
        (identify(0, 0, 0, 0), NO_NAMESPACE),
        (identify(0, 9, 0, 0), NO_NAMESPACE),
        (identify(0, NSID_ALL, 0, 0), NO_NAMESPACE),
        (identify(2, 0xffff_fffe, 0, 0), NO_NAMESPACE),
        (identify(2, NSID_ALL, 0, 0), NO_NAMESPACE),
        (identify(3, 2, 0, 0), NO_NAMESPACE),
        (identify(3, 0, 0, 0), NO_NAMESPACE),
        (identify(5, 9, 0, 0), NO_NAMESPACE),
        (identify(8, 0, 0, 0), NO_NAMESPACE),
        (identify(5, 1, 0, 2), INVALID),
        (identify(6, 0, 0, 2), INVALID),
        (identify(7, 0, 0, 1), INVALID),
        (identify(0x1c, 0, 6, 0), INVALID),
        (identify(0x04, 1, 0, 0), INVALID),
        (identify(0x10, 0, 0, 0), INVALID),
        (identify(0xff, 0, 0, 0), INVALID),
        (
            identify(1, 0, 0, 0).with_sgl(short),
            Status::DATA_SGL_LENGTH_INVALID.with_dnr(),
        ),
        (
            identify(1, 0, 0, 0).with_sgl(in_capsule),
            Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr(),
        ),
    ];
    for (sqe, status) in table {
        assert_eq!(fixture.status(sqe), status, "{sqe:?}");
    }
}

#[test]
fn a_function_on_pcie_has_shadow_doorbells_and_vendors_and_takes_no_pairs() {
    let mut fixture = Fixture::pcie();
    let found = IdentifyController::decode(&page(&mut fixture, 1, 0));
    assert_eq!((found.vid, found.ssvid), (0x4e58, 0x4e59));
    assert_eq!((found.oacs, found.fuses), (0x100, 0));
}
