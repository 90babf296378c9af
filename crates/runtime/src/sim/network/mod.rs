//! The simulated network: listeners, connections, and lines that are down. How connections are made
//! is in `handshake`.

mod handshake;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZero;

use super::connection::Connection;
use super::context::{Established, Ready, SimContext, Waiter};
use super::pipe::Line;
use crate::handle::SocketId;

/// Connections that may wait for an accept, as on the real machine.
const BACKLOG: usize = 1024;

/// The first port given to those who do not ask for one.
const FIRST_EPHEMERAL: u16 = 49152;

/// The network.
#[derive(Default)]
pub(super) struct Network {
    hosts: Vec<Host>,
    sockets: BTreeMap<SocketId, Socket>,
    connections: BTreeMap<u32, Connection>,
    attempts: BTreeMap<u32, handshake::Attempt>,
    /// Pairs of hosts, the lesser first, between which nothing passes.
    parted: BTreeSet<(usize, usize)>,
    next_socket: u32,
    next_connection: u32,
}

/// A machine as the network sees it.
struct Host {
    up: bool,
    refusing: bool,
    next_port: u16,
}

enum Socket {
    Listener(Listener),
    Stream { connection: u32, side: usize },
}

struct Listener {
    host: usize,
    addr: SocketAddr,
    backlog: VecDeque<Established>,
    waiting: VecDeque<Waiter>,
}

/// What happens in the network.
#[derive(Clone, Copy, Debug)]
pub(super) enum NetworkEvent {
    /// Something comes to a side of a connection.
    Arrival { connection: u32, side: usize },
    /// A connect reaches the other machine.
    Connect(u32),
    /// Its answer comes back.
    Answer(u32),
}

impl Network {
    /// Adds a host at the next address.
    pub(super) fn add_host(&mut self) -> usize {
        self.hosts.push(Host {
            up: true,
            refusing: false,
            next_port: FIRST_EPHEMERAL,
        });
        self.hosts.len() - 1
    }

    pub(super) fn handle(&mut self, sim: &mut SimContext, event: NetworkEvent) {
        match event {
            NetworkEvent::Arrival { connection, side } => self.arrive(sim, connection, side),
            NetworkEvent::Connect(attempt) => self.arrive_connect(sim, attempt),
            NetworkEvent::Answer(attempt) => self.answer(sim, attempt),
        }
    }

    pub(super) fn listen(
        &mut self,
        host: usize,
        mut addr: SocketAddr,
    ) -> io::Result<(SocketId, SocketAddr)> {
        let ip = addr.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && ip != address(host) {
            return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
        }
        if addr.port() == 0 {
            addr.set_port(self.free_port(host));
        } else if self.is_taken(host, addr) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        let (backlog, waiting) = (VecDeque::new(), VecDeque::new());
        let socket = self.add_socket(Socket::Listener(Listener {
            host,
            addr,
            backlog,
            waiting,
        }));
        Ok((socket, addr))
    }

    pub(super) fn accept(&mut self, sim: &mut SimContext, socket: SocketId, waiter: Waiter) {
        match self.sockets.get_mut(&socket) {
            Some(Socket::Listener(listener)) => {
                listener.waiting.push_back(waiter);
                listener.hand_out(sim);
            }
            Some(Socket::Stream { .. }) => sim.fail(waiter, libc::EINVAL),
            None => sim.fail(waiter, libc::EBADF),
        }
    }

    pub(super) fn recv(&mut self, sim: &mut SimContext, socket: SocketId, waiter: Waiter) {
        match self.stream(socket) {
            Some((connection, side)) => connection.recv(sim, side, waiter),
            None => sim.fail(waiter, libc::EBADF),
        }
    }

    /// Moves what a finished receive brings.
    pub(super) fn receive(
        &mut self,
        sim: &mut SimContext,
        socket: SocketId,
        into: &mut [u8],
    ) -> io::Result<usize> {
        match self.stream(socket) {
            Some((connection, side)) => connection.receive(sim, side, into),
            None => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// In how many pieces has come what the last receive on this socket found.
    pub(super) fn take_pieces(&mut self, socket: SocketId) -> u32 {
        self.stream(socket)
            .map_or(0, |(connection, side)| connection.take_pieces(side))
    }

    /// Bytes that could be received now.
    pub(super) fn readable(&mut self, socket: SocketId) -> usize {
        self.stream(socket)
            .map_or(0, |(connection, side)| connection.readable(side))
    }

    pub(super) fn send<'a>(
        &mut self,
        sim: &mut SimContext,
        socket: SocketId,
        waiter: Waiter,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        match self.stream(socket) {
            Some((connection, side)) => connection.send(sim, side, waiter, pieces),
            None => sim.fail(waiter, libc::EBADF),
        }
    }

    /// Gives up a receive or a send, if it still waits.
    pub(super) fn cancel_transfer(
        &mut self,
        sim: &mut SimContext,
        socket: SocketId,
        waiter: Waiter,
    ) {
        if let Some((connection, side)) = self.stream(socket) {
            connection.cancel(sim, side, waiter);
        }
    }

    /// Gives up an accept, if it still waits.
    pub(super) fn cancel_accept(&mut self, sim: &mut SimContext, socket: SocketId, waiter: Waiter) {
        let Some(Socket::Listener(listener)) = self.sockets.get_mut(&socket) else {
            return;
        };
        let Some(place) = listener
            .waiting
            .iter()
            .position(|waiting| *waiting == waiter)
        else {
            return;
        };
        listener.waiting.remove(place);
        sim.fail(waiter, libc::ECANCELED);
    }

    pub(super) fn shutdown(&mut self, sim: &mut SimContext, socket: SocketId) {
        if let Some((connection, side)) = self.stream(socket) {
            connection.shutdown(sim, side);
        }
    }

    pub(super) fn abort(&mut self, sim: &mut SimContext, socket: SocketId) {
        if let Some((connection, side)) = self.stream(socket) {
            connection.abort(sim, side);
        }
    }

    /// Closes a socket; nothing happens if its machine has crashed since.
    pub(super) fn close(&mut self, sim: &mut SimContext, socket: SocketId) {
        self.take_down(sim, socket, |connection, sim, side| {
            connection.close(sim, side);
        });
    }

    /// Gives a connection another name; the old one is forgotten.
    pub(super) fn rename(&mut self, socket: SocketId) -> SocketId {
        let Some(Socket::Stream { connection, side }) = self.sockets.remove(&socket) else {
            return socket;
        };
        let renamed = self.add_socket(Socket::Stream { connection, side });
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.rename(side, renamed);
        }
        renamed
    }

    /// Whether connects to this host are refused although it listens.
    pub(super) fn refuse(&mut self, host: usize, refusing: bool) {
        self.hosts[host].refusing = refusing;
    }

    /// Nothing passes between two hosts until they are joined again; nothing is lost.
    pub(super) fn part(&mut self, a: usize, b: usize) {
        self.parted.insert((a.min(b), a.max(b)));
    }

    pub(super) fn join(&mut self, sim: &mut SimContext, a: usize, b: usize) {
        if !self.parted.remove(&(a.min(b), a.max(b))) {
            return;
        }
        for connection in between(&mut self.connections, a, b) {
            connection.resume(sim, 0);
            connection.resume(sim, 1);
        }
    }

    /// Resets every connection between two hosts.
    pub(super) fn reset(&mut self, sim: &mut SimContext, a: usize, b: usize) {
        for connection in between(&mut self.connections, a, b) {
            connection.reset(sim);
        }
    }

    /// Makes every present connection between two hosts half-open, without end.
    pub(super) fn silence(&mut self, a: usize, b: usize) {
        for connection in between(&mut self.connections, a, b) {
            connection.silence();
        }
    }

    /// How many sockets the programs of a host have open.
    pub(super) fn sockets_of(&self, host: usize) -> usize {
        let is_of = |socket: &&Socket| self.is_of(host, socket);
        self.sockets.values().filter(is_of).count()
    }

    fn is_of(&self, host: usize, socket: &Socket) -> bool {
        match socket {
            Socket::Listener(listener) => listener.host == host,
            Socket::Stream { connection, side } => self
                .connections
                .get(connection)
                .is_some_and(|connection| connection.machine(*side) == host),
        }
    }

    /// All programs of a host end at once. `silently`: the machine is gone too and answers nothing
    /// until it is back; otherwise its kernel closes every connection.
    pub(super) fn crash(&mut self, sim: &mut SimContext, host: usize, silently: bool) {
        self.hosts[host].up = !silently;
        for attempt in self
            .attempts
            .values_mut()
            .filter(|attempt| attempt.from == host)
        {
            attempt.waiter = None;
        }
        let sockets = self.sockets.iter();
        let sockets = sockets.filter(|(_, socket)| self.is_of(host, socket));
        let sockets: Vec<SocketId> = sockets.map(|(socket, _)| *socket).collect();
        for socket in sockets {
            self.take_down(sim, socket, |connection, sim, side| {
                if silently {
                    connection.vanish(side);
                } else {
                    connection.kill(sim, side);
                }
            });
        }
    }

    /// The machine answers again; it knows of no connection.
    pub(super) fn restart(&mut self, sim: &mut SimContext, host: usize) {
        self.hosts[host].up = true;
        for connection in self.connections.values_mut() {
            for side in 0..2 {
                if connection.machine(side) == host {
                    connection.reappear(sim, side);
                }
            }
        }
        self.connections
            .retain(|_, connection| !connection.is_over());
    }

    fn arrive(&mut self, sim: &mut SimContext, connection: u32, side: usize) {
        let Some(connection) = self.connections.get_mut(&connection) else {
            return;
        };
        let (here, there) = (connection.machine(side), connection.machine(1 - side));
        let passable =
            self.hosts[here].up && !self.parted.contains(&(here.min(there), here.max(there)));
        connection.arrive(sim, side, passable);
    }

    /// Removes a socket, ending its side of the connection as requested; a listener's backlog is
    /// reset.
    fn take_down(
        &mut self,
        sim: &mut SimContext,
        socket: SocketId,
        end: impl Fn(&mut Connection, &mut SimContext, usize),
    ) {
        match self.sockets.remove(&socket) {
            Some(Socket::Stream {
                connection: number,
                side,
            }) => {
                let Some(connection) = self.connections.get_mut(&number) else {
                    return;
                };
                end(connection, sim, side);
                if connection.is_over() {
                    self.connections.remove(&number);
                }
            }
            Some(Socket::Listener(listener)) => {
                for waiting in listener.backlog {
                    if let Some((connection, _)) = self.stream(waiting.id) {
                        connection.reset(sim);
                    }
                    self.close(sim, waiting.id);
                }
            }
            None => {}
        }
    }

    fn add_socket(&mut self, socket: Socket) -> SocketId {
        let id = SocketId(self.next_socket);
        self.next_socket += 1;
        self.sockets.insert(id, socket);
        id
    }

    fn stream(&mut self, socket: SocketId) -> Option<(&mut Connection, usize)> {
        match self.sockets.get(&socket)? {
            Socket::Stream { connection, side } => {
                let connection = self.connections.get_mut(connection)?;
                Some((connection, *side))
            }
            Socket::Listener(_) => None,
        }
    }

    fn passes(&self, a: usize, b: usize) -> bool {
        !self.parted.contains(&(a.min(b), a.max(b)))
    }

    fn resolve(&self, from: usize, ip: IpAddr) -> Option<usize> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(from);
        }
        (0..self.hosts.len()).find(|host| address(*host) == ip)
    }

    fn listener_at(&self, host: usize, addr: SocketAddr) -> Option<SocketId> {
        let mut sockets = self.sockets.iter();
        let found = sockets.find(|(_, socket)| match socket {
            Socket::Listener(listener) => listener.takes(host, addr),
            Socket::Stream { .. } => false,
        });
        found.map(|(socket, _)| *socket)
    }

    fn is_full(&self, listener: SocketId) -> bool {
        match &self.sockets[&listener] {
            Socket::Listener(listener) => listener.backlog.len() >= BACKLOG,
            Socket::Stream { .. } => false,
        }
    }

    fn is_taken(&self, host: usize, addr: SocketAddr) -> bool {
        self.sockets.values().any(|socket| match socket {
            Socket::Listener(listener) => {
                let any = listener.addr.ip().is_unspecified() || addr.ip().is_unspecified();
                let same = any || listener.addr.ip() == addr.ip();
                listener.host == host && listener.addr.port() == addr.port() && same
            }
            Socket::Stream { .. } => false,
        })
    }

    /// The next port without a listener. Ports are used again after 16 Ki, long after they were
    /// closed.
    fn free_port(&mut self, host: usize) -> u16 {
        loop {
            let port = self.hosts[host].next_port;
            self.hosts[host].next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL);
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
            if !self.is_taken(host, any) {
                return port;
            }
        }
    }
}

impl Listener {
    fn takes(&self, host: usize, addr: SocketAddr) -> bool {
        let ip = self.addr.ip();
        self.host == host
            && self.addr.port() == addr.port()
            && (ip.is_unspecified() || ip == addr.ip())
    }

    fn hand_out(&mut self, sim: &mut SimContext) {
        while !self.waiting.is_empty() && !self.backlog.is_empty() {
            let (waiter, connected) = (self.waiting.pop_front(), self.backlog.pop_front());
            let (Some(waiter), Some(connected)) = (waiter, connected) else {
                return;
            };
            sim.end(waiter, Ready::Connected(connected));
        }
    }
}

/// The address of a host: 10.0.0.1 is the first.
pub(super) fn address(host: usize) -> IpAddr {
    let number = u32::from(Ipv4Addr::new(10, 0, 0, 1)) + host as u32;
    IpAddr::V4(Ipv4Addr::from(number))
}

fn line(sim: &SimContext, a: usize, b: usize) -> Line {
    let config = &sim.config;
    let latency = if a == b {
        config.loopback_latency
    } else {
        config.latency
    };
    let (bandwidth, capacity, fragment) = (config.bandwidth, config.socket_buffer, config.fragment);
    Line {
        latency,
        bandwidth,
        capacity,
        fragment,
        packet: NonZero::new(config.toll.payload).map(|payload| (payload, config.toll.overhead)),
    }
}

fn between(
    connections: &mut BTreeMap<u32, Connection>,
    a: usize,
    b: usize,
) -> impl Iterator<Item = &mut Connection> {
    connections.values_mut().filter(move |connection| {
        let ends = (connection.machine(0), connection.machine(1));
        ends == (a, b) || ends == (b, a)
    })
}
