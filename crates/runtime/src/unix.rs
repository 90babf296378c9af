//! Unix sockets whose messages bring file descriptors, and event counters. Simulated machines have
//! them within their thread: see `descriptor`.

use std::cell::{Cell, RefCell};
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

/// Bytes that are received at a time, if they are there: some short messages.
const AHEAD: usize = 256;

/// One connection.
pub struct UnixStream {
    rt: Rt,
    descriptor: Descriptor,
    remains: Remains,
    ahead: RefCell<Ahead>,
    /// The last receive has taken all there was.
    dry: Cell<bool>,
}

/// The beginning of the next messages, and the descriptors of the last one that has begun.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    beside: Option<Descriptors>,
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
            ahead: RefCell::default(),
            dry: Cell::new(false),
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

    /// Receives one message into `message`: `HEAD` bytes that say by `whole` how long all of it is,
    /// and the rest. Gives the descriptors beside it. `None` if the stream ended before it. What is
    /// there behind it is received by the same call, and kept.
    ///
    /// Descriptors stop a receive behind the bytes that they were sent with, so they are those of
    /// the last message that begins in it.
    ///
    /// # Errors
    /// The connection is broken, it ended within, the head is none, or descriptors came later than
    /// the first byte.
    pub async fn recv_message<const HEAD: usize>(
        &self,
        message: &mut Vec<u8>,
        whole: impl Fn(&[u8; HEAD]) -> Option<usize>,
    ) -> io::Result<Option<Descriptors>> {
        let Ahead { bytes, mut beside } = self.ahead.take();
        let mut at = bytes.len();
        message.clear();
        message.extend_from_slice(&bytes);
        let mut late = false;
        let len = loop {
            let len = match message[..at].first_chunk() {
                Some(head) => whole(head).ok_or(io::ErrorKind::InvalidData)?,
                None => HEAD.max(at + 1),
            };
            if len <= at {
                break len;
            }
            message.resize(len.max(AHEAD), 0);
            let (more, fds) = self.recv(&mut message[at..]).await?;
            match (more, at) {
                (0, 0) => return Ok(None),
                (0, _) => return Err(io::ErrorKind::InvalidData.into()),
                _ if fds.is_empty() => {}
                _ if beside.is_some() => return Err(io::ErrorKind::InvalidData.into()),
                _ => (beside, late) = (Some(fds), at > 0),
            }
            at += more;
        };
        message.truncate(at);
        let bytes = message.split_off(len);
        if !bytes.is_empty() {
            let beside = beside.take();
            self.ahead.replace(Ahead { bytes, beside });
        } else if beside.is_some() && late {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let none = || Descriptors::new(Vec::new(), &self.remains);
        Ok(Some(beside.unwrap_or_else(none)))
    }

    /// Receives some bytes and the descriptors beside them; 0 bytes at the end of the stream.
    async fn recv(&self, to: &mut [u8]) -> io::Result<(usize, Descriptors)> {
        while self.remains.are_too_many() {
            self.rt.sleep(REST).await;
        }
        // A try in vain would be a system call for nothing. In a simulated machine it is none, and
        // nobody is told of what has come before.
        if self.dry.get() && !self.rt.core.is_simulated() {
            self.descriptor.ready(false).await?;
        }
        let receive = |fd: BorrowedFd<'_>| receive(fd, to, &self.remains);
        let received = self.descriptor.when_ready(false, receive).await?;
        self.dry.set(received.0 < to.len());
        Ok(received)
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

    /// The first byte of a message says how long it is.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "heads are longer")]
    fn whole(head: &[u8; 1]) -> Option<usize> {
        (head[0] > 0).then_some(head[0].into())
    }

    /// The next message and how many descriptors are beside it.
    async fn next(stream: &UnixStream) -> io::Result<Option<(Vec<u8>, usize)>> {
        let mut message = Vec::new();
        let came = stream.recv_message(&mut message, whole).await?;
        Ok(came.map(|fds| (message, fds.len())))
    }

    #[test]
    fn messages_come_one_by_one_however_they_were_sent_and_descriptors_with_theirs() {
        let long = [200; 200];
        run(Config::default(), |rt| async move {
            let [one, other] = pair(&rt);
            let counter = EventCounter::new(&rt).expect("a counter");
            let beside = [counter.as_fd()];
            // What is there before the first receive comes as one.
            for (bytes, fds) in [
                (&b"\x03ab\x01\x02c\x04de"[..], &[][..]),
                (b"f\x02g", &[]),
                (b"\x03hi", &beside),
                (b"\x02j", &[]),
                (b"\x02k", &beside),
                (&long, &beside),
                (&long, &[]),
                (b"\x01", &[]),
            ] {
                one.send(bytes, fds).await.expect("sent");
            }
            for (message, fds) in [
                (&b"\x03ab"[..], 0),
                (b"\x01", 0),
                (b"\x02c", 0),
                (b"\x04def", 0),
                (b"\x02g", 0),
                (b"\x03hi", 1),
                (b"\x02j", 0),
                (b"\x02k", 1),
                (&long, 1),
                (&long, 0),
                (b"\x01", 0),
            ] {
                let next = next(&other).await.expect("bytes");
                assert_eq!(next, Some((message.to_vec(), fds)));
            }
            // One that comes later, byte by byte.
            let sending = rt.spawn(async move {
                for byte in b"\x03lm" {
                    one.send(&[*byte], &[]).await.expect("sent");
                    one.rt.sleep(Duration::from_ms(1)).await;
                }
            });
            assert_eq!(
                next(&other).await.expect("bytes"),
                Some((b"\x03lm".to_vec(), 0))
            );
            sending.await;
            assert_eq!(next(&other).await.expect("the end"), None);
        })
        .expect("this machine has io_uring");
    }

    #[test]
    fn what_is_no_message_is_refused_and_so_are_descriptors_within_one() {
        run(Config::default(), |rt| async move {
            for (bytes, fds) in [(&b"\x00"[..], 0), (b"\x03a", 0), (b"a", 1)] {
                let [one, other] = pair(&rt);
                let counter = EventCounter::new(&rt).expect("a counter");
                one.send(b"\x01", &[]).await.expect("sent");
                assert_eq!(
                    next(&other).await.expect("one"),
                    Some((b"\x01".to_vec(), 0))
                );
                // Its beginning is here before the rest is sent.
                if fds > 0 {
                    one.send(b"\x02", &[]).await.expect("sent");
                }
                let sending = rt.spawn(async move {
                    one.rt.sleep(Duration::from_ms(5)).await;
                    let beside = [counter.as_fd()];
                    one.send(bytes, &beside[..fds]).await.expect("sent");
                });
                let refused = next(&other).await;
                assert!(refused.is_err(), "{refused:?}");
                drop(sending);
            }
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
                let mut bytes = Vec::new();
                let came = other.recv_message(&mut bytes, whole).await;
                let mut fds = came.expect("sent").expect("a message");
                let far = other.rt.clone();
                let counter = EventCounter::of(&far, fds.take().remove(0)).expect("a counter");
                counter.signal();
                other.send(&bytes, &[]).await.expect("sent");
                // More than the socket takes at once.
                other.send(&vec![7; 1 << 20], &[]).await.expect("sent");
            });
            one.send(b"\x03bc", &[counter.as_fd()]).await.expect("sent");
            assert_eq!(counter.wait().await.expect("signalled"), 1);
            let mut bytes = Vec::new();
            let all = |_: &[u8; 1]| Some(3 + (1 << 20));
            let came = one.recv_message(&mut bytes, all).await.expect("sent");
            assert!(came.is_some() && bytes.starts_with(b"\x03bc\x07"));
            echo.await;
            assert_eq!(next(&one).await.expect("its end"), None);
        });
    }
}
