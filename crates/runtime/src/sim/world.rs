//! The loop of the world: events that are due happen, then some core turns. When no core has
//! anything to do, the clock jumps to the next event.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use std::sync::PoisonError;

use flashyard_time::Time;

use super::config::Config;
use super::context::{Event, SimContext};
use super::disk::Disks;
use super::driver::{CoreDriver, Lost};
use super::network::Network;
use super::pipe::draw;
use super::trace::Mark;
use crate::driver::{Driver, Wait};
use crate::executor::Core;
use crate::memory::Pool;
use crate::wake::Registration;

/// What the world, its machines and its drivers share. Nothing in here is borrowed while a core
/// turns.
pub(super) struct Shared {
    simulation: RefCell<Simulation>,
    cores: RefCell<Vec<Place>>,
}

/// All that is simulated.
pub(super) struct Simulation {
    pub(super) sim: SimContext,
    pub(super) network: Network,
    pub(super) disks: Disks,
    pub(super) lost: Lost,
    machines: Vec<Vec<usize>>,
    steps: u64,
}

/// Where a core stands in the world. Its number is never used again.
struct Place {
    /// `None`: it has crashed.
    core: Option<Rc<Core>>,
    /// Where it takes buffers from. Away while it turns.
    pool: Option<Pool>,
    /// It is busy with its last turn, or has not noticed yet that there is something to do.
    not_before: Time,
    /// Had something to do when last looked at.
    awake: bool,
}

/// What one step of the world was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Happened,
    /// Nothing is going to happen before the given instant.
    Until,
    /// Nothing will ever happen again.
    Never,
}

impl Shared {
    pub(super) fn new(config: Config) -> Rc<Self> {
        let simulation = Simulation {
            sim: SimContext::new(config),
            network: Network::default(),
            disks: Disks::default(),
            lost: Lost::default(),
            machines: Vec::new(),
            steps: 0,
        };
        Rc::new(Self {
            simulation: RefCell::new(simulation),
            cores: RefCell::default(),
        })
    }

    pub(super) fn simulation(&self) -> RefMut<'_, Simulation> {
        self.simulation.borrow_mut()
    }

    /// Adds a machine and starts its cores.
    pub(super) fn add_machine(self: &Rc<Self>, cores: usize) -> usize {
        let mut simulation = self.simulation();
        let machine = simulation.network.add_host();
        simulation.machines.push(Vec::new());
        drop(simulation);
        self.start(machine, cores);
        machine
    }

    /// Starts the cores of a machine that has none.
    pub(super) fn start(self: &Rc<Self>, machine: usize, cores: usize) {
        for index in 0..cores {
            let number = self.simulation().sim.add_core();
            self.simulation().machines[machine].push(number);
            let driver = Box::new(CoreDriver::new(self.clone(), number, machine));
            let not_before = self.simulation().sim.now;
            let bound = self.simulation().sim.config.buffer_bytes;
            let core = Core::new(index, Registration::simulated(), Driver::Sim(driver));
            self.cores.borrow_mut().push(Place {
                core: Some(core),
                pool: Some(Pool::new(bound)),
                not_before,
                awake: false,
            });
        }
    }

    /// Core `index` of a machine; `None` when the machine has crashed.
    pub(super) fn core(&self, machine: usize, index: usize) -> Option<Rc<Core>> {
        let number = *self.simulation().machines[machine].get(index)?;
        self.cores.borrow()[number].core.clone()
    }

    pub(super) fn is_dead(&self, core: usize) -> bool {
        self.cores
            .borrow()
            .get(core)
            .is_some_and(|place| place.core.is_none())
    }

    /// Ends all programs of a machine.
    pub(super) fn crash(&self, machine: usize, silently: bool) {
        let numbers = {
            let Simulation {
                sim,
                network,
                disks,
                machines,
                ..
            } = &mut *self.simulation();
            sim.trace
                .note(sim.now, Mark::Fault, machine as u64, u64::from(silently));
            network.crash(sim, machine, silently);
            disks.crash(sim, machine);
            std::mem::take(&mut machines[machine])
        };
        for number in numbers {
            self.end_core(number);
        }
    }

    /// Ends all machines: the world is over.
    pub(super) fn end(&self) {
        let cores = self.cores.borrow().len();
        (0..cores).for_each(|core| self.end_core(core));
    }

    fn end_core(&self, number: usize) {
        let core = self.cores.borrow_mut()[number].core.take();
        let Some(core) = core else { return };
        core.shut_down();
        while core.in_flight() > 0 {
            core.drain();
        }
        self.cores.borrow_mut()[number].pool = None;
        self.simulation().sim.forget_core(number);
    }

    /// One step; nothing that would happen after `until` does.
    pub(super) fn step(&self, until: Time) -> Step {
        self.simulation().count_step();
        if self.simulation().happen() {
            return Step::Happened;
        }
        let (runnable, next) = self.look_round();
        if !runnable.is_empty() {
            self.turn(&runnable);
            return Step::Happened;
        }
        let simulation = &mut *self.simulation();
        let next = match (next, simulation.sim.events.next_time()) {
            (Some(core), Some(event)) => core.min(event),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return Step::Never,
        };
        let reached = next.min(until);
        simulation.sim.now = simulation.sim.now.max(reached);
        if next > until {
            Step::Until
        } else {
            Step::Happened
        }
    }

    /// Which cores could turn now, and when the next of the others can.
    fn look_round(&self) -> (Vec<usize>, Option<Time>) {
        let sim = &mut self.simulation().sim;
        let (mut runnable, mut next) = (Vec::new(), None::<Time>);
        for (number, place) in self.cores.borrow_mut().iter_mut().enumerate() {
            let Some(core) = &place.core else { continue };
            let woken = core.has_work();
            let timer = core.next_timer();
            let busy =
                woken || sim.has_ended(number) || timer.is_some_and(|timer| timer <= sim.now);
            if woken && !place.awake {
                let kick = draw(sim.config.kick, &mut sim.order_rng);
                place.not_before = place.not_before.max(sim.now + kick);
            }
            place.awake = busy;
            let turns = if busy { Some(place.not_before) } else { timer };
            match turns {
                Some(at) if at <= sim.now => runnable.push(number),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        (runnable, next)
    }

    /// Some core of these turns.
    fn turn(&self, runnable: &[usize]) {
        let (number, took) = {
            let sim = &mut self.simulation().sim;
            let number = *sim.order_rng.pick(runnable).expect("the caller has some");
            sim.trace
                .note(sim.now, Mark::Turn, number as u64, runnable.len() as u64);
            (number, draw(sim.config.turn, &mut sim.order_rng))
        };
        self.simulation().sim.begin_turn(number);
        let (core, pool) = {
            let place = &mut self.cores.borrow_mut()[number];
            place.not_before = self.simulation().sim.now + took;
            (place.core.clone(), place.pool.take())
        };
        if let (Some(core), Some(mut pool)) = (core, pool) {
            let entered = pool.enter();
            core.turn();
            core.flush(Wait::No);
            drop(entered);
            let place = &mut self.cores.borrow_mut()[number];
            // It may have ended itself.
            place.pool = place.core.is_some().then_some(pool);
        }
        let spent = self.simulation().sim.spent(number);
        let place = &mut self.cores.borrow_mut()[number];
        place.not_before += spent;
    }

    /// Which task waits for what, for the report of a deadlock.
    pub(super) fn describe(&self) -> String {
        let cores = self.cores.borrow();
        let alive = cores.iter().filter_map(|place| place.core.as_ref());
        let (mut count, mut operations, mut tasks) = (0, 0, 0);
        for core in alive {
            count += 1;
            operations += core.in_flight();
            tasks += core.queue().tasks();
        }
        let sim = &self.simulation().sim;
        format!(
            "seed {}, time {} ns: {tasks} tasks wait on {count} cores, {operations} operations in flight",
            sim.config.seed,
            sim.now.as_ns()
        )
    }
}

impl Simulation {
    /// Lets the next event happen, if one is due.
    fn happen(&mut self) -> bool {
        self.close_lost();
        let Self {
            sim,
            network,
            disks,
            ..
        } = self;
        let Some((_, event)) = sim.events.pop_due(sim.now) else {
            return false;
        };
        match event {
            Event::Network(event) => network.handle(sim, event),
            Event::Disk(event) => disks.handle(sim, event),
        }
        true
    }

    fn close_lost(&mut self) {
        let lost = std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner));
        for socket in lost {
            self.network.close(&mut self.sim, socket);
        }
    }

    fn count_step(&mut self) {
        self.steps += 1;
        let (seed, most) = (self.sim.config.seed, self.sim.config.max_steps);
        assert!(
            self.steps <= most,
            "seed {seed}: more than {most} steps, something runs in circles"
        );
    }
}
