//! Rates and times within an interval, of sums at its ends. Pure.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::control::{TimesView, TrafficRow, TrafficView};

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Tenants
    Tenant,
    /// Volumes
    Volume,
    /// Devices
    Device,
}

impl By {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::Volume => "volume",
            Self::Device => "device",
        }
    }
}

/// What happened within an interval.
pub struct Interval {
    pub by: By,
    /// How long it was.
    pub seconds: f64,
    /// It begins with the start of the target.
    pub since_start: bool,
    /// What each bucket of times stays under.
    pub bounds_us: Vec<Option<f64>>,
    /// By name.
    pub rows: Vec<Figures>,
    pub silent_cores: Vec<usize>,
}

/// What happened to a tenant, volume or device within an interval.
pub struct Figures {
    pub name: String,
    /// At its end.
    pub in_flight: usize,
    pub read: Direction,
    pub write: Direction,
}

/// I/Os of one direction.
#[derive(Clone, Debug, Default)]
pub struct Direction(TimesView);

/// Where sums never fall while the target runs: volumes, or tenants on devices with what has gone.
type Key<'a> = (&'a str, &'a str, Option<&'a str>);

impl Interval {
    /// What happened since `before`; since the target started if it was not asked before, or was
    /// started meanwhile.
    pub fn between(before: Option<&TrafficView>, now: &TrafficView, by: By) -> Self {
        let before = before.filter(|before| before.starts == now.starts);
        let first = before.map(|before| sums(before, by));
        let mut rows: BTreeMap<&str, Figures> = BTreeMap::new();
        for (key, sum) in sums(now, by) {
            let (tenant, device, volume) = key;
            let name = match by {
                By::Tenant => tenant,
                By::Volume => volume.unwrap_or_default(),
                By::Device => device,
            };
            let row = rows.entry(name).or_insert_with(|| Figures::new(name));
            row.in_flight += sum.in_flight;
            let (read, write) = match first.as_ref().map(|first| first.get(&key)) {
                None => (sum.read, sum.write),
                // What is new may have been counted before it was shown.
                Some(None) => continue,
                Some(Some(first)) => (
                    difference(&sum.read, &first.read),
                    difference(&sum.write, &first.write),
                ),
            };
            add(&mut row.read.0, &read);
            add(&mut row.write.0, &write);
        }
        let from = before.map_or(0.0, |before| before.run_seconds);
        Self {
            by,
            seconds: (now.run_seconds - from).max(1e-3),
            since_start: before.is_none(),
            bounds_us: now.bounds_us.clone(),
            rows: rows.into_values().collect(),
            silent_cores: now.silent_cores.clone(),
        }
    }
}

fn sums(view: &TrafficView, by: By) -> BTreeMap<Key<'_>, TrafficRow> {
    let mut all: BTreeMap<Key<'_>, TrafficRow> = BTreeMap::new();
    for row in &view.volumes {
        let volume = row.volume.as_deref();
        let key = match by {
            By::Volume if volume.is_none() => continue,
            By::Volume => (&*row.tenant, &*row.device, volume),
            By::Tenant | By::Device => (&*row.tenant, &*row.device, None),
        };
        let sum = all.entry(key).or_default();
        sum.in_flight += row.in_flight;
        add(&mut sum.read, &row.read);
        add(&mut sum.write, &row.write);
    }
    all
}

fn add(all: &mut TimesView, more: &TimesView) {
    all.ios += more.ios;
    all.bytes += more.bytes;
    all.waited_us += more.waited_us;
    all.served_us += more.served_us;
    let counts = [
        (&mut all.waited, &more.waited),
        (&mut all.served, &more.served),
        (&mut all.took, &more.took),
    ];
    for (all, more) in counts {
        all.resize(all.len().max(more.len()), 0);
        all.iter_mut()
            .zip(more)
            .for_each(|(all, more)| *all += more);
    }
}

/// A volume that has another name or owner now may have fewer than what had the name before.
fn difference(now: &TimesView, before: &TimesView) -> TimesView {
    let counts = |now: &[u64], before: &[u64]| {
        let before = before.iter().chain(std::iter::repeat(&0));
        let both = now.iter().zip(before);
        both.map(|(now, before)| now.saturating_sub(*before))
            .collect()
    };
    TimesView {
        ios: now.ios.saturating_sub(before.ios),
        bytes: now.bytes.saturating_sub(before.bytes),
        waited_us: (now.waited_us - before.waited_us).max(0.0),
        served_us: (now.served_us - before.served_us).max(0.0),
        waited: counts(&now.waited, &before.waited),
        served: counts(&now.served, &before.served),
        took: counts(&now.took, &before.took),
    }
}

impl Figures {
    /// Nothing has happened yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            in_flight: 0,
            read: Direction::default(),
            write: Direction::default(),
        }
    }

    /// What has happened to another one, too.
    pub fn add(&mut self, more: &Self) {
        self.in_flight += more.in_flight;
        add(&mut self.read.0, &more.read.0);
        add(&mut self.write.0, &more.write.0);
    }

    /// Reads and writes together.
    pub fn both(&self) -> Direction {
        let mut both = self.read.clone();
        add(&mut both.0, &self.write.0);
        both
    }
}

/// A part of the time of I/Os, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    All,
    Waited,
    Served,
}

impl Direction {
    /// I/Os in a second.
    pub fn iops(&self, seconds: f64) -> f64 {
        self.0.ios as f64 / seconds
    }

    /// Bytes in a second.
    pub fn bytes_per_second(&self, seconds: f64) -> f64 {
        self.0.bytes as f64 / seconds
    }

    /// The mean time, in microseconds; nothing where there was no I/O.
    pub fn mean_us(&self, part: Part) -> Option<f64> {
        let all = match part {
            Part::All => self.0.waited_us + self.0.served_us,
            Part::Waited => self.0.waited_us,
            Part::Served => self.0.served_us,
        };
        (self.0.ios > 0).then(|| all / self.0.ios as f64)
    }

    /// What 99 of 100 stayed under, in microseconds, to a quarter.
    pub fn p99_us(&self, part: Part, bounds_us: &[Option<f64>]) -> Option<f64> {
        self.percentile_us(part, bounds_us, 0.99)
    }

    /// What this part of all stayed under, in microseconds, to a quarter.
    pub fn percentile_us(&self, part: Part, bounds_us: &[Option<f64>], of_all: f64) -> Option<f64> {
        percentile(self.counts(part), bounds_us, of_all)
    }

    /// How many took how long, by bucket.
    pub fn counts(&self, part: Part) -> &[u64] {
        match part {
            Part::All => &self.0.took,
            Part::Waited => &self.0.waited,
            Part::Served => &self.0.served,
        }
    }
}

/// What this part of all values stays under, if they are spread evenly in each bucket.
pub fn percentile(counts: &[u64], bounds: &[Option<f64>], part: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let wanted = all as f64 * part;
    let mut passed = 0.0;
    let mut from = 0.0;
    for (count, bound) in counts.iter().zip(bounds) {
        let to = bound.unwrap_or(from);
        let count = *count as f64;
        if count > 0.0 && passed + count >= wanted {
            return Some(from + (to - from) * (wanted - passed) / count);
        }
        (passed, from) = (passed + count, to);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ios: u64, us: f64, took: &[u64]) -> TimesView {
        TimesView {
            ios,
            bytes: ios * 4096,
            waited_us: us / 4.0,
            served_us: us * 3.0 / 4.0,
            waited: vec![ios],
            served: took.to_vec(),
            took: took.to_vec(),
        }
    }

    fn row(volume: Option<&str>, read: TimesView) -> TrafficRow {
        TrafficRow {
            tenant: "db".into(),
            device: "ssd".into(),
            volume: volume.map(str::to_owned),
            in_flight: 2,
            read,
            write: TimesView::default(),
        }
    }

    fn view(starts: u64, run_seconds: f64, volumes: Vec<TrafficRow>) -> TrafficView {
        TrafficView {
            starts,
            run_seconds,
            bounds_us: vec![Some(10.0), Some(20.0), Some(40.0), None],
            volumes,
            silent_cores: Vec::new(),
            next: None,
        }
    }

    #[test]
    fn the_first_is_since_the_start_and_the_others_since_the_one_before() {
        let first = view(
            1,
            100.0,
            vec![row(Some("v"), times(200, 4_000.0, &[100, 100]))],
        );
        let line = Interval::between(None, &first, By::Volume);
        assert!(line.since_start && (line.seconds - 100.0).abs() < 1e-9);
        let read = &line.rows[0].read;
        assert!((read.iops(line.seconds) - 2.0).abs() < 1e-9);
        assert_eq!(read.mean_us(Part::All), Some(20.0));
        assert_eq!(read.mean_us(Part::Waited), Some(5.0));
        assert_eq!(line.rows[0].write.mean_us(Part::All), None);
        assert_eq!(read.p99_us(Part::All, &line.bounds_us), Some(19.8));

        let second = view(
            1,
            102.0,
            vec![row(Some("v"), times(300, 8_000.0, &[100, 100, 100]))],
        );
        let line = Interval::between(Some(&first), &second, By::Volume);
        let read = &line.rows[0].read;
        assert!(!line.since_start && (read.iops(line.seconds) - 50.0).abs() < 1e-9);
        assert_eq!(read.mean_us(Part::All), Some(40.0));
        assert_eq!(read.p99_us(Part::All, &line.bounds_us), Some(39.8));

        // After a restart sums begin anew.
        let third = view(2, 4.0, vec![row(Some("v"), times(8, 80.0, &[8]))]);
        let line = Interval::between(Some(&second), &third, By::Volume);
        assert!(line.since_start && (line.rows[0].read.iops(line.seconds) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn what_comes_and_goes_makes_no_rates() {
        let both = |v: u64, w: u64| {
            vec![
                row(Some("v"), times(v, v as f64, &[v])),
                row(Some("w"), times(w, w as f64, &[w])),
            ]
        };
        let first = view(1, 10.0, both(1_000, 50));
        let gone = vec![
            row(None, times(1_000, 1_000.0, &[1_000])),
            row(Some("w"), times(60, 60.0, &[60])),
            row(Some("new"), times(500, 500.0, &[500])),
        ];
        let second = view(1, 11.0, gone);
        for (by, want) in [
            (By::Tenant, vec![510.0]),
            (By::Device, vec![510.0]),
            (By::Volume, vec![0.0, 10.0]),
        ] {
            let line = Interval::between(Some(&first), &second, by);
            let iops: Vec<f64> = line
                .rows
                .iter()
                .map(|row| row.read.iops(line.seconds))
                .collect();
            assert_eq!(iops, want, "{by:?}");
        }
        let names = Interval::between(Some(&first), &second, By::Volume).rows;
        let names: Vec<&str> = names.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["new", "w"]);
    }

    #[test]
    fn percentiles_of_nothing_and_of_what_has_no_bound() {
        let bounds = [Some(10.0), None];
        assert_eq!(percentile(&[], &bounds, 0.99), None);
        assert_eq!(percentile(&[0, 0], &bounds, 0.99), None);
        assert_eq!(percentile(&[0, 5], &bounds, 0.99), Some(10.0));
    }
}
