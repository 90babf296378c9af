//! Halves of fused pairs as they arrive, and the check that makes a pair of them.

use flashyard_controller::fused::{self, FAILED_FUSED, Refused};
use flashyard_engine::front::{HalfData, HostData, Pair};
use flashyard_nvme::{Status, SubmissionQueueEntry};

use crate::capsule::Payload;
use crate::io::IoQueue;

/// One of two, as it arrived, with all data of its capsule.
pub(crate) struct Half {
    pub(crate) entry: SubmissionQueueEntry,
    pub(crate) data: Option<HostData>,
    pub(crate) digest_ok: bool,
}

impl Half {
    fn capsule_bytes(&self) -> u32 {
        self.data
            .as_ref()
            .map_or(0, |data| data.bytes().len() as u32)
    }
}

/// Checks both halves, by order of arrival; `others` commands are outstanding beside one of them.
pub(crate) fn check(
    queue: &IoQueue,
    [first, second]: [Half; 2],
    others: u16,
) -> Result<Pair, Refused> {
    let transient = Status::TRANSIENT_TRANSPORT_ERROR;
    if !first.digest_ok {
        return Err(refused(transient, FAILED_FUSED));
    }
    if !second.digest_ok {
        return Err(refused(FAILED_FUSED, transient));
    }
    let namespace = queue.namespace(first.entry.nsid());
    let info = namespace.as_ref().map(|namespace| &namespace.info);
    let locate = [&first, &second]
        .map(|half| |transfer| Payload::locate(transfer, &half.entry, half.capsule_bytes()));
    let entries = [&first.entry, &second.entry];
    let most = queue.limits().transfer_bytes;
    let checked = fused::check_pair(entries, info, most, locate)?;
    let Some(namespace) = namespace else {
        let status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
        return Err(refused(status, status));
    };
    let bytes = checked.write.bytes();
    let entries = [first.entry, second.entry];
    let checked = fused::CompareAndWrite {
        range: checked.range,
        compare: take(checked.compare, first.data)?,
        write: take(checked.write, second.data)?,
        compare_fua: checked.compare_fua,
        fua: checked.fua,
    };
    Ok(Pair::new(queue, entries, namespace, checked, bytes, others))
}

/// The data of a half, cut out of those of its capsule.
fn take(payload: Payload, data: Option<HostData>) -> Result<HalfData, Refused> {
    match (payload, data) {
        (Payload::InCapsule { offset, bytes }, Some(mut data)) => {
            data.cut(offset as usize..(offset + bytes) as usize);
            Ok(HalfData::Here(data))
        }
        (Payload::ByR2t { .. }, _) => Ok(HalfData::Fetch),
        _ => Err(refused(Status::DATA_TRANSFER_ERROR, FAILED_FUSED)),
    }
}

fn refused(first: Status, second: Status) -> Refused {
    Refused { first, second }
}
