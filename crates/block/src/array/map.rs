//! The region map of a set on its members. Who waits for it shares what is being written.

use std::cell::Cell;
use std::rc::Rc;

use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Data, Shared as Bytes};

use super::flight::is_momentary;
use super::geometry::{MAP_SECTOR, MAP_START};
use super::member::{Failure, Member};
use super::set::Set;
use crate::{Device, DeviceExt, Io, IoError, SharedDevice, Tag};

/// Bytes of the map that are written together: no disk has larger sectors.
const PAGE: usize = 4096;
const SECTORS: usize = PAGE / MAP_SECTOR as usize;
/// Bytes of the map that are read together.
const READ: usize = 64 << 10;

/// How far the writing of a map has come.
#[derive(Default)]
pub(super) struct MapWriter {
    running: Cell<bool>,
    started: Cell<u64>,
    done: Cell<u64>,
    /// The last time that failed, and with what.
    failed: Cell<Option<(u64, IoError)>>,
    ended: Notify,
}

impl Set {
    /// Makes all that is known of the regions durable on the members.
    pub(super) async fn persist(self: &Rc<Self>) -> Result<(), IoError> {
        let map = &self.map;
        let needed = map.started.get() + 1;
        loop {
            if map.done.get() >= needed {
                let failed = map.failed.get().filter(|(round, _)| *round >= needed);
                return failed.map_or(Ok(()), |(_, error)| Err(error));
            }
            if !map.running.replace(true) {
                map.started.set(map.started.get() + 1);
                let set = Rc::clone(self);
                // It goes on when no task waits any more.
                self.rt
                    .spawn(async move { set.write_round().await })
                    .detach();
            }
            map.ended.notified().await;
        }
    }

    async fn write_round(self: Rc<Self>) {
        let round = self.map.started.get();
        if let Err(error) = self.write_changed().await {
            self.map.failed.set(Some((round, error)));
            // What was not written is written with the next one.
            self.regions.borrow_mut().change_all();
        }
        self.map.done.set(round);
        self.map.running.set(false);
        self.map.ended.notify_all();
    }

    async fn write_changed(self: &Rc<Self>) -> Result<(), IoError> {
        let mut pages: Vec<usize> = Vec::new();
        for sector in self.regions.borrow_mut().take_changed() {
            if pages.last() != Some(&(sector / SECTORS)) {
                pages.push(sector / SECTORS);
            }
        }
        for page in pages {
            self.write_page(page).await?;
        }
        self.recorded().await
    }

    /// Writes a page of the map to all members that have one.
    async fn write_page(self: &Rc<Self>, page: usize) -> Result<(), IoError> {
        let mut buf = Buf::take_zeroed(PAGE).ok_or(IoError::Busy)?;
        let sectors = self.sectors_of(page);
        {
            let regions = self.regions.borrow();
            for (sector, bytes) in sectors
                .clone()
                .zip(buf.chunks_exact_mut(MAP_SECTOR as usize))
            {
                regions.sector(sector, bytes);
            }
        }
        let data = Bytes::from(buf);
        let lba = (MAP_START + (page * PAGE) as u64) / u64::from(self.block_size);
        let members = self.members_that(Member::is_written);
        let writes = members.into_iter().map(|member| {
            let (set, data) = (Rc::clone(self), data.clone());
            self.rt.spawn(async move {
                let write = Io::Write {
                    lba,
                    data,
                    fua: true,
                };
                let start = |device: &dyn Device| device.submit(Tag::default(), write);
                let written = set.run(&member, start).await;
                (member, written)
            })
        });
        let writes: Vec<_> = writes.collect();
        let (mut done, mut first) = (false, None);
        let mut failed = Vec::new();
        for write in writes {
            match write.await {
                (member, Ok(_)) => done |= member.is_active(),
                (member, Err(error)) => {
                    first = first.or(Some(error));
                    failed.push((member, error));
                }
            }
        }
        if !done {
            return Err(first.unwrap_or(IoError::NotReady));
        }
        if let Some(shared) = self.shared.upgrade() {
            for (member, error) in failed {
                // For want of memory all of it is written again.
                if is_momentary(error) {
                    return Err(error);
                }
                shared.fail(self, &member, Failure::Error(error));
            }
        }
        let mut regions = self.regions.borrow_mut();
        for (sector, bytes) in sectors.zip(data.chunks_exact(MAP_SECTOR as usize)) {
            regions.mark(sector, bytes);
        }
        Ok(())
    }

    fn sectors_of(&self, page: usize) -> std::ops::Range<usize> {
        let count = self.regions.borrow().sectors();
        page * SECTORS..((page + 1) * SECTORS).min(count)
    }

    /// Adds what the map of a member says.
    pub(super) async fn load_map(&self, device: &SharedDevice) -> Result<(), IoError> {
        let sectors = self.regions.borrow().sectors();
        let bytes = sectors * MAP_SECTOR as usize;
        for start in (0..bytes).step_by(READ) {
            let length = (bytes - start).next_multiple_of(PAGE).min(READ);
            let buf = Buf::take(length).ok_or(IoError::Busy)?;
            let lba = (MAP_START + start as u64) / u64::from(self.block_size);
            let read = match device.read(Tag::default(), lba, buf).await {
                Ok(Data::Buf(buf)) => buf,
                // What cannot be read says everything.
                Ok(Data::Zeroes(_)) | Err(IoError::Read | IoError::Integrity) => {
                    Buf::take_zeroed(length).ok_or(IoError::Busy)?
                }
                Err(error) => return Err(error),
            };
            let first = start / MAP_SECTOR as usize;
            let parts = read.chunks_exact(MAP_SECTOR as usize);
            let mut regions = self.regions.borrow_mut();
            for (sector, part) in (first..sectors).zip(parts) {
                regions.load(sector, part);
            }
        }
        Ok(())
    }
}
