//! Devices that move data straight to and from the guest's memory.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;

use flashyard_block::{
    Device, FileDevice, FileOptions, Info, Io, IoFuture, LentIo, SharedDevice, Tag,
};
use flashyard_host::vfio::{Guest, GuestOptions};
use flashyard_nvme::vfio_user::pci::{BAR0, CONFIG};
use flashyard_nvme::vfio_user::{DmaUnmap, RegionAccess, Reply, Request, UNMAP_ALL};
use flashyard_nvme::{Sgl, SubmissionQueueEntry};
use flashyard_runtime::sync::Notify;
use flashyard_testbed::{BLOCK, memory, pattern};
use flashyard_vfio::Function;

use super::{Site, range, run};

/// A device that counts what comes with lent memory and what without, and does the former when it
/// is open.
struct Door {
    device: SharedDevice,
    open: Cell<bool>,
    opened: Notify,
    lent: Cell<usize>,
    copied: Cell<usize>,
}

impl Door {
    fn new(device: SharedDevice) -> Rc<Self> {
        Rc::new(Self {
            device,
            open: Cell::new(true),
            opened: Notify::new(),
            lent: Cell::new(0),
            copied: Cell::new(0),
        })
    }

    fn open(&self) {
        self.open.set(true);
        self.opened.notify_all();
    }
}

/// As it is held by the target.
struct Behind(Rc<Door>);

impl Device for Behind {
    fn info(&self) -> Info {
        self.0.device.info()
    }

    fn submit(&self, tag: Tag, io: Io) -> IoFuture {
        if io.transfers() > 0 {
            self.0.copied.set(self.0.copied.get() + 1);
        }
        self.0.device.submit(tag, io)
    }

    fn takes_lent(&self) -> Option<u32> {
        self.0.device.takes_lent()
    }

    fn submit_lent(&self, tag: Tag, io: LentIo) -> IoFuture {
        let door = self.0.clone();
        door.lent.set(door.lent.get() + 1);
        if door.open.get() {
            return door.device.submit_lent(tag, io);
        }
        IoFuture::boxed(async move {
            while !door.open.get() {
                door.opened.notified().await;
            }
            door.device.submit_lent(tag, io).await
        })
    }
}

fn attach(site: &Site, device: SharedDevice) -> (Rc<Door>, Function, PathBuf) {
    let door = Door::new(device);
    site.bench.target.detach("a", 1).expect("it is there");
    site.bench.attach("a", 1, 0, Rc::new(Behind(door.clone())));
    let (function, path) = site.offer("a");
    (door, function, path)
}

pub(super) async fn file(site: &Site, block_size: u32) -> SharedDevice {
    let options = FileOptions {
        block_size,
        size: Some(16 << 20),
        read_only: false,
    };
    let path = site.scratch.join(format!("disk{block_size}"));
    let opened = FileDevice::open(&site.rt, &path, options).await;
    Rc::new(opened.expect("a file"))
}

/// Every length at every offset: what is aligned is lent, what is not is copied, and both see what
/// the other one has written.
#[test]
fn data_are_lent_where_they_are_aligned_and_copied_where_not() {
    run(|site| async move {
        for device in [file(&site, BLOCK).await, memory(16 << 20)] {
            let unit = device.takes_lent().expect("a real machine");
            let (door, _function, path) = attach(&site, device);
            let mut guest = site.guest(&path, GuestOptions::default()).await;
            let (mut seed, mut lent, mut copied) = (0, 0, 0);
            for offset in [0, 4, 512, 2048] {
                for blocks in [1, 2, 3, 16, 256] {
                    seed += 1;
                    let data = pattern(seed, (blocks * BLOCK) as usize);
                    let (at, from) = (range(seed * 7 % 1000, blocks), 2048 - offset);
                    guest
                        .write((1, 1), at, (offset, &data))
                        .await
                        .expect("written");
                    let mut read = vec![0; data.len()];
                    guest
                        .read((2, 1), at, (from, &mut read))
                        .await
                        .expect("read");
                    assert!(read == data, "{blocks} blocks at {offset}");
                    for offset in [offset, from] {
                        let aligned = offset.is_multiple_of(unit.into());
                        let aligned = aligned && BLOCK.is_multiple_of(unit);
                        *if aligned { &mut lent } else { &mut copied } += 1;
                    }
                }
            }
            assert_eq!(
                (door.lent.get(), door.copied.get()),
                (lent, copied),
                "{unit}"
            );
            assert!(lent > 0);
        }
    });
}

/// Starts a read that stays at the device.
async fn begin(guest: &mut Guest, door: &Door) -> u16 {
    door.open.set(false);
    let before = door.lent.get();
    let cid = guest.take_place(1).expect("free");
    let entry = SubmissionQueueEntry::read(1, range(0, 8), Sgl::Transport { length: 0 });
    guest.put_io(1, (entry, cid), (0, 8 * BLOCK)).expect("room");
    guest.ring(1).await.expect("rung");
    while door.lent.get() == before {
        guest.status().await.expect("it answers");
    }
    cid
}

/// What the guest wants to be over before it uses its memory for something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Over {
    Unmapped,
    Reset,
    FunctionReset,
    /// A reset of the function whose controller the guest has disabled before.
    DisabledFunctionReset,
}

impl Over {
    fn request(self) -> Request<'static> {
        match self {
            Self::Unmapped => Request::DmaUnmap(DmaUnmap {
                argsz: 24,
                flags: UNMAP_ALL,
                address: 0,
                size: 0,
            }),
            Self::Reset => Request::Reset,
            Self::FunctionReset | Self::DisabledFunctionReset => {
                let access = RegionAccess {
                    offset: 0x68,
                    region: CONFIG,
                    count: 2,
                };
                Request::RegionWrite(access, &[0x00, 0x80])
            }
        }
    }
}

/// The answer comes when no device moves data any more, and until then the memory is there.
#[test]
fn memory_that_is_lent_is_given_back_when_the_device_is_done() {
    run(|site| async move {
        let (door, function, path) = attach(&site, memory(16 << 20));
        for over in [
            Over::Unmapped,
            Over::Reset,
            Over::FunctionReset,
            Over::DisabledFunctionReset,
        ] {
            let mut guest = site.guest(&path, GuestOptions::default()).await;
            let data = pattern(7, 8 * BLOCK as usize);
            door.open();
            guest
                .write((2, 1), range(0, 8), (0, &data))
                .await
                .expect("written");
            let cid = begin(&mut guest, &door).await;
            if over == Over::DisabledFunctionReset {
                let disabled = guest.client.write(BAR0, 0x14, &[0; 4]).await;
                disabled.expect("written");
            }
            let message = over.request().encode(77);
            guest.client.send(&message, &[]).await.expect("sent");
            // The function has done what it was asked: it shows that the controller has gone.
            if over != Over::Unmapped {
                site.until("the reset", || !function.report().ready).await;
            }
            for _ in 0..100 {
                site.rt.turn_end().await;
            }
            let mut seen = vec![0; data.len()];
            guest
                .load(guest.data(1, cid, 0), &mut seen)
                .expect("memory");
            assert!(seen != data, "{over:?}");
            door.open();
            let reply = guest.client.reply().await.expect("an answer");
            assert!(!matches!(reply, Reply::Error(..)), "{over:?}");
            guest
                .load(guest.data(1, cid, 0), &mut seen)
                .expect("memory");
            assert!(seen == data, "{over:?}: the device was not done");
            drop(guest);
            site.until("it has gone", || !function.report().connected)
                .await;
        }
    });
}

/// CSTS.RDY is 1 as long as a device moves data.
#[test]
fn a_controller_is_not_disabled_before_the_device_is_done() {
    run(|site| async move {
        let (door, _function, path) = attach(&site, memory(16 << 20));
        let mut guest = site.guest(&path, GuestOptions::default()).await;
        for round in 1..4 {
            begin(&mut guest, &door).await;
            guest
                .client
                .write(BAR0, 0x14, &[0; 4])
                .await
                .expect("written");
            for _ in 0..20 {
                assert!(guest.status().await.expect("CSTS").rdy, "round {round}");
            }
            door.open();
            guest.disable().await.expect("RDY is 0");
            guest.enable().await.expect("enabled");
            let data = pattern(round, BLOCK as usize);
            guest
                .write((1, 1), range(9, 1), (0, &data))
                .await
                .expect("written");
        }
    });
}
