//! Messages between cores, and from any other thread to a core. A channel has no bound of its own:
//! the sender keeps it (each request holds a place elsewhere). Wakes a sleeping receiver.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A channel. The receiver may be made on one thread and moved to its core.
pub fn channel<T: Send>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            messages: VecDeque::new(),
            waiting: None,
            receiver: true,
        }),
        senders: AtomicUsize::new(1),
    });
    (
        Sender {
            shared: shared.clone(),
        },
        Receiver { shared },
    )
}

struct Shared<T> {
    state: Mutex<State<T>>,
    senders: AtomicUsize,
}

struct State<T> {
    messages: VecDeque<T>,
    waiting: Option<Waker>,
    /// Whether the receiver is there.
    receiver: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No statement under the lock leaves the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let waiting = self.state().waiting.take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// The sending side; may live on any thread.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T: Send> Sender<T> {
    /// Sends; gives the message back when the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), T> {
        let mut state = self.shared.state();
        if !state.receiver {
            return Err(message);
        }
        state.messages.push_back(message);
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.wake();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// The receiving side; lives on one core.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T: Send> Receiver<T> {
    /// The next message; `None` when all senders are gone.
    pub async fn recv(&self) -> Option<T> {
        std::future::poll_fn(|context| {
            let mut state = self.shared.state();
            if let Some(message) = state.messages.pop_front() {
                return Poll::Ready(Some(message));
            }
            // The last sender is counted out before it wakes: a receiver that does not see it leave
            // is woken by it.
            let before = state.waiting.replace(context.waker().clone());
            drop(state);
            drop(before);
            match self.shared.senders.load(Ordering::Acquire) {
                0 => Poll::Ready(self.try_recv()),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// The next message if one is there.
    pub fn try_recv(&self) -> Option<T> {
        self.shared.state().messages.pop_front()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.receiver = false;
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(messages);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").finish_non_exhaustive()
    }
}
