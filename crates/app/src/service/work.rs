//! A command at work. It reads a copy of the stack, which nobody changes under it, asks cores
//! without a lock, and changes store and stack together at single points (`commit`).

use std::ops::Deref;
use std::sync::{Arc, MutexGuard, PoisonError};

use flashyard_engine::Target;

use super::turns::{Entry, Turn, Wants};
use super::{Fault, Service, Stack, Subject};
use crate::control::Asker;
use crate::cores::Cores;
use crate::graph::NodeId;
use crate::published::Report;
use crate::state::{State, StateError};

/// A command at work.
pub(super) struct Work<'a> {
    pub(super) service: &'a Service,
    pub(super) cores: &'a Cores,
    pub(super) target: &'a Arc<Target>,
    /// As it was when this command looked, or changed something itself, last.
    stack: Arc<Stack>,
    /// All cores were asked just now: what they have reported is current.
    has_asked: bool,
    /// Who waits for it.
    pub(super) asker: &'a dyn Asker,
    /// The target does not end meanwhile.
    _entry: Entry<'a>,
}

impl Deref for Work<'_> {
    type Target = Stack;
    fn deref(&self) -> &Stack {
        &self.stack
    }
}

impl<'a> Work<'a> {
    pub(super) fn begin(service: &'a Service, asker: &'a dyn Asker) -> Result<Self, Fault> {
        let entry = service.turns.enter()?;
        Ok(Self {
            service,
            cores: &service.cores,
            target: &service.target,
            stack: service.stack(),
            has_asked: false,
            asker,
            _entry: entry,
        })
    }

    /// Takes turns at what `wants` finds in the stack. What it would find may change while this
    /// waits; then it is let go, and taken anew.
    pub(super) fn take(
        &mut self,
        wants: impl Fn(&Self) -> Result<Wants, Fault>,
    ) -> Result<Turn<'a>, Fault> {
        loop {
            let wanted = wants(self)?;
            let turn = self.service.turns.take(wanted.clone())?;
            self.look();
            if wants(self)? == wanted {
                return Ok(turn);
            }
        }
    }

    /// Sees what others have changed since.
    pub(super) fn look(&mut self) {
        self.stack = self.service.stack();
    }

    /// Changes store and stack: all of it, or nothing if `change` fails. What `change` checks in
    /// the stack holds until it has ended, for nobody else changes anything meanwhile; what it
    /// gives changes the stack, and cannot fail. It is short: it may wait for the store's disk, and
    /// for nothing else.
    pub(super) fn commit<T, E: FnOnce(&mut Stack) -> T>(
        &mut self,
        change: impl FnOnce(&mut State, &Stack) -> Result<E, Fault>,
    ) -> Result<T, Fault> {
        let mut state = self.service.store();
        self.look();
        let edit = change(&mut state, &self.stack)?;
        Ok(self.replace(edit))
    }

    /// Changes what only the store has.
    pub(super) fn store(
        &mut self,
        change: impl FnOnce(&mut State) -> Result<(), StateError>,
    ) -> Result<(), Fault> {
        self.commit(|state, _| {
            change(state)?;
            Ok(|_: &mut Stack| ())
        })
    }

    /// Changes what is known besides the store.
    pub(super) fn edit<T>(&mut self, change: impl FnOnce(&mut Stack) -> T) -> T {
        let _state = self.service.store();
        self.replace(change)
    }

    /// Only for who has the store. The stack is changed where it stands, and copied only if
    /// somebody is looking at it as it was.
    fn replace<T>(&mut self, change: impl FnOnce(&mut Stack) -> T) -> T {
        self.stack = Arc::default();
        let mut stack = self.service.lock_stack();
        let changed = Arc::make_mut(&mut stack);
        let outcome = change(changed);
        changed.standings.forget();
        self.stack = Arc::clone(&stack);
        outcome
    }

    /// A number for something that is yet to be made.
    pub(super) fn reserve(&mut self) -> NodeId {
        self.edit(|stack| stack.graph.reserve())
    }

    /// Sends to a core what follows from the stack, in the order in which the stack changes: cores
    /// take up what they are sent in its order, so what was sent last is what holds. Waits for the
    /// core when others may change the stack again.
    pub(super) fn send_in_order<T>(
        &self,
        send: impl FnOnce(&Stack) -> Option<crate::cores::Reply<T>>,
    ) -> Option<T> {
        let state = self.service.store();
        let reply = send(&self.service.stack());
        drop(state);
        reply.map(crate::cores::Reply::wait)
    }

    /// Asks all cores at once, for a command that shows much of them and changes nothing; those
    /// that do not answer, whose devices are shown as last reported.
    pub(super) fn ask_all(&mut self) -> Vec<usize> {
        self.has_asked = true;
        self.cores.ask(0..self.cores.count(), None)
    }

    /// What the home core of a device tells of it, or of a pool on it.
    pub(super) fn report(&self, core: usize, id: NodeId) -> Option<Arc<Report>> {
        if !self.has_asked {
            self.cores.ask([core], Some(id));
        }
        self.cores.report(core, id)
    }

    /// Notes why something is not available.
    pub(super) fn note_fault(&mut self, what: Subject, why: Fault) {
        self.edit(|stack| stack.faults.insert(what, Arc::new(why)));
    }
}

impl Service {
    /// The stack at this moment.
    pub(super) fn stack(&self) -> Arc<Stack> {
        Arc::clone(&self.lock_stack())
    }

    /// The store, and with it the right to change the stack.
    pub(super) fn store(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_stack(&self) -> MutexGuard<'_, Arc<Stack>> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
