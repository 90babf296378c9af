//! What every envelope has to keep to, for tests and for libFuzzer.

use flashyard_keys::{ENVELOPE_BYTES, Envelope, Secret, SecretKind};

/// Any bytes are an envelope or not; one is written as it was read. Opening it does not panic.
pub fn envelope(bytes: &[u8]) {
    let Ok(envelope) = Envelope::decode(bytes) else {
        return;
    };
    assert_eq!(envelope.encode()[..], bytes[..ENVELOPE_BYTES]);
    // Argon2 would take seconds; the cost it is asked for was checked.
    if envelope.kind() == SecretKind::Key {
        let secret = Secret::new(SecretKind::Key, vec![7; 32]);
        let _ = envelope.open(&secret, b"a device");
    }
}
