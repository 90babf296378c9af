//! The server's side of the API: connections, and what stands before them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::access::{Access, Peer};
use super::answer::Problem;
use super::route::router;
use super::serve::Serve;
use super::slots::Slots;
use crate::audit::Audit;
use crate::control::{ErrorKind, HasKind, Shows};

/// After a failed accept: until the next try.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long the rest of an answer may take on a connection that gives way to another, or when the
/// target ends.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// All who come by one way: those of one never keep those of another out.
pub(super) struct Listener {
    acceptor: Acceptor,
    /// Over TCP: who gets in.
    access: Option<Arc<Access>>,
    /// Ends when all have gone.
    closed: mpsc::Receiver<()>,
}

/// Takes connections in.
#[derive(Clone)]
struct Acceptor {
    router: Router,
    slots: Slots,
    /// A clone for each connection.
    open: mpsc::Sender<()>,
}

/// A connection that was accepted.
pub(super) enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr),
}

impl Listener {
    /// Answers by `serve`: everybody, or those whom `access` lets in.
    pub(super) fn new<T, E>(
        serve: &Arc<impl Serve<T, E>>,
        audit: &Arc<Audit>,
        access: Option<Arc<Access>>,
    ) -> Self
    where
        T: Shows,
        E: HasKind + 'static,
    {
        let (open, closed) = mpsc::channel(1);
        let slots = access.as_ref().map(|access| access.slots.clone());
        let acceptor = Acceptor {
            router: router(serve, audit),
            slots: slots.unwrap_or_default(),
            open,
        };
        Self {
            acceptor,
            access,
            closed,
        }
    }

    /// Serves all whom `accept` gives, without end.
    pub(super) async fn serve(&self, accept: impl AsyncFn() -> io::Result<Accepted>) {
        loop {
            match accept().await {
                Ok(accepted) => self.admit(accepted),
                // No file descriptors left: it would fail again at once.
                Err(_) => sleep(ACCEPT_RETRY).await,
            }
        }
    }

    fn admit(&self, accepted: Accepted) {
        match (accepted, &self.access) {
            (Accepted::Unix(stream), _) => {
                let uid = stream.peer_cred().map(|it| it.uid()).ok();
                self.acceptor.accept(stream, Peer::Owner(uid), || true);
            }
            (Accepted::Tcp(stream, address), Some(access)) => {
                let acceptor = self.acceptor.clone();
                acceptor.admit_remote(stream, address, Arc::clone(access));
            }
            // Nobody says who gets in.
            (Accepted::Tcp(..), None) => {}
        }
    }

    /// Closes all connections, those with a request at work when it is answered.
    pub(super) async fn end(mut self) {
        self.acceptor.slots.close();
        if let Some(access) = &self.access {
            access.handshakes.close();
        }
        drop(self.acceptor);
        // Nothing is sent: it ends when the last connection has gone.
        let _ = timeout(LAST_ANSWER, self.closed.recv()).await;
    }
}

impl Acceptor {
    /// Gives somebody a place, behind a handshake where there is TLS. Who has not done that gives
    /// way to others who come, and to nobody who has.
    fn admit_remote(self, stream: TcpStream, address: SocketAddr, access: Arc<Access>) {
        let current = access.current();
        if current.tls.is_none() {
            let peer = Peer::Remote {
                access,
                address,
                certificate: None,
            };
            // What it may is looked at with each request.
            return self.accept(stream, peer, || true);
        }
        // None of them has a request at work.
        let Some((place, given_up)) = access.handshakes.take() else {
            return;
        };
        tokio::spawn(async move {
            let Some(tls) = &current.tls else { return };
            let shaken = tokio::select! {
                shaken = tls.accept(stream) => shaken,
                _ = given_up => return,
            };
            drop(place);
            match shaken {
                Ok((stream, certificate)) => {
                    let peer = Peer::Remote {
                        access: Arc::clone(&access),
                        address,
                        certificate,
                    };
                    self.accept(stream, peer, || Arc::ptr_eq(&current, &access.current()));
                }
                Err(why) => access.note_failed(address, &why),
            }
        });
    }

    /// Serves a connection, unless the files that let it in were read anew meanwhile: it comes
    /// again. Its place is taken before that is looked at, so files that are read anew behind the
    /// look find it there and close it.
    fn accept(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        peer: Peer,
        is_current: impl FnOnce() -> bool,
    ) {
        match self.slots.take() {
            Some(_) if !is_current() => {}
            Some((slot, given_up)) => {
                let router = self.router.clone().layer(Extension(slot));
                let router = router.layer(Extension(Arc::new(peer)));
                let open = self.open.clone();
                tokio::spawn(async move {
                    converse(stream, router, given_up).await;
                    drop(open);
                });
            }
            None => drop(tokio::spawn(refuse(stream))),
        }
    }
}

/// One connection, until it ends or gives way to another.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    given_up: oneshot::Receiver<()>,
) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // A client that goes away in the middle gets no answer.
        _ = connection.as_mut() => return,
        _ = given_up => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_ANSWER, connection).await;
}

/// Tells one for whom there is no place.
async fn refuse(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let busy = || {
        let detail = "too many requests are at work: ask again in a moment".to_owned();
        async { Problem::new(ErrorKind::Unavailable, detail) }
    };
    let service = TowerToHyperService::new(Router::new().fallback(busy));
    let mut http = http1::Builder::new();
    let connection = http
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // Who does not hear it sees the end.
    let _ = timeout(LAST_ANSWER, connection).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::runtime::Builder;

    use super::*;

    /// How long a connection that has to end may take, where it does not.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// The files are read anew before or right behind the look at them: the connection ends, and
    /// one that comes later stays.
    #[test]
    fn who_was_let_in_by_older_files_comes_again() {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("there is one").block_on(async {
            let (open, _closed) = mpsc::channel(1);
            let acceptor = Acceptor {
                router: Router::new(),
                slots: Slots::default(),
                open,
            };
            for is_seen in [false, true] {
                let (mut client, server) = UnixStream::pair().expect("there are two");
                acceptor.accept(server, Peer::Owner(None), || {
                    acceptor.slots.renew();
                    is_seen
                });
                let end = timeout(PATIENCE, client.read(&mut [0])).await;
                assert_eq!(end.expect("it ends").expect("in good order"), 0);
            }
        });
    }
}
