//! What lives: who is counted holds a clone of a token, so an object that nothing frees shows in
//! the count. All of it comes to its end with the connections; what stays above zero without one is
//! a leak.

use std::sync::Arc;

/// Objects in memory, those that are about to end among them. Zero when there are no connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alive {
    /// TCP connections, each with its file descriptor.
    pub connections: usize,
    /// Admin and I/O queues.
    pub queues: usize,
    /// Controllers.
    pub controllers: usize,
}

/// One object that is counted.
#[derive(Debug)]
pub struct Counted(#[expect(dead_code, reason = "it is there to be counted")] Arc<()>);

/// The tokens of a target.
#[derive(Debug, Default)]
pub struct Census {
    connections: Arc<()>,
    queues: Arc<()>,
    controllers: Arc<()>,
}

impl Census {
    /// For a connection.
    pub fn connection(&self) -> Counted {
        Counted(self.connections.clone())
    }

    /// For a queue.
    pub fn queue(&self) -> Counted {
        Counted(self.queues.clone())
    }

    /// For a controller.
    pub(crate) fn controller(&self) -> Counted {
        Counted(self.controllers.clone())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> Alive {
        let holders = |token: &Arc<()>| Arc::strong_count(token) - 1;
        Alive {
            connections: holders(&self.connections),
            queues: holders(&self.queues),
            controllers: holders(&self.controllers),
        }
    }
}
