//! Tests of quotas and budgets.

use std::pin::pin;
use std::task::Waker;

use flashyard_time::Rng;

use super::*;

const MIB: usize = 1 << 20;

fn poll(wait: Pin<&mut (impl Future<Output = Reservation> + ?Sized)>) -> Option<Reservation> {
    match wait.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reservation) => Some(reservation),
        Poll::Pending => None,
    }
}

fn all_it_gets(quota: &Rc<MemoryQuota>, bytes: usize) -> Vec<Reservation> {
    std::iter::from_fn(|| Reservation::now(quota, bytes)).collect()
}

#[test]
fn whoever_comes_finds_some_however_much_the_others_took() {
    let pool = Pool::new(128 * MIB, 16 * MIB);
    let mut taken = Vec::new();
    for n in 1..=16 {
        let reservations = all_it_gets(&MemoryQuota::new(&pool), MIB / 4);
        let got = reservations.len() * MIB / 4;
        let least = if n < 9 { 5 * MIB } else { MIB };
        assert!((least..=16 * MIB).contains(&got), "number {n} got {got}");
        taken.push(reservations);
    }
    assert!(pool.free() >= 4 * MIB, "{} are free", pool.free());
    taken.clear();
    assert_eq!(pool.free(), 128 * MIB);
}

#[test]
fn those_who_give_back_and_take_again_come_to_have_the_same() {
    let pool = Pool::new(128 * MIB, 16 * MIB);
    let quotas: Vec<_> = (0..60).map(|_| MemoryQuota::new(&pool)).collect();
    let mut taken: Vec<_> = quotas.iter().map(|r| all_it_gets(r, MIB / 16)).collect();
    for round in 0..100 {
        for (quota, reservations) in quotas.iter().zip(&mut taken) {
            reservations.truncate(
                reservations.len() - reservations.len().div_ceil(8).min(reservations.len()),
            );
            reservations.extend(all_it_gets(quota, MIB / 16));
            let same = reservations.len() * MIB / 16;
            assert!(round < 50 || (MIB..3 * MIB).contains(&same), "{same}");
        }
    }
    let free = pool.free();
    assert!((6 * MIB..12 * MIB).contains(&free), "{free} are free");
}

#[test]
fn who_has_nothing_may_have_what_is_there_and_others_wait() {
    let pool = Pool::new(4 * MIB, 2 * MIB);
    let (one, two) = (MemoryQuota::new(&pool), MemoryQuota::new(&pool));
    let large = Reservation::now(&one, 3 * MIB).expect("it has nothing");
    assert!(
        Reservation::now(&one, 4096).is_none(),
        "it has more than a part"
    );
    let mut wait = pin!(Reservation::wait(&two, 2 * MIB));
    assert!(poll(wait.as_mut()).is_none());
    assert!(
        Reservation::now(&two, 4096).is_none(),
        "behind the other one"
    );
    drop(large);
    let reservation = poll(wait.as_mut()).expect("there is room");
    reservation.keep();
    assert_eq!(pool.free(), 2 * MIB);
    two.release(2 * MIB);
    assert_eq!(pool.free(), 4 * MIB);
}

#[test]
fn whoever_leaves_unblocks_those_behind() {
    let pool = Pool::new(4 * MIB, 4 * MIB);
    let quota = MemoryQuota::new(&pool);
    let held = Reservation::now(&quota, MIB / 2).expect("it has nothing");
    let mut narrow = pin!(Reservation::wait(&quota, 4096));
    {
        let mut wide = pin!(Reservation::wait(&quota, 3 * MIB));
        assert!(poll(wide.as_mut()).is_none());
        assert!(poll(narrow.as_mut()).is_none());
    }
    assert!(poll(narrow.as_mut()).is_some());
    {
        let mut granted = pin!(Reservation::wait(&quota, MIB));
        assert!(poll(granted.as_mut()).is_none());
        drop(held);
    }
    assert_eq!(pool.free(), 4 * MIB, "granted and never looked at");
    assert!(pool.waiting.borrow().is_empty());
}

#[test]
fn what_is_for_one_it_may_have_all_of() {
    let quota = Pool::of_one(MIB);
    assert_eq!(all_it_gets(&quota, MIB / 16).len(), 16);
}

/// By chance: nothing is lost, nobody who could have been served waits, and all end.
#[test]
fn all_are_served_in_the_end() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let pool = Pool::new(8 * MIB, 2 * MIB);
        let quotas: Vec<_> = (0..6).map(|_| MemoryQuota::new(&pool)).collect();
        let mut waits: Vec<Pin<Box<dyn Future<Output = Reservation>>>> = Vec::new();
        let mut reservations = Vec::new();
        for _ in 0..300 {
            let quota = quotas[rng.below(6) as usize].clone();
            let most = 1 << (12 + rng.below(9));
            let bytes = 1 + rng.below(most) as usize;
            match rng.below(4) {
                0 | 1 => waits.push(Box::pin(
                    async move { Reservation::wait(&quota, bytes).await },
                )),
                2 if !reservations.is_empty() => {
                    reservations.swap_remove(rng.below(reservations.len() as u64) as usize);
                }
                3 if !waits.is_empty() => {
                    drop(waits.swap_remove(rng.below(waits.len() as u64) as usize));
                }
                _ => {}
            }
            waits.retain_mut(|wait| match poll(wait.as_mut()) {
                Some(reservation) => {
                    reservations.push(reservation);
                    false
                }
                None => true,
            });
            let held: usize = reservations
                .iter()
                .map(|reservation: &Reservation| reservation.bytes)
                .sum();
            assert_eq!(pool.free() + held, 8 * MIB, "seed {seed}");
        }
        while !waits.is_empty() {
            reservations.clear();
            let before = waits.len();
            waits.retain_mut(|wait| match poll(wait.as_mut()) {
                Some(reservation) => {
                    reservations.push(reservation);
                    false
                }
                None => true,
            });
            assert!(waits.len() < before, "seed {seed}: {before} wait for ever");
        }
        reservations.clear();
        assert_eq!(pool.free(), 8 * MIB);
        assert!(pool.waiting.borrow().is_empty());
    }
}

#[test]
fn a_bound_that_is_reached_leaves_the_other_untouched() {
    let pool = Pool::new(10_000, 10_000);
    let budget = Budget::new(16_384, MemoryQuota::new(&pool));
    let held = budget.try_reserve(8192).expect("fits");
    assert!(budget.try_reserve(4096).is_none(), "the core has no more");
    assert_eq!(budget.connection.available(), 8192);
    let bytes = held.into_bytes();
    assert_eq!(pool.free(), 10_000 - 8192);
    budget.release(bytes);
    assert_eq!(
        (pool.free(), budget.connection.available()),
        (10_000, 16_384)
    );
    let narrow = Budget::new(4096, MemoryQuota::new(&pool));
    assert!(
        narrow.try_reserve(8192).is_none(),
        "the connection has no more"
    );
    assert_eq!(pool.free(), 10_000);
}

#[test]
fn small_buffers_count_for_a_page() {
    assert_eq!(Budget::charge(1), 4096);
    assert_eq!(Budget::charge(4097), 8192);
    assert_eq!(Budget::charge(1 << 20), 1 << 20);
}
