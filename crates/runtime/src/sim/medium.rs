//! What a simulated disk or file holds, and what of it survives a power cut. Every change lands in
//! the content that reads see and in a volatile layer; a sync moves it from there to the durable
//! content. At a power cut each change in the volatile layer is by seed kept, lost or torn between
//! sectors, independently of the others: a change may be lost while a later one is kept.

use std::collections::VecDeque;
use std::ops::Range;

use flashyard_time::Rng;

use super::store::Store;

/// Content with a volatile layer.
#[derive(Debug)]
pub(super) struct Medium {
    /// Bytes that reach the medium together or not at all.
    sector: u64,
    size: u64,
    durable_size: u64,
    /// The number at which `durable_size` was true.
    durable_size_number: u64,
    current: Store,
    durable: Store,
    /// In order of their numbers.
    volatile: VecDeque<Change>,
    volatile_bytes: u64,
    /// Above this the oldest changes become durable by themselves, as in any cache.
    cache_bytes: u64,
    next_number: u64,
}

/// One write or zeroing, widened to whole sectors.
#[derive(Debug)]
struct Change {
    number: u64,
    offset: u64,
    bytes: Content,
    /// Sectors (by number) that no durable change has overwritten since, in order and apart.
    live: Vec<Range<u64>>,
}

#[derive(Debug)]
enum Content {
    Bytes(Box<[u8]>),
    Zeroes,
}

/// Everything done up to an instant: what a sync that begins now has to make durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    number: u64,
    size: u64,
}

/// How a power cut treats the volatile layer as a whole.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Keep,
    Lose,
    /// Keep this many, tear the next, lose the rest.
    Prefix(usize),
    Each,
}

impl Medium {
    pub(super) fn new(size: u64, sector: u64, cache_bytes: u64) -> Self {
        Self {
            sector,
            size,
            durable_size: size,
            durable_size_number: 0,
            current: Store::default(),
            durable: Store::default(),
            volatile: VecDeque::new(),
            volatile_bytes: 0,
            cache_bytes,
            next_number: 0,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of storage in use.
    pub(super) fn allocated(&self) -> u64 {
        self.current.allocated()
    }

    /// Bytes of storage that a write of `range` would take in addition.
    pub(super) fn missing(&self, range: Range<u64>) -> u64 {
        self.current.missing(range)
    }

    /// Changes that a power cut could undo.
    pub(super) fn unflushed(&self) -> usize {
        self.volatile.len()
    }

    /// Reads; bytes beyond the end are zero.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        self.current.read(offset, into);
    }

    /// The content that would be there if a power cut lost everything it may lose.
    pub(super) fn read_durable(&self, offset: u64, into: &mut [u8]) {
        self.durable.read(offset, into);
    }

    /// Writes, growing the size if need be.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) {
        let end = offset + bytes.len() as u64;
        self.current.write(offset, bytes);
        self.size = self.size.max(end);
        self.record(offset..end, durable, false);
    }

    /// Makes a range read as zeroes.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        self.current.zero(range.clone());
        let inner =
            range.start.next_multiple_of(self.sector)..range.end / self.sector * self.sector;
        if inner.start >= inner.end {
            self.record(range, false, false);
            return;
        }
        self.record(range.start..inner.start, false, false);
        self.record(inner.clone(), false, true);
        self.record(inner.end..range.end, false, false);
    }

    /// Makes a range of whole sectors read as zeroes, durably.
    pub(super) fn erase(&mut self, range: Range<u64>) {
        self.current.zero(range.clone());
        self.record(range, true, true);
    }

    /// Grows with zeroes, or shrinks and forgets what lay beyond.
    pub(super) fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.zero(size..self.size);
        }
        self.size = size;
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            number: self.next_number,
            size: self.size,
        }
    }

    /// Ends the sync that began at `mark`. Later changes stay volatile.
    pub(super) fn sync(&mut self, mark: Mark) {
        while self
            .volatile
            .front()
            .is_some_and(|change| change.number < mark.number)
        {
            self.destage();
        }
        self.size_is_durable(mark);
    }

    /// The power is gone and back: some of the volatile layer has survived.
    pub(super) fn power_cut(&mut self, rng: &mut Rng) {
        let cut = draw_cut(self.volatile.len(), rng);
        for (index, change) in std::mem::take(&mut self.volatile).into_iter().enumerate() {
            for sectors in change.survivors(cut.fate(index, rng), rng) {
                change.apply(&mut self.durable, sectors, self.sector);
            }
        }
        let sizes = [self.size, self.durable_size];
        let size = sizes[rng.below(2) as usize];
        self.durable.zero(
            size..self
                .size
                .max(self.durable_size)
                .next_multiple_of(self.sector),
        );
        self.current = self.durable.clone();
        (self.size, self.durable_size) = (size, size);
        self.volatile_bytes = 0;
    }

    /// Bit rot: `mask` is exclusive-or'ed into one byte of what reads see and of what is durable.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        for store in [&mut self.current, &mut self.durable] {
            let mut byte = [0];
            store.read(offset, &mut byte);
            store.write(offset, &[byte[0] ^ mask]);
        }
    }

    /// Takes the current content of `range`, widened to sectors, as a change.
    fn record(&mut self, range: Range<u64>, durable: bool, zeroes: bool) {
        if range.is_empty() {
            return;
        }
        let sectors = range.start / self.sector..range.end.div_ceil(self.sector);
        let offset = sectors.start * self.sector;
        let bytes = if zeroes {
            Content::Zeroes
        } else {
            Content::Bytes(self.image(&sectors))
        };
        let number = self.next_number;
        self.next_number += 1;
        let change = Change {
            number,
            offset,
            bytes,
            live: vec![sectors.clone()],
        };
        if durable {
            for earlier in &mut self.volatile {
                earlier.overwritten(&sectors);
            }
            change.apply(&mut self.durable, sectors, self.sector);
            self.size_is_durable(self.mark());
            return;
        }
        self.volatile_bytes += change.memory();
        self.volatile.push_back(change);
        while self.volatile_bytes > self.cache_bytes {
            self.destage();
        }
    }

    fn image(&self, sectors: &Range<u64>) -> Box<[u8]> {
        let mut image = vec![0; ((sectors.end - sectors.start) * self.sector) as usize];
        self.current.read(sectors.start * self.sector, &mut image);
        image.into_boxed_slice()
    }

    fn size_is_durable(&mut self, mark: Mark) {
        if mark.number >= self.durable_size_number {
            (self.durable_size, self.durable_size_number) = (mark.size, mark.number);
        }
    }

    /// The oldest volatile change becomes durable.
    fn destage(&mut self) {
        let Some(mut change) = self.volatile.pop_front() else {
            return;
        };
        self.volatile_bytes -= change.memory();
        for sectors in std::mem::take(&mut change.live) {
            change.apply(&mut self.durable, sectors, self.sector);
        }
    }
}

impl Change {
    fn memory(&self) -> u64 {
        match &self.bytes {
            Content::Bytes(bytes) => bytes.len() as u64,
            // An entry of a list.
            Content::Zeroes => 64,
        }
    }

    fn apply(&self, to: &mut Store, sectors: Range<u64>, sector: u64) {
        let range = sectors.start * sector..sectors.end * sector;
        match &self.bytes {
            Content::Zeroes => to.zero(range),
            Content::Bytes(bytes) => {
                let within =
                    (range.start - self.offset) as usize..(range.end - self.offset) as usize;
                to.write(range.start, &bytes[within]);
            }
        }
    }

    /// These sectors have durable content now that is younger than this change.
    fn overwritten(&mut self, by: &Range<u64>) {
        let apart = self
            .live
            .iter()
            .all(|live| live.end <= by.start || by.end <= live.start);
        if apart {
            return;
        }
        let cut = std::mem::take(&mut self.live).into_iter().flat_map(|live| {
            [
                live.start..live.end.min(by.start),
                live.start.max(by.end)..live.end,
            ]
        });
        self.live = cut.filter(|live| !live.is_empty()).collect();
    }

    fn survivors(&self, fate: Fate, rng: &mut Rng) -> Vec<Range<u64>> {
        match fate {
            Fate::Kept => self.live.clone(),
            Fate::Lost => Vec::new(),
            Fate::Torn => self
                .live
                .iter()
                .flat_map(|live| tear(live.clone(), rng))
                .collect(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

impl Cut {
    fn fate(self, index: usize, rng: &mut Rng) -> Fate {
        match self {
            Self::Keep => Fate::Kept,
            Self::Prefix(kept) if index == kept => Fate::Torn,
            Self::Prefix(kept) if index < kept => Fate::Kept,
            Self::Prefix(_) | Self::Lose => Fate::Lost,
            Self::Each => [Fate::Kept, Fate::Lost, Fate::Torn][rng.below(3) as usize],
        }
    }
}

fn draw_cut(changes: usize, rng: &mut Rng) -> Cut {
    match rng.below(8) {
        0 => Cut::Keep,
        1 => Cut::Lose,
        2 | 3 => Cut::Prefix(rng.below(changes as u64 + 1) as usize),
        _ => Cut::Each,
    }
}

/// Keeps and loses runs of sectors in turn. Every pattern is possible; long ranges get long runs.
fn tear(range: Range<u64>, rng: &mut Rng) -> Vec<Range<u64>> {
    let bits = u64::from((range.end - range.start).ilog2()) + 1;
    let (mut kept, mut at, mut keep) = (Vec::new(), range.start, rng.chance(1, 2));
    while at < range.end {
        let longest = 1 << rng.below(bits);
        let run = 1 + rng.below(longest);
        let next = (at + run).min(range.end);
        if keep {
            kept.push(at..next);
        }
        (at, keep) = (next, !keep);
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SECTOR: usize = 512;

    fn disk(sectors: usize) -> Medium {
        Medium::new((sectors * SECTOR) as u64, SECTOR as u64, 1 << 20)
    }

    /// The first byte of every sector, after asserting that no sector is torn inside.
    fn tags(medium: &Medium) -> Vec<u8> {
        let mut all = vec![0; medium.size() as usize];
        medium.read(0, &mut all);
        let sectors = all.chunks(SECTOR);
        sectors
            .map(|sector| {
                assert!(
                    sector.iter().all(|byte| *byte == sector[0]),
                    "a sector is atomic"
                );
                sector[0]
            })
            .collect()
    }

    fn fill(medium: &mut Medium, sectors: Range<usize>, tag: u8, durable: bool) {
        medium.write(
            (sectors.start * SECTOR) as u64,
            &vec![tag; sectors.len() * SECTOR],
            durable,
        );
    }

    #[test]
    fn a_cut_shows_every_mixture_and_only_those() {
        let mut seen = BTreeSet::new();
        for seed in 0..2000 {
            let mut medium = disk(3);
            fill(&mut medium, 0..3, 1, false);
            medium.sync(medium.mark());
            fill(&mut medium, 0..2, 2, false);
            fill(&mut medium, 1..3, 3, false);
            medium.power_cut(&mut Rng::new(seed));
            assert_eq!(medium.unflushed(), 0);
            seen.insert(tags(&medium));
        }
        // Sector 0: old or 2. Sector 1: old, 2 or 3. Sector 2: old or 3.
        assert_eq!(seen.len(), 12, "{seen:?}");
    }

    #[test]
    fn synced_and_durable_writes_survive_any_cut() {
        for seed in 0..500 {
            let mut medium = disk(4);
            fill(&mut medium, 0..4, 1, false);
            fill(&mut medium, 1..2, 2, true);
            let mark = medium.mark();
            fill(&mut medium, 3..4, 3, false);
            medium.sync(mark);
            medium.power_cut(&mut Rng::new(seed));
            let tags = tags(&medium);
            assert_eq!(tags[..3], [1, 2, 1], "seed {seed}");
            assert!(tags[3] == 1 || tags[3] == 3, "written after the sync began");
        }
    }

    #[test]
    fn an_older_volatile_write_never_undoes_a_durable_one() {
        for seed in 0..500 {
            let mut medium = disk(8);
            fill(&mut medium, 0..8, 1, false);
            fill(&mut medium, 2..5, 2, true);
            fill(&mut medium, 3..4, 3, true);
            medium.power_cut(&mut Rng::new(seed));
            assert_eq!(tags(&medium)[2..5], [2, 3, 2]);
        }
    }

    #[test]
    fn zeroing_is_volatile_too_and_may_be_huge() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..200 {
            let mut medium = Medium::new(1 << 50, 512, 1 << 20);
            medium.write(1 << 40, &[7; 512], true);
            medium.zero(100..1 << 49);
            let mut byte = [1];
            medium.read(1 << 40, &mut byte);
            assert_eq!(byte, [0]);
            medium.power_cut(&mut Rng::new(seed));
            medium.read(1 << 40, &mut byte);
            outcomes.insert(byte[0]);
        }
        assert_eq!(outcomes, BTreeSet::from([0, 7]));
    }

    #[test]
    fn partial_sectors_carry_their_neighbours() {
        let mut medium = disk(1);
        medium.write(0, &[1; 512], true);
        medium.write(100, &[2; 10], true);
        medium.power_cut(&mut Rng::new(1));
        let mut seen = [0; 512];
        medium.read(0, &mut seen);
        assert_eq!((seen[99], seen[100], seen[109], seen[110]), (1, 2, 2, 1));
    }

    #[test]
    fn sizes_are_durable_after_a_sync_only() {
        let mut sizes = BTreeSet::new();
        for seed in 0..100 {
            let mut medium = disk(1);
            medium.set_size(4096);
            medium.sync(medium.mark());
            medium.set_size(8192);
            medium.power_cut(&mut Rng::new(seed));
            sizes.insert(medium.size());
        }
        assert_eq!(sizes, BTreeSet::from([4096, 8192]));
        let mut medium = disk(1);
        medium.write(0, &[1; 512], true);
        medium.set_size(100);
        medium.set_size(512);
        let mut seen = [9; 512];
        medium.read(0, &mut seen);
        assert_eq!((seen[99], seen[100]), (1, 0), "cut off and grown again");
    }

    #[test]
    fn a_full_cache_destages_the_oldest() {
        let mut medium = Medium::new(1 << 20, 512, 2 * 512);
        for sector in 0..8 {
            fill(&mut medium, sector..sector + 1, 5, false);
        }
        assert_eq!(medium.unflushed(), 2);
        let mut durable = [0; 512];
        medium.read_durable(5 * 512, &mut durable);
        assert_eq!(durable, [5; 512]);
        medium.flip(0, 0x80);
        medium.read(0, &mut durable[..1]);
        assert_eq!(durable[0], 0x85);
    }
}
