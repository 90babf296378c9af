//! What is promised, as a whole: whether the devices can keep it, and in which order a
//! configuration comes about so that they can keep it at each step. A guarantee is a part of a
//! device's time: the reads promised of the reads that it can do, and the writes of the writes.
//! More than all of it is not sold. Where the device was not measured, the guarantee is accepted
//! and shown as unverified. A start never fails for a promise: hosts wait for their volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;

use flashyard_sched::Rates;

use super::fault::Refused;
use super::work::Work;
use super::{Fault, Stack};
use crate::control::GuaranteeState;
use crate::graph::NodeId;
use crate::spec::{Conditions, Config, DeviceSpec, PolicyName, RatesSpec, TenantSpec, VolumeSpec};

/// All of a device, and what adding up its parts may err.
const ALL: f64 = 1.0 + 1e-9;

/// How what is promised of a device stands.
#[derive(Clone, Debug, PartialEq)]
enum Standing {
    /// It can give all of it.
    Verified,
    /// Not all that the device can give is known; what is known is enough. What to do about it.
    Unverified(Unknown),
    /// It can give less than what is promised. By how much.
    Oversold(Oversold),
    /// Its policy keeps no guarantees: whose, the device, and the policy.
    Ignored(String, String, PolicyName),
}

/// What is not known of a device: how much of what it can give.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unknown {
    device: String,
    what: &'static str,
    /// It was measured, and why that is no answer.
    doubt: Option<String>,
}

/// How much is promised of a device, and to whom, as parts of all that it can give.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Oversold {
    device: String,
    sold: f64,
    parts: Vec<(String, f64)>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            what,
            doubt,
        } = self;
        if let Some(doubt) = doubt {
            return write!(
                f,
                "how many {what} device `{device}` can give is not known, for {doubt}: `flashyard device calibrate {device}` \
                 measures it again"
            );
        }
        write!(
            f,
            "how many {what} device `{device}` can give is not known: measure it with `flashyard device calibrate \
             {device}`, or say so as its `capability`"
        )
    }
}

impl From<Oversold> for Fault {
    fn from(over: Oversold) -> Self {
        Refused::Oversold(over.device, over.sold, over.parts).into()
    }
}

/// How each device stands: added up when somebody asks, and forgotten with the next change.
#[derive(Clone, Debug, Default)]
pub(super) struct Standings(OnceLock<BTreeMap<NodeId, Standing>>);

impl Standings {
    pub(super) fn forget(&mut self) {
        self.0.take();
    }
}

impl Standing {
    fn state(&self) -> GuaranteeState {
        match self {
            Self::Verified => GuaranteeState::Verified,
            Self::Unverified(_) => GuaranteeState::Unverified,
            Self::Oversold(_) => GuaranteeState::Oversold,
            Self::Ignored(..) => GuaranteeState::Ignored,
        }
    }

    /// What to do about it, where there is something to do.
    fn hint(self) -> Option<String> {
        match self {
            Self::Verified => None,
            Self::Unverified(unknown) => Some(unknown.to_string()),
            Self::Oversold(over) => Some(Fault::from(over).to_string()),
            Self::Ignored(tenant, device, policy) => {
                Some(Refused::Ignored(tenant, device, policy).to_string())
            }
        }
    }
}

impl Work<'_> {
    /// Measures the emulated drives that a guarantee is held against, where that was not done.
    pub(super) fn measure_devices_of(
        &mut self,
        tenant: &TenantSpec,
        device: Option<NodeId>,
    ) -> Result<(), Fault> {
        for device in self.devices_promised(tenant, device) {
            self.capability_of(device)?;
        }
        Ok(())
    }
}

impl Stack {
    /// The devices whose time a change of a tenant promises: those that it has volumes on, and
    /// `device`, if it is to get one there. None where no more is promised than before.
    fn devices_promised(&self, tenant: &TenantSpec, device: Option<NodeId>) -> Vec<NodeId> {
        let Some(wanted) = tenant.guarantee else {
            return Vec::new();
        };
        let present = self.tenant(&tenant.name).ok();
        let before = present.and_then(|(_, record)| record.spec.guarantee);
        if device.is_none() && before.is_some_and(|before| wanted.lesser(before) == wanted) {
            return Vec::new();
        }
        let mut devices = present.map_or_else(Vec::new, |(id, _)| self.graph.devices_of(id));
        devices.extend(device.filter(|device| !devices.contains(device)));
        devices
    }

    /// Refuses what would promise more of a device than it can give: tenants as they are to be, and
    /// tenants that are to get a volume on a device. Who is promised no more than before is not
    /// refused.
    pub(super) fn check_promises(
        &self,
        changed: &[TenantSpec],
        placed: &[(NodeId, NodeId)],
    ) -> Result<(), Fault> {
        let as_they_will_be = changed.iter().map(|spec| (spec.name.as_str(), spec));
        let as_they_will_be: BTreeMap<&str, &TenantSpec> = as_they_will_be.collect();
        let mut promised: BTreeMap<NodeId, BTreeSet<NodeId>> = BTreeMap::new();
        for device in changed
            .iter()
            .flat_map(|spec| self.devices_promised(spec, None))
        {
            promised.entry(device).or_default();
        }
        for (tenant, device) in placed {
            let record = self.graph.tenant(*tenant);
            if record.is_some_and(|record| record.spec.guarantee.is_some()) {
                promised.entry(*device).or_default().insert(*tenant);
            }
        }
        for (device, new) in promised {
            let new = new.into_iter().filter(|id| !self.graph.is_on(*id, device));
            let new = new.filter_map(|id| self.graph.tenant(id));
            let there = self.graph.tenants_on(device).into_iter();
            let all = there.map(|(_, record)| record).chain(new);
            let specs = all.map(|record| {
                let changed = as_they_will_be.get(record.spec.name.as_str());
                changed.copied().unwrap_or(&record.spec)
            });
            if let Standing::Oversold(why) = self.add_up_on(device, specs) {
                return Err(why.into());
            }
        }
        let changed = changed.iter().flat_map(|spec| {
            let devices = self.devices_promised(spec, None).into_iter();
            devices.map(move |device| (spec, device))
        });
        let placed = placed.iter().filter_map(|(tenant, device)| {
            let record = self.graph.tenant(*tenant)?;
            record.spec.guarantee?;
            let is_new = !self.graph.is_on(*tenant, *device);
            is_new.then_some((&record.spec, *device))
        });
        let ignored = changed.chain(placed).find_map(|(tenant, device)| {
            let device = &self.graph.device(device)?.spec;
            ignored(tenant, &device.name, device.policy)
        });
        ignored.map_or(Ok(()), |why| Err(why.into()))
    }

    /// Tenants whose guarantee is not known to hold, and why.
    pub(super) fn doubtful_guarantees(&self) -> Vec<(String, String)> {
        let doubts = self.graph.tenants().filter_map(|(_, record)| {
            let hint = self.standing_of(&record.spec)?.hint()?;
            Some((record.spec.name.clone(), hint))
        });
        doubts.collect()
    }

    /// How a tenant's guarantee stands, and what to do if that is not well.
    pub(super) fn view_guarantee(
        &self,
        tenant: &TenantSpec,
    ) -> (Option<GuaranteeState>, Option<String>) {
        let standing = self.standing_of(tenant);
        let state = standing.as_ref().map(Standing::state);
        (state, standing.and_then(Standing::hint))
    }

    /// How a tenant's guarantee stands on the worst of its devices; `None` while it has no
    /// guarantee or no volume.
    fn standing_of(&self, tenant: &TenantSpec) -> Option<Standing> {
        tenant.guarantee?;
        let (id, _) = self.tenant(&tenant.name).ok()?;
        let standings = self.standings.0.get_or_init(|| self.add_up_all());
        let devices = self.graph.devices_of(id).into_iter();
        let all = devices.filter_map(|device| {
            let spec = self.graph.device(device).map(|device| &device.spec);
            if let Some(spec) = spec.filter(|spec| !spec.policy.kind().keeps_guarantees) {
                let (tenant, device) = (tenant.name.clone(), spec.name.clone());
                return Some(Standing::Ignored(tenant, device, spec.policy));
            }
            standings.get(&device).cloned()
        });
        all.max_by_key(Standing::state)
    }

    fn add_up_all(&self) -> BTreeMap<NodeId, Standing> {
        let devices = self.graph.devices().map(|(device, _)| device);
        let standings = devices.map(|device| {
            let tenants = self.graph.tenants_on(device).into_iter();
            let specs = tenants.map(|(_, record)| &record.spec);
            (device, self.add_up_on(device, specs))
        });
        standings.collect()
    }

    /// What is promised of a device.
    fn add_up_on<'a>(&self, id: NodeId, tenants: impl Iterator<Item = &'a TenantSpec>) -> Standing {
        let spec = self.graph.device(id).map(|device| &device.spec);
        let capability = spec.map_or_else(RatesSpec::default, DeviceSpec::reliable_capability);
        let mut standing = add_up(self.graph.name(id), capability, tenants);
        if let Standing::Unverified(unknown) = &mut standing {
            let measured = spec.and_then(|spec| spec.calibration.as_ref());
            unknown.doubt = measured.and_then(Conditions::doubt);
        }
        standing
    }
}

/// Refuses a guarantee that the policy of its device does not keep.
fn ignored(tenant: &TenantSpec, device: &str, policy: PolicyName) -> Option<Refused> {
    let is_ignored = tenant.guarantee.is_some() && !policy.kind().keeps_guarantees;
    is_ignored.then(|| Refused::Ignored(tenant.name.clone(), device.to_owned(), policy))
}

/// Refuses a configuration that promises, in the end, more of a device than it is known to give, or
/// what its policy does not keep. What is promised there already, and not kept, is not refused.
pub(super) fn check_file(service: &Stack, config: &Config) -> Result<(), Fault> {
    let named = config.devices.iter().map(|spec| (spec.name.as_str(), spec));
    let named: BTreeMap<&str, &DeviceSpec> = named.collect();
    for (device, tenants) in users(service, config) {
        let present = service.device(&device).ok();
        let spec = named.get(device.as_str()).copied();
        let Some(spec) = spec.or(present.map(|(_, device)| &device.spec)) else {
            continue;
        };
        let capability = spec.reliable_capability();
        if let Standing::Oversold(why) = add_up(&device, capability, tenants.iter()) {
            return Err(why.into());
        }
        // As with `device set`: a policy that is changed under a guarantee is warned about.
        let was_there = |tenant: &TenantSpec| {
            let (id, before) = service.tenant(&tenant.name).ok()?;
            let (guarantee, before) = (tenant.guarantee?, before.spec.guarantee?);
            let is_on = service.graph.is_on(id, present?.0);
            Some(is_on && guarantee.lesser(before) == guarantee)
        };
        let mut new = tenants.iter().filter(|it| was_there(it) != Some(true));
        if let Some(why) = new.find_map(|tenant| ignored(tenant, &device, spec.policy)) {
            return Err(why.into());
        }
    }
    Ok(())
}

/// Each device and the tenants that will have volumes on it, as they will be.
fn users(service: &Stack, config: &Config) -> BTreeMap<String, Vec<TenantSpec>> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (id, tenant) in service.graph.tenants() {
        for device in service.graph.devices_of(id) {
            let device = service.graph.name(device).to_owned();
            names.entry(device).or_default().insert(&tenant.spec.name);
        }
    }
    for volume in &config.volumes {
        if let Some(device) = device_of(service, config, volume) {
            names.entry(device).or_default().insert(&volume.tenant);
        }
    }
    let named = config.tenants.iter().map(|spec| (spec.name.as_str(), spec));
    let named: BTreeMap<&str, &TenantSpec> = named.collect();
    let tenant = |name: &str| {
        let present = service.tenant(name).ok().map(|(_, record)| &record.spec);
        named.get(name).copied().or(present).cloned()
    };
    names
        .into_iter()
        .map(|(device, names)| (device, names.into_iter().filter_map(tenant).collect()))
        .collect()
}

/// The device that a volume of the file will end on.
fn device_of(service: &Stack, config: &Config, volume: &VolumeSpec) -> Option<String> {
    let Some(pool) = &volume.pool else {
        return volume.device.clone();
    };
    let in_file = config.pools.iter().find(|spec| spec.name == *pool);
    let present = service.pool(pool).ok();
    let spec = in_file.or(present.map(|(_, record)| &record.spec))?;
    spec.devices.first().cloned()
}

/// Adds up what is promised of a device that can give so much.
fn add_up<'a>(
    device: &str,
    capability: RatesSpec,
    tenants: impl Iterator<Item = &'a TenantSpec>,
) -> Standing {
    let guaranteed = tenants.filter_map(|spec| Some((spec.name.as_str(), spec.guarantee?)));
    let parts: Vec<_> = guaranteed
        .map(|(name, guarantee)| (name, part_of(guarantee.rates(), capability.rates())))
        .collect();
    let sold: f64 = parts.iter().map(|(_, part)| part.known).sum();
    if sold > ALL {
        let parts = parts
            .iter()
            .map(|(name, part)| ((*name).to_owned(), part.known));
        return Standing::Oversold(Oversold {
            device: device.to_owned(),
            sold,
            parts: parts.collect(),
        });
    }
    match parts.iter().find_map(|(_, part)| part.unknown) {
        None => Standing::Verified,
        Some(what) => Standing::Unverified(Unknown {
            device: device.to_owned(),
            what,
            doubt: None,
        }),
    }
}

/// The part of a device's time that a guarantee takes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    /// As far as it is known what the device can give.
    known: f64,
    /// What the device gives of this is not known.
    unknown: Option<&'static str>,
}

fn part_of(owed: Rates, most: Rates) -> Part {
    const BYTES: &str = "bytes a second";
    let mut unknown = None;
    let mut part = |owed: Option<u64>, most: Option<u64>, what| match (owed, most) {
        (None, _) => 0.0,
        (Some(owed), Some(most)) if most > 0 => owed as f64 / most as f64,
        (Some(_), _) => {
            unknown = unknown.or(Some(what));
            0.0
        }
    };
    // What may be either is the dearer of the two.
    let dearer = |reads: Option<u64>, writes: Option<u64>| Some(reads?.min(writes?));
    let ios = part(owed.ios, dearer(most.read_ios, most.write_ios), "I/Os");
    let bytes = part(owed.bytes, dearer(most.read_bytes, most.write_bytes), BYTES);
    let reads = part(owed.read_ios, most.read_ios, "reads");
    let read_bytes = part(owed.read_bytes, most.read_bytes, BYTES);
    let writes = part(owed.write_ios, most.write_ios, "writes");
    let write_bytes = part(owed.write_bytes, most.write_bytes, BYTES);
    let each = reads.max(read_bytes) + writes.max(write_bytes);
    Part {
        known: ios.max(bytes).max(each),
        unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(guarantee: &str) -> TenantSpec {
        let text = format!("name = \"t\"\n{guarantee}");
        toml::from_str(&text).expect("a tenant")
    }

    fn rates(text: &str) -> RatesSpec {
        text.parse().expect("rates")
    }

    #[test]
    fn a_guarantee_is_a_part_of_the_device() {
        let most = "read_iops=400000,write_iops=40000,read_bandwidth=3GB/s,write_bandwidth=200MB/s";
        for (owed, most, known, unknown) in [
            ("read_iops=40000", most, 0.1, None),
            ("write_iops=20000", most, 0.5, None),
            ("read_iops=40000,write_iops=20000", most, 0.6, None),
            ("iops=20000", most, 0.5, None),
            ("bandwidth=100MB/s", most, 0.5, None),
            ("read_iops=40000,read_bandwidth=1500MB/s", most, 0.5, None),
            ("read_iops=400000,write_iops=40000", most, 2.0, None),
            ("write_iops=1", "read_iops=1", 0.0, Some("writes")),
            ("iops=1", "read_iops=1", 0.0, Some("I/Os")),
            (
                "read_iops=3,write_iops=9",
                "read_iops=2",
                1.5,
                Some("writes"),
            ),
        ] {
            let found = part_of(rates(owed).rates(), rates(most).rates());
            assert!((found.known - known).abs() < 1e-9, "{owed}: {found:?}");
            assert_eq!(found.unknown, unknown, "{owed}");
        }
        let nothing = part_of(Rates::NONE, Rates::NONE);
        assert_eq!((nothing.known, nothing.unknown), (0.0, None));
    }

    #[test]
    fn what_is_known_can_be_oversold_whatever_is_not_known() {
        let reads = tenant("guarantee = { read_iops = 60 }");
        let writes = tenant("guarantee = { write_iops = 1 }");
        let capability = rates("read_iops=100");
        let stands = |tenants: &[&TenantSpec]| add_up("d", capability, tenants.iter().copied());
        assert_eq!(stands(&[]), Standing::Verified);
        assert_eq!(stands(&[&reads]), Standing::Verified);
        assert!(
            matches!(stands(&[&reads, &writes]), Standing::Unverified(why)
            if why.to_string().contains("how many writes")
                && why.to_string().contains("flashyard device calibrate d"))
        );
        for oversold in [&[&reads, &reads][..], &[&reads, &writes, &reads]] {
            let hint = stands(oversold).hint().expect("it is oversold");
            assert!(hint.contains("120 %"), "{hint}");
        }
    }
}
