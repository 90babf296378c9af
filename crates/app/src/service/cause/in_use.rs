//! What something else has, in words.

use std::fmt;

use super::InUse;

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(error) => error.fmt(f),
            Self::Name(kind, name) => write!(f, "there is a {} `{name}` already", kind.name()),
            Self::Tenant(name) => write!(
                f,
                "there is a tenant `{name}` already: use `tenant set` to change it"
            ),
            Self::Open(error) => error.fmt(f),
            Self::Store(Some(device), error) => write!(f, "device `{device}`: {error}"),
            Self::Store(None, error) | Self::Partition(error) => error.fmt(f),
            Self::Path(path, device) => write!(f, "{path} is device `{device}` already"),
            Self::Below(kind, name, user) => write!(
                f,
                "{} `{name}` is used by {user}: delete that first",
                kind.name()
            ),
            Self::Taken(device, user) => write!(f, "device `{device}` is used by {user}"),
            Self::Measured(device, user) => write!(
                f,
                "device `{device}` is used by {user}: --destroy would write over that; leave it out, which harms nothing"
            ),
            Self::Has(kind, name, of, one) => write!(
                f,
                "{} `{name}` has {} `{one}`: delete its {} first",
                kind.name(),
                of.name(),
                of.plural()
            ),
            Self::Socket(path, function) => write!(
                f,
                "{path} is the socket of function `{function}` already: choose another one"
            ),
            Self::SocketPlace(error) => error.fmt(f),
            Self::Connected(function) => write!(
                f,
                "a virtual machine is connected to function `{function}` and would lose its disks at once: shut it down \
                 first, or say --yes"
            ),
            Self::Waiting(tenant, volume) => write!(
                f,
                "volume `{volume}` of tenant `{tenant}` waits to be imported: import it, or take it out of the file and say \
                 `flashyard apply FILE`, first"
            ),
            Self::State(error) => error.fmt(f),
            Self::Nsid(volume, tenant, nsid) => write!(
                f,
                "volume `{volume}` of tenant `{tenant}` has nsid {nsid}: give another, or none for a free one"
            ),
            Self::Engine(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            // Names of this target were looked at before.
            Self::ForeignPartition(device, name) => write!(
                f,
                "device `{device}` has a partition `{name}` that this target does not know: `flashyard partition import {name} \
                 --device {device}` takes it over with what is in it (`flashyard apply FILE --import` that of a file); \
                 `flashyard partition delete {name} --device {device} --yes` destroys it"
            ),
            Self::ForeignUnits(device, unit, name) => write!(
                f,
                "unit {unit} of device `{device}` belongs to partition `{name}`, which this target does not know: choose free \
                 ones, or take it over with `flashyard partition import {name} --device {device}`; \
                 `flashyard partition delete {name} --device {device} --yes` destroys it"
            ),
            Self::KnownPartition(name, device) => write!(
                f,
                "partition `{name}` of device `{device}` is imported already: `flashyard partition show {name}`"
            ),
            Self::NameOfFound(name, device, None) => write!(
                f,
                "device `{device}` has a partition `{name}`, and another device here is called so: the name of a partition is \
                 recorded on its device and stays, so remove the other one with `flashyard device delete {name}`, which leaves \
                 what it stores on it (a device in memory forgets it), and add it under another name"
            ),
            Self::NameOfFound(name, device, Some(other)) => write!(
                f,
                "device `{device}` has a partition `{name}`, and so has device `{other}`, whose one is known here: the name of a \
                 partition is recorded on its device and stays, so one target serves only one of both. Import the others by \
                 name, and this one at another target; or copy what is in one of both elsewhere and delete it"
            ),
            Self::Nqn(tenant, other, nqn) => write!(
                f,
                "tenant `{tenant}`: the subsystem of tenant `{other}` is called {nqn} (a tenant that is renamed keeps its NQN): \
                 give another `nqn`, or use that tenant"
            ),
            Self::Identity(volume, key, value, other) => write!(
                f,
                "volume `{volume}`: {key} {value} is that of volume `{other}`: hosts would take both for one disk"
            ),
            Self::UnknownVolume(volume, pool, uuid, name) => write!(
                f,
                "volume `{volume}`: pool `{pool}` holds a volume of uuid {uuid}, called `{name}`, which the state does not know: \
                 import it by \
                 `flashyard volume import {volume} --pool {pool} --tenant TENANT --uuid {uuid}`, or give another uuid"
            ),
            Self::Imported(volume, (name, tenant)) => write!(
                f,
                "volume `{volume}` is imported already: it is volume `{name}` of tenant `{tenant}`; \
                 `flashyard volume move` gives it to another"
            ),
            Self::SamePool(device, pool, uuid) => write!(
                f,
                "device `{device}` holds pool {uuid}, and that is pool `{pool}` here already: one of both devices is a copy of \
                 the other; hosts would take their volumes for the same disks"
            ),
            Self::NotImported(pool, volume) => write!(
                f,
                "pool `{pool}` holds volume `{volume}`, which the target does not know: import it by `flashyard volume import \
                 {volume} --pool {pool} --tenant TENANT`, then delete it if it is not needed"
            ),
            Self::Migrating(volume, pool) => write!(
                f,
                "volume `{volume}` is on its way to pool `{pool}`: wait for it (`flashyard volume show {volume}`), or have it stay \
                 with `flashyard volume move {volume} --cancel`"
            ),
            Self::MovesBack(volume, to, from, other) => write!(
                f,
                "volume `{other}` is on its way from pool `{to}` towards pool `{from}`, and two volumes cannot go opposite ways at \
                 the same time: move volume `{volume}` when that is there (`flashyard volume show {other}`)"
            ),
            Self::MigrationOf(pool, volume) => write!(
                f,
                "pool `{pool}` holds a copy of volume `{volume}`, which goes to another pool: wait for it \
                 (`flashyard volume show {volume}`)"
            ),
            Self::Port(address) => write!(
                f,
                "cannot listen on {address}: another program uses the port; stop it or choose another --listen"
            ),
            Self::OwnPort(address, own) => write!(
                f,
                "cannot listen on {address} while the target listens on {own}: set another port first, or keep that address"
            ),
        }
    }
}
