//! Queues come and go, events are reported, and the registers say what there is.

use flashyard_host::vfio::{GuestOptions, RAM_BASE};
use flashyard_nvme::aer::AsyncEvent;
use flashyard_nvme::vfio_user::pci::{BAR0, BAR4, BAR5, CONFIG, INTX, MSIX};
use flashyard_nvme::{Status, SubmissionQueueEntry as Entry};
use flashyard_testbed::{BLOCK, pattern};

use super::{failed, range, run};

#[test]
fn a_queue_is_deleted_and_made_anew() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let refused = failed(guest.admin(Entry::delete_io_cq(2)).await);
        assert_eq!(refused, Status::INVALID_QUEUE_DELETION.with_dnr());
        guest.admin(Entry::delete_io_sq(2)).await.expect("deleted");
        guest.admin(Entry::delete_io_cq(2)).await.expect("deleted");
        let refused = failed(guest.admin(Entry::delete_io_sq(2)).await);
        assert_eq!(refused, Status::INVALID_QUEUE_IDENTIFIER.with_dnr());
        let cq = Entry::create_io_cq(2, 8, RAM_BASE, None);
        guest.admin(cq).await.expect("made");
        guest
            .admin(Entry::create_io_sq(2, 8, RAM_BASE + 0x1000, 2))
            .await
            .expect("made");
        let block = pattern(1, BLOCK as usize);
        guest
            .write((1, 1), range(0, 1), (0, &block))
            .await
            .expect("the other goes on");
    });
}

/// Both commands are fetched before the first has been executed to its end.
#[test]
fn a_queue_that_is_deleted_twice_at_once_leaves_the_target_once() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::SMALL).await;
        for _ in 0..2 {
            let cid = guest.take_place(0).expect("room");
            let delete = Entry::delete_io_sq(1).with_cid(cid);
            guest.put(0, &delete).expect("room");
        }
        guest.ring(0).await.expect("rung");
        let second = guest.completion(0).await.expect("refused").status();
        assert_eq!(second, Status::INVALID_QUEUE_IDENTIFIER.with_dnr());
        let first = guest.completion(0).await.expect("deleted").status();
        assert_eq!(first, Status::SUCCESS);
    });
}

#[test]
fn a_wrong_doorbell_is_reported_and_a_changed_namespace_too() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        guest
            .admin(Entry::set_features(0x0b, 0, 0x100))
            .await
            .expect("notices");
        for _ in 0..2 {
            let cid = guest.take_place(0).expect("room");
            guest
                .put(0, &Entry::async_event_request().with_cid(cid))
                .expect("room");
        }
        guest.ring(0).await.expect("rung");
        guest
            .client
            .write(BAR0, 0x1000 + 8 * 99, &1u32.to_le_bytes())
            .await
            .expect("ignored");
        let event = guest.completion(0).await.expect("an event");
        assert_eq!(event.dw0(), AsyncEvent::INVALID_DOORBELL.dw0());
        site.bench.attach_memory("a", 2);
        let event = guest.completion(0).await.expect("an event");
        assert_eq!(event.dw0(), AsyncEvent::NAMESPACE_CHANGED.dw0());
        let block = pattern(2, BLOCK as usize);
        guest
            .write((1, 2), range(0, 1), (0, &block))
            .await
            .expect("the new one");
    });
}

#[test]
fn regions_and_interrupts_are_those_of_an_nvme_function() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        for (index, size) in [
            (BAR0, 0x4000),
            (1, 0),
            (BAR4, 4096),
            (BAR5, 4096),
            (CONFIG, 4096),
            (8, 0),
        ] {
            assert_eq!(
                guest.client.region(index).await.expect("a region").size,
                size,
                "{index}"
            );
        }
        assert!(guest.client.region(9).await.is_err());
        for (index, count) in [(INTX, 1), (1, 0), (MSIX, 65), (4, 0)] {
            assert_eq!(
                guest.client.irq(index).await.expect("a kind").count,
                count,
                "{index}"
            );
        }
        assert!(guest.client.irq(5).await.is_err());
        assert_eq!(
            guest.client.read(CONFIG, 0, 4).await.expect("ids"),
            0x0001_4e58
        );
        assert_eq!(
            guest.client.read(BAR0, 8, 4).await.expect("VS"),
            0x0002_0000
        );
        for (region, offset, size) in [
            (BAR0, 1, 4),
            (BAR0, 0x3ffe, 4),
            (BAR0, 0x4000, 4),
            (BAR4, 4094, 4),
            (3, 0, 4),
        ] {
            assert!(
                guest.client.read(region, offset, size).await.is_err(),
                "{region} {offset}"
            );
        }
    });
}

/// With eight completions or 25 ms, seven of eight interrupts are saved; none is lost.
#[test]
fn interrupts_are_coalesced_and_none_is_lost() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        guest
            .admin(Entry::set_features(0x08, 0, 250 << 8 | 7))
            .await
            .expect("coalescing");
        let mut block = vec![0; BLOCK as usize];
        for _ in 0..3 {
            guest
                .read((1, 1), range(0, 1), (0, &mut block))
                .await
                .expect("it waits, and ends");
        }
    });
}
