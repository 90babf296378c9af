//! The envelopes of one key: one for each secret that opens it. There are two only while the secret
//! is changed: the target notes which secret it is between the change that adds the new one and
//! that which takes the old one away.

use flashyard_codec::cipher::Key;
use flashyard_keys::{ENVELOPE_BYTES, Envelope, KeyError, Secret};

use crate::superblock::{Reader, Writer};

/// Envelopes at most.
const MOST: usize = 2;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Envelopes(Vec<Envelope>);

impl Envelopes {
    /// `key`, which `secret` opens; `belongs_to` has to be given to open it. May take a second.
    pub fn seal(key: &Key, secret: &Secret, belongs_to: &[u8]) -> Result<Self, KeyError> {
        Ok(Self(vec![Envelope::seal(key, secret, belongs_to)?]))
    }

    /// The key, and which of the envelopes the secret has opened. May take a second.
    pub fn open(&self, secret: &Secret, belongs_to: &[u8]) -> Result<(Key, usize), KeyError> {
        let mut error = KeyError::WrongSecret;
        for (place, envelope) in self.0.iter().enumerate() {
            match envelope.open(secret, belongs_to) {
                Ok(key) => return Ok((key, place)),
                Err(KeyError::WrongSecret) => {}
                Err(other) => error = other,
            }
        }
        Err(error)
    }

    /// The one at `place`, and one that `secret` opens behind it. May take a second.
    pub fn with_secret(
        &self,
        key: &Key,
        place: usize,
        (secret, belongs_to): (&Secret, &[u8]),
    ) -> Result<Self, KeyError> {
        let mut both = self.only(place);
        both.0.push(Envelope::seal(key, secret, belongs_to)?);
        Ok(both)
    }

    /// The one at `place` alone.
    pub fn only(&self, place: usize) -> Self {
        Self(self.0.get(place).cloned().into_iter().collect())
    }

    /// How many secrets open the key.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Writes their number, in four bytes, and each of them.
    pub fn write(&self, fields: &mut Writer) {
        fields.count(self.0.len());
        for envelope in &self.0 {
            fields.bytes(&envelope.encode());
        }
    }

    /// Reads what [`Self::write`] has written.
    pub fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let count = fields.count(MOST)?;
        let envelope = |_| Envelope::decode(&fields.array::<ENVELOPE_BYTES>()?).ok();
        let all: Option<Vec<_>> = (0..count).map(envelope).collect();
        all.map(Self)
    }
}
