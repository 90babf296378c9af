//! The two tasks of a connection, and how it begins.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use flashyard_nvme::tcp::{Framer, Limits as FramerLimits, Role};
use flashyard_runtime::TcpStream;

use super::connect::{self, Joined};
use super::connection::Connection;
use super::fabrics::ADMIN_IN_CAPSULE_BYTES;
use super::input::{Input, finish};
use super::{admin, io as queue};
use crate::connection::{self, Connection as _};
use crate::core::Core;
use crate::message::ConnectionId;

impl Core {
    /// Listens for NVMe/TCP; hands connections to the cores evenly. Gives the address with its real
    /// port.
    pub fn listen(self: &Rc<Self>, addr: SocketAddr) -> io::Result<SocketAddr> {
        self.listen_for(addr, serve)
    }
}

/// Begins the tasks of a connection that was accepted.
fn serve(core: Rc<Core>, id: ConnectionId, stream: TcpStream) -> Rc<dyn connection::Connection> {
    let rt = core.rt().clone();
    let connection = Connection::new(core, id, stream);
    rt.spawn(send(connection.clone())).detach();
    rt.spawn(receive(connection.clone())).detach();
    connection
}

/// The sending task of a connection.
async fn send(connection: Rc<Connection>) {
    let rt = connection.core().rt().clone();
    while let Some(mut parcel) = connection.outbox().next(&rt).await {
        let (result, gather) = connection.stream().send(parcel.gather).await;
        parcel.gather = gather;
        connection.outbox().sent(parcel);
        if result.is_err() {
            connection.close();
        }
    }
}

/// The receiving task of a connection, from the first byte until nothing is left of it.
async fn receive(connection: Rc<Connection>) {
    // Nothing but a Connect is taken until it is known which queue this is.
    let in_capsule = ADMIN_IN_CAPSULE_BYTES;
    let framer = Framer::new(
        Role::Controller,
        FramerLimits {
            in_capsule,
            c2h_data: 0,
        },
    );
    let mut input = Input::new(connection.clone(), framer);
    match connect::begin(&connection, &mut input).await {
        Ok(Joined::Admin(queue)) => {
            let admin = Rc::downgrade(&queue);
            connection.become_queue(admin);
            let end = admin::serve(&queue, &mut input).await;
            // Before the farewell, which takes as long as the peer likes.
            queue.end_association();
            finish(&mut input, end).await;
        }
        Ok(Joined::Io(queue)) => {
            let io = Rc::downgrade(&queue);
            connection.become_queue(io);
            queue::serve(&queue, &mut input).await;
            queue.leave();
        }
        Err(end) => finish(&mut input, end).await,
    }
    let unconnected = connection.unconnected_peer();
    connection.core().forget(connection.id(), unconnected);
}
