//! One run: connects, keeps so many I/Os in flight for a span of time, and leaves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;

use flashyard_block::{Device, Io, NullDevice, Tag};
use flashyard_host::vfio::{PolledFunction, PolledOptions, PolledQueue};
use flashyard_host::{Association, Payload, Queue, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_testbed::{BLOCK, options};
use flashyard_time::{Duration, Histogram, Rng, Time};

use super::target::{BYTES, Place};
use super::{FrontEnd, Load, refused};
use crate::experiment::Refused;

const NOTHING: Sgl = Sgl::Transport { length: 0 };

/// What a run gave.
pub(super) struct Measured {
    pub(super) iops: f64,
    pub(super) latency: Histogram,
}

/// Where a worker puts its I/Os.
#[derive(Clone)]
enum Lane {
    Tcp(Queue),
    Function(PolledQueue),
    Device(Rc<NullDevice>),
}

/// What the lanes of a run belong to.
enum Held {
    Association(Association),
    Function(Box<PolledFunction>),
    Nothing,
}

/// Runs a load on a thread of its own, which polls.
pub(super) fn run(
    (load, front_end): (Load, FrontEnd),
    (place, span): (&Place, Duration),
    processor: Option<usize>,
) -> Result<Measured, Refused> {
    let place = place.clone();
    let config = Config {
        processor,
        poll: Duration::MAX,
        ..Config::default()
    };
    let runs = thread::spawn(move || {
        uring::run(config, move |rt| async move {
            measure(rt, (load, front_end), place, span).await
        })
    });
    match runs.join() {
        Ok(Ok(measured)) => measured,
        Ok(Err(error)) => Err(refused("the load does not start", error)),
        Err(_) => Err(refused("the load", "a thread has panicked")),
    }
}

async fn measure(
    rt: Rt,
    (load, front_end): (Load, FrontEnd),
    place: Place,
    span: Duration,
) -> Result<Measured, Refused> {
    let (lane, held) = connect(&rt, (load, front_end), &place).await?;
    let begin = rt.now();
    let shared = Rc::new(Shared {
        // What comes first is not measured: pages are touched for the first time.
        from: begin + span / 4,
        until: begin + span / 4 + span,
        rt: rt.clone(),
        load,
        latency: RefCell::new(Histogram::new()),
        failed: Cell::new(false),
    });
    let workers: Vec<_> = (0..load.depth)
        .map(|number| rt.spawn(work(shared.clone(), lane.clone(), number.into())))
        .collect();
    for worker in workers {
        worker.await;
    }
    match held {
        Held::Association(association) => association.close().await,
        Held::Function(function) => function.close().await,
        Held::Nothing => {}
    }
    if shared.failed.get() {
        return Err(refused("the load", "an I/O has failed"));
    }
    let latency = shared.latency.take();
    Ok(Measured {
        iops: latency.count() as f64 * 1e9 / span.as_ns() as f64,
        latency,
    })
}

async fn connect(
    rt: &Rt,
    (load, front_end): (Load, FrontEnd),
    place: &Place,
) -> Result<(Lane, Held), Refused> {
    Ok(match front_end {
        FrontEnd::Tcp => {
            let how = flashyard_host::Options {
                queues: 1,
                depth: load.depth,
                ..options("a", 1)
            };
            let connected = Association::connect(rt, place.address, how).await;
            let association = connected.map_err(|error| refused("NVMe/TCP", error))?;
            let queue = association.queues().swap_remove(0);
            (Lane::Tcp(queue), Held::Association(association))
        }
        FrontEnd::Function => {
            let how = PolledOptions {
                queues: 1,
                depth: load.depth,
                transfer: load.bytes,
                shadow: true,
                mapped: false,
            };
            let started = PolledFunction::start(rt, &place.socket, how, 1).await;
            let function =
                started.map_err(|error| refused("the function", format!("{error:?}")))?;
            let queue = function.queues().swap_remove(0);
            (Lane::Function(queue), Held::Function(Box::new(function)))
        }
        FrontEnd::None => {
            let device = NullDevice::new(BLOCK, BYTES);
            let device = device.map_err(|error| refused("a null device", format!("{error:?}")))?;
            (Lane::Device(Rc::new(device)), Held::Nothing)
        }
    })
}

/// What the workers of a run have in common.
struct Shared {
    rt: Rt,
    load: Load,
    from: Time,
    until: Time,
    latency: RefCell<Histogram>,
    failed: Cell<bool>,
}

async fn work(shared: Rc<Shared>, lane: Lane, seed: u64) {
    let mut rng = Rng::new(seed);
    let blocks = shared.load.bytes / BLOCK;
    let mut began = shared.rt.now();
    let mut number = 0u32;
    while began < shared.until && !shared.failed.get() {
        let slba = rng.below(BYTES / u64::from(BLOCK) - u64::from(blocks));
        if !lane.perform(shared.load, LbaRange { slba, blocks }).await {
            shared.failed.set(true);
        }
        let now = shared.rt.now();
        if now >= shared.from && now < shared.until {
            shared.latency.borrow_mut().record((now - began).as_ns());
        }
        began = now;
        number = number.wrapping_add(1);
        // A device in this process never lets anybody else run.
        if matches!(lane, Lane::Device(_)) && number.is_multiple_of(64) {
            shared.rt.turn_end().await;
            began = shared.rt.now();
        }
    }
}

impl Lane {
    /// Does one I/O; whether it succeeded.
    async fn perform(&self, load: Load, range: LbaRange) -> bool {
        let bytes = load.bytes as usize;
        let (entry, payload) = match load.write {
            true => (
                SubmissionQueueEntry::write(1, range, NOTHING),
                Payload::Out(Data::Zeroes(bytes)),
            ),
            false => (
                SubmissionQueueEntry::read(1, range, NOTHING),
                Payload::In(ReadInto::Discard(bytes)),
            ),
        };
        match self {
            Self::Tcp(queue) => queue.command(entry, payload).await.is_ok(),
            Self::Function(queue) => queue.command(entry, payload).await.is_ok(),
            Self::Device(device) => {
                let Some(buf) = Buf::take(bytes) else {
                    return false;
                };
                let lba = range.slba;
                let io = match load.write {
                    true => Io::Write {
                        lba,
                        data: buf.into(),
                        fua: false,
                    },
                    false => Io::Read { lba, into: buf },
                };
                device.submit(Tag::default(), io).await.is_ok()
            }
        }
    }
}
