//! Fabrics commands (Base Specification, section 6): Connect and the properties of a controller.

mod connect;
mod property;

pub use connect::{Connect, ConnectData, ConnectResponse, InvalidParameter};
pub use property::{
    Capabilities, Configuration, ControllerStatus, Property, PropertySize, ReadyTimeouts, Shutdown,
    ShutdownStatus, Version,
};
