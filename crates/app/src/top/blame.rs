//! Who or what makes I/O wait, in a few words: the same shares that `why` lists one by one, summed
//! by who it comes from. Pure.

use std::collections::BTreeMap;

use crate::control::{CauseView, TenantOnDevice};

/// So many are named.
const NAMED: usize = 2;
/// Who has less than this part is not.
const LITTLE: f64 = 0.05;
/// Less than this is no wait: it is lost in what the same I/O takes from one time to the next.
const NOTHING_US: f64 = 1.0;

/// Causes that come from a tenant's own I/O.
const OWN: [&str; 4] = ["own_queue", "own_reads", "own_writes", "own_upkeep"];

/// Who was in the way of a tenant, the most first; nothing if nobody was.
pub(super) fn of_tenant<'a>(all: impl IntoIterator<Item = &'a TenantOnDevice>) -> Option<String> {
    summed(all.into_iter().map(|it| (None, it)))
}

/// Whose work was in the way on a device, in that of other tenants and in its own.
pub(super) fn of_device<'a>(
    all: impl IntoIterator<Item = (&'a str, &'a TenantOnDevice)>,
) -> Option<String> {
    summed(all.into_iter().map(|(tenant, it)| (Some(tenant), it)))
}

/// Sums up by whom; what comes from a tenant's own I/O counts for it where it is named.
fn summed<'a>(all: impl Iterator<Item = (Option<&'a str>, &'a TenantOnDevice)>) -> Option<String> {
    let mut by_whom: BTreeMap<String, f64> = BTreeMap::new();
    let (mut excess, mut ios) = (0.0, 0.0);
    for (tenant, it) in all {
        let count = it.ios as f64;
        excess += it.excess_us * count;
        ios += count;
        for cause in &it.causes {
            *by_whom.entry(whom(cause, tenant)).or_default() += cause.us * count;
        }
    }
    if excess < NOTHING_US * ios || ios < 1.0 {
        return None;
    }
    let mut by_whom: Vec<(String, f64)> = by_whom.into_iter().collect();
    by_whom.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let shares = by_whom.into_iter().map(|(whom, us)| (whom, us / excess));
    let named = shares.take(NAMED).filter(|(_, share)| *share >= LITTLE);
    let named: Vec<String> = named
        .map(|(whom, share)| format!("{whom} {:.0} %", share * 100.0))
        .collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// The tenant that a cause comes from, or else what it is.
fn whom(cause: &CauseView, own: Option<&str>) -> String {
    let is_own = OWN.contains(&&*cause.kind);
    let tenant = cause.tenant.as_deref().or(own.filter(|_| is_own));
    tenant.map_or_else(|| cause.kind.replace('_', " "), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(kind: &str, tenant: Option<&str>, us: f64) -> CauseView {
        CauseView {
            kind: kind.into(),
            cause: String::new(),
            tenant: tenant.map(str::to_owned),
            share: 0.0,
            us,
        }
    }

    fn on_device(ios: u64, causes: Vec<CauseView>) -> TenantOnDevice {
        TenantOnDevice {
            ios,
            excess_us: causes.iter().map(|it| it.us).sum(),
            causes,
            ..TenantOnDevice::default()
        }
    }

    #[test]
    fn who_is_in_the_way_in_several_ways_is_named_once() {
        let turn = || cause("turn", Some("batch"), 30.0);
        let reads = || cause("reads", Some("batch"), 30.0);
        let own = || cause("own_queue", None, 38.0);
        let little = || cause("device", None, 2.0);
        let table = [
            (vec![on_device(10, vec![turn()])], Some("batch 100 %")),
            (
                vec![on_device(10, vec![own(), turn(), reads(), little()])],
                Some("batch 60 %, own queue 38 %"),
            ),
            // As much as its I/Os are.
            (
                vec![on_device(900, vec![own()]), on_device(100, vec![turn()])],
                Some("own queue 92 %, batch 8 %"),
            ),
            (
                vec![on_device(990, vec![own()]), on_device(10, vec![turn()])],
                Some("own queue 99 %"),
            ),
            (vec![on_device(10, vec![cause("device", None, 0.5)])], None),
            (vec![on_device(0, Vec::new())], None),
            (Vec::new(), None),
        ];
        for (all, want) in table {
            assert_eq!(of_tenant(&all).as_deref(), want, "{all:?}");
        }
    }

    #[test]
    fn on_a_device_a_tenant_answers_for_its_own_queue() {
        let own = on_device(100, vec![cause("own_writes", None, 50.0)]);
        let other = on_device(
            100,
            vec![
                cause("turn", Some("batch"), 20.0),
                cause("rebuild", None, 30.0),
            ],
        );
        let blamed = of_device([("batch", &own), ("db", &other)]);
        assert_eq!(blamed.as_deref(), Some("batch 70 %, rebuild 30 %"));
    }
}
