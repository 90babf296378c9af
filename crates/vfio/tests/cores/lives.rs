//! Whole lives of functions, by chance, with I/O on all cores.

use std::rc::Rc;

use flashyard_nvme::SubmissionQueueEntry as Entry;
use flashyard_nvme::vfio_user::Request;
use flashyard_nvme::vfio_user::pci::CONFIG;
use flashyard_time::{Duration, Rng};

use super::acts;
use super::over::Over;
use super::{Behind, CORES, GUEST, SOON, World, busy, run, run_on, works};

/// A client that goes in the middle of I/O leaves nothing to the next one.
#[test]
fn clients_that_go_leave_nothing_on_any_core() {
    run(|world| async move {
        *world.door.rng.borrow_mut() = Some(Rng::new(5));
        for round in 0..10 {
            let mut guest = world.guest(GUEST).await;
            busy(&mut guest).await;
            if round % 2 == 0 {
                world.rt().sleep(Duration::from_us(round * 100)).await;
            }
            drop(guest);
            let mut guest = world.guest(GUEST).await;
            works(&mut guest, round).await;
        }
    });
}

/// The function, its client, its tenant and cores of the target end in any order, under load.
#[test]
fn whatever_ends_first_the_rest_ends_too() {
    for round in 0..8 {
        run_on(CORES, round, move |world| async move {
            *world.door.rng.borrow_mut() = Some(Rng::new(round));
            let mut guest = world.guest(GUEST).await;
            busy(&mut guest).await;
            let end = |core: usize| {
                let core = world.bench.cores[core].clone();
                let rt = world.bench.rts[core.index()].clone();
                rt.spawn(async move { core.shutdown().await })
            };
            match round {
                0 => drop(world.function.take()),
                1 => drop(guest),
                2 => end(0).await,
                3 => end(1).await,
                4 => {
                    end(1).await;
                    end(2).await;
                    let _ = guest.disable().await;
                    let _ = guest.enable().await;
                    drop(world.function.take());
                }
                5 => {
                    let target = &world.bench.target;
                    target.remove_tenant("a").expect("it was there");
                    world.rt().sleep(SOON).await;
                    assert!(guest.status().await.expect("CSTS").cfs);
                }
                6 => {
                    let ends: Vec<_> = (0..CORES).rev().map(end).collect();
                    for end in ends {
                        end.await;
                    }
                }
                _ => {
                    let last = end(2);
                    drop(world.function.take());
                    last.await;
                }
            }
        });
    }
}

/// Changes in one life.
const CHANGES: u64 = 12;

/// Resets, unmapped memory, deleted queues and changed namespaces, with I/O on all cores.
async fn life(world: &World, seed: u64) {
    let mut rng = Rng::new(seed);
    *world.door.rng.borrow_mut() = Some(Rng::new(seed).split(1));
    let mut guest = world.guest(GUEST).await;
    for _ in 0..CHANGES {
        busy(&mut guest).await;
        world.rt().sleep(Duration::from_us(rng.below(2000))).await;
        match rng.below(5) {
            0 => guest.disable().await.expect("disabled"),
            1 => {
                let asked = guest.client.ask(&Request::Reset, &[]).await;
                asked.expect("reset");
            }
            2 => {
                guest.unmap_memory().await.expect("unmapped");
                guest.map_memory().await.expect("mapped");
                guest.disable().await.expect("disabled");
            }
            3 => {
                let qid = 1 + rng.below(4) as u16;
                let _ = guest.admin(Entry::delete_io_sq(qid)).await;
                guest.disable().await.expect("disabled");
            }
            _ => {
                let target = &world.bench.target;
                target.detach("a", 1).expect("it is there");
                world.rt().sleep(Duration::from_us(rng.below(500))).await;
                let device = Rc::new(Behind(world.door.clone()));
                let core = rng.below(CORES as u64) as usize;
                world.bench.attach("a", 1, core, device);
                guest.disable().await.expect("disabled");
            }
        }
        let on = guest.client.write(CONFIG, 4, &[0x06, 0x04]).await;
        on.expect("bus master");
        let on = guest.client.write(CONFIG, 0x52, &[0x00, 0x80]).await;
        on.expect("MSI-X");
        guest.enable().await.expect("enabled");
        works(&mut guest, seed).await;
    }
}

fn rounds() -> u64 {
    let times = std::env::var("FLASHYARD_ROUNDS").ok();
    times.and_then(|times| times.parse().ok()).unwrap_or(1)
}

#[test]
fn lives_of_guests_by_seed() {
    let seeds = 25 * rounds();
    println!("steps {}", seeds * CHANGES);
    for seed in 0..seeds {
        run_on(CORES, seed, move |world| async move {
            life(&world, seed).await;
        });
    }
}

/// Steps of one guest.
const STEPS: u64 = 300;

/// However a function was treated, a reset makes it a controller again.
#[test]
fn a_guest_that_does_anything_at_random_can_be_reset() {
    let seeds = 10 * rounds();
    println!("steps {}", seeds * STEPS);
    for seed in 0..seeds {
        run_on(CORES, seed, move |world| async move {
            let mut rng = Rng::new(seed);
            *world.door.rng.borrow_mut() = Some(Rng::new(seed).split(1));
            let mut guest = world.guest(GUEST).await;
            for _ in 0..STEPS {
                acts::act(&mut guest, world.rt(), &mut rng).await;
            }
            let asked = guest.client.ask(&Request::Reset, &[]).await;
            asked.expect("reset");
            Over::Unmapped.ask(&mut guest).await;
            guest.client.reply().await.expect("unmapped");
            guest.map_memory().await.expect("mapped");
            let on = guest.client.write(CONFIG, 4, &[0x06, 0x04]).await;
            on.expect("bus master");
            let on = guest.client.write(CONFIG, 0x52, &[0x00, 0x80]).await;
            on.expect("MSI-X");
            guest.enable().await.expect("enabled");
            works(&mut guest, seed).await;
        });
    }
}
