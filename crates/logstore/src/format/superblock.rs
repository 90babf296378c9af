//! The superblock: where everything else begins. Four copies, which name themselves.
//!
//! ```text
//! 0     checksum over all that follows       8    magic, version
//! 16    pool                                 32   secret
//! 48    generation                           56   checksum of the superblock before
//! 64    copy, member, members                68   segments, blocks of each
//! 80    first block of segment 0             88   incarnation
//! 92    next lineage                         96   pages, pages with segments, with the catalogue
//! 108   references in the directory          112  log entries, incarnations
//! 120   tail of each lane: checksum of its last batch, watermark (3 x 16)
//! 168   features                             172  blocks of a row, in a pool of rows
//! 176   of a pool that has grown: first page with segments, first page with the catalogue,
//! 184   the first segment that is not used, how many such
//! 256   incarnations, 64 x 12                1024 directory, 192 x 16
//! 4096  log, 512 x 24
//! ```

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::FormatError;
use super::batch::MOST_ROW;
use super::fields::{get_bytes, get_u16, get_u32, get_u64, is_zero, put};
use super::rows::{PageRef, Row};
use crate::chunk::Form;
use crate::keyed::Secret;

/// Bytes of a copy.
pub const SUPERBLOCK: usize = 16384;
/// Copies.
pub const COPIES: usize = 4;
/// Incarnations that are remembered.
pub const MOST_INCARNATIONS: usize = 64;
/// References in the directory at most.
pub const MOST_DIRECTORY: usize = 192;
/// Log entries at most.
pub const MOST_LOG: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"FYLOGSTR");
/// Version of a pool that uses no feature, so that programs without any can open it.
const VERSION: u32 = 1;
/// Version of a pool that uses features.
const VERSION_WITH_FEATURES: u32 = 2;
const INCARNATIONS_AT: usize = 256;
const INCARNATION: usize = 12;
const DIRECTORY_AT: usize = 1024;
const LOG_AT: usize = 4096;
const LOG_ENTRY: usize = 24;

/// A part of a segment that recovery replays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The segment.
    pub segment: u32,
    /// Which use of it.
    pub generation: u32,
    /// Who wrote it, or will.
    pub incarnation: u32,
    /// The first block of what is not in the leaves.
    pub from: u32,
    /// Where it ends, when an earlier recovery has decided that: never decided again.
    pub end: Option<u32>,
}

/// How far a lane was at the cut.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tail {
    /// The checksum of its last batch; 0 when there was none in this incarnation.
    pub checksum: u64,
    /// The sequence up to which it is durable.
    pub watermark: u64,
}

/// What a pool uses that its first version did not have. A program opens a pool only when it knows
/// every feature; a pool that uses none has the first version.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Features(u32);

impl Features {
    /// Snapshots and clones: entries that are inherited, and layers of volumes.
    pub const SNAPSHOTS: Self = Self(1);
    /// Volumes with chunks that are longer than a block or compressed.
    pub const CODECS: Self = Self(2);
    /// What is stored of chunks is encrypted, whatever the form of a volume. The store never sees a
    /// key: this is for programs that would take what they read for data.
    pub const ENCRYPTION: Self = Self(4);
    /// Writes to segments are of whole rows.
    pub const ROWS: Self = Self(8);
    /// Volumes for which space is kept.
    pub const RESERVED: Self = Self(16);
    /// It has grown with its device: some segments are not used, and the segment table may lie
    /// elsewhere.
    pub const GROWN: Self = Self(32);
    /// What this program knows.
    const KNOWN: Self = Self(
        Self::SNAPSHOTS.0
            | Self::CODECS.0
            | Self::ENCRYPTION.0
            | Self::ROWS.0
            | Self::RESERVED.0
            | Self::GROWN.0,
    );

    /// Whether all of `other` are among these.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These, and those of `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What rows of so many blocks need.
    #[must_use]
    pub fn of_row(row: u32) -> Self {
        match row {
            1 => Self::default(),
            _ => Self::ROWS,
        }
    }

    /// What volumes of this form need.
    #[must_use]
    pub fn of(form: Form) -> Self {
        match form == Form::default() {
            true => Self::default(),
            false => Self::CODECS,
        }
    }

    fn version(self) -> u32 {
        match self.0 {
            0 => VERSION,
            _ => VERSION_WITH_FEATURES,
        }
    }

    fn decode(version: u32, features: u32) -> Result<Self, FormatError> {
        match version {
            VERSION if features == 0 => Ok(Self::default()),
            VERSION => Err(FormatError::Field("padding")),
            VERSION_WITH_FEATURES if features & !Self::KNOWN.0 != 0 => {
                Err(FormatError::Features(features & !Self::KNOWN.0))
            }
            VERSION_WITH_FEATURES if features == 0 => Err(FormatError::Field("version")),
            VERSION_WITH_FEATURES => Ok(Self(features)),
            _ => Err(FormatError::Newer(version)),
        }
    }
}

/// What is elsewhere in a pool that has grown than in one that has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grown {
    /// Number of the first page of the segment table.
    pub segment_page: u32,
    /// Number of the first page of the catalogue.
    pub catalogue_page: u32,
    /// The first segment that is not used, for a superblock is there, and how many.
    pub unused: (u32, u32),
}

impl Grown {
    fn check(&self, of: &Superblock) -> bool {
        let ends = |first: u32, pages: u32| Some((first, first.checked_add(pages)?));
        let tables = ends(self.segment_page, of.segment_pages);
        let Some(((a, a_end), (b, b_end))) =
            tables.zip(ends(self.catalogue_page, of.catalogue_pages))
        else {
            return false;
        };
        let unused = ends(self.unused.0, self.unused.1).filter(|unused| unused.1 <= of.segments);
        let log = unused.is_some_and(|(first, end)| {
            let mut log = of.log.iter();
            !log.any(|entry| (first..end).contains(&entry.segment))
        });
        let apart = a_end <= b || b_end <= a;
        a.min(b) > 0 && a_end.max(b_end) <= of.pages && apart && log
    }
}

/// All of a superblock but which copy it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The identity of the pool.
    pub pool: [u8; 16],
    /// The secret of the pool.
    pub secret: Secret,
    /// One more with each superblock.
    pub generation: u64,
    /// The checksum of the first copy of the superblock before.
    pub parent: u64,
    /// How many segments there are.
    pub segments: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// The first block of the first segment.
    pub first_block: u64,
    /// Blocks of a row; 1 in a pool without [`Features::ROWS`].
    pub row: u32,
    /// Which opening of the pool this is.
    pub incarnation: u32,
    /// Earlier incarnations, and the generation that each began with.
    pub incarnations: Vec<(u32, u64)>,
    /// The number of the next volume.
    pub next_lineage: u32,
    /// Page numbers in use are below.
    pub pages: u32,
    /// Pages of the segment table: 1 and those that follow, if it has not grown.
    pub segment_pages: u32,
    /// Pages of the catalogue: behind those of the segment table.
    pub catalogue_pages: u32,
    /// How far each lane was.
    pub tails: [Tail; 3],
    /// What it uses that its first version did not have.
    pub features: Features,
    /// With [`Features::GROWN`].
    pub grown: Option<Grown>,
    /// Where the pages of the directory are.
    pub directory: Vec<PageRef>,
    /// What recovery replays, and which segments are written next.
    pub log: Vec<LogEntry>,
}

impl Superblock {
    /// The bytes of a copy.
    pub fn encode(&self, copy: u8) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK];
        let out = &mut bytes[..];
        put(out, 8, MAGIC.to_le_bytes());
        put(out, 16, self.pool);
        put(out, 32, self.secret.0);
        put(out, 48, self.generation.to_le_bytes());
        put(out, 56, self.parent.to_le_bytes());
        (out[64], out[65], out[66], out[67]) = (copy, 0, 1, self.features.version() as u8);
        put(out, 68, self.segments.to_le_bytes());
        put(out, 72, self.segment_blocks.to_le_bytes());
        put(out, 80, self.first_block.to_le_bytes());
        put(out, 88, self.incarnation.to_le_bytes());
        put(out, 92, self.next_lineage.to_le_bytes());
        put(out, 96, self.pages.to_le_bytes());
        put(out, 100, self.segment_pages.to_le_bytes());
        put(out, 104, self.catalogue_pages.to_le_bytes());
        put(out, 108, (self.directory.len() as u32).to_le_bytes());
        put(out, 112, (self.log.len() as u16).to_le_bytes());
        put(out, 114, (self.incarnations.len() as u16).to_le_bytes());
        for (tail, at) in self.tails.iter().zip((120..).step_by(16)) {
            put(out, at, tail.checksum.to_le_bytes());
            put(out, at + 8, tail.watermark.to_le_bytes());
        }
        put(out, 168, self.features.0.to_le_bytes());
        if self.features.has(Features::ROWS) {
            put(out, 172, self.row.to_le_bytes());
        }
        if let Some(grown) = self.grown {
            let (first, count) = grown.unused;
            let fields = [grown.segment_page, grown.catalogue_page, first, count];
            for (field, at) in fields.into_iter().zip((176..).step_by(4)) {
                put(out, at, field.to_le_bytes());
            }
        }
        let places = (INCARNATIONS_AT..).step_by(INCARNATION);
        for ((incarnation, generation), at) in self.incarnations.iter().zip(places) {
            put(out, at, incarnation.to_le_bytes());
            put(out, at + 4, generation.to_le_bytes());
        }
        for (page, at) in self.directory.iter().zip((DIRECTORY_AT..).step_by(16)) {
            page.encode(&mut out[at..at + 16]);
        }
        for (entry, at) in self.log.iter().zip((LOG_AT..).step_by(LOG_ENTRY)) {
            put(out, at, entry.segment.to_le_bytes());
            put(out, at + 4, entry.generation.to_le_bytes());
            put(out, at + 8, entry.incarnation.to_le_bytes());
            put(out, at + 12, entry.from.to_le_bytes());
            put(out, at + 16, entry.end.unwrap_or(u32::MAX).to_le_bytes());
        }
        let checksum = Secret::NONE.checksum(&out[8..]);
        put(out, 0, checksum.to_le_bytes());
        bytes
    }

    /// Reads a copy; `copy` is which one its place is for.
    pub fn decode(bytes: &[u8], copy: u8) -> Result<Self, FormatError> {
        if bytes.len() != SUPERBLOCK || get_u64(bytes, 8) != MAGIC {
            return Err(FormatError::Absent);
        }
        if Secret::NONE.checksum(&bytes[8..]) != get_u64(bytes, 0) {
            return Err(FormatError::Checksum);
        }
        let features = Features::decode(u32::from(bytes[67]), get_u32(bytes, 168))?;
        if bytes[64] != copy || bytes[65..67] != [0, 1] {
            return Err(FormatError::Elsewhere);
        }
        let counts = (
            get_u32(bytes, 108) as usize,
            usize::from(get_u16(bytes, 112)),
            usize::from(get_u16(bytes, 114)),
        );
        let (directory, log, incarnations) = counts;
        if directory > MOST_DIRECTORY || log > MOST_LOG || incarnations > MOST_INCARNATIONS {
            return Err(FormatError::Field("number of entries"));
        }
        let superblock = Self {
            pool: get_bytes(bytes, 16),
            secret: Secret(get_bytes(bytes, 32)),
            generation: get_u64(bytes, 48),
            parent: get_u64(bytes, 56),
            segments: get_u32(bytes, 68),
            segment_blocks: get_u32(bytes, 72),
            first_block: get_u64(bytes, 80),
            row: match features.has(Features::ROWS) {
                true => get_u32(bytes, 172),
                false => 1,
            },
            incarnation: get_u32(bytes, 88),
            incarnations: (INCARNATIONS_AT..)
                .step_by(INCARNATION)
                .map(|at| (get_u32(bytes, at), get_u64(bytes, at + 4)))
                .take(incarnations)
                .collect(),
            next_lineage: get_u32(bytes, 92),
            pages: get_u32(bytes, 96),
            segment_pages: get_u32(bytes, 100),
            catalogue_pages: get_u32(bytes, 104),
            tails: [120, 136, 152].map(|at| Tail {
                checksum: get_u64(bytes, at),
                watermark: get_u64(bytes, at + 8),
            }),
            features,
            grown: features.has(Features::GROWN).then(|| Grown {
                segment_page: get_u32(bytes, 176),
                catalogue_page: get_u32(bytes, 180),
                unused: (get_u32(bytes, 184), get_u32(bytes, 188)),
            }),
            directory: (DIRECTORY_AT..)
                .step_by(16)
                .take(directory)
                .map(|at| PageRef::decode(&bytes[at..at + 16]))
                .collect::<Result<_, _>>()?,
            log: (LOG_AT..)
                .step_by(LOG_ENTRY)
                .take(log)
                .map(|at| log_entry(&bytes[at..at + LOG_ENTRY]))
                .collect(),
        };
        superblock.check(bytes)?;
        Ok(superblock)
    }

    /// Numbers of the pages with the segment table.
    pub fn segment_table(&self) -> Range<u32> {
        let first = self.grown.map_or(1, |grown| grown.segment_page);
        first..first + self.segment_pages
    }

    /// Numbers of the pages with the catalogue.
    pub fn catalogue(&self) -> Range<u32> {
        let behind = 1 + self.segment_pages;
        let first = self.grown.map_or(behind, |grown| grown.catalogue_page);
        first..first + self.catalogue_pages
    }

    /// Segments that are not used.
    pub fn unused(&self) -> Range<u32> {
        let (first, count) = self.grown.map_or((0, 0), |grown| grown.unused);
        first..first + count
    }

    fn check(&self, bytes: &[u8]) -> Result<(), FormatError> {
        let rows = self.features.has(Features::ROWS);
        let rest = if self.grown.is_some() { 192 } else { 176 };
        let least = if rows { 2 } else { 1 };
        let ends = [
            (76, 80),
            (116, 120),
            (if rows { 176 } else { 172 }, 176),
            (rest, INCARNATIONS_AT),
            (
                INCARNATIONS_AT + self.incarnations.len() * INCARNATION,
                DIRECTORY_AT,
            ),
            (DIRECTORY_AT + self.directory.len() * 16, LOG_AT),
            (LOG_AT + self.log.len() * LOG_ENTRY, SUPERBLOCK),
        ];
        let system = self.segment_pages.checked_add(self.catalogue_pages);
        let blocks = u64::from(self.segments) * u64::from(self.segment_blocks);
        let end = self.first_block.checked_add(blocks);
        let segments = self.log.iter().all(|entry| {
            entry.segment < self.segments
                && entry.from < self.segment_blocks
                && entry.end.is_none_or(|end| end <= self.segment_blocks)
        });
        if ends.iter().any(|&(from, to)| !is_zero(&bytes[from..to])) {
            Err(FormatError::Field("padding"))
        } else if !(least..=MOST_ROW).contains(&self.row)
            || !self.segment_blocks.is_multiple_of(self.row)
        {
            Err(FormatError::Field("length of a row"))
        } else if !(8..=1 << 20).contains(&self.segment_blocks) || self.segments == 0 {
            Err(FormatError::Field("number of segments"))
        } else if end.is_none_or(|end| end >> PageRef::PLACE_BITS != 0) || self.first_block == 0 {
            Err(FormatError::Field("place of segments"))
        } else if system.is_none_or(|pages| pages >= self.pages.max(1)) {
            Err(FormatError::Field("number of pages"))
        } else if self.grown.is_some_and(|grown| !grown.check(self)) {
            Err(FormatError::Field("what has grown"))
        } else if !segments {
            Err(FormatError::Field("segment of the log"))
        } else {
            Ok(())
        }
    }
}

fn log_entry(bytes: &[u8]) -> LogEntry {
    let end = get_u32(bytes, 16);
    LogEntry {
        segment: get_u32(bytes, 0),
        generation: get_u32(bytes, 4),
        incarnation: get_u32(bytes, 8),
        from: get_u32(bytes, 12),
        end: (end != u32::MAX).then_some(end),
    }
}
