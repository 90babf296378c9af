//! What many functions cost, and how they share a device. `docs/performance.md` has what this
//! prints.

use std::cell::RefCell;
use std::fs;
use std::thread;
use std::time::Duration as Span;

use flashyard_host::vfio::Guest;
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::Rt;
use flashyard_time::{Duration, Rng};

use crate::functions::{BLOCK, beside, guest, range, socket};
use crate::rig::{Scratch, Target};

/// Functions of a machine full of virtual machines.
const MANY: usize = 32;
/// Blocks of each volume.
const BLOCKS: u64 = (4 << 20) / BLOCK as u64;

/// Processor time of a process in seconds.
fn cpu(id: u32) -> f64 {
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |field: usize| fields[field].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / TICKS
}

/// Memory of a process that is its own, in bytes: not what it maps of its guests.
fn memory(id: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .expect("its memory");
    kib.parse::<f64>().expect("a number") * 1024.0
}

/// Idle guests hold no core and little memory: under 1 % of a core for all of them, and under 1 MiB
/// each. Their queues are in the guests' memory.
#[test]
fn idle_functions_cost_next_to_nothing() {
    const WATCHED: Span = Span::from_secs(5);
    let scratch = Scratch::new("idle");
    let target = Target::start(&scratch, &[]);
    target.json(&[
        "device", "create", "m", "--kind", "memory", "--size", "16MiB",
    ]);
    target.json(&["tenant", "create", "db"]);
    target.json(&["volume", "create", "v", "--device", "m", "--tenant", "db"]);
    let id = target.child.id();
    let before = memory(id);
    let made = target.json(&[
        "function", "create", "vm", "--tenant", "db", "--count", "32",
    ]);
    let sockets: Vec<_> = made
        .as_array()
        .expect("a list")
        .iter()
        .map(socket)
        .collect();
    let offered = memory(id);
    beside(target, move |rt, _target| async move {
        let mut guests = Vec::new();
        for socket in &sockets {
            guests.push(guest(&rt, socket).await);
        }
        rt.sleep(Duration::from_secs(1)).await;
        let connected = memory(id);
        let began = cpu(id);
        thread::sleep(WATCHED);
        let used = (cpu(id) - began) / WATCHED.as_secs_f64();
        let each = |bytes: f64| (bytes - before) / MANY as f64;
        println!(
            "{MANY} idle functions: {:.2} % of a core; {:.0} KiB each offered, {:.0} KiB each connected",
            used * 100.0,
            each(offered) / 1024.0,
            each(connected) / 1024.0
        );
        assert!(used < 0.01, "{used}");
        assert!(each(connected) < 1_048_576.0, "{}", each(connected));
    });
}

/// A guest that always has so many reads in flight.
async fn reads(rt: Rt, mut guest: Guest, qd: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut put = |guest: &mut Guest| {
        let cid = guest.take_place(1).expect("room");
        let at = range(rng.below(BLOCKS), 1);
        let entry = SubmissionQueueEntry::read(1, at, Sgl::Transport { length: 0 });
        guest
            .put_io(1, (entry, cid), (0, BLOCK as u32))
            .expect("room");
    };
    for _ in 0..qd {
        put(&mut guest);
    }
    guest.ring(1).await.expect("rung");
    loop {
        let done = guest.completion(1).await.expect("a completion");
        assert!(done.status().is_success());
        put(&mut guest);
        guest.ring(1).await.expect("rung");
        rt.turn_end().await;
    }
}

/// An emulated drive, slowed down so that it is what everybody waits for, with a volume for each
/// of these tenants.
fn with_tenants(target: &Target, tenants: &[String]) {
    target.json(&[
        "device",
        "create",
        "ssd0",
        "--kind",
        "flash",
        "--size",
        "4GiB",
        "--profile",
        "dct983",
        "--condition",
        "clean",
        "--dilation",
        "200",
    ]);
    target.json(&["pool", "create", "p", "--device", "ssd0"]);
    for tenant in tenants {
        target.json(&["tenant", "create", tenant, "--host", "*"]);
        target.json(&[
            "volume", "create", tenant, "--pool", "p", "--size", "4MiB", "--tenant", tenant,
        ]);
    }
}

/// Reads of each tenant until now.
fn counted(target: &Target) -> Vec<f64> {
    let status = target.json(&["status"]);
    let tenants = status["tenants"].as_array().expect("a list").iter();
    tenants
        .map(|row| row["reads"].as_f64().expect("a number"))
        .collect()
}

/// Reads per second of each tenant.
async fn rates(rt: &Rt, target: &RefCell<Target>, seconds: u64) -> Vec<f64> {
    let before = counted(&target.borrow());
    rt.sleep(Duration::from_secs(seconds)).await;
    let after = counted(&target.borrow());
    let rates = before.iter().zip(after);
    rates
        .map(|(before, after)| (after - before) / seconds as f64)
        .collect()
}

#[test]
fn equal_functions_share_a_device_equally() {
    let scratch = Scratch::new("jain");
    let target = Target::start(&scratch, &[]);
    let tenants: Vec<String> = (0..MANY).map(|number| format!("t{number:02}")).collect();
    with_tenants(&target, &tenants);
    let made = tenants
        .iter()
        .map(|tenant| socket(&target.json(&["function", "create", tenant, "--tenant", tenant])));
    let sockets: Vec<_> = made.collect();
    beside(target, move |rt, target| async move {
        let mut load = Vec::new();
        for (seed, socket) in (1..).zip(&sockets) {
            let guest = guest(&rt, socket).await;
            load.push(rt.spawn(reads(rt.clone(), guest, 8, seed)));
        }
        rt.sleep(Duration::from_secs(5)).await;
        let rates = rates(&rt, &target, 8).await;
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let jain = sum * sum / (rates.len() as f64 * squares);
        let least = rates.iter().copied().fold(f64::MAX, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        println!(
            "{MANY} functions: Jain's index {jain:.4}, {sum:.0} reads/s, {least:.0} to {most:.0} each"
        );
        assert!(jain >= 0.99, "{jain}: {rates:?}");
        drop(load);
    });
}
