//! A device of which writes stay in memory: what is below is never changed. Of use to look at
//! something that could only be opened by writing to it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flashyard_runtime::{Buf, Data};

use crate::range::locate_io;
use crate::{Device, Done, Info, Io, IoError, IoFuture, SharedDevice, Tag, WholeRows};

/// Blocks that were written, by number; nothing for one of zeroes.
type Written = BTreeMap<u64, Option<Box<[u8]>>>;

/// See the module. Memory is taken for every block that is written.
pub struct Overlay {
    below: SharedDevice,
    written: Rc<RefCell<Written>>,
}

impl Overlay {
    /// Nothing written over `below` yet.
    pub fn new(below: SharedDevice) -> Self {
        Self {
            below,
            written: Rc::default(),
        }
    }

    fn write(&self, lba: u64, data: &[u8]) {
        let block = self.below.info().block_size as usize;
        let blocks = (lba..).zip(data.chunks(block));
        let blocks = blocks.map(|(lba, bytes)| (lba, Some(bytes.into())));
        self.written.borrow_mut().extend(blocks);
    }

    fn read(&self, tag: Tag, lba: u64, into: Buf) -> IoFuture {
        let block = self.below.info().block_size as usize;
        let (len, blocks) = (into.len(), (into.len() / block) as u64);
        let read = self.below.submit(tag, Io::Read { lba, into });
        if self
            .written
            .borrow()
            .range(lba..lba + blocks)
            .next()
            .is_none()
        {
            return read;
        }
        let written = self.written.clone();
        IoFuture::boxed(async move {
            let mut whole = match read.await?.data {
                Data::Buf(buf) => buf,
                Data::Zeroes(_) => Buf::take_zeroed(len).ok_or(IoError::Busy)?,
            };
            for (at, bytes) in written.borrow().range(lba..lba + blocks) {
                let from = (at - lba) as usize * block;
                match bytes {
                    Some(bytes) => whole[from..from + block].copy_from_slice(bytes),
                    None => whole[from..from + block].fill(0),
                }
            }
            Ok(Data::Buf(whole).into())
        })
    }
}

impl Device for Overlay {
    fn info(&self) -> Info {
        Info {
            read_only: false,
            deallocate: false,
            ..self.below.info()
        }
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        if let Err(error) = locate_io(&self.info(), &io) {
            return IoFuture::ready(Err(error));
        }
        match io {
            Io::Read { lba, into } => return self.read(tag, lba, into),
            Io::Write { lba, data, .. } => self.write(lba, &data),
            Io::Zero { lba, blocks, .. } => {
                let zeroes = (lba..lba + blocks).map(|lba| (lba, None));
                self.written.borrow_mut().extend(zeroes);
            }
            Io::Flush => {}
            Io::CompareAndWrite(_) => return IoFuture::ready(Err(IoError::Unsupported)),
        }
        IoFuture::ready(Ok(Done::EMPTY))
    }

    fn rows(&self) -> Option<WholeRows> {
        self.below.rows()
    }

    fn is_page_cached(&self) -> bool {
        self.below.is_page_cached()
    }
}
