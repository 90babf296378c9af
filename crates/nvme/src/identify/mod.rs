//! What the Identify command returns (Base Specification, Identify command; NVM Command Set,
//! section 4.1.5): structures of 4,096 bytes, as owned values with the fields that this project
//! sets or reads.

mod controller;
mod lists;
mod namespace;

pub use controller::{IdentifyController, IdentifyControllerNvm, PowerStateDescriptor};
pub use lists::{
    NamespaceDescriptors, decode_command_sets, decode_controller_list, decode_namespace_list,
    encode_command_sets, encode_controller_list, encode_namespace_list,
};
pub use namespace::{
    IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNamespaceNvm, LbaFormat,
};

use crate::bytes;

/// Length of every Identify data structure, bytes.
pub const IDENTIFY_LEN: usize = 4096;

/// NSID that means all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// Command Set Identifier of the NVM command set.
pub const CSI_NVM: u8 = 0;

/// Controller or Namespace Structure: what Identify is to return.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cns(pub u8);

impl Cns {
    /// [`IdentifyNamespace`].
    pub const NAMESPACE: Self = Self(0x00);
    /// [`IdentifyController`].
    pub const CONTROLLER: Self = Self(0x01);
    /// Active namespaces above the given NSID ([`decode_namespace_list`]).
    pub const ACTIVE_NAMESPACES: Self = Self(0x02);
    /// [`NamespaceDescriptors`].
    pub const NAMESPACE_DESCRIPTORS: Self = Self(0x03);
    /// [`IdentifyNamespaceNvm`], for CSI 0.
    pub const NAMESPACE_OF_SET: Self = Self(0x05);
    /// [`IdentifyControllerNvm`], for CSI 0.
    pub const CONTROLLER_OF_SET: Self = Self(0x06);
    /// Active namespaces of one command set.
    pub const ACTIVE_NAMESPACES_OF_SET: Self = Self(0x07);
    /// [`IdentifyNamespaceIndependent`].
    pub const NAMESPACE_INDEPENDENT: Self = Self(0x08);
    /// Allocated namespaces.
    pub const ALLOCATED_NAMESPACES: Self = Self(0x10);
    /// [`IdentifyNamespace`] of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: Self = Self(0x11);
    /// Controllers that a namespace is attached to.
    pub const NAMESPACE_CONTROLLERS: Self = Self(0x12);
    /// Controllers of the subsystem ([`decode_controller_list`]).
    pub const CONTROLLERS: Self = Self(0x13);
    /// I/O command set combinations ([`decode_command_sets`]).
    pub const COMMAND_SETS: Self = Self(0x1c);
}

/// An ASCII field such as a serial or model number: `text`, padded with spaces. Characters that are
/// not printable ASCII become `?`; what is too long is cut.
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    bytes::ascii(text)
}

/// The text of an ASCII field without its padding; `None` if it is not ASCII.
pub fn ascii_text(field: &[u8]) -> Option<&str> {
    bytes::text_of(field)
}
