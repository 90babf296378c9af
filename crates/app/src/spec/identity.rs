//! What volumes and subsystems are called towards hosts, where the administrator says so: to take
//! the place of another target's, unseen by its hosts. All of it is fixed at creation.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use flashyard_controller::subsystem::printable;
use flashyard_nvme::Nqn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::IdentityError;
use super::{Config, TenantSpec, VolumeSpec};

/// Bytes in hexadecimal digits, as `nvme id-ns` shows them; `-`, `:` and spaces between them are
/// passed over.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct Hex<const LEN: usize>(pub [u8; LEN]);

/// Namespace Globally Unique Identifier.
pub type Nguid = Hex<16>;

/// IEEE Extended Unique Identifier.
pub type Eui64 = Hex<8>;

impl<const LEN: usize> FromStr for Hex<LEN> {
    type Err = IdentityError;
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::Hex(text.to_owned(), LEN);
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let mut values = Vec::new();
        for digit in digits.chars().filter(|c| !"-: ".contains(*c)) {
            values.push(digit.to_digit(16).ok_or_else(wrong)? as u8);
        }
        let bytes: Vec<u8> = values
            .chunks(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect();
        match <[u8; LEN]>::try_from(bytes) {
            Ok(bytes) if values.len() == 2 * LEN && bytes != [0; LEN] => Ok(Self(bytes)),
            _ => Err(wrong()),
        }
    }
}

impl<const LEN: usize> TryFrom<String> for Hex<LEN> {
    type Error = IdentityError;
    fn try_from(text: String) -> Result<Self, IdentityError> {
        text.parse()
    }
}

impl<const LEN: usize> fmt::Display for Hex<LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const LEN: usize> From<Hex<LEN>> for String {
    fn from(bytes: Hex<LEN>) -> Self {
        bytes.to_string()
    }
}

impl TenantSpec {
    /// Checks what its subsystem is to be called.
    pub(super) fn check_identity(&self) -> Result<(), IdentityError> {
        let name = || self.name.clone();
        if let Some(nqn) = &self.nqn
            && !Nqn::new(nqn).is_ok_and(|nqn| !nqn.is_discovery())
        {
            return Err(IdentityError::Nqn(name(), nqn.clone()));
        }
        if let Some(serial) = &self.serial
            && printable::<20>(serial).is_none()
        {
            return Err(IdentityError::Serial(name(), serial.clone()));
        }
        if let Some(model) = &self.model
            && printable::<40>(model).is_none()
        {
            return Err(IdentityError::Model(name(), model.clone()));
        }
        Ok(())
    }
}

impl VolumeSpec {
    /// Checks its number.
    pub(super) fn check_identity(&self) -> Result<(), IdentityError> {
        match self.nsid {
            Some(0) => Err(IdentityError::Nsid(self.name.clone())),
            _ => Ok(()),
        }
    }
}

impl Config {
    /// Checks that nothing that hosts know things by is given twice.
    pub(super) fn check_identities(&self) -> Result<(), IdentityError> {
        let tenants = self.tenants.iter();
        once("nqn", tenants.map(|spec| (spec.nqn.as_ref(), &spec.name)))?;
        let volumes = || self.volumes.iter();
        once("uuid", volumes().map(|spec| (spec.uuid, &spec.name)))?;
        once("nguid", volumes().map(|spec| (spec.nguid, &spec.name)))?;
        once("eui64", volumes().map(|spec| (spec.eui64, &spec.name)))?;
        let number =
            |spec: &VolumeSpec| Some(format!("{} of tenant `{}`", spec.nsid?, spec.tenant));
        once("nsid", volumes().map(|spec| (number(spec), &spec.name)))?;
        let functions = self.functions.iter();
        once(
            "socket",
            functions.map(|spec| (spec.socket.as_ref(), &spec.name)),
        )
    }
}

/// Of values with the names of those who have them.
fn once<'a, T: Ord + fmt::Display>(
    key: &'static str,
    values: impl Iterator<Item = (Option<T>, &'a String)>,
) -> Result<(), IdentityError> {
    let mut seen = BTreeSet::new();
    for (value, name) in values.filter_map(|(value, name)| Some((value?, name))) {
        if seen.contains(&value) {
            return Err(IdentityError::Twice(key, value.to_string(), name.clone()));
        }
        seen.insert(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{CALIBRATION_UUID, NamespaceUuid};

    #[test]
    fn identifiers_are_read_as_tools_write_them() {
        let eui = Hex([0, 0x25, 0x38, 0x5b, 0x71, 0xb0, 0xc2, 0xa1]);
        for text in [
            "0025385b71b0c2a1",
            "0x0025385B71B0C2A1",
            "00 25 38 5b 71 b0 c2 a1",
        ] {
            assert_eq!(text.parse(), Ok(eui), "{text}");
        }
        assert_eq!(eui.to_string(), "0025385b71b0c2a1");
        let nguid: Nguid = "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11"
            .parse()
            .expect("good");
        assert_eq!(nguid.to_string(), "2f0d1c4652c54b0f9a1c0d3a5f2b7e11");
        let uuid: NamespaceUuid = "2F0D1C4652C54B0F9A1C0D3A5F2B7E11".parse().expect("good");
        assert_eq!(uuid.to_string(), "2f0d1c46-52c5-4b0f-9a1c-0d3a5f2b7e11");
        for wrong in [
            "",
            "0",
            "0000000000000000",
            "0025385b71b0c2a",
            "0025385b71b0c2a1a",
            "é",
        ] {
            assert!(wrong.parse::<Eui64>().is_err(), "{wrong}");
        }
        for wrong in ["", "00000000-0000-0000-0000-000000000000", "orders"] {
            assert!(wrong.parse::<NamespaceUuid>().is_err(), "{wrong}");
        }
        assert_eq!(
            CALIBRATION_UUID.to_string().parse::<NamespaceUuid>(),
            Err(IdentityError::ReservedUuid(CALIBRATION_UUID))
        );
    }
}
