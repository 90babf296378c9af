//! The data-plane threads: one executor per core, each with its part of the engine and the devices
//! whose home it is. Other threads reach a core by sending it work and waiting for the result.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::process;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flashyard_engine::{Core, Switch, Target};
use flashyard_runtime::{Rt, channel, uring};

use crate::graph::NodeId;
use crate::nodes::Nodes;
use crate::out::note;
use crate::published::{Published, Report};
use crate::service::PolicyPlan;

/// How long a core that does not turn holds up who only asks it. One that does answers at the end
/// of its turn, which is much sooner.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often somebody who waits for long looks after something else.
const LOOK: Duration = Duration::from_millis(100);

/// What lives on one core.
pub struct CoreState {
    /// Its executor.
    pub rt: Rt,
    /// Its part of the engine.
    pub engine: Rc<Core>,
    /// The devices whose home it is, and the pools on them.
    pub nodes: Nodes,
}

impl CoreState {
    /// The switch in front of a device, however many volumes lie on it; made with `policy` when
    /// there is none yet. None when the device has gone.
    pub fn switch(&self, device: NodeId, policy: &PolicyPlan) -> Option<Rc<Switch>> {
        self.nodes
            .switch(device, || self.engine.add_switch(policy.make()))
    }
}

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;
type Job = Box<dyn FnOnce(Rc<CoreState>) -> LocalFuture + Send>;

/// The running cores.
pub struct Cores {
    jobs: Mutex<Vec<channel::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    published: Vec<Published>,
}

impl Cores {
    /// Starts one thread for each configuration; the error is the first core's that could not
    /// start.
    pub fn start(target: &Arc<Target>, configs: Vec<uring::Config>) -> io::Result<Self> {
        let mut cores = Self {
            jobs: Mutex::default(),
            threads: Mutex::default(),
            published: Vec::new(),
        };
        for config in configs {
            let (sender, receiver) = channel::channel::<Job>();
            let (started, outcome) = mpsc::channel();
            let target = Arc::clone(target);
            let published = Published::default();
            cores.published.push(published.clone());
            let thread = thread::Builder::new()
                .name(format!("core{}", config.core))
                .spawn(move || run_core(config, target, published, receiver, &started))?;
            lock(&cores.threads).push(thread);
            lock(&cores.jobs).push(sender);
            outcome
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("the core's thread ended")))?;
        }
        Ok(cores)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.published.len()
    }

    /// Runs `work` on a core and waits for what it gives. Only for threads that are no cores.
    pub fn call<W, F>(&self, core: usize, work: W) -> F::Output
    where
        W: FnOnce(Rc<CoreState>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.send(core, work).wait()
    }

    /// Has cores report on their nodes, or on one; those that have not when it is time.
    pub fn ask(&self, cores: impl IntoIterator<Item = usize>, only: Option<NodeId>) -> Vec<usize> {
        let until = patience();
        let ask = |core| {
            let tell = self.send(core, move |state| async move { state.nodes.publish(only) });
            (core, tell)
        };
        let asked: Vec<_> = cores.into_iter().map(ask).collect();
        let late = asked
            .into_iter()
            .filter_map(|(core, tell)| match tell.wait_until(until) {
                Some(()) => None,
                None => Some(core),
            });
        late.collect()
    }

    /// What a core has reported of a node last.
    pub fn report(&self, core: usize, id: NodeId) -> Option<Arc<Report>> {
        self.published.get(core)?.get(id)
    }

    /// What `work` gives on a core, unless that takes too long.
    pub fn call_soon<W, F>(&self, core: usize, work: W) -> Option<F::Output>
    where
        W: FnOnce(Rc<CoreState>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let reply = self.send(core, work);
        reply.wait_until(patience())
    }

    /// Has a core run `work`. What it is sent it takes up in that order, until it waits first.
    pub fn send<W, F>(&self, core: usize, work: W) -> Reply<F::Output>
    where
        W: FnOnce(Rc<CoreState>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let sent = self.try_send(core, work);
        sent.unwrap_or_else(|| panic!("core {core} lives as long as its handle"))
    }

    /// The same; nothing if the core has ended.
    pub fn try_send<W, F>(&self, core: usize, work: W) -> Option<Reply<F::Output>>
    where
        W: FnOnce(Rc<CoreState>) -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (sender, result) = mpsc::channel();
        let job: Job = Box::new(move |state| {
            Box::pin(async move {
                // The caller waits; only its death can make this fail.
                let _ = sender.send(work(state).await);
            })
        });
        lock(&self.jobs).get(core)?.send(job).ok()?;
        Some(Reply(result))
    }

    /// Lets every core finish what is in flight for hosts.
    pub fn stop_serving(&self) {
        // All at once: one that waits for a device holds up no other.
        let end = |core| self.send(core, |state| async move { state.engine.shutdown().await });
        let ending: Vec<Reply<()>> = (0..self.count()).map(end).collect();
        ending.into_iter().for_each(Reply::wait);
    }

    /// Ends the cores.
    pub fn end(&self) {
        lock(&self.jobs).clear();
        for thread in lock(&self.threads).drain(..) {
            assert!(thread.join().is_ok(), "a core that panics ends the program");
        }
    }
}

/// What a core will answer.
pub struct Reply<T>(mpsc::Receiver<T>);

impl<T> Reply<T> {
    /// Waits for it.
    pub fn wait(self) -> T {
        self.0
            .recv()
            .expect("a core answers every job while it lives")
    }

    /// Waits for it, and does something else now and then.
    pub fn wait_while(self, mut meanwhile: impl FnMut()) -> T {
        loop {
            match self.0.recv_timeout(LOOK) {
                Ok(value) => return value,
                Err(mpsc::RecvTimeoutError::Timeout) => meanwhile(),
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    unreachable!("a core answers every job while it lives")
                }
            }
        }
    }

    /// Waits for it as long as there is time.
    pub fn wait_until(self, until: Instant) -> Option<T> {
        let left = until.saturating_duration_since(Instant::now());
        self.0.recv_timeout(left).ok()
    }
}

/// Until when cores that are only asked are waited for, from now.
pub fn patience() -> Instant {
    Instant::now() + PATIENCE
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program when a core panics: without it the rest would go on, and hosts would wait for
/// answers that never come. What was acknowledged is safe, and hosts reconnect to the next start.
struct DiesWithItsThread;

impl Drop for DiesWithItsThread {
    fn drop(&mut self) {
        if thread::panicking() {
            note(format_args!(
                "a core failed, which is a fault of this program: please report the lines above"
            ));
            process::abort();
        }
    }
}

fn run_core(
    config: uring::Config,
    target: Arc<Target>,
    published: Published,
    jobs: channel::Receiver<Job>,
    started: &mpsc::Sender<io::Result<()>>,
) {
    let _guard = DiesWithItsThread;
    let index = config.core;
    let done = started.clone();
    let outcome = uring::run(config, move |rt| async move {
        let engine = Core::start(rt.clone(), target, index);
        let state = Rc::new(CoreState {
            rt: rt.clone(),
            engine,
            nodes: Nodes::new(published),
        });
        // Whoever started us may have given up; then the job channel is closed as well.
        let _ = done.send(Ok(()));
        while let Some(job) = jobs.recv().await {
            rt.spawn(job(Rc::clone(&state))).detach();
        }
    });
    if let Err(error) = outcome {
        let _ = started.send(Err(error));
    }
}
