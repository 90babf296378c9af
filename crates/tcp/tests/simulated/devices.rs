//! Devices that do what a test wants.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use flashyard_block::{Device, Health, Info, Io, IoError, IoFuture, SharedDevice, Tag};
use flashyard_runtime::sync::Notify;
use flashyard_sched::Op;

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

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        self.gate.issued.borrow_mut().push((name(&io), io.lba()));
        let (inner, gate) = (self.inner.clone(), self.gate.clone());
        IoFuture::boxed(async move {
            gate.pass().await?;
            inner.submit(tag, io).await
        })
    }
}

fn name(io: &Io) -> &'static str {
    match io.op() {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::WriteZeroes => "write zeroes",
        Op::Deallocate => "deallocate",
        Op::CompareAndWrite => "compare and write",
    }
}
