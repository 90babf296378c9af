//! Parameters of a drive: geometry, times and policies, as numbers with bounds.
//!
//! A profile is read from text in the TOML subset of [`Profile::parse`]. The ones that ship are in
//! the folder `profiles` of this crate, every value with its source.

mod text;

use alloc::string::String;
use core::fmt;

/// Bytes of the unit in which a drive maps and moves data.
pub const UNIT_BYTES: u64 = 4096;

/// The profiles that ship: name and text.
const SHIPPED: [(&str, &str); 9] = [
    ("dct983", include_str!("../../profiles/dct983.toml")),
    ("dct983-a0", include_str!("../../profiles/dct983-a0.toml")),
    ("dct983-b", include_str!("../../profiles/dct983-b.toml")),
    ("dct983-c", include_str!("../../profiles/dct983-c.toml")),
    ("dct983-d", include_str!("../../profiles/dct983-d.toml")),
    ("970pro", include_str!("../../profiles/970pro.toml")),
    ("qlc", include_str!("../../profiles/qlc.toml")),
    ("cnex", include_str!("../../profiles/cnex.toml")),
    ("ideal", include_str!("../../profiles/ideal.toml")),
];

/// Which superblock garbage collection takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one with the fewest valid units.
    Greedy,
    /// The one that was opened first: "LRU" cleaning, as the literature calls it.
    Fifo,
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// A line that is not `key = value`.
    Syntax {
        /// Counted from one.
        line: usize,
    },
    /// A key that no profile has.
    UnknownField(String),
    /// A key that stands twice.
    Repeated(&'static str),
    /// A key that is missing.
    Missing(&'static str),
    /// A word that means nothing here.
    UnknownWord {
        /// The key.
        field: &'static str,
        /// The words it knows.
        known: &'static str,
    },
    /// A value outside of its bounds.
    OutOfBounds {
        /// The key.
        field: &'static str,
        /// What it was given.
        value: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// A value that another value forbids.
    Conflict {
        /// The key.
        field: &'static str,
        /// What it was given.
        value: u64,
        /// What it has to be.
        bound: &'static str,
    },
}

macro_rules! profile {
    ($($(#[doc = $doc:literal])+ $field:ident: $least:literal..=$most:literal,)+) => {
        /// A drive, to be built at any capacity. Times are nanoseconds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Profile {
            /// What results are labelled with.
            pub name: String,
            /// What garbage collection takes next: `"greedy"` or `"fifo"`.
            pub gc_victim: Victim,
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        /// Key, least and most value of every number.
        const FIELDS: &[(&str, u64, u64)] = &[$((stringify!($field), $least, $most),)+];

        impl Profile {
            /// The numbers in the order of [`FIELDS`].
            fn from_values(
                name: String,
                gc_victim: Victim,
                values: &[u64; FIELDS.len()],
            ) -> Self {
                let mut values = values.iter().copied();
                Self { name, gc_victim, $($field: values.next().expect("as many values as fields"),)+ }
            }

            /// The numbers in the order of [`FIELDS`].
            pub(crate) fn values(&self) -> [u64; FIELDS.len()] {
                [$(self.$field,)+]
            }
        }
    };
}

profile! {
    /// Buses between controller and dies.
    channels: 1..=64,
    /// Dies on each channel; die `d` is on channel `d % channels`.
    dies_per_channel: 1..=64,
    /// Planes of a die, always driven together.
    planes: 1..=8,
    /// Bytes of a page of one plane: a multiple of [`UNIT_BYTES`].
    page_bytes: 4096..=131_072,
    /// Kinds of pages with read times of their own: 1 for SLC, 2 for MLC, 3 for TLC.
    page_types: 1..=3,
    /// Pages that one program writes: all types at once, or 1.
    pages_per_program: 1..=3,
    /// Programs that fill a block of the full-size drive.
    programs_per_block: 1..=8192,
    /// Sensing a lower page.
    read_lower_ns: 1..=1_000_000_000,
    /// Sensing a middle page; the upper page of MLC.
    read_middle_ns: 1..=1_000_000_000,
    /// Sensing an upper page of TLC.
    read_upper_ns: 1..=1_000_000_000,
    /// Command and address of a read, on the die.
    read_overhead_ns: 0..=1_000_000,
    /// A program; where pages are programmed one at a time, of a lower page.
    program_ns: 1..=1_000_000_000,
    /// A program of any page but the lower one; the same as `program_ns` where all are programmed
    /// at once.
    program_upper_ns: 1..=1_000_000_000,
    /// Erasing a block.
    erase_ns: 0..=10_000_000_000,
    /// Rate of one channel.
    channel_bytes_per_second: 1_000_000..=1_000_000_000_000,
    /// Rate of the link to the host, each way.
    link_bytes_per_second: 1_000_000..=1_000_000_000_000,
    /// Firmware time of a command, one after another.
    command_ns: 0..=1_000_000_000,
    /// Firmware time of every further unit of a command.
    unit_ns: 0..=1_000_000,
    /// From the firmware to the flash or the buffer.
    entry_ns: 0..=1_000_000_000,
    /// From the end of the data of a read to its completion.
    read_exit_ns: 0..=1_000_000_000,
    /// From the end of the data of a write to its completion.
    write_exit_ns: 0..=1_000_000_000,
    /// Finding data of a read in the write buffer.
    buffer_hit_ns: 0..=1_000_000_000,
    /// A flush that has nothing to wait for.
    flush_ns: 0..=1_000_000_000,
    /// Write buffer: at least two programs of every die.
    buffer_bytes: 4096..=1_099_511_627_776,
    /// 1 when the write buffer outlives a power cut, else 0.
    buffer_protected: 0..=1,
    /// Flash beyond the capacity that garbage collection may use, in millionths of the capacity.
    spare_ppm: 10_000..=10_000_000,
    /// Superblocks kept free, in millionths of all.
    reserve_ppm: 0..=500_000,
    /// Pages that garbage collection reads at once; a read takes the page of every plane.
    gc_reads: 1..=65_536,
    /// Units that the host may be ahead of garbage collection.
    gc_lead_units: 1..=16_777_216,
    /// Host reads of a die that may overtake what else waits for it; with none they would starve.
    read_bypass: 1..=65_535,
    /// How often a host read may suspend one program or erase.
    suspends: 0..=255,
    /// Suspending.
    suspend_ns: 0..=1_000_000_000,
    /// Resuming.
    resume_ns: 0..=1_000_000_000,
    /// The last part of a program or erase, which is never suspended.
    suspend_guard_ns: 0..=1_000_000_000,
    /// Dies that may program at once.
    programming_dies: 1..=4096,
}

impl Profile {
    /// The names of the profiles that ship.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// A profile that ships; `None` when no profile has this name.
    pub fn named(name: &str) -> Option<Self> {
        let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(text).expect("a test parses every profile that ships"))
    }

    /// Whether a drive can be built from this.
    pub fn check(&self) -> Result<(), ProfileError> {
        for (&(field, least, most), value) in FIELDS.iter().zip(self.values()) {
            if !(least..=most).contains(&value) {
                return Err(ProfileError::OutOfBounds {
                    field,
                    value,
                    least,
                    most,
                });
            }
        }
        let conflict = |field, value, bound| {
            Err(ProfileError::Conflict {
                field,
                value,
                bound,
            })
        };
        if !self.page_bytes.is_multiple_of(UNIT_BYTES) {
            return conflict("page_bytes", self.page_bytes, "a multiple of 4096");
        }
        if self.pages_per_program != 1 && self.pages_per_program != self.page_types {
            return conflict(
                "pages_per_program",
                self.pages_per_program,
                "1 or page_types",
            );
        }
        let cell = self.planes * self.page_bytes;
        if !cell.is_power_of_two() || cell > 64 * UNIT_BYTES {
            return conflict(
                "page_bytes",
                self.page_bytes,
                "a power of two and at most 256 KiB over all planes",
            );
        }
        if self.buffer_bytes < 2 * self.row_bytes() {
            return conflict(
                "buffer_bytes",
                self.buffer_bytes,
                "at least two programs of every die",
            );
        }
        Ok(())
    }

    /// Bytes of one program of every die.
    pub fn row_bytes(&self) -> u64 {
        self.channels
            * self.dies_per_channel
            * self.planes
            * self.page_bytes
            * self.pages_per_program
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { line } => write!(f, "line {line} is not `key = value`"),
            Self::UnknownField(key) => write!(f, "no profile has a field `{key}`"),
            Self::Repeated(field) => write!(f, "`{field}` stands twice"),
            Self::Missing(field) => write!(f, "`{field}` is missing"),
            Self::UnknownWord { field, known } => write!(f, "`{field}` must be {known}"),
            Self::OutOfBounds {
                field,
                value,
                least,
                most,
            } => {
                write!(f, "`{field}` is {value}; it must be from {least} to {most}")
            }
            Self::Conflict {
                field,
                value,
                bound,
            } => write!(f, "`{field}` is {value}; it must be {bound}"),
        }
    }
}

impl core::error::Error for ProfileError {}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn every_profile_that_ships_is_sound() {
        for (name, text) in SHIPPED {
            let profile = Profile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(profile.name, name);
        }
        assert_eq!(Profile::named("no such drive"), None);
    }

    #[test]
    fn every_value_says_where_it_comes_from() {
        for (name, text) in SHIPPED {
            for line in text.lines().filter(|line| line.contains('=')) {
                assert!(line.contains("# "), "{name}: no source in `{line}`");
            }
        }
    }

    #[test]
    fn the_variants_differ_from_the_default_where_they_should() {
        let base = Profile::named("dct983").expect("it ships");
        for (name, changed) in [
            ("dct983-a0", &["suspends"][..]),
            (
                "dct983-b",
                &[
                    "program_ns",
                    "program_upper_ns",
                    "suspends",
                    "programming_dies",
                ],
            ),
            (
                "dct983-c",
                &["planes", "program_ns", "program_upper_ns", "suspends"],
            ),
            (
                "dct983-d",
                &[
                    "program_ns",
                    "program_upper_ns",
                    "suspends",
                    "programming_dies",
                ],
            ),
        ] {
            let variant = Profile::named(name).expect("it ships");
            let differing: Vec<_> = FIELDS
                .iter()
                .zip(base.values().iter().zip(variant.values()))
                .filter(|(_, (mine, theirs))| **mine != *theirs)
                .map(|((field, _, _), _)| *field)
                .collect();
            assert_eq!(differing, changed, "{name}");
        }
    }

    #[test]
    fn every_bound_is_checked_and_reported() {
        let base = Profile::named("dct983").expect("it ships");
        for (place, &(field, least, most)) in FIELDS.iter().enumerate() {
            for value in [
                least.checked_sub(1),
                Some(least),
                Some(most),
                most.checked_add(1),
            ] {
                let Some(value) = value else { continue };
                let mut values = base.values();
                values[place] = value;
                let profile = Profile::from_values(base.name.clone(), base.gc_victim, &values);
                let result = profile.check();
                if (least..=most).contains(&value) {
                    let of_bounds = matches!(result, Err(ProfileError::OutOfBounds { .. }));
                    assert!(!of_bounds, "{field} = {value}: {result:?}");
                } else {
                    let expected = ProfileError::OutOfBounds {
                        field,
                        value,
                        least,
                        most,
                    };
                    assert_eq!(result, Err(expected));
                }
            }
        }
    }
}
