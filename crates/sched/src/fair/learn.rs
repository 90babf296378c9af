//! Learns what I/O costs, by watching and by trying.
//!
//! Time is cut into ticks. A tick in which one class of I/O had the device to itself and more of it
//! waited says what the class costs. Where several classes compete and one of them was not measured
//! for long, each such class in turn is given the device alone for some tens of milliseconds: the
//! probe. What the drive does of a mixture does not tell the parts: reads and writes may stand in
//! each other's way fully, or not at all.

use super::GAIN;
use super::bounds::Bounds;
use super::costs::{CLASSES, Class, Costs, Kind, PER_NS, SIZES};
use super::estimates::Estimates;
use super::probe::{Probe, STEADY};
use super::windows::Bases;

/// Length of a tick on a usual drive.
pub(super) const TICK_NS: u64 = 5_000_000;
/// On slow ones it is as many times longer, but not more: while something is tried out, others
/// wait.
const LONGEST_STRETCH: u64 = 4;
/// What was measured is believed for so long.
const FRESH_NS: u64 = 60_000_000_000;
/// A class whose tenants did not ask for as much as the device can do is not tried again for so
/// long.
const HOPELESS_NS: u64 = 1_000_000_000;
/// What was measured of writes is measured again after so long if the rate moved to the end,
/// otherwise after eight times that, and each time later: a drive takes writes at a rate that falls
/// for a while before it is the one that lasts.
const WRITES_FRESH_NS: u64 = 700_000_000;
/// Reads are tried when the drive has written out what it had buffered: when the mean latency of a
/// few at a time is not above this many percent of the base.
const SETTLED_PERCENT: u64 = 135;
/// If it never is, they are tried after so many ticks.
const SETTLE_LONGEST: u32 = 20;
/// A class is tried when it does at least this part of the work; less is asked of one that was
/// never measured.
const GOOD_PART: u64 = 8;
const NEW_PART: u64 = 32;
/// Classes tried in one round: the most used ones. Others have to make do with what lies between
/// them until the next.
const ROUND: usize = 2;
/// Rounds are at least so far apart.
const REST_NS: u64 = 300_000_000;
/// Ticks of competition after which everything has been tried that can be: some rounds.
const LONG_CONTENDED: u32 = 100;

/// What of a class was done in the tick.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    ios: u64,
    charged: u64,
    latency: u64,
}

/// What a tick was like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scene {
    /// Of which kind the device held as much as it ever may.
    pub(super) full: [bool; 2],
    /// Latency-sensitive I/O was about.
    pub(super) latency_sensitive: bool,
    /// Reads and writes went by turns: that one class was alone means nothing.
    pub(super) sliced: bool,
    /// Of which kind the device has nothing at its end, and will get nothing of what waits: unlike
    /// what is held because latency-sensitive I/O has had its part.
    pub(super) idle: [bool; 2],
}

/// Who may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Everybody.
    Open,
    /// A few of one class at a time, while the drive comes to rest.
    Settling(Class),
    /// One class only, and latency-sensitive and guaranteed I/O.
    Alone(Class),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Learner {
    began: u64,
    /// Length of a tick.
    tick: u64,
    served: [Served; CLASSES],
    estimates: Estimates,
    scene: Scene,
    /// Completions that left more of their kind waiting, and all completions; by kind.
    pressed: [u64; 2],
    completed: [u64; 2],
    measured: [u64; CLASSES],
    fresh: [u64; CLASSES],
    wrote: u64,
    /// When the next round may begin.
    rested: u64,
    hopeless: [u64; CLASSES],
    pause: [u64; CLASSES],
    /// Ticks in a row in which several classes were served.
    contended: u32,
    steady: u32,
    steady_class: Class,
    phase: Phase,
    /// Classes still to be tried.
    queue: u32,
    probe: Probe,
    bounds: Bounds,
    pub(super) probes: u64,
}

impl Learner {
    pub(super) fn new() -> Self {
        Self {
            began: 0,
            tick: TICK_NS,
            served: [Served::default(); CLASSES],
            estimates: Estimates::new(),
            scene: Scene::default(),
            pressed: [0; 2],
            completed: [0; 2],
            measured: [0; CLASSES],
            fresh: [0; CLASSES],
            wrote: 0,
            rested: 0,
            hopeless: [0; CLASSES],
            pause: [0; CLASSES],
            contended: 0,
            steady: 0,
            steady_class: Class(0),
            phase: Phase::Open,
            queue: 0,
            probe: Probe::default(),
            bounds: Bounds::default(),
            probes: 0,
        }
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Classes have competed for so long that what has not been measured by now will not be soon:
    /// those who do it do not ask for enough.
    #[inline]
    pub(super) fn has_tried(&self) -> bool {
        self.contended >= LONG_CONTENDED
    }

    /// Has ticks last as many times longer as the device is slower than usual ones.
    pub(super) fn stretch(&mut self, slowness: u64) {
        self.tick = TICK_NS * slowness.min(LONGEST_STRETCH);
    }

    pub(super) fn tick_length(&self) -> u64 {
        self.tick
    }

    /// What has come back in this tick by kind: how many, and the sum of their latencies.
    pub(super) fn answers(&self) -> [(u64, u64); 2] {
        [0, SIZES].map(|first| {
            let sizes = &self.served[first..][..SIZES];
            let ios = sizes.iter().map(|served| served.ios).sum();
            (ios, sizes.iter().map(|served| served.latency).sum())
        })
    }

    /// When the tick ends.
    #[inline]
    pub(super) fn tick_ends(&self) -> u64 {
        self.began + self.tick
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

    /// Ends the tick. Says whether probes have just come to an end.
    pub(super) fn tick(
        &mut self,
        now: u64,
        scene: Scene,
        costs: &mut Costs,
        bases: &mut Bases,
    ) -> bool {
        let span = now - self.began;
        let mut ended = false;
        self.scene = scene;
        if span <= 3 * self.tick {
            let served = self.served.iter();
            self.estimates
                .remember(span, served.map(|served| (served.ios, served.latency)));
            let before = self.phase;
            match self.phase {
                Phase::Open => self.watch(now, span, costs, bases),
                Phase::Settling(class) => self.settle(now, class, bases),
                Phase::Alone(class) => self.try_out(now, span, class, costs, bases),
            }
            ended = before != Phase::Open && self.phase == Phase::Open;
            // Only now: what was served has been charged at what was believed until here.
            if scene.latency_sensitive {
                self.estimates.estimate_reads(costs, bases);
            } else if before == Phase::Open && self.phase == Phase::Open {
                self.estimates.estimate(costs, bases);
            }
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

    /// The drive may still be busy with what was written.
    fn wrote_recently(&self) -> bool {
        self.wrote > 0
            && self.began - self.wrote.min(self.began) < u64::from(SETTLE_LONGEST) * self.tick
    }

    /// What was charged in this tick, by kind.
    fn charged(&self) -> [u64; 2] {
        [0, SIZES].map(|first| {
            let sizes = &self.served[first..][..SIZES];
            sizes.iter().map(|served| served.charged).sum()
        })
    }

    fn total(&self) -> u64 {
        self.charged().iter().sum()
    }

    /// Most completions of the kind left others waiting.
    fn is_pressed(&self, kind: Kind) -> bool {
        let kind = kind as usize;
        self.completed[kind] > 0 && self.pressed[kind] * 10 >= self.completed[kind] * 8
    }

    /// The device's answers take so long that it was busy all the time. It had as many I/Os in
    /// flight then as answers take times longer than the base (Little's law): where it had fewer,
    /// the base is that of another size.
    fn is_busy(&self, class: Class, span: u64, bases: &Bases) -> bool {
        let served = self.served[usize::from(class.0)];
        let all: u64 = self.served.iter().map(|served| served.latency).sum();
        served.ios > 0
            && served.latency / served.ios * 3 >= bases.of(class) * GAIN
            && all * 3 >= span * GAIN
    }

    fn watch(&mut self, now: u64, span: u64, costs: &mut Costs, bases: &mut Bases) {
        let total = self.total();
        let Some(main) = Class::all().max_by_key(|class| self.served[usize::from(class.0)].charged)
        else {
            return;
        };
        let most = self.served[usize::from(main.0)].charged;
        if total == 0 {
            return;
        }
        if most >= total / 100 * 97 && !self.scene.sliced {
            self.contended = 0;
            if self.is_telling(main, costs, bases) {
                // Wide, as what was charged may be far more than the time that has passed.
                let others = u128::from(span) * u128::from(total - most) / u128::from(total);
                self.take_in(now, span - others as u64, main, costs, bases);
            }
            return;
        }
        self.contended = self.contended.saturating_add(1);
        let full = self.scene.full.contains(&true) && !self.scene.sliced;
        if full && self.is_pressed(Kind::Read) && self.is_pressed(Kind::Write) {
            self.bounds.tick(span, self.charged(), costs);
        }
        if now < self.rested || self.contended < STEADY {
            return;
        }
        for _ in 0..ROUND {
            let next = Class::all()
                .filter(|&class| self.queue & (1 << class.0) == 0)
                .filter(|&class| self.is_wanted(now, class, total, costs))
                .max_by_key(|class| self.served[usize::from(class.0)].charged);
            self.queue |= next.map_or(0, |class| 1 << class.0);
        }
        if self.queue != 0 {
            self.next_probe(now, bases);
        }
    }

    /// The class is a good part of what is done, more of it waits, and its cost is not known well.
    fn is_wanted(&self, now: u64, class: Class, total: u64, costs: &Costs) -> bool {
        let place = usize::from(class.0);
        let part = if costs.is_learnt(class) {
            GOOD_PART
        } else {
            NEW_PART
        };
        self.served[place].charged >= total / part
            && self.is_pressed(class.kind())
            && (!costs.is_learnt(class) || now - self.measured[place] > self.fresh[place])
            && now >= self.hopeless[place]
    }

    /// What was served of a class that was nearly alone says what it costs: nothing unknown was
    /// beside it, and as much of it waited as the windows let. Of a class never measured less is
    /// asked: one late answer to somebody who asks for one thing at a time is not enough.
    fn is_telling(&self, class: Class, costs: &Costs, bases: &Bases) -> bool {
        let kind = class.kind();
        let mut others = Class::all().filter(|&other| other != class);
        let alone = others
            .all(|other| self.served[usize::from(other.0)].ios == 0 || costs.is_learnt(other));
        let rested = kind == Kind::Write || !self.wrote_recently();
        let most = self.scene.full[kind as usize] && self.is_pressed(kind);
        let new = !costs.is_learnt(class)
            && (!self.scene.latency_sensitive || self.estimates.is_deep(class));
        alone && rested && bases.is_known(kind) && (most || new)
    }

    fn take_in(&mut self, now: u64, span: u64, class: Class, costs: &mut Costs, bases: &Bases) {
        let served = self.served[usize::from(class.0)];
        // Where answers take longer than ticks, what was served has been charged by guesses long
        // since dropped.
        let charged = match self.scene.latency_sensitive && !costs.is_learnt(class) {
            true => served.ios * costs.at(class),
            false => served.charged,
        };
        let faster = charged > span * PER_NS;
        if self.is_busy(class, span, bases) {
            let part = if faster || !costs.is_learnt(class) {
                4
            } else {
                1
            };
            costs.correct(class, charged, span, part);
            if self.steady_class != class {
                self.steady_class = class;
                self.steady = 0;
            }
            self.steady += 1;
            if self.steady >= STEADY {
                self.note(now, class, false);
                self.fresh[usize::from(class.0)] = FRESH_NS;
            }
        } else if faster && class.kind() == Kind::Read {
            costs.correct(class, charged, span, 4);
        }
    }

    /// Writes come first: reads are measured when the buffer is empty again.
    fn next_probe(&mut self, now: u64, bases: &mut Bases) {
        if self.queue == 0 {
            self.phase = Phase::Open;
            self.rested = now + REST_NS;
            return;
        }
        let class = Class(31 - self.queue.leading_zeros() as u8);
        self.queue &= !(1 << class.0);
        self.probe = Probe::default();
        self.probes += 1;
        self.phase = if class.kind() == Kind::Read && self.wrote_recently() {
            bases.begin_epoch(Kind::Read);
            Phase::Settling(class)
        } else {
            Phase::Alone(class)
        };
    }

    /// A few reads go at a time until nothing else keeps the flash busy. Of tenants that keep so
    /// many reads and writes in flight soon only writes are left, which wait: no read comes then.
    fn settle(&mut self, now: u64, class: Class, bases: &mut Bases) {
        let kind = class.kind() as usize;
        if self.scene.idle[kind] && self.completed[kind] == 0 {
            self.give_up(now, class);
            return self.next_probe(now, bases);
        }
        bases.look(class);
        let served = self.served[usize::from(class.0)];
        self.probe.ticks += 1;
        let settled = served.ios > 0
            && served.latency / served.ios * 100 <= bases.of(class) * SETTLED_PERCENT;
        if settled || self.probe.ticks >= SETTLE_LONGEST {
            bases.begin_epoch(Kind::Write);
            self.probe = Probe::default();
            self.phase = Phase::Alone(class);
        }
    }

    fn try_out(&mut self, now: u64, span: u64, class: Class, costs: &mut Costs, bases: &mut Bases) {
        bases.look(class);
        let first = class.kind() as usize * SIZES;
        let sizes = &self.served[first..][..SIZES];
        let charged = self.charged()[class.kind() as usize];
        for (sum, served) in self.probe.charged.iter_mut().zip(sizes) {
            *sum += served.charged;
        }
        let busy = self.is_busy(class, span, bases);
        let others = (self.total() - charged) / PER_NS;
        let span = span.saturating_sub(others).max(span / 4);
        let pressed = self.is_pressed(class.kind());
        let probe = &mut self.probe;
        probe.ticks += 1;
        probe.idle = if busy || pressed { 0 } else { probe.idle + 1 };
        probe.last.rotate_left(1);
        probe.last[7] = (u128::from(charged) * 1_000_000 / u128::from(span * PER_NS)) as u64;
        if class.kind() == Kind::Read && probe.last[7] > 1_250_000 {
            // The window was too small for what the device can do.
            costs.correct_mix(class, &probe.charged, probe.last[7], 4);
            probe.last = [0; 8];
            probe.charged = [0; SIZES];
            return;
        }
        let (steady, mean) = probe.lasts(class.kind(), costs.is_learnt(class));
        let late = probe.is_late(class.kind());
        // Writes that the drive's buffer took all the time are measured, too: it is as fast as
        // that.
        let taken = late && pressed && class.kind() == Kind::Write;
        if mean > 0 && (steady && busy || taken) {
            let before = costs.at(class);
            let part = if costs.is_learnt(class) { 2 } else { 4 };
            let alone = costs.correct_mix(class, &self.probe.charged, mean, part);
            let moving = before.abs_diff(costs.at(class)) > before / 8 && late;
            if alone {
                self.note(now, class, moving);
            } else {
                // The others come first when the sizes are told apart.
                self.hopeless[usize::from(class.0)] = now + HOPELESS_NS;
            }
            self.next_probe(now, bases);
        } else if probe.idle >= 2 || late {
            self.give_up(now, class);
            self.next_probe(now, bases);
        }
    }

    /// The class did not use the device fully. It is tried again later, and later each time.
    fn give_up(&mut self, now: u64, class: Class) {
        let place = usize::from(class.0);
        let pause = (self.pause[place] * 4).clamp(HOPELESS_NS, FRESH_NS);
        self.pause[place] = pause;
        self.hopeless[place] = now + pause;
    }

    /// Says when a class that was measured is to be measured again.
    fn note(&mut self, now: u64, class: Class, moving: bool) {
        let place = usize::from(class.0);
        self.measured[place] = now;
        self.pause[place] = 0;
        self.fresh[place] = match class.kind() {
            Kind::Read => FRESH_NS,
            Kind::Write if moving => WRITES_FRESH_NS,
            Kind::Write => (self.fresh[place].max(WRITES_FRESH_NS) * 8).min(FRESH_NS),
        };
    }
}
