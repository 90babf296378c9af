//! When the completions of a vector are worth an interrupt: Interrupt Coalescing (feature 08h) and
//! Interrupt Vector Configuration (09h).

use alloc::collections::BTreeMap;

use flashyard_time::{Duration, Time};

/// Interrupt Coalescing: as the guest has set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterruptCoalescing {
    /// Completions at which an interrupt is due, zero-based.
    pub threshold: u8,
    /// How long a completion may wait for others, in units of 100 us; 0 for not at all.
    pub time: u8,
}

impl InterruptCoalescing {
    /// From CDW11, or for DW0.
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            threshold: bits as u8,
            time: (bits >> 8) as u8,
        }
    }

    /// For DW0.
    pub const fn bits(self) -> u32 {
        self.threshold as u32 | (self.time as u32) << 8
    }

    /// Whether completions wait for others.
    pub fn is_on(self) -> bool {
        self.time > 0 && self.threshold > 0
    }

    fn span(self) -> Duration {
        Duration::from_us(u64::from(self.time) * 100)
    }
}

/// Completions that wait for their interrupt, by vector.
#[derive(Clone, Debug, Default)]
pub struct Moderation {
    waiting: BTreeMap<u16, Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    completions: u32,
    due: Time,
}

impl Moderation {
    /// So many completions were posted for `vector`; whether to interrupt now. Those of the Admin
    /// queue, and of vectors for which it is switched off, come with no `coalescing`.
    pub fn posted(
        &mut self,
        vector: u16,
        completions: u32,
        coalescing: Option<InterruptCoalescing>,
        now: Time,
    ) -> bool {
        let Some(coalescing) = coalescing.filter(|coalescing| coalescing.is_on()) else {
            self.waiting.remove(&vector);
            return true;
        };
        let waiting = self.waiting.entry(vector).or_insert(Waiting {
            completions: 0,
            due: now + coalescing.span(),
        });
        waiting.completions = waiting.completions.saturating_add(completions);
        let due = waiting.completions > u32::from(coalescing.threshold) || now >= waiting.due;
        if due {
            self.waiting.remove(&vector);
        }
        due
    }

    /// When a vector becomes due by its age, if any does.
    pub fn next_due(&self) -> Option<Time> {
        self.waiting.values().map(|waiting| waiting.due).min()
    }

    /// A vector that is due by its age.
    pub fn take_due(&mut self, now: Time) -> Option<u16> {
        let mut all = self.waiting.iter();
        let (&vector, _) = all.find(|(_, waiting)| now >= waiting.due)?;
        self.waiting.remove(&vector);
        Some(vector)
    }

    /// Forgets all: the controller was reset.
    pub fn reset(&mut self) {
        self.waiting.clear();
    }
}
