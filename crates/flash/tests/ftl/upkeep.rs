//! What an FTL does beside serving: levelling wear, choosing victims, pacing the host, and
//! checkpoints of many lines.

use flashyard_flash::channel::{self, Device};
use flashyard_flash::ftl::{Choice, Op, Options, State};
use flashyard_time::{Duration, Rng, Time};

use crate::load::{live, recover};
use crate::model::Model;
use crate::owner::{Owner, profile};

const WRITE: Op = Op::Write { durable: false };

/// A partition written from end to end.
fn filled(lines: u64, options: Options) -> Owner {
    let mut owner = Owner::on("dct983", lines, 3, channel::Options::default(), options);
    let capacity = owner.ftl.capacity();
    for first in (0..capacity).step_by(16) {
        let count = (capacity - first).min(16) as u32;
        owner.submit(WRITE, first, count, first + 1);
        owner.settle();
    }
    owner
}

/// Writes units one by one, many at once: nine of ten go to the first `warm` thousandths of the
/// partition. When so many were taken, and after each next so many.
fn write(owner: &mut Owner, chance: &mut Rng, warm: u64, (steps, writes): (u64, u64)) -> Vec<Time> {
    let capacity = owner.ftl.capacity();
    let (before, mut ends, mut in_flight) = (owner.ftl.stats().host_units, Vec::new(), 0);
    owner.done.clear();
    while (ends.len() as u64) < steps {
        for _ in in_flight..32 {
            let part = if chance.chance(9, 10) {
                capacity * warm / 1000
            } else {
                capacity
            };
            owner.submit(WRITE, chance.below(part), 1, 1 << 40);
        }
        let until = owner.now() + Duration::from_us(20);
        owner.run(until);
        in_flight = 32 - owner.done.drain(..).count();
        let taken = owner.ftl.stats().host_units - before;
        while taken >= (ends.len() as u64 + 1) * writes {
            ends.push(owner.now());
        }
    }
    owner.settle();
    owner.done.clear();
    ends
}

#[test]
fn lines_wear_evenly_when_most_data_stay() {
    let spread = |wear_spread| {
        let options = Options {
            wear_spread,
            ..Options::default()
        };
        let mut owner = filled(24, options);
        write(&mut owner, &mut Rng::new(1), 100, (1, 40_000));
        let (least, most) = owner.ftl.space().erases;
        most - least
    };
    let (levelled, not) = (spread(4), spread(1_000_000));
    assert!(levelled <= 4 + 3, "{levelled} erases lie between lines");
    assert!(not > levelled + 4, "the load is too even: {levelled} {not}");
}

#[test]
fn cost_benefit_moves_less_where_data_differ() {
    let amplification = |victim| {
        let options = Options {
            victim,
            over_provisioning: 120,
            wear_spread: 1_000_000,
            ..Options::default()
        };
        let (mut owner, mut chance) = (filled(24, options), Rng::new(1));
        write(&mut owner, &mut chance, 50, (1, 20_000));
        let before = owner.ftl.stats();
        write(&mut owner, &mut chance, 50, (1, 20_000));
        let after = owner.ftl.stats();
        (after.written_units - before.written_units) * 1000 / (after.host_units - before.host_units)
    };
    let (greedy, by_benefit) = (
        amplification(Choice::Greedy),
        amplification(Choice::CostBenefit),
    );
    assert!(by_benefit * 100 < greedy * 93, "{by_benefit} {greedy}");
}

/// From flash that is free to flash that has to be won by moving data: neither at an edge, nor by
/// fits and starts.
#[test]
fn the_host_slows_down_smoothly() {
    const AVERAGED: usize = 8;
    let options = Options {
        over_provisioning: 120,
        ..Options::default()
    };
    let mut owner = filled(24, options);
    let ends = write(&mut owner, &mut Rng::new(1), 1000, (160, 48));
    let spans = ends.windows(2).map(|pair| pair[1].since(pair[0]).as_ns());
    let spans: Vec<u64> = spans.collect();
    let averages: Vec<u64> = spans
        .windows(AVERAGED)
        .map(|some| some.iter().sum::<u64>() / AVERAGED as u64)
        .collect();
    let (first, last) = (averages[0], averages[averages.len() - 1]);
    assert!(last > 4 * first, "it never had to collect: {spans:?}");
    for pair in averages.windows(2) {
        assert!(pair[1] * 2 < pair[0] * 3, "an edge: {pair:?} in {spans:?}");
    }
    let mut steady = spans[spans.len() / 2..].to_vec();
    steady.sort_unstable();
    let longest = steady[steady.len() - 1];
    assert!(longest < 4 * steady[steady.len() / 2], "a stop: {steady:?}");
}

/// One parallel unit with many small chunks: a checkpoint takes more than one line.
#[test]
fn a_checkpoint_may_take_several_lines() {
    let profile = profile("cnex");
    let row = 2 * 2 * profile.planes * profile.page_bytes * profile.pages_per_program;
    let device = Device::new(&profile, row * 8 * 900, 5, channel::Options::default());
    let device = device.expect("it suits");
    let line = u64::from(device.geometry().clba);
    let mut owner = Owner::new(device, vec![(0, 0)], Options::default()).expect("it suits");
    let formatted = owner.ftl.stats();
    assert!(
        formatted.checkpoint_units > line * formatted.checkpoints,
        "it fits into a line of {line}: {formatted:?}"
    );
    let mut model = Model::new(owner.ftl.capacity());
    let mut chance = Rng::new(5);
    let lives = if cfg!(debug_assertions) { 3 } else { 40 };
    for _ in 0..lives {
        live(&mut model, &mut owner, &mut chance, 60, 8);
        assert!(recover(&mut model, &mut owner, &mut chance));
        assert_eq!(owner.ftl.state(), State::Ready);
    }
}
