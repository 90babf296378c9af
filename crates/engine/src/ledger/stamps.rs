//! What an I/O leaves behind for the ledger, and how long each stage of it took.

use flashyard_sched::Ask;
use flashyard_time::{Duration, Time};

/// What an I/O went through before it came to a switch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// Its first byte was seen; the origin of time if that is not known.
    pub(crate) began: Time,
    /// For so long its bytes were waited for.
    pub(crate) receive: Duration,
}

/// The stamps of a sampled I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// What there was before it came to the switch.
    pub(crate) past: Past,
    /// It came to the switch.
    pub(crate) arrived: Time,
    /// It was its turn.
    pub(crate) dispatched: Time,
    /// The device got it.
    pub(crate) issued: Time,
    /// The device was done.
    pub(crate) ended: Time,
    /// Its answer had gone.
    pub(crate) sent: Time,
}

/// A measured I/O, to be recorded in the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub(crate) io: Ask,
    pub(crate) spans: Spans,
    /// So many it stands for.
    pub(crate) times: u32,
}

/// Time by stage, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Waiting for the rest of a command, or for data.
    pub receive: u64,
    /// Here, and not yet at the switch.
    pub intake: u64,
    /// Waiting for a turn.
    pub turn: u64,
    /// At the device.
    pub device: u64,
    /// From there until the answer has gone.
    pub send: u64,
}

impl Past {
    /// From the first byte to the arrival at the switch.
    fn before(self, arrived: Time) -> Duration {
        if self.began == Time::ZERO {
            return Duration::ZERO;
        }
        arrived.since(self.began)
    }
}

impl Spans {
    /// How long each stage took.
    pub(super) fn stages(&self) -> Stages {
        let before = self.past.before(self.arrived).as_ns();
        let receive = self.past.receive.as_ns().min(before);
        Stages {
            receive: receive + self.issued.since(self.dispatched).as_ns(),
            intake: before - receive,
            turn: self.dispatched.since(self.arrived).as_ns(),
            device: self.ended.since(self.issued).as_ns(),
            send: self.sent.since(self.ended).as_ns(),
        }
    }
}

impl Stages {
    pub(super) fn add(&mut self, more: &Self, times: u64) {
        self.receive += more.receive * times;
        self.intake += more.intake * times;
        self.turn += more.turn * times;
        self.device += more.device * times;
        self.send += more.send * times;
    }

    /// All of it.
    pub fn all(&self) -> u64 {
        self.receive + self.intake + self.turn + self.device + self.send
    }
}
