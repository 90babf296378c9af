//! Learns what I/O costs, by watching and by trying.
//!
//! Time is cut into ticks. A tick in which one class of I/O had the device to itself and more of it waited says what
//! the class costs. Where several classes compete and one of them was not measured for long, each such class in turn is
//! given the device alone for some tens of milliseconds: the trial. What the drive does of a mixture does not tell the
//! parts: reads and writes may stand in each other's way fully, or not at all.

use super::costs::{CLASSES, Class, Costs, Kind, PER_NS, SIZES};
use super::windows::Bases;

/// Length of a tick.
pub(super) const TICK_NS: u64 = 5_000_000;
/// What was measured is believed for so long.
const FRESH_NS: u64 = 60_000_000_000;
/// A class whose tenants did not ask for as much as the device can do is not tried again for so long.
const HOPELESS_NS: u64 = 1_000_000_000;
/// What was measured of writes is measured again after so long, and then after four times that, as long as it changes:
/// a drive takes writes at a rate that falls for a while before it is the one that lasts.
const WRITES_FRESH_NS: u64 = 400_000_000;
/// Reads are tried when the drive has written out what it had buffered: when the mean latency of a few at a time is
/// not above this many percent of the base.
const SETTLED_PERCENT: u64 = 135;
/// If it never is, they are tried after so many ticks.
const SETTLE_LONGEST: u32 = 30;
/// The rate of reads lasts when three ticks in a row differ by no more than so many parts of a hundred.
const READS_STEADY_PERCENT: u64 = 6;
/// The rate of writes lasts when the last four ticks differ from the four before by no more: what a drive grants moves
/// for a tenth of a second after the load has changed.
const WRITES_STEADY_PERCENT: u64 = 3;
/// A trial ends in any case after so many ticks.
const LONGEST: u32 = 50;
/// Ticks in a row that must tell the same.
const STEADY: u32 = 4;

/// What of a class was done in the tick.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    ios: u64,
    charged: u64,
    latency: u64,
}

/// Who may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Everybody.
    Open,
    /// A few of one class at a time, while the drive comes to rest.
    Settling(Class),
    /// One class only, and what is urgent or guaranteed.
    Alone(Class),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Learner {
    began: u64,
    served: [Served; CLASSES],
    /// Completions that left more of their kind waiting, and all completions; by kind.
    pressed: [u64; 2],
    completed: [u64; 2],
    measured: [u64; CLASSES],
    fresh: [u64; CLASSES],
    wrote: u64,
    hopeless: [u64; CLASSES],
    steady: u32,
    steady_class: Class,
    phase: Phase,
    /// Classes still to be tried.
    queue: u32,
    trial: Trial,
    pub(super) trials: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    ticks: u32,
    idle: u32,
    /// Charged time over real time of the last ticks, in millionths.
    last: [u64; 8],
}

impl Learner {
    pub(super) fn new() -> Self {
        Self {
            began: 0,
            served: [Served::default(); CLASSES],
            pressed: [0; 2],
            completed: [0; 2],
            measured: [0; CLASSES],
            fresh: [0; CLASSES],
            wrote: 0,
            hopeless: [0; CLASSES],
            steady: 0,
            steady_class: Class(0),
            phase: Phase::Open,
            queue: 0,
            trial: Trial::default(),
            trials: 0,
        }
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// When the tick ends.
    #[inline]
    pub(super) fn tick_ends(&self) -> u64 {
        self.began + TICK_NS
    }

    /// An I/O has ended; `pressed` when more of its kind waits for the device.
    #[inline]
    pub(super) fn record(&mut self, class: Class, cost: u64, latency: u64, pressed: bool) {
        let served = &mut self.served[usize::from(class.0)];
        served.ios += 1;
        served.charged += cost;
        served.latency += latency;
        let kind = class.kind() as usize;
        self.completed[kind] += 1;
        self.pressed[kind] += u64::from(pressed);
    }

    /// Ends the tick. `gain` is how many times what keeps it busy the device holds of a kind, at most. Says whether
    /// trials have just come to an end.
    pub(super) fn tick(
        &mut self,
        now: u64,
        gain: u64,
        costs: &mut Costs,
        bases: &mut Bases,
    ) -> bool {
        let span = now - self.began;
        let mut ended = false;
        if span <= 3 * TICK_NS {
            let before = self.phase;
            match self.phase {
                Phase::Open => self.watch(now, span, gain, costs, bases),
                Phase::Settling(class) => self.settle(class, bases),
                Phase::Alone(class) => self.try_out(now, span, class, gain, costs, bases),
            }
            ended = before != Phase::Open && self.phase == Phase::Open;
        } else if self.phase != Phase::Open {
            // Nothing happened for a while: whoever was tried has gone.
            self.phase = Phase::Open;
            self.queue = 0;
            ended = true;
        }
        if self.served[SIZES..].iter().any(|served| served.ios > 0) {
            self.wrote = now;
        }
        self.began = now;
        self.served = [Served::default(); CLASSES];
        self.pressed = [0; 2];
        self.completed = [0; 2];
        ended
    }

    fn total(&self) -> u64 {
        self.served.iter().map(|served| served.charged).sum()
    }

    /// Most completions of the kind left others waiting.
    fn is_pressed(&self, kind: Kind) -> bool {
        let kind = kind as usize;
        self.completed[kind] > 0 && self.pressed[kind] * 10 >= self.completed[kind] * 8
    }

    /// The device's answers take so long that it was busy all the time.
    fn is_busy(&self, class: Class, gain: u64, bases: &Bases) -> bool {
        let served = self.served[usize::from(class.0)];
        served.ios > 0 && served.latency / served.ios * 3 >= bases.of(class) * gain
    }

    fn watch(&mut self, now: u64, span: u64, gain: u64, costs: &mut Costs, bases: &mut Bases) {
        let total = self.total();
        let Some(main) = Class::all().max_by_key(|class| self.served[usize::from(class.0)].charged)
        else {
            return;
        };
        let most = self.served[usize::from(main.0)].charged;
        if total == 0 {
            return;
        }
        if most >= total / 100 * 97 {
            if self.is_pressed(main.kind()) {
                self.passive(
                    now,
                    span - span * (total - most) / total,
                    main,
                    gain,
                    costs,
                    bases,
                );
            }
            return;
        }
        let wanted = Class::all()
            .filter(|&class| self.is_wanted(now, class, total, costs))
            .fold(0, |set, class| set | 1 << class.0);
        if wanted != 0 {
            self.queue = wanted;
            self.next_trial(now, bases);
        }
    }

    /// The class is a good part of what is done, more of it waits, and its cost is not known well.
    fn is_wanted(&self, now: u64, class: Class, total: u64, costs: &Costs) -> bool {
        let place = usize::from(class.0);
        self.served[place].charged >= total / 16
            && self.is_pressed(class.kind())
            && (!costs.is_learnt(class) || now - self.measured[place] > self.fresh[place])
            && now >= self.hopeless[place]
    }

    fn passive(
        &mut self,
        now: u64,
        span: u64,
        class: Class,
        gain: u64,
        costs: &mut Costs,
        bases: &Bases,
    ) {
        let charged = self.served[usize::from(class.0)].charged;
        let busy = self.is_busy(class, gain, bases);
        let faster = charged > span * PER_NS;
        if busy {
            costs.correct(class, charged, span, if faster { 4 } else { 1 });
            if self.steady_class != class {
                self.steady_class = class;
                self.steady = 0;
            }
            self.steady += 1;
            if self.steady >= STEADY {
                self.measured[usize::from(class.0)] = now;
                self.fresh[usize::from(class.0)] = FRESH_NS;
            }
        } else if faster && class.kind() == Kind::Read {
            costs.correct(class, charged, span, 4);
        }
    }

    /// Writes come first: reads are measured when the buffer is empty again.
    fn next_trial(&mut self, now: u64, bases: &mut Bases) {
        if self.queue == 0 {
            self.phase = Phase::Open;
            return;
        }
        let class = Class(31 - self.queue.leading_zeros() as u8);
        self.queue &= !(1 << class.0);
        self.trial = Trial::default();
        self.trials += 1;
        let wrote_lately = now - self.wrote < u64::from(SETTLE_LONGEST) * TICK_NS;
        self.phase = if class.kind() == Kind::Read && wrote_lately {
            bases.begin_epoch(Kind::Read);
            Phase::Settling(class)
        } else {
            Phase::Alone(class)
        };
    }

    /// A few reads go at a time until nothing else keeps the flash busy.
    fn settle(&mut self, class: Class, bases: &mut Bases) {
        bases.look(class);
        let served = self.served[usize::from(class.0)];
        self.trial.ticks += 1;
        let settled = served.ios > 0
            && served.latency / served.ios * 100 <= bases.of(class) * SETTLED_PERCENT;
        if settled || self.trial.ticks >= SETTLE_LONGEST {
            bases.begin_epoch(Kind::Write);
            self.trial = Trial::default();
            self.phase = Phase::Alone(class);
        }
    }

    fn try_out(
        &mut self,
        now: u64,
        span: u64,
        class: Class,
        gain: u64,
        costs: &mut Costs,
        bases: &mut Bases,
    ) {
        bases.look(class);
        let charged = self.served[usize::from(class.0)].charged;
        let others = (self.total() - charged) / PER_NS;
        let span = span.saturating_sub(others).max(span / 4);
        let busy = self.is_busy(class, gain, bases);
        let pressed = self.is_pressed(class.kind());
        let trial = &mut self.trial;
        trial.ticks += 1;
        trial.idle = if busy || pressed { 0 } else { trial.idle + 1 };
        trial.last.rotate_left(1);
        trial.last[7] = charged * 1_000_000 / (span * PER_NS);
        let (steady, mean) = trial.lasts(class.kind());
        let late = trial.ticks >= LONGEST;
        if (steady && busy || late) && mean > 0 {
            let before = costs.at(class);
            let part = if costs.is_learnt(class) { 2 } else { 4 };
            costs.correct(class, mean, 1_000_000 / PER_NS, part);
            self.note(now, class, before.abs_diff(costs.at(class)) > before / 8);
            self.next_trial(now, bases);
        } else if trial.idle >= 2 || late {
            self.hopeless[usize::from(class.0)] = now + HOPELESS_NS;
            self.next_trial(now, bases);
        }
    }

    /// Says when a class that was measured is to be measured again.
    fn note(&mut self, now: u64, class: Class, changed: bool) {
        let place = usize::from(class.0);
        self.measured[place] = now;
        self.fresh[place] = match class.kind() {
            Kind::Read => FRESH_NS,
            Kind::Write if changed => WRITES_FRESH_NS,
            Kind::Write => (self.fresh[place] * 4).clamp(WRITES_FRESH_NS, FRESH_NS),
        };
    }
}

impl Trial {
    /// Whether the rate is one that lasts, and the rate: charged time over real time, in millionths.
    fn lasts(&self, kind: Kind) -> (bool, u64) {
        let mean = |ticks: &[u64]| ticks.iter().sum::<u64>() / ticks.len() as u64;
        match kind {
            Kind::Read => {
                let last = &self.last[5..];
                let least = last.iter().fold(u64::MAX, |least, &tick| least.min(tick));
                let most = last.iter().fold(0, |most, &tick| most.max(tick));
                let steady = (most - least) * 100 <= most * READS_STEADY_PERCENT;
                (self.ticks > 3 && steady, mean(last))
            }
            Kind::Write => {
                let (before, last) = (mean(&self.last[..4]), mean(&self.last[4..]));
                let steady = before.abs_diff(last) * 100 <= last * WRITES_STEADY_PERCENT;
                (self.ticks > 8 && steady, last)
            }
        }
    }
}
