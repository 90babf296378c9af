//! Create, Delete, doorbells, and places for completions.

use alloc::vec::Vec;

use flashyard_nvme::{Status, SubmissionQueueEntry as Entry};
use flashyard_time::Rng;

use crate::pcie::queues::{
    Bounds, CompletionQueue, Doorbell, InvalidDoorbell, Need, Queues, SubmissionQueue,
};
use crate::pcie::registers::AdminQueues;

const BOUNDS: Bounds = Bounds {
    queues: 8,
    entries: 1024,
    vectors: 9,
};

fn admin() -> Queues {
    let mut queues = Queues::default();
    queues.set_admin(&AdminQueues {
        submission: 0x1000,
        submission_entries: 4,
        completion: 0x2000,
        completion_entries: 4,
        configuration: 0x46_0001,
    });
    queues
}

fn add_submission(queues: &mut Queues, sqe: &Entry) -> Result<(), Status> {
    let new = queues.check_submission(sqe, BOUNDS)?;
    queues.add_submission(sqe, &new);
    Ok(())
}

/// Completion queue 1 and submission queues 1 and 2 that complete there.
fn with_io(completions: u16) -> Queues {
    let mut queues = admin();
    let create = Entry::create_io_cq(1, completions, 0x3000, Some(1));
    queues.create_completion(&create, BOUNDS).expect("CQ 1");
    for (qid, at) in [(1, 0x1_0000), (2, 0x2_0000)] {
        add_submission(&mut queues, &Entry::create_io_sq(qid, 8, at, 1)).expect("SQ");
    }
    queues
}

#[test]
fn what_a_completion_queue_cannot_be() {
    let good = Entry::create_io_cq(3, 16, 0x5000, Some(8));
    let table = [
        (good, None),
        (
            Entry::create_io_cq(0, 16, 0x5000, None),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (
            Entry::create_io_cq(9, 16, 0x5000, None),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (
            Entry::create_io_cq(1, 16, 0x5000, None),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (
            Entry::create_io_cq(3, 1, 0x5000, None),
            Some(Status::INVALID_QUEUE_SIZE),
        ),
        (Entry::create_io_cq(3, 1024, 0x5000, None), None),
        (
            Entry::create_io_cq(3, 1025, 0x5000, None),
            Some(Status::INVALID_QUEUE_SIZE),
        ),
        (good.with_cdw(11, 2), Some(Status::INVALID_FIELD)),
        (
            Entry::create_io_cq(3, 16, 0x5800, None),
            Some(Status::PRP_OFFSET_INVALID),
        ),
        (Entry::create_io_cq(3, 16, 0, None), None),
        (
            Entry::create_io_cq(3, 16, 0x5000, Some(9)),
            Some(Status::INVALID_INTERRUPT_VECTOR),
        ),
        (good.with_cdw(11, 99 << 16 | 1), None),
    ];
    for (sqe, refused) in table {
        let mut queues = with_io(16);
        let created = queues.create_completion(&sqe, BOUNDS);
        assert_eq!(created.err(), refused.map(Status::with_dnr), "{sqe:?}");
        assert_eq!(queues.completion(3).is_some(), refused.is_none());
    }
    let mut queues = with_io(16);
    queues.create_completion(&good, BOUNDS).expect("good");
    assert_eq!(
        queues.completion(3).and_then(CompletionQueue::vector),
        Some(8)
    );
}

#[test]
fn what_a_submission_queue_cannot_be() {
    let good = Entry::create_io_sq(3, 16, 0x5000, 1);
    let table = [
        (good, None),
        (
            Entry::create_io_sq(0, 16, 0x5000, 1),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (
            Entry::create_io_sq(1, 16, 0x5000, 1),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (
            Entry::create_io_sq(9, 16, 0x5000, 1),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (
            Entry::create_io_sq(3, 1, 0x5000, 1),
            Some(Status::INVALID_QUEUE_SIZE),
        ),
        (
            Entry::create_io_sq(3, 1025, 0x5000, 1),
            Some(Status::INVALID_QUEUE_SIZE),
        ),
        (
            Entry::create_io_sq(3, 16, 0x5000, 0),
            Some(Status::COMPLETION_QUEUE_INVALID),
        ),
        (
            Entry::create_io_sq(3, 16, 0x5000, 2),
            Some(Status::COMPLETION_QUEUE_INVALID),
        ),
        (
            Entry::create_io_sq(3, 16, 0x5000, 9),
            Some(Status::INVALID_QUEUE_IDENTIFIER),
        ),
        (good.with_cdw(11, 1 << 16), Some(Status::INVALID_FIELD)),
        (
            Entry::create_io_sq(3, 16, 0x5004, 1),
            Some(Status::PRP_OFFSET_INVALID),
        ),
    ];
    for (sqe, refused) in table {
        let mut queues = with_io(16);
        let created = add_submission(&mut queues, &sqe);
        assert_eq!(created.err(), refused.map(Status::with_dnr), "{sqe:?}");
        assert_eq!(queues.submission(3).is_some(), refused.is_none());
    }
}

#[test]
fn queues_are_deleted_in_their_order() {
    let mut queues = with_io(16);
    let delete_completion =
        |queues: &mut Queues, qid| queues.delete_completion(&Entry::delete_io_cq(qid)).err();
    let refused = Some(Status::INVALID_QUEUE_DELETION.with_dnr());
    let unknown = Some(Status::INVALID_QUEUE_IDENTIFIER.with_dnr());
    assert_eq!(delete_completion(&mut queues, 1), refused);
    for qid in [1, 2] {
        let delete = Entry::delete_io_sq(qid);
        assert_eq!(queues.check_delete_submission(&delete), Ok(qid));
        assert_eq!(delete_completion(&mut queues, 1), refused);
        queues.remove_submission(qid);
        assert_eq!(queues.check_delete_submission(&delete).err(), unknown);
    }
    assert_eq!(delete_completion(&mut queues, 1), None);
    for qid in [0, 1, 9] {
        assert_eq!(delete_completion(&mut queues, qid), unknown);
    }
    assert_eq!(
        queues
            .check_delete_submission(&Entry::delete_io_sq(0))
            .err(),
        unknown
    );
}

#[test]
fn a_doorbell_without_a_queue_or_with_a_wrong_value_changes_nothing() {
    let mut queues = with_io(4);
    for (doorbell, value, result) in [
        (Doorbell::Tail(1), 8, Err(InvalidDoorbell::Value)),
        (Doorbell::Tail(1), 0xffff, Err(InvalidDoorbell::Value)),
        (Doorbell::Tail(3), 0, Err(InvalidDoorbell::Queue)),
        (Doorbell::Head(2), 0, Err(InvalidDoorbell::Queue)),
        (Doorbell::Head(1), 1, Err(InvalidDoorbell::Value)),
        (Doorbell::Head(1), 4, Err(InvalidDoorbell::Value)),
        (Doorbell::Head(1), 0, Ok(())),
        (Doorbell::Tail(1), 0xabcd_0007, Ok(())),
    ] {
        assert_eq!(queues.ring(doorbell, value), result, "{doorbell:?} {value}");
    }
    assert_eq!(queues.submission(1).map(SubmissionQueue::tail), Some(7));
    for (offset, doorbell) in [
        (0x1000, Some(Doorbell::Tail(0))),
        (0x1004, Some(Doorbell::Head(0))),
        (0x100c, Some(Doorbell::Head(1))),
        (0x3ffc, Some(Doorbell::Head(1535))),
        (0xffc, None),
        (u64::MAX, None),
    ] {
        assert_eq!(Doorbell::at(offset), doorbell, "{offset:#x}");
    }
}

#[test]
fn commands_are_fetched_only_while_there_are_places_for_completions() {
    let mut queues = with_io(4);
    for qid in [1, 2] {
        queues.ring(Doorbell::Tail(qid), 7).expect("a tail");
    }
    assert_eq!(queues.fetch(1), Some(0x1_0000));
    assert_eq!(queues.fetch(2), Some(0x2_0000));
    assert_eq!(queues.fetch(1), Some(0x1_0040));
    assert_eq!(
        (queues.fetch(1), queues.fetch(2)),
        (None, None),
        "three places"
    );
    let posted: Vec<_> = (0..3).map(|_| queues.post(1).expect("a place")).collect();
    assert!(posted.iter().all(|slot| slot.phase));
    assert_eq!(posted[2].address, 0x3020);
    assert_eq!(queues.fetch(2), None, "not read yet");
    queues.ring(Doorbell::Head(1), 2).expect("two were read");
    assert_eq!(queues.fetch(2), Some(0x2_0040));
    assert_eq!(
        queues.post(1).map(|slot| (slot.address, slot.phase)),
        Some((0x3030, true))
    );
    queues.fetch(1).expect("one place left");
    assert_eq!(
        queues.post(1).map(|slot| (slot.address, slot.phase)),
        Some((0x3000, false))
    );
}

/// What is fetched and answered by chance, against a count.
#[test]
fn no_completion_is_ever_written_over_one_that_was_not_read() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let entries = 2 + rng.below(7) as u16;
        let mut queues = with_io(entries);
        let (mut in_flight, mut unread, mut head) = (0u16, 0u16, 0u16);
        for _ in 0..500 {
            let qid = 1 + rng.below(2) as u16;
            match rng.below(4) {
                0 => queues
                    .ring(Doorbell::Tail(qid), rng.below(8) as u32)
                    .expect("a tail"),
                1 => in_flight += u16::from(queues.fetch(qid).is_some()),
                2 if in_flight > 0 => {
                    queues.post(1).expect("a place was kept");
                    (in_flight, unread) = (in_flight - 1, unread + 1);
                }
                3 => {
                    let by = rng.below(u64::from(unread) + 1) as u16;
                    head = (head + by) % entries;
                    queues.ring(Doorbell::Head(1), head.into()).expect("a head");
                    unread -= by;
                }
                _ => {}
            }
            assert!(in_flight + unread < entries, "seed {seed}");
        }
    }
}

/// A guest that reads when it is interrupted, up to where it finds nothing more, and a function
/// that holds interrupts back: whatever the order, all is read in the end.
#[test]
fn interrupts_are_held_back_while_the_guest_reads_and_nothing_is_left_unread() {
    let (mut held_back, mut sent) = (0, 0);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut queues = with_io(16);
        // Where the guest reads, and whether it is at it; what it has not written yet.
        let (mut head, mut reads, mut held) = (0u16, false, false);
        let (mut tail, mut posted) = (0u16, 0);
        let mut steps = 0;
        while posted < 100 || head != tail {
            steps += 1;
            assert!(steps < 10_000, "seed {seed}: the guest is not interrupted");
            let known = queues.completion(1).expect("is there").head();
            let in_queue = (tail + 16 - known) % 16;
            match rng.below(4) {
                0 if posted < 100 && in_queue < 14 => {
                    queues.post(1).expect("there is room");
                    (tail, posted) = ((tail + 1) % 16, posted + 1);
                    if !held {
                        held = queues.completion(1).expect("is there").need() == Need::Later;
                        held_back += u32::from(held);
                    }
                    if !held {
                        queues.notify(1);
                        (reads, sent) = (true, sent + 1);
                    }
                }
                // It reads one, or finds none and writes its head.
                1 if reads && head != tail => head = (head + 1) % 16,
                1 if reads => {
                    reads = false;
                    queues
                        .ring(Doorbell::Head(1), head.into())
                        .expect("it was posted");
                }
                // It writes its head, and reads on later.
                2 if reads => queues
                    .ring(Doorbell::Head(1), head.into())
                    .expect("it was posted"),
                3 if held => match queues.completion(1).expect("is there").need() {
                    Need::Later => {}
                    need => {
                        held = false;
                        queues.notify(1);
                        reads |= need == Need::Interrupt;
                        sent += u32::from(need == Need::Interrupt);
                    }
                },
                _ => {}
            }
        }
    }
    assert!(held_back > 1000 && sent > 1000, "{held_back} {sent}");
}
