//! Reads each copy of what was not good, where the device has several: what is good on one of them
//! is the answer, and is written over those on which it is not.

use std::ops::Range;

use flashyard_logstore::Tag as StoreTag;
use flashyard_logstore::format::{BLOCK, BLOCK_SECTORS, SECTOR};
use flashyard_runtime::{Buf, Data};

use super::engine::{BUFFER_PAUSE, Engine};
use crate::{Copies, Done, IoError, Tag};

impl Engine {
    /// Reads all of an I/O of the store, from each copy, into `into`. What is good on no copy reads
    /// as zeroes, which are not good either.
    pub(super) async fn read_copies(
        &self,
        tag: StoreTag,
        charged: Tag,
        lba: u64,
        mut into: Buf,
    ) -> Result<Done, IoError> {
        let Some(copies) = self.device.copies() else {
            return Err(IoError::Unsupported);
        };
        let parts = self.store.borrow().parts(tag);
        let (mut good, mut ill) = (vec![false; parts.len()], vec![false; parts.len()]);
        let mut buf = self.buffer(into.len()).await;
        let last = lba + self.blocks_of(into.len() - BLOCK);
        let count = || copies.count(lba).max(copies.count(last));
        let stored = copies.stored(lba).max(copies.stored(last));
        let (mut next, mut counted) = (0, count());
        loop {
            if count() < counted {
                // A member has gone, and those behind it have other numbers.
                (next, counted) = (0, count());
            }
            if next >= counted {
                break;
            }
            let copy = next;
            next += 1;
            // What is computed is not needed where what is stored is good.
            if copy >= stored && good.iter().all(|good| *good) {
                break;
            }
            buf = match self.read_copy(copies, copy, (charged, lba), buf).await {
                Ok(read) => read,
                Err(_) => {
                    ill.fill(true);
                    buf = self.buffer(into.len()).await;
                    continue;
                }
            };
            let store = self.store.borrow();
            for (number, part) in parts.iter().enumerate() {
                let at = bytes_of(part);
                if ill[number] && good[number] {
                    continue;
                }
                match store.is_good(tag, part, &buf[at.clone()]) {
                    true if good[number] => {}
                    true => {
                        into[at.clone()].copy_from_slice(&buf[at]);
                        good[number] = true;
                    }
                    false => ill[number] = true,
                }
            }
        }
        let known = |of: &[bool], sector: u32| {
            let mut parts = parts.iter().zip(of);
            parts.any(|(part, is)| *is && part.contains(&sector))
        };
        for (part, _) in parts.iter().zip(&good).filter(|(_, good)| !**good) {
            into[bytes_of(part)].fill(0);
        }
        // Only blocks of which all is known to be good are written: the rest may be somebody's.
        for (number, bytes) in (0..).zip(into.chunks_mut(BLOCK)) {
            let mut sectors = number * BLOCK_SECTORS as u32..(number + 1) * BLOCK_SECTORS as u32;
            let is_ill = sectors.clone().any(|sector| known(&ill, sector));
            if is_ill && sectors.all(|sector| known(&good, sector)) {
                let lba = lba + self.blocks_of(number as usize * BLOCK);
                self.heal(tag, copies, (charged, lba), bytes).await;
            }
        }
        match good.contains(&true) {
            true => Ok(Data::Buf(into).into()),
            false => Err(IoError::Integrity),
        }
    }

    /// Blocks of the device for so many bytes.
    fn blocks_of(&self, bytes: usize) -> u64 {
        bytes as u64 / u64::from(self.device.info().block_size)
    }

    /// Reads a copy; block by block if it lies on several members.
    async fn read_copy(
        &self,
        copies: &dyn Copies,
        copy: usize,
        (charged, lba): (Tag, u64),
        buf: Buf,
    ) -> Result<Buf, IoError> {
        let len = buf.len();
        match copies.read(charged, copy, lba, buf).await {
            Ok(done) => return self.in_a_buffer(done.data).await,
            Err(IoError::OutOfRange) if len > BLOCK => {}
            Err(error) => return Err(error),
        }
        let mut whole = self.buffer(len).await;
        for (number, block) in whole.chunks_mut(BLOCK).enumerate() {
            let lba = lba + self.blocks_of(number * BLOCK);
            let into = self.buffer(BLOCK).await;
            // What cannot be read is not good.
            match copies.read(charged, copy, lba, into).await {
                Ok(done) => block.copy_from_slice(&self.in_a_buffer(done.data).await?),
                Err(_) => block.fill(0),
            }
        }
        Ok(whole)
    }

    async fn in_a_buffer(&self, data: Data) -> Result<Buf, IoError> {
        Ok(match data {
            Data::Buf(buf) => buf,
            Data::Zeroes(len) => {
                let mut buf = self.buffer(len).await;
                buf.fill(0);
                buf
            }
        })
    }

    /// Writes what is good over copies that are not. What that could not do is done when it is read
    /// again.
    async fn heal(
        &self,
        tag: StoreTag,
        copies: &dyn Copies,
        (charged, lba): (Tag, u64),
        good: &[u8],
    ) {
        for (number, bytes) in good.chunks(BLOCK).enumerate() {
            let mut data = self.buffer(bytes.len()).await;
            data.copy_from_slice(bytes);
            let lba = lba + self.blocks_of(number * BLOCK);
            let healed = copies.heal(charged, lba, data).await.unwrap_or(0);
            if self.store.borrow().io(tag).is_scrub() {
                self.scrub_healed
                    .set(self.scrub_healed.get() + healed as u64);
            }
        }
    }

    /// A buffer, when there is memory for one.
    async fn buffer(&self, len: usize) -> Buf {
        loop {
            match Buf::take(len) {
                Some(buf) => return buf,
                None => self.rt.sleep(BUFFER_PAUSE).await,
            }
        }
    }
}

/// The bytes of a part of what is read.
fn bytes_of(part: &Range<u32>) -> Range<usize> {
    part.start as usize * SECTOR..part.end as usize * SECTOR
}
