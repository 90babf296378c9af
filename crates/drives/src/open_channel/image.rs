//! The bytes of a file that holds the flash of an open-channel device, little-endian, in pieces of
//! 4 KiB:
//!
//! | pieces | hold |
//! | --- | --- |
//! | 2 | the header, twice |
//! | of each chunk as many as it takes | its head: how often it was erased, what it has come to, and its records once more |
//! | of each write unit of each chunk 1 | the record of the unit: metadata of its sectors, checksums |
//! | behind each record | the sectors |
//!
//! Chunks follow each other as their addresses do: first all heads, then all units. A record counts
//! only if it has the epoch of the head of its chunk; the epoch changes when the chunk is erased
//! and when its first unit is written, so nothing of a former life comes back. Records of a chunk
//! count up to the first one that does not.
//!
//! When all units of a chunk are durable, or nothing is added to it any more, its head gets what
//! the records say. So a file is opened by reading the heads, in one piece, and the records of the
//! few chunks that were being written. In files of version 1 a head is one piece before the units
//! of its chunk, and never has the records.
//!
//! Header: magic `FLSHIMAG`, version (4), CRC32C of the piece with these four bytes zero (4), UUID
//! (16), and of the device channels, units of each, chunks of each, sectors of a chunk, of the
//! least write and of the best write, sectors behind one that can be read, most open chunks (4
//! each).
//!
//! Head: magic `FLCH`, CRC32C of what follows (4), first half of the UUID (8), number of the chunk
//! (4), epoch (4), erases (4), state (4): 0 as the records say, 1 closed, 2 out of use, 3 closed
//! and durable; sectors that can be read of a closed one (4); in state 3 CRC32C of the following
//! (4), and of each record what is in it behind the number of the chunk.
//!
//! Record: magic `FLWU`, CRC32C of what follows (4), first half of the UUID (8), chunk (4), unit in
//! it (4), epoch (4), units of the chunk that were durable when it was written (4), CRC32C of the
//! sectors (4), metadata (16 for each sector), CRC32C of each sector (4 each). Files of version 1
//! lack the last, so what is read of them is not held against checksums.

use flashyard_checksum::Crc32c;
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{Geometry, Metadata, Shape};

/// Bytes of a piece, and of a sector.
pub(super) const PIECE: usize = UNIT_BYTES as usize;
/// Copies of the header.
pub(super) const HEADERS: u64 = 2;
/// The version of new files.
const VERSION: u32 = 2;
/// The first version, whose records have no checksums of sectors, and whose heads have no records.
const FIRST: u32 = 1;
const HEADER_MAGIC: [u8; 8] = *b"FLSHIMAG";
const HEADER_SUM: std::ops::Range<usize> = 12..16;
const HEAD_MAGIC: [u8; 4] = *b"FLCH";
const HEAD_BYTES: usize = 36;
/// Where the records stand in a head.
const TABLE: usize = HEAD_BYTES + 4;
const RECORD_MAGIC: [u8; 4] = *b"FLWU";
const RECORD_BYTES: usize = 36;
/// Where the part of a record begins that stands in the head, too.
const BODY: usize = 20;
const METADATA_BYTES: usize = 16;
const SUM_BYTES: usize = 4;

/// Where everything is in a file.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub uuid: [u8; 16],
    geometry: Geometry,
    version: u32,
}

/// What a copy of the header turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// Nothing was ever written there.
    Blank,
    /// Something else than a header.
    Foreign,
    /// A header that is not what was written.
    Damaged,
    /// Whole, but of a later version.
    Newer(u32),
    /// The UUID of the file, the shape of the device, and the version of the file.
    Valid([u8; 16], Shape, u32),
}

/// What has become of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// As its records say.
    InUse,
    /// Closed early; so many sectors can be read.
    Closed(u32),
    /// Closed, and so many sectors are durable; their records stand in the head.
    Settled(u32),
    /// Out of use.
    Offline,
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub epoch: u32,
    pub resets: u32,
    pub fate: Fate,
}

/// What stands before the sectors of a write unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub chunk: u32,
    pub unit: u32,
    pub epoch: u32,
    /// Units of the chunk that were durable before.
    pub durable: u32,
    /// Of all sectors.
    pub data: u32,
    pub metadata: Vec<Metadata>,
    /// Of each sector; none in files without them.
    pub sums: Vec<u32>,
}

impl Image {
    /// A new file.
    pub fn new(uuid: [u8; 16], geometry: Geometry) -> Self {
        Self::of_version(uuid, geometry, VERSION)
    }

    /// A file that says which version it has.
    pub fn of_version(uuid: [u8; 16], geometry: Geometry, version: u32) -> Self {
        Self {
            uuid,
            geometry,
            version,
        }
    }

    /// Whether there is a checksum of each sector.
    pub fn has_sums(&self) -> bool {
        self.version > FIRST
    }

    /// Whether heads can have the records, and lie together.
    pub fn settles(&self) -> bool {
        self.version > FIRST
    }

    /// Where metadata and checksums of sectors end in a record.
    fn record_ends(&self) -> (usize, usize) {
        let sectors = self.geometry.ws_min as usize;
        let metadata = RECORD_BYTES + METADATA_BYTES * sectors;
        let sums = if self.has_sums() { sectors } else { 0 };
        (metadata, metadata + SUM_BYTES * sums)
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Pieces of the file.
    pub fn pieces(&self) -> u64 {
        HEADERS + u64::from(self.chunks()) * (self.head_pieces() + self.data_pieces())
    }

    pub fn chunks(&self) -> u32 {
        self.geometry.total_pus() * self.geometry.chunks
    }

    /// Write units of a chunk.
    pub fn units(&self) -> u32 {
        self.geometry.clba / self.geometry.ws_min
    }

    /// Pieces of a write unit with its record.
    pub fn unit_pieces(&self) -> u64 {
        1 + u64::from(self.geometry.ws_min)
    }

    /// Pieces of the units of a chunk.
    pub fn data_pieces(&self) -> u64 {
        u64::from(self.units()) * self.unit_pieces()
    }

    /// Pieces of the head of a chunk.
    pub fn head_pieces(&self) -> u64 {
        match self.settles() {
            true => (TABLE + self.units() as usize * self.body_bytes()).div_ceil(PIECE) as u64,
            false => 1,
        }
    }

    /// Bytes of a record that stand in the head, too.
    pub fn body_bytes(&self) -> usize {
        self.record_ends().1 - BODY
    }

    /// The number of the chunk that holds an address of the device, in the order of addresses, and
    /// the sector in it.
    pub fn chunk_of(&self, address: u64) -> Option<(u32, u32)> {
        let place = self.geometry.place(address)?;
        let unit = place.group * self.geometry.pus + place.pu;
        Some((unit * self.geometry.chunks + place.chunk, place.sector))
    }

    /// The first piece of the head of a chunk.
    pub fn head(&self, chunk: u32) -> u64 {
        let before = match self.settles() {
            true => self.head_pieces(),
            false => 1 + self.data_pieces(),
        };
        HEADERS + u64::from(chunk) * before
    }

    /// The piece that the record of a write unit is in; its sectors follow.
    pub fn record(&self, chunk: u32, unit: u32) -> u64 {
        let first = match self.settles() {
            true => self.head(self.chunks()) + u64::from(chunk) * self.data_pieces(),
            false => self.head(chunk) + 1,
        };
        first + u64::from(unit) * self.unit_pieces()
    }

    /// The piece that a sector is in.
    pub fn sector(&self, chunk: u32, sector: u32) -> u64 {
        let (unit, place) = (sector / self.geometry.ws_min, sector % self.geometry.ws_min);
        self.record(chunk, unit) + 1 + u64::from(place)
    }

    /// The header of this file.
    pub fn encode_header(&self, piece: &mut [u8]) {
        piece.fill(0);
        let shape = Shape::of(&self.geometry);
        piece[..8].copy_from_slice(&HEADER_MAGIC);
        put(piece, 8, self.version);
        piece[16..32].copy_from_slice(&self.uuid);
        let words = [
            shape.groups,
            shape.pus,
            shape.chunks,
            shape.clba,
            shape.ws_min,
            shape.ws_opt,
            shape.mw_cunits,
            shape.open_chunks_per_pu,
        ];
        for (place, word) in words.into_iter().enumerate() {
            put(piece, 32 + 4 * place, word);
        }
        let sum = checksum(&[piece]);
        put(piece, HEADER_SUM.start, sum);
    }

    /// The head of `chunk`, of one piece, or of all if it is to have the `bodies` of records.
    pub fn encode_head(&self, chunk: u32, head: &Head, bodies: &[u8], piece: &mut [u8]) {
        piece.fill(0);
        let (state, pointer) = match head.fate {
            Fate::InUse => (0, 0),
            Fate::Closed(pointer) => (1, pointer),
            Fate::Offline => (2, 0),
            Fate::Settled(pointer) => (3, pointer),
        };
        piece[TABLE..TABLE + bodies.len()].copy_from_slice(bodies);
        put(piece, HEAD_BYTES, checksum(&[bodies]));
        self.begin(HEAD_MAGIC, chunk, piece);
        for (place, word) in [head.epoch, head.resets, state, pointer]
            .into_iter()
            .enumerate()
        {
            put(piece, 20 + 4 * place, word);
        }
        let sum = checksum(&[&piece[8..HEAD_BYTES]]);
        put(piece, 4, sum);
    }

    /// The head of `chunk`, if that is what a piece holds.
    pub fn decode_head(&self, chunk: u32, piece: &[u8]) -> Option<Head> {
        let sum = checksum(&[piece.get(8..HEAD_BYTES)?]);
        let sound = self.begins(HEAD_MAGIC, chunk, piece) && word(piece, 4) == sum;
        let fate = match word(piece, 28) {
            0 => Fate::InUse,
            1 => Fate::Closed(word(piece, 32)),
            2 => Fate::Offline,
            3 => Fate::Settled(word(piece, 32)),
            _ => return None,
        };
        sound.then(|| Head {
            epoch: word(piece, 20),
            resets: word(piece, 24),
            fate,
        })
    }

    /// The records of `units` write units of `chunk`, if the pieces of its head have them.
    pub fn decode_table(
        &self,
        chunk: u32,
        epoch: u32,
        units: u32,
        pieces: &[u8],
    ) -> Option<Vec<Record>> {
        let bodies = pieces.get(TABLE..TABLE + units as usize * self.body_bytes())?;
        if word(pieces, HEAD_BYTES) != checksum(&[bodies]) {
            return None;
        }
        let records = bodies.chunks_exact(self.body_bytes());
        let records: Vec<Record> = records.map(|body| self.decode_body(chunk, body)).collect();
        let mut numbered = (0..).zip(&records);
        let own = numbered.all(|(unit, record)| record.unit == unit && record.epoch == epoch);
        own.then_some(records)
    }

    /// What stands in the head of records.
    pub fn bodies(&self, records: &[Record]) -> Vec<u8> {
        let mut piece = [0; PIECE];
        let mut bodies = Vec::with_capacity(records.len() * self.body_bytes());
        for record in records {
            self.encode_record(record, &mut piece);
            bodies.extend_from_slice(self.body(&piece));
        }
        bodies
    }

    /// What stands in the head of a record that was encoded.
    pub fn body<'a>(&self, piece: &'a [u8]) -> &'a [u8] {
        &piece[BODY..self.record_ends().1]
    }

    /// The record of a write unit.
    pub fn encode_record(&self, record: &Record, piece: &mut [u8]) {
        piece.fill(0);
        self.begin(RECORD_MAGIC, record.chunk, piece);
        let words = [record.unit, record.epoch, record.durable, record.data];
        for (place, word) in words.into_iter().enumerate() {
            put(piece, BODY + 4 * place, word);
        }
        let (sums, end) = self.record_ends();
        let places = piece[RECORD_BYTES..sums].chunks_exact_mut(METADATA_BYTES);
        for (place, [low, high]) in places.zip(&record.metadata) {
            place[..8].copy_from_slice(&low.to_le_bytes());
            place[8..].copy_from_slice(&high.to_le_bytes());
        }
        let places = piece[sums..end].chunks_exact_mut(SUM_BYTES);
        for (place, sum) in places.zip(&record.sums) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
        let sum = checksum(&[&piece[8..end]]);
        put(piece, 4, sum);
    }

    /// The record of a write unit of `chunk`, if that is what a piece holds.
    pub fn decode_record(&self, chunk: u32, unit: u32, piece: &[u8]) -> Option<Record> {
        let sum = checksum(&[piece.get(8..self.record_ends().1)?]);
        let own = self.begins(RECORD_MAGIC, chunk, piece) && word(piece, BODY) == unit;
        if !own || word(piece, 4) != sum {
            return None;
        }
        Some(self.decode_body(chunk, self.body(piece)))
    }

    /// What the part of a record says that begins with the number of the unit.
    fn decode_body(&self, chunk: u32, body: &[u8]) -> Record {
        let (metadata, sums) =
            body[RECORD_BYTES - BODY..].split_at(self.record_ends().0 - RECORD_BYTES);
        let metadata = metadata.chunks_exact(METADATA_BYTES);
        let metadata = metadata.map(|both| [double_word(both, 0), double_word(both, 8)]);
        let sums = sums.chunks_exact(SUM_BYTES).map(|sum| word(sum, 0));
        Record {
            chunk,
            unit: word(body, 0),
            epoch: word(body, 4),
            durable: word(body, 8),
            data: word(body, 12),
            metadata: metadata.collect(),
            sums: sums.collect(),
        }
    }

    fn begin(&self, magic: [u8; 4], chunk: u32, piece: &mut [u8]) {
        piece[..4].copy_from_slice(&magic);
        piece[8..16].copy_from_slice(&self.uuid[..8]);
        put(piece, 16, chunk);
    }

    fn begins(&self, magic: [u8; 4], chunk: u32, piece: &[u8]) -> bool {
        piece[..4] == magic && piece[8..16] == self.uuid[..8] && word(piece, 16) == chunk
    }
}

/// What is where a header should be.
pub(super) fn decode_header(piece: &[u8]) -> Header {
    if piece.iter().all(|&byte| byte == 0) {
        return Header::Blank;
    }
    if piece.len() != PIECE || piece[..8] != HEADER_MAGIC {
        return Header::Foreign;
    }
    let sum = word(piece, HEADER_SUM.start);
    let rest = &piece[HEADER_SUM.end..];
    if sum != checksum(&[&piece[..HEADER_SUM.start], &[0; 4], rest]) {
        return Header::Damaged;
    }
    let version = word(piece, 8);
    if !(FIRST..=VERSION).contains(&version) {
        return Header::Newer(version);
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&piece[16..32]);
    let shape = Shape {
        groups: word(piece, 32),
        pus: word(piece, 36),
        chunks: word(piece, 40),
        clba: word(piece, 44),
        ws_min: word(piece, 48),
        ws_opt: word(piece, 52),
        mw_cunits: word(piece, 56),
        open_chunks_per_pu: word(piece, 60),
    };
    Header::Valid(uuid, shape, version)
}

/// CRC32C of parts that follow each other.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = Crc32c::new();
    for part in parts {
        digest.update(part);
    }
    digest.value()
}

fn put(piece: &mut [u8], at: usize, word: u32) {
    piece[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

fn word(piece: &[u8], at: usize) -> u32 {
    let bytes = piece[at..at + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes)
}

fn double_word(piece: &[u8], at: usize) -> u64 {
    let bytes = piece[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
