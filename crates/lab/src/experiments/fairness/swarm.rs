//! A swarm of scenes by chance: whether a policy is fair to any tenant on any device.

use std::sync::Mutex;

use flashyard_time::{Duration, Time};

use super::cache::Cache;
use super::draw::{Half, Phase, Story, longest};
use super::oracle::{self, Best, is_judged};
use super::scene::{Scene, Spans, Tenant};
use super::shrink::shrink;
use crate::bench::{Results, fold};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::experiments::columns::{POLICY, column};
use crate::experiments::figures::P99;
use crate::measure::{Tally, Window, percentile_us};
use crate::parallel;
use crate::policies::{self, Calibration};
use crate::report::{
    Axis, Chart, ChartKind, Column, Mark, MarkAt, Report, Scale, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(in crate::experiments) struct Swarm;

const CLAIM: &str = "A fair switch gives every tenant its share on any device, not only in the scenes that it was made with. Each seed draws \
a device (dies, times, buffer, surplus, the way to it, stalls, caps) and two to sixty-four tenants (weights, sizes, depths, \
pauses, classes, limits, guarantees), some of whom come or go; the best fixed rates for the same scene (the oracle) are \
what a policy is measured by. Seeds are halved: policies may be tuned on the seen half only.";

const SETTINGS: [Setting; 5] = [
    Setting {
        key: "half",
        default: "seen",
        domain: Domain::Words(&["seen", "unseen"]),
        meaning: "which of the seeds: policies are tuned on the seen half, and judged by the other",
    },
    Setting {
        key: "claim",
        default: "10",
        domain: Domain::Number(0, 100),
        meaning: "percent of the sum that tenants may cost that ask for little",
    },
    Setting {
        key: "ms",
        default: "2000",
        domain: Domain::Number(4, 60_000),
        meaning: "milliseconds of a phase, of which a quarter is left out",
    },
    Setting {
        key: "shrink",
        default: "no",
        domain: Domain::Word(&["no", "yes"]),
        meaning: "whether the worst seed of the last policy is made as small as it can be and told",
    },
    Setting {
        key: "oracle",
        default: "",
        domain: Domain::File,
        meaning: "a file in which the best rates are kept, to be used again",
    },
];

const COLUMNS: [Column; 16] = [
    POLICY,
    column("half", "half", Unit::None),
    column("seeds", "seeds", Unit::None),
    column("least_min", "least to oracle: worst", Unit::Ratio),
    column("least_p1", "1 %", Unit::Ratio),
    column("least_p5", "5 %", Unit::Ratio),
    column("least_p50", "median", Unit::Ratio),
    column("below_90_percent", "below 0.9", Unit::Percent),
    column("below_75_percent", "below 0.75", Unit::Percent),
    column("below_50_percent", "below 0.5", Unit::Percent),
    column("settling_p50", "while settling: median", Unit::Ratio),
    column("sum_p5", "sum to oracle: 5 %", Unit::Ratio),
    column("sum_p50", "median of it", Unit::Ratio),
    column("fifo_sum_p50", "sum to FIFO: median", Unit::Ratio),
    column("hold_p95_us", "longest hold: 95 %", Unit::Micros),
    column(
        "latency_p50",
        "p99 of latency class to FIFO: median",
        Unit::Ratio,
    ),
];

impl Experiment for Swarm {
    fn name(&self) -> &'static str {
        "fairness-swarm"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &["fifo", "fair"]
    }

    fn most_seeds(&self) -> u32 {
        100_000
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        let halves = context.words("half");
        let seeds: Vec<u64> = match context.quick {
            true => (1..=QUICK_SEEDS).collect(),
            false => {
                let wanted = |seed: &u64| halves.contains(&Half::of(*seed).name());
                context.seeds().filter(wanted).collect()
            }
        };
        context.progress.begin(seeds.len() as u64);
        let cache = Mutex::new(Cache::open(context.word("oracle"))?);
        let judged = parallel::first(context.progress, &seeds, |&seed| {
            let story = Story::draw(seed);
            let judged = judge(context, &context.policies, &story, seed, &cache);
            context.progress.step(&format!("seed {seed}"));
            judged
        });
        let judged = judged.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        if judged.is_empty() {
            let sentence =
                "none of these seeds is in the half that was asked for; take more with --seeds";
            return Err(Refused::Conflict(sentence.into()));
        }
        let mut notes = worst(context, &judged);
        if context.word("shrink") == "yes" {
            notes.extend(smallest(context, &judged, &cache)?);
        }
        let cache = cache
            .into_inner()
            .expect("no thread panics while holding it");
        cache.save()?;
        let digests = judged.iter().map(|one| one.digest);
        Ok(Report {
            rows: rows(context, &judged),
            charts: vec![chart(context, &judged)],
            notes,
            ..Report::of(self, context, digests.fold(0, fold), &COLUMNS)
        })
    }
}

/// The seeds of quick mode.
const QUICK_SEEDS: u64 = 6;
/// Parts of a phase, and how many of them are left out at its beginning.
const PARTS: u64 = 20;
const LEFT_OUT: usize = 5;
/// This many of a tenant's longest I/Os may come a moment too late to be counted.
const GRAIN: f64 = 2.0;

/// A smaller scene shows the same whose least is not larger than by so much.
const BOUND: f64 = 1.25;

/// A seed under a policy.
#[derive(Clone, Debug)]
struct Judged {
    policy: &'static str,
    seed: u64,
    half: Half,
    /// The least of all tenants in all phases, as a part of what the oracle gives it.
    least: f64,
    /// The same in the parts that are left out.
    settling: f64,
    /// The sum of all, in the phase where it is least.
    sum_to_oracle: f64,
    sum: f64,
    hold_us: f64,
    /// The p99 of latency-sensitive I/O.
    latency_us: Option<f64>,
    digest: u64,
}

fn phase_span(context: &Context) -> Duration {
    Duration::from_ms(if context.quick {
        20
    } else {
        context.number("ms")
    })
}

/// What a seed drew, or a part of that, under some policies.
fn judge(
    context: &Context,
    policies: &[&'static str],
    story: &Story,
    seed: u64,
    cache: &Mutex<Cache>,
) -> Result<Vec<Judged>, Refused> {
    let span = phase_span(context);
    let spans = Spans {
        warm_up: span.scale(LEFT_OUT as u64, PARTS),
        measured: span.scale(PARTS - LEFT_OUT as u64, PARTS),
    };
    let claim = context.number("claim");
    let mut bests = Vec::new();
    for phase in &story.phases {
        let (scene, _) = story.scene(phase);
        let key = Cache::key(&scene, seed, span, claim);
        let lock = || cache.lock().expect("no thread panics while holding it");
        let known = lock().get(key);
        let best = match known {
            Some(best) => best,
            None => {
                let best = oracle::best(&scene, spans, claim, seed, context.quick)?;
                lock().put(key, best.clone());
                best
            }
        };
        bests.push(best);
    }
    let needs = |policy: &&str| policies::named(policy).is_none();
    let calibration = match policies.iter().any(needs) {
        true => Some(Calibration::measure(
            &story.profile,
            story.capacity,
            seed,
            context.quick,
        )?),
        false => None,
    };
    let judged = policies.iter().map(|&policy| {
        let switch = policies::switch(policy, calibration.as_ref());
        let whole = whole(story, span);
        let spans = Spans {
            warm_up: Duration::ZERO,
            measured: span * story.phases.len() as u64,
        };
        let results = whole.run(switch, spans, span / PARTS, seed)?;
        Ok(compared(policy, seed, story, &bests, &results, span))
    });
    judged.collect()
}

/// All phases of a story as one scene, in which tenants come and go.
fn whole(story: &Story, span: Duration) -> Scene {
    let begin = |place: usize| span * place as u64;
    let tenant = |(tenant, place): (&Tenant, usize)| {
        let there = |phase: &Phase| phase.present[place];
        let first = story.phases.iter().position(there).unwrap_or(0);
        let last = story.phases.iter().rposition(there).unwrap_or(0);
        Tenant {
            start: Time::ZERO + begin(first),
            stop: Time::ZERO + begin(last + 1),
            ..tenant.clone()
        }
    };
    Scene {
        profile: story.profile.clone(),
        capacity: story.capacity,
        condition: story.condition,
        paths: story
            .phases
            .iter()
            .zip(0..)
            .map(|(phase, place)| (begin(place), phase.path))
            .collect(),
        tenants: story.tenants.iter().zip(0..).map(tenant).collect(),
    }
}

/// What a policy gave beside what the best fixed rates give.
fn compared(
    policy: &'static str,
    seed: u64,
    story: &Story,
    bests: &[Best],
    results: &Results,
    span: Duration,
) -> Judged {
    let mut judged = Judged {
        policy,
        seed,
        half: Half::of(seed),
        least: f64::INFINITY,
        settling: f64::INFINITY,
        sum_to_oracle: f64::INFINITY,
        sum: 0.0,
        hold_us: hold_us(results),
        latency_us: latency_us(story, results),
        digest: results.digest,
    };
    let parts = PARTS as usize;
    for ((phase, best), place) in story.phases.iter().zip(bests).zip(0..) {
        let (scene, places) = story.scene(phase);
        let windows = |tenant: usize, from: usize, to: usize| {
            let windows = &results.workers[tenant].windows;
            &windows[place * parts + from..place * parts + to]
        };
        let mut sums = [0.0, 0.0];
        for (one, &tenant) in places.iter().enumerate() {
            let settled = rate(windows(tenant, LEFT_OUT, parts), span);
            let before = rate(windows(tenant, 0, LEFT_OUT), span);
            sums[0] += settled / best.alone[one];
            sums[1] += best.got[one] / best.alone[one];
            if !is_judged(&scene.tenants[one]) || best.got[one] <= 0.0 {
                continue;
            }
            let grain = |count: usize| {
                let time = span.scale(count as u64, PARTS).as_secs_f64();
                GRAIN * longest(&scene.tenants[one].pattern) as f64 / time
            };
            let ratio = |rate: f64, count: usize| (rate + grain(count)) / best.got[one];
            judged.least = judged.least.min(ratio(settled, parts - LEFT_OUT));
            judged.settling = judged.settling.min(ratio(before, LEFT_OUT));
        }
        judged.sum_to_oracle = judged.sum_to_oracle.min(sums[0] / sums[1].max(1e-9));
        judged.sum += sums[0];
    }
    // Where nobody is judged nobody is treated badly.
    judged.least = judged.least.min(9.0);
    judged.settling = judged.settling.min(9.0);
    judged
}

/// Bytes per second in some parts of a phase.
fn rate(windows: &[Window], span: Duration) -> f64 {
    let bytes = |window: &Window| window.read_bytes + window.written_bytes;
    let sum: u64 = windows.iter().map(bytes).sum();
    sum as f64 / span.scale(windows.len() as u64, PARTS).as_secs_f64()
}

fn hold_us(results: &Results) -> f64 {
    let longest = |tally: &Tally| tally.reads.longest_hold.max(tally.writes.longest_hold);
    let longest = results.workers.iter().map(longest).max();
    longest.unwrap_or(Duration::ZERO).as_ns() as f64 / 1e3
}

fn latency_us(story: &Story, results: &Results) -> Option<f64> {
    let each = story.tenants.iter().zip(&results.workers);
    let sensitive = each.filter(|(tenant, _)| tenant.class == flashyard_sched::Class::Latency);
    let p99 = sensitive.filter_map(|(_, tally)| percentile_us(&tally.total(), P99));
    p99.fold(None, |most: Option<f64>, p99| {
        Some(most.map_or(p99, |most| most.max(p99)))
    })
}

/// The value below which this part of some values lies.
fn quantile(values: &mut [f64], part: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * part) as usize).copied()
}

/// Judgements of one policy on one half.
fn chosen<'a>(judged: &'a [Judged], policy: &str, half: Half) -> Vec<&'a Judged> {
    let is = |one: &&Judged| one.policy == policy && one.half == half;
    judged.iter().filter(is).collect()
}

fn rows(context: &Context, judged: &[Judged]) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for &policy in &context.policies {
        for half in [Half::Seen, Half::Unseen] {
            let all = chosen(judged, policy, half);
            if !all.is_empty() {
                rows.push(row(policy, half, &all, judged));
            }
        }
    }
    rows
}

fn row(policy: &str, half: Half, all: &[&Judged], judged: &[Judged]) -> Vec<Value> {
    let value = |figure: &dyn Fn(&Judged) -> Option<f64>, part: f64| {
        let mut values: Vec<f64> = all.iter().filter_map(|one| figure(one)).collect();
        quantile(&mut values, part).map_or(Value::Missing, Value::Real)
    };
    let fifo = |one: &Judged| {
        let same = |other: &&Judged| other.policy == "fifo" && other.seed == one.seed;
        judged.iter().find(same)
    };
    let below = |bound: f64| {
        let count = all.iter().filter(|one| one.least < bound).count();
        Value::Real(100.0 * count as f64 / all.len() as f64)
    };
    let least = |one: &Judged| Some(one.least);
    let to_fifo = |one: &Judged| Some(one.sum / fifo(one)?.sum);
    let sensitive = |one: &Judged| Some(one.latency_us? / fifo(one)?.latency_us?);
    vec![
        Value::Text(policy.into()),
        Value::Text(half.name().into()),
        Value::Count(all.len() as u64),
        value(&least, 0.0),
        value(&least, 0.01),
        value(&least, 0.05),
        value(&least, 0.5),
        below(0.9),
        below(0.75),
        below(0.5),
        value(&|one| Some(one.settling), 0.5),
        value(&|one| Some(one.sum_to_oracle), 0.05),
        value(&|one| Some(one.sum_to_oracle), 0.5),
        value(&to_fifo, 0.5),
        value(&|one| Some(one.hold_us), 0.95),
        value(&sensitive, 0.5),
    ]
}

/// The seeds where the least has least under each policy, and what they are.
fn worst(context: &Context, judged: &[Judged]) -> Vec<String> {
    let note = |&policy: &&'static str| {
        let mut all: Vec<&Judged> = judged.iter().filter(|one| one.policy == policy).collect();
        all.sort_by(|one, other| one.least.total_cmp(&other.least));
        let name = |one: &&Judged| format!("{} ({:.2})", one.seed, one.least);
        let names: Vec<String> = all.iter().take(10).map(name).collect();
        format!(
            "Seeds where the least under `{policy}` is least: {}.",
            names.join(", ")
        )
    };
    context.policies.iter().map(note).collect()
}

/// The worst seed under the last policy, and the smallest scene found that is about as bad.
fn smallest(
    context: &Context,
    judged: &[Judged],
    cache: &Mutex<Cache>,
) -> Result<Option<String>, Refused> {
    let Some(&policy) = context.policies.last() else {
        return Ok(None);
    };
    let of_policy = judged.iter().filter(|one| one.policy == policy);
    let Some(worst) = of_policy.min_by(|one, other| one.least.total_cmp(&other.least)) else {
        return Ok(None);
    };
    let least = |story: &Story| {
        let judged = judge(context, &[policy], story, worst.seed, cache)?;
        Ok(judged[0].least)
    };
    let small = shrink(Story::draw(worst.seed), worst.least * BOUND, least)?;
    let least = least(&small)?;
    Ok(Some(format!(
        "Seed {} under `{policy}`, made small ({least:.2}): {small}.",
        worst.seed
    )))
}

/// How the least is distributed over the seeds.
fn chart(context: &Context, judged: &[Judged]) -> Chart {
    let series = |&policy: &&'static str| {
        let of_policy = judged.iter().filter(|one| one.policy == policy);
        let mut values: Vec<f64> = of_policy.map(|one| one.least.min(2.0)).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let point = |(value, place): (f64, u32)| (value, 100.0 * f64::from(place + 1) / count);
        Series {
            label: policy.into(),
            points: values.into_iter().zip(0..).map(point).collect(),
        }
    };
    let axis = |label: &str, unit| Axis {
        label: label.into(),
        unit,
        scale: Scale::Linear,
    };
    Chart {
        name: "least",
        title: "The least tenant beside the oracle".into(),
        claim: "The further to the right a line rises, the fairer the policy is everywhere.".into(),
        kind: ChartKind::Lines,
        x: axis("least of what the best fixed rates give", Unit::Ratio),
        y: axis("seeds with no more", Unit::Percent),
        series: context.policies.iter().map(series).collect(),
        marks: vec![Mark {
            label: "0.9".into(),
            at: MarkAt::X(0.9),
        }],
    }
}
