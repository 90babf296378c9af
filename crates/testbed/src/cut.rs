//! What a power cut leaves on a disk.

use std::ops::Range;

use flashyard_time::Rng;

use crate::{Event, apply};

/// Bytes that reach the medium together or not at all.
pub const SECTOR: usize = 512;

/// Of what may be lost each change survives, is lost or is torn; gives what puts the old content
/// back.
pub fn survive(content: &mut [u8], volatile: &[Event], rng: &mut Rng) -> Vec<Event> {
    let mut undo = Vec::new();
    // A cache may write back in any order.
    let mut order: Vec<&Event> = volatile.iter().collect();
    if rng.below(2) == 0 {
        order.reverse();
    }
    let odds = rng.below(5);
    for event in order {
        if rng.below(4) < odds {
            for part in torn(event, rng) {
                let range = range(&part);
                undo.push(Event::Write {
                    offset: range.start,
                    bytes: content[range].to_vec(),
                });
                apply(content, &part);
            }
        }
    }
    undo.reverse();
    undo
}

/// The event whole, or the parts of it that reached the medium.
fn torn(event: &Event, rng: &mut Rng) -> Vec<Event> {
    let whole = range(event);
    if rng.below(2) == 0 || whole.is_empty() {
        return vec![event.clone()];
    }
    if whole.len() > 16 * SECTOR {
        let cut = whole.start + rng.below((whole.len() / SECTOR) as u64) as usize * SECTOR;
        return vec![part(
            event,
            if rng.below(2) == 0 {
                whole.start..cut
            } else {
                cut..whole.end
            },
        )];
    }
    let sectors = whole.step_by(SECTOR).filter(|_| rng.below(2) == 0);
    sectors
        .map(|start| part(event, start..start + SECTOR))
        .collect()
}

fn range(event: &Event) -> Range<usize> {
    match event {
        Event::Write { offset, bytes } => *offset..offset + bytes.len(),
        Event::Zero { offset, len } => *offset..offset + len,
        Event::Flush => 0..0,
    }
}

fn part(event: &Event, range: Range<usize>) -> Event {
    match event {
        Event::Write { offset, bytes } => Event::Write {
            offset: range.start,
            bytes: bytes[range.start - offset..range.end - offset].to_vec(),
        },
        _ => Event::Zero {
            offset: range.start,
            len: range.len(),
        },
    }
}

/// What is left of `start` when the power is cut after `events`.
pub fn after_cut(start: &[u8], events: &[Event], seed: u64) -> Vec<u8> {
    let mut content = start.to_vec();
    let flushed = events
        .iter()
        .rposition(|event| matches!(event, Event::Flush));
    let (durable, volatile) = events.split_at(flushed.map_or(0, |at| at + 1));
    for event in durable {
        apply(&mut content, event);
    }
    survive(&mut content, volatile, &mut Rng::new(seed));
    content
}
