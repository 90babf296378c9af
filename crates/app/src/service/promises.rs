//! What a configuration promises, as a whole: whether the devices can keep it in the end, and in which order it comes
//! about so that they can keep it at each step.

use std::collections::{BTreeMap, BTreeSet};

use super::calibrate::{Untenable, add_up, emulated};
use super::{Fault, Service};
use crate::spec::{Config, DeviceKind, RatesSpec, TenantSpec, VolumeSpec};

/// Refuses a configuration that in the end promises more of a device than it can give. Emulated drives are measured if
/// they were not before; of other devices that nobody has measured nothing is said here, for they have to be there to be
/// measured.
pub(super) fn check_end(service: &mut Service, config: &mut Config) -> Result<(), Fault> {
    for (device, tenants) in users(service, config) {
        if !tenants.iter().any(|tenant| tenant.guarantee.is_some()) {
            continue;
        }
        let capability = capability(service, config, &device)?;
        if let Err(Untenable::Oversold(why)) = add_up(&device, capability, tenants.iter()) {
            return Err(why);
        }
    }
    Ok(())
}

/// Each device and the tenants that will have volumes on it, as they will be.
fn users(service: &Service, config: &Config) -> BTreeMap<String, Vec<TenantSpec>> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for tenant in service.inventory.tenants.keys() {
        for device in service.devices_of(tenant) {
            names.entry(device).or_default().insert(tenant);
        }
    }
    for volume in &config.volumes {
        if let Some(device) = device_of(service, config, volume) {
            names.entry(device).or_default().insert(&volume.tenant);
        }
    }
    let tenant = |name: &str| {
        let told = config.tenants.iter().find(|spec| spec.name == name);
        let present = service.inventory.tenants.get(name);
        told.or(present.map(|record| &record.spec)).cloned()
    };
    names
        .into_iter()
        .map(|(device, names)| (device, names.into_iter().filter_map(tenant).collect()))
        .collect()
}

/// The device that a volume of the file will end on.
fn device_of(service: &Service, config: &Config, volume: &VolumeSpec) -> Option<String> {
    let Some(pool) = &volume.pool else {
        return volume.device.clone();
    };
    let told = config.pools.iter().find(|spec| spec.name == *pool);
    let present = service.inventory.pools.get(pool);
    let spec = told.or(present.map(|record| &record.spec))?;
    spec.devices.first().cloned()
}

/// What a device can give. What was found out about one that is yet to be made goes into the file's word of it.
fn capability(service: &mut Service, config: &mut Config, name: &str) -> Result<RatesSpec, Fault> {
    let told = config.devices.iter_mut().find(|spec| spec.name == name);
    let Some(spec) = told else {
        return service.capability_of(name);
    };
    match spec.capability {
        Some(capability) => Ok(capability),
        None if service.inventory.devices.contains_key(name) => service.capability_of(name),
        None if spec.kind == DeviceKind::Flash => {
            let (capability, curve) = emulated(spec)?;
            (spec.capability, spec.curve) = (Some(capability), curve);
            Ok(capability)
        }
        None => Ok(RatesSpec::default()),
    }
}

/// How a tenant changes: what is taken from it first, before others are given more; then the rest.
pub(super) struct Stages {
    pub(super) first: Option<TenantSpec>,
    pub(super) then: Option<TenantSpec>,
}

/// The change of a tenant from `present` to `wanted`. Of each rate that it is guaranteed it has the lesser of the two
/// first.
pub(super) fn stages(present: &TenantSpec, wanted: TenantSpec) -> Stages {
    let before = present.guarantee.unwrap_or_default();
    let after = wanted.guarantee.unwrap_or_default();
    let lesser = before.lesser(after);
    if lesser == before {
        // Nothing is taken away.
        return Stages {
            first: None,
            then: Some(wanted),
        };
    }
    let first = TenantSpec {
        guarantee: (lesser != RatesSpec::default()).then_some(lesser),
        ..wanted.clone()
    };
    Stages {
        first: Some(first),
        then: (lesser != after).then_some(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(guarantee: &str) -> TenantSpec {
        let text = format!("name = \"t\"\n{guarantee}");
        toml::from_str(&text).expect("a tenant")
    }

    #[test]
    fn less_comes_before_more() {
        let none = tenant("");
        let reads = tenant("guarantee = { read_iops = 1000 }");
        let fewer = tenant("guarantee = { read_iops = 400 }");
        let both = tenant("guarantee = { read_iops = 400, write_iops = 50 }");
        let named = tenant("guarantee = { read_iops = 1000 }\nweight = 7");
        let table = [
            (&none, &reads, None, Some(&reads)),
            (&reads, &none, Some(&none), None),
            (&reads, &fewer, Some(&fewer), None),
            (&fewer, &reads, None, Some(&reads)),
            (&fewer, &both, None, Some(&both)),
            (&reads, &both, Some(&fewer), Some(&both)),
            (&both, &reads, Some(&fewer), Some(&reads)),
            (&reads, &named, None, Some(&named)),
        ];
        for (present, wanted, first, then) in table {
            let found = stages(present, wanted.clone());
            assert_eq!((found.first.as_ref(), found.then.as_ref()), (first, then));
        }
    }
}
