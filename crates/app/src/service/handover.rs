//! Giving space to a tenant. One rule, and this is the only place that it can be broken at: **a
//! tenant reads zeroes, what it has written itself, or what the administrator let it have by name
//! (`--keep`, `volume move`)**.
//!
//! A volume is attached by [`Service::serve_volume`], which wants a [`Cleared`]; only this module
//! makes one. Volumes of a pool are cleared by the pool (`block::pool`). A whole device is zeroed
//! and flushed while its volume is `creating` in the store, and that is done again if it was cut
//! off; `ready` is noted after it. How much of the device was given away is noted too: what a disk
//! or file has grown by is zeroed before it is shown. Nothing that was known before counts, except
//! that a device says itself that nothing was ever written to it.

use std::iter::once;

use flashyard_block::{IoError, SharedDevice, make_clean};

use super::Fault;
use super::fault::{Refused, Unavailable};
use super::work::Work;
use crate::spec::{ContentName, DeviceKind, DeviceSpec, Size, VolumeSpec};
use crate::state::{Phase, VolumeRecord};

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
    pub(super) fn check_content(&self, spec: &VolumeSpec, device: &str) -> Result<(), Fault> {
        if spec.content.is_some() || self.is_disposable(device) {
            return Ok(());
        }
        Err(Refused::Content(device.to_owned(), spec.tenant.clone()).into())
    }

    /// Clears what a volume that is being created is to have, and marks it ready; gives its record
    /// as it is now. May be repeated.
    pub(super) fn clear_new(
        &mut self,
        record: &VolumeRecord,
    ) -> Result<(VolumeRecord, Cleared), Fault> {
        let mut record = record.clone();
        match record.spec.device.clone() {
            None => self.make_volume(&record)?,
            Some(device) => {
                if record.spec.content != Some(ContentName::Keep) {
                    self.erase(&device, 0)?;
                }
                self.note_given(&mut record, &device)?;
            }
        }
        record.phase = Phase::Ready;
        self.commit(|state, stack| {
            let name = record.spec.name.clone();
            state.set_volume_phase(&name, Phase::Ready)?;
            stack.inventory.volumes.insert(name, record.clone());
            Ok(())
        })?;
        Ok((record, Cleared(())))
    }

    /// Clears what a device has grown by since its volume was served last; one that has become
    /// smaller is refused.
    pub(super) fn clear_more(&mut self, record: &VolumeRecord) -> Result<Cleared, Fault> {
        let Some(device) = record.spec.device.clone() else {
            return Ok(Cleared(()));
        };
        let mut record = record.clone();
        // Others grow while they are used, and then with zeroes.
        if self.can_be_resized_by_others(&device)
            && let Some(given) = record.spec.size
        {
            let now = self.size_of(&device)?;
            if now < given {
                return Err(Unavailable::Shrunk(device, now.0, given.0).into());
            }
            if now > given {
                self.erase(&device, given.0)?;
            }
        }
        self.note_given(&mut record, &device)?;
        let name = record.spec.name.clone();
        self.edit(|stack| stack.inventory.volumes.insert(name, record));
        Ok(Cleared(()))
    }

    /// Zeroes a device for good from a byte on, so that its next owner reads nothing of the last
    /// one.
    pub(super) fn erase(&self, device: &str, from: u64) -> Result<(), Fault> {
        let erased: Result<(), IoError> = self.with_device(device, move |device| async move {
            if device.is_blank() {
                return Ok(());
            }
            let info = device.info();
            let first = from / u64::from(info.block_size);
            make_clean(&*device, once(first..info.blocks)).await
        })?;
        erased.map_err(|error| Unavailable::NotErased(device.to_owned(), error).into())
    }

    /// Notes that what is on a device comes from users of this target from now on.
    pub(super) fn note_disposable(&mut self, device: &str) -> Result<(), Fault> {
        if self.is_disposable(device) {
            return Ok(());
        }
        self.commit(|state, stack| {
            let Some(spec) = stack.inventory.devices.get_mut(device) else {
                return Ok(());
            };
            let noted = DeviceSpec {
                disposable: true,
                ..spec.clone()
            };
            state.put_device(&noted)?;
            *spec = noted;
            Ok(())
        })
    }

    /// Whether a device that is open has nothing on it, for certain.
    pub(super) fn is_blank(&self, device: &str) -> bool {
        self.with_device(device, |device| async move { device.is_blank() })
            .unwrap_or(false)
    }

    /// Whether a device can be zeroed for its next user without a question.
    fn is_disposable(&self, device: &str) -> bool {
        let spec = self.inventory.devices.get(device);
        // The units of a partition are erased when it is cut.
        spec.is_some_and(|spec| spec.disposable || spec.partition().is_some())
            || self.forgets(device)
    }

    fn can_be_resized_by_others(&self, device: &str) -> bool {
        let spec = self.inventory.devices.get(device);
        spec.is_some_and(|spec| matches!(spec.kind(), DeviceKind::File | DeviceKind::Block))
    }

    fn note_given(&mut self, record: &mut VolumeRecord, device: &str) -> Result<(), Fault> {
        let given = self.size_of(device)?;
        if record.spec.size != Some(given) {
            self.note_size(record, given)?;
            record.spec.size = Some(given);
        }
        Ok(())
    }

    fn size_of(&self, device: &str) -> Result<Size, Fault> {
        let info = self.with_device(device, |device| async move { device.info() })?;
        Ok(Size(info.blocks * u64::from(info.block_size)))
    }

    /// What `ask` gives of an open device, on its core.
    fn with_device<T, W, F>(&self, device: &str, ask: W) -> Result<T, Fault>
    where
        T: Send + 'static,
        W: FnOnce(SharedDevice) -> F + Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let core = self.home_of(device)?;
        let name = device.to_owned();
        let told = self.cores.call(core, move |state| async move {
            let found = state.nodes.device(&name);
            match found {
                Some(device) => Some(ask(device).await),
                None => None,
            }
        });
        told.ok_or_else(|| Unavailable::NotWhole(device.to_owned()).into())
    }
}
