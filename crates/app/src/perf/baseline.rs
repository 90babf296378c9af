//! The limit beside the result: the same traffic over bare sockets. Requests and replies have
//! NVMe/TCP's sizes and nothing else of NVMe: no queues, no commands, no checks. Everything that is
//! there is read in one call and answered in one, both sides spin on non-blocking sockets, and each
//! has a processor of its own. What this reaches is what the kernel's TCP and the machine allow; a
//! target is measured as a share of it.
//!
//! Data are received into memory and dropped, as the load generator does it, and sent from one
//! small piece of memory that stays in the cache, as a null device does it. A write that does not
//! fit a capsule is asked for with an R2T, as the protocol demands.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::processor;

/// Length of a command capsule without data.
const COMMAND: usize = 72;
/// Length of a response capsule, of an R2T and of the header of data.
const SHORT: usize = 24;
/// Most memory given to one receive call. Two hundred kilobytes stay in the second-level cache.
const RECEIVE: usize = 256 << 10;
/// Most pieces given to one send call.
const PIECES: usize = 128;

/// What is sent to and fro.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Bytes of data of one I/O.
    pub(super) block: usize,
    /// I/Os in flight, over all connections.
    pub(super) depth: usize,
    /// Connections.
    pub(super) queues: usize,
    /// Reads in a hundred I/Os.
    pub(super) read_percent: u32,
    /// Writes up to this size have their data in the capsule.
    pub(super) in_capsule: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
}

/// Runs the traffic for `seconds` after a short warm-up: the answering side on processor `server`,
/// the asking side on processor `client`, if such are given.
pub(super) fn run(
    traffic: Traffic,
    seconds: Duration,
    server: Option<usize>,
    client: Option<usize>,
) -> io::Result<Limit> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    let mut asking = Vec::new();
    let mut answering = Vec::new();
    for _ in 0..traffic.queues {
        asking.push(Connection::new(TcpStream::connect(addr)?)?);
        answering.push(Connection::new(listener.accept()?.0)?);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let server = thread::spawn(move || {
        processor::pin(server)?;
        answer(answering, traffic, &stopped)
    });
    let client = thread::spawn(move || {
        processor::pin(client)?;
        ask(asking, traffic, seconds)
    });
    let result = client
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the asking side panicked")));
    stop.store(true, Ordering::Relaxed);
    server
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the answering side panicked")))?;
    result
}

/// The kinds of messages; the first byte of each, like the type of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Read,
    /// With its data.
    Write,
    /// Without.
    BigWrite,
    WriteData,
    /// Data and response.
    ReadReply,
    WriteReply,
    ReadyToTransfer,
}

const KINDS: [Kind; 7] = [
    Kind::Read,
    Kind::Write,
    Kind::BigWrite,
    Kind::WriteData,
    Kind::ReadReply,
    Kind::WriteReply,
    Kind::ReadyToTransfer,
];

impl Kind {
    fn length(self, block: usize) -> usize {
        match self {
            Self::Read | Self::BigWrite => COMMAND,
            Self::Write => COMMAND + block,
            Self::WriteData => SHORT + block,
            Self::ReadReply => SHORT + block + SHORT,
            Self::WriteReply | Self::ReadyToTransfer => SHORT,
        }
    }
}

/// One message of each kind, ready to be sent any number of times.
struct Messages {
    block: usize,
    bytes: [Vec<u8>; KINDS.len()],
}

impl Messages {
    fn new(block: usize) -> Self {
        let bytes = KINDS.map(|kind| {
            let mut message = vec![0; kind.length(block)];
            message[0] = kind as u8;
            message
        });
        Self { block, bytes }
    }

    fn of(&self, kind: Kind) -> &[u8] {
        &self.bytes[kind as usize]
    }
}

/// A non-blocking socket, and how far we are in what comes from it.
struct Connection {
    stream: TcpStream,
    /// Bytes left of the message that is coming in.
    rest: usize,
    kind: Kind,
}

impl Connection {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            rest: 0,
            kind: Kind::Read,
        })
    }

    /// Reads what is there, in one call, and calls `arrived` for every message that is complete
    /// now.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        block: usize,
        mut arrived: impl FnMut(Kind),
    ) -> io::Result<()> {
        let mut bytes = match self.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        while let Some(&first) = bytes.first() {
            if self.rest == 0 {
                self.kind = *KINDS
                    .get(usize::from(first))
                    .ok_or(ErrorKind::InvalidData)?;
                self.rest = self.kind.length(block);
            }
            let part = self.rest.min(bytes.len());
            bytes = &bytes[part..];
            self.rest -= part;
            if self.rest == 0 {
                arrived(self.kind);
            }
        }
        Ok(())
    }
}

/// What waits to be sent on one connection.
struct Outgoing<'a> {
    messages: &'a Messages,
    slices: Vec<IoSlice<'a>>,
}

impl<'a> Outgoing<'a> {
    fn new(messages: &'a Messages) -> Self {
        Self {
            messages,
            slices: Vec::new(),
        }
    }

    fn push(&mut self, kind: Kind) {
        self.slices.push(IoSlice::new(self.messages.of(kind)));
    }

    /// Sends as much as the socket takes, in one call if it takes all.
    fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        let waiting = self.slices.len();
        let mut rest = &mut self.slices[..];
        while !rest.is_empty() {
            let batch = rest.len().min(PIECES);
            match stream.write_vectored(&rest[..batch]) {
                Ok(sent) => IoSlice::advance_slices(&mut rest, sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let sent = waiting - rest.len();
        self.slices.drain(..sent);
        Ok(())
    }
}

/// The answering side: goes round its connections until it is stopped.
fn answer(mut connections: Vec<Connection>, traffic: Traffic, stop: &AtomicBool) -> io::Result<()> {
    let messages = Messages::new(traffic.block);
    let mut outgoing: Vec<_> = connections
        .iter()
        .map(|_| Outgoing::new(&messages))
        .collect();
    let mut buffer = vec![0; RECEIVE];
    while !stop.load(Ordering::Relaxed) {
        for (connection, out) in connections.iter_mut().zip(&mut outgoing) {
            let received = connection.receive(&mut buffer, messages.block, |kind| match kind {
                Kind::Read => out.push(Kind::ReadReply),
                Kind::BigWrite => out.push(Kind::ReadyToTransfer),
                _ => out.push(Kind::WriteReply),
            });
            match received.and_then(|()| out.send(&connection.stream)) {
                // The asking side is done and has closed.
                Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
                Err(error) if is_end(&error) => return Ok(()),
                other => other?,
            }
        }
    }
    Ok(())
}

/// The asking side: keeps `depth` I/Os in flight and counts the answers of the time after the
/// warm-up.
fn ask(mut connections: Vec<Connection>, traffic: Traffic, seconds: Duration) -> io::Result<Limit> {
    let messages = Messages::new(traffic.block);
    let mut outgoing: Vec<_> = connections
        .iter()
        .map(|_| Outgoing::new(&messages))
        .collect();
    let mut buffer = vec![0; RECEIVE];
    let mut mix = Mix::new(traffic);
    for number in 0..traffic.depth {
        outgoing[number % traffic.queues].push(mix.next());
    }
    let warm = Instant::now() + seconds / 10;
    let mut counted_from = None;
    let mut operations = 0;
    loop {
        for (connection, out) in connections.iter_mut().zip(&mut outgoing) {
            connection.receive(&mut buffer, messages.block, |kind| {
                if kind == Kind::ReadyToTransfer {
                    out.push(Kind::WriteData);
                } else {
                    operations += 1;
                    out.push(mix.next());
                }
            })?;
            out.send(&connection.stream)?;
        }
        let now = Instant::now();
        match counted_from {
            None if now >= warm => {
                counted_from = Some(now);
                operations = 0;
            }
            // On a busy machine the other side may not have run yet, and a limit of nothing is
            // none.
            Some(from) if now >= from + seconds && operations > 0 => {
                return Ok(Limit {
                    operations,
                    elapsed: now - from,
                });
            }
            _ => {}
        }
    }
}

/// Which I/O comes next: reads and writes spread evenly in the wanted proportion.
struct Mix {
    read_percent: u32,
    balance: u32,
    write: Kind,
}

impl Mix {
    fn new(traffic: Traffic) -> Self {
        let write = if traffic.block <= traffic.in_capsule {
            Kind::Write
        } else {
            Kind::BigWrite
        };
        Self {
            read_percent: traffic.read_percent.min(100),
            balance: 0,
            write,
        }
    }

    fn next(&mut self) -> Kind {
        self.balance += self.read_percent;
        if self.balance >= 100 {
            self.balance -= 100;
            Kind::Read
        } else {
            self.write
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(block: usize, read_percent: u32) -> Limit {
        let traffic = Traffic {
            block,
            depth: 8,
            queues: 2,
            read_percent,
            in_capsule: 8192,
        };
        run(traffic, Duration::from_millis(50), None, None).expect("loopback works")
    }

    #[test]
    fn every_kind_of_traffic_flows() {
        for (block, read_percent) in [
            (4096, 100),
            (4096, 0),
            (131_072, 100),
            (131_072, 0),
            (16_384, 50),
        ] {
            let limit = limit(block, read_percent);
            assert!(
                limit.operations > 0,
                "{block} bytes, {read_percent} % reads"
            );
            assert!(limit.elapsed >= Duration::from_millis(50));
        }
    }

    #[test]
    fn the_mix_is_exact() {
        for read_percent in [0, 1, 30, 50, 99, 100] {
            let traffic = Traffic {
                block: 1,
                depth: 1,
                queues: 1,
                read_percent,
                in_capsule: 1,
            };
            let mut mix = Mix::new(traffic);
            let reads = (0..1_000).filter(|_| mix.next() == Kind::Read).count();
            assert_eq!(reads, read_percent as usize * 10);
        }
    }
}
