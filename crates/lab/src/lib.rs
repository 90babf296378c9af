//! The laboratory: workloads, drives and switches in virtual time, and the experiments on them.

pub mod bench;
pub mod experiment;
mod experiments;
pub mod load;
mod markup;
pub mod measure;
mod parallel;
pub mod plot;
pub mod policies;
pub mod report;
pub mod swarm;
mod validate;

pub use experiment::{Context, Experiment, Progress, Refused, Request, Setting, Silent};
pub use experiments::{experiments, find};
