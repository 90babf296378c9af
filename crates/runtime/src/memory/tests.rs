//! Pools at their bound, alone and with others.

use std::sync::mpsc;
use std::thread;

use flashyard_time::Rng;

use super::*;

const BOUND: usize = 32 << 20;

/// Runs `test` with a pool of its own.
fn on_thread(bound: usize, test: impl FnOnce() + Send + 'static) {
    let body = move || {
        set_bound(bound);
        test();
    };
    thread::spawn(body)
        .join()
        .expect("the test on the other thread passes");
}

/// What the invariant says of this thread's pool.
fn check() {
    POOL.with_borrow(|pool| {
        let bytes = |lists: &[Vec<NonNull<u8>>; CLASSES]| -> usize {
            let sizes = lists.iter().zip(0..);
            sizes
                .map(|(list, class)| list.len() << class)
                .sum::<usize>()
                * SMALLEST
        };
        assert_eq!(pool.mapped, pool.in_use + bytes(&pool.free));
        assert!(pool.mapped <= pool.bound);
        assert!(bytes(&pool.bare) <= CLASSES * (pool.bound + LARGEST));
    });
}

#[test]
fn pieces_do_not_overlap_and_are_aligned() {
    on_thread(8 << 20, || {
        let lens = [
            1,
            4096,
            4097,
            16 << 10,
            100_000,
            1 << 20,
            4096,
            2 << 20,
            5000,
        ];
        let pieces: Vec<Piece> = lens
            .iter()
            .map(|&len| take(len).expect("8 MiB hold these"))
            .collect();
        let mut ranges: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.start.addr().get(), size_of_class(piece.class)))
            .collect();
        assert!(
            ranges
                .iter()
                .zip(lens)
                .all(|((start, size), len)| { *size >= len && start % size == 0 })
        );
        ranges.sort_unstable();
        assert!(
            ranges
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
        );
        pieces.into_iter().for_each(give);
        assert_eq!(balance(), 0);
    });
}

#[test]
fn the_bound_holds_and_each_size_may_have_all_of_it() {
    on_thread(LARGEST, || {
        for len in [SMALLEST, LARGEST, LARGEST / 2, 3 * SMALLEST] {
            let size = len.next_power_of_two();
            let pieces: Vec<Piece> = std::iter::from_fn(|| take(len)).collect();
            assert_eq!(pieces.len(), LARGEST / size);
            assert!(take(1).is_none());
            check();
            pieces.into_iter().for_each(give);
        }
        assert!(take(LARGEST + 1).is_none());
    });
}

#[test]
fn a_bound_may_become_lower() {
    on_thread(8 << 20, || {
        let pieces: Vec<Piece> = std::iter::from_fn(|| take(1 << 20)).collect();
        set_bound(2 << 20);
        assert!(take(1).is_none());
        pieces.into_iter().for_each(give);
        set_bound(4 << 20);
        check();
        let again: Vec<Piece> = std::iter::from_fn(|| take(64 << 10)).collect();
        assert_eq!(again.len(), 64);
        again.into_iter().for_each(give);
    });
}

#[test]
fn what_other_threads_drop_comes_back() {
    on_thread(16 << 20, || {
        for round in 0..20 {
            let len = (64 << 10) << (round % 3);
            let pieces: Vec<Piece> = std::iter::from_fn(|| take(len)).collect();
            assert_eq!(pieces.len(), (16 << 20) / len, "all of it came back");
            thread::spawn(|| pieces.into_iter().for_each(give))
                .join()
                .expect("dropping does not panic");
            check();
        }
    });
}

#[test]
fn pieces_outlive_their_thread() {
    let taken = || {
        set_bound(2 << 20);
        let pieces: Vec<Piece> = std::iter::from_fn(|| take(256 << 10)).collect();
        pieces
    };
    for _ in 0..3 {
        let pieces = thread::spawn(taken).join().expect("taking does not panic");
        // The thread that takes over the pool of that thread has nothing of it in use.
        let others = thread::spawn(taken).join().expect("taking does not panic");
        assert_eq!((pieces.len(), others.len()), (8, 8));
        pieces.into_iter().chain(others).for_each(give);
    }
}

/// Takes pieces of all sizes, as many as the bound allows; half of them are dropped on another
/// thread, which takes as many itself.
fn mix(seed: u64) {
    let mut rng = Rng::new(seed);
    let (send, receive) = mpsc::channel::<Vec<Piece>>();
    let (done, wait) = mpsc::channel();
    let other = thread::spawn(move || {
        set_bound(BOUND);
        for pieces in receive {
            // It has all of its own in use when it drops those of the other one.
            let own: Vec<Piece> = std::iter::from_fn(|| take(1 << 20)).collect();
            assert_eq!(own.len(), BOUND >> 20, "seed {seed}");
            pieces.into_iter().chain(own).for_each(give);
            check();
            done.send(()).expect("the other one waits");
        }
    });
    let (mut held, mut in_use): (Vec<Piece>, usize) = (Vec::new(), 0);
    for round in 0..300 {
        let len = SMALLEST << rng.below(CLASSES as u64);
        let mut away = Vec::new();
        while in_use + len > BOUND {
            let piece = held.swap_remove(rng.below(held.len() as u64) as usize);
            in_use -= size_of_class(piece.class);
            match rng.below(2) {
                0 => give(piece),
                _ => away.push(piece),
            }
        }
        if !away.is_empty() {
            send.send(away).expect("the other one takes");
            wait.recv().expect("the other one drops");
        }
        let Some(piece) = take(len) else {
            panic!("seed {seed}, round {round}: {in_use} bytes in use, {len} refused");
        };
        held.push(piece);
        in_use += len;
        check();
    }
    held.into_iter().for_each(give);
    drop(send);
    other.join().expect("the other one does not panic");
}

#[test]
fn whatever_is_within_the_bound_is_given() {
    for seed in 0..20 {
        on_thread(BOUND, move || mix(seed));
    }
}
