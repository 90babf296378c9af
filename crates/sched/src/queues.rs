//! Queues of I/Os that a policy holds: many lists through one table, so that an I/O can be taken
//! out of the middle.

use alloc::vec::Vec;

use crate::{Ask, Class, IoId, Op, TenantId};

/// The end of a list, and the list of what is in none.
const NONE: u32 = u32::MAX;

/// First-in-first-out lists, each named by a small number. Every call takes constant time; memory
/// is one place per id and one small record per list, taken when first used and kept.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    places: Vec<Place>,
    lists: Vec<List>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    io: Ask,
    list: u32,
    before: u32,
    behind: u32,
}

const FREE: Place = Place {
    io: Ask {
        id: IoId(NONE),
        tenant: TenantId(0),
        class: Class::Throughput,
        op: Op::Read,
        bytes: 0,
        lba: 0,
    },
    list: NONE,
    before: NONE,
    behind: NONE,
};

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    length: u32,
}

const EMPTY: List = List {
    head: NONE,
    tail: NONE,
    length: 0,
};

impl Queues {
    /// Puts `io` at the end of a list.
    ///
    /// # Panics
    /// When it is in a list already.
    pub(crate) fn push(&mut self, list: u32, io: Ask) {
        let IoId(index) = io.id;
        assert!(index != NONE && list != NONE, "ids are small numbers");
        if index as usize >= self.places.len() {
            self.places.resize(index as usize + 1, FREE);
        }
        if list as usize >= self.lists.len() {
            self.lists.resize(list as usize + 1, EMPTY);
        }
        let lane = &mut self.lists[list as usize];
        let place = &mut self.places[index as usize];
        assert!(place.list == NONE, "an id arrives once");
        *place = Place {
            io,
            list,
            before: lane.tail,
            behind: NONE,
        };
        match self.places.get_mut(lane.tail as usize) {
            Some(last) => last.behind = index,
            None => lane.head = index,
        }
        lane.tail = index;
        lane.length += 1;
    }

    /// The oldest in a list.
    pub(crate) fn front(&self, list: u32) -> Option<&Ask> {
        let head = self.lists.get(list as usize)?.head;
        self.places.get(head as usize).map(|place| &place.io)
    }

    /// Takes out the oldest of a list.
    pub(crate) fn pop(&mut self, list: u32) -> Option<Ask> {
        let id = self.front(list)?.id;
        self.remove(id).map(|(_, io)| io)
    }

    /// Takes out an I/O wherever it is, and says which list that was; nothing when it is in none.
    pub(crate) fn remove(&mut self, id: IoId) -> Option<(u32, Ask)> {
        let place = self.places.get_mut(id.0 as usize)?;
        if place.list == NONE {
            return None;
        }
        let Place {
            io,
            list,
            before,
            behind,
        } = core::mem::replace(place, FREE);
        let lane = &mut self.lists[list as usize];
        match self.places.get_mut(before as usize) {
            Some(place) => place.behind = behind,
            None => lane.head = behind,
        }
        match self.places.get_mut(behind as usize) {
            Some(place) => place.before = before,
            None => lane.tail = before,
        }
        lane.length -= 1;
        Some((list, io))
    }

    /// How many are in a list.
    pub(crate) fn length(&self, list: u32) -> u32 {
        self.lists.get(list as usize).map_or(0, |list| list.length)
    }

    /// Whether a list has nothing in it.
    pub(crate) fn is_empty(&self, list: u32) -> bool {
        self.length(list) == 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use flashyard_time::Rng;

    use super::*;

    fn io(id: u32) -> Ask {
        Ask {
            id: IoId(id),
            ..FREE.io
        }
    }

    #[test]
    fn lists_keep_their_order_whatever_is_taken_out() {
        let mut queues = Queues::default();
        let mut model = [const { VecDeque::new() }; 3];
        let mut free: Vec<u32> = (0..20).collect();
        let mut chance = Rng::new(1);
        for _ in 0..5_000 {
            let list = chance.below(3) as usize;
            match chance.below(4) {
                0 | 1 => {
                    if let Some(id) = free.pop() {
                        queues.push(list as u32, io(id));
                        model[list].push_back(id);
                    }
                }
                2 => {
                    let expected: Option<u32> = model[list].pop_front();
                    assert_eq!(queues.pop(list as u32).map(|io| io.id.0), expected);
                    free.extend(expected);
                }
                _ => {
                    let id = chance.below(25) as u32;
                    let held = model.iter().position(|list| list.contains(&id));
                    let removed = queues.remove(IoId(id));
                    assert_eq!(removed.map(|(list, _)| list as usize), held);
                    if let Some(held) = held {
                        model[held].retain(|other| *other != id);
                        free.push(id);
                    }
                }
            }
            for (list, model) in (0..).zip(&model) {
                assert_eq!(queues.length(list) as usize, model.len());
                assert_eq!(queues.front(list).map(|io| io.id.0), model.front().copied());
                assert_eq!(queues.is_empty(list), model.is_empty());
            }
        }
    }
}
