//! A function whose I/O queues are on several cores, in the simulated world: what the home core
//! answers for holds on all of them.

#[path = "../guest/acts.rs"]
mod acts;
mod lives;
mod over;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;

use flashyard_block::{Device, Info, Io, IoFuture, LentIo, SharedDevice, Tag};
use flashyard_controller::HostId;
use flashyard_engine::Limits;
use flashyard_host::vfio::{Guest, GuestError, GuestOptions};
use flashyard_nvme::aer::AsyncEvent;
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::vfio_user::pci::{BAR0, BAR5, CONFIG, INTX, MSIX};
use flashyard_nvme::vfio_user::{IrqAction, IrqData, Request, SetIrqs};
use flashyard_nvme::{Nqn, Sgl, Status, SubmissionQueueEntry as Entry};
use flashyard_runtime::Rt;
use flashyard_runtime::sim::Config;
use flashyard_runtime::sync::Notify;
use flashyard_runtime::unix::EventCounter;
use flashyard_testbed::{BLOCK, Bench, Scratch, Site, memory, pattern, subnqn};
use flashyard_time::{Duration, Rng};
use flashyard_vfio::{Doorbells, Function, FunctionSpec, offer};

/// Queues 1 and 4 are on the home core 0, 2 on core 1, 3 on core 2.
const CORES: usize = 3;
const GUEST: GuestOptions = GuestOptions {
    queues: 4,
    ..GuestOptions::SMALL
};
/// What is answered without waiting for a device has been answered.
const SOON: Duration = Duration::from_ms(100);

/// A device that holds back what comes with lent memory while it is shut, and everything for a
/// while by chance.
struct Door {
    device: SharedDevice,
    rt: Rt,
    rng: RefCell<Option<Rng>>,
    open: Cell<bool>,
    opened: Notify,
    lent: Cell<usize>,
    copied: Cell<usize>,
}

impl Door {
    fn open(&self) {
        self.open.set(true);
        self.opened.notify_all();
    }

    fn pause(&self) -> impl Future<Output = ()> + 'static {
        let mut rng = self.rng.borrow_mut();
        let pause = rng.as_mut().map_or(0, |rng| rng.below(3000));
        self.rt.sleep(Duration::from_us(pause))
    }
}

/// As it is held by the target.
struct Behind(Rc<Door>);

impl Device for Behind {
    fn info(&self) -> Info {
        self.0.device.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let door = self.0.clone();
        door.copied.set(door.copied.get() + 1);
        let pause = door.pause();
        IoFuture::boxed(async move {
            pause.await;
            door.device.submit(tag, io).await
        })
    }

    fn takes_lent(&self) -> Option<u32> {
        self.0.device.takes_lent()
    }

    fn submit_lent(&self, tag: Tag, io: LentIo) -> IoFuture {
        let door = self.0.clone();
        door.lent.set(door.lent.get() + 1);
        let pause = door.pause();
        IoFuture::boxed(async move {
            pause.await;
            while !door.open.get() {
                door.opened.notified().await;
            }
            door.device.submit_lent(tag, io).await
        })
    }
}

/// A target with a function of several cores.
#[derive(Clone)]
struct World {
    bench: Bench,
    /// Namespace 1, which is at home on core 1.
    door: Rc<Door>,
    function: Rc<RefCell<Option<Function>>>,
    path: PathBuf,
}

fn attach(bench: &Bench, rng: Option<Rng>) -> Rc<Door> {
    let core = 1 % bench.cores.len();
    let door = Rc::new(Door {
        device: memory(16 << 20),
        rt: bench.rts[core].clone(),
        rng: RefCell::new(rng),
        open: Cell::new(true),
        opened: Notify::new(),
        lent: Cell::new(0),
        copied: Cell::new(0),
    });
    bench.attach("a", 1, core, Rc::new(Behind(door.clone())));
    door
}

fn spec(cores: usize) -> FunctionSpec {
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    FunctionSpec {
        subnqn: nqn(&subnqn("a")),
        host: HostId {
            nqn: nqn("nqn.2026-11.test:function"),
            id: [9; 16],
        },
        doorbells: Doorbells::default(),
        cores,
    }
}

/// Runs a test on a target of so many cores. The function ends with it, and nothing is left.
fn run_on<F>(cores: usize, seed: u64, test: impl FnOnce(World) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let config = match seed % 2 {
        0 => Config::stormy(seed),
        _ => Config::calm(seed),
    };
    let site = Site::with_limits(config, cores, Limits::default());
    let scratch = Scratch::new("cores");
    let path = scratch.join("vm.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let door = attach(&site.bench, None);
    let function = offer(&site.bench.cores[0], spec(CORES), listener).expect("it listens");
    site.run(|bench| {
        let world = World {
            bench,
            door,
            function: Rc::new(RefCell::new(Some(function))),
            path,
        };
        let all = world.clone();
        let test = test(world);
        async move {
            test.await;
            all.door.open();
            all.function.take();
        }
    });
}

fn run<F>(test: impl FnOnce(World) -> F)
where
    F: Future<Output = ()> + 'static,
{
    run_on(CORES, 1, test);
}

impl World {
    fn rt(&self) -> &Rt {
        &self.bench.host_rt
    }

    /// Tries until the function has noticed that its last client has gone.
    async fn guest(&self, options: GuestOptions) -> Guest {
        loop {
            match Guest::start(self.rt(), &self.path, options).await {
                Ok(guest) => return guest,
                Err(GuestError::Client(_)) => self.rt().sleep(Duration::from_ms(5)).await,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

fn range(slba: u64, blocks: u32) -> LbaRange {
    LbaRange { slba, blocks }
}

/// What one queue writes every other one reads.
async fn works(guest: &mut Guest, seed: u64) {
    for qid in 1..=GUEST.queues {
        let data = pattern(seed + u64::from(qid), 2 * BLOCK as usize);
        let mut read = vec![0; data.len()];
        let at = range(50, 2);
        guest
            .write((qid, 1), at, (0, &data))
            .await
            .expect("written");
        let other = 1 + qid % GUEST.queues;
        guest
            .read((other, 1), at, (512, &mut read))
            .await
            .expect("read");
        assert!(read == data, "written by {qid}, read by {other}");
    }
}

/// Fills all queues, and does not wait.
async fn busy(guest: &mut Guest) {
    for qid in 1..=GUEST.queues {
        for number in 0..10 {
            let Ok(cid) = guest.take_place(qid) else {
                break;
            };
            let entry = Entry::write(1, range(number * 8, 8), Sgl::Transport { length: 0 });
            guest
                .put_io(qid, (entry, cid), (0, 8 * BLOCK))
                .expect("room");
        }
        guest.ring(qid).await.expect("rung");
    }
}

/// Begins a read by queue 2, which is where the device is.
async fn begin(world: &World, guest: &mut Guest) -> u16 {
    world.door.open.set(false);
    let before = world.door.lent.get();
    let cid = guest.take_place(2).expect("free");
    let entry = Entry::read(1, range(0, 8), Sgl::Transport { length: 0 });
    guest.put_io(2, (entry, cid), (0, 8 * BLOCK)).expect("room");
    guest.ring(2).await.expect("rung");
    while world.door.lent.get() == before {
        guest.status().await.expect("it answers");
        world.rt().sleep(Duration::from_us(10)).await;
    }
    cid
}

/// The memory of queue 2 is lent to the device, which is on the same core; what comes over other
/// queues is copied.
#[test]
fn queues_are_spread_over_cores_and_see_the_same_data() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        works(&mut guest, 1).await;
        let (lent, copied) = (world.door.lent.get(), world.door.copied.get());
        assert_eq!((lent, copied), (2, 6));
        let functions = world.function.borrow();
        let report = functions.as_ref().expect("it is there").report();
        assert_eq!(report.io_queues, 4);
    });
}

#[test]
fn a_target_with_fewer_cores_and_a_guest_with_fewer_queues_work() {
    for cores in [1, 2] {
        run_on(cores, 1, |world| async move {
            let mut guest = world.guest(GUEST).await;
            works(&mut guest, 1).await;
        });
    }
    run(|world| async move {
        let one = GuestOptions { queues: 1, ..GUEST };
        let mut guest = world.guest(one).await;
        let data = pattern(1, BLOCK as usize);
        let written = guest.write((1, 1), range(0, 1), (0, &data)).await;
        written.expect("written");
    });
}

/// The queue is deleted when its commands have been answered, and is made anew on a core that has
/// fewer.
#[test]
fn a_queue_of_another_core_is_deleted_and_made_anew() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        begin(&world, &mut guest).await;
        let cid = guest.take_place(0).expect("room");
        let delete = Entry::delete_io_sq(2).with_cid(cid);
        guest.put(0, &delete).expect("room");
        // A second one is refused, and answered first.
        let second = guest.take_place(0).expect("room");
        guest.put(0, &delete.with_cid(second)).expect("room");
        guest.ring(0).await.expect("rung");
        let refused = guest.completion(0).await.expect("refused");
        let none = Status::INVALID_QUEUE_IDENTIFIER.with_dnr();
        assert_eq!((refused.cid(), refused.status()), (second, none));
        let in_use = guest.admin(Entry::delete_io_cq(2)).await;
        let in_use = matches!(in_use, Err(GuestError::Status(status))
            if status == Status::INVALID_QUEUE_DELETION.with_dnr());
        assert!(in_use);
        world.door.open();
        let done = guest.completion(2).await.expect("of the read");
        assert_eq!(done.status(), Status::SUCCESS);
        let deleted = guest.completion(0).await.expect("deleted");
        assert_eq!((deleted.cid(), deleted.status()), (cid, Status::SUCCESS));
        guest.admin(Entry::delete_io_cq(2)).await.expect("deleted");
        let data = pattern(1, BLOCK as usize);
        for qid in [1, 3, 4] {
            let written = guest.write((qid, 1), range(0, 1), (0, &data)).await;
            written.expect("the others go on");
        }
        guest.disable().await.expect("disabled");
        guest.enable().await.expect("enabled");
        works(&mut guest, 3).await;
    });
}

#[test]
fn a_wrong_doorbell_of_another_core_is_reported() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        let cid = guest.take_place(0).expect("room");
        let request = Entry::async_event_request().with_cid(cid);
        guest.put(0, &request).expect("room");
        guest.ring(0).await.expect("rung");
        let tail = 99u32.to_le_bytes();
        let rung = guest.client.write(BAR0, 0x1000 + 8 * 2, &tail).await;
        rung.expect("taken");
        let event = guest.completion(0).await.expect("an event");
        let value = AsyncEvent::INVALID_DOORBELL_VALUE;
        assert_eq!(event.dw0(), value.dw0());
    });
}

/// Vectors are shared by queues of all cores; one that has no eventfd is pending, and comes when
/// it gets one.
#[test]
fn interrupts_of_other_cores_are_sent_or_pending() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        works(&mut guest, 1).await;
        let counter = EventCounter::new(world.rt()).expect("a counter");
        for _ in 0..2 {
            let gone = irqs(2, 1, IrqData::EventFds);
            let taken = guest.client.ask(&gone, &[]).await;
            taken.expect("taken away");
            begin(&world, &mut guest).await;
            world.door.open();
            world.rt().sleep(SOON).await;
            let pending = guest.client.read(BAR5, 0, 8).await;
            assert_eq!(pending.expect("pending bits"), 1 << 2);
            let set = guest.client.set_eventfd((MSIX, 2), counter.as_fd()).await;
            set.expect("given");
            assert_eq!(counter.wait().await.expect("sent"), 1);
            let pending = guest.client.read(BAR5, 0, 8).await;
            assert_eq!(pending.expect("pending bits"), 0);
        }
        // From now on the other core sends it.
        begin(&world, &mut guest).await;
        world.door.open();
        assert_eq!(counter.wait().await.expect("sent"), 1);
        // Without eventfds for MSI-X all cores interrupt by INTx.
        let taken = guest.client.ask(&irqs(0, 0, IrqData::None), &[]).await;
        taken.expect("taken away");
        let on = guest.client.write(CONFIG, 4, &[0x06, 0x00]).await;
        on.expect("INTx is not disabled");
        let set = guest.client.set_eventfd((INTX, 0), counter.as_fd()).await;
        set.expect("given");
        begin(&world, &mut guest).await;
        world.door.open();
        assert_eq!(counter.wait().await.expect("sent"), 1);
    });
}

/// Takes eventfds of MSI-X away, or sets them.
fn irqs(start: u32, count: u32, data: IrqData<'static>) -> Request<'static> {
    Request::SetIrqs(SetIrqs {
        index: MSIX,
        start,
        count,
        action: IrqAction::Trigger,
        data,
    })
}

/// Nothing of the guest's memory is touched while it is not a bus master, and nothing is lost.
#[test]
fn no_core_fetches_while_the_bus_master_is_off() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        let off = guest.client.write(CONFIG, 4, &[0x02, 0x04]).await;
        off.expect("off");
        for qid in 1..=GUEST.queues {
            let cid = guest.take_place(qid).expect("room");
            let entry = Entry::read(1, range(0, 1), Sgl::Transport { length: 0 });
            guest.put_io(qid, (entry, cid), (0, BLOCK)).expect("room");
            guest.ring(qid).await.expect("rung");
        }
        world.rt().sleep(SOON).await;
        assert_eq!(world.door.lent.get() + world.door.copied.get(), 0);
        let on = guest.client.write(CONFIG, 4, &[0x06, 0x04]).await;
        on.expect("on");
        for qid in 1..=GUEST.queues {
            let done = guest.completion(qid).await.expect("a completion");
            assert_eq!(done.status(), Status::SUCCESS);
        }
    });
}

/// Each core counts for itself.
#[test]
fn interrupts_wait_for_others_on_every_core_and_none_is_lost() {
    run(|world| async move {
        let mut guest = world.guest(GUEST).await;
        let set = Entry::set_features(0x08, 0, 250 << 8 | 7);
        guest.admin(set).await.expect("coalescing");
        for qid in 1..=GUEST.queues {
            let began = world.rt().now();
            let mut block = vec![0; BLOCK as usize];
            let read = guest.read((qid, 1), range(0, 1), (0, &mut block)).await;
            read.expect("it waits, and ends");
            assert!(world.rt().now() - began >= Duration::from_ms(20), "{qid}");
        }
    });
}
