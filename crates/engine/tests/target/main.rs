//! The whole target in the simulated world: cores, connections, devices, against a small host that speaks raw PDUs
//! and can break every rule.

mod abort;
mod association;
mod bounds;
mod capsules;
mod client;
mod cores;
mod credits;
mod devices;
mod discovery;
mod drive;
mod endings;
mod events;
mod fused;
mod fuzz;
mod hurry;
mod identity;
mod late;
mod load;
mod serving;
mod settings;
mod storm;
mod trouble;
mod violations;
mod why;
mod world;
