//! Which fault hits which I/O: a function of the seed, the faults and the I/Os until then. Decides
//! and counts, and does nothing itself.

use std::ops::Range;

use flashyard_sched::Op;
use flashyard_time::{Duration, Rng};

use super::rule::{FaultKind, FaultRule, Frequency, PARTS};
use crate::IoError;

/// Bytes that reach a medium together or not at all.
pub(super) const SECTOR: u32 = 512;

/// An I/O as far as faults go by it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub op: Op,
    /// What it is for; none for a flush.
    pub blocks: Range<u64>,
    /// Its end says that data are on the medium.
    pub promises: bool,
}

/// What becomes of an I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// How much later it begins.
    pub delay: Duration,
    /// What goes wrong, and by which fault.
    pub hit: Option<(RuleId, Effect)>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// These bits are flipped, counted from the start of the I/O.
    Flip(Vec<u64>),
    /// Only the sectors that are true here are written.
    Torn(Vec<bool>),
    /// It is not done.
    Lost,
    /// It is done from this block on.
    Misdirected(u64),
    /// These of its blocks read as they were.
    Stale(Range<u64>),
    /// The promise of its end is not kept.
    Lie,
    /// It fails with this.
    Fail(IoError),
    /// It does not end.
    Hang,
}

/// A fault as it was set; one that is set anew has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RuleId(u64);

/// What a fault has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Blocks (of poison) or I/Os (of all others) that it could have happened to.
    pub seen: u64,
    /// Those that it happened to. Of poison, bits.
    pub injected: u64,
    /// Those that were chosen and that nothing came of: another fault of the list came first, there
    /// was no former content to give, no memory, or no other place.
    pub missed: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Injector {
    root: Rng,
    /// Faults that were ever set.
    set: u64,
    block_size: u32,
    armed: Vec<Armed>,
}

#[derive(Debug)]
struct Armed {
    id: RuleId,
    rule: FaultRule,
    rng: Rng,
    counts: FaultCounts,
}

impl Injector {
    /// No faults yet, for a device with such blocks.
    pub fn new(seed: u64, block_size: u32) -> Self {
        Self {
            root: Rng::new(seed),
            set: 0,
            block_size,
            armed: Vec::new(),
        }
    }

    /// These faults from now on. One that was there already goes on where it was, with what it has
    /// counted.
    pub fn set(&mut self, rules: Vec<FaultRule>) {
        let mut old = std::mem::take(&mut self.armed);
        for rule in rules {
            let same = old.iter().position(|armed| armed.rule == rule);
            let armed = match same {
                Some(at) => old.remove(at),
                None => self.arm(rule),
            };
            self.armed.push(armed);
        }
    }

    fn arm(&mut self, rule: FaultRule) -> Armed {
        let id = self.set;
        self.set += 1;
        Armed {
            id: RuleId(id),
            rule,
            rng: self.root.split(id),
            counts: FaultCounts::default(),
        }
    }

    /// Each fault with what it has done.
    pub fn counts(&self) -> impl Iterator<Item = (&FaultRule, FaultCounts)> {
        self.armed.iter().map(|armed| (&armed.rule, armed.counts))
    }

    /// Whether there are no faults.
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty()
    }

    /// Whether this fault is still there.
    pub fn has(&self, id: RuleId) -> bool {
        self.armed.iter().any(|armed| armed.id == id)
    }

    /// The faults whose kind is as `is_it` says.
    pub fn of_kind(&self, is_it: impl Fn(FaultKind) -> bool) -> impl Iterator<Item = &FaultRule> {
        let rules = self.armed.iter().map(|armed| &armed.rule);
        rules.filter(move |rule| is_it(rule.kind))
    }

    /// Whether there are any whose kind is as `is_it` says.
    pub fn has_kind(&self, is_it: impl Fn(FaultKind) -> bool) -> bool {
        self.of_kind(is_it).next().is_some()
    }

    /// Counts what came of a hit.
    pub fn count(&mut self, id: RuleId, done: bool, times: u64) {
        // Of a fault that has been taken away since there is nothing to be counted.
        if let Some(armed) = self.armed.iter_mut().find(|armed| armed.id == id) {
            armed.count(done, times);
        }
    }

    /// What becomes of an I/O on a device of `device_blocks` blocks. Each fault draws from numbers
    /// of its own, whether another one hits or not. Latencies add up; of the others the first in
    /// the list holds.
    pub fn decide(&mut self, seen: &Seen, device_blocks: u64) -> Decision {
        let mut decision = Decision::default();
        let block_size = self.block_size;
        for armed in &mut self.armed {
            let touched = armed
                .rule
                .touched(seen.op, seen.blocks.clone(), seen.promises);
            if touched.is_empty() {
                continue;
            }
            match armed.choose(seen, touched, (block_size, device_blocks)) {
                Some(Chosen::Delay(delay)) => {
                    decision.delay += delay;
                    armed.count(true, 1);
                }
                Some(Chosen::Effect(effect)) if decision.hit.is_none() => {
                    decision.hit = Some((armed.id, effect));
                }
                Some(_) => armed.count(false, 1),
                None => {}
            }
        }
        decision
    }
}

/// What a fault does to an I/O that it has chosen.
enum Chosen {
    Delay(Duration),
    Effect(Effect),
    /// Nothing: it cannot happen to this I/O.
    Impossible,
}

impl Armed {
    fn count(&mut self, done: bool, times: u64) {
        match done {
            true => self.counts.injected += times,
            false => self.counts.missed += times,
        }
    }

    /// Whether the next of those that it can happen to is hit.
    fn hits_one(&mut self) -> bool {
        self.counts.seen += 1;
        match self.rule.frequency {
            Frequency::Rate(parts) => self.rng.chance(parts.into(), PARTS.into()),
            Frequency::Every(n) => self.counts.seen.is_multiple_of(n.get()),
        }
    }

    /// What it does to an I/O of which it touches these blocks.
    fn choose(
        &mut self,
        seen: &Seen,
        touched: Range<u64>,
        (block_size, device_blocks): (u32, u64),
    ) -> Option<Chosen> {
        let kind = self.rule.kind;
        let effect = match kind {
            FaultKind::Poison => Some(self.flip(seen, touched, block_size)?),
            _ if !self.hits_one() => return None,
            FaultKind::Latency { fixed, spread } => {
                let more = self.rng.below(spread.as_ns().saturating_add(1));
                return Some(Chosen::Delay(fixed + Duration::from_ns(more)));
            }
            FaultKind::Torn => self.tear(seen, block_size),
            FaultKind::Misdirected => self.misdirect(seen, device_blocks),
            FaultKind::Lost => Some(Effect::Lost),
            FaultKind::Stale => {
                let start = seen.blocks.start;
                Some(Effect::Stale(touched.start - start..touched.end - start))
            }
            FaultKind::LyingFlush => Some(Effect::Lie),
            FaultKind::Error if seen.op == Op::Read => Some(Effect::Fail(IoError::Read)),
            FaultKind::Error => Some(Effect::Fail(IoError::Write)),
            FaultKind::Gone => Some(Effect::Fail(IoError::NotReady)),
            FaultKind::Hang => Some(Effect::Hang),
        };
        Some(effect.map_or(Chosen::Impossible, Chosen::Effect))
    }

    /// A bit of each block that is hit.
    fn flip(&mut self, seen: &Seen, touched: Range<u64>, block_size: u32) -> Option<Effect> {
        let bits_of_block = u64::from(block_size) * 8;
        let mut bits = Vec::new();
        for block in touched {
            if self.hits_one() {
                let first = (block - seen.blocks.start) * bits_of_block;
                bits.push(first + self.rng.below(bits_of_block));
            }
        }
        (!bits.is_empty()).then_some(Effect::Flip(bits))
    }

    /// The first sectors, or any of them: one at least, and not all.
    fn tear(&mut self, seen: &Seen, block_size: u32) -> Option<Effect> {
        let blocks = seen.blocks.end - seen.blocks.start;
        let sectors = blocks * u64::from(block_size / SECTOR);
        if sectors < 2 {
            return None;
        }
        let rng = &mut self.rng;
        if rng.chance(1, 2) {
            let written = rng.range(1..sectors);
            return Some(Effect::Torn((0..sectors).map(|it| it < written).collect()));
        }
        let (in_any_case, in_no_case) = (rng.below(sectors), rng.range(1..sectors));
        let in_no_case = (in_any_case + in_no_case) % sectors;
        let written = (0..sectors).map(|it| {
            let chosen = rng.chance(1, 2);
            it == in_any_case || it != in_no_case && chosen
        });
        Some(Effect::Torn(written.collect()))
    }

    /// A place within the range, none of whose blocks are the right ones.
    fn misdirect(&mut self, seen: &Seen, device_blocks: u64) -> Option<Effect> {
        let Range { start, end } = self.rule.range.clone().unwrap_or(0..device_blocks);
        let end = end.min(device_blocks);
        let blocks = seen.blocks.end - seen.blocks.start;
        // Where it may begin: before the right place, and behind it.
        let before = (seen.blocks.start + 1).saturating_sub(start + blocks);
        let from = seen.blocks.end.max(start);
        let behind = (end + 1).saturating_sub(from + blocks);
        if before + behind == 0 {
            return None;
        }
        let place = self.rng.below(before + behind);
        Some(Effect::Misdirected(match place < before {
            true => start + place,
            false => from + (place - before),
        }))
    }
}

#[cfg(test)]
mod tests;
