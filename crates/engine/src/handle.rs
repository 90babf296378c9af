//! A device as it is known outside of its home core.

use std::sync::{Arc, Mutex, PoisonError};

use flashyard_block::{Info, TenantId};

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
    info: Mutex<Info>,
    /// Of the switch before it.
    accounts: Arc<Accounts>,
}

impl DeviceHandle {
    pub(crate) fn new(core: usize, id: u32, info: Info, accounts: Arc<Accounts>) -> Self {
        Self {
            shared: Arc::new(Shared {
                core,
                id,
                info: Mutex::new(info),
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
        *self
            .shared
            .info
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What `tenant` may have outstanding at the switch before it.
    pub(crate) fn account(&self, tenant: TenantId) -> Arc<Account> {
        self.shared.accounts.of(tenant)
    }

    pub(crate) fn set_info(&self, info: Info) {
        *self
            .shared
            .info
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = info;
    }
}

impl PartialEq for DeviceHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for DeviceHandle {}
