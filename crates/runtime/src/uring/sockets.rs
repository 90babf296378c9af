//! Making, closing and naming sockets: slow-path calls outside of the ring.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use flashyard_time::Duration;

use crate::handle::{Connected, Handle, Owner, SocketId};

/// Connections the kernel completes before they are accepted.
const BACKLOG: libc::c_int = 1024;

impl SocketId {
    /// The file descriptor.
    pub(super) fn fd(self) -> RawFd {
        self.0.cast_signed()
    }
}

impl Handle<SocketId> {
    /// The socket behind `fd`.
    pub(super) fn socket(fd: OwnedFd) -> Self {
        Self {
            id: SocketId(fd.as_raw_fd().cast_unsigned()),
            owner: Owner::Socket(fd),
        }
    }
}

/// A listening socket.
pub(super) fn listen(addr: SocketAddr) -> io::Result<(Handle<SocketId>, SocketAddr)> {
    adopt(TcpListener::bind(addr)?)
}

/// A socket that listens already.
pub(super) fn adopt(listener: TcpListener) -> io::Result<(Handle<SocketId>, SocketAddr)> {
    // An accept at a socket that must not block ends at once where nobody waits for it.
    listener.set_nonblocking(false)?;
    let addr = listener.local_addr()?;
    // SAFETY: the call takes no pointers. Listening again only changes the backlog.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((Handle::socket(listener.into()), addr))
}

/// A socket for a connection to `addr`.
pub(super) fn for_connection_to(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    // SAFETY: the call takes no pointers.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel takes beyond what it may send: a peer that reads nothing pins so much, and not
/// the 4 MiB that a socket grows to. It bounds nothing of what is on its way to a peer that reads.
/// As much as is mostly sent in one call: half of it takes a tenth of the throughput over loopback,
/// more was no faster.
const UNSENT: libc::c_int = 512 << 10;

/// Prepares a connection that has been established; an error when it is gone again.
pub(super) fn established(fd: OwnedFd) -> io::Result<Connected> {
    let stream = TcpStream::from(fd);
    stream.set_nodelay(true)?;
    set(&stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &UNSENT)?;
    let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
    Ok(Connected {
        socket: Handle::socket(stream.into()),
        local,
        peer,
    })
}

/// Ends both directions. Fails only when the connection has ended already.
pub(super) fn shutdown(socket: SocketId) {
    // SAFETY: the call takes no pointers.
    unsafe { libc::shutdown(socket.fd(), libc::SHUT_RDWR) };
}

/// What has not been acknowledged when the socket is closed is forgotten then. Fails only as
/// [`shutdown`] does.
pub(super) fn forget_unsent(socket: SocketId) {
    let at_once = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let _ = set(&socket, libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
}

/// How long the peer may acknowledge or take nothing. Fails only as [`shutdown`] does.
pub(super) fn set_patience(socket: SocketId, span: Duration) {
    let ms = libc::c_uint::try_from(span.as_ms()).unwrap_or(libc::c_uint::MAX);
    let _ = set(&socket, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &ms);
}

impl AsRawFd for SocketId {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

fn set<T: Copy>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let (from, len) = (
        (&raw const *value).cast(),
        size_of::<T>() as libc::socklen_t,
    );
    // SAFETY: `from` points to `len` bytes that live through the call, which only reads them.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, from, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An address as the kernel wants it. Large enough for both families.
#[repr(C)]
pub(super) union KernelAddr {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl KernelAddr {
    /// The address and its length.
    pub(super) fn new(addr: SocketAddr) -> (Self, libc::socklen_t) {
        match addr {
            SocketAddr::V4(addr) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(addr.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                (
                    Self { v4 },
                    size_of::<libc::sockaddr_in>() as libc::socklen_t,
                )
            }
            SocketAddr::V6(addr) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: addr.ip().octets(),
                    },
                    sin6_scope_id: addr.scope_id(),
                };
                (
                    Self { v6 },
                    size_of::<libc::sockaddr_in6>() as libc::socklen_t,
                )
            }
        }
    }
}
