//! The whole target in the simulated world: cores, connections, devices, against a small host that
//! speaks raw PDUs and can break every rule.

mod abort;
mod admin;
mod association;
mod behind;
mod bounds;
mod capsules;
mod cores;
mod credits;
mod devices;
mod discovery;
mod drive;
mod endings;
mod events;
mod fence;
mod fused;
mod fuzz;
mod held;
mod identity;
mod late;
mod latency_sensitive;
mod load;
mod mixed;
mod parts;
mod recorder;
mod serving;
mod settings;
mod slow;
mod storm;
mod trouble;
mod violations;
mod waits;
mod whole;
mod why;
