//! Tenants that share a device of a real target, over our own hosts, in the simulated world:
//! credits, overload, and who may be latency-sensitive.

mod credits;
mod overload;
mod parda;
mod urgent;
mod world;
