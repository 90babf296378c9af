//! What a power cut leaves on a disk.

use std::ops::Range;

use flashyard_time::Rng;

use crate::{Content, Event, apply};

/// Bytes that reach the medium together or not at all.
pub const SECTOR: usize = 512;

/// Of what may be lost each change survives, is lost or is torn.
pub fn survive<'a>(
    content: &mut Content,
    volatile: impl IntoIterator<Item = &'a Event>,
    rng: &mut Rng,
) {
    // A cache may write back in any order.
    let mut order: Vec<&Event> = volatile.into_iter().collect();
    if rng.below(2) == 0 {
        order.reverse();
    }
    let odds = rng.below(5);
    for event in order {
        if rng.below(4) < odds {
            for part in torn(event.range(), rng) {
                event.apply_part(content, part);
            }
        }
    }
}

/// A change whole, or the parts of it that reached the medium.
fn torn(whole: Range<usize>, rng: &mut Rng) -> Vec<Range<usize>> {
    if rng.below(2) == 0 || whole.is_empty() {
        return Vec::from([whole]);
    }
    if whole.len() > 16 * SECTOR {
        let cut = whole.start + rng.below((whole.len() / SECTOR) as u64) as usize * SECTOR;
        return Vec::from([match rng.below(2) {
            0 => whole.start..cut,
            _ => cut..whole.end,
        }]);
    }
    let sectors = whole.step_by(SECTOR).filter(|_| rng.below(2) == 0);
    sectors.map(|start| start..start + SECTOR).collect()
}

/// What is left of `start` when the power is cut after `events`.
pub fn after_cut<'a>(
    start: &Content,
    events: impl IntoIterator<Item = &'a Event>,
    seed: u64,
) -> Content {
    let events: Vec<&Event> = events.into_iter().collect();
    let mut content = start.clone();
    let flushed = events
        .iter()
        .rposition(|event| matches!(event, Event::Flush));
    let (durable, volatile) = events.split_at(flushed.map_or(0, |at| at + 1));
    for event in durable {
        apply(&mut content, event);
    }
    survive(&mut content, volatile.iter().copied(), &mut Rng::new(seed));
    content
}
