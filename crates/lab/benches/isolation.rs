//! A reader beside saturating writers through the whole path, in real time: an open-channel device
//! with dedicated channels for each tenant, the same with parallel units of all channels for
//! each, with one translation layer for all, and a conventional drive. A target on processor 0,
//! hosts in one thread on processor 1, real NVMe/TCP on loopback. The flash is slowed down, so that
//! what two processors cost is small beside it; times are those of the flash at its own speed.
//!
//! For each number of writers the reader is measured alone just before, several times in turn; the
//! medians are reported.
//!
//! ```text
//! cargo bench -p flashyard-lab --bench isolation -- [MILLISECONDS] [DILATION] [ROUNDS]
//! ```

#[allow(dead_code, reason = "each bench uses a part")]
mod rig;

use std::rc::Rc;

use flashyard_block::{DeviceExt, SharedDevice, Tag};
use flashyard_drives::flash::Store;
use flashyard_drives::open_channel::{Medium, OpenChannel, Wanted};
use flashyard_drives::{FlashDevice, FlashOptions};
use flashyard_engine::Class;
use flashyard_flash::ssd::{Condition, Device};
use flashyard_flash::{Profile, channel};
use flashyard_runtime::{Buf, Rt, uring};
use flashyard_sched::{Fair, Fifo, Policy, Window};
use flashyard_time::Duration;

use rig::{BLOCK, Got, Load, Rig, Served};

const PORT: u16 = 4470;
/// Flash of the device.
const FLASH: u64 = 1 << 30;
/// What each tenant uses; of one device for all, what all use.
const BYTES: u64 = 128 << 20;
/// The reader, and writers.
const TENANTS: usize = 4;
/// Commands of a writer, and blocks of each.
const DEPTH: u32 = 16;
const BLOCKS: u32 = 32;

/// Which tenant has which units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// Four channels for each tenant.
    Channels,
    /// Two parallel units of each of the sixteen channels for each tenant.
    Units,
    /// All of the same flash for all, under one translation layer.
    Shared,
    /// A conventional drive for all, behind this policy.
    Conventional(&'static str),
}

const PLACEMENTS: [(&str, Placement); 5] = [
    ("own channels", Placement::Channels),
    ("own units, shared channels", Placement::Units),
    ("shared, fifo", Placement::Shared),
    ("dct983 clean, fifo", Placement::Conventional("fifo")),
    ("dct983 clean, fair", Placement::Conventional("fair")),
];

fn main() {
    let args: Vec<u64> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .map(|arg| arg.parse().expect("a number"))
        .collect();
    let span = Duration::from_ms(args.first().copied().unwrap_or(2000));
    let dilation = args.get(1).copied().unwrap_or(10) as u32;
    let rounds = args.get(2).copied().unwrap_or(3);
    println!(
        "| placement | writers | reader alone: mean us | p99 us | beside them: mean us | p99 us | mean, times | p99, times | writers, MB/s each |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (port, (name, placement)) in (PORT..).zip(PLACEMENTS) {
        measure(port, name, placement, dilation, (span, rounds));
    }
}

fn tenant(number: usize) -> String {
    match number {
        0 => "reader".into(),
        _ => format!("writer{number}"),
    }
}

fn measure(
    port: u16,
    name: &'static str,
    placement: Placement,
    dilation: u32,
    (span, rounds): (Duration, u64),
) {
    let tenants: Vec<_> = (0..TENANTS)
        .map(|number| (tenant(number), Class::Throughput))
        .collect();
    let rig = Rig::start_on(port, &tenants, move |rt| serve(rt, placement, dilation));
    let loads: Vec<Load> = (0..TENANTS)
        .map(|number| Load {
            tenant: tenant(number),
            depth: if number == 0 { 1 } else { DEPTH },
            blocks: if number == 0 { 1 } else { BLOCKS },
            write: number > 0,
            window: None,
            bytes: BYTES,
        })
        .collect();
    uring::run(rig::on(1), move |rt| async move {
        for writers in [1, TENANTS - 1] {
            let (mut alone, mut beside) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                alone.push(rig::run(&rt, port, &loads[..1], span).await);
                beside.push(rig::run(&rt, port, &loads[..=writers], span).await);
            }
            tell(name, writers, dilation, &alone, &beside);
        }
    })
    .expect("io_uring is allowed here");
    rig.join();
}

fn tell(name: &str, writers: usize, dilation: u32, alone: &[Vec<Got>], beside: &[Vec<Got>]) {
    let slow = f64::from(dilation);
    let median = |all: &[Vec<Got>], tenant: usize, of: fn(&Got) -> f64| {
        let mut values: Vec<f64> = all.iter().map(|got| of(&got[tenant])).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let both = |all| {
        let mean = median(all, 0, |got| got.mean);
        [mean / slow, median(all, 0, |got| got.p99) / slow]
    };
    let (alone, reader) = (both(alone), both(beside));
    let rates = (1..=writers).map(|writer| median(beside, writer, |got| got.iops));
    let bytes = rates.sum::<f64>() / writers as f64 * f64::from(BLOCKS * BLOCK) * slow;
    println!(
        "| {name} | {writers} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {:.0} |",
        alone[0],
        alone[1],
        reader[0],
        reader[1],
        reader[0] / alone[0],
        reader[1] / alone[1],
        bytes / 1e6,
    );
}

async fn serve(rt: Rt, placement: Placement, dilation: u32) -> Vec<Served> {
    let all: Vec<String> = (0..TENANTS).map(tenant).collect();
    let wanted = |number: u32| match placement {
        Placement::Channels => Wanted::Channels((4 * number..4 * number + 4).collect()),
        Placement::Units => {
            let units = (0..16).flat_map(|group| [(group, 2 * number), (group, 2 * number + 1)]);
            Wanted::Units(units.collect())
        }
        _ => Wanted::Channels((0..16).collect()),
    };
    let own = matches!(placement, Placement::Channels | Placement::Units);
    let shares: Vec<Vec<String>> = match own {
        true => all.iter().map(|name| vec![name.clone()]).collect(),
        false => vec![all.clone()],
    };
    if let Placement::Conventional(policy) = placement {
        let device = conventional(&rt, dilation);
        fill(&*device).await;
        return vec![(device, named(policy), all)];
    }
    let device = open_channel(&rt, dilation).await;
    let mut served = Vec::new();
    for (number, names) in (0..).zip(shares) {
        let uuid = [number as u8 + 1; 16];
        let created = device.create(&names[0], uuid, &wanted(number), 200).await;
        let partition: SharedDevice = created.expect("the units are free");
        fill(&*partition).await;
        served.push((partition, named("fifo"), names));
    }
    served
}

async fn open_channel(rt: &Rt, dilation: u32) -> OpenChannel {
    let profile = Profile::named("cnex").expect("it ships");
    // Programs that take a tenth more or less: otherwise dies fall in step.
    let options = channel::Options {
        program_spread: 100,
        ..channel::Options::default()
    };
    let device = channel::Device::new(&profile, FLASH, 1, options).expect("it fits");
    let opened = OpenChannel::open(rt, Medium::new(device), [9; 16], dilation).await;
    opened.expect("it is new")
}

fn conventional(rt: &Rt, dilation: u32) -> SharedDevice {
    let profile = Profile::named("dct983").expect("it ships");
    let model = Device::in_condition(&profile, FLASH, 1, Condition::Clean).expect("it fits");
    let options = FlashOptions {
        block_size: BLOCK,
        store: Store::Pattern,
        dilation,
    };
    Rc::new(FlashDevice::new(rt, model, options).expect("a good size"))
}

fn named(policy: &str) -> Box<dyn Policy> {
    match policy {
        "fifo" => Box::new(Fifo::new(Window::UNLIMITED)),
        _ => Box::new(Fair::new()),
    }
}

/// Writes what the reader will read.
async fn fill(device: &dyn flashyard_block::Device) {
    let blocks = BYTES / u64::from(BLOCK);
    for lba in (0..blocks).step_by(BLOCKS as usize) {
        let mut buf = Buf::take((BLOCKS * BLOCK) as usize).expect("there is memory");
        buf.fill(1);
        let written = device.write(Tag::default(), lba, buf, false).await;
        written.expect("it is large enough");
    }
    device.flush(Tag::default()).await.expect("it is sound");
}
