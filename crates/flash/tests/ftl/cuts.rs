//! Scripts, and the power cut at any one of their writes, and again at any write of the recoveries
//! that follow.

use flashyard_flash::channel;
use flashyard_flash::ftl::{Op, Options, State};
use flashyard_time::{Duration, Rng};

use crate::load::live;
use crate::model::Model;
use crate::owner::Owner;

/// What a host does.
#[derive(Clone, Copy, Debug)]
pub enum Script {
    /// Everything, at random.
    Mixed,
    /// Writes from end to end, some of them durable, twice over a part.
    InOrder,
    /// Writes, deallocations and flushes of a few units that lie over each other.
    Trims,
    /// Overwrites at random until garbage collection moves data all the time.
    Overwrites,
}

pub const SCRIPTS: [Script; 4] = [
    Script::Mixed,
    Script::InOrder,
    Script::Trims,
    Script::Overwrites,
];

/// How a script went.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Vectors written before the first cut.
    pub writes: u64,
    /// Which cuts came where requested; the others found nothing more to write.
    pub came: Vec<bool>,
}

impl Script {
    /// Runs until the end, or until the power has to go.
    fn run(self, model: &mut Model, owner: &mut Owner) -> bool {
        let mut chance = Rng::new(77);
        let capacity = owner.ftl.capacity();
        match self {
            Self::Mixed => live(model, owner, &mut chance, 250, 8),
            Self::InOrder => (0..120).all(|step| {
                let op = Op::Write {
                    durable: step % 10 == 9,
                };
                ask(model, owner, op, step % 60 * 16, 16)
            }),
            Self::Trims => (0..240).all(|step| {
                let (first, count) = (chance.below(24), 1 + chance.below(8) as u32);
                let op = match step % 5 {
                    0 | 1 => Op::Write { durable: false },
                    2 | 3 => Op::Deallocate,
                    _ => Op::Flush,
                };
                ask(model, owner, op, first, count)
            }),
            Self::Overwrites => {
                let fill = (0..capacity / 32)
                    .all(|step| ask(model, owner, Op::Write { durable: false }, step * 32, 32));
                fill && (0..150).all(|step| {
                    let op = if step % 50 == 49 {
                        Op::Flush
                    } else {
                        Op::Write { durable: false }
                    };
                    ask(model, owner, op, chance.below(capacity - 16), 16)
                })
            }
        }
    }
}

/// Submits a command, and lets others begin before it ends.
fn ask(model: &mut Model, owner: &mut Owner, op: Op, first: u64, count: u32) -> bool {
    model.submit(owner, op, first, count);
    let mut turns = 0;
    loop {
        let until = owner.now() + Duration::from_us(300);
        if !owner.run(until) {
            return false;
        }
        model.take(owner);
        if model.in_flight() < 6 {
            return true;
        }
        turns += 1;
        assert!(turns < 10_000, "commands are not answered");
    }
}

/// Runs a script on a fresh partition and cuts the power at its write of that number, or at its
/// end; then at so many writes after each recovery. In the end everything has to be as promised.
pub fn cut_at(
    script: Script,
    name: &str,
    device: channel::Options,
    first: Option<u64>,
    again: &[u64],
) -> Ended {
    let mut owner = Owner::on(name, 16, 9, device, Options::default());
    let mut model = Model::new(owner.ftl.capacity());
    owner.writes = 0;
    owner.cut_at = first;
    let through = script.run(&mut model, &mut owner);
    let mut ended = Ended {
        writes: owner.writes,
        came: vec![!through],
    };
    owner.cut();
    for &write in again {
        owner.writes = 0;
        owner.cut_at = Some(write);
        let through = owner.recover() && owner.settle();
        ended.came.push(!through);
        owner.cut();
    }
    owner.recover();
    assert_eq!(owner.ftl.state(), State::Ready);
    model.check_after_cut(&mut owner);
    owner.ftl.check().expect("the map is sound");
    ended
}

/// Cuts at every so many of the writes of a script, and each time at every so many of the writes
/// after the recovery; with `thrice` once more, two writes into the next. How many cuts there were.
pub fn cut_everywhere(
    script: Script,
    name: &str,
    device: channel::Options,
    (stride, again_stride): (usize, usize),
    thrice: bool,
) -> u64 {
    let all = cut_at(script, name, device, None, &[]).writes;
    let mut cuts = 0;
    for first in (0..all).step_by(stride) {
        cut_at(script, name, device, Some(first), &[]);
        cuts += 1;
        for second in (0..).step_by(again_stride) {
            let third = if thrice { &[second, 2][..] } else { &[second] };
            let ended = cut_at(script, name, device, Some(first), third);
            if !ended.came[1] {
                break;
            }
            cuts += ended.came.iter().map(|&came| u64::from(came)).sum::<u64>();
        }
    }
    cuts
}
