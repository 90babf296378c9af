//! Connect, right and wrong.

use super::*;
use crate::tests::{Fixture, host, nqn};
use crate::{ControllerKind, HostList};

fn command() -> Connect {
    Connect {
        qid: 0,
        sqsize: 31,
        kato: 5000,
        ..Connect::default()
    }
}

fn data() -> ConnectData {
    ConnectData {
        hostid: host().id,
        cntlid: 0xffff,
        subnqn: nqn("nqn.2026-11.dev.flashyard:db"),
        hostnqn: host().nqn,
    }
}

fn request(command: Connect, data: &ConnectData) -> ConnectRequest {
    let sqe = SubmissionQueueEntry::connect(command);
    ConnectRequest::parse(&sqe, &data.encode()).expect("well formed")
}

fn invalid(parameter: InvalidParameter) -> ConnectError {
    parameter.into()
}

fn status(status: Status) -> ConnectError {
    ConnectError::of(status.with_dnr())
}

#[test]
fn an_admin_queue() {
    let subsystem = Fixture::io().subsystem;
    let request = request(command(), &data());
    assert!(request.is_admin());
    assert_eq!(request.host(), host());
    assert_eq!(request.subsystem(), &subsystem.nqn);
    assert_eq!(
        request.check_admin(Some(&subsystem)),
        Ok(AcceptedQueue {
            qid: 0,
            entries: 32,
            flow_control_disabled: false,
            priority: None,
        })
    );
}

#[test]
fn admin_queues_refused() {
    let mut subsystem = Fixture::io().subsystem;
    subsystem.hosts = HostList::Only([host().nqn].into());
    let sqsize = |sqsize| Connect {
        sqsize,
        ..command()
    };
    let stranger = ConnectData {
        hostnqn: nqn("nqn.2014-08.org.nvmexpress:uuid:stranger"),
        ..data()
    };
    let table = [
        (command(), stranger, invalid(InvalidParameter::SUBNQN)),
        (
            command(),
            ConnectData {
                cntlid: 5,
                ..data()
            },
            invalid(InvalidParameter::CNTLID),
        ),
        (
            command(),
            ConnectData {
                cntlid: 0xfffe,
                ..data()
            },
            invalid(InvalidParameter::CNTLID),
        ),
        (
            command(),
            ConnectData {
                hostid: [0; 16],
                ..data()
            },
            invalid(InvalidParameter::HOSTID),
        ),
        (sqsize(0), data(), invalid(InvalidParameter::SQSIZE)),
        (sqsize(128), data(), invalid(InvalidParameter::SQSIZE)),
        (sqsize(0xffff), data(), invalid(InvalidParameter::SQSIZE)),
    ];
    for (command, data, error) in table {
        let request = request(command, &data);
        assert_eq!(
            request.check_admin(Some(&subsystem)),
            Err(error),
            "{request:?}"
        );
    }
    let unknown = request(command(), &data()).check_admin(None);
    assert_eq!(unknown, Err(invalid(InvalidParameter::SUBNQN)));
    assert!(
        request(sqsize(127), &data())
            .check_admin(Some(&subsystem))
            .is_ok()
    );
}

#[test]
fn the_wire_says_where_the_trouble_is() {
    let completion = invalid(InvalidParameter::SUBNQN).completion(9);
    assert_eq!(
        completion.status(),
        Status::CONNECT_INVALID_PARAMETERS.with_dnr()
    );
    assert_eq!((completion.cid(), completion.dw0()), (9, 0x0001_0100));
    assert_eq!(invalid(InvalidParameter::SQSIZE).dw0, 44);
    let busy = ConnectError::BUSY.completion(1).status();
    assert_eq!(busy, Status::CONNECT_CONTROLLER_BUSY, "to be tried again");
}

#[test]
fn form() {
    let sqe = SubmissionQueueEntry::connect(command());
    let good = data().encode();
    let format = SubmissionQueueEntry::connect(Connect {
        recfmt: 1,
        ..command()
    });
    assert_eq!(
        ConnectRequest::parse(&format, &good),
        Err(status(Status::CONNECT_INCOMPATIBLE_FORMAT))
    );
    assert_eq!(
        ConnectRequest::parse(&sqe, &good[..1023]),
        Err(status(Status::DATA_SGL_LENGTH_INVALID))
    );
    for (at, parameter) in [
        (256, InvalidParameter::SUBNQN),
        (512, InvalidParameter::HOSTNQN),
    ] {
        for bytes in [&b"\0"[..], b"iqn.2014-08.org.x:y", &[0xff; 4], &[b'n'; 256]] {
            let mut data = good;
            data[at..at + bytes.len()].copy_from_slice(bytes);
            let parsed = ConnectRequest::parse(&sqe, &data);
            assert_eq!(parsed, Err(invalid(parameter)), "{bytes:?}");
        }
    }
}

fn io(qid: u16) -> ConnectRequest {
    let command = Connect {
        qid,
        sqsize: 127,
        cattr: Connect::CATTR_DISABLE_SQ_FLOW_CONTROL,
        ..command()
    };
    request(
        command,
        &ConnectData {
            cntlid: 5,
            ..data()
        },
    )
}

fn check_io(fixture: &Fixture, request: &ConnectRequest) -> Result<AcceptedQueue, ConnectError> {
    let controller = &fixture.controller;
    request.check_io(Some(&fixture.subsystem), Some(controller))
}

#[test]
fn io_queues() {
    let mut fixture = Fixture::io();
    fixture.admin(SubmissionQueueEntry::set_features(7, 0, 0x0001_0001));
    let accepted = AcceptedQueue {
        qid: 2,
        entries: 128,
        flow_control_disabled: true,
        priority: None,
    };
    assert_eq!(check_io(&fixture, &io(2)), Ok(accepted));
    assert_eq!(
        check_io(&fixture, &io(3)),
        Err(invalid(InvalidParameter::QID)),
        "not granted"
    );

    fixture.controller.queue_made(2);
    let sequence = Err(status(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(check_io(&fixture, &io(2)), sequence, "exists");
    fixture.controller.queue_gone(2);
    assert_eq!(check_io(&fixture, &io(2)), Ok(accepted));

    // With weighted round robin a queue has a priority class.
    fixture.configure(0x46_0000);
    assert_eq!(check_io(&fixture, &io(2)), sequence, "not enabled");
    fixture.configure(0x46_0801);
    let mut low = io(2);
    low.command.cattr |= 3;
    let priority = check_io(&fixture, &low).map(|queue| queue.priority);
    assert_eq!(priority, Ok(Some(3)));
    fixture.configure(0x46_0000);
    fixture.configure(0x00_0001);
    assert_eq!(check_io(&fixture, &io(2)), sequence, "no entry sizes");
}

#[test]
fn io_queues_of_somebody_else() {
    let fixture = Fixture::io();
    let mut request = io(1);
    request.data.hostid = [8; 16];
    assert_eq!(
        check_io(&fixture, &request),
        Err(invalid(InvalidParameter::HOSTID))
    );
    let mut request = io(1);
    request.data.hostnqn = nqn("nqn.2014-08.org.nvmexpress:uuid:stranger");
    assert_eq!(
        check_io(&fixture, &request),
        Err(invalid(InvalidParameter::HOSTNQN))
    );
    let mut request = io(1);
    request.command.sqsize = 1024;
    assert_eq!(
        check_io(&fixture, &request),
        Err(invalid(InvalidParameter::SQSIZE))
    );
    let nobody = io(1).check_io(Some(&fixture.subsystem), None);
    assert_eq!(nobody, Err(invalid(InvalidParameter::CNTLID)));
}

#[test]
fn a_discovery_controller_has_no_io_queues_and_asks_for_no_host_identifier() {
    let fixture = Fixture::discovery();
    assert_eq!(fixture.controller.kind(), ControllerKind::Discovery);
    assert_eq!(
        check_io(&fixture, &io(1)),
        Err(invalid(InvalidParameter::QID))
    );
    let anonymous = ConnectData {
        hostid: [0; 16],
        subnqn: Nqn::DISCOVERY,
        ..data()
    };
    assert!(
        request(command(), &anonymous)
            .check_admin(Some(&fixture.subsystem))
            .is_ok()
    );
}
