//! Functions: NVMe PCIe controllers for virtual machines, each on a socket of its own. One is
//! offered by one core, its home, as long as the target runs; its guest may come and go.

use std::io;
use std::path::Path;
use std::rc::Rc;

use flashyard_controller::HostId;
use flashyard_engine::{Counters, Snapshot};
use flashyard_nvme::Nqn;
use flashyard_vfio::{FunctionReport, offer};
use uuid::Uuid;

use super::fault::{InUse, Internal, Invalid, Unavailable};
use super::work::Work;
use super::{Fault, Service, Stack, Subject};
use crate::control::{
    FunctionChange, FunctionRow, FunctionView, GuestState, GuestView, KindName, View,
};
use crate::graph::{Function, Identity, NodeId};
use crate::nodes::Node;
use crate::sockets::Access;
use crate::spec::{FunctionSpec, SocketMode};
use crate::state::Kind;

impl Work<'_> {
    /// Creates functions, all of them or none.
    pub(super) fn create_functions(&mut self, specs: Vec<FunctionSpec>) -> Result<View, Fault> {
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        self.add_functions(specs)?;
        let views = names
            .iter()
            .map(|name| self.view_one(KindName::Function, name));
        let mut views = views.collect::<Result<Vec<View>, Fault>>()?;
        match views.len() {
            1 => Ok(views.remove(0)),
            _ => Ok(View::List(views.into())),
        }
    }

    /// Adds functions, and offers them if functions are offered yet.
    pub(super) fn add_functions(&mut self, specs: Vec<FunctionSpec>) -> Result<(), Fault> {
        let with_socket = specs.into_iter().map(|spec| self.with_socket(spec));
        let specs = with_socket.collect::<Result<Vec<_>, Fault>>()?;
        for spec in &specs {
            spec.check()?;
            access(spec)?;
        }
        let ids = self.commit(|state, stack| {
            stack.check_new_functions(&specs)?;
            state.put_functions(&specs)?;
            Ok(move |stack: &mut Stack| {
                let add = |spec: FunctionSpec| {
                    let id = stack.graph.reserve();
                    stack.graph.add(id, spec.into());
                    id
                };
                specs.into_iter().map(add).collect::<Vec<NodeId>>()
            })
        })?;
        if !self.offers_functions {
            return Ok(());
        }
        let offered = ids.iter().try_for_each(|id| self.offer_function(*id));
        if let Err(fault) = offered {
            for id in ids {
                self.remove_function(id)?;
            }
            return Err(fault);
        }
        Ok(())
    }

    /// A function whose socket is known for good, whatever folder is set later.
    fn with_socket(&self, spec: FunctionSpec) -> Result<FunctionSpec, Fault> {
        if spec.socket.is_some() {
            return Ok(spec);
        }
        let set = self.settings.socket_folder.as_ref().map(Path::new);
        let folder = set.or(self.service.socket_folder.as_deref());
        let folder = folder.ok_or_else(|| Invalid::NoSocketFolder(spec.name.clone()))?;
        let path = folder.join(format!("{}.sock", spec.name));
        // What was given as text is text; a state directory may be anything.
        Ok(FunctionSpec {
            socket: Some(path.to_string_lossy().into_owned()),
            ..spec
        })
    }

    /// Offers all functions for the first time, when everything that they show is there. One that
    /// cannot be offered is reported, and the others are.
    pub(super) fn offer_functions(&mut self) {
        self.edit(|stack| stack.offers_functions = true);
        let all: Vec<NodeId> = self.graph.functions().map(|(id, _)| id).collect();
        for id in all {
            if let Err(fault) = self.offer_function(id) {
                self.note_fault(Subject::Node(id), fault);
            }
        }
    }

    fn offer_function(&mut self, id: NodeId) -> Result<(), Fault> {
        let Some(Function { spec, .. }) = self.graph.function(id).cloned() else {
            return Ok(());
        };
        let (tenant, record) = self.tenant(&spec.tenant)?;
        let subnqn = Nqn::new(&self.nqn_of(&record.spec)).map_err(Internal::Subnqn)?;
        let host = self.host_of_function(&spec.name)?;
        let core = self.core_for_function(tenant);
        let path = spec.socket();
        let doorbells = spec.doorbells.unwrap_or_default().doorbells();
        let served_by = spec.cores.unwrap_or(1);
        let listener = self.service.sockets.open(path, access(&spec)?)?;
        let offered = self.cores.call(core, move |state| async move {
            let wanted = flashyard_vfio::FunctionSpec {
                subnqn,
                host,
                doorbells,
                cores: served_by,
            };
            let function = offer(&state.engine, wanted, listener)?;
            state.nodes.add(id, Node::Function(Rc::new(function)));
            Ok::<(), io::Error>(())
        });
        if let Err(error) = offered {
            self.service.sockets.close(path);
            return Err(Unavailable::Function(spec.name, error).into());
        }
        self.edit(|stack| {
            let open = |function: &mut Function| function.home = Some(core);
            stack.graph.change_function(id, open);
        });
        Ok(())
    }

    /// What the controllers of a function are called beside those of hosts: the same for all times,
    /// so that one waits for what the one before it has issued.
    fn host_of_function(&self, name: &str) -> Result<HostId, Fault> {
        let nqn = format!("{}:function:{name}", self.settings.prefix());
        let uuid = Uuid::new_v5(&self.service.target_uuid, nqn.as_bytes());
        Ok(HostId {
            nqn: Nqn::new(&nqn).map_err(Internal::HostNqn)?,
            id: uuid.into_bytes(),
        })
    }

    /// The core that has most of the tenant's namespaces, so that their I/O is not handed over; of
    /// several, and without any, the one that has the least.
    fn core_for_function(&self, tenant: NodeId) -> usize {
        let homes = self.graph.volumes_on(tenant);
        let homes = homes.filter_map(|(_, volume)| Some(volume.namespace.as_ref()?.core()));
        let mut namespaces = vec![0usize; self.cores.count()];
        for home in homes {
            namespaces[home] += 1;
        }
        let cores = 0..self.cores.count();
        let best = cores.min_by_key(|core| {
            let most = std::cmp::Reverse(namespaces[*core]);
            (most, self.graph.load(*core))
        });
        best.expect("there is at least one core")
    }

    /// Gives the socket of a function other permissions, or its guest another way to ring.
    pub(super) fn set_function(
        &mut self,
        name: &str,
        change: FunctionChange,
    ) -> Result<View, Fault> {
        let (_, function) = self.function(name)?;
        let mut spec = function.spec.clone();
        spec.mode = change.mode.or(spec.mode);
        spec.owner = change.owner.or(spec.owner);
        spec.group = change.group.or(spec.group);
        spec.doorbells = change.doorbells.or(spec.doorbells);
        spec.cores = change.cores.or(spec.cores);
        self.change_function(spec)?;
        self.view_one(KindName::Function, name)
    }

    /// Makes a function as it is to be. The permissions of its socket change at once.
    pub(super) fn change_function(&mut self, spec: FunctionSpec) -> Result<(), Fault> {
        spec.check()?;
        let (id, function) = self.function(&spec.name)?;
        let (now, is_offered) = (function.spec.clone(), function.home.is_some());
        let sockets = &self.service.sockets;
        let (before, after) = (access(&now)?, access(&spec)?);
        if is_offered {
            sockets.change(spec.socket(), after)?;
        }
        let noted = self.commit(|state, _| {
            state.put_functions(std::slice::from_ref(&spec))?;
            Ok(move |stack: &mut Stack| {
                let change = |function: &mut Function| function.spec = spec;
                stack.graph.change_function(id, change);
            })
        });
        if noted.is_err() && is_offered {
            sockets.change(now.socket(), before)?;
        }
        noted
    }

    /// Deletes a function. A guest that uses it loses its disks as if they were pulled out: that is
    /// done only if `connected` says so.
    pub(super) fn delete_function(&mut self, name: &str, connected: bool) -> Result<View, Fault> {
        let (id, _) = self.function(name)?;
        if !connected && self.report_function(id).is_some_and(|it| it.connected) {
            return Err(InUse::Connected(name.to_owned()).into());
        }
        self.remove_function(id)?;
        Ok(View::Done)
    }

    /// Ends a function and forgets it. If it cannot be forgotten it is offered again.
    pub(super) fn remove_function(&mut self, id: NodeId) -> Result<(), Fault> {
        let Some(function) = self.graph.function(id).cloned() else {
            return Ok(());
        };
        self.service.end_function(id, &function);
        let forgotten = self.commit(|state, _| {
            state.remove(Kind::Function, &function.spec.name)?;
            Ok(move |stack: &mut Stack| stack.forget(id))
        });
        if forgotten.is_err() && function.home.is_some() {
            self.offer_function(id)?;
        }
        forgotten
    }

    /// What a function does; nothing if it is not offered, or its core has never reported.
    pub(super) fn report_function(&self, id: NodeId) -> Option<FunctionReport> {
        let home = self.graph.function(id)?.home?;
        match *self.report(home, id)? {
            crate::published::Report::Function(report) => Some(report),
            _ => None,
        }
    }
}

impl Service {
    /// Takes a function away from its guest, and its socket out of its folder.
    fn end_function(&self, id: NodeId, function: &Function) {
        let Some(core) = function.home else {
            return;
        };
        self.cores.call(
            core,
            move |state| async move { drop(state.nodes.remove(id)) },
        );
        self.sockets.close(function.spec.socket());
    }

    /// Ends all functions: the target ends.
    pub(super) fn end_functions(&self) {
        for (id, function) in self.stack().graph.functions() {
            self.end_function(id, function);
        }
    }
}

impl Stack {
    /// Refuses functions that do not fit to what is there.
    fn check_new_functions(&self, specs: &[FunctionSpec]) -> Result<(), Fault> {
        for (place, spec) in specs.iter().enumerate() {
            let before = || specs[..place].iter();
            if self.graph.find(Kind::Function, &spec.name).is_some()
                || before().any(|it| it.name == spec.name)
            {
                return Err(InUse::Name(KindName::Function, spec.name.clone()).into());
            }
            self.tenant(&spec.tenant)?;
            let socket = spec.socket.clone().unwrap_or_default();
            if let Some(other) = before().find(|it| it.socket == spec.socket) {
                return Err(InUse::Socket(socket, other.name.clone()).into());
            }
            if let Some(other) = self.graph.known_by(&Identity::Socket(socket.clone())) {
                let other = self.graph.name(other).to_owned();
                return Err(InUse::Socket(socket, other).into());
            }
        }
        Ok(())
    }
}

impl FunctionSpec {
    /// Where it is offered: every function that is there has a socket.
    fn socket(&self) -> &Path {
        Path::new(self.socket.as_deref().unwrap_or_default())
    }
}

/// Who may use the socket of a function.
fn access(spec: &FunctionSpec) -> Result<Access, Fault> {
    let mode = spec.mode.unwrap_or(SocketMode::OWNER);
    Ok(Access::new(
        mode.0,
        spec.owner.as_deref(),
        spec.group.as_deref(),
    )?)
}

impl Work<'_> {
    /// One function.
    pub(super) fn view_function(&self, id: NodeId, function: &Function) -> View {
        let spec = function.spec.clone();
        let tenant = self.tenant(&spec.tenant).ok();
        let volumes = tenant
            .into_iter()
            .flat_map(|(id, _)| self.graph.volumes_on(id));
        let volumes = volumes.filter(|(_, volume)| volume.namespace.is_some());
        let volumes = volumes.map(|(_, volume)| volume.record.spec.name.clone());
        let mut volumes: Vec<String> = volumes.collect();
        volumes.sort_unstable();
        View::Function(Box::new(FunctionView {
            subnqn: tenant.map(|(_, record)| self.nqn_of(&record.spec)),
            volumes,
            guest: self.view_guest(id, &self.target.snapshot()),
            health: self.health(Subject::Node(id)),
            socket: spec.socket().display().to_string(),
            mode: spec.mode.unwrap_or(SocketMode::OWNER),
            name: spec.name,
            tenant: spec.tenant,
            owner: spec.owner,
            group: spec.group,
            doorbells: spec.doorbells.unwrap_or_default(),
            cores: spec.cores.unwrap_or(1),
        }))
    }

    /// All functions at a glance.
    pub(super) fn view_functions(&self, snapshot: &Snapshot) -> Vec<FunctionRow> {
        let all = self.graph.functions();
        all.map(|(id, function)| FunctionRow {
            function: function.spec.name.clone(),
            tenant: function.spec.tenant.clone(),
            guest: self.view_guest(id, snapshot),
            state: self.health(Subject::Node(id)).state,
        })
        .collect()
    }

    fn view_guest(&self, id: NodeId, snapshot: &Snapshot) -> GuestView {
        let home = self.graph.function(id).and_then(|function| function.home);
        let report = self.report_function(id);
        let host = self.host_of_function(self.graph.name(id)).ok();
        let nqn = host.map(|host| host.nqn.to_string());
        let mut controllers = snapshot.controllers.iter();
        let controller = controllers.find(|it| Some(&it.hostnqn) == nqn.as_ref());
        let counted = |count: fn(&Counters) -> u64| controller.map(|it| count(&it.counters));
        GuestView {
            core: home,
            guest: report.map(|report| match report {
                FunctionReport { failed: true, .. } => GuestState::Failed,
                FunctionReport { ready: true, .. } => GuestState::Running,
                FunctionReport {
                    connected: true, ..
                } => GuestState::Connected,
                _ => GuestState::None,
            }),
            io_queues: report.map(|report| report.io_queues),
            reads: counted(|it| it.reads),
            writes: counted(|it| it.writes),
            bytes_read: counted(|it| it.bytes_read),
            bytes_written: counted(|it| it.bytes_written),
            errors: counted(|it| it.errors),
        }
    }
}
