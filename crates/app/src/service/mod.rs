//! The inventory at work: keeps the state store, the devices on their cores and the engine's
//! tenants and namespaces the same. Commands that have nothing in common never wait for each other
//! (`turns.rs`, `work.rs`). Every change is in the store before it is acknowledged; what was cut in
//! the middle is finished at the next start.

mod activity;
mod apply;
mod array_members;
mod arrays;
mod calibrate;
mod cause;
mod cleared;
mod counted;
mod crypted;
mod devices;
mod events;
mod export;
mod fault;
mod faulty;
mod figures;
mod flash;
mod functions;
mod health;
mod identity;
mod import;
mod import_partitions;
mod measure;
mod metrics;
mod migration;
mod moving;
mod names;
mod native;
mod observed;
mod once_free;
mod partitions;
mod plan;
mod policies;
mod pool_defaults;
mod pool_keys;
mod promises;
mod reality;
mod same;
mod settings;
mod slow;
mod snapshot_fault;
mod snapshots;
mod space;
mod starting;
mod stop;
mod switches;
mod tenants;
mod traffic;
mod turns;
mod view;
mod volumes;
mod waiting;
mod wants;
mod work;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flashyard_engine::Target;
use uuid::Uuid;

use crate::audit::Audit;
use crate::control::{AppliedView, Asker, EventKind, EventsAsk, How, KindName, Request, View};
use crate::cores::Cores;
use crate::graph::{Device, Function, Graph, NodeId, Volume};
use crate::listening::Listening;
use crate::out::note;
use crate::sockets::Sockets;
use crate::spec::{Address, Document, TargetSettings};
use crate::state::muted::Muted;
use crate::state::{Applied, Kind, PoolRecord, State, TenantRecord};

use counted::Run;
pub use counted::{KEEP_EVERY, keep_counting};
pub use events::WATCH_EVERY;
pub use fault::Fault;
use fault::{InUse, Internal, NotFound, Unavailable};
pub use policies::PolicyPlan;

use events::{Events, Seen};
use migration::Migrations;
use promises::Standings;
use settings::Listener;
pub use settings::is_absent;
use slow::{SlowDevices, SlowIos};
use turns::Turns;
use work::Work;

/// What may not be available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// A device, pool, tenant or volume.
    Node(NodeId),
    /// What the state store keeps of the SMART logs.
    Counters,
    /// The copy of the state store.
    Copy,
    /// The configuration file that the target was started with.
    File,
}

/// All that there is, and what of it is open. Commands read it as it was when they looked last.
#[derive(Clone, Default)]
struct Stack {
    graph: Graph,
    settings: TargetSettings,
    /// The file that was applied last.
    applied: Arc<Applied>,
    /// How what is promised stands.
    standings: Standings,
    listeners: Vec<Listener>,
    /// `serve --listen` says where, not what was set.
    listens_instead: bool,
    /// Functions are offered: not before a start has all that they show.
    offers_functions: bool,
    /// Devices inject the faults that are noted of them: not before the target has started.
    injects_faults: bool,
    /// Why something is not available.
    faults: BTreeMap<Subject, Arc<Fault>>,
    /// What is wrong and does not count.
    muted: Muted,
}

/// The running target. Any number of threads may ask it. The order of its locks is turns, store,
/// stack (see ARCHITECTURE.md); none but a turn is held while a command waits for a core.
pub struct Service {
    turns: Turns,
    /// Tenants that a file is making, before their volumes. Whoever has it may change whose hosts
    /// are held back.
    new_tenants: Mutex<BTreeSet<String>>,
    /// Whoever has it may change the stack.
    state: Mutex<State>,
    stack: Mutex<Arc<Stack>>,
    cores: Cores,
    target: Arc<Target>,
    target_uuid: Uuid,
    run: Run,
    events: Arc<Events>,
    audit: Arc<Audit>,
    sockets: Sockets,
    /// What the target listens at.
    listening: Arc<Listening>,
    /// Of functions, unless something else is set.
    socket_folder: Option<PathBuf>,
    migrations: Migrations,
    /// From when on an I/O is slow, if its tenant says nothing; never with nothing.
    slow_io: Option<flashyard_time::Duration>,
    /// What was slow when it was looked last.
    slow_devices: SlowDevices,
}

impl Service {
    /// Opens everything in the store. What cannot be opened is reported by [`Service::faults`] and
    /// in every listing, and the rest is served.
    pub fn start(
        mut state: State,
        cores: Cores,
        target: Arc<Target>,
        listening: Arc<Listening>,
        slow_io: flashyard_time::Duration,
    ) -> Result<Self, Fault> {
        let (run, unwritten) = Run::begin(&mut state)?;
        state.fix_nqns(&target.config().nqn_prefix)?;
        let stack = Stack {
            graph: Graph::new(state.inventory()?),
            settings: state.settings()?,
            muted: state.muted()?,
            applied: Arc::new(state.applied()?),
            ..Stack::default()
        };
        target.set_controller_limits(stack.settings.limits());
        let events = Events::new(run.life().starts);
        let audit = state.directory().map_or_else(Audit::none, Audit::open);
        events.follow(&target);
        let service = Self {
            turns: Turns::default(),
            new_tenants: Mutex::default(),
            target_uuid: state.target_uuid(),
            socket_folder: state.directory().map(|state| state.join("functions")),
            state: Mutex::new(state),
            stack: Mutex::new(Arc::new(stack)),
            cores,
            target,
            run,
            events,
            audit: Arc::new(audit),
            sockets: Sockets::default(),
            listening,
            migrations: Migrations::default(),
            slow_io: (slow_io > flashyard_time::Duration::ZERO).then_some(slow_io),
            slow_devices: SlowDevices::default(),
        };
        let mut work = service.work()?;
        work.open_everything(unwritten)?;
        work.resume_migrations();
        work.end_unfinished()?;
        work.hold_hosts_back(None);
        drop(work);
        Ok(service)
    }

    /// What the settings of the target will be when a file is applied to what a store has.
    pub fn settings_at_start(state: &State, file: &Document) -> Result<TargetSettings, Fault> {
        plan::target_settings(&state.settings()?, &state.applied()?, file)
    }

    /// Applies the file that the target was started with once more, as somebody's `apply` would.
    pub fn apply_again(&self, path: &Path) -> Result<AppliedView, Fault> {
        let file = Document::read(path).map_err(Fault::File)?;
        let mut work = self.work()?;
        let outcome = work.apply(&file, How::default());
        work.hold_hosts_back(None);
        work.renew_copy();
        outcome
    }

    /// Notes that the file which the target was started with is not applied.
    pub fn note_file(&self, why: Fault) {
        if let Ok(mut work) = self.work() {
            work.note_fault(Subject::File, why);
        }
    }

    /// Where it is recorded who changes something.
    pub fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    /// Whether there is nothing to serve yet.
    pub fn is_empty(&self) -> bool {
        self.stack().graph.in_order().is_empty()
    }

    /// What could not be opened, and why.
    pub fn faults(&self) -> Vec<(String, Arc<Fault>)> {
        let faults = self.stack().named_faults().into_iter();
        faults.map(|fault| (fault.name, fault.why)).collect()
    }

    /// Answers one request. A request that fails has changed nothing, but for a deletion that
    /// failed half way, which is finished by the next try or start.
    pub fn handle(&self, request: Request) -> Result<View, Fault> {
        self.handle_for(request, &())
    }

    /// The same for somebody who may go before it is done, or wants to know how far it is.
    pub fn handle_for(&self, request: Request, asker: &dyn Asker) -> Result<View, Fault> {
        if let Request::Events(ask) = &request {
            // Who follows them does not keep the target from ending.
            return Ok(self.events.answer(ask, asker));
        }
        Work::begin(self, asker).and_then(|mut work| {
            let changes = request.changes();
            let told = request.told();
            let outcome = work.dispatch(request);
            if let (Some((what, done)), Ok(_)) = (told, &outcome) {
                self.events.add(EventKind::Changed, &what, &done);
            }
            // Before the answer: what was acknowledged is in the copy as well.
            if changes {
                if let Err(fault) = work.forget_imported_names() {
                    note(format_args!("what was imported is not noted: {fault}"));
                }
                work.hold_hosts_back(None);
                work.renew_copy();
            }
            outcome
        })
    }

    /// Carries the plan of the file that the target is started with out. What it promises too much
    /// of is served nevertheless; [`Service::doubtful_guarantees`] tells.
    pub fn apply_at_start(&self, file: &Document) -> Result<AppliedView, Fault> {
        let mut work = self.work()?;
        let outcome = work.apply_at_start(file);
        work.hold_hosts_back(None);
        work.renew_copy();
        outcome
    }

    /// Tenants whose guarantee is not known to hold, and why.
    pub fn doubtful_guarantees(&self) -> Result<Vec<(String, String)>, Fault> {
        Ok(self.work()?.doubtful_guarantees())
    }

    /// Listens for the first time: at `instead`, if any are given, until a command says something
    /// else; otherwise where it was set. Offers all functions. Returns the real addresses.
    pub fn listen(&self, instead: &[Address]) -> Result<Vec<SocketAddr>, Fault> {
        let mut work = self.work()?;
        let addresses = work.listen(instead)?;
        work.offer_functions();
        Ok(addresses)
    }

    /// Gives all events of this run to `asker`, from the first one kept, until the target ends.
    pub fn follow_events(&self, asker: &dyn Asker) {
        let ask = EventsAsk {
            follow: true,
            ..EventsAsk::default()
        };
        self.events.answer(&ask, asker);
    }

    /// Looks for what nobody says, again and again, until the other end of `ended` is dropped.
    pub fn keep_watching(&self, every: Duration, ended: &Receiver<()>) {
        let (mut seen, mut slow) = (Seen::default(), SlowIos::default());
        loop {
            // When the target ends there is nothing to be seen any more.
            if let Ok(mut work) = self.work() {
                work.look_for_slow(&mut slow);
                work.look_for_events(&mut seen);
            }
            if ended.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Ends serving: takes no new command, waits for the commands that run, finishes what is in
    /// flight and closes everything.
    pub fn stop(&self) {
        self.events.close();
        self.release_hangs();
        self.turns.close();
        self.end_functions();
        self.cores.stop_serving();
        self.close_devices();
        self.cores.end();
        if let Err(error) = counted::end_run(&mut self.store(), &self.target, &self.run) {
            note(format_args!(
                "the counters of the last minute are lost, and this end counts as an unsafe shutdown: {error}"
            ));
        }
    }

    fn new_tenants(&self) -> MutexGuard<'_, BTreeSet<String>> {
        let new = self.new_tenants.lock();
        new.unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> Result<Work<'_>, Fault> {
        Work::begin(self, &())
    }
}

impl Work<'_> {
    fn dispatch(&mut self, request: Request) -> Result<View, Fault> {
        match request {
            Request::Status(page) => {
                let observed = self.ask_observed(self.graph.tenants().map(|(id, _)| id));
                let silent = self.ask_all();
                Ok(self.view_status(&silent, &observed.answers(), &page))
            }
            Request::Health(ask) => self.ask_health(ask),
            Request::Metrics(form) => Ok(self.metrics(form)),
            Request::Traffic(page) => Ok(self.view_traffic(&page)),
            Request::Activity(page) => Ok(self.view_activity(&page)),
            Request::Events(ask) => Ok(self.service.events.answer(&ask, self.asker)),
            Request::Audit(ask) => {
                let records = self.service.audit.read(&ask);
                let records = records.map_err(Internal::Audit)?;
                Ok(View::Audit(records))
            }
            Request::CreateIfMissing(create) => self.service.create_if_missing(*create, self.asker),
            Request::ShowTarget => Ok(self.view_target()),
            Request::List(kind, page) => {
                // Once, and not for each of thousands of rows.
                self.ask_all();
                Ok(self.view_all(kind, &page))
            }
            Request::ListVolumes(of, page) => {
                self.ask_all();
                self.view_volumes(&of, &page)
            }
            Request::Show(kind, name) => self.view_one(kind, &name),
            Request::Backup(file) => {
                self.service.store().backup(&file)?;
                Ok(View::Done)
            }
            Request::AskSnapshots(ask) => self.ask_snapshots(ask),
            Request::Export => Ok(View::File(self.export())),
            Request::Why { tenant } => self.why(&tenant),
            Request::Apply { file, how } => self.apply(&file, how).map(View::Applied),
            Request::MigrateVolume {
                name,
                to,
                background,
                force,
                progress,
            } => self.migrate_volume(&name, to, checked(force), (background, progress)),
            Request::CancelMigration(name) => self.cancel_migration(&name),
            change => {
                let _turn = self.take(|work| Ok(work.wants_of(&change)))?;
                self.change(change)
            }
        }
    }

    /// Does what has its turn.
    fn change(&mut self, request: Request) -> Result<View, Fault> {
        match request {
            Request::SetTarget(change) => self.set_target(change),
            Request::CreateDevice(spec) => self.create_device(spec, Checked::Now, Over::Nothing),
            Request::CreateDeviceOver(spec) => {
                self.create_device(spec, Checked::Now, Over::Anything)
            }
            Request::Rekey { name, key } => self.rekey(&name, key),
            Request::RekeyPool(name, key) => self.rekey_pool(&name, key),
            Request::EraseKey(name) => self.erase_key(&name),
            Request::ErasePool(name) => self.erase_pool(&name),
            Request::CreateArray { of, how } => self.create_array(*of, how),
            Request::ChangeArray { name, change } => self.change_array(&name, change),
            Request::CreatePool { spec, force } => self.create_pool(spec, force),
            Request::StartDevice(name) => self.start_device(&name),
            Request::GrowPool(name) => self.grow_pool(&name),
            Request::SetPool { name, change } => self.set_pool(&name, change),
            Request::ImportPool {
                spec, list: true, ..
            } => self.view_import(&spec),
            Request::ImportPool { spec, tenant, .. } => self.import_pool(&spec, tenant.as_deref()),
            Request::ImportPartitions {
                device, list: true, ..
            } => self.view_found_partitions(&device),
            Request::ImportPartitions {
                device,
                name,
                policy,
                ..
            } => self.import_partitions(&device, name.as_deref(), policy),
            Request::ImportVolume(spec) => self.import_volume(spec),
            Request::CreateTenant { spec, force } => self.create_tenant(spec, checked(force)),
            Request::CreateVolume { spec, force } => self.create_volume(spec, checked(force)),
            Request::SetTenant {
                name,
                change,
                force,
            } => self.set_tenant(&name, change, checked(force)),
            Request::SetDevice { name, policy } => self.set_device(&name, policy),
            Request::SetFaults { name, faults } => self.set_faults(&name, faults),
            Request::Calibrate {
                device,
                destroy,
                progress,
            } => self.calibrate(&device, destroy, progress),
            Request::SetVolume { name, change } => self.set_volume(&name, change),
            Request::ChangeSnapshot(change) => self.change_snapshot(change),
            Request::RenameVolume { name, new } => self.rename_volume(&name, &new),
            Request::MoveVolume {
                name,
                tenant,
                nsid,
                force,
            } => self.move_volume(&name, &tenant, nsid, checked(force)),
            Request::RenameTenant { name, new } => self.rename_tenant(&name, &new),
            Request::CreateFunctions(specs) => self.create_functions(specs),
            Request::SetFunction { name, change } => self.set_function(&name, change),
            Request::DeleteFunction { name, connected } => self.delete_function(&name, connected),
            Request::Delete(KindName::Function, name) => self.delete_function(&name, true),
            Request::Delete(KindName::Device, name) => {
                self.check_no_partition(&name)?;
                self.delete_device(&name)
            }
            Request::Delete(KindName::Partition, name) => self.delete_partition(&name, None),
            Request::DeletePartition { name, device } => {
                self.delete_partition(&name, Some(&device))
            }
            Request::GrowPartition { name, more } => self.grow_partition(&name, &more),
            Request::Delete(KindName::Pool, name) => self.delete_pool(&name),
            Request::Delete(KindName::Tenant, name) => self.delete_tenant(&name),
            Request::Delete(KindName::Volume, name) => self.delete_volume(&name),
            reading => self.dispatch(reading),
        }
    }
}

/// Whether promises are held against what devices can give before something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    /// Now.
    Now,
    /// They are taken whatever they are (`--force`).
    Forced,
    /// They are kept as far as they can be, and nothing is measured: the target starts.
    Never,
}

/// Whether what is on a device below may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// What is known stays.
    Nothing,
    /// All of it may go.
    Anything,
}

/// Whether what a command promises is checked.
fn checked(force: bool) -> Checked {
    match force {
        true => Checked::Forced,
        false => Checked::Now,
    }
}

/// What names mean.
impl Stack {
    fn device(&self, name: &str) -> Result<(NodeId, &Device), Fault> {
        let id = self.graph.find(Kind::Device, name);
        let found = id.and_then(|id| Some((id, self.graph.device(id)?)));
        found.ok_or_else(|| no_such(KindName::Device, name))
    }

    fn pool(&self, name: &str) -> Result<(NodeId, &PoolRecord), Fault> {
        let id = self.graph.find(Kind::Pool, name);
        let found = id.and_then(|id| Some((id, self.graph.pool(id)?)));
        found.ok_or_else(|| no_such(KindName::Pool, name))
    }

    fn tenant(&self, name: &str) -> Result<(NodeId, &TenantRecord), Fault> {
        let id = self.graph.find(Kind::Tenant, name);
        let found = id.and_then(|id| Some((id, self.graph.tenant(id)?)));
        found.ok_or_else(|| no_such(KindName::Tenant, name))
    }

    fn volume(&self, name: &str) -> Result<(NodeId, &Volume), Fault> {
        let id = self.graph.find(Kind::Volume, name);
        let found = id.and_then(|id| Some((id, self.graph.volume(id)?)));
        found.ok_or_else(|| no_such(KindName::Volume, name))
    }

    fn function(&self, name: &str) -> Result<(NodeId, &Function), Fault> {
        let id = self.graph.find(Kind::Function, name);
        let found = id.and_then(|id| Some((id, self.graph.function(id)?)));
        found.ok_or_else(|| no_such(KindName::Function, name))
    }
}

impl Stack {
    /// Takes a node out, with what was wrong with it.
    fn forget(&mut self, id: NodeId) {
        self.graph.remove(id);
        self.faults.remove(&Subject::Node(id));
    }

    /// Refuses to take a pool or tenant away while it has volumes or functions.
    fn check_unused(&self, id: NodeId) -> Result<(), Fault> {
        match (self.graph.get(id), self.graph.user_of(id)) {
            (Some(node), Some(user)) => {
                let (name, own) = (node.name().to_owned(), user.name().to_owned());
                Err(InUse::Has(node.kind(), name, user.kind(), own).into())
            }
            _ => Ok(()),
        }
    }
}

impl Stack {
    /// Why something is not there: it waits to be imported, or nothing is called so.
    fn missing(&self, kind: KindName, name: &str) -> Fault {
        let mut waiting = self.faults_to_import().into_iter();
        match waiting.find(|(of, one, _)| *of == kind && one == name) {
            Some((kind, name, why)) => Unavailable::Thing(kind, name, Arc::new(why)).into(),
            None => no_such(kind, name),
        }
    }
}

fn no_such(kind: KindName, name: &str) -> Fault {
    NotFound::Thing(kind, name.to_owned()).into()
}
