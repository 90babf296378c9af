//! What made an I/O slow; and sums by cause, of which there may be many: what is small is kept
//! together.

use flashyard_block::SystemWork;
use flashyard_sched::TenantId;

/// Most causes that are kept apart.
const MOST: usize = 128;

/// What made an I/O slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The rest of its command or its data were waited for: its host, or the network to it.
    Receive,
    /// It was here and had not come to the switch: memory that its tenant may use was waited for,
    /// or room for answers that its host does not take, or others were latency-sensitive.
    Intake,
    /// It waited for its turn behind I/O of the same tenant.
    OwnQueue,
    /// It waited for its turn while this other tenant was served.
    Turn(TenantId),
    /// It waited while other tenants were served, each of whom had little of that time.
    Others,
    /// It waited for its turn while nobody was served: a limit of the tenant holds it back, or what
    /// serves the others takes long.
    Held,
    /// The device was busy with other reads of the same tenant.
    OwnReads,
    /// The device was busy with other writes of the same tenant.
    OwnWrites,
    /// The device was busy with reads of this other tenant.
    Reads(TenantId),
    /// The device was busy with writes of this other tenant.
    Writes(TenantId),
    /// The pool was busy with garbage collection and metadata that writes of the same tenant have
    /// caused.
    OwnUpkeep,
    /// The same that writes of this other tenant have caused.
    Upkeep(TenantId),
    /// It waited for its turn while work of the system was served.
    SystemTurn(SystemWork),
    /// The device was busy with work of the system.
    System(SystemWork),
    /// The device moved data on its own account, such as for garbage collection.
    Housekeeping,
    /// The device took long with nothing else to do that is known of.
    Device,
    /// Its answer waited for others to go with, or for its host or the network to take it.
    Send,
}

/// Nanoseconds by cause.
#[derive(Clone, Default)]
pub(super) struct Causes {
    /// By cause.
    list: Vec<(Cause, u64)>,
}

impl Cause {
    /// Whether it is the work of one other tenant.
    pub(super) fn is_named(self) -> bool {
        matches!(
            self,
            Self::Turn(_) | Self::Reads(_) | Self::Writes(_) | Self::Upkeep(_)
        )
    }
}

impl Causes {
    pub(super) fn charge(&mut self, cause: Cause, ns: u64) {
        if ns == 0 {
            return;
        }
        match self.list.binary_search_by_key(&cause, |(known, _)| *known) {
            Ok(at) => self.list[at].1 += ns,
            Err(at) if self.list.len() < MOST => self.list.insert(at, (cause, ns)),
            Err(_) => {
                self.lump();
                self.charge(cause, ns);
            }
        }
    }

    /// All of `more`, too.
    pub(super) fn add(&mut self, more: &Self) {
        for &(cause, ns) in &more.list {
            self.charge(cause, ns);
        }
    }

    /// The largest first.
    pub(super) fn by_size(mut self) -> Vec<(Cause, u64)> {
        self.list
            .sort_unstable_by_key(|(cause, ns)| (std::cmp::Reverse(*ns), *cause));
        self.list
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    /// Makes room: the smaller half of what other tenants did is not kept apart any more.
    #[cold]
    fn lump(&mut self) {
        let named = self.list.iter().filter(|(cause, _)| cause.is_named());
        let mut sums: Vec<u64> = named.map(|(_, ns)| *ns).collect();
        let middle = sums.len() / 2;
        let (_, middle, _) = sums.select_nth_unstable(middle);
        let mut lumped = 0;
        self.list.retain(|(cause, ns)| {
            let stays = !cause.is_named() || *ns > *middle;
            lumped += if stays { 0 } else { *ns };
            stays
        });
        self.charge(Cause::Others, lumped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is lost, the list stays short, and whoever has much of it is named.
    #[test]
    fn many_small_causes_are_one() {
        let mut causes = Causes::default();
        let mut all = 0;
        for n in 0..100_000_u32 {
            let small = Cause::Turn(TenantId(n % 5_000 + 10));
            for (cause, ns) in [
                (small, 1),
                (Cause::Writes(TenantId(n % 3)), 20),
                (Cause::OwnQueue, 1),
            ] {
                causes.charge(cause, ns);
                all += ns;
            }
            assert!(causes.list.len() <= MOST);
        }
        let mut sum = causes.clone();
        sum.add(&causes);
        let sum = sum.by_size();
        assert_eq!(sum.iter().map(|(_, ns)| ns).sum::<u64>(), 2 * all);
        let named: Vec<_> = sum[..3].iter().map(|(cause, ns)| (*cause, *ns)).collect();
        let each = 2 * 20 * 100_000 / 3;
        assert!(named.iter().all(|(cause, ns)| {
            matches!(cause, Cause::Writes(TenantId(0..3))) && ns.abs_diff(each) < 100
        }));
        assert_eq!(sum[3], (Cause::OwnQueue, 200_000));
    }
}
