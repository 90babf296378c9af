//! Clients and guests that break every rule: the function lives, and its neighbour does not notice.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flashyard_host::vfio::{Guest, GuestOptions, VfioClient};
use flashyard_nvme::vfio_user::pci::{BAR4, CONFIG};
use flashyard_nvme::vfio_user::{DmaUnmap, Header, RegionAccess, Request, UNMAP_ALL};
use flashyard_runtime::shared_memory::{Mapping, memory_file};
use flashyard_testbed::{BLOCK, memory, pattern};
use flashyard_time::{Duration, Rng};

use super::acts::act;
use super::lent::file;
use super::{Site, range, rounds, run};

pub(super) async fn works(guest: &mut Guest, seed: u64) {
    let data = pattern(seed, BLOCK as usize);
    let mut read = vec![0; data.len()];
    guest
        .write((1, 1), range(3, 1), (0, &data))
        .await
        .expect("written");
    guest
        .read((2, 1), range(3, 1), (0, &mut read))
        .await
        .expect("read");
    assert!(read == data);
}

/// Any bytes, with and without descriptors, from clients that come one after the other.
#[test]
fn noise_on_the_socket_ends_that_client_only() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let (_other_function, other_path) = site.offer("a");
        let mut other = site.guest(&other_path, GuestOptions::default()).await;
        let memory = memory_file(1 << 20).expect("a memfd");
        for seed in 0..150 {
            let mut rng = Rng::new(seed);
            let Ok(client) = VfioClient::connect(&site.rt, &path).await else {
                site.rt.sleep(Duration::from_ms(1)).await;
                continue;
            };
            for _ in 0..rng.below(20) {
                let mut noise = vec![0; Header::LEN + rng.below(64) as usize];
                rng.fill_bytes(&mut noise);
                let len = noise.len() as u32;
                noise[2..4].copy_from_slice(&(rng.below(18) as u16).to_ne_bytes());
                noise[4..8].copy_from_slice(&len.to_ne_bytes());
                noise[8..12].copy_from_slice(&[0; 4]);
                let fds = [memory.as_fd(), memory.as_fd()];
                let fds = &fds[..rng.below(3) as usize];
                if client.send(&noise, fds).await.is_err() {
                    break;
                }
            }
            if seed % 10 == 0 {
                works(&mut other, seed).await;
            }
        }
        works(&mut other, 7).await;
    });
}

/// A message that asks for nothing: a write of MSI-X vector 0 that wants no reply.
fn posted() -> Vec<u8> {
    let access = RegionAccess {
        offset: 0,
        region: BAR4,
        count: 4,
    };
    Request::RegionWrite(access, &[0; 4]).encode_posted(1)
}

/// All messages are in the socket before the function looks at it.
#[test]
fn a_client_that_never_pauses_does_not_hold_up_the_core() {
    const MESSAGES: usize = 2000;
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut client = VfioClient::connect(&site.rt, &path).await.expect("agreed");
        client
            .send(&posted().repeat(MESSAGES), &[])
            .await
            .expect("taken at once");
        let last = Request::DeviceInfo.encode(2);
        client.send(&last, &[]).await.expect("taken at once");
        let turns = Rc::new(Cell::new(0));
        let others = {
            let (rt, turns) = (site.rt.clone(), turns.clone());
            site.rt.spawn(async move {
                loop {
                    turns.set(turns.get() + 1);
                    rt.turn_end().await;
                }
            })
        };
        client.reply().await.expect("the last one wants a reply");
        drop(others);
        assert!(turns.get() >= MESSAGES / 20, "{} turns", turns.get());
    });
}

/// Another processor of the guest, which writes all over its memory while the function works with
/// it, until it is dropped.
struct Scribbler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scribbler {
    fn start(guest: &Guest, seed: u64) -> Self {
        let file = guest.memory().try_clone().expect("a descriptor");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let ram = GuestOptions::SMALL.ram;
            let ram = Mapping::new(file.as_fd(), 0, ram, true).expect("memory");
            let mut rng = Rng::new(seed);
            while !stopped.load(Ordering::Relaxed) {
                // Where queues, lists and shadow doorbells are.
                let at = rng.below(1 << 18) as usize & !3;
                let value = [0, 1, rng.below(64) as u32, rng.next_u64() as u32];
                let _ = ram.store(at, value[rng.below(4) as usize]);
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Scribbler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()), "it wrote");
    }
}

/// Steps of one guest.
const STEPS: u64 = 300;

async fn torment(site: &Site, path: &std::path::Path, seed: u64, other: &mut Guest) {
    let mut rng = Rng::new(seed);
    let options = GuestOptions {
        shadow: seed % 2 == 1,
        ..GuestOptions::SMALL
    };
    let mut guest = loop {
        match Guest::start(&site.rt, path, options).await {
            Ok(guest) => break guest,
            Err(_) => site.rt.sleep(Duration::from_ms(1)).await,
        }
    };
    let scribbler = (seed % 4 < 2).then(|| Scribbler::start(&guest, seed));
    for _ in 0..STEPS {
        act(&mut guest, &site.rt, &mut rng).await;
    }
    drop(scribbler);
    works(other, seed).await;
    // However it was treated, a reset makes it a controller again.
    guest
        .client
        .write(CONFIG, 0x69, &[0x80])
        .await
        .expect("reset");
    guest
        .client
        .write(CONFIG, 4, &[0x06, 0x04])
        .await
        .expect("bus master");
    let all = DmaUnmap {
        argsz: 24,
        flags: UNMAP_ALL,
        address: 0,
        size: 0,
    };
    let asked = guest.client.ask(&Request::DmaUnmap(all), &[]).await;
    asked.expect("unmapped");
    guest.map_memory().await.expect("mapped");
    guest
        .client
        .write(CONFIG, 0x52, &[0x00, 0x80])
        .await
        .expect("MSI-X");
    guest.enable().await.expect("enabled");
    works(&mut guest, seed).await;
}

#[test]
fn a_guest_that_does_anything_at_random_hurts_itself_only() {
    run(|site| async move {
        // The kernel itself moves data of a file to and from the guest's memory.
        let seeds = 10 * rounds();
        println!("steps {}", 2 * seeds * STEPS);
        for device in [memory(16 << 20), file(&site, BLOCK).await] {
            site.bench.target.detach("a", 1).expect("it is there");
            site.bench.attach("a", 1, 0, device);
            let (_function, path) = site.offer("a");
            let (_other_function, other_path) = site.offer("a");
            let mut other = site.guest(&other_path, GuestOptions::default()).await;
            for seed in 0..seeds {
                torment(&site, &path, seed, &mut other).await;
            }
        }
    });
}
