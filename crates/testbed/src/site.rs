//! A simulated machine that runs a target, and another one that runs hosts.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use flashyard_block::{MemoryDevice, SharedDevice};
use flashyard_engine::{
    Alive, Class, Core, DeviceHandle, Limits, NamespaceSpec, SubsystemNames, Target, TargetConfig,
    TenantId, TenantSpec,
};
use flashyard_nvme::tcp::Digests;
use flashyard_runtime::Rt;
use flashyard_runtime::sim::{Config, Machine, World};
use flashyard_sched::{Fifo, Window};
use flashyard_time::Duration;

use crate::client::{Client, Identity};

pub(crate) const PREFIX: &str = "nqn.2026-11.dev.flashyard";
pub(crate) const NO_DIGESTS: Digests = Digests {
    header: false,
    data: false,
};
pub(crate) const BLOCK: u32 = 4096;
/// For what the devices still do when a core is shut down.
const LAST_TURNS: Duration = Duration::from_secs(60);

/// A target that listens, with the tenants `a` and `b`, open to everybody.
pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) server: Machine,
    pub(crate) hosts: Machine,
    pub(crate) bench: Bench,
}

/// What tasks of a test work with.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) target: Arc<Target>,
    pub(crate) cores: Vec<Rc<Core>>,
    /// The runtimes of the cores.
    pub(crate) rts: Vec<Rt>,
    pub(crate) addr: SocketAddr,
    pub(crate) host_rt: Rt,
}

pub(crate) fn subnqn(tenant: &str) -> String {
    format!("{PREFIX}:{tenant}")
}

impl Site {
    pub(crate) fn new(config: Config, cores: usize) -> Self {
        Self::with_limits(config, cores, Limits::default())
    }

    pub(crate) fn with_limits(config: Config, cores: usize, limits: Limits) -> Self {
        let world = World::new(config);
        let (server, hosts) = (world.machine(cores), world.machine(1));
        let config = TargetConfig {
            nqn_prefix: PREFIX.to_owned(),
            target_uuid: [7; 16],
            limits,
            cores,
        };
        let target = Target::new(config);
        let rts: Vec<_> = (0..cores).map(|index| server.rt(index)).collect();
        let cores: Vec<_> = (0..)
            .zip(&rts)
            .map(|(index, rt)| Core::start(rt.clone(), target.clone(), index))
            .collect();
        for (id, name) in [(1, "a"), (2, "b")] {
            target
                .set_tenant(tenant(id, name, &["*"]))
                .expect("a good tenant");
        }
        let addr = SocketAddr::new(server.ip(), 4420);
        cores[0].listen(addr).expect("a free port");
        target.set_listeners(vec![addr]);
        let host_rt = hosts.rt(0);
        let bench = Bench {
            target,
            cores,
            rts,
            addr,
            host_rt,
        };
        Self {
            world,
            server,
            hosts,
            bench,
        }
    }

    /// Runs a host's task to its end.
    pub(crate) fn run<F>(&self, main: impl FnOnce(Bench) -> F) -> F::Output
    where
        F: Future + 'static,
    {
        let bench = self.bench.clone();
        self.world.run(&self.hosts, move |_| main(bench))
    }
}

impl Drop for Site {
    /// However its connections have ended: when all have, nothing of them is left.
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
    /// Gives `tenant` a device of core `core`.
    pub(crate) fn attach(
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

    pub(crate) fn attach_handle(&self, tenant: &str, nsid: u32, device: &DeviceHandle) {
        let uuid = [nsid as u8; 16];
        let spec = NamespaceSpec::new(nsid, uuid, device.clone());
        self.target.attach(tenant, spec).expect("a free number");
    }

    /// Gives `tenant` a namespace in memory.
    pub(crate) fn attach_memory(&self, tenant: &str, nsid: u32) -> DeviceHandle {
        self.attach(tenant, nsid, 0, memory(16 << 20))
    }

    /// An association of host number `host` with `tenant`, and an I/O queue.
    pub(crate) async fn connect(&self, tenant: &str, host: u8) -> (Client, Client) {
        self.connect_with(tenant, host, NO_DIGESTS, 128).await
    }

    pub(crate) async fn connect_with(
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

    pub(crate) async fn admin(&self, tenant: &str, host: u8) -> (Client, u16) {
        self.admin_with(tenant, host, NO_DIGESTS).await
    }

    pub(crate) async fn admin_with(
        &self,
        tenant: &str,
        host: u8,
        digests: Digests,
    ) -> (Client, u16) {
        Client::admin(
            &self.host_rt,
            self.addr,
            digests,
            &subnqn(tenant),
            &Identity::number(host),
        )
        .await
    }

    pub(crate) async fn io(&self, tenant: &str, host: u8, cntlid: u16) -> Client {
        self.io_with(tenant, host, NO_DIGESTS, (cntlid, 1, 128))
            .await
    }

    pub(crate) async fn io_with(
        &self,
        tenant: &str,
        host: u8,
        digests: Digests,
        seat: (u16, u16, u16),
    ) -> Client {
        let identity = Identity::number(host);
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

pub(crate) fn memory(bytes: u64) -> SharedDevice {
    Rc::new(MemoryDevice::new(BLOCK, bytes).expect("a good size"))
}

pub(crate) fn tenant(id: u32, name: &str, hosts: &[&str]) -> TenantSpec {
    TenantSpec {
        id: TenantId(id),
        name: name.to_owned(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        class: Class::Throughput,
        names: SubsystemNames::default(),
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    flashyard_time::Rng::new(seed).fill_bytes(&mut bytes);
    bytes
}
