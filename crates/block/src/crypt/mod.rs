//! Encryption of a whole device: a layer before any other one, which stores every block with
//! AES-256-XTS. Its key is in a header at the beginning of that device, wrapped by a secret: see
//! `header`, and [`flashyard_keys`].
//!
//! A block is a data unit, numbered as hosts number it. A block whose stored bytes are all zero
//! reads as zeroes, since no block of data is stored like that: so blocks that the device below has
//! never had, has deallocated or made zero read as zeroes here too. Which these are can be seen on
//! the device; what is in the others cannot. A change of the device below is not detected.
//!
//! Data are encrypted where they are if no one else holds them, else on the way to another buffer,
//! on the core that the layer is on. They are decrypted where they were read.

mod check;
mod error;
mod header;
mod places;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_codec::cipher::{Cipher, Key, Unit};
use flashyard_codec::compress::is_zero;
use flashyard_runtime::{Buf, Data, Rt, Shared};

pub use check::{Report, check};
pub use error::CryptError;
pub use header::Header;
pub use places::{erase, find, look_for_room, store};

use crate::gate::{Gate, Span};
use crate::range::locate_io;
use crate::{Device, Done, Health, Info, Io, IoError, IoFuture, SharedDevice, Tag, Turns};

/// Bytes before the first block of data.
pub const DATA_START: u64 = 1 << 20;

/// See the module.
pub struct CryptDevice(Rc<Layer>);

struct Layer {
    below: SharedDevice,
    cipher: RefCell<Cipher>,
    /// Blocks below before the first block of data.
    start: u64,
    block_size: usize,
    gate: Rc<Gate>,
    /// The device below was blank before it got its header, and nothing was written since.
    blank: Cell<bool>,
}

impl CryptDevice {
    /// The layer before `below` that encrypts with `key`, which is that of its header.
    pub fn new(rt: &Rt, below: SharedDevice, key: &Key) -> Result<Self, CryptError> {
        let info = below.info();
        let bytes = info.blocks.saturating_mul(u64::from(info.block_size));
        let unit = Unit::of_bytes(info.block_size);
        let unit = unit.ok_or(CryptError::BlockSize(info.block_size))?;
        if bytes <= DATA_START {
            return Err(CryptError::TooSmall(bytes));
        }
        Ok(Self(Rc::new(Layer {
            below,
            cipher: RefCell::new(Cipher::new(key, unit)?),
            start: DATA_START / u64::from(info.block_size),
            block_size: info.block_size as usize,
            gate: Gate::new(rt),
            blank: Cell::new(false),
        })))
    }

    /// The same, of a device that was blank before it got its header.
    #[must_use]
    pub fn on_blank(self) -> Self {
        self.0.blank.set(true);
        self
    }

    /// The device that it stands before.
    pub fn below(&self) -> SharedDevice {
        Rc::clone(&self.0.below)
    }

    /// Refuses all I/O from now on, and waits for what is in flight.
    pub async fn close(&self) {
        self.0.gate.close(IoError::NotReady);
        self.0.gate.drained().await;
    }
}

impl Device for CryptDevice {
    fn info(&self) -> Info {
        let info = self.0.below.info();
        let blocks = info.blocks.saturating_sub(self.0.start);
        Info { blocks, ..info }
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        let info = self.info();
        let (offset, len) = match locate_io(&info, &io) {
            Ok(place) => place,
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let span = Span {
            start: offset,
            end: offset.saturating_add(len),
        };
        if !matches!(io, Io::Read { .. } | Io::Flush) {
            if info.read_only {
                return IoFuture::ready(Err(IoError::WriteProtected));
            }
            self.0.blank.set(false);
        }
        let layer = Rc::clone(&self.0);
        match io {
            Io::CompareAndWrite(pair) => {
                let (lba, fua) = (pair.lba(), pair.fua());
                let reader = Rc::clone(&self.0);
                let read = move |into| reader.read(tag, lba, into);
                let write = move |data| layer.write(tag, lba, data, fua);
                let gate = &self.0.gate;
                gate.compare_and_write(span, false, pair, (read, write))
            }
            io => self.0.gate.pass(span, false, move || layer.pass(tag, io)),
        }
    }

    fn take_turns(&self, turns: &Rc<dyn Turns>) {
        self.0.below.take_turns(turns);
    }

    fn health(&self) -> Health {
        self.0.below.health()
    }

    fn take_growth(&self) -> Result<(), IoError> {
        self.0.below.take_growth()
    }

    fn moved(&self) -> Option<u64> {
        self.0.below.moved()
    }

    fn is_blank(&self) -> bool {
        self.0.blank.get()
    }

    fn is_page_cached(&self) -> bool {
        self.0.below.is_page_cached()
    }
}

impl Layer {
    fn pass(self: Rc<Self>, tag: Tag, io: Io) -> IoFuture {
        match io {
            Io::Read { lba, into } => self.read(tag, lba, into),
            Io::Write { lba, data, fua } => self.write(tag, lba, data, fua),
            Io::Flush => self.below.submit(tag, Io::Flush),
            io => {
                let place = io.lba() + self.start;
                self.below.submit(tag, io.at(place))
            }
        }
    }

    fn read(self: Rc<Self>, tag: Tag, lba: u64, into: Buf) -> IoFuture {
        let place = lba + self.start;
        let read = self.below.submit(tag, Io::Read { lba: place, into });
        match read.try_finish() {
            Ok(outcome) => IoFuture::ready(outcome.and_then(|done| self.decrypt(lba, done))),
            Err(read) => IoFuture::boxed(async move {
                let done = read.await?;
                self.decrypt(lba, done)
            }),
        }
    }

    fn decrypt(&self, lba: u64, done: Done) -> Result<Done, IoError> {
        let Data::Buf(mut data) = done.data else {
            return Ok(done);
        };
        let mut cipher = self.cipher.borrow_mut();
        for (lba, block) in (lba..).zip(data.chunks_exact_mut(self.block_size)) {
            if !is_zero(block) {
                let done = cipher.decrypt(lba.into(), block);
                done.map_err(|_| IoError::Internal)?;
            }
        }
        Ok(Data::Buf(data).into())
    }

    fn write(&self, tag: Tag, lba: u64, data: Shared, fua: bool) -> IoFuture {
        let data = match self.encrypt(lba, data) {
            Ok(data) => data.into(),
            Err(error) => return IoFuture::ready(Err(error)),
        };
        let lba = lba + self.start;
        self.below.submit(tag, Io::Write { lba, data, fua })
    }

    fn encrypt(&self, lba: u64, data: Shared) -> Result<Buf, IoError> {
        let mut cipher = self.cipher.borrow_mut();
        let (done, data) = match data.try_into_buf() {
            Ok(mut data) => (cipher.encrypt(lba.into(), &mut data), data),
            Err(data) => {
                let mut stored = Buf::take(data.len()).ok_or(IoError::Busy)?;
                (cipher.encrypt_into(lba.into(), &data, &mut stored), stored)
            }
        };
        done.map(|()| data).map_err(|_| IoError::Internal)
    }
}
