//! Where the command line asks a target: at the socket in its state directory, or from elsewhere
//! over TLS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderValue;
use openssl::error::ErrorStack;
use openssl::ssl::{SslConnector, SslMethod, SslVersion};
use openssl::x509::X509VerifyResult;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_openssl::SslStream;

use super::client::AskError;
use super::private::read_private_text;
use super::tls::{TlsError, certificates, private_key, reason, store};
use crate::control::{ErrorKind, HasKind};

/// How long a connection to a target elsewhere may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Who has said nothing for so long is asked whether they are there.
const SILENCE: Duration = Duration::from_secs(15);

/// Where HTTPS is spoken when nobody says.
const PORT: u16 = 443;

/// Where a target is asked.
#[derive(Clone, Debug)]
pub enum Place {
    /// This is its state directory.
    State(PathBuf),
    /// It listens over TCP.
    Remote(Remote),
}

/// A target that is asked over TLS.
#[derive(Clone)]
pub struct Remote {
    host: String,
    port: u16,
    /// Both, as they were given.
    at: String,
    token: Option<HeaderValue>,
    connector: SslConnector,
    /// How long a connection may take to come about.
    patience: Duration,
}

/// What it holds is not for logs.
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at)
    }
}

/// What a client of such a target has.
#[derive(Clone, Debug, Default)]
pub struct RemoteFiles {
    /// Who has signed the certificate of the target; without it, those whom the system trusts.
    pub ca: Option<PathBuf>,
    /// A token.
    pub token: Option<PathBuf>,
    /// A certificate and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Why a target cannot be asked so.
#[derive(Debug)]
pub enum PlaceError {
    /// No address of one.
    Url(String),
    /// No token in the file.
    Token(PathBuf),
    /// A file for TLS.
    Tls(TlsError),
    /// What OpenSSL says.
    Library(ErrorStack),
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(text) => write!(
                f,
                "`{text}` is no address of a target: write it like https://storage.example:4421"
            ),
            Self::Token(path) => write!(
                f,
                "no token is in {}: write it there, and nothing else",
                path.display()
            ),
            Self::Tls(error) => error.fmt(f),
            Self::Library(error) => write!(f, "OpenSSL does not begin: {error}"),
        }
    }
}

impl HasKind for PlaceError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Url(_) | Self::Token(_) => ErrorKind::Invalid,
            Self::Tls(error) => error.kind(),
            Self::Library(_) => ErrorKind::Internal,
        }
    }
}

impl From<ErrorStack> for PlaceError {
    fn from(error: ErrorStack) -> Self {
        Self::Library(error)
    }
}

impl Remote {
    /// The target at an address such as `https://storage.example:4421`.
    pub fn new(url: &str, files: &RemoteFiles) -> Result<Self, PlaceError> {
        let no_address = || PlaceError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| no_address())?;
        let is_whole = uri.scheme_str() == Some("https") && ["", "/"].contains(&uri.path());
        let host = uri.host().filter(|_| is_whole && uri.query().is_none());
        let host = host.ok_or_else(no_address)?;
        let port = uri.port_u16().unwrap_or(PORT);
        // An address of IPv6 is between brackets there.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let token = files.token.as_deref().map(read_token).transpose()?;
        Ok(Self {
            host: bare.to_owned(),
            port,
            at: format!("{host}:{port}"),
            token,
            connector: connector(files)?,
            patience: CONNECT,
        })
    }

    pub(super) fn at(&self) -> &str {
        &self.at
    }

    pub(super) fn token(&self) -> Option<&HeaderValue> {
        self.token.as_ref()
    }

    /// The same, which waits so long for a connection.
    #[cfg(test)]
    pub(super) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// A connection whose other end is who its certificate says.
    pub(super) async fn connect(&self) -> Result<SslStream<TcpStream>, AskError> {
        let late = |_| AskError::Unreachable(self.at.clone(), io::ErrorKind::TimedOut.into());
        timeout(self.patience, self.shake_hands())
            .await
            .map_err(late)?
    }

    async fn shake_hands(&self) -> Result<SslStream<TcpStream>, AskError> {
        let stream = TcpStream::connect((&*self.host, self.port)).await;
        let unreachable = |error| AskError::Unreachable(self.at.clone(), error);
        let stream = stream.map_err(unreachable)?;
        notice_death(&stream).map_err(unreachable)?;
        let failed = |why: String| AskError::Tls(self.at.clone(), why);
        let ssl = self.connector.configure();
        let ssl = ssl.and_then(|it| it.into_ssl(&self.host));
        let stream = ssl.and_then(|ssl| SslStream::new(ssl, stream));
        let mut stream = stream.map_err(|error| failed(error.to_string()))?;
        if let Err(error) = Pin::new(&mut stream).connect().await {
            let verified = stream.ssl().verify_result();
            return Err(failed(match verified == X509VerifyResult::OK {
                true => reason(&error),
                false => format!("its certificate is refused: {}", verified.error_string()),
            }));
        }
        Ok(stream)
    }
}

/// An answer may take long (`device calibrate`), so it is not the answer that has a limit: a target
/// whose machine or network has gone is noticed within a minute.
fn notice_death(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    let longest = SILENCE.as_millis() as u32 * 4;
    Ok(sockopt::set_tcp_user_timeout(stream, longest)?)
}

fn connector(files: &RemoteFiles) -> Result<SslConnector, PlaceError> {
    let mut connector = SslConnector::builder(SslMethod::tls_client())?;
    connector.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    if let Some(path) = &files.ca {
        let trusted = certificates(path).map_err(PlaceError::Tls)?;
        connector.set_cert_store(store(&trusted)?);
    }
    if let Some((certificate, key)) = &files.own {
        let chain = certificates(certificate).map_err(PlaceError::Tls)?;
        let key_file = key;
        let key = private_key(key_file).map_err(PlaceError::Tls)?;
        let fits = |public: &openssl::pkey::PKey<_>| public.public_eq(&key);
        let (own, above) = chain.split_at(1);
        if !own[0].public_key().as_ref().is_ok_and(fits) {
            let (key, cert) = (key_file.clone(), certificate.clone());
            return Err(PlaceError::Tls(TlsError::OtherKey { key, cert }));
        }
        connector.set_certificate(&own[0])?;
        for one in above {
            connector.add_extra_chain_cert(one.clone())?;
        }
        connector.set_private_key(&key)?;
    }
    Ok(connector.build())
}

/// The only word in a file that nobody else may read.
fn read_token(path: &Path) -> Result<HeaderValue, PlaceError> {
    let text = read_private_text(path).map_err(|why| TlsError::private(path, why));
    let text = text.map_err(PlaceError::Tls)?;
    let text = text.trim();
    let is_one = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let value = HeaderValue::try_from(format!("Bearer {text}"));
    match value {
        Ok(mut value) if is_one => {
            value.set_sensitive(true);
            Ok(value)
        }
        _ => Err(PlaceError::Token(path.to_owned())),
    }
}
