//! Learns what I/O costs, by watching and by trying.
//!
//! Time is cut into ticks. A tick in which one class of I/O had the device to itself and more of it waited says what
//! the class costs. Where several classes compete and one of them was not measured for long, each such class in turn is
//! given the device alone for some tens of milliseconds: the trial. What the drive does of a mixture does not tell the
//! parts: reads and writes may stand in each other's way fully, or not at all.

use super::costs::{CLASSES, Class, Costs, Kind, PER_NS};
use super::windows::Bases;

/// Length of a tick.
pub(super) const TICK_NS: u64 = 5_000_000;
/// What was measured is believed for so long.
const FRESH_NS: u64 = 60_000_000_000;
/// A class whose tenants did not ask for as much as the device can do is not tried again for so long.
const HOPELESS_NS: u64 = 1_000_000_000;
/// A trial ends when its best span has not been bettered for so many ticks ...
const PATIENCE: u32 = 3;
/// ... or so many where the drive still has to empty its buffer of what others wrote.
const DRAIN_PATIENCE: u32 = 12;
/// It ends in any case after so many.
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
    patience: u32,
    idle: u32,
    /// Charged time over real time of the last ticks, in millionths.
    last: [u64; 3],
    best: u64,
    best_at: u32,
}

impl Learner {
    pub(super) fn new() -> Self {
        Self {
            began: 0,
            served: [Served::default(); CLASSES],
            pressed: [0; 2],
            completed: [0; 2],
            measured: [0; CLASSES],
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
                Phase::Alone(class) => self.try_out(now, span, class, gain, costs, bases),
            }
            ended = before != Phase::Open && self.phase == Phase::Open;
        } else if self.phase != Phase::Open {
            // Nothing happened for a while: whoever was tried has gone.
            self.phase = Phase::Open;
            self.queue = 0;
            ended = true;
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
            bases.begin_epoch();
            self.next_trial(gain);
        }
    }

    /// The class is a good part of what is done, more of it waits, and its cost is not known well.
    fn is_wanted(&self, now: u64, class: Class, total: u64, costs: &Costs) -> bool {
        let place = usize::from(class.0);
        self.served[place].charged >= total / 16
            && self.is_pressed(class.kind())
            && (!costs.is_learnt(class) || now - self.measured[place] > FRESH_NS)
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
            }
        } else if faster && class.kind() == Kind::Read {
            costs.correct(class, charged, span, 4);
        }
    }

    /// Writes come first: reads are measured when the buffer is empty again.
    fn next_trial(&mut self, _gain: u64) {
        if self.queue == 0 {
            self.phase = Phase::Open;
            return;
        }
        let class = Class(31 - self.queue.leading_zeros() as u8);
        self.queue &= !(1 << class.0);
        let drains = class.kind() == Kind::Read;
        self.trial = Trial {
            patience: if drains { DRAIN_PATIENCE } else { PATIENCE },
            ..Trial::default()
        };
        self.trials += 1;
        self.phase = Phase::Alone(class);
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
        if busy {
            trial.last.rotate_left(1);
            trial.last[2] = charged * 1_000_000 / (span * PER_NS);
            let mean = trial.last.iter().sum::<u64>() / 3;
            if trial.last[0] > 0 && mean > trial.best + trial.best / 50 {
                trial.best = mean;
                trial.best_at = trial.ticks;
            }
        }
        let done = trial.best > 0 && trial.ticks - trial.best_at >= trial.patience;
        if done || (trial.ticks >= LONGEST && trial.best > 0) {
            costs.correct(class, trial.best, 1_000_000 / PER_NS, 4);
            self.measured[usize::from(class.0)] = now;
            self.next_trial(gain);
        } else if trial.idle >= 2 || trial.ticks >= LONGEST {
            self.hopeless[usize::from(class.0)] = now + HOPELESS_NS;
            self.next_trial(gain);
        }
    }
}
