//! What a host says in a capsule arrives at the device, all of it: range, forced unit access, the
//! bit to deallocate, tenant and class. Every command, on a device of its own core and of another
//! one, at once and after a wait, on a volume of a pool and without.

use std::mem::discriminant;
use std::rc::Rc;

use flashyard_block::pool::Pool;
use flashyard_block::{Class, SharedDevice, Tag, TenantId};
use flashyard_engine::TenantSpec;
use flashyard_nvme::command::{Fuse, LbaRange};
use flashyard_nvme::dsm::DsmRange;
use flashyard_nvme::{Sgl, SubmissionQueueEntry as Entry};
use flashyard_runtime::sim::Config;
use flashyard_sched::{Ask, IoId, Op};
use flashyard_testbed::{BLOCK, Bench, Client, Incoming, Site, memory, tenant};
use flashyard_time::Duration;

use crate::recorder::{Asked, Did, Listener, Notes, Recorder};

/// What the device takes for an I/O: longer than anything on the network.
const TAKES: Duration = Duration::from_ms(50);
/// Longer than a write with an R2T keeps its turn.
const LATE: Duration = Duration::from_ms(200);
const TENANT: TenantId = TenantId(1);

/// Where the commands go, and how.
#[derive(Clone, Copy, Debug)]
struct Route {
    /// The core of the device; the queue is served by core 1.
    home: usize,
    /// Somebody else's I/O is at the device when the command comes.
    busy: bool,
    /// I/O takes its time.
    slow: bool,
    /// The namespace is a volume, of which the extents lie apart.
    volume: bool,
    /// The device has a volatile cache.
    volatile: bool,
    /// What the tenant may claim, and what the command says (Access Latency).
    grant: Class,
    hint: u32,
    /// What it then is.
    class: Class,
}

/// How the data of a command get to the target.
#[derive(Clone, Copy, Debug)]
enum By {
    Nothing,
    Capsule,
    R2t,
    /// The turn has lapsed before they come.
    LateR2t,
}

struct Case {
    /// One command, or a pair.
    entries: Vec<Entry>,
    by: By,
    data: Vec<u8>,
    /// What a device without a pool is to do, one after the other.
    does: Vec<Did>,
}

/// Across the end of the first extent of the volume.
const RANGE: LbaRange = LbaRange {
    slba: 255,
    blocks: 2,
};
const ONE: LbaRange = LbaRange {
    slba: 255,
    blocks: 1,
};

fn sgl(by: By, blocks: u32) -> Sgl {
    let length = blocks * BLOCK;
    match by {
        By::Capsule => Sgl::InCapsule { offset: 0, length },
        _ => Sgl::Transport { length },
    }
}

fn cases(volatile: bool) -> Vec<Case> {
    let mut cases = vec![flush()];
    for fua in [false, true] {
        let with_flag = |entry: Entry| if fua { entry.with_fua() } else { entry };
        let flushes = (fua && volatile).then_some(Did::Flush);
        cases.push(read(with_flag, flushes));
        for deallocate in [false, true] {
            cases.push(zero(with_flag, flushes, deallocate));
        }
        for by in [By::Capsule, By::R2t, By::LateR2t] {
            cases.push(write(with_flag, fua, by));
        }
        for by in [By::Capsule, By::R2t] {
            cases.push(compare(with_flag, flushes, by));
            cases.extend([false, true].map(|write| pair([fua, write], flushes, by)));
        }
    }
    for by in [By::Capsule, By::R2t] {
        cases.extend([false, true].map(|deallocate| manage(by, deallocate)));
    }
    cases
}

fn flush() -> Case {
    Case {
        entries: vec![Entry::flush(1)],
        by: By::Nothing,
        data: Vec::new(),
        does: vec![Did::Flush],
    }
}

/// What is in a volatile cache goes to the medium first.
fn read(with_flag: impl Fn(Entry) -> Entry, flushes: Option<Did>) -> Case {
    Case {
        entries: vec![with_flag(Entry::read(1, RANGE, sgl(By::Nothing, 2)))],
        by: By::Nothing,
        data: Vec::new(),
        does: flushes.into_iter().chain([Did::Read(255, 2)]).collect(),
    }
}

fn compare(with_flag: impl Fn(Entry) -> Entry, flushes: Option<Did>, by: By) -> Case {
    Case {
        entries: vec![with_flag(Entry::compare(1, RANGE, sgl(by, 2)))],
        by,
        data: vec![0; 2 * BLOCK as usize],
        does: flushes.into_iter().chain([Did::Read(255, 2)]).collect(),
    }
}

fn write(with_flag: impl Fn(Entry) -> Entry, fua: bool, by: By) -> Case {
    let (lba, blocks) = (255, 2);
    Case {
        entries: vec![with_flag(Entry::write(1, RANGE, sgl(by, 2)))],
        by,
        data: vec![0; 2 * BLOCK as usize],
        does: vec![Did::Write { lba, blocks, fua }],
    }
}

fn zero(with_flag: impl Fn(Entry) -> Entry, flushes: Option<Did>, deallocate: bool) -> Case {
    let zero = Did::Zero {
        lba: 255,
        blocks: 2,
        deallocate,
    };
    Case {
        entries: vec![with_flag(Entry::write_zeroes(1, RANGE, deallocate))],
        by: By::Nothing,
        data: Vec::new(),
        does: [zero].into_iter().chain(flushes).collect(),
    }
}

/// Either half may have the flag. What is compared is to be on the medium, so it `flushes` first.
fn pair(fua: [bool; 2], flushes: Option<Did>, by: By) -> Case {
    let halves = [
        Entry::compare(1, ONE, sgl(by, 1)).with_fuse(Fuse::First),
        Entry::write(1, ONE, sgl(by, 1)).with_fuse(Fuse::Second),
    ];
    let with_flags = halves.into_iter().zip(fua).map(|(half, fua)| match fua {
        true => half.with_fua(),
        false => half,
    });
    let both = Did::CompareAndWrite {
        lba: 255,
        blocks: 1,
        fua: fua[1],
    };
    Case {
        entries: with_flags.collect(),
        by,
        data: vec![0; BLOCK as usize],
        does: flushes.into_iter().chain([both]).collect(),
    }
}

/// Three ranges, of which one is empty; as hints they do nothing.
fn manage(by: By, deallocate: bool) -> Case {
    let ranges = [(255, 2), (9, 0), (3, 5)];
    let mut data = Vec::new();
    for (slba, blocks) in ranges {
        let range = DsmRange {
            attributes: 0,
            blocks,
            slba,
        };
        data.extend_from_slice(&range.encode());
    }
    let length = data.len() as u32;
    let sgl = match by {
        By::Capsule => Sgl::InCapsule { offset: 0, length },
        _ => Sgl::Transport { length },
    };
    let entry = Entry::deallocate(1, 3, sgl);
    let entries = vec![if deallocate {
        entry
    } else {
        entry.with_cdw(11, 3)
    }];
    let does = match deallocate {
        true => vec![Did::Deallocate(255, 2), Did::Deallocate(3, 5)],
        false => Vec::new(),
    };
    Case {
        entries,
        by,
        data,
        does,
    }
}

/// What the device under the pool is to do. The second extent of the volume is the third of the
/// pool.
fn on_volume(did: Did) -> Vec<Did> {
    let pieces = |lba: u64, blocks: u64| {
        let place = |lba: u64| match lba {
            0..256 => 512 + lba,
            _ => 1024 + lba - 256,
        };
        let before = 256_u64.saturating_sub(lba).min(blocks);
        let pieces = [(place(lba), before), (1024, blocks - before)];
        pieces.into_iter().filter(|(_, blocks)| *blocks > 0)
    };
    match did {
        Did::Flush => vec![Did::Flush],
        Did::Read(lba, blocks) => pieces(lba, blocks)
            .map(|(lba, blocks)| Did::Read(lba, blocks))
            .collect(),
        Did::Write { lba, blocks, fua } => pieces(lba, blocks)
            .map(|(lba, blocks)| Did::Write { lba, blocks, fua })
            .collect(),
        Did::Zero {
            lba,
            blocks,
            deallocate,
        } => pieces(lba, blocks)
            .map(|(lba, blocks)| Did::Zero {
                lba,
                blocks,
                deallocate,
            })
            .collect(),
        Did::Deallocate(lba, blocks) => pieces(lba, blocks)
            .map(|(lba, blocks)| Did::Deallocate(lba, blocks))
            .collect(),
        Did::CompareAndWrite { lba, blocks, fua } => [
            on_volume(Did::Read(lba, blocks)),
            on_volume(Did::Write { lba, blocks, fua }),
        ]
        .concat(),
    }
}

/// What the policy is to be asked before it.
fn asked(did: Did, class: Class) -> Ask {
    let (op, lba, blocks) = match did {
        Did::Read(lba, blocks) => (Op::Read, lba, blocks),
        Did::Write { lba, blocks, .. } => (Op::Write, lba, blocks),
        Did::Flush => (Op::Flush, 0, 0),
        Did::Zero { lba, blocks, .. } => (Op::WriteZeroes, lba, blocks),
        Did::Deallocate(lba, blocks) => (Op::Deallocate, lba, blocks),
        Did::CompareAndWrite { lba, blocks, .. } => (Op::CompareAndWrite, lba, blocks),
    };
    Ask {
        id: IoId(0),
        tenant: TENANT,
        class,
        op,
        bytes: blocks * u64::from(BLOCK),
        lba,
    }
}

/// The namespace of both tenants, on the core and under the pool that the route says.
async fn namespace(bench: &Bench, route: Route, notes: &Rc<Notes>) {
    let rt = &bench.rts[route.home];
    let recorder: SharedDevice = Rc::new(Recorder {
        rt: rt.clone(),
        inner: memory(8 << 20),
        notes: notes.clone(),
    });
    let device = if route.volume {
        let pool = Pool::create(rt, recorder, [1; 16], false)
            .await
            .expect("an empty device");
        for (name, number) in [("ours", 1), ("between", 2)] {
            let made = pool.create_volume(name, [number; 16], 1 << 20).await;
            made.expect("there is room");
        }
        pool.grow("ours", 2 << 20).await.expect("there is room");
        pool.volume("ours").expect("it is there")
    } else {
        recorder
    };
    let core = &bench.cores[route.home];
    let device = core.add_device(device, &core.add_switch(Box::new(Listener::new(notes))));
    bench.attach_handle("a", 1, &device);
    bench.attach_handle("b", 1, &device);
}

/// Sends the commands of a case, gives them their data, and waits for all answers.
async fn perform(bench: &Bench, io: &mut Client, case: &Case, hint: u32) {
    for entry in &case.entries {
        let data: &[u8] = match case.by {
            By::Capsule => &case.data,
            _ => &[],
        };
        io.submit(entry.with_cdw(13, hint), data).await;
    }
    let mut left = case.entries.len();
    while left > 0 {
        match io.next().await {
            Incoming::R2t(r2t) => {
                if matches!(case.by, By::LateR2t) {
                    bench.host_rt.sleep(LATE).await;
                }
                io.send_requested(&r2t, &case.data, 4096).await;
            }
            other => left -= usize::from(is_answer(&other)),
        }
    }
}

/// Data of a read may say themselves that it succeeded.
fn is_answer(incoming: &Incoming) -> bool {
    match incoming {
        Incoming::Response(answer) => {
            assert!(answer.status().is_success(), "{answer:?}");
            true
        }
        Incoming::Data { header, .. } => header.success,
        other => panic!("{other:?}"),
    }
}

async fn try_case(
    bench: &Bench,
    [io, other]: [&mut Client; 2],
    notes: &Notes,
    (route, case): (Route, &Case),
) {
    let place = || format!("{:?} by {:?}, {route:?}", case.entries, case.by);
    if route.busy {
        let before = Entry::read(1, LbaRange { slba: 0, blocks: 1 }, sgl(By::Nothing, 1));
        other.submit(before, &[]).await;
        bench.host_rt.sleep(TAKES / 2).await;
    }
    notes.take_given(TENANT);
    notes.take_asked(TENANT);
    perform(bench, io, case, route.hint).await;
    assert!(
        !notes.has_in_flight(TENANT),
        "answered too early: {}",
        place()
    );
    let given = notes.take_given(TENANT);
    // Pieces of one read or write are at the device together, and nothing else is beside them.
    let mut expected = Vec::new();
    for did in &case.does {
        let pieces = match route.volume {
            true => on_volume(*did),
            false => vec![*did],
        };
        for (at, piece) in pieces.iter().enumerate() {
            let alike = |other: &&Did| discriminant(*other) == discriminant(piece);
            let beside = pieces[..at].iter().filter(alike).count();
            expected.push((*piece, if route.slow { beside } else { 0 }));
        }
    }
    let did: Vec<_> = given
        .iter()
        .map(|given| (given.did, given.beside))
        .collect();
    assert_eq!(did, expected, "{}", place());
    let tag = Tag {
        tenant: TENANT,
        class: route.class,
    };
    for given in given {
        assert_eq!(given.tag, tag, "{:?}: {}", given.did, place());
    }
    let ios = case.does.iter().map(|did| asked(*did, route.class));
    let mut ios: Vec<_> = ios.map(|io| (io, Asked::First)).collect();
    if matches!(case.by, By::LateR2t) {
        ios.push((ios[0].0, Asked::Again));
    }
    assert_eq!(notes.take_asked(TENANT), ios, "{}", place());
    if route.busy {
        while !is_answer(&other.next().await) {}
    }
}

fn try_route(route: Route) {
    let site = Site::new(Config::calm(1), 2);
    site.run(move |bench| async move {
        let spec = TenantSpec {
            class: route.grant,
            ..tenant(TENANT.0, "a", &["*"])
        };
        bench.target.set_tenant(spec).expect("a good tenant");
        let notes = Notes::new(route.volatile);
        namespace(&bench, route, &notes).await;
        let (_admin, mut io) = bench.connect("a", 1).await;
        let (_other_admin, mut other) = bench.connect("b", 2).await;
        if route.slow {
            notes.set_takes(TAKES);
        }
        for case in cases(route.volatile) {
            try_case(&bench, [&mut io, &mut other], &notes, (route, &case)).await;
        }
    });
}

#[test]
fn all_that_a_host_says_arrives_at_the_device() {
    // What the tenant may have counts where the host says nothing, and what the host says where it
    // may.
    let classes = [
        (Class::Background, 0, Class::Background),
        (Class::Latency, 0x20, Class::Throughput),
    ];
    for home in [1, 0] {
        for (busy, slow) in [(false, false), (false, true), (true, true)] {
            for (volume, volatile) in [(false, false), (false, true), (true, false), (true, true)] {
                for (grant, hint, class) in classes {
                    try_route(Route {
                        home,
                        busy,
                        slow,
                        volume,
                        volatile,
                        grant,
                        hint,
                        class,
                    });
                }
            }
        }
    }
}
