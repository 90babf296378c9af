//! The power is cut after each change of the devices of a volume that moves, and of what was not
//! flushed on each of them any subset survives, torn between sectors. The side that the record
//! names then has all that was flushed, and a move that was cut off can be made again over what it
//! has left.

mod arrays;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use arrays::{Drive, Log, cut, in_world};
use flashyard_block::migration::{Migration, Side, Sides, Start};
use flashyard_block::{DeviceExt, SharedDevice, Tag};
use flashyard_runtime::Rt;
use flashyard_testbed::{Content, Event, Paced, filled, flush, read, yields};
use flashyard_time::Rng;

const BLOCK: usize = 4096;
/// Three pieces of the copying, the last one short.
const BYTES: usize = 1200 << 10;
const BLOCKS: u64 = (BYTES / BLOCK) as u64;
const SOURCE: usize = 0;
const TARGET: usize = 1;
const RECORD: usize = 2;
const WRITERS: u64 = 4;

/// A write of a block: when it began and when it was known to last, in events, and the value.
struct Written {
    began: usize,
    lasts: usize,
    value: u8,
}

/// What hosts did. A block is written by one of them only, so its writes have an order.
struct History {
    writes: Vec<Vec<Written>>,
}

impl History {
    fn allows(&self, lba: usize, value: u8, happened: usize) -> bool {
        let writes = &self.writes[lba];
        let durable = writes.iter().rposition(|it| it.lasts <= happened);
        let mut newer = writes[durable.unwrap_or(0)..]
            .iter()
            .filter(|it| it.began <= happened);
        (durable.is_none() && value == first_value(lba)) || newer.any(|it| it.value == value)
    }

    /// What is in no flush yet, and has ended.
    fn ended(&self, blocks: &[usize]) -> Vec<(usize, usize)> {
        let last = blocks.iter().map(|lba| (*lba, self.writes[*lba].len()));
        last.filter(|(_, writes)| *writes > 0).collect()
    }
}

/// What the volume holds before anybody uses it: zeroes in some places.
fn first_value(lba: usize) -> u8 {
    match lba / 40 % 2 {
        0 => 100 + (lba % 100) as u8,
        _ => 0,
    }
}

fn first_content() -> Content {
    let bytes: Vec<u8> = (0..BYTES).map(|at| first_value(at / BLOCK)).collect();
    bytes.into()
}

struct Life {
    start: Vec<Content>,
    events: Vec<(usize, Event)>,
    history: History,
    moved: bool,
}

/// What hosts share.
struct Shared {
    migration: Migration,
    log: Log,
    history: RefCell<History>,
    /// The move is over: a few writes more, and hosts end.
    over: Cell<bool>,
}

/// A host that owns every fourth block.
async fn host(shared: Rc<Shared>, number: u64, seed: u64) {
    let (migration, history) = (&shared.migration, &shared.history);
    let events = || shared.log.borrow().len();
    let mut rng = Rng::new(seed ^ number << 32);
    let (mut used, mut after) = (Vec::new(), 0);
    let seldom = [4, 40][seed as usize % 2];
    for step in (1..90).cycle() {
        after += u32::from(shared.over.get());
        if after > 6 {
            break;
        }
        if rng.below(seldom) == 0 {
            let ended = history.borrow().ended(&used);
            flush(migration).await.expect("the volume works");
            for (lba, writes) in ended {
                let written = &mut history.borrow_mut().writes[lba][writes - 1];
                written.lasts = written.lasts.min(events());
            }
        } else {
            let lba = (rng.below(BLOCKS / WRITERS) * WRITERS + number) as usize;
            let fua = rng.below(seldom) == 0;
            history.borrow_mut().writes[lba].push(Written {
                began: events(),
                lasts: usize::MAX,
                value: step,
            });
            let written = migration.write(Tag::default(), lba as u64, filled(BLOCK, step), fua);
            written.await.expect("the volume works");
            if fua && let Some(written) = history.borrow_mut().writes[lba].last_mut() {
                written.lasts = events();
            }
            used.push(lba);
        }
        yields(rng.below(6)).await;
    }
}

/// A move, with hosts that write meanwhile. The target may die on the way.
async fn live(rt: &Rt, seed: u64, dies: bool) -> Life {
    let start = vec![
        first_content(),
        Content::zeroes(BYTES),
        Content::zeroes(BLOCK),
    ];
    let log = Log::default();
    let drives: Vec<Rc<Drive>> = (0..3)
        .map(|at| Drive::new(at, start[at].clone(), &log, seed + at as u64))
        .collect();
    let shared = Rc::new(Shared {
        migration: Migration::new(rt, sides(&drives), Start::default()),
        log: log.clone(),
        history: RefCell::new(History {
            writes: (0..BLOCKS).map(|_| Vec::new()).collect(),
        }),
        over: Cell::new(false),
    });
    let hosts: Vec<_> = (0..WRITERS)
        .map(|number| rt.spawn(host(Rc::clone(&shared), number, seed)))
        .collect();
    let switches = Rc::new(Cell::new(false));
    if dies {
        let (target, switches) = (drives[TARGET].clone(), Rc::clone(&switches));
        rt.spawn(async move {
            yields(20 + seed * 37 % 200).await;
            // A volume whose only side fails has nothing to promise.
            target.dead.set(!switches.get());
        })
        .detach();
    }
    yields(30).await;
    let moved = whole_move(&shared.migration, &drives, &switches, seed % 3 * 15).await;
    shared.over.set(true);
    for host in hosts {
        host.await;
    }
    let events = log.borrow().clone();
    let shared = Rc::into_inner(shared).expect("the hosts have ended");
    Life {
        start,
        events,
        history: shared.history.into_inner(),
        moved,
    }
}

/// Whether the volume is on the target now. What cannot be recorded any more stays.
async fn whole_move(
    migration: &Migration,
    drives: &[Rc<Drive>],
    switches: &Cell<bool>,
    pause: u64,
) -> bool {
    let copied = async {
        migration.copy().await?;
        yields(30).await;
        migration.begin_switch().await
    };
    if copied.await.is_err() || drives[TARGET].dead.get() {
        migration.end(Side::Source).await;
        return false;
    }
    switches.set(true);
    yields(pause).await;
    let is_target = filled(BLOCK, 1);
    let recorded = drives[RECORD].write(Tag::default(), 0, is_target, true);
    recorded.await.expect("it never fails");
    yields(30).await;
    migration.end(Side::Target).await;
    true
}

/// The target is the slower one: writes that have ended are not there yet.
fn sides(drives: &[Rc<Drive>]) -> Sides {
    let side = |at: usize| drives[at].clone() as SharedDevice;
    let rng = RefCell::new(Rng::new(1));
    let slow = Paced::new(side(TARGET), move |_, _| yields(rng.borrow_mut().below(16)));
    let target: SharedDevice = Rc::new(slow);
    Sides {
        source: side(SOURCE),
        copy_from: side(SOURCE),
        target: target.clone(),
        copy_to: target,
    }
}

/// The first byte of each sector of a block stands for the sector: blocks may be torn.
fn check(life: &Life, content: &[u8], happened: usize, place: &str) {
    for (sector, bytes) in content.chunks(512).enumerate() {
        let (lba, value) = (sector * 512 / BLOCK, bytes[0]);
        assert!(
            bytes.iter().all(|it| *it == value),
            "{place}: a torn sector"
        );
        assert!(
            life.history.allows(lba, value, happened),
            "{place}: block {lba} holds {value}"
        );
    }
}

/// Opens what is left, and moves once more where the volume has not moved.
async fn examine(rt: &Rt, life: &Life, happened: usize, seed: u64) -> bool {
    let place = format!("seed {seed}, cut after {happened} events");
    let mut rng = Rng::new(seed ^ happened as u64);
    let left = cut(&life.start, &life.events[..happened], &mut rng);
    if left[RECORD].bytes()[0] == 1 {
        check(life, &left[TARGET].bytes(), happened, &place);
        return true;
    }
    check(life, &left[SOURCE].bytes(), happened, &place);
    if !happened.is_multiple_of(7) {
        return false;
    }
    let log = Log::default();
    let drives: Vec<Rc<Drive>> = (0..3)
        .map(|at| Drive::new(at, left[at].clone(), &log, seed))
        .collect();
    let start = Start {
        copied: 0,
        touched: BYTES as u64,
    };
    let migration = Migration::new(rt, sides(&drives), start);
    assert!(
        whole_move(&migration, &drives, &Cell::new(false), 0).await,
        "{place}"
    );
    let moved = read(&*drives[TARGET], 0, BYTES).await.expect("it works");
    assert!(moved == left[SOURCE].bytes(), "{place}: the copy differs");
    false
}

#[test]
fn the_recorded_side_has_all_that_was_flushed_after_every_cut() {
    in_world(async |rt: Rt| {
        for seed in 0..6 {
            let life = live(&rt, seed, false).await;
            assert!(life.moved);
            let mut on_target = 0;
            for happened in 0..=life.events.len() {
                on_target += usize::from(examine(&rt, &life, happened, seed).await);
            }
            // Both sides were examined while hosts wrote.
            assert!(on_target > 20, "seed {seed}: {on_target}");
            assert!(
                life.events.len() - on_target > 100,
                "seed {seed}: {on_target} of {}",
                life.events.len()
            );
        }
    });
}

#[test]
fn a_target_that_fails_takes_nothing_with_it() {
    in_world(async |rt: Rt| {
        let mut stayed = 0;
        for seed in 20..32 {
            let life = live(&rt, seed, true).await;
            stayed += u32::from(!life.moved);
            for happened in (0..=life.events.len())
                .step_by(5)
                .chain([life.events.len()])
            {
                let on_target = examine(&rt, &life, happened, seed).await;
                assert!(life.moved || !on_target, "seed {seed}");
            }
        }
        assert!(stayed > 3, "{stayed}");
    });
}
