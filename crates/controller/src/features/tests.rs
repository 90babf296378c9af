//! Every feature, with every Select.

use alloc::vec::Vec;

use flashyard_nvme::Sgl;
use flashyard_time::Duration;

use super::*;
use crate::Transfer;
use crate::tests::{Fixture, host};

type Entry = SubmissionQueueEntry;

fn get(fixture: &mut Fixture, id: u8, select: u8) -> Result<u32, Status> {
    match fixture.admin(Entry::get_features(id, select, 0)) {
        AdminOutcome::Complete(Answer { status, value }) if status.is_success() => Ok(value as u32),
        AdminOutcome::Complete(Answer { status, value: 0 }) => Err(status),
        other => panic!("{other:?}"),
    }
}

fn set(fixture: &mut Fixture, id: u8, value: u32) -> Result<u32, Status> {
    match fixture.admin(Entry::set_features(id, 0, value)) {
        AdminOutcome::Complete(Answer { status, value }) if status.is_success() => Ok(value as u32),
        AdminOutcome::Complete(Answer { status, value: 0 }) => Err(status),
        other => panic!("{other:?}"),
    }
}

fn get_data(fixture: &mut Fixture, id: u8, select: u8, cdw11: u32, length: u32) -> Vec<u8> {
    let sgl = Sgl::Transport { length };
    fixture.page(
        Entry::get_features(id, select, 0)
            .with_cdw(11, cdw11)
            .with_sgl(sgl),
    )
}

#[test]
fn completion_coalescing_is_kept_and_checked() {
    let mut fixture = Fixture::io();
    assert_eq!(
        fixture.controller.coalescing(),
        CompletionCoalescing::default()
    );
    for value in [0x81, 0x200] {
        assert_eq!(set(&mut fixture, 0xc0, value), Err(INVALID), "{value:#x}");
    }
    assert_eq!(set(&mut fixture, 0xc0, 0x120), Ok(0));
    assert_eq!(get(&mut fixture, 0xc0, 0), Ok(0x120));
    assert_eq!(get(&mut fixture, 0xc0, 1), Ok(0), "by default");
    let wanted = CompletionCoalescing {
        window: 32,
        packed: true,
    };
    assert_eq!(fixture.controller.coalescing(), wanted);
}

#[test]
fn interrupts_are_coalesced_on_pcie_only_and_by_vector() {
    let mut fabrics = Fixture::io();
    for id in [0x08, 0x09] {
        assert_eq!(get(&mut fabrics, id, 0), Err(INVALID));
        assert_eq!(set(&mut fabrics, id, 0), Err(INVALID));
    }
    let mut fixture = Fixture::pcie();
    assert_eq!(get(&mut fixture, 0x08, 0), Ok(0));
    assert_eq!(set(&mut fixture, 0x08, 0x0307), Ok(0));
    assert_eq!(get(&mut fixture, 0x08, 0), Ok(0x0307));
    let wanted = Some(InterruptCoalescing {
        threshold: 7,
        time: 3,
    });
    assert_eq!(fixture.controller.interrupt_coalescing(2), wanted);
    assert_eq!(set(&mut fixture, 0x09, 1 << 16 | 2), Ok(0));
    assert_eq!(fixture.controller.interrupt_coalescing(2), None);
    assert_eq!(fixture.controller.interrupt_coalescing(3), wanted);
    assert_eq!(set(&mut fixture, 0x09, 2), Ok(0));
    assert_eq!(fixture.controller.interrupt_coalescing(2), wanted);
    assert_eq!(set(&mut fixture, 0x09, 9), Err(INVALID), "no such vector");
}

#[test]
fn credits_are_told_to_those_who_ask() {
    let mut fixture = Fixture::io();
    assert!(!fixture.controller.tells_credits());
    for value in [2, 3, 0x100] {
        assert_eq!(set(&mut fixture, 0xc1, value), Err(INVALID), "{value:#x}");
    }
    assert_eq!(set(&mut fixture, 0xc1, 1), Ok(0));
    assert_eq!(get(&mut fixture, 0xc1, 0), Ok(1));
    assert_eq!(get(&mut fixture, 0xc1, 1), Ok(0), "by default");
    assert!(fixture.controller.tells_credits());
    assert_eq!(set(&mut fixture, 0xc1, 0), Ok(0));
    assert!(!fixture.controller.tells_credits());
}

#[test]
fn values_are_kept_and_defaults_stay() {
    // Feature, default, a value to set, what is read then.
    let table = [
        (0x01, 0, 0x0302_0107, 0x0302_0107),
        (0x02, 0, 0x20, 0),
        (0x06, 1, 1, 1),
        (0x0a, 0, 1, 1),
        (0x0b, 0, 0x100, 0x100),
        (0x0f, 0, 15_000, 20_000),
    ];
    for (id, default, value, read) in table {
        let mut fixture = Fixture::io();
        assert_eq!(set(&mut fixture, id, value), Ok(0), "{id:#x}");
        let selected = [0, 1, 2].map(|select| get(&mut fixture, id, select));
        assert_eq!(selected, [Ok(read), Ok(default), Ok(default)], "{id:#x}");
    }
}

#[test]
fn what_can_be_changed() {
    let mut fixture = Fixture::io();
    assert_eq!(get(&mut fixture, 0x05, 3), Ok(6), "for each namespace");
    for id in [0x01, 0x02, 0x04, 0x07, 0x0a, 0x0b, 0x0e, 0x0f, 0x16] {
        assert_eq!(get(&mut fixture, id, 3), Ok(4), "{id:#x}");
    }
    for id in [0x06, 0x81] {
        assert_eq!(get(&mut fixture, id, 3), Ok(0), "{id:#x}");
    }
    assert_eq!(
        get(&mut fixture, 1, 4),
        Err(Status::INVALID_FIELD.with_dnr())
    );
}

#[test]
fn refusals() {
    let mut fixture = Fixture::io();
    for (id, value, status) in [
        (0x02, 1, Status::INVALID_FIELD),
        (0x04, 0x0001_0000, Status::INVALID_FIELD),
        (0x04, 0x0020_0000, Status::INVALID_FIELD),
        (0x06, 0, Status::FEATURE_NOT_CHANGEABLE),
        (0x07, 0xffff, Status::INVALID_FIELD),
        (0x07, 0xffff_0000, Status::INVALID_FIELD),
        (0x0f, 0, Status::KEEP_ALIVE_INVALID),
        (0x0e, 0, Status::DATA_SGL_LENGTH_INVALID),
        (0x16, 0, Status::DATA_SGL_LENGTH_INVALID),
        (0x81, 1, Status::COMMAND_SEQUENCE_ERROR),
        (0x00, 0, Status::INVALID_FIELD),
        (0x08, 0, Status::INVALID_FIELD),
        (0x82, 0, Status::INVALID_FIELD),
        (0x83, 0, Status::INVALID_FIELD),
        (0xff, 0, Status::INVALID_FIELD),
    ] {
        assert_eq!(
            set(&mut fixture, id, value),
            Err(status.with_dnr()),
            "{id:#x}"
        );
    }
    let save = Entry::set_features(1, 0, 0).with_cdw(10, 1 | 1 << 31);
    assert_eq!(
        fixture.status(save),
        Status::FEATURE_NOT_SAVEABLE.with_dnr()
    );
    assert_eq!(
        fixture.status(Entry::set_features(1, 1, 0)),
        Status::FEATURE_NOT_NAMESPACE_SPECIFIC.with_dnr()
    );
    assert_eq!(
        fixture.status(Entry::set_features(1, NSID_ALL, 0)),
        Status::SUCCESS
    );
}

/// Error Recovery belongs to each namespace, whichever controller sets it.
#[test]
fn error_recovery_is_of_a_namespace() {
    const NO_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
    let dw0 = |value| AdminOutcome::Complete(Answer::dw0(value));
    let refused = |status| AdminOutcome::Complete(Answer::of(status));
    let read =
        |fixture: &mut Fixture, nsid, select| fixture.admin(Entry::get_features(5, select, nsid));
    let write =
        |fixture: &mut Fixture, nsid, value| fixture.admin(Entry::set_features(5, nsid, value));
    let mut fixture = Fixture::io();
    assert_eq!(write(&mut fixture, 1, 10), dw0(0));
    assert_eq!(
        (read(&mut fixture, 1, 0), read(&mut fixture, 3, 0)),
        (dw0(10), dw0(0))
    );
    for select in [1, 2] {
        assert_eq!(read(&mut fixture, 1, select), dw0(0), "by default");
    }
    assert_eq!(write(&mut fixture, NSID_ALL, 7), dw0(0));
    assert_eq!(
        (read(&mut fixture, 1, 0), read(&mut fixture, 3, 0)),
        (dw0(7), dw0(7))
    );
    // 2 may be a namespace and is none now; 0 and 9 never are. All of them have no one value.
    for (nsid, status) in [(0, NO_NAMESPACE), (9, NO_NAMESPACE), (2, INVALID)] {
        assert_eq!(write(&mut fixture, nsid, 1), refused(status), "{nsid}");
        for select in [0, 1, 2] {
            assert_eq!(read(&mut fixture, nsid, select), refused(status), "{nsid}");
        }
    }
    assert_eq!(read(&mut fixture, NSID_ALL, 0), refused(NO_NAMESPACE));
    for nsid in [1, NSID_ALL] {
        assert_eq!(
            write(&mut fixture, nsid, 1 << 16),
            refused(INVALID),
            "DULBE"
        );
    }
    assert_eq!(
        read(&mut fixture, 1, 0),
        dw0(7),
        "a refusal changes nothing"
    );
    fixture.features.forget(1);
    assert_eq!(
        (read(&mut fixture, 1, 0), read(&mut fixture, 3, 0)),
        (dw0(0), dw0(7))
    );
}

#[test]
fn queues_are_granted_up_to_the_limit_before_there_are_any() {
    let mut fixture = Fixture::io();
    assert_eq!(get(&mut fixture, 7, 0), Ok(0x007f_007f));
    assert_eq!(set(&mut fixture, 7, 0x0003_0003), Ok(0x0003_0003));
    assert_eq!(get(&mut fixture, 7, 0), Ok(0x0003_0003));
    assert_eq!(fixture.controller.granted_queues(), 4);
    assert_eq!(set(&mut fixture, 7, 0xfffe_fffe), Ok(0x007f_007f));
    assert_eq!(fixture.controller.granted_queues(), 128);
    assert_eq!(set(&mut fixture, 7, 0x0001_0004), Ok(0x0001_0004));
    assert_eq!(fixture.controller.granted_queues(), 2);
    fixture.controller.queue_made(1);
    assert_eq!(
        set(&mut fixture, 7, 0),
        Err(Status::COMMAND_SEQUENCE_ERROR.with_dnr())
    );
}

#[test]
fn temperature_thresholds() {
    let mut fixture = Fixture::io();
    let threshold = |kind: u32, kelvin: u32| kind << 20 | kelvin;
    assert_eq!(set(&mut fixture, 4, threshold(0, 350)), Ok(0));
    assert_eq!(set(&mut fixture, 4, threshold(1, 270) | 0xf_0000), Ok(0));
    let mut read = |select, kind| {
        fixture.admin(Entry::get_features(4, select, 0).with_cdw(11, threshold(kind, 0)))
    };
    let dw0 = |value| AdminOutcome::Complete(Answer::dw0(value));
    assert_eq!((read(0, 0), read(0, 1)), (dw0(350), dw0(270)));
    assert_eq!((read(1, 0), read(1, 1)), (dw0(343), dw0(0)));
    assert_eq!(read(0, 2), AdminOutcome::Complete(Answer::of(INVALID)));
}

#[test]
fn a_timestamp_goes_on() {
    let mut fixture = Fixture::io();
    assert_eq!(get_data(&mut fixture, 0x0e, 0, 0, 8), [0; 8]);
    let set = Entry::set_features(0x0e, 0, 0);
    assert_eq!(
        fixture.controller.admin_transfer(&set),
        Transfer::FromHost {
            least: 8,
            most: 8192
        }
    );
    let outcome = fixture.admin_with(set, &[1, 0, 0, 0, 0, 1, 0xff, 0xff]);
    assert_eq!(outcome, AdminOutcome::Complete(Answer::SUCCESS));
    fixture.now += Duration::from_ms(2);
    assert_eq!(
        get_data(&mut fixture, 0x0e, 0, 0, 8),
        [3, 0, 0, 0, 0, 1, 2, 0]
    );
    assert_eq!(get_data(&mut fixture, 0x0e, 1, 0, 8), [0; 8]);
}

#[test]
fn host_behavior_switches_retry_delays_on() {
    let mut fixture = Fixture::io();
    assert!(!fixture.controller.honours_retry_delay());
    let set = Entry::set_features(0x16, 0, 0);
    assert_eq!(
        fixture.controller.admin_transfer(&set),
        Transfer::FromHost {
            least: 512,
            most: 8192
        }
    );
    let mut data = [0; 512];
    data[0] = 2;
    let refused = AdminOutcome::Complete(Answer::of(INVALID));
    assert_eq!(fixture.admin_with(set, &data), refused);
    data[0] = 1;
    let done = AdminOutcome::Complete(Answer::SUCCESS);
    assert_eq!(fixture.admin_with(set, &data), done);
    assert!(fixture.controller.honours_retry_delay());
    assert_eq!(get_data(&mut fixture, 0x16, 0, 0, 512), data);
    let longer = get_data(&mut fixture, 0x16, 0, 0, 4096);
    assert_eq!((longer[0], longer.len()), (1, 4096));
}

#[test]
fn the_host_identifier_has_128_bits() {
    let mut fixture = Fixture::io();
    assert_eq!(get_data(&mut fixture, 0x81, 0, 1, 16), host().id);
    assert_eq!(
        get(&mut fixture, 0x81, 0),
        Err(Status::HOST_IDENTIFIER_INCONSISTENT.with_dnr())
    );
    let short = Entry::get_features(0x81, 0, 0)
        .with_cdw(11, 1)
        .with_sgl(Sgl::Transport { length: 8 });
    assert_eq!(
        fixture.status(short),
        Status::DATA_SGL_LENGTH_INVALID.with_dnr()
    );
}

#[test]
fn a_discovery_controller_has_two() {
    let mut fixture = Fixture::discovery();
    for id in 0..=0xff {
        let known = get(&mut fixture, id, 3) == Ok(4);
        assert_eq!(known, id == 0x0b || id == 0x0f, "{id:#x}");
    }
    assert_eq!(get(&mut fixture, 0x0f, 0), Ok(10_000));
}
