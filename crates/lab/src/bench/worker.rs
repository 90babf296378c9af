//! The state of a worker: whether it is active, what it has in flight, and when it acts next.

use std::collections::VecDeque;

use flashyard_flash::UNIT_BYTES;
use flashyard_flash::ssd::Device;
use flashyard_sched::{Class, TenantId};
use flashyard_time::{Duration, EventKey, Rng, Time};

use crate::load::source::Source;
use crate::load::{Phases, Worker};
use crate::measure::Tally;

use super::Setup;

/// What happens to a worker at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// It begins, rests, works again or stops.
    Turn,
    /// An I/O of an open loop comes.
    Arrival,
}

/// A worker and where it stands.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) drive: u32,
    pub(super) tenant: TenantId,
    pub(super) class: Class,
    pub(super) source: Source,
    pub(super) tally: Tally,
    /// Whether it issues I/O now.
    pub(super) working: bool,
    /// The most I/Os in flight, and how many are.
    pub(super) most: u32,
    pub(super) in_flight: u32,
    /// What its host holds.
    pub(super) held: VecDeque<u32>,
    /// The next I/O of an open loop.
    pub(super) arrival: Option<EventKey>,
    stop: Time,
    phases: Option<Phases>,
}

impl Active {
    /// All workers of a setup that was checked, on drives whose clocks are at `begin`.
    pub(super) fn all(setup: &Setup, begin: Time) -> Vec<Self> {
        let chance = Rng::new(setup.seed);
        let each = setup.workers.iter().zip(0..);
        each.map(|(worker, place)| {
            let device = &setup.drives[worker.drive].device;
            Self::new(worker, device, begin, setup, &chance.split(place))
        })
        .collect()
    }

    fn new(worker: &Worker, device: &Device, begin: Time, setup: &Setup, chance: &Rng) -> Self {
        let most = worker.most_in_flight();
        Self {
            drive: worker.drive as u32,
            tenant: worker.tenant,
            class: worker.class,
            source: Source::new(&worker.work, device.capacity(), chance),
            tally: Tally::new(begin + setup.warm_up, setup.span, setup.window),
            working: false,
            most,
            in_flight: 0,
            held: VecDeque::with_capacity(if setup.host.is_some() {
                most as usize
            } else {
                0
            }),
            arrival: None,
            stop: begin + worker.stop.since(Time::ZERO),
            phases: worker.phases,
        }
    }

    /// Begins, rests, works again or stops. Returns when it turns again, if it does.
    pub(super) fn turn(&mut self, now: Time) -> Option<Time> {
        self.working = !self.working && now < self.stop;
        if now >= self.stop {
            return None;
        }
        let span = match self.phases {
            Some(phases) if self.working => phases.on,
            Some(phases) => phases.off,
            None => Duration::MAX,
        };
        Some((now + span).min(self.stop)).filter(|&turn| turn < Time::MAX)
    }

    /// Whether one more I/O may be in flight.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.most
    }
}

/// Bytes of so many units.
pub(super) fn bytes(units: u32) -> u64 {
    u64::from(units) * UNIT_BYTES
}
