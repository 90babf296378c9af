//! TLS before the API over TCP, by the OpenSSL that the program has for keys anyway: what its files
//! say, and a handshake. Only TLS 1.3: what asks an API of today speaks it, and nothing of earlier
//! versions (renegotiation, a choice of ciphers) has to be thought of. No session is resumed, for
//! that would skip the look at a client's certificate.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode,
    SslVerifyMode, SslVersion, select_next_proto,
};
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::X509VerifyFlags;
use openssl::x509::{X509, X509NameRef, X509Ref};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::private::{PrivateError, read_private};
use crate::control::{ErrorKind, HasKind};
use crate::out;
use crate::printable::printable;

/// How long a handshake may take; in tests nothing ends for that reason alone.
const HANDSHAKE: Duration = Duration::from_secs(if cfg!(test) { 3600 } else { 10 });

/// Names of certificates are shown up to here.
const NAME_MOST: usize = 200;

/// What a client may ask to speak behind TLS; the length stands before it.
const HTTP: &[u8] = b"\x08http/1.1";

/// What the first byte of a TLS connection is.
const HANDSHAKE_RECORD: u8 = 22;

/// What somebody hears who does not speak TLS here.
const PLAIN: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n\
                     {\"status\":400,\"code\":\"invalid\",\"detail\":\"only TLS is spoken here: write https:// in the address\"}\n";

/// The files that TLS is made of.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate of the target, and those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs certificates of clients.
    pub client_ca: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug)]
pub enum TlsError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// Others may read the key.
    Open(PathBuf),
    /// There is no certificate in the file.
    NoCertificate(PathBuf),
    /// There is no key without a passphrase in the file.
    NoKey(PathBuf),
    /// The key is not that of the certificate.
    OtherKey { key: PathBuf, cert: PathBuf },
    /// OpenSSL does not take it, such as a key that is too short.
    Refused(PathBuf, ErrorStack),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Open(path) => write!(
                f,
                "others may read what is secret in {}: take that right away with `chmod 600`",
                path.display()
            ),
            Self::NoCertificate(path) => write!(
                f,
                "no certificate is in {}: give a file in PEM form, which has a line `BEGIN CERTIFICATE`",
                path.display()
            ),
            Self::NoKey(path) => write!(
                f,
                "no private key is in {}, or it wants a passphrase: give one in PEM form without, as \
                 `openssl pkey -in OLD -out NEW` writes it",
                path.display()
            ),
            Self::OtherKey { key, cert } => write!(
                f,
                "the key in {} is not that of the first certificate in {}: give the two that belong together",
                key.display(),
                cert.display()
            ),
            Self::Refused(path, error) => write!(
                f,
                "OpenSSL does not take {}: {error}; make another one",
                path.display()
            ),
        }
    }
}

impl TlsError {
    /// Of a file that only its owner may read.
    pub(super) fn private(path: &Path, why: PrivateError) -> Self {
        match why {
            PrivateError::Unreadable(error) => Self::Unreadable(path.to_owned(), error),
            PrivateError::Open => Self::Open(path.to_owned()),
        }
    }
}

impl HasKind for TlsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreadable(_, error) => ErrorKind::of_given(error),
            _ => ErrorKind::Invalid,
        }
    }
}

/// Whether a client has to have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// There is nothing else by which it could be known.
    Required,
    /// It may have a token instead.
    Optional,
}

/// What handshakes are done with.
pub(super) struct Tls {
    context: SslContext,
    /// Of clients, if any are looked at.
    verify: SslVerifyMode,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS")
    }
}

/// Whom a verified certificate is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    /// All of its subject, for people.
    pub(super) subject: String,
    /// The common name, if there is exactly one.
    pub(super) common_name: Option<String>,
    /// DNS names, URIs and mail addresses.
    pub(super) alternative_names: Vec<String>,
}

/// Why a handshake came to nothing.
pub(super) enum Failed {
    /// The client has gone without a word, as one does who looks whether somebody listens.
    Gone,
    /// It does not say enough in the time that it has.
    Silent,
    /// It does not speak TLS.
    Plain,
    /// Its certificate: whose it is, and why not.
    Certificate(String, &'static str),
    /// What OpenSSL says.
    Handshake(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it has gone"),
            Self::Silent => write!(f, "no TLS handshake within {} s", HANDSHAKE.as_secs()),
            Self::Plain => f.write_str("it does not speak TLS"),
            Self::Certificate(subject, why) => {
                write!(f, "its certificate ({subject}) is refused: {why}")
            }
            Self::Handshake(why) => write!(f, "the TLS handshake failed: {why}"),
        }
    }
}

impl Tls {
    /// Reads the files. A certificate that has expired is taken, and that is said: clients tell it
    /// better than a target that does not start.
    pub(super) fn read(files: &TlsFiles, wanted: Wanted) -> Result<Self, TlsError> {
        let chain = certificates(&files.cert)?;
        let key = private_key(&files.key)?;
        let refused = |path: &Path| {
            let path = path.to_owned();
            move |error| TlsError::Refused(path, error)
        };
        let mut context = context().map_err(refused(&files.cert))?;
        let (own, above) = chain
            .split_first()
            .ok_or_else(|| TlsError::NoCertificate(files.cert.clone()))?;
        let fits = own.public_key().is_ok_and(|public| public.public_eq(&key));
        if !fits {
            let (key, cert) = (files.key.clone(), files.cert.clone());
            return Err(TlsError::OtherKey { key, cert });
        }
        note_expiry(&files.cert, own);
        context.set_certificate(own).map_err(refused(&files.cert))?;
        for one in above {
            let added = context.add_extra_chain_cert(one.clone());
            added.map_err(refused(&files.cert))?;
        }
        context.set_private_key(&key).map_err(refused(&files.key))?;
        let mut verify = SslVerifyMode::NONE;
        if let Some(path) = &files.client_ca {
            let authorities = certificates(path)?;
            trust(&mut context, &authorities).map_err(refused(path))?;
            verify = SslVerifyMode::PEER;
            if wanted == Wanted::Required {
                verify |= SslVerifyMode::FAIL_IF_NO_PEER_CERT;
            }
        }
        Ok(Self {
            context: context.build(),
            verify,
        })
    }

    /// The handshake with somebody who has come, and whose certificate they have shown.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(SslStream<TcpStream>, Option<Certificate>), Failed> {
        let within = timeout(HANDSHAKE, self.shake_hands(stream)).await;
        within.unwrap_or(Err(Failed::Silent))
    }

    async fn shake_hands(
        &self,
        mut stream: TcpStream,
    ) -> Result<(SslStream<TcpStream>, Option<Certificate>), Failed> {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first[0] == HANDSHAKE_RECORD => {}
            Ok(1) => {
                // Unread, it would have the answer be lost with the connection. Who does not hear
                // it sees the end.
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(PLAIN.as_bytes()).await;
                let _ = stream.shutdown().await;
                return Err(Failed::Plain);
            }
            _ => return Err(Failed::Gone),
        }
        let refused = Arc::new(Mutex::new(None));
        let ssl = self.ssl(&refused);
        let failed = |error: ErrorStack| Failed::Handshake(error.to_string());
        let stream = ssl.and_then(|ssl| SslStream::new(ssl, stream));
        let mut stream = stream.map_err(failed)?;
        if let Err(error) = Pin::new(&mut stream).accept().await {
            let refused = refused
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            return Err(match refused {
                Some((subject, why)) => Failed::Certificate(subject, why),
                None => Failed::Handshake(reason(&error)),
            });
        }
        let certificate = stream.ssl().peer_certificate();
        let certificate = certificate.map(|found| Certificate::of(&found));
        Ok((stream, certificate))
    }

    /// For one connection; what is wrong with its client's certificate goes to `refused`.
    fn ssl(&self, refused: &Refused) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.context)?;
        if self.verify != SslVerifyMode::NONE {
            let refused = Arc::clone(refused);
            ssl.set_verify_callback(self.verify, move |is_good, chain| {
                if !is_good {
                    let subject = chain.current_cert().map(|one| subject(one.subject_name()));
                    let told = (subject.unwrap_or_default(), chain.error().error_string());
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
                }
                is_good
            });
        }
        Ok(ssl)
    }
}

/// Whose certificate was refused, and why.
type Refused = Arc<Mutex<Option<(String, &'static str)>>>;

impl Certificate {
    fn of(found: &X509Ref) -> Self {
        let mut common = found
            .subject_name()
            .entries_by_nid(openssl::nid::Nid::COMMONNAME);
        let only = common.next().filter(|_| common.next().is_none());
        let only = only.and_then(|name| name.data().to_string().ok());
        let names = found.subject_alt_names();
        let names = names.iter().flatten().filter_map(|name| {
            let text = name.dnsname().or(name.uri()).or(name.email());
            text.map(str::to_owned)
        });
        Self {
            subject: subject(found.subject_name()),
            common_name: only,
            alternative_names: names.collect(),
        }
    }
}

/// All parts of a name, such as `O=Acme, CN=backup`.
fn subject(name: &X509NameRef) -> String {
    let parts = name.entries().map(|entry| {
        let key = entry.object().nid().short_name().unwrap_or("?");
        let value = entry.data().to_string();
        format!("{key}={}", value.unwrap_or_default())
    });
    shown(&parts.collect::<Vec<_>>().join(", "))
}

/// Why a handshake failed, without the places in the source of the library.
pub(super) fn reason(error: &openssl::ssl::Error) -> String {
    let first = error.ssl_error().and_then(|all| all.errors().first());
    let reason = first.and_then(openssl::error::Error::reason);
    reason.map_or_else(|| shown(&error.to_string()), str::to_owned)
}

/// As much of what a stranger has written as a line of a log has room for.
pub(super) fn shown(text: &str) -> String {
    let short: String = text.chars().take(NAME_MOST).collect();
    printable(&short)
}

fn context() -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContextBuilder::new(SslMethod::tls_server())?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_options(SslOptions::NO_TICKET | SslOptions::NO_COMPRESSION);
    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_num_tickets(0)?;
    context.set_alpn_select_callback(|_, offered| {
        select_next_proto(HTTP, offered).ok_or(AlpnError::ALERT_FATAL)
    });
    Ok(context)
}

/// Takes clients that one of these has signed, and tells them so.
fn trust(context: &mut SslContextBuilder, authorities: &[X509]) -> Result<(), ErrorStack> {
    let mut names = Stack::new()?;
    for one in authorities {
        names.push(one.subject_name().to_owned()?)?;
    }
    context.set_client_ca_list(names);
    context.set_verify_cert_store(store(authorities)?)
}

/// Certificates that are trusted. One that another authority has signed is trusted by itself.
pub(super) fn store(authorities: &[X509]) -> Result<X509Store, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for one in authorities {
        store.add_cert(one.clone())?;
    }
    store.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    Ok(store.build())
}

/// The certificates in a file.
pub(super) fn certificates(path: &Path) -> Result<Vec<X509>, TlsError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| TlsError::Unreadable(path.to_owned(), error))?;
    let found = X509::stack_from_pem(&bytes).ok();
    let found = found.filter(|all| !all.is_empty());
    found.ok_or_else(|| TlsError::NoCertificate(path.to_owned()))
}

/// The key in a file that only its owner may read.
pub(super) fn private_key(path: &Path) -> Result<PKey<Private>, TlsError> {
    let bytes = read_private(path).map_err(|why| TlsError::private(path, why))?;
    // Without an answer of ours OpenSSL asks for a passphrase at the terminal.
    let key = PKey::private_key_from_pem_callback(&bytes, |_| Err(ErrorStack::get()));
    key.map_err(|_| TlsError::NoKey(path.to_owned()))
}

/// Says of a certificate that clients will not take it.
fn note_expiry(path: &Path, own: &X509Ref) {
    let Ok(now) = Asn1Time::days_from_now(0) else {
        return;
    };
    if own.not_after() < now {
        out::note(format_args!(
            "the certificate in {} has expired ({}), and clients refuse it: put a new one there, then send SIGHUP",
            path.display(),
            own.not_after()
        ));
    }
}
