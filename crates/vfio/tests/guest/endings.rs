//! Resets, memory that goes, and clients that go, with commands in flight.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flashyard_block::{Io, Tag};
use flashyard_host::vfio::{Guest, GuestError, GuestOptions, VfioClient};
use flashyard_nvme::vfio_user::Request;
use flashyard_nvme::vfio_user::pci::{BAR0, CONFIG};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_testbed::{BLOCK, Paced, memory, pattern, tenant};
use flashyard_time::Duration;
use flashyard_vfio::Function;

use super::{Site, range, run};

/// Puts up to 30 writes into each queue and rings, and does not wait for their ends.
pub(crate) async fn busy(guest: &mut Guest) {
    for qid in 1..=2 {
        for number in 0..30 {
            let Ok(cid) = guest.take_place(qid) else {
                break;
            };
            let entry =
                SubmissionQueueEntry::write(1, range(number, 8), Sgl::Transport { length: 0 });
            guest
                .put_io(qid, (entry, cid), (0, 8 * BLOCK))
                .expect("room");
        }
        guest.ring(qid).await.expect("rung");
    }
}

pub(crate) async fn works(guest: &mut Guest, seed: u64) {
    let data = pattern(seed, 2 * BLOCK as usize);
    let mut read = vec![0; data.len()];
    for qid in 1..=2 {
        guest
            .write((qid, 1), range(50, 2), (0, &data))
            .await
            .expect("written");
        guest
            .read((qid, 1), range(50, 2), (0, &mut read))
            .await
            .expect("read");
        assert!(read == data);
    }
}

/// A function whose namespace takes its time, longer for some I/O than for other, so that there is
/// always some in flight.
pub(crate) fn slow(site: &Site) -> (Function, PathBuf) {
    let (rt, count) = (site.rt.clone(), Cell::new(0));
    let pace = move |_: Tag, _: &Io| {
        count.set(count.get() + 1);
        rt.sleep(Duration::from_us(count.get() * 37 % 3000))
    };
    if site.bench.target.detach("a", 1).is_ok() {
        let device = Rc::new(Paced::new(memory(16 << 20), pace));
        site.bench.attach("a", 1, 0, device);
    }
    site.offer("a")
}

#[test]
fn a_controller_that_is_reset_in_the_middle_of_io_works_again() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        for round in 0..10 {
            busy(&mut guest).await;
            guest.disable().await.expect("disabled");
            guest.enable().await.expect("enabled");
            works(&mut guest, round).await;
        }
    });
}

#[test]
fn a_function_level_reset_and_a_device_reset_forget_all_but_memory() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        for round in 0..6 {
            busy(&mut guest).await;
            if round % 2 == 0 {
                guest
                    .client
                    .write(CONFIG, 0x68, &[0x00, 0x80])
                    .await
                    .expect("reset");
            } else {
                guest.client.ask(&Request::Reset, &[]).await.expect("reset");
            }
            let status = guest.status().await.expect("CSTS");
            assert!(!status.rdy && !status.cfs);
            assert_eq!(
                guest.client.read(CONFIG, 4, 4).await.expect("command") & 0xffff,
                0
            );
            guest
                .client
                .write(CONFIG, 4, &[0x06, 0x04])
                .await
                .expect("bus master");
            guest.enable().await.expect("enabled");
            works(&mut guest, round).await;
        }
    });
}

#[test]
fn memory_that_goes_in_the_middle_of_io_fails_the_controller_and_nothing_else() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let (_other_function, other_path) = slow(&site);
        let mut other = site.guest(&other_path, GuestOptions::default()).await;
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        for round in 0..5 {
            busy(&mut guest).await;
            guest.unmap_memory().await.expect("answered at once");
            // A doorbell of a queue that is not there any more.
            guest.ring(1).await.expect("rung");
            works(&mut other, round).await;
            guest.map_memory().await.expect("mapped");
            guest.disable().await.expect("disabled");
            guest.enable().await.expect("enabled");
            works(&mut guest, round).await;
        }
    });
}

#[test]
fn an_admin_queue_without_memory_is_a_fatal_status() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        guest.disable().await.expect("disabled");
        guest.unmap_memory().await.expect("unmapped");
        guest
            .client
            .write(BAR0, 0x14, &0x46_0001u32.to_le_bytes())
            .await
            .expect("enabled");
        while !guest.status().await.expect("CSTS").rdy {
            site.rt.sleep(Duration::from_ms(1)).await;
        }
        guest
            .client
            .write(BAR0, 0x1000, &1u32.to_le_bytes())
            .await
            .expect("rung");
        let status = guest.status().await.expect("CSTS");
        assert!(status.cfs, "{status:?}");
    });
}

#[test]
fn a_client_that_goes_at_any_moment_leaves_nothing_to_the_next_one() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        for round in 0..5 {
            let mut guest = connected(&site, &path).await;
            busy(&mut guest).await;
            drop(guest);
            let mut guest = connected(&site, &path).await;
            works(&mut guest, round).await;
        }
    });
}

/// Tries until the function has noticed that its last client has gone.
pub(crate) async fn connected(site: &Site, path: &Path) -> Guest {
    for _ in 0..1000 {
        match Guest::start(&site.rt, path, GuestOptions::SMALL).await {
            Ok(guest) => return guest,
            Err(GuestError::Client(_)) => site.rt.sleep(Duration::from_ms(5)).await,
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the function takes no client")
}

#[test]
fn a_second_client_is_let_go_and_the_first_one_does_not_notice() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        assert!(VfioClient::connect(&site.rt, &path).await.is_err());
        works(&mut guest, 1).await;
    });
}

#[test]
fn a_function_that_is_taken_away_closes_its_socket() {
    run(|site| async move {
        let (function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        busy(&mut guest).await;
        drop(function);
        assert!(guest.status().await.is_err());
        assert!(VfioClient::connect(&site.rt, &path).await.is_err());
    });
}

#[test]
fn a_tenant_that_is_removed_fails_its_controllers() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        busy(&mut guest).await;
        site.bench.target.remove_tenant("a").expect("it was there");
        site.rt.sleep(Duration::from_ms(20)).await;
        assert!(guest.status().await.expect("CSTS").cfs);
    });
}

#[test]
fn a_shutdown_is_complete_and_the_controller_can_be_enabled_again() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let notify = 0x46_4001u32.to_le_bytes();
        guest.client.write(0, 0x14, &notify).await.expect("written");
        let status = guest.status().await.expect("CSTS");
        assert_eq!(status.bits() >> 2 & 3, 2, "shutdown processing complete");
        guest.disable().await.expect("disabled");
        guest.enable().await.expect("enabled");
        works(&mut guest, 1).await;
    });
}

#[test]
fn hosts_that_may_connect_are_no_matter_of_functions() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let spec = tenant(1, "a", &["nqn.2026-11.test:another"]);
        site.bench.target.set_tenant(spec).expect("changed");
        works(&mut guest, 1).await;
        guest.disable().await.expect("disabled");
        guest.enable().await.expect("enabled");
        works(&mut guest, 2).await;
    });
}

/// As a host is asked to come again: a guest that finds a disk missing gives it up.
#[test]
fn a_controller_waits_until_its_tenant_has_all_its_volumes() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let target = site.bench.target.clone();
        target.hold_back(["a".to_owned()].into());
        let began = site.rt.now();
        let (rt, released) = (site.rt.clone(), target.clone());
        let release = async move {
            rt.sleep(Duration::from_ms(300)).await;
            assert_eq!(released.snapshot().controllers.len(), 0);
            released.hold_back([].into());
        };
        let release = site.rt.spawn(release);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        assert!(site.rt.now() - began >= Duration::from_ms(300));
        works(&mut guest, 1).await;
        release.await;
    });
}
