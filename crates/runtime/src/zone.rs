//! Zoned block devices: zones that are written from their start to their capacity in order, and
//! reset as a whole.

/// What a device requires of writes to its zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneModel {
    /// It takes writes anywhere, and is slower for it.
    HostAware,
    /// It takes writes at the write pointers only.
    HostManaged,
}

/// Facts about a zoned device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zoned {
    /// Whether it insists.
    pub model: ZoneModel,
    /// Bytes from the start of a zone to that of the next one.
    pub zone_bytes: u64,
    /// Zones.
    pub zones: u32,
    /// Zones that may be partly written at a time; 0 for any number.
    pub active_most: u32,
    /// Bytes of one transfer that the device takes as a whole.
    pub transfer_most: u64,
}

/// The rule for writes to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneKind {
    /// Writes may go anywhere: it has no write pointer.
    Conventional,
    /// At the write pointer.
    Sequential,
}

/// How far a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// It has no write pointer.
    Conventional,
    /// Nothing is in it.
    Empty,
    /// Partly written: it counts as active.
    Active,
    /// Written to its end, or finished before that.
    Full,
    /// What is in it can be read, and nothing else.
    ReadOnly,
    /// Nothing can be done with it any more.
    Offline,
}

/// What a device reports of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Where it begins, in bytes.
    pub start: u64,
    /// Bytes from its start that can be written; the rest up to the next zone is a gap.
    pub capacity: u64,
    /// Where the next write goes, in bytes from the start of the device; without meaning unless the
    /// zone is [`ZoneState::Empty`] or [`ZoneState::Active`].
    pub pointer: u64,
    /// The rule for writes.
    pub kind: ZoneKind,
    /// How far it is.
    pub state: ZoneState,
}

/// What is to be done with zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneAction {
    /// Tell of at most `count` zones from the one at `start` on. Ends with `Outcome::Zones`.
    Report { start: u64, count: u32 },
    /// Erase a zone. Ends with `Outcome::Done`, as does the next.
    Reset { start: u64, len: u64 },
    /// Have a zone take no more writes, and count as active no longer.
    Finish { start: u64, len: u64 },
}
