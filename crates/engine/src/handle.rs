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
    report: Mutex<Report>,
    /// Of the switch before it.
    accounts: Arc<Accounts>,
}

/// What a device reported when its home core last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) info: Info,
    pub(crate) health: Health,
}

impl Report {
    /// What a device tells now.
    pub(crate) fn by(device: &dyn Device) -> Self {
        Self {
            info: device.info(),
            health: device.health(),
        }
    }
}

impl DeviceHandle {
    pub(crate) fn new(core: usize, id: u32, report: Report, accounts: Arc<Accounts>) -> Self {
        Self {
            shared: Arc::new(Shared {
                core,
                id,
                report: Mutex::new(report),
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
        self.report().info
    }

    /// How its medium was when its home core last looked.
    pub fn health(&self) -> Health {
        self.report().health
    }

    pub(crate) fn report(&self) -> Report {
        *self.lock()
    }

    /// What `tenant` may have outstanding at the switch before it.
    pub(crate) fn account(&self, tenant: TenantId) -> Arc<Account> {
        self.shared.accounts.of(tenant)
    }

    /// Takes what the device reports; gives what it reported before.
    pub(crate) fn replace(&self, report: Report) -> Report {
        std::mem::replace(&mut *self.lock(), report)
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        let report = self.shared.report.lock();
        report.unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for DeviceHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for DeviceHandle {}
