//! What came to a volume and how long it took at its device: exact counts of all reads and writes,
//! kept by the core whose device it is. An I/O costs a few plain additions, and no more memory is
//! touched than those of its own bucket. Readers get a copy.
//!
//! Buckets are log-linear: four for each doubling, so a bucket is at most a quarter of its values
//! wide. What did not wait for its turn, which is most I/O, is counted once instead of three times.

use std::cell::Cell;
use std::ops::AddAssign;

use flashyard_sched::{Ask, Op, TenantId};
use flashyard_time::Duration;

/// The first bucket has all below five quarters of this power of two, in nanoseconds: 5 us.
const FIRST: u32 = 12;
/// The last bucket has all from seven quarters of half of this one on: 7.5 s.
const LAST: u32 = 33;
/// How many buckets there are.
const BUCKETS: usize = ((LAST - FIRST) * 4) as usize;
/// What the target does on its own account, such as copying a volume that moves.
const SYSTEM: TenantId = TenantId(0);

/// What is counted of a volume. Only the home core of its device has it.
#[derive(Default)]
pub(crate) struct Meter {
    tenant: Cell<TenantId>,
    reads: Counting,
    writes: Counting,
}

/// What is counted of one direction.
struct Counting {
    bytes: Cell<u64>,
    waited_ns: Cell<u64>,
    served_ns: Cell<u64>,
    /// Those that were served at once, by how long that took.
    at_once: [Cell<u64>; BUCKETS],
    /// Those that waited: by how long, by how long they were served, and by both together.
    waited: [Cell<u64>; BUCKETS],
    served: [Cell<u64>; BUCKETS],
    took: [Cell<u64>; BUCKETS],
}

/// What came to a volume since it is served, and how long it took at its device: from when its turn
/// was asked for until the device was done, without the time in which the data of a write were
/// fetched from its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads and compares.
    pub reads: Timed,
    /// Writes that carry data.
    pub writes: Timed,
    /// I/Os of any kind that wait for their turn or are at the device now.
    pub in_flight: usize,
}

/// I/Os of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// Their bytes.
    pub bytes: u64,
    /// For how long they waited for their turn, all together, in nanoseconds.
    pub waited_ns: u64,
    /// For how long the device served them.
    pub served_ns: u64,
    /// How many waited how long, by bucket ([`Traffic::bounds_ns`]).
    pub waited: Vec<u64>,
    /// How many were served for how long.
    pub served: Vec<u64>,
    /// How many took how long, both together.
    pub took: Vec<u64>,
}

impl Meter {
    /// An I/O has ended.
    #[inline]
    pub(crate) fn count(&self, io: &Ask, waited: Duration, served: Duration) {
        let counting = match io.op {
            Op::Read => &self.reads,
            Op::Write | Op::CompareAndWrite => &self.writes,
            Op::Flush | Op::WriteZeroes | Op::Deallocate => return,
        };
        if io.tenant == SYSTEM {
            return;
        }
        self.tenant.set(io.tenant);
        let (waited, served) = (waited.as_ns(), served.as_ns());
        add(&counting.bytes, io.bytes);
        add(&counting.served_ns, served);
        if waited == 0 {
            return add(&counting.at_once[bucket_of(served)], 1);
        }
        add(&counting.waited_ns, waited);
        add(&counting.waited[bucket_of(waited)], 1);
        add(&counting.served[bucket_of(served)], 1);
        add(&counting.took[bucket_of(waited + served)], 1);
    }

    /// Whose I/O it was, and what was counted until now.
    pub(crate) fn read(&self, in_flight: usize) -> (TenantId, Traffic) {
        let traffic = Traffic {
            reads: self.reads.read(),
            writes: self.writes.read(),
            in_flight,
        };
        (self.tenant.get(), traffic)
    }
}

impl Default for Counting {
    fn default() -> Self {
        let none = || std::array::from_fn(|_| Cell::new(0));
        Self {
            bytes: Cell::new(0),
            waited_ns: Cell::new(0),
            served_ns: Cell::new(0),
            at_once: none(),
            waited: none(),
            served: none(),
            took: none(),
        }
    }
}

impl Counting {
    fn read(&self) -> Timed {
        let at_once = || self.at_once.iter().map(Cell::get);
        let and_at_once = |own: &[Cell<u64>; BUCKETS]| {
            let own = own.iter().map(Cell::get);
            own.zip(at_once()).map(|(a, b)| a + b).collect()
        };
        let mut waited: Vec<u64> = self.waited.iter().map(Cell::get).collect();
        waited[0] += at_once().sum::<u64>();
        Timed {
            bytes: self.bytes.get(),
            waited_ns: self.waited_ns.get(),
            served_ns: self.served_ns.get(),
            waited,
            served: and_at_once(&self.served),
            took: and_at_once(&self.took),
        }
    }
}

impl Traffic {
    /// What each bucket stays under, in nanoseconds; the last one has no bound.
    pub fn bounds_ns() -> impl Iterator<Item = Option<u64>> {
        let bound = |bucket: u64| (5 + bucket % 4) << (bucket / 4 + u64::from(FIRST) - 2);
        let bounded = (0..BUCKETS as u64 - 1).map(move |bucket| Some(bound(bucket)));
        bounded.chain([None])
    }

    /// Whether nothing came.
    pub fn is_nothing(&self) -> bool {
        self.reads.ios() + self.writes.ios() == 0
    }
}

impl AddAssign<&Self> for Traffic {
    fn add_assign(&mut self, more: &Self) {
        self.reads += &more.reads;
        self.writes += &more.writes;
        self.in_flight += more.in_flight;
    }
}

impl Timed {
    /// How many there were.
    pub fn ios(&self) -> u64 {
        self.took.iter().sum()
    }
}

impl AddAssign<&Self> for Timed {
    fn add_assign(&mut self, more: &Self) {
        self.bytes += more.bytes;
        self.waited_ns += more.waited_ns;
        self.served_ns += more.served_ns;
        let counts = [
            (&mut self.waited, &more.waited),
            (&mut self.served, &more.served),
            (&mut self.took, &more.took),
        ];
        for (all, more) in counts {
            all.resize(all.len().max(more.len()), 0);
            all.iter_mut()
                .zip(more)
                .for_each(|(one, more)| *one += more);
        }
    }
}

#[inline]
fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get() + n);
}

/// The bucket that a time is in.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.clamp(1 << FIRST, (1 << LAST) - 1);
    let doubling = ns.ilog2();
    ((doubling - FIRST) * 4) as usize + (ns >> (doubling - 2)) as usize - 4
}

#[cfg(test)]
mod tests {
    use flashyard_sched::{Class, IoId};
    use flashyard_time::Rng;

    use super::*;

    fn ask(tenant: u32, op: Op) -> Ask {
        Ask {
            id: IoId::NONE,
            tenant: TenantId(tenant),
            class: Class::default(),
            op,
            bytes: 4096,
            lba: 0,
        }
    }

    #[test]
    fn every_time_is_below_the_bound_of_its_bucket_and_not_below_that_before() {
        let bounds: Vec<_> = Traffic::bounds_ns().collect();
        assert_eq!(bounds.len(), BUCKETS);
        let mut rng = Rng::new(1);
        let mut times = Vec::new();
        for _ in 0..20_000 {
            let scale = rng.below(64);
            times.push(rng.below(u64::MAX) >> scale);
        }
        times.extend(
            bounds
                .iter()
                .flatten()
                .flat_map(|bound| [bound - 1, *bound]),
        );
        for ns in times.into_iter().chain([0, u64::MAX]) {
            let bucket = bucket_of(ns);
            assert!(bounds[bucket].is_none_or(|bound| ns < bound), "{ns}");
            let before = bucket.checked_sub(1).and_then(|before| bounds[before]);
            assert!(before.is_none_or(|bound| ns >= bound), "{ns}");
            let narrow =
                |before: u64| bounds[bucket].is_none_or(|bound| bound - before <= before / 4);
            assert!(before.is_none_or(narrow), "{ns}");
        }
    }

    /// What is counted once for an I/O that did not wait is what is counted three times for one
    /// that did; and nothing else is counted.
    #[test]
    fn what_ended_is_counted_as_it_was() {
        let (meter, mut rng) = (Meter::default(), Rng::new(2));
        let mut want = [Timed::default(), Timed::default()];
        for timed in &mut want {
            *timed = Meter::default().read(0).1.reads;
        }
        for _ in 0..5_000 {
            let write = rng.below(2) as usize;
            let waited = rng.below(2) * rng.below(1 << 30);
            let scale = 10 + rng.below(24);
            let served = rng.below(1 << scale);
            let op = [Op::Read, Op::Write][write];
            let (a, b) = (Duration::from_ns(waited), Duration::from_ns(served));
            meter.count(&ask(3, op), a, b);
            for other in [ask(0, op), ask(3, Op::Flush), ask(3, Op::Deallocate)] {
                meter.count(&other, a, b);
            }
            let timed = &mut want[write];
            timed.bytes += 4096;
            timed.waited_ns += waited;
            timed.served_ns += served;
            timed.waited[bucket_of(waited)] += 1;
            timed.served[bucket_of(served)] += 1;
            timed.took[bucket_of(waited + served)] += 1;
        }
        let (tenant, counted) = meter.read(7);
        assert_eq!((tenant, counted.in_flight), (TenantId(3), 7));
        let [reads, writes] = want;
        assert_eq!(counted.reads.ios() + counted.writes.ios(), 5_000);
        assert_eq!((&counted.reads, &counted.writes), (&reads, &writes));
        let mut twice = Traffic::default();
        assert!(twice.is_nothing());
        twice += &counted;
        twice += &counted;
        assert_eq!(twice.reads.ios(), 2 * reads.ios());
        assert_eq!(twice.writes.waited_ns, 2 * writes.waited_ns);
    }
}
