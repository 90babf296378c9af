//! Decides which parallel units belong to which partition. Pure.

use std::collections::BTreeSet;
use std::fmt;

/// Partitions of a device at most.
pub(super) const MAX_PARTITIONS: usize = 64;
/// Bytes of a partition's name at most.
pub(super) const MAX_NAME: usize = 64;
/// Parallel units of a device at most.
pub(super) const MAX_UNITS: usize = 4096;
/// How often a partition can have grown.
pub(super) const MAX_SPANS: usize = 16;
/// Flash beyond the capacity, in thousandths of the capacity: from nearly nothing to as much again.
pub(super) const OVER_PROVISIONING: std::ops::RangeInclusive<u32> = 30..=1000;

/// A parallel unit: its channel, and its number on that.
pub type Unit = (u32, u32);

/// Which parallel units a partition is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All units of these channels: no other partition moves data over them.
    Channels(Vec<u32>),
    /// These units.
    Units(Vec<Unit>),
    /// So many, on as few channels as possible, whole channels if there are any left.
    Count(u32),
}

/// Parallel units under one translation layer, which a partition was given at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Tells what was written here from what others wrote.
    pub key: u64,
    pub units: Vec<Unit>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub uuid: [u8; 16],
    pub name: String,
    /// Flash beyond the capacity, in thousandths of the capacity.
    pub over_provisioning: u32,
    /// In the order of their blocks.
    pub spans: Vec<Span>,
}

/// Everything that is known of the partitions of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub uuid: [u8; 16],
    /// Changes so far.
    pub generation: u64,
    /// Channels, and parallel units of each.
    pub groups: u32,
    pub pus: u32,
    /// The key of the next span; keys are never used again.
    pub next_key: u64,
    pub partitions: Vec<Record>,
}

/// Why a partition cannot be as it is wanted. The caller has to ask for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// No name, or one that is too long.
    Name,
    /// Another partition has the name.
    Exists(String),
    /// No partition has the name.
    Unknown(String),
    /// As many partitions as a device can have.
    TooMany,
    /// A partition can grow no more often.
    Grown,
    /// All keys of spans were used.
    NoKey,
    /// No unit was named.
    Nothing,
    /// There is no such channel; there are so many.
    NoChannel(u32, u32),
    /// There is no such unit; there are so many channels with so many units each.
    NoUnit(Unit, u32, u32),
    /// A unit was named twice.
    Twice(Unit),
    /// A unit belongs to another partition.
    Overlap(Unit, String),
    /// Unequal numbers of units on channels that are used: channel and number, twice.
    Uneven([(u32, u32); 2]),
    /// So many were wanted, so many are free, and they cannot be divided evenly.
    Scarce(u32, u32),
    /// Over-provisioning that makes no sense, in thousandths.
    OverProvisioning(u32),
}

/// Why fields that were read cannot be the layout of a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Contradiction {
    /// Two partitions are called so.
    SameName(String),
    /// This partition has a size that none can have.
    Size(String),
    /// This partition has a span with the key of another one.
    SameKey(String),
    /// This unit is not the device's, or two partitions have it.
    Owner(Unit),
    /// A name or units that no partition can have.
    Impossible(LayoutError),
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameName(name) => write!(f, "two partitions are called {name}"),
            Self::Size(name) => write!(f, "{name} has no possible size"),
            Self::SameKey(name) => write!(f, "{name} has the key of another one"),
            Self::Owner(unit) => write!(f, "unit {} has no owner, or two", show(*unit)),
            Self::Impossible(error) => error.fmt(f),
        }
    }
}

impl From<LayoutError> for Contradiction {
    fn from(error: LayoutError) -> Self {
        Self::Impossible(error)
    }
}

impl Layout {
    /// No partitions.
    pub fn new(uuid: [u8; 16], groups: u32, pus: u32) -> Self {
        Self {
            uuid,
            generation: 1,
            groups,
            pus,
            next_key: 1,
            partitions: Vec::new(),
        }
    }

    /// Adds a partition of free units.
    pub fn add(
        &mut self,
        name: &str,
        uuid: [u8; 16],
        wanted: &Wanted,
        over_provisioning: u32,
    ) -> Result<&Record, LayoutError> {
        check_name(name)?;
        if self.find(name).is_ok() {
            return Err(LayoutError::Exists(name.into()));
        }
        if self.partitions.len() >= MAX_PARTITIONS {
            return Err(LayoutError::TooMany);
        }
        if !OVER_PROVISIONING.contains(&over_provisioning) {
            return Err(LayoutError::OverProvisioning(over_provisioning));
        }
        let span = self.span(wanted)?;
        self.partitions.push(Record {
            uuid,
            name: name.into(),
            over_provisioning,
            spans: vec![span],
        });
        self.find(name)
    }

    /// Gives a partition more units.
    pub fn grow(&mut self, name: &str, wanted: &Wanted) -> Result<&Record, LayoutError> {
        if self.find(name)?.spans.len() >= MAX_SPANS {
            return Err(LayoutError::Grown);
        }
        let span = self.span(wanted)?;
        for record in &mut self.partitions {
            if record.name == name {
                record.spans.push(span.clone());
            }
        }
        self.find(name)
    }

    /// Removes a partition; its units are free then.
    pub fn remove(&mut self, name: &str) -> Result<Record, LayoutError> {
        let place = self.partitions.iter().position(|one| one.name == name);
        let place = place.ok_or_else(|| LayoutError::Unknown(name.into()))?;
        Ok(self.partitions.remove(place))
    }

    /// The partition of this name.
    pub fn find(&self, name: &str) -> Result<&Record, LayoutError> {
        let found = self.partitions.iter().find(|one| one.name == name);
        found.ok_or_else(|| LayoutError::Unknown(name.into()))
    }

    /// Units that no partition has, in order.
    pub fn free(&self) -> BTreeSet<Unit> {
        let all = (0..self.groups).flat_map(|group| (0..self.pus).map(move |pu| (group, pu)));
        let mut free: BTreeSet<Unit> = all.collect();
        for unit in self.owned() {
            free.remove(&unit);
        }
        free
    }

    /// Whether the units of a partition have their channels to themselves.
    pub fn has_own_channels(&self, record: &Record) -> bool {
        let channels: BTreeSet<u32> = record.units().map(|unit| unit.0).collect();
        let others = self.partitions.iter().filter(|one| one.uuid != record.uuid);
        let mut others = others.flat_map(Record::units);
        !others.any(|unit| channels.contains(&unit.0))
    }

    /// Whether everything in here agrees with everything else; or what does not. For what was read
    /// from a device.
    pub fn validate(&self) -> Result<(), Contradiction> {
        let mut names = BTreeSet::new();
        let mut units = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for record in &self.partitions {
            check_name(&record.name)?;
            if !names.insert(&record.name) {
                return Err(Contradiction::SameName(record.name.clone()));
            }
            if !OVER_PROVISIONING.contains(&record.over_provisioning) || record.spans.is_empty() {
                return Err(Contradiction::Size(record.name.clone()));
            }
            for span in &record.spans {
                if span.key >= self.next_key || !keys.insert(span.key) {
                    return Err(Contradiction::SameKey(record.name.clone()));
                }
                self.check_even(&span.units)?;
            }
            for unit in record.units() {
                if !self.contains(unit) || !units.insert(unit) {
                    return Err(Contradiction::Owner(unit));
                }
            }
        }
        Ok(())
    }

    fn owned(&self) -> impl Iterator<Item = Unit> + '_ {
        self.partitions.iter().flat_map(Record::units)
    }

    fn contains(&self, (group, pu): Unit) -> bool {
        group < self.groups && pu < self.pus
    }

    /// What is wanted, if it is free, under a key of its own.
    fn span(&mut self, wanted: &Wanted) -> Result<Span, LayoutError> {
        let units = match wanted {
            Wanted::Channels(channels) => self.whole_channels(channels)?,
            Wanted::Units(units) => units.clone(),
            Wanted::Count(count) => self.choose(*count)?,
        };
        self.check_free(&units)?;
        self.check_even(&units)?;
        // It comes from the device, which may say anything.
        let next = self.next_key.checked_add(1);
        let next = next.ok_or(LayoutError::NoKey)?;
        Ok(Span {
            key: std::mem::replace(&mut self.next_key, next),
            units: channel_first(units),
        })
    }

    fn whole_channels(&self, channels: &[u32]) -> Result<Vec<Unit>, LayoutError> {
        if let Some(&channel) = channels.iter().find(|channel| **channel >= self.groups) {
            return Err(LayoutError::NoChannel(channel, self.groups));
        }
        let of = |&group: &u32| (0..self.pus).map(move |pu| (group, pu));
        Ok(channels.iter().flat_map(of).collect())
    }

    fn check_free(&self, units: &[Unit]) -> Result<(), LayoutError> {
        let mut seen = BTreeSet::new();
        for &unit in units {
            if !self.contains(unit) {
                return Err(LayoutError::NoUnit(unit, self.groups, self.pus));
            }
            if !seen.insert(unit) {
                return Err(LayoutError::Twice(unit));
            }
            let mut owners = self.partitions.iter();
            if let Some(owner) = owners.find(|one| one.units().any(|owned| owned == unit)) {
                return Err(LayoutError::Overlap(unit, owner.name.clone()));
            }
        }
        Ok(())
    }

    /// Lines are striped over all units: a channel with more of them than another would hold it up.
    fn check_even(&self, units: &[Unit]) -> Result<(), LayoutError> {
        let count = |channel: u32| units.iter().filter(|unit| unit.0 == channel).count() as u32;
        let mut used = (0..self.groups)
            .map(|channel| (channel, count(channel)))
            .filter(|(_, count)| *count > 0);
        let first = used.next().ok_or(LayoutError::Nothing)?;
        match used.find(|(_, count)| *count != first.1) {
            Some(other) => Err(LayoutError::Uneven([first, other])),
            None => Ok(()),
        }
    }

    /// Free units, so many on each of as few channels as possible; of channels that will do, those
    /// with the fewest free units, so that whole channels are kept for those who need them.
    fn choose(&self, count: u32) -> Result<Vec<Unit>, LayoutError> {
        let free = self.free();
        let scarce = || LayoutError::Scarce(count, free.len() as u32);
        if count == 0 {
            return Err(LayoutError::Nothing);
        }
        let on = |channel: u32| free.iter().filter(move |unit| unit.0 == channel);
        let mut channels: Vec<(usize, u32)> = (0..self.groups)
            .map(|channel| (on(channel).count(), channel))
            .collect();
        channels.sort_unstable();
        let divides = (1..=self.groups).filter(|used| count.is_multiple_of(*used));
        for used in divides {
            let each = (count / used) as usize;
            let fit = channels.iter().filter(|(free, _)| *free >= each);
            let chosen: Vec<u32> = fit
                .map(|(_, channel)| *channel)
                .take(used as usize)
                .collect();
            if chosen.len() == used as usize {
                let of = |&channel: &u32| on(channel).take(each).copied();
                return Ok(chosen.iter().flat_map(of).collect());
            }
        }
        Err(scarce())
    }
}

impl Record {
    /// Units of all spans.
    pub fn units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.spans
            .iter()
            .flat_map(|span| span.units.iter().copied())
    }
}

/// Neighbours of a stripe on different channels.
fn channel_first(mut units: Vec<Unit>) -> Vec<Unit> {
    units.sort_unstable_by_key(|&(group, pu)| (pu, group));
    units
}

fn check_name(name: &str) -> Result<(), LayoutError> {
    let fits = !name.is_empty() && name.len() <= MAX_NAME;
    fits.then_some(()).ok_or(LayoutError::Name)
}

/// A unit as users name it.
fn show((group, pu): Unit) -> String {
    format!("{group}.{pu}")
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "a partition's name has 1 to {MAX_NAME} bytes"),
            Self::Exists(name) => write!(
                f,
                "there is a partition {name} already: choose another name"
            ),
            Self::Unknown(name) => write!(f, "there is no partition {name} on the device"),
            Self::TooMany => write!(
                f,
                "a device can have {MAX_PARTITIONS} partitions: delete one first"
            ),
            Self::Grown => write!(
                f,
                "it has grown {MAX_SPANS} times: make a larger partition and move the data"
            ),
            Self::NoKey => f.write_str(
                "partitions were made and grown too often: erase the device to use it anew",
            ),
            Self::Nothing => f.write_str("name at least one parallel unit"),
            Self::NoChannel(channel, channels) => write!(
                f,
                "there is no channel {channel}: the device has channels 0 to {}",
                channels.saturating_sub(1)
            ),
            Self::NoUnit(unit, groups, pus) => write!(
                f,
                "there is no unit {}: the device has {groups} channels with {pus} units each, counted from 0",
                show(*unit)
            ),
            Self::Twice(unit) => write!(f, "unit {} is named twice", show(*unit)),
            Self::Overlap(unit, owner) => write!(
                f,
                "unit {} belongs to partition {owner}: choose free ones, or delete that partition",
                show(*unit)
            ),
            Self::Uneven([(one, first), (other, second)]) => write!(
                f,
                "channel {one} would give {first} units and channel {other} {second}: take the same number from each, as \
                 the slowest channel decides for all"
            ),
            Self::Scarce(wanted, free) => write!(
                f,
                "{wanted} units cannot be taken evenly from the {free} that are free: ask for fewer, or delete a partition"
            ),
            Self::OverProvisioning(thousandths) => write!(
                f,
                "over-provisioning of {}.{} % is not possible: 3 to 100 % are",
                thousandths / 10,
                thousandths % 10
            ),
        }
    }
}

impl std::error::Error for LayoutError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> Layout {
        Layout::new([1; 16], 4, 2)
    }

    fn add(layout: &mut Layout, name: &str, wanted: Wanted) -> Result<Vec<Unit>, LayoutError> {
        let record = layout.add(name, [name.len() as u8; 16], &wanted, 200)?;
        Ok(record.units().collect())
    }

    #[test]
    fn channels_units_and_counts_name_units() {
        let mut layout = device();
        let channels = add(&mut layout, "a", Wanted::Channels(vec![1]));
        assert_eq!(channels, Ok(vec![(1, 0), (1, 1)]));
        let units = add(&mut layout, "bb", Wanted::Units(vec![(0, 1), (2, 1)]));
        assert_eq!(units, Ok(vec![(0, 1), (2, 1)]));
        // A whole channel is left, but the remains of another are enough for one.
        let one = add(&mut layout, "ccc", Wanted::Count(1));
        assert_eq!(one, Ok(vec![(0, 0)]));
        let whole = add(&mut layout, "dddd", Wanted::Count(2));
        assert_eq!(whole, Ok(vec![(3, 0), (3, 1)]));
        assert_eq!(layout.validate(), Ok(()));
        assert_eq!(layout.free().into_iter().collect::<Vec<_>>(), [(2, 0)]);
        let own = |name: &str| layout.has_own_channels(layout.find(name).expect("it is there"));
        assert!(own("a") && own("dddd"));
        assert!(!own("bb") && !own("ccc"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let mut layout = device();
        add(&mut layout, "a", Wanted::Channels(vec![0])).expect("it is free");
        let cases = [
            (Wanted::Channels(vec![4]), LayoutError::NoChannel(4, 4)),
            (Wanted::Channels(vec![1, 1]), LayoutError::Twice((1, 0))),
            (
                Wanted::Channels(vec![0, 1]),
                LayoutError::Overlap((0, 0), "a".into()),
            ),
            (Wanted::Channels(vec![]), LayoutError::Nothing),
            (
                Wanted::Units(vec![(1, 2)]),
                LayoutError::NoUnit((1, 2), 4, 2),
            ),
            (
                Wanted::Units(vec![(1, 0), (1, 1), (2, 0)]),
                LayoutError::Uneven([(1, 2), (2, 1)]),
            ),
            (Wanted::Count(5), LayoutError::Scarce(5, 6)),
            (Wanted::Count(0), LayoutError::Nothing),
            (Wanted::Count(u32::MAX), LayoutError::Scarce(u32::MAX, 6)),
        ];
        for (wanted, error) in cases {
            let before = layout.clone();
            assert_eq!(
                add(&mut layout, "b", wanted.clone()),
                Err(error),
                "{wanted:?}"
            );
            assert_eq!(layout, before);
        }
        let again = add(&mut layout, "a", Wanted::Count(1));
        assert_eq!(again, Err(LayoutError::Exists("a".into())));
        let little = layout.add("b", [2; 16], &Wanted::Count(1), 29).err();
        assert_eq!(little, Some(LayoutError::OverProvisioning(29)));
    }

    #[test]
    fn keys_are_never_used_again() {
        let mut layout = device();
        add(&mut layout, "a", Wanted::Count(2)).expect("it fits");
        layout.grow("a", &Wanted::Count(2)).expect("it fits");
        let removed = layout.remove("a").expect("it is there");
        let keys: Vec<u64> = removed.spans.iter().map(|span| span.key).collect();
        assert_eq!(keys, [1, 2]);
        add(&mut layout, "a", Wanted::Count(8)).expect("all are free");
        assert_eq!(layout.find("a").expect("it is there").spans[0].key, 3);
        assert!(layout.remove("b").is_err());
        layout.remove("a").expect("it is there");
        layout.next_key = u64::MAX;
        let last = add(&mut layout, "a", Wanted::Count(1));
        assert_eq!(last, Err(LayoutError::NoKey));
    }
}
