//! Stress over real sockets: hosts by the hundred thousand that a target has to survive.
//! `tests/soak.sh` runs it.
//!
//!   soak PART COUNT SEED SUBNQN-OF-A SUBNQN-OF-B ADDR:PORT...
//!
//! PART is `connects` (associations that end in every way), `random` (random commands over valid
//! framing), `valid` (mostly valid commands, with aborts, resets, halves of capsules and peers that
//! read nothing) or `fresh` (one host of each tenant must be served). Beside the first three a host
//! of tenant B writes and verifies all the time. Exit status 1 when the target does what it may
//! not.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use flashyard_host::raw::Identity;
use flashyard_host::{Association, HostError, Options, Queue, ReadInto};
use flashyard_lab::swarm::hostile::{Access, Ending, Stop, digests};
use flashyard_lab::swarm::stamp;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Nqn, Status, SubmissionQueueEntry};
use flashyard_runtime::{Buf, Data, Rt, uring};
use flashyard_time::{Duration, Rng};

const BLOCK: usize = 4096;
/// Hosts at a time.
const HOSTS: u64 = 32;
/// Blocks that the neighbour uses, and how many at a time.
const AREA: u64 = 256;
const PIECE: u64 = 16;
/// Commands in one send.
const BATCH: u64 = 64;

/// What is to be done.
#[derive(Clone)]
struct Job {
    part: Part,
    seed: u64,
    tenants: [Nqn; 2],
    addrs: Vec<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Connects,
    Random,
    Valid,
    Fresh,
}

/// What all hosts share.
#[derive(Default)]
struct Shared {
    left: Cell<u64>,
    /// Connects, or commands.
    done: Cell<u64>,
    /// Associations that were not had, or lost.
    lost: Cell<u64>,
    verified: Cell<u64>,
    wrong: RefCell<Option<String>>,
}

impl Shared {
    fn find(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(what);
    }

    fn goes_on(&self) -> bool {
        self.left.get() > 0 && self.wrong.borrow().is_none()
    }

    /// Takes up to `most` of what is left to do.
    fn take(&self, most: u64) -> u64 {
        let taken = self.left.get().min(most);
        self.left.set(self.left.get() - taken);
        taken
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((job, count)) = parse(&args) else {
        eprintln!(
            "usage: soak connects|random|valid|fresh COUNT SEED SUBNQN-A SUBNQN-B ADDR:PORT..."
        );
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let shared = Rc::new(Shared::default());
    shared.left.set(count);
    let (watched, part) = (shared.clone(), job.part);
    let ran = uring::run(uring::Config::default(), move |rt| async move {
        match part {
            Part::Fresh => fresh(&rt, &job, &watched).await,
            _ => crowd(&rt, &job, &watched).await,
        }
    });
    if let Err(error) = ran {
        eprintln!("soak: {error}");
        return ExitCode::FAILURE;
    }
    let (done, seconds) = (shared.done.get(), begun.elapsed().as_secs_f64());
    println!(
        "{done} in {seconds:.1} s ({:.0} a second), {} lost, {} verified",
        done as f64 / seconds,
        shared.lost.get(),
        shared.verified.get()
    );
    match shared.wrong.take() {
        None => ExitCode::SUCCESS,
        Some(wrong) => {
            eprintln!("soak: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<(Job, u64)> {
    let [part, count, seed, a, b, addrs @ ..] = args else {
        return None;
    };
    let part = match part.as_str() {
        "connects" => Part::Connects,
        "random" => Part::Random,
        "valid" => Part::Valid,
        "fresh" => Part::Fresh,
        _ => return None,
    };
    let addrs: Option<Vec<_>> = addrs.iter().map(|addr| addr.parse().ok()).collect();
    let job = Job {
        part,
        seed: seed.parse().ok()?,
        tenants: [Nqn::new(a).ok()?, Nqn::new(b).ok()?],
        addrs: addrs.filter(|addrs| !addrs.is_empty())?,
    };
    Some((job, count.parse().ok()?))
}

/// All hosts of tenant A, and the neighbour, until everything has been done.
async fn crowd(rt: &Rt, job: &Job, shared: &Rc<Shared>) {
    let neighbour = rt.spawn(neighbour(rt.clone(), job.clone(), shared.clone()));
    let hosts: Vec<_> = (0..HOSTS)
        .map(|number| rt.spawn(host(rt.clone(), job.clone(), shared.clone(), number)))
        .collect();
    for host in hosts {
        host.await;
    }
    neighbour.await;
}

async fn host(rt: Rt, job: Job, shared: Rc<Shared>, number: u64) {
    let mut rng = Rng::new(job.seed).split(number);
    let access = Access {
        rt: rt.clone(),
        addr: job.addrs[number as usize % job.addrs.len()],
        subnqn: job.tenants[0],
        host: Identity::number(number as u32),
        tenant: 0,
        namespaces: 2,
        block_size: BLOCK as u32,
        kato: 30_000,
    };
    while shared.goes_on() {
        let outcome = match job.part {
            Part::Connects => connect(&access, &shared, &mut rng).await,
            Part::Random => random(&access, &shared, &mut rng).await,
            Part::Valid | Part::Fresh => valid(&access, &shared, &mut rng).await,
        };
        match outcome {
            Ok(()) => {}
            Err(Stop::Wrong(wrong)) => shared.find(format!("host {number}: {wrong}")),
            Err(Stop::Gone) => {
                shared.lost.set(shared.lost.get() + 1);
                rt.sleep(Duration::from_us(100)).await;
            }
        }
    }
}

async fn connect(access: &Access, shared: &Shared, rng: &mut Rng) -> Result<(), Stop> {
    shared.take(1);
    let ending = *rng.pick(&Ending::ALL).unwrap_or(&Ending::Idle);
    // Those that wait for what comes of it take long, and are a part.
    let slow = matches!(
        ending,
        Ending::Violation | Ending::Reset | Ending::Shutdown | Ending::Disconnect
    );
    let ending = if slow && rng.chance(3, 4) {
        Ending::Idle
    } else {
        ending
    };
    let outcome = access.connect_and_end(ending, rng).await;
    shared.done.set(shared.done.get() + 1);
    outcome
}

async fn random(access: &Access, shared: &Shared, rng: &mut Rng) -> Result<(), Stop> {
    let mut association = access.associate(digests(rng), 128).await?;
    let batches = 1 + rng.below(64);
    for _ in 0..batches {
        let count = shared.take(BATCH);
        if count == 0 {
            break;
        }
        let raw = if rng.chance(1, 16) {
            &mut association.admin
        } else {
            &mut association.io
        };
        access.submit_random(raw, rng, count).await;
        shared.done.set(shared.done.get() + count);
        access.take(raw, Duration::from_us(500)).await?;
    }
    Ok(())
}

async fn valid(access: &Access, shared: &Shared, rng: &mut Rng) -> Result<(), Stop> {
    let mut association = access.associate(digests(rng), 128).await?;
    let rounds = 1 + rng.below(32);
    let deaf = rng.chance(1, 32);
    for _ in 0..rounds {
        let count = shared.take(1 + rng.below(BATCH));
        if count == 0 {
            break;
        }
        let mut bytes = Vec::new();
        (0..count).for_each(|_| access.push_usual(&mut association.io, rng, &mut bytes));
        association.io.send_bytes(&bytes).await;
        shared.done.set(shared.done.get() + count);
        if rng.chance(1, 4) {
            let abort = SubmissionQueueEntry::abort(1, rng.below(u64::from(u16::MAX)) as u16);
            association.admin.submit(abort, &[]).await;
            access
                .take(&mut association.admin, Duration::from_us(200))
                .await?;
        }
        if !deaf {
            access
                .take(&mut association.io, Duration::from_us(500))
                .await?;
        }
    }
    if deaf {
        access.rt.sleep(Duration::from_ms(rng.below(2_000))).await;
    }
    let ending = *rng.pick(&Ending::ALL).unwrap_or(&Ending::Idle);
    access.end(&mut association, ending, rng).await
}

/// A host of the undisturbed tenant B: it reads what it has written.
async fn neighbour(rt: Rt, job: Job, shared: Rc<Shared>) {
    let mut rng = Rng::new(job.seed).split(1_000);
    while shared.goes_on() {
        let Some(association) = visit(&rt, &job, &shared, 1).await else {
            return;
        };
        let mut content = vec![None; (AREA / PIECE) as usize];
        let mut write = 1;
        while shared.goes_on() && association.failure().is_none() {
            let place = rng.below(AREA / PIECE);
            let checked = match content[place as usize] {
                Some(known) if rng.chance(1, 2) => read(&association.queue(0), place, known).await,
                _ => {
                    write += 1;
                    content[place as usize] = None;
                    let written = put(&association.queue(0), place, write).await;
                    if written.is_ok() {
                        content[place as usize] = Some(write);
                    }
                    written.map(|()| None)
                }
            };
            match checked {
                Ok(None) => shared.verified.set(shared.verified.get() + 1),
                Ok(Some(wrong)) => shared.find(wrong),
                // The target is full for the moment, and says so.
                Err(HostError::Status(status)) if status.is(Status::COMMAND_INTERRUPTED) => {}
                Err(error) => shared.find(format!("the neighbour was disturbed: {error}")),
            }
            rt.sleep(Duration::from_ms(1)).await;
        }
        association.close().await;
    }
}

async fn visit(rt: &Rt, job: &Job, shared: &Shared, tenant: usize) -> Option<Association> {
    let host = Identity::number(1_000 + tenant as u32);
    let options = Options {
        kato: Duration::from_secs(30),
        ..Options::new(job.tenants[tenant], host.hostnqn, host.hostid)
    };
    match Association::connect(rt, job.addrs[0], options).await {
        Ok(association) => Some(association),
        Err(error) => {
            shared.find(format!(
                "a well-behaved host of tenant {tenant} is not served: {error}"
            ));
            None
        }
    }
}

/// Every tenant has a host that is served, at once.
async fn fresh(rt: &Rt, job: &Job, shared: &Shared) {
    for tenant in 0..2 {
        let Some(association) = visit(rt, job, shared, tenant).await else {
            return;
        };
        let queue = association.queue(0);
        let checked = match put_of(&queue, tenant, 0, 7).await {
            Ok(()) => read_of(&queue, tenant, 0, 7).await,
            Err(error) => Err(error),
        };
        match checked {
            Ok(None) => shared.verified.set(shared.verified.get() + 1),
            Ok(Some(wrong)) => shared.find(wrong),
            Err(error) => shared.find(format!(
                "a new host of tenant {tenant} is not served: {error}"
            )),
        }
        association.close().await;
        shared.done.set(shared.done.get() + 1);
    }
}

async fn put(queue: &Queue, place: u64, write: u32) -> Result<(), HostError> {
    put_of(queue, 1, place, write).await
}

async fn put_of(queue: &Queue, tenant: usize, place: u64, write: u32) -> Result<(), HostError> {
    let mut buf = Buf::take(PIECE as usize * BLOCK).ok_or(HostError::NoBuffer)?;
    let range = piece(place);
    stamp::fill(&mut buf, BLOCK, tenant, write, range.slba);
    queue.write(1, range, Data::Buf(buf), false).await
}

/// What is wrong with what is read, if anything is.
async fn read(queue: &Queue, place: u64, write: u32) -> Result<Option<String>, HostError> {
    read_of(queue, 1, place, write).await
}

async fn read_of(
    queue: &Queue,
    tenant: usize,
    place: u64,
    write: u32,
) -> Result<Option<String>, HostError> {
    let buf = Buf::take(PIECE as usize * BLOCK).ok_or(HostError::NoBuffer)?;
    let range = piece(place);
    let read = queue.read(1, range, ReadInto::Buf(buf)).await?;
    let Some(buf) = read.into_buf() else {
        return Ok(None);
    };
    let blocks = buf.chunks(BLOCK).zip(range.slba..);
    let mut wrong =
        blocks.filter(|(block, lba)| stamp::read(block) != Some(stamp::word(tenant, write, *lba)));
    Ok(wrong
        .next()
        .map(|(_, lba)| format!("block {lba} of tenant {tenant} does not hold what was written")))
}

fn piece(place: u64) -> LbaRange {
    LbaRange {
        slba: place * PIECE,
        blocks: PIECE as u32,
    }
}
