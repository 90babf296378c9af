//! Names that the administrator gives, write protection, and namespaces that go from one tenant to
//! another, while hosts are at work.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Device, Info, Io, IoFuture, SharedDevice, Tag};
use flashyard_engine::{
    ConfigError, DeviceHandle, NamespaceSpec, SubsystemNames, TenantId, TenantSpec,
};
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::identify::{
    IdentifyController, IdentifyNamespace, NamespaceDescriptors, ascii_text,
};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Rt, Task};
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Bench, Client, Identity, NO_DIGESTS, Site, memory, subnqn, tenant};
use flashyard_time::Duration;

use crate::devices::Held;

const NQN: &str = "nqn.2014-08.org.example:storage.of.somebody.else";

fn named(id: u32, name: &str, nqn: &str) -> TenantSpec {
    let names = SubsystemNames {
        nqn: Some(nqn.into()),
        serial: Some("S3EVNX0J800042".into()),
        model: Some("SPDK bdev Controller".into()),
    };
    TenantSpec {
        names,
        ..tenant(id, name, &["*"])
    }
}

async fn page<const LEN: usize>(admin: &mut Client, cns: u8, nsid: u32) -> [u8; LEN] {
    let entry = SubmissionQueueEntry::identify(cns, nsid, 0, 0, Sgl::Transport { length: 4096 });
    let page = admin.fetch(entry).await.expect("a page");
    page.try_into().expect("as long as asked for")
}

async fn is_protected(admin: &mut Client, nsid: u32) -> bool {
    let namespace = IdentifyNamespace::decode(&page(admin, 0, nsid).await);
    namespace.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0
}

/// A host that knew another target's subsystem finds it here, to the last name.
#[test]
fn a_subsystem_is_called_what_its_administrator_says() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        let target = &bench.target;
        target.set_tenant(named(3, "c", NQN)).expect("good names");
        let switch = bench.cores[0].add_switch(Box::new(Fifo::new(Window::UNLIMITED)));
        let device = bench.cores[0].add_device(memory(1 << 20), &switch);
        let spec = NamespaceSpec {
            nguid: [0xab; 16],
            eui64: Some([0xcd; 8]),
            ..NamespaceSpec::new(7, [0xef; 16], device)
        };
        target.attach("c", spec).expect("a free number");
        let host = Identity::number(1);
        let (mut admin, _) =
            Client::admin(&bench.host_rt, bench.addr, NO_DIGESTS, NQN, &host).await;
        let controller = IdentifyController::decode(&page(&mut admin, 1, 0).await);
        assert_eq!(ascii_text(&controller.sn), Some("S3EVNX0J800042"));
        assert_eq!(ascii_text(&controller.mn), Some("SPDK bdev Controller"));
        assert_eq!(
            controller.subnqn.map(|nqn| nqn.to_string()).as_deref(),
            Some(NQN)
        );
        let namespace = IdentifyNamespace::decode(&page(&mut admin, 0, 7).await);
        assert_eq!((namespace.nguid, namespace.eui64), ([0xab; 16], [0xcd; 8]));
        let names = NamespaceDescriptors::decode(&page(&mut admin, 3, 7).await);
        assert_eq!(names.uuid, Some([0xef; 16]));
        assert_eq!(names.nguid, Some([0xab; 16]));
        assert_eq!(names.eui64, Some([0xcd; 8]));

        // Names are one tenant's, and stay.
        assert_eq!(
            target.set_tenant(named(4, "d", NQN)),
            Err(ConfigError::NqnTaken)
        );
        assert_eq!(
            target.set_tenant(named(4, "d", &subnqn("a"))),
            Err(ConfigError::NqnTaken)
        );
        assert_eq!(
            target.set_tenant(tenant(3, "c", &["*"])),
            Err(ConfigError::FixedNames)
        );
        let discovery = "nqn.2014-08.org.nvmexpress.discovery";
        assert_eq!(
            target.set_tenant(named(4, "d", discovery)),
            Err(ConfigError::InvalidName)
        );
        let mut odd = named(4, "d", "nqn.2014-08.org.example:d");
        odd.names.serial = Some("more than twenty letters".into());
        assert_eq!(target.set_tenant(odd), Err(ConfigError::InvalidNumber));
        target
            .set_tenant(named(3, "c", NQN))
            .expect("the same names");
    });
}

/// Its hosts notice nothing, and everything that is done to it is done under the new name.
#[test]
fn a_tenant_that_is_renamed_keeps_its_subsystem() {
    let site = Site::new(Config::stormy(1), 2);
    site.run(|bench| async move {
        bench.attach_memory("a", 1);
        let (mut admin, mut io) = bench.connect("a", 1).await;
        let target = &bench.target;
        assert_eq!(
            target.rename_tenant("a", "b"),
            Err(ConfigError::TenantExists)
        );
        assert_eq!(
            target.rename_tenant("c", "d"),
            Err(ConfigError::NoSuchTenant)
        );
        target.rename_tenant("a", "z").expect("a free name");
        io.read(1, 0, 1, BLOCK).await.expect("the same queue");
        let controller = IdentifyController::decode(&page(&mut admin, 1, 0).await);
        assert_eq!(
            controller.subnqn.map(|nqn| nqn.to_string()),
            Some(subnqn("a"))
        );
        bench.attach_memory("z", 2);
        io.read(2, 0, 1, BLOCK).await.expect("attached since");
        let snapshot = target.snapshot();
        assert_eq!(snapshot.controllers[0].tenant.as_deref(), Some("z"));
        let names: Vec<_> = snapshot
            .tenants
            .iter()
            .map(|tenant| &*tenant.name)
            .collect();
        assert_eq!(names, ["b", "z"]);
        assert_eq!(target.detach("a", 1), Err(ConfigError::NoSuchTenant));
        let (_other, mut again) = bench.connect("a", 2).await;
        again.read(1, 0, 1, BLOCK).await.expect("under its NQN");
        drop(again);
        // Its old NQN is still its own.
        let thief = TenantSpec {
            names: SubsystemNames::default(),
            ..tenant(5, "a", &["*"])
        };
        assert_eq!(target.set_tenant(thief), Err(ConfigError::NqnTaken));
    });
}

/// What was accepted before finishes, what comes later is refused, and hosts are notified.
#[test]
fn a_write_in_flight_finishes_when_its_namespace_becomes_read_only() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (device, gate) = Held::around(memory(1 << 20));
            bench.attach("a", 1, 1, device);
            let (mut admin, cntlid) = bench.admin("a", 1).await;
            let mut io = bench.io("a", 1, cntlid).await;
            let mut late = bench.io_with("a", 1, NO_DIGESTS, (cntlid, 2, 32)).await;
            admin.want_events(AsyncEventConfiguration::NAMESPACE).await;
            admin
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
            gate.shut();
            let writing = bench.host_rt.spawn(async move {
                let data = [1; BLOCK as usize];
                (io.write_in_capsule(1, 0, &data, BLOCK).await, io)
            });
            while gate.issued.borrow().is_empty() {
                bench.host_rt.sleep(Duration::from_ms(1)).await;
            }
            bench
                .target
                .set_read_only("a", 1, true)
                .expect("it is there");
            assert_eq!(admin.response().await.dw0(), 0x0004_0002);
            assert!(is_protected(&mut admin, 1).await);
            let refused = late
                .write_in_capsule(1, 1, &[2; BLOCK as usize], BLOCK)
                .await;
            assert!(refused.is(Status::NAMESPACE_WRITE_PROTECTED) && refused.dnr());
            gate.open();
            let (status, _io) = writing.await;
            assert!(status.is_success(), "{status:?}");
            assert_eq!(
                late.read(1, 0, 1, BLOCK).await.expect("reads go on"),
                [1; BLOCK as usize]
            );
            assert_eq!(
                late.read(1, 1, 1, BLOCK).await.expect("reads go on"),
                [0; BLOCK as usize]
            );
            bench
                .target
                .set_read_only("a", 1, false)
                .expect("it is there");
            assert!(!is_protected(&mut admin, 1).await);
            assert!(
                late.write_in_capsule(1, 1, &[2; BLOCK as usize], BLOCK)
                    .await
                    .is_success()
            );
        });
    }
}

/// A device that takes its time and knows who is at it.
struct Watched {
    rt: Rt,
    inner: SharedDevice,
    seen: Rc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// I/Os in flight of tenants `a` and `b`.
    in_flight: [Cell<u32>; 2],
    /// Who came, each change once.
    order: RefCell<Vec<TenantId>>,
}

impl Device for Watched {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        if !matches!(io, Io::Read { .. } | Io::Write { .. }) {
            return self.inner.submit(tag, io);
        }
        let (rt, inner, seen) = (self.rt.clone(), self.inner.clone(), self.seen.clone());
        let own = tag.tenant.0 as usize - 1;
        let others = seen.in_flight[1 - own].get();
        assert_eq!(others, 0, "two tenants at one namespace");
        seen.in_flight[own].set(seen.in_flight[own].get() + 1);
        let mut order = seen.order.borrow_mut();
        if order.last() != Some(&tag.tenant) {
            order.push(tag.tenant);
        }
        drop(order);
        IoFuture::boxed(async move {
            rt.sleep(Duration::from_ms(3)).await;
            let done = inner.submit(tag, io).await;
            seen.in_flight[own].set(seen.in_flight[own].get() - 1);
            done
        })
    }
}

/// Writes one block again and again, in capsules and by R2T, until that is refused; the last
/// number that was written, and the one that may have been.
async fn write_until_refused(mut io: Client, slot: u64) -> (u64, Status) {
    for number in 1_u64.. {
        let data = number.to_le_bytes().repeat(BLOCK as usize / 8);
        let status = match number % 2 {
            0 => io.write_in_capsule(1, slot, &data, BLOCK).await,
            _ => io.write_by_r2t(1, slot, &data, BLOCK, 4096).await,
        };
        if !status.is_success() {
            return (number - 1, status);
        }
    }
    unreachable!("the namespace goes")
}

fn number_in(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("eight bytes"))
}

/// Load of both kinds on four queues, of which some are on the device's core and some are not.
fn start_writers(bench: &Bench, queues: Vec<Client>) -> Vec<Task<(u64, Status)>> {
    let numbered = (0..).zip(queues);
    numbered
        .map(|(slot, io)| bench.host_rt.spawn(write_until_refused(io, slot)))
        .collect()
}

async fn four_queues(bench: &Bench) -> (Client, Vec<Client>) {
    let (admin, cntlid) = bench.admin("a", 1).await;
    let mut queues = Vec::new();
    for qid in 1..=4 {
        queues.push(bench.io_with("a", 1, NO_DIGESTS, (cntlid, qid, 32)).await);
    }
    (admin, queues)
}

/// Each write was done or refused, and none between.
#[test]
fn writers_are_stopped_by_write_protection() {
    for seed in 0..10 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            bench.attach("a", 1, 1, memory(1 << 20));
            let (_admin, queues) = four_queues(&bench).await;
            let writers = start_writers(&bench, queues);
            bench.host_rt.sleep(Duration::from_ms(500 + 7 * seed)).await;
            bench
                .target
                .set_read_only("a", 1, true)
                .expect("it is there");
            let (_other, mut reader) = bench.connect("a", 2).await;
            for (slot, writer) in (0..).zip(writers) {
                let (written, status) = writer.await;
                assert!(status.is(Status::NAMESPACE_WRITE_PROTECTED), "{status:?}");
                let block = reader.read(1, slot, 1, BLOCK).await.expect("reads go on");
                assert_eq!(number_in(&block), written, "seed {seed}, block {slot}");
            }
        });
    }
}

async fn give_away(bench: &Bench, device: &SharedDevice, handle: &DeviceHandle) {
    bench.target.detach("a", 1).expect("it is there");
    bench.cores[1].remove_device(handle).await;
    bench.attach("b", 9, 1, device.clone());
}

/// The new tenant comes when the old one's last I/O has ended, and finds what it has written.
#[test]
fn a_namespace_that_moves_is_one_tenants_at_a_time() {
    for seed in 0..20 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let seen = Rc::new(Seen::default());
            let device: SharedDevice = Rc::new(Watched {
                rt: bench.rts[1].clone(),
                inner: memory(1 << 20),
                seen: seen.clone(),
            });
            let handle = bench.attach("a", 1, 1, device.clone());
            let (mut admin, queues) = four_queues(&bench).await;
            let (_admin_b, mut io_b) = bench.connect("b", 2).await;
            admin.want_events(AsyncEventConfiguration::NAMESPACE).await;
            admin
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
            let writers = start_writers(&bench, queues);
            bench.host_rt.sleep(Duration::from_ms(500 + 7 * seed)).await;
            let early = io_b.read(9, 0, 1, BLOCK).await.expect_err("not yet");
            assert!(early.is(Status::INVALID_NAMESPACE_OR_FORMAT));
            give_away(&bench, &device, &handle).await;
            // At once, while the old tenant's hosts still send.
            let first = io_b.read(9, 0, 4, BLOCK).await.expect("it has moved");
            assert_eq!(admin.response().await.dw0(), 0x0004_0002);
            for (block, writer) in first.chunks(BLOCK as usize).zip(writers) {
                let (written, status) = writer.await;
                let gone = status.is(Status::INVALID_NAMESPACE_OR_FORMAT)
                    || status.is(Status::NAMESPACE_NOT_READY);
                assert!(gone, "{status:?}");
                assert_eq!(number_in(block), written, "seed {seed}");
            }
            assert_eq!(
                *seen.order.borrow(),
                [TenantId(1), TenantId(2)],
                "seed {seed}"
            );
        });
    }
}
