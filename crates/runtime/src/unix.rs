//! Unix sockets whose messages bring file descriptors, and event counters. Simulated machines have
//! them within their thread: see `descriptor`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use flashyard_time::Duration;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, accept_with, recvmsg, sendmsg,
    shutdown,
};

use crate::Rt;
use crate::descriptor::Descriptor;
use crate::done::something_done;
use crate::flight::Flight;
pub use crate::remains::Descriptors;
use crate::remains::Remains;

/// Descriptors that one message brings at most (`SCM_MAX_FD`): there is room for all of them, since
/// the system would close those beyond it at once.
pub const MOST_DESCRIPTORS: usize = 253;

/// How long nothing is taken from a peer of which too much is left to be closed.
const REST: Duration = Duration::from_ms(100);

/// A listening unix socket. Its file is the affair of whoever has bound it.
pub struct UnixListener {
    rt: Rt,
    descriptor: Descriptor,
    /// Of all its clients.
    remains: Remains,
}

impl UnixListener {
    /// Takes over a socket that listens.
    ///
    /// # Errors
    /// The system's.
    pub fn new(rt: &Rt, listener: net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let remains = Remains::default();
        Ok(Self {
            rt: rt.clone(),
            descriptor: Descriptor::leaving(&rt.core, listener.into(), &remains),
            remains,
        })
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The system's; there may be no descriptors left.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        while self.remains.are_too_many() {
            self.rt.sleep(REST).await;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |fd: BorrowedFd<'_>| Ok(accept_with(fd, flags)?);
        let stream = self.descriptor.when_ready(false, accept).await?;
        Ok(UnixStream::leaving(&self.rt, stream, self.remains.clone()))
    }
}

/// One connection.
pub struct UnixStream {
    rt: Rt,
    descriptor: Descriptor,
    remains: Remains,
}

impl UnixStream {
    /// Takes over a connection.
    ///
    /// # Errors
    /// The system's.
    pub fn new(rt: &Rt, stream: net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::leaving(rt, stream.into(), Remains::default()))
    }

    fn leaving(rt: &Rt, stream: OwnedFd, remains: Remains) -> Self {
        Self {
            rt: rt.clone(),
            descriptor: Descriptor::leaving(&rt.core, stream, &remains),
            remains,
        }
    }

    /// Connects to a listening socket.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(rt: &Rt, path: &Path) -> io::Result<Self> {
        let stream = net::UnixStream::connect(path)?;
        something_done();
        Self::new(rt, stream)
    }

    /// Receives some bytes and the descriptors beside them; 0 bytes at the end of the stream.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn recv(&self, to: &mut [u8]) -> io::Result<(usize, Descriptors)> {
        while self.remains.are_too_many() {
            self.rt.sleep(REST).await;
        }
        let receive = |fd: BorrowedFd<'_>| receive(fd, to, &self.remains);
        self.descriptor.when_ready(false, receive).await
    }

    /// Fills `to`; descriptors that come with its first byte are given. `None` if the stream ended
    /// before its first byte.
    ///
    /// # Errors
    /// The connection is broken, it ended within, or descriptors came later than the first byte.
    pub async fn recv_exact(&self, to: &mut [u8]) -> io::Result<Option<Descriptors>> {
        let (mut at, descriptors) = self.recv(to).await?;
        if at == 0 && !to.is_empty() {
            return Ok(None);
        }
        while at < to.len() {
            let (more, late) = self.recv(&mut to[at..]).await?;
            if more == 0 || !late.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            at += more;
        }
        Ok(Some(descriptors))
    }

    /// Sends all of `bytes`, with `descriptors` beside the first of them.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let beside = if sent == 0 { descriptors } else { &[] };
            let rest = &bytes[sent..];
            let send = |fd: BorrowedFd<'_>| send(fd, rest, beside);
            sent += self.descriptor.when_ready(true, send).await?;
        }
        Ok(())
    }
}

impl Drop for UnixStream {
    /// The peer hears of the end now, whatever has to be closed before the socket is.
    fn drop(&mut self) {
        // One that the peer has ended already is no failure.
        let _ = shutdown(&self.descriptor, Shutdown::Both);
        something_done();
    }
}

fn receive(
    fd: BorrowedFd<'_>,
    to: &mut [u8],
    remains: &Remains,
) -> io::Result<(usize, Descriptors)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(fd, &mut [IoSliceMut::new(to)], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(given) = message {
            fds.extend(given);
        }
    }
    Ok((received.bytes, Descriptors::new(fds, remains)))
}

fn send(fd: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fits =
        descriptors.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    if !fits {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(fd, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Signals of one counter that are in flight at most. A counter that takes no more has a reader
/// that does not read; what is in flight wakes it when it does.
const SIGNALS: usize = 4;

/// An event counter (`eventfd`) of another process, or of this one.
pub struct EventCounter {
    descriptor: Descriptor,
    signals: RefCell<VecDeque<Flight>>,
}

impl EventCounter {
    /// A counter of its own.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new(rt: &Rt) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self::of(rt, eventfd(0, flags)?)
    }

    /// Takes over the counter behind a descriptor. It is made not to block, for all who have it.
    /// Where its owner undoes that, the kernel waits in our place.
    ///
    /// # Errors
    /// The descriptor is none of a counter.
    pub fn of(rt: &Rt, fd: OwnedFd) -> io::Result<Self> {
        if !Self::is_one(&fd)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self {
            descriptor: Descriptor::new(&rt.core, fd),
            signals: RefCell::default(),
        })
    }

    /// Whether a descriptor is that of a counter.
    ///
    /// # Errors
    /// The system's.
    pub fn is_one(fd: &OwnedFd) -> io::Result<bool> {
        let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        // Whole: a file may be called nearly so.
        Ok(link.as_os_str() == "anon_inode:[eventfd]")
    }

    /// Adds 1 with what else the core submits in this turn: no system call of its own.
    pub fn signal(&self) {
        let mut signals = self.signals.borrow_mut();
        let mut context = Context::from_waker(Waker::noop());
        while let Some(oldest) = signals.front_mut() {
            match Pin::new(oldest).poll(&mut context) {
                Poll::Ready(_) => drop(signals.pop_front()),
                Poll::Pending => break,
            }
        }
        if signals.len() < SIGNALS {
            signals.extend(self.descriptor.signal());
        }
    }

    /// Waits until it is not 0, and sets it to 0; gives what it was.
    ///
    /// # Errors
    /// The system's.
    pub async fn wait(&self) -> io::Result<u64> {
        let read = |fd: BorrowedFd<'_>| {
            let mut value = [0; 8];
            rustix::io::read(fd, &mut value)?;
            Ok(u64::from_ne_bytes(value))
        };
        self.descriptor.when_ready(false, read).await
    }
}

impl AsFd for EventCounter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;
    use crate::uring::{Config, run};

    fn pair(rt: &Rt) -> [UnixStream; 2] {
        let (one, other) = net::UnixStream::pair().expect("sockets");
        [one, other].map(|stream| UnixStream::new(rt, stream).expect("a real machine"))
    }

    #[test]
    fn descriptors_come_with_the_first_byte_of_their_message() {
        run(Config::default(), |rt| async move {
            let [one, other] = pair(&rt);
            let counter = EventCounter::new(&rt).expect("a counter");
            let sending = async move {
                one.send(b"abc", &[counter.as_fd()]).await.expect("sent");
                one.send(b"defg", &[]).await.expect("sent");
                (one, counter)
            };
            let sending = rt.spawn(sending);
            let mut bytes = [0; 7];
            let first = other.recv_exact(&mut bytes[..3]).await.expect("bytes");
            assert_eq!(first.map(|given| given.len()), Some(1));
            let then = other.recv_exact(&mut bytes[3..]).await.expect("bytes");
            assert_eq!(then.map(|given| given.len()), Some(0));
            assert_eq!(&bytes, b"abcdefg");
            drop(sending.await);
            let end = other.recv_exact(&mut bytes).await.expect("the end");
            assert!(end.is_none());
        })
        .expect("this machine has io_uring");
    }

    #[test]
    fn descriptors_within_a_message_are_refused() {
        run(Config::default(), |rt| async move {
            let [one, other] = pair(&rt);
            let counter = EventCounter::new(&rt).expect("a counter");
            one.send(b"a", &[]).await.expect("sent");
            one.send(b"b", &[counter.as_fd()]).await.expect("sent");
            let received = other.recv_exact(&mut [0; 2]).await;
            // The kernel may give both bytes at once: then they are taken for the first one's.
            let given = received.map(|given| given.map(|given| given.len()));
            assert!(matches!(given, Ok(Some(1)) | Err(_)), "{given:?}");
        })
        .expect("this machine has io_uring");
    }

    #[test]
    fn a_full_counter_ends_its_signals_and_does_not_hold_the_core() {
        run(Config::default(), |rt| async move {
            let counter = EventCounter::new(&rt).expect("a counter");
            counter.signal();
            assert_eq!(counter.wait().await.expect("signalled"), 1);
            rustix::io::write(&counter, &(u64::MAX - 1).to_ne_bytes()).expect("full");
            // Whoever has the counter, too, may let it block, and takes that back in the end.
            for blocks in [false, true, false] {
                let mut flags = rustix::fs::fcntl_getfl(&counter).expect("flags");
                flags.set(rustix::fs::OFlags::NONBLOCK, !blocks);
                rustix::fs::fcntl_setfl(&counter, flags).expect("flags");
                for _ in 0..20 {
                    counter.signal();
                    rt.turn_end().await;
                    rt.sleep(flashyard_time::Duration::from_us(100)).await;
                }
                assert!(counter.signals.borrow().len() <= SIGNALS);
            }
            assert_eq!(counter.wait().await.expect("full"), u64::MAX - 1);
            assert!(counter.wait().await.expect("what waited") > 0);
        })
        .expect("this machine has io_uring");
    }

    #[test]
    fn what_is_no_counter_is_refused() {
        run(Config::default(), |rt| async move {
            let (socket, _other) = net::UnixStream::pair().expect("sockets");
            let refused = EventCounter::of(&rt, socket.into());
            assert!(refused.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput));
        })
        .expect("this machine has io_uring");
    }

    /// Both ends, on two machines: no time passes, and each wait ends.
    #[test]
    fn simulated_machines_have_them_within_their_thread() {
        let world = sim::World::new(sim::Config::calm(1));
        let machine = world.machine(1);
        let far = world.machine(1).rt(0);
        world.run(&machine, |rt| async move {
            let (one, other) = net::UnixStream::pair().expect("sockets");
            let [one, other] = [(one, &rt), (other, &far)]
                .map(|(stream, rt)| UnixStream::new(rt, stream).expect("a socket"));
            let counter = EventCounter::new(&rt).expect("a counter");
            let echo = far.spawn(async move {
                let mut bytes = [0; 3];
                let mut fds = other
                    .recv_exact(&mut bytes)
                    .await
                    .expect("sent")
                    .expect("sent");
                let far = other.rt.clone();
                let counter = EventCounter::of(&far, fds.take().remove(0)).expect("a counter");
                counter.signal();
                other.send(&bytes, &[]).await.expect("sent");
                // More than the socket takes at once.
                other.send(&vec![7; 1 << 20], &[]).await.expect("sent");
            });
            one.send(b"abc", &[counter.as_fd()]).await.expect("sent");
            assert_eq!(counter.wait().await.expect("signalled"), 1);
            let mut bytes = vec![0; 3 + (1 << 20)];
            one.recv_exact(&mut bytes)
                .await
                .expect("sent")
                .expect("sent");
            assert!(bytes.starts_with(b"abc\x07"));
            echo.await;
            assert!(one.recv_exact(&mut bytes).await.expect("its end").is_none());
        });
    }
}
