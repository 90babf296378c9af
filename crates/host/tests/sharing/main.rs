//! Tenants that share a device of a real target, over our own hosts, in the simulated world:
//! credits, overload, and who may be latency-sensitive.

mod credits;
mod latency_sensitive;
mod overload;
mod parda;
mod rebuild;
mod world;
