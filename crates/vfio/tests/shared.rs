//! A virtual machine and a host over NVMe/TCP at one device, in virtual time: with equal weights
//! each gets the same of it, as long as each always has more at the target than the device takes.
//! (Side by side with less the machine gets more, since the host's commands spend a part of their
//! time on the network: 20 % with 2 commands of each, 10 % with 4, 4 % with 8. With `fifo` the one
//! with twice the commands gets twice as much.)

use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixListener;
use std::rc::Rc;

use flashyard_block::{Io, MemoryDevice, SharedDevice};
use flashyard_controller::HostId;
use flashyard_engine::Limits;
use flashyard_host::vfio::{Guest, GuestOptions};
use flashyard_host::{Association, Payload, ReadInto};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Nqn, Sgl, SubmissionQueueEntry};
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Data, Rt};
use flashyard_sched::Fair;
use flashyard_testbed::{Paced, Scratch, Site, options, subnqn};
use flashyard_time::{Duration, Rng, Time};
use flashyard_vfio::{Doorbells, FunctionSpec, offer};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16_384;
/// Parts of the drive that work at the same time.
const PARTS: u64 = 4;
/// Before rates count, and while they do.
const SETTLE: Duration = Duration::from_ms(150);
const COUNTED: Duration = Duration::from_ms(250);

/// What one of both does all the time.
#[derive(Clone, Copy, Debug)]
struct Load {
    depth: u16,
    blocks: u32,
    write: bool,
}

impl Load {
    const fn reads(depth: u16, blocks: u32) -> Self {
        Self {
            depth,
            blocks,
            write: false,
        }
    }

    const fn writes(depth: u16, blocks: u32) -> Self {
        Self {
            write: true,
            ..Self::reads(depth, blocks)
        }
    }

    fn entry(self, rng: &mut Rng) -> SubmissionQueueEntry {
        let blocks = self.blocks;
        let slba = rng.below(BLOCKS / u64::from(blocks)) * u64::from(blocks);
        let (range, sgl) = (LbaRange { slba, blocks }, Sgl::Transport { length: 0 });
        if self.write {
            SubmissionQueueEntry::write(1, range, sgl)
        } else {
            SubmissionQueueEntry::read(1, range, sgl)
        }
    }

    fn bytes(self) -> usize {
        self.blocks as usize * BLOCK
    }
}

/// What was done while it counted.
#[derive(Clone)]
struct Tally {
    rt: Rt,
    span: (Time, Time),
    bytes: Rc<Cell<u64>>,
}

impl Tally {
    fn new(rt: &Rt) -> Self {
        let from = rt.now() + SETTLE;
        Self {
            rt: rt.clone(),
            span: (from, from + COUNTED),
            bytes: Rc::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.rt.now() >= self.span.1
    }

    fn count(&self, load: Load) {
        if self.rt.now() >= self.span.0 && !self.is_over() {
            self.bytes.set(self.bytes.get() + load.bytes() as u64);
        }
    }
}

/// A drive of 40,000 reads of 4 KiB a second, in memory.
fn drive(rt: Rt) -> SharedDevice {
    let memory = MemoryDevice::new(BLOCK as u32, BLOCKS * BLOCK as u64).expect("a good size");
    let free = RefCell::new([Time::ZERO; PARTS as usize]);
    let pace = move |_, io: &Io| {
        let part = Rng::new(io.lba()).below(PARTS) as usize;
        let free = &mut free.borrow_mut()[part];
        let pages = io.transfers().div_ceil(BLOCK) as u64;
        *free = (*free).max(rt.now()) + Duration::from_us(80) + Duration::from_us(20) * pages;
        rt.sleep_until(*free)
    };
    Rc::new(Paced::new(Rc::new(memory), pace))
}

async fn host(association: &Association, load: Load, tally: Tally, seed: u64) {
    let tasks = (0..load.depth).map(|number| {
        let (queue, tally) = (association.queue(number.into()), tally.clone());
        let mut rng = Rng::new(seed).split(number.into());
        tally.rt.clone().spawn(async move {
            while !tally.is_over() {
                let payload = if load.write {
                    Payload::Out(Data::Zeroes(load.bytes()))
                } else {
                    Payload::In(ReadInto::Discard(load.bytes()))
                };
                let done = queue.command(load.entry(&mut rng), payload).await;
                done.expect("it is in order");
                tally.count(load);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await;
    }
}

async fn guest(mut guest: Guest, load: Load, tally: Tally, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut put = |guest: &mut Guest| {
        let cid = guest.take_place(1).expect("room");
        let entry = load.entry(&mut rng);
        let length = load.bytes() as u32;
        guest.put_io(1, (entry, cid), (0, length)).expect("room");
    };
    for _ in 0..load.depth {
        put(&mut guest);
    }
    guest.ring(1).await.expect("rung");
    while !tally.is_over() {
        let done = guest.completion(1).await.expect("a completion");
        assert!(done.status().is_success());
        tally.count(load);
        put(&mut guest);
        guest.ring(1).await.expect("rung");
    }
}

/// Bytes of the guest and of the host beside each other.
fn side_by_side(seed: u64, (vm, tcp): (Load, Load)) -> [u64; 2] {
    let site = Site::with_limits(Config::calm(seed), 1, Limits::default());
    let core = &site.bench.cores[0];
    let switch = core.add_switch(Box::new(Fair::new()));
    let device = core.add_device(drive(site.server.rt(0)), &switch);
    for tenant in ["a", "b"] {
        site.bench.attach_handle(tenant, 1, &device);
    }
    let scratch = Scratch::new("shared");
    let path = scratch.join("vm.sock");
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let spec = FunctionSpec {
        subnqn: nqn(&subnqn("a")),
        host: HostId {
            nqn: nqn("nqn.2026-11.test:function"),
            id: [9; 16],
        },
        doorbells: Doorbells::default(),
        cores: 1,
    };
    let listener = UnixListener::bind(&path).expect("a socket");
    let function = offer(core, spec, listener).expect("it listens");
    site.run(move |bench| async move {
        let rt = bench.host_rt.clone();
        let options_of_guest = GuestOptions {
            ram: 64 << 20,
            queues: 1,
            entries: 66,
            transfer: 64 << 10,
            shadow: false,
            ..GuestOptions::default()
        };
        let machine = Guest::start(&rt, &path, options_of_guest).await;
        let machine = machine.expect("a function that works");
        let association = Association::connect(&rt, bench.addr, options("b", 1)).await;
        let association = association.expect("it listens");
        let tally = [Tally::new(&rt), Tally::new(&rt)];
        let busy = rt.spawn(guest(machine, vm, tally[0].clone(), seed));
        host(&association, tcp, tally[1].clone(), seed + 1).await;
        busy.await;
        drop(association);
        drop(function);
        tally.map(|tally| tally.bytes.get())
    })
}

#[test]
fn a_machine_and_a_host_with_equal_weights_share_a_device_equally() {
    let cases = [
        (Load::reads(32, 1), Load::reads(32, 1)),
        (Load::reads(64, 1), Load::reads(32, 1)),
        (Load::reads(32, 1), Load::reads(64, 1)),
        (Load::reads(32, 4), Load::reads(32, 4)),
        (Load::reads(16, 16), Load::reads(16, 16)),
        (Load::writes(32, 1), Load::writes(32, 1)),
        (Load::writes(32, 4), Load::writes(32, 4)),
        // The host's data follow an R2T.
        (Load::writes(16, 16), Load::writes(16, 16)),
    ];
    for (seed, loads) in (1..).zip(cases) {
        let [vm, tcp] = side_by_side(seed, loads);
        let ratio = vm as f64 / tcp as f64;
        assert!((0.95..1.05).contains(&ratio), "{loads:?}: {vm} {tcp}");
    }
}
