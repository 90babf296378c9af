//! What has broken other targets of vfio-user, as their public reports have it: here it has to go
//! well.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use flashyard_block::{Io, Tag};
use flashyard_host::vfio::{Guest, GuestOptions, RAM_BASE};
use flashyard_nvme::vfio_user::pci::CONFIG;
use flashyard_nvme::vfio_user::{DMA_READ, DMA_WRITE, DmaMap, Request};
use flashyard_nvme::{Sgl, Status, SubmissionQueueEntry};
use flashyard_runtime::sync::Notify;
use flashyard_sched::{Fifo, Window};
use flashyard_testbed::{BLOCK, Paced, memory, pattern};
use flashyard_time::{Duration, Rng};

use super::endings::{busy, connected, slow, works};
use super::{Site, range, rounds, run};

const PIECE: u64 = 256 << 10;

/// A client may map and unmap at any time, and so it does, with commands in flight.
#[test]
fn memory_that_comes_and_goes_at_random_hurts_its_own_guest_only() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let (_other_function, other_path) = slow(&site);
        let mut other = site.guest(&other_path, GuestOptions::default()).await;
        let options = GuestOptions::default();
        let mut guest = site.guest(&path, options).await;
        let file = guest.memory().try_clone().expect("a descriptor");
        for seed in 0..5 * rounds() {
            let mut rng = Rng::new(seed);
            let mut there = in_pieces(&mut guest, options.ram).await;
            busy(&mut guest).await;
            for _ in 0..200 {
                let number = rng.below(there.len() as u64);
                let (offset, is_there) = (number * PIECE, &mut there[number as usize]);
                let done = if *is_there {
                    guest.client.unmap(RAM_BASE + offset, PIECE).await
                } else {
                    let place = (offset, RAM_BASE + offset, PIECE);
                    guest.client.map(&file, place).await
                };
                done.expect("as was asked");
                *is_there ^= true;
                if rng.chance(1, 8) {
                    guest.ring(1 + rng.below(2) as u16).await.expect("rung");
                }
            }
            works(&mut other, seed).await;
            whole_again(&mut guest, &there).await;
            works(&mut guest, seed).await;
        }
    });
}

/// Maps all memory of a guest in pieces, instead of as it was.
async fn in_pieces(guest: &mut Guest, ram: u64) -> Vec<bool> {
    let file = guest.memory().try_clone().expect("a descriptor");
    guest.unmap_memory().await.expect("unmapped");
    for offset in (0..ram).step_by(PIECE as usize) {
        let place = (offset, RAM_BASE + offset, PIECE);
        guest.client.map(&file, place).await.expect("mapped");
    }
    vec![true; (ram / PIECE) as usize]
}

/// Maps all memory as it was, and enables the controller anew.
async fn whole_again(guest: &mut Guest, there: &[bool]) {
    for (number, _) in there.iter().enumerate().filter(|(_, there)| **there) {
        let address = RAM_BASE + number as u64 * PIECE;
        guest.client.unmap(address, PIECE).await.expect("unmapped");
    }
    guest.map_memory().await.expect("mapped");
    guest.disable().await.expect("disabled");
    guest.enable().await.expect("enabled");
}

#[test]
fn forty_machines_that_start_together_all_start() {
    run(|site| async move {
        let functions: Vec<_> = (0..40).map(|_| site.offer("a")).collect();
        let machines: Vec<_> = functions
            .iter()
            .map(|(_, path)| {
                let (site, path) = (site.clone(), path.clone());
                site.rt.clone().spawn(async move {
                    let mut guest = site.guest(&path, GuestOptions::SMALL).await;
                    let mut block = vec![0; BLOCK as usize];
                    let read = guest.read((1, 1), range(0, 1), (0, &mut block)).await;
                    read.expect("read");
                    guest
                })
            })
            .collect();
        let mut guests = Vec::new();
        for machine in machines {
            guests.push(machine.await);
        }
        works(&mut guests[0], 1).await;
    });
}

/// As firmware and a kernel do it one after the other: each enables the controller, and not all
/// say goodbye.
#[test]
fn a_machine_that_boots_many_times_finds_a_controller_each_time() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        for round in 0..15 * rounds() {
            let mut guest = connected(&site, &path).await;
            works(&mut guest, round).await;
            if round % 3 == 0 {
                let notify = 0x46_4001u32.to_le_bytes();
                guest.client.write(0, 0x14, &notify).await.expect("written");
            } else {
                busy(&mut guest).await;
            }
            if round % 2 == 0 {
                guest.client.ask(&Request::Reset, &[]).await.expect("reset");
                let on = guest.client.write(CONFIG, 4, &[0x06, 0x04]).await;
                on.expect("bus master");
            } else {
                guest.disable().await.expect("disabled");
            }
            guest.enable().await.expect("enabled");
            works(&mut guest, round).await;
            busy(&mut guest).await;
        }
    });
}

/// Memory that the client has, but for which it gives no descriptor.
#[test]
fn an_admin_queue_in_memory_that_cannot_be_reached_is_a_fatal_status() {
    run(|site| async move {
        let (_function, path) = site.offer("a");
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        guest.disable().await.expect("disabled");
        let map = DmaMap {
            flags: DMA_READ | DMA_WRITE,
            offset: 0,
            address: 0x10_0000,
            size: 0x10_0000,
        };
        let asked = guest.client.ask(&Request::DmaMap(map), &[]).await;
        asked.expect("taken");
        for register in [0x28, 0x30] {
            let address = 0x10_0000u64.to_le_bytes();
            let set = guest.client.write(0, register, &address).await;
            set.expect("written");
        }
        let enabled = 0x46_0001u32.to_le_bytes();
        guest
            .client
            .write(0, 0x14, &enabled)
            .await
            .expect("enabled");
        while !guest.status().await.expect("CSTS").rdy {
            site.rt.sleep(Duration::from_ms(1)).await;
        }
        let tail = 1u32.to_le_bytes();
        guest.client.write(0, 0x1000, &tail).await.expect("rung");
        site.rt.sleep(Duration::from_ms(5)).await;
        assert!(guest.status().await.expect("CSTS").cfs);
        guest.disable().await.expect("disabled");
        guest.enable().await.expect("enabled elsewhere");
        let block = pattern(1, BLOCK as usize);
        let written = guest.write((1, 1), range(0, 1), (0, &block)).await;
        written.expect("it works");
    });
}

/// A function before a device that holds everything back until `go` is set, and takes one I/O at a
/// time.
fn held(site: &Site) -> (flashyard_vfio::Function, PathBuf, Rc<(Cell<bool>, Notify)>) {
    let go = Rc::new((Cell::new(false), Notify::new()));
    let pace = {
        let go = go.clone();
        move |_: Tag, _: &Io| {
            let go = go.clone();
            async move {
                while !go.0.get() {
                    go.1.notified().await;
                }
            }
        }
    };
    site.bench.target.detach("a", 1).expect("it was there");
    let window = Window {
        ios: 1,
        bytes: u64::MAX,
    };
    let core = &site.bench.cores[0];
    let device = Rc::new(Paced::new(memory(16 << 20), pace));
    let device = core.add_device(device, &core.add_switch(Box::new(Fifo::new(window))));
    site.bench.attach_handle("a", 1, &device);
    let (function, path) = site.offer("a");
    (function, path, go)
}

/// What waits for its turn is taken back; what is at the device is not, and says so.
#[test]
fn a_command_that_waits_is_aborted_and_one_that_was_issued_goes_on() {
    run(|site| async move {
        let (_function, path, go) = held(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        let mut cids = Vec::new();
        for number in 0..2 {
            let cid = guest.take_place(1).expect("room");
            let write = SubmissionQueueEntry::write(1, range(number, 1), NONE);
            guest
                .put_io(1, (write, cid), (0, BLOCK))
                .expect("there is memory");
            cids.push(cid);
        }
        guest.ring(1).await.expect("rung");
        let [issued, waits] = cids[..] else {
            panic!("two commands")
        };
        let unknown = guest.admin(SubmissionQueueEntry::abort(1, 60)).await;
        assert_eq!(unknown.expect("answered").dw0() & 1, 1, "there is no such");
        let waiting = guest.admin(SubmissionQueueEntry::abort(1, waits)).await;
        assert_eq!(waiting.expect("answered").dw0() & 1, 0, "it was aborted");
        let aborted = guest.completion(1).await.expect("of the command");
        assert_eq!(aborted.cid(), waits);
        assert!(aborted.status().is(Status::ABORT_REQUESTED));
        let late = guest.admin(SubmissionQueueEntry::abort(1, issued)).await;
        assert_eq!(late.expect("answered").dw0() & 1, 1, "it was not");
        go.0.set(true);
        go.1.notify_one();
        let done = guest.completion(1).await.expect("of the other");
        assert_eq!((done.cid(), done.status()), (issued, Status::SUCCESS));
    });
}

const NONE: Sgl = Sgl::Transport { length: 0 };

/// Targets, functions and machines end in any order, busy and not.
#[test]
fn whatever_ends_first_the_rest_ends_too() {
    run(|site| async move {
        for round in 0..12 {
            let (function, path) = slow(&site);
            let (other, other_path) = slow(&site);
            let mut first = site.guest(&path, GuestOptions::default()).await;
            let mut second = site.guest(&other_path, GuestOptions::default()).await;
            if round % 2 == 0 {
                busy(&mut first).await;
            }
            if round < 8 {
                busy(&mut second).await;
            }
            match round / 2 {
                0 => drop((function, first, other, second)),
                1 => drop((first, function, second, other)),
                2 => drop((second, first, function, other)),
                3 => drop((other, function, second, first)),
                4 => {
                    drop(function);
                    works(&mut second, round).await;
                    drop((first, second, other));
                }
                _ => {
                    drop(first);
                    works(&mut second, round).await;
                    drop((other, second, function));
                }
            }
        }
    });
}

#[test]
fn a_target_that_ends_under_busy_machines_ends() {
    run(|site| async move {
        let (_function, path) = slow(&site);
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        busy(&mut guest).await;
        site.bench.cores[0].shutdown().await;
        let status = guest.status().await.expect("the socket is still there");
        assert!(status.cfs, "{status:?}");
    });
}
