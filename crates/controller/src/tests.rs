//! A controller with a subsystem around it, for the tests of all parts; and the Admin queue as a
//! whole.

use alloc::vec;
use alloc::vec::Vec;

use core::net::{IpAddr, Ipv4Addr};

use flashyard_nvme::command::Fuse;
use flashyard_nvme::fabrics::{Property, PropertySize};
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::log::StatisticsLog;
use flashyard_nvme::{Nqn, Sgl, Status, SubmissionQueueEntry};
use flashyard_time::{Duration, Rng, Time};

use super::admin::{AdminOutcome, Answer, DiscoveryView, SubsystemView};
use super::*;
use crate::discovery::Discovery;

/// A namespace of 1,024 blocks of 512 B.
pub(super) fn namespace(nsid: u32) -> NamespaceInfo {
    NamespaceInfo {
        nsid,
        block_size: 512,
        blocks: 1024,
        used: 1000,
        uuid: *b"an UUID of tests",
        nguid: *b"a NGUID of tests",
        eui64: None,
        read_only: false,
        write_protected: false,
        volatile_cache: true,
        deallocate: true,
        write_granularity: 8,
        optimal_write: 8,
        atomic_write: 8,
        deallocate_granularity: 0,
    }
}

pub(super) fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("a name of a test")
}

pub(super) fn host() -> HostId {
    HostId {
        nqn: nqn("nqn.2014-08.org.nvmexpress:uuid:host"),
        id: [9; 16],
    }
}

/// A controller, enabled, and all it may look at.
pub(super) struct Fixture {
    pub(super) subsystem: Subsystem,
    pub(super) controllers: Vec<ControllerId>,
    pub(super) counters: Counters,
    pub(super) features: NamespaceFeatures,
    pub(super) discovery: Discovery,
    pub(super) statistics: Result<StatisticsLog, Status>,
    pub(super) controller: Controller,
    pub(super) now: Time,
}

impl Fixture {
    /// An I/O controller (identifier 5) with namespaces 1 and 3 of at most 8.
    pub(super) fn io() -> Self {
        let mut fixture = Self::new(ControllerKind::Io, nqn("nqn.2026-11.dev.flashyard:db"));
        for nsid in [1, 3] {
            fixture.subsystem.namespaces.insert(nsid, namespace(nsid));
        }
        fixture
    }

    /// The same on PCIe, with nine interrupt vectors.
    pub(super) fn pcie() -> Self {
        let mut fixture = Self::io();
        let transport = &mut fixture.controller.transport;
        transport.pcie = Some(PcieCapabilities {
            vendors: (0x4e58, 0x4e59),
            vectors: 9,
        });
        fixture
    }

    /// A discovery controller (identifier 5).
    pub(super) fn discovery() -> Self {
        Self::new(ControllerKind::Discovery, Nqn::DISCOVERY)
    }

    fn new(kind: ControllerKind, nqn: Nqn) -> Self {
        let now = Time::ZERO + Duration::from_secs(1000);
        let id = ControllerId(5);
        let limits = ControllerLimits::default();
        let transport = TransportCapabilities {
            sgls: 0x0030_0001,
            ioccsz: 516,
            iorcsz: 1,
            icdoff: 0,
            msdbd: 1,
            admin_bytes: 8192,
            pcie: None,
        };
        let mut fixture = Self {
            subsystem: Subsystem::new(nqn, &[1; 16], HostList::Any, 8),
            controllers: vec![ControllerId(2), id, ControllerId(9)],
            counters: Counters::default(),
            features: NamespaceFeatures::default(),
            discovery: Discovery::default(),
            statistics: Ok(StatisticsLog::default()),
            controller: Controller::new(id, kind, host(), 5_000, (limits, transport), now),
            now,
        };
        fixture.configure(0x46_0001);
        fixture
    }

    pub(super) fn configure(&mut self, cc: u64) -> Option<Effect> {
        let (property, size) = (Property::Configuration, PropertySize::Four);
        let set = self.controller.set_property(self.now, property, size, cc);
        set.expect("a configuration that can be set")
    }

    pub(super) fn admin(&mut self, sqe: SubmissionQueueEntry) -> AdminOutcome {
        self.admin_with(sqe, &[])
    }

    pub(super) fn admin_with(&mut self, sqe: SubmissionQueueEntry, data: &[u8]) -> AdminOutcome {
        let view = SubsystemView {
            subsystem: &self.subsystem,
            controllers: &self.controllers,
            counters: &self.counters,
            features: &self.features,
            discovery: Some(DiscoveryView {
                log: &self.discovery,
                local: IpAddr::V4(Ipv4Addr::LOCALHOST),
            }),
            statistics: self.statistics.as_ref().map_err(|status| *status),
        };
        let room = match sqe.sgl() {
            Sgl::Transport { length } => Ok(length),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()),
        };
        self.controller.admin(self.now, &sqe, &view, data, room)
    }

    /// The page of a command that returns one.
    pub(super) fn page(&mut self, sqe: SubmissionQueueEntry) -> Vec<u8> {
        match self.admin(sqe) {
            AdminOutcome::Data { page, dw0: 0 } => page,
            other => panic!("no page but {other:?}"),
        }
    }

    /// The status of a command that returns nothing else.
    pub(super) fn status(&mut self, sqe: SubmissionQueueEntry) -> Status {
        match self.admin(sqe) {
            AdminOutcome::Complete(Answer { status, value: 0 }) => status,
            other => panic!("no status but {other:?}"),
        }
    }
}

#[test]
fn commands_that_are_not_for_a_tenant() {
    let mut fixture = Fixture::io();
    let known = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18];
    for opcode in (0..=0xff).filter(|opcode| !known.contains(opcode)) {
        assert_eq!(
            fixture.status(SubmissionQueueEntry::raw(opcode, 0)),
            Status::INVALID_OPCODE.with_dnr(),
            "{opcode:#x}"
        );
    }
    let fused = SubmissionQueueEntry::keep_alive().with_fuse(Fuse::First);
    assert_eq!(fixture.status(fused), Status::INVALID_FIELD.with_dnr());
    assert_eq!(
        fixture.status(SubmissionQueueEntry::keep_alive()),
        Status::SUCCESS
    );
}

#[test]
fn nothing_but_fabrics_commands_before_it_is_ready() {
    let mut fixture = Fixture::io();
    fixture.configure(0x46_0000);
    for opcode in 0..=0xff {
        let status = fixture.status(SubmissionQueueEntry::raw(opcode, 0));
        assert_eq!(
            status,
            Status::COMMAND_SEQUENCE_ERROR.with_dnr(),
            "{opcode:#x}"
        );
    }
}

#[test]
fn events_are_told_by_the_requests_that_were_held() {
    let mut fixture = Fixture::io();
    let configure = SubmissionQueueEntry::set_features(0x0b, 0, AsyncEventConfiguration::NAMESPACE);
    assert_eq!(fixture.status(configure), Status::SUCCESS);
    for cid in 1..=8 {
        let request = SubmissionQueueEntry::async_event_request().with_cid(cid);
        assert_eq!(fixture.admin(request), AdminOutcome::Held);
    }
    let ninth = SubmissionQueueEntry::async_event_request().with_cid(9);
    assert_eq!(fixture.status(ninth), Status::AER_LIMIT_EXCEEDED.with_dnr());
    assert_eq!(fixture.controller.poll_event(), None);
    fixture.controller.on_namespace_change(3);
    assert_eq!(fixture.controller.poll_event(), Some((1, 0x0004_0002)));
    assert_eq!(fixture.controller.poll_event(), None);
}

#[test]
fn abort_finds_held_requests_and_leaves_the_rest_to_the_transport() {
    let mut fixture = Fixture::io();
    fixture.admin(SubmissionQueueEntry::async_event_request().with_cid(7));
    assert_eq!(
        fixture.admin(SubmissionQueueEntry::abort(0, 7)),
        AdminOutcome::AbortedEventRequest { cid: 7 }
    );
    assert_eq!(
        fixture.admin(SubmissionQueueEntry::abort(0, 7)),
        AdminOutcome::Abort { sqid: 0, cid: 7 }
    );
    assert_eq!(
        fixture.admin(SubmissionQueueEntry::abort(3, 0xffff)),
        AdminOutcome::Abort {
            sqid: 3,
            cid: 0xffff
        }
    );
    assert_eq!(Answer::to_abort(true).completion(1).dw0(), 0);
    assert_eq!(Answer::to_abort(false).completion(1).dw0(), 1);
}

#[test]
fn a_reset_begins_anew_and_completes_no_request() {
    let mut fixture = Fixture::io();
    let configure = SubmissionQueueEntry::set_features(0x0b, 0, AsyncEventConfiguration::NAMESPACE);
    assert_eq!(fixture.status(configure), Status::SUCCESS);
    fixture.admin(SubmissionQueueEntry::set_features(7, 0, 0x0001_0001));
    fixture.admin(SubmissionQueueEntry::async_event_request());
    fixture.controller.queue_made(1);
    assert_eq!(fixture.controller.granted_queues(), 2);

    assert_eq!(fixture.configure(0x46_0000), Some(Effect::Reset));
    assert_eq!(fixture.configure(0x46_0001), Some(Effect::Enabled));
    fixture.controller.on_namespace_change(1);
    assert_eq!(fixture.controller.poll_event(), None);
    assert_eq!(fixture.controller.queues().len(), 0);
    assert_eq!(fixture.controller.granted_queues(), 128);
}

#[test]
fn silence_ends_the_association_and_any_command_breaks_it() {
    let mut fixture = Fixture::io();
    assert_eq!(
        fixture.controller.next_wakeup(),
        Some(fixture.now + Duration::from_secs(11)),
        "5 s are rounded up to 10, and one for the way"
    );
    fixture.now += Duration::from_secs(10);
    fixture.status(SubmissionQueueEntry::keep_alive());
    fixture.now += Duration::from_secs(10);
    assert_eq!(fixture.controller.poll(fixture.now), None);
    fixture.controller.on_traffic(fixture.now);
    fixture.now += Duration::from_secs(11);
    assert_eq!(fixture.controller.poll(fixture.now), Some(Expired));
    assert!(fixture.controller.status().cfs);
    assert!(!fixture.controller.is_ready());
}

#[test]
fn changes_concern_only_the_kind_that_tells_them() {
    for (mut fixture, dw0) in [
        (Fixture::io(), 0x0004_0002),
        (Fixture::discovery(), 0x0070_f002),
    ] {
        let all = SubmissionQueueEntry::set_features(0x0b, 0, u32::MAX);
        assert_eq!(fixture.status(all), Status::SUCCESS);
        for cid in [1, 2] {
            fixture.admin(SubmissionQueueEntry::async_event_request().with_cid(cid));
        }
        fixture.controller.on_namespace_change(1);
        fixture.controller.on_discovery_change();
        assert_eq!(fixture.controller.poll_event(), Some((1, dw0)));
        assert_eq!(fixture.controller.poll_event(), None);
    }
}

/// A command as a host would send it, or anything at all; then some of its dwords changed.
fn random_command(rng: &mut Rng) -> SubmissionQueueEntry {
    let nsids = [0, 1, 2, 3, 8, 9, 0xffff_fffe, 0xffff_ffff];
    let nsid = *rng.pick(&nsids).expect("not empty");
    let byte = rng.below(256) as u8;
    let length = 4 * rng.range(1..2000) as u32;
    let sgl = Sgl::Transport { length };
    let whole = Sgl::Transport { length: 4096 };
    let mut sqe = match rng.below(5) {
        0 => SubmissionQueueEntry::identify(byte % 32, nsid, rng.below(8) as u16, 0, whole),
        1 => {
            let id = if rng.chance(1, 4) { 0x70 } else { byte % 20 };
            let offset = 4 * rng.below(200);
            SubmissionQueueEntry::get_log_page(id, nsid, offset, length, byte < 128, sgl)
        }
        2 => SubmissionQueueEntry::get_features(byte % 24, byte % 5, nsid).with_sgl(whole),
        3 => SubmissionQueueEntry::set_features(byte % 24, 0, rng.next_u64() as u32).with_sgl(sgl),
        _ => SubmissionQueueEntry::raw(byte, nsid),
    };
    while rng.chance(1, 4) {
        sqe = sqe.with_cdw(rng.range(10..16) as usize, rng.next_u64() as u32);
    }
    if rng.chance(1, 8) {
        sqe = sqe.with_sgl(random_sgl(rng));
    }
    sqe.with_cid(rng.below(65_536) as u16)
}

fn random_sgl(rng: &mut Rng) -> Sgl {
    let length = *rng.pick(&[0, 4, 512, 4096, u32::MAX]).expect("not empty");
    match rng.below(4) {
        0 => Sgl::InCapsule {
            offset: rng.below(9000),
            length,
        },
        1 => Sgl::Other {
            identifier: rng.below(256) as u8,
        },
        _ => Sgl::Transport { length },
    }
}

#[test]
fn random_commands_never_panic_and_never_get_more_than_they_asked_for() {
    let mut pages = 0;
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        for mut fixture in [Fixture::io(), Fixture::discovery()] {
            let huge = NamespaceInfo {
                blocks: u64::MAX,
                ..namespace(8)
            };
            fixture.subsystem.namespaces.insert(8, huge);
            pages += (0..10_000)
                .filter(|_| random_step(&mut rng, &mut fixture))
                .count();
        }
    }
    assert!(pages > 2000, "{pages} pages: the test says too little");
}

/// One random event and one random command; whether it was answered with data.
fn random_step(rng: &mut Rng, fixture: &mut Fixture) -> bool {
    fixture.now += Duration::from_ms(rng.below(100));
    if rng.chance(1, 64) {
        fixture
            .controller
            .on_namespace_change(rng.below(2000) as u32);
        fixture.controller.on_discovery_change();
        fixture.controller.poll_event();
        fixture.controller.poll(fixture.now);
    }
    if !fixture.controller.is_ready() && rng.chance(1, 2) {
        fixture.configure(0);
        fixture.configure(0x46_0001);
    }
    if rng.chance(1, 6) {
        let (property, size) = (Property::Configuration, PropertySize::Four);
        let value = rng.below(0x80_0000);
        let set = fixture
            .controller
            .set_property(fixture.now, property, size, value);
        assert!(
            set.is_ok() || value & 1 == 1 || value >> 14 & 3 == 3,
            "{value:#x}"
        );
        return false;
    }
    let sqe = random_command(rng);
    let mut data = match fixture.controller.admin_transfer(&sqe) {
        Transfer::FromHost { least, most } => {
            vec![0; rng.range(least.into()..u64::from(most) + 1) as usize]
        }
        Transfer::None | Transfer::ToHost { .. } => Vec::new(),
    };
    let flags = data.len().min(4);
    rng.fill_bytes(&mut data[..flags]);
    match (fixture.admin_with(sqe, &data), sqe.sgl()) {
        (AdminOutcome::Data { page, .. }, Sgl::Transport { length }) => {
            assert_eq!(page.len(), length as usize, "{sqe:?}");
            true
        }
        (AdminOutcome::Data { page, .. }, _) => panic!("{} bytes for {sqe:?}", page.len()),
        (AdminOutcome::Held, _) => {
            assert_eq!(sqe.opcode(), 0x0c);
            false
        }
        _ => false,
    }
}
