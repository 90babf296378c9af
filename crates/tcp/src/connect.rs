//! The beginning of a connection: ICReq, then Connect, which makes it a queue.

use std::rc::Rc;

use flashyard_engine::front::{Caller, ConnectFailure};
use flashyard_nvme::command::FabricsType;
use flashyard_nvme::fabrics::{ConnectData, ConnectResponse};
use flashyard_nvme::tcp::{
    CapsuleCmd, Digests, Header, Offer, Outgoing, Role, Violation, answer_request,
};
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};

use crate::admin::AdminQueue;
use crate::capsule::{NO_FLOW_CONTROL, Payload, QueuePair};
use crate::coalesce::Pushed;
use crate::connection::{Connection, End};
use crate::fabrics::{self, ADMIN_IN_CAPSULE_BYTES};
use crate::input::{Input, Pdu};
use crate::io::{self, IoQueue};
use crate::outbox;
use flashyard_controller::{AcceptedQueue, ConnectError, ConnectRequest, Transfer};

/// What a connection has become.
pub(crate) enum Joined {
    Admin(Rc<AdminQueue>),
    Io(Rc<IoQueue>),
}

/// Takes a connection from its first byte to its queue. Deadlines are the connection's.
pub(crate) async fn begin(connection: &Rc<Connection>, input: &mut Input) -> Result<Joined, End> {
    let accepted = connection.core().rt().now();
    let how = initialize(connection, input).await?;
    connection.set_deadline(Some(accepted + connection.limits().connect_deadline));
    loop {
        connection.outbox().room().await;
        let pdu = input.pdu().await?;
        let Header::CapsuleCmd(capsule) = pdu.header else {
            return Err(Violation::sequence().into());
        };
        let request = match connect_request(&capsule, &pdu) {
            Ok(request) => request,
            Err(refusal) => {
                outbox::complete(connection.outbox(), how, refusal);
                continue;
            }
        };
        match join(connection, how, &request, capsule.entry.cid()).await {
            Ok(joined) => {
                if let Joined::Io(queue) = &joined {
                    let limit = queue.limits().in_capsule_bytes;
                    input.framer.set_in_capsule_limit(limit);
                }
                return Ok(joined);
            }
            Err(refused) => outbox::complete(
                connection.outbox(),
                how,
                refused.completion(capsule.entry.cid()),
            ),
        }
    }
}

/// ICReq and ICResp.
async fn initialize(connection: &Connection, input: &mut Input) -> Result<Outgoing, End> {
    let pdu = input.pdu().await?;
    let Header::ICReq(request) = pdu.header else {
        return Err(Violation::sequence().into());
    };
    let offer = Offer {
        digests: Digests {
            header: true,
            data: true,
        },
        // Linux refuses any other alignment.
        cpda: 0,
        maxh2cdata: connection.limits().transfer_bytes,
    };
    let (response, agreed) = answer_request(&request, &offer)?;
    input.framer.negotiated(&agreed);
    connection.outbox().push(Pushed::AtOnce, &response.encode());
    Ok(agreed.outgoing(Role::Controller))
}

/// The Connect in a PDU, or the completion that refuses what is there instead.
fn connect_request(
    capsule: &CapsuleCmd,
    pdu: &Pdu,
) -> Result<ConnectRequest, CompletionQueueEntry> {
    let entry = &capsule.entry;
    let refuse = |status| CompletionQueueEntry::new(entry.cid(), status);
    if !pdu.digest_ok {
        return Err(refuse(Status::TRANSIENT_TRANSPORT_ERROR));
    }
    if !entry.is_fabrics() || entry.fabrics_type() != FabricsType::CONNECT {
        return Err(refuse(Status::COMMAND_SEQUENCE_ERROR.with_dnr()));
    }
    let request = connect_data(entry, capsule.data_len).and_then(|payload| {
        let data = in_capsule(payload, &pdu.data).unwrap_or_default();
        ConnectRequest::parse(entry, data)
    });
    request.map_err(|refused| refused.completion(entry.cid()))
}

/// Where the data of a Connect are; `capsule_bytes` is what came in the capsule.
fn connect_data(entry: &SubmissionQueueEntry, capsule_bytes: u32) -> Result<Payload, ConnectError> {
    let transfer = Transfer::FromHost {
        least: ConnectData::LEN as u32,
        most: ADMIN_IN_CAPSULE_BYTES,
    };
    if let Sgl::Transport { .. } = entry.sgl() {
        // No R2T is sent before a host is known.
        return Err(ConnectError::of(
            Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr(),
        ));
    }
    Payload::locate(transfer, entry, capsule_bytes).map_err(ConnectError::of)
}

/// The part of a capsule's data that belongs to its command.
pub(crate) fn in_capsule(payload: Payload, data: &[u8]) -> Option<&[u8]> {
    let Payload::InCapsule { offset, bytes } = payload else {
        return None;
    };
    data.get(offset as usize..)?.get(..bytes as usize)
}

/// Makes the queue and answers the Connect.
async fn join(
    connection: &Rc<Connection>,
    how: Outgoing,
    request: &ConnectRequest,
    cid: u16,
) -> Result<Joined, ConnectError> {
    let (joined, cntlid, queue) = if request.is_admin() {
        let target = connection.core().target();
        let now = || connection.core().rt().now();
        let caller = Caller {
            connection: connection.id(),
            peer: connection.stream().peer_addr(),
            capabilities: fabrics::capabilities,
        };
        let seat = unfenced(connection, || target.connect_admin(request, caller, now())).await?;
        let cntlid = seat.association.cntlid;
        let admin = AdminQueue::new(connection.clone(), how, seat.association, pair(seat.queue));
        (Joined::Admin(admin), cntlid, seat.queue)
    } else {
        let target = connection.core().target();
        let seat = unfenced(connection, || target.connect_io(request, connection.id())).await?;
        let cntlid = seat.association.cntlid;
        let accepted = seat.queue;
        let queue = io::new_queue(connection.clone(), how, pair(accepted), seat);
        (Joined::Io(queue), cntlid, accepted)
    };
    let dw0 = ConnectResponse {
        cntlid,
        ..ConnectResponse::default()
    }
    .dw0();
    let sqhd = if queue.flow_control_disabled {
        NO_FLOW_CONTROL
    } else {
        1 % queue.entries
    };
    let entry = outbox::entry(cid, Status::SUCCESS, sqhd).with_dw0(dw0);
    outbox::complete(connection.outbox(), how, entry);
    Ok(joined)
}

fn pair(queue: AcceptedQueue) -> QueuePair {
    QueuePair::new(queue.entries, !queue.flow_control_disabled)
}

/// Tries until no fence stands in the way, or for as long as a Connect may wait.
async fn unfenced<T>(
    connection: &Connection,
    mut attempt: impl FnMut() -> Result<T, ConnectFailure>,
) -> Result<T, ConnectError> {
    let core = connection.core();
    let deadline = core.rt().now() + connection.limits().fence_deadline;
    loop {
        match attempt() {
            Ok(seat) => return Ok(seat),
            Err(ConnectFailure::Refused(error)) => return Err(error),
            Err(ConnectFailure::Fenced)
                if core.rt().now() >= deadline || connection.is_closed() =>
            {
                return Err(ConnectError::BUSY);
            }
            Err(ConnectFailure::Fenced) => core.fence_lifted_or(deadline).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_nvme::fabrics::Connect;

    use super::*;

    #[test]
    fn data_come_in_the_capsule() {
        let command = Connect {
            recfmt: 0,
            qid: 0,
            sqsize: 31,
            cattr: 0,
            kato: 0,
        };
        let sqe = SubmissionQueueEntry::connect(command);
        let refused = |status: Status| Err(ConnectError::of(status.with_dnr()));
        let bytes = 1024;
        let in_capsule = Payload::InCapsule { offset: 0, bytes };
        assert_eq!(connect_data(&sqe, 1024), Ok(in_capsule));
        let short = refused(Status::DATA_SGL_LENGTH_INVALID);
        assert_eq!(connect_data(&sqe, 1023), short);
        let by_r2t = sqe.with_sgl(Sgl::Transport { length: 1024 });
        let kind = refused(Status::SGL_DESCRIPTOR_TYPE_INVALID);
        assert_eq!(connect_data(&by_r2t, 0), kind);
    }
}
