//! Fused Compare and Write at work: both halves get their data, in whichever order they come, then
//! the device does both as one.

use std::rc::Rc;

use flashyard_block::{self as block, Class, Io, IoError};
use flashyard_controller::fused::{CompareAndWrite, FAILED_FUSED, Refused};
use flashyard_nvme::SubmissionQueueEntry;
use flashyard_runtime::Buf;
use flashyard_sched::Op;

use super::front::{End, Failure, Front, HostData, Success};
use super::queue::{Namespace, Queue};
use super::rare;
use crate::ledger::Past;
use crate::quota::{Budget, Held, Reservation};
use crate::waiting::TakenBack;

/// A checked pair; the first half is the Compare.
pub struct Pair {
    entries: [SubmissionQueueEntry; 2],
    namespace: Rc<Namespace>,
    class: Class,
    checked: CompareAndWrite<HalfData>,
    /// Length of the data of a half.
    bytes: u32,
}

/// Where the data of a half are.
pub enum HalfData {
    /// They came with it.
    Here(HostData),
    /// They have to be fetched.
    Fetch,
}

impl Pair {
    /// An accepted pair: `bytes` is the length of the data of a half, `others` how many commands
    /// are outstanding beside one of them.
    pub fn new<F: Front>(
        queue: &Queue<F>,
        entries: [SubmissionQueueEntry; 2],
        namespace: Rc<Namespace>,
        checked: CompareAndWrite<HalfData>,
        bytes: u32,
        others: u16,
    ) -> Self {
        let class = queue.classify(namespace.tag.class, &entries[1], bytes, others);
        Self {
            entries,
            namespace,
            class,
            checked,
            bytes,
        }
    }
}

/// What the data of a half are counted against.
type Memory = (Option<Reservation>, Option<Held>);

/// Does a pair and answers both halves, the first one first.
pub(super) async fn execute<F: Front>(queue: &Queue<F>, pair: Pair) {
    let (entries, bytes) = (pair.entries, u64::from(pair.bytes));
    let (class, nsid) = (pair.class, pair.namespace.info.nsid);
    match compare_and_write(queue, pair).await {
        Ok(()) => {
            let success = || Success {
                class,
                nsid,
                credit: None,
            };
            queue.counters().on_read(bytes);
            let [compare, write] = entries.map(|entry| entry.cid());
            queue.front().answer(compare, End::Other(success()));
            queue.counters().on_write(bytes);
            queue.front().answer(write, End::Other(success()));
        }
        Err(failure) => {
            let Refused { first, second } = refusal(failure);
            queue.refuse(&entries[0], first);
            queue.refuse(&entries[1], second);
        }
    }
}

async fn compare_and_write<F: Front>(queue: &Queue<F>, pair: Pair) -> Result<(), Failure> {
    let Pair {
        entries,
        namespace,
        class,
        checked,
        bytes,
    } = pair;
    let cids = entries.map(|entry| entry.cid());
    let (lba, bytes) = (checked.range.slba, u64::from(bytes));
    let ask = namespace.ask(class, Op::CompareAndWrite, lba, bytes);
    // The data are here before the turn is asked for: a host that owes them keeps nobody from the
    // device.
    let ready = async {
        let halves = [checked.compare, checked.write];
        let data = data(queue, cids, halves, bytes as usize).await?;
        if checked.compare_fua {
            rare::empty_cache(queue, cids[0], &namespace, class).await?;
        }
        Ok::<_, Failure>((data, queue.admit(cids[0], &namespace, ask).await?))
    };
    // Each wait ends with the first half; it does as well when the second is aborted.
    let ready = queue.waiting().unless_unwanted(cids[1], ready).await;
    let ([compare, write], admission) = ready.map_err(TakenBack::error)??;
    let ((compare, _compare_memory), (write, _write_memory)) = (compare, write);
    let pair = block::Pair::new(checked.range.slba, compare, write, checked.fua)?;
    let io = Io::CompareAndWrite(pair);
    let ended = admission.submit(queue.waiting(), cids[0], ask, io).await;
    queue.take(&namespace, Past::default(), ended)?;
    Ok(())
}

/// The data of both halves, with what they are counted against.
async fn data<F: Front>(
    queue: &Queue<F>,
    cids: [u16; 2],
    halves: [HalfData; 2],
    bytes: usize,
) -> Result<[(Buf, Memory); 2], Failure> {
    let charge = Budget::charge(bytes);
    let absent = halves.iter().filter(|half| matches!(half, HalfData::Fetch));
    let mut held = match absent.count() {
        0 => None,
        count => Some(queue.reserve(cids[0], count * charge).await?),
    };
    let mut begin = |cid, half| match half {
        HalfData::Here(data) => Source::<F>::Here(data),
        HalfData::Fetch => {
            let held = held.as_mut().map(|held| held.split(charge));
            Source::Coming(queue.front().fetch(cid, bytes, held))
        }
    };
    let [compare, write] = halves;
    // Both are asked for before either is awaited: a host may send the two in any order.
    let (compare, write) = (begin(cids[0], compare), begin(cids[1], write));
    let both = async { Ok([compare.data().await?, write.data().await?]) };
    let both = queue.waiting().unless_unwanted(cids[0], both).await;
    both.map_err(TakenBack::error)?
}

/// Where the data of a half come from.
enum Source<'a, F: Front> {
    Here(HostData),
    Coming(F::Fetch<'a>),
}

impl<F: Front> Source<'_, F> {
    async fn data(self) -> Result<(Buf, Memory), Failure> {
        match self {
            Self::Here(HostData { buf, reservation }) => Ok((buf, (Some(reservation), None))),
            Self::Coming(fetch) => {
                let (buf, held) = fetch.await?;
                Ok((buf, (None, held)))
            }
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
