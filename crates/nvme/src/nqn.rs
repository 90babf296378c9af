//! NVMe Qualified Names (Base Specification, section 4.7): who a host or a subsystem is.

use core::fmt;
use core::hash::{Hash, Hasher};

/// A validated NQN, held inline.
///
/// It begins with `nqn.`, is UTF-8 of at most 223 bytes and has no control characters. For
/// `nqn.yyyy-mm.` names the date has to look like one; the `:uuid:` form is not looked into, for
/// hosts in the field write it in more than one way.
#[derive(Clone, Copy)]
pub struct Nqn {
    bytes: [u8; Nqn::MAX_LEN],
    len: u8,
}

/// Why a text is not an NQN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidNqn {
    /// Longer than 223 bytes, or no NUL within the field.
    TooLong,
    /// Does not begin with `nqn.`.
    NoPrefix,
    /// No `yyyy-mm.` and something after it behind the prefix.
    NoDate,
    /// Not UTF-8, or a control character in it.
    BadCharacter,
}

impl Nqn {
    /// The most bytes a name has, without the NUL that ends it on the wire.
    pub const MAX_LEN: usize = 223;

    /// Length of the field that holds a name on the wire.
    pub const FIELD_LEN: usize = 256;

    /// The well-known name of every discovery subsystem.
    pub const DISCOVERY: Self = Self::literal("nqn.2014-08.org.nvmexpress.discovery");

    /// Checks a text.
    ///
    /// # Errors
    /// [`InvalidNqn`] says which rule it breaks.
    pub fn new(name: &str) -> Result<Self, InvalidNqn> {
        if name.len() > Self::MAX_LEN {
            return Err(InvalidNqn::TooLong);
        }
        if name.chars().any(char::is_control) {
            return Err(InvalidNqn::BadCharacter);
        }
        let rest = name.strip_prefix("nqn.").ok_or(InvalidNqn::NoPrefix)?;
        if !starts_with_date(rest.as_bytes()) {
            return Err(InvalidNqn::NoDate);
        }
        Ok(Self::literal(name))
    }

    /// Checks a field of the wire: the name, a NUL, and zeroes (which are not looked at).
    ///
    /// # Errors
    /// [`InvalidNqn`] says which rule it breaks.
    pub fn from_field(field: &[u8]) -> Result<Self, InvalidNqn> {
        let within = &field[..field.len().min(Self::FIELD_LEN)];
        let end = within
            .iter()
            .position(|b| *b == 0)
            .ok_or(InvalidNqn::TooLong)?;
        let name = core::str::from_utf8(&within[..end]).map_err(|_| InvalidNqn::BadCharacter)?;
        Self::new(name)
    }

    /// The field of the wire: the name and zeroes up to 256 bytes.
    pub fn to_field(&self) -> [u8; Self::FIELD_LEN] {
        let mut field = [0; Self::FIELD_LEN];
        field[..Self::MAX_LEN].copy_from_slice(&self.bytes);
        field
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("checked when made")
    }

    /// Whether it is the well-known discovery name.
    pub fn is_discovery(&self) -> bool {
        *self == Self::DISCOVERY
    }

    const fn literal(name: &str) -> Self {
        assert!(name.len() <= Self::MAX_LEN, "an NQN has at most 223 bytes");
        let mut bytes = [0; Self::MAX_LEN];
        let mut i = 0;
        while i < name.len() {
            bytes[i] = name.as_bytes()[i];
            i += 1;
        }
        Self {
            bytes,
            len: name.len() as u8,
        }
    }
}

/// `yyyy-mm.` and at least one byte more.
fn starts_with_date(text: &[u8]) -> bool {
    let [y1, y2, y3, y4, b'-', m1, m2, b'.', _, ..] = text else {
        return false;
    };
    [y1, y2, y3, y4, m1, m2].into_iter().all(u8::is_ascii_digit)
}

impl PartialEq for Nqn {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Nqn {}

impl Hash for Nqn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Nqn {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Nqn {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl core::str::FromStr for Nqn {
    type Err = InvalidNqn;

    fn from_str(text: &str) -> Result<Self, InvalidNqn> {
        Self::new(text)
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for InvalidNqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "an NQN has at most 223 bytes",
            Self::NoPrefix => "an NQN begins with \"nqn.\"",
            Self::NoDate => {
                "after \"nqn.\" comes a date and a name, as in \"nqn.2026-11.org.example:name\""
            }
            Self::BadCharacter => "an NQN is UTF-8 without control characters",
        })
    }
}

impl core::error::Error for InvalidNqn {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn good_names_and_their_field() {
        for name in [
            "nqn.2014-08.org.nvmexpress.discovery",
            "nqn.2014-08.org.nvmexpress:uuid:12345678-1234-1234-1234-123456789abc",
            "nqn.2026-11.dev.flashyard:größe",
        ] {
            let nqn = Nqn::new(name).expect(name);
            assert_eq!(nqn.as_str(), name);
            assert_eq!(Nqn::from_field(&nqn.to_field()), Ok(nqn));
        }
        assert!(
            Nqn::new("nqn.2014-08.org.nvmexpress.discovery")
                .expect("good")
                .is_discovery()
        );
    }

    #[test]
    fn bad_names() {
        let long = |n: usize| {
            let mut s = String::from("nqn.2026-11.a");
            while s.len() < n {
                s.push('a');
            }
            s
        };
        assert!(Nqn::new(&long(223)).is_ok());
        assert_eq!(Nqn::new(&long(224)), Err(InvalidNqn::TooLong));
        assert_eq!(Nqn::new(""), Err(InvalidNqn::NoPrefix));
        assert_eq!(Nqn::new("iqn.2026-11.a"), Err(InvalidNqn::NoPrefix));
        assert_eq!(Nqn::new("nqn.2026-11."), Err(InvalidNqn::NoDate));
        assert_eq!(Nqn::new("nqn.20x6-11.a"), Err(InvalidNqn::NoDate));
        assert_eq!(Nqn::new("nqn.2026-11.a\nb"), Err(InvalidNqn::BadCharacter));
        assert_eq!(Nqn::from_field(&[b'n'; 256]), Err(InvalidNqn::TooLong));
        assert_eq!(
            Nqn::from_field(b"nqn.2026-11.\xff\0"),
            Err(InvalidNqn::BadCharacter)
        );
        assert_eq!(Nqn::from_field(&[]), Err(InvalidNqn::TooLong));
    }

    #[test]
    fn bytes_after_the_nul_do_not_matter() {
        let mut field = Nqn::DISCOVERY.to_field();
        field[255] = 0xff;
        assert_eq!(Nqn::from_field(&field), Ok(Nqn::DISCOVERY));
    }
}
