//! A volume that is measured, and the loads at it.

use std::cell::{Cell, RefCell};
use std::fs;
use std::rc::Rc;
use std::time::Instant;

use flashyard_block::array::{Array, Layout, NewMember, Options};
use flashyard_block::crypt::CryptDevice;
use flashyard_block::pool::{Kind, NewVolume, Pool, VolumeForm};
use flashyard_block::{DeviceExt, MemoryDevice, SharedDevice, Tag};
use flashyard_codec::cipher::{KEY_BYTES, Key};
use flashyard_runtime::{Buf, Rt, Shared};
use flashyard_testbed::yields;
use flashyard_time::{Duration, Histogram, Rng};

use super::{Case, Load, Measured, Stack};

const BLOCK: u64 = 4096;
/// Bytes of data that writes take theirs of: as many as the largest of them has.
const DATA: u64 = 1 << 20;
/// Bytes of one write while a volume is filled.
const FILL: u64 = 128 << 10;

/// See the module.
pub(super) struct Site {
    volume: SharedDevice,
    pool: Pool,
    array: Option<Rc<Array>>,
    data: Shared,
}

impl Site {
    pub(super) async fn new(rt: &Rt, case: Case, mib: u64) -> Self {
        let (device, array) = below(rt, case.stack, mib).await;
        let (kind, form) = match case.stack {
            Stack::Mapped { chunk, codec } => {
                let compression = codec;
                (Kind::Mapped, VolumeForm { chunk, compression })
            }
            _ => (Kind::Raw, VolumeForm::default()),
        };
        let pool = Pool::create_kind(rt, device, [1; 16], kind, false).await;
        let pool = pool.expect("the device is new");
        let new = NewVolume {
            form,
            ..NewVolume::new("v", [2; 16], mib << 20)
        };
        let made = pool.create_volumes(vec![new]).await;
        let mut data = Buf::take(DATA as usize).expect("memory");
        case.content.write_to(&mut data);
        let site = Self {
            volume: made.expect("there is room").remove(0),
            pool,
            array,
            data: data.into(),
        };
        site.fill().await;
        site
    }

    async fn fill(&self) {
        let bytes = self.volume.info().blocks * BLOCK;
        for at in (0..bytes).step_by(FILL as usize) {
            let data = piece(&self.data, at, FILL.min(bytes - at));
            let written = self.volume.write(Tag::default(), at / BLOCK, data, false);
            written.await.expect("there is room");
        }
    }

    /// Runs a load for so many milliseconds.
    pub(super) async fn run(&self, rt: &Rt, load: Load, (ms, number): (u64, u64)) -> Measured {
        let latency = Rc::new(RefCell::new(Histogram::new()));
        let over = Rc::new(Cell::new(false));
        let places = self.volume.info().blocks * BLOCK / load.bytes;
        let (begun, cpu) = (Instant::now(), thread_ns());
        let tasks = (0..load.depth).map(|task| {
            let worker = Worker {
                volume: self.volume.clone(),
                data: self.data.clone(),
                over: over.clone(),
                latency: latency.clone(),
            };
            rt.spawn(worker.work(load, places, Rng::new(number).split(task)))
        });
        let tasks: Vec<_> = tasks.collect();
        rt.sleep(Duration::from_ms(ms)).await;
        over.set(true);
        for task in tasks {
            task.await;
        }
        let (span, cpu) = (begun.elapsed(), thread_ns() - cpu);
        let latency = latency.take();
        let ios = latency.count() as f64;
        Measured {
            iops: ios / span.as_secs_f64(),
            cpu_ns: cpu as f64 / ios,
            latency,
        }
    }

    pub(super) async fn close(self) {
        drop(self.volume);
        self.pool.close().await;
        if let Some(array) = self.array {
            array.close().await;
        }
    }
}

/// One I/O at a time.
struct Worker {
    volume: SharedDevice,
    data: Shared,
    over: Rc<Cell<bool>>,
    latency: Rc<RefCell<Histogram>>,
}

impl Worker {
    async fn work(self, load: Load, places: u64, mut rng: Rng) {
        let tag = Tag::default();
        while !self.over.get() {
            let at = rng.below(places) * load.bytes;
            let begun = Instant::now();
            if load.write {
                let data = piece(&self.data, at, load.bytes);
                let written = self.volume.write(tag, at / BLOCK, data, false).await;
                written.expect("there is room");
            } else {
                let into = Buf::take(load.bytes as usize).expect("memory");
                let read = self.volume.read(tag, at / BLOCK, into).await;
                read.expect("memory keeps what it is given");
            }
            let taken = begun.elapsed().as_nanos() as u64;
            self.latency.borrow_mut().record(taken);
            // A device in memory never waits, and the others are to have their turn.
            yields(1).await;
        }
    }
}

/// Data for a place of a volume.
fn piece(data: &Shared, at: u64, bytes: u64) -> Shared {
    let choices = (DATA - bytes) / BLOCK + 1;
    let from = (at / BLOCK % choices * BLOCK) as usize;
    data.slice(from..from + bytes as usize)
}

/// The device that a pool is made on, and its array if it is one.
async fn below(rt: &Rt, stack: Stack, mib: u64) -> (SharedDevice, Option<Rc<Array>>) {
    // As much again as the volume, so that garbage collection has little to move.
    let memory = || -> SharedDevice {
        let bytes = (2 * mib + 128) << 20;
        Rc::new(MemoryDevice::new(BLOCK as u32, bytes).expect("whole blocks"))
    };
    match stack {
        Stack::Raw | Stack::Mapped { .. } => (memory(), None),
        Stack::Encrypted => {
            let mut bytes = [0; KEY_BYTES];
            Rng::new(1).fill_bytes(&mut bytes);
            let key = Key::take(&mut bytes).expect("its halves differ");
            let layer = CryptDevice::new(rt, memory(), &key);
            (Rc::new(layer.expect("blocks of 4 KiB")), None)
        }
        Stack::Mirror { safe_read } => {
            let members = ["m0", "m1"].map(|name| NewMember {
                name: name.into(),
                device: memory(),
            });
            let layout = Layout {
                copies: 2,
                parity: 0,
                safe_read,
            };
            let options = Options::default();
            let made = Array::create(rt, members.into(), [3; 16], layout, options, false).await;
            let array = Rc::new(made.expect("the devices are new"));
            (array.clone(), Some(array))
        }
    }
}

/// Nanoseconds that this thread has run, as Linux counts them: other programs do not count.
fn thread_ns() -> u64 {
    let counted = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ran = counted.split(' ').next().and_then(|ns| ns.parse().ok());
    ran.unwrap_or(0)
}
