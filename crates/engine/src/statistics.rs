//! The log of I/O statistics that a host reads of its controller: what the home cores of its
//! namespaces have counted, gathered when it asks.

use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_nvme::Status;
use flashyard_nvme::identify::NSID_ALL;
use flashyard_nvme::log::{IoStatistics, LatencyBin, StatisticsLog};
use flashyard_runtime::channel;
use flashyard_time::Duration;

use crate::association::Association;
use crate::core::Core;
use crate::traffic::{Timed, Traffic};

/// After so many namespaces a core does something else: each takes it a microsecond or two, and a
/// host may ask as often as it likes.
const AT_ONCE: usize = 32;
/// For so long.
const PAUSE: Duration = Duration::from_us(50);
/// How long other cores may take. A host gives its controller up when that answers nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Buckets that make a bin of the log, which has room for fewer.
const BUCKETS_A_BIN: usize = 2;

impl Core {
    /// The log of a namespace that a controller sees, or of all of them (`nsid` 0 or FFFFFFFFh).
    ///
    /// # Errors
    /// The controller sees no such namespace, or another core does not answer: the host may ask
    /// again.
    pub async fn statistics(
        self: &Rc<Self>,
        association: &Association,
        nsid: u32,
    ) -> Result<StatisticsLog, Status> {
        let tenant = association.tenant.as_ref();
        let tenant = tenant.ok_or(Status::INVALID_LOG_PAGE.with_dnr())?;
        let all = nsid == 0 || nsid == NSID_ALL;
        let mut by_core: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (info, device) in self.target().reachable(tenant).namespaces {
            if all || info.nsid == nsid {
                by_core.entry(device.core()).or_default().push(device.id());
            }
        }
        if by_core.is_empty() && !all {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
        }
        let namespaces = by_core.values().map(Vec::len).sum::<usize>();
        let gathered = self.rt().timeout(PATIENCE, self.gather(by_core)).await;
        let traffic = gathered.flatten().ok_or(Status::INTERNAL_ERROR)?;
        Ok(StatisticsLog {
            reads: of_direction(&traffic.reads),
            writes: of_direction(&traffic.writes),
            in_flight: traffic.in_flight as u64,
            nsid: if all { 0 } else { nsid },
            namespaces: namespaces as u32,
        })
    }

    /// What was counted for these devices; nothing if a core has gone.
    async fn gather(self: &Rc<Self>, by_core: BTreeMap<usize, Vec<u32>>) -> Option<Traffic> {
        let (send, replies) = channel::channel();
        let asked = by_core.len();
        for (core, devices) in by_core {
            let send = send.clone();
            let act = move |core: &Rc<Self>| {
                let own = core.clone();
                let count = async move {
                    // Whoever has asked may have gone.
                    let _ = send.send(own.counted(devices).await);
                };
                core.rt().spawn(count).detach();
            };
            match core == self.index() {
                true => act(self),
                false if self.run_on(core, act) => {}
                false => return None,
            }
        }
        drop(send);
        let mut all = Traffic::default();
        for _ in 0..asked {
            all += &replies.recv().await?;
        }
        Some(all)
    }

    /// What was counted for devices of this core. One that has gone meanwhile is left out.
    async fn counted(&self, devices: Vec<u32>) -> Traffic {
        let mut all = Traffic::default();
        for some in devices.chunks(AT_ONCE) {
            for device in some {
                if let Some(port) = self.port(*device) {
                    all += &port.traffic();
                }
            }
            if some.len() == AT_ONCE {
                self.rt().sleep(PAUSE).await;
            }
        }
        all
    }
}

fn of_direction(timed: &Timed) -> IoStatistics {
    let waited_ops: u64 = timed.waited.iter().skip(BUCKETS_A_BIN).sum();
    IoStatistics {
        ops: timed.ios(),
        bytes: timed.bytes,
        time_us: (timed.waited_ns + timed.served_ns) / 1000,
        waited_us: Some(timed.waited_ns / 1000),
        waited_ops: Some(waited_ops),
        latency: bins(&timed.took),
    }
}

/// The bins of a log, from counts by bucket.
fn bins(counts: &[u64]) -> Vec<LatencyBin> {
    let bounds: Vec<Option<u64>> = Traffic::bounds_ns().collect();
    let mut lower_us = 0;
    let counts = counts.chunks(BUCKETS_A_BIN);
    let bins = bounds.chunks(BUCKETS_A_BIN).zip(counts);
    let bins = bins.map(|(bounds, counts)| {
        let upper = bounds.last().copied().flatten();
        // Rounded up: what is counted is shorter.
        let upper_us = upper.map_or(u64::MAX, |ns| ns.div_ceil(1000));
        let count: u64 = counts.iter().sum();
        let bin = LatencyBin {
            lower_us,
            upper_us,
            count: u32::try_from(count).unwrap_or(u32::MAX),
        };
        lower_us = upper_us;
        bin
    });
    bins.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_each_other_and_count_everything() {
        let buckets = Traffic::bounds_ns().count();
        let mut counts = vec![1; buckets];
        counts[buckets - 1] = u64::from(u32::MAX);
        let bins = bins(&counts);
        assert_eq!(bins.len(), buckets.div_ceil(BUCKETS_A_BIN));
        assert!(bins.len() <= StatisticsLog::BINS_MAX);
        assert_eq!((bins[0].lower_us, bins[0].upper_us), (0, 7));
        assert!(
            bins.windows(2)
                .all(|two| two[0].upper_us == two[1].lower_us)
        );
        assert!(bins.iter().all(|bin| bin.lower_us < bin.upper_us));
        let last = bins.last().expect("there are some");
        assert_eq!((last.upper_us, last.count), (u64::MAX, u32::MAX));
        assert!(bins[..bins.len() - 1].iter().all(|bin| bin.count == 2));
    }
}
