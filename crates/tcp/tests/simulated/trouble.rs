//! Trouble with several tenants at work, by seed and under each policy: one of them is taken away,
//! the policy is replaced, the drive becomes a hundred times slower or stops answering. Whoever is
//! not the cause goes on, nothing fails that need not, and no I/O is lost or done twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_engine::{Class, DeviceHandle, Switch, TenantId};
use flashyard_nvme::command::LbaRange;
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::Task;
use flashyard_runtime::sim::Config;
use flashyard_sched::{
    Ask, Figures, IoId, Known, Next, Outcome, POLICY_NAMES, Point, Policy, PolicyKind, Share,
    Window,
};
use flashyard_testbed::{BLOCK, Bench, Incoming, Site, tenant};
use flashyard_time::{Duration, Time};

use crate::drive::{Dial, drive};
use crate::load::{Load, Progress, work};

/// Optimised builds look further.
const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 20 };
const MS: Duration = Duration::from_ms(1);
/// What an I/O takes the drive, which does four at a time.
const USUAL: Duration = Duration::from_us(400);

/// A policy as for a drive that does ten thousand I/Os a second.
fn policy(name: &str) -> Box<dyn Policy> {
    let curve = vec![Point {
        latency: MS,
        tokens: 1_000_000,
    }];
    let figures = Figures::new([10_000, 2_500], [10_000, 2_500]).expect("no rate is zero");
    let known = Known {
        window: Window {
            ios: 16,
            bytes: 1 << 20,
        },
        figures: Some(figures.with_depth(16).with_curve(curve)),
    };
    let kind = PolicyKind::named(name).expect("it is in the registry");
    kind.make(&known).expect("all is known")
}

/// Tenants on one drive behind one switch, each with a volume of its own.
struct Shop {
    bench: Bench,
    home: usize,
    switch: Rc<Switch>,
    dial: Rc<Dial>,
    devices: Vec<DeviceHandle>,
}

impl Shop {
    fn open(bench: &Bench, home: usize, policy: Box<dyn Policy>, tenants: &[&str]) -> Self {
        let (drive, dial) = drive(&bench.rts[home], 4, USUAL);
        let core = &bench.cores[home];
        let switch = core.add_switch(policy);
        let devices = tenants.iter().map(|name| {
            let device = core.add_device(drive.clone(), &switch);
            bench.attach_handle(name, 1, &device);
            device
        });
        Self {
            devices: devices.collect(),
            bench: bench.clone(),
            home,
            switch,
            dial,
        }
    }

    fn work(&self, seed: u64, load: Load) -> Worker {
        let progress = Rc::<Progress>::default();
        let task = work(self.bench.clone(), load, seed, progress.clone());
        (progress, self.bench.host_rt.spawn(task))
    }

    /// Takes the volumes away: that finishes only if every I/O has come back.
    async fn close(self, seed: u64, tenants: &[&str]) {
        for (name, device) in tenants.iter().zip(&self.devices) {
            self.bench.target.detach(name, 1).expect("it is attached");
            self.remove(device, seed).await;
        }
    }

    async fn remove(&self, device: &DeviceHandle, seed: u64) {
        let rt = &self.bench.host_rt;
        let removed = self.bench.cores[self.home].remove_device(device);
        let late = rt.now() + Duration::from_secs(60);
        let removed = rt.timeout_at(late, removed).await;
        assert!(removed.is_some(), "seed {seed}: permits have been lost");
    }
}

/// Host number `host` of a tenant, with so many commands in flight.
fn load(tenant: &'static str, host: u8, depth: usize) -> Load {
    Load {
        tenant,
        host,
        depth,
        first: u64::from(host) * 1024,
        mark: 0,
        may_go: false,
    }
}

/// A host at work, and how it gets on.
type Worker = (Rc<Progress>, Task<()>);

async fn stop_all(hosts: Vec<Worker>) -> u64 {
    for (progress, _) in &hosts {
        progress.stop();
    }
    let mut done = 0;
    for (progress, task) in hosts {
        task.await;
        assert_eq!(progress.sent.get(), progress.done.get());
        done += progress.done.get();
    }
    done
}

/// The tenant's I/O ends and nothing of it reaches the drive any more; the others do not notice.
#[test]
fn a_tenant_is_taken_away_under_load() {
    for (n, name) in (0..).zip(POLICY_NAMES.iter().copied()) {
        for seed in (0..SEEDS).map(|seed| seed * 100 + n) {
            let site = Site::new(Config::calm(seed), 2);
            site.run(move |bench| async move {
                bench
                    .target
                    .set_tenant(tenant(3, "c", &["*"]))
                    .expect("a new tenant");
                let tenants = ["a", "b", "c"];
                let shop = Shop::open(&bench, seed as usize % 2, policy(name), &tenants);
                for (id, weight) in (1..).zip([4, 1, 2]) {
                    let share = Share {
                        weight,
                        ..Share::default()
                    };
                    shop.switch.set_share(TenantId(id), &share);
                }
                let leaver = Load {
                    may_go: true,
                    ..load("a", 1, 24)
                };
                let (leaving, left) = shop.work(seed, leaver);
                let others: Vec<_> = [load("b", 2, 16), load("c", 3, 16), load("c", 4, 2)]
                    .map(|load| shop.work(seed, load))
                    .into();
                bench.host_rt.sleep(MS * 40).await;
                assert!(leaving.done.get() > 20, "{name} {seed}");
                take_away_first(&shop, seed).await;
                let given = shop.dial.given.borrow().len();
                let before: Vec<_> = others.iter().map(|(host, _)| host.done.get()).collect();
                bench.host_rt.sleep(MS * 60).await;
                left.await;
                assert!(leaving.gone.get(), "{name} {seed}: it works on");
                for ((host, _), before) in others.iter().zip(before) {
                    let more = host.done.get() - before;
                    assert!(more > 3, "{name} {seed}: {more} in 60 ms");
                }
                let later = shop.dial.given.borrow()[given..].to_vec();
                assert!(later.iter().all(|tag| tag.tenant != TenantId(1)));
                assert!(shop.switch.why(TenantId(1)).is_none(), "{name} {seed}");
                stop_all(others).await;
                let shop = Shop {
                    devices: shop.devices[1..].to_vec(),
                    ..shop
                };
                shop.close(seed, &tenants[1..]).await;
            });
        }
    }
}

/// As the service takes the last volume of a tenant away, and then the tenant.
async fn take_away_first(shop: &Shop, seed: u64) {
    shop.bench.target.detach("a", 1).expect("it is attached");
    shop.remove(&shop.devices[0], seed).await;
    shop.switch.forget(TenantId(1));
    shop.bench.target.remove_tenant("a").expect("it is there");
}

/// From each policy to each other one and back, under load: nothing fails, and the drive is given
/// each command once.
#[test]
fn policies_replace_each_other_under_load() {
    for (seed, (from, to)) in (0..).zip(pairs()) {
        let site = Site::new(Config::calm(seed), 2);
        site.run(move |bench| async move {
            let tenants = ["a", "b"];
            let shop = Shop::open(&bench, seed as usize % 2, policy(from), &tenants);
            let hosts: Vec<_> = [load("a", 1, 24), load("b", 2, 12), load("b", 3, 1)]
                .map(|load| shop.work(seed, load))
                .into();
            for name in [to, from, to] {
                bench.host_rt.sleep(MS * 8).await;
                shop.switch.set_policy(policy(name));
                let share = Share {
                    weight: 3,
                    ..Share::default()
                };
                shop.switch.set_share(TenantId(2), &share);
            }
            bench.host_rt.sleep(MS * 8).await;
            for (host, _) in &hosts {
                assert!(host.done.get() > 0, "{from} {to}");
            }
            let done = stop_all(hosts).await;
            let given = shop.dial.given.borrow().len() as u64;
            assert_eq!(given, done, "{from} {to}: lost, or done twice");
            shop.close(seed, &tenants).await;
        });
    }
}

/// What a tenant's reads have queued up has its turn in its order, whatever policies it waits in.
#[test]
fn the_order_of_a_tenant_survives_the_change_of_policies() {
    const EACH: u64 = 60;
    for (seed, (from, to)) in (1000..).zip(pairs()) {
        let site = Site::new(Config::calm(seed), 1);
        site.run(move |bench| async move {
            let tenants = ["a", "b"];
            let turns = Rc::new(RefCell::new(Vec::new()));
            let noted = |name| Box::new(Noted::new(policy(name), &turns));
            let shop = Shop::open(&bench, 0, noted(from), &tenants);
            shop.dial.set_latency(MS * 2);
            let mut queues = Vec::new();
            for (name, host) in [("a", 1), ("b", 2)] {
                queues.push(bench.connect(name, host).await);
            }
            for lba in 0..EACH {
                for (_, io) in &mut queues {
                    io.submit(read(lba), &[]).await;
                }
            }
            bench.host_rt.sleep(MS * 3).await;
            for name in [to, from] {
                shop.switch.set_policy(noted(name));
                bench.host_rt.sleep(MS * 10).await;
            }
            for (_, io) in &mut queues {
                for _ in 0..EACH {
                    assert!(matches!(io.next().await, Incoming::Data { .. }));
                    assert!(io.response().await.status().is_success(), "{from} {to}");
                }
            }
            for number in [1, 2] {
                let turns = turns.borrow();
                let turns = turns.iter().filter(|io| io.tenant == TenantId(number));
                let order: Vec<_> = turns.map(|io| io.lba).collect();
                assert_eq!(order, (0..EACH).collect::<Vec<_>>(), "{from} {to}");
            }
            shop.close(seed, &tenants).await;
        });
    }
}

/// Each policy with each.
fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let with_each = |from| POLICY_NAMES.iter().map(move |to| (from, *to));
    POLICY_NAMES.iter().flat_map(move |from| with_each(*from))
}

/// A policy whose decisions are noted.
struct Noted {
    policy: Box<dyn Policy>,
    queued: BTreeMap<IoId, Ask>,
    turns: Rc<RefCell<Vec<Ask>>>,
}

impl Noted {
    fn new(policy: Box<dyn Policy>, turns: &Rc<RefCell<Vec<Ask>>>) -> Self {
        Self {
            policy,
            queued: BTreeMap::new(),
            turns: turns.clone(),
        }
    }
}

impl Policy for Noted {
    fn arrive(&mut self, now: Time, io: Ask) {
        self.queued.insert(io.id, io);
        self.policy.arrive(now, io);
    }

    fn pass(&mut self, now: Time, io: &Ask) -> bool {
        let passes = self.policy.pass(now, io);
        if passes {
            self.turns.borrow_mut().push(*io);
        }
        passes
    }

    fn next(&mut self, now: Time) -> Next {
        let next = self.policy.next(now);
        if let Next::Dispatch(id) = next {
            let io = self.queued.remove(&id);
            self.turns.borrow_mut().push(io.expect("it is queued"));
        }
        next
    }

    fn complete(&mut self, now: Time, io: &Ask, outcome: Outcome) {
        self.policy.complete(now, io, outcome);
    }

    fn cancel(&mut self, now: Time, id: IoId) {
        self.queued.remove(&id);
        self.policy.cancel(now, id);
    }
}

fn read(slba: u64) -> SubmissionQueueEntry {
    let sgl = Sgl::Transport { length: BLOCK };
    SubmissionQueueEntry::read(1, LbaRange { slba, blocks: 1 }, sgl)
}

/// A drive that is a hundred times slower for a while: everybody gets on meanwhile, and when it is
/// as before, so are the tenants.
#[test]
fn a_drive_becomes_a_hundred_times_slower_and_comes_back() {
    for (n, name) in (0..).zip(POLICY_NAMES.iter().copied()) {
        for seed in (0..SEEDS).map(|seed| seed * 100 + n) {
            let site = Site::new(Config::calm(seed), 2);
            site.run(move |bench| async move {
                let tenants = ["a", "b"];
                let shop = Shop::open(&bench, seed as usize % 2, policy(name), &tenants);
                let hosts: Vec<_> = [load("a", 1, 12), load("b", 2, 12)]
                    .map(|load| shop.work(seed, load))
                    .into();
                bench.host_rt.sleep(MS * 100).await;
                let usual = done_within(&bench, &hosts, MS * 50).await;
                shop.dial.set_latency(USUAL * 100);
                // What the drive had taken at its old speed is done first.
                bench.host_rt.sleep(MS * 100).await;
                let slow = done_within(&bench, &hosts, MS * 2000).await;
                // It does two hundred in that time.
                assert!(
                    slow.iter().all(|done| *done > 60),
                    "{name} {seed}: {slow:?}"
                );
                shop.dial.set_latency(USUAL);
                recovers(&bench, &hosts, &usual, name).await;
                stop_all(hosts).await;
                shop.close(seed, &tenants).await;
            });
        }
    }
}

/// Waits until each host gets done nearly what is usual in 50 ms.
async fn recovers(bench: &Bench, hosts: &[Worker], usual: &[u64], name: &str) {
    let begun = bench.host_rt.now();
    loop {
        let done = done_within(bench, hosts, MS * 50).await;
        let mut each = done.iter().zip(usual);
        let took = bench.host_rt.now().since(begun);
        if each.all(|(done, usual)| *done * 10 >= *usual * 8) {
            return;
        }
        assert!(
            took < Duration::from_secs(10),
            "{name}: {done:?} instead of {usual:?}"
        );
    }
}

/// What each host gets done within a span.
async fn done_within(bench: &Bench, hosts: &[Worker], span: Duration) -> Vec<u64> {
    let done = || hosts.iter().map(|(host, _)| host.done.get());
    let before: Vec<_> = done().collect();
    bench.host_rt.sleep(span).await;
    done().zip(before).map(|(now, then)| now - then).collect()
}

/// The tenants of a drive that does not answer wait, and can be spoken to; those of another drive
/// notice nothing. When the answers come after all, everything goes on.
#[test]
fn a_drive_stops_answering() {
    for (n, name) in (0..).zip(POLICY_NAMES.iter().copied()) {
        let seed = 7 + n;
        let site = Site::new(Config::calm(seed), 2);
        site.run(move |bench| async move {
            let stuck = Shop::open(&bench, seed as usize % 2, policy(name), &["a"]);
            let fine = Shop::open(&bench, (n as usize / 2) % 2, policy("fair"), &["b"]);
            stuck.dial.set_latency(MS * 4);
            fine.dial.set_latency(MS * 20);
            let (waiting, task) = stuck.work(seed, load("a", 1, 24));
            let (working, other) = fine.work(seed, load("b", 2, 2));
            let (mut admin, _) = bench.admin("a", 9).await;
            let rt = &bench.host_rt;
            rt.sleep(MS * 400).await;
            let hosts = [(waiting, task)];
            let usual_of_stuck = done_within(&bench, &hosts, MS * 50).await;
            let [(waiting, task)] = hosts;
            let hosts = [(working, other)];
            let usual = done_within(&bench, &hosts, MS * 1000).await[0];
            stuck.dial.stop();
            rt.sleep(MS * 10).await;
            let held = waiting.done.get();
            // Longer than any deadline that a host has to keep.
            for _ in 0..9 {
                let done = done_within(&bench, &hosts, Duration::from_secs(5)).await[0];
                assert!(
                    done * 10 >= usual * 5 * 9,
                    "{name}: {done}, {usual} a second"
                );
                let begun = rt.now();
                let alive = admin.command(SubmissionQueueEntry::keep_alive(), &[]).await;
                assert!(alive.status().is_success());
                assert!(rt.now().since(begun) < MS * 10, "{name}: control waits");
            }
            assert_eq!(waiting.done.get(), held, "{name}");
            stuck.dial.resume();
            let waiting = [(waiting, task)];
            recovers(&bench, &waiting, &usual_of_stuck, name).await;
            stop_all(hosts.into_iter().chain(waiting).collect()).await;
            stuck.close(seed, &["a"]).await;
            fine.close(seed, &["b"]).await;
        });
    }
}

/// A volume whose drive does not answer cannot be taken away yet: nothing more is issued, who waits
/// may give up, and wait again once the drive answers.
#[test]
fn a_volume_of_a_drive_that_does_not_answer_is_taken_away_later() {
    for seed in 0..SEEDS * 4 {
        let site = Site::new(Config::calm(seed), 2);
        site.run(move |bench| async move {
            let shop = Shop::open(&bench, seed as usize % 2, policy("fair"), &["a"]);
            let patient = Load {
                may_go: true,
                ..load("a", 1, 8)
            };
            let (host, task) = shop.work(seed, patient);
            bench.host_rt.sleep(MS * 20).await;
            shop.dial.stop();
            bench.host_rt.sleep(MS * 20).await;
            let core = &bench.cores[shop.home];
            for _ in 0..3 {
                let rt = &bench.host_rt;
                let removal = core.remove_device(&shop.devices[0]);
                let removed = rt.timeout_at(rt.now() + MS * 50, removal).await;
                assert!(removed.is_none(), "seed {seed}: I/O is in flight");
            }
            let (given, done) = (shop.dial.given.borrow().len(), host.done.get());
            let (_admin, mut other) = bench.connect("a", 2).await;
            let refused = other.read(1, 0, 1, BLOCK).await;
            let not_ready = Status::NAMESPACE_NOT_READY.with_more();
            assert_eq!(refused, Err(not_ready), "seed {seed}");
            assert_eq!(shop.dial.given.borrow().len(), given, "seed {seed}");
            shop.dial.resume();
            shop.close(seed, &["a"]).await;
            task.await;
            assert!(host.done.get() > done && host.gone.get(), "seed {seed}");
        });
    }
}

/// A tenant whose class is latency-sensitive and whose host marks all of its many commands as
/// urgent has its share and no more. All I/Os take this drive as long, and costs are learnt by
/// size, so the part of one world depends on which I/Os chance gives each: in a second it is 0.49
/// to 0.56. All worlds together say what urgency gives.
#[test]
fn a_host_that_marks_everything_urgent_has_its_share() {
    let share = |done: [u64; 2]| done[0] as f64 / (done[0] + done[1]) as f64;
    let mut all = [0, 0];
    for seed in 0..SEEDS.max(8) {
        let done = beside_one_that_marks_everything(seed);
        assert!((0.45..0.57).contains(&share(done)), "seed {seed}: {done:?}");
        all = [all[0] + done[0], all[1] + done[1]];
    }
    assert!((0.48..0.54).contains(&share(all)), "{all:?}");
}

/// How many I/Os a tenant that marks everything as urgent, and one that does not, get in a second.
fn beside_one_that_marks_everything(seed: u64) -> [u64; 2] {
    let site = Site::new(Config::calm(seed), 1);
    site.run(move |bench| async move {
        let mut urgent = tenant(1, "a", &["*"]);
        urgent.class = Class::Latency;
        bench.target.set_tenant(urgent).expect("it changes");
        let tenants = ["a", "b"];
        let shop = Shop::open(&bench, 0, policy("fair"), &tenants);
        let loud = Load {
            mark: 0x30,
            ..load("a", 1, 32)
        };
        let hosts: Vec<_> = [loud, load("b", 2, 32)]
            .map(|load| shop.work(seed, load))
            .into();
        // Until it is known what the drive can do, which takes nearly a second here, whoever is
        // urgent goes first.
        bench.host_rt.sleep(MS * 1000).await;
        let done = done_within(&bench, &hosts, MS * 1000).await;
        stop_all(hosts).await;
        shop.close(seed, &tenants).await;
        [done[0], done[1]]
    })
}
