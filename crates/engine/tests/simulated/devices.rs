//! Devices that do what a test wants.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Device, Health, Info, IoError, IoFuture, SharedDevice, Tag};
use flashyard_runtime::sync::Notify;
use flashyard_runtime::{Buf, Data};

/// A device that does nothing while it is held.
pub(crate) struct Held {
    inner: SharedDevice,
    gate: Rc<Gate>,
}

/// The handle of a [`Held`] device.
#[derive(Default)]
pub(crate) struct Gate {
    shut: Cell<bool>,
    opened: Notify,
    /// What has been issued to the device, in order.
    pub(crate) issued: RefCell<Vec<(&'static str, u64)>>,
    /// Answer this to everything.
    pub(crate) failing: Cell<Option<IoError>>,
    /// How the medium is.
    pub(crate) health: Cell<Health>,
}

impl Gate {
    pub(crate) fn shut(&self) {
        self.shut.set(true);
    }

    pub(crate) fn open(&self) {
        self.shut.set(false);
        self.opened.notify_all();
    }

    async fn pass(&self) -> Result<(), IoError> {
        while self.shut.get() {
            self.opened.notified().await;
        }
        self.failing.get().map_or(Ok(()), Err)
    }
}

impl Held {
    pub(crate) fn around(inner: SharedDevice) -> (SharedDevice, Rc<Gate>) {
        let gate = Rc::new(Gate::default());
        (
            Rc::new(Self {
                inner,
                gate: gate.clone(),
            }),
            gate,
        )
    }

    fn held<T: Unpin + 'static>(
        &self,
        what: &'static str,
        lba: u64,
        act: impl FnOnce(SharedDevice) -> IoFuture<T> + 'static,
    ) -> IoFuture<T> {
        self.gate.issued.borrow_mut().push((what, lba));
        let (inner, gate) = (self.inner.clone(), self.gate.clone());
        IoFuture::boxed(async move {
            gate.pass().await?;
            act(inner).await
        })
    }
}

impl Device for Held {
    fn info(&self) -> Info {
        Info {
            read_only: self.health().worn_out,
            ..self.inner.info()
        }
    }

    fn health(&self) -> Health {
        self.gate.health.get()
    }

    fn read(&self, tag: Tag, lba: u64, buf: Buf) -> IoFuture<Data> {
        self.held("read", lba, move |inner| inner.read(tag, lba, buf))
    }

    fn write(&self, tag: Tag, lba: u64, buf: Buf, fua: bool) -> IoFuture<()> {
        self.held("write", lba, move |inner| inner.write(tag, lba, buf, fua))
    }

    fn flush(&self, tag: Tag) -> IoFuture<()> {
        self.held("flush", 0, move |inner| inner.flush(tag))
    }

    fn write_zeroes(&self, tag: Tag, lba: u64, blocks: u64, deallocate: bool) -> IoFuture<()> {
        self.held("write zeroes", lba, move |inner| {
            inner.write_zeroes(tag, lba, blocks, deallocate)
        })
    }

    fn deallocate(&self, tag: Tag, lba: u64, blocks: u64) -> IoFuture<()> {
        self.held("deallocate", lba, move |inner| {
            inner.deallocate(tag, lba, blocks)
        })
    }

    fn compare_and_write(
        &self,
        tag: Tag,
        lba: u64,
        compare: Buf,
        write: Buf,
        fua: bool,
    ) -> IoFuture<()> {
        self.held("compare and write", lba, move |inner| {
            inner.compare_and_write(tag, lba, compare, write, fua)
        })
    }
}
