//! Fused Compare and Write at work: both halves get their data, in whichever order they come, then
//! the device does both as one.

use std::rc::Rc;

use flashyard_block::{self as block, Io, IoError, Tag};
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_runtime::Buf;
use flashyard_sched::Op;

use super::budget::{Budget, Held};
use super::command::{self, CapsuleData, Failure, Memory, admit};
use super::io::IoQueue;
use super::namespaces::Namespace;
use super::payload::Payload;
use super::transfer::Arrived;
use super::waiting::TakenBack;
use crate::ledger::Past;
use crate::switch::Want;
use flashyard_controller::fused::{self, CompareAndWrite, FAILED_FUSED, Refused};

/// One of two, as it arrived, with all data of its capsule.
pub(crate) struct Half {
    pub(crate) entry: SubmissionQueueEntry,
    pub(crate) capsule_bytes: u32,
    pub(crate) capsule: Option<CapsuleData>,
    pub(crate) digest_ok: bool,
}

/// Both, by order of arrival.
pub(crate) struct Pair {
    pub(crate) first: Half,
    pub(crate) second: Half,
}

/// Does a pair and answers both halves, the first one first.
pub(crate) async fn execute(queue: &Rc<IoQueue>, pair: Pair) {
    let entries = [pair.first.entry, pair.second.entry];
    let bytes = compare_and_write(queue, pair).await;
    match bytes {
        Ok(bytes) => {
            queue.answer_pair([entries[0].cid(), entries[1].cid()], bytes);
        }
        Err(Refused { first, second }) => {
            queue.refuse(&entries[0], first);
            queue.refuse(&entries[1], second);
        }
    }
}

async fn compare_and_write(queue: &Rc<IoQueue>, pair: Pair) -> Result<u64, Refused> {
    let Pair { first, second } = pair;
    let transient = Status::TRANSIENT_TRANSPORT_ERROR;
    match (first.digest_ok, second.digest_ok) {
        (true, true) => {}
        (false, _) => {
            return Err(Refused {
                first: transient,
                second: FAILED_FUSED,
            });
        }
        (true, false) => {
            return Err(Refused {
                first: FAILED_FUSED,
                second: transient,
            });
        }
    }
    let namespace = queue.namespace(first.entry.nsid());
    let info = namespace.as_ref().map(|namespace| &namespace.info);
    let locate = [&first, &second]
        .map(|half| |transfer| Payload::locate(transfer, &half.entry, half.capsule_bytes));
    let entries = [&first.entry, &second.entry];
    let most = queue.limits().transfer_bytes;
    let checked = fused::check_pair(entries, info, most, locate)?;
    let Some(namespace) = namespace else {
        let status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
        return Err(Refused {
            first: status,
            second: status,
        });
    };
    let granted = namespace.tag.class;
    let tag = Tag {
        class: queue.classify(granted, &second.entry, checked.write.bytes()),
        ..namespace.tag
    };
    let cids = [first.entry.cid(), second.entry.cid()];
    let capsules = [first.capsule, second.capsule];
    let done = perform(queue, (&namespace, tag), &checked, cids, capsules).await;
    done.map(|()| u64::from(checked.write.bytes()))
        .map_err(refusal)
}

async fn perform(
    queue: &Rc<IoQueue>,
    (namespace, tag): (&Rc<Namespace>, Tag),
    checked: &CompareAndWrite<Payload>,
    cids: [u16; 2],
    capsules: [Option<CapsuleData>; 2],
) -> Result<(), Failure> {
    let want = Want {
        tag,
        op: Op::CompareAndWrite,
        lba: checked.range.slba,
        bytes: u64::from(checked.write.bytes()),
        again: false,
    };
    // The data are here before the turn is asked for: a host that owes them keeps nobody from the
    // device.
    let ready = async {
        let data = data(queue, checked, cids, capsules).await?;
        if checked.compare_fua {
            command::empty_cache(queue, cids[0], namespace, tag.class).await?;
        }
        Ok::<_, Failure>((data, admit(queue, cids[0], namespace, want).await?))
    };
    // Each wait ends with the first half; it does as well when the second is aborted.
    let ready = queue.waiting().unless_unwanted(cids[1], ready).await;
    let ([compare, write], admission) = ready.map_err(TakenBack::error)??;
    let ((compare, _compare_memory), (write, _write_memory)) = (compare, write);
    let pair = block::Pair::new(checked.range.slba, compare, write, checked.fua)?;
    let io = Io::CompareAndWrite(pair);
    let ended = admission.submit(queue.waiting(), cids[0], want, io).await;
    queue.heed(namespace, Past::default(), ended)?;
    Ok(())
}

/// The data of both halves, with what they are counted against.
async fn data(
    queue: &Rc<IoQueue>,
    checked: &CompareAndWrite<Payload>,
    cids: [u16; 2],
    capsules: [Option<CapsuleData>; 2],
) -> Result<[(Buf, Memory); 2], Failure> {
    let payloads = [checked.compare, checked.write];
    let invited = payloads
        .iter()
        .filter(|payload| matches!(payload, Payload::ByR2t { .. }));
    let bytes: usize = invited
        .map(|payload| Budget::charge(payload.bytes() as usize))
        .sum();
    let mut held = if bytes > 0 {
        Some(command::hold(queue, cids[0], bytes).await?)
    } else {
        None
    };
    let [compare, write] = capsules;
    // Both are invited before either is awaited: a host may answer the two R2Ts in any order.
    let compare = Source::of(queue, cids[0], checked.compare, compare, &mut held)?;
    let write = Source::of(queue, cids[1], checked.write, write, &mut held)?;
    let both = async { Ok([compare.data().await?, write.data().await?]) };
    let both = queue.waiting().unless_unwanted(cids[0], both).await;
    both.map_err(TakenBack::error)?
}

/// Where the data of a half come from.
enum Source<'a> {
    Here(CapsuleData),
    Coming(super::transfer::Arrival<'a>),
    Missing,
}

impl<'a> Source<'a> {
    fn of(
        queue: &'a IoQueue,
        cid: u16,
        payload: Payload,
        capsule: Option<CapsuleData>,
        held: &mut Option<Held>,
    ) -> Result<Self, IoError> {
        Ok(match (payload, capsule) {
            (Payload::InCapsule { offset, bytes }, Some(mut data)) => {
                data.cut(offset as usize..(offset + bytes) as usize);
                Self::Here(data)
            }
            (Payload::ByR2t { bytes }, _) => {
                let buf = command::buffer(bytes as usize)?;
                let charge = Budget::charge(bytes as usize);
                let held = held.as_mut().map(|held| held.split(charge));
                let (r2t, arrival) = queue.transfers().invite(cid, buf, held);
                queue.push_r2t(r2t);
                Self::Coming(arrival)
            }
            _ => Self::Missing,
        })
    }

    async fn data(self) -> Result<(Buf, Memory), Failure> {
        match self {
            Self::Here(CapsuleData { buf, reservation }) => {
                Ok((buf, Memory::Capsule(reservation, None)))
            }
            Self::Missing => Err(Status::DATA_TRANSFER_ERROR.into()),
            Self::Coming(arrival) => match arrival.await {
                Arrived::Whole(buf, held) => Ok((buf, Memory::Peer(held))),
                Arrived::Damaged => Err(Status::TRANSIENT_TRANSPORT_ERROR.into()),
                Arrived::Never => Err(Failure::Gone),
            },
        }
    }
}

/// Which half a failure belongs to: a write that failed is the second's, anything else already
/// stopped the first.
fn refusal(failure: Failure) -> Refused {
    let status = failure.status();
    match failure {
        Failure::Device(IoError::Write | IoError::NoSpace | IoError::WriteProtected) => Refused {
            first: FAILED_FUSED,
            second: status,
        },
        _ => Refused {
            first: status,
            second: FAILED_FUSED,
        },
    }
}
