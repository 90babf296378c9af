//! `flashyard check`: verifies a pool, a member of an array, the header of an encrypted device, a
//! file that holds an open-channel device with its partitions, or a zoned device with its own,
//! where it lies, without changing it and without a running target.

pub mod error;

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;

use flashyard_block::crypt::Header;
use flashyard_block::pool::PoolError;
use flashyard_block::{FileDevice, FileOptions, Verdict, array, crypt, pool};
use flashyard_drives::open_channel;
use flashyard_runtime::{Rt, uring};
use flashyard_time::Duration;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::cli::CheckArgs;
use crate::failure::{Failure, Found, System};
use crate::json;
use crate::out::say_line;
use error::CheckError;

/// Bytes that tell what a file holds.
const START: usize = 4096;
/// How long what another process has is waited for, and how often it is tried: the kernel keeps the
/// lock of a target that was killed until it has ended what that had asked for.
const IN_USE_LONGEST: Duration = Duration::from_secs(3);
const IN_USE_PAUSE: Duration = Duration::from_ms(20);

/// What was found, of what there was.
enum Report {
    Pool(pool::Report),
    Crypt(crypt::Report),
    Member(array::MemberReport),
    OpenChannel(open_channel::Report),
}

/// Prints what was found. Only what is lost is a failure: what is repaired by itself is reported,
/// and no reason for a backup.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let (path, block_size) = (args.file.clone(), args.block_size);
    let report = uring::run(uring::Config::default(), |rt| async move {
        look_patiently(&rt, &path, block_size).await
    });
    let report = report.map_err(System::Runtime)??;
    if args.json {
        json::print("", &report.json());
    } else {
        say_line!("{report}");
    }
    match report.verdict() {
        Verdict::Sound | Verdict::Repairable => Ok(()),
        Verdict::Lost => Err(Found::Lost(args.file.clone()).into()),
    }
}

async fn look_patiently(rt: &Rt, path: &Path, block_size: u32) -> Result<Report, CheckError> {
    let until = rt.now() + IN_USE_LONGEST;
    loop {
        match look(rt, path, block_size).await {
            Err(fault) if fault.is_in_use() && rt.now() < until => {
                rt.sleep(IN_USE_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

async fn look(rt: &Rt, path: &Path, block_size: u32) -> Result<Report, CheckError> {
    let kind = std::fs::metadata(path)
        .map_err(|error| CheckError::Read(path.to_owned(), error))?
        .file_type();
    let opened = |error| CheckError::opened(path, error);
    if kind.is_block_device() && open_channel::is_zoned(rt, path).map_err(opened)? {
        let report = open_channel::check_zoned(rt, path).await;
        return report
            .map(Report::OpenChannel)
            .map_err(|error| CheckError::Fault(None, Box::new(error.into())));
    }
    // Opening a pipe for reading may wait for ever, and is refused below.
    let opens = kind.is_file() || kind.is_block_device() || kind.is_dir();
    let image = opens && open_channel::is_image(&start(path)?);
    let block_size = if image { START as u32 } else { block_size };
    let device = if kind.is_block_device() {
        FileDevice::open_block(rt, path, block_size, true).map_err(opened)?
    } else {
        let options = FileOptions {
            block_size,
            size: None,
            read_only: true,
        };
        FileDevice::open(rt, path, options).await.map_err(opened)?
    };
    if image {
        let report = open_channel::check(rt, device).await;
        return report
            .map(Report::OpenChannel)
            .map_err(|error| CheckError::at(path, error));
    }
    let report = crypt::check(&device).await;
    let report = report.map_err(|error| CheckError::at(path, error))?;
    if report.is_there {
        return Ok(Report::Crypt(report));
    }
    let member = array::check(&device).await;
    let member = member.map_err(|error| CheckError::at(path, PoolError::from_reading(error)))?;
    if let Some(member) = member {
        return Ok(Report::Member(member));
    }
    let report = pool::check(rt, Rc::new(device)).await;
    report
        .map(Report::Pool)
        .map_err(|error| CheckError::at(path, error))
}

/// How a file begins.
fn start(path: &Path) -> Result<Vec<u8>, CheckError> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START as u64).read_to_end(&mut start));
    read.map_err(|error| CheckError::Read(path.to_owned(), error))?;
    Ok(start)
}

impl Report {
    fn verdict(&self) -> Verdict {
        match self {
            Self::Pool(report) => report.verdict(),
            Self::Crypt(report) => report.verdict(),
            Self::Member(report) => report.verdict(),
            Self::OpenChannel(report) => report.verdict(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Pool(report) => {
                let copies = report
                    .copies
                    .iter()
                    .map(|copy| copy_json(copy.whole, copy.generation, &copy.state));
                let volumes = report.volumes.iter().map(|volume| {
                    json!({ "name": volume.name, "bytes": volume.bytes, "allocated_bytes": volume.allocated })
                });
                json!({
                    "sound": report.verdict() == Verdict::Sound,
                    "verdict": report.verdict().name(),
                    "kind": report.kind.to_string(),
                    "copies": copies.collect::<Vec<_>>(),
                    "volumes": volumes.collect::<Vec<_>>(),
                    "repairs": report.repairs,
                    "problems": report.problems,
                })
            }
            Self::Member(report) => {
                let copies = report
                    .copies
                    .iter()
                    .map(|copy| copy_json(copy.whole, copy.generation, &copy.state));
                let members = report.members.iter().map(|(name, set, state, own)| {
                    json!({ "device": name, "set": set, "state": state.name(), "is_this": own })
                });
                json!({
                    "sound": report.verdict() == Verdict::Sound,
                    "verdict": report.verdict().name(),
                    "copies": copies.collect::<Vec<_>>(),
                    "members": members.collect::<Vec<_>>(),
                    "repairs": report.repairs,
                    "problems": report.problems,
                })
            }
            Self::Crypt(report) => {
                let copies = report
                    .copies
                    .iter()
                    .map(|copy| copy_json(copy.whole, copy.generation, &copy.state));
                let header = report.header.as_ref();
                json!({
                    "sound": report.verdict() == Verdict::Sound,
                    "verdict": report.verdict().name(),
                    "copies": copies.collect::<Vec<_>>(),
                    "uuid": header.map(|header| Uuid::from_bytes(header.uuid()).to_string()),
                    "bytes": header.map(Header::bytes),
                    "repairs": report.repairs,
                    "problems": report.problems,
                })
            }
            Self::OpenChannel(report) => {
                let copies = report
                    .copies
                    .iter()
                    .map(|copy| copy_json(copy.whole, copy.generation, &copy.state));
                let [free, written, offline] = report.chunks;
                let partitions = report.partitions.iter().map(|one| {
                    json!({
                        "name": one.name,
                        "units": one.units,
                        "bytes": one.bytes,
                        "lost_bytes": one.lost,
                        "recoverable": one.recoverable,
                    })
                });
                json!({
                    "sound": report.verdict() == Verdict::Sound,
                    "verdict": report.verdict().name(),
                    "copies": copies.collect::<Vec<_>>(),
                    "chunks": { "free": free, "written": written, "offline": offline },
                    "partitions": partitions.collect::<Vec<_>>(),
                    "repairs": report.repairs,
                    "problems": report.problems,
                })
            }
        }
    }
}

fn copy_json(whole: bool, generation: Option<u64>, state: &str) -> Value {
    json!({ "whole": whole, "generation": generation, "state": state })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(report) => report.fmt(f),
            Self::Crypt(report) => report.fmt(f),
            Self::Member(report) => report.fmt(f),
            Self::OpenChannel(report) => report.fmt(f),
        }
    }
}
