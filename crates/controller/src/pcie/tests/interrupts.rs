//! Interrupt coalescing.

use flashyard_time::{Duration, Time};

use crate::pcie::moderation::{InterruptCoalescing, Moderation};

fn at(us: u64) -> Time {
    Time::ZERO + Duration::from_us(us)
}

#[test]
fn completions_wait_for_others_up_to_threshold_and_time() {
    // Three completions, or 200 us.
    let coalescing = Some(InterruptCoalescing::from_bits(0x0202));
    let mut moderation = Moderation::default();
    assert!(!moderation.posted(1, 1, coalescing, at(0)));
    assert_eq!(moderation.next_due(), Some(at(200)));
    assert!(!moderation.posted(1, 1, coalescing, at(50)));
    assert!(moderation.posted(1, 1, coalescing, at(60)), "the third");
    assert_eq!(moderation.next_due(), None);
    assert!(!moderation.posted(1, 1, coalescing, at(100)));
    assert!(
        !moderation.posted(2, 2, coalescing, at(150)),
        "a vector of its own"
    );
    assert_eq!(moderation.take_due(at(299)), None);
    assert_eq!(moderation.take_due(at(300)), Some(1));
    assert_eq!(moderation.take_due(at(350)), Some(2));
    assert_eq!(moderation.take_due(at(350)), None);
}

#[test]
fn what_is_not_coalesced_interrupts_at_once() {
    for bits in [0, 0x0200, 0x0002] {
        let coalescing = Some(InterruptCoalescing::from_bits(bits));
        assert!(
            Moderation::default().posted(1, 1, coalescing, at(0)),
            "{bits:#x}"
        );
    }
    let mut moderation = Moderation::default();
    let coalescing = Some(InterruptCoalescing::from_bits(0xffff));
    assert!(!moderation.posted(1, 1, coalescing, at(0)));
    assert!(
        moderation.posted(1, 1, None, at(1)),
        "switched off meanwhile"
    );
    assert_eq!(moderation.next_due(), None);
}
