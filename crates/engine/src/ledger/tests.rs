//! The books against I/Os whose stamps are made up.

use flashyard_sched::{Class, IoId, Op};

use super::account::WINDOW;
use super::work::BIN;
use super::*;

const READER: TenantId = TenantId(7);
const WRITER: TenantId = TenantId(3);

fn io(tenant: TenantId, op: Op, bytes: u64) -> Ask {
    Ask {
        id: IoId(0),
        tenant,
        class: Class::Throughput,
        op,
        bytes,
        lba: 0,
    }
}

/// An I/O with these stamps, in microseconds: it came to the switch, its turn, issued, ended.
/// Nothing else took time.
fn done(ledger: &mut Ledger, io: &Ask, at: [u64; 4], moved: impl FnOnce() -> Option<u64>) {
    let [arrived, _, _, ended] = at;
    pass(ledger, io, [arrived, 0, at[1], at[2], ended, ended], moved);
}

/// The same with the first byte `before` microseconds earlier, of which the receive took `receive`,
/// and `sent`.
fn pass(
    ledger: &mut Ledger,
    io: &Ask,
    [arrived, before, dispatched, issued, ended, sent]: [u64; 6],
    moved: impl FnOnce() -> Option<u64>,
) {
    let us = |us: u64| Time::from_ns(us * 1000);
    let Some(times) = ledger.on_end(io, us(ended), moved) else {
        return;
    };
    let spans = Spans {
        past: Past {
            began: us(arrived - before),
            receive: Duration::from_us(before / 2),
        },
        arrived: us(arrived),
        dispatched: us(dispatched),
        issued: us(issued),
        ended: us(ended),
        sent: us(sent),
    };
    ledger.record(&Sample {
        io: *io,
        spans,
        times,
    });
}

fn share(why: &Why, cause: Cause) -> f64 {
    let all: u64 = why.causes.iter().map(|(_, ns)| ns).sum();
    let found = why.causes.iter().find(|(known, _)| *known == cause);
    found.map_or(0.0, |(_, ns)| *ns as f64 / all as f64)
}

#[test]
fn a_reader_hears_who_was_served_while_it_waited() {
    let mut ledger = Ledger::default();
    let read = io(READER, Op::Read, 4096);
    // Alone, a read takes 100 us.
    for n in 0..16 {
        done(
            &mut ledger,
            &read,
            [n * 200, n * 200, n * 200, n * 200 + 100],
            || None,
        );
    }
    let alone = ledger.why(READER, Time::from_ns(4_000_000)).expect("known");
    assert!(alone.causes.is_empty() && alone.ios == 16, "{alone:?}");
    // Then a writer is served three parts of four while each read waits 2 ms and is 1 ms at the
    // device.
    for n in 0..64 {
        let at = 10_000 + n * 4_000;
        let write = io(WRITER, Op::Write, 65_536);
        done(&mut ledger, &write, [at, at, at, at + 1_500], || None);
        done(&mut ledger, &write, [at, at, at, at + 2_600], || None);
        done(
            &mut ledger,
            &read,
            [at, at + 2_000, at + 2_000, at + 3_000],
            || None,
        );
    }
    let why = ledger
        .why(READER, Time::from_ns(300_000_000))
        .expect("known");
    assert_eq!(why.ios, 80);
    assert_eq!(why.stages.turn, 64 * 2_000_000);
    assert_eq!(why.stages.device, 16 * 100_000 + 64 * 1_000_000);
    assert_eq!(why.causes[0].0, Cause::Turn(WRITER));
    assert!(share(&why, Cause::Turn(WRITER)) > 0.6, "{:?}", why.causes);
    assert!(share(&why, Cause::OwnReads) == 0.0, "{:?}", why.causes);
    assert!(
        share(&why, Cause::Writes(WRITER)) > 0.15,
        "{:?}",
        why.causes
    );
    let charged: u64 = why.causes.iter().map(|(_, ns)| ns).sum();
    let excess = 64 * 2_900_000;
    assert!(
        charged.abs_diff(excess) < excess / 3,
        "{charged} of {excess}"
    );
}

#[test]
fn waits_without_anybody_served_are_told_apart() {
    let mut ledger = Ledger::default();
    let read = io(READER, Op::Read, 4096);
    for n in 0..8 {
        let at = n * 200;
        done(&mut ledger, &read, [at, at, at, at + 100], || None);
    }
    for n in 1..17_u64 {
        let at = n * 10_000;
        let moved = || Some(n * 100);
        done(
            &mut ledger,
            &read,
            [at, at + 500, at + 700, at + 1_800],
            moved,
        );
    }
    let why = ledger
        .why(READER, Time::from_ns(200_000_000))
        .expect("known");
    let known = [Cause::Held, Cause::Receive, Cause::Housekeeping];
    assert!(
        known.iter().all(|cause| share(&why, *cause) > 0.0),
        "{why:?}"
    );
    assert_eq!(why.stages.receive, 16 * 200_000);
}

#[test]
fn what_is_long_past_is_forgotten_and_tenants_can_go() {
    let mut ledger = Ledger::default();
    for tenant in [READER, WRITER, TenantId(0)] {
        let read = io(tenant, Op::Read, 4096);
        (0..15).for_each(|n| done(&mut ledger, &read, [n, n + 5, n + 5, n + 9], || None));
    }
    ledger.forget(READER);
    ledger.forget(TenantId(1_000_000));
    assert!(ledger.why(READER, Time::ZERO).is_none());
    assert_eq!(ledger.why(TenantId(0), Time::ZERO).expect("known").ios, 15);
    assert_eq!(ledger.why(WRITER, Time::ZERO).expect("known").ios, 15);
    let later = Time::ZERO + WINDOW + BIN;
    assert_eq!(ledger.why(WRITER, later).expect("known").ios, 15);
    let much_later = later + WINDOW;
    assert_eq!(ledger.why(WRITER, much_later).expect("known").ios, 0);
    let very_much_later = Time::ZERO + Duration::from_secs(3600);
    assert_eq!(
        ledger.why(TenantId(0), very_much_later).expect("known").ios,
        0
    );
}

/// Both ways through the receive, and what lies between it and the switch: each is a stage, and a
/// cause as far as it is more than it needs to be.
#[test]
fn what_network_intake_and_sending_take_is_told_apart() {
    let mut ledger = Ledger::default();
    let read = io(READER, Op::Read, 4096);
    let write = io(READER, Op::Write, 4096);
    // What these take with nothing in the way is nobody's fault.
    for n in 1..9 {
        let at = n * 1_000;
        pass(
            &mut ledger,
            &read,
            [at, 0, at, at, at + 100, at + 105],
            || None,
        );
        pass(
            &mut ledger,
            &write,
            [at, 0, at, at + 30, at + 60, at + 80],
            || None,
        );
    }
    let why = ledger.why(READER, Time::from_ns(9_000_000)).expect("known");
    assert!(why.causes.is_empty(), "{:?}", why.causes);
    let usual = Stages {
        receive: 8 * 30_000,
        device: 8 * (100_000 + 30_000),
        send: 8 * (5_000 + 20_000),
        ..Stages::default()
    };
    assert_eq!(why.stages, usual);
    assert_eq!(why.latency.max(), 105_000);
    // Now reads come in pieces, wait for memory, and their host takes its answers late.
    for n in 10..18 {
        let at = n * 1_000;
        pass(
            &mut ledger,
            &read,
            [at, 40, at, at, at + 100, at + 305],
            || None,
        );
    }
    let why = ledger
        .why(READER, Time::from_ns(18_000_000))
        .expect("known");
    let each = 8 * 1_000;
    assert_eq!(
        why.causes,
        [
            (Cause::Send, 200 * each),
            (Cause::Receive, 20 * each),
            (Cause::Intake, 20 * each)
        ]
    );
    assert_eq!(why.stages.intake, 20 * each);
    assert_eq!(why.stages.send, usual.send + 205 * each);
    let all = why.stages.all();
    let mean = why.latency.mean();
    assert!(
        all.abs_diff(mean * why.ios) < all / 20,
        "the stages are all there is"
    );
}

/// An answer that goes out after its tenant has gone opens no new account.
#[test]
fn what_is_booked_after_its_tenant_has_gone_is_forgotten() {
    let mut ledger = Ledger::default();
    let read = io(READER, Op::Read, 4096);
    let at = Time::from_ns(1_000);
    let times = ledger
        .on_end(&read, at, || None)
        .expect("the first one is looked at");
    ledger.forget(READER);
    let spans = Spans {
        past: Past::default(),
        arrived: at,
        dispatched: at,
        issued: at,
        ended: at,
        sent: at,
    };
    ledger.record(&Sample {
        io: read,
        spans,
        times,
    });
    assert!(ledger.why(READER, at).is_none());
}

/// Those that are looked at stand for all, however many come in a millisecond and whatever pattern
/// they have.
#[test]
fn the_few_that_are_looked_at_stand_for_all() {
    let mut ledger = Ledger::default();
    let (mut at, mut ended) = (1_000_000_u64, [0_u64; 2]);
    for n in 0..400_000_u64 {
        // Every other one is a write, and takes three times as long; the rate changes all the time.
        at += 1 + n / 40_000;
        let (op, us) = [(Op::Read, 1), (Op::Write, 3)][n as usize % 2];
        ended[n as usize % 2] += 1;
        done(
            &mut ledger,
            &io(READER, op, 4096),
            [at - us, at - us, at - us, at],
            || None,
        );
    }
    let why = ledger.why(READER, Time::from_ns(at * 1000)).expect("known");
    let all = ended[0] + ended[1];
    assert!(why.ios.abs_diff(all) < 100, "{} of {all}", why.ios);
    let device = ended[0] * 1_000 + ended[1] * 3_000;
    assert!(
        why.stages.device.abs_diff(device) < device / 20,
        "{} of {device}",
        why.stages.device
    );
}

/// A switch keeps nothing of those who have gone, nor of those who have had nothing for long.
#[test]
fn there_are_accounts_for_those_who_have_io_and_no_more() {
    let mut ledger = Ledger::default();
    let comes = |ledger: &mut Ledger, id: u32, ms: u64| {
        let at = ms * 1_000;
        let read = io(TenantId(id), Op::Read, 4096);
        done(ledger, &read, [at, at, at, at + 100], || None);
        ledger
            .tenants
            .find(TenantId(id))
            .expect("it has an account")
    };
    for id in 1..10_000 {
        assert_eq!(comes(&mut ledger, id, u64::from(id)), 0, "the same place");
        ledger.forget(TenantId(id));
    }
    // One comes every 100 ms and is never heard of again.
    for n in 0..2_000 {
        let place = comes(&mut ledger, 10_000 + n, u64::from(n) * 100);
        assert!(place <= 201, "{place} in 20 s");
    }
    assert!(ledger.why(TenantId(10_000), Time::ZERO).is_none());
    // Who goes on stays.
    let place = comes(&mut ledger, 12_000, 200_000);
    for n in 0..600 {
        assert_eq!(comes(&mut ledger, 12_000, 200_000 + n * 100), place);
        comes(&mut ledger, 13_000 + n as u32, 200_000 + n * 100);
    }
    let why = ledger.why(TenantId(12_000), Time::from_ns(260_000_000_000));
    assert!(why.expect("known").ios >= 100);
}

/// What it costs to record I/Os depends on the time that passes, not on the square of the number of
/// tenants; all of them are stood for nevertheless, and who has little of a wait is not shown by
/// name.
#[test]
fn a_crowd_is_looked_at_as_often_as_there_is_time_for() {
    const CROWD: u32 = 100;
    let mut ledger = Ledger::default();
    let mut looks = 0;
    // 500,000 a second for a second, of which the first tenant does half.
    for n in 0..500_000_u64 {
        let id = if n % 2 == 0 { 0 } else { n as u32 / 2 % CROWD };
        let at = 100_000 + n * 2;
        let read = io(TenantId(1 + id), Op::Read, 4096);
        let moved = || {
            looks += 1;
            None
        };
        let stamps = [at - 40_000, at - 20_000, at - 20_000, at];
        done(&mut ledger, &read, stamps, moved);
    }
    let most = (Duration::from_secs(1) + BURST).as_ns() / (VISIT.as_ns() * u64::from(CROWD));
    assert!(
        (most * 9 / 10..=most * 11 / 10).contains(&looks),
        "{looks} looks, not {most}"
    );
    let now = Time::ZERO + Duration::from_ms(1_100);
    let all: Vec<_> = (0..CROWD)
        .filter_map(|id| ledger.why(TenantId(1 + id), now))
        .collect();
    let ios: u64 = all.iter().map(|why| why.ios).sum();
    assert!(ios.abs_diff(500_000) < 25_000, "{ios} are stood for");
    assert!(all[0].ios.abs_diff(252_500) < 12_500, "{}", all[0].ios);
    for why in &all[1..] {
        assert!(
            share(why, Cause::Turn(TenantId(1))) > 0.2,
            "{:?}",
            why.causes
        );
        assert!(share(why, Cause::Others) > 0.4, "{:?}", why.causes);
        assert!(why.causes.len() < 8, "{:?}", why.causes);
    }
}

/// For how much of the time a tenant had something to do, estimated from a part of its I/Os: one at
/// a time without a pause, one at a time with a pause, many at a time in bursts.
#[test]
fn a_tenant_is_busy_while_it_has_something_to_be_done() {
    let ms = 1_000;
    for (every, at_a_time, takes, busy) in [
        (10 * ms, 1, 10 * ms, 1.0),
        (20, 1, 20, 1.0),
        (10 * ms, 1, ms, 0.1),
        (200, 1, 20, 0.1),
        (100 * ms, 32, 25 * ms, 0.25),
        (500, 32, 500, 1.0),
    ] {
        let (mut ledger, read) = (Ledger::default(), io(READER, Op::Read, 4096));
        let from = 2_000_000;
        for at in (from..from + 3 * 1_000 * ms).step_by(every as usize) {
            for n in 1..=at_a_time {
                let ended = at + takes * n / at_a_time;
                done(&mut ledger, &read, [at, at, at, ended], || None);
            }
        }
        let recent = &ledger.recent(Time::from_ns(5_000_000_000))[0];
        assert_eq!(
            (recent.tenant, recent.span),
            (READER, Duration::from_secs(3))
        );
        let found = recent.busy.as_ns() as f64 / recent.span.as_ns() as f64;
        let what = format!("{at_a_time} every {every} us for {takes} us: {found} of the time");
        assert!((found - busy).abs() < 0.05, "{what}");
        let (ios, real) = (
            recent.reads.ios as f64,
            (3_000 * ms / every * at_a_time) as f64,
        );
        assert!((ios / real - 1.0).abs() < 0.02, "{what}, {ios} of {real}");
        assert_eq!(recent.reads.bytes, recent.reads.ios * 4096);
        // Of later seconds nothing is reported.
        assert!(ledger.recent(Time::from_ns(11_000_000_000)).is_empty());
    }
}

/// What 99 of 100 latency-sensitive I/Os stayed under, and who was in the way, leaves with its
/// second.
#[test]
fn the_last_seconds_slide() {
    let (mut ledger, second) = (Ledger::default(), 1_000_000);
    let mut read = io(READER, Op::Read, 4096);
    let write = io(WRITER, Op::Write, 65_536);
    for second_of in 1..=8 {
        let slow = second_of == 3;
        for n in 0..10 {
            let at = second_of * second + n * 50_000;
            read.class = [Class::Latency, Class::Throughput][n as usize % 2];
            let takes = if slow { 40_000 } else { 1_000 };
            if slow {
                done(&mut ledger, &write, [at, at, at, at + takes], || None);
            }
            done(&mut ledger, &read, [at, at, at, at + takes], || None);
        }
        let now = Time::from_ns((second_of + 1) * second * 1_000 - 1);
        let all = ledger.recent(now);
        let recent = all.iter().find(|recent| recent.tenant == READER);
        let recent = recent.expect("it was busy");
        let hit = (3..=7).contains(&second_of);
        let p99 = recent.p99.expect("it had some").as_us();
        let expected = if hit { 40_000..45_100 } else { 1_000..1_200 };
        assert!(expected.contains(&p99), "{second_of}: {p99}");
        let writes = (Cause::Writes(WRITER), 390_000_000);
        assert_eq!(
            recent.causes,
            Vec::from_iter(hit.then_some(writes)),
            "{second_of}"
        );
    }
}

#[test]
fn garbage_collection_is_named_with_the_tenant_whose_writes_have_caused_it() {
    let mut ledger = Ledger::default();
    let (read, write) = (io(READER, Op::Read, 4096), io(WRITER, Op::Write, 4096));
    let upkeep = |upkeep| Cost {
        read: upkeep / 2,
        written: 4096 + upkeep / 2,
        upkeep,
    };
    for n in 0..8 {
        let at = n * 200;
        done(&mut ledger, &read, [at, at, at, at + 100], || None);
    }
    for n in 1..17_u64 {
        let at = n * 10_000;
        done(&mut ledger, &write, [at, at, at, at + 500], || None);
        ledger.on_cost(WRITER, &upkeep(256 << 10));
        done(&mut ledger, &read, [at, at, at, at + 1_800], || None);
        ledger.on_cost(READER, &upkeep(0));
    }
    let now = Time::from_ns(200_000_000);
    let why = ledger.why(READER, now).expect("known");
    assert_eq!(why.causes[0].0, Cause::Upkeep(WRITER), "{:?}", why.causes);
    assert!(share(&why, Cause::Upkeep(WRITER)) > 0.8, "{:?}", why.causes);
    let own = ledger.why(WRITER, now).expect("known");
    assert!(share(&own, Cause::Upkeep(WRITER)) <= 0.0);
}
