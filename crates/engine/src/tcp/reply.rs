//! Answers of an I/O queue: a completion, or data and a completion, put into the outbox whole.

use flashyard_nvme::tcp::{C2HData, CapsuleResp, Crc32c, MAX_HEADER, Outgoing};
use flashyard_nvme::{CompletionQueueEntry, Status};
use flashyard_runtime::{Data, PAGE};

use super::budget::Held;
use super::outbox::Outbox;

/// A data digest and a CapsuleResp with its digest.
const TRAILER: usize = 4 + 24 + 4;

/// Puts a completion into the outbox.
#[inline]
pub(crate) fn complete(outbox: &Outbox, how: Outgoing, entry: CompletionQueueEntry) {
    let mut pdu = [0; 32];
    let len = CapsuleResp { entry }.encode(how, &mut pdu);
    outbox.push(&pdu[..len]);
}

/// Puts data and the completion behind them into the outbox; without `entry` the data PDU says "success" itself.
#[inline]
pub(crate) fn complete_read(
    outbox: &Outbox,
    how: Outgoing,
    cid: u16,
    data: Data,
    held: Option<Held>,
    entry: Option<CompletionQueueEntry>,
) {
    let datal = u32::try_from(data.len()).expect("a transfer is shorter than 4 GiB");
    let mut header = [0; MAX_HEADER];
    let pdu = C2HData {
        cccid: cid,
        datao: 0,
        datal,
        last: true,
        success: entry.is_none(),
    };
    let header_len = pdu.encode(how, &mut header);
    let mut trailer = [0; TRAILER];
    let mut trailer_len = 0;
    if how.digests.data {
        trailer[..4].copy_from_slice(&digest(&data));
        trailer_len = 4;
    }
    if let Some(entry) = entry {
        trailer_len += CapsuleResp { entry }.encode(how, &mut trailer[trailer_len..]);
    }
    outbox.push_data(&header[..header_len], data, &trailer[..trailer_len], held);
}

/// A completion with everything a queue adds to it.
#[inline]
pub(crate) fn entry(cid: u16, status: Status, sqhd: u16) -> CompletionQueueEntry {
    CompletionQueueEntry::new(cid, status).with_queue(sqhd, 0)
}

fn digest(data: &Data) -> [u8; 4] {
    match data {
        Data::Buf(buf) => Crc32c::of(buf),
        Data::Zeroes(len) => {
            let zeroes = [0; PAGE];
            let mut crc = Crc32c::new();
            let mut left = *len;
            while left > 0 {
                let n = left.min(PAGE);
                crc.update(&zeroes[..n]);
                left -= n;
            }
            crc.to_wire()
        }
    }
}
