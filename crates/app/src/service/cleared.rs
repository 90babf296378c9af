//! Giving space to a tenant. One rule, and this is the only place that it can be broken at: **a
//! tenant reads zeroes, what it has written itself, or what the administrator let it have by name
//! (`--keep`, `volume move`, `import`)**.
//!
//! A volume is attached by [`Service::serve_volume`], which wants a [`Cleared`]; only this module
//! makes one. Volumes of a pool are cleared by the pool (`block::pool`). A whole device is zeroed
//! and flushed while its volume is `creating` in the store, and that is done again if it was cut
//! off; `ready` is noted after it. How much of the device was given away is noted too: what a disk
//! or file has grown by is zeroed before it is shown. Nothing that was known before counts, except
//! that a device says itself that nothing was ever written to it.

use std::iter::once;

use flashyard_block::{IoError, SharedDevice, make_clean};

use super::fault::{Refused, Unavailable};
use super::work::Work;
use super::{Fault, Stack, no_such};
use crate::control::KindName;
use crate::graph::{Device, NodeId};
use crate::spec::{ContentName, DeviceKind, DeviceSpec, Size, VolumeSpec};
use crate::state::Phase;

/// That whatever a volume shows may be read by its tenant.
pub(super) struct Cleared(());

impl Cleared {
    /// For a volume that its tenant gets back as it was, or that the administrator has given to
    /// another tenant with its content (`volume move --yes`).
    pub(super) fn given_by_name() -> Self {
        Self(())
    }
}

impl Work<'_> {
    /// Whether a device that is to be given away whole may be: data that this target knows nothing
    /// of are neither shown nor destroyed unless somebody says which.
    pub(super) fn check_content(&self, spec: &VolumeSpec, device: NodeId) -> Result<(), Fault> {
        self.check_identity_of_kept(spec, device)?;
        if spec.content.is_some() || self.is_disposable(device) {
            return Ok(());
        }
        let device = self.graph.name(device).to_owned();
        Err(Refused::Content(device, spec.tenant.clone()).into())
    }

    /// Whether a volume of a file has a device zeroed on which data may be that this target knows
    /// nothing of. A start does not do that: its state may have been lost.
    pub(super) fn erases_what_may_be_data(&self, spec: &VolumeSpec) -> bool {
        let device = spec.device.as_deref().map(|name| self.device(name));
        spec.content == Some(ContentName::Erase)
            && matches!(device, Some(Ok((id, _))) if !self.is_disposable(id))
    }

    /// Clears what volumes that are being created are to have, and marks them ready. May be
    /// repeated.
    pub(super) fn clear_new(&mut self, ids: &[NodeId]) -> Result<Vec<(NodeId, Cleared)>, Fault> {
        self.make_volumes(ids)?;
        for &id in ids {
            let spec = self.record(id)?.spec;
            if let Some(device) = spec.device {
                let (device, _) = self.device(&device)?;
                if spec.content != Some(ContentName::Keep) {
                    self.erase(device, 0)?;
                }
                self.note_given(id, device)?;
            }
        }
        self.set_phases(ids, Phase::Ready)?;
        Ok(ids.iter().map(|&id| (id, Cleared(()))).collect())
    }

    /// Clears what a device has grown by since its volume was served last; one that has become
    /// smaller is refused.
    pub(super) fn clear_more(&mut self, id: NodeId) -> Result<Cleared, Fault> {
        let spec = self.record(id)?.spec;
        let Some(name) = spec.device else {
            return Ok(Cleared(()));
        };
        let (device, _) = self.device(&name)?;
        // Others grow while they are used, and then with zeroes.
        if self.can_be_resized_by_others(device)
            && let Some(given) = spec.size
        {
            let now = self.size_of(device)?;
            if now < given {
                return Err(Unavailable::Shrunk(name, now.0, given.0).into());
            }
            if now > given {
                self.erase(device, given.0)?;
            }
        }
        self.note_given(id, device)?;
        Ok(Cleared(()))
    }

    /// Zeroes a device for good from a byte on, so that its next owner reads nothing of the last
    /// one.
    pub(super) fn erase(&self, device: NodeId, from: u64) -> Result<(), Fault> {
        let erased: Result<(), IoError> = self.with_device(device, move |device| async move {
            if device.is_blank() {
                return Ok(());
            }
            let info = device.info();
            let first = from / u64::from(info.block_size);
            make_clean(&*device, once(first..info.blocks)).await
        })?;
        erased.map_err(|error| {
            let device = self.graph.name(device).to_owned();
            Unavailable::NotErased(device, error).into()
        })
    }

    /// Notes that what is on a device comes from users of this target from now on.
    pub(super) fn note_disposable(&mut self, device: NodeId) -> Result<(), Fault> {
        if self.is_disposable(device) {
            return Ok(());
        }
        self.change_spec(device, |spec| spec.disposable = true)
    }

    /// Changes what is noted of a device, in store and stack.
    pub(super) fn change_spec(
        &mut self,
        device: NodeId,
        change: impl FnOnce(&mut DeviceSpec),
    ) -> Result<(), Fault> {
        self.commit(|state, stack| {
            let found = stack.graph.device(device);
            let found = found.ok_or_else(|| no_such(KindName::Device, ""))?;
            let mut spec = found.spec.clone();
            change(&mut spec);
            state.put_device(&spec)?;
            Ok(move |stack: &mut Stack| {
                let noted = |device: &mut Device| device.spec = spec;
                stack.graph.change_device(device, noted);
            })
        })
    }

    /// Whether a device that is open on a core has nothing on it, for certain.
    pub(super) fn is_blank_at(&self, core: usize, id: NodeId) -> bool {
        let answer = self.ask_device(core, id, |device| async move { device.is_blank() });
        answer.unwrap_or(false)
    }

    /// Whether a device can be zeroed for its next user without a question.
    pub(super) fn is_disposable(&self, device: NodeId) -> bool {
        let spec = self.graph.device(device).map(|device| &device.spec);
        // The units of a partition are erased when it is cut.
        let is_cut_here = || spec?.partition().map(|cut| !cut.imported);
        spec.is_some_and(|spec| spec.disposable)
            || is_cut_here() == Some(true)
            || self.forgets(device)
    }

    fn can_be_resized_by_others(&self, id: NodeId) -> bool {
        let device = self.graph.device(id);
        device.is_some_and(|device| match device.spec.kind() {
            DeviceKind::File | DeviceKind::Block => true,
            DeviceKind::Fault | DeviceKind::Crypt => {
                let below = self.graph.below(id);
                below.is_some_and(|below| self.can_be_resized_by_others(below))
            }
            _ => false,
        })
    }

    fn note_given(&mut self, id: NodeId, device: NodeId) -> Result<(), Fault> {
        let given = self.size_of(device)?;
        match self.record(id)?.spec.size == Some(given) {
            true => Ok(()),
            false => self.note_size(id, given),
        }
    }

    pub(super) fn size_of(&self, device: NodeId) -> Result<Size, Fault> {
        let info = self.with_device(device, |device| async move { device.info() })?;
        Ok(Size(info.blocks * u64::from(info.block_size)))
    }

    /// What `ask` gives of an open device, on its core.
    fn with_device<T, W, F>(&self, device: NodeId, ask: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(SharedDevice) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let answer = self.ask_device(self.home_of(device)?, device, ask);
        answer.ok_or_else(|| Unavailable::NotWhole(self.graph.name(device).to_owned()).into())
    }

    fn ask_device<T, W, F>(&self, core: usize, id: NodeId, ask: W) -> Option<T>
    where
        T: Send + 'static,
        W: FnOnce(SharedDevice) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        self.cores.call(core, move |state| async move {
            let found = state.nodes.device(id);
            match found {
                Some(device) => Some(ask(device).await),
                None => None,
            }
        })
    }
}
