//! What is not done, in words.

use std::fmt;

use flashyard_block::array::ArrayError;

use super::Refused;
use crate::control::Risk;
use crate::spec::Section;
use crate::units;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(fault) => fault.fmt(f),
            Self::Other(section, name, what) => write!(
                f,
                "{} `{name}` is there already with other settings ({what}): nothing was changed",
                section.name()
            ),
            Self::Differs(Section::Volume, name, key, now, wanted) if key == "pool" => {
                let wanted = wanted.trim_matches('"');
                write!(
                    f,
                    "volume `{name}` is in pool {now} and not in `{wanted}`, as the file says: say so in the file, or bring it there \
                     while hosts use it by `flashyard volume move {name} --to {wanted}`"
                )
            }
            Self::Array(error @ ArrayError::MayBeOld(_)) => {
                write!(f, "{error} (`flashyard pool start POOL --degraded`)")
            }
            Self::Array(error) => error.fmt(f),
            Self::OtherCore(partition) => write!(
                f,
                "partition `{partition}` is on another core than the other devices of the array: use partitions of one device, or \
                 one core"
            ),
            Self::Differs(Section::Device, name, key, now, wanted) if key == "key" => {
                let wanted = wanted.trim_matches('"');
                write!(
                    f,
                    "device `{name}` is opened with the key `{now}` and not with `{wanted}`, as the file says: say so in the file, or \
                     change the key by `flashyard device rekey {name} --key '{wanted}'`"
                )
            }
            Self::Differs(Section::Pool, name, key, now, wanted) if key == "key" => match &**now {
                "(default)" => write!(
                    f,
                    "pool `{name}` is not encrypted, and the file says the key `{wanted}`: a pool that is there is not encrypted \
                     afterwards: make another one, and bring its volumes there with `flashyard volume move`"
                ),
                _ => write!(
                    f,
                    "pool `{name}` is opened with the key `{now}` and not with `{wanted}`, as the file says: say so in the file, or \
                     change the key by `flashyard pool rekey {name} --key '{wanted}'`"
                ),
            },
            Self::Differs(kind, name, key, now, wanted) => {
                let kind = kind.name();
                write!(
                    f,
                    "{kind} `{name}` exists and is not what the file says: its {key} is {now}, the file says {wanted}: rename it \
                     in the file, or delete the old one with `flashyard {kind} delete {name}`"
                )
            }
            Self::Renamed(kind, old, new) => {
                let kind = kind.name();
                write!(
                    f,
                    "{kind} `{old}` is called `{new}` since `flashyard {kind} rename`: call it so in the file, or take the old \
                     name again with `flashyard {kind} rename {new} {old}`"
                )
            }
            Self::Unfinished => f.write_str(
                "an earlier file failed half way, and not all of it could be taken back: restart the target, which tries \
                 that again and says what is in the way",
            ),
            Self::Risks(risks) => {
                let all: Vec<String> = risks.iter().map(Risk::to_string).collect();
                write!(f, "{}: say --yes if that is meant", all.join("; "))
            }
            Self::OtherTenants(volume, now, wanted) => write!(
                f,
                "volume `{volume}` is tenant `{now}`'s: say so in the file, or give it to `{wanted}` with its content by \
                 `flashyard volume move {volume} --tenant {wanted} --yes`"
            ),
            Self::AlreadyTheirs(volume, tenant) => {
                write!(f, "volume `{volume}` is tenant `{tenant}`'s already")
            }
            Self::Fixed(kind, name, key, now) => {
                let kind = kind.name();
                write!(
                    f,
                    "{kind} `{name}`: its {key} is {now} and stays, for hosts would take it for another disk: leave `{key}` out, or \
                     delete the {kind} and make it anew"
                )
            }
            Self::HalfMade(volume) => write!(
                f,
                "volume `{volume}` is half made or half deleted: `flashyard volume delete {volume}` finishes that"
            ),
            Self::AlreadyThere(volume, pool) => {
                write!(f, "volume `{volume}` is in pool `{pool}` already")
            }
            Self::OverQuota(volume, tenant, pool, needed, free) => write!(
                f,
                "volume `{volume}` takes {needed} bytes of pool `{pool}` and the quota of tenant `{tenant}` there leaves {free}: \
                 raise it by `flashyard tenant set {tenant} --quota {pool}=SIZE`"
            ),
            Self::KeptSo(volume) => write!(
                f,
                "volume `{volume}` is kept so already: give another --compression or --chunk"
            ),
            Self::NotInPool(volume, device) => write!(
                f,
                "volume `{volume}` is the whole device `{device}`, which keeps data as they are: move it to a mapped pool first \
                 (`flashyard volume move {volume} --to POOL`)"
            ),
            Self::OtherBlocks(volume, own, pool, blocks) => write!(
                f,
                "volume `{volume}` has blocks of {own} bytes and pool `{pool}` has {blocks}: hosts would find their data no more; \
                 move it to a pool whose device has `block_size = {own}`"
            ),
            Self::NotMigrating(volume) => write!(
                f,
                "volume `{volume}` is not on its way to another pool, so there is nothing to cancel"
            ),
            Self::HasMigrated(volume, pool) => write!(
                f,
                "volume `{volume}` is in pool `{pool}` already; `flashyard volume move {volume} --to POOL` brings it back"
            ),
            Self::Content(device, tenant) => write!(
                f,
                "device `{device}` may hold data that did not come from this target: say --erase to have it zeroed, or --keep to \
                 let tenant `{tenant}` have what is on it (`content = \"erase\"` or `\"keep\"` in a file)"
            ),
            Self::HoldsData(device, partition) => {
                if device != partition {
                    write!(f, "device `{device}` stands on a partition that is not empty: ")?;
                }
                write!(
                    f,
                    "partition `{partition}` was imported and holds data: `flashyard volume create VOLUME --device {device} --tenant \
                     TENANT --keep --uuid UUID` gives it back with them; `pool create --force` destroys them"
                )
            }
            Self::NeedsUuid(volume, partition) => write!(
                f,
                "volume `{volume}`: partition `{partition}` was imported, and the UUID that hosts know the disk by is not on the \
                 device: say --uuid (`uuid` in a file), as a file that `export` has written and `nvme ns-descs` on a host show it, \
                 or a new one if no host is to know the disk again; --nsid and --nguid likewise, if they were not the default"
            ),
            Self::Oversold(device, sold, parts) => {
                let list: Vec<_> = parts
                    .iter()
                    .map(|(name, part)| format!("{name} {:.0} %", part * 100.0))
                    .collect();
                write!(
                    f,
                    "this would sell {:.0} % of {device} ({}): lower a guarantee, or have it taken nevertheless with --force; \
                     `flashyard device calibrate {device}` shows what it can give",
                    sold * 100.0,
                    list.join(", ")
                )
            }
            Self::Ignored(tenant, device, policy) => write!(
                f,
                "policy `{}` of device `{device}` keeps no guarantees, so tenant `{tenant}` would not get its own: \
                 `flashyard device set {device} --policy fair`, or have it taken nevertheless with --force",
                policy.name()
            ),
            Self::NeverWritten(device) => write!(
                f,
                "nothing uses device `{device}`, and what was never written cannot be measured by reading: measure it with --destroy, \
                 which writes over what is on it, or once it has a pool"
            ),
            Self::NoRoomToMeasure(device, needed, free) => write!(
                f,
                "device `{device}` is measured in a volume of at least {}, and its pool has {} free: delete or move a volume, then \
                 try again",
                units::size(*needed),
                units::size(*free)
            ),
            Self::Unwritten(device, part) => write!(
                f,
                "{part} % of the reads of device `{device}` found nothing that was ever written, which says nothing of the device: \
                 nothing is noted; measure it again when its user has filled it"
            ),
            Self::NeedsFigures(policy, device) => {
                let policy = policy.name();
                write!(
                    f,
                    "policy `{policy}` needs to know what device `{device}` can read and write: give it another policy, measure it with \
                     `flashyard device calibrate {device} --destroy` while it is empty, then `flashyard device set {device} --policy {policy}`"
                )
            }
            Self::IsPartition(partition) => write!(
                f,
                "device `{partition}` is a partition, and what is in it goes with it: `flashyard partition delete {partition} --yes` \
                 deletes both"
            ),
            Self::Spent(partition) => write!(
                f,
                "partition `{partition}` takes no more writes: too much of its flash has failed; use another one, and \
                 delete this one"
            ),
            Self::CryptOver(device, below, what) => write!(
                f,
                "device `{device}`: device `{below}` holds {what}: choose another one, or say --force if that may be destroyed"
            ),
            Self::PolicyInFile(partition, policy) => write!(
                f,
                "the file gives partition `{partition}` policy `{}`: leave --policy out; `flashyard device set {partition} --policy \
                 POLICY` changes it when it is imported",
                policy.name()
            ),
            Self::ErasesImport(volume, device) => write!(
                f,
                "volume `{volume}`: the file says `content = \"erase\"`, and an import keeps what is on device `{device}`, which may be \
                 data: leave `content` out to keep them, or apply the file without --import to have the device zeroed"
            ),
            Self::OtherInFile(pool, device) => write!(
                f,
                "the file has pool `{pool}` on device `{device}`, and its volumes come with it only so: `flashyard pool import {pool} \
                 --device {device}`; or first apply a file without it (`flashyard apply FILE`)"
            ),
            Self::HoldsPool(device, pool) => write!(
                f,
                "device `{device}` holds a pool, or the remains of one: `flashyard pool import {pool} --device {device}` takes \
                 it over with its volumes (`flashyard apply FILE --import` that of a file); `pool create --force` destroys it"
            ),
            Self::State(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
        }
    }
}
