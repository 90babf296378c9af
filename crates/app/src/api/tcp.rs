//! Where the API listens over TCP, for those who have a token or a certificate.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use super::access::{Access, AccessFiles, TcpError};
use crate::listening::{Listening, Purpose};

/// Where the API listens as well, for those who have a token or a certificate.
#[derive(Debug)]
pub struct Tcp {
    pub(super) listener: TcpListener,
    pub(super) access: Arc<Access>,
}

/// Reads anew who gets in, while the API listens.
#[derive(Clone, Debug)]
pub struct Renewal(Arc<Access>);

impl Tcp {
    /// Listens on an address, a loopback one if nothing is encrypted, for whom the files let in.
    pub fn open(
        address: SocketAddr,
        files: AccessFiles,
        listening: &Listening,
    ) -> Result<Self, TcpError> {
        let access = Arc::new(Self::access(address, files)?);
        let refused = |error| TcpError::Refused(address, error);
        let listener = listening.open(Purpose::Api, address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self { listener, access })
    }

    /// Whether the address and the files may be used.
    pub fn check(address: SocketAddr, files: AccessFiles) -> Result<(), TcpError> {
        Self::access(address, files).map(drop)
    }

    fn access(address: SocketAddr, files: AccessFiles) -> Result<Access, TcpError> {
        if files.tls.is_none() && !address.ip().is_loopback() {
            return Err(TcpError::NotLoopback(address));
        }
        Access::read(files)
    }

    /// Where it listens, with its real port.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What reads the files anew.
    pub fn renewal(&self) -> Renewal {
        Renewal(Arc::clone(&self.access))
    }

    /// How an address begins that leads to it.
    pub fn scheme(&self) -> &'static str {
        match self.access.is_encrypted() {
            true => "https",
            false => "http",
        }
    }
}

impl Renewal {
    /// Reads all files, or leaves all as it was.
    pub fn renew(&self) -> Result<(), TcpError> {
        self.0.renew()
    }
}
