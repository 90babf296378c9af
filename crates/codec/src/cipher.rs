//! AES-256-XTS (IEEE 1619-2018): data units of 512 or 4,096 bytes, each with a number that is its
//! tweak. The last unit may be shorter, by whole sectors of 512 bytes. The length of data does not
//! change, and nothing shows that they were changed: whoever needs that has checksums beside them.
//!
//! The cipher is OpenSSL's, behind this face only, so that another library can replace it.

use std::error::Error;
use std::fmt;

use openssl::cipher::Cipher as Algorithm;
use openssl::cipher_ctx::CipherCtx;
use openssl::memcmp;
use zeroize::Zeroize;

/// Bytes of a key: one half for the data, one for the tweak.
pub const KEY_BYTES: usize = 64;

/// A key of AES-256-XTS. It is not printed, and its memory is overwritten when it is dropped.
pub struct Key(Box<[u8; KEY_BYTES]>);

impl Key {
    /// The key of these bytes, which are overwritten.
    ///
    /// [`CipherError::EqualHalves`] where IEEE 1619 and FIPS 140-3 (Implementation Guidance C.I)
    /// refuse a key: with equal halves the tweak hides nothing.
    pub fn take(bytes: &mut [u8; KEY_BYTES]) -> Result<Self, CipherError> {
        let mut key = Self(Box::new([0; KEY_BYTES]));
        key.0.copy_from_slice(bytes);
        bytes.zeroize();
        let (data, tweak) = key.0.split_at(KEY_BYTES / 2);
        match memcmp::eq(data, tweak) {
            true => Err(CipherError::EqualHalves),
            false => Ok(key),
        }
    }

    /// Its bytes, to be wrapped.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        let mut copy = Self(Box::new([0; KEY_BYTES]));
        copy.0.copy_from_slice(&*self.0);
        copy
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Shows that there is a key, and nothing of it.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Data are whole sectors of this many bytes.
const SECTOR: usize = 512;

/// Bytes of a data unit: what is encrypted by itself, and has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 512 bytes.
    Sector,
    /// 4,096 bytes: twice as fast.
    Page,
}

impl Unit {
    /// How long it is.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sector => SECTOR,
            Self::Page => 4096,
        }
    }

    /// The unit of this length.
    pub fn of_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            512 => Some(Self::Sector),
            4096 => Some(Self::Page),
            _ => None,
        }
    }
}

/// Why nothing was encrypted or decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherError {
    /// Both halves of a key are the same.
    EqualHalves,
    /// The data are no whole sectors, or what they are written to is not as long.
    Length,
    /// The library has failed: it has no memory, or no such cipher.
    Library,
}

impl fmt::Display for CipherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EqualHalves => "both halves of the key are equal",
            Self::Length => "the data are no whole number of sectors of 512 bytes",
            Self::Library => "OpenSSL cannot encrypt with AES-256-XTS",
        })
    }
}

impl Error for CipherError {}

/// Encrypts and decrypts with one key; a core has its own.
pub struct Cipher {
    unit: Unit,
    encrypt: CipherCtx,
    decrypt: CipherCtx,
}

/// Which way data go.
#[derive(Clone, Copy)]
enum Way {
    Encrypt,
    Decrypt,
}

impl Cipher {
    /// A cipher for data units of this length.
    pub fn new(key: &Key, unit: Unit) -> Result<Self, CipherError> {
        let ready = || {
            let (mut encrypt, mut decrypt) = (CipherCtx::new()?, CipherCtx::new()?);
            let algorithm = Algorithm::aes_256_xts();
            encrypt.encrypt_init(Some(algorithm), Some(key.bytes()), None)?;
            decrypt.decrypt_init(Some(algorithm), Some(key.bytes()), None)?;
            Ok::<_, openssl::error::ErrorStack>((encrypt, decrypt))
        };
        let (encrypt, decrypt) = ready().map_err(|_| CipherError::Library)?;
        Ok(Self {
            unit,
            encrypt,
            decrypt,
        })
    }

    /// The length of its data units.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Encrypts data units in place; the first has number `first`, the others follow.
    pub fn encrypt(&mut self, first: u128, data: &mut [u8]) -> Result<(), CipherError> {
        self.in_place(Way::Encrypt, first, data)
    }

    /// Decrypts data units in place, as [`Self::encrypt`] numbers them.
    pub fn decrypt(&mut self, first: u128, data: &mut [u8]) -> Result<(), CipherError> {
        self.in_place(Way::Decrypt, first, data)
    }

    /// Encrypts data units from one place to another, as [`Self::encrypt`] numbers them: data that
    /// have to be copied anyway are touched once.
    pub fn encrypt_into(
        &mut self,
        first: u128,
        plain: &[u8],
        stored: &mut [u8],
    ) -> Result<(), CipherError> {
        let bytes = self.unit.bytes();
        if plain.len() != stored.len() || !plain.len().is_multiple_of(SECTOR) {
            return Err(CipherError::Length);
        }
        let units = plain.chunks(bytes).zip(stored.chunks_mut(bytes));
        for (number, (plain, stored)) in (0..).zip(units) {
            let tweak = first.wrapping_add(number).to_le_bytes();
            let begun = self.encrypt.encrypt_init(None, None, Some(&tweak));
            let done = begun.and_then(|()| self.encrypt.cipher_update(plain, Some(stored)));
            judge(done, plain.len())?;
        }
        Ok(())
    }

    fn in_place(&mut self, way: Way, first: u128, data: &mut [u8]) -> Result<(), CipherError> {
        let bytes = self.unit.bytes();
        if !data.len().is_multiple_of(SECTOR) {
            return Err(CipherError::Length);
        }
        for (number, unit) in (0..).zip(data.chunks_mut(bytes)) {
            let bytes = unit.len();
            let tweak = first.wrapping_add(number).to_le_bytes();
            let done = match way {
                Way::Encrypt => {
                    let begun = self.encrypt.encrypt_init(None, None, Some(&tweak));
                    begun.and_then(|()| self.encrypt.cipher_update_inplace(unit, bytes))
                }
                Way::Decrypt => {
                    let begun = self.decrypt.decrypt_init(None, None, Some(&tweak));
                    begun.and_then(|()| self.decrypt.cipher_update_inplace(unit, bytes))
                }
            };
            judge(done, bytes)?;
        }
        Ok(())
    }
}

/// Whether a whole unit was done.
fn judge(done: Result<usize, openssl::error::ErrorStack>, bytes: usize) -> Result<(), CipherError> {
    match done {
        Ok(len) if len == bytes => Ok(()),
        _ => Err(CipherError::Library),
    }
}
