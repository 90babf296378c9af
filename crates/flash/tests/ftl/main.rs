//! The host FTL on an emulated open-channel device, against a plain map.

mod cuts;
mod faults;
mod load;
mod model;
mod owner;
mod power;
mod scripts;
mod swarm;
mod upkeep;
