//! Whose turn it is to change what. A command that changes something takes all that it changes at
//! once, before it looks at it, and keeps it until it has ended: two changes of one thing come one
//! after the other, and changes that have nothing in common never wait for each other. Since
//! everything is taken at once, no two commands can wait for each other in a circle.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Fault;
use super::fault::Unavailable;

/// Something that one command at a time changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    /// The target's own settings, and where it listens.
    Target,
    /// The configuration file: one is applied at a time.
    File,
    /// A device or partition.
    Device(String),
    /// What a device injects: nothing else wants that, so it can be changed while a command waits
    /// for what hangs on the device.
    Faults(String),
    /// A file or device of the machine: two of our devices are not opened in it at the same time.
    Path(String),
    /// A pool.
    Pool(String),
    /// A tenant.
    Tenant(String),
    /// What a tenant is called: its volumes say so.
    TenantName(String),
    /// A volume.
    Volume(String),
    /// A function.
    Function(String),
}

/// How a command has an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// It has to stay as it is: so have others it.
    Kept,
    /// It is changed.
    Changed,
}

/// All that a command wants, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wants(BTreeMap<Object, Mode>);

impl Wants {
    /// To change one object.
    pub(super) fn change(object: Object) -> Self {
        Self::default().and(object, Mode::Changed)
    }

    /// And another one; the stronger of both ways if it is wanted already.
    pub(super) fn and(mut self, object: Object, mode: Mode) -> Self {
        let had = self.0.entry(object).or_insert(mode);
        *had = mode.max(*had);
        self
    }

    /// And all of another command.
    pub(super) fn and_all(self, other: Self) -> Self {
        let mut both = self;
        for (object, mode) in other.0 {
            both = both.and(object, mode);
        }
        both
    }

    /// Whether it counts among those that may not be too many. What frees others is let in however
    /// many wait, and asks no device.
    fn counts(&self) -> bool {
        let frees = |object: &Object| matches!(object, Object::Faults(_));
        self.0.is_empty() || !self.0.keys().all(frees)
    }
}

/// Commands that change something and have begun, or wait for their turn. As many again find a
/// place at the API, so whoever asks what is the matter is heard.
const MOST: usize = 32;

/// Who has what.
#[derive(Default)]
pub(super) struct Turns {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    /// Objects that somebody has: changed by one, or kept by so many.
    held: BTreeMap<Object, Held>,
    /// Commands that run, those that only read too.
    running: usize,
    /// Those that have a turn or wait for one, as far as they count.
    changing: usize,
    /// No command is let in any more.
    closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Changed,
    Kept(usize),
}

/// That a command runs, until it is dropped.
pub(super) struct Entry<'a>(&'a Turns);

/// That a command has what it wanted, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    wants: Wants,
}

impl Turns {
    /// Lets a command in, unless the target ends.
    pub(super) fn enter(&self) -> Result<Entry<'_>, Fault> {
        let mut table = self.lock();
        if table.closed {
            return Err(Unavailable::ShuttingDown.into());
        }
        table.running += 1;
        Ok(Entry(self))
    }

    /// Waits until nobody else has any of it in a way that excludes this. Somebody who has been let
    /// in and waits while the target ends is sent away.
    pub(super) fn take(&self, wants: Wants) -> Result<Turn<'_>, Fault> {
        let mut table = self.lock();
        let counted = usize::from(wants.counts());
        if table.changing + counted > MOST {
            return Err(Unavailable::TooMany(table.changing).into());
        }
        table.changing += counted;
        while !table.are_free(&wants) {
            if table.closed {
                table.changing -= counted;
                return Err(Unavailable::ShuttingDown.into());
            }
            table = self
                .changed
                .wait(table)
                .unwrap_or_else(PoisonError::into_inner);
        }
        table.hold(&wants);
        drop(table);
        Ok(Turn { turns: self, wants })
    }

    /// Lets no command in any more, and waits until those that run have ended.
    pub(super) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        self.changed.notify_all();
        while table.running > 0 {
            table = self
                .changed
                .wait(table)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the target ends.
    pub(super) fn are_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn are_free(&self, wants: &Wants) -> bool {
        let free = |(object, mode): (&Object, &Mode)| match (self.held.get(object), mode) {
            (None, _) | (Some(Held::Kept(_)), Mode::Kept) => true,
            (Some(_), _) => false,
        };
        wants.0.iter().all(free)
    }

    fn hold(&mut self, wants: &Wants) {
        for (object, mode) in &wants.0 {
            let held = match (self.held.get(object), mode) {
                (_, Mode::Changed) => Held::Changed,
                (Some(Held::Kept(others)), Mode::Kept) => Held::Kept(others + 1),
                (_, Mode::Kept) => Held::Kept(1),
            };
            self.held.insert(object.clone(), held);
        }
    }

    fn release(&mut self, wants: &Wants) {
        for object in wants.0.keys() {
            match self.held.get_mut(object) {
                Some(Held::Kept(others)) if *others > 1 => *others -= 1,
                _ => drop(self.held.remove(object)),
            }
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut table = self.turns.lock();
        table.release(&self.wants);
        table.changing -= usize::from(self.wants.counts());
        drop(table);
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::super::Stack;
    use super::*;
    use crate::control::Request;
    use crate::spec::Config;

    fn volume(name: &str) -> Object {
        Object::Volume(name.into())
    }

    fn pool(mode: Mode) -> Wants {
        Wants::change(volume("v")).and(Object::Pool("p".into()), mode)
    }

    fn is_free(turns: &Turns, wants: &Wants) -> bool {
        turns.lock().are_free(wants)
    }

    #[test]
    fn only_what_is_wanted_by_both_excludes() {
        let turns = Turns::default();
        let one = turns.take(pool(Mode::Kept)).expect("it is open");
        let keeps = Wants::change(volume("w")).and(Object::Pool("p".into()), Mode::Kept);
        for (wants, free) in [
            (pool(Mode::Kept), false),
            (Wants::change(volume("w")), true),
            (keeps.clone(), true),
            (Wants::change(Object::Pool("p".into())), false),
            (Wants::change(Object::Device("p".into())), true),
            (Wants::change(Object::Target), true),
        ] {
            assert_eq!(is_free(&turns, &wants), free, "{wants:?}");
        }
        let two = turns.take(keeps).expect("it is open");
        drop(one);
        let whole = Wants::change(Object::Pool("p".into()));
        assert!(!is_free(&turns, &whole), "one keeps it still");
        drop(two);
        assert!(is_free(&turns, &whole));
        assert!(turns.lock().held.is_empty());
    }

    #[test]
    fn a_tenant_keeps_its_name_while_it_gets_a_volume() {
        let (stack, turns) = (Stack::default(), Turns::default());
        let config = "[[volume]]\nname = \"v\"\npool = \"p\"\nsize = \"1MiB\"\ntenant = \"a\"";
        let config = Config::parse(config).expect("it is right");
        let rename = Request::RenameTenant {
            name: "a".into(),
            new: "b".into(),
        };
        let set = Request::CreateTenant {
            spec: toml::from_str("name = \"a\"").expect("a tenant"),
            force: false,
        };
        let gets = [
            Request::CreateVolume {
                spec: config.volumes[0].clone(),
                force: false,
            },
            Request::MoveVolume {
                name: "w".into(),
                tenant: "a".into(),
                nsid: None,
                force: false,
            },
        ];
        for get in gets {
            let turn = turns.take(stack.wants_of(&get)).expect("it is open");
            assert!(!is_free(&turns, &stack.wants_of(&rename)), "{get:?}");
            assert!(is_free(&turns, &stack.wants_of(&set)), "{get:?}");
            drop(turn);
        }
    }

    #[test]
    fn who_waits_has_its_turn_next_and_holds_nothing_meanwhile() {
        let turns = Turns::default();
        let first = turns.take(pool(Mode::Changed)).expect("it is open");
        let (tell, answered) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let both = Wants::change(volume("v")).and(volume("w"), Mode::Changed);
                let turn = turns.take(both);
                tell.send(()).expect("it is heard");
                drop(turn);
            });
            drop(
                turns
                    .take(Wants::change(volume("w")))
                    .expect("nobody has it"),
            );
            assert!(answered.try_recv().is_err(), "the first has its volume");
            drop(first);
            answered.recv().expect("it has its turn now");
        });
    }

    #[test]
    fn commands_that_wait_without_end_leave_room_for_those_who_look() {
        let turns = Turns::default();
        let take = |number: usize| turns.take(Wants::change(volume(&number.to_string())));
        let mut held: Vec<_> = (0..MOST).map(take).collect();
        assert!(held.iter().all(Result::is_ok));
        assert!(take(MOST).is_err(), "there are too many");
        let free = || turns.take(Wants::change(Object::Faults("d".into())));
        drop(free().expect("what may end the others is let in"));
        assert!(take(MOST).is_err(), "there are as many as before");
        drop(free().expect("and again"));
        assert!(turns.enter().is_ok(), "who looks is let in");
        held.pop();
        assert!(take(MOST).is_ok(), "one has ended");
    }

    #[test]
    fn the_end_waits_for_those_who_run_and_sends_away_who_wait() {
        let turns = Turns::default();
        let entry = turns.enter().expect("it is open");
        let first = turns.take(pool(Mode::Changed)).expect("it is open");
        thread::scope(|scope| {
            let waits = scope.spawn(|| turns.take(pool(Mode::Kept)).is_err());
            let ends = scope.spawn(|| turns.close());
            assert!(waits.join().expect("it ends"), "it never had its turn");
            assert!(turns.enter().is_err(), "no command is let in any more");
            drop((first, entry));
            ends.join().expect("all have ended");
        });
    }
}
