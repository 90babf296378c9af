//! What hosts see of former runs: the counters of their SMART logs, kept in the state store. They
//! are written every minute and when the target ends in order, so a target that is killed forgets
//! at most its last minute, and the time of one control command.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use flashyard_engine::{Counters, Life as PowerLife};
use flashyard_time::Duration as Span;

use super::work::Work;
use super::{Fault, Service, Subject};
use crate::state::{Counted, Life, State, StateError};

/// How often the counters are written.
pub const KEEP_EVERY: Duration = Duration::from_mins(1);

/// The life of the target with this run.
pub(super) struct Run {
    before: Life,
    began: Instant,
}

impl Run {
    /// Notes that the target runs. A store that cannot be written, on a full disk, is no reason not
    /// to serve.
    pub(super) fn begin(state: &mut State) -> Result<(Self, Option<StateError>), StateError> {
        let began = Instant::now();
        let (before, fault) = match state.begin_run() {
            Ok(life) => (life, None),
            Err(error) => (state.life()?.started(), Some(error)),
        };
        Ok((Self { before, began }, fault))
    }

    /// How long this run is.
    pub(super) fn this(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn life(&self) -> Life {
        Life {
            seconds: self.before.seconds + self.began.elapsed().as_secs(),
            ..self.before
        }
    }
}

impl Work<'_> {
    /// Tells the engine what was counted in former runs.
    pub(super) fn resume_counters(&mut self, fault: Option<StateError>) -> Result<(), Fault> {
        self.note_store(Subject::Counters, fault.map_or(Ok(()), Err));
        let before = self.service.run.before;
        self.target.set_life(PowerLife {
            power_cycles: before.starts,
            power_on: Span::from_secs(before.seconds),
            unsafe_shutdowns: before.cut,
        });
        let counted = self.service.store().counted()?;
        for (_, record) in self.graph.tenants() {
            if let Some(counted) = counted.get(&record.id) {
                // One that the engine has refused is listed as a fault already.
                let _ = self.target.add_past(&record.spec.name, (*counted).into());
            }
        }
        Ok(())
    }

    /// Writes what was counted so far.
    fn keep_counters(&mut self) {
        let kept = write(
            &mut self.service.store(),
            self.target,
            self.service.run.life(),
        );
        self.note_store(Subject::Counters, kept);
    }

    /// Makes the store's copy anew, if anything was changed.
    pub(super) fn renew_copy(&mut self) {
        let renewed = self.service.store().renew_copy();
        self.note_store(Subject::Copy, renewed);
    }

    fn note_store(&mut self, what: Subject, outcome: Result<(), StateError>) {
        match outcome {
            Ok(()) if !self.faults.contains_key(&what) => {}
            Ok(()) => drop(self.edit(|stack| stack.faults.remove(&what))),
            Err(error) => self.note_fault(what, error.into()),
        }
    }
}

/// Writes what was counted, and that the target has ended in order.
pub(super) fn end_run(
    state: &mut State,
    target: &flashyard_engine::Target,
    run: &Run,
) -> Result<(), StateError> {
    let life = Life {
        running: false,
        ..run.life()
    };
    write(state, target, life)?;
    state.renew_copy()
}

/// Keeps the counters again and again, until the other end of `ended` is dropped.
pub fn keep_counting(every: Duration, ended: &Receiver<()>, service: &Service) {
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if let Ok(mut work) = service.work() {
            work.keep_counters();
        }
    }
}

fn write(
    state: &mut State,
    target: &flashyard_engine::Target,
    life: Life,
) -> Result<(), StateError> {
    let tenants = target.snapshot().tenants;
    let counted: BTreeMap<u32, Counted> = tenants
        .iter()
        .map(|tenant| (tenant.id.0, tenant.counters.into()))
        .collect();
    state.put_counted(&life, &counted)
}

impl From<Counted> for Counters {
    fn from(counted: Counted) -> Self {
        Self {
            reads: counted.reads,
            writes: counted.writes,
            others: counted.others,
            bytes_read: counted.bytes_read,
            bytes_written: counted.bytes_written,
            errors: counted.errors,
            media_errors: counted.media_errors,
            unsafe_shutdowns: counted.unsafe_shutdowns,
        }
    }
}

impl From<Counters> for Counted {
    fn from(counters: Counters) -> Self {
        Self {
            reads: counters.reads,
            writes: counters.writes,
            others: counters.others,
            bytes_read: counters.bytes_read,
            bytes_written: counters.bytes_written,
            errors: counters.errors,
            media_errors: counters.media_errors,
            unsafe_shutdowns: counters.unsafe_shutdowns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use flashyard_engine::{Limits, Target, TargetConfig};
    use flashyard_runtime::uring;
    use flashyard_testbed::Scratch;

    use super::*;
    use crate::control::Request;
    use crate::cores::Cores;
    use crate::state::IfDamaged;

    fn start(state: State) -> Service {
        let target = Target::new(TargetConfig {
            nqn_prefix: "nqn.2026-11.dev.flashyard".into(),
            target_uuid: state.target_uuid().into_bytes(),
            limits: Limits::default(),
            cores: 1,
        });
        let cores = Cores::start(&target, vec![uring::Config::default()]).expect("a core");
        Service::start(state, cores, target, Arc::default(), Span::ZERO).expect("it starts")
    }

    /// Without an end in order: what was written while the target ran is what the next run goes on
    /// from.
    #[test]
    fn counters_are_kept_while_the_target_runs() {
        let (home, left) = (Scratch::new("counted"), Scratch::new("left"));
        let service = start(State::open(&home, IfDamaged::Refuse).expect("a new store"));
        let spec = toml::from_str("name = \"db\"").expect("a tenant");
        let made = service.handle(Request::CreateTenant { spec, force: false });
        assert!(made.is_ok(), "{made:?}");
        let did = Counters {
            reads: 7,
            media_errors: 2,
            ..Counters::default()
        };
        service.target.add_past("db", did).expect("it is there");
        let service = Arc::new(service);
        let (end, ended) = mpsc::channel();
        let shared = Arc::clone(&service);
        let keeper = thread::spawn(move || {
            keep_counting(Duration::from_millis(1), &ended, &shared);
        });
        // What is in the file when it is not written is what a kill leaves.
        let counted = loop {
            let held = service.store();
            std::fs::copy(home.join("state.db"), left.join("state.db")).expect("it is there");
            drop(held);
            let mut state = State::open(&left, IfDamaged::Refuse).expect("it is whole");
            assert!(state.life().expect("readable").running);
            if let Some(counted) = state.counted().expect("readable").pop_first() {
                break counted.1;
            }
            thread::yield_now();
        };
        assert_eq!(counted, Counted::from(did));
        drop(end);
        keeper.join().expect("it ended");
        service.stop();
        drop(service);

        let next = start(State::open(&left, IfDamaged::Refuse).expect("it is whole"));
        assert_eq!(next.target.snapshot().tenants[0].counters, did);
        let life = next.run.life();
        assert_eq!((life.starts, life.cut), (2, 1));
        next.stop();
        let ended = State::open(&home, IfDamaged::Refuse).expect("the same store");
        assert!(
            !ended.life().expect("readable").running,
            "it ended in order"
        );
    }
}
