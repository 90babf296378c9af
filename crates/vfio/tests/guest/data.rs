//! What a guest writes is what it reads, over any queue and wherever its data lie.

use flashyard_host::vfio::{Guest, GuestOptions};
use flashyard_nvme::identify::{Cns, IdentifyController, IdentifyNamespace, decode_namespace_list};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_testbed::{BLOCK, pattern};

use super::{Site, failed, range, run};

const NONE: Sgl = Sgl::Transport { length: 0 };

#[test]
fn a_guest_finds_the_namespaces_of_its_tenant() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let controller = guest.identify(Cns::CONTROLLER, 0).await.expect("CNS 1");
        let controller = IdentifyController::decode(&controller);
        assert_eq!(
            (controller.vid, controller.sgls, controller.fuses),
            (0x4e58, 0, 0)
        );
        let list = guest
            .identify(Cns::ACTIVE_NAMESPACES, 0)
            .await
            .expect("CNS 2");
        assert_eq!(decode_namespace_list(&list).collect::<Vec<_>>(), [1]);
        let namespace = guest.identify(Cns::NAMESPACE, 1).await.expect("CNS 0");
        let namespace = IdentifyNamespace::decode(&namespace);
        assert_eq!(namespace.nsze, (16 << 20) / u64::from(BLOCK));
        assert_eq!(
            failed(guest.identify(Cns(0x77), 0).await),
            Status::INVALID_FIELD.with_dnr()
        );
    });
}

/// Writes and reads every length at every offset, over all queues.
async fn round_trip(site: &Site, options: GuestOptions) {
    let (_function, path) = site.offer("a");
    let mut guest = site.guest(&path, options).await;
    let mut seed = 0;
    for offset in [0, 4, 512, 2048, 4092] {
        for blocks in [1, 2, 3, 4, 16, 64] {
            for qid in 1..=options.queues {
                seed += 1;
                let data = pattern(seed, (blocks * BLOCK) as usize);
                let at = range(seed * 7 % 1000, blocks);
                guest
                    .write((qid, 1), at, (offset, &data))
                    .await
                    .expect("written");
                let mut read = vec![0; data.len()];
                let other = qid % options.queues + 1;
                let from = ((4096 - offset) % 4096) & !3;
                guest
                    .read((other, 1), at, (from, &mut read))
                    .await
                    .expect("read");
                assert!(read == data, "{blocks} blocks at {offset} over {qid}");
            }
        }
    }
}

#[test]
fn what_was_written_is_read_over_any_queue_at_any_offset() {
    run(|site| async move { round_trip(&site, GuestOptions::default()).await });
}

#[test]
fn what_was_written_is_read_with_shadow_doorbells() {
    run(|site| async move {
        let shadow = GuestOptions {
            shadow: true,
            queues: 3,
            entries: 4,
            ..GuestOptions::default()
        };
        round_trip(&site, shadow).await;
    });
}

/// Puts `count` writes of a block into queue `qid`, rings once, and gives how many have succeeded.
async fn burst(guest: &mut Guest, qid: u16, count: u16) -> usize {
    for number in 0..count {
        let cid = guest.take_place(qid).expect("room");
        let lba = u64::from(qid) * 100 + u64::from(number);
        let data = pattern(lba, BLOCK as usize);
        guest.store(guest.data(qid, cid, 0), &data).expect("memory");
        let entry = SubmissionQueueEntry::write(1, range(lba, 1), NONE);
        guest.put_io(qid, (entry, cid), (0, BLOCK)).expect("room");
    }
    guest.ring(qid).await.expect("rung");
    let mut good = 0;
    for _ in 0..count {
        let entry = guest.completion(qid).await.expect("a completion");
        good += usize::from(entry.status().is_success());
    }
    good
}

#[test]
fn full_queues_go_round_many_times() {
    for shadow in [false, true] {
        run(move |site| async move {
            let (_function, path) = site.offer("a");
            let options = GuestOptions {
                entries: 16,
                shadow,
                ..GuestOptions::default()
            };
            let mut guest = site.guest(&path, options).await;
            for round in 0..20 {
                for qid in 1..=2 {
                    assert_eq!(burst(&mut guest, qid, 15).await, 15, "round {round}");
                }
            }
            let mut read = vec![0; BLOCK as usize];
            for lba in (100..115).chain(200..215) {
                guest
                    .read((1, 1), range(lba, 1), (0, &mut read))
                    .await
                    .expect("read");
                assert!(read == pattern(lba, BLOCK as usize), "block {lba}");
            }
        });
    }
}

#[test]
fn commands_that_cannot_be_are_refused_one_by_one() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let mut block = vec![0; BLOCK as usize];
        let at_end = guest.read((1, 1), range(4096, 1), (0, &mut block)).await;
        assert!(failed(at_end).is(Status::LBA_OUT_OF_RANGE));
        let other = guest.read((1, 2), range(0, 1), (0, &mut block)).await;
        assert!(failed(other).is(Status::INVALID_NAMESPACE_OR_FORMAT));
        let odd = guest.read((1, 1), range(0, 1), (2, &mut block)).await;
        assert!(failed(odd).is(Status::PRP_OFFSET_INVALID));
        // No such memory.
        let cid = guest.take_place(1).expect("room");
        let entry = SubmissionQueueEntry::write(1, range(0, 1), NONE).with_prps(0x5000, 0);
        guest.put(1, &entry.with_cid(cid)).expect("room");
        guest.ring(1).await.expect("rung");
        let entry = guest.completion(1).await.expect("a completion");
        assert!(
            entry.status().is(Status::DATA_TRANSFER_ERROR),
            "{:?}",
            entry.status()
        );
        guest
            .read((1, 1), range(0, 1), (0, &mut block))
            .await
            .expect("it goes on");
    });
}

#[test]
fn flush_compare_write_zeroes_and_deallocate_are_executed() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let data = pattern(1, BLOCK as usize);
        guest
            .write((1, 1), range(5, 1), (0, &data))
            .await
            .expect("written");
        let mut send = async |entry: SubmissionQueueEntry, data: &[u8]| {
            let cid = guest.take_place(1).expect("room");
            guest.store(guest.data(1, cid, 0), data).expect("memory");
            guest
                .put_io(1, (entry, cid), (0, data.len() as u32))
                .expect("room");
            guest.ring(1).await.expect("rung");
            guest.completion(1).await.expect("a completion").status()
        };
        let compare = SubmissionQueueEntry::compare(1, range(5, 1), NONE);
        assert!(send(compare, &data).await.is_success());
        let differs = send(compare, &pattern(2, BLOCK as usize)).await;
        assert!(differs.is(Status::COMPARE_FAILURE), "{differs:?}");
        assert!(send(SubmissionQueueEntry::flush(1), &[]).await.is_success());
        let zeroes = SubmissionQueueEntry::write_zeroes(1, range(5, 1), false);
        assert!(send(zeroes, &[]).await.is_success());
        assert!(send(compare, &vec![0; BLOCK as usize]).await.is_success());
    });
}

/// Bursts of commands, whose guest sleeps until an interrupt comes: none is missed, though most are
/// held back.
#[test]
fn a_guest_with_shadow_doorbells_is_interrupted_for_its_last_completion() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let options = GuestOptions {
            shadow: true,
            ..GuestOptions::default()
        };
        let mut guest = site.guest(&path, options).await;
        for round in 0..300u16 {
            let qid = 1 + round % 2;
            let burst = 1 + round % 13;
            for _ in 0..burst {
                let cid = guest.take_place(qid).expect("room");
                let entry = SubmissionQueueEntry::read(1, range(0, 1), NONE);
                guest.put_io(qid, (entry, cid), (0, BLOCK)).expect("room");
                guest.ring(qid).await.expect("rung");
            }
            for _ in 0..burst {
                let done = guest.completion(qid).await.expect("an interrupt");
                assert!(done.status().is_success());
            }
        }
    });
}
