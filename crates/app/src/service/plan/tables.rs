//! Tables of keys and values, and what they say.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::service::Fault;
use crate::service::fault::{Invalid, Refused};
use crate::spec::{
    DeviceSpec, FunctionSpec, Keys, PoolSpec, Section, SpecError, TargetSettings, TenantSpec,
    VolumeSpec, differences, merge, name_of,
};
use crate::units;

/// What an object is to be that is there: see [`merge`]. What is fixed stays if the file does not
/// say it any more.
pub(super) fn merged<T: DeserializeOwned + Serialize>(
    section: Section,
    now: &T,
    said: Option<&Keys>,
    table: &Keys,
) -> Result<T, Fault> {
    let mut said = said.cloned().unwrap_or_default();
    said.retain(|key, _| section.has_default(key));
    typed(section, name_of(table), merge(&keys(now), &said, table))
}

/// A device's table in a file, in which a partition that asks for the units that it has does so in
/// the words that are kept of it: `channels`, `units` and `count` may mean the same ones, and a
/// partition grows.
pub(super) fn in_same_words(now: &DeviceSpec, table: &Keys) -> Keys {
    let mut table = table.clone();
    let asked = typed::<DeviceSpec>(Section::Device, &now.name, table.clone());
    let asked = asked.ok().and_then(|spec| spec.partition().cloned());
    if let (Some(asked), Some(there)) = (asked, now.partition())
        && asked.asks_for(there).is_ok()
    {
        table.insert("partition".to_owned(), Value::Object(keys(there)));
    }
    table
}

/// Refuses to change what is fixed when the object is made.
pub(super) fn check_fixed(
    section: Section,
    name: &str,
    now: &Keys,
    wanted: &Keys,
) -> Result<(), Fault> {
    let mut found = differences(now, wanted).into_iter();
    let top = |key: &str| key.split('.').next().unwrap_or_default().to_owned();
    match found.find(|it| !section.can_change(&top(&it.key))) {
        None => Ok(()),
        Some(it) => {
            let show = |value: Option<&Value>| units::shown(&it.key, value);
            let (now, wanted) = (show(it.old.as_ref()), show(it.new.as_ref()));
            Err(Refused::Differs(section, name.to_owned(), it.key, now, wanted).into())
        }
    }
}

/// The keys of an object, as they are written.
pub(in crate::service) fn keys<T: Serialize>(spec: &T) -> Keys {
    match serde_json::to_value(spec) {
        Ok(Value::Object(keys)) => keys,
        _ => unreachable!("specifications are tables of plain data"),
    }
}

/// A table in types.
pub(super) fn typed<T: DeserializeOwned>(
    section: Section,
    name: &str,
    table: Keys,
) -> Result<T, Fault> {
    serde_json::from_value(Value::Object(table)).map_err(|error| {
        let what = format!("{} `{name}`: {error}", section.name());
        Invalid::Spec(SpecError::Syntax(None, what)).into()
    })
}

/// What a file said, as it is stored: values in their units, and what it left out as it is then.
pub(super) fn normal(section: Section, said: &Keys) -> Keys {
    fn through<T: DeserializeOwned + Serialize>(said: &Keys) -> Option<Keys> {
        let read: T = serde_json::from_value(Value::Object(said.clone())).ok()?;
        Some(keys(&read))
    }
    let all = match section {
        Section::Target => through::<TargetSettings>(said),
        Section::Device => through::<DeviceSpec>(said),
        Section::Pool => through::<PoolSpec>(said),
        Section::Tenant => through::<TenantSpec>(said),
        Section::Volume => through::<VolumeSpec>(said),
        Section::Function => through::<FunctionSpec>(said),
    };
    let mut all = all.unwrap_or_default();
    all.retain(|key, _| said.contains_key(key));
    all
}
