//! Looks at a mapped pool without changing it: opens it over memory that takes all writes, and
//! counts everything again.

use std::rc::Rc;

use flashyard_logstore::format::superblock::Superblock;
use flashyard_logstore::{COPIES, Lineage, Problem};
use flashyard_runtime::Rt;

use super::layout::Signpost;
use super::opening::{overlay, read_superblocks};
use super::{MappedPool, failed};
use crate::pool::copies::Start;
use crate::pool::error::PoolError;
use crate::pool::facts::{Kind, ReadOnly, Report};
use crate::superblock::{self, COPY_NAMES, CopyReport, Found, Repair};
use crate::{Device, SharedDevice};

/// See [`check`](crate::pool::check).
pub async fn check(rt: &Rt, device: SharedDevice) -> Result<Report, PoolError> {
    let found: Found<Signpost> = superblock::find(&Start(&*device)).await?;
    let copies = found.copies.each_ref().map(CopyReport::from);
    let mut report = Report {
        kind: Kind::Mapped,
        copies,
        repairs: Vec::new(),
        problems: Vec::new(),
        volumes: Vec::new(),
    };
    match found.newest() {
        Ok(newest) => {
            let repairs = superblock::repairs(&report.copies).into_iter().map(tell);
            report.repairs = repairs.collect();
            look_at_superblocks(&*device, &newest.content, &mut report).await?;
            look_inside(rt, device, &mut report).await?;
        }
        Err(error) => report.problems.push(PoolError::from(error).to_string()),
    }
    Ok(report)
}

fn tell(repair: Repair<'_>) -> String {
    match repair {
        Repair::Rewrite(name, why) => format!(
            "the {name} copy of what says where the superblocks are is not usable: {why}; the next opening writes it anew"
        ),
        Repair::Older => format!(
            "the {} copy is older; the next opening writes it",
            COPY_NAMES[1]
        ),
    }
}

/// Superblocks that cannot be read or are behind: the next ones are written over them.
async fn look_at_superblocks(
    device: &dyn Device,
    signpost: &Signpost,
    report: &mut Report,
) -> Result<(), PoolError> {
    let copies = read_superblocks(device, signpost).await?;
    let read = |copy: usize| {
        let bytes = copies[copy].as_deref()?;
        Superblock::decode(bytes, copy as u8).ok()
    };
    let generations: [Option<u64>; COPIES] =
        core::array::from_fn(|copy| Some(read(copy)?.generation));
    let newest = generations.iter().flatten().max().copied();
    for (name, generation) in ["A", "B", "C", "D"].iter().zip(generations) {
        let state = match generation {
            None => "not usable",
            Some(_) if generation < newest => "older",
            Some(_) => continue,
        };
        report.repairs.push(format!(
            "superblock {name} is {state}; the next checkpoint writes it anew"
        ));
    }
    Ok(())
}

async fn look_inside(rt: &Rt, device: SharedDevice, report: &mut Report) -> Result<(), PoolError> {
    let pool = match MappedPool::look_at(rt, overlay(device)).await {
        Ok(pool) => pool,
        Err(error) => {
            report.problems.push(error.to_string());
            return Ok(());
        }
    };
    report.volumes = pool.list();
    look_at_keys(&pool, report);
    if pool.info().read_only == Some(ReadOnly::Log) {
        let why = "a part of the log that was flushed cannot be read: volumes are as they were before it, and the pool can only be read";
        report.problems.push(why.to_owned());
        pool.close().await;
        return Ok(());
    }
    // What recovery has found becomes part of the map, which the check then counts.
    pool.checkpoint().await?;
    let engine = Rc::clone(&pool.inner.engine);
    let checked = engine.ask(flashyard_logstore::Store::check).await;
    checked.map_err(|why| failed("checking the pool", why))?;
    let found = engine.store.borrow_mut().take_report().unwrap_or_default();
    if found.lost > 0 {
        report.problems.push(format!(
            "{} blocks were lost by the medium: reading them fails; write or deallocate them",
            found.lost
        ));
    }
    let problems = found
        .problems
        .iter()
        .map(|problem| describe(&pool, problem));
    report.problems.extend(problems);
    pool.close().await;
    Ok(())
}

fn named(pool: &MappedPool, lineage: Lineage) -> String {
    let volumes = pool.inner.volumes.borrow();
    let entry = volumes.values().find(|it| it.device.lineage() == lineage);
    entry.map_or_else(|| "a deleted volume".into(), |it| it.label.name.clone())
}

/// What there is to say of the keys of an encrypted pool, without its own.
fn look_at_keys(pool: &MappedPool, report: &mut Report) {
    let settled = &pool.inner.settled;
    if settled.repaired > 0 {
        report.repairs.push(format!(
            "{} copies of keys of volumes differ or are damaged; the next opening writes them anew",
            settled.repaired
        ));
    }
    if settled.erased > 0 {
        report.repairs.push(format!(
            "{} keys of volumes that are not there are left; the next opening overwrites them",
            settled.erased
        ));
    }
    let lost = settled.lost.iter().map(|&volume| {
        format!(
            "both copies of the key of volume {} are lost, and with them its data",
            named(pool, volume)
        )
    });
    report.problems.extend(lost);
}

fn describe(pool: &MappedPool, problem: &Problem) -> String {
    let named = |lineage| named(pool, lineage);
    match *problem {
        Problem::LostLeaf(lineage, leaf) => format!(
            "the map of volume {} is lost from block {} on, for {} blocks",
            named(lineage),
            leaf * flashyard_logstore::LEAF_CHUNKS,
            flashyard_logstore::LEAF_CHUNKS
        ),
        Problem::Misplaced(lineage, chunk) => format!(
            "block {chunk} of volume {} is said to be where it cannot be",
            named(lineage)
        ),
        Problem::Segment {
            segment,
            counted,
            recorded,
        } => format!("segment {segment} has {counted} live sectors and is said to have {recorded}"),
        Problem::Volume {
            lineage,
            counted,
            recorded,
        } => format!(
            "volume {} has {} chunks in {} sectors and is said to have {} in {}",
            named(lineage),
            counted.chunks,
            counted.sectors,
            recorded.chunks,
            recorded.sectors
        ),
        Problem::NotInherited(lineage, chunk) => format!(
            "block {chunk} of volume {} is said to be in a snapshot that does not have it",
            named(lineage)
        ),
        Problem::Shared {
            lineage,
            counted,
            recorded,
        } => format!(
            "volume {} has {counted} blocks in snapshots and is said to have {recorded}",
            named(lineage)
        ),
        Problem::Pages { counted, recorded } => {
            format!("the map has {counted} pages and is said to have {recorded}")
        }
    }
}
