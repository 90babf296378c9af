//! A key around a key: AES-256-GCM (NIST SP 800-38D) with a nonce by chance. So few keys are ever
//! wrapped by one that a nonce does not come twice, and one that is drawn does not come again with
//! an image that is restored. What it belongs to is authenticated with it: a wrapped key that was
//! moved elsewhere is not opened.

use argon2::{Algorithm, Argon2, Params, Version};
use flashyard_codec::cipher::{CipherError, KEY_BYTES, Key};
use openssl::md::Md;
use openssl::pkey::Id;
use openssl::pkey_ctx::{HkdfMode, PkeyCtx};
use openssl::rand::rand_priv_bytes;
use openssl::symm::{self, Cipher};
use zeroize::{Zeroize, Zeroizing};

use crate::error::KeyError;
use crate::secret::Secret;

/// Bytes of the key that wraps.
const WRAPPING_BYTES: usize = 32;
pub(crate) const SALT_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// Bytes of a wrapped key.
pub const WRAPPED_BYTES: usize = NONCE_BYTES + KEY_BYTES + TAG_BYTES;

/// What a key from a secret is for.
const OF_SECRET: &[u8] = b"flashyard envelope 1";
/// What a key from another key is for.
const OF_KEY: &[u8] = b"flashyard key of keys 1";

/// A key of data, by chance.
pub fn draw() -> Result<Key, KeyError> {
    loop {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        rand_priv_bytes(&mut *bytes).map_err(|_| KeyError::Library)?;
        match Key::take(&mut bytes) {
            Ok(key) => return Ok(key),
            // Once in 2^256 times.
            Err(CipherError::EqualHalves) => {}
            Err(_) => return Err(KeyError::Library),
        }
    }
}

/// Bytes by chance that are no secret.
pub(crate) fn chance<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    openssl::rand::rand_bytes(&mut bytes).map_err(|_| KeyError::Library)?;
    Ok(bytes)
}

/// How much work a guess at a passphrase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Cost {
    /// The second recommendation of RFC 9106, with one lane, as there is one thread.
    pub const USUAL: Self = Self {
        memory_kib: 64 << 10,
        passes: 3,
        lanes: 1,
    };
    /// More than that is not taken from a disk: a hostile one could have us work without end.
    pub const MOST: Self = Self {
        memory_kib: 1 << 20,
        passes: 16,
        lanes: 16,
    };

    /// Whether it is within what Argon2 and this program take.
    pub fn is_possible(self) -> bool {
        let within = |value, least, most| (least..=most).contains(&value);
        within(self.passes, 1, Self::MOST.passes)
            && within(self.lanes, 1, Self::MOST.lanes)
            && within(self.memory_kib, 8 * self.lanes, Self::MOST.memory_kib)
    }
}

/// A key that wraps others. Its memory is overwritten when it is dropped.
pub struct WrappingKey(Box<[u8; WRAPPING_BYTES]>);

impl Drop for WrappingKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key that is encrypted by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped(pub(crate) [u8; WRAPPED_BYTES]);

impl Wrapped {
    /// As it is stored. Whoever stores it has a checksum around it.
    pub fn bytes(&self) -> &[u8; WRAPPED_BYTES] {
        &self.0
    }

    /// From what was stored.
    pub fn from_bytes(bytes: [u8; WRAPPED_BYTES]) -> Self {
        Self(bytes)
    }
}

impl WrappingKey {
    /// The key that wraps with a key of data: those of volumes by their pool's.
    pub fn of(key: &Key) -> Result<Self, KeyError> {
        Self::expanded(key.bytes(), &[], OF_KEY)
    }

    /// The key that follows from a secret: by HKDF without a cost, by Argon2id with one. May take a
    /// second, and the memory of the cost.
    pub(crate) fn of_secret(
        secret: &Secret,
        cost: Option<Cost>,
        salt: &[u8],
    ) -> Result<Self, KeyError> {
        let Some(cost) = cost else {
            return Self::expanded(secret.bytes(), salt, OF_SECRET);
        };
        let params = Params::new(
            cost.memory_kib,
            cost.passes,
            cost.lanes,
            Some(WRAPPING_BYTES),
        );
        let params = params.map_err(|_| KeyError::Damaged("its cost is impossible"))?;
        let mut key = Self(Box::new([0; WRAPPING_BYTES]));
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let done = argon2.hash_password_into(secret.bytes(), salt, &mut *key.0);
        done.map_err(|_| KeyError::Memory)?;
        Ok(key)
    }

    /// HKDF-SHA256.
    fn expanded(secret: &[u8], salt: &[u8], purpose: &[u8]) -> Result<Self, KeyError> {
        let mut key = Self(Box::new([0; WRAPPING_BYTES]));
        let derive = |into: &mut [u8]| {
            let mut hkdf = PkeyCtx::new_id(Id::HKDF)?;
            hkdf.derive_init()?;
            hkdf.set_hkdf_mode(HkdfMode::EXTRACT_THEN_EXPAND)?;
            hkdf.set_hkdf_md(Md::sha256())?;
            hkdf.set_hkdf_key(secret)?;
            if !salt.is_empty() {
                hkdf.set_hkdf_salt(salt)?;
            }
            hkdf.add_hkdf_info(purpose)?;
            hkdf.derive(Some(into))
        };
        match derive(&mut *key.0) {
            Ok(WRAPPING_BYTES) => Ok(key),
            _ => Err(KeyError::Library),
        }
    }

    /// Wraps a key; `belongs_to` has to be given to unwrap it.
    pub fn wrap(&self, key: &Key, belongs_to: &[u8]) -> Result<Wrapped, KeyError> {
        let nonce: [u8; NONCE_BYTES] = chance()?;
        let mut tag = [0; TAG_BYTES];
        let gcm = Cipher::aes_256_gcm();
        let (wrapping, plain) = (&*self.0, &key.bytes()[..]);
        let sealed = symm::encrypt_aead(gcm, wrapping, Some(&nonce), belongs_to, plain, &mut tag);
        let sealed = sealed.map_err(|_| KeyError::Library)?;
        let bytes = [&nonce[..], &sealed, &tag].concat();
        bytes.try_into().map(Wrapped).map_err(|_| KeyError::Library)
    }

    /// Unwraps a key, if this is what wrapped it and it belongs where it was.
    pub fn unwrap(&self, wrapped: &Wrapped, belongs_to: &[u8]) -> Result<Key, KeyError> {
        let (nonce, rest) = wrapped.0.split_at(NONCE_BYTES);
        let (sealed, tag) = rest.split_at(KEY_BYTES);
        let gcm = Cipher::aes_256_gcm();
        let plain = symm::decrypt_aead(gcm, &*self.0, Some(nonce), belongs_to, sealed, tag);
        let plain = plain.map_err(|_| KeyError::WrongSecret)?;
        let plain = Zeroizing::new(plain);
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        if plain.len() != KEY_BYTES {
            return Err(KeyError::Library);
        }
        bytes.copy_from_slice(&plain);
        Key::take(&mut bytes).map_err(|_| KeyError::Damaged("its halves are equal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretKind;

    fn hex(bytes: &[u8]) -> String {
        let digit = |byte: &u8| format!("{byte:02x}");
        bytes.iter().map(digit).collect::<Vec<_>>().concat()
    }

    #[test]
    fn hkdf_is_that_of_rfc_5869() {
        // Test case 1: its first 32 bytes do not depend on how many are wanted.
        let salt: Vec<u8> = (0..=12).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let key = WrappingKey::expanded(&[0x0b; 22], &salt, &info).expect("the library has HKDF");
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf";
        assert_eq!(hex(&*key.0), expected);
    }

    #[test]
    fn argon2id_is_that_of_its_reference() {
        // The first vector of the reference implementation for version 13h.
        let cost = Cost {
            memory_kib: 64 << 10,
            passes: 2,
            lanes: 1,
        };
        let secret = Secret::new(SecretKind::Passphrase, b"password".to_vec());
        let key =
            WrappingKey::of_secret(&secret, Some(cost), b"somesalt").expect("there is memory");
        let expected = "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7";
        assert_eq!(hex(&*key.0), expected);
    }

    #[test]
    fn a_key_wraps_others_and_only_it_unwraps_them() {
        let [pool, other, volume] = [(); 3].map(|()| draw().expect("there is chance"));
        let with = WrappingKey::of(&pool).expect("the library has HKDF");
        let wrapped = with
            .wrap(&volume, b"lineage 7")
            .expect("the library has GCM");
        let read = Wrapped::from_bytes(*wrapped.bytes());
        let back = with
            .unwrap(&read, b"lineage 7")
            .expect("it was wrapped here");
        assert_eq!(back.bytes(), volume.bytes());
        let refused =
            |with: &WrappingKey, wrapped: &Wrapped, of: &[u8]| with.unwrap(wrapped, of).err();
        let wrong = Some(KeyError::WrongSecret);
        assert_eq!(refused(&with, &wrapped, b"lineage 8"), wrong);
        let other = WrappingKey::of(&other).expect("the library has HKDF");
        assert_eq!(refused(&other, &wrapped, b"lineage 7"), wrong);
        for byte in 0..WRAPPED_BYTES {
            let mut bytes = *wrapped.bytes();
            bytes[byte] ^= 0x40;
            assert_eq!(
                refused(&with, &Wrapped(bytes), b"lineage 7"),
                wrong,
                "{byte}"
            );
        }
        let again = with
            .wrap(&volume, b"lineage 7")
            .expect("the library has GCM");
        assert_ne!(again, wrapped, "no nonce comes twice");
    }
}
