//! The store against a model of volumes, on a device that loses what was not flushed.

mod basics;
mod device;
mod load;
mod model;
mod referenced;
mod world;
