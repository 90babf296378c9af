//! Certificates for tests, made anew by each.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::asn1::{Asn1Integer, Asn1Time};
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Name};

/// A certificate with its key.
pub(crate) struct Pair {
    pub(crate) certificate: X509,
    pub(crate) key: PKey<Private>,
}

/// What a certificate is to be for.
#[derive(Clone, Copy)]
pub(crate) enum For {
    Authority,
    Server,
    Client,
}

/// What a certificate is to be.
pub(crate) struct Wish<'a> {
    pub(crate) name: &'a str,
    pub(crate) purpose: For,
    /// From this day on, and until that one, counted from today.
    pub(crate) days: (i64, i64),
}

impl Pair {
    /// An authority of this name.
    pub(crate) fn authority(name: &str) -> Self {
        let wish = Wish {
            name,
            purpose: For::Authority,
            days: (-1, 30),
        };
        Self::make(&wish, None)
    }

    /// One that it has signed, and that is good today.
    pub(crate) fn signed(&self, name: &str, purpose: For) -> Self {
        let days = (-1, 30);
        self.sign(&Wish {
            name,
            purpose,
            days,
        })
    }

    /// Any that it has signed.
    pub(crate) fn sign(&self, wish: &Wish<'_>) -> Self {
        Self::make(wish, Some(self))
    }

    fn make(wish: &Wish<'_>, by: Option<&Self>) -> Self {
        let expected = "the library makes certificates";
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).expect(expected);
        let key = EcKey::generate(&group).and_then(PKey::from_ec_key);
        let key = key.expect(expected);
        let mut name = X509Name::builder().expect(expected);
        name.append_entry_by_nid(Nid::COMMONNAME, wish.name)
            .expect(expected);
        let name = name.build();
        let mut number = BigNum::new().expect(expected);
        number
            .rand(100, MsbOption::MAYBE_ZERO, false)
            .expect(expected);
        let number = Asn1Integer::from_bn(&number).expect(expected);
        let issuer = by.map_or(&*name, |by| by.certificate.subject_name());
        let mut made = X509::builder().expect(expected);
        made.set_version(2).expect(expected);
        made.set_serial_number(&number).expect(expected);
        made.set_subject_name(&name).expect(expected);
        made.set_issuer_name(issuer).expect(expected);
        made.set_pubkey(&key).expect(expected);
        made.set_not_before(&day(wish.days.0)).expect(expected);
        made.set_not_after(&day(wish.days.1)).expect(expected);
        let extension = match wish.purpose {
            For::Authority => BasicConstraints::new().critical().ca().build(),
            For::Server => ExtendedKeyUsage::new().server_auth().build(),
            For::Client => ExtendedKeyUsage::new().client_auth().build(),
        };
        made.append_extension(extension.expect(expected))
            .expect(expected);
        if !matches!(wish.purpose, For::Authority) {
            let names = SubjectAlternativeName::new()
                .dns("localhost")
                .ip("127.0.0.1")
                .dns(&format!("{}.example", wish.name))
                .build(&made.x509v3_context(by.map(|by| &*by.certificate), None));
            made.append_extension(names.expect(expected))
                .expect(expected);
        }
        let signer = by.map_or(&key, |by| &by.key);
        made.sign(signer, MessageDigest::sha256()).expect(expected);
        Self {
            certificate: made.build(),
            key,
        }
    }

    /// Writes `NAME.crt` and `NAME.key`, and gives their paths.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> (PathBuf, PathBuf) {
        let certificate = directory.join(format!("{name}.crt"));
        let pem = self.certificate.to_pem().expect("it has a form");
        fs::write(&certificate, pem).expect("it is ours");
        let key = directory.join(format!("{name}.key"));
        let pem = self.key.private_key_to_pem_pkcs8().expect("it has a form");
        fs::write(&key, pem).expect("it is ours");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
        (certificate, key)
    }
}

fn day(from_today: i64) -> Asn1Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("the clock is set").as_secs();
    let then = i64::try_from(now).expect("it is long until then") + from_today * 86_400;
    Asn1Time::from_unix(then).expect("it is a time")
}
