//! Asks a discovery controller which subsystems this host may connect to.

use std::net::SocketAddr;

use flashyard_nvme::Nqn;
use flashyard_nvme::log::{DiscoveryEntry, DiscoveryHeader, LogId};
use flashyard_runtime::Rt;
use flashyard_time::Duration;

use crate::admin;
use crate::association::{Association, ConnectError, Options};
use crate::queue::{HostError, Queue};

/// Most entries that are read, whatever the controller says.
const MAX_ENTRIES: u64 = 4096;
/// Entries per Get Log Page.
const AT_ONCE: u64 = 16;
/// How often a log that changes while it is read is read again.
const ATTEMPTS: u32 = 10;

/// The discovery log of the controller at `addr`, as it is shown to this host.
///
/// The log is read again when its generation counter moved meanwhile, so the entries belong
/// together; after ten such attempts the last is given.
pub async fn discover(
    rt: &Rt,
    addr: SocketAddr,
    hostnqn: Nqn,
    hostid: [u8; 16],
) -> Result<Vec<DiscoveryEntry>, ConnectError> {
    let options = Options {
        queues: 0,
        kato: Duration::ZERO,
        ..Options::new(Nqn::DISCOVERY, hostnqn, hostid)
    };
    let association = Association::connect(rt, addr, options).await?;
    let entries = association.discovery_log().await;
    association.close().await;
    Ok(entries?)
}

impl Association {
    /// The discovery log, on an association with a discovery controller.
    pub async fn discovery_log(&self) -> Result<Vec<DiscoveryEntry>, HostError> {
        let admin = self.admin();
        let mut before = header(admin).await?;
        for attempt in 1.. {
            let entries = entries(admin, before.numrec.min(MAX_ENTRIES)).await?;
            let after = header(admin).await?;
            if after.genctr == before.genctr || attempt == ATTEMPTS {
                return Ok(entries);
            }
            before = after;
        }
        Ok(Vec::new())
    }
}

async fn header(admin: &Queue) -> Result<DiscoveryHeader, HostError> {
    let page = admin::get_log(admin, LogId::DISCOVERY, 0, DiscoveryHeader::LEN, false).await?;
    Ok(DiscoveryHeader::decode(admin::page_of(&page)))
}

async fn entries(admin: &Queue, count: u64) -> Result<Vec<DiscoveryEntry>, HostError> {
    let mut entries = Vec::new();
    while (entries.len() as u64) < count {
        let first = entries.len() as u64;
        let wanted = (count - first).min(AT_ONCE) as usize;
        let offset = DiscoveryHeader::LEN as u64 + first * DiscoveryEntry::LEN as u64;
        let page = admin::get_log(
            admin,
            LogId::DISCOVERY,
            offset,
            wanted * DiscoveryEntry::LEN,
            true,
        )
        .await?;
        entries.extend(page.as_chunks().0.iter().map(DiscoveryEntry::decode));
    }
    Ok(entries)
}
