//! The send queue of a queue. Commands and data are gathered while tasks run; at the end of the
//! turn the sending task gives all of it to the socket in one call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_nvme::SubmissionQueueEntry;
use flashyard_nvme::tcp::{
    CapsuleCmd, Crc32c, FatalErrorStatus, H2CData, MAX_HEADER, MAX_TERM_REQ, Negotiated, Outgoing,
    R2T, Role, TermReq,
};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Data, Gather, Rt};

use crate::payload::Payload;
use crate::queue::{HostError, Shared};
use crate::receiver::Violation;
use crate::slots::Asked;

/// Zeroes to compute a digest over.
static ZEROES: [u8; 4096] = [0; 4096];

#[derive(Debug)]
pub(crate) struct Outbox {
    pending: RefCell<Gather>,
    wake: Notify,
    /// Whether the sending task has been notified since it last took everything.
    notified: Cell<bool>,
    closed: Cell<bool>,
    how: Outgoing,
    max_h2c_data: u32,
}

impl Outbox {
    pub(crate) fn new(negotiated: &Negotiated) -> Self {
        Self {
            pending: RefCell::new(Gather::new()),
            wake: Notify::new(),
            notified: Cell::new(false),
            closed: Cell::new(false),
            how: negotiated.outgoing(Role::Host),
            max_h2c_data: negotiated.maxh2cdata,
        }
    }

    /// A command, with its data in the capsule or without.
    pub(crate) fn push_command(&self, entry: SubmissionQueueEntry, data: Payload) {
        let data_len = data.len() as u32;
        let mut head = [0; MAX_HEADER];
        let len = CapsuleCmd { entry, data_len }.encode(self.how, &mut head);
        let mut pending = self.pending.borrow_mut();
        pending.push_bytes(&head[..len]);
        if data_len > 0 {
            self.push_data(&mut pending, data);
        }
        self.notify();
    }

    /// The part of a write that an R2T asked for, in as many PDUs as MAXH2CDATA demands.
    pub(crate) fn push_transfer(&self, r2t: &R2T, asked: Asked, payload: &mut Payload) {
        let mut pending = self.pending.borrow_mut();
        let end = asked.offset + asked.length;
        let mut offset = asked.offset;
        while offset < end {
            let part = offset..end.min(offset.saturating_add(self.max_h2c_data));
            let pdu = H2CData {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                datao: offset,
                datal: part.end - part.start,
                last: part.end == end,
            };
            let mut head = [0; MAX_HEADER];
            let len = pdu.encode(self.how, &mut head);
            pending.push_bytes(&head[..len]);
            let part = payload.take_part(part.start as usize..part.end as usize);
            self.push_data(&mut pending, part);
            offset += pdu.datal;
        }
        self.notify();
    }

    /// Tells the controller why we leave, with the header that was wrong, if it was one.
    pub(crate) fn push_termination(&self, violation: Violation, offending: &[u8]) {
        let (fes, fei) = violation.fatal_error();
        let mut pdu = [0; MAX_TERM_REQ];
        let len = TermReq {
            fes: FatalErrorStatus(fes),
            fei,
        }
        .encode(Role::Host, offending, &mut pdu);
        self.pending.borrow_mut().push_bytes(&pdu[..len]);
        self.notify();
    }

    /// Nothing more will be pushed; the sending task ends when what is there has gone.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.wake.notify_one();
    }

    fn push_data(&self, pending: &mut Gather, payload: Payload) {
        let digest = self.how.digests.data.then(|| digest(&payload));
        match payload {
            Payload::Out(data) => {
                let range = 0..data.len();
                pending.push_data(data, range);
            }
            Payload::Shared(data) => pending.push_shared(data),
            Payload::None | Payload::In(_) => {}
        }
        if let Some(digest) = digest {
            pending.push_bytes(&digest);
        }
    }

    fn notify(&self) {
        if !self.notified.replace(true) {
            self.wake.notify_one();
        }
    }
}

/// The sending task of a queue.
pub(crate) async fn send(rt: Rt, queue: Rc<Shared>) {
    let outbox = &queue.outbox;
    let mut batch = Gather::new();
    loop {
        outbox.wake.notified().await;
        rt.turn_end().await;
        outbox.notified.set(false);
        std::mem::swap(&mut *outbox.pending.borrow_mut(), &mut batch);
        if !batch.is_empty() {
            let (result, sent) = queue.stream.send(batch).await;
            batch = sent;
            batch.clear();
            if let Err(error) = result {
                return queue.fail(HostError::Transport(error.kind()));
            }
        }
        if outbox.closed.get() && outbox.pending.borrow().is_empty() {
            return;
        }
    }
}

fn digest(payload: &Payload) -> [u8; Crc32c::LEN] {
    match payload {
        Payload::Out(Data::Buf(buf)) => Crc32c::of(buf),
        Payload::Shared(data) => Crc32c::of(data),
        other => {
            let mut crc = Crc32c::new();
            let mut rest = other.len();
            while rest > 0 {
                let part = rest.min(ZEROES.len());
                crc.update(&ZEROES[..part]);
                rest -= part;
            }
            crc.to_wire()
        }
    }
}
