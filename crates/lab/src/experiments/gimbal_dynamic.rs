//! Tenants that come and go: experiment E6 of the Gimbal study.

use flashyard_flash::Profile;
use flashyard_flash::ssd::Condition;
use flashyard_time::{Duration, Time};

use super::columns::{POLICY, PROFILE as PROFILE_COLUMN, column};
use super::drive;
use super::outcome::fold_digests;
use super::sharing::{
    Alone, Contender, GIB, Group, Kind, POLICIES, PROFILE, Scale, Workload, calibrate, contenders,
    measure_alone, set_up,
};
use crate::bench::{Results, Setup};
use crate::experiment::{Context, Domain, Experiment, Refused, Setting};
use crate::measure::f_util;
use crate::parallel;
use crate::report::{
    self, Axis, Chart, ChartKind, Column, Got, Promise, Report, Series, Unit, Value,
};

/// See [`Experiment::claim`].
pub(super) struct GimbalDynamic;

const CLAIM: &str = "When a tenant comes or goes, everybody's due changes at once; how long until they get it? Eight tenants \
read 4 KiB on a fragmented drive; with every step one more writes, until eight do; then with every step one reader less. \
A step has converged when readers together and writers together stay within a fifth of what they settle at (the mean of the \
second half of the step) for three windows of a fiftieth of the step. f-Util is that of the second half, and counts the \
tenants of that step. Gimbal's authors show its write cost following the drive: the first writers go to the buffer and \
cost little.";

const SETTINGS: [Setting; 4] = [
    PROFILE,
    GIB,
    Setting {
        key: "ms",
        default: "3000",
        domain: Domain::Number(1, 3_600_000),
        meaning: "milliseconds that each kind of work is measured alone, after two thirds as long",
    },
    Setting {
        key: "step_ms",
        default: "1000",
        domain: Domain::Number(50, 60_000),
        meaning: "milliseconds from one step to the next",
    },
];

const COLUMNS: [Column; 10] = [
    PROFILE_COLUMN,
    POLICY,
    column("step", "step", Unit::None),
    column("readers", "readers", Unit::None),
    column("writers", "writers", Unit::None),
    column("read_f_util", "readers' f-Util", Unit::Ratio),
    column("write_f_util", "writers' f-Util", Unit::Ratio),
    column("f_util_min", "least f-Util", Unit::Ratio),
    column("utilization", "utilisation", Unit::Ratio),
    column("converged_us", "converged after", Unit::Micros),
];

/// Readers and writers at most.
const EACH: u32 = 8;
/// The first step has readers only; the last one has one reader left.
const STEPS: u32 = 2 * EACH;
/// Windows in a step, and how many in a row have to be near.
const WINDOWS: usize = 50;
const IN_A_ROW: usize = 3;
/// How near, as a part of what a group settles at.
const NEAR: f64 = 0.2;

/// One policy's course on one drive.
struct Course {
    profile: usize,
    contender: Contender,
    results: Results,
    /// Bytes per second that reads and writes reach alone.
    alone: [f64; 2],
    /// Seconds in a window.
    window: f64,
}

const PROMISES: [Promise; 2] = [
    Promise {
        wanted: "Under `fair` every step has converged after 100 ms",
        judge: |rows| {
            let steps = rows
                .with("policy", "fair")
                .that(|row| row.number("step") > Some(0.0));
            // A step that did not converge has no number.
            Got::at_most(
                &steps.each(|row| row.number("converged_us").or(Some(f64::INFINITY))),
                100_000.0,
            )
        },
    },
    Promise {
        wanted: "Under `fair` no tenant has less than 0.95 of the mean of all after that",
        judge: |rows| {
            let steps = rows
                .with("policy", "fair")
                .that(|row| row.number("step") > Some(0.0));
            Got::at_least(
                &steps.each(|row| row.ratio("f_util_min", "utilization")),
                0.95,
            )
        },
    },
];

impl Experiment for GimbalDynamic {
    fn name(&self) -> &'static str {
        "gimbal-dynamic"
    }

    fn claim(&self) -> &'static str {
        CLAIM
    }

    fn settings(&self) -> &'static [Setting] {
        &SETTINGS
    }

    fn policies(&self) -> &'static [&'static str] {
        &POLICIES
    }

    fn promises(&self) -> &'static [Promise] {
        &PROMISES
    }

    fn run(&self, context: &Context) -> Result<Report, Refused> {
        if context.seed_count > 1 {
            return Err(Refused::Conflict(
                "a course over time has no mean over seeds; run it once for each seed".into(),
            ));
        }
        let profiles = drive::profiles(&context.words("profile"))?;
        let courses = courses(context, &profiles)?;
        let results: Vec<_> = courses
            .iter()
            .map(|course| course.results.clone())
            .collect();
        let names: Vec<_> = profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect();
        Ok(Report {
            rows: courses
                .iter()
                .flat_map(|course| course.rows(names[course.profile]))
                .collect(),
            charts: charts(&courses),
            notes: courses
                .iter()
                .map(|course| course.note(names[course.profile]))
                .collect(),
            ..Report::of(self, context, fold_digests(&results), &COLUMNS)
        })
    }
}

/// The course of every policy on every drive.
fn courses(context: &Context, profiles: &[Profile]) -> Result<Vec<Course>, Refused> {
    let scale = Scale::of(context);
    let workloads: Vec<Workload> = (0..profiles.len()).map(workload).collect();
    let contenders = contenders(context);
    let parts = profiles.len() * (3 + contenders.len());
    context.progress.begin(parts as u64);
    let calibrations = calibrate(context, scale, profiles)?;
    let alone = measure_alone(context, scale, profiles, &workloads)?;
    let mut jobs = Vec::new();
    for workload in &workloads {
        jobs.extend(contenders.iter().map(|&contender| (workload, contender)));
    }
    let courses = parallel::first(context.progress, &jobs, |&(workload, contender)| {
        let setup = set_up(
            scale,
            profiles,
            workload,
            contender,
            &calibrations,
            context.seed,
        )?;
        let (results, window) = follow(context, setup)?;
        context.progress.step(&contender.label());
        Ok(Course {
            profile: workload.profile,
            contender,
            results,
            alone: alone_of(&alone, workload),
            window,
        })
    });
    courses.into_iter().collect()
}

/// Lets the tenants of a setup come and go; also the seconds in a window.
fn follow(context: &Context, mut setup: Setup) -> Result<(Results, f64), Refused> {
    let step = Duration::from_ms(if context.quick {
        10
    } else {
        context.number("step_ms")
    });
    let timed = setup.workers.into_iter().zip(spans(step));
    setup.workers = timed
        .map(|(worker, (from, to))| worker.between(from, to))
        .collect();
    setup.window = step / WINDOWS as u64;
    let window = setup.window.as_secs_f64();
    let setup = setup.measured(Duration::ZERO, step * u64::from(STEPS));
    Ok((setup.run()?, window))
}

fn workload(profile: usize) -> Workload {
    let groups = [
        Group::of(EACH, Kind::READ_4K),
        Group::of(EACH, Kind::WRITE_4K),
    ];
    Workload::new(profile, Condition::Fragmented(100), groups)
}

fn alone_of(alone: &Alone, workload: &Workload) -> [f64; 2] {
    [Kind::READ_4K, Kind::WRITE_4K].map(|kind| alone.of(workload, kind))
}

/// When each reader and then each writer works. The first reader stays to the end.
fn spans(step: Duration) -> Vec<(Time, Time)> {
    let at = |steps: u32| Time::ZERO + step * u64::from(steps);
    let reader = |place: u32| {
        let stop = if place == 0 {
            Time::MAX
        } else {
            at(STEPS - place)
        };
        (Time::ZERO, stop)
    };
    let writer = |place: u32| (at(place + 1), Time::MAX);
    (0..EACH).map(reader).chain((0..EACH).map(writer)).collect()
}

/// Readers and writers in a step.
fn present(step: u32) -> [u32; 2] {
    let gone = step.saturating_sub(EACH);
    [EACH - gone, step.min(EACH)]
}

/// What came of a step.
struct Step {
    number: u32,
    present: [u32; 2],
    /// f-Utils of the tenants that are there.
    f_utils: [Vec<f64>; 2],
    /// Windows until it has converged.
    converged: Option<usize>,
}

impl Course {
    fn steps(&self) -> impl Iterator<Item = Step> {
        (0..STEPS).map(|number| {
            let present = present(number);
            Step {
                number,
                present,
                f_utils: [0, 1].map(|group| self.f_utils(number, present, group)),
                converged: self.converged(number, present),
            }
        })
    }

    /// Bytes of a worker in a window.
    fn bytes(&self, group: usize, place: u32, window: usize) -> f64 {
        let worker = group * EACH as usize + place as usize;
        let window = self.results.workers[worker].windows[window];
        (window.read_bytes + window.written_bytes) as f64
    }

    /// Bytes of a whole group in a window.
    fn together(&self, group: usize, window: usize) -> f64 {
        (0..EACH)
            .map(|place| self.bytes(group, place, window))
            .sum()
    }

    fn f_utils(&self, step: u32, present: [u32; 2], group: usize) -> Vec<f64> {
        let tenants = (present[0] + present[1]) as usize;
        let of = |place: u32| {
            let bytes: f64 = settled(step)
                .map(|window| self.bytes(group, place, window))
                .sum();
            let bandwidth = bytes / (settled(step).len() as f64 * self.window);
            f_util(bandwidth, self.alone[group], tenants)
        };
        (0..present[group]).map(of).collect()
    }

    /// The first window from which on some in a row are near what both groups settle at.
    fn converged(&self, step: u32, present: [u32; 2]) -> Option<usize> {
        let mean = |group| {
            let sum: f64 = settled(step)
                .map(|window| self.together(group, window))
                .sum();
            sum / settled(step).len() as f64
        };
        let goals = [mean(0), mean(1)];
        let near = |window: usize| {
            (0..2).all(|group| {
                let off = (self.together(group, window) - goals[group]).abs();
                present[group] == 0 || off <= NEAR * goals[group]
            })
        };
        let begin = step as usize * WINDOWS;
        let mut starts = 0..=WINDOWS - IN_A_ROW;
        starts.find(|start| (0..IN_A_ROW).all(|next| near(begin + start + next)))
    }

    fn rows(&self, profile: &str) -> Vec<Vec<Value>> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let known = |values: &[f64]| match values {
            [] => Value::Missing,
            values => Value::Real(mean(values)),
        };
        let row = |step: Step| {
            let all = step.f_utils.concat();
            let converged = step
                .converged
                .map(|windows| windows as f64 * self.window * 1e6);
            vec![
                Value::Text(profile.into()),
                Value::Text(self.contender.label()),
                Value::Count(u64::from(step.number)),
                Value::Count(u64::from(step.present[0])),
                Value::Count(u64::from(step.present[1])),
                known(&step.f_utils[0]),
                known(&step.f_utils[1]),
                Value::Real(all.iter().copied().fold(f64::INFINITY, f64::min)),
                Value::Real(mean(&all)),
                converged.map_or(Value::Missing, Value::Real),
            ]
        };
        self.steps().map(row).collect()
    }

    /// One sentence on how soon steps converge.
    fn note(&self, profile: &str) -> String {
        let ms = |windows: usize| windows as f64 * self.window * 1e3;
        let converged: Vec<_> = self.steps().skip(1).map(|step| step.converged).collect();
        let mut soon: Vec<_> = converged.iter().flatten().copied().collect();
        soon.sort_unstable();
        let who = format!("{} on {profile}", self.contender.label());
        match soon.last() {
            Some(&most) => format!(
                "{who}: after half of the steps it converged within {:.0} ms, at most {:.0} ms; {} of {} steps did not converge.",
                ms(soon[soon.len() / 2]),
                ms(most),
                converged.len() - soon.len(),
                converged.len()
            ),
            None => format!("{who}: no step converged."),
        }
    }
}

/// The windows of the second half of a step.
fn settled(step: u32) -> std::ops::Range<usize> {
    let begin = step as usize * WINDOWS;
    begin + WINDOWS / 2..begin + WINDOWS
}

/// f-Util of readers and of writers over time on the first drive, a line for each policy.
fn charts(courses: &[Course]) -> Vec<Chart> {
    let series = |course: &Course, group: usize| Series {
        label: course.contender.label(),
        points: (0..STEPS as usize * WINDOWS)
            .step_by(SMOOTH)
            .filter_map(|window| course.point(group, window))
            .collect(),
    };
    let chart = |group: usize, name, title: &str| Chart {
        name,
        title: title.into(),
        claim: "Fair is 1.0; a policy that follows gets back there soon after each step.".into(),
        kind: ChartKind::Lines,
        x: axis("seconds"),
        y: axis("f-Util, mean of those that are there"),
        series: courses
            .iter()
            .filter(|course| course.profile == 0)
            .map(|course| series(course, group))
            .collect(),
        marks: Vec::new(),
    };
    vec![
        chart(0, "readers", "Readers, while writers come and readers go"),
        chart(1, "writers", "Writers, while writers come and readers go"),
    ]
}

/// Windows in a point of a chart.
const SMOOTH: usize = 5;

impl Course {
    /// Seconds, and the mean f-Util of a group over some windows; nothing while none of the group
    /// is there.
    fn point(&self, group: usize, window: usize) -> Option<(f64, f64)> {
        let present = present((window / WINDOWS) as u32);
        let bytes: f64 = (window..window + SMOOTH)
            .map(|window| self.together(group, window))
            .sum();
        let each = bytes / (SMOOTH as f64 * self.window) / f64::from(present[group]);
        let share = f_util(each, self.alone[group], (present[0] + present[1]) as usize);
        (present[group] > 0).then_some((window as f64 * self.window, share))
    }
}

fn axis(label: &str) -> Axis {
    Axis {
        label: label.into(),
        unit: Unit::None,
        scale: report::Scale::Linear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_in_a_step_is_who_is_counted() {
        let step = Duration::from_ms(10);
        let spans = spans(step);
        for number in 0..STEPS {
            let middle = Time::ZERO + step * u64::from(number) + step / 2;
            let there = |span: &&(Time, Time)| span.0 <= middle && middle < span.1;
            let (readers, writers) = spans.split_at(EACH as usize);
            let found = [readers, writers].map(|group| group.iter().filter(there).count() as u32);
            assert_eq!(found, present(number), "step {number}");
        }
    }
}
