//! A target with tenants, its cores, and hosts: all in a simulated world, or on cores that run in
//! any way.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::fault::{FaultDevice, FaultRule};
use flashyard_block::{MemoryDevice, SharedDevice};
use flashyard_engine::{
    Alive, Class, Core, DeviceHandle, Limits, NamespaceSpec, SubsystemNames, Target, TargetConfig,
    TenantId, TenantSpec,
};
use flashyard_host::Options;
use flashyard_host::raw::Identity;
use flashyard_nvme::Nqn;
use flashyard_nvme::tcp::Digests;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_sched::{Fifo, Window};
use flashyard_tcp::listen;
use flashyard_time::{Duration, Rng};

use crate::client::Client;

/// What the names of subsystems begin with.
pub const PREFIX: &str = "nqn.2026-11.dev.flashyard";
/// Neither header nor data have a digest.
pub const NO_DIGESTS: Digests = Digests {
    header: false,
    data: false,
};
/// Bytes of a block.
pub const BLOCK: u32 = 4096;
/// The time for I/O that devices still have when a core is shut down.
const LAST_TURNS: Duration = Duration::from_secs(60);

/// A simulated machine that runs a target, and another one that runs hosts.
pub struct Site {
    /// Both, and the network between them.
    pub world: World,
    /// Runs the target.
    pub server: Machine,
    /// Runs hosts, on one core.
    pub hosts: Machine,
    /// What tasks of a test work with.
    pub bench: Bench,
}

/// A target that listens, with the tenants `a` and `b`, open to all hosts.
#[derive(Clone)]
pub struct Bench {
    /// The target.
    pub target: Arc<Target>,
    /// Its cores, of which the first listens.
    pub cores: Vec<Rc<Core>>,
    /// The runtimes of the cores.
    pub rts: Vec<Rt>,
    /// Where it listens.
    pub addr: SocketAddr,
    /// Where hosts run.
    pub host_rt: Rt,
}

/// The name of a tenant's subsystem.
pub fn subnqn(tenant: &str) -> String {
    format!("{PREFIX}:{tenant}")
}

/// A target that has no cores yet.
///
/// # Panics
/// When it refuses a tenant.
pub fn target(
    cores: usize,
    limits: Limits,
    tenants: impl IntoIterator<Item = TenantSpec>,
) -> Arc<Target> {
    let target = Target::new(TargetConfig {
        nqn_prefix: PREFIX.to_owned(),
        target_uuid: [7; 16],
        limits,
        cores,
    });
    for tenant in tenants {
        target.set_tenant(tenant).expect("a good tenant");
    }
    target
}

/// The tenants `a` (number 1) and `b` (2), open to all hosts.
pub fn tenants() -> [TenantSpec; 2] {
    [(1, "a"), (2, "b")].map(|(id, name)| tenant(id, name, &["*"]))
}

/// How our initiator connects host number `host` to a tenant: with time for whatever a simulated
/// network does.
///
/// # Panics
/// When no subsystem can be named so.
pub fn options(tenant: &str, host: u8) -> Options {
    let nqn = |text: &str| Nqn::new(text).expect("a good name");
    let hostnqn = nqn(&format!("nqn.2026-11.test:host{host}"));
    Options {
        connect_timeout: Duration::from_secs(60),
        ..Options::new(nqn(&subnqn(tenant)), hostnqn, [host; 16])
    }
}

impl Site {
    /// A target of so many cores in the world of `config`.
    pub fn new(config: Config, cores: usize) -> Self {
        Self::with_limits(config, cores, Limits::default())
    }

    /// The same with other bounds.
    pub fn with_limits(config: Config, cores: usize, limits: Limits) -> Self {
        let world = World::new(config);
        let (server, hosts) = (world.machine(cores), world.machine(1));
        let rts = (0..cores).map(|index| server.rt(index)).collect();
        let addr = SocketAddr::new(server.ip(), 4420);
        let bench = Bench::new(rts, addr, hosts.rt(0), limits);
        Self {
            world,
            server,
            hosts,
            bench,
        }
    }

    /// Runs a host's task to its end.
    pub fn run<F>(&self, main: impl FnOnce(Bench) -> F) -> F::Output
    where
        F: Future + 'static,
    {
        let bench = self.bench.clone();
        self.world.run(&self.hosts, move |_| main(bench))
    }
}

impl Drop for Site {
    /// Checks that nothing is left of connections when all have ended, in any way.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let alive = self.run(|bench| async move {
            let ends = bench.cores.iter().zip(&bench.rts).map(|(core, rt)| {
                let core = core.clone();
                rt.spawn(async move { core.shutdown().await })
            });
            let ends: Vec<_> = ends.collect();
            bench.host_rt.sleep(LAST_TURNS).await;
            drop(ends);
            bench.target.snapshot().alive
        });
        assert_eq!(alive, Alive::default());
    }
}

impl Bench {
    /// On cores of one thread, of which the first listens at `addr`.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub fn new(rts: Vec<Rt>, addr: SocketAddr, host_rt: Rt, limits: Limits) -> Self {
        let target = target(rts.len(), limits, tenants());
        let cores: Vec<_> = (0..)
            .zip(&rts)
            .map(|(index, rt)| Core::start(rt.clone(), target.clone(), index))
            .collect();
        let addr = listen(&cores[0], addr).expect("a free port");
        target.set_listeners(vec![addr]);
        Self {
            target,
            cores,
            rts,
            addr,
            host_rt,
        }
    }

    /// Gives `tenant` a device of core `core`.
    pub fn attach(
        &self,
        tenant: &str,
        nsid: u32,
        core: usize,
        device: SharedDevice,
    ) -> DeviceHandle {
        let policy = Box::new(Fifo::new(Window::UNLIMITED));
        let device = self.cores[core].add_device(device, &self.cores[core].add_switch(policy));
        self.attach_handle(tenant, nsid, &device);
        device
    }

    /// Gives `tenant` a device that is there.
    pub fn attach_handle(&self, tenant: &str, nsid: u32, device: &DeviceHandle) {
        let uuid = [nsid as u8; 16];
        let spec = NamespaceSpec::new(nsid, uuid, device.clone());
        self.target.attach(tenant, spec).expect("a free number");
    }

    /// Gives `tenant` a namespace in memory.
    pub fn attach_memory(&self, tenant: &str, nsid: u32) -> DeviceHandle {
        self.attach(tenant, nsid, 0, memory(16 << 20))
    }

    /// Gives `tenant` a device of the first core with faults before it, by `seed`.
    pub fn attach_faulty(
        &self,
        tenant: &str,
        nsid: u32,
        device: SharedDevice,
        (seed, rules): (u64, Vec<FaultRule>),
    ) -> Rc<FaultDevice> {
        let faults = Rc::new(FaultDevice::new(&self.rts[0], device, seed, rules));
        self.attach(tenant, nsid, 0, faults.clone());
        faults
    }

    /// An association of host number `host` with `tenant`, and an I/O queue.
    pub async fn connect(&self, tenant: &str, host: u8) -> (Client, Client) {
        self.connect_with(tenant, host, NO_DIGESTS, 128).await
    }

    /// The same with these digests, and so many entries in the I/O queue.
    pub async fn connect_with(
        &self,
        tenant: &str,
        host: u8,
        digests: Digests,
        entries: u16,
    ) -> (Client, Client) {
        let (admin, cntlid) = self.admin_with(tenant, host, digests).await;
        let io = self
            .io_with(tenant, host, digests, (cntlid, 1, entries))
            .await;
        (admin, io)
    }

    /// An Admin queue, and the number of its controller.
    pub async fn admin(&self, tenant: &str, host: u8) -> (Client, u16) {
        self.admin_with(tenant, host, NO_DIGESTS).await
    }

    /// The same with these digests.
    pub async fn admin_with(&self, tenant: &str, host: u8, digests: Digests) -> (Client, u16) {
        Client::admin(
            &self.host_rt,
            self.addr,
            digests,
            &subnqn(tenant),
            &Identity::number(host.into()),
        )
        .await
    }

    /// I/O queue 1 of a controller.
    pub async fn io(&self, tenant: &str, host: u8, cntlid: u16) -> Client {
        self.io_with(tenant, host, NO_DIGESTS, (cntlid, 1, 128))
            .await
    }

    /// An I/O queue; `seat` is its controller, its number, and how many entries it has.
    pub async fn io_with(
        &self,
        tenant: &str,
        host: u8,
        digests: Digests,
        seat: (u16, u16, u16),
    ) -> Client {
        let identity = Identity::number(host.into());
        Client::io(
            &self.host_rt,
            self.addr,
            digests,
            &subnqn(tenant),
            &identity,
            seat,
        )
        .await
    }
}

/// A device in memory.
///
/// # Panics
/// When `bytes` are no device.
pub fn memory(bytes: u64) -> SharedDevice {
    Rc::new(MemoryDevice::new(BLOCK, bytes).expect("a good size"))
}

/// A tenant without a class of its own, open to `hosts`.
pub fn tenant(id: u32, name: &str, hosts: &[&str]) -> TenantSpec {
    TenantSpec {
        id: TenantId(id),
        name: name.to_owned(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        class: Class::Throughput,
        names: SubsystemNames::default(),
    }
}

/// A pattern of bytes that depends on `seed`.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill_bytes(&mut bytes);
    bytes
}
