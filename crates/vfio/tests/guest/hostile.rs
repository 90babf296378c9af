//! Clients and guests that break every rule: the function lives, and its neighbour does not notice.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;

use flashyard_host::vfio::{Guest, GuestOptions, RAM_BASE, VfioClient};
use flashyard_nvme::vfio_user::pci::{BAR0, BAR4, BAR5, CONFIG};
use flashyard_nvme::vfio_user::{Command, Header, Request};
use flashyard_runtime::shared_memory::memory_file;
use flashyard_testbed::{BLOCK, pattern};
use flashyard_time::{Duration, Rng};

use super::{Site, range, rounds, run};

async fn works(guest: &mut Guest, seed: u64) {
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
    let header = Header {
        id: 1,
        command: Command::REGION_WRITE,
        payload: 20,
        reply: false,
        no_reply: true,
        error: None,
    };
    let mut message = Vec::new();
    header.encode(&mut message);
    message.extend(0u64.to_ne_bytes());
    message.extend(BAR4.to_ne_bytes());
    message.extend(4u32.to_ne_bytes());
    message.extend([0; 4]);
    message
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

/// One random act of a guest: registers, doorbells, memory under queues and lists, mappings.
async fn act(guest: &mut Guest, rng: &mut Rng) {
    let mut bytes = vec![0; 64];
    rng.fill_bytes(&mut bytes);
    // What is refused is refused; what is not goes on.
    match rng.below(10) {
        0 => {
            let offset = rng.below(0x40) & !3;
            let _ = guest.client.write(BAR0, offset, &bytes[..4]).await;
        }
        1..=3 => {
            let offset = 0x1000 + rng.below(8) * 4;
            let value = rng.below(70) as u32;
            let _ = guest.client.write(BAR0, offset, &value.to_le_bytes()).await;
        }
        4 => {
            let offset = rng.below(0x70);
            let _ = guest.client.write(CONFIG, offset, &bytes[..1]).await;
        }
        5 => {
            let bar = if rng.chance(1, 2) { BAR4 } else { BAR5 };
            let _ = guest.client.write(bar, rng.below(4200), &bytes[..4]).await;
        }
        6 if rng.chance(1, 8) => {
            let _ = guest.unmap_memory().await;
            let _ = guest.map_memory().await;
        }
        _ => {
            // Small numbers: commands, addresses and lists that are nearly right.
            for byte in &mut bytes {
                if rng.chance(1, 2) {
                    *byte = 0;
                }
            }
            bytes[0] = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 0x7c][rng.below(11) as usize];
            let page = RAM_BASE + (rng.below(256) << 12);
            bytes[24..32].copy_from_slice(&(page + rng.below(2) * 8).to_le_bytes());
            bytes[32..40].copy_from_slice(&page.to_le_bytes());
            let at = RAM_BASE + rng.below(2048) * 64;
            let _ = guest.store(at, &bytes);
        }
    }
}

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
    for _ in 0..300 {
        act(&mut guest, &mut rng).await;
    }
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
    guest.enable().await.expect("enabled");
    works(&mut guest, seed).await;
}

#[test]
fn a_guest_that_does_anything_at_random_hurts_itself_only() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let (_other_function, other_path) = site.offer("a");
        let mut other = site.guest(&other_path, GuestOptions::default()).await;
        for seed in 0..20 * rounds() {
            torment(&site, &path, seed, &mut other).await;
        }
    });
}
