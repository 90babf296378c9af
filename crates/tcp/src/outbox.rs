//! What a connection is about to send: whole PDUs, gathered over a turn of the executor or longer
//! (see [`crate::coalesce`]) and sent in one call. PDUs are pushed whole, so they never mix.
//! Parcels are capped: beyond about 128 responses or 512 KiB a larger call only misses caches. For
//! hosts that have asked for it, up to five successes are reported by one completion.

mod sending;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use flashyard_engine::front::{Budget, Held, PendingSample};
use flashyard_nvme::tcp::{C2HData, CapsuleResp, Crc32c, MAX_HEADER, Outgoing};
use flashyard_nvme::{Allowance, CompletionQueueEntry, Status};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Data, Gather, PAGE, Rt, TurnEnd};

use crate::coalesce::{Coalescer, Coalescing, Pushed};

/// PDUs in one parcel.
const PARCEL_PDUS: usize = 128;
/// Bytes in one parcel, beyond which another is begun.
const PARCEL_BYTES: usize = 512 << 10;
/// Successes that one completion can tell of.
const REPORTED: usize = 1 + CompletionQueueEntry::MORE;
/// A response with its digest, in a buffer.
const RESPONSE_BYTES: usize = 32;
/// Empty lists kept: one is sent while another is filled.
const SPARES: usize = 2;

/// A data digest and a CapsuleResp with its digest.
const TRAILER: usize = 4 + 24 + 4;

static ZEROES: [u8; PAGE] = [0; PAGE];

/// The output of one connection.
pub(crate) struct Outbox {
    rt: Rt,
    state: RefCell<State>,
    /// The sending task, while it waits and has not been called.
    sender: Cell<Option<Waker>>,
    /// The end of the turn that the sending task has been called for.
    called: Cell<Option<TurnEnd>>,
    /// Wakes who waits for room.
    drained: Notify,
    bytes: Cell<usize>,
    /// Bytes that have gone since the beginning.
    sent_bytes: Cell<u64>,
    bytes_max: Cell<usize>,
    closed: Cell<bool>,
    sealed: Cell<bool>,
    budget: OnceCell<Rc<Budget>>,
}

#[derive(Default)]
struct State {
    filling: Parcel,
    full: VecDeque<Parcel>,
    spares: Vec<(Gather, Vec<PendingSample>)>,
    /// Successes that belong behind what is in `filling`.
    report: Option<Report>,
    coalescer: Coalescer,
}

/// Successes that will be reported by one completion.
struct Report {
    how: Outgoing,
    cids: [u16; REPORTED],
    len: usize,
    sqhd: u16,
    /// What the host may have outstanding at the namespace of the first.
    allowance: Allowance,
    nsid: u32,
}

/// What goes in one call.
#[derive(Default)]
pub(crate) struct Parcel {
    /// The bytes.
    pub(crate) gather: Gather,
    pdus: usize,
    held: usize,
    /// I/Os that are booked when it has gone.
    samples: Vec<PendingSample>,
}

impl Outbox {
    /// An empty outbox that has room until it holds `bytes_max`.
    pub(crate) fn new(rt: &Rt, bytes_max: usize) -> Self {
        Self {
            rt: rt.clone(),
            state: RefCell::default(),
            sender: Cell::new(None),
            called: Cell::new(None),
            drained: Notify::new(),
            bytes: Cell::new(0),
            sent_bytes: Cell::new(0),
            bytes_max: Cell::new(bytes_max),
            closed: Cell::new(false),
            sealed: Cell::new(false),
            budget: OnceCell::new(),
        }
    }

    /// From now on there is room until it holds `bytes_max`.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.set(bytes_max);
    }

    /// From now on held memory goes back to `budget` when sent.
    pub(crate) fn set_budget(&self, budget: Rc<Budget>) {
        assert!(
            self.budget.set(budget).is_ok(),
            "a connection becomes a queue once"
        );
    }

    /// From now on answers are coalesced by this rule, for a queue of so many entries.
    pub(crate) fn set_coalescing(&self, rule: Coalescing, entries: u16) {
        self.state.borrow_mut().coalescer.set_rule(rule, entries);
    }

    /// Appends a PDU without payload.
    #[inline]
    pub(crate) fn push(&self, what: Pushed, pdu: &[u8]) {
        if self.sealed.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        self.end_report(&mut state);
        state.filling.gather.push_bytes(pdu);
        self.pushed(&mut state, what, pdu.len());
    }

    /// Books an I/O when what is pushed next has gone.
    pub(crate) fn keep(&self, sample: PendingSample) {
        if !self.sealed.get() {
            self.state.borrow_mut().filling.samples.push(sample);
        }
    }

    /// Tells of a success on namespace `nsid` by a completion that may tell of others as well.
    #[inline]
    pub(crate) fn push_success(
        &self,
        what: Pushed,
        how: Outgoing,
        entry: CompletionQueueEntry,
        nsid: u32,
    ) {
        if self.sealed.get() {
            return;
        }
        let mut state = self.state.borrow_mut();
        let report = state.report.get_or_insert(Report {
            how,
            cids: [0; REPORTED],
            len: 0,
            sqhd: 0,
            allowance: Allowance::Silent,
            nsid,
        });
        let bytes = if report.len == 0 { RESPONSE_BYTES } else { 0 };
        report.cids[report.len] = entry.cid();
        report.len += 1;
        report.sqhd = entry.sqhd();
        if report.nsid == nsid {
            report.allowance = entry.allowance();
        }
        let full = report.len == REPORTED;
        self.pushed(&mut state, what, bytes);
        if full {
            self.end_report(&mut state);
        }
    }

    /// Appends a PDU with `data` between `header` and `trailer` (its digest, and perhaps the PDU
    /// that follows).
    #[inline]
    pub(crate) fn push_data(
        &self,
        what: Pushed,
        header: &[u8],
        data: Data,
        trailer: &[u8],
        held: Option<Held>,
    ) {
        if self.sealed.get() {
            return;
        }
        let len = data.len();
        let mut state = self.state.borrow_mut();
        self.end_report(&mut state);
        let filling = &mut state.filling;
        filling.gather.push_bytes(header);
        filling.gather.push_data(data, 0..len);
        if !trailer.is_empty() {
            filling.gather.push_bytes(trailer);
        }
        if let Some(held) = held {
            debug_assert!(
                self.budget.get().is_some(),
                "memory is held against a budget"
            );
            filling.held += held.into_bytes();
        }
        self.pushed(&mut state, what, header.len() + len + trailer.len());
    }

    /// Bytes that wait, or are being sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Bytes that have been sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    /// Whether so much is waiting that no more work should be taken.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() > self.bytes_max.get()
    }

    /// Takes nothing more: what was pushed last is the last that the peer hears.
    pub(crate) fn seal(&self) {
        self.sealed.set(true);
    }

    /// Forgets all that was not sent, and all that will be pushed.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.sealed.set(true);
        let state = self.state.take();
        let held: usize = state.full.iter().map(|parcel| parcel.held).sum();
        self.give_back(held + state.filling.held);
        drop(state);
        self.wake_sender();
        self.drained.notify_all();
    }

    #[inline]
    fn pushed(&self, state: &mut State, what: Pushed, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
        state.filling.pdus += 1;
        let look = state.coalescer.push(what, bytes);
        if state.coalescer.is_alone()
            || state.filling.pdus >= PARCEL_PDUS
            || state.filling.gather.len() >= PARCEL_BYTES
        {
            self.end_report(state);
            let parcel = state.next_filling();
            state.full.push_back(parcel);
            state.coalescer.taken();
            self.wake_sender();
        } else if look {
            self.call_sender();
        }
    }

    /// Writes down the successes that have gathered.
    #[inline]
    fn end_report(&self, state: &mut State) {
        let Some(report) = state.report.take() else {
            return;
        };
        let entry = CompletionQueueEntry::new(report.cids[0], Status::SUCCESS)
            .with_queue(report.sqhd, 0)
            .with_retired(&report.cids[1..report.len])
            .with_allowance(report.allowance);
        let mut pdu = [0; RESPONSE_BYTES];
        let len = CapsuleResp { entry }.encode(report.how, &mut pdu);
        state.filling.gather.push_bytes(&pdu[..len]);
        // The room was taken for a response with a digest.
        self.bytes
            .set((self.bytes.get() + len).saturating_sub(RESPONSE_BYTES));
    }

    fn give_back(&self, held: usize) {
        if let Some(budget) = self.budget.get() {
            budget.release(held);
        }
    }
}

impl State {
    fn next_filling(&mut self) -> Parcel {
        let (gather, samples) = self.spares.pop().unwrap_or_default();
        std::mem::replace(
            &mut self.filling,
            Parcel {
                gather,
                pdus: 0,
                held: 0,
                samples,
            },
        )
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.close();
    }
}

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
    use flashyard_engine::{Core, Limits, Target, TargetConfig, TenantId};
    use flashyard_runtime::Buf;
    use flashyard_runtime::sim::{Config, World};

    use super::*;

    /// A core on which a connection may have so much.
    fn core(bytes: usize) -> Rc<Core> {
        let target = Target::new(TargetConfig {
            nqn_prefix: "nqn.2026-11.test".into(),
            target_uuid: [1; 16],
            limits: Limits {
                connection_bytes: bytes,
                tenant_bytes: bytes,
                ..Limits::default()
            },
            cores: 1,
        });
        let rt = World::new(Config::calm(1)).machine(1).rt(0);
        Core::start(rt, target, 0)
    }

    /// Memory of answers that are never sent goes back to those who share it, wherever the answers
    /// were: in a parcel that is full, in the one that is being filled, or pushed after the end.
    #[test]
    fn what_is_not_sent_is_given_back() {
        const BYTES: usize = 64 << 10;
        let core = core(16 * BYTES);
        let budget = core.budget(TenantId(1));
        let free = || {
            std::iter::from_fn(|| budget.try_reserve(BYTES))
                .collect::<Vec<_>>()
                .len()
        };
        let outbox = Outbox::new(core.rt(), 1 << 20);
        outbox.set_budget(budget.clone());
        let push = || {
            let held = budget.try_reserve(BYTES).expect("there is room");
            let data = Data::Buf(Buf::take(BYTES).expect("memory"));
            outbox.push_data(Pushed::AtOnce, &[0; 24], data, &[], Some(held));
        };
        (0..10).for_each(|_| push());
        assert_eq!(outbox.state.borrow().full.len(), 1);
        assert!(outbox.state.borrow().filling.held > 0);
        assert_eq!(free(), 6);
        outbox.seal();
        push();
        assert_eq!(free(), 6);
        outbox.close();
        assert_eq!(free(), 16);
    }

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
