//! A target with two tenants on one device of limited speed, and hosts that load it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Deref;
use std::rc::Rc;

use flashyard_block::{Io, MemoryDevice, SharedDevice};
use flashyard_engine::{Class, DeviceHandle, Limits, Switch, TenantSpec, Timed};
use flashyard_host::{Association, HostError, Payload, Queue, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Data, Rt};
use flashyard_sched::Policy;
pub(crate) use flashyard_testbed::options;
use flashyard_testbed::{Paced, tenant};
use flashyard_time::{Duration, Histogram, Rng, Time};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const BLOCKS: u64 = 16_384;

/// A target whose tenants have the same device, each as its namespace 1.
pub(crate) struct Site {
    inner: flashyard_testbed::Site,
    pub(crate) switch: Rc<Switch>,
    device: DeviceHandle,
}

impl Deref for Site {
    type Target = flashyard_testbed::Site;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Site {
    /// The device is at home on the last of `cores`.
    pub(crate) fn new(
        config: Config,
        cores: usize,
        limits: Limits,
        policy: Box<dyn Policy>,
        speed: Speed,
    ) -> Self {
        let inner = flashyard_testbed::Site::with_limits(config, cores, limits);
        let home = &inner.bench.cores[cores - 1];
        let switch = home.add_switch(policy);
        let device = home.add_device(drive(inner.server.rt(cores - 1), speed), &switch);
        for name in ["a", "b"] {
            inner.bench.attach_handle(name, 1, &device);
        }
        Self {
            inner,
            switch,
            device,
        }
    }

    /// For how long all reads have waited for their turn, and were at the device.
    pub(crate) fn reads(&self) -> Timed {
        let home = &self.bench.cores[self.device.core()];
        home.traffic(&self.device).expect("it is there").reads
    }

    /// Says what a tenant may claim.
    pub(crate) fn set_class(&self, id: u32, name: &str, class: Class) {
        let spec = TenantSpec {
            class,
            ..tenant(id, name, &["*"])
        };
        self.bench.target.set_tenant(spec).expect("a good tenant");
    }

    /// Runs a task of the hosts to its end.
    pub(crate) fn run<F: Future + 'static>(&self, main: impl FnOnce(Rt) -> F) -> F::Output {
        self.world.run(&self.hosts, main)
    }
}

/// What a drive takes for an I/O: one of `parts`, which is chosen by the place, for `fixed` and as
/// much for each 4 KiB.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    pub(crate) parts: usize,
    pub(crate) fixed: Duration,
    pub(crate) each: Duration,
}

/// 40,000 reads a second.
pub(crate) const DRIVE: Speed = Speed {
    parts: 4,
    fixed: Duration::from_us(80),
    each: Duration::from_us(20),
};

/// A drive of a speed, in memory.
pub(crate) fn drive(rt: Rt, speed: Speed) -> SharedDevice {
    let bytes = BLOCKS * BLOCK as u64;
    let memory = MemoryDevice::new(BLOCK as u32, bytes).expect("a good size");
    // When each part has done what it was given.
    let free = RefCell::new(vec![Time::ZERO; speed.parts]);
    let pace = move |_, io: &Io| {
        let part = Rng::new(io.lba()).below(speed.parts as u64) as usize;
        let free = &mut free.borrow_mut()[part];
        let pages = io.transfers().div_ceil(BLOCK) as u64;
        *free = (*free).max(rt.now()) + speed.fixed + speed.each * pages;
        rt.sleep_until(*free)
    };
    Rc::new(Paced::new(Rc::new(memory), pace))
}

/// What a load does.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Commands in flight, over all queues.
    pub(crate) depth: usize,
    /// Blocks of each.
    pub(crate) blocks: u32,
    pub(crate) write: bool,
    /// Marked "as soon as possible".
    pub(crate) sensitive: bool,
}

/// More reads than any drive here has a use for.
pub(crate) const BULK: Work = Work {
    depth: 256,
    blocks: 1,
    write: false,
    sensitive: false,
};

/// What came of a load.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) done: Cell<u64>,
    pub(crate) latency: RefCell<Histogram>,
}

/// Loads namespace 1 from now until `until`; what ends after `from` counts.
pub(crate) fn load(
    rt: &Rt,
    association: &Association,
    work: Work,
    (from, until): (Time, Time),
    seed: u64,
) -> impl Future<Output = Rc<Tally>> + use<> {
    let tally = Rc::new(Tally::default());
    let tasks: Vec<_> = (0..work.depth)
        .map(|number| {
            let (rt, tally) = (rt.clone(), Rc::clone(&tally));
            let queue = association.queue(number);
            let mut rng = Rng::new(seed).split(number as u64);
            rt.clone().spawn(async move {
                while rt.now() < until {
                    let begun = rt.now();
                    one(&queue, work, &mut rng).await.expect("it is in order");
                    if begun >= from && rt.now() <= until {
                        tally.done.set(tally.done.get() + 1);
                        let taken = rt.now().since(begun).as_ns();
                        tally.latency.borrow_mut().record(taken);
                    }
                }
            })
        })
        .collect();
    async move {
        for task in tasks {
            task.await;
        }
        tally
    }
}

/// I/Os per second of two hosts side by side, when they have been at work for a while.
pub(crate) async fn rates(rt: &Rt, hosts: [(&Association, Work); 2]) -> [u64; 2] {
    const PARTS: u64 = 4;
    let from = rt.now() + Duration::from_ms(300);
    let span = (from, from + Duration::from_secs(1) / PARTS);
    let mut seed = 0;
    let [first, second] = hosts.map(|(association, work)| {
        seed += 1;
        load(rt, association, work, span, seed)
    });
    [first.await, second.await].map(|tally| tally.done.get() * PARTS)
}

/// One command somewhere.
pub(crate) async fn one(queue: &Queue, work: Work, rng: &mut Rng) -> Result<(), HostError> {
    let slba = rng.below(BLOCKS / u64::from(work.blocks)) * u64::from(work.blocks);
    let range = LbaRange {
        slba,
        blocks: work.blocks,
    };
    let bytes = work.blocks as usize * BLOCK;
    // The queue sets the descriptor.
    let sgl = Sgl::Transport { length: 0 };
    let hint = if work.sensitive { 3 << 4 } else { 0 };
    let (entry, payload) = if work.write {
        let data = Payload::Out(Data::Zeroes(bytes));
        (SubmissionQueueEntry::write(1, range, sgl), data)
    } else {
        let into = Payload::In(ReadInto::Discard(bytes));
        (SubmissionQueueEntry::read(1, range, sgl), into)
    };
    queue
        .command(entry.with_cdw(13, hint), payload)
        .await
        .map(drop)
}
