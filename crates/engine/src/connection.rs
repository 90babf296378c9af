//! A connection as its core sees it. Front ends make them; a core only finds them and passes on
//! what other cores say.

use std::rc::Rc;

use flashyard_runtime::TcpStream;
use flashyard_time::Time;

use crate::association::ConnectionId;
use crate::core::Core;
use crate::waiting::TellWithdrawn;

/// One connection. Its tasks own it.
pub trait Connection {
    /// Ends it: nothing more is received or sent, and commands that were not issued are taken back.
    fn close(&self);

    /// Takes command `cid` back, if it has not been issued; tells now or later whether that was so.
    fn withdraw(&self, cid: u16, tell: TellWithdrawn);

    /// The queue that holds the command which an Abort is about has answered: the Abort is
    /// `ticket`.
    fn on_aborted(&self, ticket: u16, aborted: bool);

    /// A namespace has come, gone or changed.
    fn on_namespace_changed(&self, nsid: u32);

    /// The discovery log has changed.
    fn on_discovery_changed(&self);

    /// Looks at its deadlines.
    fn sweep(&self, now: Time);
}

/// Makes a connection of a stream that was accepted, and begins its tasks.
pub type Serve = fn(Rc<Core>, ConnectionId, TcpStream) -> Rc<dyn Connection>;
