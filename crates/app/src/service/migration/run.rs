//! Migrations that run: how far they are, and how they have ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use flashyard_block::migration::{CopyError, Progress as Copied};
use flashyard_engine::DeviceHandle;

use crate::control::Progress;
use crate::graph::NodeId;

/// How often somebody who waits looks how far it is.
const LOOK: Duration = Duration::from_millis(100);
const MIB: u64 = 1 << 20;

/// All that run, and those that have failed since the start.
#[derive(Default)]
pub(in crate::service) struct Migrations {
    running: Mutex<BTreeMap<NodeId, Arc<Running>>>,
    failed: Mutex<BTreeMap<NodeId, (String, String)>>,
    /// Has one go on by itself, where there are threads for that.
    follow: OnceLock<Follow>,
}

type Follow = Box<dyn Fn(NodeId) + Send + Sync>;

/// One that runs.
pub(super) struct Running {
    /// The pool that the volume goes to.
    pub(super) to: String,
    size: u64,
    /// The core on which it is copied.
    pub(super) home: usize,
    /// The copy, as it is reached from all cores.
    pub(super) target: DeviceHandle,
    pub(super) progress: Arc<Copied>,
    began: (Instant, u64),
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    copied: Option<Result<(), CopyError>>,
    ended: bool,
}

/// What whoever waits sees.
pub(super) enum Step {
    Copying(Progress),
    Copied(Result<(), CopyError>),
}

impl Running {
    pub(super) fn new(
        (to, size): (String, u64),
        home: usize,
        target: DeviceHandle,
        progress: Arc<Copied>,
    ) -> Arc<Self> {
        let began = (Instant::now(), progress.copied());
        Arc::new(Self {
            to,
            size,
            home,
            target,
            progress,
            began,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The copying has ended; the first end counts.
    pub(super) fn finish(&self, copied: Result<(), CopyError>) {
        self.lock().copied.get_or_insert(copied);
        self.changed.notify_all();
    }

    /// Waits a little for the copying to end.
    pub(super) fn wait(&self) -> Step {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, LOOK, |state| state.copied.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let parts = |bytes: u64| u32::try_from(bytes / MIB).unwrap_or(u32::MAX);
        match state.copied {
            Some(copied) => Step::Copied(copied),
            None => Step::Copying(Progress {
                done: parts(self.progress.copied()),
                of: parts(self.size),
            }),
        }
    }

    /// Waits until whoever follows it has ended it or given up.
    pub(super) fn wait_ended(&self) {
        let state = self.lock();
        let ended = self.changed.wait_while(state, |state| !state.ended);
        drop(ended);
    }

    /// It is not followed any more.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// How many seconds it takes from now on, at the rate so far.
    pub(super) fn remaining(&self) -> Option<u64> {
        let (began, before) = self.began;
        let copied = self.progress.copied();
        let done = copied.checked_sub(before).filter(|done| *done > 0)?;
        let left = self.size.saturating_sub(copied);
        let spent = began.elapsed().as_millis();
        let left = spent * u128::from(left) / u128::from(done) / 1000;
        u64::try_from(left).ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Migrations {
    /// From now on `follow` has them go on; first all that run.
    pub(super) fn follow_by(&self, follow: Follow) {
        let all: Vec<NodeId> = lock(&self.running).keys().copied().collect();
        all.into_iter().for_each(&follow);
        let _ = self.follow.set(follow);
    }

    /// Has one go on by itself; whether that can be.
    pub(super) fn follow(&self, id: NodeId) -> bool {
        let follow = self.follow.get();
        follow.map(|follow| follow(id)).is_some()
    }

    pub(super) fn put(&self, id: NodeId, running: &Arc<Running>) {
        lock(&self.failed).remove(&id);
        lock(&self.running).insert(id, Arc::clone(running));
    }

    pub(super) fn get(&self, id: NodeId) -> Option<Arc<Running>> {
        lock(&self.running).get(&id).cloned()
    }

    /// It has ended, well or not.
    pub(super) fn forget(&self, id: NodeId) {
        let running = lock(&self.running).remove(&id);
        if let Some(running) = running {
            running.end();
        }
    }

    /// It has ended, and why.
    pub(super) fn fail(&self, id: NodeId, to: String, why: String) {
        lock(&self.failed).insert(id, (to, why));
    }

    /// The pool that a volume was to go to when that failed last, and why.
    pub(super) fn failure(&self, id: NodeId) -> Option<(String, String)> {
        lock(&self.failed).get(&id).cloned()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
