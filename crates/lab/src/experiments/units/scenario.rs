//! Which tenants work on which parallel units of an open-channel device, and the device's options.

use std::ops::Range;

use flashyard_flash::Profile;
use flashyard_flash::channel::load::{self, Tally, Tenant, Work};
use flashyard_flash::channel::{ChannelOrder, Device, DieOrder, Options, Status};

use super::Extent;
use crate::bench::fold;
use crate::experiment::Refused;

/// Which tenant has which parallel units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) enum Placement {
    /// All units are shared by all tenants.
    Shared,
    /// Each tenant has whole channels.
    Channels,
    /// Each tenant has units of every channel.
    Units,
}

/// How the device orders what it has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experiments) enum Order {
    /// Everything in turn.
    Fifo,
    /// The same, with programs that vary by a tenth, so that dies do not fall in step.
    FifoVarying,
    /// Reads before programs that have not begun, and first on the channel.
    ReadsFirst,
    /// The same, and a read suspends a program or an erase in flight.
    Suspend,
}

/// One reader of 4 KiB, or one writer, and writers beside it.
#[derive(Clone, Debug)]
pub(in crate::experiments) struct Scenario {
    pub(in crate::experiments) profile: Profile,
    pub(in crate::experiments) placement: Placement,
    pub(in crate::experiments) order: Order,
    /// Into how many parts a placement divides the device.
    pub(in crate::experiments) parts: u32,
    /// Tenants that are there; as many of the parts are used, from the first.
    pub(in crate::experiments) tenants: u32,
    /// What the first tenant does. The others write without pause.
    pub(in crate::experiments) first: Work,
    /// Writers use so many of their units only, spread over the channels.
    pub(in crate::experiments) active: Option<u32>,
}

impl Placement {
    pub(in crate::experiments) fn label(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Channels => "by channel",
            Self::Units => "by unit",
        }
    }
}

impl Order {
    pub(in crate::experiments) fn label(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::FifoVarying => "fifo, programs vary",
            Self::ReadsFirst => "reads first",
            Self::Suspend => "suspend",
        }
    }

    fn options(self) -> Options {
        const BYPASS: u16 = u16::MAX;
        let (dies, channels) = match self {
            Self::Fifo | Self::FifoVarying => (DieOrder::Fifo, ChannelOrder::Fifo),
            Self::ReadsFirst => (
                DieOrder::ReadPriority { bypass: BYPASS },
                ChannelOrder::ReadsFirst,
            ),
            Self::Suspend => (
                DieOrder::Suspend {
                    bypass: BYPASS,
                    suspends: u8::MAX,
                },
                ChannelOrder::ReadsFirst,
            ),
        };
        Options {
            dies,
            channels,
            program_spread: if self == Self::FifoVarying { 100 } else { 0 },
            reset_free: true,
            ..Options::default()
        }
    }
}

impl Scenario {
    /// A reader of one sector at a time, and `tenants - 1` writers, each on its part.
    pub(in crate::experiments) fn encounter(
        profile: &Profile,
        placement: Placement,
        order: Order,
        tenants: u32,
    ) -> Self {
        Self {
            profile: profile.clone(),
            placement,
            order,
            parts: tenants,
            tenants,
            first: Work::Read { depth: 1 },
            active: None,
        }
    }

    pub(in crate::experiments) fn label(&self) -> String {
        let Self {
            tenants,
            placement,
            order,
            ..
        } = self;
        format!(
            "{tenants} tenants, {}, {}",
            placement.label(),
            order.label()
        )
    }

    /// Parallel units of the tenant of that number, of a device of so many groups with so many
    /// units.
    pub(in crate::experiments) fn units(
        &self,
        number: u32,
        groups: u32,
        pus: u32,
    ) -> Result<Vec<(u32, u32)>, Refused> {
        let part = |count: u32, of: &str| {
            if count.is_multiple_of(self.parts) {
                let each = count / self.parts;
                return Ok(number * each..(number + 1) * each);
            }
            let name = &self.profile.name;
            Err(Refused::Conflict(format!(
                "`{name}` has {count} {of}, which {} tenants cannot have equal parts of",
                self.parts
            )))
        };
        Ok(match self.placement {
            Placement::Shared => block(0..groups, 0..pus),
            Placement::Channels => block(part(groups, "channels")?, 0..pus),
            Placement::Units => block(0..groups, part(pus, "units on each channel")?),
        })
    }

    /// What each tenant got, and the digest of the run.
    pub(super) fn run(&self, extent: Extent, seed: u64) -> Result<(Vec<Tally>, u64), Refused> {
        let mut device = self.device(extent, seed)?;
        let tenants = self.everyone(&device)?;
        let least = self.tenants * 2;
        if device.geometry().chunks < least {
            return Err(Refused::Conflict(format!(
                "every writer needs chunks of its own on the units it shares: make `gib` so large that a unit has {least} chunks"
            )));
        }
        let prepared = load::prepare(&mut device);
        assert_eq!(prepared, Status::Success, "nothing fails by chance here");
        let tallies = load::run(&mut device, &tenants, extent.warm_up, extent.span, seed);
        let failures: u64 = tallies.iter().map(|tally| tally.failures).sum();
        assert_eq!(failures, 0, "nothing fails by chance here");
        Ok((tallies, fold(0, device.digest())))
    }

    fn everyone(&self, device: &Device) -> Result<Vec<Tenant>, Refused> {
        let geometry = device.geometry();
        let tenant = |number| {
            let mut pus = self.units(number, geometry.groups, geometry.pus)?;
            let work = if number == 0 { self.first } else { Work::Write };
            if let (Some(active), Work::Write) = (self.active, work) {
                pus.truncate(active as usize);
            }
            Ok(Tenant { work, pus })
        };
        (0..self.tenants).map(tenant).collect()
    }

    /// A device as it comes from the factory.
    pub(in crate::experiments) fn device(
        &self,
        extent: Extent,
        seed: u64,
    ) -> Result<Device, Refused> {
        let options = self.order.options();
        Device::new(&self.profile, extent.capacity, seed, options).map_err(|error| {
            Refused::Conflict(format!(
                "`{}` cannot be an open-channel device of {} GiB: {error}",
                self.profile.name,
                extent.capacity >> 30
            ))
        })
    }
}

/// All units of some groups that have these numbers, channel first.
fn block(groups: Range<u32>, pus: Range<u32>) -> Vec<(u32, u32)> {
    let on_each = |pu| groups.clone().map(move |group| (group, pu));
    pus.flat_map(on_each).collect()
}
