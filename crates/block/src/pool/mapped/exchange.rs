//! Two volumes take each other's place: who knows one of them by its UUID has the other one then.

use super::{Entry, Inner, failed};
use crate::Device;
use crate::pool::error::PoolError;

impl Inner {
    /// Both labels change in one checkpoint: a power cut leaves each UUID with one volume.
    pub(super) async fn exchange(&self, uuids: [[u8; 16]; 2]) -> Result<(), PoolError> {
        let [first, second] = uuids.map(|uuid| self.name_of(uuid));
        let names = [first?, second?];
        let [mut first, mut second] = {
            let mut volumes = self.volumes.borrow_mut();
            let taken = names.each_ref().map(|name| volumes.remove(name));
            taken.map(|entry| entry.expect("it was found"))
        };
        std::mem::swap(&mut first.label, &mut second.label);
        let entries = [first, second];
        let begun = entries.each_ref().map(|entry| self.begin_relabel(entry));
        // Whatever becomes of it on the device, the store goes on with the new labels.
        for entry in entries {
            self.own(entry.device.lineage(), entry.label.owner.as_ref());
            let mut volumes = self.volumes.borrow_mut();
            volumes.insert(entry.label.name.clone(), entry);
        }
        for change in begun {
            let change = change?;
            let ended = self.engine.end_change(change).await;
            ended.map_err(|why| failed("exchanging volumes", why))?;
        }
        Ok(())
    }

    fn begin_relabel(&self, entry: &Entry) -> Result<crate::Served, PoolError> {
        let (device, bytes) = (&entry.device, entry.label.encode());
        let chunks = device.info().blocks / u64::from(device.form().chunk_blocks());
        let lineage = device.lineage();
        let begun = self
            .engine
            .begin_change(|store, request| store.change_volume(request, lineage, chunks, bytes));
        let ((), change) = begun.map_err(|why| failed("exchanging volumes", why))?;
        Ok(change)
    }

    fn name_of(&self, uuid: [u8; 16]) -> Result<String, PoolError> {
        let volumes = self.volumes.borrow();
        let mut all = volumes.iter();
        let found = all.find(|(_, entry)| entry.label.uuid == uuid);
        let name = found.map(|(name, _)| name.clone());
        name.ok_or(PoolError::NoUuid(uuid))
    }
}
