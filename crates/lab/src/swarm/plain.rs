//! Hosts that speak PDUs and keep to the rules until they end: they check that each command is
//! answered once, verify what they read, abort, answer R2Ts slowly, and end in every way.

use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_host::raw::{Identity, Incoming};
use flashyard_nvme::command::Fuse;
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::tcp::R2T;
use flashyard_nvme::{CompletionQueueEntry, Sgl, Status, SubmissionQueueEntry};
use flashyard_time::{Duration, Time};

use super::content::Ended;
use super::hostile::{Access, Ending, RawAssociation, Stop, digests};
use super::judge::Given;
use super::library::{Host, lba_range, range};
use super::site::{Notes, Site, Volume};
use super::stamp;

/// An answer that is not there after so long never comes: twice the deadlines of the target, and
/// what a device may take.
const PATIENCE: Duration = Duration::from_secs(200);
/// Between two looks at what else is to be done while an answer is awaited.
const LOOK: Duration = Duration::from_secs(1);

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Read {
        begun: u64,
    },
    /// With the data it has to send, if they go by R2T.
    Write {
        write: u32,
        durable: bool,
    },
    Flush {
        begun: u64,
    },
    /// Half of a fused pair that compares, of which nothing is known but that it was answered.
    Half,
}

/// A command that was sent and not answered.
struct Open {
    volume: Rc<Volume>,
    act: Act,
    at: Time,
    lba: u64,
    blocks: u64,
    aborted: bool,
    /// The write of the fused pair that it is a half of.
    pair: Option<u32>,
    /// What a read has brought so far.
    brought: usize,
}

/// One association.
struct Work<'a> {
    host: &'a mut Host,
    association: RawAssociation,
    open: BTreeMap<u16, Open>,
    kept_alive: Time,
}

/// Works until `commands` have been given, or all are to stop.
pub async fn live(mut host: Host, commands: u64) {
    let mut left = commands;
    while left > 0 && host.site.goes_on() {
        let now = 1 + host.rng.below(left);
        left -= now;
        let stop = associate(&mut host, now).await;
        if let Err(Stop::Wrong(wrong)) = &stop {
            host.site
                .notes
                .find(format!("host {}: {wrong}", host.number));
        }
        if stop.is_err() {
            let pause = Duration::from_us(host.rng.below(2_000_000));
            host.rt.sleep(pause).await;
        }
    }
}

/// How a plain or hostile host reaches the target.
pub fn access(host: &Host, kato: Duration) -> Access {
    let volumes = host.site.volumes();
    let theirs = || volumes.iter().filter(|volume| volume.tenant == host.tenant);
    Access {
        rt: host.rt.clone(),
        addr: host.site.addr(),
        subnqn: Site::subnqn(host.tenant),
        host: Identity::number(host.number),
        tenant: host.tenant,
        namespaces: theirs().map(|volume| volume.nsid).max().unwrap_or(1),
        block_size: theirs()
            .map(|volume| volume.block_size)
            .max()
            .unwrap_or(4096),
        kato: kato.as_ms() as u32,
    }
}

async fn associate(host: &mut Host, commands: u64) -> Result<(), Stop> {
    let access = access(host, Duration::from_secs(10));
    let ending = *host.rng.pick(&Ending::ALL).unwrap_or(&Ending::Idle);
    if matches!(
        ending,
        Ending::BeforeIcreq | Ending::AfterIcreq | Ending::DuringConnect
    ) {
        return access.connect_and_end(ending, &mut host.rng).await;
    }
    let is_settled = !host.site.knows(&access.host);
    let (digests, entries) = (digests(&mut host.rng), 8 + host.rng.below(24) as u16);
    let entries = entries.min(host.site.plan.limits.queue_depth);
    let association = access.associate(digests, entries).await?;
    Notes::count(&host.site.notes.connects);
    if is_settled {
        host.site.settle(host.number);
    }
    let kept_alive = host.site.now();
    let mut work = Work {
        host,
        association,
        open: BTreeMap::new(),
        kept_alive,
    };
    let most = (u64::from(entries - 1) / 2).max(1);
    let mut left = commands;
    while left > 0 && work.host.site.goes_on() {
        let batch = (1 + work.host.rng.below(most)).min(left);
        left -= batch;
        work.submit(batch).await;
        work.abort_some().await?;
        work.settle().await?;
    }
    if ending == Ending::Busy && work.host.site.goes_on() {
        // What is open stays open until the host is back.
        work.submit(most).await;
        return Ok(());
    }
    end(work.host, &access, &mut work.association, ending).await
}

/// The last thing that a host does. It must not write data that the checks do not know of.
async fn end(
    host: &mut Host,
    access: &Access,
    association: &mut RawAssociation,
    ending: Ending,
) -> Result<(), Stop> {
    match ending {
        Ending::HalfCapsule | Ending::DataOwed | Ending::Reset => {
            half_way(host, association, ending).await;
            if ending == Ending::Reset {
                let disable = SubmissionQueueEntry::property_set(0x14, false, 0x0046_0000);
                association.admin.submit(disable, &[]).await;
            }
            Ok(())
        }
        Ending::Busy => Ok(()),
        _ => access.end(association, ending, &mut host.rng).await,
    }
}

/// A write that ends half way.
async fn half_way(host: &mut Host, association: &mut RawAssociation, ending: Ending) {
    let Some(volume) = host.site.pick(host.tenant, &mut host.rng) else {
        return;
    };
    let (lba, blocks) = range(&host.site, &volume, &mut host.rng);
    let write = volume
        .content
        .borrow_mut()
        .begin_write(host.number, lba, blocks, false);
    let data = filled(&volume, write, lba, blocks);
    let in_capsule = ending == Ending::HalfCapsule && data.len() <= 8192;
    let entry = write_entry(&volume, lba, blocks, in_capsule).with_cid(association.io.fresh_cid());
    let bytes = association
        .io
        .capsule(entry, if in_capsule { &data } else { &[] });
    let part = match in_capsule {
        true => 1 + host.rng.below(bytes.len() as u64 - 1) as usize,
        false => bytes.len(),
    };
    association.io.send_bytes(&bytes[..part]).await;
    if in_capsule {
        return;
    }
    if let Some(Incoming::R2t(mut r2t)) = association.io.next_within(LOOK).await {
        r2t.r2tl = (r2t.r2tl / 2).max(4);
        if r2t.r2to as usize + r2t.r2tl as usize <= data.len() {
            association.io.send_requested(&r2t, &data, 4096).await;
        }
    }
}

fn filled(volume: &Volume, write: u32, lba: u64, blocks: u64) -> Vec<u8> {
    let block_size = volume.block_size as usize;
    let mut data = vec![0; blocks as usize * block_size];
    stamp::fill(&mut data, block_size, volume.tenant, write, lba);
    data
}

fn write_entry(volume: &Volume, lba: u64, blocks: u64, in_capsule: bool) -> SubmissionQueueEntry {
    let length = blocks as u32 * volume.block_size;
    let sgl = match in_capsule {
        true => Sgl::InCapsule { offset: 0, length },
        false => Sgl::Transport { length },
    };
    SubmissionQueueEntry::write(volume.nsid, lba_range(lba, blocks), sgl)
}

impl Work<'_> {
    /// Sends `count` commands in one go.
    async fn submit(&mut self, count: u64) {
        let mut bytes = Vec::new();
        for _ in 0..count {
            if let Some(volume) = self.host.site.pick(self.host.tenant, &mut self.host.rng) {
                self.push(volume, &mut bytes);
            }
        }
        self.association.io.send_bytes(&bytes).await;
    }

    /// Adds the bytes of one command, or of a fused pair.
    fn push(&mut self, volume: Rc<Volume>, bytes: &mut Vec<u8>) {
        let number = self.host.number;
        let (lba, blocks) = range(&self.host.site, &volume, &mut self.host.rng);
        let rng = &mut self.host.rng;
        let length = blocks as u32 * volume.block_size;
        let fits = length <= self.host.site.plan.limits.in_capsule_bytes;
        let mut content = volume.content.borrow_mut();
        let mut data = Vec::new();
        let (entry, act) = match rng.below(32) {
            0..12 => {
                let sgl = Sgl::Transport { length };
                let entry = SubmissionQueueEntry::read(volume.nsid, lba_range(lba, blocks), sgl);
                (
                    entry,
                    Act::Read {
                        begun: content.begin_read(),
                    },
                )
            }
            12..24 => {
                let write = content.begin_write(number, lba, blocks, false);
                let (in_capsule, durable) = (fits && rng.chance(3, 4), rng.chance(1, 4));
                if in_capsule {
                    data = filled(&volume, write, lba, blocks);
                }
                let entry = write_entry(&volume, lba, blocks, in_capsule);
                let entry = if durable { entry.with_fua() } else { entry };
                (entry, Act::Write { write, durable })
            }
            24..26 => {
                let begun = content.begin_flush();
                (
                    SubmissionQueueEntry::flush(volume.nsid),
                    Act::Flush { begun },
                )
            }
            26..28 => {
                let write = content.begin_write(number, lba, blocks, true);
                let deallocate = rng.chance(1, 2);
                let entry = SubmissionQueueEntry::write_zeroes(
                    volume.nsid,
                    lba_range(lba, blocks),
                    deallocate,
                );
                (
                    entry,
                    Act::Write {
                        write,
                        durable: false,
                    },
                )
            }
            28..30 => {
                let write = content.begin_write(number, lba, blocks, true);
                let range = DsmRange {
                    attributes: 0,
                    blocks: blocks as u32,
                    slba: lba,
                };
                data = range.encode().to_vec();
                let here = Sgl::InCapsule {
                    offset: 0,
                    length: DsmRange::LEN as u32,
                };
                let entry = SubmissionQueueEntry::deallocate(volume.nsid, 1, here);
                (
                    entry,
                    Act::Write {
                        write,
                        durable: false,
                    },
                )
            }
            _ => {
                drop(content);
                return self.push_pair(volume, lba, bytes);
            }
        };
        drop(content);
        let open = self.open(volume, act, (lba, blocks));
        self.add(open, entry, &data, bytes);
    }

    /// A compare of what may be there with a write after it.
    fn push_pair(&mut self, volume: Rc<Volume>, lba: u64, bytes: &mut Vec<u8>) {
        let known = volume.content.borrow().last_write(lba);
        let Some(old) = known else { return };
        let new = volume
            .content
            .borrow_mut()
            .begin_write(self.host.number, lba, 1, false);
        let (was, is) = (filled(&volume, old, lba, 1), filled(&volume, new, lba, 1));
        let here = Sgl::InCapsule {
            offset: 0,
            length: volume.block_size,
        };
        let compare = SubmissionQueueEntry::compare(volume.nsid, lba_range(lba, 1), here);
        let write = write_entry(&volume, lba, 1, true);
        let act = Act::Write {
            write: new,
            durable: false,
        };
        let pair = Some(new);
        let first = self.open(volume.clone(), Act::Half, (lba, 1));
        let second = self.open(volume, act, (lba, 1));
        let (first, second) = (Open { pair, ..first }, Open { pair, ..second });
        self.add(first, compare.with_fuse(Fuse::First), &was, bytes);
        self.add(second, write.with_fuse(Fuse::Second), &is, bytes);
    }

    /// A command that is given now.
    fn open(&self, volume: Rc<Volume>, act: Act, (lba, blocks): (u64, u64)) -> Open {
        Open {
            volume,
            act,
            at: self.host.site.now(),
            lba,
            blocks,
            aborted: false,
            pair: None,
            brought: 0,
        }
    }

    fn add(&mut self, open: Open, entry: SubmissionQueueEntry, data: &[u8], bytes: &mut Vec<u8>) {
        let cid = self.association.io.fresh_cid();
        bytes.extend_from_slice(&self.association.io.capsule(entry.with_cid(cid), data));
        self.open.insert(cid, open);
        Notes::count(&self.host.site.notes.commands);
    }

    async fn abort_some(&mut self) -> Result<(), Stop> {
        if self.host.rng.chance(2, 3) {
            return Ok(());
        }
        let cids: Vec<u16> = self.open.keys().copied().collect();
        for cid in cids {
            if self.host.rng.chance(1, 4) {
                self.note_abort(cid);
                let abort = SubmissionQueueEntry::abort(1, cid);
                self.association.admin.command(abort, &[], PATIENCE).await?;
            }
        }
        Ok(())
    }

    /// Command `cid` may be aborted from now on, and the other half of its pair with it.
    fn note_abort(&mut self, cid: u16) {
        let pair = self.open.get(&cid).and_then(|open| open.pair);
        for open in self.open.values_mut() {
            open.aborted |= pair.is_some() && open.pair == pair;
        }
        if let Some(open) = self.open.get_mut(&cid) {
            open.aborted = true;
        }
    }

    /// Takes what comes until everything was answered.
    async fn settle(&mut self) -> Result<(), Stop> {
        let mut waited = Duration::ZERO;
        while !self.open.is_empty() {
            if self.host.site.notes.is_over() {
                return Err(Stop::Gone);
            }
            self.keep_alive().await?;
            match self.association.io.next_within(LOOK).await {
                None if waited >= PATIENCE => {
                    self.find_silence();
                    return Err(Stop::Gone);
                }
                None => {
                    // Devices and networks may be silent as long as it pleases us.
                    let at_peace = self.host.site.stopping.get() || !self.host.site.plan.may_lose();
                    waited = if at_peace {
                        waited + LOOK
                    } else {
                        Duration::ZERO
                    };
                    continue;
                }
                Some(incoming) => self.take(incoming).await?,
            }
            waited = Duration::ZERO;
        }
        Ok(())
    }

    async fn keep_alive(&mut self) -> Result<(), Stop> {
        if self.host.site.now().since(self.kept_alive) < Duration::from_secs(3) {
            return Ok(());
        }
        let answer = self
            .association
            .admin
            .command(SubmissionQueueEntry::keep_alive(), &[], PATIENCE)
            .await?;
        self.kept_alive = self.host.site.now();
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(Stop::Gone),
        }
    }

    fn find_silence(&self) {
        let Some((cid, open)) = self.open.first_key_value() else {
            return;
        };
        let site = &self.host.site;
        site.notes.find(format!(
            "command {cid} of host {} is not answered {} s after it was given ({} of {} blocks at {} of volume {})",
            self.host.number,
            site.now().since(open.at).as_ms() / 1000,
            open.act.name(),
            open.blocks,
            open.lba,
            open.volume.nsid
        ));
    }

    async fn take(&mut self, incoming: Incoming) -> Result<(), Stop> {
        match incoming {
            Incoming::Response(answer) => self.answered(&answer),
            Incoming::Data {
                header,
                data,
                digest_ok,
            } => {
                let at = header.datao as usize;
                self.brought(header.cccid, at, &data, digest_ok);
                if header.success {
                    self.answered(&CompletionQueueEntry::new(header.cccid, Status::SUCCESS));
                }
            }
            Incoming::R2t(r2t) => self.send(&r2t).await,
            Incoming::End if self.host.site.plan.may_lose() => return Err(Stop::Gone),
            Incoming::End
            | Incoming::TermReq(_)
            | Incoming::Violation(_)
            | Incoming::Initialized(_) => {
                self.host.site.notes.find(format!(
                    "host {} did nothing wrong and gets {incoming:?}",
                    self.host.number
                ));
                return Err(Stop::Gone);
            }
        }
        Ok(())
    }

    async fn send(&mut self, r2t: &R2T) {
        let Some(open) = self.open.get(&r2t.cccid) else {
            return self.host.site.notes.find(format!(
                "an R2T for command {}, which is not open",
                r2t.cccid
            ));
        };
        let Act::Write { write, .. } = open.act else {
            return self.host.site.notes.find(format!(
                "an R2T for command {}, which writes nothing",
                r2t.cccid
            ));
        };
        let data = filled(&open.volume, write, open.lba, open.blocks);
        if r2t.r2to as usize + r2t.r2tl as usize > data.len() {
            return self
                .host
                .site
                .notes
                .find(format!("an R2T for more than command {} has", r2t.cccid));
        }
        if self.host.rng.chance(1, 8) {
            let pause = Duration::from_ms(self.host.rng.below(60));
            self.host.rt.sleep(pause).await;
        }
        let piece = *self
            .host
            .rng
            .pick(&[4096, 9000, 65536, 1 << 20])
            .unwrap_or(&4096);
        self.association
            .io
            .send_requested(r2t, &data, piece & !3)
            .await;
    }

    fn brought(&mut self, cid: u16, at: usize, data: &[u8], digest_ok: bool) {
        let site = &self.host.site;
        let Some(open) = self.open.get_mut(&cid) else {
            return site
                .notes
                .find(format!("data for command {cid}, which is not open"));
        };
        let given = open.given(site);
        let Act::Read { begun } = open.act else {
            return given.find("gets data");
        };
        let block = open.volume.block_size as usize;
        if !digest_ok
            || at != open.brought
            || !at.is_multiple_of(block)
            || !data.len().is_multiple_of(block)
        {
            return given.find("gets data that do not belong together");
        }
        if let Some(stranger) = stamp::stranger(data, open.volume.tenant) {
            given.find(&format!("brings data of tenant {stranger}"));
        }
        let lba = open.lba + (at / block) as u64;
        if open.volume.known
            && let Err(wrong) = open.volume.content.borrow_mut().look(begun, lba, data)
        {
            given.find(&format!("is wrong: {wrong}"));
        }
        open.brought += data.len();
    }

    fn answered(&mut self, answer: &CompletionQueueEntry) {
        let site = self.host.site.clone();
        let Some(open) = self.open.remove(&answer.cid()) else {
            return site.notes.find(format!(
                "command {} is answered and is not open",
                answer.cid()
            ));
        };
        let (given, status) = (open.given(&site), answer.status());
        let fails = status.is(Status::COMPARE_FAILURE) || status.is(Status::ABORTED_FAILED_FUSED);
        let ended = match open.act {
            _ if status.is_success() => Ended::Done {
                durable: matches!(open.act, Act::Write { durable: true, .. }),
            },
            Act::Half if fails => Ended::Nothing,
            Act::Write { .. } if status.is(Status::ABORTED_FAILED_FUSED) => Ended::Nothing,
            _ => given.judge(status),
        };
        let mut content = open.volume.content.borrow_mut();
        match open.act {
            Act::Read { begun } => {
                let whole = open.blocks as usize * open.volume.block_size as usize;
                if status.is_success() && open.brought != whole {
                    given.find("succeeds and has not brought all");
                }
                content.forget_read(begun);
            }
            Act::Write { write, .. } => content.end_write(write, ended),
            Act::Flush { begun } if status.is_success() => content.end_flush(begun),
            Act::Flush { .. } | Act::Half => {}
        }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        for open in self.open.values() {
            if let Act::Read { begun } = open.act {
                open.volume.content.borrow_mut().forget_read(begun);
            }
        }
    }
}

impl Act {
    fn name(self) -> &'static str {
        match self {
            Self::Read { .. } => "a read",
            Self::Write { .. } => "a write",
            Self::Flush { .. } => "a flush",
            Self::Half => "half of a pair",
        }
    }
}

impl Open {
    fn given<'a>(&'a self, site: &'a Site) -> Given<'a> {
        Given {
            site,
            volume: &self.volume,
            what: self.act.name(),
            at: self.at,
            lba: self.lba,
            blocks: self.blocks,
            aborted: self.aborted,
        }
    }
}
