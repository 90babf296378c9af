//! Verification of a file that holds an open-channel device, or of a zoned device, read-only:
//! header, chunks, layout, and whether each partition can be taken up.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::superblock::{
    self, COPY_NAMES, CopyReport, Decoded, Places, Raw, Reads, Repair, decode,
};
use flashyard_block::{FileDevice, OpenError, Verdict};
use flashyard_flash::UNIT_BYTES;
use flashyard_flash::channel::{ChunkInfo, ChunkState, Geometry};
use flashyard_flash::ftl::{self, Action, BuildError, Ftl, IoOp, Part, RecoverError, State, Tag};
use flashyard_runtime::Rt;
use flashyard_time::Time;

use super::PartitionError;
use super::copies::{SECTORS, newest};
use super::file_store::FileStore;
use super::image::{Header, PIECE, decode_header};
use super::layout::{Layout, Record, Span};
use super::reopen::{self, Care, FoundHeader};
use super::still::Still;
use super::units::copies;
use crate::zoned;

/// Problems that are listed one by one.
const MOST_LISTED: usize = 20;

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The two copies of the layout.
    pub copies: [CopyReport; 2],
    /// Chunks that are free, written, and out of use.
    pub chunks: [usize; 3],
    /// The partitions of the newest whole copy.
    pub partitions: Vec<PartitionReport>,
    /// What is put right when the device is used again, one line each.
    pub repairs: Vec<String>,
    /// What is lost, or cannot be used, one line each.
    pub problems: Vec<String>,
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
    /// What this comes to.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.repairs, &self.problems)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, copy) in COPY_NAMES.iter().zip(&self.copies) {
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
        for repair in &self.repairs {
            writeln!(f, "to be put right: {repair}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        self.verdict().fmt(f)
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

/// What a copy of the layout with these bytes is.
pub fn describe_layout(bytes: &[u8]) -> CopyReport {
    CopyReport::from(&decode::<Layout>(bytes))
}

/// Whether `path` is a zoned block device, which [`check_zoned`] is for.
pub fn is_zoned(rt: &Rt, path: &Path) -> Result<bool, OpenError> {
    zoned::is_zoned(rt, path)
}

/// Looks at everything on a zoned device, as [`check`] does: it is only read, and no other program
/// may use it.
pub async fn check_zoned(rt: &Rt, path: &Path) -> Result<Report, PartitionError> {
    let device = zoned::Undivided::open(rt, path).await?;
    let units = units_of(&device).await;
    let sight = Rc::new(device.divide(units).await?);
    if !sight.is_used() {
        return Err(PartitionError::Store(format!(
            "{} is empty, or its first use was cut off: nothing was ever on it",
            path.display()
        )));
    }
    let damaged = sight.verify().await;
    let still = Still::Zones(sight);
    let chunks = still.report();
    let damaged = damaged.into_iter().map(|(chunk, unit)| {
        let what = format!("the data of write unit {unit} are not what was written");
        (chunks[chunk].address, what)
    });
    let chunks = chunk_problems(still.geometry(), damaged.collect());
    Ok(assess(&still, Vec::new(), chunks).await)
}

/// The number of units that the zones of a device were dealt out to: as one of the copies of the
/// layout has it.
async fn units_of(device: &zoned::Undivided) -> Option<u32> {
    let first = device.start_of(0, 1, SECTORS).await;
    if let Decoded::Valid(layout) = decode::<Layout>(&first) {
        return Some(layout.pus);
    }
    for units in device.divisions() {
        let second = device.start_of(units - 1, units, SECTORS).await;
        if matches!(decode::<Layout>(&second), Decoded::Valid(layout) if layout.pus == units) {
            return Some(units);
        }
    }
    None
}

/// Looks at everything in `file`, of which nothing is changed: all checksums, the owners of units,
/// and whether each partition can be taken up. Fails only when nothing can be looked at.
pub async fn check(rt: &Rt, file: FileDevice) -> Result<Report, PartitionError> {
    let header = reopen::read_header(&file).await?.ok_or_else(empty)?;
    let geometry = header.shape.geometry().ok_or_else(impossible)?;
    let image = header.image(geometry);
    reopen::has_room(&file, &image)?;
    let store = FileStore::new(rt, file, image).map_err(|_| PartitionError::Memory)?;
    let store = Rc::new(store);
    let found = reopen::look_at_all(rt, &store, Care::All).await?;
    for one in &found {
        store.set_sums(one.chunk, one.sums.clone());
    }
    let repairs = header_repairs(&header);
    let damaged = found.iter().filter_map(|one| {
        let address = reopen::address_of(store.image(), one.chunk);
        Some((address, one.damage.clone()?))
    });
    let chunks = chunk_problems(store.image().geometry(), damaged.collect());
    Ok(assess(&Still::File(store, found), repairs, chunks).await)
}

/// Looks at what flash holds, beside which there are `repairs`, and what is wrong with `chunks`.
async fn assess(still: &Still, mut repairs: Vec<String>, chunks: ChunkProblems) -> Report {
    let mut problems = chunks.others;
    let Ok(found) = superblock::find(still).await;
    let copies = found.copies.each_ref().map(CopyReport::from);
    let mut partitions = Vec::new();
    match newest(found, is_used(still)) {
        Ok(Some(newest)) => {
            let of_copies = superblock::repairs(&copies).into_iter().map(tell);
            repairs.extend(of_copies.chain(chunks.of_layout));
            for record in &newest.content.partitions {
                partitions.push(partition(still, &newest.content, record, &mut problems).await);
            }
        }
        Ok(None) => problems.extend(chunks.of_layout),
        Err(error) => {
            problems.extend(chunks.of_layout);
            problems.push(error.to_string());
        }
    }
    Report {
        copies,
        chunks: count(still),
        partitions,
        repairs,
        problems,
    }
}

fn empty() -> PartitionError {
    PartitionError::Store(
        "the file is empty, or its creation was cut off: nothing was ever in it".into(),
    )
}

fn impossible() -> PartitionError {
    PartitionError::Store("its header tells of a device that cannot be".into())
}

fn header_repairs(header: &FoundHeader) -> Vec<String> {
    let damaged = ["first", "second"].into_iter().zip(header.whole);
    let damaged = damaged.filter(|(_, whole)| !whole);
    let problem = |(name, _)| {
        format!(
            "the {name} copy of the header is not whole: it is written anew when the device is opened"
        )
    };
    damaged.map(problem).collect()
}

/// What is reported of damaged chunks.
struct ChunkProblems {
    /// Of those that hold nothing but a copy of the layout: no loss while the other copy is whole.
    of_layout: Vec<String>,
    others: Vec<String>,
}

/// What is reported of chunks that are `damaged`: their addresses, and what is wrong with them.
fn chunk_problems(geometry: &Geometry, damaged: Vec<(u64, String)>) -> ChunkProblems {
    let tell = |(at, damage): &(u64, String)| {
        let place = geometry.place(*at);
        let place =
            place.map(|place| format!("{}.{}, chunk {}", place.group, place.pu, place.chunk));
        format!("unit {}: {damage}", place.unwrap_or_default())
    };
    let layouts = copies(geometry);
    let (of_layout, damaged): (Vec<_>, Vec<_>) = damaged
        .into_iter()
        .partition(|(at, _)| layouts.contains(at));
    let mut others: Vec<String> = damaged.iter().take(MOST_LISTED).map(tell).collect();
    let more = damaged.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        others.push(format!("and {more} chunks more are damaged"));
    }
    ChunkProblems {
        of_layout: of_layout.iter().map(tell).collect(),
        others,
    }
}

fn tell(repair: Repair<'_>) -> String {
    match repair {
        Repair::Rewrite(name, why) => format!(
            "the {name} copy of the layout is not usable: {why}; it is written anew from the other one when the device is opened"
        ),
        Repair::Older => {
            "one copy is older: a change was cut off; it is repaired when the device is opened"
                .into()
        }
    }
}

/// Chunks that are free, written, and out of use.
fn count(still: &Still) -> [usize; 3] {
    let chunks = still.report();
    let count = |state| chunks.iter().filter(|one| one.state == state).count();
    let (free, offline) = (count(ChunkState::Free), count(ChunkState::Offline));
    [free, chunks.len() - free - offline, offline]
}

/// Whether anything but a layout was written; then there has to be one.
fn is_used(still: &Still) -> bool {
    let layouts = copies(still.geometry());
    let used = |chunk: &ChunkInfo| chunk.write_pointer > 0 && !layouts.contains(&chunk.address);
    matches!(still, Still::File(..)) || still.report().iter().any(used)
}

impl Places for Still {
    type Error = Infallible;
    type Bytes = Vec<u8>;

    async fn read(&self, place: usize) -> Result<Reads<Vec<u8>>, Infallible> {
        let first = copies(self.geometry())[place];
        let mut bytes = vec![0; SECTORS * PIECE];
        for (address, sector) in (first..).zip(bytes.chunks_exact_mut(PIECE)) {
            let read = self.sector(address, Some(sector)).await;
            if read.is_none() && address == first {
                let chunks = self.report();
                let chunk = chunks.iter().find(|chunk| chunk.address == first);
                return Ok(vec![match chunk.map(|chunk| chunk.state) {
                    Some(ChunkState::Free) => Raw::Blank,
                    _ => Raw::Unreadable,
                }]);
            }
        }
        Ok(vec![Raw::Bytes(bytes)])
    }
}

/// Takes a partition up, as far as that needs no writing.
async fn partition(
    still: &Still,
    layout: &Layout,
    record: &Record,
    problems: &mut Vec<String>,
) -> PartitionReport {
    let mut report = PartitionReport {
        name: record.name.clone(),
        units: record.units().count(),
        bytes: 0,
        read: 0,
        lost: 0,
        recoverable: true,
    };
    let geometry = still.geometry();
    if (layout.groups, layout.pus) != (geometry.groups, geometry.pus) {
        problems.push("the layout was made for another geometry".into());
    }
    for span in &record.spans {
        match take_up(still, span, record.over_provisioning).await {
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
    report
}

/// Why a span cannot be taken up.
enum SpanError {
    Build(BuildError),
    /// Its recovery does not come to an end.
    Endless,
    Recover(RecoverError),
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build(error) => error.fmt(f),
            Self::Endless => f.write_str("its recovery does not come to an end"),
            Self::Recover(error) => error.fmt(f),
        }
    }
}

/// The translation layer of a span, recovered; or why it cannot be.
async fn take_up(still: &Still, span: &Span, over_provisioning: u32) -> Result<Ftl, SpanError> {
    let geometry = still.geometry();
    let layout_chunks = copies(geometry);
    let chunks = still.report().into_iter().map(|mut info| {
        if layout_chunks.contains(&info.address) {
            info.state = ChunkState::Offline;
        }
        info
    });
    let options = ftl::Options {
        over_provisioning,
        writes_per_chunk: still.writes_per_chunk(),
        ..ftl::Options::default()
    };
    let ftl = Ftl::recover(geometry, &span.units, chunks, span.key, options);
    let mut ftl = ftl.map_err(SpanError::Build)?;
    while ftl.state() == State::Recovering {
        match ftl.poll(Time::ZERO) {
            Some(Action::Submit(tag)) => serve(still, &mut ftl, tag).await,
            Some(_) => {}
            None => return Err(SpanError::Endless),
        }
    }
    match ftl.state() {
        State::Failed(error) => Err(SpanError::Recover(error)),
        _ => Ok(ftl),
    }
}

/// Reads what a translation layer asks for.
async fn serve(still: &Still, ftl: &mut Ftl, tag: Tag) {
    let io = ftl.io(tag).clone();
    if io.op() != IoOp::Read {
        return ftl.on_completion(Time::ZERO, tag, u64::MAX, &[]);
    }
    let mut failed = 0_u64;
    let mut metadata = Vec::with_capacity(io.addresses().len());
    let mut page = vec![0; PIECE];
    for (place, (&address, part)) in io.addresses().iter().zip(io.parts()).enumerate() {
        let wanted = *part == Part::Page;
        let read = still.sector(address, wanted.then_some(&mut page[..])).await;
        metadata.push(read.unwrap_or_default());
        if read.is_none() {
            failed |= 1 << place;
        } else if wanted {
            ftl.on_page(tag, place, &page);
        }
    }
    ftl.on_completion(Time::ZERO, tag, failed, &metadata);
}
