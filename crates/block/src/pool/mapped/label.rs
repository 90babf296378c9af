//! What a pool keeps of a volume for those who use it: its name and identity, and whose it is.
//! The store keeps it as bytes of a fixed number:
//!
//! ```text
//! 0  version (1)    1  log2 of the block size   2  length of the name   3  length of the tenant
//! 4  UUID           20 NGUID                    36 EUI64                44 number for hosts
//! 48 name, 64 bytes                             112 name of the tenant, 64 bytes
//! ```

use flashyard_logstore::format::rows::LABEL;

use crate::pool::facts::{NewVolume, Owner};
use crate::pool::names::{MAX_NAME, check_name};

const VERSION: u8 = 1;
const NAME_AT: usize = 48;
const TENANT_AT: usize = NAME_AT + MAX_NAME;

/// What is kept of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub name: String,
    pub uuid: [u8; 16],
    pub owner: Option<Owner>,
}

impl From<&NewVolume> for Label {
    fn from(volume: &NewVolume) -> Self {
        Self {
            name: volume.name.clone(),
            uuid: volume.uuid,
            owner: volume.owner.clone(),
        }
    }
}

impl Label {
    pub fn encode(&self) -> [u8; LABEL] {
        let mut bytes = [0; LABEL];
        (bytes[0], bytes[1]) = (VERSION, super::volume::BLOCK_SHIFT);
        bytes[2] = self.name.len() as u8;
        bytes[4..20].copy_from_slice(&self.uuid);
        bytes[NAME_AT..][..self.name.len()].copy_from_slice(self.name.as_bytes());
        if let Some(owner) = &self.owner {
            let tenant = owner.tenant.as_bytes();
            let tenant = &tenant[..tenant.len().min(MAX_NAME)];
            bytes[3] = tenant.len() as u8;
            bytes[20..36].copy_from_slice(&owner.nguid);
            bytes[36..44].copy_from_slice(&owner.eui64.unwrap_or_default());
            bytes[44..48].copy_from_slice(&owner.nsid.to_le_bytes());
            bytes[TENANT_AT..][..tenant.len()].copy_from_slice(tenant);
        }
        bytes
    }

    /// Nothing when no program writes such bytes.
    pub fn decode(bytes: &[u8; LABEL]) -> Option<Self> {
        if (bytes[0], bytes[1]) != (VERSION, super::volume::BLOCK_SHIFT) {
            return None;
        }
        let name = text(&bytes[NAME_AT..TENANT_AT], bytes[2])?;
        check_name(&name).ok()?;
        let tenant = text(&bytes[TENANT_AT..], bytes[3])?;
        let eui64: [u8; 8] = bytes[36..44].try_into().ok()?;
        let owner = Owner {
            tenant,
            nguid: bytes[20..36].try_into().ok()?,
            eui64: (eui64 != [0; 8]).then_some(eui64),
            nsid: u32::from_le_bytes(bytes[44..48].try_into().ok()?),
        };
        Some(Self {
            name,
            uuid: bytes[4..20].try_into().ok()?,
            owner: (!owner.tenant.is_empty()).then_some(owner),
        })
    }
}

fn text(place: &[u8], len: u8) -> Option<String> {
    let (text, rest) = place.split_at_checked(usize::from(len))?;
    let text = std::str::from_utf8(text).ok()?;
    rest.iter().all(|&byte| byte == 0).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use flashyard_time::Rng;

    use super::*;

    #[test]
    fn labels_come_back_as_they_were_and_nothing_else_is_one() {
        let owner = |tenant: &str| Owner {
            tenant: tenant.into(),
            nguid: [3; 16],
            eui64: Some([4; 8]),
            nsid: 7,
        };
        let longest = "n".repeat(MAX_NAME);
        for owner in [None, Some(owner("t")), Some(owner(&longest))] {
            let label = Label {
                name: longest.clone(),
                uuid: [2; 16],
                owner,
            };
            let bytes = label.encode();
            assert_eq!(Label::decode(&bytes), Some(label));
            let mut rng = Rng::new(1);
            for _ in 0..2000 {
                let mut other = bytes;
                other[rng.below(LABEL as u64) as usize] ^= 1 << rng.below(8);
                // Whatever it is now, it is written as it was read.
                let again = Label::decode(&other).map(|label| label.encode());
                assert!(again.is_none_or(|again| again == other || other[3] == 0));
            }
        }
    }
}
