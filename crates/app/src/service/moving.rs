//! A volume goes from one tenant to another with its content. This is the one place where a tenant
//! is given what another has written, so the command has to be told twice. The store changes hands
//! in one transaction; before it the old tenant has lost the namespace and its last I/O has ended,
//! after it the new one gets it.

use flashyard_engine::ConfigError;

use super::cause::DRAIN;
use super::fault::{InUse, Invalid, Refused, Unavailable};
use super::handover::Cleared;
use super::work::Work;
use super::{Fault, Subject};
use crate::control::{KindName, View};
use crate::state::{Phase, VolumeRecord};

impl Work<'_> {
    /// Gives a volume to another tenant. Killed in the middle, it is the old one's or the new one's
    /// after the next start.
    pub(super) fn move_volume(
        &mut self,
        name: &str,
        tenant: &str,
        nsid: Option<u32>,
    ) -> Result<View, Fault> {
        let record = self.volume(name)?.clone();
        let to = self.tenant(tenant)?.spec.clone();
        let from = record.spec.tenant.clone();
        if from == tenant {
            return Err(Refused::AlreadyTheirs(name.to_owned(), tenant.to_owned()).into());
        }
        if record.phase != Phase::Ready {
            return Err(Refused::HalfMade(name.to_owned()).into());
        }
        self.check_number(tenant, nsid)?;
        let device = self.device_of(&record);
        self.measure_devices_of(&to, Some(&device))?;
        self.check_promises(&to, Some(&device))?;
        let is_served = self.served.contains_key(name);
        if is_served && !self.withdraw(&record)? {
            self.release(name);
            self.serve_volume(&record, Cleared::given_by_name())?;
            return Err(Unavailable::NotMoved(name.to_owned(), from).into());
        }
        let most = self.target.config().limits.namespaces_per_tenant;
        // Others may have changed both tenants while the last I/O ended.
        let moved = self.commit(|state, stack| {
            let to = stack.tenant(tenant)?.spec.clone();
            stack.check_promises(&to, Some(&device))?;
            let moved = state.move_volume(&record, tenant, nsid, most)?;
            let volumes = &mut stack.inventory.volumes;
            volumes.insert(name.to_owned(), moved.clone());
            Ok(moved)
        });
        let moved = match moved {
            Ok(moved) => moved,
            Err(fault) => {
                if is_served {
                    self.serve_volume(&record, Cleared::given_by_name())?;
                }
                return Err(fault);
            }
        };
        self.forget_share(&device, &from);
        if is_served && let Err(fault) = self.serve_volume(&moved, Cleared::given_by_name()) {
            self.note_fault(Subject::Volume(name.to_owned()), fault);
        }
        let view = self.view_one(KindName::Volume, name)?;
        Ok(view.with_note(format!(
            "all that tenant `{from}` has written is tenant `{tenant}`'s now; a configuration file that gives volume \
             `{name}` to `{from}` is refused from now on"
        )))
    }

    fn check_number(&self, tenant: &str, nsid: Option<u32>) -> Result<(), Fault> {
        let mut volumes = self.inventory.volumes.values();
        let taken = |it: &&VolumeRecord| it.spec.tenant == tenant && Some(it.nsid) == nsid;
        match volumes.find(taken) {
            Some(other) => {
                let (name, tenant) = (other.spec.name.clone(), tenant.to_owned());
                Err(InUse::Nsid(name, tenant, other.nsid).into())
            }
            None if nsid == Some(0) => Err(Invalid::NsidZero.into()),
            None => Ok(()),
        }
    }

    /// Takes a volume that is served away from its tenant's hosts; whether all that they had under
    /// way has ended. If not, nothing new is sent to the device, and it may be asked again.
    pub(super) fn withdraw(&mut self, record: &VolumeRecord) -> Result<bool, Fault> {
        let name = &record.spec.name;
        let Some(handle) = self.served.get(name).cloned() else {
            return Ok(true);
        };
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
            self.edit(|stack| stack.served.remove(name));
        }
        Ok(drained)
    }

    /// Lets the last I/O of a volume that was withdrawn end by itself.
    fn release(&mut self, name: &str) {
        let Some(handle) = self.edit(|stack| stack.served.remove(name)) else {
            return;
        };
        self.cores.call(handle.core(), move |state| async move {
            let engine = state.engine.clone();
            let ended = async move { engine.remove_device(&handle).await };
            state.rt.spawn(ended).detach();
        });
    }
}
