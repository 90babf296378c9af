//! When and how a device was measured, and how far that can be believed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::DeviceSpec;
use super::rates::RatesSpec;

/// When and how a device was measured, kept with its capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// When, in UTC, such as `2026-11-22T20:41:04Z`.
    pub date: String,
    /// What answered.
    pub medium: MeasuredMedium,
    /// What was written and read.
    pub place: MeasuredPlace,
    /// How much of it; none of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bytes: Option<u64>,
    /// What no volume of the pool had then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Bytes of an I/O by which rates are measured, and of one by which bandwidth is.
    pub io_bytes: [u64; 2],
    /// I/Os in flight of small reads, and of all others.
    pub in_flight: [u32; 2],
    /// Rates of which no two of five runs agreed within 10 %.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unstable: Vec<String>,
}

/// What answered while a device was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredMedium {
    /// The device.
    Device,
    /// The model of an emulated drive, in virtual time.
    Model,
    /// Memory: the figures are the processor's.
    Memory,
    /// Faster than any device: a cache.
    Cache,
    /// The kernel's page cache: the file system takes no direct I/O.
    PageCache,
    /// Nothing that keeps data: the figures mean nothing.
    Null,
}

/// What was written and read while a device was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredPlace {
    /// A copy of an emulated drive's model, worn out.
    Model,
    /// A volume of the pool for that, which is gone.
    ScratchVolume,
    /// The device, which was not used, with what was on it.
    WholeDevice,
    /// The device with its user's data, which were only read.
    InUse,
}

impl Conditions {
    /// Why the figures are no ground for a guarantee; `None` if they are.
    pub fn doubt(&self) -> Option<String> {
        let date = &self.date;
        match self.medium {
            MeasuredMedium::Null => Some("it keeps no data, so its figures mean nothing".into()),
            MeasuredMedium::Cache => Some(format!(
                "a cache answered when it was measured at {date}: it was faster than any device"
            )),
            MeasuredMedium::PageCache => Some(format!(
                "the kernel's page cache answered when it was measured at {date}: its file system takes no direct I/O \
                 (O_DIRECT)"
            )),
            _ if !self.unstable.is_empty() => Some(format!(
                "its {} varied by more than 10 % when it was measured at {date}",
                self.unstable.join(", ")
            )),
            _ => None,
        }
    }
}

impl DeviceSpec {
    /// What it can give for certain: what was measured and is not to be believed counts as not
    /// known.
    pub fn reliable_capability(&self) -> RatesSpec {
        let all = self.capability.unwrap_or_default();
        match &self.calibration {
            None => all,
            Some(measured) => match measured.medium {
                MeasuredMedium::Null | MeasuredMedium::Cache | MeasuredMedium::PageCache => {
                    RatesSpec::default()
                }
                _ => all.without(&measured.unstable),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_believed_is_not_known() {
        let text = "name = \"d\"\nkind = \"file\"\npath = \"/d\"\n\
                    capability = { read_iops = 9, write_iops = 8 }\n";
        let spec: DeviceSpec = toml::from_str(text).expect("a device");
        assert_eq!(spec.reliable_capability(), spec.capability.expect("rates"));
        for (medium, unstable, known) in [
            ("device", "", "read_iops=9,write_iops=8"),
            ("memory", "", "read_iops=9,write_iops=8"),
            ("model", "\"write_iops\"", "read_iops=9"),
            ("null", "", ""),
            ("cache", "", ""),
            ("page-cache", "", ""),
        ] {
            let text = format!(
                "{text}calibration = {{ date = \"2026-11-22T20:41:04Z\", medium = \"{medium}\", \
                 place = \"whole-device\", io_bytes = [4096, 131072], in_flight = [256, 32], \
                 unstable = [{unstable}] }}"
            );
            let spec: DeviceSpec = toml::from_str(&text).expect("a device");
            let wanted = match known {
                "" => RatesSpec::default(),
                known => known.parse().expect("rates"),
            };
            assert_eq!(spec.reliable_capability(), wanted, "{medium} {unstable}");
            let doubt = spec.calibration.expect("it was measured").doubt();
            assert_eq!(doubt.is_some(), wanted.write_iops.is_none(), "{doubt:?}");
        }
    }
}
