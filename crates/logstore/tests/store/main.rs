//! The store against a model of volumes, on a device that loses what was not flushed.

mod basics;
mod cuts;
mod device;
mod faults;
mod full;
mod load;
mod model;
mod referenced;
mod swarm;
mod world;
