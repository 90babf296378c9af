//! The two tasks of a connection, and how it begins.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;

use flashyard_engine::Core;
use flashyard_engine::front::{self, Connection as _, ConnectionId};
use flashyard_nvme::tcp::{Framer, Limits as FramerLimits, Role};
use flashyard_runtime::TcpStream;

use crate::connect::{self, Joined};
use crate::connection::Connection;
use crate::fabrics::ADMIN_IN_CAPSULE_BYTES;
use crate::input::{Input, finish};
use crate::{admin, io as queue};

/// Listens for NVMe/TCP on `core`, until [`Core::unlisten`]; hands connections to the cores evenly.
/// Gives the address with its real port.
///
/// # Errors
/// The system refuses: the address is taken, or not of this machine.
pub fn listen(core: &Rc<Core>, addr: SocketAddr) -> io::Result<SocketAddr> {
    core.listen_for(addr, serve)
}

/// The same at a socket of this process that listens already.
///
/// # Errors
/// It does not listen, or the core is simulated.
pub fn listen_on(core: &Rc<Core>, listener: TcpListener) -> io::Result<SocketAddr> {
    core.listen_on(listener, serve)
}

/// Begins the tasks of a connection that was accepted.
fn serve(core: Rc<Core>, id: ConnectionId, stream: TcpStream) -> Rc<dyn front::Connection> {
    let rt = core.rt().clone();
    let connection = Connection::new(core, id, stream);
    rt.spawn(send(connection.clone())).detach();
    rt.spawn(receive(connection.clone())).detach();
    connection
}

/// The sending task of a connection.
async fn send(connection: Rc<Connection>) {
    while let Some(mut parcel) = connection.outbox().next().await {
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
