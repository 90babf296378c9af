//! What Get Log Page returns, read as a host reads it.

use alloc::vec;
use alloc::vec::Vec;

use flashyard_nvme::Sgl;
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::log::{DiscoveryHeader, decode_changed_namespaces};
use flashyard_time::Duration;

use super::*;
use crate::Media;
use crate::tests::Fixture;

fn get(id: u8, nsid: u32, offset: u64, bytes: u32, retain: bool) -> SubmissionQueueEntry {
    let sgl = Sgl::Transport { length: bytes };
    SubmissionQueueEntry::get_log_page(id, nsid, offset, bytes, retain, sgl)
}

fn log<const N: usize>(fixture: &mut Fixture, id: u8) -> [u8; N] {
    let page = fixture.page(get(id, 0, 0, N as u32, false));
    page.try_into().expect("as long as asked for")
}

#[test]
fn which_logs_there_are() {
    for (mut fixture, ids) in [
        (
            Fixture::io(),
            &[0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x12, 0xd0][..],
        ),
        (Fixture::discovery(), &[0x00, 0x01, 0x12, 0x70]),
    ] {
        let supported = SupportedLogs::decode(&log(&mut fixture, 0)).0;
        for id in 0..=0xff {
            assert_eq!(supported[usize::from(id)], ids.contains(&id), "{id:#x}");
            let there = matches!(
                fixture.admin(get(id, 0, 0, 4, true)),
                crate::AdminOutcome::Data { .. }
            );
            assert_eq!(there, ids.contains(&id), "{id:#x}");
        }
    }
}

#[test]
fn errors_newest_first() {
    let mut fixture = Fixture::io();
    let unknown = SubmissionQueueEntry::raw(0x80, 3).with_cid(0x1234);
    assert_eq!(fixture.status(unknown), Status::INVALID_OPCODE.with_dnr());
    fixture.controller.on_error(CommandError {
        sqid: 2,
        cid: 7,
        opcode: 1,
        status: Status::WRITE_FAULT,
        lba: 0x0102_0304_0506,
        nsid: 1,
    });
    let page: [u8; 4096] = log(&mut fixture, 1);
    let entries = page.as_chunks().0;
    let newest = ErrorLogEntry::decode(&entries[0]);
    assert_eq!((newest.error_count, newest.sqid, newest.cid), (2, 2, 7));
    assert_eq!(
        (newest.status, newest.lba, newest.nsid),
        (Status::WRITE_FAULT, 0x0102_0304_0506, 1)
    );
    let older = ErrorLogEntry::decode(&entries[1]);
    assert_eq!((older.error_count, older.sqid, older.cid), (1, 0, 0x1234));
    assert_eq!(
        (older.status, older.opcode),
        (Status::INVALID_OPCODE.with_dnr(), 0x80)
    );
    assert_eq!(ErrorLogEntry::decode(&entries[2]), ErrorLogEntry::default());
    assert_eq!(SmartLog::decode(&log(&mut fixture, 2)).error_log_entries, 2);
}

#[test]
fn counters_become_smart() {
    let mut fixture = Fixture::io();
    fixture.counters = Counters {
        bytes_read: 512_001,
        bytes_written: 512_000,
        read_commands: 3,
        write_commands: 4,
        busy: Duration::from_secs(125),
        power_on: Duration::from_secs(7300),
        power_cycles: 5,
        unsafe_shutdowns: 6,
        media_errors: 7,
        media: Media::default(),
    };
    let smart = SmartLog::decode(&log(&mut fixture, 2));
    assert_eq!((smart.data_units_read, smart.data_units_written), (2, 1));
    assert_eq!(
        (smart.host_read_commands, smart.host_write_commands),
        (3, 4)
    );
    assert_eq!((smart.controller_busy_time, smart.power_on_hours), (2, 2));
    assert_eq!(
        (
            smart.power_cycles,
            smart.unsafe_shutdowns,
            smart.media_errors
        ),
        (5, 6, 7)
    );
    assert_eq!((smart.critical_warning, smart.available_spare), (0, 100));
    assert_eq!(smart.composite_temperature, 313);
    assert_eq!(fixture.page(get(2, NSID_ALL, 0, 512, true)).len(), 512);
    assert_eq!(
        fixture.status(get(2, 1, 0, 512, true)),
        INVALID,
        "not per namespace"
    );
}

#[test]
fn a_medium_that_is_worn_out_is_told() {
    let mut fixture = Fixture::io();
    fixture.counters.media.add(100, false);
    fixture.counters.media.add(0, true);
    let smart = SmartLog::decode(&log(&mut fixture, 2));
    assert_eq!((smart.critical_warning, smart.available_spare), (0b0101, 0));
    fixture.counters.media = Media::default();
    fixture.counters.media.add(0, true);
    let smart = SmartLog::decode(&log(&mut fixture, 2));
    assert_eq!(smart.critical_warning, 0b1101);
    assert!(smart.available_spare < smart.available_spare_threshold);
}

#[test]
fn firmware() {
    let slots = FirmwareSlotLog::decode(&log(&mut Fixture::io(), 3));
    assert_eq!((slots.afi, slots.frs1), (1, firmware_revision()));
}

#[test]
fn changed_namespaces_are_forgotten_when_read() {
    let mut fixture = Fixture::io();
    let configure = AsyncEventConfiguration::NAMESPACE;
    fixture.admin(SubmissionQueueEntry::set_features(0x0b, 0, configure));
    for cid in [1, 2] {
        fixture.admin(SubmissionQueueEntry::async_event_request().with_cid(cid));
    }
    fixture.controller.on_namespace_change(7);
    fixture.controller.on_namespace_change(2);
    assert_eq!(fixture.controller.poll_event(), Some((1, 0x0004_0002)));

    let changed = |page: Vec<u8>| -> Vec<u32> {
        let page = page.try_into().expect("4,096 bytes");
        decode_changed_namespaces(&page)
            .expect("no overflow")
            .collect()
    };
    assert_eq!(changed(fixture.page(get(4, 0, 0, 4096, true))), [2, 7]);
    fixture.controller.on_namespace_change(3);
    assert_eq!(fixture.controller.poll_event(), None, "retained");
    assert_eq!(changed(fixture.page(get(4, 0, 0, 4096, false))), [2, 3, 7]);
    assert_eq!(changed(fixture.page(get(4, 0, 0, 4096, false))), [0; 0]);
    fixture.controller.on_namespace_change(3);
    assert_eq!(fixture.controller.poll_event(), Some((2, 0x0004_0002)));

    for nsid in 1..=1025 {
        fixture.controller.on_namespace_change(nsid);
    }
    let page = log(&mut fixture, 4);
    assert!(decode_changed_namespaces(&page).is_none(), "overflow");
}

#[test]
fn effects_of_commands_and_features() {
    let mut fixture = Fixture::io();
    let effects = EffectsLog::decode(&log(&mut fixture, 5));
    for opcode in 0..=0xff_u8 {
        let admin = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18].contains(&opcode);
        let reads = [0x00, 0x02, 0x05].contains(&opcode);
        let writes = [0x01, 0x08, 0x09].contains(&opcode);
        let (a, i) = (
            effects.admin[usize::from(opcode)],
            effects.io[usize::from(opcode)],
        );
        assert_eq!((a.csupp, a.lbcc), (admin, false), "{opcode:#x}");
        assert_eq!((i.csupp, i.lbcc), (reads || writes, writes), "{opcode:#x}");
    }
    assert_eq!(
        fixture.status(get(5, 0, 0, 4096, true).with_cdw(14, 2 << 24)),
        INVALID
    );

    let features = FeatureEffectsLog::decode(&log(&mut fixture, 0x12)).0;
    let supported: Vec<usize> = (0..256).filter(|id| features[*id].fsupp).collect();
    assert_eq!(
        supported,
        [
            1, 2, 4, 5, 6, 7, 0x0a, 0x0b, 0x0e, 0x0f, 0x16, 0x81, 0xc0, 0xc1
        ]
    );
    for id in supported {
        let of_namespace = features[id].fsp == FeatureEffects::SCOPE_NAMESPACE;
        assert_eq!(of_namespace, id == 5, "{id:#x}");
    }
}

#[test]
fn statistics_are_those_that_the_target_has_gathered() {
    let mut fixture = Fixture::io();
    let gathered = StatisticsLog {
        nsid: 7,
        in_flight: 3,
        ..StatisticsLog::default()
    };
    fixture.statistics = Ok(gathered.clone());
    let page: [u8; 4096] = log(&mut fixture, 0xd0);
    let read = StatisticsLog::decode(&page).expect("it is that log");
    assert_eq!((read.nsid, read.in_flight), (7, 3));
    assert_eq!(fixture.page(get(0xd0, 7, 96, 4, true)), b"FLYD");
    fixture.statistics = Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
    let refused = fixture.status(get(0xd0, 8, 0, 4096, true));
    assert_eq!(refused, Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());

    let asked = |sqe| crate::asks_statistics(&sqe);
    assert_eq!(asked(get(0xd0, 8, 0, 4096, true)), Some(8));
    assert_eq!(asked(get(0x02, 8, 0, 512, true)), None);
    assert_eq!(
        asked(SubmissionQueueEntry::raw(0x06, 1).with_cdw(10, 0xd0)),
        None
    );
}

#[test]
fn parts_of_a_log() {
    let mut fixture = Fixture::io();
    let whole: [u8; 512] = log(&mut fixture, 3);
    assert_eq!(fixture.page(get(3, 0, 4, 12, true)), whole[4..16]);
    assert_eq!(
        fixture.page(get(3, 0, 508, 8, true)),
        [0; 8],
        "zeroes behind the end"
    );
    assert_eq!(fixture.page(get(3, 0, 512, 4, true)), [0; 4]);
    let index = get(3, 0, 0, 4, true).with_cdw(14, 1 << 23);
    let most = fixture.controller.limits().transfer_bytes;
    for refused in [
        get(3, 0, 516, 4, true),
        get(3, 0, u64::MAX - 3, 4, true),
        get(3, 0, 2, 4, true),
        get(3, 0, 0, most + 4, true),
        index,
    ] {
        assert_eq!(fixture.status(refused), INVALID, "{refused:?}");
    }
    assert_eq!(fixture.page(get(3, 0, 0, most, true)).len(), most as usize);
    let mismatch = get(3, 0, 0, 512, true).with_sgl(Sgl::Transport { length: 516 });
    assert_eq!(
        fixture.status(mismatch),
        Status::DATA_SGL_LENGTH_INVALID.with_dnr()
    );
    assert_eq!(
        fixture.status(get(0x0c, 0, 0, 16, true)),
        Status::INVALID_LOG_PAGE.with_dnr()
    );
}

#[test]
fn the_discovery_log_is_read_through_its_controller() {
    let mut fixture = Fixture::discovery();
    let listener = "127.0.0.1:4420".parse().expect("an address");
    assert!(
        fixture
            .discovery
            .set_listeners(vec![listener])
            .concerns(&fixture.controller.host().nqn)
    );
    let header = DiscoveryHeader::decode(&log(&mut fixture, 0x70));
    assert_eq!((header.genctr, header.numrec, header.recfmt), (2, 1, 0));
    assert_eq!(fixture.page(get(0x70, 0, 1024, 1024, true))[..3], [3, 1, 3]);
    assert_eq!(fixture.status(get(0x70, 0, 2052, 4, true)), INVALID);
}
