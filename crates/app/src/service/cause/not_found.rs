//! What is not there, in words.

use std::fmt;

use super::NotFound;

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(error) => error.fmt(f),
            Self::Thing(kind, name) => {
                let kind = kind.name();
                write!(
                    f,
                    "there is no {kind} `{name}`: `flashyard {kind} list` shows all"
                )
            }
            Self::Reference {
                kind,
                name,
                wanted,
                missing,
            } => write!(
                f,
                "{} `{name}`: there is no {} `{missing}`: add it to the file or create it first",
                kind.name(),
                wanted.name()
            ),
            Self::InPool(error) => error.fmt(f),
            Self::Partition(error) => error.fmt(f),
            Self::PartitionToImport(device, Some(name)) => write!(
                f,
                "device `{device}` has no partition `{name}`: `flashyard partition import --device {device} --list` shows what it \
                 has"
            ),
            Self::PartitionToImport(device, None) => write!(
                f,
                "device `{device}` has no partition that this target does not know, so there is nothing to import: `flashyard \
                 partition create` cuts one"
            ),
            Self::ToImport(volume, pool) => write!(
                f,
                "pool `{pool}` holds no volume `{volume}`: `flashyard pool import {pool} --device DEVICE --list` shows what it \
                 holds"
            ),
            Self::NoVolume(tenant) => write!(
                f,
                "tenant `{tenant}` has no volume that is served: `flashyard volume create` makes one"
            ),
        }
    }
}
