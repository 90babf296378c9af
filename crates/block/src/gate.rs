//! The gate in front of a device or volume. It counts what is in flight, keeps a range exclusive
//! for a compare-and-write, and closes for good. An I/O that finds it open pays two counters.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_runtime::sync::{Notify, Semaphore};
use flashyard_runtime::{Buf, Rt, Shared};

use crate::durability::{Durability, Turn};
use crate::io::{Done, Pair};
use crate::{IoError, IoFuture};

/// Blocks or bytes (one unit per gate) from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first one.
    pub start: u64,
    /// The one behind the last.
    pub end: u64,
}

impl Span {
    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// See the module.
///
/// Exclusive sections run one at a time. A section begins by barring its range and waiting for all
/// I/O that was let in before, on any range: remembering ranges would cost each I/O more than rare
/// compare-and-writes gain. Later I/O that does not touch the range passes all the time.
pub struct Gate {
    rt: Rt,
    /// Something is barred or closed: the slow way in.
    watched: Cell<bool>,
    closed: Cell<Option<IoError>>,
    exclusive: Cell<Option<Span>>,
    /// Held by the exclusive section.
    turn: Semaphore,
    /// I/Os in flight, by the epoch they entered in. An exclusive section starts a new epoch.
    in_flight: [Cell<u64>; 2],
    epoch: Cell<u8>,
    changed: Notify,
    /// A read could not be given whole since the last query.
    read_failed: Cell<bool>,
    /// The durability of this device's flushes.
    pub(crate) durability: Durability,
}

impl Gate {
    /// An open gate with nothing behind it.
    pub fn new(rt: &Rt) -> Rc<Self> {
        Rc::new(Self {
            rt: rt.clone(),
            watched: Cell::new(false),
            closed: Cell::new(None),
            exclusive: Cell::new(None),
            turn: Semaphore::new(1),
            in_flight: [Cell::new(0), Cell::new(0)],
            epoch: Cell::new(0),
            changed: Notify::new(),
            read_failed: Cell::new(false),
            durability: Durability::default(),
        })
    }

    /// Where I/O that passes it runs on when no task waits for it.
    pub fn runtime(&self) -> &Rt {
        &self.rt
    }

    /// Lets an I/O on `span` in, at once or when the range is free, and keeps count of it until it
    /// has ended. `durable`: its failure is one of the device's durability.
    #[inline]
    pub fn pass<F>(self: &Rc<Self>, span: Span, durable: bool, start: F) -> IoFuture
    where
        F: FnOnce() -> IoFuture + 'static,
    {
        if !self.watched.get() {
            let hold = self.enter(durable);
            return start().keep(hold);
        }
        let gate = self.clone();
        IoFuture::boxed(async move {
            gate.free(span).await?;
            let hold = gate.enter(durable);
            start().keep(hold).await
        })
    }

    /// Compares and writes atomically, for every device that can read and write:
    /// `read` and `write` do so on `span` with the buffer or data given, and do not pass the gate.
    pub fn compare_and_write<R, W>(
        self: &Rc<Self>,
        span: Span,
        durable: bool,
        pair: Box<Pair>,
        (read, write): (R, W),
    ) -> IoFuture
    where
        R: FnOnce(Buf) -> IoFuture + 'static,
        W: FnOnce(Shared) -> IoFuture + 'static,
    {
        let gate = self.clone();
        IoFuture::boxed(async move {
            let hold = gate.exclude(span, durable).await?;
            let current = Buf::take(pair.len()).ok_or(IoError::Busy)?;
            pair.check(&read(current).await?.data)?;
            let (_, data) = pair.into_halves();
            // The write keeps the range barred until it has ended, even if no task waits for it any
            // more.
            write(data).keep(hold).await
        })
    }

    /// Begins an exclusive section on `span`; it ends when the hold is dropped.
    pub(crate) async fn exclude(
        self: &Rc<Self>,
        span: Span,
        durable: bool,
    ) -> Result<Hold, IoError> {
        self.turn.acquire(1).await;
        let hold = Hold {
            gate: self.clone(),
            role: Role::Exclusive,
            durable,
        };
        if let Some(error) = self.closed.get() {
            return Err(error);
        }
        self.exclusive.set(Some(span));
        self.watched.set(true);
        let old = self.epoch.get();
        // The other epoch is empty, unless an exclusive section was given up while it waited for
        // that.
        self.emptied(old ^ 1).await;
        self.epoch.set(old ^ 1);
        self.emptied(old).await;
        Ok(hold)
    }

    /// A flush that shares what is running and what waits; `start` issues one.
    pub fn flush<F>(self: &Rc<Self>, start: F) -> IoFuture
    where
        F: FnOnce() -> IoFuture + 'static,
    {
        if let Err(error) = self.durability.check() {
            return IoFuture::ready(Err(error));
        }
        if self.durability.try_lead() {
            return start().keep(self.lead_flush());
        }
        let gate = self.clone();
        IoFuture::boxed(async move {
            match gate.durability.join().await? {
                Turn::Served => Ok(Done::EMPTY),
                Turn::Lead => start().keep(gate.lead_flush()).await,
            }
        })
    }

    /// A hold that counts nothing, for a flush that was issued: it records what the flush has
    /// proved.
    fn lead_flush(self: &Rc<Self>) -> Hold {
        Hold {
            gate: self.clone(),
            role: Role::Flush,
            durable: false,
        }
    }

    /// Whether a read has failed on the medium since this was asked last.
    #[inline]
    pub(crate) fn take_failed_read(&self) -> bool {
        self.read_failed.replace(false)
    }

    /// Refuses all later I/O with `error`.
    pub fn close(&self, error: IoError) {
        self.closed.set(Some(error));
        self.watched.set(true);
        self.changed.notify_all();
    }

    /// Whether [`Gate::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Finishes when nothing is in flight any more. Of use after [`Gate::close`].
    pub async fn drained(&self) {
        self.turn.acquire(1).await;
        self.turn.release(1);
        self.emptied(0).await;
        self.emptied(1).await;
    }

    fn enter(self: &Rc<Self>, durable: bool) -> Hold {
        let epoch = self.epoch.get();
        let count = &self.in_flight[epoch as usize];
        count.set(count.get() + 1);
        Hold {
            gate: self.clone(),
            role: Role::Entered(epoch),
            durable,
        }
    }

    async fn free(&self, span: Span) -> Result<(), IoError> {
        loop {
            if let Some(error) = self.closed.get() {
                return Err(error);
            }
            if !self
                .exclusive
                .get()
                .is_some_and(|barred| barred.overlaps(span))
            {
                return Ok(());
            }
            self.changed.notified().await;
        }
    }

    async fn emptied(&self, epoch: u8) {
        while self.in_flight[epoch as usize].get() > 0 {
            self.changed.notified().await;
        }
    }

    fn leave(&self, epoch: u8) {
        let count = &self.in_flight[epoch as usize];
        count.set(count.get() - 1);
        if count.get() == 0 && self.watched.get() {
            self.changed.notify_all();
        }
    }

    fn end_exclusive(&self) {
        self.exclusive.set(None);
        self.watched.set(self.closed.get().is_some());
        self.turn.release(1);
        self.changed.notify_all();
    }
}

/// An I/O that the gate counts; it ends when dropped.
pub(crate) struct Hold {
    gate: Rc<Gate>,
    role: Role,
    durable: bool,
}

#[derive(Clone, Copy)]
enum Role {
    Entered(u8),
    Exclusive,
    Flush,
}

impl Hold {
    /// The runtime its I/O can run on in when no task waits for it.
    pub(crate) fn runtime(&self) -> Rt {
        self.gate.rt.clone()
    }

    /// Ends the I/O with its result, and gives back what may be reported: a promise of
    /// durability is not kept once any has been broken.
    pub(crate) fn settle<T>(self, result: Result<T, IoError>) -> Result<T, IoError> {
        if matches!(result, Err(IoError::Read)) {
            self.gate.read_failed.set(true);
        }
        match self.role {
            Role::Flush => self.gate.durability.judge_flush(result),
            _ if self.durable => self.gate.durability.judge_write(result),
            _ => result,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        match self.role {
            Role::Entered(epoch) => self.gate.leave(epoch),
            Role::Exclusive => self.gate.end_exclusive(),
            Role::Flush => self.gate.durability.flush_ended(),
        }
    }
}

#[cfg(test)]
mod tests {
    use flashyard_runtime::sim::{Config, World};
    use flashyard_time::Duration;

    use super::*;

    #[test]
    fn exactly_what_touches_the_range_waits() {
        let world = World::new(Config::calm(1));
        let machine = world.machine(1);
        world.run(&machine, async |rt: Rt| {
            let barred = Span { start: 3, end: 6 };
            for start in 0..9 {
                for end in start + 1..10 {
                    let gate = Gate::new(&rt);
                    let hold = gate.exclude(barred, false).await.expect("it is open");
                    let passed = Rc::new(Cell::new(false));
                    let pass = passed.clone();
                    let io = rt.spawn(gate.pass(Span { start, end }, false, move || {
                        pass.set(true);
                        IoFuture::ended(Ok(()))
                    }));
                    rt.sleep(Duration::from_ms(1)).await;
                    let touches = (start..end).any(|at| (3..6).contains(&at));
                    assert_eq!(passed.get(), !touches, "{start}..{end}");
                    drop(hold);
                    assert!(io.await.is_ok(), "{start}..{end}");
                }
            }
        });
    }
}
