//! Hosts that use our host library, verify all they read, and connect again when they have lost
//! their association.

use std::rc::Rc;

use flashyard_host::raw::Identity;
use flashyard_host::{Association, ConnectError, HostError, Options, Queue, ReadInto};
use flashyard_nvme::Status;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::feature::CompletionCoalescing;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::{Duration, Rng};

use super::content::Ended;
use super::judge::{Given, judge_connect};
use super::site::{Notes, Site, Volume};
use super::stamp;

/// A host and what it needs to work.
#[derive(Clone)]
pub struct Host {
    pub site: Rc<Site>,
    pub rt: Rt,
    pub tenant: usize,
    /// Its number; its identity follows from it.
    pub number: u32,
    pub rng: Rng,
}

/// Works until `commands` have been given, or all are to stop.
pub async fn live(mut host: Host, commands: u64) {
    let mut left = commands;
    while left > 0 && host.site.goes_on() {
        let connected = host.connect().await;
        let Ok(association) = connected else {
            let pause = Duration::from_us(host.rng.below(2_000_000));
            host.rt.sleep(pause).await;
            left -= 1;
            continue;
        };
        let now = 1 + host.rng.below(left);
        left -= now;
        host.use_it(association, now).await;
    }
}

impl Host {
    /// A new association. Writes of the last one do nothing more if the target knew that it was
    /// lost.
    pub async fn connect(&mut self) -> Result<Association, ConnectError> {
        let identity = Identity::number(self.number);
        let is_settled = !self.site.knows(&identity);
        let (options, since) = (self.options(), self.site.now());
        match Association::connect(&self.rt, self.site.addr(), options).await {
            Ok(association) => {
                Notes::count(&self.site.notes.connects);
                if is_settled {
                    self.site.settle(self.number);
                }
                Ok(association)
            }
            Err(error) => {
                judge_connect(&self.site, self.tenant, since, error);
                Err(error)
            }
        }
    }

    fn options(&mut self) -> Options {
        let (rng, identity) = (&mut self.rng, Identity::number(self.number));
        let coalescing = CompletionCoalescing {
            window: rng.below(129) as u8,
            packed: rng.chance(1, 2),
        };
        Options {
            kato: Duration::from_ms(5_000 + rng.below(20_000)),
            header_digest: rng.chance(1, 3),
            data_digest: rng.chance(1, 3),
            queues: 1 + rng.below(3) as u16,
            depth: 2 + rng.below(30) as u16,
            disable_sq_flow_control: rng.chance(1, 4),
            coalescing: rng.chance(1, 4).then_some(coalescing),
            credits: rng.chance(1, 4),
            parda: rng.chance(1, 8).then_some(Duration::from_ms(1)),
            connect_timeout: Duration::from_secs(60),
            command_timeout: Duration::from_secs(30 + rng.below(60)),
            ..Options::new(Site::subnqn(self.tenant), identity.hostnqn, identity.hostid)
        }
    }

    async fn use_it(&mut self, association: Association, commands: u64) {
        let workers = 1 + self.rng.below(8);
        let tasks: Vec<_> = (0..workers)
            .map(|worker| {
                let host = Self {
                    rng: Rng::new(self.rng.next_u64()),
                    ..self.clone()
                };
                let (queue, share) = (
                    association.queue(worker as usize),
                    commands.div_ceil(workers),
                );
                self.rt.spawn(host.work(queue, share))
            })
            .collect();
        if self.rng.chance(1, 6) {
            // It leaves in the middle of its work.
            let span = Duration::from_us(self.rng.below(50_000));
            self.rt.sleep(span).await;
            drop((tasks, association));
            return;
        }
        if self.rng.chance(1, 4)
            && association.namespaces().await.is_err()
            && !self.site.plan.may_lose()
        {
            self.site.notes.find("the list of namespaces cannot be had");
        }
        for task in tasks {
            task.await;
        }
        if self.rng.chance(1, 2) {
            association.close().await;
        }
    }

    async fn work(mut self, queue: Queue, commands: u64) {
        for _ in 0..commands {
            if !self.site.goes_on() || queue.failure().is_some() {
                return;
            }
            let Some(volume) = self.site.pick(self.tenant, &mut self.rng) else {
                self.rt.sleep(Duration::from_ms(10)).await;
                continue;
            };
            self.command(&queue, &volume).await;
            Notes::count(&self.site.notes.commands);
            if self.rng.chance(1, 6) {
                let pause = Duration::from_us(self.rng.below(5_000));
                self.rt.sleep(pause).await;
            }
        }
    }

    async fn command(&mut self, queue: &Queue, volume: &Volume) {
        let (lba, blocks) = range(&self.site, volume, &mut self.rng);
        match self.rng.below(32) {
            0..11 => self.read(queue, volume, lba, blocks).await,
            11..22 => self.write(queue, volume, lba, blocks).await,
            22..24 => self.flush(queue, volume).await,
            24..26 => self.zero(queue, volume, lba, blocks).await,
            26..28 => self.deallocate(queue, volume, lba, blocks).await,
            28..30 => self.compare(queue, volume, lba).await,
            _ if queue.depth() < 2 => self.compare(queue, volume, lba).await,
            _ => self.compare_and_write(queue, volume, lba).await,
        }
    }

    fn given<'a>(
        &'a self,
        volume: &'a Volume,
        what: &'static str,
        lba: u64,
        blocks: u64,
    ) -> Given<'a> {
        Given {
            site: &self.site,
            volume,
            what,
            at: self.site.now(),
            lba,
            blocks,
            aborted: false,
        }
    }

    /// Reads and verifies.
    pub async fn read(&self, queue: &Queue, volume: &Volume, lba: u64, blocks: u64) {
        let given = self.given(volume, "a read", lba, blocks);
        let Some(buf) = Buf::take(blocks as usize * volume.block_size as usize) else {
            return;
        };
        let reading = Reading::begin(volume);
        let read = queue
            .read(volume.nsid, lba_range(lba, blocks), ReadInto::Buf(buf))
            .await;
        match read.map(ReadInto::into_buf) {
            Ok(Some(buf)) => reading.look(&given, &buf),
            Ok(None) => {}
            Err(error) => drop(judged(&given, queue, error)),
        }
    }

    async fn write(&mut self, queue: &Queue, volume: &Volume, lba: u64, blocks: u64) {
        let Some(mut buf) = Buf::take(blocks as usize * volume.block_size as usize) else {
            return;
        };
        let fua = self.rng.chance(1, 4);
        let given = self.given(volume, "a write", lba, blocks);
        let write = volume
            .content
            .borrow_mut()
            .begin_write(self.number, lba, blocks, false);
        stamp::fill(
            &mut buf,
            volume.block_size as usize,
            self.tenant,
            write,
            lba,
        );
        let written = queue
            .write(volume.nsid, lba_range(lba, blocks), Data::Buf(buf), fua)
            .await;
        end(&given, queue, write, fua, written);
    }

    async fn zero(&mut self, queue: &Queue, volume: &Volume, lba: u64, blocks: u64) {
        let deallocate = self.rng.chance(1, 2);
        let given = self.given(volume, "a Write Zeroes", lba, blocks);
        let write = volume
            .content
            .borrow_mut()
            .begin_write(self.number, lba, blocks, true);
        let zeroed = queue
            .write_zeroes(volume.nsid, lba_range(lba, blocks), deallocate)
            .await;
        end(&given, queue, write, false, zeroed);
    }

    async fn deallocate(&mut self, queue: &Queue, volume: &Volume, lba: u64, blocks: u64) {
        let given = self.given(volume, "a deallocation", lba, blocks);
        let write = volume
            .content
            .borrow_mut()
            .begin_write(self.number, lba, blocks, true);
        let range = DsmRange {
            attributes: 0,
            blocks: blocks as u32,
            slba: lba,
        };
        let done = queue.deallocate(volume.nsid, &[range]).await;
        end(&given, queue, write, false, done);
    }

    async fn flush(&mut self, queue: &Queue, volume: &Volume) {
        let given = self.given(volume, "a flush", 0, 0);
        let begun = volume.content.borrow().begin_flush();
        match queue.flush(volume.nsid).await {
            Ok(()) => volume.content.borrow_mut().end_flush(begun),
            Err(error) => drop(judged(&given, queue, error)),
        }
    }

    async fn compare(&mut self, queue: &Queue, volume: &Volume, lba: u64) {
        let known = volume.content.borrow().last_write(lba);
        let (Some(write), Some(mut buf)) = (known, Buf::take(volume.block_size as usize)) else {
            return;
        };
        let given = self.given(volume, "a compare", lba, 1);
        stamp::fill(
            &mut buf,
            volume.block_size as usize,
            self.tenant,
            write,
            lba,
        );
        let reading = Reading::begin(volume);
        let compared = queue
            .compare(volume.nsid, lba_range(lba, 1), Data::Buf(buf))
            .await;
        reading.compared(&given, queue, write, compared);
    }

    async fn compare_and_write(&mut self, queue: &Queue, volume: &Volume, lba: u64) {
        let known = volume.content.borrow().last_write(lba);
        let (Some(old), Some(mut was), Some(mut is)) = (
            known,
            Buf::take(volume.block_size as usize),
            Buf::take(volume.block_size as usize),
        ) else {
            return;
        };
        let given = self.given(volume, "a compare and write", lba, 1);
        let reading = Reading::begin(volume);
        let new = volume
            .content
            .borrow_mut()
            .begin_write(self.number, lba, 1, false);
        stamp::fill(&mut was, volume.block_size as usize, self.tenant, old, lba);
        stamp::fill(&mut is, volume.block_size as usize, self.tenant, new, lba);
        let done = queue
            .compare_and_write(
                volume.nsid,
                lba_range(lba, 1),
                Data::Buf(was),
                Data::Buf(is),
                false,
            )
            .await;
        let ended = match done {
            Ok(()) => Ended::Done { durable: false },
            Err(HostError::Status(status)) if status.is(Status::COMPARE_FAILURE) => Ended::Nothing,
            // The other half failed, and the reason is not reported.
            Err(HostError::Status(status)) if status.is(Status::ABORTED_FAILED_FUSED) => {
                volume.content.borrow_mut().end_write(new, Ended::Unknown);
                return;
            }
            // Which half failed is not reported.
            Err(HostError::Status(_)) => Ended::Unknown,
            Err(_) => {
                reading.compared(&given, queue, old, done);
                return;
            }
        };
        // The write of the pair is one of those that a compare may have met.
        reading.compared(&given, queue, old, done);
        volume.content.borrow_mut().end_write(new, ended);
    }
}

/// A write has been answered, or its association has ended; then it stays open.
fn end(
    given: &Given<'_>,
    queue: &Queue,
    write: u32,
    durable: bool,
    outcome: Result<(), HostError>,
) {
    let ended = match outcome {
        Ok(()) => Ended::Done { durable },
        Err(error) => match judged(given, queue, error) {
            Some(ended) => ended,
            None => return,
        },
    };
    given.volume.content.borrow_mut().end_write(write, ended);
}

/// What a failed command means for a write; nothing when its association has ended and it may still
/// be done.
fn judged(given: &Given<'_>, queue: &Queue, error: HostError) -> Option<Ended> {
    let timeout = Duration::from_secs(30);
    let aborted = given.site.now() >= given.at + timeout || queue.failure().is_some();
    let ended = Given { aborted, ..*given }.judge_error(error);
    (!error.is_path_failure()).then_some(ended)
}

/// A read that is in flight.
pub struct Reading<'a> {
    volume: &'a Volume,
    begun: u64,
}

impl<'a> Reading<'a> {
    pub fn begin(volume: &'a Volume) -> Self {
        let begun = volume.content.borrow_mut().begin_read();
        Self { volume, begun }
    }

    /// Looks at what it brought.
    pub fn look(&self, given: &Given<'_>, bytes: &[u8]) {
        if let Some(stranger) = stamp::stranger(bytes, self.volume.tenant) {
            given.find(&format!("brings data of tenant {stranger}"));
        }
        if self.volume.known
            && let Err(wrong) = self
                .volume
                .content
                .borrow_mut()
                .look(self.begun, given.lba, bytes)
        {
            given.find(&format!("is wrong: {wrong}"));
        }
    }

    fn compared(
        &self,
        given: &Given<'_>,
        queue: &Queue,
        write: u32,
        outcome: Result<(), HostError>,
    ) {
        let differs = |error: &HostError| matches!(error, HostError::Status(status) if status.is(Status::COMPARE_FAILURE));
        let content = self.volume.content.borrow();
        let (may_equal, may_differ) = content.compare(self.begun, write, given.lba, given.blocks);
        match outcome {
            Ok(()) if self.volume.known && !may_equal => given.find("finds what cannot be there"),
            Ok(()) => {}
            Err(error) if differs(&error) => {
                if self.volume.known && !may_differ {
                    given.find("does not find what must be there");
                }
            }
            Err(error) => drop(judged(given, queue, error)),
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.volume.content.borrow_mut().forget_read(self.begun);
    }
}

pub fn lba_range(slba: u64, blocks: u64) -> LbaRange {
    LbaRange {
        slba,
        blocks: blocks as u32,
    }
}

/// Some blocks of a volume: mostly few, mostly near its beginning, so that they overlap.
pub fn range(site: &Site, volume: &Volume, rng: &mut Rng) -> (u64, u64) {
    let block = u64::from(volume.block_size);
    let most = (u64::from(site.plan.most_bytes) / block)
        .min(volume.blocks.get())
        .max(1);
    let blocks = match rng.below(4) {
        0 => 1 + rng.below(most),
        1 => most,
        _ => 1 + rng.below(most.min(16)),
    };
    let span = volume.blocks.get() - blocks;
    let near = if rng.chance(3, 4) { span.min(64) } else { span };
    (rng.below(near + 1), blocks)
}
