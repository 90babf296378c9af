//! A volume goes from one tenant to another with its content. This is the one place where a tenant
//! is given what another has written, so the command needs `--yes`. The store changes hands
//! in one transaction; before it the old tenant has lost the namespace and its last I/O has ended,
//! after it the new one gets it.

use flashyard_engine::{ConfigError, DeviceHandle};

use super::cause::DRAIN;
use super::cleared::Cleared;
use super::fault::{InUse, Invalid, Refused, Unavailable};
use super::work::Work;
use super::{Checked, Fault, Stack, Subject};
use crate::control::{KindName, View};
use crate::graph::{Identity, NodeId, Volume};
use crate::state::Phase;

impl Work<'_> {
    /// Gives a volume to another tenant. Killed in the middle, it is the old one's or the new one's
    /// after the next start.
    pub(super) fn move_volume(
        &mut self,
        name: &str,
        tenant: &str,
        nsid: Option<u32>,
        checked: Checked,
    ) -> Result<View, Fault> {
        let (id, volume) = self.volume(name)?;
        self.check_not_migrating(id)?;
        self.check_no_clone(id)?;
        let (to_id, to) = self.tenant(tenant)?;
        let (to, record) = (to.spec.clone(), volume.record.clone());
        let (from, is_served) = (record.spec.tenant.clone(), volume.namespace.is_some());
        if from == tenant {
            return Err(Refused::AlreadyTheirs(name.to_owned(), tenant.to_owned()).into());
        }
        if record.phase != Phase::Ready {
            return Err(Refused::HalfMade(name.to_owned()).into());
        }
        self.check_number(to_id, tenant, nsid)?;
        self.check_room_for(id, &to)?;
        let (device, owner) = (self.graph.device_under(id), self.graph.tenant_of(id));
        let place = device.map(|device| (to_id, device));
        let place: Vec<_> = place
            .into_iter()
            .filter(|_| checked == Checked::Now)
            .collect();
        if !place.is_empty() {
            self.measure_devices_of(&to, device)?;
        }
        self.check_promises(&[], &place)?;
        if is_served && !self.withdraw(id)? {
            self.release(id);
            self.serve_volume(id, Cleared::given_by_name())?;
            return Err(Unavailable::NotMoved(name.to_owned(), from).into());
        }
        let most = self.target.config().limits.namespaces_per_tenant;
        // Others may have changed both tenants while the last I/O ended.
        let moved = self.commit(|state, stack| {
            stack.check_promises(&[], &place)?;
            let moved = state.move_volume(&stack.record(id)?, tenant, nsid, most)?;
            Ok(move |stack: &mut Stack| stack.set_record(id, moved))
        });
        if let Err(fault) = moved {
            if is_served {
                self.serve_volume(id, Cleared::given_by_name())?;
            }
            return Err(fault);
        }
        if let (Some(device), Some(owner)) = (device, owner) {
            self.forget_share(device, owner);
        }
        // What fails here is done at the next start.
        let _ = self.keep_owner(id);
        if is_served && let Err(fault) = self.serve_volume(id, Cleared::given_by_name()) {
            self.note_fault(Subject::Node(id), fault);
        }
        let view = self.view_one(KindName::Volume, name)?;
        Ok(view.with_note(format!(
            "all that tenant `{from}` has written is tenant `{tenant}`'s now; a configuration file that gives volume \
             `{name}` to `{from}` is refused from now on"
        )))
    }

    fn check_number(&self, id: NodeId, tenant: &str, nsid: Option<u32>) -> Result<(), Fault> {
        let Some(nsid) = nsid else {
            return Ok(());
        };
        match self.graph.known_by(&Identity::Nsid(id, nsid)) {
            Some(other) => {
                let other = self.graph.name(other).to_owned();
                Err(InUse::Nsid(other, tenant.to_owned(), nsid).into())
            }
            None if nsid == 0 => Err(Invalid::NsidZero.into()),
            None => Ok(()),
        }
    }

    /// Takes a volume that is served away from its tenant's hosts; whether all that they had under
    /// way has ended. If not, nothing new is sent to the device, and it may be asked again.
    pub(super) fn withdraw(&mut self, id: NodeId) -> Result<bool, Fault> {
        let Some(handle) = self.namespace(id).cloned() else {
            return Ok(true);
        };
        let record = self.record(id)?;
        match self.target.detach(&record.spec.tenant, record.nsid) {
            // A try before has come so far.
            Ok(()) | Err(ConfigError::NoSuchNamespace) => {}
            Err(error) => return Err(error.into()),
        }
        let drained = self.cores.call(handle.core(), move |state| async move {
            let removed = state.engine.remove_device(&handle);
            state.rt.timeout(DRAIN, removed).await.is_some()
        });
        if drained {
            self.forget_namespace(id);
        }
        Ok(drained)
    }

    /// Lets the last I/O of a volume that was withdrawn end by itself.
    fn release(&mut self, id: NodeId) {
        let Some(handle) = self.forget_namespace(id) else {
            return;
        };
        self.cores.call(handle.core(), move |state| async move {
            let engine = state.engine.clone();
            let ended = async move { engine.remove_device(&handle).await };
            state.rt.spawn(ended).detach();
        });
    }

    fn forget_namespace(&mut self, id: NodeId) -> Option<DeviceHandle> {
        self.edit(|stack| {
            let mut handle = None;
            let take = |volume: &mut Volume| handle = volume.namespace.take();
            stack.graph.change_volume(id, take);
            handle
        })
    }
}
