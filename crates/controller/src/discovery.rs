//! What can be discovered: every subsystem at every address, shown to the hosts that may connect to
//! it (Base Specification, Discovery Log Page).

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use flashyard_nvme::Nqn;
use flashyard_nvme::fabrics::ConnectData;
use flashyard_nvme::log::{
    AddressFamily, DiscoveryEntry, DiscoveryHeader, SecurityType, SubsystemType, TransportType,
    Treq,
};

use crate::HostList;
use crate::limits::ADMIN_QUEUE_DEPTH;

/// The port that hosts look for a discovery controller at. Subsystems are announced at the other
/// ports, if there are such, so that a host does not connect to each of them twice.
const DISCOVERY_PORT: u16 = 8009;

/// Subsystems and addresses.
#[derive(Clone, Debug)]
pub struct Discovery {
    generation: u64,
    subsystems: BTreeMap<Nqn, HostList>,
    listeners: Vec<SocketAddr>,
}

/// Whose discovery log a change concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "hosts want to be notified"]
pub enum Change {
    /// No host's: nothing has changed.
    Nobody,
    /// Everybody's.
    Everybody,
    /// Of those who could see a subsystem before and cannot now, or the other way round.
    Hosts {
        /// Who could see it before.
        before: Option<HostList>,
        /// Who can see it now.
        after: Option<HostList>,
    },
}

impl Change {
    /// Whether the log of `host` has changed.
    pub fn concerns(&self, host: &Nqn) -> bool {
        let sees = |list: &Option<HostList>| list.as_ref().is_some_and(|list| list.allows(host));
        match self {
            Self::Nobody => false,
            Self::Everybody => true,
            Self::Hosts { before, after } => sees(before) != sees(after),
        }
    }
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            generation: 1,
            subsystems: BTreeMap::new(),
            listeners: Vec::new(),
        }
    }
}

impl Discovery {
    /// Moves with every change of what any host can see (GENCTR).
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Sets the addresses that are listened at.
    pub fn set_listeners(&mut self, listeners: Vec<SocketAddr>) -> Change {
        if self.listeners == listeners {
            return Change::Nobody;
        }
        self.listeners = listeners;
        self.changed(Change::Everybody)
    }

    /// Adds a subsystem or changes who may see it.
    pub fn set_subsystem(&mut self, nqn: Nqn, hosts: HostList) -> Change {
        let before = self.subsystems.insert(nqn, hosts.clone());
        if before.as_ref() == Some(&hosts) {
            return Change::Nobody;
        }
        let after = Some(hosts);
        self.changed(Change::Hosts { before, after })
    }

    /// Removes a subsystem.
    pub fn remove_subsystem(&mut self, nqn: &Nqn) -> Change {
        let before = self.subsystems.remove(nqn);
        if before.is_none() {
            return Change::Nobody;
        }
        let after = None;
        self.changed(Change::Hosts { before, after })
    }

    /// Fills `page` with the log of `host` from byte `offset` on, zeroes behind its end. `local` is
    /// the address that the host has reached the target by. `None` if the offset is past the end.
    pub fn read(&self, host: &Nqn, local: IpAddr, offset: u64, page: &mut [u8]) -> Option<()> {
        page.fill(0);
        let local = local.to_canonical();
        let records = self.records(host, local).count() as u64;
        let length = (records + 1) * RECORD;
        if offset > length {
            return None;
        }
        let header = self.header(records);
        place(&header, 0, offset, page);
        // Records before the offset are passed over without being made.
        let first = (offset / RECORD).saturating_sub(1);
        for (index, record) in (first..).zip(self.records(host, local).skip(first as usize)) {
            let at = (index + 1) * RECORD;
            if at >= offset.saturating_add(page.len() as u64) {
                break;
            }
            place(&record.encode(), at, offset, page);
        }
        Some(())
    }

    fn changed(&mut self, change: Change) -> Change {
        self.generation += 1;
        change
    }

    fn header(&self, records: u64) -> [u8; DiscoveryHeader::LEN] {
        let header = DiscoveryHeader {
            genctr: self.generation,
            numrec: records,
            recfmt: 0,
        };
        let mut data = [0; DiscoveryHeader::LEN];
        header.encode(&mut data);
        data
    }

    /// The ways that `host` has: to the discovery subsystem itself, then to each subsystem it may
    /// see.
    fn records(&self, host: &Nqn, local: IpAddr) -> impl Iterator<Item = Record> {
        let discovery = self.ports(local, true).map(|port| Record {
            nqn: Nqn::DISCOVERY,
            subtype: SubsystemType::CURRENT_DISCOVERY,
            port,
        });
        let host = *host;
        let subsystems = self
            .subsystems
            .iter()
            .filter(move |(_, hosts)| hosts.allows(&host))
            .flat_map(move |(nqn, _)| {
                self.ports(local, false).map(|port| Record {
                    nqn: *nqn,
                    subtype: SubsystemType::NVM,
                    port,
                })
            });
        discovery.chain(subsystems)
    }

    /// The listeners for the one purpose or the other, as a host sees them that came by `local`.
    fn ports(&self, local: IpAddr, for_discovery: bool) -> impl Iterator<Item = Port> {
        let meant =
            move |listener: &SocketAddr| (listener.port() == DISCOVERY_PORT) == for_discovery;
        let any = self.listeners.iter().any(meant);
        self.listeners
            .iter()
            .zip(0..)
            .filter(move |(listener, _)| !any || meant(listener))
            .filter_map(move |(listener, id)| {
                let address = reachable(listener.ip(), local)?;
                let address = SocketAddr::new(address, listener.port());
                Some(Port { id, address })
            })
    }
}

const RECORD: u64 = DiscoveryEntry::LEN as u64;

struct Port {
    id: u16,
    address: SocketAddr,
}

struct Record {
    nqn: Nqn,
    subtype: SubsystemType,
    port: Port,
}

impl Record {
    fn encode(&self) -> [u8; DiscoveryEntry::LEN] {
        let address = self.port.address;
        let eflags = match self.subtype {
            SubsystemType::CURRENT_DISCOVERY => {
                DiscoveryEntry::EFLAGS_DUPLICATE | DiscoveryEntry::EFLAGS_PERSISTENT
            }
            _ => 0,
        };
        let entry = DiscoveryEntry {
            trtype: TransportType::TCP,
            adrfam: match address.ip() {
                IpAddr::V4(_) => AddressFamily::IPV4,
                IpAddr::V6(_) => AddressFamily::IPV6,
            },
            subtype: self.subtype,
            treq: Treq::NOT_SPECIFIED,
            portid: self.port.id,
            cntlid: ConnectData::DYNAMIC,
            asqsz: ADMIN_QUEUE_DEPTH,
            eflags,
            trsvcid: DiscoveryEntry::text(&address.port().to_string()),
            subnqn: Some(self.nqn),
            traddr: DiscoveryEntry::text(&address.ip().to_string()),
            sectype: SecurityType::NONE,
        };
        let mut data = [0; DiscoveryEntry::LEN];
        entry.encode(&mut data);
        data
    }
}

/// The address to announce for a listener: for "any address" the one that the host came by.
/// Loopback is of no use to a host that did not come by it.
fn reachable(listener: IpAddr, local: IpAddr) -> Option<IpAddr> {
    let listener = listener.to_canonical();
    if listener.is_unspecified() {
        let other_family = listener.is_ipv4() && local.is_ipv6();
        return (!other_family).then_some(local);
    }
    (!listener.is_loopback() || local.is_loopback()).then_some(listener)
}

/// Copies the part of `data`, which lies at `at` of the log, that falls into `page`, which begins
/// at `offset`.
fn place(data: &[u8], at: u64, offset: u64, page: &mut [u8]) {
    let skip = offset.saturating_sub(at).min(data.len() as u64) as usize;
    let to = usize::try_from(at.saturating_sub(offset)).unwrap_or(usize::MAX);
    let Some(room) = page.get_mut(to..) else {
        return;
    };
    let part = &data[skip..];
    let length = part.len().min(room.len());
    room[..length].copy_from_slice(&part[..length]);
}

#[cfg(test)]
mod tests;
