//! Who gets in over TCP: the files of tokens and of TLS as they were read last, the same for all
//! connections. They are read anew as one; if one of them cannot be used, all stays as it was.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, Method, header};

use super::operations::Operation;
use super::serve::SOCKET;
use super::slots::Slots;
use super::tls::{Certificate, Failed, Tls, TlsError, TlsFiles, Wanted};
use super::tokens::{Denied, Tokens, TokensError, Who};
use crate::control::{ErrorKind, HasKind, Means};
use crate::log::Bounded;
use crate::out;

/// The files that say who gets in.
#[derive(Clone, Debug)]
pub struct AccessFiles {
    /// Tokens, and names of certificates, with their roles.
    pub tokens: PathBuf,
    /// Without them nothing is encrypted.
    pub tls: Option<TlsFiles>,
}

/// Why the API does not listen there.
#[derive(Debug)]
pub enum TcpError {
    /// What is sent there could be read on the way.
    NotLoopback(SocketAddr),
    /// The system refuses it.
    Refused(SocketAddr, io::Error),
    /// There are no tokens.
    Tokens(TokensError),
    /// There is no TLS.
    Tls(TlsError),
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback(address) => write!(
                f,
                "without TLS the API listens on loopback addresses only, since tokens and answers could be read on the way: \
                 give --api-cert and --api-key as well, or 127.0.0.1:{}",
                address.port()
            ),
            Self::Refused(address, error) => {
                write!(
                    f,
                    "the API cannot listen on {address}: {error}; choose another port"
                )
            }
            Self::Tokens(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl HasKind for TcpError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotLoopback(_) => ErrorKind::Invalid,
            Self::Refused(_, error) => ErrorKind::of_given(error),
            Self::Tokens(error) => error.kind(),
            Self::Tls(error) => error.kind(),
        }
    }
}

/// What is in them, and who is connected because of it.
#[derive(Debug)]
pub(super) struct Access {
    files: AccessFiles,
    current: Mutex<Arc<Current>>,
    /// Handshakes, and connections behind them.
    pub(super) handshakes: Slots,
    pub(super) slots: Slots,
    failed: Mutex<Bounded>,
}

#[derive(Debug)]
pub(super) struct Current {
    tokens: Tokens,
    pub(super) tls: Option<Tls>,
}

impl Access {
    /// Reads the files.
    pub(super) fn read(files: AccessFiles) -> Result<Self, TcpError> {
        let current = Current::read(&files)?;
        Ok(Self {
            files,
            current: Mutex::new(Arc::new(current)),
            handshakes: Slots::default(),
            slots: Slots::default(),
            failed: Mutex::default(),
        })
    }

    /// Reads them anew. Whoever is connected has to come again, since a certificate is looked at
    /// then; who has a request at work does so behind it.
    pub(super) fn renew(&self) -> Result<(), TcpError> {
        let current = Current::read(&self.files)?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        self.handshakes.renew();
        self.slots.renew();
        Ok(())
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.files.tls.is_some()
    }

    pub(super) fn current(&self) -> Arc<Current> {
        let current = self.current.lock();
        Arc::clone(&current.unwrap_or_else(PoisonError::into_inner))
    }

    /// Says why somebody was refused before they could ask, but not of all of many.
    pub(super) fn note_failed(&self, peer: SocketAddr, why: &Failed) {
        if matches!(why, Failed::Gone) {
            return;
        }
        let failed = self.failed.lock();
        let (is_said, left_out) = failed
            .unwrap_or_else(PoisonError::into_inner)
            .admit(Instant::now());
        if left_out > 0 {
            out::note(format_args!(
                "the API has refused {left_out} connections more than are logged"
            ));
        }
        if is_said {
            out::note(format_args!("the API refuses {peer}: {why}"));
        }
    }
}

impl Current {
    fn read(files: &AccessFiles) -> Result<Self, TcpError> {
        let with_certificates = files
            .tls
            .as_ref()
            .is_some_and(|files| files.client_ca.is_some());
        let tokens = Tokens::read(&files.tokens, with_certificates).map_err(TcpError::Tokens)?;
        let wanted = match tokens.is_without_tokens() {
            true => Wanted::Required,
            false => Wanted::Optional,
        };
        let tls = files.tls.as_ref().map(|files| Tls::read(files, wanted));
        let tls = tls.transpose().map_err(TcpError::Tls)?;
        Ok(Self { tokens, tls })
    }
}

/// Whoever is at the other end of a connection.
#[derive(Debug)]
pub(super) enum Peer {
    /// Somebody who may open the socket in the state directory, and who that is.
    Owner(Option<u32>),
    /// Somebody elsewhere, with the certificate that they have shown.
    Remote {
        access: Arc<Access>,
        address: SocketAddr,
        certificate: Option<Certificate>,
    },
}

/// Who asks for something.
pub(super) struct Caller {
    pub(super) who: Who,
    pub(super) uid: Option<u32>,
    pub(super) from: String,
}

impl Peer {
    /// Who asks an operation, and whether they may.
    pub(super) fn ask(
        &self,
        operation: &Operation,
        headers: &HeaderMap,
    ) -> (Caller, Result<(), Denied>) {
        let (who, uid, from, may) = match self {
            Self::Owner(uid) => {
                let who = Who {
                    by: Means::Socket,
                    name: String::new(),
                };
                (who, *uid, SOCKET.to_owned(), Ok(()))
            }
            Self::Remote {
                access,
                address,
                certificate,
            } => {
                let current = access.current();
                let (who, may) = current
                    .tokens
                    .check(operation, headers, certificate.as_ref());
                (who, None, address.to_string(), may)
            }
        };
        let may = may.and_then(|()| of_own_page(operation, headers));
        (Caller { who, uid, from }, may)
    }
}

/// Refuses a change that a page of somebody else has a browser ask. The browser shows the client
/// certificate of its user there, and its connection may lead to the socket through a proxy.
/// Programs send none of these headers.
fn of_own_page(operation: &Operation, headers: &HeaderMap) -> Result<(), Denied> {
    if [Method::GET, Method::HEAD].contains(&operation.method) {
        return Ok(());
    }
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let is_own = |origin: &HeaderValue| {
        let authority = authority(origin.as_bytes());
        authority.is_some_and(|it| host.is_some_and(|host| it.eq_ignore_ascii_case(host)))
    };
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let mut sites = headers.get_all("sec-fetch-site").iter();
    match origins.all(is_own) && sites.all(|site| *site == "same-origin" || *site == "none") {
        true => Ok(()),
        false => Err(Denied::OtherOrigin),
    }
}

/// Host and port of an origin such as `https://localhost:4421`.
fn authority(origin: &[u8]) -> Option<&[u8]> {
    let rest = ["http://", "https://"].map(|scheme| origin.strip_prefix(scheme.as_bytes()));
    rest.into_iter().flatten().next()
}
