//! Fused Compare and Write at work: both halves get their data, in whichever order they come, then the device does
//! both as one.

use std::rc::Rc;

use flashyard_block::IoError;
use flashyard_nvme::{Status, SubmissionQueueEntry};
use flashyard_runtime::Buf;
use flashyard_sched::Op;

use super::budget::Budget;
use super::command::{self, CapsuleData, Failure, admit};
use super::io::IoQueue;
use super::namespaces::Namespace;
use super::ration::Claim;
use super::transfer::Arrived;
use crate::controller::Payload;
use crate::controller::fused::{self, CompareAndWrite, FAILED_FUSED, Refused};
use crate::handover::Operation;
use crate::ledger::Past;
use crate::switch::Want;

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

impl Half {
    fn arrival(&self) -> fused::Half<'_> {
        fused::Half {
            sqe: &self.entry,
            capsule_bytes: self.capsule_bytes,
        }
    }
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
    let checked = fused::check_pair(
        first.arrival(),
        second.arrival(),
        info,
        queue.limits().transfer_bytes,
    )?;
    let Some(namespace) = namespace else {
        let status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
        return Err(Refused {
            first: status,
            second: status,
        });
    };
    let cids = [first.entry.cid(), second.entry.cid()];
    let capsules = [first.capsule, second.capsule];
    let done = perform(queue, &namespace, &checked, cids, capsules).await;
    done.map(|()| u64::from(checked.write.bytes()))
        .map_err(refusal)
}

async fn perform(
    queue: &Rc<IoQueue>,
    namespace: &Rc<Namespace>,
    checked: &CompareAndWrite,
    cids: [u16; 2],
    capsules: [Option<CapsuleData>; 2],
) -> Result<(), Failure> {
    let payloads = [checked.compare, checked.write];
    let invited = payloads
        .iter()
        .filter(|payload| matches!(payload, Payload::Invited { .. }));
    let bytes: usize = invited
        .map(|payload| Budget::charge(payload.bytes() as usize))
        .sum();
    let _held = if bytes > 0 {
        Some(command::hold(queue, cids[0], bytes).await?)
    } else {
        None
    };
    let [compare_capsule, write_capsule] = capsules;
    // Both are invited before either is awaited: a host may answer the two R2Ts in any order. And both are here before
    // the turn is asked for: a host that owes them keeps nobody from the device.
    let compare = Source::of(queue, cids[0], checked.compare, compare_capsule).await;
    let write = Source::of(queue, cids[1], checked.write, write_capsule).await;
    // Of a half that fails the other one's data still come.
    let (compare, write) = (compare.data().await, write.data().await);
    let ((compare, _compare_claim), (write, _write_claim)) = (compare?, write?);
    let want = Want {
        tag: namespace.tag,
        op: Op::CompareAndWrite,
        lba: checked.range.slba,
        bytes: u64::from(checked.write.bytes()),
        again: false,
    };
    let admission = admit(queue, cids[0], namespace, want).await?;
    let operation = Operation::CompareAndWrite {
        lba: checked.range.slba,
        compare,
        write,
        fua: checked.fua,
    };
    let ended = admission
        .perform(queue.waiting(), cids[0], want, operation)
        .await;
    queue.heed(namespace, Past::default(), ended)?;
    Ok(())
}

/// Where the data of a half come from.
enum Source<'a> {
    Here(CapsuleData),
    Coming(super::transfer::Arrival<'a>),
    Missing,
}

impl<'a> Source<'a> {
    async fn of(
        queue: &'a IoQueue,
        cid: u16,
        payload: Payload,
        capsule: Option<CapsuleData>,
    ) -> Self {
        match (payload, capsule) {
            (Payload::InCapsule { offset, bytes }, Some(mut data)) => {
                data.cut(offset as usize..(offset + bytes) as usize);
                Self::Here(data)
            }
            (Payload::Invited { bytes }, _) => {
                let buf = command::buffer(queue, bytes as usize).await;
                let (r2t, arrival) = queue.transfers().invite(cid, buf);
                queue.push_r2t(r2t);
                Self::Coming(arrival)
            }
            _ => Self::Missing,
        }
    }

    /// The data, with what those of a capsule are counted against.
    async fn data(self) -> Result<(Buf, Option<Claim>), Failure> {
        match self {
            Self::Here(CapsuleData { buf, claim }) => Ok((buf, Some(claim))),
            Self::Missing => Err(Status::DATA_TRANSFER_ERROR.into()),
            Self::Coming(arrival) => match arrival.await {
                Arrived::Whole(buf) => Ok((buf, None)),
                Arrived::Damaged => Err(Status::TRANSIENT_TRANSPORT_ERROR.into()),
                Arrived::Never => Err(Failure::Gone),
            },
        }
    }
}

/// Which half a failure belongs to: a write that failed is the second's, anything else already stopped the first.
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
