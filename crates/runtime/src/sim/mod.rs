//! The simulated world: machines with cores, a network between them and disks in them, in virtual
//! time. One seed decides the order of tasks, every latency, every fault; the same seed gives the
//! same trace.
//!
//! ```
//! use flashyard_runtime::sim::{Config, World};
//! use flashyard_runtime::{Gather, Rt};
//! use flashyard_time::Duration;
//!
//! let world = World::new(Config::stormy(7));
//! let (server, client) = (world.machine(1), world.machine(1));
//! let listener = server.rt(0).listen("0.0.0.0:80".parse().unwrap()).unwrap();
//! server.rt(0).spawn(async move {
//!     let stream = listener.accept().await.unwrap();
//!     let mut hello = Gather::new();
//!     hello.push_bytes(b"hello");
//!     stream.send(hello).await.0.unwrap();
//! }).detach();
//! let received = world.run(&client, |rt: Rt| async move {
//!     let stream = rt.connect("10.0.0.1:80".parse().unwrap()).await.unwrap();
//!     let mut received = Vec::new();
//!     loop {
//!         let chunk = stream.recv().await.unwrap();
//!         if chunk.is_empty() { return received }
//!         received.extend_from_slice(&chunk);
//!     }
//! });
//! assert_eq!(received, b"hello");
//! ```
//!
//! Time passes in three ways: turns of a core take a little ([`Config::turn`]), the network and the
//! disks take their latencies, and when nothing can happen the clock jumps to the next timer.
//! Network and disks are models of what programs may rely on, not of hardware: TCP keeps order and
//! loses nothing until a connection ends, a disk keeps what was synced.
//!
//! Map: the loop in `world`; what everything there needs in `context`; TCP in `network`,
//! `connection`, `pipe`; disks in `disk`, `medium`, `store`, `zones`; the boundary to the executor
//! in `driver`.

mod config;
mod connection;
mod context;
mod disk;
mod driver;
mod inspect;
mod medium;
mod network;
mod pipe;
mod store;
mod trace;
mod world;
mod zones;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use flashyard_time::{Duration, Time};

pub use self::config::{Config, DiskConfig, Toll};
pub use self::disk::Access;
pub use self::inspect::Disk;
use self::world::{Shared, Simulation, Step};
pub use self::zones::ZoneConfig;
use crate::{FileKind, Rt};

/// The world. Dropping it ends everything in it. What can be done to it while it runs is at
/// [`WorldHandle`].
pub struct World {
    handle: WorldHandle,
}

/// A handle on the world for those inside: tasks may own it. Not for programs under test, of
/// course.
#[derive(Clone)]
pub struct WorldHandle {
    shared: Rc<Shared>,
}

/// One simulated machine. Its disks and files survive its crashes, its programs and connections do
/// not.
#[derive(Clone)]
pub struct Machine {
    shared: Rc<Shared>,
    number: usize,
    cores: usize,
}

impl World {
    /// An empty world. It sets the bound of the pool that this thread takes buffers from outside of
    /// all cores.
    pub fn new(config: Config) -> Self {
        crate::memory::set_bound(config.buffer_bytes);
        Self {
            handle: WorldHandle {
                shared: Shared::new(config),
            },
        }
    }

    /// Adds a machine with `cores` cores, reachable at the IPv4 address 10.0.0.N (N from 1 in order
    /// of adding) and at 127.0.0.1 by itself.
    pub fn machine(&self, cores: usize) -> Machine {
        let shared = self.handle.shared.clone();
        let number = shared.add_machine(cores);
        Machine {
            shared,
            number,
            cores,
        }
    }

    /// Runs the world until `main` (a task of core 0 of `machine`) ends.
    ///
    /// # Panics
    /// With seed and time when nothing can happen any more (deadlock), when the machine of `main`
    /// crashes, and after [`Config::max_steps`].
    pub fn run<F, M>(&self, machine: &Machine, main: M) -> F::Output
    where
        M: FnOnce(Rt) -> F,
        F: Future + 'static,
    {
        let rt = machine.rt(0);
        let core = rt.core.clone();
        let task = rt.spawn(main(rt.clone()));
        while !task.is_finished() {
            let step = self.shared.step(Time::MAX);
            assert!(step != Step::Never, "deadlock: {}", self.shared.describe());
            let now = self.shared.core(machine.number, 0);
            assert!(
                now.is_some_and(|now| Rc::ptr_eq(&now, &core)),
                "the machine of the main task crashed: {}",
                self.shared.describe()
            );
        }
        match pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("the task has just been seen finished"),
        }
    }

    /// Runs the world for a while, whether or not anything happens.
    pub fn run_for(&self, span: Duration) {
        let until = self.now() + span;
        while self.shared.step(until) == Step::Happened {}
        self.shared.simulation().sim.now = until;
    }

    /// A handle for tasks.
    pub fn handle(&self) -> WorldHandle {
        self.handle.clone()
    }
}

impl Deref for World {
    type Target = WorldHandle;

    fn deref(&self) -> &WorldHandle {
        &self.handle
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulated world: {}", self.shared.describe());
        }
        self.shared.end();
    }
}

impl WorldHandle {
    /// Virtual time.
    pub fn now(&self) -> Time {
        self.shared.simulation().sim.now
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.shared.simulation().sim.config.seed
    }

    /// A number over everything that has happened so far, in order: equal digests, equal histories.
    pub fn digest(&self) -> u64 {
        self.shared.simulation().sim.trace.digest()
    }

    /// How many events the digest is made of.
    pub fn events(&self) -> u64 {
        self.shared.simulation().sim.trace.events()
    }

    /// The core that turns is busy for so much longer. For what stands in for work in an
    /// experiment; what it sends in this turn from here on leaves so much later.
    pub fn spend(&self, span: Duration) {
        self.shared.simulation().sim.spend(span);
    }

    /// The number of sends so far, on all machines.
    pub fn sends(&self) -> u64 {
        self.shared.simulation().sim.sends()
    }

    /// From now on nothing passes between two machines. Nothing is lost either: it is as if every
    /// packet had to be sent again until the partition is healed.
    pub fn partition(&self, a: &Machine, b: &Machine) {
        self.shared.simulation().network.part(a.number, b.number);
    }

    /// Ends a partition.
    pub fn heal(&self, a: &Machine, b: &Machine) {
        let Simulation { sim, network, .. } = &mut *self.shared.simulation();
        network.join(sim, a.number, b.number);
    }

    /// Resets all connections between two machines (or within one): both ends get `ECONNRESET`.
    pub fn reset_connections(&self, a: &Machine, b: &Machine) {
        let Simulation { sim, network, .. } = &mut *self.shared.simulation();
        network.reset(sim, a.number, b.number);
    }

    /// Makes all present connections between two machines half-open: nothing arrives any more,
    /// neither side is notified. New connections are not touched.
    pub fn silence_connections(&self, a: &Machine, b: &Machine) {
        self.shared.simulation().network.silence(a.number, b.number);
    }
}

impl Machine {
    /// The runtime of one of its cores.
    ///
    /// # Panics
    /// When there is no such core, or the machine has crashed and was not restarted.
    pub fn rt(&self, core: usize) -> Rt {
        let found = self.shared.core(self.number, core);
        Rt {
            core: found.expect("the machine runs and has such a core"),
        }
    }

    /// Its address in the network.
    pub fn ip(&self) -> IpAddr {
        network::address(self.number)
    }

    /// How many cores it has.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Kills all its programs. The kernel lives: connections are closed or, by seed, reset; what
    /// was written and not synced is still there.
    pub fn crash(&self) {
        self.shared.crash(self.number, false);
    }

    /// Kills all its programs, and its network is gone too: its peers hear nothing, not even a
    /// reset, until they send something after the restart. What was written and not synced is still
    /// there (a kernel that hangs).
    pub fn crash_silently(&self) {
        self.shared.crash(self.number, true);
    }

    /// Cuts its power: [`Machine::crash_silently`], and of what was written to its disks and not
    /// synced each write is by seed kept, lost or torn between sectors.
    pub fn power_cut(&self) {
        self.shared.crash(self.number, true);
        let Simulation { sim, disks, .. } = &mut *self.shared.simulation();
        disks.power_cut(sim, self.number);
    }

    /// Starts it again after a crash, with its disks and without any program.
    ///
    /// # Panics
    /// When it runs.
    pub fn restart(&self) {
        assert!(
            self.shared.core(self.number, 0).is_none(),
            "the machine runs"
        );
        {
            let Simulation { sim, network, .. } = &mut *self.shared.simulation();
            network.restart(sim, self.number);
        }
        self.shared.start(self.number, self.cores);
    }

    /// How many sockets its programs have open: listeners and connections.
    pub fn sockets(&self) -> usize {
        self.shared.simulation().network.sockets_of(self.number)
    }

    /// How many tasks there are on its cores.
    pub fn tasks(&self) -> usize {
        let cores = (0..self.cores).filter_map(|index| self.shared.core(self.number, index));
        cores.map(|core| core.queue().tasks()).sum()
    }

    /// Whether its programs can run.
    pub fn is_up(&self) -> bool {
        self.shared.core(self.number, 0).is_some()
    }

    /// From now on connects to it are refused although it listens, or no longer so.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.simulation().network.refuse(self.number, refuse);
    }

    /// Adds a block device of `size` bytes, zeroed, behaving as [`Config::disk`] says.
    ///
    /// # Panics
    /// When the path is taken.
    pub fn add_disk(&self, path: impl AsRef<Path>, size: u64) -> Disk {
        let config = self.shared.simulation().sim.config.disk.clone();
        self.add_disk_with(path, size, config)
    }

    /// Adds a block device with a behaviour of its own.
    ///
    /// # Panics
    /// When the path is taken.
    pub fn add_disk_with(&self, path: impl AsRef<Path>, size: u64, config: DiskConfig) -> Disk {
        let path = path.as_ref();
        assert!(
            self.disk(path).is_none(),
            "{} is there already",
            path.display()
        );
        let disks = &mut self.shared.simulation().disks;
        let disk = disks.add(self.number, path, FileKind::Block, size, config);
        Disk::new(self.shared.clone(), disk)
    }

    /// Adds a zoned block device, all zones empty.
    ///
    /// # Panics
    /// When the path is taken.
    pub fn add_zoned_disk(&self, path: impl AsRef<Path>, zones: ZoneConfig) -> Disk {
        let disk = self.add_disk(path, u64::from(zones.zones) * zones.zone_bytes);
        disk.set_zones(zones);
        disk
    }

    /// A block device, or a regular file that a program has created.
    pub fn disk(&self, path: impl AsRef<Path>) -> Option<Disk> {
        let disk = self
            .shared
            .simulation()
            .disks
            .find(self.number, path.as_ref())?;
        Some(Disk::new(self.shared.clone(), disk))
    }
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "World({})", self.shared.describe())
    }
}

impl fmt::Debug for WorldHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WorldHandle({})", self.shared.describe())
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Machine({}, {} cores)", self.ip(), self.cores)
    }
}
