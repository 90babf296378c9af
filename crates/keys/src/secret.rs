//! What opens an envelope: a key of chance, or a passphrase.

use std::fmt;

use zeroize::Zeroize;

/// Bytes of a key at least.
pub(crate) const LEAST_KEY: usize = 32;
/// Bytes of a secret at most.
pub(crate) const MOST: usize = 4096;

/// What kind of secret it is, and so how a key follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// 32 bytes of chance or more: a key follows by HKDF-SHA256 (RFC 5869).
    Key,
    /// What a person chose: a key follows by Argon2id (RFC 9106), which makes guessing dear.
    Passphrase,
}

/// A secret. It is not printed, and its memory is overwritten when it is dropped.
pub struct Secret {
    kind: SecretKind,
    /// Never longer than it was made: a vector that grows leaves copies.
    bytes: Vec<u8>,
}

impl Secret {
    /// A secret of these bytes, which are not copied.
    pub fn new(kind: SecretKind, bytes: Vec<u8>) -> Self {
        Self { kind, bytes }
    }

    /// Which kind it is.
    pub fn kind(&self) -> SecretKind {
        self.kind
    }

    /// Its bytes, which are the caller's to overwrite from now on.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Shows that there is a secret, and nothing of it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:?}, ..)", self.kind)
    }
}
