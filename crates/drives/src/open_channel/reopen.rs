//! Opening a file that holds the flash of an open-channel device: creates it, or finds out the
//! state of every chunk.

use std::ops::Range;
use std::rc::Rc;

use flashyard_block::{Device as _, FileDevice, IoError};
use flashyard_flash::channel::{ChunkState, Device, Geometry, KeptChunk, Metadata, Place, Shape};
use flashyard_runtime::Rt;

use super::error::PartitionError;
use super::file_store::{FileStore, Kept};
use super::image::{Fate, HEADERS, Head, Header, Image, PIECE, Record, checksum, decode_header};

/// Pieces at the start of a file that have to be empty for it to be made anew.
const LOOKED_AT: usize = 16;
/// Chunks that are looked at at the same time.
const AT_ONCE: u32 = 16;

/// What a file has of a chunk.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub chunk: u32,
    pub kept: Kept,
    pub state: ChunkState,
    /// Metadata of all sectors that can be read.
    pub metadata: Vec<Metadata>,
    /// Checksums of these, if the file has them.
    pub sums: Vec<u32>,
    /// What its head could have of its records and does not.
    pub bodies: Option<Vec<u8>>,
    /// Damage that no interrupted write explains.
    pub damage: Option<String>,
}

/// How much is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Care {
    /// Everything that tells how far chunks are written.
    Usual,
    /// All data against their checksums, too.
    All,
}

/// Opens a file for a `device` that was not used yet, and puts the device into the state that the
/// file tells of. A file in which nothing is becomes that of this device if there is a `uuid` for
/// it.
pub(super) async fn open(
    rt: &Rt,
    file: FileDevice,
    device: &mut Device,
    uuid: Option<[u8; 16]>,
) -> Result<FileStore, PartitionError> {
    let header = read_header(&file).await?;
    let shape = Shape::of(device.geometry());
    let geometry = device.geometry().clone();
    let (image, whole) = match header {
        None => (Image::new(uuid.ok_or_else(lost)?, geometry), None),
        Some(header) if header.shape != shape => return Err(other_shape(&header.shape, &shape)),
        Some(header) => (header.image(geometry), Some(header.whole)),
    };
    has_room(&file, &image)?;
    let store = FileStore::new(rt, file, image).map_err(|_| PartitionError::Memory)?;
    let Some(whole) = whole else {
        make(&store, device).await.map_err(file_failed)?;
        return Ok(store);
    };
    repair_header(&store, whole).await.map_err(file_failed)?;
    let store = Rc::new(store);
    for mut found in look_at_all(rt, &store, Care::Usual).await? {
        if let Some(bodies) = found.bodies.take() {
            store.set_bodies(found.chunk, bodies);
        }
        restore(&store, device, found)?;
    }
    match settle(rt, &store).await {
        // What is there can be read, and the next to open it has more to read.
        Ok(()) | Err(IoError::NoSpace) => {}
        Err(error) => return Err(file_failed(error)),
    }
    Ok(Rc::into_inner(store).expect("those who worked have ended"))
}

/// Writes the records of chunks that take no more writes into their heads, so that the next open of
/// the file reads little.
pub(super) async fn settle(rt: &Rt, store: &Rc<FileStore>) -> Result<(), IoError> {
    let chunks = store.unsettled();
    if chunks.is_empty() {
        return Ok(());
    }
    // What was found may be in no more than a volatile cache.
    store.flush().await?;
    let writers = chunks.chunks(chunks.len().div_ceil(AT_ONCE as usize));
    let writers = writers.map(|chunks| {
        let (store, chunks) = (Rc::clone(store), chunks.to_vec());
        rt.spawn(async move {
            for chunk in chunks {
                store.settle(chunk).await?;
            }
            Ok(())
        })
    });
    let mut outcome = Ok(());
    for writer in writers.collect::<Vec<_>>() {
        outcome = outcome.and(writer.await);
    }
    outcome
}

fn lost() -> PartitionError {
    PartitionError::Store(
        "the file is empty and should hold an open-channel device: restore it from a backup, or delete the device".into(),
    )
}

/// What was found in the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundHeader {
    pub uuid: [u8; 16],
    pub shape: Shape,
    pub version: u32,
    /// Which copies are whole.
    pub whole: [bool; HEADERS as usize],
}

impl FoundHeader {
    /// Where everything is in the file of a device of such a geometry.
    pub fn image(&self, geometry: Geometry) -> Image {
        Image::of_version(self.uuid, geometry, self.version)
    }
}

/// The header; nothing when the file is empty, or was being made when it was cut off.
pub(super) async fn read_header(file: &FileDevice) -> Result<Option<FoundHeader>, PartitionError> {
    let pieces = read_start(file).await?;
    let (first, rest) = pieces.split_at(PIECE);
    let copies = [decode_header(first), decode_header(&rest[..PIECE])];
    for copy in &copies {
        match copy {
            &Header::Valid(uuid, shape, version) => {
                let whole = copies.clone().map(|other| other == *copy);
                return Ok(Some(FoundHeader {
                    uuid,
                    shape,
                    version,
                    whole,
                }));
            }
            Header::Newer(version) => return Err(PartitionError::Newer(*version)),
            _ => {}
        }
    }
    let rest_is_empty = rest.iter().all(|&byte| byte == 0);
    match copies {
        // The second copy is written when the first is durable.
        [Header::Blank | Header::Damaged, _] if rest_is_empty => Ok(None),
        [Header::Damaged, _] | [_, Header::Damaged] => Err(PartitionError::Store(
            "both copies of the header of the file are damaged: restore the file from a backup"
                .into(),
        )),
        _ => Err(PartitionError::Store(
            "the file holds something else than an open-channel device: choose another path, or remove the file if it is \
             not needed"
                .into(),
        )),
    }
}

async fn read_start(file: &FileDevice) -> Result<Vec<u8>, PartitionError> {
    let info = file.info();
    if info.block_size as usize != PIECE {
        return Err(PartitionError::Store(
            "the flash of an open-channel device is kept in blocks of 4096 bytes: set block_size to that".into(),
        ));
    }
    let len = (info.blocks as usize).min(LOOKED_AT) * PIECE;
    let buf = flashyard_runtime::Buf::take(len).ok_or(PartitionError::Memory)?;
    let (outcome, buf) = file.take(0, buf).await;
    outcome.map_err(file_failed)?;
    let mut pieces = buf.to_vec();
    pieces.resize(pieces.len().max(2 * PIECE), 0);
    Ok(pieces)
}

/// Refuses a file that has lost its end.
pub(super) fn has_room(file: &FileDevice, image: &Image) -> Result<(), PartitionError> {
    let (there, needed) = (file.info().blocks, image.pieces());
    if there >= needed {
        return Ok(());
    }
    let bytes = |pieces: u64| pieces * PIECE as u64;
    Err(PartitionError::Store(format!(
        "the file has {} bytes and should have {}: its end is lost, restore it from a backup",
        bytes(there),
        bytes(needed)
    )))
}

fn other_shape(found: &Shape, wanted: &Shape) -> PartitionError {
    let show = |shape: &Shape| {
        format!(
            "{} channels with {} units of {} chunks of {} sectors, written by {}",
            shape.groups, shape.pus, shape.chunks, shape.clba, shape.ws_min
        )
    };
    PartitionError::Store(format!(
        "the file holds a device of another geometry ({}; not {}): give it the size and the profile it was made with",
        show(found),
        show(wanted)
    ))
}

/// Makes an empty file that of a device.
async fn make(store: &FileStore, device: &Device) -> Result<(), IoError> {
    for info in device.report() {
        if info.state == ChunkState::Offline
            && let Some((chunk, _)) = store.image().chunk_of(info.address)
        {
            store.end(chunk, Fate::Offline).await?;
        }
    }
    repair_header(store, [false; HEADERS as usize]).await
}

/// Writes copies of the header that are not whole, one when the other is durable.
async fn repair_header(store: &FileStore, whole: [bool; HEADERS as usize]) -> Result<(), IoError> {
    for (copy, _) in (0..).zip(whole).filter(|(_, whole)| !whole) {
        store.flush().await?;
        let fill = |piece: &mut [u8]| store.image().encode_header(piece);
        store.write_piece(copy, fill).await?;
        store.flush().await?;
    }
    Ok(())
}

/// Looks at all chunks, some at a time.
pub(super) async fn look_at_all(
    rt: &Rt,
    store: &Rc<FileStore>,
    care: Care,
) -> Result<Vec<Found>, PartitionError> {
    let chunks = store.image().chunks();
    let together = if store.image().settles() {
        store.heads_together()
    } else {
        1
    };
    let lookers = (0..AT_ONCE.min(chunks.div_ceil(together))).map(|first| {
        let store = Rc::clone(store);
        rt.spawn(async move {
            let mut found = Vec::new();
            for first in (first * together..chunks).step_by((AT_ONCE * together) as usize) {
                let heads = first..chunks.min(first + together);
                found.extend(look_at_some(&store, heads, care).await?);
            }
            Ok::<_, IoError>(found)
        })
    });
    let lookers: Vec<_> = lookers.collect();
    let mut all = Vec::with_capacity(chunks as usize);
    for looker in lookers {
        all.extend(looker.await.map_err(file_failed)?);
    }
    all.sort_unstable_by_key(|found| found.chunk);
    Ok(all)
}

/// Looks at chunks whose heads lie together.
async fn look_at_some(
    store: &FileStore,
    chunks: Range<u32>,
    care: Care,
) -> Result<Vec<Found>, IoError> {
    let each = store.image().head_pieces() as usize * PIECE;
    let mut heads = vec![0; chunks.len() * each];
    store
        .read(store.image().head(chunks.start), &mut heads)
        .await?;
    let mut found = Vec::with_capacity(chunks.len());
    for (chunk, head) in chunks.zip(heads.chunks_exact(each)) {
        found.push(look(store, chunk, head, care).await?);
    }
    Ok(found)
}

/// Finds out the state of a chunk whose head is in these pieces.
async fn look(store: &FileStore, chunk: u32, pieces: &[u8], care: Care) -> Result<Found, IoError> {
    let image = store.image();
    let unused = Head {
        epoch: 0,
        resets: 0,
        fate: Fate::InUse,
    };
    let Some(head) = image.decode_head(chunk, pieces) else {
        return Ok(match pieces[..PIECE].iter().all(|&byte| byte == 0) {
            // The head is written before the first unit.
            true => describe(image, chunk, unused, &[], None),
            false => torn_head(store, chunk),
        });
    };
    let settled = match head.fate {
        Fate::Settled(sectors) => Some((sectors / image.geometry().ws_min).min(image.units())),
        _ => None,
    };
    let table = settled.filter(|_| care == Care::Usual);
    let table = table.and_then(|units| image.decode_table(chunk, head.epoch, units, pieces));
    let mut damage = None;
    let records = match table {
        Some(records) => records,
        None => {
            let most = settled.unwrap_or(image.units());
            let mut records = read_records(store, chunk, head.epoch, most).await?;
            let end = records.len() as u32;
            damage = drop_torn(store, chunk, &mut records, settled, care).await?;
            if care == Care::All && is_missed(store, chunk, head.epoch, end..most).await? {
                damage = Some(format!(
                    "the record of write unit {end} is not what was written"
                ));
            }
            records
        }
    };
    Ok(describe(image, chunk, head, &records, damage))
}

/// The records of a chunk up to the first that does not count, `most` of them.
async fn read_records(
    store: &FileStore,
    chunk: u32,
    epoch: u32,
    most: u32,
) -> Result<Vec<Record>, IoError> {
    let image = store.image();
    let mut records = Vec::new();
    let mut piece = vec![0; PIECE];
    for unit in 0..most {
        store.read(image.record(chunk, unit), &mut piece).await?;
        match image.decode_record(chunk, unit, &piece) {
            Some(record) if record.epoch == epoch => records.push(record),
            _ => break,
        }
    }
    Ok(records)
}

/// Whether records behind one that does not count say that it was durable when they were written.
async fn is_missed(
    store: &FileStore,
    chunk: u32,
    epoch: u32,
    units: Range<u32>,
) -> Result<bool, IoError> {
    let image = store.image();
    let mut piece = vec![0; PIECE];
    for unit in units.clone().skip(1) {
        store.read(image.record(chunk, unit), &mut piece).await?;
        let record = image.decode_record(chunk, unit, &piece);
        if record.is_some_and(|one| one.epoch == epoch && one.durable > units.start) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Leaves out units from the first one on whose sectors are not what was written. Only what was not
/// durable when the last one was written can have been cut off, and nothing of what is `settled`.
async fn drop_torn(
    store: &FileStore,
    chunk: u32,
    records: &mut Vec<Record>,
    settled: Option<u32>,
    care: Care,
) -> Result<Option<String>, IoError> {
    let durable = records.last().map_or(0, |last| last.durable);
    let durable = settled.unwrap_or(durable);
    let from = if care == Care::All { 0 } else { durable };
    let mut sectors = vec![0; store.image().geometry().ws_min as usize * PIECE];
    for unit in from..records.len() as u32 {
        let at = store.image().record(chunk, unit) + 1;
        store.read(at, &mut sectors).await?;
        if checksum(&[&sectors]) == records[unit as usize].data {
            continue;
        }
        if unit < durable {
            return Ok(Some(format!(
                "the data of write unit {unit} are not what was written"
            )));
        }
        records.truncate(unit as usize);
        break;
    }
    Ok(None)
}

/// Of a chunk whose erase was cut off, or whose head is damaged: nothing of it can be read until it
/// is erased.
fn torn_head(store: &FileStore, chunk: u32) -> Found {
    let head = Head {
        // None of the records that may be there has it.
        epoch: store.random(),
        resets: 0,
        fate: Fate::Closed(0),
    };
    Found {
        chunk,
        kept: Kept { head, durable: 0 },
        state: ChunkState::Closed,
        metadata: Vec::new(),
        sums: Vec::new(),
        bodies: None,
        damage: Some(
            "the head of the chunk is not what was written; or an erase was cut off".into(),
        ),
    }
}

fn describe(
    image: &Image,
    chunk: u32,
    head: Head,
    records: &[Record],
    mut damage: Option<String>,
) -> Found {
    let size = image.geometry().ws_min;
    let mut sectors = records.len() as u32 * size;
    let state = match head.fate {
        Fate::Offline => ChunkState::Offline,
        Fate::Closed(end) | Fate::Settled(end) => {
            if end > sectors {
                let what = format!("{sectors} sectors are left of {end}");
                damage = damage.or(Some(what));
            }
            sectors = sectors.min(end);
            ChunkState::Closed
        }
        // What follows may have been cut off: nothing is added to a chunk of a former life.
        Fate::InUse if sectors > 0 => ChunkState::Closed,
        Fate::InUse => ChunkState::Free,
    };
    if state == ChunkState::Offline {
        sectors = 0;
    }
    let records = &records[..(sectors / size) as usize];
    let settles = image.settles()
        && state == ChunkState::Closed
        && damage.is_none()
        && !matches!(head.fate, Fate::Settled(_));
    let metadata = records.iter().flat_map(|record| &record.metadata);
    let sums = records.iter().flat_map(|record| &record.sums);
    let durable = records.len() as u32;
    Found {
        chunk,
        kept: Kept { head, durable },
        state,
        metadata: metadata.copied().collect(),
        sums: sums.copied().collect(),
        bodies: settles.then(|| image.bodies(records)),
        damage,
    }
}

/// Puts a chunk of `device` into the state that was found.
pub(super) fn restore(
    store: &FileStore,
    device: &mut Device,
    found: Found,
) -> Result<(), PartitionError> {
    store.set_kept(found.chunk, found.kept);
    store.set_sums(found.chunk, found.sums);
    let kept = KeptChunk {
        address: address_of(store.image(), found.chunk),
        state: found.state,
        write_pointer: found.metadata.len() as u32,
        resets: found.kept.head.resets,
    };
    if device.restore(&kept, &found.metadata) {
        return Ok(());
    }
    Err(PartitionError::Store(format!(
        "chunk {} of the file is in no possible state: restore the file from a backup",
        found.chunk
    )))
}

/// The address of the first sector of a chunk.
pub(super) fn address_of(image: &Image, chunk: u32) -> u64 {
    let geometry = image.geometry();
    let unit = chunk / geometry.chunks;
    let place = Place {
        group: unit / geometry.pus,
        pu: unit % geometry.pus,
        chunk: chunk % geometry.chunks,
        sector: 0,
    };
    let address = geometry.address(place);
    address.expect("chunks are counted up to the end of the device")
}

fn file_failed(error: IoError) -> PartitionError {
    PartitionError::Store(format!(
        "the file that holds the flash failed ({error:?}): check the disk it is on"
    ))
}

#[cfg(test)]
mod tests;
