//! A host for tests that speaks PDUs: one TCP connection, one queue. It sends what the test asks
//! for, right or wrong, and gives back what comes, PDU by PDU. It works on real sockets as well as
//! in the simulated world.

use std::net::SocketAddr;

use flashyard_nvme::fabrics::{Connect, ConnectData};
use flashyard_nvme::tcp::{
    C2HData, CapsuleCmd, Crc32c, Digests, Event, Framer, H2CData, Header, ICReq, ICResp, Limits,
    MAX_HEADER, Outgoing, R2T, Role, TermReq, Violation, accept_response,
};
use flashyard_nvme::{CompletionQueueEntry, Nqn, SubmissionQueueEntry};
use flashyard_runtime::{Gather, RecvOp, Rt, TcpStream};
use flashyard_time::{Duration, Time};

/// Most data that one PDU may bring.
const MAX_DATA: u32 = 2 << 20;
/// A target that takes nothing for so long is given up.
const STUCK: Duration = Duration::from_secs(120);

/// The identity that a host gives.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Its name.
    pub hostnqn: Nqn,
    /// Host Identifier, not all zeroes.
    pub hostid: [u8; 16],
}

impl Identity {
    /// Host `number` of a simulation or a test.
    pub fn number(number: u32) -> Self {
        let name = format!("nqn.2014-08.org.nvmexpress:uuid:host{number}");
        let mut hostid = [1; 16];
        hostid[..4].copy_from_slice(&number.to_le_bytes());
        Self {
            hostnqn: Nqn::new(&name).expect("a good name"),
            hostid,
        }
    }
}

/// What came.
#[derive(Debug)]
pub enum Incoming {
    /// The answer to an ICReq.
    Initialized(ICResp),
    /// A completion.
    Response(CompletionQueueEntry),
    /// Data of a read, those of one PDU.
    Data {
        /// Its header.
        header: C2HData,
        /// All of its data.
        data: Vec<u8>,
        /// Whether their digest fits them, if there is one.
        digest_ok: bool,
    },
    /// Ready To Transfer: data are requested.
    R2t(R2T),
    /// The target says what we have done wrong.
    TermReq(TermReq),
    /// The target has closed, or the network has failed.
    End,
    /// The target has broken the rules of framing.
    Violation(Violation),
}

/// Why a connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It was refused or closed, or the network has failed.
    Closed,
    /// Nothing has come for long.
    Silent,
    /// Something has come that the rules forbid there.
    Odd,
}

/// One connection.
pub struct Raw {
    rt: Rt,
    stream: TcpStream,
    framer: Framer,
    /// What was agreed about what we send.
    how: Outgoing,
    /// What has come and was not looked at.
    left: Vec<u8>,
    /// The receive in flight.
    receiving: Option<RecvOp>,
    /// A PDU whose data are coming.
    data: Option<(C2HData, Vec<u8>)>,
    /// Nothing can be sent any more.
    stuck: bool,
    next_cid: u16,
}

impl Raw {
    /// A TCP connection on which nothing has been said.
    pub async fn open(rt: &Rt, addr: SocketAddr) -> Result<Self, Gone> {
        let stream = rt.connect(addr).await.map_err(|_| Gone::Closed)?;
        let limits = Limits {
            in_capsule: 0,
            c2h_data: MAX_DATA,
        };
        Ok(Self {
            rt: rt.clone(),
            stream,
            framer: Framer::new(Role::Host, limits),
            how: Outgoing::default(),
            left: Vec::new(),
            receiving: None,
            data: None,
            stuck: false,
            next_cid: 0,
        })
    }

    /// Exchanges ICReq and ICResp.
    pub async fn initialize(&mut self, digests: Digests, patience: Duration) -> Result<(), Gone> {
        let request = ICReq {
            digests,
            ..ICReq::default()
        };
        self.send_bytes(&request.encode()).await;
        let response = match self.next_within(patience).await {
            Some(Incoming::Initialized(response)) => response,
            Some(Incoming::End) => return Err(Gone::Closed),
            Some(_) => return Err(Gone::Odd),
            None => return Err(Gone::Silent),
        };
        let agreed = accept_response(&request, &response).map_err(|_| Gone::Odd)?;
        self.framer.negotiated(&agreed);
        self.how = agreed.outgoing(Role::Host);
        Ok(())
    }

    /// Sends Connect; gives its completion.
    pub async fn connect(
        &mut self,
        connect: Connect,
        cntlid: u16,
        subnqn: Nqn,
        host: &Identity,
        patience: Duration,
    ) -> Result<CompletionQueueEntry, Gone> {
        let data = ConnectData {
            hostid: host.hostid,
            cntlid,
            subnqn,
            hostnqn: host.hostnqn,
        };
        let entry = SubmissionQueueEntry::connect(connect);
        self.command(entry, &data.encode(), patience).await
    }

    /// Sends a command and waits for its completion, which must be the next that comes.
    pub async fn command(
        &mut self,
        entry: SubmissionQueueEntry,
        data: &[u8],
        patience: Duration,
    ) -> Result<CompletionQueueEntry, Gone> {
        let cid = self.submit(entry, data).await;
        match self.next_within(patience).await.ok_or(Gone::Silent)? {
            Incoming::Response(response) if response.cid() == cid => Ok(response),
            Incoming::End => Err(Gone::Closed),
            _ => Err(Gone::Odd),
        }
    }

    /// Sends a capsule with a fresh identifier, and gives that.
    pub async fn submit(&mut self, entry: SubmissionQueueEntry, data: &[u8]) -> u16 {
        let cid = self.fresh_cid();
        let bytes = self.capsule(entry.with_cid(cid), data);
        self.send_bytes(&bytes).await;
        cid
    }

    /// An identifier that was not used recently.
    pub fn fresh_cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// The bytes of a capsule.
    pub fn capsule(&self, entry: SubmissionQueueEntry, data: &[u8]) -> Vec<u8> {
        let mut header = [0; MAX_HEADER];
        let capsule = CapsuleCmd {
            entry,
            data_len: data.len() as u32,
        };
        let len = capsule.encode(self.how, &mut header);
        self.with_data(&header[..len], data)
    }

    /// The bytes of a data PDU.
    pub fn h2c_data(&self, pdu: H2CData, data: &[u8]) -> Vec<u8> {
        let mut header = [0; MAX_HEADER];
        let len = pdu.encode(self.how, &mut header);
        self.with_data(&header[..len], data)
    }

    fn with_data(&self, header: &[u8], data: &[u8]) -> Vec<u8> {
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(data);
        if !data.is_empty() && self.how.digests.data {
            bytes.extend_from_slice(&Crc32c::of(data));
        }
        bytes
    }

    /// Sends what an R2T asks for, in PDUs of `piece` bytes; `data` are those of the whole command.
    pub async fn send_requested(&mut self, r2t: &R2T, data: &[u8], piece: usize) {
        let mut at = r2t.r2to as usize;
        let end = at + r2t.r2tl as usize;
        while at < end {
            let next = end.min(at + piece);
            let pdu = H2CData {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                datao: at as u32,
                datal: (next - at) as u32,
                last: next == end,
            };
            let bytes = self.h2c_data(pdu, &data[at..next]);
            self.send_bytes(&bytes).await;
            at = next;
        }
    }

    /// Sends bytes as they are. If the target has closed, or takes nothing for two minutes, the
    /// next receive says so.
    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        if self.stuck {
            return;
        }
        let mut gather = Gather::new();
        gather.push_bytes(bytes);
        let sent = self.rt.timeout(STUCK, self.stream.send(gather)).await;
        self.stuck = sent.is_none();
    }

    /// The next PDU, or the end, if it comes within `span`. Nothing is lost if it does not.
    pub async fn next_within(&mut self, span: Duration) -> Option<Incoming> {
        let deadline = self.rt.now() + span;
        loop {
            match self.advance() {
                Ok(None) => {}
                Ok(Some(incoming)) => return Some(incoming),
                Err(violation) => return Some(Incoming::Violation(violation)),
            }
            if self.stuck {
                return Some(Incoming::End);
            }
            match self.receive(deadline).await {
                Some(true) => {}
                Some(false) => return Some(Incoming::End),
                None => return None,
            }
        }
    }

    /// Looks at what has come; a PDU that is whole, if there is one.
    fn advance(&mut self) -> Result<Option<Incoming>, Violation> {
        let left = std::mem::take(&mut self.left);
        let mut bytes = &left[..];
        let incoming = loop {
            match self.framer.next(&mut bytes)? {
                None => break None,
                Some(Event::Pdu(Header::CapsuleResp(response))) => {
                    break Some(Incoming::Response(response.entry));
                }
                Some(Event::Pdu(Header::ICResp(response))) => {
                    break Some(Incoming::Initialized(response));
                }
                Some(Event::Pdu(Header::R2T(r2t))) => break Some(Incoming::R2t(r2t)),
                Some(Event::Pdu(Header::TermReq(term))) => break Some(Incoming::TermReq(term)),
                Some(Event::Pdu(Header::C2HData(header))) => {
                    self.data = Some((header, Vec::new()));
                }
                Some(Event::Data(piece)) => {
                    if let Some((_, data)) = &mut self.data {
                        data.extend_from_slice(piece);
                    }
                }
                Some(Event::DataEnd { digest_ok }) => {
                    if let Some((header, data)) = self.data.take() {
                        break Some(Incoming::Data {
                            header,
                            data,
                            digest_ok,
                        });
                    }
                }
                // The framer of a host lets nothing else through.
                Some(Event::Pdu(_)) => {}
            }
        };
        self.left = bytes.to_vec();
        Ok(incoming)
    }

    /// Waits for more bytes until `deadline`; whether there are any, or never will be.
    async fn receive(&mut self, deadline: Time) -> Option<bool> {
        let stream = &self.stream;
        let receiving = self.receiving.get_or_insert_with(|| stream.recv());
        let span = deadline.since(self.rt.now());
        let received = self.rt.timeout(span, &mut *receiving).await?;
        self.receiving = None;
        match received {
            Ok(chunk) if !chunk.is_empty() => {
                self.left.extend_from_slice(&chunk);
                Some(true)
            }
            _ => Some(false),
        }
    }
}
