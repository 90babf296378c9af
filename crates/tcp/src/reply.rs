//! Answers of a queue: a completion, or data and a completion, put into the outbox whole.

use flashyard_engine::front::Held;
use flashyard_nvme::tcp::{C2HData, CapsuleResp, Crc32c, MAX_HEADER, Outgoing};
use flashyard_nvme::{CompletionQueueEntry, Status};
use flashyard_runtime::{Data, PAGE};

use crate::coalesce::Pushed;
use crate::outbox::Outbox;

/// A data digest and a CapsuleResp with its digest.
const TRAILER: usize = 4 + 24 + 4;

static ZEROES: [u8; PAGE] = [0; PAGE];

/// Puts a completion that goes with the end of the turn into the outbox.
#[inline]
pub(crate) fn complete(outbox: &Outbox, how: Outgoing, entry: CompletionQueueEntry) {
    complete_as(outbox, how, Pushed::AtOnce, entry);
}

/// Puts a completion into the outbox.
#[inline]
pub(crate) fn complete_as(
    outbox: &Outbox,
    how: Outgoing,
    what: Pushed,
    entry: CompletionQueueEntry,
) {
    let mut pdu = [0; 32];
    let len = CapsuleResp { entry }.encode(how, &mut pdu);
    outbox.push(what, &pdu[..len]);
}

/// Puts data and the completion behind them into the outbox; without `entry` the data PDU says
/// "success" itself.
#[inline]
pub(crate) fn complete_read(
    outbox: &Outbox,
    how: Outgoing,
    what: Pushed,
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
    outbox.push_data(
        what,
        &header[..header_len],
        data,
        &trailer[..trailer_len],
        held,
    );
}

/// Puts a page and the completion behind it into the outbox. The page is copied, but not the zeroes
/// behind its content.
pub(crate) fn complete_page(
    outbox: &Outbox,
    how: Outgoing,
    page: &[u8],
    entry: CompletionQueueEntry,
) {
    let pdu = C2HData {
        cccid: entry.cid(),
        datao: 0,
        datal: u32::try_from(page.len()).expect("a page is shorter than 4 GiB"),
        last: true,
        success: false,
    };
    let (content, zeroes) = split_zeroes(page);
    let mut bytes = vec![0; MAX_HEADER];
    let header_len = pdu.encode(how, &mut bytes);
    bytes.truncate(header_len);
    bytes.extend_from_slice(content);
    let mut trailer = [0; TRAILER];
    let mut trailer_len = 0;
    if how.digests.data {
        let mut crc = Crc32c::new();
        crc.update(content);
        update_with_zeroes(&mut crc, zeroes);
        trailer[..4].copy_from_slice(&crc.to_wire());
        trailer_len = 4;
    }
    trailer_len += CapsuleResp { entry }.encode(how, &mut trailer[trailer_len..]);
    outbox.push_data(
        Pushed::AtOnce,
        &bytes,
        Data::Zeroes(zeroes),
        &trailer[..trailer_len],
        None,
    );
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
            let mut crc = Crc32c::new();
            update_with_zeroes(&mut crc, *len);
            crc.to_wire()
        }
    }
}

fn update_with_zeroes(crc: &mut Crc32c, mut len: usize) {
    while len > 0 {
        let n = len.min(PAGE);
        crc.update(&ZEROES[..n]);
        len -= n;
    }
}

/// The part of a page before its last pages of nothing but zeroes, and how many bytes these are.
fn split_zeroes(page: &[u8]) -> (&[u8], usize) {
    let empty = page
        .rchunks(PAGE)
        .take_while(|part| **part == ZEROES[..part.len()]);
    let zeroes = empty.map(<[u8]>::len).sum();
    (&page[..page.len() - zeroes], zeroes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_behind_a_page_are_not_copied() {
        let mut page = vec![0; 3 * PAGE + 100];
        assert_eq!(split_zeroes(&page), (&[][..], page.len()));
        page[99] = 1;
        assert_eq!(split_zeroes(&page), (&page[..100], 3 * PAGE));
        page[PAGE + 100] = 1;
        assert_eq!(split_zeroes(&page), (&page[..2 * PAGE + 100], PAGE));
        page[3 * PAGE + 99] = 1;
        assert_eq!(split_zeroes(&page), (&page[..], 0));
        assert_eq!(split_zeroes(&[]), (&[][..], 0));
    }
}
