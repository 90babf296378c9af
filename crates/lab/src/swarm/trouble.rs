//! What happens to a target while hosts use it: the network, devices and power fail, and the
//! operator changes everything that can be changed. Each trouble is taken back after a while.

use std::rc::Rc;

use flashyard_runtime::Rt;
use flashyard_runtime::sim::Access;
use flashyard_time::{Duration, Rng};

use super::plan::{Fault, Kind};
use super::site::{Notes, Site};

const EIO: i32 = 5;
/// The longest that a silent device is silent.
const SILENCE: u64 = 40;
/// The longest that a shutdown may take: such a device is waited for.
const SHUTDOWN: Duration = Duration::from_secs(SILENCE + 20);

/// What may happen besides changes of configuration.
#[derive(Clone, Copy)]
enum Trouble {
    Partition,
    Reset,
    Silence,
    Refuse,
    HostCrash,
    SlowDisk,
    SilentDisk,
    FailingDisk,
    Kill,
    PowerCut,
    Shutdown,
}

/// Faults, one after the other, until all are to stop.
pub async fn faults(site: Rc<Site>, rt: Rt, mut rng: Rng) {
    let kinds = kinds(&site);
    while site.goes_on() && !kinds.is_empty() {
        let pause = Duration::from_ns(rng.below(2 * site.plan.trouble.as_ns()));
        rt.sleep(pause).await;
        if let Some(kind) = rng.pick(&kinds).filter(|_| site.goes_on()).copied() {
            Notes::count(&site.notes.troubles);
            strike(&site, &rt, &mut rng, kind).await;
        }
    }
}

fn kinds(site: &Site) -> Vec<Trouble> {
    let network = [
        Trouble::Partition,
        Trouble::Reset,
        Trouble::Silence,
        Trouble::Refuse,
        Trouble::HostCrash,
    ];
    let disk = [Trouble::SlowDisk, Trouble::SilentDisk, Trouble::FailingDisk];
    let power = [Trouble::Kill, Trouble::PowerCut, Trouble::Shutdown];
    let of = |fault, some: &[Trouble]| match site.plan.has(fault) {
        true => some.to_vec(),
        false => Vec::new(),
    };
    [
        of(Fault::Network, &network),
        of(Fault::Disk, &disk),
        of(Fault::Power, &power),
    ]
    .concat()
}

async fn strike(site: &Site, rt: &Rt, rng: &mut Rng, kind: Trouble) {
    let machine = rng.below(site.hosts.len() as u64) as usize;
    let device = rng.below(site.plan.devices.len() as u64) as usize;
    let (handle, server, hosts) = (&site.handle, &site.server, &site.hosts[machine]);
    let (short, long) = (
        Duration::from_ms(rng.below(400)),
        Duration::from_ms(rng.below(25_000)),
    );
    let span = if rng.chance(2, 3) { short } else { long };
    match kind {
        Trouble::Partition => {
            handle.partition(server, hosts);
            rt.sleep(span).await;
            handle.heal(server, hosts);
        }
        Trouble::Reset => handle.reset_connections(server, hosts),
        Trouble::Silence => handle.silence_connections(server, hosts),
        Trouble::Refuse => {
            server.refuse_connections(true);
            rt.sleep(span).await;
            server.refuse_connections(false);
        }
        Trouble::HostCrash => {
            match rng.chance(1, 2) {
                true => hosts.crash(),
                false => hosts.crash_silently(),
            }
            rt.sleep(span).await;
            hosts.restart();
        }
        Trouble::SlowDisk => {
            slow(
                site,
                rt,
                device,
                Duration::from_us(1 + rng.below(200_000)),
                span,
            )
            .await
        }
        Trouble::SilentDisk => {
            slow(
                site,
                rt,
                device,
                Duration::from_secs(1 + rng.below(SILENCE)),
                span,
            )
            .await
        }
        Trouble::FailingDisk => fail(site, rt, rng, device, span).await,
        Trouble::Kill | Trouble::PowerCut => {
            end_target(site, rt, matches!(kind, Trouble::PowerCut), rng, span).await;
        }
        Trouble::Shutdown => {
            shut_down(site, rt).await;
            end_target(site, rt, false, rng, span).await;
        }
    }
}

/// A device takes so much longer for a while, or stops where it is in memory.
async fn slow(site: &Site, rt: &Rt, device: usize, by: Duration, span: Duration) {
    if let Some(disk) = site.disk(device) {
        disk.slow(by);
        rt.sleep(span).await;
        disk.slow(Duration::ZERO);
    } else if let Some(gate) = site.gate(device) {
        gate.shut();
        rt.sleep(span).await;
        gate.open();
    }
}

async fn fail(site: &Site, rt: &Rt, rng: &mut Rng, device: usize, span: Duration) {
    let Some(disk) = site.disk(device) else {
        return;
    };
    site.failed[device].set(true);
    let access = match rng.below(8) {
        0..4 => Access::Read,
        4..7 => Access::Write,
        _ => Access::Sync,
    };
    // Not where a pool has its metadata: then it would not open again, and rightly so.
    let first = (2 << 20) + rng.below(disk.size() - (2 << 20));
    let range = first..first + 1 + rng.below(4 << 20);
    let times = rng.chance(1, 2).then(|| 1 + rng.below(4) as u32);
    disk.fail(access, range, EIO, times);
    rt.sleep(span).await;
    disk.repair();
}

/// The target is shut down while hosts are at work. It waits for the I/O that devices have.
async fn shut_down(site: &Site, rt: &Rt) {
    let Some(up) = site.up() else { return };
    let ended = rt.timeout(SHUTDOWN, async {
        for core in &up.cores {
            core.shutdown().await;
        }
    });
    if ended.await.is_none() {
        site.notes.find(format!(
            "a shutdown with hosts at work takes more than {SHUTDOWN}"
        ));
    }
}

/// The target is killed, or its machine loses power; it is started again after a while.
async fn end_target(site: &Site, rt: &Rt, power_cut: bool, rng: &mut Rng, span: Duration) {
    match power_cut {
        true => site.server.power_cut(),
        false if rng.chance(1, 4) => site.server.crash_silently(),
        false => site.server.crash(),
    }
    site.on_end(power_cut);
    rt.sleep(span).await;
    site.server.restart();
    site.start().await;
}

/// The operator: one change after the other, until all are to stop.
pub async fn operator(site: Rc<Site>, rt: Rt, mut rng: Rng) {
    while site.goes_on() && site.plan.has(Fault::Config) {
        let pause = Duration::from_ns(rng.below(2 * site.plan.trouble.as_ns()));
        rt.sleep(pause).await;
        if !site.goes_on() {
            return;
        }
        Notes::count(&site.notes.troubles);
        change(&site, &rt, &mut rng).await;
    }
}

async fn change(site: &Site, rt: &Rt, rng: &mut Rng) {
    let tenant = rng.below(site.plan.tenants as u64) as usize;
    let device = rng.below(site.plan.devices.len() as u64) as usize;
    let span = Duration::from_ms(rng.below(1_000));
    let (bytes, what) = (1 + rng.below(2 << 20), rng.below(16));
    let read_only = rng.chance(1, 2);
    let volume = site.pick(tenant, rng);
    match (what, volume) {
        (0..3, _) => site.create_volume(tenant, device, bytes).await,
        (3..6, Some(volume)) => site.delete_volume(&volume).await,
        (6..8, Some(volume)) => site.grow_volume(&volume, bytes).await,
        (8..10, Some(volume)) => site.attach_again(&volume, read_only, rt, span).await,
        (12, Some(volume)) => site.protect(&volume, read_only),
        (10, _) => site.remake_tenant(tenant, rt, span).await,
        (11, _) => {
            let hosts = site.plan.hosts.iter().zip(0..);
            let theirs =
                hosts.filter(|(host, _)| host.tenant == tenant && host.kind != Kind::Hostile);
            let theirs: Vec<u32> = theirs.map(|(_, number)| number).collect();
            if let Some(number) = rng.pick(&theirs) {
                site.exclude(tenant, *number, rt, span).await;
            }
        }
        _ => site.set_policy(device, rng.next_u64()),
    }
}
