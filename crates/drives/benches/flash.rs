//! Compares an emulated drive in real time with its model: the same loads on the model in virtual
//! time and, through the block layer, in real time. Use it on a machine that does nothing else. A
//! row is void when completions were so late (99th percentile) that the machine causes more than a
//! tenth of the latency.
//!
//! `cargo bench -p flashyard-drives --bench flash -- [seconds per row] [dilation] [profile]`

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use flashyard_block::{DeviceExt, Tag};
use flashyard_drives::flash::Store;
use flashyard_drives::{FlashDevice, FlashOptions, FlashStats};
use flashyard_flash::ssd::{self, Condition};
use flashyard_flash::workload::{Worker, closed_loop};
use flashyard_flash::{Profile, UNIT_BYTES};
use flashyard_runtime::uring::{self, Config};
use flashyard_runtime::{Buf, Rt};
use flashyard_time::{Duration, Histogram, Rng, Time};

const CAPACITY: u64 = 8 << 30;
const WARM_UP: Duration = Duration::from_ms(300);

const FRAGMENTED: Condition = Condition::Fragmented(100);

/// The rows of the public targets of a DCT983.
const ROWS: [(&str, Condition, Worker); 8] = [
    ("4K random read, 1", FRAGMENTED, Worker::reader(1)),
    ("4K random read, 32", FRAGMENTED, Worker::reader(32)),
    ("4K random read, 128", FRAGMENTED, Worker::reader(128)),
    (
        "128K sequential read, 32",
        Condition::Clean,
        Worker::streamer(32, 100),
    ),
    ("4K random write, 1", FRAGMENTED, Worker::writer(1)),
    ("4K random write, 32", FRAGMENTED, Worker::writer(32)),
    ("4K random write, 128", FRAGMENTED, Worker::writer(128)),
    (
        "4K 70/30, 128",
        FRAGMENTED,
        Worker {
            reads: 70,
            ..Worker::reader(128)
        },
    ),
];

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let number = |place: usize, usual| {
        let word = words.get(place);
        word.map_or(usual, |word| word.parse().expect("a number"))
    };
    let (seconds, dilation) = (number(0, 3), number(1, 1));
    let name = words.get(2).map_or("dct983", String::as_str);
    let profile = Profile::named(name).expect("a profile that ships");
    println!(
        "{:26} {:>12} {:>12} {:>7} {:>9} {:>9} {:>9} {:>6} {:>6}",
        name, "virtual IOPS", "real IOPS", "ratio", "mean us", "p99 us", "late p99", "CPU", ""
    );
    for (row, condition, worker) in ROWS {
        let model = || {
            ssd::Device::in_condition(&profile, CAPACITY, 1, condition).expect("the size fits it")
        };
        let span = Duration::from_secs(u64::from(seconds));
        let tally = closed_loop(&mut model(), &[worker], WARM_UP, span, 1).remove(0);
        let expected = (tally.read_iops() + tally.write_iops()) as f64;
        let real = real_time(model(), worker, span, dilation);
        let iops = real.latency.count() as f64 * f64::from(dilation) / span.as_secs_f64();
        let late = real.stats.lateness.percentile(990_000);
        let void = real.stats.is_void(Duration::from_ns(real.latency.mean()));
        println!(
            "{row:26} {expected:12.0} {iops:12.0} {:7.3} {:9.1} {:9.1} {:9.1} {:4.0} % {:>6}",
            iops / expected,
            real.latency.mean() as f64 / 1e3,
            real.latency.percentile(990_000) as f64 / 1e3,
            late as f64 / 1e3,
            real.busy * 100.0,
            if void { "void" } else { "" },
        );
    }
}

/// What a run in real time gave.
struct Real {
    /// Of I/Os that ended in the span measured.
    latency: Histogram,
    stats: FlashStats,
    /// Share of a processor used.
    busy: f64,
}

fn real_time(model: ssd::Device, worker: Worker, span: Duration, dilation: u32) -> Real {
    let (started, used) = (Instant::now(), processor_time());
    let run = uring::run(Config::default(), move |rt| async move {
        let options = FlashOptions {
            block_size: UNIT_BYTES as u32,
            store: Store::Pattern,
            dilation,
        };
        let device = FlashDevice::new(&rt, model, options).expect("the options are right");
        let load = Rc::new(Load::new(&rt, device, worker, span));
        let tasks = (0..worker.depth)
            .map(|_| rt.spawn(one_after_another(Rc::clone(&load))))
            .collect::<Vec<_>>();
        load.rt.sleep_until(load.from).await;
        load.device.clear_timing();
        for task in tasks {
            task.await;
        }
        (load.latency.take(), load.device.stats())
    });
    let (latency, stats) = run.expect("this machine has io_uring");
    let busy = (processor_time() - used) / started.elapsed().as_secs_f64();
    Real {
        latency,
        stats,
        busy,
    }
}

struct Load {
    rt: Rt,
    device: FlashDevice,
    worker: Worker,
    from: Time,
    until: Time,
    cursor: Cell<u64>,
    chance: RefCell<Rng>,
    latency: RefCell<Histogram>,
}

impl Load {
    fn new(rt: &Rt, device: FlashDevice, worker: Worker, span: Duration) -> Self {
        let from = rt.now() + WARM_UP;
        Self {
            rt: rt.clone(),
            device,
            worker,
            from,
            until: from + span,
            cursor: Cell::new(0),
            chance: RefCell::new(Rng::new(1)),
            latency: RefCell::default(),
        }
    }

    /// Whether to read, and where.
    fn draw(&self) -> (bool, u64) {
        let units = u64::from(self.worker.units);
        let places = CAPACITY / UNIT_BYTES / units;
        let mut chance = self.chance.borrow_mut();
        let place = if self.worker.random {
            chance.below(places)
        } else {
            self.cursor.set((self.cursor.get() + 1) % places);
            self.cursor.get()
        };
        (chance.chance(self.worker.reads, 100), place * units)
    }
}

async fn one_after_another(load: Rc<Load>) {
    let len = load.worker.units as usize * UNIT_BYTES as usize;
    let mut begun = load.rt.now();
    while begun < load.until {
        let (read, lba) = load.draw();
        let buf = Buf::take(len).expect("the bound is far");
        if read {
            let data = load.device.read(Tag::default(), lba, buf).await;
            data.expect("the range is on the drive");
        } else {
            let done = load.device.write(Tag::default(), lba, buf, false).await;
            done.expect("the range is on the drive");
        }
        let ended = load.rt.now();
        if ended > load.from && ended <= load.until {
            load.latency.borrow_mut().record(ended.since(begun).as_ns());
        }
        begun = ended;
    }
}

/// Seconds of processor time that this process has used.
fn processor_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux has /proc");
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // User and system time are the 14th and 15th field; two stand before the bracket. 100 ticks are
    // a second.
    let ticks = |place: usize| -> f64 {
        let field = fields.split_whitespace().nth(place - 3);
        field.and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0)
    };
    (ticks(14) + ticks(15)) / 100.0
}
