//! A zoned device that is only looked at: it is read and never written, and no zone of it is
//! finished or erased.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flashyard_block::OpenError;
use flashyard_flash::channel::{ChunkInfo, Geometry, Metadata};
use flashyard_runtime::{Buf, File, OpenOptions, Rt, ZoneModel};
use flashyard_time::Duration;

use super::survey::{self, LEAST_CHUNKS, system, trailer_at};
use super::unit::{BYTES, SECTOR, SECTORS, Trailer};
use super::{Chunk, index};

/// How long to wait when buffers have run out.
const BUFFER_WAIT: Duration = Duration::from_ms(1);
/// Zones that are looked at at the same time.
const AT_ONCE: usize = 16;

/// Whether `path` is a zoned block device for partitions.
pub(crate) fn is_zoned(rt: &Rt, path: &Path) -> Result<bool, OpenError> {
    let file = rt.open(path, OpenOptions::default());
    let file = file.map_err(system(path, "open"))?;
    let facts = file.zoned().map_err(system(path, "ask for the zones of"))?;
    Ok(facts.is_some_and(|facts| facts.model == ZoneModel::HostManaged))
}

/// A device of which is not known to how many units its zones were dealt out.
pub(crate) struct Undivided {
    path: PathBuf,
    device: survey::Undivided,
    rt: Rt,
}

/// A device with its units.
pub(crate) struct Sight {
    rt: Rt,
    file: File,
    geometry: Geometry,
    chunks: Vec<Chunk>,
    /// The trailer that was read last, of a unit of a chunk: its sectors are mostly asked for one
    /// after the other.
    last: RefCell<Option<(usize, u32, Rc<Trailer>)>>,
}

impl Undivided {
    /// Opens a device exclusively.
    pub async fn open(rt: &Rt, path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            path: path.into(),
            device: survey::find(rt, path, false).await?,
            rt: rt.clone(),
        })
    }

    /// The numbers of units that its zones can have been dealt out to.
    pub fn divisions(&self) -> std::ops::RangeInclusive<u32> {
        2..=self.device.zones.len() as u32 / LEAST_CHUNKS
    }

    /// The first `count` sectors of a unit, if there are so many `units`. Those that are not what
    /// was written are zeros.
    pub async fn start_of(&self, unit: u32, units: u32, count: usize) -> Vec<u8> {
        let zones = &self.device.zones;
        let zone = zones.get(unit as usize * (zones.len() / units as usize));
        let mut bytes = vec![0; count * SECTOR];
        let Some(zone) = zone else { return bytes };
        for (number, sectors) in (0..).zip(bytes.chunks_mut(SECTORS * SECTOR)) {
            let Some(trailer) = trailer(&self.rt, &self.device.file, zone.start, number).await
            else {
                break;
            };
            for (place, sector) in sectors.chunks_mut(SECTOR).enumerate() {
                let at = zone.start + (number as usize * BYTES + place * SECTOR) as u64;
                let read = read(&self.rt, &self.device.file, at, SECTOR).await;
                if let Some(read) = read.filter(|read| trailer.matches(place, read)) {
                    sector.copy_from_slice(&read);
                }
            }
        }
        bytes
    }

    /// Deals the zones out to `units`, or to as many as make sense. Refuses a device that holds
    /// anything else than ours.
    pub async fn divide(self, units: Option<u32>) -> Result<Sight, OpenError> {
        let (geometry, chunks) = survey::divided(&self.path, &self.device, units).await?;
        Ok(Sight {
            rt: self.rt,
            file: self.device.file,
            geometry,
            chunks,
            last: RefCell::new(None),
        })
    }
}

impl Sight {
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether anything of ours was ever written, and is there.
    pub fn is_used(&self) -> bool {
        survey::has_ours(&self.chunks)
    }

    /// Every chunk, ordered by address.
    pub fn report(&self) -> Vec<ChunkInfo> {
        let chunks = self.chunks.iter().enumerate();
        let info = |(number, chunk): (usize, &Chunk)| chunk.info(&self.geometry, number);
        chunks.map(info).collect()
    }

    /// What is noted beside a sector, and its data if there is room for them; nothing when it is
    /// not there, or not what was written.
    pub async fn read(&self, address: u64, page: Option<&mut [u8]>) -> Option<Metadata> {
        let place = self.geometry.place(address)?;
        let chunk = index(&self.geometry, &place);
        let zone = self
            .chunks
            .get(chunk)
            .filter(|zone| zone.has(place.sector))?;
        let (unit, sector) = (
            place.sector / SECTORS as u32,
            place.sector as usize % SECTORS,
        );
        let trailer = self.trailer(chunk, unit).await?;
        if let Some(page) = page {
            let at = zone.start + u64::from(unit) * BYTES as u64 + (sector * SECTOR) as u64;
            let data = read(&self.rt, &self.file, at, SECTOR).await?;
            if !trailer.matches(sector, &data) {
                return None;
            }
            page.copy_from_slice(&data);
        }
        Some(trailer.metadata(sector))
    }

    async fn trailer(&self, chunk: usize, unit: u32) -> Option<Rc<Trailer>> {
        if let Some((of, number, trailer)) = &*self.last.borrow()
            && (*of, *number) == (chunk, unit)
        {
            return Some(trailer.clone());
        }
        let start = self.chunks[chunk].start;
        let trailer = Rc::new(trailer(&self.rt, &self.file, start, unit).await?);
        *self.last.borrow_mut() = Some((chunk, unit, trailer.clone()));
        Some(trailer)
    }

    /// Reads everything that is written: the chunks, by their place in the list, of which something
    /// is not what was written, and the first such unit of each.
    pub async fn verify(self: &Rc<Self>) -> Vec<(usize, u32)> {
        let lookers: Vec<_> = (0..AT_ONCE)
            .map(|first| {
                let this = self.clone();
                self.rt.spawn(async move {
                    let mut damaged = Vec::new();
                    for chunk in (first..this.chunks.len()).step_by(AT_ONCE) {
                        let unit = this.first_damaged(chunk).await;
                        damaged.extend(unit.map(|unit| (chunk, unit)));
                    }
                    damaged
                })
            })
            .collect();
        let mut damaged = Vec::new();
        for looker in lookers {
            damaged.extend(looker.await);
        }
        damaged.sort_unstable();
        damaged
    }

    async fn first_damaged(&self, chunk: usize) -> Option<u32> {
        let zone = self.chunks[chunk];
        for unit in 0..zone.written / SECTORS as u32 {
            let at = zone.start + u64::from(unit) * BYTES as u64;
            let sound = match read(&self.rt, &self.file, at, BYTES).await {
                Some(bytes) => is_sound(zone.start, unit, &bytes),
                None => false,
            };
            if !sound {
                return Some(unit);
            }
        }
        None
    }
}

/// Whether a unit is what was written.
fn is_sound(zone: u64, unit: u32, bytes: &[u8]) -> bool {
    let (data, block) = bytes.split_at(SECTORS * SECTOR);
    let Some(trailer) = Trailer::decode(zone, unit, block) else {
        return false;
    };
    let mut sectors = data.chunks_exact(SECTOR).enumerate();
    sectors.all(|(place, sector)| trailer.matches(place, sector))
}

async fn trailer(rt: &Rt, file: &File, zone: u64, unit: u32) -> Option<Trailer> {
    let block = read(rt, file, trailer_at(zone, unit), SECTOR).await?;
    Trailer::decode(zone, unit, &block)
}

/// Reads so many bytes; nothing when that fails.
async fn read(rt: &Rt, file: &File, at: u64, len: usize) -> Option<Buf> {
    let buf = loop {
        match Buf::take(len) {
            Some(buf) => break buf,
            None => rt.sleep(BUFFER_WAIT).await,
        }
    };
    let (outcome, buf) = file.read_at(buf, at).await;
    outcome.is_ok_and(|read| read == len).then_some(buf)
}
