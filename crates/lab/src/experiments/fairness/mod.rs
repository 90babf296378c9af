//! Who gets what of any device, whoever the tenants are: scenes by name, and scenes by chance.

mod alone;
mod scene;
mod scenes;

pub(super) use scenes::Scenes;
