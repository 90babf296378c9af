//! What a mapped pool on parity gives of the bandwidth and of the I/Os of its members, in virtual
//! time: each member moves so many bytes a second and takes so long for an I/O, one after another.

mod arrays;

use std::cell::Cell;
use std::rc::Rc;

use arrays::{ARRAY, in_world, memories, named, new};
use flashyard_block::array::{Array, Layout, Options};
use flashyard_block::pool::{MappedOptions, MappedPool, NewVolume};
use flashyard_block::{DeviceExt, Io, SharedDevice, Tag};
use flashyard_runtime::{Buf, Rt};
use flashyard_testbed::Paced;
use flashyard_time::{Duration, Rng};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Bytes of the volume that are written.
const BYTES: u64 = 96 * MIB;
/// Nanoseconds of a member for a KiB, and for an I/O: 1 GB/s and 100,000 I/Os a second.
const KIB: u64 = 1024;
const EACH: u64 = 10_000;

/// A member that does one I/O after another.
fn paced(rt: &Rt, device: SharedDevice, each: u64) -> SharedDevice {
    let (rt, free) = (rt.clone(), Rc::new(Cell::new(rt.now())));
    Rc::new(Paced::new(device, move |_, io: &Io| {
        let takes = Duration::from_ns(each + io.transfers() as u64 * 1000 / KIB);
        let start = free.get().max(rt.now());
        free.set(start + takes);
        rt.sleep(free.get().since(rt.now()))
    }))
}

async fn pool(rt: &Rt, members: &[SharedDevice], columns: usize, parity: usize) -> MappedPool {
    let layout = Layout {
        copies: columns,
        parity,
        safe_read: false,
    };
    let array = Array::create(rt, new(members), ARRAY, layout, Options::default(), false).await;
    let array = Rc::new(array.expect("they hold nothing"));
    let made = MappedPool::create(rt, array, [7; 16], MappedOptions::default()).await;
    made.expect("it is large enough")
}

/// Tasks that do the same with parts of the volume, and how long that takes, in seconds.
async fn timed<F: Future<Output = ()> + 'static>(
    rt: &Rt,
    tasks: u64,
    work: impl Fn(u64) -> F,
) -> f64 {
    let begun = rt.now();
    let tasks: Vec<_> = (0..tasks).map(|task| rt.spawn(work(task))).collect();
    for task in tasks {
        task.await;
    }
    rt.now().since(begun).as_ns() as f64 / 1e9
}

/// Writes of 128 KiB in order, 32 at a time; bytes a second.
async fn written(rt: &Rt, volume: &SharedDevice) -> f64 {
    let next = Rc::new(Cell::new(0));
    let took = timed(rt, 32, |_| {
        let (volume, next) = (volume.clone(), next.clone());
        async move {
            while next.get() < BYTES / BLOCK as u64 {
                let lba = next.replace(next.get() + 32);
                let mut buf = Buf::take(32 * BLOCK).expect("memory");
                buf.fill(lba as u8 | 1);
                let done = volume.write(Tag::default(), lba, buf, false).await;
                done.expect("there is room");
            }
        }
    });
    BYTES as f64 / took.await
}

/// Reads of 4 KiB anywhere, 64 at a time; a second.
async fn read(rt: &Rt, volume: &SharedDevice) -> f64 {
    const EACH_TASK: u64 = 100;
    let took = timed(rt, 64, |task| {
        let volume = volume.clone();
        async move {
            let mut rng = Rng::new(task);
            for _ in 0..EACH_TASK {
                let lba = rng.below(BYTES / BLOCK as u64);
                let buf = Buf::take(BLOCK).expect("memory");
                let done = volume.read(Tag::default(), lba, buf).await;
                done.expect("it is there");
            }
        }
    });
    64.0 * EACH_TASK as f64 / took.await
}

#[test]
fn writes_in_order_get_what_members_without_parity_add_up_to_and_reads_go_on_without_one() {
    for (columns, parity) in [(3, 1), (5, 1), (9, 1), (6, 2)] {
        in_world(async move |rt| {
            let data = (columns - parity) as u64;
            // Segments of 1 MiB.
            let devices = memories(columns, (16 + 1200 / data) * MIB);
            let members = |each| -> Vec<SharedDevice> {
                let devices = devices.iter();
                devices.map(|it| paced(&rt, it.clone(), each)).collect()
            };
            let made = pool(&rt, &members(0), columns, parity).await;
            let wanted = vec![NewVolume::new("v", [1; 16], BYTES)];
            let volume = made
                .create_volumes(wanted)
                .await
                .expect("there is room")
                .remove(0);
            let wrote = written(&rt, &volume).await;
            let share = wrote / (data as f64 * 1.024e9);
            made.close().await;
            drop((made, volume));
            let mut rates = Vec::new();
            for lost in [0, 1] {
                let left = members(EACH).into_iter().enumerate().skip(lost);
                let left = left.map(|(at, it)| named(&format!("m{at}"), &it));
                let array = Array::open(&rt, left.collect(), None, Options::default(), true).await;
                let array = Rc::new(array.expect("enough are there"));
                let opened = MappedPool::open(&rt, array, MappedOptions::default()).await;
                let opened = opened.expect("parity is enough");
                let volume = opened.volume("v").expect("it was made");
                rates.push(read(&rt, &volume).await);
                opened.close().await;
            }
            let degraded = rates[1] / rates[0];
            println!(
                "{columns} with {parity} of parity: {share:.3} of what is left of the members' bandwidth, reads of {:.0} and {:.0} a second without one ({degraded:.2})",
                rates[0], rates[1]
            );
            assert!(share > 0.84, "{columns}: {share}");
            // A read in so many is one of all others.
            assert!(degraded > 0.5, "{columns}: {degraded}");
        });
    }
}
