//! What cores tell each other. Each core has one inbox; nothing here is on the path of an I/O but
//! the hand-over.

use std::rc::Rc;

use flashyard_runtime::Detached;

use crate::DeviceHandle;
use crate::association::ConnectionId;
use crate::connection::Serve;
use crate::core::Core;
use crate::forwarding::{Reply, Request};

/// What one core has another one do.
pub(crate) type Act = Box<dyn FnOnce(&Rc<Core>) + Send>;

/// A message to a core.
pub(crate) enum Message {
    /// Serve this connection, by the front end that it is for.
    Serve(Detached, Serve),
    /// End a connection of yours: its association has ended, or its host may not stay.
    Close { serial: u64 },
    /// Take a command of one of your connections back, if it has not been issued, and tell the
    /// asking connection.
    Abort {
        serial: u64,
        cid: u16,
        asked_by: ConnectionId,
        ticket: u16,
    },
    /// The answer to [`Message::Abort`].
    Aborted {
        serial: u64,
        ticket: u16,
        aborted: bool,
    },
    /// A namespace that the controller of this admin connection sees has come, gone or changed.
    NamespaceChanged { serial: u64, nsid: u32 },
    /// The discovery log that the controller of this admin connection sees may have changed.
    DiscoveryChanged { serial: u64 },
    /// An I/O of a dead association has returned: those who wait to connect may look again.
    FenceLifted,
    /// A device of yours may have grown.
    DeviceResized(DeviceHandle),
    /// Do this, for a front end.
    Run(Act),
    /// An I/O for a device of yours.
    Request(Request),
    /// An I/O of yours has come back from the home core of its device.
    Reply(Reply),
}
