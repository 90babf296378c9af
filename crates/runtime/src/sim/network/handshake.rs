//! How a connection is made: a connect is sent to the other machine until it is received, and the
//! answer comes back.

use std::net::SocketAddr;

use flashyard_time::{Duration, Time};

use super::{Network, NetworkEvent, Socket, address, line};
use crate::handle::SocketId;
use crate::sim::connection::{Connection, EndPoint};
use crate::sim::context::{Established, Event, Ready, SimContext, Waiter};
use crate::sim::pipe::draw;
use crate::sim::trace::Mark;

/// A connect that got no answer asks again after this.
const RETRY: Duration = Duration::from_secs(1);

/// A connect on its way.
pub(super) struct Attempt {
    /// `None`: no task waits any more.
    pub(super) waiter: Option<Waiter>,
    pub(super) from: usize,
    to: usize,
    local: SocketAddr,
    peer: SocketAddr,
    deadline: Time,
    /// What the other side said, once it has.
    answer: Option<Result<SocketId, i32>>,
}

impl Network {
    pub(in crate::sim) fn connect(
        &mut self,
        sim: &mut SimContext,
        host: usize,
        waiter: Waiter,
        peer: SocketAddr,
    ) {
        let Some(to) = self.resolve(host, peer.ip()) else {
            return sim.fail(waiter, libc::ENETUNREACH);
        };
        let ip = if peer.ip().is_loopback() {
            peer.ip()
        } else {
            address(host)
        };
        let local = SocketAddr::new(ip, self.free_port(host));
        let number = self.next_connection;
        self.next_connection += 1;
        let deadline = sim.now + sim.config.connect_timeout;
        let waiter = Some(waiter);
        let attempt = Attempt {
            waiter,
            from: host,
            to,
            local,
            peer,
            deadline,
            answer: None,
        };
        self.attempts.insert(number, attempt);
        let travel = draw(line(sim, host, to).latency, &mut sim.network_rng);
        sim.events.push(
            sim.now + travel,
            Event::Network(NetworkEvent::Connect(number)),
        );
    }

    /// Gives up a connect, if it still waits.
    pub(in crate::sim) fn cancel_connect(&mut self, sim: &mut SimContext, waiter: Waiter) {
        let mut attempts = self.attempts.values_mut();
        if let Some(attempt) = attempts.find(|attempt| attempt.waiter == Some(waiter)) {
            attempt.waiter = None;
            sim.fail(waiter, libc::ECANCELED);
        }
    }

    /// A connect reaches the other machine, or asks again later.
    pub(super) fn arrive_connect(&mut self, sim: &mut SimContext, number: u32) {
        let Some(attempt) = self.attempts.get(&number) else {
            return;
        };
        let (from, to, peer) = (attempt.from, attempt.to, attempt.peer);
        if attempt.waiter.is_none() {
            self.attempts.remove(&number);
            return;
        }
        let heard = self.hosts[to].up && self.passes(from, to);
        let listener = self
            .listener_at(to, peer)
            .filter(|_| !self.hosts[to].refusing);
        let full = listener.is_some_and(|listener| self.is_full(listener));
        if !heard || full {
            return self.retry_connect(sim, number);
        }
        let travel = draw(line(sim, from, to).latency, &mut sim.network_rng);
        let opens = sim.now + travel;
        let answer = match listener {
            Some(listener) => Ok(self.establish(sim, number, listener, opens)),
            None => Err(libc::ECONNREFUSED),
        };
        let attempt = self
            .attempts
            .get_mut(&number)
            .expect("it has just been looked at");
        attempt.answer = Some(answer);
        sim.trace.note(
            sim.now,
            Mark::Connect,
            u64::from(number),
            u64::from(answer.is_ok()),
        );
        sim.events
            .push(opens, Event::Network(NetworkEvent::Answer(number)));
    }

    fn retry_connect(&mut self, sim: &mut SimContext, number: u32) {
        let attempt = self
            .attempts
            .get_mut(&number)
            .expect("only present attempts are repeated");
        let next = sim.now + RETRY;
        let event = if next < attempt.deadline {
            NetworkEvent::Connect(number)
        } else {
            attempt.answer = Some(Err(libc::ETIMEDOUT));
            NetworkEvent::Answer(number)
        };
        sim.events.push(
            next.min(attempt.deadline).max(sim.now),
            Event::Network(event),
        );
    }

    /// Makes both ends. The accepting one may send at once; the connecting one learns of it at
    /// `opens`.
    fn establish(
        &mut self,
        sim: &mut SimContext,
        number: u32,
        listener: SocketId,
        opens: Time,
    ) -> SocketId {
        let attempt = &self.attempts[&number];
        let (from, to, local, peer) = (attempt.from, attempt.to, attempt.local, attempt.peer);
        let connecting = self.add_socket(Socket::Stream {
            connection: number,
            side: 0,
        });
        let accepting = self.add_socket(Socket::Stream {
            connection: number,
            side: 1,
        });
        let ends = [
            EndPoint {
                socket: connecting,
                machine: from,
            },
            EndPoint {
                socket: accepting,
                machine: to,
            },
        ];
        let connection = Connection::new(number, ends, line(sim, from, to), opens);
        self.connections.insert(number, connection);
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(&listener) {
            listener.backlog.push_back(Established {
                id: accepting,
                local: peer,
                peer: local,
            });
            listener.hand_out(sim);
        }
        connecting
    }

    /// The answer comes back, or is sent again later.
    pub(super) fn answer(&mut self, sim: &mut SimContext, number: u32) {
        let Some(attempt) = self.attempts.get_mut(&number) else {
            return;
        };
        let mut answer = attempt.answer.expect("an answer is made before it travels");
        let (from, to, deadline) = (attempt.from, attempt.to, attempt.deadline);
        if answer != Err(libc::ETIMEDOUT) && !self.passes(from, to) {
            if sim.now < deadline {
                let next = (sim.now + RETRY).min(deadline);
                sim.events
                    .push(next, Event::Network(NetworkEvent::Answer(number)));
                return;
            }
            if let Ok(id) = answer {
                self.close(sim, id);
            }
            answer = Err(libc::ETIMEDOUT);
        }
        sim.trace.note(
            sim.now,
            Mark::Answer,
            u64::from(number),
            u64::from(answer.is_ok()),
        );
        let Some(attempt) = self.attempts.remove(&number) else {
            return;
        };
        match (attempt.waiter, answer) {
            (Some(waiter), Ok(id)) => {
                let connected = Established {
                    id,
                    local: attempt.local,
                    peer: attempt.peer,
                };
                sim.end(waiter, Ready::Connected(connected));
            }
            (Some(waiter), Err(errno)) => sim.fail(waiter, errno),
            (None, Ok(id)) => self.close(sim, id),
            (None, Err(_)) => {}
        }
    }
}
