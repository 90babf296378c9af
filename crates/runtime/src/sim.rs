//! The simulated world: machines with cores, a network between them and disks in them, in virtual time. One
//! seed decides the order of tasks, every latency, every fault; the same seed gives the same trace.

use std::future::Future;

use flashyard_time::{Duration, Time};

use crate::Rt;

/// What the world does to those who live in it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides everything.
    pub seed: u64,
    /// Network latency, smallest and largest, one way.
    pub latency: (Duration, Duration),
    /// Bytes per second of each connection and direction.
    pub bandwidth: u64,
    /// Cut what is received and sent at random bytes.
    pub fragment: bool,
    /// Bound of buffer memory in bytes, for all machines together.
    pub buffer_bytes: usize,
}

/// The world.
#[derive(Debug)]
pub struct World {}

/// One simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {}

impl World {
    /// An empty world.
    pub fn new(config: Config) -> Self {
        let _ = config;
        unimplemented!()
    }

    /// Adds a machine with `cores` cores, reachable at the IPv4 address 10.0.0.N (N from 1 in order of adding)
    /// and at 127.0.0.1 by itself.
    pub fn machine(&self, cores: usize) -> Machine {
        let _ = cores;
        unimplemented!()
    }

    /// Runs the world until `main` (a task of core 0 of `machine`) ends. Panics with seed and time when nothing
    /// can happen any more (deadlock).
    pub fn run<F, M>(&self, machine: &Machine, main: M) -> F::Output
    where
        M: FnOnce(Rt) -> F,
        F: Future + 'static,
    {
        let _ = (machine, main);
        unimplemented!()
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        unimplemented!()
    }
}

impl Machine {
    /// The runtime of one of its cores.
    pub fn rt(&self, core: usize) -> Rt {
        let _ = core;
        unimplemented!()
    }
}
