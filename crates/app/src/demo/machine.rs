//! Whether this machine keeps the time of the emulated drive: found out before any figure is shown,
//! with a reader alone, whose reads take the least time, and with everybody, who are the most work.

use std::fmt;

use serde_json::{Value, json};

use super::outcome::{Measured, micros};

/// A drive that is slower than this shows too few I/Os in a demonstration.
const DILATION_MOST: f64 = 100.0;
/// What a completion may be late, in parts of the mean latency: see `FlashStats::is_void`.
const PARTS: f64 = 10.0;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Machine {
    keeps_time: bool,
    /// What 99 of 100 completions are reported within, after their time.
    lateness_us: f64,
    /// What the drive takes for an I/O, in the same measurement.
    mean_us: f64,
    /// How many times slower the drive is.
    dilation: u32,
}

impl Machine {
    /// Of short measurements, of which the worst counts.
    pub(super) fn judge(measured: &[Measured], dilation: u32) -> Option<Self> {
        let found = measured.iter().map(|it| Self {
            keeps_time: !it.is_void(),
            lateness_us: it.lateness_us(),
            mean_us: it.mean_us(),
            dilation,
        });
        found.max_by(|a, b| a.part().total_cmp(&b.part()))
    }

    /// How late completions are, in parts of what they take.
    fn part(&self) -> f64 {
        self.lateness_us / self.mean_us.max(1.0)
    }

    /// A dilation at which the same delays would count for little; none if that is too slow.
    fn advised(&self) -> Option<u32> {
        let dilation = f64::from(self.dilation);
        let enough = (dilation * self.part() * PARTS).ceil().max(dilation + 1.0);
        (enough <= DILATION_MOST).then_some(enough as u32)
    }

    /// The same for programs.
    pub(super) fn to_json(self) -> Value {
        json!({
            "keeps_time": self.keeps_time,
            "lateness_p99_us": self.lateness_us,
            "mean_us": self.mean_us,
            "advised_dilation": self.advised().filter(|_| !self.keeps_time),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (late, mean) = (micros(self.lateness_us), micros(self.mean_us));
        if self.keeps_time {
            return write!(
                f,
                "This machine keeps the drive's time: 99 % of completions come within {late} of it, and I/O takes {mean}."
            );
        }
        write!(
            f,
            "This machine does not keep the drive's time: 99 % of completions come within {late} of it, where I/O takes \
             {mean}. The figures below are not to be relied on: stop what else runs"
        )?;
        match self.advised() {
            Some(dilation) => write!(f, ", or give --dilation {dilation}."),
            None => write!(f, "; no --dilation makes up for so much."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(keeps_time: bool, lateness_us: f64, mean_us: f64) -> Machine {
        Machine {
            keeps_time,
            lateness_us,
            mean_us,
            dilation: 10,
        }
    }

    #[test]
    fn what_follows_is_said_before_the_figures() {
        let good = machine(true, 40.0, 900.0);
        assert!(
            good.to_string().contains("keeps the drive's time"),
            "{good}"
        );
        assert_eq!(good.to_json()["advised_dilation"], Value::Null);
        let bad = machine(false, 450.0, 900.0).to_string();
        assert!(bad.contains("not to be relied on"), "{bad}");
        assert!(bad.contains("--dilation 50."), "{bad}");
        let worse = machine(false, 30_000.0, 900.0);
        assert!(
            worse
                .to_string()
                .ends_with("no --dilation makes up for so much.")
        );
        for (late, mean, advised) in [
            (90.0, 900.0, Some(11)),
            (1e6, 1.0, None),
            (0.0, 0.0, Some(11)),
        ] {
            assert_eq!(
                machine(false, late, mean).advised(),
                advised,
                "{late} {mean}"
            );
        }
    }
}
