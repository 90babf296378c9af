//! Messages between cores, and from any other thread to a core. Unbounded by itself: whoever sends keeps the
//! bound (each request holds a place of its own somewhere). Wakes a sleeping receiver.

/// The sending side; may live on any thread.
#[derive(Debug)]
pub struct Sender<T> {
    marker: std::marker::PhantomData<fn(T)>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        unimplemented!()
    }
}

impl<T: Send> Sender<T> {
    /// Sends; gives the message back when the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), T> {
        let _ = message;
        unimplemented!()
    }
}

/// The receiving side; lives on one core.
#[derive(Debug)]
pub struct Receiver<T> {
    marker: std::marker::PhantomData<T>,
}

impl<T: Send> Receiver<T> {
    /// The next message; `None` when all senders are gone.
    pub async fn recv(&self) -> Option<T> {
        unimplemented!()
    }

    /// The next message if one is there.
    pub fn try_recv(&self) -> Option<T> {
        unimplemented!()
    }
}

/// A channel. The receiver may be made on one thread and moved to its core.
pub fn channel<T: Send>() -> (Sender<T>, Receiver<T>) {
    unimplemented!()
}
