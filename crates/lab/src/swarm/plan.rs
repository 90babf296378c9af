//! What a seed decides: the machine, its limits and devices, its tenants, and which kinds of
//! trouble there are.

use std::fmt;
use std::str::FromStr;

use flashyard_engine::Limits;
use flashyard_runtime::sim::{Config, DiskConfig};
use flashyard_time::{Duration, Rng};

use super::stamp::TENANTS;

/// Discovery controllers of a target with small limits.
const DISCOVERY: usize = 4;

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Partitions, resets, connections that fall silent, machines of hosts that crash.
    Network,
    /// Devices that are slow, silent or fail.
    Disk,
    /// The target is killed, or its power is cut.
    Power,
    /// Volumes and tenants come, change and go; policies are replaced.
    Config,
    /// Hosts that break every rule.
    Hostile,
    /// Small limits and little buffer memory.
    Limits,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Network,
        Self::Disk,
        Self::Power,
        Self::Config,
        Self::Hostile,
        Self::Limits,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Power => "power",
            Self::Config => "config",
            Self::Hostile => "hostile",
            Self::Limits => "limits",
        }
    }
}

/// A name that is no kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownFault;

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Fault::ALL.iter().map(|fault| fault.name()).collect();
        write!(f, "faults are {}", names.join(", "))
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let mut all = Self::ALL.into_iter();
        all.find(|fault| fault.name() == text).ok_or(UnknownFault)
    }
}

/// What stores blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory, which is forgotten when the target ends.
    Memory,
    /// Nowhere.
    Null,
    /// A file on a simulated disk.
    File,
    /// A block device.
    Block,
    /// An emulated drive in memory.
    Flash,
}

/// A device of the target.
#[derive(Clone, Debug)]
pub struct DevicePlan {
    /// What it is.
    pub medium: Medium,
    /// Bytes per block.
    pub block_size: u32,
    /// Its size.
    pub bytes: u64,
    /// Cut into volumes; otherwise one tenant has it whole.
    pub pool: bool,
    /// Its home.
    pub core: usize,
    /// Which policy the switch before it begins with.
    pub policy: u64,
}

/// What a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Uses our host library and verifies everything.
    Library,
    /// Speaks PDUs, keeps to the rules until its end, and verifies everything.
    Plain,
    /// Breaks the rules.
    Hostile,
}

/// A host.
#[derive(Clone, Copy, Debug)]
pub struct HostPlan {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub tenant: usize,
    /// Its machine.
    pub machine: usize,
    /// Commands it gives in its life, about.
    pub commands: u64,
}

/// One life of a target.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What all of it follows from.
    pub seed: u64,
    /// Network, disks and buffer memory.
    pub world: Config,
    /// The kinds of trouble that it has.
    pub faults: Vec<Fault>,
    /// Cores of the target.
    pub cores: usize,
    /// Machines of hosts.
    pub machines: usize,
    /// Tenants.
    pub tenants: usize,
    /// Bounds of the target.
    pub limits: Limits,
    /// Its devices.
    pub devices: Vec<DevicePlan>,
    /// Its tenants.
    pub hosts: Vec<HostPlan>,
    /// Most bytes of one command.
    pub most_bytes: u32,
    /// Trouble comes this often, about.
    pub trouble: Duration,
    /// How long hosts work at most.
    pub span: Duration,
}

impl Plan {
    /// What `seed` decides, of the kinds of trouble that are allowed.
    pub fn draw(seed: u64, allowed: &[Fault]) -> Self {
        let mut rng = Rng::new(seed).split(0x11fe);
        let mut faults = Vec::new();
        for fault in Fault::ALL {
            // Drawn for all kinds, so that the rest of the life is the same when fewer are allowed.
            let wanted = rng.chance(1, 2);
            if wanted && allowed.contains(&fault) {
                faults.push(fault);
            }
        }
        let cores = 1 + rng.below(4) as usize;
        let tenants = 1 + rng.below(TENANTS as u64) as usize;
        let machines = 1 + rng.below(2) as usize;
        let wide = rng.chance(1, 2);
        let world = world(seed, &mut rng, wide, faults.contains(&Fault::Limits));
        let limits = limits(&mut rng, faults.contains(&Fault::Limits));
        let most_bytes = most_bytes(&mut rng, wide).min(limits.transfer_bytes);
        let devices = devices(&mut rng, cores);
        let hosts = hosts(
            &mut rng,
            tenants,
            machines,
            faults.contains(&Fault::Hostile),
        );
        Self {
            seed,
            world,
            faults,
            cores,
            machines,
            tenants,
            limits,
            devices,
            hosts,
            most_bytes,
            trouble: Duration::from_us(1_000 + rng.below(300_000)),
            span: Duration::from_secs(5 + rng.below(90)),
        }
    }

    /// Whether this kind of trouble is part of it.
    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// Whether a host that does nothing wrong may lose its association, or not get one.
    pub fn may_lose(&self) -> bool {
        self.faults.iter().any(|fault| *fault != Fault::Hostile)
    }
}

/// A calm world or a stormy one, which is narrower unless `wide`.
fn world(seed: u64, rng: &mut Rng, wide: bool, little_memory: bool) -> Config {
    let stormy = rng.chance(2, 3);
    let base = match stormy {
        true => Config::stormy(seed),
        false => Config::calm(seed),
    };
    let socket_buffer = match wide {
        true => base.socket_buffer.max(64 << 10),
        false => base.socket_buffer,
    };
    let cache_bytes = 1 << (16 + rng.below(8));
    Config {
        socket_buffer,
        fragment: base.fragment && !wide,
        latency: (base.latency.0, base.latency.1.min(Duration::from_ms(3))),
        connect_timeout: Duration::from_secs(5),
        disk: DiskConfig {
            cache_bytes,
            ..base.disk.clone()
        },
        buffer_bytes: if little_memory { 12 << 20 } else { 512 << 20 },
        max_steps: 30_000_000,
        ..base
    }
}

fn most_bytes(rng: &mut Rng, wide: bool) -> u32 {
    let most: &[u32] = match wide {
        true => &[16 << 10, 128 << 10, 1 << 20],
        false => &[4096, 16 << 10, 64 << 10],
    };
    rng.pick(most).copied().unwrap_or(4096)
}

fn limits(rng: &mut Rng, small: bool) -> Limits {
    let base = Limits::default();
    // Drawn in any case, so that the rest of the life is the same without.
    let queues_of_all = 64 + rng.below(200) as usize;
    let unconnected = 8 + rng.below(40) as usize;
    let transfer = 1_u32 << (16 + rng.below(5));
    let queues = 1 + rng.below(4) as u16;
    let depth = 2 + rng.below(30) as u16;
    let (factor, room) = (2 + rng.below(4) as usize, 1 + rng.below(8) as usize);
    let wait = Duration::from_ms(200 + rng.below(20_000));
    let stall = Duration::from_secs(1 + rng.below(30));
    if !small {
        return base;
    }
    let connection_bytes = transfer as usize * factor;
    Limits {
        // What newcomers and discovery may have is no part of what tenants get.
        connections: queues_of_all + unconnected + DISCOVERY,
        discovery_controllers: DISCOVERY,
        unconnected,
        unconnected_per_address: unconnected.div_ceil(2),
        transfer_bytes: transfer,
        io_queues: queues,
        queue_depth: depth,
        connection_bytes,
        tenant_bytes: connection_bytes * room,
        core_bytes: connection_bytes * room * 2,
        capsule_bytes: 64 << 10,
        tenant_capsule_bytes: 32 << 10,
        receive_bytes: 1 << 20,
        output_bytes: 64 << 10,
        admin_output_bytes: 16 << 10,
        wait_deadline: wait,
        stall_deadline: stall,
        data_deadline: stall,
        ..base
    }
}

fn devices(rng: &mut Rng, cores: usize) -> Vec<DevicePlan> {
    let count = 1 + rng.below(3);
    let device = |index| {
        let medium = match rng.below(16) {
            0..5 => Medium::Memory,
            // Every tenant has a volume on the first.
            5 if index > 0 => Medium::Null,
            5..11 => Medium::File,
            11..15 => Medium::Block,
            _ => Medium::Flash,
        };
        DevicePlan {
            medium,
            block_size: if rng.chance(1, 2) { 512 } else { 4096 },
            bytes: match medium {
                Medium::Flash => 64 << 20,
                _ => (6 + rng.below(8)) << 20,
            },
            pool: medium != Medium::Null && (index == 0 || rng.chance(2, 3)),
            core: rng.below(cores as u64) as usize,
            policy: rng.next_u64(),
        }
    };
    (0..count).map(device).collect()
}

fn hosts(rng: &mut Rng, tenants: usize, machines: usize, hostile: bool) -> Vec<HostPlan> {
    let count = 1 + rng.below(5);
    let mut hosts: Vec<HostPlan> = (0..count)
        .map(|_| HostPlan {
            kind: if rng.chance(1, 2) {
                Kind::Library
            } else {
                Kind::Plain
            },
            tenant: rng.below(tenants as u64) as usize,
            machine: rng.below(machines as u64) as usize,
            commands: 10 + rng.below(120),
        })
        .collect();
    if hostile {
        // One tenant is theirs alone: the content of its volumes is unknown.
        let theirs = tenants - 1;
        hosts.retain(|host| host.tenant != theirs);
        hosts.extend((0..=rng.below(3)).map(|_| HostPlan {
            kind: Kind::Hostile,
            tenant: theirs,
            machine: rng.below(machines as u64) as usize,
            commands: 20 + rng.below(200),
        }));
    }
    hosts
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cores,
            tenants,
            most_bytes,
            ..
        } = self;
        write!(
            f,
            "{cores} cores, {tenants} tenants, up to {most_bytes} bytes; devices:"
        )?;
        for device in &self.devices {
            let pool = if device.pool { " pool" } else { "" };
            write!(
                f,
                " {:?}/{}{pool}@{}",
                device.medium, device.block_size, device.core
            )?;
        }
        write!(f, "; hosts:")?;
        for host in &self.hosts {
            write!(f, " {:?}/{}", host.kind, host.tenant)?;
        }
        write!(f, "; trouble:")?;
        for fault in &self.faults {
            write!(f, " {}", fault.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_faults_are_read_back() {
        for fault in Fault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert_eq!("rain".parse::<Fault>(), Err(UnknownFault));
    }

    #[test]
    fn fewer_faults_leave_the_rest_as_it_was() {
        for seed in 0..200 {
            let (all, none) = (Plan::draw(seed, &Fault::ALL), Plan::draw(seed, &[]));
            assert_eq!(
                (all.cores, all.tenants, all.devices.len()),
                (none.cores, none.tenants, none.devices.len())
            );
            assert!(none.faults.is_empty() && !none.may_lose());
        }
    }
}
