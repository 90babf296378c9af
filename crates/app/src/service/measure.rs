//! Measuring a device by I/O. What is read was written before, by the measurement itself or by
//! those who have the device; each load is repeated until two runs agree; whoever waits can end it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use flashyard_block::{DeviceExt, IoError, SharedDevice, Tag};
use flashyard_runtime::{Buf, Data, Rt};
use flashyard_time::{Duration, Histogram, Rng};

use crate::spec::{Bandwidth, DeviceKind, LoadPoint, MeasuredMedium, RatesSpec};

/// I/Os in flight while the most is measured.
pub(super) const DEPTH: u32 = 256;
pub(super) const STREAMS: u32 = 32;
pub(super) const SMALL: usize = 4 << 10;
pub(super) const LARGE: usize = 128 << 10;
/// How long a run of a load takes.
const RUN: Duration = Duration::from_ms(500);
/// How often a load is measured at most, and how far two runs may lie apart, in percent.
const RUNS: usize = 5;
const APART: u64 = 10;
/// How long each step of the curve is measured, and how many there are, in tenths of the most.
const STEP: Duration = Duration::from_ms(200);
pub(super) const STEPS: u64 = 10;
/// Parts of all I/O, in percent, that may find zeroes where something was written.
const ZEROES: u64 = 10;
/// More than this no device gives: it is memory that answers.
const IOPS_MOST: u64 = 20_000_000;
const BYTES_MOST: u64 = 64_000_000_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) kind: DeviceKind,
    /// The page cache answers for the device below.
    pub(super) is_page_cached: bool,
    /// From the beginning of the device.
    pub(super) bytes: u64,
    /// All that is there may be written over: it is, before it is read.
    pub(super) writes: bool,
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) capability: RatesSpec,
    pub(super) curve: Vec<LoadPoint>,
    pub(super) medium: MeasuredMedium,
    /// Rates of which no two runs agreed, by name.
    pub(super) unstable: Vec<String>,
}

/// Why nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// No client waits for it any more.
    Cancelled,
    /// So many percent of the reads found nothing that was ever written.
    Unwritten(u64),
    Failed(IoError),
}

impl From<IoError> for Stopped {
    fn from(error: IoError) -> Self {
        Self::Failed(error)
    }
}

/// A measurement as it is seen from outside.
#[derive(Debug, Default)]
pub(super) struct Watch {
    cancelled: AtomicBool,
    done: AtomicU32,
}

impl Watch {
    /// Parts that a measurement has: filling, four loads, and the curve.
    pub(super) const PARTS: u32 = 6;

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// How many parts are done.
    pub(super) fn done(&self) -> u32 {
        self.done.load(Ordering::Relaxed)
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn end_part(&self) -> Result<(), Stopped> {
        self.done.fetch_add(1, Ordering::Relaxed);
        match self.is_cancelled() {
            true => Err(Stopped::Cancelled),
            false => Ok(()),
        }
    }
}

/// Measures a device.
pub(super) async fn measure(
    rt: &Rt,
    device: SharedDevice,
    task: Task,
    watch: Arc<Watch>,
) -> Result<Found, Stopped> {
    let mut pattern = vec![0; LARGE];
    Rng::new(1).fill_bytes(&mut pattern);
    let area = Area {
        rt: rt.clone(),
        device,
        bytes: task.bytes,
        pattern: pattern.into(),
        watch,
    };
    if task.writes {
        area.fill().await?;
    }
    area.watch.end_part()?;
    let (mut unstable, mut zeroes) = (Vec::new(), 0);
    let mut rates = [None; 4];
    for (rate, (name, depth, bytes, write)) in rates.iter_mut().zip([
        ("read_iops", DEPTH, SMALL, false),
        ("read_bandwidth", STREAMS, LARGE, false),
        ("write_iops", STREAMS, SMALL, true),
        ("write_bandwidth", STREAMS, LARGE, true),
    ]) {
        if write && !task.writes {
            area.watch.end_part()?;
            continue;
        }
        let repeated = area.repeated(depth, bytes, write).await?;
        *rate = Some(repeated.rate);
        zeroes = zeroes.max(repeated.zeroes);
        if !repeated.is_stable {
            unstable.push(name.to_owned());
        }
        area.watch.end_part()?;
    }
    if zeroes > ZEROES && !task.writes {
        return Err(Stopped::Unwritten(zeroes));
    }
    let bandwidth = |ios: Option<u64>| ios.map(|ios| Bandwidth(ios * area.large_bytes()));
    let capability = RatesSpec {
        read_iops: rates[0],
        read_bandwidth: bandwidth(rates[1]),
        write_iops: rates[2],
        write_bandwidth: bandwidth(rates[3]),
        ..RatesSpec::default()
    };
    let mut curve = area.curve(rates[0].unwrap_or(0)).await?;
    if !rises(&curve) {
        // Once more: something else may have been at work.
        curve = area.curve(rates[0].unwrap_or(0)).await?;
    }
    area.watch.end_part()?;
    Ok(Found {
        medium: medium(task, zeroes, capability),
        capability,
        curve,
        unstable,
    })
}

/// What gave these rates, as far as it shows.
fn medium(task: Task, zeroes: u64, found: RatesSpec) -> MeasuredMedium {
    let above = |rate: Option<u64>, most| rate.is_some_and(|rate| rate > most);
    let bandwidth = |rate: Option<Bandwidth>| above(rate.map(u64::from), BYTES_MOST);
    match task.kind {
        DeviceKind::Null => MeasuredMedium::Null,
        DeviceKind::Memory => MeasuredMedium::Memory,
        _ if task.is_page_cached => MeasuredMedium::PageCache,
        // What was written a moment ago is not there.
        _ if zeroes > ZEROES => MeasuredMedium::Null,
        _ if above(found.read_iops, IOPS_MOST)
            || above(found.write_iops, IOPS_MOST)
            || bandwidth(found.read_bandwidth)
            || bandwidth(found.write_bandwidth) =>
        {
            MeasuredMedium::Cache
        }
        _ => MeasuredMedium::Device,
    }
}

/// The lesser of two runs that agree, one of which is the last.
fn agreed(runs: &[u64]) -> Option<u64> {
    let (last, before) = runs.split_last()?;
    let close = |run: &&u64| {
        let (less, more) = ((*last).min(**run), (*last).max(**run));
        more - less <= more / 100 * APART + more % 100 * APART / 100
    };
    before.iter().rev().find(close).map(|run| *last.min(run))
}

/// Whether reads take longer, or as long, when more of them come. What is a tenth less is taken
/// for the same.
pub(super) fn rises(curve: &[LoadPoint]) -> bool {
    let mut longest = 0;
    curve.iter().all(|point| {
        let rises = point.mean_ns.saturating_mul(10) >= longest * 9;
        longest = longest.max(point.mean_ns);
        rises
    })
}

pub(super) fn point(read_iops: u64, latency: &Histogram) -> LoadPoint {
    LoadPoint {
        read_iops,
        mean_ns: latency.mean(),
        p50_ns: latency.percentile(500_000),
        p95_ns: latency.percentile(950_000),
        p99_ns: latency.percentile(990_000),
    }
}

/// The part of a device that is measured.
#[derive(Clone)]
struct Area {
    rt: Rt,
    device: SharedDevice,
    bytes: u64,
    /// What is written: nothing that could be made smaller, and no one's data.
    pattern: Rc<[u8]>,
    watch: Arc<Watch>,
}

/// I/Os of one size.
#[derive(Clone, Copy)]
struct Transfers {
    bytes: usize,
    blocks: u64,
    /// For how many there is room.
    places: u64,
}

/// A load that was measured.
struct Repeated {
    /// I/Os a second.
    rate: u64,
    /// Two runs agreed.
    is_stable: bool,
    /// Percent of the reads that found zeroes.
    zeroes: u64,
}

impl Area {
    /// I/Os of so many bytes. Some devices have blocks that are larger.
    fn transfers(&self, bytes: usize) -> Transfers {
        let info = self.device.info();
        let bytes = bytes.max(info.block_size as usize);
        let blocks = bytes as u64 / u64::from(info.block_size);
        let room = (self.bytes / u64::from(info.block_size)).min(info.blocks);
        Transfers {
            bytes,
            blocks,
            places: (room / blocks).max(1),
        }
    }

    fn large_bytes(&self) -> u64 {
        self.transfers(LARGE).bytes as u64
    }

    fn data(&self, bytes: usize) -> Result<Buf, IoError> {
        let mut buf = Buf::take(bytes).ok_or(IoError::Busy)?;
        for piece in buf.chunks_mut(self.pattern.len()) {
            piece.copy_from_slice(&self.pattern[..piece.len()]);
        }
        Ok(buf)
    }

    /// Writes all of it once, and has it on the medium.
    async fn fill(&self) -> Result<(), IoError> {
        let Transfers {
            bytes,
            blocks,
            places,
        } = self.transfers(LARGE);
        let writers: Vec<_> = (0..u64::from(STREAMS))
            .map(|writer| {
                let area = self.clone();
                self.rt.clone().spawn(async move {
                    for place in (writer..places).step_by(STREAMS as usize) {
                        if area.watch.is_cancelled() {
                            break;
                        }
                        let data = area.data(bytes)?;
                        let lba = place * blocks;
                        area.device.write(Tag::default(), lba, data, false).await?;
                        area.rt.turn_end().await;
                    }
                    Ok::<_, IoError>(())
                })
            })
            .collect();
        for writer in writers {
            writer.await?;
        }
        self.device.flush(Tag::default()).await
    }

    /// Measures a load until two runs agree; if none do, the least of them counts.
    async fn repeated(&self, depth: u32, bytes: usize, write: bool) -> Result<Repeated, Stopped> {
        let (mut runs, mut zeroes) = (Vec::new(), 0);
        for _ in 0..RUNS {
            let (done, empty) = self.load(depth, bytes, write).await?;
            if self.watch.is_cancelled() {
                return Err(Stopped::Cancelled);
            }
            zeroes = zeroes.max(empty * 100 / done.max(1));
            runs.push(done * 1_000 / RUN.as_ms());
            if let Some(rate) = agreed(&runs) {
                let is_stable = true;
                return Ok(Repeated {
                    rate,
                    is_stable,
                    zeroes,
                });
            }
        }
        Ok(Repeated {
            rate: runs.into_iter().min().unwrap_or(0),
            is_stable: false,
            zeroes,
        })
    }

    /// I/Os of `bytes` at random addresses that are done in a run, so many in flight; and how many
    /// of the reads found zeroes.
    async fn load(&self, depth: u32, bytes: usize, write: bool) -> Result<(u64, u64), IoError> {
        let until = self.rt.now() + RUN;
        let workers: Vec<_> = (0..u64::from(depth))
            .map(|worker| {
                let area = self.clone();
                let to = self.transfers(bytes);
                self.rt.clone().spawn(async move {
                    let (mut rng, mut done, mut zeroes) = (Rng::new(worker), 0, 0);
                    while area.rt.now() < until && !area.watch.is_cancelled() {
                        let lba = rng.below(to.places) * to.blocks;
                        if write {
                            let data = area.data(to.bytes)?;
                            area.device.write(Tag::default(), lba, data, false).await?;
                        } else {
                            zeroes += u64::from(area.read(lba, to.bytes).await?);
                        }
                        done += 1;
                        // A device that answers at once must not keep the core from everybody else.
                        area.rt.turn_end().await;
                    }
                    Ok::<_, IoError>((done, zeroes))
                })
            })
            .collect();
        let mut all = (0, 0);
        for worker in workers {
            let (done, zeroes) = worker.await?;
            all = (all.0 + done, all.1 + zeroes);
        }
        Ok(all)
    }

    /// Reads; whether there is nothing but zeroes.
    async fn read(&self, lba: u64, bytes: usize) -> Result<bool, IoError> {
        let buf = Buf::take(bytes).ok_or(IoError::Busy)?;
        Ok(match self.device.read(Tag::default(), lba, buf).await? {
            Data::Zeroes(_) => true,
            // Data seldom begin like this, and looking at all of it would be measured as well.
            Data::Buf(buf) => buf.iter().take(512).all(|byte| *byte == 0),
        })
    }

    async fn curve(&self, most: u64) -> Result<Vec<LoadPoint>, Stopped> {
        let mut curve = Vec::new();
        for step in 1..=STEPS {
            let offered = most * step / STEPS;
            curve.push(point(offered, &self.paced(offered.max(1)).await?));
            if self.watch.is_cancelled() {
                return Err(Stopped::Cancelled);
            }
        }
        Ok(curve)
    }

    /// Latencies of small reads at random addresses, of which so many come per second: each of
    /// [`DEPTH`] readers has its instants, and reads at the next of them when it has its answer.
    async fn paced(&self, rate: u64) -> Result<Histogram, IoError> {
        let to = self.transfers(SMALL);
        let begin = self.rt.now();
        let every = Duration::from_secs(u64::from(DEPTH)) / rate;
        let until = begin + STEP;
        let readers: Vec<_> = (0..u64::from(DEPTH))
            .map(|reader| {
                let area = self.clone();
                let mut next = begin + every * reader / u64::from(DEPTH);
                self.rt.clone().spawn(async move {
                    let (mut rng, mut latency) = (Rng::new(reader), Histogram::new());
                    while next < until && !area.watch.is_cancelled() {
                        area.rt.sleep_until(next).await;
                        let lba = rng.below(to.places) * to.blocks;
                        let sent = area.rt.now();
                        area.read(lba, to.bytes).await?;
                        latency.record(area.rt.now().since(sent).as_ns());
                        next = (next + every).max(sent);
                        // A device that answers at once must not keep the core from everybody else.
                        area.rt.turn_end().await;
                    }
                    Ok::<_, IoError>(latency)
                })
            })
            .collect();
        let mut all = Histogram::new();
        for reader in readers {
            all.merge(&reader.await?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_agree_within_a_tenth() {
        for (runs, rate) in [
            (&[][..], None),
            (&[100], None),
            (&[100, 100], Some(100)),
            (&[100, 90], Some(90)),
            (&[100, 89], None),
            (&[100, 50, 95], Some(95)),
            (&[100, 50, 200, 400, 800], None),
            (&[0, 0], Some(0)),
            (&[1_000_000, 905_000], Some(905_000)),
        ] {
            assert_eq!(agreed(runs), rate, "{runs:?}");
        }
    }

    #[test]
    fn more_reads_never_take_less_time() {
        for (means, good) in [
            (&[][..], true),
            (&[80, 80, 90, 400], true),
            (&[100, 92, 100, 300], true),
            (&[100, 80, 100], false),
            (&[80, 90, 400, 200], false),
        ] {
            let curve = means.iter().map(|&mean_ns| LoadPoint {
                read_iops: 1,
                mean_ns,
                p50_ns: 1,
                p95_ns: 1,
                p99_ns: 1,
            });
            assert_eq!(rises(&curve.collect::<Vec<_>>()), good, "{means:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_device_is_named() {
        let rates = |text: &str| text.parse::<RatesSpec>().expect("rates");
        let usual = "read_iops=400000,read_bandwidth=3GB/s,write_iops=1,write_bandwidth=1";
        for (kind, zeroes, found, is) in [
            (DeviceKind::Null, 0, usual, MeasuredMedium::Null),
            (DeviceKind::Memory, 0, usual, MeasuredMedium::Memory),
            (DeviceKind::File, 0, usual, MeasuredMedium::Device),
            (DeviceKind::NvmeTcp, 100, usual, MeasuredMedium::Null),
            (
                DeviceKind::Block,
                0,
                "read_bandwidth=322GB/s",
                MeasuredMedium::Cache,
            ),
            (
                DeviceKind::File,
                0,
                "read_iops=1,write_iops=30000000",
                MeasuredMedium::Cache,
            ),
        ] {
            let task = |is_page_cached| Task {
                kind,
                is_page_cached,
                bytes: 1 << 20,
                writes: true,
            };
            let seen = |cached| medium(task(cached), zeroes, rates(found));
            assert_eq!(seen(false), is, "{kind:?} {found}");
            // Figures that a device could give as well.
            if is == MeasuredMedium::Device {
                assert_eq!(seen(true), MeasuredMedium::PageCache);
            }
        }
    }
}
