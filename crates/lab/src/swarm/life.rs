//! One life of a target, from its first start to its last shutdown, and the checks at its end.

use std::rc::Rc;

use flashyard_runtime::sim::{Machine, World};
use flashyard_runtime::sync::oneshot;
use flashyard_runtime::{Buf, Rt, Task};
use flashyard_time::{Duration, Rng, Time};

use super::hostile::{Ending, Stop, digests};
use super::library::{self, Host};
use super::panics::{self, Panicked};
use super::plain;
use super::plan::{Fault, HostPlan, Kind, Plan};
use super::site::{Notes, Site};
use super::trouble;

/// A host is not waited for longer when it is to stop: every deadline of the target and the host
/// have passed by then.
const STOPPING: Duration = Duration::from_secs(400);
/// The longest that anything of a host that has gone may stay.
const LEAVING: Duration = Duration::from_secs(120);
/// The longest that a shutdown may take when nothing is in flight.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// How often it is looked whether all have ended.
const LOOK: Duration = Duration::from_ms(20);
/// One life of so many is lived twice.
const TWICE: u64 = 64;
/// How often a host is started, at most.
const LIVES: usize = 3;

/// What came of a life.
#[derive(Clone, Debug)]
pub struct Life {
    /// The seed it was drawn from.
    pub seed: u64,
    /// What is wrong, if anything is.
    pub finding: Option<String>,
    /// Equal for equal lives.
    pub digest: u64,
    /// Commands that were given.
    pub commands: u64,
    /// Associations that were made.
    pub connects: u64,
    /// Troubles that struck.
    pub troubles: u64,
    /// How long it took, in virtual time.
    pub span: Duration,
}

/// Lives one life. A panic in it is a finding.
pub fn live(seed: u64, faults: &[Fault]) -> Life {
    let plan = Plan::draw(seed, faults);
    let lived = panics::caught(|| in_world(plan));
    lived.unwrap_or_else(|Panicked(panic)| Life {
        seed,
        finding: Some(format!("panic: {panic}")),
        digest: 0,
        commands: 0,
        connects: 0,
        troubles: 0,
        span: Duration::ZERO,
    })
}

/// The same; some lives are lived once more, to see whether all goes as it went.
pub fn examine(seed: u64, faults: &[Fault]) -> Life {
    let life = live(seed, faults);
    if life.finding.is_some() || !seed.is_multiple_of(TWICE) {
        return life;
    }
    let again = live(seed, faults);
    let differs = || {
        let (first, second) = (life.digest, again.digest);
        (first != second).then(|| {
            format!(
                "the same seed is lived in two ways, with digests {first:016x} and {second:016x}"
            )
        })
    };
    Life {
        finding: again.finding.clone().or_else(differs),
        ..life
    }
}

fn in_world(plan: Plan) -> Life {
    let before = Buf::balance();
    let world = World::new(plan.world.clone());
    let server = world.machine(plan.cores);
    let hosts: Vec<Machine> = (0..plan.machines).map(|_| world.machine(1)).collect();
    let operator = world.machine(1);
    let seed = plan.seed;
    let site = Rc::new(Site::new(plan, world.handle(), server, hosts));
    let lived = site.clone();
    world.run(&operator, |rt| async move { life(lived, rt).await });
    let life = Life {
        seed,
        finding: None,
        digest: world.digest(),
        commands: site.notes.commands.get(),
        connects: site.notes.connects.get(),
        troubles: site.notes.troubles.get(),
        span: world.now().since(Time::ZERO),
    };
    let finding = site.notes.finding();
    drop((site, world));
    let left = Buf::balance() - before;
    let leak =
        || (left != 0).then(|| format!("{left} bytes of buffers are left when the world is gone"));
    Life {
        finding: finding.or_else(leak),
        ..life
    }
}

async fn life(site: Rc<Site>, rt: Rt) {
    let mut rng = Rng::new(site.plan.seed).split(0x11fe_0001);
    site.start().await;
    site.furnish(&mut rng).await;
    // What the target has before any host has connected.
    rt.sleep(Duration::from_ms(10)).await;
    let idle = Leftovers::of(&site);
    let tasks = begin(&site, &rt, &rng);
    let late = site.now() + site.plan.span;
    while site.goes_on() && site.now() < late && tasks.hosts.iter().any(|task| !task.is_finished())
    {
        rt.sleep(LOOK).await;
    }
    site.stopping.set(true);
    let ended = rt.timeout(STOPPING, async {
        for task in tasks.hosts.into_iter().chain(tasks.troubles) {
            task.await;
        }
    });
    let ended = ended.await.is_some();
    if site.notes.is_over() {
        return;
    }
    if !ended {
        return site
            .notes
            .find(format!("hosts have not come to an end in {STOPPING}"));
    }
    look_at_the_end(&site, &rt, idle).await;
}

/// What goes on in a life, on the operator's machine.
struct Tasks {
    hosts: Vec<Task<()>>,
    troubles: Vec<Task<()>>,
}

fn begin(site: &Rc<Site>, rt: &Rt, rng: &Rng) -> Tasks {
    let hosts = site.plan.hosts.iter().zip(0..);
    let hosts = hosts.map(|(plan, number)| {
        let rng = rng.split(100 + u64::from(number));
        rt.spawn(keep(site.clone(), rt.clone(), *plan, number, rng))
    });
    let faults = trouble::faults(site.clone(), rt.clone(), rng.split(1));
    let operator = trouble::operator(site.clone(), rt.clone(), rng.split(2));
    Tasks {
        hosts: hosts.collect(),
        troubles: vec![rt.spawn(faults), rt.spawn(operator)],
    }
}

/// Keeps a host at work: it is started again when its machine has crashed and is back.
async fn keep(site: Rc<Site>, rt: Rt, plan: HostPlan, number: u32, mut rng: Rng) {
    let machine = site.hosts[plan.machine].clone();
    for _ in 0..LIVES {
        while !machine.is_up() {
            rt.sleep(LOOK).await;
        }
        let host = Host {
            site: site.clone(),
            rt: machine.rt(0),
            tenant: plan.tenant,
            number,
            rng: Rng::new(rng.next_u64()),
        };
        let (sender, receiver) = oneshot::channel();
        let lives = async move {
            match plan.kind {
                Kind::Library => library::live(host, plan.commands).await,
                Kind::Plain => plain::live(host, plan.commands).await,
                Kind::Hostile => send_any_pdu(host, plan.commands).await,
            }
            // A waiting host may have given up.
            let _ = sender.send(());
        };
        machine.rt(0).spawn(lives).detach();
        if receiver.await.is_some() || !site.goes_on() {
            return;
        }
    }
}

/// A host that breaks rules, on one connection after the other.
async fn send_any_pdu(mut host: Host, count: u64) {
    let mut left = count;
    while left > 0 && host.site.goes_on() {
        let now = (1 + host.rng.below(60)).min(left);
        left -= now;
        if let Err(Stop::Wrong(wrong)) = torment_once(&mut host, now).await {
            let number = host.number;
            host.site
                .notes
                .find(format!("hostile host {number}: {wrong}"));
        }
        let pause = Duration::from_us(host.rng.below(20_000));
        host.rt.sleep(pause).await;
    }
}

async fn torment_once(host: &mut Host, count: u64) -> Result<(), Stop> {
    let kato = Duration::from_ms(1_000 + host.rng.below(20_000));
    let access = plain::access(host, kato);
    let rng = &mut host.rng;
    if rng.chance(1, 8) && host.site.plan.tenants > 1 {
        let other = rng.below(host.site.plan.tenants as u64 - 1) as usize;
        return access.connect_to_foreign(Site::subnqn(other)).await;
    }
    let ending = *rng.pick(&Ending::ALL).unwrap_or(&Ending::Idle);
    if rng.chance(1, 4) {
        return access.connect_and_end(ending, rng).await;
    }
    let mut association = access.associate(digests(rng), 64).await?;
    Notes::count(&host.site.notes.connects);
    let span = Duration::from_us(rng.below(3_000));
    for _ in 0..count {
        if rng.chance(1, 6) {
            let entry = access.administrative(rng);
            association.admin.submit(entry, &[]).await;
            access.take(&mut association.admin, span).await?;
        }
        access.send_any_pdu(&mut association.io, rng).await;
        Notes::count(&host.site.notes.commands);
        if rng.chance(1, 4) {
            access.take(&mut association.io, span).await?;
        }
    }
    if rng.chance(1, 4) {
        // It says nothing more, until it is thrown out.
        host.rt.sleep(kato * 2).await;
    }
    access.end(&mut association, ending, rng).await
}

/// The resources of a target without hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leftovers {
    sockets: usize,
    /// Of a target with one core. Where there are several, those that serve the others stay for the
    /// next time.
    tasks: Option<usize>,
    buffers: isize,
}

impl Leftovers {
    fn of(site: &Site) -> Self {
        Self {
            sockets: site.server.sockets(),
            tasks: (site.plan.cores == 1).then(|| site.server.tasks()),
            buffers: Buf::balance(),
        }
    }
}

/// All hosts have gone: nothing of them is left, new ones are served and find what was written, and
/// the target ends.
async fn look_at_the_end(site: &Rc<Site>, rt: &Rt, idle: Leftovers) {
    if !left_by_all(site, rt).await {
        return;
    }
    for number in 0..site.plan.hosts.len() as u32 {
        site.settle(number);
    }
    let before = Leftovers::of(site);
    for tenant in 0..site.plan.tenants {
        visit(site, rt, tenant).await;
    }
    if site.notes.is_over() || !left_by_all(site, rt).await {
        return;
    }
    let after = Leftovers::of(site);
    let was_changed = site.plan.has(Fault::Power) || site.plan.has(Fault::Config);
    if after != before || (!was_changed && after != idle) {
        site.notes.find(format!(
            "a target without hosts has {idle:?} at first, then {before:?}, and {after:?} after one more host of each tenant"
        ));
    }
    let Some(up) = site.up() else { return };
    let ended = rt.timeout(SHUTDOWN, async {
        for core in &up.cores {
            core.shutdown().await;
        }
    });
    if ended.await.is_none() {
        site.notes.find(format!(
            "a shutdown with nothing in flight takes more than {SHUTDOWN}"
        ));
    }
}

/// Waits until the target knows of no host any more.
async fn left_by_all(site: &Site, rt: &Rt) -> bool {
    let late = site.now() + LEAVING;
    loop {
        let Some(up) = site.up() else {
            site.notes.find("the target does not run");
            return false;
        };
        let snapshot = up.target.snapshot();
        let connections: usize = snapshot.connections_per_core.iter().sum();
        if connections == 0 && snapshot.controllers.is_empty() && snapshot.unconnected == 0 {
            // What closes now is closed when the world looks next.
            rt.sleep(Duration::from_ms(10)).await;
            return true;
        }
        if site.now() >= late {
            let controllers = snapshot.controllers.len();
            site.notes.find(format!(
                "{connections} connections, {} of them unconnected, and {controllers} controllers are left {LEAVING} after all hosts have gone",
                snapshot.unconnected
            ));
            return false;
        }
        rt.sleep(LOOK).await;
    }
}

/// A new host of a tenant reads everything.
async fn visit(site: &Rc<Site>, rt: &Rt, tenant: usize) {
    let number = Site::last_host(tenant);
    let mut host = Host {
        site: site.clone(),
        rt: rt.clone(),
        tenant,
        number,
        rng: Rng::new(site.plan.seed).split(u64::from(number)),
    };
    let association = match host.connect().await {
        Ok(association) => association,
        Err(error) => {
            return site.notes.find(format!(
                "a new host of tenant {tenant} is not served: {error}"
            ));
        }
    };
    let volumes = site.volumes();
    for volume in volumes.iter().filter(|volume| volume.tenant == tenant) {
        let most =
            (association.max_transfer() as u64).min(256 << 10) / u64::from(volume.block_size);
        let mut lba = 0;
        while lba < volume.blocks.get() && !site.notes.is_over() {
            let blocks = most.min(volume.blocks.get() - lba);
            host.read(&association.queue(0), volume, lba, blocks).await;
            lba += blocks;
        }
    }
    association.close().await;
}
