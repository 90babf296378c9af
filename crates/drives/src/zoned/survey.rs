//! Opening a zoned device: what it is, whether it is usable, and what is in its zones.
//!
//! A zone that is partly written is finished: no write continues where an earlier run has stopped,
//! and the device allows only a limited number of active zones. A device does not say how far a
//! finished zone is written; the trailers of the units do.

use std::path::Path;

use flashyard_block::OpenError;
use flashyard_flash::channel::{ChunkState, Geometry, Shape};
use flashyard_runtime::{
    Buf, File, FileKind, OpenOptions, Rt, Zone, ZoneKind, ZoneModel, ZoneState, Zoned,
};

use super::unit::{BYTES, SECTOR, SECTORS, Trailer};
use super::{ACTIVE_OF_LAYOUT, ACTIVE_PER_UNIT, Chunk};

/// Zones of a unit at least.
pub(super) const LEAST_CHUNKS: u32 = 8;
/// Zones of a unit that leave enough room for data, where the device has so many.
const GOOD_CHUNKS: u32 = 32;
/// Units that a device is divided into when the user does not say how many.
const USUAL_UNITS: u32 = 16;
/// Zones asked for at once.
const REPORT: u32 = 1024;

/// A usable device.
pub(super) struct Found {
    pub file: File,
    pub facts: Zoned,
    pub geometry: Geometry,
    pub chunks: Vec<Chunk>,
}

/// A device and its zones that are written in order, before they are dealt out.
pub(super) struct Undivided {
    pub file: File,
    pub facts: Zoned,
    pub zones: Vec<Zone>,
}

/// Opens the device at `path`, exclusively, to be read and, if it is to be used,
/// written.
pub(super) async fn find(rt: &Rt, path: &Path, write: bool) -> Result<Undivided, OpenError> {
    let options = OpenOptions {
        write,
        create: false,
        direct: true,
        exclusive: true,
    };
    let file = rt.open(path, options).map_err(system(path, "open"))?;
    let facts = check(&file, path)?;
    let zones = report(&file, &facts)
        .await
        .map_err(system(path, "ask for the zones of"))?;
    let zones = zones
        .into_iter()
        .filter(|zone| zone.kind == ZoneKind::Sequential)
        .collect();
    Ok(Undivided { file, facts, zones })
}

/// Deals the zones of a device out to `units`, and looks what is in them. A device that holds
/// anything else is refused.
pub(super) async fn divided(
    path: &Path,
    device: &Undivided,
    units: Option<u32>,
) -> Result<(Geometry, Vec<Chunk>), OpenError> {
    let Undivided { file, facts, zones } = device;
    let geometry = divide(path, facts, zones, units)?;
    let wanted = geometry.pus as usize * geometry.chunks as usize;
    let mut chunks = Vec::with_capacity(wanted);
    for zone in &zones[..wanted] {
        let chunk = examine(file, &geometry, zone).await;
        chunks.push(chunk.map_err(system(path, "read"))?);
    }
    if !has_ours(&chunks) {
        refuse_foreign(path, &zones[..wanted])?;
    }
    Ok((geometry, chunks))
}

/// Whether a device has anything of ours.
pub(super) fn has_ours(chunks: &[Chunk]) -> bool {
    chunks.iter().any(|chunk| chunk.written > 0)
}

/// Opens the device at `path`.
pub(super) async fn open(rt: &Rt, path: &Path, units: Option<u32>) -> Result<Found, OpenError> {
    let device = find(rt, path, true).await?;
    let (geometry, chunks) = divided(path, &device, units).await?;
    let Undivided { file, facts, zones } = device;
    if has_ours(&chunks) {
        let active = |zone: &&Zone| zone.state == ZoneState::Active;
        for zone in zones.iter().take(chunks.len()).filter(active) {
            // Should that fail, it is not written all the same: what it costs is one zone that
            // counts as active.
            let _finished = file.finish_zone(zone.start, facts.zone_bytes).await;
        }
    }
    Ok(Found {
        file,
        facts,
        geometry,
        chunks,
    })
}

/// Whether a device is of the right kind.
fn check(file: &File, path: &Path) -> Result<Zoned, OpenError> {
    let (info, shown) = (file.info(), path.display());
    let refused = |what: String| Err(OpenError::Config(format!("{shown} {what}")));
    if info.kind != FileKind::Block {
        return refused("is a regular file: a zoned device is a block device of the kernel".into());
    }
    let facts = file.zoned().map_err(system(path, "ask for the zones of"))?;
    let Some(facts) = facts else {
        return refused("has no zones: set kind = \"block\"".into());
    };
    if facts.model == ZoneModel::HostAware {
        return refused(
            "is host-aware, it takes writes anywhere: set kind = \"block\", or use a host-managed device".into(),
        );
    }
    if !SECTOR.is_multiple_of(info.alignment as usize) || !info.direct {
        return refused(format!(
            "transfers in units of {} bytes: format it with blocks of 512 or 4096",
            info.alignment
        ));
    }
    if facts.transfer_most < BYTES as u64 {
        return refused(format!(
            "takes {} KiB at a time: raise max_sectors_kb of its queue to {}",
            facts.transfer_most >> 10,
            BYTES >> 10
        ));
    }
    let least = ACTIVE_PER_UNIT + ACTIVE_OF_LAYOUT;
    if (1..least).contains(&facts.active_most) {
        return refused(format!(
            "lets {} zones be partly written: {least} are needed, use another device",
            facts.active_most
        ));
    }
    Ok(facts)
}

async fn report(file: &File, facts: &Zoned) -> std::io::Result<Vec<Zone>> {
    let mut zones: Vec<Zone> = Vec::with_capacity(facts.zones as usize);
    while zones.len() < facts.zones as usize {
        let start = zones.len() as u64 * facts.zone_bytes;
        let more = file.report_zones(start, REPORT).await?;
        if more.is_empty() {
            break;
        }
        zones.extend(more);
    }
    Ok(zones)
}

/// Deals the zones out to units.
fn divide(
    path: &Path,
    facts: &Zoned,
    zones: &[Zone],
    units: Option<u32>,
) -> Result<Geometry, OpenError> {
    let shown = path.display();
    let refused = |what: String| OpenError::Config(format!("{shown} {what}"));
    let count = zones.len() as u32;
    let usable = zones.iter().filter(|zone| zone.state != ZoneState::Offline);
    let capacity = usable.map(|zone| zone.capacity.min(facts.zone_bytes)).min();
    let write_units = capacity.unwrap_or(0) / BYTES as u64;
    let pus = units.unwrap_or((count / GOOD_CHUNKS).clamp(2, USUAL_UNITS));
    let chunks = count.checked_div(pus).unwrap_or(0);
    if pus < 2 || chunks < LEAST_CHUNKS || write_units == 0 {
        return Err(refused(format!(
            "has {count} zones that are written in order, {pus} units of them would have {chunks} each: give it at least 2 \
             units of at least {LEAST_CHUNKS} zones of {} KiB",
            BYTES >> 10
        )));
    }
    let shape = Shape {
        groups: 1,
        pus,
        chunks,
        clba: u32::try_from(write_units * SECTORS as u64).unwrap_or(u32::MAX),
        ws_min: SECTORS as u32,
        ws_opt: SECTORS as u32,
        mw_cunits: 0,
        open_chunks_per_pu: 0,
    };
    shape
        .geometry()
        .ok_or_else(|| refused("is larger than 16 TiB, which is too much".into()))
}

/// What is in a zone.
async fn examine(file: &File, geometry: &Geometry, zone: &Zone) -> std::io::Result<Chunk> {
    let units = geometry.clba / SECTORS as u32;
    let (state, written) = match zone.state {
        ZoneState::Empty => (ChunkState::Free, 0),
        ZoneState::Offline | ZoneState::Conventional => (ChunkState::Offline, 0),
        ZoneState::Active => {
            let whole = zone.pointer.saturating_sub(zone.start) / BYTES as u64;
            let whole = whole.min(u64::from(units)) as u32;
            (ChunkState::Closed, written(file, zone.start, whole).await?)
        }
        ZoneState::Full => (ChunkState::Closed, written(file, zone.start, units).await?),
        ZoneState::ReadOnly => match written(file, zone.start, units).await? {
            0 => (ChunkState::Offline, 0),
            written => (ChunkState::Closed, written),
        },
    };
    Ok(Chunk {
        start: zone.start,
        state,
        written: written * SECTORS as u32,
        active: false,
        busy: false,
        room_left: zone.capacity > u64::from(units) * BYTES as u64,
        used: 0,
    })
}

/// How many units of a zone that takes no more writes are whole.
pub(super) async fn written(file: &File, zone: u64, units: u32) -> std::io::Result<u32> {
    if units > 0 && has_unit(file, zone, units - 1).await? {
        return Ok(units);
    }
    let (mut whole, mut beyond) = (0, units.saturating_sub(1));
    while whole < beyond {
        let middle = whole + (beyond - whole) / 2;
        match has_unit(file, zone, middle).await? {
            true => whole = middle + 1,
            false => beyond = middle,
        }
    }
    Ok(whole)
}

/// Whether a unit is there. One that cannot be read is: what was never written reads as zeros.
async fn has_unit(file: &File, zone: u64, number: u32) -> std::io::Result<bool> {
    let buf = Buf::take(SECTOR).ok_or(std::io::ErrorKind::OutOfMemory)?;
    let (read, buf) = file.read_at(buf, trailer_at(zone, number)).await;
    Ok(match read {
        Ok(SECTOR) => Trailer::decode(zone, number, &buf).is_some(),
        _ => true,
    })
}

/// Where the trailer of a unit is, in bytes.
pub(super) fn trailer_at(zone: u64, number: u32) -> u64 {
    zone + u64::from(number) * BYTES as u64 + (SECTORS * SECTOR) as u64
}

/// Refuses a device that has nothing of ours, and something else.
fn refuse_foreign(path: &Path, zones: &[Zone]) -> Result<(), OpenError> {
    // Less than a unit may be what is left of our own first write. It is left alone until it is
    // written over.
    let filled = |zone: &&Zone| match zone.state {
        ZoneState::Full => true,
        ZoneState::Active => zone.pointer.saturating_sub(zone.start) >= BYTES as u64,
        _ => false,
    };
    match zones.iter().find(filled) {
        Some(zone) => Err(OpenError::Config(format!(
            "{} holds something else (in the zone at {}): erase it with `blkzone reset {}` if it is not needed",
            path.display(),
            zone.start,
            path.display()
        ))),
        None => Ok(()),
    }
}

pub(super) fn system<'a>(
    path: &'a Path,
    action: &'static str,
) -> impl FnOnce(std::io::Error) -> OpenError + use<'a> {
    move |source| OpenError::System {
        path: path.into(),
        action,
        source,
    }
}
