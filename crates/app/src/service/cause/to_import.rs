//! What a file names and a device may have already, and how it is imported.

use std::fmt;

use super::ToImport;
use crate::spec::VolumeSpec;

impl fmt::Display for ToImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(name, devices) => write!(
                f,
                "the devices {devices} hold something, such as this array, and the state does not know it: import it with `flashyard pool \
                 import {name} --devices {devices}`, or all that the file says with `flashyard apply FILE --import`"
            ),
            Self::Partition(name, device) => write!(
                f,
                "device `{device}` has a partition `{name}` that the state does not know: import it with `flashyard partition \
                 import {name} --device {device}`"
            ),
            Self::Pool(name, device) => write!(
                f,
                "device `{device}` holds a pool that the state does not know: import it with `flashyard pool import {name} --device \
                 {device}`, and with it the volumes that the file names"
            ),
            Self::Volume(spec, pool) => write!(
                f,
                "the file has it in pool `{pool}`, and the state does not know it: import it with `flashyard volume import {} --pool {pool} \
                 --tenant {}{}{}`",
                spec.name,
                spec.tenant,
                // In the pool it may have another name.
                option(" --uuid ", spec.uuid),
                others(spec)
            ),
            Self::Whole(spec, device) => {
                let uuid = spec.uuid.map_or("UUID".to_owned(), |uuid| uuid.to_string());
                write!(
                    f,
                    "device `{device}` may hold it, and the state does not know it: give it back with `flashyard volume create {} \
                     --device {device} --tenant {} --keep --uuid {uuid}{}`, or have it zeroed with --erase",
                    spec.name,
                    spec.tenant,
                    others(spec)
                )
            }
            Self::Hosts => f.write_str(
                "its hosts are asked to come again until its volumes are imported: one that reconnects and misses a disk would give \
                 that up. A volume that is not to come back goes out of the file: `flashyard apply FILE`",
            ),
            Self::On(kind, name) => write!(
                f,
                "it is imported with {} `{name}`, which is to be imported first",
                kind.name()
            ),
        }
    }
}

/// What else a file says of a volume: what hosts know it by besides its UUID, and its protection.
fn others(spec: &VolumeSpec) -> String {
    let read_only = match spec.read_only {
        Some(true) => " --read-only",
        _ => "",
    };
    [
        option(" --nguid ", spec.nguid),
        option(" --eui64 ", spec.eui64),
        option(" --nsid ", spec.nsid),
        read_only.to_owned(),
    ]
    .concat()
}

fn option(name: &str, value: Option<impl fmt::Display>) -> String {
    value.map_or_else(String::new, |value| format!("{name}{value}"))
}
