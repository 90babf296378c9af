//! What the experiments share when they report: an empty report, and one digest of several runs.

use crate::bench::{self, Results};
use crate::experiment::{Context, Experiment};
use crate::report::{Column, Report};

impl Report {
    /// A report of `experiment` without rows.
    pub fn of(
        experiment: &dyn Experiment,
        context: &Context,
        digest: u64,
        columns: &[Column],
    ) -> Self {
        Self {
            experiment: experiment.name(),
            seed: context.seed,
            quick: context.quick,
            digest,
            settings: context.settings(),
            columns: columns.to_vec(),
            rows: Vec::new(),
            charts: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// One digest of all runs, in their order.
pub(super) fn fold_digests(results: &[Results]) -> u64 {
    let digests = results.iter().map(|results| results.digest);
    digests.fold(0, bench::fold)
}
