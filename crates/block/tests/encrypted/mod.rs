//! Mapped pools that are encrypted, or are not.

#![allow(dead_code, reason = "each test takes some of these functions")]

use flashyard_block::SharedDevice;
use flashyard_block::pool::{KeyHeader, Kind, Pool, PoolError};
use flashyard_keys::{Secret, SecretKind};
use flashyard_runtime::Rt;

/// A secret of one letter.
pub fn secret(letter: u8) -> Secret {
    Secret::new(SecretKind::Key, vec![letter; 32])
}

/// A mapped pool; what opens it is the secret of `a`.
pub async fn create(rt: &Rt, device: &SharedDevice, uuid: [u8; 16], encrypted: bool) -> Pool {
    let made = match encrypted {
        false => Pool::create_kind(rt, device.clone(), uuid, Kind::Mapped, false).await,
        true => {
            let with = KeyHeader::make(uuid, &secret(b'a')).expect("there is chance");
            Pool::create_encrypted(rt, device.clone(), with, false).await
        }
    };
    made.expect("the device holds nothing known")
}

/// Opens a pool, with its key if it is encrypted.
pub async fn try_open(rt: &Rt, device: &SharedDevice) -> Result<Pool, PoolError> {
    match KeyHeader::find(&**device).await? {
        None => Pool::open(rt, device.clone()).await,
        Some(header) => {
            let (key, _) = header.open(&secret(b'a')).map_err(PoolError::Key)?;
            Pool::unlock(rt, device.clone(), key).await
        }
    }
}

/// The same, of one that can be opened.
pub async fn open(rt: &Rt, device: &SharedDevice) -> Pool {
    try_open(rt, device).await.expect("it is whole")
}
