//! What the operator changes while the target runs.

use std::rc::Rc;

use flashyard_runtime::Rt;
use flashyard_time::Duration;

use super::devices::policy;
use super::{Phase, Site, Volume, name};

impl Site {
    /// Cuts a volume from a pool and gives it to a tenant; there may be no room.
    pub async fn create_volume(&self, tenant: usize, device: usize, bytes: u64) {
        let plan = &self.plan.devices[device];
        let Some(pool) = self.pool(device) else {
            return;
        };
        let name = format!("v{}", self.next_nsid.get());
        let volume = self.new_volume(
            tenant,
            device,
            Some(name.clone()),
            bytes.div_ceil(plan.block_size.into()),
        );
        self.volumes.borrow_mut().push(volume.clone());
        let uuid = volume.uuid;
        let made = async move { pool.create_volume(&name, uuid, bytes).await };
        match self.on_server(plan.core, made).await {
            Some(Ok(device)) => {
                if let Some(up) = self.up() {
                    self.attach(&up, &volume, device);
                    volume.phase.set(Phase::Ready);
                }
            }
            // No room, or a failing disk.
            Some(Err(_)) => volume.phase.set(Phase::Gone),
            // Whether it is there will be seen when the target is started again.
            None => {}
        }
        self.drop_gone();
    }

    /// Takes a volume from its tenant and deletes it.
    pub async fn delete_volume(&self, volume: &Rc<Volume>) {
        let (Some(up), Some(name)) = (self.up(), volume.name.clone()) else {
            return;
        };
        volume.changing.set(true);
        volume.phase.set(Phase::Deleting);
        let handle = volume.handle.borrow().clone();
        let Some(handle) = handle else { return };
        // The tenant may be away for the moment.
        let _ = up.target.detach(&super::name(volume.tenant), volume.nsid);
        let core = up.cores[handle.core()].clone();
        let removed = async move { core.remove_device(&handle).await };
        if self
            .on_server(self.plan.devices[volume.device].core, removed)
            .await
            .is_none()
        {
            return;
        }
        let Some(pool) = self.pool(volume.device) else {
            return;
        };
        let deleted = async move { pool.delete(&name).await };
        if let Some(outcome) = self
            .on_server(self.plan.devices[volume.device].core, deleted)
            .await
        {
            if let Err(error) = outcome
                && !self.failed[volume.device].get()
            {
                self.notes
                    .find(format!("deleting volume {} fails: {error}", volume.nsid));
            }
            volume.phase.set(Phase::Gone);
        }
        self.drop_gone();
    }

    /// Makes a volume larger; there may be no room.
    pub async fn grow_volume(&self, volume: &Rc<Volume>, more: u64) {
        let (Some(pool), Some(name)) = (self.pool(volume.device), volume.name.clone()) else {
            return;
        };
        volume.changing.set(true);
        let blocks = volume.blocks.get() + more / u64::from(volume.block_size);
        let bytes = blocks * u64::from(volume.block_size);
        let core = self.plan.devices[volume.device].core;
        let grown = self
            .on_server(core, async move { pool.grow(&name, bytes).await })
            .await;
        if let (Some(Ok(())), Some(up)) = (grown, self.up()) {
            if let Some(handle) = volume.handle.borrow().as_ref() {
                up.target.resized(handle);
            }
            volume.blocks.set(blocks);
        }
        self.settle_change(volume);
    }

    /// Takes a namespace away and gives it back, so that writes are refused or not.
    pub async fn attach_again(
        &self,
        volume: &Rc<Volume>,
        read_only: bool,
        rt: &Rt,
        away: Duration,
    ) {
        let Some(up) = self.up() else { return };
        volume.changing.set(true);
        let _ = up.target.detach(&super::name(volume.tenant), volume.nsid);
        rt.sleep(away).await;
        let handle = volume.handle.borrow().clone();
        if let Some(handle) = handle.filter(|_| self.is_still(&up)) {
            volume.read_only.set(read_only);
            self.tell_namespace(&up, volume, handle);
        }
        self.settle_change(volume);
    }

    /// Refuses writes from now on, or not.
    pub fn protect(&self, volume: &Volume, on: bool) {
        let Some(up) = self.up() else { return };
        volume.changing.set(true);
        let set = up
            .target
            .set_read_only(&name(volume.tenant), volume.nsid, on);
        if let Err(error) = set {
            self.notes.find(format!(
                "volume {} cannot be protected: {error}",
                volume.nsid
            ));
        }
        volume.read_only.set(on);
        self.settle_change(volume);
    }

    /// Shuts a host out for a while.
    pub async fn exclude(&self, tenant: usize, host: u32, rt: &Rt, span: Duration) {
        let state = &self.tenants[tenant];
        state.changing.set(true);
        state.excluded.borrow_mut().push(host);
        if let Some(up) = self.up() {
            self.tell_tenant(&up, tenant);
        }
        rt.sleep(span).await;
        state.excluded.borrow_mut().clear();
        if let Some(up) = self.up() {
            self.tell_tenant(&up, tenant);
        }
        state.changing.set(false);
        state.changed.set(Some(self.now()));
    }

    /// Removes a tenant and makes it anew, with its volumes.
    pub async fn remake_tenant(&self, tenant: usize, rt: &Rt, away: Duration) {
        let Some(up) = self.up() else { return };
        let state = &self.tenants[tenant];
        state.changing.set(true);
        let volumes = self.volumes();
        let theirs = || volumes.iter().filter(|volume| volume.tenant == tenant);
        theirs().for_each(|volume| volume.changing.set(true));
        let _ = up.target.remove_tenant(&name(tenant));
        rt.sleep(away).await;
        if self.is_still(&up) {
            self.tell_tenant(&up, tenant);
            for volume in theirs().filter(|volume| volume.phase.get() == Phase::Ready) {
                if let Some(handle) = volume.handle.borrow().clone() {
                    self.tell_namespace(&up, volume, handle);
                }
            }
        }
        theirs().for_each(|volume| self.settle_change(volume));
        state.changing.set(false);
        state.changed.set(Some(self.now()));
    }

    /// Replaces the policy of a device.
    pub fn set_policy(&self, device: usize, number: u64) {
        if let Some(up) = self.up() {
            up.places[device].switch.set_policy(policy(number));
        }
    }
}
