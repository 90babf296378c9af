//! Verification of the header of an encrypted device, read-only and without its key.

use std::fmt;

use super::places::Start;
use super::{CryptError, Header};
use crate::superblock::{self, COPY_NAMES, CopyReport, Decoded, Repair};
use crate::{Device, Verdict};

/// What [`check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The two copies of the header.
    pub copies: [CopyReport; 2],
    /// Whether there is or was a header at all.
    pub is_there: bool,
    /// The header that counts.
    pub header: Option<Header>,
    /// What is repaired when the device is used again, one line each.
    pub repairs: Vec<String>,
    /// What is lost, or cannot be used, one line each.
    pub problems: Vec<String>,
}

impl Report {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.repairs, &self.problems)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, copy) in COPY_NAMES.iter().zip(&self.copies) {
            writeln!(f, "{name} copy: {}", copy.state)?;
        }
        if let Some(header) = &self.header {
            writeln!(f, "encrypted: {} bytes", header.bytes())?;
        }
        for repair in &self.repairs {
            writeln!(f, "to be put right: {repair}")?;
        }
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        self.verdict().fmt(f)
    }
}

/// Looks at both copies of the header on `device`. Whether a key opens it is not looked at.
///
/// Fails only when the device cannot be read at all.
pub async fn check(device: &dyn Device) -> Result<Report, CryptError> {
    let found = superblock::find::<Header, _>(&Start(device)).await?;
    let copies = found.copies.each_ref().map(CopyReport::from);
    let is_there = found.copies.iter().any(|copy| *copy != Decoded::Absent);
    let (mut repairs, mut problems) = (Vec::new(), Vec::new());
    let header = match found.newest() {
        Ok(newest) => {
            repairs.extend(superblock::repairs(&copies).into_iter().map(tell));
            let fits = newest.content.check_fits(&device.info());
            problems.extend(fits.err().map(|error| error.to_string()));
            Some(newest.content)
        }
        Err(error) => {
            problems.push(CryptError::from(error).to_string());
            None
        }
    };
    if header.as_ref().is_some_and(|header| header.secrets() > 1) {
        repairs.push(
            "a change of the key or passphrase was cut off; opening the device ends it".into(),
        );
    }
    Ok(Report {
        copies,
        is_there,
        header,
        repairs,
        problems,
    })
}

fn tell(repair: Repair<'_>) -> String {
    match repair {
        Repair::Rewrite(name, why) => format!(
            "the {name} copy is not usable: {why}; opening the device writes it anew from the other one"
        ),
        Repair::Older => {
            "one copy is older: a change was cut off; opening the device repairs it".into()
        }
    }
}
