//! The map but for its leaves: the page table, and the inner pages of each volume.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::format::page::FANOUT;
use crate::format::rows::{PageRef, Row};

/// Levels of inner pages: the first has numbers of leaves.
pub(super) const LEVELS: usize = 3;

/// Numbers of the pages that are not of a volume: those of the segment table, and those of the
/// catalogue.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    pub segments: Range<u32>,
    pub catalogue: Range<u32>,
}

impl System {
    /// Whether this page is one of them.
    pub fn has(&self, page: u32) -> bool {
        page == 0 || self.segments.contains(&page) || self.catalogue.contains(&page)
    }
}

/// The page table: where each page is.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub system: System,
    refs: Vec<PageRef>,
    free: Vec<u32>,
    /// Pages of the table that have changed.
    dirty: Vec<bool>,
    /// Where the pages of the table are, and those of the directory.
    pub table: Vec<PageRef>,
    pub directory: Vec<PageRef>,
    pub directory_dirty: Vec<bool>,
}

impl Pages {
    /// Those of the system are there from the beginning.
    pub fn new(system: System) -> Self {
        let end = system.segments.end.max(system.catalogue.end);
        let mut pages = Self {
            system,
            ..Self::default()
        };
        pages.resize(end);
        pages
    }

    /// Numbers below `count` exist.
    pub fn resize(&mut self, count: u32) {
        self.refs.resize(count as usize, PageRef::default());
        let tables = self.refs.len().div_ceil(PageRef::PER_PAGE);
        self.dirty.resize(tables, true);
        self.table.resize(tables, PageRef::default());
        let directories = tables.div_ceil(PageRef::PER_PAGE);
        self.directory.resize(directories, PageRef::default());
        self.directory_dirty.resize(directories, true);
    }

    /// Numbers that were not used can be given.
    pub fn find_free(&mut self) {
        let free = |&page: &u32| !self.refs[page as usize].is_used() && !self.system.has(page);
        self.free = (0..self.count()).rev().filter(free).collect();
    }

    /// The segment table has so many pages now, behind all others; gives the numbers that it had.
    pub fn move_segment_table(&mut self, pages: u32) -> Range<u32> {
        let first = self.count();
        self.resize(first + pages);
        core::mem::replace(&mut self.system.segments, first..first + pages)
    }

    pub fn count(&self) -> u32 {
        self.refs.len() as u32
    }

    /// Pages with numbers in use.
    pub fn used(&self) -> u64 {
        (self.refs.len() - self.free.len()) as u64
    }

    pub fn get(&self, page: u32) -> PageRef {
        self.refs.get(page as usize).copied().unwrap_or_default()
    }

    pub fn set(&mut self, page: u32, to: PageRef) {
        self.refs[page as usize] = to;
        self.dirty[page as usize / PageRef::PER_PAGE] = true;
    }

    pub fn get_mut(&mut self, page: u32) -> &mut PageRef {
        self.dirty[page as usize / PageRef::PER_PAGE] = true;
        &mut self.refs[page as usize]
    }

    pub fn add(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.resize(self.count() + 1);
            self.count() - 1
        })
    }

    pub fn remove(&mut self, page: u32) {
        self.set(page, PageRef::default());
        self.free.push(page);
    }

    /// A page of the table that has changed since it was asked last.
    pub fn take_dirty(&mut self) -> Option<u32> {
        let place = self.dirty.iter().position(|&dirty| dirty)?;
        self.dirty[place] = false;
        Some(place as u32)
    }

    /// A page of the directory that has changed since it was asked last.
    pub fn take_dirty_directory(&mut self) -> Option<u32> {
        let place = self.directory_dirty.iter().position(|&dirty| dirty)?;
        self.directory_dirty[place] = false;
        Some(place as u32)
    }

    pub fn set_dirty(&mut self, table: u32) {
        self.dirty[table as usize] = true;
    }

    /// Nothing has changed.
    pub fn set_clean(&mut self) {
        self.dirty.fill(false);
        self.directory_dirty.fill(false);
    }

    /// Rows of a page of the table.
    pub fn rows(&self, table: u32) -> &[PageRef] {
        part(&self.refs, table)
    }

    /// Rows of a page of the directory.
    pub fn directory_rows(&self, directory: u32) -> &[PageRef] {
        part(&self.table, directory)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, PageRef)> {
        (0..).zip(self.refs.iter().copied())
    }
}

fn part(all: &[PageRef], number: u32) -> &[PageRef] {
    let from = number as usize * PageRef::PER_PAGE;
    &all[from..all.len().min(from + PageRef::PER_PAGE)]
}

/// An inner page.
#[derive(Debug)]
pub(super) struct Inner {
    pub page: u32,
    pub children: Box<[u32; FANOUT]>,
    pub dirty: bool,
}

/// The inner pages of a volume, by level and index.
#[derive(Debug, Default)]
pub(super) struct Tree {
    levels: [Vec<Option<Inner>>; LEVELS],
    pages: u64,
}

impl Tree {
    /// The page of a leaf; 0 when nothing in it is mapped.
    #[inline]
    pub fn leaf(&self, leaf: u64) -> u32 {
        let inner = self.levels[0].get(leaf as usize / FANOUT);
        inner
            .and_then(Option::as_ref)
            .map_or(0, |inner| inner.children[leaf as usize % FANOUT])
    }

    /// How many pages it has, with its leaves.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// How many pages a leaf would add.
    pub fn missing(&self, leaf: u64) -> u64 {
        let mut index = leaf as usize;
        let mut missing = u64::from(self.leaf(leaf) == 0);
        for level in &self.levels {
            index /= FANOUT;
            missing += u64::from(!matches!(level.get(index), Some(Some(_))));
        }
        missing
    }

    /// Counts them anew, when all were read.
    pub fn count_pages(&mut self) {
        let inners = self.levels.iter().flatten().flatten().count();
        let lowest = self.levels[0].iter().flatten();
        let leaves = lowest.flat_map(|inner| inner.children.iter());
        self.pages = (inners + leaves.filter(|&&page| page != 0).count()) as u64;
    }

    /// The highest page.
    pub fn root(&self) -> u32 {
        let root = self.levels[LEVELS - 1].first();
        root.and_then(Option::as_ref).map_or(0, |inner| inner.page)
    }

    /// Changes the page of a leaf, and makes or removes pages above it.
    pub fn set_leaf(&mut self, leaf: u64, page: u32, pages: &mut Pages, gone: &mut Vec<u32>) {
        let (mut index, mut child) = (leaf as usize, page);
        self.pages += u64::from(page != 0);
        self.pages -= u64::from(self.leaf(leaf) != 0);
        for level in &mut self.levels {
            let (place, within) = (index / FANOUT, index % FANOUT);
            if level.len() <= place {
                level.resize_with(place + 1, || None);
            }
            let is_new = level[place].is_none();
            self.pages += u64::from(is_new);
            let inner = level[place].get_or_insert_with(|| Inner {
                page: pages.add(),
                children: vec![0; FANOUT].try_into().expect("as many as a page has"),
                dirty: true,
            });
            inner.children[within] = child;
            inner.dirty = true;
            let empty = child == 0 && inner.children.iter().all(|&child| child == 0);
            (index, child) = (place, inner.page);
            if empty {
                gone.push(inner.page);
                self.pages -= 1;
                level[place] = None;
                child = 0;
            } else if !is_new {
                return;
            }
        }
    }

    /// Takes an inner page as it was read.
    pub fn restore(&mut self, level: usize, index: usize, inner: Inner) {
        let level = &mut self.levels[level];
        if level.len() <= index {
            level.resize_with(index + 1, || None);
        }
        level[index] = Some(inner);
    }

    /// Each inner page with its level and index.
    pub fn inner_mut(&mut self) -> impl Iterator<Item = (usize, usize, &mut Inner)> {
        let levels = self.levels.iter_mut().enumerate();
        levels.flat_map(|(level, all)| {
            let all = all.iter_mut().enumerate();
            all.filter_map(move |(index, inner)| Some((level, index, inner.as_mut()?)))
        })
    }

    /// The first leaf that has a page, from `from` on.
    pub fn next_leaf(&self, from: u64) -> Option<(u64, u32)> {
        let first = from as usize / FANOUT;
        let inners = self.levels[0].iter().enumerate().skip(first);
        inners
            .filter_map(|(index, inner)| Some((index, inner.as_ref()?)))
            .find_map(|(index, inner)| {
                let skip = (from as usize).saturating_sub(index * FANOUT);
                let mut children = inner.children.iter().enumerate().skip(skip);
                let (within, page) = children.find(|(_, page)| **page != 0)?;
                Some(((index * FANOUT + within) as u64, *page))
            })
    }
}
