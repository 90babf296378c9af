//! Which fault hits which I/O, by tables and by many draws.

use std::num::NonZeroU64;

use super::super::rule::FaultOn;
use super::*;

const BLOCK: u32 = 4096;
const DEVICE: u64 = 1000;

fn seen(op: Op, blocks: Range<u64>) -> Seen {
    Seen {
        op,
        blocks,
        promises: op == Op::Flush,
    }
}

fn injector(seed: u64, rules: impl Into<Vec<FaultRule>>) -> Injector {
    let mut injector = Injector::new(seed, BLOCK);
    injector.set(rules.into());
    injector
}

fn counts(injector: &Injector) -> Vec<FaultCounts> {
    injector.counts().map(|(_, counts)| counts).collect()
}

const ALL: [FaultKind; 10] = [
    FaultKind::Poison,
    FaultKind::Torn,
    FaultKind::Lost,
    FaultKind::Misdirected,
    FaultKind::Stale,
    FaultKind::LyingFlush,
    FaultKind::Error,
    FaultKind::Gone,
    FaultKind::Hang,
    FaultKind::Latency {
        fixed: Duration::from_us(5),
        spread: Duration::from_us(2),
    },
];

const OPS: [Op; 6] = [
    Op::Read,
    Op::Write,
    Op::Flush,
    Op::WriteZeroes,
    Op::Deallocate,
    Op::CompareAndWrite,
];

/// Each kind, and for which of `OPS` it is by what it can be set to.
#[test]
fn each_fault_hits_the_io_that_it_is_for_and_no_other() {
    use FaultOn::{All, Reads, Writes};
    let (reads, writes, data) = ("r.....", ".w....", "rw....");
    let (changes, all) = (".w.zdc", "rwfzdc");
    let table: [(usize, &[(FaultOn, &str)]); 10] = [
        (0, &[(Writes, writes), (Reads, reads), (All, data)]),
        (1, &[(Writes, writes)]),
        (2, &[(Writes, writes)]),
        (3, &[(Writes, writes), (Reads, reads), (All, data)]),
        (4, &[(Reads, reads)]),
        (5, &[(All, "..f...")]),
        (6, &[(All, all), (Reads, reads), (Writes, changes)]),
        (7, &[(All, all), (Reads, reads), (Writes, changes)]),
        (8, &[(All, all), (Reads, reads), (Writes, changes)]),
        (9, &[(All, all), (Reads, reads), (Writes, changes)]),
    ];
    for (kind, expected) in table {
        let kind = ALL[kind];
        let possible: Vec<FaultOn> = expected.iter().map(|(on, _)| *on).collect();
        assert_eq!(kind.possible_on(), possible, "{kind:?}");
        assert_eq!(FaultRule::new(kind).on, possible[0], "{kind:?}");
        for (on, ops) in expected {
            for (op, expected) in OPS.into_iter().zip(ops.chars()) {
                let rule = FaultRule::new(kind).always().on(*on);
                let mut injector = injector(1, [rule]);
                let blocks = if op == Op::Flush { 0..0 } else { 8..16 };
                let decision = injector.decide(&seen(op, blocks), DEVICE);
                let hit = decision != Decision::default();
                assert_eq!(hit, expected != '.', "{kind:?} {on:?} {op:?}");
                assert_eq!(counts(&injector)[0].seen > 0, hit);
            }
        }
    }
}

/// A write with FUA promises what a flush does.
#[test]
fn a_lying_flush_is_for_each_promise() {
    let mut injector = injector(1, [FaultRule::new(FaultKind::LyingFlush)]);
    let fua = Seen {
        promises: true,
        ..seen(Op::Write, 3..4)
    };
    let hit = injector.decide(&fua, DEVICE).hit;
    assert!(matches!(hit, Some((_, Effect::Lie))), "{hit:?}");
}

#[test]
fn a_rate_is_met_and_every_nth_is_exact() {
    let parts = PARTS / 1000;
    for (frequency, least, most) in [
        (Frequency::Rate(parts), 900, 1100),
        (Frequency::Rate(10 * parts), 9_700, 10_300),
        (
            Frequency::Every(NonZeroU64::new(1000).expect("not 0")),
            1000,
            1000,
        ),
        (Frequency::Every(NonZeroU64::MIN), 1_000_000, 1_000_000),
        (Frequency::ALWAYS, 1_000_000, 1_000_000),
        (Frequency::Rate(0), 0, 0),
    ] {
        let mut lost = injector(7, [FaultRule::new(FaultKind::Lost).at(frequency)]);
        let hits = (0..1_000_000_u64).filter(|lba| {
            let lba = lba % DEVICE;
            let write = seen(Op::Write, lba..lba + 1);
            lost.decide(&write, DEVICE).hit.is_some()
        });
        let hits = hits.count();
        assert!((least..=most).contains(&hits), "{frequency:?}: {hits}");
        assert_eq!(counts(&lost)[0].seen, 1_000_000);
        // Poison counts blocks, however they are divided into I/Os.
        let mut poison = injector(7, [FaultRule::new(FaultKind::Poison).at(frequency)]);
        let mut bits = 0;
        for _ in 0..1000 {
            if let Some((_, Effect::Flip(flips))) =
                poison.decide(&seen(Op::Write, 0..DEVICE), DEVICE).hit
            {
                bits += flips.len();
            }
        }
        assert!((least..=most).contains(&bits), "{frequency:?}: {bits}");
        assert_eq!(counts(&poison)[0].seen, 1_000_000);
    }
}

#[test]
fn poison_flips_one_bit_of_each_block_that_it_hits_and_stays_in_its_range() {
    let rule = FaultRule::new(FaultKind::Poison).always().within(10..13);
    let mut injector = injector(3, [rule]);
    for blocks in [8..16_u64, 11..12, 0..11, 12..40] {
        let hit = injector
            .decide(&seen(Op::Write, blocks.clone()), DEVICE)
            .hit;
        let Some((_, Effect::Flip(bits))) = hit else {
            panic!("{blocks:?} touches the range: {hit:?}");
        };
        let block_of = |bit: &u64| blocks.start + bit / (u64::from(BLOCK) * 8);
        let hit: Vec<u64> = bits.iter().map(block_of).collect();
        let expected = blocks.filter(|block| (10..13).contains(block));
        assert_eq!(hit, expected.collect::<Vec<_>>());
    }
    for blocks in [0..10, 13..20] {
        let decision = injector.decide(&seen(Op::Write, blocks), DEVICE);
        assert_eq!(decision, Decision::default());
    }
}

#[test]
fn a_torn_write_keeps_one_sector_at_least_and_not_all() {
    let mut injector = injector(5, [FaultRule::new(FaultKind::Torn).always()]);
    let (mut prefixes, mut others) = (0, 0);
    for blocks in (1..=8).cycle().take(2000) {
        let hit = injector.decide(&seen(Op::Write, 0..blocks), DEVICE).hit;
        let Some((_, Effect::Torn(written))) = hit else {
            panic!("{hit:?}");
        };
        assert_eq!(written.len() as u64, blocks * 8);
        let first = written.iter().take_while(|it| **it).count();
        let all = written.iter().filter(|it| **it).count();
        assert!(all > 0 && all < written.len());
        match first == all {
            true => prefixes += 1,
            false => others += 1,
        }
    }
    assert!(prefixes > 900 && others > 800, "{prefixes} {others}");
    // One sector is whole or it is not.
    let mut small = Injector::new(5, 512);
    small.set(vec![FaultRule::new(FaultKind::Torn).always()]);
    assert_eq!(small.decide(&seen(Op::Write, 0..1), DEVICE).hit, None);
    assert_eq!(counts(&small)[0].missed, 1);
}

/// Every place in the range is found, and none that touches the right one.
#[test]
fn a_misdirected_write_stays_in_its_range_and_misses_its_place() {
    for (range, blocks, places) in [
        (Some(0..10_u64), 4..6_u64, vec![0, 1, 2, 6, 7, 8]),
        (Some(0..10), 0..4, vec![4, 5, 6]),
        (Some(0..10), 8..10, vec![0, 1, 2, 3, 4, 5, 6]),
        // It only touches the range.
        (Some(0..10), 9..12, vec![0, 1, 2, 3, 4, 5, 6]),
        (Some(8..14), 6..9, vec![9, 10, 11]),
        (Some(4..6), 4..6, vec![]),
        (Some(2..2000), 2..12, (12..=990).collect()),
        (None, 0..998, vec![]),
        (None, 0..500, vec![500]),
    ] {
        let mut rule = FaultRule::new(FaultKind::Misdirected).always();
        rule.range.clone_from(&range);
        let mut injector = injector(11, [rule]);
        let mut found = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            match injector
                .decide(&seen(Op::Write, blocks.clone()), DEVICE)
                .hit
            {
                Some((_, Effect::Misdirected(place))) => drop(found.insert(place)),
                hit => assert_eq!(hit, None),
            }
        }
        assert_eq!(Vec::from_iter(found), places, "{blocks:?} in {range:?}");
        let missed = if places.is_empty() { 20_000 } else { 0 };
        assert_eq!(counts(&injector)[0].missed, missed);
    }
}

#[test]
fn latencies_add_up_and_of_the_others_the_first_holds() {
    let latency = |fixed, spread| FaultKind::Latency {
        fixed: Duration::from_us(fixed),
        spread: Duration::from_us(spread),
    };
    let rules = [
        FaultRule::new(latency(100, 0)),
        FaultRule::new(FaultKind::Gone),
        FaultRule::new(FaultKind::Lost).always(),
        FaultRule::new(latency(50, 10)),
    ];
    let mut injector = injector(1, rules);
    let (mut least, mut most) = (Duration::from_secs(1), Duration::ZERO);
    for _ in 0..1000 {
        let Decision { delay, hit } = injector.decide(&seen(Op::Write, 0..1), DEVICE);
        let (rule, effect) = hit.expect("the device is gone");
        assert_eq!(effect, Effect::Fail(IoError::NotReady));
        injector.count(rule, true, 1);
        (least, most) = (least.min(delay), most.max(delay));
    }
    assert!(least >= Duration::from_us(150) && most <= Duration::from_us(160));
    assert!(most.as_ns() - least.as_ns() > 9_000, "{least} {most}");
    let counted = counts(&injector).into_iter();
    let counted: Vec<_> = counted
        .map(|it| (it.seen, it.injected, it.missed))
        .collect();
    let done = (1000, 1000, 0);
    assert_eq!(counted, [done, done, (1000, 0, 1000), done]);
}

/// What one fault draws never shifts what another one does, and a seed says all.
#[test]
fn decisions_follow_from_the_seed_and_each_fault_by_itself() {
    let rules: Vec<_> = ALL
        .map(|kind| FaultRule::new(kind).at(Frequency::Rate(PARTS / 3)))
        .into();
    let ios = |count| {
        (0..count).map(|n: u64| {
            let op = OPS[(n % 6) as usize];
            let blocks = if op == Op::Flush {
                0..0
            } else {
                n % 50..n % 50 + 1 + n % 7
            };
            seen(op, blocks)
        })
    };
    let run = |seed, rules: &[FaultRule]| -> Vec<Decision> {
        let mut injector = injector(seed, rules);
        ios(500).map(|io| injector.decide(&io, DEVICE)).collect()
    };
    assert_eq!(run(1, &rules), run(1, &rules));
    assert_ne!(run(1, &rules), run(2, &rules));
    let alone = run(1, &rules[..1]);
    for (alone, together) in alone.iter().zip(run(1, &rules)) {
        if alone.hit.is_some() {
            assert_eq!(alone.hit, together.hit, "the first in the list holds");
        }
    }
}

/// So a fault can be added or taken away while others are watched.
#[test]
fn a_fault_that_stays_goes_on_where_it_was() {
    let lost = FaultRule::new(FaultKind::Lost).at(Frequency::Rate(PARTS / 10));
    let gone = FaultRule::new(FaultKind::Gone).on(FaultOn::Reads);
    let write = seen(Op::Write, 0..1);
    let (mut changed, mut left) = (injector(9, [lost.clone()]), injector(9, [lost.clone()]));
    for round in 0..300 {
        match round {
            100 => changed.set(vec![gone.clone(), lost.clone()]),
            200 => changed.set(vec![lost.clone()]),
            _ => {}
        }
        assert_eq!(changed.decide(&write, DEVICE), left.decide(&write, DEVICE));
    }
    assert_eq!(counts(&changed), counts(&left));
    // One that comes again is another one.
    let (rule, _) = left
        .decide(&seen(Op::Write, 0..1), DEVICE)
        .hit
        .unwrap_or((RuleId(0), Effect::Lost));
    left.set(Vec::new());
    left.set(vec![lost]);
    assert!(!left.has(rule));
    left.count(rule, true, 1);
    assert_eq!(counts(&left), [FaultCounts::default()]);
}
