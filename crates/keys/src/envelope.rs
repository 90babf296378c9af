//! A data key as it is stored with its data, little-endian:
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 4 | magic |
//! | 4 | 2 | version |
//! | 6 | 2 | length of all of it |
//! | 8 | 4 | 1: from a key by HKDF-SHA256; 2: from a passphrase by Argon2id |
//! | 12 | 12 | Argon2id: memory in KiB, passes, lanes; else zero |
//! | 24 | 32 | salt |
//! | 56 | 92 | the key, wrapped: nonce, ciphertext, tag |
//! | 148 | 4 | CRC32C of all before it |
//!
//! All before the wrapped key is authenticated with it, and so is what the caller says that it
//! belongs to.

use crate::error::KeyError;
use crate::secret::{Secret, SecretKind};
use crate::wrap::{Cost, SALT_BYTES, WRAPPED_BYTES, Wrapped, WrappingKey, chance};
use flashyard_checksum::Crc32c;
use flashyard_codec::cipher::Key;

/// Bytes of an envelope.
pub const ENVELOPE_BYTES: usize = 152;
const MAGIC: [u8; 4] = *b"FYKW";
const VERSION: u16 = 1;
/// Where the wrapped key begins and ends.
const WRAPPED_AT: usize = 56;
const CHECKSUM_AT: usize = WRAPPED_AT + WRAPPED_BYTES;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// None for a key.
    cost: Option<Cost>,
    salt: [u8; SALT_BYTES],
    wrapped: Wrapped,
}

impl Envelope {
    /// Puts `key` in an envelope that `secret` opens; `belongs_to` has to be given to open it. May
    /// take a second.
    pub fn seal(key: &Key, secret: &Secret, belongs_to: &[u8]) -> Result<Self, KeyError> {
        let cost = match secret.kind() {
            SecretKind::Key => None,
            SecretKind::Passphrase => Some(Cost::USUAL),
        };
        let salt = chance()?;
        let with = WrappingKey::of_secret(secret, cost, &salt)?;
        let head = head(cost, &salt);
        let wrapped = with.wrap(key, &[&head[..], belongs_to].concat())?;
        Ok(Self {
            cost,
            salt,
            wrapped,
        })
    }

    /// The key. May take a second. A secret of the other kind is a wrong one.
    pub fn open(&self, secret: &Secret, belongs_to: &[u8]) -> Result<Key, KeyError> {
        if secret.kind() != self.kind() {
            return Err(KeyError::WrongSecret);
        }
        let with = WrappingKey::of_secret(secret, self.cost, &self.salt)?;
        let head = head(self.cost, &self.salt);
        with.unwrap(&self.wrapped, &[&head[..], belongs_to].concat())
    }

    /// What kind of secret opens it.
    pub fn kind(&self) -> SecretKind {
        match self.cost {
            None => SecretKind::Key,
            Some(_) => SecretKind::Passphrase,
        }
    }

    /// As it is stored.
    pub fn encode(&self) -> [u8; ENVELOPE_BYTES] {
        let mut bytes = [0; ENVELOPE_BYTES];
        bytes[..WRAPPED_AT].copy_from_slice(&head(self.cost, &self.salt));
        bytes[WRAPPED_AT..CHECKSUM_AT].copy_from_slice(self.wrapped.bytes());
        let checksum = Crc32c::of(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// From what was stored. Bears any bytes; behind it there may be others.
    pub fn decode(bytes: &[u8]) -> Result<Self, KeyError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(KeyError::Absent);
        }
        let number = |at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk::<4>);
            bytes.map(|bytes| u32::from_le_bytes(*bytes))
        };
        let damaged = |what| move || KeyError::Damaged(what);
        let sizes = number(4).ok_or_else(damaged("it is cut short"))?;
        let (version, len) = (sizes as u16, (sizes >> 16) as usize);
        // The length and the checksum at the end stay where they are in all versions.
        let whole = bytes.get(..len).filter(|_| len >= 12);
        let whole = whole.ok_or_else(damaged("its length is impossible"))?;
        if number(len - 4) != Some(Crc32c::of(&whole[..len - 4])) {
            return Err(KeyError::Damaged("its checksum is wrong"));
        }
        if version != VERSION {
            return Err(KeyError::Newer(version));
        }
        let fixed: Option<&[u8; ENVELOPE_BYTES]> = whole.first_chunk();
        let fixed = fixed.filter(|_| len == ENVELOPE_BYTES);
        let fixed = fixed.ok_or_else(damaged("its length is impossible"))?;
        let numbers = [8, 12, 16, 20].map(|at| number(at).unwrap_or_default());
        let cost = cost(numbers)?;
        let (mut salt, mut wrapped) = ([0; SALT_BYTES], [0; WRAPPED_BYTES]);
        salt.copy_from_slice(&fixed[24..WRAPPED_AT]);
        wrapped.copy_from_slice(&fixed[WRAPPED_AT..CHECKSUM_AT]);
        Ok(Self {
            cost,
            salt,
            wrapped: Wrapped(wrapped),
        })
    }
}

/// Of the fields of the derivation.
fn cost([method, memory_kib, passes, lanes]: [u32; 4]) -> Result<Option<Cost>, KeyError> {
    let cost = Cost {
        memory_kib,
        passes,
        lanes,
    };
    match method {
        1 if [memory_kib, passes, lanes] == [0; 3] => Ok(None),
        2 if cost.is_possible() => Ok(Some(cost)),
        _ => Err(KeyError::Damaged("its cost is impossible")),
    }
}

/// All before the wrapped key.
fn head(cost: Option<Cost>, salt: &[u8; SALT_BYTES]) -> [u8; WRAPPED_AT] {
    let numbers = match cost {
        None => [1, 0, 0, 0],
        Some(cost) => [2, cost.memory_kib, cost.passes, cost.lanes],
    };
    let mut head = [0; WRAPPED_AT];
    head[..4].copy_from_slice(&MAGIC);
    head[4..6].copy_from_slice(&VERSION.to_le_bytes());
    head[6..8].copy_from_slice(&(ENVELOPE_BYTES as u16).to_le_bytes());
    for (field, number) in head[8..24].chunks_exact_mut(4).zip(numbers) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    head[24..].copy_from_slice(salt);
    head
}
