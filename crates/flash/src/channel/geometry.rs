//! The geometry that an open-channel device reports, and how its addresses are packed.

use crate::ssd::BuildError;
use crate::{Profile, ProfileError, UNIT_BYTES};

use super::Options;

/// Addresses of one command at most.
pub const MOST_ADDRESSES: usize = 64;
/// Chunks are shrunk until a parallel unit has this many.
const WANTED_CHUNKS: u64 = 32;
/// Programs that a chunk keeps at least when it is shrunk.
const LEAST_PROGRAMS: u64 = 8;
/// Chunks that a parallel unit has at least: one to write, one to move into.
const LEAST_CHUNKS: u64 = 2;

/// What the device is made of, in the terms of the Open-Channel SSD specification 2.0. A sector has
/// [`UNIT_BYTES`]; counts of sectors are sectors of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Groups (`num_grp`): channels, which share nothing but the link to the host.
    pub groups: u32,
    /// Parallel units of each group (`num_pu`): dies.
    pub pus: u32,
    /// Chunks of each parallel unit (`num_chk`).
    pub chunks: u32,
    /// Sectors of each chunk (`clba`).
    pub clba: u32,
    /// Sectors of the smallest write, to which every write is aligned (`ws_min`): one program.
    pub ws_min: u32,
    /// Sectors of the best write (`ws_opt`): whole word lines.
    pub ws_opt: u32,
    /// Sectors that have to be written behind one before it can be read, and is safe, while the
    /// chunk is open (`mw_cunits`).
    pub mw_cunits: u32,
    /// Chunks of a parallel unit that may be open at once; 0 for any number (`maxocpu`).
    pub open_chunks_per_pu: u32,
    /// A free chunk may be reset.
    pub reset_free: bool,
    /// An open chunk may be reset.
    pub reset_open: bool,
    /// Reading a page: typically and at most, in nanoseconds (`trdt`, `trdm`).
    pub read_ns: (u64, u64),
    /// Programming: typically and at most, in nanoseconds (`twrt`, `twrm`).
    pub write_ns: (u64, u64),
    /// Erasing a chunk: typically and at most, in nanoseconds (`tcrst`, `tcrsm`).
    pub reset_ns: (u64, u64),
    /// Of so many resets of a parallel unit one takes its time, because chunks are so many times
    /// smaller than blocks of the full-size drive; 1 at full size.
    pub reset_dilution: u32,
    /// Bits of the parts of an address: group, parallel unit, chunk, sector, the sector in the
    /// lowest ones.
    pub bits: [u32; 4],
    /// Programs of a word line, which lose their data together.
    pub(super) paired: u32,
    /// Sectors of a cell: a page of all planes.
    pub(super) cell: u32,
    /// Programming a lower page, and any other.
    pub(super) program_ns: (u64, u64),
}

/// An address in parts. Ordered as packed addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The group.
    pub group: u32,
    /// The parallel unit within the group.
    pub pu: u32,
    /// The chunk within the parallel unit.
    pub chunk: u32,
    /// The sector within the chunk.
    pub sector: u32,
}

impl Geometry {
    /// The geometry of a sound profile over `capacity` bytes of flash. What does not fill a chunk
    /// of every parallel unit is left out.
    pub(super) fn new(
        profile: &Profile,
        capacity: u64,
        options: &Options,
    ) -> Result<Self, BuildError> {
        profile.check().map_err(BuildError::Profile)?;
        let dies = profile.channels * profile.dies_per_channel;
        let cell = profile.planes * profile.page_bytes / UNIT_BYTES;
        let ws_min = cell * profile.pages_per_program;
        let paired = profile.page_types / profile.pages_per_program;
        if ws_min > MOST_ADDRESSES as u64 {
            return Err(BuildError::Profile(ProfileError::Conflict {
                field: "planes",
                value: profile.planes,
                bound: "so small that a program fits into a vector of 64 sectors",
            }));
        }
        let row = dies * ws_min * UNIT_BYTES;
        let programs = programs(profile, capacity / row, paired);
        let chunks = capacity / (row * programs);
        let least = row * self::programs(profile, 0, paired) * LEAST_CHUNKS;
        let most = 8 << 40;
        if !capacity.is_multiple_of(UNIT_BYTES) || chunks < LEAST_CHUNKS || capacity > most {
            return Err(BuildError::Capacity { least, most });
        }
        let sensing = [
            profile.read_lower_ns,
            profile.read_middle_ns,
            profile.read_upper_ns,
        ];
        let programming = [profile.program_ns, profile.program_upper_ns];
        let clba = programs * ws_min;
        Ok(Self {
            groups: profile.channels as u32,
            pus: profile.dies_per_channel as u32,
            chunks: chunks as u32,
            clba: clba as u32,
            ws_min: ws_min as u32,
            ws_opt: (ws_min * paired) as u32,
            mw_cunits: (ws_min * (paired - 1 + u64::from(options.buffered))) as u32,
            open_chunks_per_pu: options.open_chunks_per_pu,
            reset_free: options.reset_free,
            reset_open: options.reset_open,
            read_ns: spans(&sensing[..profile.page_types as usize]),
            write_ns: spans(&programming[..(paired as usize).min(2)]),
            reset_ns: (profile.erase_ns, profile.erase_ns),
            reset_dilution: (profile.programs_per_block / programs).max(1) as u32,
            bits: [profile.channels, profile.dies_per_channel, chunks, clba].map(bits),
            paired: paired as u32,
            cell: cell as u32,
            program_ns: (profile.program_ns, profile.program_upper_ns),
        })
    }

    /// Parallel units of all groups.
    pub fn total_pus(&self) -> u32 {
        self.groups * self.pus
    }

    /// Bytes of all chunks.
    pub fn capacity(&self) -> u64 {
        self.total_chunks() as u64 * u64::from(self.clba) * UNIT_BYTES
    }

    /// The packed address of `place`; nothing when it is not on the device.
    pub fn address(&self, place: Place) -> Option<u64> {
        self.contains(place).then(|| {
            let [_, pu, chunk, sector] = self.bits;
            let high = u64::from(place.group) << pu | u64::from(place.pu);
            (high << chunk | u64::from(place.chunk)) << sector | u64::from(place.sector)
        })
    }

    /// The parts of a packed address; nothing when it is not on the device.
    pub fn place(&self, address: u64) -> Option<Place> {
        let [group, pu, chunk, sector] = self.bits;
        let mut rest = address;
        let mut take = |bits: u32| {
            let part = rest & ((1 << bits) - 1);
            rest >>= bits;
            part as u32
        };
        let (sector, chunk) = (take(sector), take(chunk));
        let place = Place {
            pu: take(pu),
            group: take(group),
            chunk,
            sector,
        };
        (rest == 0 && self.contains(place)).then_some(place)
    }

    fn contains(&self, place: Place) -> bool {
        place.group < self.groups
            && place.pu < self.pus
            && place.chunk < self.chunks
            && place.sector < self.clba
    }

    pub(super) fn total_chunks(&self) -> usize {
        self.total_pus() as usize * self.chunks as usize
    }

    /// The die of a parallel unit: those of a group are on the same channel.
    pub(super) fn die(&self, group: u32, pu: u32) -> u32 {
        pu * self.groups + group
    }

    /// The number of the chunk that holds `place`; chunks of a die are numbered in a row.
    pub(super) fn chunk_number(&self, place: Place) -> u32 {
        self.die(place.group, place.pu) * self.chunks + place.chunk
    }

    /// Where the chunk of that number begins.
    pub(super) fn chunk_place(&self, number: u32) -> Place {
        let die = number / self.chunks;
        Place {
            group: die % self.groups,
            pu: die / self.groups,
            chunk: number % self.chunks,
            sector: 0,
        }
    }

    /// The type of the page that holds `sector`.
    pub(super) fn page_type(&self, sector: u32) -> u8 {
        let types = self.paired * (self.ws_min / self.cell);
        (sector / self.cell % types) as u8
    }
}

/// Programs of a chunk: those of a block, halved while whole word lines remain and there are too
/// few chunks.
fn programs(profile: &Profile, rows: u64, paired: u64) -> u64 {
    let mut programs = profile.programs_per_block / paired * paired;
    while rows / programs.max(1) < WANTED_CHUNKS
        && programs / 2 >= LEAST_PROGRAMS
        && (programs / 2).is_multiple_of(paired)
    {
        programs /= 2;
    }
    programs.max(paired)
}

/// Mean and greatest.
fn spans(ns: &[u64]) -> (u64, u64) {
    let sum: u64 = ns.iter().sum();
    let most = ns.iter().copied().max().unwrap_or(0);
    (sum / ns.len().max(1) as u64, most)
}

/// Bits that number `count` things.
pub(super) fn bits(count: u64) -> u32 {
    u64::BITS - (count - 1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(gib: u64) -> Geometry {
        let profile = Profile::named("cnex").expect("it ships");
        Geometry::new(&profile, gib << 30, &Options::default()).expect("it fits")
    }

    #[test]
    fn a_large_device_has_the_chunks_of_the_real_one() {
        let full = geometry(256);
        assert_eq!((full.groups, full.pus), (16, 8));
        assert_eq!((full.chunks, full.clba, full.reset_dilution), (64, 8192, 1));
        assert_eq!((full.ws_min, full.ws_opt, full.mw_cunits), (16, 32, 16));
        assert_eq!(full.read_ns, (56_000, 64_000));
        assert_eq!(full.write_ns, (1_575_000, 2_300_000));
        assert_eq!(full.capacity(), 256 << 30);
        let small = geometry(1);
        assert_eq!((small.chunks, small.clba), (16, 128));
        assert_eq!(small.reset_dilution, 64);
    }

    #[test]
    fn one_shot_programs_need_nothing_behind_them() {
        let profile = Profile::named("dct983").expect("it ships");
        let options = Options {
            buffered: true,
            ..Options::default()
        };
        let plain = Geometry::new(&profile, 8 << 30, &Options::default()).expect("it fits");
        let buffered = Geometry::new(&profile, 8 << 30, &options).expect("it fits");
        assert_eq!((plain.ws_min, plain.ws_opt, plain.mw_cunits), (24, 24, 0));
        assert_eq!(buffered.mw_cunits, 24, "one program is acknowledged early");
        assert_eq!(plain.page_type(7), 0);
        assert_eq!((plain.page_type(8), plain.page_type(23)), (1, 2));
    }

    #[test]
    fn addresses_are_packed_and_unpacked() {
        let geometry = geometry(1);
        assert_eq!(geometry.bits, [4, 3, 4, 7]);
        let last = Place {
            group: 15,
            pu: 7,
            chunk: 15,
            sector: 127,
        };
        assert_eq!(geometry.address(last), Some((1 << 18) - 1));
        for address in [0, 1, 127, 128, 12_345, (1 << 18) - 1] {
            let place = geometry.place(address).expect("it is on the device");
            assert_eq!(geometry.address(place), Some(address));
            let number = geometry.chunk_number(place);
            let chunk = geometry.chunk_place(number);
            assert_eq!(chunk, Place { sector: 0, ..place });
        }
        for address in [1 << 18, 1 << 63, u64::MAX] {
            assert_eq!(geometry.place(address), None);
        }
        assert_eq!(geometry.address(Place { group: 16, ..last }), None);
    }

    #[test]
    fn capacities_without_sense_are_refused() {
        let profile = Profile::named("cnex").expect("it ships");
        for capacity in [0, 4096, 1 << 20, (1 << 30) + 1, u64::MAX] {
            let refused = Geometry::new(&profile, capacity, &Options::default());
            assert!(
                matches!(refused, Err(BuildError::Capacity { .. })),
                "{capacity}"
            );
        }
    }
}
