//! The tenants that a policy knows, by small numbers.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::TenantId;

/// What is kept of each tenant that is known. Numbers of tenants that were let go are used again.
#[derive(Debug)]
pub struct Roster<T> {
    /// The number of each id, ordered by id.
    known: Vec<(TenantId, u32)>,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    id: TenantId,
    state: T,
}

impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self {
            known: Vec::new(),
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Roster<T> {
    /// The number of `id`; one that was not known begins with what `new` gives.
    pub fn number(&mut self, id: TenantId, new: impl FnOnce() -> T) -> u32 {
        let at = match self.place(id) {
            Ok(at) => return self.known[at].1,
            Err(at) => at,
        };
        let entry = Entry { id, state: new() };
        let number = if let Some(number) = self.free.pop() {
            self.entries[number as usize] = entry;
            number
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.known.insert(at, (id, number));
        number
    }

    /// The number of `id`, if it is known.
    #[inline]
    pub fn find(&self, id: TenantId) -> Option<u32> {
        self.place(id).ok().map(|at| self.known[at].1)
    }

    /// Lets the tenant of this number go, if it has not gone already.
    pub fn release(&mut self, number: u32) {
        let at = self.place(self.entries[number as usize].id);
        if let Some(at) = at.ok().filter(|&at| self.known[at].1 == number) {
            self.known.remove(at);
            self.free.push(number);
        }
    }

    /// Every tenant with its number, ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = (TenantId, u32, &T)> {
        let entry = |&(id, number): &(TenantId, u32)| (id, number, &self[number]);
        self.known.iter().map(entry)
    }

    fn place(&self, id: TenantId) -> Result<usize, usize> {
        self.known.binary_search_by_key(&id, |known| known.0)
    }
}

impl<T> Index<u32> for Roster<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.entries[number as usize].state
    }
}

impl<T> IndexMut<u32> for Roster<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.entries[number as usize].state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_small_and_used_again() {
        let mut roster = Roster::default();
        let numbers = [7, 3, u32::MAX].map(|id| roster.number(TenantId(id), || id));
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(roster.number(TenantId(3), || 0), 1);
        roster.release(1);
        assert_eq!(roster.find(TenantId(3)), None);
        assert_eq!(roster.number(TenantId(9), || 9), 1);
        let seen: Vec<_> = roster
            .iter()
            .map(|(id, number, _)| (id.0, number))
            .collect();
        assert_eq!(seen, [(7, 0), (9, 1), (u32::MAX, 2)]);
        assert_eq!(roster[2], u32::MAX);
    }
}
