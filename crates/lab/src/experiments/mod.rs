//! The experiments that there are, one per file.

use crate::experiment::{Experiment, Refused};

/// All experiments, in the order in which they are listed.
static ALL: [&dyn Experiment; 0] = [];

/// All experiments.
pub fn experiments() -> &'static [&'static dyn Experiment] {
    &ALL
}

/// The experiment of this name.
pub fn find(name: &str) -> Result<&'static dyn Experiment, Refused> {
    let found = ALL.iter().find(|experiment| experiment.name() == name);
    found
        .copied()
        .ok_or_else(|| Refused::UnknownExperiment(name.to_owned()))
}
