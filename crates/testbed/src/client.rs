//! A host for tests: one TCP connection, one queue. An unexpected answer ends the test.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use flashyard_host::raw::{Identity, Incoming, Raw};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::fabrics::{Connect, ConnectData, ConnectResponse};
use flashyard_nvme::feature::{AsyncEventConfiguration, FeatureId};
use flashyard_nvme::tcp::Digests;
use flashyard_nvme::{CompletionQueueEntry, Nqn, Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_time::Duration;

/// Long for anything that should happen at once.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// One connection; it derefs to [`Raw`].
pub struct Client(Raw);

impl Deref for Client {
    type Target = Raw;

    fn deref(&self) -> &Raw {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Raw {
        &mut self.0
    }
}

impl Client {
    /// A TCP connection on which nothing has been said.
    pub async fn silent(rt: &Rt, addr: SocketAddr) -> Self {
        Self(Raw::open(rt, addr).await.expect("the target listens"))
    }

    /// A connection that has exchanged ICReq and ICResp.
    pub async fn initialized(rt: &Rt, addr: SocketAddr, digests: Digests) -> Self {
        let mut client = Self::silent(rt, addr).await;
        let initialized = client.0.initialize(digests, PATIENCE).await;
        initialized.expect("what was asked for");
        client
    }

    /// The Admin queue of a new association, enabled.
    pub async fn admin(
        rt: &Rt,
        addr: SocketAddr,
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

    /// An I/O queue; `seat` is its controller, its number, and how many entries it has.
    pub async fn io(
        rt: &Rt,
        addr: SocketAddr,
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

    /// Sends Connect; gives its completion.
    pub async fn connect(
        &mut self,
        connect: Connect,
        cntlid: u16,
        subnqn: &str,
        host: &Identity,
    ) -> CompletionQueueEntry {
        let subnqn = Nqn::new(subnqn).expect("a good name");
        let connected = self.0.connect(connect, cntlid, subnqn, host, PATIENCE);
        connected.await.expect("an answer to Connect")
    }

    /// CC.EN, with the entry sizes of I/O queues.
    pub async fn enable(&mut self) {
        let cc = SubmissionQueueEntry::property_set(0x14, false, 0x0046_0001);
        assert!(self.command(cc, &[]).await.status().is_success());
    }

    /// CC.EN to 0.
    pub async fn disable(&mut self) {
        let cc = SubmissionQueueEntry::property_set(0x14, false, 0x0046_0000);
        assert!(self.command(cc, &[]).await.status().is_success());
    }

    /// Sends a capsule with this identifier.
    pub async fn submit_as(&mut self, cid: u16, entry: SubmissionQueueEntry, data: &[u8]) {
        let bytes = self.capsule(entry.with_cid(cid), data);
        self.send_bytes(&bytes).await;
    }

    /// Sends a command and waits for its response, which must be the next.
    pub async fn command(
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
    pub async fn fetch(&mut self, entry: SubmissionQueueEntry) -> Result<Vec<u8>, Status> {
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

    /// Reads blocks of `block_size` bytes.
    pub async fn read(
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
    pub async fn write_in_capsule(
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
    pub async fn write_by_r2t(
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
                self.send_requested(&r2t, data, piece).await;
                self.response().await.status()
            }
            other => panic!("an R2T or a response: {other:?}"),
        }
    }

    /// Asynchronous Event Configuration.
    pub async fn want_events(&mut self, mask: u32) {
        let configuration = AsyncEventConfiguration(mask).0;
        let command = SubmissionQueueEntry::set_features(
            FeatureId::ASYNC_EVENT_CONFIGURATION.0,
            0,
            configuration,
        );
        assert!(self.command(command, &[]).await.status().is_success());
    }

    /// The next PDU, which must be a response.
    pub async fn response(&mut self) -> CompletionQueueEntry {
        match self.next().await {
            Incoming::Response(response) => response,
            other => panic!("a response: {other:?}"),
        }
    }

    /// The next PDU, or the end. Panics when nothing comes for a long time.
    pub async fn next(&mut self) -> Incoming {
        self.next_within(PATIENCE).await.expect("something comes")
    }

    /// The next PDU, or the end, if it comes within `span`. Nothing is lost if it does not.
    ///
    /// # Panics
    /// When the target breaks the rules of framing.
    pub async fn next_within(&mut self, span: Duration) -> Option<Incoming> {
        let incoming = self.0.next_within(span).await;
        if let Some(Incoming::Violation(violation)) = incoming {
            panic!("the target breaks the rules: {violation:?}");
        }
        incoming
    }

    /// Waits until the target has closed.
    pub async fn closed(&mut self) {
        loop {
            if matches!(self.next().await, Incoming::End) {
                return;
            }
        }
    }
}
