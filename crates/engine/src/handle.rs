//! A device as it is known outside of its home core.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashyard_block::{Device, Health, Info, TenantId};

use crate::credit::{Account, Accounts};

/// Names a device of the target: which core is its home, and what it is. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DeviceHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: usize,
    id: u32,
    told: Mutex<Told>,
    /// Of the switch before it.
    accounts: Arc<Accounts>,
}

/// What a device told when its home core last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) info: Info,
    pub(crate) health: Health,
}

impl Told {
    /// What a device tells now.
    pub(crate) fn by(device: &dyn Device) -> Self {
        Self {
            info: device.info(),
            health: device.health(),
        }
    }
}

impl DeviceHandle {
    pub(crate) fn new(core: usize, id: u32, told: Told, accounts: Arc<Accounts>) -> Self {
        Self {
            shared: Arc::new(Shared {
                core,
                id,
                told: Mutex::new(told),
                accounts,
            }),
        }
    }

    /// The core that does its I/O.
    pub fn core(&self) -> usize {
        self.shared.core
    }

    /// Number within the target; never used twice.
    pub fn id(&self) -> u32 {
        self.shared.id
    }

    /// What the device was when its home core last looked.
    pub fn info(&self) -> Info {
        self.told().info
    }

    /// How its medium was when its home core last looked.
    pub fn health(&self) -> Health {
        self.told().health
    }

    pub(crate) fn told(&self) -> Told {
        *self.lock()
    }

    /// What `tenant` may have outstanding at the switch before it.
    pub(crate) fn account(&self, tenant: TenantId) -> Arc<Account> {
        self.shared.accounts.of(tenant)
    }

    /// Takes what the device tells; what it told before.
    pub(crate) fn replace(&self, told: Told) -> Told {
        std::mem::replace(&mut *self.lock(), told)
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        let told = self.shared.told.lock();
        told.unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for DeviceHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for DeviceHandle {}
