//! Pages of the map on their way to map segments: two streams, so that what is written twice lies
//! in different segments.

use super::io::{Action, AnyPage, IoOp, Part, Purpose, Tag, Target};
use super::segments::Use;
use super::state::{CATALOGUE_PAGES, Store};
use crate::format::page::{Head, PageKind, encode_inner};
use crate::format::rows::{PageRef, Row};
use crate::format::{BLOCK, BLOCK_SECTORS, Block, block_sum};

/// Pages of a run at most.
const RUN: u32 = 64;
/// Runs that fail one after another before the device counts as failed.
const MOST_FAILURES: u32 = 4;

impl Store {
    /// Gives a page a new place, or two, and writes it there.
    pub(super) fn put_page(&mut self, page: AnyPage, bytes: &Block, twice: bool) {
        self.page_ref(page).crc = block_sum(bytes);
        for second in [false, true].into_iter().take(1 + usize::from(twice)) {
            self.put_copy(Target { page, second }, bytes);
        }
    }

    fn put_copy(&mut self, target: Target, bytes: &Block) {
        let stream = usize::from(target.second);
        let blocks = self.segments.geometry.segment_blocks;
        let writer = &self.writers[stream];
        if writer.segment.is_none() || writer.next == blocks {
            self.end_run(stream);
            let Some(number) = self.segments.find_free(self.hand) else {
                return self.go_read_only();
            };
            self.hand = number;
            self.segments.set_use(number, Use::Map);
            self.segments.get_mut(number).live = 0;
            self.writers[stream].segment = Some(number);
            self.writers[stream].next = 0;
        }
        let writer = &mut self.writers[stream];
        let Some(segment) = writer.segment else {
            return;
        };
        let block = self.segments.geometry.block(segment) + u64::from(writer.next);
        writer.next += 1;
        writer.run.extend_from_slice(bytes);
        writer.targets.push(target);
        let row = self.segments.geometry.row;
        let full = writer.targets.len() == (RUN / row * row) as usize;
        self.segments.add_page(segment, true);
        let place = self.page_ref(target.page);
        let was = match target.second {
            false => core::mem::replace(&mut place.block, block),
            true => core::mem::replace(&mut place.copy, block),
        };
        self.release_place(was);
        if full {
            self.end_run(stream);
        }
    }

    fn page_ref(&mut self, page: AnyPage) -> &mut PageRef {
        match page {
            AnyPage::Numbered(page) => self.pages.get_mut(page),
            AnyPage::Table(table) => &mut self.pages.table[table as usize],
            AnyPage::Directory(directory) => &mut self.pages.directory[directory as usize],
        }
    }

    /// What was at this block is not needed any more, once a checkpoint says so.
    pub(super) fn release_place(&mut self, block: u64) {
        if let Some((segment, _)) = self.segments.geometry.locate(block) {
            self.segments.add_page(segment, false);
        }
    }

    pub(super) fn end_runs(&mut self) {
        self.end_run(0);
        self.end_run(1);
    }

    fn end_run(&mut self, stream: usize) {
        let geometry = self.segments.geometry;
        let writer = &mut self.writers[stream];
        let count = writer.targets.len() as u32;
        let Some(segment) = writer.segment.filter(|_| count > 0) else {
            return;
        };
        let block = geometry.block(segment) + u64::from(writer.next - count);
        let blocks = geometry.whole(count);
        writer.next += blocks - count;
        let tag = self.ios.begin(IoOp::Write, block, blocks, Purpose::MapRun);
        let io = self.ios.get_mut(tag);
        core::mem::swap(&mut io.own, &mut writer.run);
        core::mem::swap(&mut io.targets, &mut writer.targets);
        writer.run.clear();
        writer.targets.clear();
        io.parts.push(Part::Own);
        if blocks > count {
            let filled = (blocks - count) * BLOCK_SECTORS as u32;
            io.parts.push(Part::Gap(filled));
        }
        self.checkpoint.writes += 1;
        self.stats.map_blocks += u64::from(blocks);
        self.out.push_back(Action::Submit(tag));
    }

    /// A run was written, or goes to another segment.
    pub(super) fn run_ended(&mut self, tag: Tag, good: bool) {
        self.checkpoint.writes -= 1;
        let io = self.ios.get_mut(tag);
        let block = io.block;
        let targets = core::mem::take(&mut io.targets);
        let own = core::mem::take(&mut io.own);
        self.ios.release(tag);
        if good {
            self.checkpoint.failures = 0;
            for target in &targets {
                if let AnyPage::Numbered(page) = target.page {
                    self.cache.unpin(page);
                }
            }
            return;
        }
        self.checkpoint.failures += 1;
        if self.checkpoint.failures > MOST_FAILURES {
            return self.go_read_only();
        }
        if let Some(target) = targets.first() {
            let stream = usize::from(target.second);
            self.end_run(stream);
            self.writers[stream].segment = None;
        }
        let pages = targets.iter().zip(own.as_chunks::<BLOCK>().0);
        for ((target, bytes), failed) in pages.zip(block..) {
            let place = self.page_ref(target.page);
            let now = if target.second {
                place.copy
            } else {
                place.block
            };
            // A page that was written again since has its place already.
            if now == failed {
                self.put_copy(*target, bytes);
            }
        }
        self.end_runs();
    }

    /// The segment table, the catalogue and inner pages that have changed.
    pub(super) fn write_system(&mut self) {
        if core::mem::replace(&mut self.checkpoint.next, usize::MAX) == usize::MAX {
            return;
        }
        let mut bytes = [0; BLOCK];
        while let Some(number) = self.segments.take_dirty() {
            let page = self.pages.system.segments.start + number;
            bytes.fill(0);
            let head = Head::of_pool(PageKind::Segments, u64::from(number), u64::from(page));
            head.encode(&mut bytes);
            for (place, row) in self.segments.rows(number) {
                row.put(&mut bytes, place);
            }
            self.put_page(AnyPage::Numbered(page), &bytes, true);
        }
        self.write_catalogue();
        self.write_inner();
    }

    fn write_catalogue(&mut self) {
        let first = self.pages.system.catalogue.start;
        let rows: alloc::vec::Vec<_> = self
            .volumes
            .values()
            .map(super::state::Volume::row)
            .collect();
        let mut parts = rows.chunks(<crate::format::rows::VolumeRow as Row>::PER_PAGE);
        for number in 0..CATALOGUE_PAGES {
            let page = first + number;
            let part = parts.next();
            if part.is_none() && !self.pages.get(page).is_used() {
                return;
            }
            let mut bytes = [0; BLOCK];
            let head = Head::of_pool(PageKind::Catalogue, u64::from(number), u64::from(page));
            head.encode(&mut bytes);
            for (place, row) in part.unwrap_or_default().iter().enumerate() {
                row.put(&mut bytes, place);
            }
            self.put_page(AnyPage::Numbered(page), &bytes, true);
        }
    }

    fn write_inner(&mut self) {
        let mut bytes = [0; BLOCK];
        let mut volumes = core::mem::take(&mut self.volumes);
        for volume in volumes.values_mut() {
            let (lineage, birth) = (volume.data.0, volume.epoch);
            for (level, index, inner) in volume.tree.inner_mut() {
                if !core::mem::take(&mut inner.dirty) {
                    continue;
                }
                let place = self.pages.get_mut(inner.page);
                if !place.is_used() {
                    place.birth = birth;
                }
                let head = Head {
                    kind: PageKind::Inner,
                    level: level as u8 + 1,
                    lineage,
                    birth: place.birth,
                    index: index as u64,
                    page: u64::from(inner.page),
                };
                encode_inner(&head, &inner.children, &mut bytes);
                self.put_page(AnyPage::Numbered(inner.page), &bytes, true);
            }
        }
        self.volumes = volumes;
    }

    /// Pages of the page table that have changed.
    pub(super) fn write_tables(&mut self) {
        let mut bytes = [0; BLOCK];
        while let Some(number) = self.pages.take_dirty() {
            bytes.fill(0);
            let head = Head::of_pool(PageKind::Table, u64::from(number), 0);
            head.encode(&mut bytes);
            for (place, row) in self.pages.rows(number).iter().enumerate() {
                row.put(&mut bytes, place);
            }
            self.put_page(AnyPage::Table(number), &bytes, true);
            self.pages.directory_dirty[number as usize / PageRef::PER_PAGE] = true;
        }
    }

    /// Pages of the directory that have changed.
    pub(super) fn write_directories(&mut self) {
        let mut bytes = [0; BLOCK];
        while let Some(number) = self.pages.take_dirty_directory() {
            bytes.fill(0);
            let head = Head::of_pool(PageKind::Directory, u64::from(number), 0);
            head.encode(&mut bytes);
            for (place, row) in self.pages.directory_rows(number).iter().enumerate() {
                row.put(&mut bytes, place);
            }
            self.put_page(AnyPage::Directory(number), &bytes, true);
        }
    }
}
