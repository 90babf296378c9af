//! Verification of a file that holds an open-channel device, read-only: header, chunks, layout, and whether each partition
//! can be taken up.

use std::fmt;
use std::rc::Rc;

use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{ChunkInfo, ChunkState, Metadata};
use flashyard_flash::ftl::{self, Action, Ftl, IoOp, Part, State, Tag};
use flashyard_runtime::Rt;
use flashyard_time::Time;

use super::PartitionError;
use super::codec::{Decoded, decode};
use super::copies::{SECTORS, newest, why};
use super::file_store::FileStore;
use super::image::{Header, Image, PIECE, decode_header};
use super::layout::{Layout, Record, Span};
use super::reopen::{self, Care, Found, Told};
use super::units::copies;
use crate::FileDevice;

/// Problems that are told one by one.
const MOST_TOLD: usize = 20;

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The two copies of the layout.
    pub copies: [CopyReport; 2],
    /// Chunks that are free, written, and out of use.
    pub chunks: [usize; 3],
    /// The partitions of the newest whole copy.
    pub partitions: Vec<PartitionReport>,
    /// What is wrong, one line each; empty when all is well.
    pub problems: Vec<String>,
}

/// What one copy of the layout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyReport {
    /// Checksum, bounds and owners of units are right.
    pub whole: bool,
    /// Generation, when whole.
    pub generation: Option<u64>,
    /// In words.
    pub state: String,
}

/// What was found of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its name.
    pub name: String,
    /// Parallel units.
    pub units: usize,
    /// Size in bytes, as far as it can be taken up.
    pub bytes: u64,
    /// Sectors that were read to take it up.
    pub read: u64,
    /// Bytes whose data should be there and are not.
    pub lost: u64,
    /// It can be taken up.
    pub recoverable: bool,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, copy) in ["first", "second"].iter().zip(&self.copies) {
            writeln!(f, "{name} copy: {}", copy.state)?;
        }
        let [free, written, offline] = self.chunks;
        writeln!(
            f,
            "chunks: {free} free, {written} written, {offline} out of use"
        )?;
        for one in &self.partitions {
            let state = match one.recoverable {
                true => format!("{} bytes, taken up with {} reads", one.bytes, one.read),
                false => "cannot be taken up".into(),
            };
            writeln!(f, "partition {}: {} units, {state}", one.name, one.units)?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        f.write_str(if self.is_sound() {
            "sound"
        } else {
            "not sound"
        })
    }
}

/// Whether the first piece of a file, 4 KiB, says that it holds an open-channel device.
pub fn is_image(piece: &[u8]) -> bool {
    let header = decode_header(piece);
    matches!(
        header,
        Header::Valid(..) | Header::Newer(_) | Header::Damaged
    )
}

/// Looks at everything in `file`, of which nothing is changed: all checksums, the owners of units, and whether each
/// partition can be taken up. Fails only when nothing can be looked at.
pub async fn check(rt: &Rt, file: FileDevice) -> Result<Report, PartitionError> {
    let told = reopen::read_header(&file).await?.ok_or_else(empty)?;
    let geometry = told.shape.geometry().ok_or_else(impossible)?;
    let image = Image::new(told.uuid, geometry);
    reopen::has_room(&file, &image)?;
    let store = FileStore::new(rt, file, image).map_err(|_| PartitionError::Memory)?;
    let store = Rc::new(store);
    let found = reopen::look_at_all(rt, &store, Care::All).await?;
    let mut problems = header_problems(&told);
    problems.extend(chunk_problems(store.image(), &found));
    let flash = Flash { store, found };
    let decoded = [flash.copy(0).await?, flash.copy(1).await?];
    let copies = decoded.clone().map(|copy| describe(&copy));
    problems.extend(copy_problems(&copies));
    let mut partitions = Vec::new();
    let [first, second] = decoded;
    match newest(first, second, true) {
        Ok(Some(newest)) => {
            for record in &newest.layout.partitions {
                partitions.push(
                    flash
                        .partition(&newest.layout, record, &mut problems)
                        .await?,
                );
            }
        }
        Ok(None) => {}
        Err(error) => problems.push(error.to_string()),
    }
    Ok(Report {
        copies,
        chunks: flash.count(),
        partitions,
        problems,
    })
}

fn empty() -> PartitionError {
    PartitionError::Store(
        "the file is empty, or its creation was cut off: nothing was ever in it".into(),
    )
}

fn impossible() -> PartitionError {
    PartitionError::Store("its header tells of a device that cannot be".into())
}

fn header_problems(told: &Told) -> Vec<String> {
    let damaged = ["first", "second"].into_iter().zip(told.whole);
    let damaged = damaged.filter(|(_, whole)| !whole);
    let problem = |(name, _)| {
        format!(
            "the {name} copy of the header is not whole: it is written anew when the device is opened"
        )
    };
    damaged.map(problem).collect()
}

fn chunk_problems(image: &Image, found: &[Found]) -> Vec<String> {
    let damaged: Vec<&Found> = found.iter().filter(|one| one.damage.is_some()).collect();
    let shown = |one: &&Found| {
        let place = image.geometry().place(reopen::address_of(image, one.chunk));
        let place =
            place.map(|place| format!("{}.{}, chunk {}", place.group, place.pu, place.chunk));
        let damage = one.damage.as_deref();
        format!(
            "unit {}: {}",
            place.unwrap_or_default(),
            damage.unwrap_or_default()
        )
    };
    let mut problems: Vec<String> = damaged.iter().take(MOST_TOLD).map(shown).collect();
    if damaged.len() > MOST_TOLD {
        let more = damaged.len() - MOST_TOLD;
        problems.push(format!("and {more} chunks more are damaged"));
    }
    problems
}

fn describe(copy: &Decoded) -> CopyReport {
    let generation = match copy {
        Decoded::Valid(layout) => Some(layout.generation),
        _ => None,
    };
    CopyReport {
        whole: generation.is_some(),
        generation,
        state: why(copy),
    }
}

fn copy_problems(copies: &[CopyReport; 2]) -> Vec<String> {
    let damaged = copies
        .iter()
        .zip(["first", "second"])
        .filter(|(copy, _)| !copy.whole);
    let mut problems: Vec<String> = damaged
        .map(|(copy, name)| {
            format!(
                "the {name} copy of the layout is not usable: {}; if the other one is, it is written anew when the device \
                 is opened",
                copy.state
            )
        })
        .collect();
    if problems.is_empty() && copies[0].generation != copies[1].generation {
        problems.push(
            "one copy is older: a change was cut off; it is mended when the device is opened"
                .into(),
        );
    }
    problems
}

/// What a file holds.
struct Flash {
    store: Rc<FileStore>,
    /// Every chunk, in the order of addresses.
    found: Vec<Found>,
}

impl Flash {
    fn count(&self) -> [usize; 3] {
        let count = |state| self.found.iter().filter(|one| one.state == state).count();
        let (free, offline) = (count(ChunkState::Free), count(ChunkState::Offline));
        [free, self.found.len() - free - offline, offline]
    }

    /// A copy of the layout.
    async fn copy(&self, copy: usize) -> Result<Decoded, PartitionError> {
        let first = copies(self.store.image().geometry())[copy];
        let mut bytes = vec![0; SECTORS * PIECE];
        for (address, sector) in (first..).zip(bytes.chunks_exact_mut(PIECE)) {
            let read = self.read(address, sector).await;
            if !read && address == first {
                return Ok(match self.chunk(first).map(|chunk| chunk.state) {
                    Some(ChunkState::Free) => Decoded::Absent,
                    _ => Decoded::Damaged("it cannot be read".into()),
                });
            }
        }
        Ok(decode(&bytes))
    }

    /// Takes a partition up, as far as that needs no writing.
    async fn partition(
        &self,
        layout: &Layout,
        record: &Record,
        problems: &mut Vec<String>,
    ) -> Result<PartitionReport, PartitionError> {
        let mut report = PartitionReport {
            name: record.name.clone(),
            units: record.units().count(),
            bytes: 0,
            read: 0,
            lost: 0,
            recoverable: true,
        };
        let geometry = self.store.image().geometry();
        if (layout.groups, layout.pus) != (geometry.groups, geometry.pus) {
            problems.push("the layout was made for another geometry".into());
        }
        for span in &record.spans {
            match self.take_up(span, record.over_provisioning).await {
                Ok(ftl) => {
                    let stats = ftl.recovery().unwrap_or_default();
                    report.bytes += ftl.capacity() * UNIT_BYTES;
                    report.read += stats.read_sectors;
                    report.lost += stats.lost_units * UNIT_BYTES;
                    if let Err(what) = ftl.check() {
                        problems.push(format!("partition {}: {what}", record.name));
                    }
                }
                Err(what) => {
                    report.recoverable = false;
                    problems.push(format!(
                        "partition {} cannot be taken up: {what}",
                        record.name
                    ));
                }
            }
        }
        if report.lost > 0 {
            problems.push(format!(
                "partition {}: {} bytes are lost",
                record.name, report.lost
            ));
        }
        Ok(report)
    }

    /// The translation layer of a span, recovered; or why it cannot be.
    async fn take_up(&self, span: &Span, over_provisioning: u32) -> Result<Ftl, String> {
        let geometry = self.store.image().geometry();
        let layout_chunks = copies(geometry);
        let chunks = (0..self.found.len()).map(|chunk| self.info(chunk));
        let chunks = chunks.map(|mut info| {
            if layout_chunks.contains(&info.address) {
                info.state = ChunkState::Offline;
            }
            info
        });
        let options = ftl::Options {
            over_provisioning,
            ..ftl::Options::default()
        };
        let ftl = Ftl::recover(geometry, &span.units, chunks, span.key, options);
        let mut ftl = ftl.map_err(|error| error.to_string())?;
        while ftl.state() == State::Recovering {
            match ftl.poll(Time::ZERO) {
                Some(Action::Submit(tag)) => self.serve(&mut ftl, tag).await,
                Some(_) => {}
                None => return Err("its recovery does not come to an end".into()),
            }
        }
        match ftl.state() {
            State::Failed(error) => Err(error.to_string()),
            _ => Ok(ftl),
        }
    }

    /// Reads what a translation layer asks for.
    async fn serve(&self, ftl: &mut Ftl, tag: Tag) {
        let io = ftl.io(tag).clone();
        if io.op() != IoOp::Read {
            return ftl.on_completion(Time::ZERO, tag, u64::MAX, &[]);
        }
        let mut failed = 0_u64;
        let mut metadata = Vec::with_capacity(io.addresses().len());
        let mut page = vec![0; PIECE];
        for (place, (&address, part)) in io.addresses().iter().zip(io.parts()).enumerate() {
            let known = self.metadata(address);
            metadata.push(known.unwrap_or_default());
            let wanted = *part == Part::Page;
            if known.is_none() || (wanted && !self.read(address, &mut page).await) {
                failed |= 1 << place;
            } else if wanted {
                ftl.on_page(tag, place, &page);
            }
        }
        ftl.on_completion(Time::ZERO, tag, failed, &metadata);
    }

    fn info(&self, chunk: usize) -> ChunkInfo {
        let found = &self.found[chunk];
        ChunkInfo {
            address: reopen::address_of(self.store.image(), found.chunk),
            state: found.state,
            write_pointer: found.metadata.len() as u32,
            wear_index: 0,
            resets: found.kept.head.resets,
            sequential: true,
        }
    }

    fn chunk(&self, address: u64) -> Option<&Found> {
        let (chunk, _) = self.store.image().chunk_of(address)?;
        self.found.get(chunk as usize)
    }

    fn metadata(&self, address: u64) -> Option<Metadata> {
        let (_, sector) = self.store.image().chunk_of(address)?;
        self.chunk(address)?.metadata.get(sector as usize).copied()
    }

    /// Reads a sector that was written.
    async fn read(&self, address: u64, target: &mut [u8]) -> bool {
        let image = self.store.image();
        match (self.metadata(address), image.chunk_of(address)) {
            (Some(_), Some((chunk, sector))) => self
                .store
                .read(image.sector(chunk, sector), target)
                .await
                .is_ok(),
            _ => false,
        }
    }
}
