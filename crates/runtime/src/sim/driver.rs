//! The driver of one simulated core: hands operations to the world's network and disks, and moves
//! the data of those that have ended between them and the core's table.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use flashyard_time::{Duration, Time};

use super::context::{Established, Ready, Waiter};
use super::disk::Action;
use super::trace::Mark;
use super::world::{Shared, Simulation};
use crate::Chunk;
use crate::driver::{Drive, Loose, Wait};
use crate::handle::{Connected, FileId, FileInfo, Handle, OpenOptions, Owner, SocketId};
use crate::op::{Completion, Operation, Outcome, Receive, Room};
use crate::table::Table;
use crate::ticket::Ticket;
use crate::zone::Zoned;

/// A receive into a chunk brings at most this much, as the real driver's ring.
const CHUNK: usize = 16 << 10;

/// The driver.
pub(super) struct CoreDriver {
    shared: Rc<Shared>,
    /// Number of the core in the world.
    core: usize,
    machine: usize,
}

/// A connection between two cores of a world. Dropped on the way it is closed when the world looks
/// next.
struct Parked {
    socket: SocketId,
    lost: Lost,
    taken: bool,
}

/// Sockets whose [`Loose`] was dropped.
pub(super) type Lost = Arc<Mutex<Vec<SocketId>>>;

impl CoreDriver {
    pub(super) fn new(shared: Rc<Shared>, core: usize, machine: usize) -> Self {
        Self {
            shared,
            core,
            machine,
        }
    }

    fn waiter(&self, ticket: Ticket) -> Waiter {
        Waiter {
            core: self.core,
            ticket,
        }
    }

    fn is_dead(&self) -> bool {
        self.shared.is_dead(self.core)
    }

    fn handle<Id: Copy + 'static>(&self, id: Id, close: fn(&mut Simulation, Id)) -> Handle<Id> {
        let shared = self.shared.clone();
        let owner = Owner::Other(Box::new(Open { shared, id, close }));
        Handle { id, owner }
    }

    fn connected(&self, established: Established) -> Outcome {
        let Established { id, local, peer } = established;
        let socket = self.handle(id, close_socket);
        Outcome::Connected(Box::new(Connected {
            socket,
            local,
            peer,
        }))
    }
}

/// A socket or a file of the world until it is dropped.
struct Open<Id: Copy> {
    shared: Rc<Shared>,
    id: Id,
    close: fn(&mut Simulation, Id),
}

impl<Id: Copy> Drop for Open<Id> {
    fn drop(&mut self) {
        (self.close)(&mut self.shared.simulation(), self.id);
    }
}

fn close_socket(simulation: &mut Simulation, socket: SocketId) {
    simulation.network.close(&mut simulation.sim, socket);
}

impl Drive for CoreDriver {
    fn now(&mut self) -> Time {
        self.shared.simulation().sim.now
    }

    fn random(&mut self) -> u64 {
        let sim = &mut self.shared.simulation().sim;
        let number = sim.order_rng.next_u64();
        sim.trace
            .note(sim.now, Mark::Random, self.core as u64, number);
        number
    }

    fn pick(&mut self, ready: usize) -> usize {
        let sim = &mut self.shared.simulation().sim;
        let place = if ready > 1 {
            sim.order_rng.below(ready as u64) as usize
        } else {
            0
        };
        sim.trace
            .note(sim.now, Mark::Pick, self.core as u64, place as u64);
        place
    }

    fn submit(&mut self, ticket: Ticket, operation: &mut Operation) {
        let waiter = self.waiter(ticket);
        let simulation = &mut *self.shared.simulation();
        let Simulation {
            sim,
            network,
            disks,
            ..
        } = simulation;
        sim.trace
            .note(sim.now, Mark::Submit, self.core as u64, kind(operation));
        match operation {
            Operation::Accept { listener } => network.accept(sim, listener.id(), waiter),
            Operation::Connect { addr } => network.connect(sim, self.machine, waiter, *addr),
            Operation::Receive(receive) => network.recv(sim, receive.socket.id(), waiter),
            Operation::Send { socket, gather, .. } => {
                network.send(sim, socket.id(), waiter, gather.slices());
            }
            Operation::Read {
                file, buf, offset, ..
            } => {
                let action = Action::Read {
                    offset: *offset,
                    len: buf.len(),
                };
                disks.start(sim, file.id(), waiter, action);
            }
            Operation::Write {
                file,
                data,
                offset,
                durable,
                ..
            } => {
                let bytes = data.to_vec();
                let action = Action::Write {
                    offset: *offset,
                    bytes,
                    durable: *durable,
                };
                disks.start(sim, file.id(), waiter, action);
            }
            Operation::Sync { file } => disks.start_sync(sim, file.id(), waiter),
            Operation::Punch { file, offset, len } | Operation::Zero { file, offset, len } => {
                let action = Action::Zero {
                    offset: *offset,
                    len: *len,
                };
                disks.start(sim, file.id(), waiter, action);
            }
            Operation::Zone { file, action } => {
                disks.start(sim, file.id(), waiter, Action::Zone(*action));
            }
            Operation::Ready { .. } | Operation::Signal { .. } => {
                unreachable!("`descriptor` asks the system itself in a simulated machine")
            }
            Operation::Lent { .. } => unreachable!("simulated files say that they take none"),
        }
    }

    fn cancel(&mut self, ticket: Ticket, operation: &mut Operation) {
        let waiter = self.waiter(ticket);
        let simulation = &mut *self.shared.simulation();
        let Simulation { sim, network, .. } = simulation;
        match operation {
            Operation::Accept { listener } => network.cancel_accept(sim, listener.id(), waiter),
            Operation::Connect { .. } => network.cancel_connect(sim, waiter),
            Operation::Receive(Receive { socket, .. }) | Operation::Send { socket, .. } => {
                network.cancel_transfer(sim, socket.id(), waiter)
            }
            // A disk cannot be stopped; a command that it has got ends in its time.
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Lent { .. }
            | Operation::Sync { .. }
            | Operation::Punch { .. }
            | Operation::Zero { .. }
            | Operation::Zone { .. }
            | Operation::Ready { .. }
            | Operation::Signal { .. } => {}
        }
    }

    fn reap(&mut self, table: &mut Table, done: &mut Vec<Completion>) {
        if self.is_dead() {
            let gone = table.all_in_flight().into_iter().map(|ticket| Completion {
                ticket,
                result: Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            });
            return done.extend(gone);
        }
        let simulation = &mut *self.shared.simulation();
        while let Some((ticket, ready)) = simulation.sim.take_ended(self.core) {
            let orphan = table.is_orphaned(ticket);
            let Some(operation) = table.operation(ticket) else {
                continue;
            };
            let received = match ready {
                Ready::Receive(socket) => Some(socket),
                _ => None,
            };
            let result = match ready {
                Ready::Connected(established) => Ok(self.connected(established)),
                ready => simulation.bring(ready, operation, orphan),
            };
            if let Some(socket) = received {
                let pieces = simulation.network.take_pieces(socket);
                simulation.sim.spend_on_receive(self.core, pieces);
            }
            let sim = &mut simulation.sim;
            sim.trace.note(
                sim.now,
                Mark::Reap,
                self.core as u64,
                u64::from(result.is_ok()),
            );
            done.push(Completion { ticket, result });
        }
    }

    fn flush(&mut self, _: &mut Table, _: Wait) {}

    fn listen(&mut self, addr: SocketAddr) -> io::Result<(Handle<SocketId>, SocketAddr)> {
        if self.is_dead() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let (id, addr) = self
            .shared
            .simulation()
            .network
            .listen(self.machine, addr)?;
        Ok((self.handle(id, close_socket), addr))
    }

    fn shutdown(&mut self, socket: SocketId) {
        let Simulation { sim, network, .. } = &mut *self.shared.simulation();
        network.shutdown(sim, socket);
    }

    fn abort(&mut self, socket: SocketId) {
        let Simulation { sim, network, .. } = &mut *self.shared.simulation();
        network.abort(sim, socket);
    }

    fn set_patience(&mut self, _: SocketId, _: Duration) {}

    fn detach(&mut self, socket: Handle<SocketId>) -> Loose {
        let simulation = &mut *self.shared.simulation();
        // A name of its own: the old one is closed with its handle.
        let socket = simulation.network.rename(socket.id);
        Loose::Simulated(Box::new(Parked {
            socket,
            lost: simulation.lost.clone(),
            taken: false,
        }))
    }

    fn attach(&mut self, loose: Loose) -> Handle<SocketId> {
        let Loose::Simulated(parked) = loose else {
            panic!("a connection of the real machine cannot enter a simulated world");
        };
        let mut parked = parked
            .downcast::<Parked>()
            .expect("this driver parks connections so");
        parked.taken = true;
        self.handle(parked.socket, close_socket)
    }

    fn open(
        &mut self,
        path: &Path,
        options: OpenOptions,
    ) -> io::Result<(Handle<FileId>, FileInfo)> {
        if self.is_dead() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let Simulation { sim, disks, .. } = &mut *self.shared.simulation();
        let (id, info) = disks.open(self.machine, path, options, &sim.config.disk)?;
        Ok((
            self.handle(id, |simulation, id| simulation.disks.close(id)),
            info,
        ))
    }

    fn size(&mut self, file: FileId) -> io::Result<u64> {
        self.shared.simulation().disks.size(file)
    }

    fn set_size(&mut self, file: FileId, size: u64) -> io::Result<()> {
        self.shared.simulation().disks.set_size(file, size)
    }

    fn zoned(&mut self, file: FileId) -> io::Result<Option<Zoned>> {
        self.shared.simulation().disks.zoned(file)
    }
}

impl Simulation {
    /// Moves what an ended operation brings into the operation's buffer. An orphan takes nothing.
    fn bring(
        &mut self,
        ready: Ready,
        operation: &mut Operation,
        orphan: bool,
    ) -> io::Result<Outcome> {
        match (ready, operation) {
            (Ready::Done(result), _) => result,
            _ if orphan => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            (
                Ready::Receive(socket),
                Operation::Receive(Receive {
                    room: Some(room), ..
                }),
            ) => self.receive(socket, room).map(Outcome::Bytes),
            (Ready::Receive(socket), _) => {
                let mut bytes = vec![0; self.network.readable(socket).min(CHUNK)];
                let received = self.network.receive(&mut self.sim, socket, &mut bytes)?;
                bytes.truncate(received);
                Ok(Outcome::Chunk(Chunk::owned(bytes)))
            }
            (Ready::Read { disk, offset, len }, Operation::Read { buf, .. }) => {
                self.disks.disk(disk).medium.read(offset, &mut buf[..len]);
                Ok(Outcome::Bytes(len))
            }
            (Ready::Read { .. } | Ready::Connected(_), _) => {
                unreachable!("only reads read, and connections bring no data")
            }
        }
    }

    /// Receives into `room`, and behind it when it is full.
    fn receive(&mut self, socket: SocketId, room: &mut Room) -> io::Result<usize> {
        let (front, behind) = room.pieces();
        let len = front.len();
        let mut received = self.network.receive(&mut self.sim, socket, front)?;
        if received == len && !behind.is_empty() && self.network.readable(socket) > 0 {
            received += self.network.receive(&mut self.sim, socket, behind)?;
        }
        Ok(received)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if !self.taken {
            self.lost
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self.socket);
        }
    }
}

/// What kind of operation, for the trace.
fn kind(operation: &Operation) -> u64 {
    match operation {
        Operation::Accept { .. } => 1,
        Operation::Connect { .. } => 2,
        Operation::Receive(receive) => 3 + u64::from(receive.room.is_some()),
        Operation::Send { .. } => 5,
        Operation::Read { .. } => 6,
        Operation::Write { .. } => 7,
        Operation::Sync { .. } => 8,
        Operation::Punch { .. } => 9,
        Operation::Zero { .. } => 10,
        Operation::Zone { .. } => 11,
        Operation::Ready { .. } => 12,
        Operation::Lent { .. } => 14,
        Operation::Signal { .. } => 13,
    }
}
