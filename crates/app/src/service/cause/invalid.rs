//! What is wrong with a request, in words.

use std::fmt;

use flashyard_block::crypt::CryptError;
use flashyard_block::pool::Kind;

use super::Invalid;
use crate::spec::DeviceKind;
use crate::units;

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec(error) => error.fmt(f),
            Self::Units(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Partition(error) => error.fmt(f),
            Self::Drive(device, fault) => write!(f, "device `{device}`: {fault}"),
            Self::DriveProfile(profile, error) => write!(f, "profile {profile}: {error}"),
            Self::RemoteBlocks(bytes) => write!(
                f,
                "the remote namespace has blocks of {bytes} bytes: set block_size to that"
            ),
            Self::WholeDevice(volume, device) => write!(
                f,
                "volume `{volume}` is the whole device `{device}`; it has the device's size"
            ),
            Self::OtherKind(volume, pool, Kind::Raw) => write!(
                f,
                "volume `{volume}` cannot be mapped: pool `{pool}` is raw; make a pool with --kind mapped on another device"
            ),
            Self::OtherKind(volume, pool, Kind::Mapped) => write!(
                f,
                "volume `{volume}` cannot be raw: pool `{pool}` is mapped; leave the kind out, or name a raw pool"
            ),
            Self::Chunk(volume, chunk) => write!(
                f,
                "volume `{volume}` cannot have chunks of {}: use 4KiB, or 16KiB, which compresses better",
                units::size(*chunk)
            ),
            Self::Shrink(volume, now) => write!(
                f,
                "volume `{volume}` has {}: a volume cannot shrink, its end may hold data",
                units::size(*now)
            ),
            Self::NsidZero => f.write_str("nsid is 0; numbers begin with 1"),
            Self::NotForPartitions(device) => write!(
                f,
                "device `{device}` is no open-channel device: partitions are cut from devices of kind `{}` and `{}`",
                DeviceKind::OpenChannel.name(),
                DeviceKind::Zoned.name()
            ),
            Self::OnlyForPartitions(device) => write!(
                f,
                "device `{device}` is for partitions: cut one with `flashyard partition create`, or take over what is there (`flashyard \
                 partition import --device {device} --list`), and use that"
            ),
            Self::FaultOnFault(device) => write!(
                f,
                "device `{device}` injects faults itself: give it all of them with `flashyard device set {device} --fault ...`"
            ),
            Self::Array(error) => error.fmt(f),
            Self::OnParity(name) => write!(
                f,
                "`{name}`: only mapped pools can be on parity, which takes whole rows: give a pool `--kind mapped`, or use mirrors"
            ),
            Self::ArrayOfArrays(device) => write!(
                f,
                "device `{device}` is an array already: name the devices that it is made of, or others"
            ),
            Self::NoArray(name) => write!(
                f,
                "`{name}` stands on one device, which cannot be exchanged: make a pool of several devices with \
                 `flashyard pool create NAME --devices A,B --redundancy mirror`"
            ),
            Self::IsStarted(name) => write!(f, "`{name}` is open: there is nothing to start"),
            Self::BlocksBelow(device, bytes) => write!(
                f,
                "device `{device}` has blocks of {bytes} bytes: set block_size to that"
            ),
            Self::NoFaults(device) => write!(
                f,
                "device `{device}` injects no faults: create a device of kind `fault` on it before it is used, such as \
                 `flashyard device create bad0 --kind fault --device {device} --fault poison`"
            ),
            Self::OnWhichDevice(partition, devices) => write!(
                f,
                "this target knows no partition `{partition}`, and has found one on device `{}`: say --device if that is meant",
                devices.join("`, `")
            ),
            Self::FaultBeyond(fault, size) => write!(
                f,
                "`{fault}` is behind the end of the device, which has {}: it would never happen",
                units::size(*size)
            ),
            Self::Socket(error) => error.fmt(f),
            Self::NoSocketFolder(function) => write!(
                f,
                "function `{function}` needs a path for its socket, for this target has no state directory: give `socket`"
            ),
            Self::Crypt(_, CryptError::Key(error)) => error.fmt(f),
            Self::Crypt(device, error) => write!(f, "device `{device}`: {error}"),
            Self::Key(of, name, error) => write!(f, "the key of {} `{name}`: {error}", of.name()),
            Self::HasNoKeys(pool) => write!(
                f,
                "pool `{pool}` is not encrypted, so there are no keys to erase: delete it without --erase"
            ),
            Self::NotEncrypted(device) => write!(
                f,
                "device `{device}` is not encrypted: only devices of kind `{}` have a key",
                DeviceKind::Crypt.name()
            ),
        }
    }
}
