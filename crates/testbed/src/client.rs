//! A host for tests: one TCP connection, one queue. It sends what it is told, right or wrong, and
//! gives back what comes, PDU by PDU.

use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData, ConnectResponse};
use flashyard_nvme::feature::{AsyncEventConfiguration, FeatureId};
use flashyard_nvme::tcp::{
    C2HData, CapsuleCmd, Crc32c, Digests, Event, Framer, H2CData, Header, ICReq, Limits,
    MAX_HEADER, Outgoing, R2T, Role, TermReq, accept_response,
};
use flashyard_nvme::{CompletionQueueEntry, Nqn, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::{Gather, Rt, TcpStream};
use flashyard_time::Duration;

/// Long for anything that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// What a host says about itself.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) hostnqn: Nqn,
    pub(crate) hostid: [u8; 16],
}

impl Identity {
    pub(crate) fn number(n: u8) -> Self {
        let hostnqn =
            Nqn::new(&format!("nqn.2014-08.org.nvmexpress:uuid:host{n}")).expect("a good name");
        Self {
            hostnqn,
            hostid: [n; 16],
        }
    }
}

/// What came.
#[derive(Debug)]
pub(crate) enum Incoming {
    Response(CompletionQueueEntry),
    Data {
        header: C2HData,
        data: Vec<u8>,
        digest_ok: bool,
    },
    R2t(R2T),
    TermReq(TermReq),
    Other,
    /// The target has closed.
    End,
}

/// One connection.
pub(crate) struct Client {
    rt: Rt,
    stream: TcpStream,
    framer: Framer,
    pub(crate) how: Outgoing,
    left: Vec<u8>,
    next_cid: u16,
}

impl Client {
    /// A TCP connection on which nothing has been said.
    pub(crate) async fn silent(rt: &Rt, addr: std::net::SocketAddr) -> Self {
        let stream = rt.connect(addr).await.expect("the target listens");
        let limits = Limits {
            in_capsule: 0,
            c2h_data: 1 << 20,
        };
        let framer = Framer::new(Role::Host, limits);
        Self {
            rt: rt.clone(),
            stream,
            framer,
            how: Outgoing::default(),
            left: Vec::new(),
            next_cid: 1,
        }
    }

    /// A connection that has exchanged ICReq and ICResp.
    pub(crate) async fn initialized(rt: &Rt, addr: std::net::SocketAddr, digests: Digests) -> Self {
        let mut client = Self::silent(rt, addr).await;
        let request = ICReq {
            digests,
            ..ICReq::default()
        };
        client.send_bytes(&request.encode()).await;
        let Some(Header::ICResp(response)) = client.header().await else {
            panic!("an ICResp")
        };
        let agreed = accept_response(&request, &response).expect("what was asked for");
        client.framer.negotiated(&agreed);
        client.how = agreed.outgoing(Role::Host);
        client
    }

    /// The Admin queue of a new association, enabled.
    pub(crate) async fn admin(
        rt: &Rt,
        addr: std::net::SocketAddr,
        digests: Digests,
        subnqn: &str,
        host: &Identity,
    ) -> (Self, u16) {
        let mut client = Self::initialized(rt, addr, digests).await;
        let connect = Connect {
            sqsize: 31,
            kato: 0,
            ..Connect::default()
        };
        let response = client
            .connect(connect, ConnectData::DYNAMIC, subnqn, host)
            .await;
        assert!(response.status().is_success(), "{response:?}");
        let cntlid = ConnectResponse::from_dw0(response.dw0()).cntlid;
        client.enable().await;
        (client, cntlid)
    }

    /// An I/O queue of `entries`.
    pub(crate) async fn io(
        rt: &Rt,
        addr: std::net::SocketAddr,
        digests: Digests,
        subnqn: &str,
        host: &Identity,
        seat: (u16, u16, u16),
    ) -> Self {
        let (cntlid, qid, entries) = seat;
        let mut client = Self::initialized(rt, addr, digests).await;
        let connect = Connect {
            qid,
            sqsize: entries - 1,
            ..Connect::default()
        };
        let response = client.connect(connect, cntlid, subnqn, host).await;
        assert!(response.status().is_success(), "{response:?}");
        client
    }

    pub(crate) async fn connect(
        &mut self,
        connect: Connect,
        cntlid: u16,
        subnqn: &str,
        host: &Identity,
    ) -> CompletionQueueEntry {
        let data = ConnectData {
            hostid: host.hostid,
            cntlid,
            subnqn: Nqn::new(subnqn).expect("a good name"),
            hostnqn: host.hostnqn,
        };
        self.command(SubmissionQueueEntry::connect(connect), &data.encode())
            .await
    }

    /// CC.EN, with the entry sizes of I/O queues.
    pub(crate) async fn enable(&mut self) {
        let cc = SubmissionQueueEntry::property_set(0x14, false, 0x0046_0001);
        assert!(self.command(cc, &[]).await.status().is_success());
    }

    /// CC.EN to 0.
    pub(crate) async fn disable(&mut self) {
        let cc = SubmissionQueueEntry::property_set(0x14, false, 0x0046_0000);
        assert!(self.command(cc, &[]).await.status().is_success());
    }

    /// Sends a capsule with a fresh identifier, and gives that.
    pub(crate) async fn submit(&mut self, entry: SubmissionQueueEntry, data: &[u8]) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        self.submit_as(cid, entry, data).await;
        cid
    }

    /// Sends a capsule with this identifier.
    pub(crate) async fn submit_as(&mut self, cid: u16, entry: SubmissionQueueEntry, data: &[u8]) {
        let bytes = self.capsule(entry.with_cid(cid), data);
        self.send_bytes(&bytes).await;
    }

    /// The bytes of a capsule.
    pub(crate) fn capsule(&self, entry: SubmissionQueueEntry, data: &[u8]) -> Vec<u8> {
        let mut header = [0; MAX_HEADER];
        let len = CapsuleCmd {
            entry,
            data_len: data.len() as u32,
        }
        .encode(self.how, &mut header);
        self.with_data(&header[..len], data)
    }

    /// The bytes of a data PDU.
    pub(crate) fn h2c_data(&self, pdu: H2CData, data: &[u8]) -> Vec<u8> {
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

    /// Sends bytes as they are. A target that has closed is no error here.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let mut gather = Gather::new();
        gather.push_bytes(bytes);
        drop(self.stream.send(gather).await);
    }

    /// Sends a command and waits for its response, which must be the next.
    pub(crate) async fn command(
        &mut self,
        entry: SubmissionQueueEntry,
        data: &[u8],
    ) -> CompletionQueueEntry {
        let cid = self.submit(entry, data).await;
        let response = self.response().await;
        assert_eq!(response.cid(), cid);
        response
    }

    /// Sends a command that reads; gives what comes.
    pub(crate) async fn fetch(&mut self, entry: SubmissionQueueEntry) -> Result<Vec<u8>, Status> {
        let cid = self.submit(entry, &[]).await;
        match self.next().await {
            Incoming::Response(response) => Err(response.status()),
            Incoming::Data {
                header,
                data,
                digest_ok,
            } => {
                assert!(
                    digest_ok && header.cccid == cid && header.last,
                    "{header:?}"
                );
                if !header.success {
                    let response = self.response().await;
                    assert_eq!((response.cid(), response.status()), (cid, Status::SUCCESS));
                }
                Ok(data)
            }
            other => panic!("data or a response: {other:?}"),
        }
    }

    pub(crate) async fn read(
        &mut self,
        nsid: u32,
        slba: u64,
        blocks: u32,
        block_size: u32,
    ) -> Result<Vec<u8>, Status> {
        let sgl = Sgl::Transport {
            length: blocks * block_size,
        };
        self.fetch(SubmissionQueueEntry::read(
            nsid,
            LbaRange { slba, blocks },
            sgl,
        ))
        .await
    }

    /// Writes with the data in the capsule.
    pub(crate) async fn write_in_capsule(
        &mut self,
        nsid: u32,
        slba: u64,
        data: &[u8],
        block_size: u32,
    ) -> Status {
        let range = LbaRange {
            slba,
            blocks: data.len() as u32 / block_size,
        };
        let sgl = Sgl::InCapsule {
            offset: 0,
            length: data.len() as u32,
        };
        self.command(SubmissionQueueEntry::write(nsid, range, sgl), data)
            .await
            .status()
    }

    /// Writes by R2T, in data PDUs of at most `piece` bytes.
    pub(crate) async fn write_invited(
        &mut self,
        nsid: u32,
        slba: u64,
        data: &[u8],
        block_size: u32,
        piece: usize,
    ) -> Status {
        let range = LbaRange {
            slba,
            blocks: data.len() as u32 / block_size,
        };
        let sgl = Sgl::Transport {
            length: data.len() as u32,
        };
        let cid = self
            .submit(SubmissionQueueEntry::write(nsid, range, sgl), &[])
            .await;
        match self.next().await {
            Incoming::Response(response) => response.status(),
            Incoming::R2t(r2t) => {
                assert_eq!(
                    (r2t.cccid, r2t.r2to, r2t.r2tl as usize),
                    (cid, 0, data.len())
                );
                self.send_invited(&r2t, data, piece).await;
                self.response().await.status()
            }
            other => panic!("an R2T or a response: {other:?}"),
        }
    }

    /// Sends what an R2T asks for.
    pub(crate) async fn send_invited(&mut self, r2t: &R2T, data: &[u8], piece: usize) {
        let mut at = 0;
        while at < data.len() {
            let end = data.len().min(at + piece);
            let pdu = H2CData {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                datao: at as u32,
                datal: (end - at) as u32,
                last: end == data.len(),
            };
            let bytes = self.h2c_data(pdu, &data[at..end]);
            self.send_bytes(&bytes).await;
            at = end;
        }
    }

    /// Asynchronous Event Configuration.
    pub(crate) async fn want_events(&mut self, mask: u32) {
        let configuration = AsyncEventConfiguration(mask).0;
        let command = SubmissionQueueEntry::set_features(
            FeatureId::ASYNC_EVENT_CONFIGURATION.0,
            0,
            configuration,
        );
        assert!(self.command(command, &[]).await.status().is_success());
    }

    /// The next PDU, which must be a response.
    pub(crate) async fn response(&mut self) -> CompletionQueueEntry {
        match self.next().await {
            Incoming::Response(response) => response,
            other => panic!("a response: {other:?}"),
        }
    }

    /// The next PDU, or the end. Panics when nothing comes for a long time.
    pub(crate) async fn next(&mut self) -> Incoming {
        self.next_within(PATIENCE).await.expect("something comes")
    }

    /// The next PDU, or the end, if it comes within `span`.
    pub(crate) async fn next_within(&mut self, span: Duration) -> Option<Incoming> {
        let deadline = self.rt.now() + span;
        let rt = self.rt.clone();
        rt.timeout_at(deadline, self.incoming()).await
    }

    async fn incoming(&mut self) -> Incoming {
        let Some(header) = self.header().await else {
            return Incoming::End;
        };
        match header {
            Header::CapsuleResp(response) => Incoming::Response(response.entry),
            Header::R2T(r2t) => Incoming::R2t(r2t),
            Header::TermReq(term) => Incoming::TermReq(term),
            Header::C2HData(header) => {
                let mut data = Vec::new();
                match self.data(&mut data).await {
                    Some(digest_ok) => Incoming::Data {
                        header,
                        data,
                        digest_ok,
                    },
                    None => Incoming::End,
                }
            }
            // From a hostile host that sent nothing but an ICReq.
            Header::ICResp(_) => Incoming::Other,
            other => panic!("not for a host: {other:?}"),
        }
    }

    async fn header(&mut self) -> Option<Header> {
        loop {
            let left = std::mem::take(&mut self.left);
            let mut bytes = &left[..];
            let event = self
                .framer
                .next(&mut bytes)
                .expect("the target keeps to the rules");
            let header = match event {
                Some(Event::Pdu(header)) => Some(header),
                // What a TermReq quotes.
                Some(Event::Data(_) | Event::DataEnd { .. }) => {
                    self.left = bytes.to_vec();
                    continue;
                }
                None => None,
            };
            self.left = bytes.to_vec();
            if header.is_some() {
                return header;
            }
            if !self.receive().await {
                return None;
            }
        }
    }

    async fn data(&mut self, data: &mut Vec<u8>) -> Option<bool> {
        loop {
            let left = std::mem::take(&mut self.left);
            let mut bytes = &left[..];
            let event = self
                .framer
                .next(&mut bytes)
                .expect("the target keeps to the rules");
            let end = match event {
                Some(Event::Data(piece)) => {
                    data.extend_from_slice(piece);
                    None
                }
                Some(Event::DataEnd { digest_ok }) => Some(digest_ok),
                Some(Event::Pdu(header)) => panic!("data: {header:?}"),
                None => {
                    self.left = bytes.to_vec();
                    if !self.receive().await {
                        return None;
                    }
                    continue;
                }
            };
            self.left = bytes.to_vec();
            if let Some(digest_ok) = end {
                return Some(digest_ok);
            }
        }
    }

    async fn receive(&mut self) -> bool {
        match self.stream.recv().await {
            Ok(chunk) if !chunk.is_empty() => {
                self.left.extend_from_slice(&chunk);
                true
            }
            _ => false,
        }
    }

    /// Waits until the target has closed.
    pub(crate) async fn closed(&mut self) {
        loop {
            if matches!(self.next().await, Incoming::End) {
                return;
            }
        }
    }
}
