//! What a file names and a device may have already, and how it is imported.

use std::fmt;

use super::ToImport;
use crate::spec::VolumeSpec;

impl fmt::Display for ToImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
                 --tenant {}{}`",
                spec.name,
                spec.tenant,
                numbers(spec)
            ),
            Self::Whole(spec, device) => {
                let uuid = spec.uuid.map_or("UUID".to_owned(), |uuid| uuid.to_string());
                write!(
                    f,
                    "device `{device}` may hold it, and the state does not know it: give it back with `flashyard volume create {} \
                     --device {device} --tenant {} --keep --uuid {uuid}{}`, or have it zeroed with --erase",
                    spec.name,
                    spec.tenant,
                    numbers(spec)
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

/// What hosts know a volume by, besides its UUID, as a file has it.
fn numbers(spec: &VolumeSpec) -> String {
    let flag = |name: &str, value: Option<String>| {
        let value = value.map(|value| format!(" --{name} {value}"));
        value.unwrap_or_default()
    };
    [
        flag("nguid", spec.nguid.map(|it| it.to_string())),
        flag("eui64", spec.eui64.map(|it| it.to_string())),
        flag("nsid", spec.nsid.map(|it| it.to_string())),
    ]
    .concat()
}
