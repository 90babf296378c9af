//! The policy of a device, as it is written: one of the registry of `sched`.

use std::borrow::Cow;
use std::fmt;

use clap::builder::PossibleValue;
use flashyard_sched::{POLICIES, POLICY_NAMES, PolicyKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The policy of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PolicyName(&'static PolicyKind);

/// All of them, for the command line.
static ALL: [PolicyName; POLICIES.len()] = {
    let mut all = [PolicyName(&POLICIES[0]); POLICIES.len()];
    let mut place = 0;
    while place < all.len() {
        all[place] = PolicyName(&POLICIES[place]);
        place += 1;
    }
    all
};

impl PolicyName {
    /// Order of arrival: no switch at all.
    pub fn fifo() -> Self {
        Self::of("fifo")
    }

    /// One that is known to be there.
    fn of(name: &str) -> Self {
        Self(PolicyKind::named(name).expect("the registry has it"))
    }

    /// What the registry has of it.
    pub fn kind(self) -> &'static PolicyKind {
        self.0
    }

    /// The policy as it is written.
    pub fn name(self) -> &'static str {
        self.0.name
    }
}

/// `fair`.
impl Default for PolicyName {
    fn default() -> Self {
        Self::of("fair")
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl clap::ValueEnum for PolicyName {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        // A sentence of help has no full stop.
        let help = self.0.about.trim_end_matches('.');
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl Serialize for PolicyName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = PolicyName;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a policy")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicyName, E> {
                let kind = PolicyKind::named(name).map(PolicyName);
                kind.ok_or_else(|| E::unknown_variant(name, POLICY_NAMES))
            }
        }
        value.deserialize_str(Name)
    }
}

impl JsonSchema for PolicyName {
    fn schema_name() -> Cow<'static, str> {
        "PolicyName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |kind: &PolicyKind| json_schema!({ "type": "string", "const": kind.name, "description": kind.about });
        let all: Vec<Schema> = POLICIES.iter().map(one).collect();
        json_schema!({
            "oneOf": all,
            "description": "The scheduling policies that can stand in front of a device."
        })
    }
}
