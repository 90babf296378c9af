//! One job of the load generator: a thread with a connection of its own (`peer`), and as many tasks
//! as I/Os are to be in flight, each doing one after the other.
//!
//! In the closed loop (the default) an I/O starts when one before it has ended. With a rate, I/Os
//! have intended starts, evenly spaced; one that had to wait because all tasks were busy counts
//! from its intended start, so a stall of the target shows in the latency of everything it held up.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use flashyard_host::{CreditReport, HostError, Payload, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::{Buf, Data, Rt, uring};
use flashyard_time::{Duration, Histogram, Rng, Time};

use super::error::PerfError;
use super::peer::{Connected, Lane, Way};
use super::stop::Stop;
use super::verify::{self, Found, Map};

/// While measuring, the thread polls: a sleep would be part of the figures.
const POLL: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody wants the end.
const LOOK: Duration = Duration::from_ms(100);
/// For so long what is in flight is waited for, when somebody wants the end.
const STOP_PATIENCE: Duration = Duration::from_secs(1);
/// For so long an I/O is tried again that the target interrupts.
const PATIENCE: Duration = Duration::from_secs(60);
/// The descriptor is set by the queue.
const NO_DATA: Sgl = Sgl::Transport { length: 0 };

/// What one job is to do.
pub(super) struct Plan {
    pub(super) way: Way,
    pub(super) job: u16,
    pub(super) jobs: u16,
    pub(super) nsid: u32,
    /// Bytes of an I/O.
    pub(super) block: u32,
    pub(super) depth: u32,
    pub(super) read_percent: u32,
    pub(super) sequential: bool,
    /// CDW13 bits 5:4 of every command.
    pub(super) access_latency: u32,
    /// I/Os to start per second; `None` is the closed loop.
    pub(super) rate: Option<u64>,
    pub(super) verify: bool,
    pub(super) warmup: Duration,
    pub(super) seconds: Duration,
    pub(super) processor: Option<usize>,
    pub(super) seed: u64,
}

impl Plan {
    /// Bound of the memory for buffers that it needs.
    fn buffer_bytes(&self) -> usize {
        let payload = self.depth as usize * (self.block as usize).next_power_of_two();
        2 * payload + (64 << 20)
    }
}

/// What the jobs of a run have in common.
pub(super) struct Shared {
    jobs: u16,
    connected: AtomicU16,
    failed: AtomicBool,
    stop: Arc<Stop>,
    /// I/Os done so far, for the progress line.
    pub(super) operations: AtomicU64,
}

impl Shared {
    pub(super) fn new(jobs: u16, stop: Arc<Stop>) -> Self {
        Self {
            jobs,
            connected: AtomicU16::new(0),
            failed: AtomicBool::new(false),
            stop,
            operations: AtomicU64::new(0),
        }
    }
}

/// What one job did in the time that counts.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) latency: Histogram,
    /// How long that was.
    pub(super) measured: Duration,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) errors: u64,
    /// How often the target wanted to have one again later.
    pub(super) interrupted: u64,
    /// The first error, for people.
    pub(super) first_error: Option<String>,
    /// What the target said that may be outstanding, and what waited here for it.
    pub(super) credit: Option<CreditReport>,
    /// With a rate: I/Os whose intended start came but which were never started.
    pub(super) unsent: u64,
    /// Reads whose content was checked and found good.
    pub(super) verified: u64,
    /// Reads of blocks that are not known to have been written.
    pub(super) unwritten: u64,
    /// Reads that were not what was written.
    pub(super) mismatches: u64,
}

/// Runs one job on this thread.
pub(super) fn run(plan: Plan, shared: Arc<Shared>) -> Result<Outcome, PerfError> {
    let config = uring::Config {
        processor: plan.processor,
        poll: POLL,
        buffer_bytes: plan.buffer_bytes(),
        ..uring::Config::default()
    };
    let failed = Arc::clone(&shared);
    let result = match uring::run(config, |rt| job(rt, plan, shared)) {
        Ok(result) => result,
        Err(error) => Err(PerfError::Core(error)),
    };
    if result.is_err() {
        failed.failed.store(true, Ordering::Relaxed);
    }
    result
}

/// Runs jobs that have nothing else in common together on this thread.
pub(super) fn run_together(plans: Vec<Plan>) -> Result<Vec<Outcome>, PerfError> {
    let shared = Arc::new(Shared::new(plans.len() as u16, Arc::default()));
    let config = uring::Config {
        poll: POLL,
        buffer_bytes: plans.iter().map(Plan::buffer_bytes).sum(),
        ..uring::Config::default()
    };
    let together = |rt: Rt| async move {
        let tasks: Vec<_> = plans
            .into_iter()
            .map(|plan| {
                let shared = Arc::clone(&shared);
                let job = job(rt.clone(), plan, Arc::clone(&shared));
                rt.spawn(async move {
                    job.await
                        .inspect_err(|_| shared.failed.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        let mut outcomes = Vec::new();
        for task in tasks {
            outcomes.push(task.await);
        }
        outcomes.into_iter().collect()
    };
    uring::run(config, together).unwrap_or_else(|error| Err(PerfError::Core(error)))
}

async fn job(rt: Rt, plan: Plan, shared: Arc<Shared>) -> Result<Outcome, PerfError> {
    let connected = plan.way.connect(&rt, plan.nsid).await?;
    let load = Rc::new(Load::new(&rt, &connected, plan, Arc::clone(&shared)).await?);
    if !all_connected(&rt, &shared).await {
        return Err(PerfError::OtherJob);
    }
    load.begin();
    load.shared.stop.measuring();
    let tasks: Vec<_> = (0..load.plan.depth as usize)
        .map(|number| rt.spawn(worker(Rc::clone(&load), number)))
        .collect();
    let mut all = pin!(async {
        for task in tasks {
            task.await;
        }
    });
    while rt.timeout(LOOK, all.as_mut()).await.is_none() && !load.is_given_up() {}
    load.outcome.borrow_mut().credit = connected.credit(load.plan.nsid);
    // A target that does not answer does not answer this either.
    let _ = rt.timeout(STOP_PATIENCE, connected.close()).await;
    Ok(load.finish())
}

/// Waits for the other jobs; whether they are there.
async fn all_connected(rt: &Rt, shared: &Shared) -> bool {
    shared.connected.fetch_add(1, Ordering::Relaxed);
    while shared.connected.load(Ordering::Relaxed) < shared.jobs {
        if shared.failed.load(Ordering::Relaxed) {
            return false;
        }
        rt.sleep(Duration::from_us(100)).await;
    }
    true
}

struct Load {
    rt: Rt,
    plan: Plan,
    shared: Arc<Shared>,
    lanes: Vec<Lane>,
    block_size: u32,
    /// Where this job's share of the namespace begins, and how many I/Os fit it.
    first_block: u64,
    chunks: u64,
    rng: RefCell<Rng>,
    /// The next chunk, in sequence.
    next_chunk: Cell<u64>,
    generation: Cell<u32>,
    map: RefCell<Option<Map>>,
    /// I/Os started, with a rate.
    started: Cell<u64>,
    begin: Cell<Time>,
    count_from: Cell<Time>,
    until: Cell<Time>,
    outcome: RefCell<Outcome>,
    /// The association is gone.
    broken: Cell<bool>,
}

/// One I/O.
#[derive(Clone, Copy)]
struct Io {
    write: bool,
    chunk: u64,
    /// What the chunk holds, or what is written to it.
    generation: u32,
}

impl Load {
    async fn new(
        rt: &Rt,
        connected: &Connected,
        plan: Plan,
        shared: Arc<Shared>,
    ) -> Result<Self, PerfError> {
        let nsid = plan.nsid;
        let namespace = connected.namespace(nsid).await?;
        if namespace.ncap == 0 {
            return Err(PerfError::NoNamespace(nsid));
        }
        let block_size = namespace.block_size().ok_or(PerfError::NoFormat)?;
        if !plan.block.is_multiple_of(block_size) {
            return Err(PerfError::Block(plan.block, block_size));
        }
        if plan.block as usize > connected.max_transfer() {
            return Err(PerfError::TooMuch(plan.block, connected.max_transfer()));
        }
        let per_io = u64::from(plan.block / block_size);
        let chunks = namespace.nsze / u64::from(plan.jobs) / per_io;
        if chunks == 0 {
            return Err(PerfError::TooSmall(plan.jobs, plan.block));
        }
        let map = plan.verify.then(|| Map::new(chunks));
        let chunks = map.as_ref().map_or(chunks, Map::len);
        Ok(Self {
            rt: rt.clone(),
            lanes: connected.lanes(),
            block_size,
            first_block: u64::from(plan.job) * (namespace.nsze / u64::from(plan.jobs)),
            chunks,
            rng: RefCell::new(Rng::new(plan.seed ^ u64::from(plan.job) << 48)),
            next_chunk: Cell::new(0),
            // Not from the seed: what an earlier run wrote must not look like what this one wrote.
            generation: Cell::new(rt.random() as u32 >> 1),
            map: RefCell::new(map),
            started: Cell::new(0),
            begin: Cell::new(Time::ZERO),
            count_from: Cell::new(Time::ZERO),
            until: Cell::new(Time::MAX),
            outcome: RefCell::new(Outcome::default()),
            broken: Cell::new(false),
            plan,
            shared,
        })
    }

    fn begin(&self) {
        let now = self.rt.now();
        self.begin.set(now);
        self.count_from.set(now + self.plan.warmup);
        self.until.set(now + self.plan.warmup + self.plan.seconds);
    }

    /// Whether nothing more is to be started. When somebody wants the end, that is the end.
    fn is_over(&self, now: Time) -> bool {
        if self.shared.stop.is_asked() && now < self.until.get() {
            self.until.set(now);
        }
        now >= self.until.get() || self.broken.get()
    }

    /// Whether somebody wants the end, and what is in flight does not come.
    fn is_given_up(&self) -> bool {
        let now = self.rt.now();
        let over = self.is_over(now);
        over && self.shared.stop.is_asked() && now >= self.until.get() + STOP_PATIENCE
    }

    /// When the next I/O is to start, with a rate.
    fn next_start(&self, rate: u64) -> Time {
        let number = self.started.get();
        self.started.set(number + 1);
        self.begin.get() + Duration::from_secs(1).scale(number, rate)
    }

    /// The next I/O; with `--verify` on a chunk that no other I/O is on, `None` if all are busy.
    fn choose(&self) -> Option<Io> {
        let mut rng = self.rng.borrow_mut();
        let chunk = if self.plan.sequential {
            let chunk = self.next_chunk.get();
            self.next_chunk.set((chunk + 1) % self.chunks);
            chunk
        } else {
            rng.below(self.chunks)
        };
        let write = match self.plan.read_percent {
            0 => true,
            100 => false,
            percent => !rng.chance(u64::from(percent), 100),
        };
        let mut map = self.map.borrow_mut();
        let Some(map) = map.as_mut() else {
            return Some(Io {
                write,
                chunk,
                generation: 0,
            });
        };
        let (chunk, held) = map.claim(chunk)?;
        Some(Io {
            write,
            chunk,
            generation: if write { self.next_generation() } else { held },
        })
    }

    fn next_generation(&self) -> u32 {
        let next = (self.generation.get() + 1) & (u32::MAX >> 1);
        self.generation.set(next);
        next.max(1)
    }

    fn range(&self, chunk: u64) -> LbaRange {
        let blocks = self.plan.block / self.block_size;
        LbaRange {
            slba: self.first_block + chunk * u64::from(blocks),
            blocks,
        }
    }

    /// An I/O, and again if the target says that it was only interrupted.
    async fn insist(&self, lane: &Lane, io: Io) -> Result<(), HostError> {
        let patience = self.rt.now() + PATIENCE;
        loop {
            let result = self.perform(lane, io).await;
            let delay = match result {
                Err(HostError::Status(status)) => lane.retry_delay(status),
                _ => None,
            };
            match delay {
                Some(delay) if self.rt.now() + delay < patience => {
                    self.outcome.borrow_mut().interrupted += 1;
                    self.rt.sleep(delay).await;
                }
                _ => return result,
            }
        }
    }

    async fn perform(&self, lane: &Lane, io: Io) -> Result<(), HostError> {
        let hint = self.plan.access_latency << 4;
        let range = self.range(io.chunk);
        if io.write {
            let entry =
                SubmissionQueueEntry::write(self.plan.nsid, range, NO_DATA).with_cdw(13, hint);
            let data = self.outgoing(io, range)?;
            return lane.command(entry, Payload::Out(data)).await.map(drop);
        }
        let entry = SubmissionQueueEntry::read(self.plan.nsid, range, NO_DATA).with_cdw(13, hint);
        let bytes = self.plan.block as usize;
        let into = if self.plan.verify {
            ReadInto::Buf(Buf::take(bytes).ok_or(HostError::NoBuffer)?)
        } else {
            ReadInto::Discard(bytes)
        };
        let answer = lane.command(entry, Payload::In(into)).await?;
        if let Payload::In(ReadInto::Buf(buf)) = answer.payload {
            self.inspect(&buf, io, range);
        }
        Ok(())
    }

    fn outgoing(&self, io: Io, range: LbaRange) -> Result<Data, HostError> {
        let bytes = self.plan.block as usize;
        if !self.plan.verify {
            return Ok(Data::Zeroes(bytes));
        }
        let mut buf = Buf::take(bytes).ok_or(HostError::NoBuffer)?;
        verify::fill(
            &mut buf,
            self.block_size as usize,
            self.plan.seed,
            range.slba,
            io.generation,
        );
        Ok(Data::Buf(buf))
    }

    fn inspect(&self, buf: &Buf, io: Io, range: LbaRange) {
        let found = verify::check(
            buf,
            self.block_size as usize,
            self.plan.seed,
            range.slba,
            io.generation,
        );
        let mut outcome = self.outcome.borrow_mut();
        match found {
            Found::Good => outcome.verified += 1,
            Found::Unwritten => outcome.unwritten += 1,
            Found::Bad => {
                outcome.mismatches += 1;
                let message = || format!("block {} is not what was written there", range.slba);
                outcome.first_error.get_or_insert_with(message);
            }
        }
    }

    /// Takes note of the end of an I/O, at `now`.
    fn done(&self, io: Io, result: Result<(), HostError>, intended: Time, now: Time) {
        if let Some(map) = self.map.borrow_mut().as_mut() {
            // After a write that failed it is unknown what is there.
            map.release(
                io.chunk,
                if io.write && result.is_err() {
                    0
                } else {
                    io.generation
                },
            );
        }
        self.shared.operations.fetch_add(1, Ordering::Relaxed);
        let mut outcome = self.outcome.borrow_mut();
        match result {
            Err(error) => {
                outcome.errors += 1;
                outcome.first_error.get_or_insert_with(|| error.to_string());
                self.broken
                    .set(self.broken.get() || error.is_path_failure());
            }
            Ok(()) if now >= self.count_from.get() && now <= self.until.get() => {
                outcome.latency.record((now - intended).as_ns());
                if io.write {
                    outcome.writes += 1;
                } else {
                    outcome.reads += 1;
                }
            }
            Ok(()) => {}
        }
    }

    fn finish(&self) -> Outcome {
        let mut outcome = self.outcome.take();
        outcome.measured = self.until.get().since(self.count_from.get());
        if let Some(rate) = self.plan.rate {
            let intended = (self.until.get() - self.begin.get())
                .scale(rate, 1)
                .as_secs();
            outcome.unsent = intended.saturating_sub(self.started.get());
            record_unsent(&mut outcome.latency, outcome.unsent, rate);
        }
        outcome
    }
}

/// I/Os that were never started waited at least from their intended start to the end; without them
/// the latency of a target that cannot keep up would look better than it was.
fn record_unsent(latency: &mut Histogram, unsent: u64, rate: u64) {
    const STEPS: u64 = 1_000;
    let group = unsent.div_ceil(STEPS).max(1);
    let mut waiting = 0;
    while waiting < unsent {
        let size = group.min(unsent - waiting);
        waiting += size;
        latency.record_n(Duration::from_secs(1).scale(waiting, rate).as_ns(), size);
    }
}

async fn worker(load: Rc<Load>, number: usize) {
    let lane = load.lanes[number % load.lanes.len()].clone();
    let mut now = load.rt.now();
    while !load.is_over(now) {
        let intended = match load.plan.rate {
            None => now,
            Some(rate) => {
                let start = load.next_start(rate);
                if start >= load.until.get() {
                    return;
                }
                while start > now && !load.is_over(now) {
                    load.rt.sleep_until(start.min(now + LOOK)).await;
                    now = load.rt.now();
                }
                if load.is_over(now) {
                    return;
                }
                start
            }
        };
        let Some(io) = load.choose() else {
            // More tasks than chunks: let one of the others end.
            load.rt.sleep(Duration::from_us(10)).await;
            now = load.rt.now();
            continue;
        };
        let result = load.insist(&lane, io).await;
        now = load.rt.now();
        load.done(io, result, intended, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_started_counts_as_waiting() {
        let mut latency = Histogram::new();
        record_unsent(&mut latency, 2_500, 1_000);
        assert_eq!(latency.count(), 2_500);
        assert_eq!(
            latency.max(),
            2_500_000_000,
            "the first of them waited 2.5 s"
        );
        assert!(latency.percentile(500_000).abs_diff(1_250_000_000) < 20_000_000);
        record_unsent(&mut latency, 0, 1_000);
        assert_eq!(latency.count(), 2_500);
    }
}
