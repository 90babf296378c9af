//! The rebuild of a mirror beside tenants: it takes its turns at the switch before the mirror, in
//! the background, and waits for nobody who waits for it.

use std::rc::Rc;

use flashyard_block::array::{Array, Layout, NewMember, Options};
use flashyard_block::fault::{FaultDevice, FaultKind, FaultOn, FaultRule};
use flashyard_block::{DeviceExt, Io, SharedDevice, Step, SystemWork, Tag};
use flashyard_engine::{Cause, Class, Core, Port, Switch, TenantId};
use flashyard_runtime::sim::Config;
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_sched::{Ask, Fair, Fifo, IoId, Op, Policy, Share, Window};
use flashyard_time::{Duration, Rng};

use crate::world::{BLOCK, BLOCKS, DRIVE, drive};

const MIB: u64 = 1 << 20;
/// Bytes that every member has.
const MEMBER: u64 = BLOCKS * BLOCK as u64;

/// A mirror of two behind a switch, with a drive that is no member yet.
struct Scene {
    rt: Rt,
    switch: Rc<Switch>,
    array: Rc<Array>,
    /// The mirror behind its switch.
    way: SharedDevice,
    drives: Vec<SharedDevice>,
    /// The same, for who wants to know why it is slow.
    port: Rc<Port>,
    /// The second member.
    faults: Rc<FaultDevice>,
}

/// What one tenant does: reads of 4 KiB somewhere, so many at a time.
#[derive(Clone, Copy)]
struct Reader {
    tenant: u32,
    depth: u64,
}

const READERS: [Reader; 2] = [
    Reader {
        tenant: 1,
        depth: 64,
    },
    Reader {
        tenant: 2,
        depth: 64,
    },
];

impl Scene {
    async fn new(rt: &Rt, core: &Core, policy: Box<dyn Policy>) -> Self {
        let mut drives: Vec<SharedDevice> = (0..3).map(|_| drive(rt.clone(), DRIVE)).collect();
        let faults = FaultDevice::new(rt, drives[1].clone(), 1, Vec::new());
        let faults = Rc::new(faults);
        drives[1] = faults.clone();
        let layout = Layout {
            copies: 2,
            parity: 0,
            safe_read: false,
        };
        let members = (0..2).map(|at| member(at, &drives)).collect();
        let array = Array::create(rt, members, [1; 16], layout, Options::default(), false).await;
        let array = Rc::new(array.expect("they are blank"));
        let switch = core.add_switch(policy);
        let handle = core.add_device(array.clone(), &switch);
        let way = core.way_to(&handle);
        let port = Port::new(&switch, array.clone());
        Self {
            rt: rt.clone(),
            switch,
            array,
            way,
            drives,
            port,
            faults,
        }
    }

    /// The second member vanishes, and its place is taken: nothing more may be lost.
    async fn begin_urgent_rebuild(&self) {
        let gone = FaultRule::new(FaultKind::Gone).on(FaultOn::All).always();
        self.faults.set(vec![gone]);
        let data = Buf::take_zeroed(BLOCK).expect("memory");
        let written = self.way.write(tag(READERS[0]), 0, data, false).await;
        written.expect("one works");
        self.begin_rebuild().await;
    }

    async fn begin_rebuild(&self) {
        let new = member(2, &self.drives);
        let replaced = self.array.replace("m1", new, false).await;
        replaced.expect("it is blank");
    }

    fn copied(&self) -> u64 {
        let members = self.array.status().members.into_iter();
        members.map(|member| member.counts.copied_bytes).sum()
    }

    fn is_whole(&self) -> bool {
        let status = self.array.status();
        status.rebuild.is_none() && !status.is_degraded()
    }

    /// How long the rest of a rebuild takes with nobody else there.
    async fn rest(&self) -> Duration {
        let begun = self.rt.now();
        while !self.is_whole() {
            self.rt.sleep(Duration::from_ms(1)).await;
        }
        self.rt.now().since(begun)
    }

    /// Reads per second of each tenant, and bytes per second that were copied meanwhile.
    async fn beside(&self, readers: [Reader; 2], ms: u64) -> ([u64; 2], u64) {
        let from = self.rt.now() + Duration::from_ms(ms / 4);
        let until = from + Duration::from_ms(ms);
        let tasks = readers.map(|reader| {
            let tasks = (0..reader.depth).map(|number| {
                let (rt, port) = (self.rt.clone(), self.port.clone());
                let mut rng = Rng::new(u64::from(reader.tenant)).split(number);
                self.rt.spawn(async move {
                    let mut done = 0;
                    while rt.now() < until {
                        one(&port, reader, rng.below(BLOCKS / 2)).await;
                        done += u64::from(rt.now() >= from && rt.now() < until);
                    }
                    done
                })
            });
            tasks.collect::<Vec<_>>()
        });
        self.rt.sleep_until(from).await;
        let before = self.copied();
        self.rt.sleep_until(until).await;
        let copied = self.copied() - before;
        let mut rates = [0; 2];
        for (rate, tasks) in rates.iter_mut().zip(tasks) {
            for task in tasks {
                *rate += task.await;
            }
            *rate = *rate * 1000 / ms;
        }
        (rates, copied * 1000 / ms)
    }
}

/// A read, which is booked.
async fn one(port: &Rc<Port>, reader: Reader, lba: u64) {
    let Tag { tenant, class } = tag(reader);
    let ask = Ask {
        id: IoId::NONE,
        tenant,
        class,
        op: Op::Read,
        bytes: BLOCK as u64,
        lba,
    };
    let permit = port.admit(ask, false).await;
    let into = Buf::take(BLOCK).expect("memory");
    let done = permit.submit(Io::Read { lba, into }).await;
    if let Some(sample) = permit.complete(done.is_ok()) {
        port.record(&sample);
    }
    done.expect("it works");
}

fn member(at: usize, drives: &[SharedDevice]) -> NewMember {
    NewMember {
        name: format!("m{at}"),
        device: drives[at].clone(),
    }
}

fn tag(reader: Reader) -> Tag {
    Tag {
        tenant: TenantId(reader.tenant),
        class: Class::Throughput,
    }
}

/// Runs a scene on the only core of a target.
fn in_scene<F: Future<Output = ()> + 'static>(
    seed: u64,
    policy: impl FnOnce() -> Box<dyn Policy> + 'static,
    main: impl FnOnce(Scene) -> F + 'static,
) {
    let site = flashyard_testbed::Site::new(Config::calm(seed), 1);
    let (rt, core) = (site.server.rt(0), site.bench.cores[0].clone());
    site.world.run(&site.server, move |_| async move {
        let scene = Scene::new(&rt, &core, policy()).await;
        main(scene).await;
    });
}

fn fair() -> Box<dyn Policy> {
    Box::new(Fair::new())
}

fn fifo() -> Box<dyn Policy> {
    Box::new(Fifo::new(Window {
        ios: 32,
        bytes: u64::MAX,
    }))
}

fn one_at_a_time() -> Box<dyn Policy> {
    Box::new(Fifo::new(Window { ios: 1, bytes: MIB }))
}

/// Tenants have what they had, in the parts that they are owed; the rebuild has what is done in the
/// background, and all of it when they have gone.
#[test]
fn tenants_keep_their_shares_beside_a_rebuild_under_fair() {
    in_scene(1, fair, async |scene| {
        let share = Share {
            weight: 3,
            ..Share::default()
        };
        scene.switch.set_share(TenantId(2), &share);
        let (alone, _) = scene.beside(READERS, 2000).await;
        scene.begin_rebuild().await;
        let (beside, copied) = scene.beside(READERS, 2000).await;
        for (beside, alone) in beside.iter().zip(alone) {
            assert!(beside * 100 >= alone * 95, "{beside} of {alone}");
        }
        assert!(
            beside[1].abs_diff(3 * beside[0]) * 20 <= beside[1],
            "{beside:?}"
        );
        // It never stops: a piece is 128 KiB.
        assert!(copied >= MIB, "{copied}");
        assert!(!scene.is_whole());
        let left = MEMBER - scene.copied();
        let rest = scene.rest().await;
        let pieces = left.div_ceil(128 << 10);
        // Read and written, one after the other, by one part of each drive.
        let each = (DRIVE.fixed + DRIVE.each * 32).scale(2, 1);
        assert!(rest <= each.scale(pieces, 1).scale(11, 10), "{rest}");
    });
}

/// While the loss of another member would be the loss of data, it has a share as a tenant has.
#[test]
fn a_rebuild_has_a_share_under_fair_when_nothing_more_may_be_lost() {
    in_scene(1, fair, async |scene| {
        scene.begin_urgent_rebuild().await;
        let (beside, copied) = scene.beside(READERS, 300).await;
        // One member can do 40,000 reads a second.
        assert!(beside[0] + beside[1] >= 40_000 / 2, "{beside:?}");
        assert!(
            beside[1].abs_diff(beside[0]) * 20 <= beside[1],
            "{beside:?}"
        );
        assert!(copied >= 16 * MIB, "{copied}");
        scene.rest().await;
    });
}

/// In the order of coming it is one among the others.
#[test]
fn a_rebuild_is_one_among_others_under_fifo_and_a_tenant_hears_of_it() {
    in_scene(1, fifo, async |scene| {
        let (alone, _) = scene.beside(READERS, 300).await;
        scene.begin_rebuild().await;
        let (beside, copied) = scene.beside(READERS, 300).await;
        for (beside, alone) in beside.iter().zip(alone) {
            assert!(beside * 100 >= alone * 60, "{beside} of {alone}");
        }
        assert!(copied >= 16 * MIB, "{copied}");
        let why = scene.switch.why(TenantId(1)).expect("it reads");
        let rebuild = [
            Cause::SystemTurn(SystemWork::Rebuild),
            Cause::System(SystemWork::Rebuild),
        ];
        for cause in rebuild {
            let found = why.causes.iter().find(|(known, _)| *known == cause);
            assert!(found.is_some_and(|(_, ns)| *ns > 0), "{:?}", why.causes);
        }
        let listed: Vec<TenantId> = scene.switch.recent().iter().map(|it| it.tenant).collect();
        assert_eq!(listed, [TenantId(1), TenantId(2)]);
    });
}

/// With a device that takes one I/O at a time: whoever has that turn has it, and no region that it
/// needs is held by who waits for it.
#[test]
fn nobody_waits_for_a_rebuild_that_waits_for_its_turn() {
    for seed in 0..6 {
        in_scene(seed, one_at_a_time, async move |scene| {
            scene.begin_rebuild().await;
            let writers = (0..8).map(|number| {
                let (rt, way) = (scene.rt.clone(), scene.way.clone());
                let mut rng = Rng::new(seed).split(number);
                scene.rt.spawn(async move {
                    // Where it is copied first.
                    for _ in 0..100 {
                        let mut data = Buf::take(BLOCK).expect("memory");
                        data.fill(rng.below(256) as u8);
                        let lba = rng.below(2 * MIB / BLOCK as u64);
                        let written = way.write(tag(READERS[0]), lba, data, false).await;
                        written.expect("it works");
                        rt.sleep(Duration::from_us(rng.below(300))).await;
                    }
                })
            });
            let writers: Vec<_> = writers.collect();
            for writer in writers {
                writer.await;
            }
            scene.rest().await;
            let mut both = Vec::new();
            for lba in 0..2 * MIB / BLOCK as u64 {
                both.push(read(&scene.way, lba).await);
            }
            scene.array.close().await;
            // The new member alone has all that was read of both.
            let alone = vec![member(2, &scene.drives)];
            let options = Options::default();
            let alone = Array::open(&scene.rt, alone, None, options, true).await;
            let alone: SharedDevice = Rc::new(alone.expect("it has everything"));
            for (lba, content) in (0..).zip(&both) {
                assert!(content == &read(&alone, lba).await, "{seed}: {lba}");
            }
        });
    }
}

async fn read(drive: &SharedDevice, lba: u64) -> Vec<u8> {
    let into = Buf::take(BLOCK).expect("memory");
    match drive.read(Tag::default(), lba, into).await {
        Ok(Data::Buf(buf)) => buf.to_vec(),
        Ok(Data::Zeroes(len)) => vec![0; len],
        Err(error) => panic!("{error:?}"),
    }
}

/// What waits at the switch when the array ends is taken back, and so it is when its turn has come
/// and nobody has noticed.
#[test]
fn an_array_ends_while_its_rebuild_waits() {
    in_scene(1, one_at_a_time, async |scene| {
        // Somebody has the only turn, and keeps it.
        let kept = scene.switch.turns();
        let step = Step {
            work: SystemWork::Scrub,
            class: Class::Background,
            op: Op::Read,
            bytes: MIB,
            lba: 0,
        };
        let kept = kept.wait(step).await;
        scene.begin_rebuild().await;
        scene.rt.sleep(Duration::from_secs(30)).await;
        assert_eq!(scene.copied(), 0);
        scene.array.close().await;
        kept.end(true);
        scene.rt.sleep(Duration::from_secs(30)).await;
        assert_eq!(scene.copied(), 0);
    });
}
