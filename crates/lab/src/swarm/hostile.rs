//! Hosts that break every rule: noise, damaged and mis-ordered PDUs, random commands over valid
//! framing, and every way to end a connection. What they send is drawn from a seed; they hold the
//! target to nothing but that what it sends is well formed and of their own tenant.

use std::net::SocketAddr;

use flashyard_host::raw::{Gone, Identity, Incoming, Raw};
use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::fabrics::{Connect, ConnectData, ConnectResponse};
use flashyard_nvme::feature::FeatureId;
use flashyard_nvme::tcp::{Digests, H2CData, ICReq};
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
pub use flashyard_testbed::hostile::digests;
use flashyard_testbed::hostile::{self, damage, noise};
use flashyard_time::{Duration, Rng};

use super::stamp;

/// How long an answer to Connect is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// CC with the entry sizes of I/O queues, enabled.
const ENABLE: u64 = 0x0046_0001;
const CC: u32 = 0x14;

/// What hostile hosts connect to, and their identity.
#[derive(Clone)]
pub struct Access {
    /// Runs them.
    pub rt: Rt,
    /// The target.
    pub addr: SocketAddr,
    /// The subsystem they may use.
    pub subnqn: Nqn,
    /// Their identity.
    pub host: Identity,
    /// The tenant whose words they may read.
    pub tenant: usize,
    /// Namespaces go from 1 to this.
    pub namespaces: u32,
    /// Bytes per block of those.
    pub block_size: u32,
    /// Keep Alive Timeout, in milliseconds.
    pub kato: u32,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing is said at all.
    BeforeIcreq,
    /// Nothing is said after ICReq and ICResp.
    AfterIcreq,
    /// Connect has been sent and its answer is not waited for.
    DuringConnect,
    /// In the middle of a capsule.
    HalfCapsule,
    /// R2Ts for write data were sent and come in part.
    DataOwed,
    /// A rule is broken.
    Violation,
    /// The controller is reset with commands in flight.
    Reset,
    /// The host asks the controller to shut down.
    Shutdown,
    /// A Disconnect command.
    Disconnect,
    /// Commands are in flight.
    Busy,
    /// Everything was answered.
    Idle,
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::BeforeIcreq,
        Self::AfterIcreq,
        Self::DuringConnect,
        Self::HalfCapsule,
        Self::DataOwed,
        Self::Violation,
        Self::Reset,
        Self::Shutdown,
        Self::Disconnect,
        Self::Busy,
        Self::Idle,
    ];
}

/// What a target did that it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Its PDUs are malformed.
    Framing(flashyard_nvme::tcp::Violation),
    /// The digest of its data does not fit them.
    Digest,
    /// Data of another tenant.
    Stranger(usize),
    /// A host that is not on the list was let in.
    LetIn,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Framing(violation) => write!(f, "the target broke the framing: {violation:?}"),
            Self::Digest => write!(f, "data came with a digest that is not theirs"),
            Self::Stranger(tenant) => write!(f, "data of tenant {tenant} came"),
            Self::LetIn => write!(f, "a host was let in that is not on the list"),
        }
    }
}

/// Why a host stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The target is to blame.
    Wrong(Wrong),
    /// The connection is of no more use; that is no fault of the target.
    Gone,
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// An association as far as it came.
pub struct RawAssociation {
    /// The Admin queue.
    pub admin: Raw,
    /// I/O queue 1.
    pub io: Raw,
    /// Controller Identifier.
    pub cntlid: u16,
}

impl Access {
    /// An Admin queue, enabled.
    pub async fn admin(&self, digests: Digests) -> Result<(Raw, u16), Stop> {
        let mut admin = Raw::open(&self.rt, self.addr).await?;
        admin.initialize(digests, PATIENCE).await?;
        let connect = Connect {
            sqsize: 31,
            kato: self.kato,
            ..Connect::default()
        };
        let answer = admin
            .connect(
                connect,
                ConnectData::DYNAMIC,
                self.subnqn,
                &self.host,
                PATIENCE,
            )
            .await?;
        if !answer.status().is_success() {
            return Err(Stop::Gone);
        }
        let cntlid = ConnectResponse::from_dw0(answer.dw0()).cntlid;
        let enable = SubmissionQueueEntry::property_set(CC, false, ENABLE);
        admin.command(enable, &[], PATIENCE).await?;
        Ok((admin, cntlid))
    }

    /// An I/O queue of that controller.
    pub async fn io(
        &self,
        digests: Digests,
        cntlid: u16,
        qid: u16,
        entries: u16,
    ) -> Result<Raw, Stop> {
        let mut io = Raw::open(&self.rt, self.addr).await?;
        io.initialize(digests, PATIENCE).await?;
        let connect = Connect {
            qid,
            sqsize: entries - 1,
            ..Connect::default()
        };
        let answer = io
            .connect(connect, cntlid, self.subnqn, &self.host, PATIENCE)
            .await?;
        match answer.status().is_success() {
            true => Ok(io),
            false => Err(Stop::Gone),
        }
    }

    /// An association with one I/O queue.
    pub async fn associate(&self, digests: Digests, entries: u16) -> Result<RawAssociation, Stop> {
        let (admin, cntlid) = self.admin(digests).await?;
        let io = self.io(digests, cntlid, 1, entries).await?;
        Ok(RawAssociation { admin, io, cntlid })
    }

    /// Connects to a subsystem that this host may not use.
    pub async fn connect_to_foreign(&self, subnqn: Nqn) -> Result<(), Stop> {
        let mut admin = Raw::open(&self.rt, self.addr).await?;
        admin.initialize(Digests::default(), PATIENCE).await?;
        let connect = Connect {
            sqsize: 31,
            kato: self.kato,
            ..Connect::default()
        };
        let answer = admin
            .connect(connect, ConnectData::DYNAMIC, subnqn, &self.host, PATIENCE)
            .await?;
        match answer.status().is_success() {
            true => Err(Stop::Wrong(Wrong::LetIn)),
            false => Ok(()),
        }
    }

    /// One connect and disconnect, in this way.
    pub async fn connect_and_end(&self, ending: Ending, rng: &mut Rng) -> Result<(), Stop> {
        let digests = digests(rng);
        if ending == Ending::BeforeIcreq {
            drop(Raw::open(&self.rt, self.addr).await?);
            return Ok(());
        }
        if matches!(ending, Ending::AfterIcreq | Ending::DuringConnect) {
            let mut raw = Raw::open(&self.rt, self.addr).await?;
            raw.initialize(digests, PATIENCE).await?;
            if ending == Ending::DuringConnect {
                let data = ConnectData {
                    hostid: self.host.hostid,
                    cntlid: ConnectData::DYNAMIC,
                    subnqn: self.subnqn,
                    hostnqn: self.host.hostnqn,
                };
                let connect = Connect {
                    sqsize: 31,
                    kato: self.kato,
                    ..Connect::default()
                };
                raw.submit(SubmissionQueueEntry::connect(connect), &data.encode())
                    .await;
            }
            return Ok(());
        }
        let mut association = self.associate(digests, 32).await?;
        self.end(&mut association, ending, rng).await
    }

    /// Ends an association in this way.
    pub async fn end(
        &self,
        association: &mut RawAssociation,
        ending: Ending,
        rng: &mut Rng,
    ) -> Result<(), Stop> {
        let RawAssociation { admin, io, .. } = association;
        match ending {
            Ending::BeforeIcreq | Ending::AfterIcreq | Ending::DuringConnect | Ending::Idle => {}
            Ending::HalfCapsule => {
                let entry = self.write(rng, 8, true).with_cid(io.fresh_cid());
                let bytes = io.capsule(entry, &self.data(8));
                let part = 1 + rng.below(bytes.len() as u64 - 1) as usize;
                io.send_bytes(&bytes[..part]).await;
            }
            Ending::DataOwed => {
                io.submit(self.write(rng, 64, false), &[]).await;
                if let Some(Incoming::R2t(r2t)) = io.next_within(Duration::from_secs(1)).await {
                    let owed = r2t.r2tl / 2;
                    let data = self.data(owed);
                    let pdu = H2CData {
                        cccid: r2t.cccid,
                        ttag: r2t.ttag,
                        datao: r2t.r2to,
                        datal: owed,
                        last: false,
                    };
                    let bytes = io.h2c_data(pdu, &data);
                    io.send_bytes(&bytes).await;
                }
            }
            Ending::Violation => {
                let bytes = noise(rng, 200);
                let raw = if rng.chance(1, 2) {
                    &mut *io
                } else {
                    &mut *admin
                };
                raw.send_bytes(&bytes).await;
                self.take(raw, Duration::from_ms(20)).await?;
            }
            Ending::Reset => {
                self.submit_some(io, rng, 8).await;
                let disable = SubmissionQueueEntry::property_set(CC, false, ENABLE & !1);
                admin.submit(disable, &[]).await;
                self.take(admin, Duration::from_ms(20)).await?;
            }
            Ending::Shutdown => {
                let shutdown = SubmissionQueueEntry::property_set(CC, false, ENABLE | 1 << 14);
                admin.submit(shutdown, &[]).await;
                self.take(admin, Duration::from_ms(20)).await?;
            }
            Ending::Disconnect => {
                io.submit(SubmissionQueueEntry::disconnect(), &[]).await;
                self.take(io, Duration::from_ms(20)).await?;
            }
            Ending::Busy => self.submit_some(io, rng, 16).await,
        }
        Ok(())
    }

    /// Sends some commands of the usual kinds.
    pub async fn submit_some(&self, io: &mut Raw, rng: &mut Rng, most: u64) {
        let mut bytes = Vec::new();
        for _ in 0..=rng.below(most) {
            self.push_usual(io, rng, &mut bytes);
        }
        io.send_bytes(&bytes).await;
    }

    /// Adds the bytes of a command, or of a fused pair, that a well-meaning host could send.
    pub fn push_usual(&self, io: &mut Raw, rng: &mut Rng, bytes: &mut Vec<u8>) {
        let blocks = 1 << rng.below(9);
        let small = blocks * self.block_size <= 8192;
        let mut add = |entry: SubmissionQueueEntry, data: &[u8]| {
            let entry = entry.with_cid(io.fresh_cid());
            bytes.extend_from_slice(&io.capsule(entry, data));
        };
        match rng.below(10) {
            0..4 => add(self.read(rng, blocks), &[]),
            4..6 if small => add(
                self.write(rng, blocks, true),
                &self.data(blocks * self.block_size),
            ),
            4..7 => add(self.write(rng, blocks, false), &[]),
            7 => add(SubmissionQueueEntry::flush(self.nsid(rng)), &[]),
            8 => {
                let zeroes = SubmissionQueueEntry::write_zeroes(
                    self.nsid(rng),
                    range(rng, blocks),
                    rng.chance(1, 2),
                );
                add(zeroes, &[]);
            }
            _ => {
                let (nsid, range) = (self.nsid(rng), range(rng, 1));
                let (length, data) = (self.block_size, self.data(self.block_size));
                let here = Sgl::InCapsule { offset: 0, length };
                let compare = SubmissionQueueEntry::compare(nsid, range, here);
                let write = SubmissionQueueEntry::write(nsid, range, here);
                add(compare.with_fuse(Fuse::First), &data);
                add(write.with_fuse(Fuse::Second), &data);
            }
        }
    }

    /// One step of a chaotic host on a connection: sends a PDU, right or wrong.
    pub async fn send_any_pdu(&self, raw: &mut Raw, rng: &mut Rng) {
        let mut bytes = self.pdu(raw, rng);
        if rng.chance(1, 8) {
            damage(&mut bytes, rng);
        }
        raw.send_bytes(&bytes).await;
    }

    /// Random commands over valid framing: `count` of them in one send.
    pub async fn submit_random(&self, raw: &mut Raw, rng: &mut Rng, count: u64) {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let len = if rng.chance(3, 4) {
                0
            } else {
                512 * rng.below(17) as u32
            };
            bytes.extend_from_slice(&raw.capsule(self.random(rng), &self.data(len)));
        }
        raw.send_bytes(&bytes).await;
    }

    /// Takes what comes until nothing has for `span`; how many answers there were.
    pub async fn take(&self, raw: &mut Raw, span: Duration) -> Result<u64, Stop> {
        let mut answers = 0;
        while let Some(incoming) = raw.next_within(span).await {
            match incoming {
                Incoming::Response(_) => answers += 1,
                Incoming::Data {
                    data, digest_ok, ..
                } => self.look(&data, digest_ok)?,
                Incoming::R2t(r2t) => {
                    // It has the length that was asked for, which may be any.
                    let data = self.data(r2t.r2to + r2t.r2tl.min(4 << 20));
                    if r2t.r2tl <= 4 << 20 {
                        raw.send_requested(&r2t, &data, 32 << 10).await;
                    }
                }
                Incoming::Violation(violation) => {
                    return Err(Stop::Wrong(Wrong::Framing(violation)));
                }
                Incoming::End => return Err(Stop::Gone),
                Incoming::Initialized(_) | Incoming::TermReq(_) => {}
            }
        }
        Ok(answers)
    }

    fn look(&self, data: &[u8], digest_ok: bool) -> Result<(), Stop> {
        if !digest_ok {
            return Err(Stop::Wrong(Wrong::Digest));
        }
        match stamp::stranger(data, self.tenant) {
            Some(tenant) => Err(Stop::Wrong(Wrong::Stranger(tenant))),
            None => Ok(()),
        }
    }

    fn pdu(&self, raw: &mut Raw, rng: &mut Rng) -> Vec<u8> {
        match rng.below(24) {
            0 => ICReq::default().encode().to_vec(),
            1 => noise(rng, 200),
            2 | 3 => {
                let pdu = hostile::data(rng);
                raw.h2c_data(pdu, &self.data(pdu.datal))
            }
            4..16 => {
                let mut bytes = Vec::new();
                self.push_usual(raw, rng, &mut bytes);
                bytes
            }
            _ => {
                let len = if rng.chance(1, 2) {
                    0
                } else {
                    512 * rng.below(17) as u32
                };
                raw.capsule(self.random(rng), &self.data(len))
            }
        }
    }

    /// An Admin command of those that hosts send now and then.
    pub fn administrative(&self, rng: &mut Rng) -> SubmissionQueueEntry {
        let sgl = Sgl::Transport { length: 4096 };
        match rng.below(8) {
            0 => SubmissionQueueEntry::identify(rng.below(8) as u8, self.nsid(rng), 0, 0, sgl),
            1 => SubmissionQueueEntry::get_log_page(
                1 + rng.below(5) as u8,
                self.nsid(rng),
                0,
                4096,
                rng.chance(1, 2),
                sgl,
            ),
            2 => SubmissionQueueEntry::get_features(
                1 + rng.below(16) as u8,
                rng.below(4) as u8,
                self.nsid(rng),
            ),
            3 => {
                let features = [
                    FeatureId::COMPLETION_COALESCING,
                    FeatureId::COMMAND_CREDITS,
                    FeatureId::ASYNC_EVENT_CONFIGURATION,
                ];
                let feature = rng.pick(&features).map_or(7, |feature| feature.0);
                SubmissionQueueEntry::set_features(feature, 0, rng.below(300) as u32)
            }
            4 => SubmissionQueueEntry::async_event_request(),
            5 => SubmissionQueueEntry::property_get(0x1c, false),
            6 => SubmissionQueueEntry::abort(1, rng.below(70) as u16),
            _ => SubmissionQueueEntry::keep_alive(),
        }
    }

    fn random(&self, rng: &mut Rng) -> SubmissionQueueEntry {
        hostile::command(rng, self.namespaces, self.block_size)
    }

    fn nsid(&self, rng: &mut Rng) -> u32 {
        1 + rng.below(u64::from(self.namespaces)) as u32
    }

    fn read(&self, rng: &mut Rng, blocks: u32) -> SubmissionQueueEntry {
        let length = blocks * self.block_size;
        SubmissionQueueEntry::read(
            self.nsid(rng),
            range(rng, blocks),
            Sgl::Transport { length },
        )
    }

    fn write(&self, rng: &mut Rng, blocks: u32, in_capsule: bool) -> SubmissionQueueEntry {
        let length = blocks * self.block_size;
        let sgl = match in_capsule {
            true => Sgl::InCapsule { offset: 0, length },
            false => Sgl::Transport { length },
        };
        let entry = SubmissionQueueEntry::write(self.nsid(rng), range(rng, blocks), sgl);
        if rng.chance(1, 8) {
            entry.with_fua()
        } else {
            entry
        }
    }

    /// Bytes that say whose they are.
    fn data(&self, len: u32) -> Vec<u8> {
        let word = stamp::word(self.tenant, 0, 0).to_le_bytes();
        word.iter().copied().cycle().take(len as usize).collect()
    }
}

fn range(rng: &mut Rng, blocks: u32) -> LbaRange {
    LbaRange {
        slba: rng.below(256),
        blocks,
    }
}
