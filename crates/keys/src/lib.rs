//! Keys of encrypted data: where the secret comes from that opens them, and how they are stored.
//!
//! A **data key** ([`flashyard_codec::cipher::Key`]) is drawn by chance and never changes. It is
//! stored in an [`Envelope`], encrypted with a key that follows from a [`Secret`]: so the secret
//! can be changed without touching data, and forgetting all copies of the envelope erases them.
//! A key may also be wrapped by another key ([`WrappingKey`]), as those of volumes by their pool's.
//!
//! - `source`: where a secret is: a file, a command, a credential of systemd; a key or a
//!   passphrase.
//! - `envelope`: what is stored, byte by byte.
//! - `wrap`: AES-256-GCM around a key, and the derivation of keys from secrets.
//!
//! Secrets and keys are overwritten in memory when they are dropped, and `Debug` shows nothing of
//! them.

mod envelope;
mod error;
mod secret;
mod source;
mod wrap;

pub use envelope::{ENVELOPE_BYTES, Envelope};
pub use error::{KeyError, SourceError};
pub use secret::{Secret, SecretKind};
pub use source::{KeySource, Place, SourceSyntax};
pub use wrap::{WRAPPED_BYTES, Wrapped, WrappingKey, draw};
