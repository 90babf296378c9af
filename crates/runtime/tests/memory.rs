//! The pool of buffers at its bound. Alone in its process: what other threads give back is shared by all.

use flashyard_runtime::{Buf, PAGE, uring};

const LARGEST: usize = 2 << 20;

#[test]
fn a_request_made_again_is_met_when_the_memory_is_there() {
    let config = uring::Config {
        buffer_bytes: 2 * LARGEST,
        ..uring::Config::default()
    };
    uring::run(config, |_| async {
        let mut small: Vec<Buf> = std::iter::from_fn(|| Buf::take(PAGE)).collect();
        assert_eq!(small.len(), 2 * LARGEST / PAGE);
        small.sort_unstable_by_key(|buf| buf.as_ptr());
        // One piece of each arena stays out: joining the others is in vain.
        let late = [small.remove(LARGEST / PAGE), small.remove(0)];
        drop(small);
        assert!(Buf::take(LARGEST).is_none());
        drop(late);
        assert_eq!(Buf::balance(), 0);
        assert!((0..8).any(|_| Buf::take(LARGEST).is_some()));
    })
    .expect("io_uring works");
}
