//! Runs the model of a drive by the clock of a core.
//!
//! A completion of the model is reported once its instant has passed (`clock`). How much later than
//! due it was reported is the lateness.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use flashyard_block::{EndSource, IoError, TimedEnd};
use flashyard_flash::ssd::{self, Completion};
use flashyard_runtime::Rt;
use flashyard_time::{Histogram, Time};

use super::plan::Plan;
use super::stats::FlashStats;
use crate::clock::{DriveClock, Pump, Timed};

/// A drive in real time.
pub(super) struct Drive {
    rt: Rt,
    clock: DriveClock,
    model: RefCell<Model>,
    pump: Pump,
    /// Kept for its allocation.
    woken: RefCell<Vec<Waker>>,
}

impl Drive {
    /// Runs `device` from now on, slowed down by `dilation`.
    pub(super) fn start(rt: &Rt, device: ssd::Device, dilation: u32) -> Rc<Self> {
        let clock = DriveClock::new(rt.now(), device.now(), dilation);
        Rc::new_cyclic(|drive| Self {
            rt: rt.clone(),
            clock,
            model: RefCell::new(Model::new(device)),
            pump: Pump::start(rt, Weak::clone(drive)),
            woken: RefCell::default(),
        })
    }

    /// Begins an I/O. [`IoError::Busy`] when the drive takes no more.
    pub(super) fn begin(self: &Rc<Self>, plan: Plan) -> Result<TimedEnd, IoError> {
        let now = self.rt.turn_time();
        let mut woken = std::mem::take(&mut *self.woken.borrow_mut());
        let begun = self
            .model
            .borrow_mut()
            .begin(now, &self.clock, plan, &mut woken);
        self.wake(woken);
        let slot = begun?;
        self.pump.wake_by(self.next());
        Ok(TimedEnd::new(Rc::clone(self) as Rc<dyn EndSource>, slot))
    }

    /// What the drive has done until now.
    pub(super) fn stats(&self) -> FlashStats {
        let next = self.deliver();
        self.pump.wake_by(next);
        let model = self.model.borrow();
        FlashStats {
            drive: model.device.stats(),
            lateness: model.lateness.clone(),
            latency: model.latency.clone(),
            in_flight: model.device.outstanding(),
            dilation: self.clock.dilation(),
        }
    }

    /// Units that garbage collection has moved until the drive was last looked at.
    pub(super) fn moved_units(&self) -> u64 {
        self.model.borrow().device.moved_units()
    }

    /// Forgets the lateness and latency of what has ended.
    pub(super) fn clear_timing(&self) {
        let model = &mut *self.model.borrow_mut();
        model.lateness.clear();
        model.latency.clear();
    }

    fn wake(&self, mut woken: Vec<Waker>) {
        woken.drain(..).for_each(Waker::wake);
        *self.woken.borrow_mut() = woken;
    }

    fn next(&self) -> Option<Time> {
        self.model.borrow().next(&self.clock)
    }
}

impl Timed for Drive {
    fn deliver(&self) -> Option<Time> {
        let mut woken = std::mem::take(&mut *self.woken.borrow_mut());
        let now = self.rt.turn_time();
        let next = self
            .model
            .borrow_mut()
            .advance(now, &self.clock, &mut woken);
        self.wake(woken);
        next
    }

    fn pump(&self) -> &Pump {
        &self.pump
    }
}

/// The model with the tasks that wait for it. An I/O has one command with the device at a time, so
/// there are never more slots than commands that the device takes.
struct Model {
    device: ssd::Device,
    slots: Vec<Slot>,
    unused: Vec<u32>,
    done: Vec<Completion>,
    lateness: Histogram,
    latency: Histogram,
}

struct Slot {
    state: SlotState,
    plan: Plan,
    begun: Time,
}

enum SlotState {
    Unused,
    /// The waker is of the task that polled last.
    Waiting(Option<Waker>),
    /// No task waits any more; the drive goes on with it.
    Abandoned,
    Done,
}

impl Model {
    fn new(device: ssd::Device) -> Self {
        Self {
            device,
            slots: Vec::new(),
            unused: Vec::new(),
            done: Vec::new(),
            lateness: Histogram::new(),
            latency: Histogram::new(),
        }
    }

    /// Begins an I/O, and gives its slot.
    fn begin(
        &mut self,
        now: Time,
        clock: &DriveClock,
        mut plan: Plan,
        woken: &mut Vec<Waker>,
    ) -> Result<u32, IoError> {
        // Room that a command leaves belongs first to the one that follows it in its I/O.
        if self.next(clock).is_some_and(|next| next <= now) {
            self.advance(now, clock, woken);
        }
        let place = self.unused.last().copied();
        let slot = place.unwrap_or(self.slots.len() as u32);
        let command = plan
            .next(u64::from(slot))
            .expect("an I/O of some length has a command");
        self.device
            .submit(clock.drive_time(now), command)
            .map_err(|rejected| match rejected {
                ssd::Rejected::QueueFull => IoError::Busy,
                ssd::Rejected::OutOfRange => IoError::OutOfRange,
            })?;
        let begun = Slot {
            state: SlotState::Waiting(None),
            plan,
            begun: now,
        };
        if self.unused.pop().is_some() {
            self.slots[slot as usize] = begun;
        } else {
            self.slots.push(begun);
        }
        Ok(slot)
    }

    /// Lets the drive run until `now`, and gives the instant to look again. It stops at every
    /// completion, so that what follows in an I/O begins when the drive says and not when the core
    /// looks.
    fn advance(&mut self, now: Time, clock: &DriveClock, woken: &mut Vec<Waker>) -> Option<Time> {
        let mut done = std::mem::take(&mut self.done);
        let until = clock.drive_time(now);
        while self.device.advance_to_completion(until, &mut done) {
            for completion in done.drain(..) {
                self.command_done(completion, now, clock, woken);
            }
        }
        self.done = done;
        self.next(clock)
    }

    /// When something may be due; nothing while no task waits, whatever the drive does for itself.
    fn next(&self, clock: &DriveClock) -> Option<Time> {
        self.device.next_completion().map(|at| clock.core_time(at))
    }

    fn command_done(
        &mut self,
        completion: Completion,
        now: Time,
        clock: &DriveClock,
        woken: &mut Vec<Waker>,
    ) {
        let slot = &mut self.slots[completion.tag as usize];
        if let Some(command) = slot.plan.next(completion.tag) {
            self.device
                .submit(completion.at, command)
                .expect("the I/O was checked, and one of its commands has just made room");
            return;
        }
        let due = clock.core_time(completion.at);
        self.lateness.record(now.since(due).as_ns());
        self.latency.record(due.since(slot.begun).as_ns());
        match std::mem::replace(&mut slot.state, SlotState::Done) {
            SlotState::Waiting(waker) => woken.extend(waker),
            SlotState::Abandoned => self.release(completion.tag as u32),
            SlotState::Unused | SlotState::Done => unreachable!("an I/O ends once"),
        }
    }

    fn release(&mut self, slot: u32) {
        self.slots[slot as usize].state = SlotState::Unused;
        self.unused.push(slot);
    }
}

impl EndSource for Drive {
    fn poll_end(&self, slot: u32, context: &mut Context<'_>) -> Poll<()> {
        let mut model = self.model.borrow_mut();
        let former = match &mut model.slots[slot as usize].state {
            SlotState::Done => return Poll::Ready(()),
            SlotState::Waiting(Some(known)) if known.will_wake(context.waker()) => None,
            SlotState::Waiting(waker) => waker.replace(context.waker().clone()),
            SlotState::Unused | SlotState::Abandoned => unreachable!("it is waited for"),
        };
        drop(model);
        drop(former);
        Poll::Pending
    }

    fn release(&self, slot: u32) {
        let mut model = self.model.borrow_mut();
        let state = &mut model.slots[slot as usize].state;
        let waker = match std::mem::replace(state, SlotState::Abandoned) {
            SlotState::Waiting(waker) => waker,
            _ => {
                model.release(slot);
                None
            }
        };
        drop(model);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use flashyard_flash::Profile;
    use flashyard_flash::ssd::Condition;

    use flashyard_time::Duration;

    use super::*;

    fn clock() -> DriveClock {
        DriveClock::new(Time::ZERO, Time::ZERO, 1)
    }

    fn model(profile: &str) -> Model {
        let profile = Profile::named(profile).expect("it ships");
        let device = ssd::Device::in_condition(&profile, 256 << 20, 1, Condition::Clean);
        Model::new(device.expect("256 MiB fit"))
    }

    /// Looks at the drive every `step`, and gives the mean latency of so many writes of parts of
    /// units.
    fn latency(writes: u64, step: Duration) -> u64 {
        let (mut model, mut woken) = (model("dct983"), Vec::new());
        for write in 0..writes {
            let plan = Plan::write(write * 4096 + 512, 1024, false);
            model
                .begin(Time::ZERO, &clock(), plan, &mut woken)
                .expect("there is room");
        }
        let mut now = Time::ZERO;
        while model.next(&clock()).is_some() {
            now += step;
            model.advance(now, &clock(), &mut woken);
        }
        assert_eq!(model.latency.count(), writes);
        model.latency.mean()
    }

    #[test]
    fn what_follows_in_an_io_does_not_wait_for_a_look() {
        let often = latency(8, Duration::from_ns(100));
        assert_eq!(latency(8, Duration::from_ms(5)), often);
    }

    #[test]
    fn a_full_drive_has_room_for_what_follows() {
        let (mut model, mut woken) = (model("ideal"), Vec::new());
        let part = |place: u64| Plan::write(place % 60_000 * 4096 + 512, 512, false);
        let mut begun = 0;
        while model
            .begin(Time::ZERO, &clock(), part(begun), &mut woken)
            .is_ok()
        {
            begun += 1;
        }
        // By now reads have ended whose writes are still to come.
        let mut now = Time::ZERO + Duration::from_ms(1);
        let refused = model.begin(now, &clock(), part(begun), &mut woken);
        assert!(matches!(refused, Err(IoError::Busy)));
        while model.next(&clock()).is_some() {
            now += Duration::from_ms(1);
            model.advance(now, &clock(), &mut woken);
        }
        assert_eq!(model.latency.count(), begun);
    }
}
