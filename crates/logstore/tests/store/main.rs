//! The store against a model of volumes, on a device that loses what was not flushed.

mod basics;
mod cuts;
mod damaged_log;
mod device;
mod ends;
mod faults;
mod full;
mod grown;
mod load;
mod model;
mod packed;
mod referenced;
mod reserved;
mod rows;
mod snapshot_world;
mod snapshots;
mod swarm;
mod world;
