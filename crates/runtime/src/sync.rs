//! Waiting for each other within one core: no atomics, no locks.

/// Wakes waiters. A permit is kept if nobody waits (like one bit), so a notify before the wait is not lost.
#[derive(Debug, Default)]
pub struct Notify {}

impl Notify {
    /// A notifier without a kept permit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one waiter, or keeps one permit.
    pub fn notify_one(&self) {
        unimplemented!()
    }

    /// Wakes all present waiters; keeps nothing.
    pub fn notify_all(&self) {
        unimplemented!()
    }

    /// Waits for a notification.
    pub async fn notified(&self) {
        unimplemented!()
    }
}

/// Counted permits handed out in order of arrival.
#[derive(Debug)]
pub struct Semaphore {}

impl Semaphore {
    /// A semaphore with `permits`.
    pub fn new(permits: usize) -> Self {
        let _ = permits;
        unimplemented!()
    }

    /// Takes `n` permits, waiting behind earlier waiters.
    pub async fn acquire(&self, n: usize) {
        let _ = n;
        unimplemented!()
    }

    /// Takes `n` permits if they are there and nobody waits.
    pub fn try_acquire(&self, n: usize) -> bool {
        let _ = n;
        unimplemented!()
    }

    /// Gives `n` permits back.
    pub fn release(&self, n: usize) {
        let _ = n;
        unimplemented!()
    }

    /// Permits that could be taken now.
    pub fn available(&self) -> usize {
        unimplemented!()
    }
}

/// One value from one task to another on the same core.
pub mod oneshot {
    /// Where the value comes from.
    #[derive(Debug)]
    pub struct Sender<T> {
        marker: std::marker::PhantomData<T>,
    }

    impl<T> Sender<T> {
        /// Sends; gives the value back when the receiver is gone.
        pub fn send(self, value: T) -> Result<(), T> {
            let _ = value;
            unimplemented!()
        }
    }

    /// Where the value arrives: a future of `Option<T>`, `None` when the sender was dropped.
    #[derive(Debug)]
    pub struct Receiver<T> {
        marker: std::marker::PhantomData<T>,
    }

    impl<T> std::future::Future for Receiver<T> {
        type Output = Option<T>;
        fn poll(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<T>> {
            unimplemented!()
        }
    }

    /// A pair.
    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        unimplemented!()
    }
}
