//! Who gets what of any device, whoever the tenants are: scenes by name, and scenes by chance.

mod alone;
mod cache;
mod draw;
mod oracle;
mod scene;
mod scenes;
mod shrink;
mod swarm;

pub(super) use scenes::Scenes;
pub(super) use swarm::Swarm;
