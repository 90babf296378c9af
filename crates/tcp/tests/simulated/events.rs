//! Namespaces that come, go and grow while hosts are connected.

use std::rc::Rc;

use flashyard_block::{Health, MemoryDevice};
use flashyard_engine::{Counters, Life, NamespaceSpec};
use flashyard_nvme::feature::AsyncEventConfiguration;
use flashyard_nvme::identify::IdentifyNamespace;
use flashyard_nvme::log::SmartLog;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Client, Site, memory};
use flashyard_time::{Duration, Time};

use crate::devices::Held;

const CHANGED_LIST: u8 = 4;

async fn log(admin: &mut Client, id: u8, bytes: u32) -> Vec<u8> {
    let entry = SubmissionQueueEntry::raw(0x02, 0xffff_ffff)
        .with_cdw(10, u32::from(id) | (bytes / 4 - 1) << 16)
        .with_sgl(Sgl::Transport { length: bytes });
    admin.fetch(entry).await.expect("a log page")
}

async fn blocks(admin: &mut Client, nsid: u32) -> u64 {
    let entry = SubmissionQueueEntry::identify(0, nsid, 0, 0, Sgl::Transport { length: 4096 });
    let page = admin.fetch(entry).await.expect("a page");
    u64::from_le_bytes(page[..8].try_into().expect("eight bytes"))
}

#[test]
fn a_connected_host_hears_of_every_change() {
    for seed in 0..5 {
        let site = Site::new(Config::stormy(seed), 2);
        site.run(|bench| async move {
            let (mut admin, mut io) = bench.connect("a", 1).await;
            let (mut stranger, _) = bench.admin("b", 2).await;
            for host in [&mut admin, &mut stranger] {
                host.want_events(AsyncEventConfiguration::NAMESPACE).await;
                host.submit(SubmissionQueueEntry::async_event_request(), &[])
                    .await;
            }
            assert!(
                io.read(1, 0, 1, BLOCK)
                    .await
                    .expect_err("not there")
                    .is(Status::INVALID_NAMESPACE_OR_FORMAT)
            );

            let memory = Rc::new(MemoryDevice::new(BLOCK, 1 << 20).expect("good"));
            let device = bench.cores[1].add_device(
                memory.clone(),
                &bench.cores[1].add_switch(Box::new(Fifo::new(Window::UNLIMITED))),
            );
            bench.attach_handle("a", 3, &device);
            let event = admin.response().await;
            assert_eq!(event.dw0(), 0x0004_0002);
            assert_eq!(
                log(&mut admin, CHANGED_LIST, 4096).await[..8],
                [3, 0, 0, 0, 0, 0, 0, 0]
            );
            assert_eq!(blocks(&mut admin, 3).await, 256);
            io.read(3, 0, 1, BLOCK)
                .await
                .expect("without another connect");

            admin
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
            memory.grow(2 << 20).expect("it grows");
            bench.target.resized(&device);
            assert_eq!(admin.response().await.dw0(), 0x0004_0002);
            log(&mut admin, CHANGED_LIST, 4096).await;
            assert_eq!(blocks(&mut admin, 3).await, 512);
            io.read(3, 511, 1, BLOCK).await.expect("the new end");

            admin
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
            bench.target.detach("a", 3).expect("it is there");
            assert_eq!(admin.response().await.dw0(), 0x0004_0002);
            assert!(
                io.read(3, 0, 1, BLOCK)
                    .await
                    .expect_err("gone")
                    .is(Status::INVALID_NAMESPACE_OR_FORMAT)
            );
            let alive = stranger
                .command(SubmissionQueueEntry::keep_alive(), &[])
                .await;
            assert!(alive.status().is_success(), "another tenant hears nothing");
        });
    }
}

#[test]
fn a_device_that_has_gone_is_not_ready() {
    let site = Site::new(Config::calm(1), 2);
    site.run(|bench| async move {
        for core in 0..2 {
            let nsid = core as u32 + 1;
            let device = bench.attach("a", nsid, core, memory(1 << 20));
            let (_admin, mut io) = bench.connect("a", 1).await;
            io.read(nsid, 0, 1, BLOCK).await.expect("good");
            bench.cores[core].remove_device(&device).await;
            let status = io.read(nsid, 0, 1, BLOCK).await.expect_err("gone");
            assert!(status.is(Status::NAMESPACE_NOT_READY) && !status.dnr());
        }
    });
}

/// A device that grows while no tenant has it has its new size when one gets it.
#[test]
fn a_device_that_grew_while_it_was_detached() {
    let site = Site::new(Config::stormy(3), 2);
    site.run(|bench| async move {
        let memory = Rc::new(MemoryDevice::new(BLOCK, 1 << 20).expect("good"));
        let device = bench.attach("a", 1, 1, memory.clone());
        bench.target.detach("a", 1).expect("it is there");
        memory.grow(2 << 20).expect("it grows");
        bench.target.resized(&device);
        while device.info().blocks == 256 {
            bench.host_rt.sleep(Duration::from_ms(1)).await;
            assert!(bench.host_rt.now() < Time::ZERO + Duration::from_secs(1));
        }
        bench.attach_handle("a", 2, &device);
        let (mut admin, mut io) = bench.connect("a", 1).await;
        assert_eq!(blocks(&mut admin, 2).await, 512);
        io.read(2, 511, 1, BLOCK).await.expect("the last block");
    });
}

async fn smart(admin: &mut Client) -> SmartLog {
    let page = log(admin, 2, 512).await;
    SmartLog::decode(&page.try_into().expect("as long as asked for"))
}

async fn is_protected(admin: &mut Client, nsid: u32) -> bool {
    let entry = SubmissionQueueEntry::identify(0, nsid, 0, 0, Sgl::Transport { length: 4096 });
    let page = admin.fetch(entry).await.expect("a page");
    let namespace = IdentifyNamespace::decode(&page.try_into().expect("a page"));
    namespace.nsattr & IdentifyNamespace::NSATTR_WRITE_PROTECTED != 0
}

/// A medium that wears out while hosts are connected is reported by SMART, by the namespace's
/// attributes and by an event, to those who see it; and one that has little spare left by SMART
/// only.
#[test]
fn a_medium_that_wears_out_is_told() {
    let site = Site::new(Config::calm(1), 2);
    site.run(|bench| async move {
        let (mut admin, mut io) = bench.connect("a", 1).await;
        let (mut stranger, _) = bench.admin("b", 2).await;
        bench.attach_memory("b", 1);
        let mut gates = Vec::new();
        for nsid in [1, 2] {
            let (device, gate) = Held::around(memory(1 << 20));
            bench.attach("a", nsid, nsid as usize - 1, device);
            gates.push(gate);
        }
        admin.want_events(AsyncEventConfiguration::NAMESPACE).await;
        let low = Health {
            spare: 9,
            worn_out: false,
        };
        gates[0].health.set(low);
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let health = smart(&mut admin).await;
        assert_eq!(
            (health.critical_warning, health.available_spare),
            (0b0001, 9)
        );
        log(&mut admin, CHANGED_LIST, 4096).await;

        let worn_out = Health {
            spare: 0,
            worn_out: true,
        };
        for (nsid, warning) in [(1, 0b0101), (2, 0b1101)] {
            assert!(!is_protected(&mut admin, nsid).await);
            let data = [7; BLOCK as usize];
            let written = io.write_in_capsule(nsid, 0, &data, BLOCK).await;
            assert!(written.is_success(), "{written:?}");
            admin
                .submit(SubmissionQueueEntry::async_event_request(), &[])
                .await;
            gates[nsid as usize - 1].health.set(worn_out);
            assert_eq!(admin.response().await.dw0(), 0x0004_0002);
            let changed = log(&mut admin, CHANGED_LIST, 4096).await;
            assert_eq!(changed[..8], [nsid as u8, 0, 0, 0, 0, 0, 0, 0]);
            assert!(is_protected(&mut admin, nsid).await);
            let health = smart(&mut admin).await;
            assert_eq!(
                (health.critical_warning, health.available_spare),
                (warning, 0)
            );
            let written = io.write_in_capsule(nsid, 0, &data, BLOCK).await;
            assert!(written.is(Status::NAMESPACE_WRITE_PROTECTED) && written.dnr());
            io.read(nsid, 0, 1, BLOCK).await.expect("it is there");
        }
        let health = smart(&mut stranger).await;
        assert_eq!((health.critical_warning, health.available_spare), (0, 100));
    });
}

/// What was counted in runs before goes on: for the target, and for the tenant that it was counted
/// for.
#[test]
fn smart_counts_over_restarts() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        let (mut fresh, _) = bench.admin("b", 2).await;
        let health = smart(&mut fresh).await;
        assert_eq!((health.power_cycles, health.unsafe_shutdowns), (1, 0));
        bench.target.set_life(Life {
            power_cycles: 7,
            power_on: Duration::from_secs(5 * 3600 - 1),
            unsafe_shutdowns: 3,
        });
        let past = Counters {
            reads: 100,
            bytes_read: 512_000,
            unsafe_shutdowns: 2,
            ..Counters::default()
        };
        bench.target.add_past("a", past).expect("it is there");
        bench.attach_memory("a", 1);
        let (mut admin, mut io) = bench.connect("a", 1).await;
        io.read(1, 0, 1, BLOCK).await.expect("the first block");
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        let health = smart(&mut admin).await;
        assert_eq!((health.power_cycles, health.power_on_hours), (7, 5));
        assert_eq!(
            (health.unsafe_shutdowns, health.host_read_commands),
            (5, 101)
        );
        assert_eq!(health.data_units_read, 2);
        let health = smart(&mut fresh).await;
        assert_eq!((health.unsafe_shutdowns, health.host_read_commands), (3, 0));
        assert!(bench.target.add_past("nobody", past).is_err());
    });
}

/// What the configuration protects is no failure of the medium, and stays protected when the device
/// grows.
#[test]
fn a_namespace_that_is_protected_on_purpose_is_no_warning() {
    let site = Site::new(Config::calm(1), 1);
    site.run(|bench| async move {
        let memory = Rc::new(MemoryDevice::new(BLOCK, 1 << 20).expect("good"));
        let policy = Box::new(Fifo::new(Window::UNLIMITED));
        let core = &bench.cores[0];
        let device = core.add_device(memory.clone(), &core.add_switch(policy));
        let spec = NamespaceSpec {
            read_only: true,
            ..NamespaceSpec::new(1, [1; 16], device.clone())
        };
        bench.target.attach("a", spec).expect("a free number");
        let (mut admin, _io) = bench.connect("a", 1).await;
        memory.grow(2 << 20).expect("it grows");
        bench.host_rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(blocks(&mut admin, 1).await, 512);
        assert!(is_protected(&mut admin, 1).await);
        assert_eq!(smart(&mut admin).await.critical_warning, 0);
    });
}

/// A host that detaches has forgotten its request for events, and uses the identifier of that for
/// what it still asks.
#[test]
fn property_commands_of_a_host_that_detaches() {
    let site = Site::new(Config::calm(8), 1);
    site.run(|bench| async move {
        let (mut admin, _) = bench.admin("a", 1).await;
        admin.want_events(AsyncEventConfiguration::NAMESPACE).await;
        let events = SubmissionQueueEntry::async_event_request();
        admin.submit_as(7, events, &[]).await;
        let identify = SubmissionQueueEntry::identify(1, 0, 0, 0, Sgl::Transport { length: 4096 });
        admin.submit_as(7, identify, &[]).await;
        let answer = admin.response().await;
        assert!(
            answer.status().is(Status::COMMAND_ID_CONFLICT),
            "{answer:?}"
        );
        // CC.SHN, then CSTS until the shutdown is complete.
        let goodbye = SubmissionQueueEntry::property_set(0x14, false, 0x0046_4001);
        admin.submit_as(7, goodbye, &[]).await;
        let answer = admin.response().await;
        assert_eq!((answer.cid(), answer.status()), (7, Status::SUCCESS));
        let status = SubmissionQueueEntry::property_get(0x1c, false);
        for _ in 0..40 {
            admin.submit_as(7, status, &[]).await;
            let answer = admin.response().await;
            assert_eq!((answer.cid(), answer.status()), (7, Status::SUCCESS));
            assert_eq!(answer.dw0() >> 2 & 3, 2, "shutdown complete");
        }
        // Enabled anew, all is as at the beginning.
        for cc in [0, 0x0046_0001] {
            let reset = SubmissionQueueEntry::property_set(0x14, false, cc);
            admin.submit_as(7, reset, &[]).await;
            assert!(admin.response().await.status().is_success());
        }
        admin.want_events(AsyncEventConfiguration::NAMESPACE).await;
        admin.submit_as(7, events, &[]).await;
        bench.attach_memory("a", 1);
        let event = admin.response().await;
        assert_eq!((event.cid(), event.dw0()), (7, 0x0004_0002));
    });
}
